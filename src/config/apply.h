/* apply.h: compares outlog.yaml, as JSON, with the store, and changes the store accordingly.
 *
 *     {"destinations": {…}, "routes": […], "event_types": {…}, "types": {…},
 *      "alerts": {…}, "retention": {…}, "relay": {…}}
 *
 * Except for destinations, routes and event types every value is a row of `settings`, by section
 * and name: `types.SEND_EMAIL` {"retry": {…}}, `relay.lease` "30s", `alerts.to` "ops",
 * `retention.messages` "forever". */
#ifndef OL_CONFIG_APPLY_H
#define OL_CONFIG_APPLY_H

#include "base/arena.h"
#include "base/json/json.h"

struct ol_conn;

struct ol_config_options {
    bool prune;                        /* remove what the text does not name */
    bool dry_run;                      /* only compare */
    const char *actor_type, *actor_id; /* who applies it; NULL: system */
    const char *request_id;            /* of the audit events; NULL: a new one */
};

enum ol_config_diff_kind { OL_DIFF_ADD, OL_DIFF_EDIT, OL_DIFF_REMOVE };

struct ol_config_diff {
    enum ol_config_diff_kind kind;
    const char *entry_kind; /* destination, route, event_type, strict_org, setting, projection,
                               template, rule */
    const char *name;
    const char *keys; /* OL_DIFF_EDIT: the keys that differ, "timeout, url"; else NULL */
};

struct ol_config_diffs {
    struct ol_config_diff *all;
    size_t count, same_count;
};

/* Check the text, without a store: ${NAME} stays as written. OUTLOG_UNKNOWN_FIELD,
 * OUTLOG_INVALID_FIELD: message and err->pointer name the position. */
int ol_config_check(const char *json, size_t bytes, outlog_err *err);

/* Make the store match the text, in one transaction, with an audit event for each change (X4). Safe
 * to repeat: the second time nothing changes. The changes are returned in `arena`. */
int ol_config_apply(outlog *log, const char *json, size_t bytes,
                    const struct ol_config_options *options, struct ol_arena *arena,
                    struct ol_config_diffs *out, outlog_err *err);

/* Remove one destination, with its audit event; messages that wait for it stay. OUTLOG_NOT_FOUND:
 * there is none. OUTLOG_ILLEGAL_TRANSITION: a route or the alerts use it. */
int ol_config_remove(outlog *log, const char *destination, const struct ol_config_options *options,
                     outlog_err *err);

#endif
