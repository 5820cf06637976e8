/* http_pool.h: requests to one destination, over a pool of connections of its own. */
#ifndef OL_NET_HTTP_POOL_H
#define OL_NET_HTTP_POOL_H

#include "net/http_client.h"

struct ol_http_pool;

/* Open a pool that keeps up to `connections` connections (0: 512) and reports to `done`. */
int ol_http_pool_open(struct ol_http_client *http, int connections, ol_http_client_done *done,
                      void *owner, struct ol_http_pool **out, outlog_err *err);

/* Ends the transfers in flight, with a response for each, then closes the connections. NULL is
 * allowed. */
void ol_http_pool_close(struct ol_http_pool *pool);

/* Start one transfer. It leaves with the next drive or flush, or before. 0: `done` will be called
 * once, from ol_http_client_drive or a function of a pool. -1: it cannot be started (memory), and
 * `done` will not be called. */
int ol_http_pool_start(struct ol_http_pool *pool, const struct ol_http_client_request *request,
                       outlog_err *err);

/* End the transfer with this tag now. */
void ol_http_pool_abandon(struct ol_http_pool *pool, void *tag);

#endif
