/* render.h: a notification on its way out: the message of a rule gets its words, and becomes a mail
 * or an entry of a user's feed (N1, N3).
 *
 *     {"recipient", "channel", "template", "template_version", "category", "rule", "event": {…}}
 *
 * Names in a template are looked for in the event's payload, then in the event, then here. */
#ifndef OL_NOTIFY_RENDER_H
#define OL_NOTIFY_RENDER_H

#include "outbox/lane/claimed_message.h"

struct ol_notification {
    const char *user_id, *category, *template;
    int64_t template_version;
    const char *subject, *text, *html; /* html or text may be NULL */
    const char *address, *mailbox;     /* email: where it goes, and that without a name beside it */
    bool is_feed;                      /* it becomes a row of `notices` when it is published */
};

/* The templates a worker has met. A version never changes, so none is ever read twice. */
struct ol_notification_cache {
    struct ol_notification_template *first;
};

void ol_render_clear(struct ol_notification_cache *notices);

/* Was it made by a rule? */
bool ol_render_is_needed(const struct outlog_delivery *message);

/* Render it: item->notice is set and the payload is what its destination takes, both in `arena`.
 *
 * A failure that is final means that this message can never be sent: no recipient, no address, one
 * that is suppressed, no such template, words that cannot be made. Anything else is the store's. */
int ol_render_prepare(struct ol_notification_cache *notices, struct ol_conn *conn, bool is_feed,
                      struct ol_arena *arena, struct ol_claimed_message *item, outlog_err *err);
bool ol_render_is_final(const outlog_err *err);

/* Put it into its user's feed, in the transaction that records it as published. */
int ol_render_write(struct ol_conn *conn, const struct ol_claimed_message *item, outlog_err *err);

/* Its address was refused for good: nothing more is sent there. */
int ol_render_suppress(struct ol_conn *conn, const struct ol_claimed_message *item,
                       outlog_err *err);

#endif
