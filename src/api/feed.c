/* feed.c: sockets by user. Notices are found by a look at what was stored in the last seconds, as another
 * process may have stored them; each seat remembers what it was sent of that. */
#include "api/feed.h"

#include "api/auth.h"
#include "api/clerk.h"
#include "api/http.h"
#include "api/server.h"
#include "api/socket.h"
#include "base/clock.h"
#include "views/inbox.h"

#include <stdlib.h>
#include <string.h>

enum { LOOK_US = 250000, LOOK_BACK_US = 10 * 1000000 };

struct sent {
    struct sent *next;
    char id[37];
    bool is_recent; /* seen in the list that is being gone through */
};

struct seat {
    struct seat *next;
    struct room *room;
    struct ol_socket *socket;
    struct ol_identity who;
    struct sent *sent;
    bool is_new; /* what is unread was not sent yet */
};

/* All sockets of one user. */
struct room {
    struct room *next;
    struct ol_feed *feed;
    char *org_id, *user_id;
    struct seat *seats;
    int64_t stamp; /* of the last look that found something */
    bool is_loading, wants_again, is_opening;
};

struct ol_feed {
    struct ol_server *server;
    struct room *rooms;
    int64_t look_at;
    bool is_looking;
};

/* --- rooms and seats --- */

static struct room *find(struct ol_feed *feed, const char *org_id, const char *user_id)
{
    struct room *room = feed->rooms;
    while (room && (strcmp(room->user_id, user_id) != 0 || strcmp(room->org_id, org_id) != 0))
        room = room->next;
    return room;
}

static void free_room(struct room *room)
{
    free(room->org_id);
    free(room->user_id);
    free(room);
}

static struct room *find_or_make(struct ol_feed *feed, const char *org_id, const char *user_id)
{
    struct room *room = find(feed, org_id, user_id);
    if (room || !(room = calloc(1, sizeof *room)))
        return room;
    *room = (struct room){.feed = feed, .org_id = strdup(org_id), .user_id = strdup(user_id)};
    if (!room->org_id || !room->user_id) {
        free_room(room);
        return NULL;
    }
    room->next = feed->rooms;
    feed->rooms = room;
    return room;
}

static void close_if_empty(struct room *room)
{
    if (room->seats || room->is_loading || room->is_opening)
        return;
    struct room **link = &room->feed->rooms;
    while (*link != room)
        link = &(*link)->next;
    *link = room->next;
    free_room(room);
}

static void on_closed(struct ol_socket *socket)
{
    struct seat *seat = ol_socket_owner(socket);
    struct room *room = seat->room;
    struct seat **link = &room->seats;

    while (*link != seat)
        link = &(*link)->next;
    *link = seat->next;
    while (seat->sent) {
        struct sent *sent = seat->sent;
        seat->sent = sent->next;
        free(sent);
    }
    free(seat);
    close_if_empty(room);
}

/* --- delivering --- */

struct delivery {
    char *org_id, *user_id;
    bool wants_unread;
    struct ol_inbox_item *recent, *unread;
    size_t recent_count, unread_count;
};

static enum ol_answer load(struct ol_request *request)
{
    struct delivery *job = request->owner;
    outlog_err err;
    if (job->wants_unread &&
        ol_inbox_unread(request->log, job->org_id, job->user_id, &request->arena, &job->unread,
                        &job->unread_count, &err) < 0)
        job->unread_count = 0;
    if (ol_inbox_recent(request->log, job->org_id, job->user_id, LOOK_BACK_US, &request->arena,
                        &job->recent, &job->recent_count, &err) < 0)
        job->recent_count = 0;
    return OL_ANSWERED;
}

/* One notice, unless this seat has it. False: the seat is gone. */
static bool send_once(struct seat *seat, const struct ol_inbox_item *item, struct ol_buf *frame)
{
    struct sent *sent = seat->sent;
    while (sent && strcmp(sent->id, item->id) != 0)
        sent = sent->next;
    if (sent) {
        sent->is_recent = true;
        return true;
    }
    if (!(sent = calloc(1, sizeof *sent)))
        return true; // the next look finds it
    memcpy(sent->id, item->id, sizeof sent->id);
    sent->is_recent = true;
    sent->next = seat->sent;
    seat->sent = sent;
    if (item->is_read && seat->is_new)
        return true; // it came before this seat did
    ol_buf_reset(frame);
    ol_buf_text(frame, "{\"type\":\"notification\",");
    ol_buf_add(frame, item->json + 1, item->bytes - 1);
    return ol_socket_send(seat->socket, frame->data, frame->bytes);
}

/* Forget what no look will find again. */
static void prune(struct seat *seat)
{
    for (struct sent **link = &seat->sent; *link;) {
        struct sent *sent = *link;
        if (sent->is_recent) {
            sent->is_recent = false;
            link = &sent->next;
        } else {
            *link = sent->next;
            free(sent);
        }
    }
}

/* A seat that came while this was loaded gets what is unread by the next load. */
static void serve(struct seat *seat, const struct delivery *job, struct ol_buf *frame)
{
    if (seat->is_new && !job->wants_unread)
        return;
    for (size_t i = 0; seat->is_new && i < job->unread_count; i++)
        if (!send_once(seat, &job->unread[i], frame))
            return;
    for (size_t i = 0; i < job->recent_count; i++)
        if (!send_once(seat, &job->recent[i], frame))
            return;
    seat->is_new = false;
    prune(seat);
}

static void deliver(struct room *room);

static void loaded(struct ol_request *request)
{
    struct delivery *job = request->owner;
    struct room *room = find(request->server->feed, job->org_id, job->user_id);
    struct ol_buf frame = {0};

    for (struct seat *seat = room->seats, *next; seat; seat = next) {
        next = seat->next;
        serve(seat, job, &frame);
    }
    ol_buf_clear(&frame);
    ol_request_free(request);
    room->is_loading = false;
    bool again = room->wants_again;
    room->wants_again = false;
    if (again && room->seats)
        deliver(room);
    else
        close_if_empty(room);
}

static void deliver(struct room *room)
{
    struct ol_request *request = NULL;
    struct delivery *job = NULL;
    if (room->is_loading) {
        room->wants_again = true;
        return;
    }
    if ((request = ol_request_new(room->feed->server)) &&
        (job = ol_arena_alloc(&request->arena, sizeof *job))) {
        job->org_id = ol_arena_copy(&request->arena, room->org_id, strlen(room->org_id));
        job->user_id = ol_arena_copy(&request->arena, room->user_id, strlen(room->user_id));
        for (struct seat *seat = room->seats; seat; seat = seat->next)
            job->wants_unread |= seat->is_new;
        request->owner = job;
        request->job = load;
        request->done = loaded;
    }
    room->is_loading = job && job->org_id && job->user_id &&
                       ol_clerks_submit(room->feed->server->clerks, request);
    if (!room->is_loading) {
        ol_request_free(request);
        room->stamp = 0; // the sweep tries again
    }
}

/* --- coming and going --- */

struct marking {
    const char *id, *org_id;
};

static enum ol_answer mark(struct ol_request *request)
{
    struct marking *marking = request->owner;
    struct ol_buf ignored = {0};
    outlog_tx *tx;
    outlog_err err;
    if (outlog_begin(request->log, &tx, &err) == 0) {
        // A failure is no loss: the notice stays unread, and is sent again.
        if (ol_inbox_read(tx, marking->org_id, marking->id, &ignored, &err) == 0)
            outlog_commit(tx, &err);
        else
            outlog_rollback(tx);
    }
    ol_buf_clear(&ignored);
    return OL_ANSWERED;
}

static void marked(struct ol_request *request)
{
    ol_request_free(request);
}

/* {type: "read", id}; anything else is nothing we know. */
static void on_text(struct ol_socket *socket, const char *text, size_t bytes)
{
    static const char refusal[] =
        "{\"type\":\"error\",\"code\":\"invalid_field\",\"detail\":\"the frame "
        "known here is {\\\"type\\\":\\\"read\\\",\\\"id\\\":…}\"}";
    struct seat *seat = ol_socket_owner(socket);
    struct ol_request *request = ol_request_new(seat->room->feed->server);
    struct marking *job = request ? ol_arena_alloc(&request->arena, sizeof *job) : NULL;
    struct ol_json frame = {0};
    outlog_err err;

    if (job && ol_json_parse(text, bytes, &frame, &err) == 0) {
        struct ol_json type = ol_json_get(&frame, "type"), id = ol_json_get(&frame, "id");
        job->org_id =
            ol_arena_copy(&request->arena, seat->room->org_id, strlen(seat->room->org_id));
        if (ol_json_equals(&type, "read"))
            job->id = ol_json_string(&id, &request->arena, NULL);
    }
    if (!job || !job->id || !job->org_id) {
        ol_request_free(request);
        ol_socket_send(socket, refusal, sizeof refusal - 1);
        return;
    }
    request->owner = job;
    request->job = mark;
    request->done = marked;
    if (!ol_clerks_submit(seat->room->feed->server->clerks, request))
        ol_request_free(request);
}

static const struct ol_socket_user socket_user = {on_text, on_closed};

void ol_feed_enter(struct ol_request *request)
{
    struct ol_feed *feed = request->server->feed;
    const struct ol_feed_entrance *entrance = request->owner;
    struct room *room = find_or_make(feed, entrance->org_id, entrance->user_id);
    struct seat *seat = room ? calloc(1, sizeof *seat) : NULL;

    if (!seat) {
        if (room)
            close_if_empty(room);
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http_answer(request);
        return;
    }
    *seat = (struct seat){.room = room, .who = request->who, .is_new = true};
    seat->who.org_id = NULL; // lives in the request
    seat->next = room->seats;
    room->seats = seat;
    room->is_opening = true; // keeps the room while the socket may already close
    seat->socket = ol_socket_open(request, &socket_user, seat);
    bool is_open = seat->socket != NULL; // else the seat is gone
    room->is_opening = false;
    if (is_open)
        deliver(room);
    else
        close_if_empty(room);
}

/* --- looking around --- */

struct look {
    struct ol_buf names; /* stamp, org\0user\0 … */
};

static void add_name(void *user, const char *org_id, const char *user_id, int64_t stamp)
{
    struct look *look = user;
    ol_buf_add(&look->names, &stamp, sizeof stamp);
    ol_buf_add(&look->names, org_id, strlen(org_id) + 1);
    ol_buf_add(&look->names, user_id, strlen(user_id) + 1);
}

static enum ol_answer look_around(struct ol_request *request)
{
    outlog_err err;
    ol_inbox_moved(request->log, LOOK_BACK_US, add_name, request->owner, &err);
    return OL_ANSWERED;
}

static void looked(struct ol_request *request)
{
    struct ol_feed *feed = request->server->feed;
    struct look *look = request->owner;
    const char *at = look->names.data, *end = at ? at + look->names.bytes : NULL;
    int64_t stamp;

    feed->is_looking = false;
    while (at && at < end && !look->names.failed) {
        memcpy(&stamp, at, sizeof stamp);
        const char *org_id = at + sizeof stamp, *user_id = org_id + strlen(org_id) + 1;
        struct room *room = find(feed, org_id, user_id);
        if (room && room->seats && room->stamp != stamp) {
            room->stamp = stamp;
            deliver(room);
        }
        at = user_id + strlen(user_id) + 1;
    }
    ol_buf_clear(&look->names);
    ol_request_free(request);
}

static void look_if_due(struct ol_feed *feed, int64_t now)
{
    if (!feed->rooms || feed->is_looking || now < feed->look_at)
        return;
    struct ol_request *request = ol_request_new(feed->server);
    struct look *look = request ? ol_arena_alloc(&request->arena, sizeof *look) : NULL;
    feed->look_at = now + LOOK_US;
    if (!look) {
        ol_request_free(request);
        return;
    }
    request->owner = look;
    request->job = look_around;
    request->done = looked;
    feed->is_looking = ol_clerks_submit(feed->server->clerks, request);
    if (!feed->is_looking)
        ol_request_free(request);
}

void ol_feed_sweep(struct ol_feed *feed)
{
    look_if_due(feed, ol_clock_boot_us());
    for (struct room *room = feed->rooms, *after; room; room = after) {
        after = room->next;
        for (struct seat *seat = room->seats, *next; seat; seat = next) {
            next = seat->next;
            if (seat->who.token_id[0] && !ol_auth_is_valid(feed->server->auth, &seat->who))
                ol_socket_close(seat->socket, 1008, "the token was revoked");
        }
    }
}

/* --- life --- */

int ol_feed_open(struct ol_server *server, struct ol_feed **out, outlog_err *err)
{
    struct ol_feed *feed = calloc(1, sizeof *feed);
    if (!feed)
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    feed->server = server;
    *out = feed;
    return 0;
}

void ol_feed_leave(struct ol_feed *feed)
{
    for (struct room *room = feed->rooms, *after; room; room = after) {
        after = room->next;
        for (struct seat *seat = room->seats, *next; seat; seat = next) {
            next = seat->next;
            ol_socket_close(seat->socket, 1001, "the server goes; come back");
        }
    }
}

void ol_feed_close(struct ol_feed *feed)
{
    if (!feed)
        return;
    while (feed->rooms) {
        struct room *room = feed->rooms;
        feed->rooms = room->next;
        free_room(room);
    }
    free(feed);
}
