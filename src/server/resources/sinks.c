/* sinks.c: /v1/sinks: the position of each sink. */
#include "server/http/router.h"

#include "log/sink_cursor.h"

struct sink_listing {
    struct ol_buf *out;
    size_t count;
};

static void on_sink(void *user, const struct ol_sink_cursor *sink)
{
    struct sink_listing *listing = user;
    ol_buf_text(listing->out, listing->count++ ? "," : "");
    ol_sink_cursor_json(sink, listing->out);
}

static enum ol_handler_result list_sinks(struct ol_request *request)
{
    struct sink_listing listing = {.out = ol_request_reply(request, 200)};
    outlog_err err;

    ol_buf_text(listing.out, "{\"sinks\":[");
    if (ol_sink_cursor_each(request->log, on_sink, &listing, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_text(listing.out, "],\"next_after\":null}");
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_sink_routes[] = {
    {"GET", "/v1/sinks", OL_SCOPE_ADMIN, list_sinks, "listSinks",
     "The log streamed to destinations: the position of each sink", .reply = "SinkList"},
    {0},
};
