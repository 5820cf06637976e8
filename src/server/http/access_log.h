/* access_log.h: what the server tells its operator, as lines on standard error (M2). */
#ifndef OL_SERVER_HTTP_ACCESS_LOG_H
#define OL_SERVER_HTTP_ACCESS_LOG_H

#include "server/http/request.h"

/* A line for each answer of 5xx and for each change an admin made; nothing else. Never a body, a
 * query, a header or a token. */
void ol_access_log_write(const struct ol_request *request);

#endif
