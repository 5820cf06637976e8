/* test_worker_pool.c: jobs are run by threads with a store, and come back; on both stores. */
#include "server/worker_pool.h"
#include "stores.h"

#include <pthread.h>

/* The loop's side: finished jobs are counted here. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_finished = PTHREAD_COND_INITIALIZER;
static int finished, failed;

void ol_server_finish_job(struct ol_server *server, struct ol_job *job)
{
    (void)server;
    pthread_mutex_lock(&lock);
    finished++;
    failed += job->result < 0;
    pthread_cond_signal(&has_finished);
    pthread_mutex_unlock(&lock);
}

static void wait_until_finished(int count)
{
    pthread_mutex_lock(&lock);
    while (finished < count)
        pthread_cond_wait(&has_finished, &lock);
    pthread_mutex_unlock(&lock);
}

static struct ol_worker_pool *open_pool(const char *store, int threads, size_t queue_max)
{
    const struct ol_worker_pool_options options = {.store = store,
                                                   .threads = threads,
                                                   .queue_max = queue_max};
    struct ol_worker_pool *pool;
    outlog_err err;
    OK(ol_worker_pool_open(&options, &pool, &err));
    finished = failed = 0;
    return pool;
}

static bool read_settled(struct ol_job *job)
{
    int64_t settled;
    assert_non_null(ol_worker_pool_page(job));
    job->result = outlog_settled(job->log, &settled, &job->err);
    return true;
}

static void a_job_has_a_store_and_comes_back(void **state)
{
    struct fixture *fixture = *state;
    struct ol_worker_pool *pool = open_pool(fixture->scratch.url, 2, 10);
    struct ol_job jobs[10] = {0};
    for (size_t i = 0; i < COUNT(jobs); i++) {
        jobs[i].run = read_settled;
        assert_true(ol_worker_pool_submit(pool, &jobs[i]));
    }
    wait_until_finished(10);
    assert_int_equal(failed, 0);
    ol_worker_pool_close(pool);
}

static bool fail_if_run(struct ol_job *job)
{
    (void)job;
    fail_msg("it has no store to run with");
    return true;
}

static void without_a_store_a_job_comes_back_as_failed(void **state)
{
    struct ol_worker_pool *pool = open_pool("sqlite:/nowhere/at/all.db", 1, 10);
    struct ol_job job = {.run = fail_if_run};
    (void)state;
    assert_true(ol_worker_pool_submit(pool, &job));
    wait_until_finished(1);
    assert_int_equal(failed, 1);
    assert_int_not_equal(job.err.code, OUTLOG_OK);
    ol_worker_pool_close(pool);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static bool wait_at_gate(struct ol_job *job)
{
    (void)job;
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return true;
}

static bool keep_job(struct ol_job *job)
{
    (void)job;
    return false; // another thread finishes it
}

static void a_full_queue_refuses_and_what_is_queued_is_run_before_the_end(void **state)
{
    struct fixture *fixture = *state;
    struct ol_worker_pool *pool = open_pool(fixture->scratch.url, 1, 2);
    struct ol_job jobs[4] = {{.run = wait_at_gate}, {.run = wait_at_gate}, {.run = keep_job}};
    int accepted = 0;

    jobs[3].run = wait_at_gate;
    pthread_mutex_lock(&gate);
    for (int i = 0; i < 3; i++)
        while (!ol_worker_pool_submit(pool, &jobs[i])) // until the worker has taken the first
            usleep(1000);
    accepted = ol_worker_pool_submit(pool, &jobs[3]);
    pthread_mutex_unlock(&gate);
    assert_int_equal(accepted, 0);
    ol_worker_pool_close(pool);
    assert_int_equal(finished, 2);
    assert_false(ol_worker_pool_submit(NULL, &jobs[0]));
}

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(a_job_has_a_store_and_comes_back),
    cmocka_unit_test(without_a_store_a_job_comes_back_as_failed),
    cmocka_unit_test(a_full_queue_refuses_and_what_is_queued_is_run_before_the_end),
};

int main(void)
{
    return run_with_stores("worker_pool", NULL, 0, suite, COUNT(suite));
}
