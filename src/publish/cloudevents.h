/* cloudevents.h: a message as a CloudEvent 1.0 (D8). Pure. */
#ifndef OL_PUBLISH_CLOUDEVENTS_H
#define OL_PUBLISH_CLOUDEVENTS_H

#include "net/headers.h"

/* How a destination's messages are wrapped; names as in its settings. */
enum ol_envelope { OL_ENVELOPE_NONE, OL_ENVELOPE_CLOUDEVENTS_BINARY, OL_ENVELOPE_CLOUDEVENTS };
extern const char *const ol_envelope_names[];

/* The attributes: id = event_id, type = event_type, time = created_at, subject =
 * aggregate_type/aggregate_id, source = `source`, or "/outlog/<org_id>" when NULL. Extensions where
 * the message has the value: orgid, correlationid, causationid, partitionkey, idempotencykey,
 * traceparent (that of the origin; the HTTP header is that of this hop). */

/* Binary mode: one ce-… header per attribute, percent-encoded by the HTTP binding. The body stays
 * the payload, and Content-Type its type. */
int ol_cloudevents_binary(const struct outlog_delivery *message, const char *source,
                          struct ol_headers *headers, outlog_err *err);

/* The attributes as pairs, each name after `prefix`, values unencoded: for brokers, whose bindings
 * leave UTF-8 alone ("ce_" for Kafka, "" for MQTT 5). The list is in `arena`. */
int ol_cloudevents_list(const struct outlog_delivery *message, const char *source,
                        const char *prefix, struct ol_arena *arena, struct outlog_header **list,
                        size_t *count, outlog_err *err);

/* Structured mode: the JSON event, to be sent as OL_CLOUDEVENTS_JSON. A payload of a JSON type
 * becomes `data` byte for byte; any other, or one that does not parse, becomes data_base64. Returns
 * 0, or -1 when memory is out. */
int ol_cloudevents_structured(const struct outlog_delivery *message, const char *source,
                              struct ol_buf *out);

#define OL_CLOUDEVENTS_JSON "application/cloudevents+json; charset=UTF-8"

/* Whether a content type (NULL: JSON) means JSON: application/json, text/json, a/b+json. */
bool ol_cloudevents_is_json(const char *content_type);

#endif
