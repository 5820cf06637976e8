/* sinks.c: /v1/sinks. */
#include "server/http/router.h"

#include "log/sink_cursor.h"

struct listing {
    struct ol_buf *out;
    size_t count;
};

static void put(void *user, const struct ol_sink_cursor *sink)
{
    struct listing *listing = user;
    ol_buf_text(listing->out, listing->count++ ? "," : "");
    ol_sink_cursor_json(sink, listing->out);
}

static enum ol_handler_result list(struct ol_request *request)
{
    struct listing listing = {.out = ol_request_reply(request, 200)};
    outlog_err err;

    ol_buf_text(listing.out, "{\"sinks\":[");
    if (ol_sink_cursor_each(request->log, put, &listing, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_text(listing.out, "],\"next_after\":null}");
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_sink_routes[] = {
    {"GET", "/v1/sinks", OL_SCOPE_ADMIN, list, "listSinks",
     "The log streamed to destinations: how far each sink has come", .reply = "SinkList"},
    {0},
};
