/* change.h: one change of the configuration in the store, with its audit event. */
#ifndef OL_CONFIG_CHANGE_H
#define OL_CONFIG_CHANGE_H

#include "base/uuid.h"
#include "config/apply.h"
#include "config/entry.h"
#include "log/log.h"

/* What an apply works with. */
struct ol_config_change {
    outlog_tx *tx;
    struct ol_conn *conn;
    const struct ol_config_options *options;
    struct ol_config_entries wanted, stored;
    struct ol_arena *arena;
    struct ol_config_diffs *out;
    size_t capacity;
    const char *alert; /* the destination of alerts about dead letters, or NULL */
    char correlation_id[OL_UUID_TEXT];
    outlog_err *err;
};

/* Add a change to the result and, except in a dry run, write it with its audit event. `keys`: those
 * that differ. */
int ol_config_change_make(struct ol_config_change *change, const struct ol_config_entry *entry,
                          enum ol_config_diff_kind kind, const char *keys);

/* The text of a member, in the arena; NULL: there is none. */
const char *ol_config_change_text(struct ol_config_change *change, const struct ol_json *object,
                                  const char *key);

/* Store a route, given as it is written in outlog.yaml, inside the caller's transaction. */
int ol_config_change_put_route(struct ol_conn *conn, const char *name, const char *source,
                               struct ol_arena *arena, outlog_err *err);

#endif
