/* process.c: see process.h. */
#include "store/process.h"

#include <malloc.h>
#include <sqlite3.h>

/* Threads that store thousands of rows a second ask for memory as often. SQLite counts what it has under a lock
 * of the whole process, for figures that nobody asks for; the C library gives back what it needs again. */
void ol_process_tune(void)
{
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    mallopt(M_TRIM_THRESHOLD, 1024 * 1024);
    mallopt(M_TOP_PAD, 256 * 1024);
}
