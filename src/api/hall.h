/* hall.h: sockets by what they listen to: an org and a name, which is a session's key or a user's id.
 *
 * H1  A room has at least one seat, or somebody is on the way back to it.
 * H2  What a room is to be sent is loaded by a clerk, one load a room at a time; what came up meanwhile is
 *     loaded afterwards. A load is asked for by a new seat, by whoever stored something, and by a look at
 *     the store several times a second, as another process may have stored it; a look begins where the last one
 *     that could be had began.
 * H3  Each seat remembers what it was sent of that.
 *
 * The loop's thread only. */
#ifndef OL_API_HALL_H
#define OL_API_HALL_H

#include "api/request.h"
#include "api/socket.h"

enum { OL_HALL_BUCKETS = 4096, OL_HALL_LOOK_US = 250000, OL_SEAT_WAITING = 256 };

struct ol_sent {
    struct ol_sent *next;
    char id[37];
    int64_t at;   /* boot clock; 0: send it again */
    bool is_seen; /* in what is being gone through */
};

struct ol_seat {
    struct ol_seat *next;
    struct ol_room *room;
    struct ol_socket *socket;
    struct ol_identity who;
    uint64_t number; /* no two are the same */
    struct ol_sent *sent;
    int errors;
    int waiting;       /* frames of it that are being dealt with */
    bool is_new;       /* until its user says otherwise */
    bool is_served;    /* by what is being gone through: it was there when that began */
    bool is_behind;    /* it takes no more just now */
    int64_t behind_at; /* boot clock: since when it may lack something; 0: it does not */
};

struct ol_room {
    struct ol_room *next;
    struct ol_hall *hall;
    char *org_id, *name;
    struct ol_seat *seats;
    int64_t due_at; /* boot clock: load again; 0: nothing is owed */
    int64_t stamp;  /* of the last news, for its user */
    int64_t told;   /* another such, for its user */
    bool is_loading, wants_again, is_opening;
    bool is_midway;    /* the next load goes on where the last one ended: more than one is needed */
    bool starts_anew;  /* it does not */
    void *place;       /* where, for its user; freed with the room */
    size_t passed;     /* how many it went through */
    bool has_more;     /* than it goes through at a time */
    size_t on_the_way; /* of what its user has to do with it: it stays until then */
    void *talk;        /* its user's, who forgets it with the room */
};

/* What a load is about; the user's own struct begins with it, and is the request's owner. */
struct ol_visit {
    struct ol_hall *hall;
    const char *org_id, *name;
};

struct ol_look;

struct ol_hall_user {
    struct ol_socket_user socket; /* its `closed` is ol_hall_closed */
    size_t visit_bytes;
    void (*prepare)(struct ol_room *room, struct ol_visit *visit); /* in the loop; may be NULL */
    enum ol_answer (*load)(struct ol_request *request);            /* by a clerk */
    /* Back in the loop, with seats: send them what they lack. Sending may drop a seat. The request may be
     * given another job, and then is not freed: true. */
    bool (*serve)(struct ol_room *room, struct ol_request *request);
    /* By a clerk: whose rooms have news of the last `back_us` and some seconds; ol_look_add() for each. Whoever keeps
     * a place in the log finds it where the last look that went well left it, or -1: nobody listened before. */
    int (*look)(outlog *log, int64_t back_us, int64_t *place, struct ol_look *look);
    /* Back in the loop: such a room, which has seats. */
    void (*hear)(struct ol_room *room, int64_t stamp, const char *frame);
    void (*forget)(struct ol_room *room); /* it goes; may be NULL */
};

struct ol_hall {
    struct ol_server *server;
    const struct ol_hall_user *user;
    struct ol_room *buckets[OL_HALL_BUCKETS];
    size_t seat_count;
    uint64_t numbers;
    int64_t look_at;
    int64_t looked_at; /* boot clock: what was stored before is heard of, however long ago */
    int64_t place;     /* the user's, in the log; -1: none yet */
    bool is_looking;
};

void ol_hall_init(struct ol_hall *hall, struct ol_server *server, const struct ol_hall_user *user);

/* Say goodbye to everybody; ol_hall_clear() frees when no clerk works any more. */
void ol_hall_leave(struct ol_hall *hall);
void ol_hall_clear(struct ol_hall *hall);

/* The request becomes a socket with a seat in this room, and gets what is owed. */
void ol_hall_enter(struct ol_hall *hall, struct ol_request *request, const char *org_id,
                   const char *name);
void ol_hall_closed(struct ol_socket *socket);

/* A few times a second: look, load what is due, drop those whose token was revoked. */
void ol_hall_sweep(struct ol_hall *hall);

/* NULL: nobody is there. */
struct ol_room *ol_hall_find(struct ol_hall *hall, const char *org_id, const char *name);

/* A room stays while it is held; with the last release it may be gone. */
void ol_room_hold(struct ol_room *room);
void ol_room_release(struct ol_room *room);

/* NULL: it is gone. */
struct ol_seat *ol_room_seat(const struct ol_room *room, uint64_t number);
struct ol_seat *ol_hall_seat(struct ol_hall *hall, const char *org_id, const char *name,
                             uint64_t number);

/* A frame of the seat is being dealt with, and is done with: so many at a time, and its socket waits. */
void ol_seat_begin(struct ol_seat *seat);
void ol_seat_finish(struct ol_seat *seat);

/* Load what is owed, and serve it. */
void ol_room_deliver(struct ol_room *room);

/* A request for a clerk, whose owner has `bytes` bytes and begins with a struct ol_visit. NULL: no memory. */
struct ol_request *ol_room_job(struct ol_room *room, size_t bytes,
                               enum ol_answer (*job)(struct ol_request *request),
                               void (*done)(struct ol_request *request));

/* Hand it over; false when it was freed instead. */
bool ol_hall_submit(struct ol_hall *hall, struct ol_request *request);

/* A room has news: a stamp, by which its user knows what is new, and perhaps a frame. */
void ol_look_add(struct ol_look *look, const char *org_id, const char *name, int64_t stamp,
                 const char *frame);

/* Every room may have news. */
void ol_look_everywhere(struct ol_look *look);

/* --- what a seat was sent --- */

struct ol_sent *ol_seat_sent(const struct ol_seat *seat, const char *id); /* NULL: never */
struct ol_sent *ol_seat_note(struct ol_seat *seat, const char *id);       /* NULL: no memory */

/* Forget what was not seen since the last time. */
void ol_seat_prune(struct ol_seat *seat);

#endif
