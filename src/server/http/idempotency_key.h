/* idempotency_key.h: a POST with an Idempotency-Key is executed once (I1).
 *
 * A key is scoped to the org, the token and the operation. Only successful answers are stored; a
 * repeat gets the same bytes, with Idempotency-Replayed: true. */
#ifndef OL_SERVER_HTTP_IDEMPOTENCY_KEY_H
#define OL_SERVER_HTTP_IDEMPOTENCY_KEY_H

#include "server/http/request.h"

/* The key of the request, without quotes; NULL when it has none. -1 after having answered. */
int ol_idempotency_key_read(struct ol_request *request, const char **out);

/* Run the route in one transaction with its key and its answer. A route that goes in parts runs
 * between two transactions: one claims the key, the other stores the answer. */
enum ol_handler_result ol_idempotency_key_run(struct ol_request *request);

#endif
