/* breaker.h: stop sending to a destination that is down (L5). Pure: the caller passes the clock.
 *
 *   CLOSED --- `failures` in a row ---> OPEN --- open time over ---> HALF_OPEN
 *      ^                                 ^                             |  |
 *      +----------- success -------------+--------- failure -----------+  |
 *      +------------------------------- success --------------------------+
 *
 * The open time doubles with each failed probe, up to open_max. A breaker never uses up attempts:
 * what it holds back was not tried. Not locked: the destination's owner does that. */
#ifndef OL_RELAY_TARGET_BREAKER_H
#define OL_RELAY_TARGET_BREAKER_H

#include "outlog_publisher.h"

enum ol_breaker_state { OL_BREAKER_CLOSED, OL_BREAKER_OPEN, OL_BREAKER_HALF_OPEN };

struct ol_breaker {
    int failures_max;             /* consecutive; 0 switches the breaker off */
    int64_t open_us, open_max_us; /* the first and the longest pause */
    enum ol_breaker_state state;
    int failures;
    int64_t pause_us;   /* the current pause */
    int64_t open_until; /* OPEN: when a probe may go */
    bool is_probing;    /* HALF_OPEN: the one probe is on its way */
};

void ol_breaker_init(struct ol_breaker *breaker, int failures_max, int64_t open_us,
                     int64_t open_max_us);

/* May one message go now? True takes the place of the probe when the breaker is half open. */
bool ol_breaker_admit(struct ol_breaker *breaker, int64_t now_us);

/* What became of an attempt that was admitted. A permanent failure counts as success: a server that
 * answers 404 is alive. A released attempt frees the probe's place, unless it was released because
 * the target could not be reached: that is a failure, though it uses up no attempt. */
void ol_breaker_note(struct ol_breaker *breaker, const struct outlog_outcome *outcome,
                     int64_t now_us);

/* The state to show, and when it makes sense to ask again (0: now). */
enum ol_breaker_state ol_breaker_state(const struct ol_breaker *breaker, int64_t now_us);
int64_t ol_breaker_ready_at(const struct ol_breaker *breaker);
const char *ol_breaker_name(enum ol_breaker_state state);

#endif
