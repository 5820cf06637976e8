/* followers.h: requests that wait for new events: long polls and event streams.
 *
 * Only for the loop's thread. */
#ifndef OL_SERVER_LIVE_FOLLOWERS_H
#define OL_SERVER_LIVE_FOLLOWERS_H

#include "server/http/request.h"

struct ol_worker_pool;
struct ol_event_tail;
struct ol_auth;

struct ol_followers {
    struct ol_worker_pool *workers;
    struct ol_event_tail *event_tail;
    struct ol_auth *auth;
    struct ol_request *first;
    size_t stream_count, poll_count;
};

/* A worker has run it: it waits, or it streams and `reply` is sent. */
void ol_followers_put(struct ol_followers *followers, struct ol_request *request, uint64_t now);

/* On a worker: read a stream's events that are older than the tail into `reply`. */
enum ol_handler_result ol_followers_read(struct ol_request *request);

/* The event tail has new events. */
void ol_followers_moved(struct ol_followers *followers);

/* Run the handlers of those that wait for something other than the log. */
void ol_followers_poll(struct ol_followers *followers);

/* A stream's client has received what was sent. */
void ol_followers_drained(struct ol_followers *followers, struct ol_request *request);

/* A few times a second: end waits that timed out, send heartbeats, check for revoked tokens. */
void ol_followers_sweep(struct ol_followers *followers, uint64_t now);

/* The client has gone. Frees the request unless a worker has it. */
void ol_followers_gone(struct ol_followers *followers, struct ol_request *request);

/* End all of them. */
void ol_followers_end_all(struct ol_followers *followers);

#endif
