/* channel.h: WebSockets grouped by what they subscribe to: an org and a name, which is a session's
 * key or a user's id.
 *
 * H1  A channel exists while it has a subscriber or a job.
 * H2  What a channel's subscribers lack is read by one load at a time. If more arrives meanwhile,
 *     another load follows. A load is started by a new subscriber, by a thread of this process that
 *     stored something, and by a poll of the store several times a second, because another process
 *     may have stored something. Each poll starts at the time the last successful poll started.
 * H3  Each subscriber remembers what it was sent.
 *
 * The users are session_sockets.c and notification_sockets.c. Only for the loop's thread. */
#ifndef OL_SERVER_LIVE_CHANNEL_H
#define OL_SERVER_LIVE_CHANNEL_H

#include "server/http/request.h"
#include "server/http/websocket.h"
#include "server/job.h"

enum {
    OL_CHANNELS_BUCKETS = 4096,
    OL_CHANNELS_POLL_US = 250000,
    OL_SUBSCRIBER_PENDING_MAX = 256,
    OL_SUBSCRIBER_ERRORS_MAX = 20,
};

struct ol_sent_entry {
    struct ol_sent_entry *next;
    char id[37];
    int64_t at;   /* boot clock; 0: send it again */
    bool is_seen; /* it was in the pages since the last ol_subscriber_prune_sent() */
};

struct ol_subscriber {
    struct ol_subscriber *next;
    struct ol_channel *channel;
    struct ol_websocket *socket;
    struct ol_identity who;
    uint64_t id; /* unique among all subscribers */
    struct ol_sent_entry *sent;
    int errors;           /* bad frames */
    int pending;          /* frames that are being processed */
    bool is_new;          /* no load has started for it yet; its user clears this */
    bool is_served;       /* it takes part in the current pass over the pages */
    bool is_full;         /* its socket accepts no more just now */
    int64_t behind_since; /* boot clock: it may lack what came after this; 0: it lacks nothing */
};

/* A user's own struct begins with it. */
struct ol_channel {
    struct ol_channel *next;
    struct ol_channels *channels;
    char *org_id, *name;
    struct ol_subscriber *subscribers;
    size_t references;   /* jobs and calls that need it */
    int64_t due_at;      /* boot clock: start a load; 0: none is due */
    int64_t last_change; /* the version of the last change that a poll reported */
    bool is_loading;
    bool load_again;    /* something arrived during the load */
    bool has_next_page; /* the next load continues where the last one ended */
};

struct ol_channels_handler {
    struct ol_websocket_handler socket; /* its `closed` is ol_channels_on_close */
    size_t channel_bytes;               /* of the user's struct */

    /* Start a job that reads what the subscribers lack, and ends in ol_channel_end_load(). False:
     * it could not be started. */
    bool (*start_load)(struct ol_channel *channel);

    /* The job of a poll, on a worker: a struct ol_channel_poll. */
    bool (*poll)(struct ol_job *job);
    enum ol_job_type poll_type;

    void (*clear)(struct ol_channel *channel); /* before it is freed; may be NULL */
};

struct ol_channels {
    struct ol_server *server;
    const struct ol_channels_handler *handler;
    struct ol_channel *buckets[OL_CHANNELS_BUCKETS];
    size_t subscriber_count;
    uint64_t last_id;
    int64_t poll_at;   /* boot clock */
    int64_t polled_at; /* boot clock: everything stored before this was found by a poll */
    int64_t position;  /* the user's position in the log after the last poll; -1: none */
    bool is_polling;
};

void ol_channels_init(struct ol_channels *channels, struct ol_server *server,
                      const struct ol_channels_handler *handler);

/* Close all sockets. ol_channels_clear() frees the channels; no job may be running. */
void ol_channels_close_all(struct ol_channels *channels);
void ol_channels_clear(struct ol_channels *channels);

/* Turn the request into a socket that subscribes to this channel, and start a load. */
void ol_channels_subscribe(struct ol_channels *channels, struct ol_request *request,
                           const char *org_id, const char *name);
void ol_channels_on_close(struct ol_websocket *socket);

/* A few times a second: poll the store, start due loads, close sockets with a revoked token. */
void ol_channels_sweep(struct ol_channels *channels);

/* NULL: there is none. */
struct ol_channel *ol_channels_find(struct ol_channels *channels, const char *org_id,
                                    const char *name);

/* `each` may free its channel. */
void ol_channels_each(struct ol_channels *channels, void (*each)(struct ol_channel *channel));

/* Keep the channel; the last release may free it (H1). */
void ol_channel_retain(struct ol_channel *channel);
void ol_channel_release(struct ol_channel *channel);

/* --- loads (H2) --- */

/* Start a load, or another one after the current. */
void ol_channel_load(struct ol_channel *channel);

/* A load has ended; has_next_page is set. */
void ol_channel_end_load(struct ol_channel *channel);

/* --- jobs for a channel --- */

/* A job's own struct begins with it. */
struct ol_channel_job {
    struct ol_job job; /* first */
    struct ol_channel *channel;
    uint64_t subscriber_id; /* 0: it is not for a frame of a subscriber */
    struct ol_arena arena;
};

/* A zeroed struct of `bytes` that begins with a channel job and keeps it. NULL: no memory. */
void *ol_channel_job_new(struct ol_channel *channel, size_t bytes, enum ol_job_type type,
                         bool (*run)(struct ol_job *job));

/* Give it to a worker; false: it could not be queued and is freed. NULL is allowed. */
bool ol_channel_job_submit(struct ol_channel_job *job);

/* The same for a frame of this subscriber, which counts as pending until the job is freed. */
bool ol_channel_job_submit_frame(struct ol_channel_job *job, struct ol_subscriber *subscriber);

/* May free the channel. NULL is allowed. */
void ol_channel_job_free(struct ol_channel_job *job);

/* --- polls --- */

/* What changed in the store since the last poll. */
struct ol_channel_poll {
    struct ol_job job; /* first */
    struct ol_channels *channels;
    int64_t since, started_at; /* boot clock */
    int64_t position;          /* as struct ol_channels has it; the poll moves it */
    struct ol_buf changes;     /* version, org\0 name\0 frame\0 … */
    size_t read;               /* bytes of it that ol_channel_poll_next() has read */
    bool is_everything;        /* any channel may have changed */
};

/* On a worker: report a channel. `version` distinguishes one change from the next; `frame` is to be
 * sent, or NULL. */
void ol_channel_poll_add(struct ol_channel_poll *poll, const char *org_id, const char *name,
                         int64_t version, const char *frame);

/* Back in the loop: the next reported channel that has subscribers. False: there is none. */
struct ol_channel_change {
    struct ol_channel *channel;
    int64_t version;
    const char *frame;
};
bool ol_channel_poll_next(struct ol_channel_poll *poll, struct ol_channel_change *out);

/* Record how far the poll came, unless it failed, and free it. */
void ol_channel_poll_end(struct ol_channel_poll *poll);

/* --- subscribers --- */

/* NULL: it is gone. */
struct ol_subscriber *ol_channel_subscriber(const struct ol_channel *channel, uint64_t id);

/* A frame of the subscriber is being processed, and is done. At OL_SUBSCRIBER_PENDING_MAX its
 * socket is not read from until half of them are done, so one client cannot starve the others. */
void ol_subscriber_begin(struct ol_subscriber *subscriber);
void ol_subscriber_finish(struct ol_subscriber *subscriber);

/* Answer a bad frame with an error frame; after OL_SUBSCRIBER_ERRORS_MAX close the socket. */
void ol_subscriber_refuse(struct ol_subscriber *subscriber, const char *frame, size_t bytes);

struct ol_sent_entry *ol_subscriber_find_sent(const struct ol_subscriber *subscriber,
                                              const char *id); /* NULL: it was not sent */
struct ol_sent_entry *ol_subscriber_add_sent(struct ol_subscriber *subscriber,
                                             const char *id); /* NULL: no memory */

/* Forget the entries that were not seen since the last call. */
void ol_subscriber_prune_sent(struct ol_subscriber *subscriber);

#endif
