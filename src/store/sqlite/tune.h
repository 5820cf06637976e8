/* tune.h: settings of the whole process. Only our own programs make them: the library, inside a
 * host's process, must not. */
#ifndef OL_STORE_SQLITE_TUNE_H
#define OL_STORE_SQLITE_TUNE_H

/* Set how SQLite and the C library manage memory. Call it before any store is opened. */
void ol_sqlite_tune(void);

#endif
