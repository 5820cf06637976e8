/* destination_health.h: where messages go and how it is doing, for people and programs. */
#ifndef OL_OUTBOX_DESTINATION_HEALTH_H
#define OL_OUTBOX_DESTINATION_HEALTH_H

#include "base/buf.h"
#include "outbox/message_list.h"
#include "outlog_publisher.h"

struct ol_destination_health {
    const char *name, *type;
    const char *breaker;    /* closed, half_open, open: the worst any relay sees */
    const char *last_error; /* NULL: none among what is not delivered */
    bool is_paused;
    int64_t since;      /* when the breaker opened or the pause began; 0: it does well */
    int64_t last_ok_at; /* its last success, known within a second; 0: none yet */
    int64_t retry_at;   /* when an open breaker lets the next message try; 0: it is not open */
    struct ol_message_count count;
};

struct ol_destination_healths {
    struct ol_destination_health *all; /* by name */
    size_t count;
    struct ol_message_count total; /* of all messages, also those to unknown destinations */
};

/* All of them, in `arena`. As cheap as ol_message_counts_read(). */
int ol_destination_health_list(outlog *log, struct ol_arena *arena,
                               struct ol_destination_healths *out, outlog_err *err);

/* One of a list, or NULL. */
const struct ol_destination_health *ol_destination_health_find(
    const struct ol_destination_healths *list, const char *name);

/* The object of the contract. */
void ol_destination_health_json(const struct ol_destination_health *destination,
                                struct ol_buf *out);

#endif
