/* notification_sockets.c: sockets by user.
 *
 * A pass reads pages: first the unread notifications, for new sockets, then the recent ones. Each
 * subscriber remembers what it was sent in the last seconds. A subscriber that opens during a pass,
 * or whose socket is full, waits for the next pass, which keeps the order. */
#include "server/live/notification_sockets.h"

#include "base/clock.h"
#include "notify/inbox.h"
#include "server/live/channel.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

enum { NOTIFICATION_POLL_BACK_US = 10 * 1000000 };

struct ol_notification_sockets {
    struct ol_channels channels;
};

/* --- sending --- */

/* A pass over the pages, and how far it came. */
struct inbox_pass {
    int64_t since;  /* boot clock: every subscriber has what is older than this */
    bool is_unread; /* the pass still reads unread notifications */
    bool has_begin;
    struct ol_inbox_place begin; /* of what is unread */
    struct ol_inbox_place place;
};

struct notification_channel {
    struct ol_channel channel; /* first */
    struct inbox_pass pass;    /* the current one, or the last */
};

struct notification_load {
    struct ol_channel_job base; /* first */
    struct inbox_pass pass;
    int64_t back_us;
    bool is_continued, is_last;
    struct ol_inbox_item *recent, *unread;
    size_t recent_count, unread_count;
};

/* A subscriber that still lacks unread notifications continues from the position where its first
 * pass began. */
static void begin_pass(const struct notification_channel *channel, int64_t now,
                       struct inbox_pass *out)
{
    *out = (struct inbox_pass){.since = now};
    for (struct ol_subscriber *one = channel->channel.subscribers; one; one = one->next) {
        one->is_served = true;
        out->is_unread |= one->is_new;
        if (one->behind_since && one->behind_since < out->since)
            out->since = one->behind_since;
        if (one->is_new && one->behind_since && channel->pass.has_begin) {
            out->has_begin = true;
            out->begin = channel->pass.begin;
        }
    }
}

static int load_page(struct notification_load *load, struct ol_inbox_item **items, size_t *count)
{
    const struct ol_channel *channel = load->base.channel;
    struct ol_job *job = &load->base.job;
    struct ol_inbox_page page = {.org_id = channel->org_id,
                                 .user_id = channel->name,
                                 .is_unread = load->pass.is_unread,
                                 .back_us = load->back_us,
                                 .place = load->pass.place};
    int result = ol_inbox_page_read(job->log, &page, &load->base.arena, &job->err);
    load->pass.place = page.place;
    load->is_last = page.is_all;
    *items = page.items;
    *count = page.count;
    return result;
}

static int load_unread(struct notification_load *load)
{
    const struct ol_channel *channel = load->base.channel;
    struct ol_job *job = &load->base.job;
    if (!load->pass.has_begin &&
        ol_inbox_begin(job->log, channel->org_id, channel->name, &load->pass.begin, &job->err) < 0)
        return -1;
    load->pass.has_begin = true;
    if (!load->is_continued)
        load->pass.place = load->pass.begin;
    return load_page(load, &load->unread, &load->unread_count);
}

/* On a worker. */
static bool load_notifications(struct ol_job *job)
{
    struct notification_load *load = (struct notification_load *)job;
    if (load->pass.is_unread) {
        job->result = load_unread(load);
        if (job->result < 0 || !load->is_last)
            return true;
        load->pass.is_unread = false;
        load->pass.place = (struct ol_inbox_place){0};
    }
    job->result = load_page(load, &load->recent, &load->recent_count);
    return true;
}

static bool start_load(struct ol_channel *base)
{
    struct notification_channel *channel = (struct notification_channel *)base;
    struct notification_load *load =
        ol_channel_job_new(base, sizeof *load, OL_JOB_NOTIFICATION_LOAD, load_notifications);
    int64_t now = ol_clock_boot_us();

    if (!load)
        return false;
    load->is_continued = base->has_next_page;
    if (load->is_continued)
        load->pass = channel->pass;
    else
        begin_pass(channel, now, &load->pass);
    load->back_us = now - load->pass.since + NOTIFICATION_POLL_BACK_US;
    return ol_channel_job_submit(&load->base);
}

/* The next pass finds what it lacks. */
static void fall_behind(struct ol_subscriber *subscriber, const struct notification_load *load)
{
    subscriber->is_served = false;
    if (!subscriber->behind_since || load->pass.since < subscriber->behind_since)
        subscriber->behind_since = load->pass.since;
}

/* Send one notification, unless this subscriber has it, or its socket is full. False: the
 * subscriber is gone. */
static bool send_once(struct ol_subscriber *subscriber, const struct ol_inbox_item *item,
                      const struct notification_load *load, struct ol_buf *frame)
{
    struct ol_sent_entry *sent = ol_subscriber_find_sent(subscriber, item->id);
    if (sent) {
        sent->is_seen = true;
        return true;
    }
    subscriber->is_full |= ol_websocket_is_full(subscriber->socket);
    if (subscriber->is_full || !ol_subscriber_add_sent(subscriber, item->id)) {
        fall_behind(subscriber, load);
        return true;
    }
    if (item->is_read && subscriber->is_new)
        return true; // it is older than this subscriber
    ol_buf_reset(frame);
    ol_buf_text(frame, "{\"type\":\"notification\",");
    ol_buf_add(frame, item->json + 1, item->bytes - 1);
    return ol_websocket_send(subscriber->socket, frame->data, frame->bytes);
}

static void send_page(struct ol_subscriber *subscriber, const struct notification_load *load,
                      struct ol_buf *frame)
{
    for (size_t i = 0; subscriber->is_new && i < load->unread_count && subscriber->is_served; i++)
        if (!send_once(subscriber, &load->unread[i], load, frame))
            return;
    for (size_t i = 0; i < load->recent_count && subscriber->is_served; i++)
        if (!send_once(subscriber, &load->recent[i], load, frame))
            return;
    if (!subscriber->is_served || !load->is_last)
        return;
    subscriber->is_new = false;
    subscriber->behind_since = 0;
    ol_subscriber_prune_sent(subscriber);
}

static void on_drained(struct ol_websocket *socket)
{
    struct ol_subscriber *subscriber = ol_websocket_owner(socket);
    if (!subscriber->is_full)
        return;
    subscriber->is_full = false;
    ol_channel_load(subscriber->channel);
}

void ol_notification_sockets_on_loaded(struct ol_job *job)
{
    struct notification_load *load = (struct notification_load *)job;
    struct notification_channel *channel = (struct notification_channel *)load->base.channel;
    struct ol_channel *base = &channel->channel;
    struct ol_buf frame = {0};

    base->due_at = job->result < 0 ? ol_clock_boot_us() + OL_CHANNELS_POLL_US : 0;
    base->has_next_page = job->result == 0 && !load->is_last;
    channel->pass = load->pass;
    for (struct ol_subscriber *one = base->subscribers, *next; one; one = next) {
        next = one->next;
        if (job->result < 0)
            fall_behind(one, load);
        else if (one->is_served)
            send_page(one, load, &frame);
    }
    ol_buf_clear(&frame);
    ol_channel_end_load(base);
    ol_channel_job_free(&load->base);
}

/* --- what other processes stored --- */

static void add_user(void *user, const char *org_id, const char *user_id, int64_t version)
{
    ol_channel_poll_add(user, org_id, user_id, version, NULL);
}

/* On a worker. */
static bool poll_notifications(struct ol_job *job)
{
    struct ol_channel_poll *poll = (struct ol_channel_poll *)job;
    int64_t back_us = ol_clock_boot_us() - poll->since + NOTIFICATION_POLL_BACK_US;
    job->result = ol_inbox_list_changed(job->log, back_us, add_user, poll, &job->err);
    return true;
}

void ol_notification_sockets_on_polled(struct ol_job *job)
{
    struct ol_channel_poll *poll = (struct ol_channel_poll *)job;
    struct ol_channel_change change;
    int64_t since = poll->channels->polled_at;

    while (ol_channel_poll_next(poll, &change)) {
        struct ol_channel *channel = change.channel;
        if (channel->last_change == change.version)
            continue;
        channel->last_change = change.version;
        for (struct ol_subscriber *one = channel->subscribers; one; one = one->next)
            if (!one->is_new && (!one->behind_since || since < one->behind_since))
                one->behind_since = since;
        ol_channel_load(channel);
    }
    ol_channel_poll_end(poll);
}

/* --- frames of a client --- */

struct read_job {
    struct ol_channel_job base; /* first */
    const char *id;
};

/* On a worker. After a failure the notification stays unread, and is sent to the next socket. */
static bool mark_as_read(struct ol_job *job)
{
    struct read_job *read = (struct read_job *)job;
    const struct ol_channel *channel = read->base.channel;
    struct ol_buf ignored = {0};
    outlog_tx *tx;

    if (outlog_begin(job->log, &tx, &job->err) < 0)
        return true;
    if (ol_inbox_mark_read(tx, channel->org_id, channel->name, read->id, &ignored, &job->err) == 0)
        outlog_commit(tx, &job->err);
    else
        outlog_rollback(tx);
    ol_buf_clear(&ignored);
    return true;
}

void ol_notification_sockets_on_read(struct ol_job *job)
{
    ol_channel_job_free((struct ol_channel_job *)job);
}

/* The id of {type: "read", id}, in the arena; NULL: it is another frame. */
static const char *read_frame(const char *text, size_t bytes, struct ol_arena *arena)
{
    struct ol_json frame = {0};
    outlog_err err;
    if (ol_json_parse(text, bytes, &frame, &err) < 0)
        return NULL;
    struct ol_json type = ol_json_get(&frame, "type"), id = ol_json_get(&frame, "id");
    return ol_json_equals(&type, "read") ? ol_json_string(&id, arena, NULL) : NULL;
}

static void on_text(struct ol_websocket *socket, const char *text, size_t bytes)
{
    static const char refusal[] =
        "{\"type\":\"error\",\"code\":\"invalid_field\",\"detail\":\"the only "
        "frame accepted here is {\\\"type\\\":\\\"read\\\",\\\"id\\\":…}\"}";
    struct ol_subscriber *subscriber = ol_websocket_owner(socket);
    struct read_job *read = ol_channel_job_new(subscriber->channel, sizeof *read,
                                               OL_JOB_NOTIFICATION_READ, mark_as_read);
    if (!read)
        return; // the notification stays unread
    read->id = read_frame(text, bytes, &read->base.arena);
    if (read->id) {
        ol_channel_job_submit_frame(&read->base, subscriber); // if refused, it stays unread
        return;
    }
    ol_channel_job_free(&read->base);
    ol_subscriber_refuse(subscriber, refusal, sizeof refusal - 1);
}

/* --- life cycle --- */

int ol_notification_sockets_open(struct ol_server *server, struct ol_notification_sockets **out,
                                 outlog_err *err)
{
    static const struct ol_channels_handler handler = {
        .socket = {on_text, ol_channels_on_close, on_drained},
        .channel_bytes = sizeof(struct notification_channel),
        .start_load = start_load,
        .poll = poll_notifications,
        .poll_type = OL_JOB_NOTIFICATION_POLL,
    };
    struct ol_notification_sockets *sockets = calloc(1, sizeof *sockets);
    if (!sockets)
        return ol_no_memory(err);
    ol_channels_init(&sockets->channels, server, &handler);
    *out = sockets;
    return 0;
}

void ol_notification_sockets_subscribe(struct ol_request *request)
{
    const struct ol_notification_upgrade *upgrade = request->owner;
    ol_channels_subscribe(&request->server->notifications->channels, request, upgrade->org_id,
                          upgrade->user_id);
}

void ol_notification_sockets_sweep(struct ol_notification_sockets *sockets)
{
    ol_channels_sweep(&sockets->channels);
}

void ol_notification_sockets_close_all(struct ol_notification_sockets *sockets)
{
    ol_channels_close_all(&sockets->channels);
}

void ol_notification_sockets_close(struct ol_notification_sockets *sockets)
{
    if (!sockets)
        return;
    ol_channels_clear(&sockets->channels);
    free(sockets);
}
