/* trace.c: the story of one execution (T3). */
#include "log/read.h"

enum { MOST_ROWS = 10000 };

int outlog_trace(outlog *log, const struct outlog_filter *filter, const char *correlation_id,
                 struct outlog_page *page, outlog_err *err)
{
    struct outlog_filter wanted = filter ? *filter : (struct outlog_filter){0};
    wanted.correlation_id = correlation_id;
    return outlog_read(log, &wanted, 0, MOST_ROWS, page, err);
}

int outlog_causality(outlog *log, const char *id, enum outlog_direction direction,
                     struct outlog_page *page, outlog_err *err)
{
    struct ol_rows rows;
    char uuid[OL_UUID_TEXT];

    if (outlog_get(log, id, page, err) < 0)
        return -1;
    ol_uuid_parse(page->events[0].id, uuid);
    if (!ol_page_reset(page))
        return ol_fail(err, OUTLOG_NO_MEMORY, "out of memory");
    if (ol_query(log->conn, direction == OUTLOG_UP ? OL_Q_CAUSALITY_UP : OL_Q_CAUSALITY_DOWN,
                 OL_PARAMS(ol_text(uuid), ol_int(MOST_ROWS)), &rows, err) < 0)
        return -1;
    int result = ol_page_fill(log, page, &rows, false, true, err);
    ol_end(&rows);
    return result;
}
