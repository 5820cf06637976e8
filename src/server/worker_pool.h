/* worker_pool.h: threads that work on requests, each with a connection of its own.
 *
 * The queue is bounded: when it is full a request is refused at once (503), which tells clients to
 * slow down while there is still time to answer those who wait. */
#ifndef OL_SERVER_WORKER_POOL_H
#define OL_SERVER_WORKER_POOL_H

#include "server/http/request.h"

struct ol_worker_pool;

int ol_worker_pool_open(struct ol_worker_pool **out, const char *store, int count, size_t most,
                        void (*work)(struct ol_request *request), outlog_err *err);

/* Finish what is queued, then end. */
void ol_worker_pool_close(struct ol_worker_pool *clerks);

/* Queue a request; false when the queue is full, or when there are no clerks any more (NULL). */
bool ol_worker_pool_submit(struct ol_worker_pool *clerks, struct ol_request *request);

/* In a clerk's thread: a page to read into. It is the clerk's, and its room is used again. */
struct outlog_page *ol_worker_pool_page(struct ol_request *request);

/* In a clerk's thread: from here on request->log sees the asker's org alone, where the database can
 * see to that (X2). */
int ol_worker_pool_confine(struct ol_request *request, const char *store, outlog_err *err);

#endif
