/* waiting.h: why messages that are due have not been sent (L7). */
#ifndef OL_OUTBOX_WAITING_H
#define OL_OUTBOX_WAITING_H

#include "base/buf.h"
#include "store/store.h"

/* Messages of one lane to one destination that wait for the same reason. */
struct ol_waiting {
    int lane;
    const char *destination;
    const char *reason; /* one of the words of waiting.c */
    const char *about;  /* the same for people */
    const char *detail; /* what the relay said; NULL: nothing */
    int64_t count;      /* of the part of the backlog that was read */
    int64_t since;      /* when the oldest became due */
    bool needs_help;    /* it does not end by itself */
};

struct ol_waitings {
    struct ol_waiting *all;
    size_t count;
};

/* All of them, in `arena`. As cheap as ol_message_counts_read(). */
int ol_waiting_list(struct ol_conn *conn, struct ol_arena *arena, struct ol_waitings *out,
                    outlog_err *err);

/* After a message was stored: is its destination one that nobody declared? `text` gets the
 * warning. */
int ol_waiting_is_unknown(struct ol_conn *conn, const char *destination, bool *is_unknown,
                          char text[200], outlog_err *err);

/* As the JSON array that the API and the CLI return. */
void ol_waiting_json(const struct ol_waitings *list, struct ol_buf *out);

#endif
