/* tune.h: what a process of our own may do, and a library in somebody else's may not. */
#ifndef OL_STORE_SQLITE_TUNE_H
#define OL_STORE_SQLITE_TUNE_H

/* Settings of memory that hold for the whole process; before any store is opened. */
void ol_sqlite_tune(void);

#endif
