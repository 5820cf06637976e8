/* notice.h: a notification on its way out: the message of a rule gets its words, and becomes a mail or an
 * entry of a user's feed (N1, N3).
 *
 *     {"recipient", "channel", "template", "template_version", "category", "rule", "event": {…}}
 *
 * Names in a template are looked for in the event's payload, then in the event, then here. */
#ifndef OL_RELAY_NOTICE_H
#define OL_RELAY_NOTICE_H

#include "outbox/item.h"

struct ol_notice {
    const char *user_id, *category, *template;
    int64_t template_version;
    const char *subject, *text, *html; /* html or text may be NULL */
    const char *address, *mailbox;     /* email: where it goes, and that without a name beside it */
    bool is_feed;                      /* it becomes a row of `notices` when it is published */
};

/* The templates a worker has met. A version never changes, so none is ever read twice. */
struct ol_notices {
    struct ol_notice_template *first;
};

void ol_notices_clear(struct ol_notices *notices);

/* Was it made by a rule? */
bool ol_notice_is(const struct outlog_message *message);

/* Render it: item->notice is set and the payload is what its destination takes, both in `arena`.
 *
 * A failure that is final means that this message can never be sent: no recipient, no address, one that
 * is suppressed, no such template, words that cannot be made. Anything else is the store's. */
int ol_notice_prepare(struct ol_notices *notices, struct ol_conn *conn, bool is_feed,
                      struct ol_arena *arena, struct ol_item *item, outlog_err *err);
bool ol_notice_is_final(const outlog_err *err);

/* Put it into its user's feed, in the transaction that records it as published. */
int ol_notice_write(struct ol_conn *conn, const struct ol_item *item, outlog_err *err);

/* Its address was refused for good: nothing more is sent there. */
int ol_notice_suppress(struct ol_conn *conn, const struct ol_item *item, outlog_err *err);

#endif
