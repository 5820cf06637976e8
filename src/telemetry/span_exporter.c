/* span_exporter.c: a ring of spans and the thread that empties it.
 *
 * T1  ol_span_exporter_add() holds the lock for a copy, and the thread holds it for no longer.
 * T2  Each span is counted once: exported, dropped or failed. */
#include "telemetry/span_exporter.h"

#include "base/clock.h"
#include "base/env.h"
#include "net/http_client.h"
#include "net/ssrf_guard.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RING = 2048, BATCH = 512, GATHER_MS = 500, TIMEOUT_MS = 10000, CLOSE_MS = 2000 };
enum { TRIES = 5, FIRST_WAIT_MS = 1000 };

struct ol_span_exporter {
    char *url;
    struct ol_headers headers;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    size_t first, count;
    int64_t close_by; /* boot clock; 0: nobody wants to end */
    struct ol_span_exporter_counts counts;
    struct ol_http_client *http; /* the thread's own, from here on */
    struct ol_http_pool *link;
    bool is_done;
    struct ol_http_response answer;
    struct ol_span batch[BATCH];
    struct ol_span ring[RING];
};

void ol_span_exporter_add(struct ol_span_exporter *tracer, const struct ol_span *span)
{
    if (!tracer)
        return;
    pthread_mutex_lock(&tracer->lock);
    if (tracer->count == RING) {
        tracer->counts.dropped++;
    } else {
        tracer->ring[(tracer->first + tracer->count++) % RING] = *span;
        if (tracer->count == 1 || tracer->count == BATCH)
            pthread_cond_signal(&tracer->news);
    }
    pthread_mutex_unlock(&tracer->lock);
}

struct ol_span_exporter_counts ol_span_exporter_counts(struct ol_span_exporter *tracer)
{
    pthread_mutex_lock(&tracer->lock);
    struct ol_span_exporter_counts counts = tracer->counts;
    pthread_mutex_unlock(&tracer->lock);
    return counts;
}

/* --- the thread --- */

static void wait_for_news(struct ol_span_exporter *tracer, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&tracer->news, &tracer->lock, &until);
}

/* Wait for spans, and a little longer for more of them. 0: closed, and none is left. */
static size_t take(struct ol_span_exporter *tracer)
{
    pthread_mutex_lock(&tracer->lock);
    while (!tracer->count && !tracer->close_by)
        pthread_cond_wait(&tracer->news, &tracer->lock);
    if (tracer->count < BATCH && !tracer->close_by)
        wait_for_news(tracer, GATHER_MS);
    size_t count = tracer->count < BATCH ? tracer->count : BATCH;
    for (size_t i = 0; i < count; i++)
        tracer->batch[i] = tracer->ring[(tracer->first + i) % RING];
    tracer->first = (tracer->first + count) % RING;
    tracer->count -= count;
    pthread_mutex_unlock(&tracer->lock);
    return count;
}

/* Is it too late to wait for the collector? */
static bool is_over(struct ol_span_exporter *tracer)
{
    pthread_mutex_lock(&tracer->lock);
    int64_t by = tracer->close_by;
    pthread_mutex_unlock(&tracer->lock);
    return by && ol_clock_boot_us() > by;
}

static void on_answer(void *owner, void *tag, const struct ol_http_response *answer)
{
    struct ol_span_exporter *tracer = owner;
    (void)tag;
    tracer->answer = *answer; // only its numbers are read later
    tracer->is_done = true;
}

/* One attempt; false when it could not be made or answered. */
static bool post(struct ol_span_exporter *tracer, const struct ol_buf *body)
{
    outlog_err err;
    struct ol_http_client_request request = {
        .url = tracer->url,
        .method = "POST",
        .headers = &tracer->headers,
        .body = body->data,
        .body_bytes = body->bytes,
        .allow_private = true,
        .deadline_us = ol_clock_boot_us() + (int64_t)TIMEOUT_MS * 1000,
    };
    tracer->is_done = false;
    if (body->failed || ol_http_pool_start(tracer->link, &request, &err) < 0)
        return false;
    while (!tracer->is_done) {
        ol_http_client_drive(tracer->http, 100);
        if (!tracer->is_done && is_over(tracer))
            ol_http_pool_abandon(tracer->link, NULL);
    }
    return tracer->answer.reach == OL_REACH_ANSWERED;
}

/* What OTLP says may be tried again. */
static bool is_passing(const struct ol_span_exporter *tracer, bool is_answered)
{
    int status = is_answered ? tracer->answer.status : 0;
    return !is_answered || status == 429 || status == 502 || status == 503 || status == 504;
}

/* Rest before the next try; false when we are to end. */
static bool rest(struct ol_span_exporter *tracer, int ms)
{
    int64_t until = ol_clock_boot_us() + (int64_t)ms * 1000;
    pthread_mutex_lock(&tracer->lock);
    while (!tracer->close_by && ol_clock_boot_us() < until)
        wait_for_news(tracer, 100);
    bool goes_on = !tracer->close_by;
    pthread_mutex_unlock(&tracer->lock);
    return goes_on;
}

static void export(struct ol_span_exporter *tracer, size_t count)
{
    struct ol_buf body = {0};
    bool is_taken = false;

    ol_span_json(tracer->batch, count, &body);
    for (int i = 0; i < TRIES && !is_over(tracer); i++) {
        bool is_answered = post(tracer, &body);
        is_taken = is_answered && tracer->answer.status / 100 == 2;
        if (is_taken || !is_passing(tracer, is_answered) ||
            (i + 1 < TRIES && !rest(tracer, FIRST_WAIT_MS << i)))
            break;
    }
    ol_buf_clear(&body);
    pthread_mutex_lock(&tracer->lock);
    *(is_taken ? &tracer->counts.exported : &tracer->counts.failed) += (int64_t)count;
    pthread_mutex_unlock(&tracer->lock);
}

static int open_link(struct ol_span_exporter *tracer, outlog_err *err)
{
    if (!tracer->http && ol_http_client_open(&tracer->http, err) < 0)
        return -1;
    return tracer->link ? 0
                        : ol_http_pool_open(tracer->http, 1, on_answer, tracer, &tracer->link, err);
}

static void *run(void *argument)
{
    struct ol_span_exporter *tracer = argument;
    size_t count;
    outlog_err err;
    while ((count = take(tracer)))
        if (open_link(tracer, &err) == 0)
            export(tracer, count);
    ol_http_pool_close(tracer->link);
    if (tracer->http)
        ol_http_client_close(tracer->http);
    return NULL;
}

/* --- life --- */

const char *ol_span_exporter_check(const char *endpoint)
{
    struct ol_parsed_url url;
    outlog_err err;
    return ol_ssrf_guard_url(endpoint, true, &url, &err) == 0
               ? NULL
               : "a URL like http://127.0.0.1:4318 is wanted";
}

/* A collector's address becomes that of its traces. */
static char *whole_url(const char *endpoint)
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

static int set_headers(struct ol_span_exporter *tracer, const char *json, outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_buf text = {0};
    struct outlog_header *list = NULL;
    struct ol_json object;
    size_t count = 0;
    int result = -1;

    if (ol_headers_set(&tracer->headers, "content-type", "application/json", err) < 0 ||
        ol_headers_set(&tracer->headers, "user-agent", "outlog/" OUTLOG_VERSION, err) < 0)
        goto out;
    if (json && (ol_json_parse(json, strlen(json), &object, err) < 0 ||
                 ol_env_expand(&object, &arena, &text, err) < 0 ||
                 ol_headers_parse(text.data, &arena, &list, &count, err) < 0 ||
                 ol_headers_offer_all(&tracer->headers, list, count, err) < 0)) {
        ol_err_prefix(err, "tracing.headers");
        goto out;
    }
    result = 0;
out:
    ol_buf_clear(&text);
    ol_arena_clear(&arena);
    return result;
}

static void release(struct ol_span_exporter *tracer)
{
    ol_headers_clear(&tracer->headers);
    pthread_mutex_destroy(&tracer->lock);
    pthread_cond_destroy(&tracer->news);
    free(tracer->url);
    free(tracer);
}

int ol_span_exporter_open(const char *endpoint, const char *headers, struct ol_span_exporter **out,
                          outlog_err *err)
{
    pthread_condattr_t monotonic;
    const char *why = ol_span_exporter_check(endpoint);
    struct ol_span_exporter *tracer = why ? NULL : calloc(1, sizeof *tracer);

    *out = NULL;
    if (why)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "tracing.endpoint: %s", why);
    if (!tracer)
        return ol_no_memory(err);
    pthread_mutex_init(&tracer->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&tracer->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (!(tracer->url = whole_url(endpoint))) {
        ol_no_memory(err);
        goto failed;
    }
    if (set_headers(tracer, headers, err) < 0)
        goto failed;
    if (pthread_create(&tracer->thread, NULL, run, tracer) != 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
        goto failed;
    }
    *out = tracer;
    return 0;
failed:
    release(tracer);
    return -1;
}

void ol_span_exporter_close(struct ol_span_exporter *tracer)
{
    if (!tracer)
        return;
    pthread_mutex_lock(&tracer->lock);
    tracer->close_by = ol_clock_boot_us() + (int64_t)CLOSE_MS * 1000;
    pthread_cond_signal(&tracer->news);
    pthread_mutex_unlock(&tracer->lock);
    pthread_join(tracer->thread, NULL);
    release(tracer);
}
