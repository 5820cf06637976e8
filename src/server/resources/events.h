/* events.h: a page of events as JSON, for several resources. */
#ifndef OL_SERVER_RESOURCES_EVENTS_H
#define OL_SERVER_RESOURCES_EVENTS_H

#include "base/buf.h"
#include "outlog.h"

/* "events":[…] */
void ol_events_json(const struct outlog_page *page, struct ol_buf *out);

#endif
