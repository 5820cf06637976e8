/* inflight.c: see inflight.h for F1 to F3. */
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

enum { WAITING, STARTED, WITHDRAWN };

int ol_inflight_open(struct ol_inflight *f, const struct outlog_publisher_host *host,
                     const struct ol_broker_naming *form, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    *f = (struct ol_inflight){.host = host,
                              .settings = own->settings,
                              .form = *form,
                              .next_us = INT64_MAX};
    f->news_end = &f->news;
    if (ol_poller_open(&f->ready, err) < 0)
        return -1;
    f->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->bell < 0 || ol_poller_add(&f->ready, f->bell, EPOLLIN) < 0) {
        if (f->bell >= 0)
            close(f->bell);
        ol_poller_close(&f->ready);
        return ol_fail(err, OUTLOG_NO_MEMORY, "no descriptor left: %s", strerror(errno));
    }
    pthread_mutex_init(&f->lock, NULL);
    return 0;
}

static void free_load(struct ol_broker_attempt *load)
{
    ol_arena_clear(&load->arena);
    free(load);
}

void ol_inflight_close(struct ol_inflight *f)
{
    ol_inflight_drive(f);
    assert(!f->first); // F2
    for (struct ol_broker_attempt *load = f->spare, *next; load; load = next) {
        next = load->next;
        free_load(load);
    }
    close(f->bell);
    ol_poller_close(&f->ready);
    ol_buf_clear(&f->memory);
    pthread_mutex_destroy(&f->lock);
}

/* --- the owner's side
 * ------------------------------------------------------------------------------ */

static void report(struct ol_inflight *f, struct ol_broker_attempt *load,
                   struct outlog_outcome *outcome, const char *text)
{
    assert(!load->is_reported); // F1
    load->is_reported = true;
    ol_buf_reset(&f->memory);
    if (outcome->kind == OUTLOG_PUBLISH_OK && text) { // where it lies: our own words
        outcome->response = text;
        outcome->response_bytes = strlen(text);
    } else if (text && *text) {
        ol_mask_line(&f->memory, text, strlen(text), f->settings->masked, OL_ERROR_KEPT);
        outcome->error = f->memory.bytes && !f->memory.failed ? f->memory.data : NULL;
    }
    outcome->duration_us = ol_clock_boot_us() - load->started_us;
    f->host->done(f->host->user, load->tag, outcome);
}

struct ol_broker_attempt *ol_inflight_add(struct ol_inflight *f,
                                          const struct outlog_delivery *message,
                                          int64_t deadline_us, void *tag)
{
    struct ol_broker_attempt *load = f->spare;
    struct outlog_outcome outcome;
    struct ol_arena arena = {0};
    outlog_err err;

    if (load) {
        f->spare = load->next;
        arena = load->arena;
        ol_arena_reset(&arena);
    } else if (!(load = malloc(sizeof *load))) {
        outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED};
        f->host->done(f->host->user, tag, &outcome);
        return NULL;
    }
    memset(load, 0, offsetof(struct ol_broker_attempt, text));
    load->text[0] = '\0';
    load->freight = f;
    load->tag = tag;
    load->started_us = ol_clock_boot_us();
    load->deadline_us = deadline_us;
    load->arena = arena;
    if (ol_broker_message_make(f->settings, &f->form, message, &load->arena, &load->parcel, &err) <
        0) {
        ol_outcome_refusal(&err, f->settings, &f->memory, &outcome);
        load->next = f->spare;
        f->spare = load;
        f->host->done(f->host->user, tag, &outcome);
        return NULL;
    }
    load->after = f->first;
    if (f->first)
        f->first->before = load;
    f->first = load;
    if (deadline_us < f->next_us) {
        f->next_us = deadline_us;
        ol_poller_at(&f->ready, deadline_us);
    }
    return load;
}

static void unlink_load(struct ol_inflight *f, struct ol_broker_attempt *load)
{
    if (load->before)
        load->before->after = load->after;
    else
        f->first = load->after;
    if (load->after)
        load->after->before = load->before;
    load->next = f->spare;
    f->spare = load;
}

/* End one that the carrier still has, or has not looked at (F3). */
static void give_up(struct ol_inflight *f, struct ol_broker_attempt *load, bool is_late)
{
    struct outlog_outcome outcome = {0};
    int waiting = WAITING;
    if (atomic_compare_exchange_strong(&load->stage, &waiting, WITHDRAWN)) {
        outcome.kind = OUTLOG_PUBLISH_RELEASED;
        outcome.is_unreached = is_late;
        report(f, load, &outcome,
               is_late ? "no connection in time" : "given up before it was sent");
        return;
    }
    outcome.kind = OUTLOG_PUBLISH_UNKNOWN;
    if (is_late && (!f->is_overdue || atomic_load(&load->sent_us) > f->overdue_sent_us)) {
        f->is_overdue = true;
        f->overdue_sent_us = atomic_load(&load->sent_us);
    }
    report(f, load, &outcome,
           is_late ? "sent, but not acknowledged in time" : "sent, but not acknowledged yet");
}

static void take_news(struct ol_inflight *f)
{
    uint64_t count;
    if (read(f->bell, &count, sizeof count) < 0)
        return; // nobody rang
    pthread_mutex_lock(&f->lock);
    struct ol_broker_attempt *list = f->news;
    f->news = NULL;
    f->news_end = &f->news;
    pthread_mutex_unlock(&f->lock);
    while (list) {
        struct ol_broker_attempt *load = list;
        list = load->next;
        if (!load->is_reported)
            report(f, load, &load->outcome, load->text);
        unlink_load(f, load);
    }
}

void ol_inflight_drive(struct ol_inflight *f)
{
    ol_poller_wait(&f->ready, 0);
    take_news(f);
    int64_t now_us = ol_clock_boot_us();
    if (now_us < f->next_us) {
        ol_poller_at(&f->ready, f->first ? f->next_us : INT64_MAX);
        f->next_us = f->first ? f->next_us : INT64_MAX;
        return;
    }
    f->next_us = INT64_MAX;
    for (struct ol_broker_attempt *load = f->first, *after; load; load = after) {
        after = load->after;
        if (load->is_reported)
            continue;
        if (load->deadline_us <= now_us)
            give_up(f, load, true);
        else if (load->deadline_us < f->next_us)
            f->next_us = load->deadline_us;
    }
    ol_poller_at(&f->ready, f->next_us);
}

void ol_inflight_abandon(struct ol_inflight *f, void *tag)
{
    for (struct ol_broker_attempt *load = f->first; load; load = load->after)
        if (load->tag == tag && !load->is_reported) {
            give_up(f, load, false);
            return;
        }
}

void ol_inflight_abandon_all(struct ol_inflight *f)
{
    take_news(f); // what is known is better than unknown
    for (struct ol_broker_attempt *load = f->first; load; load = load->after)
        if (!load->is_reported)
            give_up(f, load, false);
}

/* --- the carrier's side
 * ------------------------------------------------------------------------------ */

bool ol_broker_attempt_start(struct ol_broker_attempt *load)
{
    int waiting = WAITING;
    atomic_store(&load->sent_us, ol_clock_boot_us());
    return atomic_compare_exchange_strong(&load->stage, &waiting, STARTED);
}

static void hand_back(struct ol_broker_attempt *load)
{
    struct ol_inflight *f = load->freight;
    uint64_t one = 1;
    load->next = NULL;
    pthread_mutex_lock(&f->lock);
    bool is_first = !f->news;
    *f->news_end = load;
    f->news_end = &load->next;
    pthread_mutex_unlock(&f->lock);
    if (is_first && write(f->bell, &one, sizeof one) < 0)
        return; // the counter is full: it rings anyway
}

void ol_broker_attempt_end(struct ol_broker_attempt *load, enum outlog_outcome_kind kind,
                           const char *format, ...)
{
    va_list args;
    load->outcome = (struct outlog_outcome){.kind = kind};
    if (format) {
        va_start(args, format);
        vsnprintf(load->text, sizeof load->text, format, args);
        va_end(args);
    }
    hand_back(load);
}

void ol_broker_attempt_refuse(struct ol_broker_attempt *load, bool is_permanent, const char *format,
                              ...)
{
    va_list args;
    load->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_FAILED,
                                            .is_permanent = is_permanent,
                                            .surely_not_sent = true};
    va_start(args, format);
    vsnprintf(load->text, sizeof load->text, format, args);
    va_end(args);
    hand_back(load);
}

void ol_broker_attempt_unreached(struct ol_broker_attempt *load, const char *why)
{
    load->outcome = (struct outlog_outcome){.kind = OUTLOG_PUBLISH_RELEASED, .is_unreached = true};
    snprintf(load->text, sizeof load->text, "%s", why);
    hand_back(load);
}
