/* tune.c: memory settings for threads that allocate and free megabytes per batch. */
#include "store/sqlite/tune.h"

#include <malloc.h>
#include <sqlite3.h>

/* Threads that store or send thousands of rows per second allocate memory as often. SQLite counts
 * its memory under a lock of the whole process, for statistics that we never read. The C library
 * returns freed memory to the system page by page, and needs it again for the next batch or page of
 * events, which may take megabytes. */
void ol_sqlite_tune(void)
{
    enum { MB = 1024 * 1024 };
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
    mallopt(M_MMAP_THRESHOLD, 8 * MB);
    mallopt(M_TRIM_THRESHOLD, 8 * MB);
}
