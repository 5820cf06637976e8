/* cors.h: which hosts and pages may talk to us from a browser.
 *
 * A page of our own may call everything. A page of another origin may open sockets when the setting
 * `serve.origins` names it, and nothing else: what it needs besides, its own server asks us for. */
#ifndef OL_SERVER_HTTP_CORS_H
#define OL_SERVER_HTTP_CORS_H

#include "server/http/request.h"

struct ol_cors;

/* The origins that the store's settings name now. */
int ol_cors_open(struct ol_cors **out, const char *store, outlog_err *err);
void ol_cors_close(struct ol_cors *origins);

/* Read them again; when the store is away they stay as they were. From any thread. */
void ol_cors_refresh(struct ol_cors *origins, outlog *log);

/* Whether the request may be answered. False after having answered 403. `is_dev`: only loopback
 * names. */
bool ol_cors_check(struct ol_request *request, struct ol_cors *origins, bool is_dev);

#endif
