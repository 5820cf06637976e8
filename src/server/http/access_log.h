/* access_log.h: the server's log of requests, as lines on standard error (M2). */
#ifndef OL_SERVER_HTTP_ACCESS_LOG_H
#define OL_SERVER_HTTP_ACCESS_LOG_H

#include "server/http/request.h"

/* Write a line for each 5xx answer and each successful change by an admin; nothing else. It never
 * contains a body, a query, a header or a token. */
void ol_access_log_write(const struct ol_request *request);

#endif
