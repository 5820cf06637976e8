/* run_file.h: a locked file that shows whether a run still lives (rule 23 of docs/lanes.md).
 *
 * F1  A run locks a file that it has made itself. The kernel lets go of the lock when the last
 *     thread of the process has left, and not before.
 * F2  Dead means: this very file (boot id, device and inode) is there, and its lock is free. A file
 *     that is missing, unreadable or another one proves nothing.
 * F3  So anybody may remove a file at any time: the worst that can happen is that a takeover waits
 *     for the lease. */
#ifndef OL_BASE_RUN_FILE_H
#define OL_BASE_RUN_FILE_H

#include "base/uuid.h"

#include <stdbool.h>
#include <stdint.h>

enum { OL_RUN_FOLDER_BYTES = 4096 };

/* Start from {.fd = -1}. */
struct ol_run_file {
    int fd; /* -1: there is none */
    char path[OL_RUN_FOLDER_BYTES + OL_UUID_TEXT + 1];
    char boot_id[OL_UUID_TEXT];
    int64_t device, inode;
};

/* Make the file and lock it. False: the folder cannot be used, because it does not belong to us or
 * root, others may write to it, or its file system is not a local one. */
bool ol_run_file_open(struct ol_run_file *file, const char *folder, const char *run);

/* Let go of the lock. The file stays: others see that the run has ended. */
void ol_run_file_close(struct ol_run_file *file);

/* Remove the file as well: the run has left nothing to take over. */
void ol_run_file_remove(struct ol_run_file *file);

/* Show that the file is in use: ol_run_file_sweep() goes by its age. */
void ol_run_file_touch(const struct ol_run_file *file);

/* Is the run with this file dead (F2)? Of this boot only: the caller compares the boot id. */
bool ol_run_file_is_dead(const char *folder, const char *run, int64_t device, int64_t inode);

/* Remove the file of a run that is known to be dead. */
void ol_run_file_forget(const char *folder, const char *run);

/* Remove files that nobody holds and that were not touched for a day. */
void ol_run_file_sweep(const char *folder);

#endif
