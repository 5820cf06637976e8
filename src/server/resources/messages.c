/* messages.c: /v1/messages: enqueue, list, requeue, kill and release messages of the outbox. */
#include "server/http/request_span.h"
#include "server/http/router.h"

#include "base/traceparent.h"
#include "outbox/bulk_result.h"
#include "outbox/enqueue.h"
#include "outbox/message_view.h"
#include "outbox/waiting.h"

#include <string.h>

/* --- enqueueing --- */

static enum ol_handler_result enqueue_message(struct ol_request *request, outlog_tx *tx)
{
    struct outlog_new_message message = {0};
    struct outlog_enqueued stored;
    struct ol_json body;
    char warning[200];
    bool is_unknown;
    outlog_err err;

    if (ol_request_object(request, NULL, &body) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_message_json_read(body.text, body.bytes, &request->arena, &message, &err) < 0)
        return ol_problem(request, &err);
    if (ol_request_org(request, message.org_id, &message.org_id) < 0)
        return OL_HANDLER_ANSWERED;
    const char *traceparent = ol_request_span_traceparent(request, message.correlation_id);
    if (traceparent &&
        !(message.metadata = ol_traceparent_store(traceparent, message.metadata, &request->arena)))
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    if (outlog_enqueue(tx, &message, &stored, &err) < 0)
        return ol_problem(request, &err);
    if (ol_waiting_is_unknown(tx->conn, message.destination, &is_unknown, warning, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, stored.duplicate ? 200 : 201);
    ol_buf_print(out, "{\"event_id\":\"%s\",\"duplicate\":%s", stored.event_id,
                 stored.duplicate ? "true" : "false");
    if (is_unknown) {
        ol_buf_text(out, ",\"warnings\":[{\"code\":\"unknown_destination\",\"detail\":");
        ol_buf_json_text(out, warning);
        ol_buf_text(out, ",\"pointer\":\"/destination\"}]");
    }
    ol_buf_char(out, '}');
    return OL_HANDLER_ANSWERED;
}

/* --- reading --- */

static enum ol_handler_result list_messages(struct ol_request *request)
{
    struct outlog_message_filter filter = {
        .state = ol_request_param(request, "state"),
        .destination = ol_request_param(request, "destination"),
        .event_type = ol_request_param(request, "event_type"),
    };
    const char *retrying = ol_request_param(request, "retrying");
    struct outlog_message_page page = {0};
    int64_t limit;
    outlog_err err;

    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0 ||
        ol_request_time(request, "since", &filter.since) < 0 ||
        ol_request_time(request, "until", &filter.until) < 0)
        return OL_HANDLER_ANSWERED;
    if (retrying && strcmp(retrying, "true") != 0 && strcmp(retrying, "false") != 0)
        return ol_problem_say(request, 400, "invalid_field", "retrying must be true or false");
    filter.is_retrying = retrying && *retrying == 't';
    if (outlog_messages(request->log, &filter, ol_request_param(request, "after"), (size_t)limit,
                        &page, &err) < 0) {
        outlog_message_page_clear(&page);
        return ol_problem(request, &err);
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_message_view_list_json(&page, out);
    ol_buf_text(out, ",\"next_after\":");
    ol_buf_json_text(out, page.next_after);
    ol_buf_char(out, '}');
    outlog_message_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

/* Answer with the message that the path names; `alone` with payload and attempts. */
static enum ol_handler_result show_message(struct ol_request *request, bool alone)
{
    struct outlog_message_page page = {0};
    outlog_err err;
    if (outlog_message_get(request->log, request->args[0], &page, &err) < 0)
        ol_problem(request, &err);
    else
        ol_message_view_json(&page.messages[0], alone, ol_request_reply(request, 200));
    outlog_message_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_message(struct ol_request *request)
{
    return show_message(request, true);
}

/* --- operating --- */

enum { BULK_IDS_MAX = 10000 };

static int read_options(struct ol_request *request, const struct ol_json *body,
                        struct ol_bulk_result *bulk, struct outlog_requeue *options)
{
    bulk->ids_max = BULK_IDS_MAX;
    *options = (struct outlog_requeue){.by = ol_request_operator(request),
                                       .on_message = ol_bulk_result_note,
                                       .user = bulk};
    if (ol_request_flag(request, body, "dry_run", &options->dry_run) < 0 ||
        ol_request_flag(request, body, "even_if_unknown", &options->even_if_unknown) < 0)
        return -1;
    bulk->is_dry = options->dry_run;
    return 0;
}

static enum ol_handler_result answer_result(struct ol_request *request, struct ol_bulk_result *bulk,
                                            int result, const outlog_err *err)
{
    if (result == 0)
        ol_bulk_result_json(bulk, ol_request_reply(request, 200));
    else
        ol_problem(request, err);
    ol_bulk_result_clear(bulk);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result requeue_message(struct ol_request *request)
{
    static const char *const allowed[] = {"dry_run", "even_if_unknown", NULL};
    struct ol_bulk_result bulk = {.verb = "requeued"};
    struct outlog_requeue options;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0 ||
        read_options(request, &body, &bulk, &options) < 0)
        return OL_HANDLER_ANSWERED;
    int result = outlog_requeue_ids(request->log, &request->args[0], 1, &options, &err);
    return answer_result(request, &bulk, result, &err);
}

static int read_filter(struct ol_request *request, const struct ol_json *body,
                       struct outlog_message_filter *filter, bool *is_narrow)
{
    if (ol_request_text(request, body, "state", &filter->state) < 0 ||
        ol_request_text(request, body, "destination", &filter->destination) < 0 ||
        ol_request_text(request, body, "event_type", &filter->event_type) < 0 ||
        ol_request_text(request, body, "error", &filter->error) < 0 ||
        ol_request_flag(request, body, "retrying", &filter->is_retrying) < 0 ||
        ol_request_member_time(request, body, "since", &filter->since) < 0 ||
        ol_request_member_time(request, body, "until", &filter->until) < 0)
        return -1;
    *is_narrow = filter->destination || filter->event_type || filter->since || filter->until ||
                 filter->error || filter->is_retrying;
    return 0;
}

static int read_requeue_filter(struct ol_request *request, const struct ol_json *body,
                               struct outlog_message_filter *filter)
{
    bool is_narrow;
    if (read_filter(request, body, filter, &is_narrow) < 0)
        return -1;
    bool is_published = filter->state && strcmp(filter->state, "PUBLISHED") == 0;
    if (filter->state && !is_published && strcmp(filter->state, "DEAD") != 0)
        ol_problem_say(request, 400, "invalid_field", "state is DEAD or PUBLISHED");
    else if (!is_narrow && !filter->state)
        ol_problem_say(request, 400, "invalid_field",
                       "requeue what? state DEAD means all dead letters; or destination, "
                       "event_type, since, until");
    else if (!is_narrow && is_published)
        ol_problem_say(request, 400, "invalid_field",
                       "everything ever published is too much: narrow it by destination, "
                       "event_type, since or until");
    else
        return 0;
    return -1;
}

static int read_kill_filter(struct ol_request *request, const struct ol_json *body,
                            struct outlog_message_filter *filter)
{
    bool is_narrow;
    if (read_filter(request, body, filter, &is_narrow) < 0)
        return -1;
    if (filter->state && strcmp(filter->state, "PENDING") != 0)
        ol_problem_say(request, 400, "invalid_field", "state is PENDING: nothing else is killed");
    else if (!is_narrow && !filter->state)
        ol_problem_say(request, 400, "invalid_field",
                       "kill what? state PENDING means everything that waits; or destination, "
                       "event_type, retrying, error, since, until");
    else
        return 0;
    return -1;
}

/* A change of all messages that a body selects. */
struct message_change {
    const char *verb;
    const char *const *allowed;
    int (*read)(struct ol_request *request, const struct ol_json *body,
                struct outlog_message_filter *filter);
    int (*apply)(outlog *log, const struct outlog_message_filter *filter,
                 const struct outlog_requeue *options, int64_t *changed, int64_t *skipped,
                 outlog_err *err);
};

/* It works in chunks: after an error the earlier chunks stay changed. */
static enum ol_handler_result change_messages(struct ol_request *request,
                                              const struct message_change *change)
{
    struct ol_bulk_result bulk = {.verb = change->verb};
    struct outlog_message_filter filter = {0};
    struct outlog_requeue options;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, change->allowed, &body) < 0 ||
        read_options(request, &body, &bulk, &options) < 0 ||
        change->read(request, &body, &filter) < 0)
        return OL_HANDLER_ANSWERED;
    int result = change->apply(request->log, &filter, &options, NULL, &bulk.skipped, &err);
    return answer_result(request, &bulk, result, &err);
}

static enum ol_handler_result requeue_messages(struct ol_request *request)
{
    static const char *const allowed[] = {"state",           "destination", "event_type",
                                          "since",           "until",       "dry_run",
                                          "even_if_unknown", "error",       NULL};
    return change_messages(request,
                           &(struct message_change){"requeued", allowed, read_requeue_filter,
                                                    outlog_requeue_all});
}

static enum ol_handler_result kill_messages(struct ol_request *request)
{
    static const char *const allowed[] = {"state", "destination", "event_type", "retrying", "error",
                                          "since", "until",       "dry_run",    NULL};
    return change_messages(request, &(struct message_change){"killed", allowed, read_kill_filter,
                                                             outlog_kill_all});
}

static enum ol_handler_result kill_message(struct ol_request *request)
{
    static const char *const allowed[] = {NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_kill(request->log, &request->args[0], 1, &by, &err) < 0)
        return ol_problem(request, &err);
    return show_message(request, false);
}

/* With `on_dead: hold`: the later messages of a dead message's key are sent without it. */
static enum ol_handler_result release_message(struct ol_request *request)
{
    static const char *const allowed[] = {NULL};
    struct outlog_operator by = ol_request_operator(request);
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_release_keys(request->log, &request->args[0], 1, &by, &err) < 0)
        return ol_problem(request, &err);
    return show_message(request, false);
}

const struct ol_route ol_message_routes[] = {
    {"POST", "/v1/messages", OL_SCOPE_APPEND, NULL, "enqueueMessage",
     "Add a message to the outbox; 200 when its key exists already", .body = "MessageDraft",
     .reply = "Enqueued", .status = 201, .other_status = 200, .takes_org = true,
     .change = enqueue_message},
    {"GET", "/v1/messages", OL_SCOPE_ADMIN, list_messages, "listMessages", "Messages, newest first",
     .query = "state destination event_type retrying since until limit after",
     .reply = "MessagePage"},
    {"POST", "/v1/messages/requeue", OL_SCOPE_ADMIN, requeue_messages, "requeueMessages",
     "Send many dead or published messages again", .body = "RequeueMany", .reply = "Requeued",
     .goes_in_parts = true},
    {"POST", "/v1/messages/kill", OL_SCOPE_ADMIN, kill_messages, "killMessages",
     "End many waiting messages without sending them", .body = "KillMany", .reply = "Killed",
     .goes_in_parts = true},
    {"GET", "/v1/messages/{event_id}", OL_SCOPE_ADMIN, get_message, "getMessage",
     "One message with its payload and every attempt", .reply = "MessageAlone"},
    {"POST", "/v1/messages/{event_id}/requeue", OL_SCOPE_ADMIN, requeue_message, "requeueMessage",
     "Send a dead or published message again", .body = "Requeue", .reply = "Requeued"},
    {"POST", "/v1/messages/{event_id}/kill", OL_SCOPE_ADMIN, kill_message, "killMessage",
     "End a waiting message without sending it", .body = "Empty", .reply = "Message"},
    {"POST", "/v1/messages/{event_id}/release", OL_SCOPE_ADMIN, release_message, "releaseMessage",
     "Send the messages that wait behind a held dead message", .body = "Empty", .reply = "Message"},
    {0},
};
