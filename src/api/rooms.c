/* rooms.c: sockets by session. */
#include "api/rooms.h"

#include "api/server.h"
#include "api/socket.h"
#include "base/clock.h"
#include "base/err.h"
#include "outbox/group.h"
#include "sessions/runner.h"
#include "sessions/session.h"

#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 4096, RESEND_US = 10 * 1000000, LOOK_US = 250000, LOOK_BACK_US = 5 * 1000000 };
enum { MOST_ERRORS = 20 };

/* An effect that a socket was sent. */
struct sent {
    struct sent *next;
    char effect_id[37];
    int64_t at;
    bool is_owed; /* seen in the list that is being gone through */
};

struct seat {
    struct seat *next;
    struct room *room;
    struct ol_socket *socket;
    struct ol_identity who;
    uint64_t number;
    struct sent *sent;
    int errors;
};

struct room {
    struct room *next;
    struct ol_rooms *rooms;
    char *org_id, *key;
    struct seat *seats;
    int64_t resend_at; /* boot clock; 0: nothing is owed */
    bool is_loading, wants_again;
};

struct ol_rooms {
    struct ol_server *server;
    struct ol_runner *runner;
    struct room *buckets[BUCKETS];
    size_t seat_count;
    uint64_t numbers;
    int64_t look_at;
    bool is_looking;
};

/* --- rooms and seats --- */

static size_t bucket_of(const char *org_id, const char *key)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *text = org_id; text; text = text == org_id ? key : NULL)
        for (const char *c = text; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return hash % BUCKETS;
}

static struct room *find(struct ol_rooms *rooms, const char *org_id, const char *key)
{
    struct room *room = rooms->buckets[bucket_of(org_id, key)];
    while (room && (strcmp(room->key, key) != 0 || strcmp(room->org_id, org_id) != 0))
        room = room->next;
    return room;
}

static struct room *find_or_make(struct ol_rooms *rooms, const char *org_id, const char *key)
{
    struct room *room = find(rooms, org_id, key);
    if (room || !(room = calloc(1, sizeof *room)))
        return room;
    room->rooms = rooms;
    room->org_id = strdup(org_id);
    room->key = strdup(key);
    struct room **bucket = &rooms->buckets[bucket_of(org_id, key)];
    room->next = *bucket;
    *bucket = room;
    return room;
}

static void forget_sent(struct seat *seat)
{
    while (seat->sent) {
        struct sent *sent = seat->sent;
        seat->sent = sent->next;
        free(sent);
    }
}

/* A room without seats goes, unless somebody is on the way back to it. */
static void close_if_empty(struct room *room)
{
    struct room **link = &room->rooms->buckets[bucket_of(room->org_id, room->key)];
    if (room->seats || room->is_loading)
        return;
    while (*link != room)
        link = &(*link)->next;
    *link = room->next;
    free(room->org_id);
    free(room->key);
    free(room);
}

static void on_closed(struct ol_socket *socket)
{
    struct seat *seat = ol_socket_owner(socket);
    struct room *room = seat->room;
    struct seat **link = &room->seats;

    while (*link != seat)
        link = &(*link)->next;
    *link = seat->next;
    room->rooms->seat_count--;
    forget_sent(seat);
    free(seat);
    close_if_empty(room);
}

/* Sending may drop a seat, so the next one is looked up first. */
static void tell_all(struct room *room, const struct ol_buf *frame)
{
    for (struct seat *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        ol_socket_send(seat->socket, frame->data, frame->bytes);
    }
}

static void put_error(struct ol_buf *out, const char *code, const char *request_id,
                      const char *detail)
{
    ol_buf_print(out, "{\"type\":\"error\",\"code\":\"%s\",\"requestId\":", code);
    ol_buf_json_text(out, request_id);
    ol_buf_text(out, ",\"detail\":");
    ol_buf_json_text(out, detail);
    ol_buf_char(out, '}');
}

static void refuse(struct seat *seat, const char *code, const char *request_id, const char *detail)
{
    struct ol_buf frame = {0};
    put_error(&frame, code, request_id, detail);
    bool is_open = ol_socket_send(seat->socket, frame.data, frame.bytes);
    ol_buf_clear(&frame);
    if (is_open && ++seat->errors > MOST_ERRORS)
        ol_socket_close(seat->socket, 1008, "too many bad frames");
}

/* --- delivering --- */

struct delivery {
    char *org_id, *key;
    struct ol_owed *owed;
    size_t count;
    char (*effect_ids)[37]; /* sent: to be noted */
    size_t sent_count;
    int result;
};

static enum ol_answer load_owed(struct ol_request *request)
{
    struct delivery *job = request->owner;
    outlog_err err;
    job->result = ol_session_owed(request->log, job->org_id, job->key, &request->arena, &job->owed,
                                  &job->count, &err);
    return OL_ANSWERED;
}

static enum ol_answer note_attempts(struct ol_request *request)
{
    struct delivery *job = request->owner;
    outlog_err err;
    for (size_t i = 0; i < job->sent_count; i++)
        ol_session_attempted(request->log, job->effect_ids[i], &err);
    return OL_ANSWERED;
}

static void free_request(struct ol_request *request)
{
    ol_request_free(request);
}

static struct sent *sent_before(struct seat *seat, const char *effect_id)
{
    struct sent *sent = seat->sent;
    while (sent && strcmp(sent->effect_id, effect_id) != 0)
        sent = sent->next;
    return sent;
}

/* Forget what is owed no more. */
static void prune(struct seat *seat)
{
    for (struct sent **link = &seat->sent; *link;) {
        struct sent *sent = *link;
        if (sent->is_owed) {
            sent->is_owed = false;
            link = &sent->next;
        } else {
            *link = sent->next;
            free(sent);
        }
    }
}

static void put_effect(const struct ol_owed *owed, struct ol_buf *out)
{
    ol_buf_print(out, "{\"type\":\"send_message\",\"effect_id\":\"%s\",", owed->effect_id);
    ol_buf_text(out, owed->spec + 1); // the members of {"content", "requestId", "isFinal"}
}

/* Send a seat what it was not sent in the last seconds, in order. False: it was dropped. */
static bool serve_seat(struct seat *seat, struct delivery *job, int64_t now)
{
    struct ol_buf frame = {0};
    bool is_open = true;
    for (size_t i = 0; i < job->count && is_open; i++) {
        const struct ol_owed *owed = &job->owed[i];
        struct sent *sent = sent_before(seat, owed->effect_id);
        if (sent)
            sent->is_owed = true;
        if (sent && now - sent->at < RESEND_US)
            continue;
        if (!sent && (sent = calloc(1, sizeof *sent))) {
            memcpy(sent->effect_id, owed->effect_id, sizeof sent->effect_id);
            sent->is_owed = true;
            sent->next = seat->sent;
            seat->sent = sent;
        }
        if (!sent)
            break;
        sent->at = now;
        memcpy(job->effect_ids[job->sent_count++], owed->effect_id, 37);
        ol_buf_reset(&frame);
        put_effect(owed, &frame);
        is_open = ol_socket_send(seat->socket, frame.data, frame.bytes);
    }
    ol_buf_clear(&frame);
    if (is_open)
        prune(seat);
    return is_open;
}

static size_t count_seats(const struct room *room)
{
    size_t count = 0;
    for (const struct seat *seat = room->seats; seat; seat = seat->next)
        count++;
    return count;
}

static void deliver(struct room *room);

static void loaded(struct ol_request *request)
{
    struct delivery *job = request->owner;
    struct ol_rooms *rooms = request->server->rooms;
    struct room *room = find(rooms, job->org_id, job->key);
    int64_t now = ol_clock_boot_us();

    if (!room) {
        ol_request_free(request);
        return;
    }
    job->effect_ids = ol_arena_array(&request->arena, job->count * count_seats(room) + 1,
                                     sizeof *job->effect_ids);
    for (struct seat *seat = room->seats, *next; seat && job->effect_ids; seat = next) {
        next = seat->next;
        serve_seat(seat, job, now);
    }
    room->is_loading = false;
    room->resend_at = job->result < 0 ? now + LOOK_US : job->count ? now + RESEND_US : 0;
    bool again = room->wants_again;
    room->wants_again = false;
    if (again && room->seats)
        deliver(room);
    else
        close_if_empty(room);
    request->job = note_attempts;
    request->done = free_request;
    if (!job->sent_count || !ol_clerks_submit(request->server->clerks, request))
        ol_request_free(request);
}

static struct ol_request *new_job(struct room *room, enum ol_answer (*job)(struct ol_request *),
                                  void (*done)(struct ol_request *))
{
    struct ol_request *request = ol_request_new(room->rooms->server);
    struct delivery *delivery = request ? ol_arena_alloc(&request->arena, sizeof *delivery) : NULL;
    if (delivery) {
        delivery->org_id = ol_arena_copy(&request->arena, room->org_id, strlen(room->org_id));
        delivery->key = ol_arena_copy(&request->arena, room->key, strlen(room->key));
    }
    if (!delivery || !delivery->org_id || !delivery->key) {
        ol_request_free(request);
        return NULL;
    }
    request->owner = delivery;
    request->job = job;
    request->done = done;
    return request;
}

static void deliver(struct room *room)
{
    if (room->is_loading) {
        room->wants_again = true;
        return;
    }
    struct ol_request *request = new_job(room, load_owed, loaded);
    room->is_loading = request && ol_clerks_submit(room->rooms->server->clerks, request);
    if (!room->is_loading) {
        ol_request_free(request);
        room->resend_at = ol_clock_boot_us() + LOOK_US; // the sweep tries again
    }
}

void ol_rooms_deliver(struct ol_rooms *rooms, const char *org_id, const char *key)
{
    struct room *room = find(rooms, org_id, key);
    if (room && room->seats)
        deliver(room);
}

/* --- acknowledging --- */

struct ack {
    struct delivery of; /* first: new_job() makes it */
    char effect_id[64];
};

static enum ol_answer store_ack(struct ol_request *request)
{
    struct ack *ack = request->owner;
    outlog_err err;
    // A failure is no loss: it stays owed, is sent again, and acknowledged again.
    ol_session_ack(request->log, ack->of.org_id, ack->of.key, ack->effect_id, NULL, &err);
    return OL_ANSWERED;
}

static void take_ack(struct seat *seat, const struct ol_json *frame)
{
    struct ol_json id = ol_json_get(frame, "effect_id");
    struct ol_request *request = new_job(seat->room, store_ack, free_request);
    struct ack *ack = request ? ol_arena_alloc(&request->arena, sizeof *ack) : NULL;
    const char *text = ack ? ol_json_string(&id, &request->arena, NULL) : NULL;

    if (!text || strlen(text) >= sizeof ack->effect_id) {
        ol_request_free(request);
        refuse(seat, "invalid_field", NULL, "ack names the effect_id of what was received");
        return;
    }
    ack->of = *(struct delivery *)request->owner;
    strcpy(ack->effect_id, text);
    request->owner = ack;
    if (!ol_clerks_submit(seat->room->rooms->server->clerks, request))
        ol_request_free(request);
}

/* --- what is said --- */

struct saying {
    struct ol_post post; /* first */
    struct ol_command command;
    struct outlog_event event;
    struct ol_arena arena;
    struct ol_rooms *rooms;
    const char *org_id, *key, *request_id;
    uint64_t seat_number;
    int64_t seq;
    int result;
};

static void free_saying(struct saying *saying)
{
    ol_arena_clear(&saying->arena);
    free(saying);
}

/* In the loop again: it is stored, or not. */
static void said(struct ol_post *post)
{
    struct saying *saying = (struct saying *)post;
    struct ol_rooms *rooms = saying->rooms;
    struct room *room = find(rooms, saying->org_id, saying->key);
    struct seat *seat = room ? room->seats : NULL;
    struct ol_buf frame = {0};

    while (seat && seat->number != saying->seat_number)
        seat = seat->next;
    if (saying->result == 0)
        ol_runner_hint(rooms->runner, saying->org_id, saying->key);
    if (seat && saying->result == 0) {
        ol_buf_text(&frame, "{\"type\":\"accepted\",\"requestId\":");
        ol_buf_json_text(&frame, saying->request_id);
        ol_buf_print(&frame, ",\"seq\":%lld}", (long long)saying->seq);
        ol_socket_send(seat->socket, frame.data, frame.bytes);
    } else if (seat) {
        refuse(seat, outlog_code_name(saying->command.err.code), saying->request_id,
               saying->command.err.message);
    }
    ol_buf_clear(&frame);
    free_saying(saying);
}

/* On the group's thread. */
static void stored(struct ol_command *command, int result)
{
    struct saying *saying = command->user;
    saying->result = result;
    if (result == 0)
        saying->seq = command->appended[0].aggregate_seq;
    saying->post.run = said;
    ol_server_post(saying->rooms->server, &saying->post);
}

static void take_message(struct seat *seat, const struct ol_json *frame)
{
    struct ol_json id = ol_json_get(frame, "requestId"), text = ol_json_get(frame, "text");
    struct saying *saying = calloc(1, sizeof *saying);
    outlog_err err;

    if (!saying)
        return;
    const char *words = ol_json_string(&text, &saying->arena, NULL);
    saying->request_id = ol_json_string(&id, &saying->arena, NULL);
    if (!words || !saying->request_id) {
        refuse(seat, "invalid_field", saying->request_id,
               "a user_message has a requestId and a text");
        free_saying(saying);
        return;
    }
    const struct room *room = seat->room;
    saying->rooms = room->rooms;
    saying->seat_number = seat->number;
    saying->org_id = ol_arena_copy(&saying->arena, room->org_id, strlen(room->org_id));
    saying->key = ol_arena_copy(&saying->arena, room->key, strlen(room->key));
    int result = ol_session_message(saying->org_id, saying->key, saying->request_id, words,
                                    &saying->arena, &saying->event, &err);
    saying->command = (struct ol_command){.events = &saying->event,
                                          .event_count = 1,
                                          .done = stored,
                                          .user = saying};
    if (result == 0)
        result = ol_group_submit(saying->rooms->server->group, &saying->command, &err);
    if (result < 0) {
        refuse(seat, outlog_code_name(err.code), saying->request_id, err.message);
        free_saying(saying);
    }
}

static void on_text(struct ol_socket *socket, const char *text, size_t bytes)
{
    struct seat *seat = ol_socket_owner(socket);
    struct ol_json frame;
    outlog_err err;

    if (ol_json_parse(text, bytes, &frame, &err) < 0) {
        refuse(seat, "invalid_json", NULL, err.message);
        return;
    }
    struct ol_json type = ol_json_get(&frame, "type");
    if (ol_json_equals(&type, "user_message"))
        take_message(seat, &frame);
    else if (ol_json_equals(&type, "ack"))
        take_ack(seat, &frame);
    else
        refuse(seat, "invalid_field", NULL, "the frames known here are user_message and ack");
}

/* --- coming and going --- */

static const struct ol_socket_user socket_user = {on_text, on_closed};

void ol_rooms_enter(struct ol_request *request)
{
    struct ol_rooms *rooms = request->server->rooms;
    const struct ol_entrance *entrance = request->owner;
    struct room *room = find_or_make(rooms, entrance->org_id, entrance->session_key);
    struct seat *seat = room ? calloc(1, sizeof *seat) : NULL;

    if (!seat) {
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http_answer(request);
        return;
    }
    *seat = (struct seat){.room = room, .number = ++rooms->numbers, .who = request->who};
    seat->who.org_id = NULL; // lives in the request
    seat->next = room->seats;
    room->seats = seat;
    rooms->seat_count++;
    room->is_loading = true; // keeps the room while the socket may already close
    seat->socket = ol_socket_open(request, &socket_user, seat);
    bool is_open = seat->socket != NULL; // else the seat is gone
    room->is_loading = false;
    if (is_open)
        deliver(room);
    else
        close_if_empty(room);
}

size_t ol_rooms_count(const struct ol_rooms *rooms)
{
    return rooms->seat_count;
}

/* --- from the runner's threads --- */

struct telling {
    struct ol_post post; /* first */
    struct ol_rooms *rooms;
    char *org_id, *key;
    struct ol_buf frame; /* empty: something is owed */
};

static void told(struct ol_post *post)
{
    struct telling *telling = (struct telling *)post;
    struct room *room = find(telling->rooms, telling->org_id, telling->key);
    if (room && telling->frame.bytes)
        tell_all(room, &telling->frame);
    else if (room)
        deliver(room);
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
    ol_server_post(telling->rooms->server, &telling->post);
}

static void on_owed(void *user, const char *org_id, const char *key)
{
    struct telling *telling = new_telling(user, org_id, key);
    if (telling)
        ol_server_post(telling->rooms->server, &telling->post);
}

void ol_rooms_ask(struct ol_server *server, const char *org_id, const char *key)
{
    on_owed(server->rooms, org_id, key);
}

static void on_failed(void *user, const char *org_id, const char *key, const char *request_id,
                      const char *why)
{
    struct telling *telling = new_telling(user, org_id, key);
    if (!telling)
        return;
    put_error(&telling->frame, "agent_failed", request_id, why);
    ol_server_post(telling->rooms->server, &telling->post);
}

/* --- looking around: what other daemons have stored, and what was not acknowledged --- */

struct look {
    struct ol_buf names; /* org\0key\0… */
};

static void add_name(void *user, const char *org_id, const char *key)
{
    struct look *look = user;
    ol_buf_add(&look->names, org_id, strlen(org_id) + 1);
    ol_buf_add(&look->names, key, strlen(key) + 1);
}

static enum ol_answer look_around(struct ol_request *request)
{
    outlog_err err;
    ol_session_newly_owed(request->log, LOOK_BACK_US, add_name, request->owner, &err);
    return OL_ANSWERED;
}

static void looked(struct ol_request *request)
{
    struct ol_rooms *rooms = request->server->rooms;
    struct look *look = request->owner;
    const char *at = look->names.data, *end = at ? at + look->names.bytes : NULL;

    rooms->is_looking = false;
    while (at && at < end && !look->names.failed) {
        const char *org_id = at, *key = org_id + strlen(org_id) + 1;
        ol_rooms_deliver(rooms, org_id, key);
        at = key + strlen(key) + 1;
    }
    ol_buf_clear(&look->names);
    ol_request_free(request);
}

static void look_if_due(struct ol_rooms *rooms, int64_t now)
{
    if (!rooms->seat_count || rooms->is_looking || now < rooms->look_at)
        return;
    struct ol_request *request = ol_request_new(rooms->server);
    struct look *look = request ? ol_arena_alloc(&request->arena, sizeof *look) : NULL;
    rooms->look_at = now + LOOK_US;
    if (!look) {
        ol_request_free(request);
        return;
    }
    request->owner = look;
    request->job = look_around;
    request->done = looked;
    rooms->is_looking = ol_clerks_submit(rooms->server->clerks, request);
    if (!rooms->is_looking)
        ol_request_free(request);
}

static void check_seats(struct ol_rooms *rooms, struct room *room)
{
    for (struct seat *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        if (seat->who.token_id[0] && !ol_auth_is_valid(rooms->server->auth, &seat->who))
            ol_socket_close(seat->socket, 1008, "the token was revoked");
    }
}

void ol_rooms_sweep(struct ol_rooms *rooms)
{
    int64_t now = ol_clock_boot_us();
    look_if_due(rooms, now);
    if (!rooms->seat_count)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct room *room = rooms->buckets[i], *next; room; room = next) {
            next = room->next;
            if (room->resend_at && now >= room->resend_at && room->seats)
                deliver(room);
            check_seats(rooms, room);
        }
}

/* --- life --- */

int ol_rooms_open(struct ol_server *server, struct ol_rooms **out, outlog_err *err)
{
    struct ol_runner_options options = ol_runner_defaults(server->options.store);
    struct ol_rooms *rooms = calloc(1, sizeof *rooms);
    if (!rooms)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    rooms->server = server;
    if (server->options.lease_us)
        options.lease_us = server->options.lease_us;
    const struct ol_runner_user user = {on_token, on_owed, on_failed, rooms};
    *out = rooms;
    return ol_runner_open(&options, &user, &rooms->runner, err);
}

void ol_rooms_leave(struct ol_rooms *rooms)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct room *room = rooms->buckets[i], *after; room; room = after) {
            after = room->next;
            for (struct seat *seat = room->seats, *next; seat; seat = next) {
                next = seat->next;
                ol_socket_close(seat->socket, 1001, "the server goes; come back");
            }
        }
}

void ol_rooms_end_runner(struct ol_rooms *rooms)
{
    ol_runner_close(rooms ? rooms->runner : NULL);
    if (rooms)
        rooms->runner = NULL;
}

void ol_rooms_close(struct ol_rooms *rooms)
{
    if (!rooms)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (rooms->buckets[i]) {
            struct room *room = rooms->buckets[i];
            rooms->buckets[i] = room->next;
            free(room->org_id);
            free(room->key);
            free(room);
        }
    free(rooms);
}
