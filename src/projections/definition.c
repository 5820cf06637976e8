/* definition.c: reads and checks the JSON of a definition, and stores it. */
#include "projections/definition.h"

#include "store/user_sql.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROJECTION_NAME_MAX = 48, PROJECTION_TABLES_MAX = 32, PROJECTION_VERSION_MAX = 1000000 };

/* --- reading --- */

/* The name becomes part of the name of a schema or a file. */
static bool is_name(const char *name, size_t max)
{
    size_t bytes = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    return bytes > 0 && bytes <= max && name[bytes] == '\0';
}

static int check_keys(const struct ol_json *definition, outlog_err *err)
{
    static const char *const known[] = {"version", "tables", "create", "on"};
    struct ol_json_iter it = {0};
    if (definition->type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "a map is wanted");
    while (ol_json_next(definition, &it)) {
        bool is_known = false;
        for (int i = 0; i < 4; i++)
            is_known |= ol_json_equals(&it.key, known[i]);
        if (!is_known)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD,
                           "unknown key %.*s; version, tables, create and on are known",
                           (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
    }
    return 0;
}

static int read_version(const struct ol_json *definition, int *out, outlog_err *err)
{
    struct ol_json value = ol_json_get(definition, "version");
    int64_t number = 1;
    if (value.type != OL_JSON_NONE &&
        (!ol_json_int(&value, &number) || number < 1 || number > PROJECTION_VERSION_MAX))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/version",
                          "version: a whole number from 1 is wanted");
    *out = (int)number;
    return 0;
}

static int read_tables(const struct ol_json *definition, struct ol_arena *arena,
                       struct ol_projection *out, outlog_err *err)
{
    struct ol_json list = ol_json_get(definition, "tables");
    struct ol_json_iter it = {0};
    if (list.type != OL_JSON_ARRAY)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/tables",
                          "tables: a list of the tables it fills is wanted");
    out->tables = ol_arena_array(arena, PROJECTION_TABLES_MAX, sizeof *out->tables);
    out->tables_json = ol_arena_copy(arena, list.text, list.bytes);
    if (!out->tables || !out->tables_json)
        return ol_no_memory(err);
    while (ol_json_next(&list, &it)) {
        const char *name = ol_json_string(&it.value, arena, NULL);
        if (!name || !is_name(name, 63) || out->table_count == PROJECTION_TABLES_MAX)
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/tables",
                              "tables: names of 1 to 63 letters, digits, _ and - without a schema "
                              "are wanted, %d at most",
                              PROJECTION_TABLES_MAX);
        out->tables[out->table_count++] = name;
    }
    return out->table_count
               ? 0
               : ol_fail_at(err, OUTLOG_INVALID_FIELD, "/tables", "tables: at least one is wanted");
}

/* Split "order.created@2". */
static int read_type(const char *key, struct ol_arena *arena, struct ol_projection_handler *out,
                     outlog_err *err)
{
    const char *at = strrchr(key, '@');
    size_t bytes = at ? (size_t)(at - key) : strlen(key);
    char *end = NULL;
    long version = at ? strtol(at + 1, &end, 10) : 0;
    if (bytes < 1 || bytes > 100)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "an event type has 1 to 100 bytes");
    if (at && (end == at + 1 || *end || version < 1 || version > PROJECTION_VERSION_MAX))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "after @ an event_version from 1 is wanted");
    out->event_version = (int)version;
    out->event_type = ol_arena_copy(arena, key, bytes);
    return out->event_type ? 0 : ol_no_memory(err);
}

static int read_statement(const struct ol_json *value, struct ol_arena *arena,
                          struct ol_projection *out, outlog_err *err)
{
    const char *sql = ol_json_string(value, arena, NULL);
    if (!sql)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "an SQL statement, or a list of them, is wanted");
    struct ol_sql_template *template = &out->templates[out->template_count++];
    if (ol_sql_template_read(sql, arena, template, err) < 0)
        return -1;
    for (int i = 0; i < template->param_count; i++)
        out->fields |= UINT32_C(1) << template->params[i].field;
    return 0;
}

static int read_handler(const struct ol_json *key, const struct ol_json *value,
                        struct ol_arena *arena, struct ol_projection *out, outlog_err *err)
{
    struct ol_projection_handler *handler = &out->handlers[out->handler_count++];
    struct ol_json_iter it = {0};
    const char *name = ol_json_string(key, arena, NULL);
    if (!name)
        return ol_no_memory(err);
    handler->first = (int)out->template_count;
    if (read_type(name, arena, handler, err) < 0)
        goto failed;
    if (value->type == OL_JSON_ARRAY) {
        while (ol_json_next(value, &it))
            if (read_statement(&it.value, arena, out, err) < 0)
                goto failed;
    } else if (read_statement(value, arena, out, err) < 0) {
        goto failed;
    }
    handler->count = (int)out->template_count - handler->first;
    return 0;
failed:
    if (err) {
        ol_err_prefix(err, "%.100s", name);
        snprintf(err->pointer, sizeof err->pointer, "/on/%.120s", name);
    }
    return -1;
}

static int read_on(const struct ol_json *definition, struct ol_arena *arena,
                   struct ol_projection *out, outlog_err *err)
{
    struct ol_json on = ol_json_get(definition, "on");
    struct ol_json_iter it = {0};
    size_t handlers = 0, templates = 0;
    if (on.type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/on",
                          "on: a map of {event_type: SQL} is wanted");
    while (ol_json_next(&on, &it)) {
        struct ol_json_iter inner = {0};
        handlers++;
        templates++;
        while (it.value.type == OL_JSON_ARRAY && ol_json_next(&it.value, &inner))
            templates++;
    }
    out->handlers = ol_arena_array(arena, handlers + 1, sizeof *out->handlers);
    out->templates = ol_arena_array(arena, templates + 1, sizeof *out->templates);
    if (!out->handlers || !out->templates)
        return ol_no_memory(err);
    it = (struct ol_json_iter){0};
    while (ol_json_next(&on, &it))
        if (read_handler(&it.key, &it.value, arena, out, err) < 0)
            return -1;
    return 0;
}

int ol_projection_read(const char *name, const struct ol_json *definition, struct ol_arena *arena,
                       struct ol_projection *out, outlog_err *err)
{
    *out = (struct ol_projection){.name = name, .create = ""};
    if (!is_name(name, PROJECTION_NAME_MAX))
        return ol_fail(err, OUTLOG_INVALID_FIELD,
                       "a projection's name has 1 to %d letters, digits, _ and -",
                       PROJECTION_NAME_MAX);
    if (check_keys(definition, err) < 0 || read_version(definition, &out->version, err) < 0 ||
        read_tables(definition, arena, out, err) < 0)
        return -1;
    struct ol_json create = ol_json_get(definition, "create");
    if (create.type > OL_JSON_NULL && !(out->create = ol_json_string(&create, arena, NULL)))
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/create",
                          "create: the SQL that makes the tables is wanted");
    if (!(out->source = ol_arena_copy(arena, definition->text, definition->bytes)))
        return ol_no_memory(err);
    return read_on(definition, arena, out, err);
}

const struct ol_projection_handler *ol_projection_find(const struct ol_projection *projection,
                                                       const char *event_type, int event_version,
                                                       bool *is_typed)
{
    const struct ol_projection_handler *any = NULL;
    if (is_typed)
        *is_typed = false;
    for (size_t i = 0; i < projection->handler_count; i++) {
        const struct ol_projection_handler *handler = &projection->handlers[i];
        if (strcmp(handler->event_type, event_type) != 0)
            continue;
        if (is_typed)
            *is_typed = true;
        if (handler->event_version == event_version)
            return handler;
        if (handler->event_version == 0)
            any = handler;
    }
    return any;
}

/* --- storing --- */

/* The live definition; NULL when there is none. */
static int load_live(struct ol_conn *conn, const char *name, struct ol_arena *arena,
                     const char **definition, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    *definition = NULL;
    if (ol_store_query(conn, OL_Q_CHECKPOINT_DEFINITIONS, OL_PARAMS(ol_value_text(name)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *definition = ol_rows_copy(&rows, 0, arena, &failed);
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

static bool json_equals(const struct ol_json *one, const struct ol_json *two)
{
    struct ol_buf a = {0}, b = {0};
    bool same = ol_json_canonical(one, &a) == 0 && ol_json_canonical(two, &b) == 0 &&
                a.bytes == b.bytes && memcmp(a.data, b.data, a.bytes) == 0;
    ol_buf_clear(&a);
    ol_buf_clear(&b);
    return same;
}

/* Whether the new definition may replace the live one, and whether it is newer. */
static int compare_live(const char *live, const struct ol_json *wanted, int version, bool *is_newer,
                        outlog_err *err)
{
    struct ol_json now;
    int live_version;
    *is_newer = true;
    if (!live)
        return 0;
    if (ol_json_parse(live, strlen(live), &now, err) < 0 ||
        read_version(&now, &live_version, err) < 0)
        return -1;
    *is_newer = version > live_version;
    if (*is_newer || json_equals(&now, wanted))
        return 0;
    return ol_fail_at(
        err, OUTLOG_INVALID_FIELD, "/version",
        "version %d is live and differs; raise version, and the new one is built aside and "
        "replaces it",
        live_version);
}

int ol_projection_put(struct ol_conn *conn, const char *name, const char *definition,
                      outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_json wanted;
    char rebuild_id[OL_UUID_TEXT];
    const char *live;
    bool is_newer;
    int version, result = -1;

    ol_uuid_make(rebuild_id);
    if (ol_json_parse(definition, strlen(definition), &wanted, err) < 0 ||
        read_version(&wanted, &version, err) < 0 || load_live(conn, name, &arena, &live, err) < 0 ||
        compare_live(live, &wanted, version, &is_newer, err) < 0)
        goto out;
    const struct ol_value named = ol_value_text(name), id = ol_value_text(rebuild_id);
    if (ol_store_exec(conn, OL_Q_PROJECTION_PUT,
                      OL_PARAMS(named, ol_value_int(version), ol_value_text(definition)), NULL,
                      err) < 0 ||
        ol_store_exec(conn, OL_Q_CHECKPOINT_ADD, OL_PARAMS(named, id), NULL, err) < 0 ||
        (is_newer && ol_store_exec(conn, OL_Q_CHECKPOINT_REQUEST_REBUILD,
                                   OL_PARAMS(named, ol_value_text(live ? "aside" : "in_place"), id),
                                   NULL, err) < 0))
        goto out;
    result = 0;
out:
    ol_arena_clear(&arena);
    return result;
}

int ol_projection_delete(struct ol_conn *conn, const char *name, outlog_err *err)
{
    const struct ol_value named = ol_value_text(name);
    if (ol_store_exec(conn, OL_Q_PROJECTION_DELETE, OL_PARAMS(named), NULL, err) < 0 ||
        ol_store_exec(conn, OL_Q_CHECKPOINT_DELETE, OL_PARAMS(named), NULL, err) < 0 ||
        ol_store_exec(conn, OL_Q_SKIP_DELETE, OL_PARAMS(named), NULL, err) < 0)
        return -1;
    return conn->store->user_sql->shadow_drop(conn, name, err);
}
