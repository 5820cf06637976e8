/* stdout.c: one JSON line a message on standard output (D6).
 *
 * Success means that the operating system took the whole line; it says nothing about the reader.
 * Lines of several threads are never mixed: there is one queue in the process. A reader that stops
 * reading stops only this destination: nothing here waits for it. At its deadline such a message is
 * UNKNOWN, because its line stays in the queue and may still be read. */
#include "base/base64.h"
#include "base/clock.h"
#include "base/json/json.h"
#include "net/poller.h"
#include "publish/cloudevents.h"
#include "publish/publisher.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <unistd.h>

enum { QUEUE_MAX = 4 * 1024 * 1024 };

/* Positions count bytes since the start of the process. */
static struct {
    pthread_mutex_t lock;
    struct ol_buf waiting;
    size_t waiting_from; /* bytes of `waiting` that are written already */
    uint64_t queued, written;
    int broken; /* errno of a write that ended it all; nothing after it is ever written */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct line {
    struct line *next;
    void *tag;
    uint64_t end;
    int64_t started_us, deadline_us;
};

struct console {
    const struct outlog_publisher_host *host;
    struct ol_poller ready;
    struct line *first, **last, *spare;
    struct ol_buf text;
    bool is_watching; /* standard output is in the ready */
};

/* --- the queue
 * -------------------------------------------------------------------------------------------- */

static bool can_write(void)
{
    struct pollfd writable = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&writable, 1, 0) > 0;
}

/* Write what goes without waiting. A pipe that polls writable takes PIPE_BUF bytes at once; a plain
 * file takes anything. */
static void flush(void)
{
    struct stat about;
    bool is_file = fstat(STDOUT_FILENO, &about) == 0 && S_ISREG(about.st_mode);
    while (out.waiting_from < out.waiting.bytes && !out.broken && can_write()) {
        size_t bytes = out.waiting.bytes - out.waiting_from;
        if (!is_file && bytes > PIPE_BUF)
            bytes = PIPE_BUF;
        ssize_t put = write(STDOUT_FILENO, out.waiting.data + out.waiting_from, bytes);
        if (put < 0) {
            if (errno != EINTR && errno != EAGAIN && errno != ENOSPC)
                out.broken = errno;
            if (errno != EINTR)
                break;
            continue;
        }
        out.waiting_from += (size_t)put;
        out.written += (uint64_t)put;
    }
    if (out.waiting_from == out.waiting.bytes) {
        ol_buf_reset(&out.waiting);
        out.waiting_from = 0;
    }
}

/* Drop what is written once it is more than half: a busy queue may never be empty. */
static void compact(void)
{
    if (out.waiting_from <= out.waiting.bytes / 2)
        return;
    out.waiting.bytes -= out.waiting_from;
    memmove(out.waiting.data, out.waiting.data + out.waiting_from, out.waiting.bytes);
    out.waiting_from = 0;
}

/* Queue a line; false when the queue is full or broken. */
static bool enqueue(const struct ol_buf *text, uint64_t *end, const char **error)
{
    pthread_mutex_lock(&out.lock);
    flush();
    bool is_full = out.waiting.bytes - out.waiting_from + text->bytes > QUEUE_MAX &&
                   out.waiting.bytes > out.waiting_from;
    if (out.broken)
        *error = strerror(out.broken);
    else if (is_full)
        *error = "standard output is not being read";
    if (!*error) {
        compact();
        ol_buf_add(&out.waiting, text->data, text->bytes);
        if (out.waiting.failed) { // what was there before is still there
            out.waiting.failed = false;
            *error = "out of memory";
        } else {
            *end = out.queued += text->bytes;
            flush();
        }
    }
    pthread_mutex_unlock(&out.lock);
    return !*error;
}

/* --- outcomes
 * -----------------------------------------------------------------------------------------------
 */

static void report(struct console *c, struct line *line, enum outlog_outcome_kind kind,
                   const char *error)
{
    struct outlog_outcome outcome = {.kind = kind,
                                     .error = error,
                                     .duration_us = ol_clock_boot_us() - line->started_us};
    c->host->done(c->host->user, line->tag, &outcome);
}

/* Give outcomes to all that is written, lost or late. */
static void settle(struct console *c)
{
    int64_t now_us = ol_clock_boot_us(), next_us = INT64_MAX;
    pthread_mutex_lock(&out.lock);
    flush();
    uint64_t written = out.written;
    int broken = out.broken;
    pthread_mutex_unlock(&out.lock);

    for (struct line **link = &c->first; *link;) {
        struct line *line = *link;
        bool is_written = line->end <= written;
        if (!is_written && !broken && now_us < line->deadline_us) {
            if (line->deadline_us < next_us)
                next_us = line->deadline_us;
            link = &line->next;
            continue;
        }
        *link = line->next;
        if (is_written)
            report(c, line, OUTLOG_PUBLISH_OK, NULL);
        else
            report(c, line, OUTLOG_PUBLISH_UNKNOWN,
                   broken ? strerror(broken) : "standard output is not being read");
        line->next = c->spare;
        c->spare = line;
    }
    c->last = &c->first;
    while (*c->last)
        c->last = &(*c->last)->next;
    ol_poller_at(&c->ready, next_us);
    if (c->first && !c->is_watching)
        c->is_watching = ol_poller_add(&c->ready, STDOUT_FILENO, EPOLLOUT) == 0;
    if (!c->first && c->is_watching) {
        ol_poller_remove(&c->ready, STDOUT_FILENO);
        c->is_watching = false;
    }
}

/* --- the line
 * ------------------------------------------------------------------------------------------------
 */

static void member(struct ol_buf *b, const char *name, const char *value)
{
    ol_buf_print(b, ",\"%s\":", name);
    ol_buf_json_text(b, value);
}

/* In valid JSON a raw line break stands between values only, never in a string. */
static void add_on_one_line(struct ol_buf *b, const char *text, size_t bytes)
{
    size_t from = b->bytes;
    ol_buf_add(b, text, bytes);
    for (size_t i = from; !b->failed && i < b->bytes; i++)
        if (b->data[i] == '\n' || b->data[i] == '\r')
            b->data[i] = ' ';
}

static void write_line(struct ol_buf *b, const struct outlog_delivery *message)
{
    struct ol_json payload;
    ol_buf_reset(b);
    ol_buf_text(b, "{\"event_id\":");
    ol_buf_json_text(b, message->event_id);
    member(b, "org_id", message->org_id);
    member(b, "destination", message->destination);
    member(b, "event_type", message->event_type);
    ol_buf_print(b, ",\"attempt\":%d,\"created_at\":", message->attempt);
    ol_buf_json_time(b, message->created_at);
    member(b, "idempotency_key", ol_publisher_message_key(message));
    member(b, "ordering_key", message->ordering_key);
    member(b, "partition_key", message->partition_key);
    member(b, "correlation_id", message->correlation_id);
    member(b, "causation_id", message->causation_id);
    member(b, "aggregate_type", message->aggregate_type);
    member(b, "aggregate_id", message->aggregate_id);
    member(b, "content_type", message->content_type);
    ol_buf_text(b, ",\"headers\":{");
    for (size_t i = 0; i < message->header_count; i++) {
        if (i)
            ol_buf_char(b, ',');
        ol_buf_json_text(b, message->headers[i].name);
        ol_buf_char(b, ':');
        ol_buf_json_text(b, message->headers[i].value);
    }
    ol_buf_char(b, '}');
    if (ol_cloudevents_is_json(message->content_type) &&
        ol_json_parse(message->payload, message->payload_bytes, &payload, NULL) == 0) {
        ol_buf_text(b, ",\"payload\":");
        add_on_one_line(b, payload.text, payload.bytes);
    } else {
        ol_buf_text(b, ",\"payload_base64\":\"");
        ol_base64_encode(b, message->payload, message->payload_bytes, 0);
        ol_buf_char(b, '"');
    }
    ol_buf_text(b, "}\n");
}

/* --- the publisher
 * --------------------------------------------------------------------------------------------- */

static int stdout_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    struct console *c = calloc(1, sizeof *c);
    if (!c)
        return ol_no_memory(err);
    c->host = host;
    c->last = &c->first;
    if (ol_poller_open(&c->ready, err) < 0) {
        free(c);
        return -1;
    }
    *instance = c;
    return 0;
}

static void stdout_submit(void *instance, const struct outlog_delivery *message,
                          int64_t deadline_us, void *tag)
{
    struct console *c = instance;
    struct line *line = c->spare, local = {.tag = tag, .started_us = ol_clock_boot_us()};
    const char *error = NULL;

    if (line)
        c->spare = line->next;
    else
        line = calloc(1, sizeof *line);
    write_line(&c->text, message);
    if (!line || c->text.failed) {
        free(line);
        report(c, &local, OUTLOG_PUBLISH_RELEASED, "out of memory");
        return;
    }
    *line = local;
    line->deadline_us = deadline_us;
    if (!enqueue(&c->text, &line->end, &error)) {
        struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED,
                                        .surely_not_sent = true,
                                        .error = error};
        line->next = c->spare;
        c->spare = line;
        c->host->done(c->host->user, tag, &failed);
        return;
    }
    *c->last = line;
    c->last = &line->next;
    settle(c);
}

static void stdout_drive(void *instance, int timeout_ms)
{
    struct console *c = instance;
    ol_poller_wait(&c->ready, timeout_ms);
    settle(c);
}

static int stdout_fd(void *instance)
{
    struct console *c = instance;
    return c->ready.fd;
}

static void stdout_abandon(void *instance, void *tag)
{
    struct console *c = instance;
    for (struct line *line = c->first; line; line = line->next)
        if (line->tag == tag)
            line->deadline_us = INT64_MIN;
    settle(c);
}

static void stdout_close(void *instance)
{
    struct console *c = instance;
    for (struct line *line = c->first; line; line = line->next)
        line->deadline_us = INT64_MIN;
    settle(c);
    while (c->spare) {
        struct line *line = c->spare;
        c->spare = line->next;
        free(line);
    }
    ol_poller_close(&c->ready);
    ol_buf_clear(&c->text);
    free(c);
}

const struct outlog_publisher ol_publisher_stdout = {
    .name = "stdout",
    .batch_max = 1024,
    .keeps_attempts = false,
    .open = stdout_open,
    .submit = stdout_submit,
    .drive = stdout_drive,
    .fd = stdout_fd,
    .abandon = stdout_abandon,
    .close = stdout_close,
};
