/* inflight.h: messages that a broker's client has in hand.
 *
 * Brokers acknowledge from threads of their own, late, or never. Freight keeps the promise that
 * each attempt has exactly one outcome, on the owner's thread, by its deadline:
 *
 *   F1  A load is reported once: by the news of its end, by its deadline, or by abandon().
 *   F2  A load is given back once by whoever carries it (ol_broker_attempt_end), and freed only
 * then; what comes after its deadline finds it still there and changes nothing. F3  Whether bytes
 * may have left is decided by one atomic step: the carrier calls ol_broker_attempt_start before it
 * sends, and the owner withdraws. Whoever comes first wins. */
#ifndef OL_PUBLISH_BROKER_INFLIGHT_H
#define OL_PUBLISH_BROKER_INFLIGHT_H

#include "net/poller.h"
#include "publish/broker/broker_message.h"
#include "publish/publisher.h"

#include <pthread.h>
#include <stdatomic.h>

struct ol_inflight;

struct ol_broker_attempt {
    struct ol_broker_message parcel;
    struct ol_broker_attempt *next; /* the carrier's, while it has the load */
    uint64_t number;                /* the carrier's: a delivery tag, a packet id */
    bool is_returned;               /* the carrier's: the broker found nobody to give it to */

    /* private */
    struct ol_inflight *freight;
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
    struct ol_broker_naming form;
    struct ol_poller ready; /* poll ready.fd */

    /* private */
    int bell;
    pthread_mutex_t lock;
    struct ol_broker_attempt *news,
        **news_end;                  /* ended by the carrier, not yet seen by the owner */
    struct ol_broker_attempt *first; /* all that were not given back */
    struct ol_broker_attempt *spare;
    int64_t next_us;
    struct ol_buf memory;
    bool is_overdue; /* something that was sent had no answer by its deadline */
    int64_t overdue_sent_us;
};

int ol_inflight_open(struct ol_inflight *freight, const struct outlog_publisher_host *host,
                     const struct ol_broker_naming *form, outlog_err *err);

/* Nothing is with a carrier any more. */
void ol_inflight_close(struct ol_inflight *freight);

/* --- the owner's side
 * ------------------------------------------------------------------------------ */

/* Make a load of a message. NULL: it could not be made, and its outcome is out. */
struct ol_broker_attempt *ol_inflight_add(struct ol_inflight *freight,
                                          const struct outlog_delivery *message,
                                          int64_t deadline_us, void *tag);

/* Report what has ended and what is past its deadline. */
void ol_inflight_drive(struct ol_inflight *freight);

/* End one now, or all: RELEASED when it was never sent, else UNKNOWN. */
void ol_inflight_abandon(struct ol_inflight *freight, void *tag);
void ol_inflight_abandon_all(struct ol_inflight *freight);

/* --- the carrier's side, any thread
 * ---------------------------------------------------------------- */

/* Bytes are about to leave. False: withdrawn; give it back with ol_broker_attempt_end, whatever it
 * says. */
bool ol_broker_attempt_start(struct ol_broker_attempt *load);

/* Give it back. OK: `text` says where it lies now, or NULL; else it says what was wrong. */
void ol_broker_attempt_end(struct ol_broker_attempt *load, enum outlog_outcome_kind kind,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

/* FAILED, and the broker says that it did not take it; permanent: it never will. */
void ol_broker_attempt_refuse(struct ol_broker_attempt *load, bool is_permanent, const char *format,
                              ...) __attribute__((format(printf, 3, 4)));

/* RELEASED: no way to the broker. */
void ol_broker_attempt_unreached(struct ol_broker_attempt *load, const char *why);

#endif
