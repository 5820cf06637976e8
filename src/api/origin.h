/* origin.h: which hosts and pages may talk to us from a browser.
 *
 * A page of our own may call everything. A page of another origin may open sockets when the setting
 * `serve.origins` names it, and nothing else: what it needs besides, its own server asks us for. */
#ifndef OL_API_ORIGIN_H
#define OL_API_ORIGIN_H

#include "api/request.h"

struct ol_origins;

/* The origins that the store's settings name now. */
int ol_origins_open(struct ol_origins **out, const char *store, outlog_err *err);
void ol_origins_close(struct ol_origins *origins);

/* Read them again; when the store is away they stay as they were. From any thread. */
void ol_origins_refresh(struct ol_origins *origins, outlog *log);

/* Whether the request may be answered. False after having answered 403. `is_dev`: only loopback names. */
bool ol_origin_check(struct ol_request *request, struct ol_origins *origins, bool is_dev);

#endif
