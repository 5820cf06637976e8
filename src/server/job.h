/* job.h: work for a thread of the worker pool, and its way back to the loop.
 *
 *   loop: ol_worker_pool_submit() ▶ worker: job->run() ▶ ol_server_finish_job() ▶ loop, by
 * job->type
 *
 * A job belongs to one thread at a time. It is the first member of a struct of its own: an HTTP
 * request, the load of a channel, an acknowledgement. */
#ifndef OL_SERVER_JOB_H
#define OL_SERVER_JOB_H

#include "outlog.h"

#include <stdbool.h>

struct ol_server;
struct ol_pool_worker;

/* Which function of the loop gets the finished job (server.c: finish_job). */
enum ol_job_type {
    OL_JOB_REQUEST,           /* an HTTP request */
    OL_JOB_REFRESH,           /* the server's own: tokens are read again */
    OL_JOB_SAMPLE,            /* the server's own: rates are measured */
    OL_JOB_SESSION_BATCH,     /* messages of a session were stored */
    OL_JOB_SESSION_ACK,       /* an effect was acknowledged */
    OL_JOB_SESSION_LOAD,      /* pending effects of a session were read */
    OL_JOB_SESSION_POLL,      /* sessions that changed elsewhere were read */
    OL_JOB_SESSION_ATTEMPTS,  /* deliveries were counted */
    OL_JOB_NOTIFICATION_LOAD, /* notifications of a user were read */
    OL_JOB_NOTIFICATION_POLL, /* users who got notifications were read */
    OL_JOB_NOTIFICATION_READ, /* a notification was marked as read */
};

struct ol_job {
    struct ol_job *next; /* in the queue it waits in */
    enum ol_job_type type;

    /* On a worker, with `log` open. False: another thread finishes the job, and it may be gone. */
    bool (*run)(struct ol_job *job);

    /* While it runs. */
    outlog *log;
    struct ol_pool_worker *worker;

    /* -1: it failed with `err`. Set by run(); or by the pool, when the store cannot be opened and
     * run() is not called. */
    int result;
    outlog_err err;
};

/* From any thread: the loop gets the job back, in the order of these calls. */
void ol_server_finish_job(struct ol_server *server, struct ol_job *job);

#endif
