/* operate.h: what people do to messages. The calls themselves are public: see outlog.h, "operating
 * messages". */
#ifndef OL_OUTBOX_OPERATE_H
#define OL_OUTBOX_OPERATE_H

#include "log/log.h"

enum { OL_OPERATE_CHUNK = 500, OL_OPERATE_IDS = 1000 };

/* Append an audit event (X4): no org, on the aggregate (aggregate_type, aggregate_id), inside the
 * open transaction. `payload` is a JSON object. */
int ol_operate_audit(outlog_tx *tx, const struct outlog_operator *by, const char *event_type,
                     const char *aggregate_type, const char *aggregate_id, const char *payload,
                     outlog_err *err);

/* What went wrong, without the numbers that differ from message to message: a run of digits is #, but a
 * status stays. NULL: no memory. */
const char *ol_operate_general(const char *error, struct ol_arena *arena);

#endif
