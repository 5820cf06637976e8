/* followers.h: requests that wait for the log to move: long polls and event streams.
 *
 * The loop's thread only. */
#ifndef OL_SERVER_LIVE_FOLLOWERS_H
#define OL_SERVER_LIVE_FOLLOWERS_H

#include "server/http/request.h"

struct ol_worker_pool;
struct ol_event_tail;
struct ol_auth;

struct ol_followers {
    struct ol_worker_pool *clerks;
    struct ol_event_tail *hub;
    struct ol_auth *auth;
    struct ol_request *first;
    size_t stream_count, poll_count;
};

/* A clerk is done with it: it waits (OL_HANDLER_WAITING), or streams (OL_HANDLER_STREAMING; `reply`
 * is sent). */
void ol_followers_put(struct ol_followers *followers, struct ol_request *request, uint64_t now);

/* The hub has something new. */
void ol_followers_moved(struct ol_followers *followers);

/* Ask again on behalf of those that wait for something else than the log. */
void ol_followers_poll(struct ol_followers *followers);

/* A stream's client has taken what was sent. */
void ol_followers_drained(struct ol_followers *followers, struct ol_request *request);

/* Now and then: waits that are over, signs of life, tokens that were revoked. */
void ol_followers_sweep(struct ol_followers *followers, uint64_t now);

/* The client went away. Frees the request unless a clerk has it. */
void ol_followers_gone(struct ol_followers *followers, struct ol_request *request);

/* End all of them. */
void ol_followers_end_all(struct ol_followers *followers);

#endif
