/* inflight.h: the attempts that a broker's client has not ended yet.
 *
 * Brokers acknowledge from threads of their own, late, or never. This module makes sure that each
 * attempt has exactly one outcome, on the owner's thread, by its deadline. The owner is the thread
 * of the sender; the driver is the code that talks to the broker, on any thread.
 *
 *   F1  An attempt is reported once: when the driver ends it, at its deadline, or by abandon().
 *   F2  The driver ends an attempt once (ol_broker_attempt_end), and only then is it freed. An
 *       acknowledgement after the deadline finds it still there and changes nothing.
 *   F3  One atomic step decides whether bytes may have left: the driver calls
 *       ol_broker_attempt_start before it sends, the owner withdraws; the first one wins. */
#ifndef OL_PUBLISH_BROKER_INFLIGHT_H
#define OL_PUBLISH_BROKER_INFLIGHT_H

#include "net/poller.h"
#include "publish/broker/broker_message.h"
#include "publish/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

struct ol_inflight;

struct ol_broker_attempt {
    struct ol_broker_message message;
    struct ol_broker_attempt *next; /* the driver's, until it ends the attempt */
    uint64_t number;                /* the driver's: a delivery tag, a packet id */
    bool is_returned;               /* the driver's: the broker had no queue for it */

    /* private */
    struct ol_inflight *inflight;
    struct ol_broker_attempt *before, *after;
    void *tag;
    int64_t started_us, deadline_us;
    atomic_int stage;
    atomic_llong sent_us;
    bool is_reported;
    struct outlog_outcome outcome;
    struct ol_arena arena;
    char text[OL_ERROR_KEPT]; /* last: it is not cleared */
};

struct ol_inflight {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_broker_naming naming;
    struct ol_poller poller; /* poll poller.fd */

    /* private */
    int wake_fd;
    pthread_mutex_t lock;
    struct ol_broker_attempt *ended, **ended_tail; /* by the driver, not yet seen by the owner */
    struct ol_broker_attempt *first;               /* all that the driver has not ended */
    struct ol_broker_attempt *free_attempts;
    int64_t next_us;
    struct ol_buf memory;
    bool is_overdue; /* a sent attempt had no acknowledgement by its deadline */
    int64_t overdue_sent_us;
};

int ol_inflight_open(struct ol_inflight *inflight, const struct outlog_publisher_host *host,
                     const struct ol_broker_naming *naming, outlog_err *err);

/* The driver has ended every attempt. */
void ol_inflight_close(struct ol_inflight *inflight);

/* --- the owner's side ------------------------------------------------------------------------- */

/* Make an attempt for a message. NULL: it could not be made, and its outcome is reported. */
struct ol_broker_attempt *ol_inflight_add(struct ol_inflight *inflight,
                                          const struct outlog_delivery *message,
                                          int64_t deadline_us, void *tag);

/* Report the attempts that have ended or are past their deadline. */
void ol_inflight_drive(struct ol_inflight *inflight);

/* End one now, or all: RELEASED when it was never sent, else UNKNOWN. */
void ol_inflight_abandon(struct ol_inflight *inflight, void *tag);
void ol_inflight_abandon_all(struct ol_inflight *inflight);

/* --- the driver's side, any thread ------------------------------------------------------------ */

/* Call before bytes leave. False: the owner withdrew it; end it with any outcome. */
bool ol_broker_attempt_start(struct ol_broker_attempt *attempt);

/* End it. The text: for OK where the message is now, or NULL; else what was wrong. */
void ol_broker_attempt_end(struct ol_broker_attempt *attempt, enum outlog_outcome_kind kind,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

/* End it as FAILED: the broker did not take it; permanent: it never will. */
void ol_broker_attempt_refuse(struct ol_broker_attempt *attempt, bool is_permanent,
                              const char *format, ...) __attribute__((format(printf, 3, 4)));

/* End it as RELEASED: the broker could not be reached. */
void ol_broker_attempt_unreached(struct ol_broker_attempt *attempt, const char *why);

#endif
