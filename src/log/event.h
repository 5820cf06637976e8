/* event.h: the checks of a new event, and its JSON forms. */
#ifndef OL_LOG_EVENT_H
#define OL_LOG_EVENT_H

#include "base/buf.h"
#include "base/json/json.h"

/* Check every field against its limit (E16) and the payload for being a JSON object. The error
 * names the field and its pointer; nothing is ever cut to fit. */
int ol_event_check(const struct outlog_new_event *event, struct ol_json *payload,
                   struct ol_json *metadata, outlog_err *err);

/* Refuse a type that only outlog's own commands may write (X1). */
int ol_event_refuse_reserved(const char *event_type, outlog_err *err);

/* The request that an idempotency key stands for: the same text for every interface. */
void ol_event_request(const struct outlog_new_event *events, size_t count, struct ol_buf *out);

/* The answer as it is stored and as HTTP gives it: {"events":[…],"messages":[]}. */
void ol_event_response(const struct outlog_appended *appended, size_t count, struct ol_buf *out);

/* Read such an answer back; it must hold `count` events. All of them become duplicates. */
int ol_event_replay(const char *response, struct outlog_appended *appended, size_t count,
                    outlog_err *err);

/* An append result, and an event, as the JSON objects of the contract. */
void ol_event_write_appended(const struct outlog_appended *appended, struct ol_buf *out);
void ol_event_write_json(const struct outlog_event *record, struct ol_buf *out);

#endif
