/* events.h: events in answers. */
#ifndef OL_API_EVENTS_H
#define OL_API_EVENTS_H

#include "base/buf.h"
#include "outlog.h"

/* "events":[…] */
void ol_events_json(const struct outlog_page *page, struct ol_buf *out);

#endif
