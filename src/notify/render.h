/* render.h: rendering a notification: the message of a rule becomes a mail or an entry of a user's
 * feed (N1, N3).
 *
 *     {"recipient", "channel", "template", "template_version", "category", "rule", "event": {…}}
 *
 * Names in a template are searched in the event's payload, then in the event, then here. */
#ifndef OL_NOTIFY_RENDER_H
#define OL_NOTIFY_RENDER_H

#include "outlog_publisher.h"
#include "store/store.h"

struct ol_notification {
    const char *user_id, *category, *template;
    int64_t template_version;
    const char *subject, *text, *html; /* html or text may be NULL */
    const char *address, *mailbox; /* email: the recipient, and the same without the display name */
    bool is_feed;                  /* it becomes a row of `notices` when it is published */
};

/* The templates that a worker has used. A version never changes, so none is read twice. */
struct ol_template_cache {
    struct ol_message_template *first;
};

void ol_template_cache_clear(struct ol_template_cache *cache);

/* Was the message made by a rule, so that it must be rendered? */
bool ol_render_is_needed(const struct outlog_delivery *message);

/* Render a message: *out is set and the payload becomes what its destination takes, both in
 * `arena`.
 *
 * A failure that is final means that this message can never be sent: no recipient, no address, a
 * suppressed address, no such template, a template that fails. Any other failure is the store's. */
int ol_render_prepare(struct ol_template_cache *cache, struct ol_conn *conn, bool is_feed,
                      struct ol_arena *arena, struct outlog_delivery *message,
                      const struct ol_notification **out, outlog_err *err);
bool ol_render_is_final(const outlog_err *err);

/* Add it to its user's feed, in the transaction that records it as published. */
int ol_render_write(struct ol_conn *conn, const struct outlog_delivery *message,
                    const struct ol_notification *notification, outlog_err *err);

/* Its address was refused permanently: nothing more is sent there. */
int ol_render_suppress(struct ol_conn *conn, const struct ol_notification *notification,
                       const char *error, outlog_err *err);

#endif
