/* idempotency_key.h: a POST with an Idempotency-Key is done once (I1).
 *
 * Scope of a key: org, who asks, the operation. Only answers of success are kept; they come again
 * word for word, with Idempotency-Replayed: true. */
#ifndef OL_SERVER_HTTP_IDEMPOTENCY_KEY_H
#define OL_SERVER_HTTP_IDEMPOTENCY_KEY_H

#include "server/http/request.h"

/* The key of the request, without its quotes; NULL when it has none. -1 after having answered. */
int ol_idempotency_key_read(struct ol_request *request, const char **out);

/* Run the route in one transaction with its key and its answer; or, where it goes in parts, between
 * the two. */
enum ol_handler_result ol_idempotency_key_run(struct ol_request *request);

#endif
