/* read.h: pages of events. */
#ifndef OL_LOG_READ_H
#define OL_LOG_READ_H

#include "log/log.h"

/* Empty the page and return its arena, made at first use; NULL when memory is out. */
struct ol_arena *ol_read_page_reset(struct outlog_page *page);

/* Move all rows of a query whose first columns are those of events_read into the page. */
int ol_read_page_fill(outlog *log, struct outlog_page *page, struct ol_rows *rows, bool raw,
                      bool has_depth, outlog_err *err);

/* The limit of a page that is read for a client: an event can have 256 KiB and more. */
enum { OL_READ_PAGE_BYTES = 8 * 1024 * 1024 };

/* outlog_read(), outlog_read_back() and outlog_follow() with a limit in bytes: a page also ends
 * with the event that makes its payloads and metadata `bytes_max` long (0: no limit). next_after
 * may then be that event, also where it was the last one. */
int ol_read_short(outlog *log, const struct outlog_filter *filter, int64_t after, size_t limit,
                  size_t bytes_max, struct outlog_page *page, outlog_err *err);
int ol_read_back_short(outlog *log, const struct outlog_filter *filter, int64_t before,
                       size_t limit, size_t bytes_max, struct outlog_page *page,
                       int64_t *next_before, outlog_err *err);
int ol_read_follow_short(outlog *log, const struct outlog_filter *filter, int64_t after,
                         size_t limit, size_t bytes_max, int timeout_ms, struct outlog_page *page,
                         outlog_err *err);

/* Read all settled events after `after` as they are stored, with only the fields of `mask`
 * (event_fields.h) set beside event_id, event_type, event_version and payload: for readers that
 * need the whole log, but little of each event. */
int ol_read_some(outlog *log, uint32_t mask, int64_t after, size_t limit, struct outlog_page *page,
                 outlog_err *err);

/* The first and the last event_id among the events of a time window; 0 when it is empty. A bound of
 * 0 is none. */
int ol_read_window(outlog *log, int64_t since, int64_t until, int64_t *first, int64_t *last,
                   outlog_err *err);

/* How much memory the events of a page take. */
size_t ol_read_page_bytes(const struct outlog_page *page);

#endif
