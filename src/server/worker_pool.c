/* worker_pool.c: a queue of jobs and the threads that run them. */
#include "server/worker_pool.h"

#include "base/err.h"
#include "log/log.h"
#include "log/read.h"

#include <pthread.h>
#include <stdlib.h>

struct ol_worker_pool {
    struct ol_worker_pool_options options;
    pthread_mutex_t lock;
    pthread_cond_t has_job;
    struct ol_job *first, **last;
    size_t queued;
    bool is_closing;
    int count;
    pthread_t threads[];
};

enum { WORKER_PAGE_BYTES_MAX = 8 * 1024 * 1024 };

struct ol_pool_worker {
    outlog *log;
    outlog *tenant; /* sees one org at a time; opened when first needed */
    struct outlog_page page;
};

/* The next job; waits for it. NULL: closed, and none is left. */
static struct ol_job *take_job(struct ol_worker_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (!pool->first && !pool->is_closing)
        pthread_cond_wait(&pool->has_job, &pool->lock);
    struct ol_job *job = pool->first;
    if (job) {
        pool->first = job->next;
        if (!pool->first)
            pool->last = &pool->first;
        job->next = NULL;
        pool->queued--;
    }
    pthread_mutex_unlock(&pool->lock);
    return job;
}

/* A store that cannot be opened is tried again with the next job. */
static void *run_worker(void *argument)
{
    struct ol_worker_pool *pool = argument;
    struct ol_pool_worker worker = {0};
    struct ol_job *job;

    while ((job = take_job(pool))) {
        job->result = 0;
        if (!worker.log)
            job->result = outlog_open(pool->options.store, &worker.log, &job->err);
        job->log = worker.log;
        job->worker = &worker;
        if (job->result < 0 || job->run(job))
            ol_server_finish_job(pool->options.server, job);
        if (ol_read_page_bytes(&worker.page) > WORKER_PAGE_BYTES_MAX)
            outlog_page_clear(&worker.page);
    }
    outlog_page_clear(&worker.page);
    outlog_close(worker.log);
    outlog_close(worker.tenant);
    return NULL;
}

struct outlog_page *ol_worker_pool_page(struct ol_job *job)
{
    return &job->worker->page;
}

int ol_worker_pool_confine(struct ol_job *job, const char *store, const char *org_id, outlog **out,
                           outlog_err *err)
{
    struct ol_pool_worker *worker = job->worker;
    struct ol_rows rows;

    *out = worker->log;
    if (!org_id || worker->log->conn->store != &ol_store_postgres)
        return 0;
    if (!worker->tenant && outlog_open(store, &worker->tenant, err) < 0)
        return -1;
    if (ol_log_ready(worker->tenant, err) < 0)
        return -1;
    if (worker->tenant->conn->is_pooled) // the pooler's next client would be confined too
        return 0;
    if (ol_store_query(worker->tenant->conn, OL_Q_BACKEND_CONFINE, OL_PARAMS(ol_value_text(org_id)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    ol_rows_end(&rows);
    if (got > 0) // else only the handlers' filters apply; `outlog doctor` reports it
        *out = worker->tenant;
    return got < 0 ? -1 : 0;
}

int ol_worker_pool_open(const struct ol_worker_pool_options *options, struct ol_worker_pool **out,
                        outlog_err *err)
{
    size_t threads = (size_t)options->threads;
    struct ol_worker_pool *pool = calloc(1, sizeof *pool + threads * sizeof(pthread_t));
    if (!pool)
        return ol_no_memory(err);
    pool->options = *options;
    pool->last = &pool->first;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->has_job, NULL);
    while (pool->count < options->threads &&
           pthread_create(&pool->threads[pool->count], NULL, run_worker, pool) == 0)
        pool->count++;
    if (pool->count == options->threads) {
        *out = pool;
        return 0;
    }
    ol_worker_pool_close(pool);
    return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start %d threads", options->threads);
}

void ol_worker_pool_close(struct ol_worker_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->lock);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->has_job);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->count; i++)
        pthread_join(pool->threads[i], NULL);
    pthread_mutex_destroy(&pool->lock);
    pthread_cond_destroy(&pool->has_job);
    free(pool);
}

bool ol_worker_pool_submit(struct ol_worker_pool *pool, struct ol_job *job)
{
    if (!pool)
        return false; // the server is stopping
    pthread_mutex_lock(&pool->lock);
    bool is_accepted = pool->queued < pool->options.queue_max && !pool->is_closing;
    if (is_accepted) {
        job->next = NULL;
        *pool->last = job;
        pool->last = &job->next;
        pool->queued++;
        pthread_cond_signal(&pool->has_job);
    }
    pthread_mutex_unlock(&pool->lock);
    return is_accepted;
}
