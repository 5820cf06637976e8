/* span_exporter.c: a ring of spans, and the thread that exports them.
 *
 * T1  ol_span_exporter_add() holds the lock only to copy a span; the thread holds it no longer.
 * T2  Each span is counted once: exported, dropped or failed. */
#include "telemetry/span_exporter.h"

#include "base/clock.h"
#include "base/env.h"
#include "net/http_pool.h"
#include "net/ssrf_guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    EXPORTER_RING = 2048,
    EXPORTER_BATCH = 512,
    EXPORTER_GATHER_MS = 500,
    EXPORTER_TIMEOUT_MS = 10000,
    EXPORTER_CLOSE_MS = 2000,
    EXPORTER_ATTEMPTS = 5,
    EXPORTER_BACKOFF_MS = 1000, // doubles with each attempt
};

struct ol_span_exporter {
    char *url;
    struct ol_headers headers;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t first, count;
    int64_t close_by; /* boot clock; 0: not closing */
    struct ol_span_exporter_counts counts;
    struct ol_http_client *http; /* used only by the thread, like all that follows but the ring */
    struct ol_http_pool *pool;
    bool is_done;
    struct ol_http_response response;
    struct ol_span batch[EXPORTER_BATCH];
    struct ol_span ring[EXPORTER_RING];
};

void ol_span_exporter_add(struct ol_span_exporter *exporter, const struct ol_span *span)
{
    if (!exporter)
        return;
    pthread_mutex_lock(&exporter->lock);
    if (exporter->count == EXPORTER_RING) {
        exporter->counts.dropped++;
    } else {
        exporter->ring[(exporter->first + exporter->count++) % EXPORTER_RING] = *span;
        if (exporter->count == 1 || exporter->count == EXPORTER_BATCH)
            pthread_cond_signal(&exporter->changed);
    }
    pthread_mutex_unlock(&exporter->lock);
}

struct ol_span_exporter_counts ol_span_exporter_counts(struct ol_span_exporter *exporter)
{
    pthread_mutex_lock(&exporter->lock);
    struct ol_span_exporter_counts counts = exporter->counts;
    pthread_mutex_unlock(&exporter->lock);
    return counts;
}

/* --- the thread ------------------------------------------------------------------------------- */

static void wait_for_change(struct ol_span_exporter *exporter, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&exporter->changed, &exporter->lock, &until);
}

/* Wait for spans, and a little longer for more. Returns how many are in `batch`; 0: closing, and
 * none is left. */
static size_t take_batch(struct ol_span_exporter *exporter)
{
    pthread_mutex_lock(&exporter->lock);
    while (!exporter->count && !exporter->close_by)
        pthread_cond_wait(&exporter->changed, &exporter->lock);
    if (exporter->count < EXPORTER_BATCH && !exporter->close_by)
        wait_for_change(exporter, EXPORTER_GATHER_MS);
    size_t count = exporter->count < EXPORTER_BATCH ? exporter->count : EXPORTER_BATCH;
    for (size_t i = 0; i < count; i++)
        exporter->batch[i] = exporter->ring[(exporter->first + i) % EXPORTER_RING];
    exporter->first = (exporter->first + count) % EXPORTER_RING;
    exporter->count -= count;
    pthread_mutex_unlock(&exporter->lock);
    return count;
}

/* Whether the time to wait for the collector has run out. */
static bool is_close_overdue(struct ol_span_exporter *exporter)
{
    pthread_mutex_lock(&exporter->lock);
    int64_t by = exporter->close_by;
    pthread_mutex_unlock(&exporter->lock);
    return by && ol_clock_boot_us() > by;
}

static void on_response(void *owner, void *tag, const struct ol_http_response *response)
{
    struct ol_span_exporter *exporter = owner;
    (void)tag;
    exporter->response = *response; // its pointers are not used later
    exporter->is_done = true;
}

/* Send one request. False: it was not sent, or there was no response. */
static bool post_batch(struct ol_span_exporter *exporter, const struct ol_buf *body)
{
    outlog_err err;
    struct ol_http_client_request request = {
        .url = exporter->url,
        .method = "POST",
        .headers = &exporter->headers,
        .body = body->data,
        .body_bytes = body->bytes,
        .allow_private = true,
        .deadline_us = ol_clock_boot_us() + (int64_t)EXPORTER_TIMEOUT_MS * 1000,
    };
    exporter->is_done = false;
    if (body->failed || ol_http_pool_start(exporter->pool, &request, &err) < 0)
        return false;
    while (!exporter->is_done) {
        ol_http_client_drive(exporter->http, 100);
        if (!exporter->is_done && is_close_overdue(exporter))
            ol_http_pool_abandon(exporter->pool, NULL);
    }
    return exporter->response.reach == OL_REACH_ANSWERED;
}

/* Whether OTLP allows to try again. */
static bool is_transient(const struct ol_span_exporter *exporter, bool is_answered)
{
    int status = is_answered ? exporter->response.status : 0;
    return !is_answered || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Wait before the next attempt. False: the exporter is closing. */
static bool wait_backoff(struct ol_span_exporter *exporter, int ms)
{
    int64_t until = ol_clock_boot_us() + (int64_t)ms * 1000;
    pthread_mutex_lock(&exporter->lock);
    while (!exporter->close_by && ol_clock_boot_us() < until)
        wait_for_change(exporter, 100);
    bool is_open = !exporter->close_by;
    pthread_mutex_unlock(&exporter->lock);
    return is_open;
}

static void export_batch(struct ol_span_exporter *exporter, size_t count)
{
    struct ol_buf body = {0};
    bool is_taken = false;

    ol_span_json(exporter->batch, count, &body);
    for (int i = 0; i < EXPORTER_ATTEMPTS && !is_close_overdue(exporter); i++) {
        bool is_answered = post_batch(exporter, &body);
        is_taken = is_answered && exporter->response.status / 100 == 2;
        if (is_taken || !is_transient(exporter, is_answered) ||
            (i + 1 < EXPORTER_ATTEMPTS && !wait_backoff(exporter, EXPORTER_BACKOFF_MS << i)))
            break;
    }
    ol_buf_clear(&body);
    pthread_mutex_lock(&exporter->lock);
    *(is_taken ? &exporter->counts.exported : &exporter->counts.failed) += (int64_t)count;
    pthread_mutex_unlock(&exporter->lock);
}

static int open_pool(struct ol_span_exporter *exporter, outlog_err *err)
{
    if (!exporter->http && ol_http_client_open(&exporter->http, err) < 0)
        return -1;
    return exporter->pool
               ? 0
               : ol_http_pool_open(exporter->http, 1, on_response, exporter, &exporter->pool, err);
}

static void *run_exporter(void *argument)
{
    struct ol_span_exporter *exporter = argument;
    size_t count;
    outlog_err err;
    while ((count = take_batch(exporter)))
        if (open_pool(exporter, &err) == 0)
            export_batch(exporter, count);
    ol_http_pool_close(exporter->pool);
    if (exporter->http)
        ol_http_client_close(exporter->http);
    return NULL;
}

/* --- open and close --------------------------------------------------------------------------- */

const char *ol_span_exporter_check(const char *endpoint)
{
    struct ol_parsed_url url;
    outlog_err err;
    return ol_ssrf_guard_url(endpoint, true, &url, &err) == 0
               ? NULL
               : "a URL like http://127.0.0.1:4318 is wanted";
}

/* Add the path of traces to a collector's address. */
static char *make_traces_url(const char *endpoint)
{
    const char *host = strstr(endpoint, "://"), *path = host ? strchr(host + 3, '/') : NULL;
    if (path && path[1])
        return strdup(endpoint);
    static const char traces[] = "/v1/traces";
    size_t kept = path ? (size_t)(path - endpoint) : strlen(endpoint);
    char *url = malloc(kept + sizeof traces);
    if (!url)
        return NULL;
    memcpy(url, endpoint, kept);
    memcpy(url + kept, traces, sizeof traces);
    return url;
}

static int set_headers(struct ol_span_exporter *exporter, const char *json, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf text = {0};
    struct outlog_header *list = NULL;
    struct ol_json object;
    size_t count = 0;
    int result = -1;

    if (ol_headers_set(&exporter->headers, "content-type", "application/json", err) < 0 ||
        ol_headers_set(&exporter->headers, "user-agent", "outlog/" OUTLOG_VERSION, err) < 0)
        goto out;
    if (json && (ol_json_parse(json, strlen(json), &object, err) < 0 ||
                 ol_env_expand(&object, &arena, &text, err) < 0 ||
                 ol_headers_parse(text.data, &arena, &list, &count, err) < 0 ||
                 ol_headers_offer_all(&exporter->headers, list, count, err) < 0)) {
        ol_err_prefix(err, "tracing.headers");
        goto out;
    }
    result = 0;
out:
    ol_buf_clear(&text);
    ol_arena_clear(&arena);
    return result;
}

static void free_exporter(struct ol_span_exporter *exporter)
{
    ol_headers_clear(&exporter->headers);
    pthread_mutex_destroy(&exporter->lock);
    pthread_cond_destroy(&exporter->changed);
    free(exporter->url);
    free(exporter);
}

int ol_span_exporter_open(const char *endpoint, const char *headers, struct ol_span_exporter **out,
                          outlog_err *err)
{
    pthread_condattr_t monotonic;
    const char *why = ol_span_exporter_check(endpoint);
    struct ol_span_exporter *exporter = why ? NULL : calloc(1, sizeof *exporter);

    *out = NULL;
    if (why)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "tracing.endpoint: %s", why);
    if (!exporter)
        return ol_no_memory(err);
    pthread_mutex_init(&exporter->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&exporter->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!(exporter->url = make_traces_url(endpoint))) {
        ol_no_memory(err);
        goto failed;
    }
    if (set_headers(exporter, headers, err) < 0)
        goto failed;
    if (pthread_create(&exporter->thread, NULL, run_exporter, exporter) != 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
        goto failed;
    }
    *out = exporter;
    return 0;
failed:
    free_exporter(exporter);
    return -1;
}

void ol_span_exporter_close(struct ol_span_exporter *exporter)
{
    if (!exporter)
        return;
    pthread_mutex_lock(&exporter->lock);
    exporter->close_by = ol_clock_boot_us() + (int64_t)EXPORTER_CLOSE_MS * 1000;
    pthread_cond_signal(&exporter->changed);
    pthread_mutex_unlock(&exporter->lock);
    pthread_join(exporter->thread, NULL);
    free_exporter(exporter);
}
