/* gather.h: what SQLite writes to its WAL in small pieces reaches the file in large ones.
 *
 * SQLite writes each page of a transaction by two calls, the frame's head and the page. They follow each other
 * in the file: here they are kept until they are wanted there, and then written by one. A group of 500 messages
 * is some 1,300 calls less, a sixth of what it costs to store.
 *
 * G1  Whoever has the file open through here sees no difference: what is kept lies over the file, and is written
 *     before anything else is done with it. What could not be written stays, and is tried again.
 * G2  Others see the file alone, and read it when a transaction was committed: from the head of the frame that ends
 *     one until the next that does not, all is written at once, whether SQLite syncs it or not. Where the medium may
 *     damage what lies beside a write, SQLite takes frames apart: there nothing is kept. */
#ifndef OL_STORE_GATHER_H
#define OL_STORE_GATHER_H

/* The name of the VFS, for sqlite3_open_v2(): the default one with this before its WAL files. NULL: it cannot be
 * had, and the default will do. */
#ifdef OL_SQLITE_EXTENSION
#define ol_gather_vfs() NULL // it could be unloaded, and opens no files
#else
const char *ol_gather_vfs(void);
#endif

#endif
