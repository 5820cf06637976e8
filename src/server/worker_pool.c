/* worker_pool.c: a queue and some threads. */
#include "server/worker_pool.h"

#include "base/err.h"
#include "log/log.h"
#include "log/read.h"

#include <pthread.h>
#include <stdlib.h>

struct ol_worker_pool {
    const char *store;
    void (*work)(struct ol_request *request);
    pthread_mutex_t lock;
    pthread_cond_t has_work;
    struct ol_request *first, **last;
    size_t queued, most;
    bool is_over;
    int count;
    pthread_t threads[];
};

enum { MOST_KEPT = 8 * 1024 * 1024 };

struct desk {
    outlog *log;
    outlog *tenant; /* sees one org at a time; opened when first needed */
    struct outlog_page page;
};

static struct ol_request *take(struct ol_worker_pool *clerks)
{
    pthread_mutex_lock(&clerks->lock);
    while (!clerks->first && !clerks->is_over)
        pthread_cond_wait(&clerks->has_work, &clerks->lock);
    struct ol_request *request = clerks->first;
    if (request) {
        clerks->first = request->next;
        if (!clerks->first)
            clerks->last = &clerks->first;
        request->next = NULL;
        clerks->queued--;
    }
    pthread_mutex_unlock(&clerks->lock);
    return request;
}

/* A store that cannot be reached yet is asked again with the next request. */
static void *run(void *argument)
{
    struct ol_worker_pool *clerks = argument;
    struct ol_request *request;
    struct desk desk = {0};
    outlog_err err;

    while ((request = take(clerks))) {
        if (!desk.log && outlog_open(clerks->store, &desk.log, &err) < 0) {
            ol_problem(request, &err);
            request->answer = OL_HANDLER_ANSWERED;
            ol_request_finish(request);
            continue;
        }
        request->log = desk.log;
        request->desk = &desk;
        clerks->work(request);
        if (ol_read_page_bytes(&desk.page) > MOST_KEPT)
            outlog_page_clear(&desk.page);
    }
    outlog_page_clear(&desk.page);
    outlog_close(desk.log);
    outlog_close(desk.tenant);
    return NULL;
}

struct outlog_page *ol_worker_pool_page(struct ol_request *request)
{
    struct desk *desk = request->desk;
    return &desk->page;
}

int ol_worker_pool_confine(struct ol_request *request, const char *store, outlog_err *err)
{
    struct desk *desk = request->desk;
    struct ol_rows rows;

    if (!request->who.org_id || desk->log->conn->store != &ol_store_postgres)
        return 0;
    if (!desk->tenant && outlog_open(store, &desk->tenant, err) < 0)
        return -1;
    if (ol_log_ready(desk->tenant, err) < 0)
        return -1;
    if (desk->tenant->conn->is_pooled) // whoever got that session next would be confined
        return 0;
    if (ol_store_query(desk->tenant->conn, OL_Q_BACKEND_CONFINE,
                       OL_PARAMS(ol_value_text(request->who.org_id)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    ol_rows_end(&rows);
    if (got >
        0) // else, as with a pooler, the filters of the handlers stand alone; `outlog doctor` tells
        request->log = desk->tenant;
    return got < 0 ? -1 : 0;
}

int ol_worker_pool_open(struct ol_worker_pool **out, const char *store, int count, size_t most,
                        void (*work)(struct ol_request *request), outlog_err *err)
{
    struct ol_worker_pool *clerks = calloc(1, sizeof *clerks + (size_t)count * sizeof(pthread_t));
    if (!clerks)
        return ol_no_memory(err);
    *clerks = (struct ol_worker_pool){.store = store, .work = work, .most = most};
    clerks->last = &clerks->first;
    pthread_mutex_init(&clerks->lock, NULL);
    pthread_cond_init(&clerks->has_work, NULL);
    while (clerks->count < count &&
           pthread_create(&clerks->threads[clerks->count], NULL, run, clerks) == 0)
        clerks->count++;
    *out = clerks;
    if (clerks->count == count)
        return 0;
    ol_worker_pool_close(clerks);
    return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start %d threads", count);
}

void ol_worker_pool_close(struct ol_worker_pool *clerks)
{
    if (!clerks)
        return;
    pthread_mutex_lock(&clerks->lock);
    clerks->is_over = true;
    pthread_cond_broadcast(&clerks->has_work);
    pthread_mutex_unlock(&clerks->lock);
    for (int i = 0; i < clerks->count; i++)
        pthread_join(clerks->threads[i], NULL);
    pthread_mutex_destroy(&clerks->lock);
    pthread_cond_destroy(&clerks->has_work);
    free(clerks);
}

bool ol_worker_pool_submit(struct ol_worker_pool *clerks, struct ol_request *request)
{
    if (!clerks)
        return false; // the server ends
    pthread_mutex_lock(&clerks->lock);
    bool has_room = clerks->queued < clerks->most && !clerks->is_over;
    if (has_room) {
        request->next = NULL;
        *clerks->last = request;
        clerks->last = &request->next;
        clerks->queued++;
        pthread_cond_signal(&clerks->has_work);
    }
    pthread_mutex_unlock(&clerks->lock);
    return has_room;
}
