/* fuzz_filter.c: filters of events, and the conditions of routes and rules.
 *
 * A filter that is read can be written and read again, to the same text. Conditions that are
 * accepted become JSON for both stores, and a path of SQLite that SQLite can read. Input: a line
 * for the pattern `on`, the rest is JSON. */
#include "fuzz.h"

#include "log/filter.h"
#include "log/match.h"

#include <sqlite3.h>

static sqlite3 *db;

static void check_filter(const char *json, struct ol_arena *arena)
{
    struct ol_value params[OL_FILTER_PARAMS];
    struct outlog_filter filter, again;
    struct outlog_event event = {.org_id = "acme", .event_type = "order.created"};
    struct ol_buf first = {0}, second = {0};
    outlog_err err;
    if (ol_filter_read(json, arena, &filter, &err) < 0) {
        check_err(&err);
        return;
    }
    if (ol_filter_check(&filter, &err) < 0)
        check_err(&err);
    ol_filter_write(&filter, &first);
    check(ol_filter_read(first.data, arena, &again, &err) == 0);
    ol_filter_write(&again, &second);
    check(strcmp(first.data, second.data) == 0);
    check(ol_filter_matches(&filter, &event) == ol_filter_matches(&again, &event));
    ol_filter_params(&filter, params);
    ol_buf_clear(&first);
    ol_buf_clear(&second);
}

/* What SQLite makes of select ?1 GLOB ?2, or json_extract('{}', ?1). */
static int run_sql(const char *sql, const char *one, const char *two)
{
    sqlite3_stmt *statement;
    check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK);
    sqlite3_bind_text(statement, 1, one, -1, SQLITE_STATIC);
    if (two)
        sqlite3_bind_text(statement, 2, two, -1, SQLITE_STATIC);
    int result = sqlite3_step(statement);
    sqlite3_finalize(statement);
    return result;
}

static void check_when(const struct ol_json *when, struct ol_arena *arena)
{
    struct ol_json_iter it = {0};
    struct ol_json written;
    struct ol_buf out = {0};
    outlog_err err;
    if (ol_match_check_when(when, "/when", arena, &err) < 0) {
        check_err(&err);
        return;
    }
    for (int has_paths = 0; has_paths < 2; has_paths++) {
        ol_buf_reset(&out);
        ol_match_write_when(when, has_paths, arena, &out);
        check(ol_json_parse(out.data, out.bytes, &written, &err) == 0 ||
              (has_paths && strncmp(err.message, "duplicate key", 13) == 0));
    }
    while (ol_json_next(when, &it)) {
        ol_buf_reset(&out);
        ol_match_write_path(ol_json_string(&it.key, arena, NULL), &out);
        check(run_sql("select json_extract('{\"a\":[1]}', ?1)", out.data, NULL) == SQLITE_ROW);
    }
    ol_buf_clear(&out);
}

static void check_pattern(const char *on)
{
    struct ol_buf glob = {0}, like = {0};
    ol_match_write(on, true, &glob);
    ol_match_write(on, false, &like);
    if (!strchr(on, '*') && glob.data && ol_utf8_is_valid(on, strlen(on)))
        check(run_sql("select 1 where ?1 glob ?2", on, glob.data) == SQLITE_ROW);
    if (like.data && strlen(on) < 1000 && ol_utf8_is_valid(on, strlen(on)))
        check(run_sql("select 1 where ?1 like ?2 escape '\\'", on, like.data) == SQLITE_ROW);
    ol_buf_clear(&glob);
    ol_buf_clear(&like);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = copy_text(data, bytes), *line = strchr(text, '\n');
    const char *json = line ? line + 1 : text;
    struct ol_arena arena = {0};
    struct ol_json value;
    if (!db)
        check(sqlite3_open(":memory:", &db) == SQLITE_OK);
    check_filter(json, &arena);
    if (ol_json_parse(json, strlen(json), &value, NULL) == 0)
        check_when(&value, &arena);
    if (line) {
        *line = '\0';
        check_pattern(text);
    }
    ol_arena_clear(&arena);
    free(text);
    return 0;
}
