/* session_sockets.c: sockets by session. */
#include "server/live/session_sockets.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/uuid.h"
#include "server/live/channel.h"
#include "server/live/session_inbound.h"
#include "server/server.h"
#include "sessions/agent_runner.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OWED = 2000, RESEND_US = 10 * 1000000, LOOK_BACK_US = 5 * 1000000 };

struct ol_session_sockets {
    struct ol_channels hall;
    struct ol_agent_runner *runner;
};

/* Sending may drop a seat, so the next one is looked up first. */
static void tell_all(struct ol_channel *room, const char *frame, size_t bytes)
{
    for (struct ol_subscriber *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        ol_websocket_send(seat->socket, frame, bytes);
    }
}

/* --- delivering --- */

struct delivery {
    struct ol_channel_load visit; /* first */
    struct ol_pending_effect *owed;
    size_t count;
    int64_t after; /* the last effect that was gone through */
    size_t passed;
    bool is_all, is_cut;
    bool *was_sent; /* to whom ever: to be noted */
    bool has_sent;
    int64_t due_at; /* when the first of what was sent is sent again */
    int result;
};

/* Everything is gone through in pages. Who came since, or could not take it all, begins at the
 * beginning: in order or not at all. */
static void prepare(struct ol_channel *room, struct ol_channel_load *visit)
{
    struct delivery *job = (struct delivery *)visit;
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next)
        room->starts_anew |= seat->is_new;
    if (room->is_midway && !room->starts_anew && room->place) {
        job->after = *(int64_t *)room->place;
        job->passed = room->passed;
        return;
    }
    room->is_midway = room->starts_anew = false;
    room->due_at = 0;
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next)
        seat->is_new = seat->is_behind = false;
}

static enum ol_handler_result load(struct ol_request *request)
{
    struct delivery *job = request->owner;
    outlog_err err;
    job->result = ol_session_effect_pending(request->log, job->visit.org_id, job->visit.name,
                                            &job->after, &request->arena, &job->owed, &job->count,
                                            &job->is_all, &err);
    job->passed += job->count;
    job->is_cut = !job->is_all && job->passed >= MOST_OWED; // the rest when these are acknowledged
    job->is_all |= job->is_cut;
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result note_attempts(struct ol_request *request)
{
    const struct delivery *job = request->owner;
    outlog_tx *tx;
    outlog_err err;
    int result = 0;

    if (outlog_begin(request->log, &tx, &err) < 0)
        return OL_HANDLER_ANSWERED;
    for (size_t i = 0; i < job->count && result == 0; i++)
        if (job->was_sent[i])
            result = ol_session_effect_attempted(tx, job->owed[i].effect_id, &err);
    if (result == 0)
        outlog_commit(tx, &err);
    else
        outlog_rollback(tx);
    return OL_HANDLER_ANSWERED;
}

/* What it is, who it is, and the members of its spec: of a send_message content, requestId,
 * isFinal; of other types whatever they have (S-7). */
static void put_effect(const struct ol_pending_effect *owed, struct ol_buf *out)
{
    ol_buf_text(out, "{\"type\":");
    ol_buf_json_text(out, owed->effect_type);
    ol_buf_print(out, ",\"effect_id\":\"%s\"", owed->effect_id);
    if (owed->spec[1] != '}')
        ol_buf_char(out, ',');
    ol_buf_text(out, owed->spec + 1);
}

/* It was sent everything; what took it long to read counts as sent now. */
static void catch_up(struct ol_subscriber *seat, int64_t now)
{
    for (struct ol_sent_entry *sent = seat->behind_at ? seat->sent : NULL; sent; sent = sent->next)
        sent->at = sent->at ? now : 0;
    seat->behind_at = 0;
    ol_subscriber_prune_sent(seat);
}

/* Send a seat what it was not sent in the last seconds, in order, as much as it takes: somebody who
 * was away for long must not be dropped for what he missed. The rest follows when this has left. */
static void serve_seat(struct ol_subscriber *seat, struct delivery *job, int64_t now)
{
    struct ol_buf frame = {0};
    bool is_open = true;
    for (size_t i = 0; i < job->count && is_open; i++) {
        const struct ol_pending_effect *owed = &job->owed[i];
        struct ol_sent_entry *sent = ol_subscriber_find_sent(seat, owed->effect_id);
        if (sent)
            sent->is_seen = true;
        if (ol_websocket_is_full(seat->socket)) {
            seat->is_behind = true;
            seat->behind_at = seat->behind_at ? seat->behind_at : now;
        }
        bool waits = sent && sent->at && seat->behind_at; // nothing twice before all of it once
        bool is_recent = sent && sent->at && now - sent->at < RESEND_US;
        if (is_recent && !waits && sent->at + RESEND_US < job->due_at)
            job->due_at = sent->at + RESEND_US;
        if (seat->is_behind || is_recent || waits)
            continue;
        if (!sent && !(sent = ol_subscriber_add_sent(seat, owed->effect_id)))
            break;
        sent->at = now;
        job->was_sent[i] = job->has_sent = true;
        ol_buf_reset(&frame);
        put_effect(owed, &frame);
        is_open = ol_websocket_send(seat->socket, frame.data, frame.bytes);
    }
    ol_buf_clear(&frame);
    if (is_open && job->is_all && job->result == 0 && !seat->is_behind)
        catch_up(seat, now);
}

/* Where the next load begins, and when. */
static void move_on(struct ol_channel *room, const struct delivery *job, int64_t now)
{
    int64_t due_at = job->result < 0 ? now + OL_CHANNELS_POLL_US : job->count ? job->due_at : 0;
    if (due_at && (!room->due_at || due_at < room->due_at))
        room->due_at = due_at;
    room->passed = job->passed;
    room->has_more = job->result == 0 && job->is_cut;
    room->is_midway = job->result == 0 && !job->is_all &&
                      (room->place || (room->place = malloc(sizeof job->after)));
    if (room->is_midway)
        memcpy(room->place, &job->after, sizeof job->after);
}

static bool serve(struct ol_channel *room, struct ol_request *request)
{
    struct delivery *job = request->owner;
    int64_t now = ol_clock_boot_us();

    job->due_at = now + RESEND_US;
    job->was_sent = ol_arena_array(&request->arena, job->count + 1, sizeof *job->was_sent);
    for (struct ol_subscriber *seat = room->seats, *next; seat && job->was_sent; seat = next) {
        next = seat->next;
        if (!seat->is_new && !seat->is_behind)
            serve_seat(seat, job, now);
    }
    move_on(room, job, now);
    request->job = note_attempts;
    request->done = ol_request_free;
    return job->has_sent && ol_worker_pool_submit(request->server->clerks, request);
}

static void on_drained(struct ol_websocket *socket)
{
    struct ol_subscriber *seat = ol_websocket_owner(socket);
    if (!seat->is_behind)
        return;
    seat->room->starts_anew = true;
    ol_channel_deliver(seat->room);
}

/* What is owed is sent now, though it may have been sent a moment ago. */
static void deliver_anew(struct ol_channel *room)
{
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next)
        for (struct ol_sent_entry *sent = seat->sent; sent; sent = sent->next)
            sent->at = 0;
    room->starts_anew = true;
    ol_channel_deliver(room);
}

static void add_owed(void *user, const char *org_id, const char *key, int64_t asked_at)
{
    ol_channel_poll_add(user, org_id, key, asked_at, NULL);
}

static void add_failure(void *user, const struct ol_session_failure *failure)
{
    struct ol_buf frame = {0};
    ol_session_inbound_put_error(&frame, "agent_failed", failure->request_id, failure->why);
    if (!frame.failed)
        ol_channel_poll_add(user, failure->org_id, failure->session_key, failure->seq, frame.data);
    ol_buf_clear(&frame);
}

/* What is not settled yet may be found twice, which costs a load. */
static int look(outlog *log, int64_t back_us, int64_t *place, struct ol_channel_poll *look)
{
    int64_t settled;
    outlog_err err;

    back_us += LOOK_BACK_US;
    if (outlog_settled(log, &settled, &err) < 0)
        return -1;
    if (*place < 0) {
        ol_channel_poll_add_all(look);
        *place = settled;
    }
    if (ol_session_effect_changed(log, *place, back_us, add_owed, look, &err) < 0 ||
        ol_session_effect_failed(log, back_us, add_failure, look, &err) < 0)
        return -1;
    *place = settled;
    return 0;
}

/* A failure is told once: by who ran the agent, or by whoever looks. */
static void tell_failure(struct ol_channel *room, int64_t seq, const char *frame, size_t bytes)
{
    if (seq <= room->told)
        return;
    room->told = seq;
    tell_all(room, frame, bytes);
}

static void hear(struct ol_channel *room, int64_t stamp, const char *frame)
{
    if (frame) {
        tell_failure(room, stamp, frame, strlen(frame));
    } else if (!stamp) {
        ol_channel_deliver(room);
    } else if (room->stamp != stamp) {
        room->stamp = stamp;
        deliver_anew(room);
    }
}

/* --- acknowledging --- */

struct ack {
    struct ol_channel_load visit; /* first */
    char effect_id[37];
    uint64_t seat_number;
    int result;
};

static enum ol_handler_result store_ack(struct ol_request *request)
{
    struct ack *ack = request->owner;
    outlog_err err;
    ack->result = ol_session_effect_ack(request->log, ack->visit.org_id, ack->visit.name,
                                        ack->effect_id, NULL, &err);
    return OL_HANDLER_ANSWERED;
}

/* A failure is no loss: it stays owed, and is sent and acknowledged again as soon as the store is
 * back. */
static void send_again(struct ol_channel *room, const char *effect_id)
{
    for (struct ol_subscriber *seat = room->seats; seat; seat = seat->next) {
        struct ol_sent_entry *sent = ol_subscriber_find_sent(seat, effect_id);
        if (sent)
            sent->at = 0;
    }
    room->due_at = ol_clock_boot_us() + OL_CHANNELS_POLL_US;
}

static void acked(struct ol_request *request)
{
    const struct ack *ack = request->owner;
    struct ol_channel *room = ol_channels_find(ack->visit.hall, ack->visit.org_id, ack->visit.name);
    struct ol_subscriber *who = ol_channels_subscriber(ack->visit.hall, ack->visit.org_id,
                                                       ack->visit.name, ack->seat_number);
    if (who)
        ol_subscriber_finish(who);
    if (room && ack->result < 0)
        send_again(room, ack->effect_id);
    else if (room && room->has_more)
        room->due_at = ol_clock_boot_us(); // the sweep goes through them again
    ol_request_free(request);
}

static void take_ack(struct ol_subscriber *seat, const struct ol_json *frame)
{
    struct ol_json id = ol_json_get(frame, "effect_id");
    struct ol_request *request = ol_channel_job(seat->room, sizeof(struct ack), store_ack, acked);
    struct ack *ack = request ? request->owner : NULL;
    const char *text = ack ? ol_json_string(&id, &request->arena, NULL) : NULL;

    if (!text || !ol_uuid_parse(text, ack->effect_id)) {
        ol_request_free(request);
        ol_session_inbound_refuse(seat, "invalid_field", NULL,
                                  "ack names the effect_id of what was received");
        return;
    }
    ack->seat_number = seat->number;
    if (ol_channels_submit(seat->room->hall, request)) // else it stays owed
        ol_subscriber_begin(seat);
}

/* --- what is said --- */

static void stored(const struct ol_channel *room)
{
    ol_agent_runner_hint(room->hall->server->rooms->runner, room->org_id, room->name);
}

static void on_text(struct ol_websocket *socket, const char *text, size_t bytes)
{
    struct ol_subscriber *seat = ol_websocket_owner(socket);
    struct ol_json frame;
    outlog_err err;

    if (ol_json_parse(text, bytes, &frame, &err) < 0) {
        ol_session_inbound_refuse(seat, "invalid_json", NULL, err.message);
        return;
    }
    struct ol_json type = ol_json_get(&frame, "type");
    if (ol_json_equals(&type, "user_message"))
        ol_session_inbound_receive(seat, &frame, stored);
    else if (ol_json_equals(&type, "ack"))
        take_ack(seat, &frame);
    else
        ol_session_inbound_refuse(seat, "invalid_field", NULL,
                                  "the frames known here are user_message and ack");
}

/* --- from the runner's threads --- */

struct telling {
    struct ol_loop_task post; /* first */
    struct ol_session_sockets *rooms;
    char *org_id, *key;
    struct ol_buf frame; /* empty: something is owed */
    int64_t failed_seq;  /* the frame says that this one failed; 0: it does not */
};

static void told(struct ol_loop_task *post)
{
    struct telling *telling = (struct telling *)post;
    struct ol_channel *room =
        ol_channels_find(&telling->rooms->hall, telling->org_id, telling->key);
    if (room && telling->failed_seq)
        tell_failure(room, telling->failed_seq, telling->frame.data, telling->frame.bytes);
    else if (room && telling->frame.bytes)
        tell_all(room, telling->frame.data, telling->frame.bytes);
    else if (room)
        ol_channel_deliver(room);
    ol_buf_clear(&telling->frame);
    free(telling->org_id);
    free(telling->key);
    free(telling);
}

static struct telling *new_telling(void *user, const char *org_id, const char *key)
{
    struct telling *telling = calloc(1, sizeof *telling);
    if (!telling)
        return NULL;
    telling->post.run = told;
    telling->rooms = user;
    telling->org_id = strdup(org_id);
    telling->key = strdup(key);
    if (telling->org_id && telling->key)
        return telling;
    free(telling->org_id);
    free(telling->key);
    free(telling);
    return NULL;
}

static void on_token(void *user, const char *org_id, const char *key, const char *request_id,
                     const char *text, size_t bytes)
{
    struct telling *telling = new_telling(user, org_id, key);
    if (!telling)
        return;
    ol_buf_text(&telling->frame, "{\"type\":\"token\",\"requestId\":");
    ol_buf_json_text(&telling->frame, request_id);
    ol_buf_text(&telling->frame, ",\"text\":");
    ol_buf_json(&telling->frame, text, bytes);
    ol_buf_char(&telling->frame, '}');
    ol_server_post(telling->rooms->hall.server, &telling->post);
}

static void on_owed(void *user, const char *org_id, const char *key)
{
    struct telling *telling = new_telling(user, org_id, key);
    if (telling)
        ol_server_post(telling->rooms->hall.server, &telling->post);
}

static void on_failed(void *user, const struct ol_session_failure *failure)
{
    struct telling *telling = new_telling(user, failure->org_id, failure->session_key);
    if (!telling)
        return;
    telling->failed_seq = failure->seq;
    ol_session_inbound_put_error(&telling->frame, "agent_failed", failure->request_id,
                                 failure->why);
    ol_server_post(telling->rooms->hall.server, &telling->post);
}

/* --- life --- */

int ol_session_sockets_open(struct ol_server *server, struct ol_session_sockets **out,
                            outlog_err *err)
{
    static const struct ol_channels_handler user = {{on_text, ol_channels_on_close, on_drained},
                                                    sizeof(struct delivery),
                                                    prepare,
                                                    load,
                                                    serve,
                                                    look,
                                                    hear,
                                                    ol_session_inbound_forget};
    struct ol_agent_runner_options options = ol_agent_runner_defaults(server->options.store);
    struct ol_session_sockets *rooms = calloc(1, sizeof *rooms);
    if (!rooms)
        return ol_no_memory(err);
    ol_channels_init(&rooms->hall, server, &user);
    if (server->options.lease_us)
        options.lease_us = server->options.lease_us;
    if (server->options.answers)
        options.threads = server->options.answers;
    const struct ol_agent_runner_handler ears = {on_token, on_owed, on_failed, rooms};
    *out = rooms;
    return ol_agent_runner_open(&options, &ears, &rooms->runner, err);
}

void ol_session_sockets_subscribe(struct ol_request *request)
{
    const struct ol_session_upgrade *entrance = request->owner;
    ol_channels_subscribe(&request->server->rooms->hall, request, entrance->org_id,
                          entrance->session_key);
}

void ol_session_sockets_sweep(struct ol_session_sockets *rooms)
{
    ol_channels_sweep(&rooms->hall);
}

size_t ol_session_sockets_count(const struct ol_session_sockets *rooms)
{
    return rooms->hall.seat_count;
}

void ol_session_sockets_close_all(struct ol_session_sockets *rooms)
{
    ol_channels_close_all(&rooms->hall);
}

void ol_session_sockets_end_runner(struct ol_session_sockets *rooms)
{
    ol_agent_runner_close(rooms ? rooms->runner : NULL);
    if (rooms)
        rooms->runner = NULL;
}

void ol_session_sockets_close(struct ol_session_sockets *rooms)
{
    if (!rooms)
        return;
    ol_channels_clear(&rooms->hall);
    free(rooms);
}
