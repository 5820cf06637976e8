/* inbox.h: a user's notices and preferences, as JSON objects (N3). An org is a text here; '' is
 * none. */
#ifndef OL_NOTIFY_INBOX_H
#define OL_NOTIFY_INBOX_H

#include "base/json/json.h"
#include "outlog.h"

/* Whether somebody can be told under this id. OUTLOG_INVALID_FIELD: it is longer than a recipient
 * may be. What takes a user_id asks it. */
int ol_inbox_check_user(const char *user_id, outlog_err *err);

/* {notifications: […], next_after}, the newest first, some MiB at most. org_id NULL: of every org,
 * user_id NULL: of all users. unread: 1 only those, 0 only the others, -1 all.
 * OUTLOG_INVALID_FIELD: `after` is not a next_after. */
int ol_inbox_list(outlog *log, const char *org_id, const char *user_id, int unread,
                  const char *after, int limit, struct ol_buf *out, outlog_err *err);

/* One notice in a listener's hands. */
struct ol_inbox_item {
    char id[37];
    const char *json;
    size_t bytes;
    bool is_read;
};

/* How far one has read of them; from the beginning: {0}. */
struct ol_inbox_place {
    int64_t at;
    char id[37];
};

/* Where the newest hundred of what is unread begin. */
int ol_inbox_begin(outlog *log, const char *org_id, const char *user_id, struct ol_inbox_place *out,
                   outlog_err *err);

/* What may be new after a place, the oldest first: at most 1,000, and some MiB. Either all that is
 * unread, or what came within `back_us`, which says nothing where there is a place. The place moves
 * to the last of them; *is_all: there is no more. */
int ol_inbox_page(outlog *log, const char *org_id, const char *user_id, bool is_unread,
                  int64_t back_us, struct ol_inbox_place *place, struct ol_arena *arena,
                  struct ol_inbox_item **out, size_t *count, bool *is_all, outlog_err *err);

/* Whose feeds have moved within `back_us`; `stamp` differs when one has moved again. */
int ol_inbox_moved(outlog *log, int64_t back_us,
                   void (*each)(void *user, const char *org_id, const char *user_id, int64_t stamp),
                   void *user, outlog_err *err);

/* Mark it as read and write it as JSON. org_id, user_id NULL: any. OUTLOG_NOT_FOUND: no such notice
 * there. */
int ol_inbox_read(outlog_tx *tx, const char *org_id, const char *user_id, const char *id,
                  struct ol_buf *out, outlog_err *err);

/* {org_id, user_id, email, channels: {category: {email, in_app}}} */
int ol_inbox_preferences(outlog *log, const char *org_id, const char *user_id, struct ol_buf *out,
                         outlog_err *err);

/* Replace them by {email, channels}; what the object does not name stays as it is. */
int ol_inbox_prefer(outlog_tx *tx, const char *org_id, const char *user_id,
                    const struct ol_json *body, struct ol_buf *out, outlog_err *err);

/* {suppressions: [{address, reason, created_at}], next_after}, by address; those after one, which
 * need not be there. */
int ol_inbox_suppressions(outlog *log, const char *after, int limit, struct ol_buf *out,
                          outlog_err *err);
int ol_inbox_unsuppress(outlog_tx *tx, const char *address, const struct outlog_operator *by,
                        outlog_err *err);

#endif
