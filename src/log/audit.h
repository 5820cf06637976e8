/* audit.h: events about changes by operators. */
#ifndef OL_LOG_AUDIT_H
#define OL_LOG_AUDIT_H

#include "log/log.h"

/* Append an audit event (X4): no org, on the aggregate (aggregate_type, aggregate_id), inside the
 * open transaction. `payload` is a JSON object. */
int ol_audit_append(outlog_tx *tx, const struct outlog_operator *by, const char *event_type,
                    const char *aggregate_type, const char *aggregate_id, const char *payload,
                    outlog_err *err);

#endif
