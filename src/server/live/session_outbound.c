/* session_outbound.c: sends effects, tokens and answers, and counts the attempts. */
#include "server/live/session_outbound.h"

#include "base/clock.h"
#include "base/err.h"
#include "server/server.h"
#include "sessions/frame.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { EFFECTS_PER_PASS = 2000, RESEND_US = 10 * 1000000 };

/* Sending may remove a subscriber, and with the last one the channel: read the next first. */
static void send_to_all(struct ol_session_channel *channel, const char *frame, size_t bytes)
{
    for (struct ol_subscriber *one = channel->channel.subscribers, *next; one; one = next) {
        next = one->next;
        ol_websocket_send(one->socket, frame, bytes);
    }
}

void ol_session_outbound_send_accepted(struct ol_subscriber *subscriber, const char *request_id,
                                       int64_t seq)
{
    struct ol_buf frame = {0};
    ol_session_frame_accepted(request_id, seq, &frame);
    ol_websocket_send(subscriber->socket, frame.data, frame.bytes);
    ol_buf_clear(&frame);
}

void ol_session_outbound_send_error(struct ol_subscriber *subscriber, const char *code,
                                    const char *request_id, const char *detail)
{
    struct ol_buf frame = {0};
    ol_session_frame_error(code, request_id, detail, &frame);
    ol_subscriber_refuse(subscriber, frame.data, frame.bytes);
    ol_buf_clear(&frame);
}

/* --- attempts (R2) --- */

void ol_session_outbound_add_attempts(struct ol_session_channel *channel, const char *effect_id,
                                      int count)
{
    struct ol_effect_attempts *one = channel->attempts;
    while (one && strcmp(one->effect_id, effect_id) != 0)
        one = one->next;
    if (!one && count && (one = calloc(1, sizeof *one))) {
        memcpy(one->effect_id, effect_id, sizeof one->effect_id);
        one->next = channel->attempts;
        channel->attempts = one;
    }
    if (one)
        one->count += count;
}

int ol_session_outbound_take_attempts(struct ol_session_channel *channel, const char *effect_id)
{
    struct ol_effect_attempts **link = &channel->attempts;
    while (*link && strcmp((*link)->effect_id, effect_id) != 0)
        link = &(*link)->next;
    struct ol_effect_attempts *one = *link;
    if (!one)
        return 0;
    int count = one->count;
    *link = one->next;
    free(one);
    return count;
}

void ol_session_outbound_free_attempts(struct ol_effect_attempts **attempts)
{
    while (*attempts) {
        struct ol_effect_attempts *one = *attempts;
        *attempts = one->next;
        free(one);
    }
}

void ol_session_outbound_clear(struct ol_session_channel *channel)
{
    struct ol_session_sockets *sockets = (struct ol_session_sockets *)channel->channel.channels;
    struct ol_effect_attempts **last = &channel->attempts;
    while (*last)
        last = &(*last)->next;
    *last = sockets->attempts;
    sockets->attempts = channel->attempts;
    channel->attempts = NULL;
}

struct attempts_job {
    struct ol_job job; /* first */
    size_t count;
    struct ol_effect_attempts *attempts;
};

static int compare_attempts(const void *left, const void *right)
{
    return strcmp((*(struct ol_effect_attempts *const *)left)->effect_id,
                  (*(struct ol_effect_attempts *const *)right)->effect_id);
}

/* In the order of their ids, in which other daemons update them too: no deadlock. */
static int count_sorted(outlog_tx *tx, const struct attempts_job *job, outlog_err *err)
{
    struct ol_effect_attempts **sorted = calloc(job->count, sizeof *sorted);
    size_t count = 0;
    int result = 0;

    if (!sorted)
        return ol_no_memory(err);
    for (struct ol_effect_attempts *one = job->attempts; one; one = one->next)
        sorted[count++] = one;
    qsort(sorted, count, sizeof *sorted, compare_attempts);
    for (size_t i = 0; i < count && result == 0; i++)
        result = ol_session_effect_attempted(tx, sorted[i]->effect_id, sorted[i]->count, err);
    free(sorted);
    return result;
}

/* On a worker. */
static bool store_attempts(struct ol_job *job)
{
    outlog_tx *tx;
    job->result = outlog_begin(job->log, &tx, &job->err);
    if (job->result < 0)
        return true;
    job->result = count_sorted(tx, (struct attempts_job *)job, &job->err);
    if (job->result == 0)
        job->result = outlog_commit(tx, &job->err);
    else
        outlog_rollback(tx);
    return true;
}

static void collect_attempts(struct ol_channel *channel)
{
    ol_session_outbound_clear((struct ol_session_channel *)channel);
}

void ol_session_outbound_count_attempts(struct ol_session_sockets *sockets)
{
    ol_channels_each(&sockets->channels, collect_attempts);
    struct attempts_job *job = sockets->attempts ? calloc(1, sizeof *job) : NULL;
    if (!job)
        return;
    job->job.type = OL_JOB_SESSION_ATTEMPTS;
    job->job.run = store_attempts;
    job->attempts = sockets->attempts;
    for (const struct ol_effect_attempts *one = job->attempts; one; one = one->next)
        job->count++;
    if (ol_worker_pool_submit(sockets->channels.server->workers, &job->job))
        sockets->attempts = NULL;
    else
        free(job);
}

void ol_session_outbound_on_counted(struct ol_job *job)
{
    ol_session_outbound_free_attempts(&((struct attempts_job *)job)->attempts);
    free(job);
}

/* --- effects --- */

/* A page on its way to the subscribers. */
struct effect_send {
    const struct ol_effect_page *page;
    bool is_complete; /* with this page a subscriber has everything */
    bool *was_sent;   /* by effect: to at least one subscriber */
    int64_t now;
    int64_t due_at; /* when the first of them is to be sent again */
};

/* The subscriber was sent everything. What took it long to read counts as sent now. */
static void mark_caught_up(struct ol_subscriber *subscriber, int64_t now)
{
    if (subscriber->behind_since)
        for (struct ol_sent_entry *sent = subscriber->sent; sent; sent = sent->next)
            sent->at = sent->at ? now : 0;
    subscriber->behind_since = 0;
    ol_subscriber_prune_sent(subscriber);
}

/* Whether to send it now: not if it was sent in the last seconds, or while the socket is full. A
 * subscriber that is behind gets everything once before it gets anything twice. */
static bool is_due(struct ol_subscriber *subscriber, const struct ol_sent_entry *sent,
                   struct effect_send *send)
{
    int64_t again_at = sent && sent->at ? sent->at + RESEND_US : 0;
    bool is_waiting = again_at && subscriber->behind_since;
    bool is_recent = again_at && send->now < again_at;
    if (is_recent && !is_waiting && again_at < send->due_at)
        send->due_at = again_at;
    return !subscriber->is_full && !is_recent && !is_waiting;
}

/* Send what it was not sent in the last seconds, in order, as much as its socket accepts: a client
 * that was away for long must not be dropped for what it missed. The rest follows later. */
static void send_to_one(struct ol_subscriber *subscriber, struct effect_send *send)
{
    struct ol_buf frame = {0};
    bool is_open = true;
    for (size_t i = 0; i < send->page->count && is_open; i++) {
        const struct ol_pending_effect *effect = &send->page->effects[i];
        struct ol_sent_entry *sent = ol_subscriber_find_sent(subscriber, effect->effect_id);
        if (sent)
            sent->is_seen = true;
        if (ol_websocket_is_full(subscriber->socket)) {
            subscriber->is_full = true;
            subscriber->behind_since = subscriber->behind_since ? subscriber->behind_since
                                                                : send->now;
        }
        if (!is_due(subscriber, sent, send))
            continue;
        if (!sent && !(sent = ol_subscriber_add_sent(subscriber, effect->effect_id)))
            break;
        sent->at = send->now;
        send->was_sent[i] = true;
        ol_buf_reset(&frame);
        ol_session_frame_effect(effect, &frame);
        is_open = ol_websocket_send(subscriber->socket, frame.data, frame.bytes);
    }
    ol_buf_clear(&frame);
    if (is_open && send->is_complete && !subscriber->is_full)
        mark_caught_up(subscriber, send->now);
}

/* A subscriber that is full, or newer than the load, gets its own load, in order. */
static void send_page(struct ol_session_channel *channel, const struct ol_effect_page *page,
                      bool is_complete)
{
    struct effect_send send = {.page = page,
                               .is_complete = is_complete,
                               .was_sent = calloc(page->count + 1, sizeof *send.was_sent),
                               .now = ol_clock_boot_us()};
    struct ol_channel *base = &channel->channel;

    send.due_at = send.now + RESEND_US;
    if (!send.was_sent) {
        base->due_at = send.now + OL_CHANNELS_POLL_US;
        return;
    }
    ol_channel_retain(base); // sending may close the last socket
    for (struct ol_subscriber *one = base->subscribers, *next; one; one = next) {
        next = one->next;
        if (!one->is_new && !one->is_full)
            send_to_one(one, &send);
    }
    for (size_t i = 0; i < page->count; i++)
        if (send.was_sent[i])
            ol_session_outbound_add_attempts(channel, page->effects[i].effect_id, 1);
    if (page->count && (!base->due_at || send.due_at < base->due_at))
        base->due_at = send.due_at;
    ol_channel_release(base);
    free(send.was_sent);
}

struct effect_load {
    struct ol_channel_job base; /* first */
    struct ol_effect_page page;
    size_t paged;
    bool is_cut; /* more are pending than one pass sends */
};

/* Pending effects are read in pages. With a new subscriber, or one that can be sent to again, the
 * next load begins with the first page. */
static void choose_page(struct ol_session_channel *channel, struct effect_load *load)
{
    struct ol_channel *base = &channel->channel;
    for (const struct ol_subscriber *one = base->subscribers; one; one = one->next)
        channel->from_start |= one->is_new;
    if (base->has_next_page && !channel->from_start) {
        load->page.after = channel->page_after;
        load->paged = channel->paged;
        return;
    }
    base->has_next_page = channel->from_start = false;
    base->due_at = 0;
    for (struct ol_subscriber *one = base->subscribers; one; one = one->next)
        one->is_new = one->is_full = false;
}

/* On a worker. */
static bool load_effects(struct ol_job *job)
{
    struct effect_load *load = (struct effect_load *)job;
    const struct ol_channel *channel = load->base.channel;
    job->result = ol_session_effect_pending(job->log, channel->org_id, channel->name,
                                            &load->base.arena, &load->page, &job->err);
    load->paged += load->page.count;
    load->is_cut = !load->page.is_last && load->paged >= EFFECTS_PER_PASS;
    return true;
}

bool ol_session_outbound_start_load(struct ol_channel *channel)
{
    struct effect_load *load =
        ol_channel_job_new(channel, sizeof *load, OL_JOB_SESSION_LOAD, load_effects);
    if (!load)
        return false;
    choose_page((struct ol_session_channel *)channel, load);
    return ol_channel_job_submit(&load->base);
}

void ol_session_outbound_on_loaded(struct ol_job *job)
{
    struct effect_load *load = (struct effect_load *)job;
    struct ol_session_channel *channel = (struct ol_session_channel *)load->base.channel;
    struct ol_channel *base = &channel->channel;
    bool is_complete = load->page.is_last || load->is_cut; // the rest when these are acknowledged
    int64_t retry_at = ol_clock_boot_us() + OL_CHANNELS_POLL_US;

    if (job->result == 0)
        send_page(channel, &load->page, is_complete);
    else if (!base->due_at || retry_at < base->due_at)
        base->due_at = retry_at;
    channel->stale_before = ol_clock_boot_us();
    channel->paged = load->paged;
    channel->page_after = load->page.after;
    channel->has_more = job->result == 0 && load->is_cut;
    base->has_next_page = job->result == 0 && !is_complete;
    ol_channel_end_load(base);
    ol_channel_job_free(&load->base);
}

void ol_session_outbound_on_drained(struct ol_websocket *socket)
{
    struct ol_subscriber *subscriber = ol_websocket_owner(socket);
    if (!subscriber->is_full)
        return;
    ((struct ol_session_channel *)subscriber->channel)->from_start = true;
    ol_channel_load(subscriber->channel);
}

void ol_session_outbound_redeliver(struct ol_session_channel *channel)
{
    for (struct ol_subscriber *one = channel->channel.subscribers; one; one = one->next)
        for (struct ol_sent_entry *sent = one->sent; sent; sent = sent->next)
            sent->at = 0;
    channel->from_start = true;
    ol_channel_load(&channel->channel);
}

void ol_session_outbound_resend(struct ol_session_channel *channel, const char *effect_id)
{
    for (struct ol_subscriber *one = channel->channel.subscribers; one; one = one->next) {
        struct ol_sent_entry *sent = ol_subscriber_find_sent(one, effect_id);
        if (sent)
            sent->at = 0;
    }
    channel->channel.due_at = ol_clock_boot_us() + OL_CHANNELS_POLL_US;
}

/* --- agents --- */

void ol_session_outbound_send_failure(struct ol_session_channel *channel, int64_t seq,
                                      const char *frame, size_t bytes)
{
    if (seq <= channel->failed_seq)
        return;
    channel->failed_seq = seq;
    send_to_all(channel, frame, bytes);
}

/* The runner has read the page after it stored the answer. If a load is under way or came in
 * between, or something was acknowledged meanwhile, or more pages follow, a load sends the effects
 * instead. */
static bool is_sendable(const struct ol_session_channel *channel,
                        const struct ol_agent_event *event)
{
    return event->has_page && event->page.is_last && event->read_at > channel->stale_before &&
           !channel->channel.is_loading && !channel->channel.has_next_page;
}

void ol_session_outbound_on_agent_events(uv_poll_t *handle, int status, int readable)
{
    struct ol_session_sockets *sockets = handle->data;
    struct ol_agent_event *event = ol_agent_events_take(sockets->events);
    (void)status;
    (void)readable;
    for (struct ol_agent_event *next; event; event = next) {
        next = event->next;
        struct ol_channel *base =
            ol_channels_find(&sockets->channels, event->org_id, event->session_key);
        struct ol_session_channel *channel = (struct ol_session_channel *)base;
        const struct ol_buf *frame = &event->frame;
        if (channel && event->type == OL_AGENT_EVENT_TOKEN)
            send_to_all(channel, frame->data, frame->bytes);
        else if (channel && event->type == OL_AGENT_EVENT_FAILED)
            ol_session_outbound_send_failure(channel, event->seq, frame->data, frame->bytes);
        else if (channel && is_sendable(channel, event))
            send_page(channel, &event->page, true);
        else if (channel)
            ol_channel_load(base);
        ol_agent_event_free(event);
    }
}
