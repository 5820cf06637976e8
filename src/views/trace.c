/* trace.c: see trace.h. */
#include "views/trace.h"

#include "log/event.h"
#include "outbox/look.h"
#include "views/message.h"

#include <string.h>

static void keep_org(struct outlog_message_page *page, const char *org_id)
{
    size_t kept = 0;
    for (size_t i = 0; i < page->count; i++)
        if (page->messages[i].org_id && strcmp(page->messages[i].org_id, org_id) == 0)
            page->messages[kept++] = page->messages[i];
    page->count = kept;
}

int ol_trace_load(outlog *log, const struct outlog_filter *filter, const char *correlation_id,
                  bool with_messages, struct ol_trace *out, outlog_err *err)
{
    if (outlog_trace(log, filter, correlation_id, &out->events, err) < 0 ||
        (with_messages && ol_look_trace(log, correlation_id, &out->messages, err) < 0))
        return -1;
    if (filter->org_id)
        keep_org(&out->messages, filter->org_id);
    return 0;
}

void ol_trace_clear(struct ol_trace *trace)
{
    outlog_page_clear(&trace->events);
    outlog_message_page_clear(&trace->messages);
}

void ol_trace_json(const struct ol_trace *trace, const char *correlation_id, struct ol_buf *out)
{
    ol_buf_text(out, "{\"correlation_id\":");
    ol_buf_json_text(out, correlation_id);
    ol_buf_char(out, ',');
    ol_records_json(&trace->events, out);
    ol_buf_char(out, ',');
    ol_messages_json(&trace->messages, out);
    ol_buf_char(out, '}');
}
