/* consumers.c: /v1/consumers: durable cursors (C1).
 *
 * A consumer belongs to the org that its filters name. A token that is bound to an org sees and
 * creates only consumers of that org. */
#include "server/http/router.h"
#include "server/resources/events.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/consumer.h"
#include "log/filter.h"
#include "log/read.h"

#include <stdlib.h>
#include <string.h>

enum { CONSUMERS_MAX = 10000, CONSUMER_WAIT_MAX_S = 60 };

/* --- access --- */

static int read_filters(struct ol_request *request, const struct outlog_consumer *consumer,
                        struct outlog_filter *out)
{
    outlog_err err;
    if (ol_filter_read(consumer->filters, &request->arena, out, &err) == 0)
        return 0;
    ol_problem(request, &err);
    return -1;
}

static bool is_visible(struct ol_request *request, const struct outlog_consumer *consumer)
{
    struct outlog_filter filter;
    const char *own = request->who.org_id;
    return !own || (ol_filter_read(consumer->filters, &request->arena, &filter, NULL) == 0 &&
                    filter.org_id && strcmp(filter.org_id, own) == 0);
}

/* The consumer that the path names. -1 after having answered. */
static int find_consumer(struct ol_request *request, struct outlog_consumer *out)
{
    outlog_err err;
    if (outlog_consumer_get(request->log, request->args[0], out, &err) < 0) {
        ol_problem(request, &err);
        return -1;
    }
    if (is_visible(request, out))
        return 0;
    ol_problem_say(request, 404, "not_found", "there is no consumer %.100s", request->args[0]);
    return -1;
}

static enum ol_handler_result show_consumer(struct ol_request *request, int status)
{
    struct outlog_consumer consumer;
    if (find_consumer(request, &consumer) == 0)
        ol_consumer_json(&consumer, ol_request_reply(request, status));
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_consumer(struct ol_request *request)
{
    return show_consumer(request, 200);
}

static enum ol_handler_result list_consumers(struct ol_request *request)
{
    struct outlog_consumer *all = calloc(CONSUMERS_MAX, sizeof *all);
    size_t count, shown = 0;
    outlog_err err;

    if (!all)
        return ol_problem_say(request, 503, "no_memory", "out of memory");
    if (outlog_consumer_list(request->log, all, CONSUMERS_MAX, &count, &err) < 0) {
        free(all);
        return ol_problem(request, &err);
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"consumers\":[");
    for (size_t i = 0; i < count && i < CONSUMERS_MAX; i++) {
        if (!is_visible(request, &all[i]))
            continue;
        ol_buf_text(out, shown++ ? "," : "");
        ol_consumer_json(&all[i], out);
    }
    ol_buf_text(out, "],\"next_after\":null}");
    free(all);
    return OL_HANDLER_ANSWERED;
}

/* --- create, delete, reset --- */

/* The position that a cursor is set to. */
struct cursor_position {
    int64_t at; /* an event_id, OUTLOG_END, or a time */
    bool is_time;
};

/* 0, an event_id, "end", or a time. -1 after having answered. */
static int read_position(struct ol_request *request, const struct ol_json *body, const char *name,
                         struct cursor_position *out)
{
    struct ol_json value = ol_json_get(body, name);
    const char *text = value.type == OL_JSON_STRING ? ol_json_string(&value, &request->arena, NULL)
                                                    : NULL;
    *out = (struct cursor_position){0};
    if (value.type == OL_JSON_NUMBER && ol_json_int(&value, &out->at) && out->at >= 0 &&
        out->at < OUTLOG_END)
        return 0;
    if (text && strcmp(text, "end") == 0) {
        out->at = OUTLOG_END;
        return 0;
    }
    out->is_time = true;
    if (text)
        return ol_request_member_time(request, body, name, &out->at);
    ol_problem_say(request, 400, "invalid_field",
                   "%s is 0, an event_id, \"end\", or a time like 2026-01-31T12:00:00Z", name);
    return -1;
}

static int read_draft(struct ol_request *request, struct outlog_filter *filter,
                      struct cursor_position *from)
{
    static const char *const allowed[] = {"from", "filters", NULL};
    struct ol_json body;
    outlog_err err;

    *from = (struct cursor_position){0};
    *filter = (struct outlog_filter){0};
    if (ol_request_object(request, allowed, &body) < 0)
        return -1;
    struct ol_json filters = ol_json_get(&body, "filters"), start = ol_json_get(&body, "from");
    if (start.type > OL_JSON_NULL && read_position(request, &body, "from", from) < 0)
        return -1;
    if (filters.type > OL_JSON_NULL && filters.type != OL_JSON_OBJECT) {
        ol_problem_say(request, 400, "invalid_field", "filters is an object");
        return -1;
    }
    const char *text = filters.type == OL_JSON_OBJECT
                           ? ol_arena_copy(&request->arena, filters.text, filters.bytes)
                           : "{}";
    if (!text || ol_filter_read(text, &request->arena, filter, &err) < 0) {
        if (!text)
            ol_no_memory(&err);
        ol_problem(request, &err);
        return -1;
    }
    if (filter->is_infrastructure && request->who.org_id) {
        ol_problem_say(request, 403, "forbidden", "this token is of an org");
        return -1;
    }
    return ol_request_org(request, filter->org_id, &filter->org_id);
}

static enum ol_handler_result put_consumer(struct ol_request *request)
{
    struct outlog_consumer consumer;
    struct outlog_filter filter;
    struct cursor_position from;
    bool created;
    outlog_err err;

    if (read_draft(request, &filter, &from) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_consumer_create(request->log, request->args[0], &filter, from.is_time ? 0 : from.at,
                               &created, &err) < 0 ||
        (created && from.is_time &&
         outlog_consumer_reset_to_time(request->log, request->args[0], from.at, &err) < 0) ||
        outlog_consumer_get(request->log, request->args[0], &consumer, &err) < 0)
        return ol_problem(request, &err);
    if (!is_visible(request, &consumer)) // names are shared by all orgs
        return ol_problem_say(request, 409, "id_conflict", "the name %.100s is taken",
                              request->args[0]);
    ol_consumer_json(&consumer, ol_request_reply(request, created ? 201 : 200));
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result delete_consumer(struct ol_request *request)
{
    struct outlog_consumer consumer;
    outlog_err err;

    if (find_consumer(request, &consumer) < 0)
        return OL_HANDLER_ANSWERED;
    const struct outlog_operator by = ol_request_operator(request);
    if (ol_consumer_delete(request->log, request->args[0], &by, &err) < 0)
        return ol_problem(request, &err);
    ol_request_reply(request, 204);
    request->content_type = NULL;
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result reset_consumer(struct ol_request *request)
{
    static const char *const allowed[] = {"to", NULL};
    struct outlog_consumer consumer;
    struct cursor_position to;
    struct ol_json body;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0 ||
        read_position(request, &body, "to", &to) < 0 || find_consumer(request, &consumer) < 0)
        return OL_HANDLER_ANSWERED;
    const struct outlog_operator by = ol_request_operator(request);
    if ((to.is_time ? ol_consumer_reset_to_time(request->log, request->args[0], to.at, &by, &err)
                    : ol_consumer_reset(request->log, request->args[0], to.at, &by, &err)) < 0)
        return ol_problem(request, &err);
    return show_consumer(request, 200);
}

/* --- read and commit --- */

static enum ol_handler_result read_consumer(struct ol_request *request)
{
    struct outlog_consumer consumer;
    struct outlog_page page = {0};
    int64_t limit, wait_us;
    outlog_err err;

    if (ol_request_number(request, "limit", 1, 10000, 100, &limit) < 0 ||
        ol_request_wait(request, "wait", CONSUMER_WAIT_MAX_S, 0, &wait_us) < 0 ||
        find_consumer(request, &consumer) < 0 ||
        read_filters(request, &consumer, &request->filter) < 0)
        return OL_HANDLER_ANSWERED;
    if (ol_read_short(request->log, &request->filter, consumer.cursor_event_id, (size_t)limit,
                      OL_READ_PAGE_BYTES, &page, &err) < 0) {
        outlog_page_clear(&page);
        return ol_problem(request, &err);
    }
    if (!request->wait_until)
        request->wait_until = request->began_at + wait_us;
    if (!page.count && ol_clock_boot_us() < request->wait_until) {
        request->after = page.next_after;
        ol_request_keep_log(request, &page);
        outlog_page_clear(&page);
        return OL_HANDLER_WAITING;
    }
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_char(out, '{');
    ol_events_json(&page, out);
    ol_buf_print(out,
                 ",\"cursor_event_id\":%lld,\"next_after\":%lld,\"settled\":%lld,"
                 "\"log_id\":\"%s\"}",
                 (long long)consumer.cursor_event_id, (long long)page.next_after,
                 (long long)page.settled, page.log_id);
    outlog_page_clear(&page);
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result commit_consumer(struct ol_request *request)
{
    static const char *const allowed[] = {"event_id", NULL};
    struct outlog_consumer consumer;
    struct ol_json body;
    int64_t event_id;
    bool moved;
    outlog_err err;

    if (ol_request_object(request, allowed, &body) < 0)
        return OL_HANDLER_ANSWERED;
    struct ol_json value = ol_json_get(&body, "event_id");
    if (value.type != OL_JSON_NUMBER || !ol_json_int(&value, &event_id) || event_id < 0)
        return ol_problem_say(request, 400, "invalid_field", "event_id is a whole number from 0");
    if (find_consumer(request, &consumer) < 0)
        return OL_HANDLER_ANSWERED;
    if (outlog_consumer_commit(request->log, request->args[0], event_id, &moved, &err) < 0 ||
        outlog_consumer_get(request->log, request->args[0], &consumer, &err) < 0)
        return ol_problem(request, &err);
    ol_buf_print(ol_request_reply(request, 200), "{\"cursor_event_id\":%lld,\"moved\":%s}",
                 (long long)consumer.cursor_event_id, moved ? "true" : "false");
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_consumer_routes[] = {
    {"GET", "/v1/consumers", OL_SCOPE_READ, list_consumers, "listConsumers",
     "Durable cursors and how far behind they are", .reply = "ConsumerList", .takes_org = true},
    {"GET", "/v1/consumers/{name}", OL_SCOPE_READ, get_consumer, "getConsumer", "One consumer",
     .reply = "Consumer", .takes_org = true},
    {"PUT", "/v1/consumers/{name}", OL_SCOPE_ADMIN, put_consumer, "putConsumer",
     "Create a consumer; a repeat changes nothing; 201 when it is new", .body = "ConsumerDraft",
     .reply = "Consumer", .other_status = 201, .takes_org = true},
    {"DELETE", "/v1/consumers/{name}", OL_SCOPE_ADMIN, delete_consumer, "deleteConsumer",
     "Delete a consumer and its cursor", .status = 204, .takes_org = true},
    {"GET", "/v1/consumers/{name}/events", OL_SCOPE_READ, read_consumer, "readConsumer",
     "Events after the cursor, which does not move; wait is a long poll in seconds",
     .query = "limit wait", .reply = "ConsumerPage", .takes_org = true},
    {"POST", "/v1/consumers/{name}/commit", OL_SCOPE_READ, commit_consumer, "commitConsumer",
     "Move the cursor forward", .body = "Commit", .reply = "Committed", .takes_org = true},
    {"POST", "/v1/consumers/{name}/reset", OL_SCOPE_ADMIN, reset_consumer, "resetConsumer",
     "Set the cursor to 0, an event, a time or the end", .body = "Reset", .reply = "Consumer",
     .takes_org = true},
    {0},
};
