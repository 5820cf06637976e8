/* event_fields.c: see event_fields.h. */
#include "log/event_fields.h"

#include <stddef.h>

#define FIELD(name, kind)                                \
    {                                                    \
#name, kind, offsetof(struct outlog_event, name) \
    }

const struct ol_event_field ol_fields[OL_EVENT_FIELD_COUNT] = {
    FIELD(event_id, OL_EVENT_FIELD_NUMBER),
    FIELD(event_type, OL_EVENT_FIELD_TEXT),
    FIELD(event_version, OL_EVENT_FIELD_VERSION),
    FIELD(payload, OL_EVENT_FIELD_JSON),
    // the order of events_read_some
    FIELD(id, OL_EVENT_FIELD_UUID),
    FIELD(causation_id, OL_EVENT_FIELD_UUID),
    FIELD(occurred_at, OL_EVENT_FIELD_TIME),
    FIELD(org_id, OL_EVENT_FIELD_TEXT),
    FIELD(aggregate_type, OL_EVENT_FIELD_TEXT),
    FIELD(aggregate_id, OL_EVENT_FIELD_TEXT),
    FIELD(aggregate_seq, OL_EVENT_FIELD_NUMBER),
    FIELD(actor_type, OL_EVENT_FIELD_TEXT),
    FIELD(actor_id, OL_EVENT_FIELD_TEXT),
    FIELD(request_id, OL_EVENT_FIELD_TEXT),
    FIELD(idempotency_key, OL_EVENT_FIELD_TEXT),
    FIELD(correlation_id, OL_EVENT_FIELD_TEXT),
    FIELD(app_id, OL_EVENT_FIELD_TEXT),
    FIELD(env_id, OL_EVENT_FIELD_TEXT),
    FIELD(visibility, OL_EVENT_FIELD_TEXT),
    FIELD(metadata, OL_EVENT_FIELD_JSON),
};
