/* router.h: the routes of the API: one table per resource, which /openapi.json describes too. */
#ifndef OL_SERVER_HTTP_ROUTER_H
#define OL_SERVER_HTTP_ROUTER_H

#include "server/http/request.h"

struct ol_route {
    const char *method, *path; /* "/v1/events/{id}" */
    enum ol_scope scope;       /* OL_SCOPE_NONE: any token */
    enum ol_handler_result (*handle)(struct ol_request *request);
    const char *name;    /* of the operation, unique */
    const char *summary; /* one line */
    const char *query;   /* allowed parameters: "after limit wait" */
    const char *body;    /* schema of the body, or NULL */
    const char *reply;   /* schema of the answer, or its media type; NULL: it has no body */
    int status;          /* of success; 0: 200 */
    int other_status;    /* also possible; 0: none */
    bool has_own_key;    /* the handler itself honours Idempotency-Key */
    bool takes_lines;    /* also as NDJSON: one body per line, one answer per line */
    bool goes_in_parts;  /* uses several transactions, or none: see idempotency_key.c */
    bool runs_in_loop;   /* small requests run in the loop: the handler never waits for a store */
    bool is_instant;     /* runs in the loop, without store or token */
    bool is_open;        /* needs no token */
    bool takes_org;      /* allowed for a token that is bound to an org */
    bool is_confined;    /* reads only events: row security applies too (worker_pool.h) */
    /* Instead of handle: runs in a transaction, which is committed when the status is success. */
    enum ol_handler_result (*change)(struct ol_request *request, outlog_tx *tx);
    int tag; /* for the handler */
};

/* All tables; each ends with a route without path. */
extern const struct ol_route *const ol_routes[];

/* Find the route and fill request->route and args. False after having answered 404, 405 or 400. */
bool ol_router_find(struct ol_request *request);

/* Whether the query has only parameters that the route allows; false after having answered. */
bool ol_router_check_query(struct ol_request *request);

extern const struct ol_route ol_event_routes[], ol_trace_routes[], ol_message_routes[],
    ol_destination_routes[], ol_consumer_routes[], ol_token_routes[], ol_stats_routes[],
    ol_metrics_routes[], ol_health_routes[], ol_console_routes[], ol_openapi_routes[],
    ol_run_routes[], ol_projection_routes[], ol_session_routes[], ol_notification_routes[],
    ol_sink_routes[];

#endif
