/* channel.h: sockets by what they listen to: an org and a name, which is a session's key or a
 * user's id.
 *
 * H1  A room has at least one seat, or somebody is on the way back to it.
 * H2  What a room is to be sent is loaded by a clerk, one load a room at a time; what came up
 * meanwhile is loaded afterwards. A load is asked for by a new seat, by whoever stored something,
 * and by a look at the store several times a second, as another process may have stored it; a look
 * begins where the last one that could be had began. H3  Each seat remembers what it was sent of
 * that.
 *
 * The loop's thread only. */
#ifndef OL_SERVER_LIVE_CHANNEL_H
#define OL_SERVER_LIVE_CHANNEL_H

#include "server/http/request.h"
#include "server/http/websocket.h"

enum { OL_CHANNELS_BUCKETS = 4096, OL_CHANNELS_POLL_US = 250000, OL_SUBSCRIBER_PENDING_MAX = 256 };

struct ol_sent_entry {
    struct ol_sent_entry *next;
    char id[37];
    int64_t at;   /* boot clock; 0: send it again */
    bool is_seen; /* in what is being gone through */
};

struct ol_subscriber {
    struct ol_subscriber *next;
    struct ol_channel *room;
    struct ol_websocket *socket;
    struct ol_identity who;
    uint64_t number; /* no two are the same */
    struct ol_sent_entry *sent;
    int errors;
    int waiting;       /* frames of it that are being dealt with */
    bool is_new;       /* until its user says otherwise */
    bool is_served;    /* by what is being gone through: it was there when that began */
    bool is_behind;    /* it takes no more just now */
    int64_t behind_at; /* boot clock: since when it may lack something; 0: it does not */
};

struct ol_channel {
    struct ol_channel *next;
    struct ol_channels *hall;
    char *org_id, *name;
    struct ol_subscriber *seats;
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
struct ol_channel_load {
    struct ol_channels *hall;
    const char *org_id, *name;
};

struct ol_channel_poll;

struct ol_channels_handler {
    struct ol_websocket_handler socket; /* its `closed` is ol_channels_on_close */
    size_t visit_bytes;
    void (*prepare)(struct ol_channel *room,
                    struct ol_channel_load *visit);             /* in the loop; may be NULL */
    enum ol_handler_result (*load)(struct ol_request *request); /* by a clerk */
    /* Back in the loop, with seats: send them what they lack. Sending may drop a seat. The request
     * may be given another job, and then is not freed: true. */
    bool (*serve)(struct ol_channel *room, struct ol_request *request);
    /* By a clerk: whose rooms have news of the last `back_us` and some seconds;
     * ol_channel_poll_add() for each. Whoever keeps a place in the log finds it where the last look
     * that went well left it, or -1: nobody listened before. */
    int (*look)(outlog *log, int64_t back_us, int64_t *place, struct ol_channel_poll *look);
    /* Back in the loop: such a room, which has seats. */
    void (*hear)(struct ol_channel *room, int64_t stamp, const char *frame);
    void (*forget)(struct ol_channel *room); /* it goes; may be NULL */
};

struct ol_channels {
    struct ol_server *server;
    const struct ol_channels_handler *user;
    struct ol_channel *buckets[OL_CHANNELS_BUCKETS];
    size_t seat_count;
    uint64_t numbers;
    int64_t look_at;
    int64_t looked_at; /* boot clock: what was stored before is heard of, however long ago */
    int64_t place;     /* the user's, in the log; -1: none yet */
    bool is_looking;
};

void ol_channels_init(struct ol_channels *hall, struct ol_server *server,
                      const struct ol_channels_handler *user);

/* Say goodbye to everybody; ol_channels_clear() frees when no clerk works any more. */
void ol_channels_close_all(struct ol_channels *hall);
void ol_channels_clear(struct ol_channels *hall);

/* The request becomes a socket with a seat in this room, and gets what is owed. */
void ol_channels_subscribe(struct ol_channels *hall, struct ol_request *request, const char *org_id,
                           const char *name);
void ol_channels_on_close(struct ol_websocket *socket);

/* A few times a second: look, load what is due, drop those whose token was revoked. */
void ol_channels_sweep(struct ol_channels *hall);

/* NULL: nobody is there. */
struct ol_channel *ol_channels_find(struct ol_channels *hall, const char *org_id, const char *name);

/* A room stays while it is held; with the last release it may be gone. */
void ol_channel_retain(struct ol_channel *room);
void ol_channel_release(struct ol_channel *room);

/* NULL: it is gone. */
struct ol_subscriber *ol_channel_subscriber(const struct ol_channel *room, uint64_t number);
struct ol_subscriber *ol_channels_subscriber(struct ol_channels *hall, const char *org_id,
                                             const char *name, uint64_t number);

/* A frame of the seat is being dealt with, and is done with: so many at a time, and its socket
 * waits. */
void ol_subscriber_begin(struct ol_subscriber *seat);
void ol_subscriber_finish(struct ol_subscriber *seat);

/* Load what is owed, and serve it. */
void ol_channel_deliver(struct ol_channel *room);

/* A request for a clerk, whose owner has `bytes` bytes and begins with a struct ol_channel_load.
 * NULL: no memory. */
struct ol_request *ol_channel_job(struct ol_channel *room, size_t bytes,
                                  enum ol_handler_result (*job)(struct ol_request *request),
                                  void (*done)(struct ol_request *request));

/* Hand it over; false when it was freed instead. */
bool ol_channels_submit(struct ol_channels *hall, struct ol_request *request);

/* A room has news: a stamp, by which its user knows what is new, and perhaps a frame. */
void ol_channel_poll_add(struct ol_channel_poll *look, const char *org_id, const char *name,
                         int64_t stamp, const char *frame);

/* Every room may have news. */
void ol_channel_poll_add_all(struct ol_channel_poll *look);

/* --- what a seat was sent --- */

struct ol_sent_entry *ol_subscriber_find_sent(const struct ol_subscriber *seat,
                                              const char *id); /* NULL: never */
struct ol_sent_entry *ol_subscriber_add_sent(struct ol_subscriber *seat,
                                             const char *id); /* NULL: no memory */

/* Forget what was not seen since the last time. */
void ol_subscriber_prune_sent(struct ol_subscriber *seat);

#endif
