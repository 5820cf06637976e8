/* trace.h: one execution, for programs: its events and its messages. */
#ifndef OL_VIEWS_TRACE_H
#define OL_VIEWS_TRACE_H

#include "base/buf.h"
#include "outlog.h"

struct ol_trace {
    struct outlog_page events;
    struct outlog_message_page messages;
};

/* What has this correlation_id, of the org the filter names if it names one. Start from {0}, and clear it
 * also after an error. Messages are left out unless they are asked for. */
int ol_trace_load(outlog *log, const struct outlog_filter *filter, const char *correlation_id,
                  bool with_messages, struct ol_trace *out, outlog_err *err);
void ol_trace_clear(struct ol_trace *trace);

/* {correlation_id, events, messages} */
void ol_trace_json(const struct ol_trace *trace, const char *correlation_id, struct ol_buf *out);

#endif
