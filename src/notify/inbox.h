/* inbox.h: a user's notices and preferences, as JSON objects (N3). An org is a text here; '' means
 * no org. */
#ifndef OL_NOTIFY_INBOX_H
#define OL_NOTIFY_INBOX_H

#include "base/json/json.h"
#include "outlog.h"

/* Check that a user_id can be a recipient. OUTLOG_INVALID_FIELD: it is longer than a recipient may
 * be. Every call that takes a user_id checks it. */
int ol_inbox_check_user(const char *user_id, outlog_err *err);

/* {notifications: […], next_after}, the newest first, a few MiB at most. org_id NULL: of every org,
 * user_id NULL: of all users. unread: 1 only those, 0 only the others, -1 all.
 * OUTLOG_INVALID_FIELD: `after` is not a next_after. */
int ol_inbox_list(outlog *log, const char *org_id, const char *user_id, int unread,
                  const char *after, int limit, struct ol_buf *out, outlog_err *err);

/* One notice for a subscriber. */
struct ol_inbox_item {
    char id[37];
    const char *json;
    size_t bytes;
    bool is_read;
};

/* A position in a user's notices; from the beginning: {0}. */
struct ol_inbox_place {
    int64_t at;
    char id[37];
};

/* Where the newest hundred unread notices begin. */
int ol_inbox_begin(outlog *log, const char *org_id, const char *user_id, struct ol_inbox_place *out,
                   outlog_err *err);

/* A page of what may be new to a user. */
struct ol_inbox_page {
    const char *org_id, *user_id;
    bool is_unread;              /* all that is unread; otherwise what came within back_us */
    int64_t back_us;             /* ignored once `place` is set */
    struct ol_inbox_place place; /* where it starts; moves to the last item */
    struct ol_inbox_item *items;
    size_t count;
    bool is_all; /* there is no more */
};

/* Read the page after page->place, the oldest first: at most 1,000 notices and a few MiB. */
int ol_inbox_page_read(outlog *log, struct ol_inbox_page *page, struct ol_arena *arena,
                       outlog_err *err);

/* Call `each` for every feed that has changed within `back_us`; `stamp` differs when one has
 * changed again. */
int ol_inbox_list_changed(outlog *log, int64_t back_us,
                          void (*each)(void *user, const char *org_id, const char *user_id,
                                       int64_t stamp),
                          void *user, outlog_err *err);

/* Mark a notice as read and write it as JSON. org_id, user_id NULL: any. OUTLOG_NOT_FOUND: there is
 * no such notice. */
int ol_inbox_mark_read(outlog_tx *tx, const char *org_id, const char *user_id, const char *id,
                       struct ol_buf *out, outlog_err *err);

/* {org_id, user_id, email, channels: {category: {email, in_app}}} */
int ol_inbox_preferences(outlog *log, const char *org_id, const char *user_id, struct ol_buf *out,
                         outlog_err *err);

/* Replace them by {email, channels}; a key that the object does not have stays as it is. */
int ol_inbox_prefer(outlog_tx *tx, const char *org_id, const char *user_id,
                    const struct ol_json *body, struct ol_buf *out, outlog_err *err);

/* {suppressions: [{address, reason, created_at}], next_after}, by address; those after an address,
 * which need not exist. */
int ol_inbox_suppressions(outlog *log, const char *after, int limit, struct ol_buf *out,
                          outlog_err *err);
int ol_inbox_unsuppress(outlog_tx *tx, const char *address, const struct outlog_operator *by,
                        outlog_err *err);

#endif
