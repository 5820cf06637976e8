/* projections.c: /v1/projections: list, rebuild, skip, retry, and wait for an event. */
#include "server/http/router.h"

#include "base/clock.h"
#include "projections/checkpoint.h"

#include <stdlib.h>
#include <string.h>

enum { PROJECTIONS_MAX = 1000 };

static enum ol_handler_result list_projections(struct ol_request *request)
{
    struct outlog_projection *all = calloc(PROJECTIONS_MAX, sizeof *all);
    size_t count = 0;
    outlog_err err;

    if (!all)
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    if (outlog_projection_list(request->log, all, PROJECTIONS_MAX, &count, &err) < 0) {
        free(all);
        return ol_problem(request, &err);
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"projections\":[");
    for (size_t i = 0; i < count && i < PROJECTIONS_MAX; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_projection_json(&all[i], out);
    }
    ol_buf_text(out, "],\"next_after\":null}");
    free(all);
    return OL_HANDLER_ANSWERED;
}

/* Answer with the projection after a change. */
static enum ol_handler_result show_projection(struct ol_request *request, int status)
{
    struct outlog_projection projection;
    outlog_err err;
    if (outlog_projection_get(request->log, request->args[0], &projection, &err) < 0)
        return ol_problem(request, &err);
    ol_projection_json(&projection, ol_request_reply(request, status));
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result rebuild_projection(struct ol_request *request)
{
    static const char *const allowed[] = {"aside", NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    bool aside;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0 ||
        ol_request_flag(request, &body, "aside", &aside) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_projection_rebuild(request->log, request->args[0], aside, &by, &err) < 0)
        return ol_problem(request, &err);
    return show_projection(request, 202);
}

static enum ol_handler_result cancel_rebuild(struct ol_request *request)
{
    struct outlog_operator by = ol_request_operator(request);
    outlog_err err;
    if (outlog_projection_cancel(request->log, request->args[0], &by, &err) < 0)
        return ol_problem(request, &err);
    return show_projection(request, 200);
}

static enum ol_handler_result skip_event(struct ol_request *request)
{
    static const char *const allowed[] = {"event_id", NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    int64_t event_id;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_json value = ol_json_get(&body, "event_id");
    if (!ol_json_int(&value, &event_id))
        return ol_problem_say(request, 400, "invalid_field",
                              "event_id names the event to skip, as a number");
    if (outlog_projection_skip(request->log, request->args[0], event_id, &by, &err) < 0)
        return ol_problem(request, &err);
    return show_projection(request, 200);
}

static enum ol_handler_result retry_projection(struct ol_request *request)
{
    struct outlog_operator by = ol_request_operator(request);
    outlog_err err;
    if (outlog_projection_retry(request->log, request->args[0], &by, &err) < 0)
        return ol_problem(request, &err);
    return show_projection(request, 200);
}

/* Read your writes (P4): 200 when the event is applied, 504 when it is not in time. No worker
 * thread sleeps: the handler runs again every few milliseconds. */
static enum ol_handler_result wait_for_projection(struct ol_request *request)
{
    int64_t event_id, timeout_us, reached = 0;
    outlog_err err;

    if (ol_request_number(request, "event_id", 1, INT64_MAX, 0, &event_id) < 0 ||
        ol_request_wait(request, "timeout", 60, 10, &timeout_us) < 0)
        return OL_HANDLER_ANSWERED;
    if (event_id == 0)
        return ol_problem_say(request, 400, "invalid_field", "event_id is the event to wait for");
    if (!request->wait_until)
        request->wait_until = request->began_at + timeout_us;
    if (outlog_projection_wait(request->log, request->args[0], event_id, 0, &reached, &err) < 0) {
        if (err.code != OUTLOG_PROJECTION_BEHIND || ol_clock_boot_us() >= request->wait_until)
            return ol_problem(request, &err);
        request->is_polling = true;
        return OL_HANDLER_WAITING;
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"name\":");
    ol_buf_json_text(out, request->args[0]);
    ol_buf_print(out, ",\"last_applied_event_id\":%lld}", (long long)reached);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_projection_routes[] = {
    {"GET", "/v1/projections", OL_SCOPE_READ, list_projections, "listProjections",
     "Projections, their positions, and what stopped them", .reply = "ProjectionList"},
    {"POST", "/v1/projections/{name}/rebuild", OL_SCOPE_ADMIN, rebuild_projection,
     "rebuildProjection", "Rebuild the view from the whole log", .body = "RebuildOptions",
     .reply = "Projection", .status = 202, .goes_in_parts = true},
    {"POST", "/v1/projections/{name}/cancel", OL_SCOPE_ADMIN, cancel_rebuild, "cancelRebuild",
     "Cancel a rebuild aside", .body = "Empty", .reply = "Projection", .goes_in_parts = true},
    {"POST", "/v1/projections/{name}/skip", OL_SCOPE_ADMIN, skip_event, "skipEvent",
     "Skip an event that cannot be applied", .body = "EventReference", .reply = "Projection"},
    {"POST", "/v1/projections/{name}/retry", OL_SCOPE_ADMIN, retry_projection, "retryProjection",
     "Try again", .body = "Empty", .reply = "Projection"},
    {"GET", "/v1/projections/{name}/wait", OL_SCOPE_READ, wait_for_projection, "waitForProjection",
     "Wait until an event is in the view; timeout in seconds", .query = "event_id timeout",
     .reply = "ProjectionReached", .other_status = 504, .takes_org = true},
    {0},
};
