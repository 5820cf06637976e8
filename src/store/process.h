/* process.h: what a process of our own may do, and a library in somebody else's may not. */
#ifndef OL_STORE_PROCESS_H
#define OL_STORE_PROCESS_H

/* Settings of memory that hold for the whole process; before any store is opened. */
void ol_process_tune(void);

#endif
