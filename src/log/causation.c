/* causation.c: causes and effects of an event, and all events of one correlation (T3). */
#include "log/causation.h"

#include "base/err.h"
#include "base/uuid.h"
#include "log/read.h"

#include <string.h>

enum { CAUSALITY_ROWS_MAX = 10000 };

int ol_causation_find(struct ol_conn *conn, const char *text, struct ol_arena *arena,
                      struct ol_causation *out, bool *found, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    size_t digits = strspn(text, "0123456789");
    bool is_id = ol_uuid_parse(text, id), failed = false;
    bool is_number = digits > 0 && digits < 19 && text[digits] == '\0';
    struct ol_rows rows;

    *found = false;
    if (!is_id && !is_number)
        return 0;
    if (ol_store_query(conn, OL_Q_EVENT_CAUSE,
                       OL_PARAMS(ol_value_optional(is_id ? id : NULL),
                                 ol_value_optional(is_id ? NULL : text)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        ol_rows_uuid(&rows, 0, out->id);
        out->org_id = ol_rows_copy(&rows, 1, arena, &failed);
        out->correlation_id = ol_rows_copy(&rows, 2, arena, &failed);
        *found = !failed;
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : failed ? ol_no_memory(err) : 0;
}

bool ol_causation_is_of_org(const struct ol_causation *cause, const char *org_id)
{
    return cause->org_id && org_id ? strcmp(cause->org_id, org_id) == 0 : cause->org_id == org_id;
}

int ol_causation_refuse(outlog_err *err, const char *text)
{
    return ol_fail_at(err, OUTLOG_UNKNOWN_CAUSATION, "/causation_id",
                      "no event %s in this org; the cause must be stored first", text);
}

int outlog_trace(outlog *log, const struct outlog_filter *filter, const char *correlation_id,
                 struct outlog_page *page, outlog_err *err)
{
    struct outlog_filter wanted = filter ? *filter : (struct outlog_filter){0};
    wanted.correlation_id = correlation_id;
    return outlog_read(log, &wanted, 0, CAUSALITY_ROWS_MAX, page, err);
}

int outlog_causality(outlog *log, const char *id, enum outlog_direction direction,
                     struct outlog_page *page, outlog_err *err)
{
    struct ol_rows rows;
    char uuid[OL_UUID_TEXT];

    if (outlog_get(log, id, page, err) < 0)
        return -1;
    ol_uuid_parse(page->events[0].id, uuid);
    if (!ol_read_page_reset(page))
        return ol_no_memory(err);
    if (ol_store_query(log->conn, direction == OUTLOG_UP ? OL_Q_CAUSALITY_UP : OL_Q_CAUSALITY_DOWN,
                       OL_PARAMS(ol_value_text(uuid), ol_value_int(CAUSALITY_ROWS_MAX)), &rows,
                       err) < 0)
        return -1;
    int result = ol_read_page_fill(log, page, &rows, false, true, err);
    ol_rows_end(&rows);
    return result;
}
