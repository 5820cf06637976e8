/* target.h: a destination as one worker sees it: settings, channel, and how well it answers. */
#ifndef OL_RELAY_TARGET_TARGET_H
#define OL_RELAY_TARGET_TARGET_H

#include "publish/sender.h"
#include "relay/target/breaker.h"
#include "relay/target/quota.h"
#include "store/store.h"

struct ol_targets;

struct ol_target {
    struct ol_target *next;
    struct ol_targets *targets;
    char *name, *source; /* source: the settings as stored, to see a change */
    struct ol_settings *settings;
    struct ol_sender_channel *channel; /* NULL: it cannot be used, and `trouble` holds the reason */
    char trouble[400];
    bool is_paused, is_retired, is_seen;
    bool is_told;           /* the log says that its messages wait for `trouble` */
    bool is_shown_unusable; /* and others see it */
    bool has_answered;      /* with success, since it was opened */
    struct ol_breaker breaker;
    enum ol_breaker_state shown; /* as others see it */
    int64_t shown_ready_at;
    int64_t ok_at, shown_ok_at; /* the last success, and the last that others know of; 0: none */
    struct ol_quota_member quota;
    double latency_us; /* of recent attempts, smoothed */
    int planned;       /* messages of the turn being planned, and those that wait for capacity */
    bool is_stuck;     /* the plan has found that it can take no more now */
    bool is_opening;   /* the turn being planned opens a side cursor for it */
    int stuck_count;   /* messages of the plan that it cannot take */
    int64_t moved_at;  /* the last success, or the first message in flight after none */
    int64_t moved_answers; /* answers of all of them until then */
};

struct ol_targets {
    struct ol_sender *sender;
    uint64_t store; /* its wake_key: threads of this process on one store share the limits */
    struct ol_target *first;
    int64_t stamp_count, stamp_at; /* of the last refresh: changes when a destination does */
    bool is_loaded;
    bool has_unusable;   /* others were told of one that cannot be used */
    int64_t answered_at; /* the first success of any of them; 0: none yet */
    int64_t answers;     /* successes of all of them */
};

void ol_targets_clear(struct ol_targets *targets);

/* Load or reload the destinations when they have changed. A changed one is opened as a new target;
 * the old one stays until what it has in flight has ended. */
int ol_targets_refresh(struct ol_targets *targets, struct ol_conn *conn, outlog_err *err);

/* How long an attempt may take, of all destinations that can be used: a JSON array of {destination,
 * us}. 0: nothing leaves this process. */
void ol_targets_timeouts(const struct ol_targets *targets, struct ol_buf *out);

/* The destination of this name; for an unknown one a target is made, with the reason in
 * `trouble`. */
struct ol_target *ol_target_find(struct ol_targets *targets, const char *name);

/* A message is due: if the destination cannot be used, say so once in the log (L7). */
void ol_target_tell(struct ol_target *target);

/* May anything be sent there at all now? Otherwise its messages are parked. */
bool ol_target_is_open(const struct ol_target *target, int64_t now);

/* How many more messages a claim may hold for it: what can be sent within `patience_us`. */
int ol_target_capacity(struct ol_target *target, bool at_once, int64_t patience_us, int64_t now);

/* Even if it is full, does it answer soon enough that waiting for a place is better than
 * parking? */
bool ol_target_is_quick(const struct ol_target *target, int64_t patience_us, int64_t now);

/* How long it takes until it has taken this many more messages, as far as is known; INT64_MAX: no
 * end is in sight. */
int64_t ol_target_wait_us(struct ol_target *target, int64_t count, int64_t patience_us,
                          int64_t now);

/* It has never answered, while others have answered many times since it was sent something: it
 * hangs, however slow this machine is. */
bool ol_target_hangs(const struct ol_target *target, int64_t patience_us, int64_t now);

/* A message is sent to it while nothing else is in flight there. */
void ol_target_begin(struct ol_target *target, int64_t now);

void ol_target_note(struct ol_target *target, const struct outlog_outcome *outcome, int64_t now);

#endif
