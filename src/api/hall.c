/* hall.c: rooms, seats, and the way of a load. */
#include "api/hall.h"

#include "api/auth.h"
#include "api/clerk.h"
#include "api/http.h"
#include "api/server.h"
#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

/* --- rooms --- */

static struct ol_room **bucket_of(struct ol_hall *hall, const char *org_id, const char *name)
{
    uint64_t hash = 14695981039346656037u;
    for (const char *text = org_id; text; text = text == org_id ? name : NULL)
        for (const char *c = text; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return &hall->buckets[hash % OL_HALL_BUCKETS];
}

struct ol_room *ol_hall_find(struct ol_hall *hall, const char *org_id, const char *name)
{
    struct ol_room *room = *bucket_of(hall, org_id, name);
    while (room && (strcmp(room->name, name) != 0 || strcmp(room->org_id, org_id) != 0))
        room = room->next;
    return room;
}

static void free_room(struct ol_room *room)
{
    if (room->hall->user->forget)
        room->hall->user->forget(room);
    free(room->org_id);
    free(room->name);
    free(room->place);
    free(room);
}

static struct ol_room *find_or_make(struct ol_hall *hall, const char *org_id, const char *name)
{
    struct ol_room *room = ol_hall_find(hall, org_id, name);
    if (room || !(room = calloc(1, sizeof *room)))
        return room;
    *room = (struct ol_room){.hall = hall, .org_id = strdup(org_id), .name = strdup(name)};
    if (!room->org_id || !room->name) {
        free_room(room);
        return NULL;
    }
    struct ol_room **bucket = bucket_of(hall, org_id, name);
    room->next = *bucket;
    *bucket = room;
    return room;
}

/* H1 */
static void close_if_empty(struct ol_room *room)
{
    if (room->seats || room->is_loading || room->is_opening || room->on_the_way)
        return;
    struct ol_room **link = bucket_of(room->hall, room->org_id, room->name);
    while (*link != room)
        link = &(*link)->next;
    *link = room->next;
    free_room(room);
}

void ol_room_hold(struct ol_room *room)
{
    room->on_the_way++;
}

void ol_room_release(struct ol_room *room)
{
    room->on_the_way--;
    close_if_empty(room);
}

/* --- seats --- */

struct ol_sent *ol_seat_sent(const struct ol_seat *seat, const char *id)
{
    struct ol_sent *sent = seat->sent;
    while (sent && strcmp(sent->id, id) != 0)
        sent = sent->next;
    return sent;
}

struct ol_sent *ol_seat_note(struct ol_seat *seat, const char *id)
{
    struct ol_sent *sent = calloc(1, sizeof *sent);
    if (!sent)
        return NULL;
    memcpy(sent->id, id, sizeof sent->id);
    sent->is_seen = true;
    sent->next = seat->sent;
    seat->sent = sent;
    return sent;
}

void ol_seat_prune(struct ol_seat *seat)
{
    for (struct ol_sent **link = &seat->sent; *link;) {
        struct ol_sent *sent = *link;
        if (sent->is_seen) {
            sent->is_seen = false;
            link = &sent->next;
        } else {
            *link = sent->next;
            free(sent);
        }
    }
}

struct ol_seat *ol_room_seat(const struct ol_room *room, uint64_t number)
{
    struct ol_seat *seat = room->seats;
    while (seat && seat->number != number)
        seat = seat->next;
    return seat;
}

struct ol_seat *ol_hall_seat(struct ol_hall *hall, const char *org_id, const char *name,
                             uint64_t number)
{
    const struct ol_room *room = ol_hall_find(hall, org_id, name);
    return room ? ol_room_seat(room, number) : NULL;
}

void ol_seat_begin(struct ol_seat *seat)
{
    if (++seat->waiting == OL_SEAT_WAITING)
        ol_socket_hold(seat->socket, true);
}

void ol_seat_finish(struct ol_seat *seat)
{
    if (--seat->waiting == OL_SEAT_WAITING / 2)
        ol_socket_hold(seat->socket, false);
}

static void leave(struct ol_seat *seat)
{
    struct ol_room *room = seat->room;
    struct ol_seat **link = &room->seats;

    while (*link != seat)
        link = &(*link)->next;
    *link = seat->next;
    room->hall->seat_count--;
    ol_seat_prune(seat);
    ol_seat_prune(seat); // the second time nothing was seen
    free(seat);
    close_if_empty(room);
}

void ol_hall_closed(struct ol_socket *socket)
{
    leave(ol_socket_owner(socket));
}

void ol_hall_enter(struct ol_hall *hall, struct ol_request *request, const char *org_id,
                   const char *name)
{
    struct ol_room *room = find_or_make(hall, org_id, name);
    struct ol_seat *seat = room ? calloc(1, sizeof *seat) : NULL;

    if (!seat) {
        if (room)
            close_if_empty(room);
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http_answer(request);
        return;
    }
    *seat = (struct ol_seat){.next = room->seats,
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
    int opened = ol_socket_open(request, &hall->user->socket, seat, &seat->socket);
    if (opened < 0)
        leave(seat); // else it is gone when the socket is
    room->is_opening = false;
    if (opened > 0)
        ol_room_deliver(room);
    else
        close_if_empty(room);
}

/* --- loads (H2) --- */

struct ol_request *ol_room_job(struct ol_room *room, size_t bytes,
                               enum ol_answer (*job)(struct ol_request *request),
                               void (*done)(struct ol_request *request))
{
    struct ol_request *request = ol_request_new(room->hall->server);
    struct ol_visit *visit = request ? ol_arena_alloc(&request->arena, bytes) : NULL;
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

bool ol_hall_submit(struct ol_hall *hall, struct ol_request *request)
{
    if (request && ol_clerks_submit(hall->server->clerks, request))
        return true;
    ol_request_free(request);
    return false;
}

static void loaded(struct ol_request *request)
{
    const struct ol_visit *visit = request->owner;
    struct ol_hall *hall = visit->hall;
    struct ol_room *room = ol_hall_find(hall, visit->org_id, visit->name);

    bool is_kept = hall->user->serve(room, request); // it is there: is_loading holds it
    room->is_loading = false;
    bool again = room->wants_again || room->is_midway;
    room->wants_again = room->wants_again && room->is_midway; // from the beginning, after the end
    if (again && room->seats)
        ol_room_deliver(room);
    else
        close_if_empty(room);
    if (!is_kept)
        ol_request_free(request);
}

void ol_room_deliver(struct ol_room *room)
{
    struct ol_hall *hall = room->hall;
    if (room->is_loading) {
        room->wants_again = true;
        return;
    }
    struct ol_request *request =
        ol_room_job(room, hall->user->visit_bytes, hall->user->load, loaded);
    if (request && hall->user->prepare)
        hall->user->prepare(room, request->owner);
    room->is_loading = ol_hall_submit(hall, request);
    if (!room->is_loading)
        room->due_at = ol_clock_boot_us() + OL_HALL_LOOK_US; // the sweep tries again
}

/* --- looking around --- */

/* `each` may be the end of a room. */
static void every_room(struct ol_hall *hall, void (*each)(struct ol_room *room, int64_t now),
                       int64_t now)
{
    for (size_t i = 0; i < OL_HALL_BUCKETS; i++)
        for (struct ol_room *room = hall->buckets[i], *next; room; room = next) {
            next = room->next;
            each(room, now);
        }
}

struct ol_look {
    struct ol_hall *hall;
    int64_t since, begun_at; /* boot clock */
    int64_t place;
    int result;
    bool is_everywhere;
    struct ol_buf news; /* stamp, org\0name\0frame\0 … */
};

void ol_look_add(struct ol_look *look, const char *org_id, const char *name, int64_t stamp,
                 const char *frame)
{
    ol_buf_add(&look->news, &stamp, sizeof stamp);
    ol_buf_add(&look->news, org_id, strlen(org_id) + 1);
    ol_buf_add(&look->news, name, strlen(name) + 1);
    ol_buf_add(&look->news, frame ? frame : "", frame ? strlen(frame) + 1 : 1);
}

void ol_look_everywhere(struct ol_look *look)
{
    look->is_everywhere = true;
}

static enum ol_answer look_around(struct ol_request *request)
{
    struct ol_look *look = request->owner;
    look->result =
        look->hall->user->look(request->log, ol_clock_boot_us() - look->since, &look->place, look);
    return OL_ANSWERED;
}

static void hear_of_all(struct ol_room *room, int64_t now)
{
    (void)now;
    if (room->seats)
        room->hall->user->hear(room, 0, NULL);
}

static void looked(struct ol_request *request)
{
    struct ol_look *look = request->owner;
    const char *at = look->news.data, *end = at ? at + look->news.bytes : NULL;
    int64_t stamp;

    look->hall->is_looking = false;
    while (at && at < end && !look->news.failed) {
        memcpy(&stamp, at, sizeof stamp);
        const char *org_id = at + sizeof stamp, *name = org_id + strlen(org_id) + 1;
        const char *frame = name + strlen(name) + 1;
        struct ol_room *room = ol_hall_find(look->hall, org_id, name);
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

static void look_if_due(struct ol_hall *hall, int64_t now)
{
    if (hall->is_looking || now < hall->look_at)
        return;
    struct ol_request *request = ol_request_new(hall->server);
    struct ol_look *look = request ? ol_arena_alloc(&request->arena, sizeof *look) : NULL;
    hall->look_at = now + OL_HALL_LOOK_US;
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
    hall->is_looking = ol_hall_submit(hall, request);
}

static void check_room(struct ol_room *room, int64_t now)
{
    if (room->due_at && now >= room->due_at && room->seats)
        ol_room_deliver(room);
    for (struct ol_seat *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        if (seat->who.token_id[0] && !ol_auth_is_valid(room->hall->server->auth, &seat->who))
            ol_socket_close(seat->socket, 1008, "the token was revoked");
    }
}

void ol_hall_sweep(struct ol_hall *hall)
{
    int64_t now = ol_clock_boot_us();
    if (!hall->seat_count)
        return;
    look_if_due(hall, now);
    every_room(hall, check_room, now);
}

/* --- life --- */

void ol_hall_init(struct ol_hall *hall, struct ol_server *server, const struct ol_hall_user *user)
{
    *hall = (struct ol_hall){.server = server, .user = user};
}

static void say_goodbye(struct ol_room *room, int64_t now)
{
    (void)now;
    for (struct ol_seat *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        ol_socket_close(seat->socket, 1001, "the server goes; come back");
    }
}

void ol_hall_leave(struct ol_hall *hall)
{
    every_room(hall, say_goodbye, 0);
}

void ol_hall_clear(struct ol_hall *hall)
{
    for (size_t i = 0; i < OL_HALL_BUCKETS; i++)
        while (hall->buckets[i]) {
            struct ol_room *room = hall->buckets[i];
            hall->buckets[i] = room->next;
            free_room(room);
        }
}
