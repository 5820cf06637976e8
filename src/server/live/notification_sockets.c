/* notification_sockets.c: sockets by user. Each seat remembers what it was sent of the last
 * seconds.
 *
 * What may be new is gone through in pages: what is unread, for those who came, then what came of
 * late. Who comes meanwhile, or cannot take it all, waits for the next time: in order or not at
 * all. */
#include "server/live/notification_sockets.h"

#include "base/clock.h"
#include "notify/inbox.h"
#include "server/live/channel.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_BACK_US = 10 * 1000000, MOST_ERRORS = 20 };

struct ol_notification_sockets {
    struct ol_channels hall;
};

/* --- delivering --- */

/* How far it was gone through. */
struct pass {
    int64_t since; /* boot clock: nobody lacks anything of before; some seconds count as nothing */
    bool is_unread;
    bool has_begin;
    struct ol_inbox_place begin; /* of what is unread */
    struct ol_inbox_place place;
};

struct delivery {
    struct ol_channel_load visit; /* first */
    struct pass pass;
    int64_t back_us;
    bool has_begun, is_all;
    int result;
    struct ol_inbox_item *recent, *unread;
    size_t recent_count, unread_count;
};

/* Who has not got all of what was unread when it came gets the rest of that, however much came
 * since. */
static void begin_pass(struct ol_channel *room, int64_t now, struct pass *out)
{
    const struct pass *last = room->place;
    *out = (struct pass){.since = now};
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next) {
        seat->is_served = true;
        out->is_unread |= seat->is_new;
        if (seat->behind_at && seat->behind_at < out->since)
            out->since = seat->behind_at;
        if (seat->is_new && seat->behind_at && last && last->has_begin) {
            out->has_begin = true;
            out->begin = last->begin;
        }
    }
}

static void prepare(struct ol_channel *room, struct ol_channel_load *visit)
{
    struct delivery *job = (struct delivery *)visit;
    int64_t now = ol_clock_boot_us();
    job->has_begun = room->is_midway && room->place;
    if (job->has_begun) {
        job->pass = *(struct pass *)room->place;
    } else {
        begin_pass(room, now, &job->pass);
    }
    job->back_us = now - job->pass.since + LOOK_BACK_US;
}

static int load_page(struct ol_request *request, struct ol_inbox_item **items, size_t *count,
                     outlog_err *err)
{
    struct delivery *job = request->owner;
    struct ol_inbox_page page = {.org_id = job->visit.org_id,
                                 .user_id = job->visit.name,
                                 .is_unread = job->pass.is_unread,
                                 .back_us = job->back_us,
                                 .place = job->pass.place};
    int result = ol_inbox_page_read(request->log, &page, &request->arena, err);
    job->pass.place = page.place;
    job->is_all = page.is_all;
    *items = page.items;
    *count = page.count;
    return result;
}

static enum ol_handler_result load(struct ol_request *request)
{
    struct delivery *job = request->owner;
    outlog_err err;
    if (job->pass.is_unread) {
        if (!job->pass.has_begin)
            job->result = ol_inbox_begin(request->log, job->visit.org_id, job->visit.name,
                                         &job->pass.begin, &err);
        job->pass.has_begin = job->result == 0;
        if (!job->has_begun)
            job->pass.place = job->pass.begin;
        if (job->result == 0)
            job->result = load_page(request, &job->unread, &job->unread_count, &err);
        if (job->result < 0 || !job->is_all)
            return OL_HANDLER_ANSWERED;
        job->pass.is_unread = false;
        job->pass.place = (struct ol_inbox_place){0};
    }
    job->result = load_page(request, &job->recent, &job->recent_count, &err);
    return OL_HANDLER_ANSWERED;
}

/* A later load finds what it lacks. */
static void fall_behind(struct ol_subscriber *seat, const struct delivery *job)
{
    seat->is_served = false;
    if (!seat->behind_at || job->pass.since < seat->behind_at)
        seat->behind_at = job->pass.since;
}

/* One notice, unless this seat has it, or takes no more just now. False: the seat is gone. */
static bool send_once(struct ol_subscriber *seat, const struct ol_inbox_item *item,
                      const struct delivery *job, struct ol_buf *frame)
{
    struct ol_sent_entry *sent = ol_subscriber_find_sent(seat, item->id);
    if (sent) {
        sent->is_seen = true;
        return true;
    }
    seat->is_behind |= ol_websocket_is_full(seat->socket);
    if (seat->is_behind || !ol_subscriber_add_sent(seat, item->id)) {
        fall_behind(seat, job);
        return true;
    }
    if (item->is_read && seat->is_new)
        return true; // it came before this seat did
    ol_buf_reset(frame);
    ol_buf_text(frame, "{\"type\":\"notification\",");
    ol_buf_add(frame, item->json + 1, item->bytes - 1);
    return ol_websocket_send(seat->socket, frame->data, frame->bytes);
}

static void serve_seat(struct ol_subscriber *seat, const struct delivery *job, struct ol_buf *frame)
{
    for (size_t i = 0; seat->is_new && i < job->unread_count && seat->is_served; i++)
        if (!send_once(seat, &job->unread[i], job, frame))
            return;
    for (size_t i = 0; i < job->recent_count && seat->is_served; i++)
        if (!send_once(seat, &job->recent[i], job, frame))
            return;
    if (!seat->is_served || !job->is_all)
        return;
    seat->is_new = false;
    seat->behind_at = 0;
    ol_subscriber_prune_sent(seat);
}

static void on_drained(struct ol_websocket *socket)
{
    struct ol_subscriber *seat = ol_websocket_owner(socket);
    if (!seat->is_behind)
        return;
    seat->is_behind = false;
    ol_channel_deliver(seat->room);
}

static bool serve(struct ol_channel *room, struct ol_request *request)
{
    struct delivery *job = request->owner;
    struct ol_buf frame = {0};
    if (!room->place && !(room->place = calloc(1, sizeof job->pass)))
        job->result = -1;
    room->due_at = job->result < 0 ? ol_clock_boot_us() + OL_CHANNELS_POLL_US : 0;
    room->is_midway = job->result == 0 && !job->is_all;
    if (room->place)
        memcpy(room->place, &job->pass, sizeof job->pass);
    for (struct ol_subscriber *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        if (job->result < 0)
            fall_behind(seat, job);
        else if (seat->is_served)
            serve_seat(seat, job, &frame);
    }
    ol_buf_clear(&frame);
    return false;
}

static void add_name(void *user, const char *org_id, const char *user_id, int64_t stamp)
{
    ol_channel_poll_add(user, org_id, user_id, stamp, NULL);
}

static int look(outlog *log, int64_t back_us, int64_t *place, struct ol_channel_poll *look)
{
    outlog_err err;
    (void)place;
    return ol_inbox_moved(log, LOOK_BACK_US + back_us, add_name, look, &err);
}

static void hear(struct ol_channel *room, int64_t stamp, const char *frame)
{
    (void)frame;
    if (room->stamp == stamp)
        return;
    room->stamp = stamp;
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next)
        if (!seat->is_new && (!seat->behind_at || room->hall->looked_at < seat->behind_at))
            seat->behind_at = room->hall->looked_at;
    ol_channel_deliver(room);
}

/* --- what a client says --- */

struct marking {
    struct ol_channel_load visit; /* first */
    const char *id;
    uint64_t seat_number;
};

static enum ol_handler_result mark(struct ol_request *request)
{
    struct marking *marking = request->owner;
    struct ol_buf ignored = {0};
    outlog_tx *tx;
    outlog_err err;
    if (outlog_begin(request->log, &tx, &err) == 0) {
        // A failure is no loss: the notice stays unread, and is sent again.
        if (ol_inbox_read(tx, marking->visit.org_id, marking->visit.name, marking->id, &ignored,
                          &err) == 0)
            outlog_commit(tx, &err);
        else
            outlog_rollback(tx);
    }
    ol_buf_clear(&ignored);
    return OL_HANDLER_ANSWERED;
}

static void marked(struct ol_request *request)
{
    const struct marking *job = request->owner;
    struct ol_subscriber *seat = ol_channels_subscriber(job->visit.hall, job->visit.org_id,
                                                        job->visit.name, job->seat_number);
    if (seat)
        ol_subscriber_finish(seat);
    ol_request_free(request);
}

/* {type: "read", id}; anything else is nothing we know. */
static void on_text(struct ol_websocket *socket, const char *text, size_t bytes)
{
    static const char refusal[] =
        "{\"type\":\"error\",\"code\":\"invalid_field\",\"detail\":\"the frame "
        "known here is {\\\"type\\\":\\\"read\\\",\\\"id\\\":…}\"}";
    struct ol_subscriber *seat = ol_websocket_owner(socket);
    struct ol_request *request = ol_channel_job(seat->room, sizeof(struct marking), mark, marked);
    struct marking *job = request ? request->owner : NULL;
    struct ol_json frame = {0};
    outlog_err err;

    if (job && ol_json_parse(text, bytes, &frame, &err) == 0) {
        struct ol_json type = ol_json_get(&frame, "type"), id = ol_json_get(&frame, "id");
        if (ol_json_equals(&type, "read"))
            job->id = ol_json_string(&id, &request->arena, NULL);
    }
    if (job && job->id) {
        job->seat_number = seat->number;
        if (ol_channels_submit(seat->room->hall, request)) // else it stays unread
            ol_subscriber_begin(seat);
        return;
    }
    ol_request_free(request);
    if (ol_websocket_send(socket, refusal, sizeof refusal - 1) && ++seat->errors > MOST_ERRORS)
        ol_websocket_close(socket, 1008, "too many bad frames");
}

/* --- life --- */

int ol_notification_sockets_open(struct ol_server *server, struct ol_notification_sockets **out,
                                 outlog_err *err)
{
    static const struct ol_channels_handler user = {{on_text, ol_channels_on_close, on_drained},
                                                    sizeof(struct delivery),
                                                    prepare,
                                                    load,
                                                    serve,
                                                    look,
                                                    hear,
                                                    NULL};
    struct ol_notification_sockets *feed = calloc(1, sizeof *feed);
    if (!feed)
        return ol_no_memory(err);
    ol_channels_init(&feed->hall, server, &user);
    *out = feed;
    return 0;
}

void ol_notification_sockets_subscribe(struct ol_request *request)
{
    const struct ol_notification_upgrade *entrance = request->owner;
    ol_channels_subscribe(&request->server->feed->hall, request, entrance->org_id,
                          entrance->user_id);
}

void ol_notification_sockets_sweep(struct ol_notification_sockets *feed)
{
    ol_channels_sweep(&feed->hall);
}

void ol_notification_sockets_close_all(struct ol_notification_sockets *feed)
{
    ol_channels_close_all(&feed->hall);
}

void ol_notification_sockets_close(struct ol_notification_sockets *feed)
{
    if (!feed)
        return;
    ol_channels_clear(&feed->hall);
    free(feed);
}
