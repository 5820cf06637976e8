/* retry.h: whether and when a message is tried again (R1, R2). Pure: the caller passes time and
 * chance. */
#ifndef OL_OUTBOX_RETRY_H
#define OL_OUTBOX_RETRY_H

#include "base/json/json.h"
#include "outlog_publisher.h"

enum ol_retry_kind { OL_RETRY_UNSET, OL_RETRY_EXPONENTIAL, OL_RETRY_SCHEDULE };

enum { OL_RETRY_DELAYS = 32 };

/* The retry settings of a destination or an event type. Zeroed: nothing is set. */
struct ol_retry {
    enum ol_retry_kind kind;
    int64_t base_us, max_us;            /* exponential; 0: not set */
    double factor;                      /* exponential; 0: not set */
    int64_t delays_us[OL_RETRY_DELAYS]; /* schedule: the wait after attempt 1, 2, … */
    size_t delay_count;
    double jitter; /* up to this share of the wait is added */
    bool has_jitter;
    int max_attempts; /* 0: not set */
};

/* Read {policy, base, factor, max, jitter, max_attempts} or {policy: schedule, delays, …}. `base`,
 * `factor` or `max` without a policy mean exponential, `delays` mean schedule.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: the message and the pointer name the key. */
int ol_retry_parse(const struct ol_json *object, struct ol_retry *out, outlog_err *err);

/* The policy of a preset; false when there is none of this name. "notification" is S2's: 5
 * attempts after 1, 5, 15 and 60 minutes (N4). */
bool ol_retry_preset(const char *name, struct ol_retry *out);

/* The content type of a message that a notification rule has made. */
#define OL_NOTIFICATION_CONTENT_TYPE "application/vnd.outlog.notification+json"

/* Which default applies to a message (R1): of an effect S0's for its type, of a notification S2's,
 * of every other message ten retries over a day. */
enum ol_retry_class { OL_RETRY_MESSAGE, OL_RETRY_EFFECT, OL_RETRY_NOTIFICATION };
enum ol_retry_class ol_retry_classify(const char *aggregate_type, const char *content_type);

/* What a message says of itself. */
struct ol_retry_subject {
    enum ol_retry_class class;
    const char *event_type;
    int max_attempts; /* its own; 0: none */
};

/* The policy for one message, field by field: from its type's settings, else from the
 * destination's, else its class's default. The message's own max_attempts come before all. Either
 * pointer may be NULL. */
void ol_retry_resolve(const struct ol_retry_subject *message, const struct ol_retry *type,
                      const struct ol_retry *destination, struct ol_retry *out);

/* The wait after failed attempt number `attempt` (1 = the first): never shorter than the policy
 * says, and up to jitter longer by `chance` in [0, 1). A Retry-After of the receiver is honoured up
 * to OL_RETRY_AFTER_MAX_US when it is longer. */
int64_t ol_retry_wait_us(const struct ol_retry *policy, int attempt, double chance,
                         int64_t retry_after_us);

#define OL_RETRY_AFTER_MAX_US (INT64_C(3600) * 1000000)

enum ol_retry_decision {
    OL_DECISION_DONE,   /* published */
    OL_DECISION_RETRY,  /* pending again, after wait_us */
    OL_DECISION_DEAD,   /* permanent, no attempts left, or unknown under at_most_once */
    OL_DECISION_RELEASE /* released: pending again, and the attempt does not count; at once, or
                           after wait_us if the target could not be reached */
};

/* What becomes of a message after an attempt. `attempt` counts within the current budget: a requeue
 * starts a new one. Under at_most_once a message is tried again only if it surely was not sent. */
enum ol_retry_decision ol_retry_decide(const struct ol_retry *policy, bool at_most_once,
                                       int attempt, const struct outlog_outcome *outcome,
                                       double chance, int64_t *wait_us);

#endif
