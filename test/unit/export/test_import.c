/* The lines of an export, and what an import refuses (E2). Whole stores move in e2e/test_export.py.
 */
#include "export/export.h"
#include "export/import.h"

#include "stores.h"

/* --- the lines --- */

static void the_first_and_the_last_line(void **state)
{
    struct ol_buf line = {0};
    (void)state;
    ol_export_head(&line, 7, 1204);
    assert_string_equal(line.data,
                        "{\"outlog_export\":{\"format\":2,\"after\":7,\"settled\":1204}}\n");
    ol_buf_reset(&line);
    ol_export_end(&line, 1204);
    assert_string_equal(line.data, "{\"end\":{\"events\":1204}}\n");
    ol_buf_clear(&line);
}

/* --- importing, into a store that stays empty --- */

static const char head[] = "{\"outlog_export\":{\"format\":2,\"after\":0,\"settled\":0}}";

/* Import lines and finish; returns the code of the error, or OUTLOG_OK. */
static int import_lines(struct fixture *fixture, const char *const *lines, outlog_err *err)
{
    struct ol_import *import = NULL;
    int64_t events;
    int result = ol_import_open(fixture->log, &import, err);
    for (size_t i = 0; result == 0 && lines[i]; i++)
        result = ol_import_line(import, lines[i], strlen(lines[i]), err);
    if (result == 0)
        result = ol_import_finish(import, &events, err);
    ol_import_close(import);
    return result < 0 ? (int)err->code : 0;
}

static void assert_refused(void **state, const char *const *lines, int code, const char *message)
{
    outlog_err err = {0};
    assert_int_equal(import_lines(*state, lines, &err), code);
    if (!strstr(err.message, message))
        fail_msg("%s: %s", message, err.message);
}
#define REFUSED(code, message, ...) \
    assert_refused(state, (const char *const[]){__VA_ARGS__, NULL}, code, message)

static void e2_only_the_lines_of_an_export_are_imported(void **state)
{
    REFUSED(OUTLOG_INVALID_JSON, "", "not JSON");
    REFUSED(OUTLOG_INVALID_FIELD, "not a line of an export", "[1]");
    REFUSED(OUTLOG_INVALID_FIELD, "not a line of an export", "{}");
    REFUSED(OUTLOG_INVALID_FIELD, "begins with", "{\"event\":{}}");
    REFUSED(OUTLOG_INVALID_FIELD, "format", "{\"outlog_export\":{\"format\":99,\"after\":0}}");
    REFUSED(OUTLOG_UNKNOWN_FIELD, "kind of line", head, "{\"surprise\":{}}");
}

static void e2_a_missing_part_is_noticed(void **state)
{
    REFUSED(OUTLOG_INVALID_FIELD, "a part is missing",
            "{\"outlog_export\":{\"format\":2,\"after\":100}}");
}

static void e2_an_export_that_was_cut_off_is_noticed(void **state)
{
    REFUSED(OUTLOG_INVALID_FIELD, "last line is missing", head);
    REFUSED(OUTLOG_INVALID_FIELD, "ends with 5 events, but 0 were read", head,
            "{\"end\":{\"events\":5}}");
}

/* --- exporting --- */

struct lines {
    int64_t count, last_id;
};

static int count_line(void *user, const char *line, size_t bytes, outlog_err *err)
{
    struct lines *lines = user;
    long long event_id = 0;
    (void)err;
    assert_int_equal(line[bytes - 1], '\n');
    sscanf(line, "{\"event\":{\"event_id\":%lld", &event_id);
    assert_true(event_id > lines->last_id);
    lines->last_id = event_id;
    lines->count++;
    return 0;
}

/* Runs last: the store is in use afterwards. */
static void e2_a_cursor_goes_from_segment_to_segment(void **state)
{
    struct fixture *fixture = *state;
    struct outlog_new_event event = {.org_id = "acme",
                                     .aggregate_type = "order",
                                     .aggregate_id = "o-1",
                                     .event_type = "order.created",
                                     .payload = "{}"};
    struct ol_export_cursor cursor = {.limit = 2};
    struct lines lines = {0};
    struct ol_import *import = NULL;
    outlog_err err = {0};

    for (int i = 0; i < 5; i++)
        OK(outlog_append_now(fixture->log, &event, 1, &(struct outlog_appended){0}, &err));
    for (int64_t left = 5; left > 0; left -= 2) {
        OK(ol_export_events(fixture->log, &cursor, count_line, &lines, &err));
        assert_int_equal(cursor.count, left < 2 ? left : 2);
        assert_int_equal(cursor.after, lines.last_id);
    }
    OK(ol_export_events(fixture->log, &cursor, count_line, &lines, &err));
    assert_int_equal(cursor.count, 0);
    assert_int_equal(lines.count, 5);
    assert_int_equal(ol_import_open(fixture->log, &import, &err), -1);
    assert_int_equal(err.code, OUTLOG_ILLEGAL_TRANSITION);
}

static const struct CMUnitTest without_store[] = {
    cmocka_unit_test(the_first_and_the_last_line),
};

static const struct CMUnitTest suite[] = {
    cmocka_unit_test(e2_only_the_lines_of_an_export_are_imported),
    cmocka_unit_test(e2_a_missing_part_is_noticed),
    cmocka_unit_test(e2_an_export_that_was_cut_off_is_noticed),
    cmocka_unit_test(e2_a_cursor_goes_from_segment_to_segment),
};

int main(void)
{
    return run_with_stores("import", without_store, COUNT(without_store), suite, COUNT(suite));
}
