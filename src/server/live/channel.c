/* channel.c: rooms, seats, and the way of a load. */
#include "server/live/channel.h"

#include "base/clock.h"
#include "server/http/auth.h"
#include "server/http/http1.h"
#include "server/server.h"
#include "server/worker_pool.h"

#include <stdlib.h>
#include <string.h>

/* --- rooms --- */

static struct ol_channel **bucket_of(struct ol_channels *hall, const char *org_id, const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *text = org_id; text; text = text == org_id ? name : NULL)
        for (const char *c = text; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return &hall->buckets[hash % OL_CHANNELS_BUCKETS];
}

struct ol_channel *ol_channels_find(struct ol_channels *hall, const char *org_id, const char *name)
{
    struct ol_channel *room = *bucket_of(hall, org_id, name);
    while (room && (strcmp(room->name, name) != 0 || strcmp(room->org_id, org_id) != 0))
        room = room->next;
    return room;
}

static void free_room(struct ol_channel *room)
{
    if (room->hall->user->forget)
        room->hall->user->forget(room);
    free(room->org_id);
    free(room->name);
    free(room->place);
    free(room);
}

static struct ol_channel *find_or_make(struct ol_channels *hall, const char *org_id,
                                       const char *name)
{
    struct ol_channel *room = ol_channels_find(hall, org_id, name);
    if (room || !(room = calloc(1, sizeof *room)))
        return room;
    *room = (struct ol_channel){.hall = hall, .org_id = strdup(org_id), .name = strdup(name)};
    if (!room->org_id || !room->name) {
        free_room(room);
        return NULL;
    }
    struct ol_channel **bucket = bucket_of(hall, org_id, name);
    room->next = *bucket;
    *bucket = room;
    return room;
}

/* H1 */
static void close_if_empty(struct ol_channel *room)
{
    if (room->seats || room->is_loading || room->is_opening || room->on_the_way)
        return;
    struct ol_channel **link = bucket_of(room->hall, room->org_id, room->name);
    while (*link != room)
        link = &(*link)->next;
    *link = room->next;
    free_room(room);
}

void ol_channel_retain(struct ol_channel *room)
{
    room->on_the_way++;
}

void ol_channel_release(struct ol_channel *room)
{
    room->on_the_way--;
    close_if_empty(room);
}

/* --- seats --- */

struct ol_sent_entry *ol_subscriber_find_sent(const struct ol_subscriber *seat, const char *id)
{
    struct ol_sent_entry *sent = seat->sent;
    while (sent && strcmp(sent->id, id) != 0)
        sent = sent->next;
    return sent;
}

struct ol_sent_entry *ol_subscriber_add_sent(struct ol_subscriber *seat, const char *id)
{
    struct ol_sent_entry *sent = calloc(1, sizeof *sent);
    if (!sent)
        return NULL;
    memcpy(sent->id, id, sizeof sent->id);
    sent->is_seen = true;
    sent->next = seat->sent;
    seat->sent = sent;
    return sent;
}

void ol_subscriber_prune_sent(struct ol_subscriber *seat)
{
    for (struct ol_sent_entry **link = &seat->sent; *link;) {
        struct ol_sent_entry *sent = *link;
        if (sent->is_seen) {
            sent->is_seen = false;
            link = &sent->next;
        } else {
            *link = sent->next;
            free(sent);
        }
    }
}

struct ol_subscriber *ol_channel_subscriber(const struct ol_channel *room, uint64_t number)
{
    struct ol_subscriber *seat = room->seats;
    while (seat && seat->number != number)
        seat = seat->next;
    return seat;
}

struct ol_subscriber *ol_channels_subscriber(struct ol_channels *hall, const char *org_id,
                                             const char *name, uint64_t number)
{
    const struct ol_channel *room = ol_channels_find(hall, org_id, name);
    return room ? ol_channel_subscriber(room, number) : NULL;
}

void ol_subscriber_begin(struct ol_subscriber *seat)
{
    if (++seat->waiting == OL_SUBSCRIBER_PENDING_MAX)
        ol_websocket_hold(seat->socket, true);
}

void ol_subscriber_finish(struct ol_subscriber *seat)
{
    if (--seat->waiting == OL_SUBSCRIBER_PENDING_MAX / 2)
        ol_websocket_hold(seat->socket, false);
}

static void leave(struct ol_subscriber *seat)
{
    struct ol_channel *room = seat->room;
    struct ol_subscriber **link = &room->seats;

    while (*link != seat)
        link = &(*link)->next;
    *link = seat->next;
    room->hall->seat_count--;
    ol_subscriber_prune_sent(seat);
    ol_subscriber_prune_sent(seat); // the second time nothing was seen
    free(seat);
    close_if_empty(room);
}

void ol_channels_on_close(struct ol_websocket *socket)
{
    leave(ol_websocket_owner(socket));
}

void ol_channels_subscribe(struct ol_channels *hall, struct ol_request *request, const char *org_id,
                           const char *name)
{
    struct ol_channel *room = find_or_make(hall, org_id, name);
    struct ol_subscriber *seat = room ? calloc(1, sizeof *seat) : NULL;

    if (!seat) {
        if (room)
            close_if_empty(room);
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http1_answer(request);
        return;
    }
    *seat = (struct ol_subscriber){.next = room->seats,
                                   .room = room,
                                   .number = ++hall->numbers,
                                   .who = request->who,
                                   .is_new = true};
    seat->who.org_id = NULL; // lives in the request
    room->seats = seat;
    if (!hall->seat_count) { // nobody listened before
        hall->looked_at = ol_clock_boot_us();
        hall->place = -1;
    }
    hall->seat_count++;
    room->is_opening = true; // keeps the room while the socket may already close
    int opened = ol_websocket_open(request, &hall->user->socket, seat, &seat->socket);
    if (opened < 0)
        leave(seat); // else it is gone when the socket is
    room->is_opening = false;
    if (opened > 0)
        ol_channel_deliver(room);
    else
        close_if_empty(room);
}

/* --- loads (H2) --- */

struct ol_request *ol_channel_job(struct ol_channel *room, size_t bytes,
                                  enum ol_handler_result (*job)(struct ol_request *request),
                                  void (*done)(struct ol_request *request))
{
    struct ol_request *request = ol_request_new(room->hall->server);
    struct ol_channel_load *visit = request ? ol_arena_alloc(&request->arena, bytes) : NULL;
    if (visit) {
        visit->hall = room->hall;
        visit->org_id = ol_arena_copy(&request->arena, room->org_id, strlen(room->org_id));
        visit->name = ol_arena_copy(&request->arena, room->name, strlen(room->name));
    }
    if (!visit || !visit->org_id || !visit->name) {
        ol_request_free(request);
        return NULL;
    }
    request->owner = visit;
    request->job = job;
    request->done = done;
    return request;
}

bool ol_channels_submit(struct ol_channels *hall, struct ol_request *request)
{
    if (request && ol_worker_pool_submit(hall->server->clerks, request))
        return true;
    ol_request_free(request);
    return false;
}

static void loaded(struct ol_request *request)
{
    const struct ol_channel_load *visit = request->owner;
    struct ol_channels *hall = visit->hall;
    struct ol_channel *room = ol_channels_find(hall, visit->org_id, visit->name);

    bool is_kept = hall->user->serve(room, request); // it is there: is_loading holds it
    room->is_loading = false;
    bool again = room->wants_again || room->is_midway;
    room->wants_again = room->wants_again && room->is_midway; // from the beginning, after the end
    if (again && room->seats)
        ol_channel_deliver(room);
    else
        close_if_empty(room);
    if (!is_kept)
        ol_request_free(request);
}

void ol_channel_deliver(struct ol_channel *room)
{
    struct ol_channels *hall = room->hall;
    if (room->is_loading) {
        room->wants_again = true;
        return;
    }
    struct ol_request *request =
        ol_channel_job(room, hall->user->visit_bytes, hall->user->load, loaded);
    if (request && hall->user->prepare)
        hall->user->prepare(room, request->owner);
    room->is_loading = ol_channels_submit(hall, request);
    if (!room->is_loading)
        room->due_at = ol_clock_boot_us() + OL_CHANNELS_POLL_US; // the sweep tries again
}

/* --- looking around --- */

/* `each` may be the end of a room. */
static void every_room(struct ol_channels *hall, void (*each)(struct ol_channel *room, int64_t now),
                       int64_t now)
{
    for (size_t i = 0; i < OL_CHANNELS_BUCKETS; i++)
        for (struct ol_channel *room = hall->buckets[i], *next; room; room = next) {
            next = room->next;
            each(room, now);
        }
}

struct ol_channel_poll {
    struct ol_channels *hall;
    int64_t since, begun_at; /* boot clock */
    int64_t place;
    int result;
    bool is_everywhere;
    struct ol_buf news; /* stamp, org\0name\0frame\0 … */
};

void ol_channel_poll_add(struct ol_channel_poll *look, const char *org_id, const char *name,
                         int64_t stamp, const char *frame)
{
    ol_buf_add(&look->news, &stamp, sizeof stamp);
    ol_buf_add(&look->news, org_id, strlen(org_id) + 1);
    ol_buf_add(&look->news, name, strlen(name) + 1);
    ol_buf_add(&look->news, frame ? frame : "", frame ? strlen(frame) + 1 : 1);
}

void ol_channel_poll_add_all(struct ol_channel_poll *look)
{
    look->is_everywhere = true;
}

static enum ol_handler_result look_around(struct ol_request *request)
{
    struct ol_channel_poll *look = request->owner;
    look->result =
        look->hall->user->look(request->log, ol_clock_boot_us() - look->since, &look->place, look);
    return OL_HANDLER_ANSWERED;
}

static void hear_of_all(struct ol_channel *room, int64_t now)
{
    (void)now;
    if (room->seats)
        room->hall->user->hear(room, 0, NULL);
}

static void looked(struct ol_request *request)
{
    struct ol_channel_poll *look = request->owner;
    const char *at = look->news.data, *end = at ? at + look->news.bytes : NULL;
    int64_t stamp;

    look->hall->is_looking = false;
    while (at && at < end && !look->news.failed) {
        memcpy(&stamp, at, sizeof stamp);
        const char *org_id = at + sizeof stamp, *name = org_id + strlen(org_id) + 1;
        const char *frame = name + strlen(name) + 1;
        struct ol_channel *room = ol_channels_find(look->hall, org_id, name);
        if (room && room->seats)
            look->hall->user->hear(room, stamp, *frame ? frame : NULL);
        at = frame + strlen(frame) + 1;
    }
    if (look->is_everywhere)
        every_room(look->hall, hear_of_all, 0);
    if (look->result == 0 && !look->news.failed) {
        look->hall->looked_at = look->begun_at;
        look->hall->place = look->place;
    }
    ol_buf_clear(&look->news);
    ol_request_free(request);
}

static void look_if_due(struct ol_channels *hall, int64_t now)
{
    if (hall->is_looking || now < hall->look_at)
        return;
    struct ol_request *request = ol_request_new(hall->server);
    struct ol_channel_poll *look = request ? ol_arena_alloc(&request->arena, sizeof *look) : NULL;
    hall->look_at = now + OL_CHANNELS_POLL_US;
    if (!look) {
        ol_request_free(request);
        return;
    }
    look->hall = hall;
    look->since = hall->looked_at;
    look->place = hall->place;
    look->begun_at = now;
    request->owner = look;
    request->job = look_around;
    request->done = looked;
    hall->is_looking = ol_channels_submit(hall, request);
}

static void check_room(struct ol_channel *room, int64_t now)
{
    if (room->due_at && now >= room->due_at && room->seats)
        ol_channel_deliver(room);
    for (struct ol_subscriber *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        if (seat->who.token_id[0] && !ol_auth_is_valid(room->hall->server->auth, &seat->who))
            ol_websocket_close(seat->socket, 1008, "the token was revoked");
    }
}

void ol_channels_sweep(struct ol_channels *hall)
{
    int64_t now = ol_clock_boot_us();
    if (!hall->seat_count)
        return;
    look_if_due(hall, now);
    every_room(hall, check_room, now);
}

/* --- life --- */

void ol_channels_init(struct ol_channels *hall, struct ol_server *server,
                      const struct ol_channels_handler *user)
{
    *hall = (struct ol_channels){.server = server, .user = user};
}

static void say_goodbye(struct ol_channel *room, int64_t now)
{
    (void)now;
    for (struct ol_subscriber *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        ol_websocket_close(seat->socket, 1001, "the server goes; come back");
    }
}

void ol_channels_close_all(struct ol_channels *hall)
{
    every_room(hall, say_goodbye, 0);
}

void ol_channels_clear(struct ol_channels *hall)
{
    for (size_t i = 0; i < OL_CHANNELS_BUCKETS; i++)
        while (hall->buckets[i]) {
            struct ol_channel *room = hall->buckets[i];
            hall->buckets[i] = room->next;
            free_room(room);
        }
}
