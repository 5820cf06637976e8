/* cors.h: which Host and Origin headers are accepted from a browser.
 *
 * A page of our own origin may call everything. A page of another origin may only open WebSockets,
 * when the setting `serve.origins` names it; for all else its own server calls us. */
#ifndef OL_SERVER_HTTP_CORS_H
#define OL_SERVER_HTTP_CORS_H

#include "server/http/request.h"

struct ol_cors;

/* Load the origins from the store's settings. */
int ol_cors_open(struct ol_cors **out, const char *store, outlog_err *err);
void ol_cors_close(struct ol_cors *cors);

/* Read them again, from any thread. They stay as they were when the store is unreachable. */
void ol_cors_refresh(struct ol_cors *cors, outlog *log);

/* Whether the request is allowed; false after having answered 403. `is_dev`: loopback only. */
bool ol_cors_check(struct ol_request *request, struct ol_cors *cors, bool is_dev);

#endif
