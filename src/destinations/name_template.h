/* name_template.h: subjects, topics, streams and routing keys such as "orders.{event_type}". */
#ifndef OL_DESTINATIONS_NAME_TEMPLATE_H
#define OL_DESTINATIONS_NAME_TEMPLATE_H

#include "base/arena.h"
#include "outlog_publisher.h"

/* The first {…} of a template that is no field of a message, or NULL. */
const char *ol_name_template_unknown_field(const char *template);

/* Put the message's values into the template. A byte of `forbidden` and a control byte become `_`,
 * and so does an absent value: a wildcard in a message must not reach a broker. *out is in `arena`,
 * or the template itself when it has no {…}.
 *
 * OUTLOG_INVALID_FIELD: the name is longer than max_bytes (0: no limit). */
int ol_name_template_fill(const char *template, const struct outlog_delivery *message,
                          const char *forbidden, size_t max_bytes, struct ol_arena *arena,
                          const char **out, outlog_err *err);

#endif
