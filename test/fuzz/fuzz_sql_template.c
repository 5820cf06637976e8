/* fuzz_sql_template.c: statements of projections and rules, with :payload.x for values.
 *
 * An accepted statement is one statement for SQLite too, with as many parameters as were found, and
 * all of them get a value from any event. */
#include "fuzz.h"

#include "log/sql_template.h"

#include <sqlite3.h>

enum { PARAMS_MAX = 64 };

static sqlite3 *db;

/* Prepare it where its names may be known or not: what matters is where it ends. */
static void check_one_statement(const struct ol_sql_template *template)
{
    struct ol_buf sql = {0};
    sqlite3_stmt *statement = NULL, *second = NULL;
    const char *tail;
    for (int i = 0; i <= template->param_count; i++)
        ol_buf_print(&sql, i < template->param_count ? "%s?" : "%s", template->texts[i]);
    if (sqlite3_prepare_v2(db, sql.data, -1, &statement, &tail) == SQLITE_OK) {
        check(!statement || sqlite3_bind_parameter_count(statement) >= template->param_count);
        check(sqlite3_prepare_v2(db, tail, -1, &second, NULL) != SQLITE_OK || !second);
    }
    sqlite3_finalize(statement);
    ol_buf_clear(&sql);
}

static void check_values(const struct ol_sql_template *template, struct ol_arena *arena)
{
    static const char payload[] =
        "{\"total\":12.5,\"items\":[{\"sku\":\"a\"},1e99,true],\"n\":null}";
    struct outlog_event event = {.event_id = 7,
                                 .org_id = "acme",
                                 .event_type = "order.created",
                                 .payload = payload,
                                 .payload_bytes = sizeof payload - 1,
                                 .occurred_at = 1};
    struct ol_value values[PARAMS_MAX];
    bool wants_json[PARAMS_MAX] = {false, true};
    outlog_err err;
    check(template->param_count < PARAMS_MAX);
    for (int has_types = 0; has_types < 2; has_types++)
        check(ol_sql_template_values(template, &event, wants_json, has_types, arena, values,
                                     &err) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = copy_text(data, bytes);
    struct ol_arena arena = {0};
    struct ol_sql_template template;
    outlog_err err;
    if (!db)
        check(sqlite3_open(":memory:", &db) == SQLITE_OK &&
              sqlite3_exec(db, "create table t (a, b, c)", NULL, NULL, NULL) == SQLITE_OK);
    if (ol_sql_template_read(text, &arena, &template, &err) < 0) {
        check_err(&err);
    } else {
        check_one_statement(&template);
        check_values(&template, &arena);
    }
    ol_arena_clear(&arena);
    free(text);
    return 0;
}
