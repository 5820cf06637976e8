/* fuzz_sql_doors.c: the functions of the SQLite extension, which take JSON from any SQL.
 *
 * Each line is a letter for the function and its argument, in which @run_id, @step_id and
 * @tool_call_id stand for the last one that was made. All lines run in one transaction, so that a
 * later one meets what an earlier one wrote, and are rolled back together. A result is JSON, an
 * error begins with a known code, and a refused call leaves the transaction as it was. */
#include "fuzz.h"

#include "base/err.h"
#include "base/json/json.h"

#include <sqlite3.h>
#include <stdio.h>

static const char *const doors[] = {"outlog_append",         "outlog_enqueue",
                                    "outlog_request_effect", "outlog_receive_signal",
                                    "outlog_start_run",      "outlog_start_step",
                                    "outlog_complete_step",  "outlog_fail_step",
                                    "outlog_skip_step",      "outlog_retry_step",
                                    "outlog_correct_step",   "outlog_call_tool",
                                    "outlog_end_tool",       "outlog_checkpoint_run",
                                    "outlog_end_run",        "outlog_request_hash",
                                    "outlog_wait_projection"};
enum { DOOR_COUNT = sizeof doors / sizeof *doors };

static const char *const id_names[] = {"run_id", "step_id", "tool_call_id"};
enum { ID_COUNT = sizeof id_names / sizeof *id_names };

static sqlite3 *db;
static sqlite3_stmt *calls[DOOR_COUNT];
static char last_ids[ID_COUNT][40];

static void run_sql(const char *sql)
{
    check(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
}

static void open_once(void)
{
    char sql[100];
    check(sqlite3_open(":memory:", &db) == SQLITE_OK);
    check(sqlite3_enable_load_extension(db, 1) == SQLITE_OK);
    check(sqlite3_load_extension(db, OL_EXTENSION, "sqlite3_outlog_init", NULL) == SQLITE_OK);
    run_sql("select outlog_init()");
    for (int i = 0; i < DOOR_COUNT; i++) {
        snprintf(sql, sizeof sql, "select %s(?1)", doors[i]);
        check(sqlite3_prepare_v2(db, sql, -1, &calls[i], NULL) == SQLITE_OK);
    }
}

static void note_ids(const struct ol_json *answer)
{
    for (int i = 0; i < ID_COUNT; i++) {
        struct ol_json id = ol_json_get(answer, id_names[i]);
        if (id.type == OL_JSON_STRING && id.bytes == 38)
            snprintf(last_ids[i], sizeof last_ids[i], "%.36s", id.text + 1);
    }
}

static void put_ids(const char *text, size_t bytes, struct ol_buf *out)
{
    for (const char *end = text + bytes; text < end;) {
        int found = -1;
        for (int i = 0; i < ID_COUNT && *text == '@'; i++)
            if (strncmp(text + 1, id_names[i], strlen(id_names[i])) == 0)
                found = i;
        if (found >= 0)
            ol_buf_text(out, last_ids[found]);
        else
            ol_buf_char(out, *text);
        text += found >= 0 ? strlen(id_names[found]) + 1 : 1;
    }
}

static void check_answer(int door, sqlite3_stmt *call)
{
    const char *text = (const char *)sqlite3_column_text(call, 0);
    struct ol_json value;
    check(text != NULL);
    if (strcmp(doors[door], "outlog_request_hash") == 0)
        check(strlen(text) == 64);
    else {
        check(ol_json_parse_wrapped(text, strlen(text), &value, NULL) == 0);
        note_ids(&value);
    }
}

static void check_refusal(void)
{
    const char *text = sqlite3_errmsg(db), *colon = strchr(text, ':');
    check(ol_utf8_is_valid(text, strlen(text)));
    enum outlog_code code = colon ? ol_err_code_by_name(text, (size_t)(colon - text)) : OUTLOG_OK;
    check(code != OUTLOG_OK && code != OUTLOG_STORE_ERROR && code != OUTLOG_NO_MEMORY);
}

static int64_t count_events(void)
{
    static sqlite3_stmt *count;
    if (!count)
        check(sqlite3_prepare_v2(db,
                                 "select (select count(*) from outlog_events) +"
                                 " (select count(*) from outlog_outbox)",
                                 -1, &count, NULL) == SQLITE_OK);
    check(sqlite3_step(count) == SQLITE_ROW);
    int64_t found = sqlite3_column_int64(count, 0);
    sqlite3_reset(count);
    return found;
}

static void call_door(int door, const char *text, size_t bytes)
{
    int64_t before = count_events();
    struct ol_buf argument = {0};
    put_ids(text, bytes, &argument);
    sqlite3_bind_text64(calls[door], 1, argument.data ? argument.data : "", argument.bytes,
                        SQLITE_STATIC, SQLITE_UTF8);
    int result = sqlite3_step(calls[door]);
    if (result == SQLITE_ROW)
        check_answer(door, calls[door]);
    else
        check_refusal();
    sqlite3_reset(calls[door]);
    ol_buf_clear(&argument);
    check(!sqlite3_get_autocommit(db));
    check(result == SQLITE_ROW ? count_events() >= before : count_events() == before);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    char *text = copy_text(data, bytes);
    if (!db)
        open_once();
    run_sql("begin");
    for (char *line = text, *end = text + bytes; line < end;) {
        char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop ? stop : end;
        if (stop > line)
            call_door((uint8_t)line[0] % DOOR_COUNT, line + 1, (size_t)(stop - line - 1));
        line = stop + 1;
    }
    run_sql("rollback");
    free(text);
    return 0;
}
