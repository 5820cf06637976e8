/* event_json.h: a new event as a JSON object: an NDJSON line, the argument of the SQLite function,
 * an element of an HTTP command. */
#ifndef OL_LOG_EVENT_JSON_H
#define OL_LOG_EVENT_JSON_H

#include "base/json/json.h"

/* Read one event. What the object leaves out comes from `defaults`. Strings live in `arena`; the
 * payload and metadata are copied byte for byte. org_id: null is an infrastructure event.
 *
 * OUTLOG_UNKNOWN_FIELD: a member we do not know; err names it.
 * OUTLOG_INVALID_FIELD: a member of the wrong type. */
int ol_event_json_read(const char *text, size_t bytes, const struct outlog_new_event *defaults,
                       struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err);

/* The same from a value that is validated already. */
int ol_event_json_take(const struct ol_json *object, const struct outlog_new_event *defaults,
                       struct ol_arena *arena, struct outlog_new_event *out, outlog_err *err);

/* Label an event as part of backfill `name` (E12): metadata.backfill, and an id made from its
 * content, so that loading it again adds nothing. */
int ol_event_json_backfill(struct outlog_new_event *event, const char *name, struct ol_arena *arena,
                           outlog_err *err);

#endif
