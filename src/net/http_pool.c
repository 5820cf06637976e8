/* http_pool.c: starts and ends transfers, on the owner's thread. */
#include "net/http_pool.h"

#include "net/http_engine.h"

#include <assert.h>
#include <stdlib.h>

enum { POOL_CONNECTIONS_DEFAULT = 512 };

int ol_http_pool_open(struct ol_http_client *http, int connections, ol_http_client_done *done,
                      void *owner, struct ol_http_pool **out, outlog_err *err)
{
    struct ol_http_pool *pool = calloc(1, sizeof *pool);
    if (!pool || !(pool->multi = curl_multi_init())) {
        free(pool);
        return ol_no_memory(err);
    }
    if (ol_http_engine_start(http, err) < 0) {
        curl_multi_cleanup(pool->multi);
        free(pool);
        return -1;
    }
    pool->http = http;
    pool->done = done;
    pool->owner = owner;
    pool->idle.max = connections > 0 ? (size_t)connections : POOL_CONNECTIONS_DEFAULT;
    ol_http_engine_attach(pool);
    *out = pool;
    return 0;
}

int ol_http_pool_start(struct ol_http_pool *pool, const struct ol_http_client_request *request,
                       outlog_err *err)
{
    struct ol_http_client *http = pool->http;
    struct ol_http_transfer *t = pool->free_transfers;
    if (t)
        pool->free_transfers = t->next;
    else if (!(t = ol_http_transfer_new(&http->hooks)))
        return ol_no_memory(err);
    t->pool = pool;
    bool is_ready = ol_http_plain_admits(&pool->origin, request)
                        ? ol_http_plain_prepare(&pool->origin, t, request)
                        : ol_http_transfer_prepare(t, request);
    if (!is_ready) {
        t->next = pool->free_transfers;
        pool->free_transfers = t;
        return ol_no_memory(err);
    }
    t->before = NULL;
    if ((t->after = pool->first))
        t->after->before = t;
    pool->first = t;
    t->next = NULL;
    *http->prepared_tail = t;
    http->prepared_tail = &t->next;
    if (++http->prepared_count >= OL_HTTP_BATCH)
        ol_http_client_flush(http);
    return 0;
}

/* Ask the engine to end one transfer, or all, and wait: the engine never waits for a receiver. */
static void end_transfers(struct ol_http_pool *pool, const struct ol_http_transfer *one)
{
    struct ol_http_client *http = pool->http;
    ol_http_client_flush(http);
    pthread_mutex_lock(&http->lock);
    for (struct ol_http_transfer *t = pool->first; t; t = t->after)
        if (!t->is_ended && (!one || t == one)) {
            t->next_abandoned = http->abandoned;
            http->abandoned = t;
        }
    ol_http_engine_wake(http);
    for (const struct ol_http_transfer *t = pool->first; t; t = t->after)
        while (!t->is_ended && (!one || t == one))
            pthread_cond_wait(&http->changed, &http->lock);
    pthread_mutex_unlock(&http->lock);
    ol_http_client_report(http);
}

void ol_http_pool_abandon(struct ol_http_pool *pool, void *tag)
{
    for (const struct ol_http_transfer *t = pool->first; t; t = t->after)
        if (t->tag == tag) {
            end_transfers(pool, t);
            return;
        }
}

void ol_http_pool_close(struct ol_http_pool *pool)
{
    struct ol_http_client *http = pool ? pool->http : NULL;
    if (!pool)
        return;
    end_transfers(pool, NULL);
    assert(!pool->first);
    pthread_mutex_lock(&http->lock);
    pool->closing = http->closing;
    http->closing = pool;
    ol_http_engine_wake(http);
    while (!pool->is_closed)
        pthread_cond_wait(&http->changed, &http->lock);
    pthread_mutex_unlock(&http->lock);
    while (pool->free_transfers) {
        struct ol_http_transfer *t = pool->free_transfers;
        pool->free_transfers = t->next;
        ol_http_transfer_free(t);
    }
    ol_http_origin_clear(&pool->origin);
    free(pool);
}
