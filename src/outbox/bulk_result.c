/* bulk_result.c: counts messages and writes the result as JSON. */
#include "outbox/bulk_result.h"

void ol_bulk_result_clear(struct ol_bulk_result *result)
{
    ol_buf_clear(&result->ids);
}

void ol_bulk_result_note(void *user, const char *event_id)
{
    struct ol_bulk_result *result = user;
    result->count++;
    if (result->is_dry || result->named >= result->ids_max)
        return;
    ol_buf_print(&result->ids, "%s\"%s\"", result->named++ ? "," : "", event_id);
}

void ol_bulk_result_json(const struct ol_bulk_result *result, struct ol_buf *out)
{
    ol_buf_print(out, "{\"%s\":%lld,\"skipped\":%lld,\"dry_run\":%s,\"event_ids\":[", result->verb,
                 (long long)result->count, (long long)result->skipped,
                 result->is_dry ? "true" : "false");
    ol_buf_add(out, result->ids.data, result->ids.bytes);
    ol_buf_text(out, "]}");
    out->failed |= result->ids.failed;
}
