/* writer_queue.h: writers of one process take turns.
 *
 * SQLite has one lock for all who write and no queue before it: whoever asks at the right moment
 * gets it. A writer that commits without a pause lets it go for microseconds only, and a relay in
 * the same process would wait for seconds. Here they queue, first come, first served. Other
 * processes still only ask often. */
#ifndef OL_STORE_SQLITE_WRITER_QUEUE_H
#define OL_STORE_SQLITE_WRITER_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

/* Wait until it is our turn at the database with this key (store/wake.h); 0 is nobody's and lets
 * everybody through. False: not within the time; then do not leave. */
bool ol_writer_queue_lock(uint64_t key, int64_t timeout_us);

/* The next one, please. */
void ol_writer_queue_unlock(uint64_t key);

#endif
