/* cause.c: see cause.h. */
#include "log/cause.h"

#include "base/err.h"
#include "base/uuid.h"

#include <string.h>

int ol_cause_find(struct ol_conn *conn, const char *said, struct ol_arena *arena,
                  struct ol_cause *out, bool *found, outlog_err *err)
{
    char id[OL_UUID_TEXT];
    size_t digits = strspn(said, "0123456789");
    bool is_id = ol_uuid_parse(said, id), failed = false;
    bool is_number = digits > 0 && digits < 19 && said[digits] == '\0';
    struct ol_rows rows;

    *found = false;
    if (!is_id && !is_number)
        return 0;
    if (ol_query(conn, OL_Q_EVENT_CAUSE,
                 OL_PARAMS(ol_optional(is_id ? id : NULL), ol_optional(is_id ? NULL : said)), &rows,
                 err) < 0)
        return -1;
    int got = ol_next(&rows, err);
    if (got > 0) {
        ol_column_uuid(&rows, 0, out->id);
        out->org_id = ol_column_copy(&rows, 1, arena, &failed);
        out->correlation_id = ol_column_copy(&rows, 2, arena, &failed);
        *found = !failed;
    }
    ol_end(&rows);
    return got < 0 ? -1 : failed ? ol_fail(err, OUTLOG_NO_MEMORY, "out of memory") : 0;
}

bool ol_cause_is_of_org(const struct ol_cause *cause, const char *org_id)
{
    return cause->org_id && org_id ? strcmp(cause->org_id, org_id) == 0 : cause->org_id == org_id;
}

int ol_cause_refuse(outlog_err *err, const char *said)
{
    return ol_fail_at(err, OUTLOG_UNKNOWN_CAUSATION, "/causation_id",
                      "no event %s in this org; the cause must be stored first", said);
}
