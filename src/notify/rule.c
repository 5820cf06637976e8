/* rule.c: reads rules and templates, and writes their rows and queries. */
#include "notify/rule.h"

#include "log/match.h"
#include "log/sql_template.h"
#include "notify/mustache.h"
#include "store/event_fields.h"
#include "store/user_sql.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct rule_reader {
    const struct ol_json *object;
    struct ol_arena *arena;
    outlog_err *err;
};

static int fail_key(outlog_err *err, const char *key, const char *wanted)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s", key);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s: %s", key, wanted);
}

/* Fail if the object has other keys than these; NULL-terminated. */
static int check_keys(struct rule_reader *r, const char *const *known)
{
    struct ol_json_iter it = {0};
    char list[200] = "";
    if (r->object->type != OL_JSON_OBJECT)
        return ol_fail(r->err, OUTLOG_INVALID_FIELD, "a map is wanted");
    for (size_t i = 0, at = 0; known[i] && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i ? ", " : "", known[i]);
    while (ol_json_next(r->object, &it)) {
        size_t i = 0;
        while (known[i] && !ol_json_equals(&it.key, known[i]))
            i++;
        const char *key = known[i] ? known[i] : ol_json_string(&it.key, r->arena, NULL);
        if (!key)
            return ol_no_memory(r->err);
        if (!known[i])
            return ol_fail_at(r->err, OUTLOG_UNKNOWN_FIELD, ol_match_below(r->arena, "", key),
                              "unknown key %.60s; %s are known", key, list);
    }
    return 0;
}

static int read_text(struct rule_reader *r, const char *key, size_t bytes_max, bool is_needed,
                     const char **out)
{
    struct ol_json value = ol_json_get(r->object, key);
    char wanted[60];
    size_t bytes = 0;
    *out = NULL;
    if (value.type <= OL_JSON_NULL)
        return is_needed ? fail_key(r->err, key, "it is missing") : 0;
    *out = ol_json_string(&value, r->arena, &bytes);
    if (*out && bytes >= 1 && bytes <= bytes_max)
        return 0;
    snprintf(wanted, sizeof wanted, "a text of 1 to %zu bytes is wanted", bytes_max);
    return fail_key(r->err, key, wanted);
}

/* --- rules --- */

/* A lookup is one query that only reads. */
static int check_lookup(struct rule_reader *r, const char *sql)
{
    struct ol_sql_template query;
    outlog_err why;
    const char *at = sql + strspn(sql, " \t\r\n(");
    if (strncasecmp(at, "select", 6) != 0)
        return fail_key(r->err, "recipients", "sql: a query that begins with select is wanted");
    if (ol_sql_template_read(sql, r->arena, &query, &why) < 0)
        return ol_fail_at(r->err, why.code, "/recipients/sql", "recipients: sql: %.300s",
                          why.message);
    return 0;
}

static int read_recipients(struct rule_reader *r, struct ol_rule *out)
{
    static const char *const known[] = {"path", "role", "sql", NULL};
    struct ol_json value = ol_json_get(r->object, "recipients");
    struct rule_reader inner = {&value, r->arena, r->err};
    if (value.type != OL_JSON_OBJECT)
        return fail_key(r->err, "recipients", "{path: …}, {role: …} or {sql: …} is wanted");
    if (check_keys(&inner, known) < 0 || read_text(&inner, "path", 512, false, &out->path) < 0 ||
        read_text(&inner, "role", 80, false, &out->role) < 0 ||
        read_text(&inner, "sql", 8000, false, &out->sql) < 0)
        return -1;
    if (!!out->path + !!out->role + !!out->sql != 1)
        return fail_key(r->err, "recipients", "one of path, role and sql is wanted");
    if (out->path && !ol_match_is_path(out->path))
        return fail_key(r->err, "recipients", "a path is like /assignee or /customer/email");
    return out->sql ? check_lookup(r, out->sql) : 0;
}

static int read_channels(struct rule_reader *r, struct ol_rule *out)
{
    static const char *const known[] = {"email", "in_app", NULL};
    struct ol_json channels = ol_json_get(r->object, "channels"),
                   destinations = ol_json_get(r->object, "destinations");
    struct ol_json_iter it = {0};
    const char *email = "email", *in_app = "in_app", *given;
    if (destinations.type > OL_JSON_NULL) {
        struct rule_reader inner = {&destinations, r->arena, r->err};
        if (check_keys(&inner, known) < 0 || read_text(&inner, "email", 100, false, &given) < 0)
            return -1;
        email = given ? given : email;
        if (read_text(&inner, "in_app", 100, false, &given) < 0)
            return -1;
        in_app = given ? given : in_app;
    }
    if (channels.type != OL_JSON_ARRAY)
        return fail_key(r->err, "channels", "a list of email and in_app is wanted");
    while (ol_json_next(&channels, &it)) {
        if (ol_json_equals(&it.value, "email"))
            out->email_to = email;
        else if (ol_json_equals(&it.value, "in_app"))
            out->in_app_to = in_app;
        else
            return fail_key(r->err, "channels", "only email and in_app are known");
    }
    if (!out->email_to && !out->in_app_to)
        return fail_key(r->err, "channels", "the list is empty");
    return 0;
}

int ol_rule_read(const struct ol_json *value, struct ol_arena *arena, struct ol_rule *out,
                 outlog_err *err)
{
    static const char *const known[] = {"on",   "recipients",   "channels", "template",
                                        "once", "category",     "org_id",   "aggregate_type",
                                        "when", "destinations", NULL};
    struct rule_reader r = {value, arena, err};
    const char *once;
    *out = (struct ol_rule){0};
    if (check_keys(&r, known) < 0 || read_text(&r, "on", 100, true, &out->on) < 0 ||
        read_recipients(&r, out) < 0 || read_channels(&r, out) < 0 ||
        read_text(&r, "template", 100, true, &out->template) < 0 ||
        read_text(&r, "once", 10, false, &once) < 0 ||
        read_text(&r, "category", 100, false, &out->category) < 0 ||
        read_text(&r, "org_id", 100, false, &out->org_id) < 0 ||
        read_text(&r, "aggregate_type", 50, false, &out->aggregate_type) < 0)
        return -1;
    if (once && strcmp(once, "entity") != 0 && strcmp(once, "event") != 0)
        return fail_key(err, "once", "entity or event is wanted");
    out->once_event = once && strcmp(once, "event") == 0;
    out->when = ol_json_get(value, "when");
    if (out->when.type == OL_JSON_NULL)
        out->when.type = OL_JSON_NONE;
    return out->when.type == OL_JSON_NONE ? 0
                                          : ol_match_check_when(&out->when, "/when", arena, err);
}

/* Write the query with the event's values in place of its names, as the store reads them. In SQLite
 * it runs inside a trigger, as `new`; elsewhere the event is $1, as JSON. */
static void write_lookup(const struct ol_sql_template *query, bool is_trigger, struct ol_buf *out)
{
    for (int i = 0; i <= query->param_count; i++) {
        ol_buf_text(out, query->texts[i]);
        if (i == query->param_count)
            break;
        const struct ol_sql_template_param *param = &query->params[i];
        const char *field = ol_event_fields[param->field].name;
        if (is_trigger && !param->pointer) {
            ol_buf_print(out, "new.%s", field);
        } else if (is_trigger) {
            ol_buf_print(out, "json_extract(new.%s, '", field);
            ol_match_write_path(param->pointer, out);
            ol_buf_text(out, "')");
        } else {
            ol_buf_print(out, "($1 #>> '{%s", field);
            for (const char *at = param->pointer ? param->pointer : ""; *at; at++)
                ol_buf_char(out, *at == '/' ? ',' : *at);
            ol_buf_text(out, "}')");
        }
    }
}

/* The parts of a rule that the database evaluates, in its own words. */
struct rule_sql {
    struct ol_buf pattern, condition, path, lookup;
};

static int put_row(struct ol_conn *conn, const char *name, const char *source,
                   const struct ol_rule *rule, const struct rule_sql *sql, outlog_err *err)
{
    if (sql->pattern.failed || sql->condition.failed || sql->path.failed || sql->lookup.failed)
        return ol_no_memory(err);
    return ol_store_exec(conn, OL_Q_RULE_PUT,
                         OL_PARAMS(ol_value_text(name), ol_value_text(sql->pattern.data),
                                   ol_value_int(strncmp(rule->on, "outlog.", 7) == 0),
                                   ol_value_text(rule->org_id), ol_value_text(rule->aggregate_type),
                                   ol_value_text(sql->condition.data),
                                   ol_value_text(sql->path.data), ol_value_text(rule->role),
                                   ol_value_text(sql->lookup.data), ol_value_text(rule->email_to),
                                   ol_value_text(rule->in_app_to), ol_value_text(rule->template),
                                   ol_value_text(rule->category), ol_value_int(rule->once_event),
                                   ol_value_text(source)),
                         NULL, err);
}

int ol_rule_put(struct ol_conn *conn, const char *name, const char *source, struct ol_arena *arena,
                outlog_err *err)
{
    struct ol_json value;
    struct ol_rule rule;
    struct ol_sql_template query;
    struct rule_sql sql = {0};
    bool is_glob = conn->store->has_globs;
    int result = -1;

    if (ol_json_parse(source, strlen(source), &value, err) < 0 ||
        ol_rule_read(&value, arena, &rule, err) < 0)
        return -1;
    ol_match_write(rule.on, is_glob, &sql.pattern);
    if (rule.when.type == OL_JSON_OBJECT)
        ol_match_write_when(&rule.when, is_glob, arena, &sql.condition);
    if (rule.path && is_glob)
        ol_match_write_path(rule.path, &sql.path);
    else if (rule.path)
        ol_buf_text(&sql.path, rule.path);
    if (rule.sql) {
        if (ol_sql_template_read(rule.sql, arena, &query, err) < 0)
            goto out;
        write_lookup(&query, is_glob, &sql.lookup);
    }
    if (put_row(conn, name, source, &rule, &sql, err) < 0)
        goto out;
    result = rule.sql ? conn->store->user_sql->set_lookup(conn, name, sql.lookup.data, err) : 0;
    if (result < 0)
        ol_err_prefix(err, "recipients: sql");
out:
    ol_buf_clear(&sql.pattern);
    ol_buf_clear(&sql.condition);
    ol_buf_clear(&sql.path);
    ol_buf_clear(&sql.lookup);
    return result;
}

int ol_rule_delete(struct ol_conn *conn, const char *name, outlog_err *err)
{
    if (conn->store->user_sql->set_lookup(conn, name, NULL, err) < 0)
        return -1;
    return ol_store_exec(conn, OL_Q_RULE_DELETE, OL_PARAMS(ol_value_text(name)), NULL, err);
}

/* --- templates --- */

int ol_rule_check_template(const struct ol_json *value, struct ol_arena *arena, outlog_err *err)
{
    static const char *const known[] = {"subject", "text", "html", NULL};
    struct rule_reader r = {value, arena, err};
    const char *texts[3];
    outlog_err why;
    if (check_keys(&r, known) < 0)
        return -1;
    for (int i = 0; i < 3; i++) {
        if (read_text(&r, known[i], i ? 100000 : 1000, i == 0, &texts[i]) < 0)
            return -1;
        if (texts[i] && ol_mustache_check(texts[i], strlen(texts[i]), &why) < 0)
            return fail_key(err, known[i], why.message);
    }
    return texts[1] || texts[2] ? 0 : fail_key(err, "text", "text or html is wanted");
}

int ol_rule_put_template(struct ol_conn *conn, const char *name, const char *source,
                         outlog_err *err)
{
    if (ol_store_exec(conn, OL_Q_TEMPLATE_RETIRE, OL_PARAMS(ol_value_text(name)), NULL, err) < 0)
        return -1;
    return ol_store_exec(conn, OL_Q_TEMPLATE_ADD,
                         OL_PARAMS(ol_value_text(name), ol_value_text(source)), NULL, err);
}
