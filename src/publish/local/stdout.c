/* stdout.c: one JSON line per message on standard output (D6).
 *
 * Success means that the operating system took the whole line; the reader may not have read it.
 * Lines of several threads are never mixed: the process has one queue. A reader that stops reading
 * blocks only this destination, because nothing here waits for it. At its deadline such a message
 * is UNKNOWN: its line stays in the queue and may still be read. */
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

enum { STDOUT_QUEUE_MAX = 4 * 1024 * 1024 };

/* Positions count bytes since the start of the process. */
static struct {
    pthread_mutex_t lock;
    struct ol_buf waiting;
    size_t waiting_from; /* bytes of `waiting` that are written already */
    uint64_t queued, written;
    int broken; /* errno of a failed write; nothing is written after it */
} out = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct stdout_line {
    struct stdout_line *next;
    void *tag;
    uint64_t end;
    int64_t started_us, deadline_us;
};

struct stdout_publisher {
    const struct outlog_publisher_host *host;
    struct ol_poller poller;
    struct stdout_line *first, **last, *free_lines;
    struct ol_buf text;
    bool is_watching; /* standard output is in the poller */
};

/* --- the queue -------------------------------------------------------------------------------- */

static bool can_write(void)
{
    struct pollfd writable = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&writable, 1, 0) > 0;
}

/* Write as much as goes without waiting. A pipe that polls writable takes PIPE_BUF bytes at once; a
 * plain file takes any number. */
static void write_queue(void)
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

/* Drop the written part once it is more than half: a busy queue may never be empty. */
static void compact_queue(void)
{
    if (out.waiting_from <= out.waiting.bytes / 2)
        return;
    out.waiting.bytes -= out.waiting_from;
    memmove(out.waiting.data, out.waiting.data + out.waiting_from, out.waiting.bytes);
    out.waiting_from = 0;
}

/* Queue a line; false when the queue is full or broken. */
static bool enqueue_line(const struct ol_buf *text, uint64_t *end, const char **error)
{
    pthread_mutex_lock(&out.lock);
    write_queue();
    bool is_full = out.waiting.bytes - out.waiting_from + text->bytes > STDOUT_QUEUE_MAX &&
                   out.waiting.bytes > out.waiting_from;
    if (out.broken)
        *error = strerror(out.broken);
    else if (is_full)
        *error = "standard output is not being read";
    if (!*error) {
        compact_queue();
        ol_buf_add(&out.waiting, text->data, text->bytes);
        if (out.waiting.failed) { // the lines before it are still there
            out.waiting.failed = false;
            *error = "out of memory";
        } else {
            *end = out.queued += text->bytes;
            write_queue();
        }
    }
    pthread_mutex_unlock(&out.lock);
    return !*error;
}

/* --- outcomes --------------------------------------------------------------------------------- */

static void report_outcome(struct stdout_publisher *c, struct stdout_line *line,
                           enum outlog_outcome_kind kind, const char *error)
{
    struct outlog_outcome outcome = {.kind = kind,
                                     .error = error,
                                     .duration_us = ol_clock_boot_us() - line->started_us};
    c->host->done(c->host->user, line->tag, &outcome);
}

/* Report the lines that are written, lost or past their deadline. */
static void report_ended(struct stdout_publisher *c)
{
    int64_t now_us = ol_clock_boot_us(), next_us = INT64_MAX;
    pthread_mutex_lock(&out.lock);
    write_queue();
    uint64_t written = out.written;
    int broken = out.broken;
    pthread_mutex_unlock(&out.lock);

    for (struct stdout_line **at = &c->first; *at;) {
        struct stdout_line *line = *at;
        bool is_written = line->end <= written;
        if (!is_written && !broken && now_us < line->deadline_us) {
            if (line->deadline_us < next_us)
                next_us = line->deadline_us;
            at = &line->next;
            continue;
        }
        *at = line->next;
        if (is_written)
            report_outcome(c, line, OUTLOG_PUBLISH_OK, NULL);
        else
            report_outcome(c, line, OUTLOG_PUBLISH_UNKNOWN,
                           broken ? strerror(broken) : "standard output is not being read");
        line->next = c->free_lines;
        c->free_lines = line;
    }
    c->last = &c->first;
    while (*c->last)
        c->last = &(*c->last)->next;
    ol_poller_at(&c->poller, next_us);
    if (c->first && !c->is_watching)
        c->is_watching = ol_poller_add(&c->poller, STDOUT_FILENO, EPOLLOUT) == 0;
    if (!c->first && c->is_watching) {
        ol_poller_remove(&c->poller, STDOUT_FILENO);
        c->is_watching = false;
    }
}

/* --- the line --------------------------------------------------------------------------------- */

static void add_member(struct ol_buf *b, const char *name, const char *value)
{
    ol_buf_print(b, ",\"%s\":", name);
    ol_buf_json_text(b, value);
}

/* In valid JSON a raw line break occurs only between values, never in a string. */
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
    add_member(b, "org_id", message->org_id);
    add_member(b, "destination", message->destination);
    add_member(b, "event_type", message->event_type);
    ol_buf_print(b, ",\"attempt\":%d,\"created_at\":", message->attempt);
    ol_buf_json_time(b, message->created_at);
    add_member(b, "idempotency_key", ol_publisher_message_key(message));
    add_member(b, "ordering_key", message->ordering_key);
    add_member(b, "partition_key", message->partition_key);
    add_member(b, "correlation_id", message->correlation_id);
    add_member(b, "causation_id", message->causation_id);
    add_member(b, "traceparent", message->traceparent);
    add_member(b, "aggregate_type", message->aggregate_type);
    add_member(b, "aggregate_id", message->aggregate_id);
    add_member(b, "content_type", message->content_type);
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

/* --- the publisher ---------------------------------------------------------------------------- */

static int stdout_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    struct stdout_publisher *c = calloc(1, sizeof *c);
    if (!c)
        return ol_no_memory(err);
    c->host = host;
    c->last = &c->first;
    if (ol_poller_open(&c->poller, err) < 0) {
        free(c);
        return -1;
    }
    *instance = c;
    return 0;
}

static void stdout_submit(void *instance, const struct outlog_delivery *message,
                          int64_t deadline_us, void *tag)
{
    struct stdout_publisher *c = instance;
    struct stdout_line *line = c->free_lines,
                       local = {.tag = tag, .started_us = ol_clock_boot_us()};
    const char *error = NULL;

    if (line)
        c->free_lines = line->next;
    else
        line = calloc(1, sizeof *line);
    write_line(&c->text, message);
    if (!line || c->text.failed) {
        free(line);
        report_outcome(c, &local, OUTLOG_PUBLISH_RELEASED, "out of memory");
        return;
    }
    *line = local;
    line->deadline_us = deadline_us;
    if (!enqueue_line(&c->text, &line->end, &error)) {
        struct outlog_outcome failed = {.kind = OUTLOG_PUBLISH_FAILED,
                                        .surely_not_sent = true,
                                        .error = error};
        line->next = c->free_lines;
        c->free_lines = line;
        c->host->done(c->host->user, tag, &failed);
        return;
    }
    *c->last = line;
    c->last = &line->next;
    report_ended(c);
}

static void stdout_drive(void *instance, int timeout_ms)
{
    struct stdout_publisher *c = instance;
    ol_poller_wait(&c->poller, timeout_ms);
    report_ended(c);
}

static int stdout_fd(void *instance)
{
    struct stdout_publisher *c = instance;
    return c->poller.fd;
}

static void stdout_abandon(void *instance, void *tag)
{
    struct stdout_publisher *c = instance;
    for (struct stdout_line *line = c->first; line; line = line->next)
        if (line->tag == tag)
            line->deadline_us = INT64_MIN;
    report_ended(c);
}

static void stdout_close(void *instance)
{
    struct stdout_publisher *c = instance;
    for (struct stdout_line *line = c->first; line; line = line->next)
        line->deadline_us = INT64_MIN;
    report_ended(c);
    while (c->free_lines) {
        struct stdout_line *line = c->free_lines;
        c->free_lines = line->next;
        free(line);
    }
    ol_poller_close(&c->poller);
    ol_buf_clear(&c->text);
    free(c);
}

static const struct outlog_publisher publisher = {
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

const struct ol_publisher_type ol_publisher_type_stdout = {
    .name = "stdout",
    .publisher = &publisher,
    .timeout_s = 10,
    .concurrency = 1024,
};
