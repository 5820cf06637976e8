/* rule.h: a notification rule and a template, from outlog.yaml to their rows (N1).
 *
 *     {on: task.assigned, recipients: {path: /assignee}, channels: [email, in_app],
 *      template: assigned, once: event}
 *     # also category, org_id, aggregate_type, when, destinations: {email: mail}
 *     {subject: "…", text: "…", html: "…"}
 *
 * The database evaluates rules, in the event's transaction; the relay renders templates. */
#ifndef OL_NOTIFY_RULE_H
#define OL_NOTIFY_RULE_H

#include "base/json/json.h"
#include "store/store.h"

struct ol_rule {
    const char *on, *org_id, *aggregate_type;
    struct ol_json when;           /* type OL_JSON_NONE: always */
    const char *path, *role, *sql; /* the recipients: one of them is set */
    const char *email_to,
        *in_app_to; /* the destination of each channel; NULL: not by this channel */
    const char *template, *category;
    bool once_event;
};

/* Read a rule. Pointers of errors are relative to the rule. */
int ol_rule_read(const struct ol_json *value, struct ol_arena *arena, struct ol_rule *out,
                 outlog_err *err);

/* Store the rule, inside the caller's transaction; if it has a query, the query is tried. */
int ol_rule_put(struct ol_conn *conn, const char *name, const char *source, struct ol_arena *arena,
                outlog_err *err);
int ol_rule_delete(struct ol_conn *conn, const char *name, outlog_err *err);

/* Check a template: its keys, and that each text can be read. */
int ol_rule_check_template(const struct ol_json *value, struct ol_arena *arena, outlog_err *err);

/* Store a new version, which becomes the current one; older versions stay for the messages that use
 * them. */
int ol_rule_put_template(struct ol_conn *conn, const char *name, const char *source,
                         outlog_err *err);

#endif
