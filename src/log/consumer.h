/* consumer.h: changes of consumers by operators, and their JSON. */
#ifndef OL_LOG_CONSUMER_H
#define OL_LOG_CONSUMER_H

#include "base/buf.h"
#include "outlog.h"

/* Like outlog_consumer_reset() and so on, with the operator (X4), who may be NULL. */
int ol_consumer_reset(outlog *log, const char *name, int64_t to, const struct outlog_operator *by,
                      outlog_err *err);
int ol_consumer_reset_to_time(outlog *log, const char *name, int64_t at_time,
                              const struct outlog_operator *by, outlog_err *err);
int ol_consumer_delete(outlog *log, const char *name, const struct outlog_operator *by,
                       outlog_err *err);

void ol_consumer_json(const struct outlog_consumer *consumer, struct ol_buf *out);

#endif
