/* field.c: see field.h. */
#include "log/field.h"

#include <stddef.h>

#define FIELD(name, kind)                                 \
    {                                                     \
#name, kind, offsetof(struct outlog_record, name) \
    }

const struct ol_field ol_fields[OL_FIELD_COUNT] = {
    FIELD(event_id, OL_FIELD_NUMBER),
    FIELD(event_type, OL_FIELD_TEXT),
    FIELD(event_version, OL_FIELD_VERSION),
    FIELD(payload, OL_FIELD_JSON),
    // the order of events_read_some
    FIELD(id, OL_FIELD_UUID),
    FIELD(causation_id, OL_FIELD_UUID),
    FIELD(occurred_at, OL_FIELD_TIME),
    FIELD(org_id, OL_FIELD_TEXT),
    FIELD(aggregate_type, OL_FIELD_TEXT),
    FIELD(aggregate_id, OL_FIELD_TEXT),
    FIELD(aggregate_seq, OL_FIELD_NUMBER),
    FIELD(actor_type, OL_FIELD_TEXT),
    FIELD(actor_id, OL_FIELD_TEXT),
    FIELD(request_id, OL_FIELD_TEXT),
    FIELD(idempotency_key, OL_FIELD_TEXT),
    FIELD(correlation_id, OL_FIELD_TEXT),
    FIELD(app_id, OL_FIELD_TEXT),
    FIELD(env_id, OL_FIELD_TEXT),
    FIELD(visibility, OL_FIELD_TEXT),
    FIELD(metadata, OL_FIELD_JSON),
};
