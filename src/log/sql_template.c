/* sql_template.c: finding the parameters of a statement, and their values in an event. */
#include "log/sql_template.h"

#include "base/timestamp.h"
#include "store/event_fields.h"

#include <ctype.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { TEMPLATE_PARAMS_MAX = 60 };

/* --- reading --- */

struct template_reader {
    const char *at;
    struct ol_arena *arena;
    struct ol_sql_template *out;
    struct ol_buf text; /* SQL since the last parameter */
    outlog_err *err;
};

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

/* Skip text in quotes, a comment, or a text between $tags$, in which no parameter is. Returns `at`
 * when none begins there, and the end of the statement when it is not closed. */
static const char *skip_opaque(const char *at, const char *start)
{
    const char *end;
    if (*at == '\'' || *at == '"' || *at == '`') {
        char quote = *at;
        bool has_escapes = quote == '\'' && at > start && (at[-1] == 'E' || at[-1] == 'e') &&
                           (at - 1 == start || !is_word(at[-2]));
        for (at++; *at; at++) {
            if (has_escapes && *at == '\\' && at[1])
                at++;
            else if (*at == quote && at[1] == quote)
                at++;
            else if (*at == quote)
                return at + 1;
        }
        return at;
    }
    if (at[0] == '-' && at[1] == '-')
        return at + strcspn(at, "\n");
    if (at[0] == '/' && at[1] == '*')
        return (end = strstr(at + 2, "*/")) ? end + 2 : at + strlen(at);
    if (*at == '$' && (at == start || !is_word(at[-1])) && !isdigit((unsigned char)at[1])) {
        size_t bytes = 1;
        while (is_word(at[bytes]))
            bytes++;
        if (at[bytes] != '$')
            return at;
        for (end = at + bytes + 1; (end = strchr(end, '$')); end++)
            if (strncmp(end, at, bytes + 1) == 0)
                return end + bytes + 1;
        return at + strlen(at);
    }
    return at;
}

/* Split "payload.customer.country" into the field and "/customer/country". */
static int read_name(struct template_reader *r, const char *name,
                     struct ol_sql_template_param *param)
{
    size_t bytes = strcspn(name, ".");
    int field = 0;
    while (field < OL_EVENT_FIELD_COUNT &&
           (strncmp(ol_event_fields[field].name, name, bytes) != 0 ||
            ol_event_fields[field].name[bytes] != '\0'))
        field++;
    if (field == OL_EVENT_FIELD_COUNT ||
        (name[bytes] && ol_event_fields[field].kind != OL_FIELD_JSON))
        return ol_fail(
            r->err, OUTLOG_INVALID_FIELD,
            "unknown parameter :%.60s; write a field of the event like :aggregate_id, or a path "
            "like :payload.total or :metadata.x",
            name);
    param->field = field;
    if (!name[bytes])
        return 0;
    char *pointer = ol_arena_copy(r->arena, name + bytes, strlen(name + bytes));
    if (!pointer)
        return ol_no_memory(r->err);
    for (char *dot = pointer; (dot = strchr(dot, '.'));)
        *dot = '/';
    param->pointer = pointer;
    return 0;
}

static int end_text(struct template_reader *r)
{
    struct ol_sql_template *out = r->out;
    const char *text =
        r->text.failed ? NULL
                       : ol_arena_copy(r->arena, r->text.data ? r->text.data : "", r->text.bytes);
    if (!text)
        return ol_no_memory(r->err);
    out->texts[out->param_count] = text;
    ol_buf_reset(&r->text);
    return 0;
}

/* At a colon that begins a name. */
static int read_param(struct template_reader *r)
{
    const char *end = r->at + 1;
    while (is_word(*end) || (*end == '.' && is_word(end[1])))
        end++;
    const char *name = ol_arena_copy(r->arena, r->at + 1, (size_t)(end - r->at - 1));
    if (!name)
        return ol_no_memory(r->err);
    if (r->out->param_count == TEMPLATE_PARAMS_MAX)
        return ol_fail(r->err, OUTLOG_INVALID_FIELD, "at most %d parameters per statement",
                       TEMPLATE_PARAMS_MAX);
    if (end_text(r) < 0 || read_name(r, name, &r->out->params[r->out->param_count]) < 0)
        return -1;
    r->out->param_count++;
    r->at = end;
    return 0;
}

static int read_all(struct template_reader *r, const char *sql)
{
    while (*r->at) {
        const char *end = skip_opaque(r->at, sql);
        if (end > r->at) {
            ol_buf_add(&r->text, r->at, (size_t)(end - r->at));
            r->at = end;
        } else if (r->at[0] == ':' && r->at[1] == ':') {
            ol_buf_text(&r->text, "::");
            r->at += 2;
        } else if (r->at[0] == ':' && (isalpha((unsigned char)r->at[1]) || r->at[1] == '_')) {
            if (read_param(r) < 0)
                return -1;
        } else if (*r->at == ';') {
            if (r->at[1 + strspn(r->at + 1, " \t\r\n;")])
                return ol_fail(r->err, OUTLOG_INVALID_FIELD,
                               "write one statement here, or a list of statements");
            break;
        } else {
            ol_buf_char(&r->text, *r->at++);
        }
    }
    return end_text(r);
}

/* Refuses statements that end a transaction, or change the session or the schema. */
static bool is_allowed(const char *sql)
{
    static const char *const words[] = {"insert",  "update", "delete", "merge",
                                        "replace", "with",   "select", NULL};
    const char *at = sql;
    for (;;) {
        at += strspn(at, " \t\r\n(");
        const char *end = *at == '-' || *at == '/' ? skip_opaque(at, sql) : at;
        if (end == at)
            break;
        at = end;
    }
    for (int i = 0; words[i]; i++) {
        size_t bytes = strlen(words[i]);
        if (strncasecmp(at, words[i], bytes) == 0 && !is_word(at[bytes]))
            return true;
    }
    return false;
}

int ol_sql_template_read(const char *sql, struct ol_arena *arena, struct ol_sql_template *out,
                         outlog_err *err)
{
    struct template_reader r = {.at = sql, .arena = arena, .out = out, .err = err};
    *out = (struct ol_sql_template){.source = sql};
    if (!is_allowed(sql))
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "a statement begins with insert, update, delete, merge, replace, with or "
                       "select");
    out->texts = ol_arena_array(arena, TEMPLATE_PARAMS_MAX + 1, sizeof *out->texts);
    out->params = ol_arena_array(arena, TEMPLATE_PARAMS_MAX, sizeof *out->params);
    if (!out->texts || !out->params)
        return ol_no_memory(err);
    int result = read_all(&r, sql);
    ol_buf_clear(&r.text);
    return result;
}

/* --- values --- */

static struct ol_value read_number(const struct ol_json *value)
{
    int64_t whole;
    if (ol_json_int(value, &whole))
        return ol_value_int(whole);
    return ol_value_real(strtod(value->text, NULL));
}

static int read_json_value(const struct ol_json *value, bool wants_json, bool has_types,
                           struct ol_arena *arena, struct ol_value *out, outlog_err *err)
{
    if (value->type == OL_JSON_NONE || value->type == OL_JSON_NULL) {
        *out = ol_value_text(NULL);
    } else if (value->type == OL_JSON_STRING && !wants_json) {
        size_t bytes;
        const char *text = ol_json_string(value, arena, &bytes);
        if (!text)
            return ol_no_memory(err);
        *out = ol_value_bytes(text, bytes);
    } else if (value->type == OL_JSON_NUMBER && !has_types) {
        *out = read_number(value);
    } else if ((value->type == OL_JSON_TRUE || value->type == OL_JSON_FALSE) && !has_types) {
        *out = ol_value_int(value->type == OL_JSON_TRUE);
    } else {
        *out = ol_value_bytes(value->text, value->bytes);
    }
    return 0;
}

/* The value of a whole field. */
static int read_field(const struct ol_field *field, const struct outlog_event *event,
                      struct ol_arena *arena, struct ol_value *out, outlog_err *err)
{
    const char *at = (const char *)event + field->stored, *text;
    char time[OL_TIMESTAMP_TEXT];
    int64_t number;
    switch (field->kind) {
    case OL_FIELD_NUMBER:
    case OL_FIELD_TIME:
        memcpy(&number, at, sizeof number);
        *out = ol_value_int(number);
        if (field->kind == OL_FIELD_NUMBER)
            return 0;
        ol_timestamp_format(number, time);
        *out = ol_value_text(ol_arena_copy(arena, time, strlen(time)));
        return out->text ? 0 : ol_no_memory(err);
    case OL_FIELD_VERSION:
        *out = ol_value_int(event->event_version);
        return 0;
    case OL_FIELD_UUID:
        *out = ol_value_text(*at ? at : NULL);
        return 0;
    default:
        memcpy(&text, at, sizeof text);
        *out = ol_value_text(text);
        return 0;
    }
}

int ol_sql_template_values(const struct ol_sql_template *template, const struct outlog_event *event,
                           const bool *wants_json, bool has_types, struct ol_arena *arena,
                           struct ol_value *values, outlog_err *err)
{
    struct ol_json payload = {0}, metadata = {0};
    for (int i = 0; i < template->param_count; i++) {
        const struct ol_sql_template_param *param = &template->params[i];
        const struct ol_field *field = &ol_event_fields[param->field];
        if (!param->pointer) {
            if (read_field(field, event, arena, &values[i], err) < 0)
                return -1;
            continue;
        }
        bool is_payload = field->stored == offsetof(struct outlog_event, payload);
        struct ol_json *whole = is_payload ? &payload : &metadata;
        const char *text = is_payload ? event->payload : event->metadata;
        if (!text) {
            values[i] = ol_value_text(NULL);
            continue;
        }
        size_t bytes = is_payload ? event->payload_bytes : strlen(text);
        if (whole->type == OL_JSON_NONE && ol_json_parse(text, bytes, whole, err) < 0)
            return -1;
        struct ol_json value = ol_json_at(whole, param->pointer);
        if (read_json_value(&value, wants_json[i], has_types, arena, &values[i], err) < 0)
            return -1;
    }
    return 0;
}
