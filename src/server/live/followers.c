/* followers.c: who waits for what. */
#include "server/live/followers.h"

#include "base/clock.h"
#include "log/read.h"
#include "server/http/auth.h"
#include "server/http/http1.h"
#include "server/live/event_tail.h"
#include "server/worker_pool.h"

enum { CHUNK = 64 * 1024, READ_LEAST = 16, READ_MOST = 500, READ_BYTES = 1 << 20, BEAT_MS = 15000 };

static void pump(struct ol_followers *followers, struct ol_request *request);

static void unlink_follower(struct ol_followers *followers, struct ol_request *request)
{
    if (!request->follower_link)
        return;
    *request->follower_link = request->next_follower;
    if (request->next_follower)
        request->next_follower->follower_link = request->follower_link;
    request->follower_link = NULL;
    followers->stream_count -= request->is_streaming;
    followers->poll_count -= request->is_polling;
    if (!request->is_polling)
        ol_event_tail_watch(followers->hub, -1);
}

static void link_follower(struct ol_followers *followers, struct ol_request *request)
{
    request->next_follower = followers->first;
    request->follower_link = &followers->first;
    if (followers->first)
        followers->first->follower_link = &request->next_follower;
    followers->first = request;
    followers->stream_count += request->is_streaming;
    followers->poll_count += request->is_polling;
    if (!request->is_polling)
        ol_event_tail_watch(followers->hub, 1);
}

/* --- waiting --- */

/* Ask the handler again. A full queue is no reason to fail: we come back at the next move or sweep.
 */
static void ask_again(struct ol_followers *followers, struct ol_request *request)
{
    unlink_follower(followers, request);
    request->is_admitted = ol_auth_is_valid(followers->auth, &request->who); // else it asks anew
    request->is_working = true;
    if (!ol_worker_pool_submit(followers->clerks, request)) {
        request->is_working = false;
        link_follower(followers, request);
    }
}

static bool has_news(struct ol_followers *followers, struct ol_request *request)
{
    struct ol_buf found = {0};
    size_t matched = 0;
    bool reaches =
        ol_event_tail_take(followers->hub, &request->filter, &request->after, 1, &found, &matched);
    ol_buf_clear(&found);
    return !reaches || matched;
}

/* --- streams --- */

/* How many events fit into READ_BYTES, going by the page before. A page is never longer than that;
 * but a store that must count for it looks at as many events as it is asked for. */
static size_t next_page(size_t limit, size_t count, size_t bytes)
{
    size_t fit = bytes * 2 > READ_BYTES ? count * READ_BYTES / bytes : limit * 2;
    return fit < READ_LEAST ? READ_LEAST : fit > READ_MOST ? READ_MOST : fit;
}

/* The job of a clerk: events further back than the hub knows. */
static enum ol_handler_result read_store(struct ol_request *request)
{
    struct outlog_page page = {0};
    size_t limit = request->page_limit ? request->page_limit : READ_LEAST;
    outlog_err err;

    ol_buf_reset(&request->reply);
    // Many followers may lag at a time, behind events of any size.
    if (ol_read_short(request->log, &request->filter, request->after, limit, READ_BYTES, &page,
                      &err) == 0) {
        for (size_t i = 0; i < page.count; i++)
            ol_event_tail_put_event(&page.events[i], &request->reply);
        if (!request->reply.failed)
            request->after = page.next_after;
        request->page_limit = next_page(limit, page.count, request->reply.bytes);
    }
    outlog_page_clear(&page);
    return OL_HANDLER_STREAMING; // after a store error the next sweep tries again
}

static void pump(struct ol_followers *followers, struct ol_request *request)
{
    struct ol_buf out = {0};
    while (request->http && !request->is_working && ol_http1_queued(request) == 0) {
        int64_t before = request->after;
        ol_buf_reset(&out);
        if (!ol_event_tail_take(followers->hub, &request->filter, &request->after, CHUNK, &out,
                                NULL)) {
            request->job = read_store;
            request->is_working = ol_worker_pool_submit(followers->clerks, request);
            break;
        }
        if (out.failed) {
            ol_http1_end(request);
            break;
        }
        if (out.bytes)
            ol_http1_push(request, out.data, out.bytes);
        else if (request->after == before)
            break;
    }
    ol_buf_clear(&out);
}

static void begin_stream(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    request->is_streaming = true;
    request->status = 200;
    request->content_type = "text/event-stream";
    request->beat_at = now + BEAT_MS;
    ol_request_add(request, "cache-control", "no-store");
    ol_request_add(request, "x-accel-buffering", "no");
    link_follower(followers, request);
    ol_http1_stream(request);
    ol_buf_reset(&request->reply);
}

/* --- --- */

void ol_followers_put(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    request->is_working = false;
    if (!request->http) {
        unlink_follower(followers, request);
        ol_request_free(request);
    } else if (request->answer == OL_HANDLER_WAITING) {
        link_follower(followers, request);
        if (!request->is_polling && has_news(followers, request))
            request->beat_at = now; // not at once: the sweep asks again
    } else if (!request->is_streaming) {
        begin_stream(followers, request, now);
        pump(followers, request);
    } else {
        if (request->reply.bytes)
            ol_http1_push(request, request->reply.data, request->reply.bytes);
        ol_buf_clear(&request->reply);
        if (request->http)
            pump(followers, request);
    }
}

void ol_followers_moved(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->next_follower;
        if (request->is_streaming)
            pump(followers, request);
        else if (!request->is_polling && has_news(followers, request))
            ask_again(followers, request);
    }
}

void ol_followers_poll(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->next_follower;
        if (request->is_polling)
            ask_again(followers, request);
    }
}

void ol_followers_drained(struct ol_followers *followers, struct ol_request *request)
{
    pump(followers, request);
}

static void sweep_stream(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    if (!ol_auth_is_valid(followers->auth, &request->who)) {
        ol_http1_end(request);
        return;
    }
    if (now >= request->beat_at) {
        request->beat_at = now + BEAT_MS;
        if (ol_http1_queued(request) == 0)
            ol_http1_push(request, ": still here\n\n", 14);
    }
    if (request->http)
        pump(followers, request);
}

void ol_followers_sweep(struct ol_followers *followers, uint64_t now)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->next_follower;
        if (request->is_streaming)
            sweep_stream(followers, request, now);
        else if (request->beat_at || ol_clock_boot_us() >= request->wait_until) {
            request->beat_at = 0;
            ask_again(followers, request);
        }
    }
}

void ol_followers_gone(struct ol_followers *followers, struct ol_request *request)
{
    if (request->is_working)
        return; // it comes back through ol_followers_put(), or is answered to nobody
    unlink_follower(followers, request);
    ol_request_free(request);
}

void ol_followers_end_all(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->next_follower;
        if (request->is_streaming)
            ol_http1_end(request);
        else {
            request->wait_until = 1; // long ago, but known: 0 would make it wait anew
            ask_again(followers, request);
        }
    }
}
