/* inflight.c: two lists, the attempts in flight and those that the driver has ended. */
#include "publish/broker/inflight.h"

#include "base/clock.h"
#include "publish/mask.h"
#include "publish/outcome.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { ATTEMPT_WAITING, ATTEMPT_STARTED, ATTEMPT_WITHDRAWN };

int ol_inflight_open(struct ol_inflight *f, const struct outlog_publisher_host *host,
                     const struct ol_broker_naming *naming, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    *f = (struct ol_inflight){.host = host,
                              .settings = own->settings,
                              .naming = *naming,
                              .next_us = INT64_MAX};
    f->ended_tail = &f->ended;
    if (ol_poller_open(&f->poller, err) < 0)
        return -1;
    f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->wake_fd < 0 || ol_poller_add(&f->poller, f->wake_fd, EPOLLIN) < 0) {
        if (f->wake_fd >= 0)
            close(f->wake_fd);
        ol_poller_close(&f->poller);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no descriptor left: %s", strerror(errno));
    }
    pthread_mutex_init(&f->lock, NULL);
    return 0;
}

static void free_attempt(struct ol_broker_attempt *attempt)
{
    ol_arena_clear(&attempt->arena);
    free(attempt);
}

void ol_inflight_close(struct ol_inflight *f)
{
    ol_inflight_drive(f);
    assert(!f->first); // F2
    for (struct ol_broker_attempt *attempt = f->free_attempts, *next; attempt; attempt = next) {
        next = attempt->next;
        free_attempt(attempt);
    }
    close(f->wake_fd);
    ol_poller_close(&f->poller);
    ol_buf_clear(&f->memory);
    pthread_mutex_destroy(&f->lock);
}

/* --- the owner's side ------------------------------------------------------------------------- */

static void report_attempt(struct ol_inflight *f, struct ol_broker_attempt *attempt,
                           struct outlog_outcome *outcome, const char *text)
{
    assert(!attempt->is_reported); // F1
    attempt->is_reported = true;
    ol_buf_reset(&f->memory);
    if (outcome->kind == OUTLOG_PUBLISH_OK && text) { // our own text: nothing to mask
        outcome->response = text;
        outcome->response_bytes = strlen(text);
    } else if (text && *text) {
        ol_mask_line(&f->memory, text, strlen(text), f->settings->masked, OL_ERROR_KEPT);
        outcome->error = f->memory.bytes && !f->memory.failed ? f->memory.data : NULL;
    }
    outcome->duration_us = ol_clock_boot_us() - attempt->started_us;
    f->host->done(f->host->user, attempt->tag, outcome);
}

struct ol_broker_attempt *ol_inflight_add(struct ol_inflight *f,
                                          const struct outlog_delivery *message,
                                          int64_t deadline_us, void *tag)
{
    struct ol_broker_attempt *attempt = f->free_attempts;
    struct outlog_outcome outcome;
    struct ol_arena arena = {0};
    outlog_err err;

    if (attempt) {
        f->free_attempts = attempt->next;
        arena = attempt->arena;
        ol_arena_reset(&arena);
    } else if (!(attempt = malloc(sizeof *attempt))) {
        outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED};
        f->host->done(f->host->user, tag, &outcome);
        return NULL;
    }
    memset(attempt, 0, offsetof(struct ol_broker_attempt, text));
    attempt->text[0] = '\0';
    attempt->inflight = f;
    attempt->tag = tag;
    attempt->started_us = ol_clock_boot_us();
    attempt->deadline_us = deadline_us;
    attempt->arena = arena;
    if (ol_broker_message_make(f->settings, &f->naming, message, &attempt->arena, &attempt->message,
                               &err) < 0) {
        ol_outcome_refusal(&err, f->settings, &f->memory, &outcome);
        attempt->next = f->free_attempts;
        f->free_attempts = attempt;
        f->host->done(f->host->user, tag, &outcome);
        return NULL;
    }
    attempt->after = f->first;
    if (f->first)
        f->first->before = attempt;
    f->first = attempt;
    if (deadline_us < f->next_us) {
        f->next_us = deadline_us;
        ol_poller_at(&f->poller, deadline_us);
    }
    return attempt;
}

static void remove_attempt(struct ol_inflight *f, struct ol_broker_attempt *attempt)
{
    if (attempt->before)
        attempt->before->after = attempt->after;
    else
        f->first = attempt->after;
    if (attempt->after)
        attempt->after->before = attempt->before;
    attempt->next = f->free_attempts;
    f->free_attempts = attempt;
}

/* Report an attempt that the driver has not ended (F3). */
static void expire_attempt(struct ol_inflight *f, struct ol_broker_attempt *attempt, bool is_late)
{
    struct outlog_outcome outcome = {0};
    int waiting = ATTEMPT_WAITING;
    if (atomic_compare_exchange_strong(&attempt->stage, &waiting, ATTEMPT_WITHDRAWN)) {
        outcome.kind = OUTLOG_PUBLISH_RELEASED;
        outcome.is_unreached = is_late;
        report_attempt(f, attempt, &outcome,
                       is_late ? "no connection in time" : "given up before it was sent");
        return;
    }
    outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
    if (is_late && (!f->is_overdue || atomic_load(&attempt->sent_us) > f->overdue_sent_us)) {
        f->is_overdue = true;
        f->overdue_sent_us = atomic_load(&attempt->sent_us);
    }
    report_attempt(f, attempt, &outcome,
                   is_late ? "sent, but not acknowledged in time"
                           : "sent, but not acknowledged yet");
}

static void report_ended(struct ol_inflight *f)
{
    uint64_t count;
    if (read(f->wake_fd, &count, sizeof count) < 0)
        return; // nothing has ended
    pthread_mutex_lock(&f->lock);
    struct ol_broker_attempt *list = f->ended;
    f->ended = NULL;
    f->ended_tail = &f->ended;
    pthread_mutex_unlock(&f->lock);
    while (list) {
        struct ol_broker_attempt *attempt = list;
        list = attempt->next;
        if (!attempt->is_reported)
            report_attempt(f, attempt, &attempt->outcome, attempt->text);
        remove_attempt(f, attempt);
    }
}

void ol_inflight_drive(struct ol_inflight *f)
{
    ol_poller_wait(&f->poller, 0);
    report_ended(f);
    int64_t now_us = ol_clock_boot_us();
    if (now_us < f->next_us) {
        ol_poller_at(&f->poller, f->first ? f->next_us : INT64_MAX);
        f->next_us = f->first ? f->next_us : INT64_MAX;
        return;
    }
    f->next_us = INT64_MAX;
    for (struct ol_broker_attempt *attempt = f->first, *after; attempt; attempt = after) {
        after = attempt->after;
        if (attempt->is_reported)
            continue;
        if (attempt->deadline_us <= now_us)
            expire_attempt(f, attempt, true);
        else if (attempt->deadline_us < f->next_us)
            f->next_us = attempt->deadline_us;
    }
    ol_poller_at(&f->poller, f->next_us);
}

void ol_inflight_abandon(struct ol_inflight *f, void *tag)
{
    for (struct ol_broker_attempt *attempt = f->first; attempt; attempt = attempt->after)
        if (attempt->tag == tag && !attempt->is_reported) {
            expire_attempt(f, attempt, false);
            return;
        }
}

void ol_inflight_abandon_all(struct ol_inflight *f)
{
    report_ended(f); // an outcome that is known is better than UNKNOWN
    for (struct ol_broker_attempt *attempt = f->first; attempt; attempt = attempt->after)
        if (!attempt->is_reported)
            expire_attempt(f, attempt, false);
}

/* --- the driver's side ------------------------------------------------------------------------ */

bool ol_broker_attempt_start(struct ol_broker_attempt *attempt)
{
    int waiting = ATTEMPT_WAITING;
    atomic_store(&attempt->sent_us, ol_clock_boot_us());
    return atomic_compare_exchange_strong(&attempt->stage, &waiting, ATTEMPT_STARTED);
}

static void add_ended(struct ol_broker_attempt *attempt)
{
    struct ol_inflight *f = attempt->inflight;
    uint64_t one = 1;
    attempt->next = NULL;
    pthread_mutex_lock(&f->lock);
    bool is_first = !f->ended;
    *f->ended_tail = attempt;
    f->ended_tail = &attempt->next;
    pthread_mutex_unlock(&f->lock);
    if (is_first && write(f->wake_fd, &one, sizeof one) < 0)
        return; // the counter is full, so the descriptor is readable already
}

void ol_broker_attempt_end(struct ol_broker_attempt *attempt, enum outlog_outcome_kind kind,
                           const char *format, ...)
{
    va_list args;
    attempt->outcome = (struct outlog_outcome){.kind = kind};
    if (format) {
        va_start(args, format);
        vsnprintf(attempt->text, sizeof attempt->text, format, args);
        va_end(args);
    }
    add_ended(attempt);
}

void ol_broker_attempt_refuse(struct ol_broker_attempt *attempt, bool is_permanent,
                              const char *format, ...)
{
    va_list args;
    attempt->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED,
                                               .is_permanent = is_permanent,
                                               .surely_not_sent = true};
    va_start(args, format);
    vsnprintf(attempt->text, sizeof attempt->text, format, args);
    va_end(args);
    add_ended(attempt);
}

void ol_broker_attempt_unreached(struct ol_broker_attempt *attempt, const char *why)
{
    attempt->outcome =
        (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED, .is_unreached = true};
    snprintf(attempt->text, sizeof attempt->text, "%s", why);
    add_ended(attempt);
}
