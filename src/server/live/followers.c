/* followers.c: the list of waiting requests and streams, and what each is sent. */
#include "server/live/followers.h"

#include "base/clock.h"
#include "log/read.h"
#include "server/http/auth.h"
#include "server/http/http1.h"
#include "server/live/event_tail.h"
#include "server/worker_pool.h"

enum { STREAM_CHUNK = 64 * 1024, STREAM_HEARTBEAT_MS = 15000 };
enum { CATCH_UP_MIN = 16, CATCH_UP_MAX = 500, CATCH_UP_BYTES = 1 << 20 };

static void pump_stream(struct ol_followers *followers, struct ol_request *request);

static void unlink_follower(struct ol_followers *followers, struct ol_request *request)
{
    if (!request->follower.link)
        return;
    *request->follower.link = request->follower.next;
    if (request->follower.next)
        request->follower.next->follower.link = request->follower.link;
    request->follower.link = NULL;
    followers->stream_count -= request->follower.is_streaming;
    followers->poll_count -= request->is_polling;
    if (!request->is_polling)
        ol_event_tail_watch(followers->event_tail, -1);
}

static void link_follower(struct ol_followers *followers, struct ol_request *request)
{
    request->follower.next = followers->first;
    request->follower.link = &followers->first;
    if (followers->first)
        followers->first->follower.link = &request->follower.next;
    followers->first = request;
    followers->stream_count += request->follower.is_streaming;
    followers->poll_count += request->is_polling;
    if (!request->is_polling)
        ol_event_tail_watch(followers->event_tail, 1);
}

/* --- waiting --- */

/* Run the handler again. If the queue is full, the next move or sweep tries again. */
static void run_again(struct ol_followers *followers, struct ol_request *request)
{
    unlink_follower(followers, request);
    request->is_admitted =
        ol_auth_is_valid(followers->auth, &request->who); // else it is checked again
    request->is_working = true;
    if (!ol_worker_pool_submit(followers->workers, &request->job)) {
        request->is_working = false;
        link_follower(followers, request);
    }
}

static bool has_new_events(struct ol_followers *followers, struct ol_request *request)
{
    struct ol_buf found = {0};
    size_t matched = 0;
    bool reaches = ol_event_tail_take(followers->event_tail, &request->filter, &request->after, 1,
                                      &found, &matched);
    ol_buf_clear(&found);
    return !reaches || matched;
}

/* --- streams --- */

/* How many events fit into CATCH_UP_BYTES, judged by the page before. A page is never longer than
 * that, but a store may have to examine as many events as it is asked for. */
static size_t next_page_limit(size_t limit, size_t count, size_t bytes)
{
    size_t fit = bytes * 2 > CATCH_UP_BYTES ? count * CATCH_UP_BYTES / bytes : limit * 2;
    return fit < CATCH_UP_MIN ? CATCH_UP_MIN : fit > CATCH_UP_MAX ? CATCH_UP_MAX : fit;
}

enum ol_handler_result ol_followers_read(struct ol_request *request)
{
    struct outlog_page page = {0};
    size_t limit = request->follower.page_limit ? request->follower.page_limit : CATCH_UP_MIN;
    struct ol_job *job = &request->job;

    ol_buf_reset(&request->reply);
    // Bounded by bytes: many streams may lag at a time, behind events of any size.
    job->result = ol_read_short(request->log, &request->filter, request->after, limit,
                                CATCH_UP_BYTES, &page, &job->err);
    if (job->result == 0) {
        for (size_t i = 0; i < page.count; i++)
            ol_event_tail_put_event(&page.events[i], &request->reply);
        if (!request->reply.failed)
            request->after = page.next_after;
        ol_request_keep_log(request, &page);
        request->follower.page_limit = next_page_limit(limit, page.count, request->reply.bytes);
    }
    outlog_page_clear(&page);
    return OL_HANDLER_STREAMING;
}

static void pump_stream(struct ol_followers *followers, struct ol_request *request)
{
    struct ol_buf out = {0};
    while (request->http && !request->is_working && ol_http1_queued(request) == 0) {
        int64_t before = request->after;
        ol_buf_reset(&out);
        if (!ol_event_tail_take(followers->event_tail, &request->filter, &request->after,
                                STREAM_CHUNK, &out, NULL)) {
            request->is_working = ol_worker_pool_submit(followers->workers, &request->job);
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

/* The client comes back with the same cursor, and is told by name why it is refused (R3). */
static void end_refused(struct ol_request *request)
{
    static const char text[] = ": beyond_log: the log was restored, or is another one\n\n";
    ol_http1_push(request, text, sizeof text - 1);
    if (request->http)
        ol_http1_end(request);
}

static void begin_stream(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    request->follower.is_streaming = true;
    request->status = 200;
    request->content_type = "text/event-stream";
    request->follower.due_at = now + STREAM_HEARTBEAT_MS;
    ol_request_add(request, "cache-control", "no-store");
    ol_request_add(request, "x-accel-buffering", "no");
    ol_request_add(request, "outlog-log-id", request->log_id);
    link_follower(followers, request);
    ol_http1_stream(request);
    ol_buf_reset(&request->reply);
}

/* --- from the loop --- */

void ol_followers_put(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    request->is_working = false;
    if (!request->http) {
        unlink_follower(followers, request);
        ol_request_free(request);
    } else if (request->answer == OL_HANDLER_WAITING) {
        link_follower(followers, request);
        if (!request->is_polling && has_new_events(followers, request))
            request->follower.due_at = now; // not at once: the next sweep runs it
    } else if (!request->follower.is_streaming) {
        begin_stream(followers, request, now);
        pump_stream(followers, request);
    } else {
        if (request->reply.bytes)
            ol_http1_push(request, request->reply.data, request->reply.bytes);
        ol_buf_clear(&request->reply);
        if (request->http && request->job.result == 0)
            pump_stream(followers, request);
        else if (request->http && request->job.err.code == OUTLOG_BEYOND_LOG)
            end_refused(request); // after another error the next sweep tries again
    }
}

void ol_followers_moved(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->follower.next;
        if (request->follower.is_streaming)
            pump_stream(followers, request);
        else if (!request->is_polling && has_new_events(followers, request))
            run_again(followers, request);
    }
}

void ol_followers_poll(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->follower.next;
        if (request->is_polling)
            run_again(followers, request);
    }
}

void ol_followers_drained(struct ol_followers *followers, struct ol_request *request)
{
    pump_stream(followers, request);
}

static void sweep_stream(struct ol_followers *followers, struct ol_request *request, uint64_t now)
{
    if (!ol_auth_is_valid(followers->auth, &request->who)) {
        ol_http1_end(request);
        return;
    }
    if (now >= request->follower.due_at) {
        request->follower.due_at = now + STREAM_HEARTBEAT_MS;
        if (ol_http1_queued(request) == 0)
            ol_http1_push(request, ": still here\n\n", 14);
    }
    if (request->http && !request->is_working &&
        ol_event_tail_is_before(followers->event_tail, request->after))
        request->is_working = ol_worker_pool_submit(followers->workers, &request->job);
    else if (request->http)
        pump_stream(followers, request);
}

void ol_followers_sweep(struct ol_followers *followers, uint64_t now)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->follower.next;
        if (request->follower.is_streaming)
            sweep_stream(followers, request, now);
        else if (request->follower.due_at || ol_clock_boot_us() >= request->wait_until) {
            request->follower.due_at = 0;
            run_again(followers, request);
        }
    }
}

void ol_followers_gone(struct ol_followers *followers, struct ol_request *request)
{
    if (request->is_working)
        return; // it comes back through ol_followers_put(), or its answer is dropped
    unlink_follower(followers, request);
    ol_request_free(request);
}

void ol_followers_end_all(struct ol_followers *followers)
{
    for (struct ol_request *request = followers->first, *next; request; request = next) {
        next = request->follower.next;
        if (request->follower.is_streaming)
            ol_http1_end(request);
        else {
            request->wait_until = 1; // in the past, and not 0, which would start a new wait
            run_again(followers, request);
        }
    }
}
