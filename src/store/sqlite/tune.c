/* tune.c: see tune.h. */
#include "store/sqlite/tune.h"

#include <malloc.h>
#include <sqlite3.h>

/* Threads that store or send thousands of rows a second ask for memory as often. SQLite counts what
 * it has under a lock of the whole process, for figures that nobody asks for. The C library gives
 * back to the system, page by page, what it needs again for the next batch or the next page of
 * events, which may take megabytes. */
void ol_sqlite_tune(void)
{
    enum { MB = 1024 * 1024 };
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    mallopt(M_MMAP_THRESHOLD, 8 * MB);
    mallopt(M_TRIM_THRESHOLD, 8 * MB);
}
