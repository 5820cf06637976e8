/* filter.h: which events: the fields of struct outlog_filter, as JSON, as parameters of a query,
 * and against an event in memory. */
#ifndef OL_LOG_FILTER_H
#define OL_LOG_FILTER_H

#include "base/buf.h"
#include "base/json/json.h"
#include "store/event_fields.h"
#include "store/store.h"

/* A filter as JSON, and back. The names are those of the fields; unknown ones are refused. Times
 * and `raw` are not part of it.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: err names the member. */
void ol_filter_write(const struct outlog_filter *filter, struct ol_buf *out);
int ol_filter_read(const char *json, struct ol_arena *arena, struct outlog_filter *out,
                   outlog_err *err);

/* OUTLOG_INVALID_FIELD: a text is not UTF-8, or infrastructure events are wanted of an org. */
int ol_filter_check(const struct outlog_filter *filter, outlog_err *err);

/* The parameters of events_read from `infrastructure` to `org_key`. */
enum { OL_FILTER_PARAMS = OL_EVENT_FILTER_COUNT + 4 };
void ol_filter_params(const struct outlog_filter *filter, struct ol_value *params);

/* Does the filter take this event? */
bool ol_filter_matches(const struct outlog_filter *filter, const struct outlog_event *event);

#endif
