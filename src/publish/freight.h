/* freight.h: messages that a broker's client has in hand.
 *
 * Brokers acknowledge from threads of their own, late, or never. Freight keeps the promise that each
 * attempt has exactly one outcome, on the owner's thread, by its deadline:
 *
 *   F1  A load is reported once: by the news of its end, by its deadline, or by abandon().
 *   F2  A load is given back once by whoever carries it (ol_load_end), and freed only then; what
 *       comes after its deadline finds it still there and changes nothing.
 *   F3  Whether bytes may have left is decided by one atomic step: the carrier calls ol_load_start
 *       before it sends, and the owner withdraws. Whoever comes first wins. */
#ifndef OL_PUBLISH_FREIGHT_H
#define OL_PUBLISH_FREIGHT_H

#include "publish/parcel.h"
#include "publish/publisher.h"
#include "publish/ready.h"

#include <pthread.h>
#include <stdatomic.h>

struct ol_freight;

struct ol_load {
    struct ol_parcel parcel;
    struct ol_load *next; /* the carrier's, while it has the load */
    uint64_t number;      /* the carrier's: a delivery tag, a packet id */
    bool is_returned;     /* the carrier's: the broker found nobody to give it to */

    /* private */
    struct ol_freight *freight;
    struct ol_load *before, *after;
    void *tag;
    int64_t started_us, deadline_us;
    atomic_int stage;
    atomic_llong sent_us;
    bool is_reported;
    struct outlog_outcome outcome;
    struct ol_arena arena;
    char text[OL_ERROR_KEPT]; /* last: it is not cleared */
};

struct ol_freight {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_parcel_form form;
    struct ol_ready ready; /* poll ready.fd */

    /* private */
    int bell;
    pthread_mutex_t lock;
    struct ol_load *news, **news_end; /* ended by the carrier, not yet seen by the owner */
    struct ol_load *first;            /* all that were not given back */
    struct ol_load *spare;
    int64_t next_us;
    struct ol_buf memory;
    bool is_overdue; /* something that was sent had no answer by its deadline */
    int64_t overdue_sent_us;
};

int ol_freight_open(struct ol_freight *freight, const struct outlog_publisher_host *host,
                    const struct ol_parcel_form *form, outlog_err *err);

/* Nothing is with a carrier any more. */
void ol_freight_close(struct ol_freight *freight);

/* --- the owner's side ------------------------------------------------------------------------------ */

/* Make a load of a message. NULL: it could not be made, and its outcome is out. */
struct ol_load *ol_freight_add(struct ol_freight *freight, const struct outlog_message *message,
                               int64_t deadline_us, void *tag);

/* Report what has ended and what is past its deadline. */
void ol_freight_drive(struct ol_freight *freight);

/* End one now, or all: RELEASED when it was never sent, else UNKNOWN. */
void ol_freight_abandon(struct ol_freight *freight, void *tag);
void ol_freight_abandon_all(struct ol_freight *freight);

/* --- the carrier's side, any thread ---------------------------------------------------------------- */

/* Bytes are about to leave. False: withdrawn; give it back with ol_load_end, whatever it says. */
bool ol_load_start(struct ol_load *load);

/* Give it back. OK: `text` says where it lies now, or NULL; else it says what was wrong. */
void ol_load_end(struct ol_load *load, enum outlog_outcome_kind kind, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* FAILED, and the broker says that it did not take it; permanent: it never will. */
void ol_load_refuse(struct ol_load *load, bool is_permanent, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* RELEASED: no way to the broker. */
void ol_load_unreached(struct ol_load *load, const char *why);

#endif
