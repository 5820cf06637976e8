/* clerk.h: threads that work on requests, each with a connection of its own.
 *
 * The queue is bounded: when it is full a request is refused at once (503), which tells clients to
 * slow down while there is still time to answer those who wait. */
#ifndef OL_API_CLERK_H
#define OL_API_CLERK_H

#include "api/request.h"

struct ol_clerks;

int ol_clerks_open(struct ol_clerks **out, const char *store, int count, size_t most,
                   void (*work)(struct ol_request *request), outlog_err *err);

/* Finish what is queued, then end. */
void ol_clerks_close(struct ol_clerks *clerks);

/* Queue a request; false when the queue is full, or when there are no clerks any more (NULL). */
bool ol_clerks_submit(struct ol_clerks *clerks, struct ol_request *request);

/* In a clerk's thread: a page to read into. It is the clerk's, and its room is used again. */
struct outlog_page *ol_clerk_page(struct ol_request *request);

/* In a clerk's thread: from here on request->log sees the asker's org alone, where the database can
 * see to that (X2). */
int ol_clerk_confine(struct ol_request *request, const char *store, outlog_err *err);

#endif
