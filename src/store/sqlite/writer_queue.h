/* writer_queue.h: writers of one process take turns.
 *
 * SQLite has one write lock and no queue for it: a writer gets it if it asks at the right moment. A
 * writer that commits without a pause releases it for microseconds only, and a relay in the same
 * process would wait for seconds. This queue serves the writers of the process first come, first
 * served. Writers of other processes can only retry often. */
#ifndef OL_STORE_SQLITE_WRITER_QUEUE_H
#define OL_STORE_SQLITE_WRITER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* Wait for our turn to write to the database with this key (store/wake.h). Key 0 has no queue:
 * the call returns true at once. False: not within the time; then do not unlock. */
bool ol_writer_queue_lock(uint64_t key, int64_t timeout_us);

/* Hand the turn to the next writer. */
void ol_writer_queue_unlock(uint64_t key);

#endif
