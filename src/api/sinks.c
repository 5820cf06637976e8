/* sinks.c: /v1/sinks. */
#include "api/route.h"

#include "relay/outflow.h"

struct listing {
    struct ol_buf *out;
    size_t count;
};

static void put(void *user, const struct ol_outflow *sink)
{
    struct listing *listing = user;
    ol_buf_text(listing->out, listing->count++ ? "," : "");
    ol_outflow_json(sink, listing->out);
}

static enum ol_answer list(struct ol_request *request)
{
    struct listing listing = {.out = ol_request_reply(request, 200)};
    outlog_err err;

    ol_buf_text(listing.out, "{\"sinks\":[");
    if (ol_outflow_each(request->log, put, &listing, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_text(listing.out, "],\"next_after\":null}");
    return OL_ANSWERED;
}

const struct ol_route ol_sink_routes[] = {
    {"GET", "/v1/sinks", OL_SCOPE_ADMIN, list, "listSinks",
     "The log streamed to destinations: how far each sink has come", .reply = "SinkList"},
    {0},
};
