/* destination.h: where messages go and how it is doing, for people and programs. */
#ifndef OL_VIEWS_DESTINATION_H
#define OL_VIEWS_DESTINATION_H

#include "base/buf.h"
#include "outbox/look.h"
#include "outlog_publisher.h"

struct ol_destination {
    const char *name, *type;
    const char *breaker;    /* closed, half_open, open: the worst any relay sees */
    const char *last_error; /* NULL: none among what is not delivered */
    bool is_paused;
    int64_t since;      /* when the breaker opened or the pause began; 0: it does well */
    int64_t last_ok_at; /* its last success, known within a second; 0: none yet */
    int64_t retry_at;   /* when an open breaker lets the next message try; 0: it is not open */
    struct ol_count count;
};

struct ol_destinations {
    struct ol_destination *all; /* by name */
    size_t count;
    struct ol_count total; /* of all messages, also those to unknown destinations */
};

/* All of them, in `arena`. As cheap as ol_look_counts(). */
int ol_destination_list(outlog *log, struct ol_arena *arena, struct ol_destinations *out,
                        outlog_err *err);

/* One of a list, or NULL. */
const struct ol_destination *ol_destination_find(const struct ol_destinations *list,
                                                 const char *name);

/* The object of the contract. */
void ol_destination_json(const struct ol_destination *destination, struct ol_buf *out);

/* --- trying one --- */

struct ol_trial {
    bool is_over;
    struct outlog_outcome outcome;
    char error[400];
};

/* Send one message of type outlog.test from here, past the outbox. `payload` NULL: what this kind of
 * destination can make something of. Takes as long as the destination's timeout.
 * OUTLOG_NOT_FOUND: there is no such destination. */
int ol_destination_test(outlog *log, const char *name, const char *payload, struct ol_trial *out,
                        outlog_err *err);

/* {outcome, status, duration_ms, error} */
void ol_trial_json(const struct ol_trial *trial, struct ol_buf *out);

/* ok, failed, unknown, released */
const char *ol_trial_word(const struct ol_trial *trial);

#endif
