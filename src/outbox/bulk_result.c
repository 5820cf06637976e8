/* bulk_result.c: see bulk_result.h. */
#include "outbox/bulk_result.h"

void ol_bulk_result_clear(struct ol_bulk_result *tally)
{
    ol_buf_clear(&tally->ids);
}

void ol_bulk_result_note(void *user, const char *event_id)
{
    struct ol_bulk_result *tally = user;
    tally->count++;
    if (tally->is_dry || tally->named >= tally->most_ids)
        return;
    ol_buf_print(&tally->ids, "%s\"%s\"", tally->named++ ? "," : "", event_id);
}

void ol_bulk_result_json(const struct ol_bulk_result *tally, struct ol_buf *out)
{
    ol_buf_print(out, "{\"%s\":%lld,\"skipped\":%lld,\"dry_run\":%s,\"event_ids\":[", tally->verb,
                 (long long)tally->count, (long long)tally->skipped,
                 tally->is_dry ? "true" : "false");
    ol_buf_add(out, tally->ids.data, tally->ids.bytes);
    ol_buf_text(out, "]}");
    out->failed |= tally->ids.failed;
}
