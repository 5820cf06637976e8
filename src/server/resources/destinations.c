/* destinations.c: /v1/destinations: settings, health, pause and resume, test messages. */
#include "server/http/router.h"

#include "base/err.h"
#include "config/apply.h"
#include "outbox/destination_health.h"
#include "publish/test_send.h"

#include <stdio.h>
#include <string.h>

static enum ol_handler_result list_destinations(struct ol_request *request)
{
    struct ol_destination_healths all;
    outlog_err err;

    if (ol_destination_health_list(request->log, &request->arena, &all, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"destinations\":[");
    for (size_t i = 0; i < all.count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_destination_health_json(&all.all[i], out);
    }
    ol_buf_text(out, "],\"next_after\":null}");
    return OL_HANDLER_ANSWERED;
}

/* Answer with the destination that the path names. */
static enum ol_handler_result show_destination(struct ol_request *request, int status)
{
    struct ol_destination_healths all;
    outlog_err err;

    if (ol_destination_health_list(request->log, &request->arena, &all, &err) < 0)
        return ol_problem(request, &err);
    const struct ol_destination_health *found = ol_destination_health_find(&all, request->args[0]);
    if (!found)
        return ol_problem_say(request, 404, "not_found", "there is no destination %.100s",
                              request->args[0]);
    ol_destination_health_json(found, ol_request_reply(request, status));
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_destination(struct ol_request *request)
{
    return show_destination(request, 200);
}

/* --- configuring --- */

static struct ol_config_options make_options(struct ol_request *request)
{
    struct outlog_operator by = ol_request_operator(request);
    return (struct ol_config_options){.actor_type = by.actor_type,
                                      .actor_id = by.actor_id,
                                      .request_id = by.request_id};
}

/* The body was wrapped into a configuration file: make the error point into the body. */
static enum ol_handler_result answer_error(struct ol_request *request, outlog_err *err)
{
    char *after = err->pointer;
    for (int slashes = 0; *after; after++)
        if (*after == '/' && ++slashes == 3)
            break;
    memmove(err->pointer, after, strlen(after) + 1);
    return ol_problem(request, err);
}

static enum ol_handler_result put_destination(struct ol_request *request)
{
    const struct ol_config_options options = make_options(request);
    struct ol_buf file = {0};
    struct ol_config_diffs changes;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, NULL, &body) < 0)
        return OL_HANDLER_ANSWERED;
    ol_buf_text(&file, "{\"destinations\":{");
    ol_buf_json_text(&file, request->args[0]);
    ol_buf_char(&file, ':');
    ol_buf_add(&file, body.text, body.bytes);
    ol_buf_text(&file, "}}");
    int result = file.failed ? ol_no_memory(&err)
                             : ol_config_apply(request->log, file.data, file.bytes, &options,
                                               &request->arena, &changes, &err);
    ol_buf_clear(&file);
    if (result < 0)
        return answer_error(request, &err);
    return show_destination(request,
                            changes.count && changes.all[0].kind == OL_DIFF_ADD ? 201 : 200);
}

static enum ol_handler_result delete_destination(struct ol_request *request)
{
    const struct ol_config_options options = make_options(request);
    outlog_err err;
    if (ol_config_remove(request->log, request->args[0], &options, &err) < 0)
        return ol_problem(request, &err);
    ol_request_reply(request, 204);
    request->content_type = NULL;
    return OL_HANDLER_ANSWERED;
}

/* --- operating --- */

static enum ol_handler_result set_paused(struct ol_request *request, bool is_paused)
{
    static const char *const allowed[] = {NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_destination_pause(request->log, request->args[0], is_paused, &by, NULL, &err) < 0)
        return ol_problem(request, &err);
    return show_destination(request, 200);
}

static enum ol_handler_result pause_destination(struct ol_request *request)
{
    return set_paused(request, true);
}

static enum ol_handler_result resume_destination(struct ol_request *request)
{
    return set_paused(request, false);
}

static enum ol_handler_result deliver_destination(struct ol_request *request)
{
    static const char *const allowed[] = {NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    int64_t hurried;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_deliver(request->log, request->args[0], &by, &hurried, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_print(ol_request_reply(request, 202), "{\"hurried\":%lld}", (long long)hurried);
    return OL_HANDLER_ANSWERED;
}

/* It occupies an worker thread for at most the destination's timeout. */
static enum ol_handler_result test_destination(struct ol_request *request)
{
    static const char *const allowed[] = {"payload", NULL};
    const char *payload = NULL;
    struct ol_test_send test;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_json given = ol_json_get(&body, "payload");
    if (given.type != OL_JSON_NONE &&
        !(payload = ol_arena_copy(&request->arena, given.text, given.bytes)))
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    if (ol_test_send_run(request->log, request->args[0], payload, &test, &err) < 0)
        return ol_problem(request, &err);
    ol_test_send_json(&test, ol_request_reply(request, 200));
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_destination_routes[] = {
    {"GET", "/v1/destinations", OL_SCOPE_ADMIN, list_destinations, "listDestinations",
     "Destinations of messages, and their health", .reply = "DestinationList"},
    {"GET", "/v1/destinations/{name}", OL_SCOPE_ADMIN, get_destination, "getDestination",
     "One destination", .reply = "Destination"},
    {"PUT", "/v1/destinations/{name}", OL_SCOPE_ADMIN, put_destination, "putDestination",
     "Create or change a destination: the keys of outlog.yaml; 201 when it is new",
     .body = "DestinationSettings", .reply = "Destination", .other_status = 201},
    {"DELETE", "/v1/destinations/{name}", OL_SCOPE_ADMIN, delete_destination, "deleteDestination",
     "Delete a destination that is not used any more", .status = 204},
    {"POST", "/v1/destinations/{name}/pause", OL_SCOPE_ADMIN, pause_destination, "pauseDestination",
     "Send nothing there; its messages wait", .body = "Empty", .reply = "Destination"},
    {"POST", "/v1/destinations/{name}/resume", OL_SCOPE_ADMIN, resume_destination,
     "resumeDestination", "Send again", .body = "Empty", .reply = "Destination"},
    {"POST", "/v1/destinations/{name}/test", OL_SCOPE_ADMIN, test_destination, "testDestination",
     "Send one message that bypasses the outbox, and return its outcome", .body = "Test",
     .reply = "Trial", .goes_in_parts = true},
    {"POST", "/v1/destinations/{name}/deliver", OL_SCOPE_ADMIN, deliver_destination,
     "deliverDestination", "Send now what waits for its next attempt or its time", .body = "Empty",
     .reply = "Hurried", .status = 202, .goes_in_parts = true},
    {0},
};
