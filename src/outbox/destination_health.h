/* destination_health.h: the state of each destination, for operators and programs. */
#ifndef OL_OUTBOX_DESTINATION_HEALTH_H
#define OL_OUTBOX_DESTINATION_HEALTH_H

#include "base/buf.h"
#include "log/log.h"
#include "outbox/message_count.h"
#include "outlog_publisher.h"

struct ol_destination_health {
    const char *name, *type;
    const char *breaker;    /* closed, half_open, open: the worst that any relay sees */
    const char *last_error; /* NULL: no undelivered message has one */
    bool is_paused;
    int64_t since;      /* when the breaker opened or the pause began; 0: neither */
    int64_t last_ok_at; /* its last success, accurate to a second; 0: none yet */
    int64_t retry_at;   /* when an open breaker allows the next attempt; 0: it is not open */
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

/* As the JSON object that the API and the CLI return. */
void ol_destination_health_json(const struct ol_destination_health *destination,
                                struct ol_buf *out);

#endif
