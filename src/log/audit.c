/* audit.c: one event per change that an operator makes (X4). */
#include "log/audit.h"

#include "log/log.h"

int ol_audit_append(outlog_tx *tx, const struct outlog_operator *by, const char *event_type,
                    const char *aggregate_type, const char *aggregate_id, const char *payload,
                    outlog_err *err)
{
    struct outlog_appended appended;
    struct outlog_new_event event = {.is_infrastructure = true,
                                     .aggregate_type = aggregate_type,
                                     .aggregate_id = aggregate_id,
                                     .event_type = event_type,
                                     .payload = payload,
                                     .actor_type = by ? by->actor_type : NULL,
                                     .actor_id = by ? by->actor_id : NULL,
                                     .request_id = by ? by->request_id : NULL};
    return ol_append_own(tx, &event, 1, &appended, err);
}
