/* worker_pool.h: threads that run jobs, each with a connection of its own.
 *
 * The queue is bounded. When it is full a job is refused at once, so that clients slow down while
 * there is still time to answer those that wait. */
#ifndef OL_SERVER_WORKER_POOL_H
#define OL_SERVER_WORKER_POOL_H

#include "server/job.h"

struct ol_worker_pool;

/* Finished jobs go to ol_server_finish_job(server). */
struct ol_worker_pool_options {
    struct ol_server *server;
    const char *store;
    int threads;
    size_t queue_max;
};

int ol_worker_pool_open(const struct ol_worker_pool_options *options, struct ol_worker_pool **out,
                        outlog_err *err);

/* Run what is queued, then end. NULL: nothing. */
void ol_worker_pool_close(struct ol_worker_pool *pool);

/* Queue a job; false: the queue is full, or there is no pool any more (NULL). */
bool ol_worker_pool_submit(struct ol_worker_pool *pool, struct ol_job *job);

/* On a worker: a page to read into. It belongs to the worker, which reuses its memory. */
struct outlog_page *ol_worker_pool_page(struct ol_job *job);

/* On a worker: *out is a connection that sees this org only (X2); or the job's own connection where
 * the database cannot do that. `store` is the database without a pooler in between. */
int ol_worker_pool_confine(struct ol_job *job, const char *store, const char *org_id, outlog **out,
                           outlog_err *err);

#endif
