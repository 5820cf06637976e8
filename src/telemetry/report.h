/* report.h: the log lines of the relay, on standard error (M2). */
#ifndef OL_TELEMETRY_REPORT_H
#define OL_TELEMETRY_REPORT_H

#include "base/logline.h"
#include "outlog_publisher.h"

/* A message went from one state to another. */
void ol_report_move(enum ol_logline_level level, const struct outlog_delivery *message,
                    const char *from, const char *to, const char *error);

/* A part of what is known of a message could not be stored: an attempt, an alert, an effect. */
void ol_report_omitted(const struct outlog_delivery *message, const char *what,
                       const outlog_err *why);

/* A lane stands still for this reason; NULL: it moves again. */
void ol_report_lane(int lane, const outlog_err *why);

/* Messages wait because their destination cannot be used; NULL: it works again, or is gone. */
void ol_report_destination(const char *destination, const char *why);

/* Something happened to a projection; `error` is JSON, or NULL. */
void ol_report_projection(const char *name, const char *what, const char *error);

/* A query failed. */
void ol_report_store_error(const outlog_err *err);

#endif
