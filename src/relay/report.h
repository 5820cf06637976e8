/* report.h: what the relay tells people, as lines on standard error (M2). */
#ifndef OL_RELAY_REPORT_H
#define OL_RELAY_REPORT_H

#include "base/line.h"
#include "outlog_publisher.h"

/* A message went from one state to another. */
void ol_report_move(enum ol_line_level level, const struct outlog_message *message,
                    const char *from, const char *to, const char *error);

/* Something happened to a projection; `error` is JSON, or NULL. */
void ol_report_projection(const char *name, const char *what, const char *error);

/* The store does not answer as it should. */
void ol_report_trouble(const outlog_err *err);

#endif
