/* append_request.c: reads events and messages from a body, submits them and writes the answer. */
#include "server/resources/append_request.h"

#include "base/err.h"
#include "base/traceparent.h"
#include "base/uuid.h"
#include "log/event.h"
#include "log/event_json.h"
#include "outbox/batcher.h"
#include "outbox/enqueue.h"
#include "server/http/request_span.h"
#include "server/server.h"

#include <stdio.h>
#include <string.h>

enum { COMMAND_EVENTS_MAX = 1000 };

/* --- reading --- */

/* The members of a command, collected in one pass. */
struct append_parts {
    struct ol_json org_id, actor, request_id, correlation_id, events, messages;
};

struct append_reading {
    struct ol_request *request;
    struct ol_arena *arena;
    struct ol_append_request *out;
    struct append_parts parts;
    struct outlog_new_event defaults;
};

static const char *read_text(const struct ol_json *value, const char *name, struct ol_arena *arena,
                             int *result, outlog_err *err)
{
    char pointer[64];
    if (value->type == OL_JSON_NONE || value->type == OL_JSON_NULL)
        return NULL;
    const char *text = ol_json_string(value, arena, NULL);
    if (!text) {
        snprintf(pointer, sizeof pointer, "/%s", name);
        *result = ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s must be a string", name);
    }
    return text;
}

static int read_parts(const struct ol_json *object, struct append_parts *parts, outlog_err *err)
{
    const struct {
        const char *name;
        struct ol_json *into;
    } known[] = {{"events", &parts->events},         {"messages", &parts->messages},
                 {"org_id", &parts->org_id},         {"actor", &parts->actor},
                 {"request_id", &parts->request_id}, {"correlation_id", &parts->correlation_id}};
    enum { KNOWN_PARTS = sizeof known / sizeof *known };
    struct ol_json_iter it = {0};

    while (ol_json_next(object, &it)) {
        int i = 0;
        while (i < KNOWN_PARTS && !ol_json_equals(&it.key, known[i].name))
            i++;
        if (i < KNOWN_PARTS)
            *known[i].into = it.value;
        else
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "a command has no field %.*s",
                           (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
    }
    return 0;
}

/* The id that the command's trace is derived from: its correlation_id, or its first event's. */
static const char *find_correlation(struct append_reading *reading)
{
    const struct ol_json *events = &reading->parts.events;
    struct ol_json_iter it = {0};
    struct ol_json given;
    if (reading->defaults.correlation_id)
        return reading->defaults.correlation_id;
    if (!reading->request->server->options.tracer || events->type != OL_JSON_ARRAY ||
        !ol_json_next(events, &it) || it.value.type != OL_JSON_OBJECT)
        return NULL;
    given = ol_json_get(&it.value, "correlation_id");
    return ol_json_string(&given, reading->arena, NULL);
}

static int read_actor(struct append_reading *reading, outlog_err *err)
{
    struct outlog_new_event *defaults = &reading->defaults;
    const struct ol_json *actor = &reading->parts.actor;
    if (actor->type == OL_JSON_NONE || actor->type == OL_JSON_NULL)
        return 0;
    struct ol_json type = ol_json_get(actor, "type"), id = ol_json_get(actor, "id");
    defaults->actor_type = ol_json_string(&type, reading->arena, NULL);
    defaults->actor_id = ol_json_string(&id, reading->arena, NULL);
    return defaults->actor_type && defaults->actor_id
               ? 0
               : ol_fail_at(err, OUTLOG_INVALID_FIELD, "/actor", "actor must be {type, id}");
}

static int read_defaults(struct append_reading *reading, outlog_err *err)
{
    const struct append_parts *parts = &reading->parts;
    struct outlog_new_event *defaults = &reading->defaults;
    struct outlog_operator by = ol_request_operator(reading->request);
    int result = 0;

    defaults->org_id = parts->org_id.type == OL_JSON_NONE
                           ? reading->request->who.org_id
                           : read_text(&parts->org_id, "org_id", reading->arena, &result, err);
    defaults->is_infrastructure = parts->org_id.type == OL_JSON_NULL;
    defaults->actor_type = by.actor_type;
    defaults->actor_id = by.actor_id;
    defaults->request_id =
        read_text(&parts->request_id, "request_id", reading->arena, &result, err);
    defaults->correlation_id =
        read_text(&parts->correlation_id, "correlation_id", reading->arena, &result, err);
    if (!defaults->request_id)
        defaults->request_id = by.request_id;
    if (result < 0)
        return -1;
    defaults->traceparent =
        ol_request_span_traceparent(reading->request, find_correlation(reading));
    return read_actor(reading, err);
}

static int fail_forbidden(outlog_err *err)
{
    ol_fail(err, OL_FORBIDDEN, "this token is of another org");
    return -1;
}

static size_t count_items(const struct ol_json *array)
{
    struct ol_json_iter it = {0};
    size_t count = 0;
    while (array->type == OL_JSON_ARRAY && ol_json_next(array, &it))
        count++;
    return count;
}

/* Make the error of one event or message point to its place in the command. */
static int point_to_item(const char *list, size_t index, outlog_err *err)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/%s/%zu", list, index);
    ol_err_point_below(err, pointer);
    err->index = (int)index;
    return -1;
}

static int read_events(struct append_reading *reading, const struct ol_json *array, outlog_err *err)
{
    struct ol_append_request *out = reading->out;
    const char *own = reading->request->who.org_id;
    struct ol_json_iter it = {0};

    for (size_t i = 0; ol_json_next(array, &it); i++) {
        struct outlog_new_event *event = &out->events[i];
        if (ol_event_json_take(&it.value, &reading->defaults, reading->arena, event, err) < 0)
            return point_to_item("events", i, err);
        if (event->idempotency_key && (i > 0 || out->idempotency.key))
            return ol_fail(err, OUTLOG_INVALID_FIELD,
                           "the key of a command is its Idempotency-Key header");
        if (own && (!event->org_id || strcmp(event->org_id, own) != 0))
            return fail_forbidden(err);
        out->event_count++;
    }
    if (out->event_count && !out->idempotency.key)
        out->idempotency.key = out->events[0].idempotency_key;
    return 0;
}

static int read_messages(struct append_reading *reading, const struct ol_json *array,
                         outlog_err *err)
{
    struct ol_append_request *out = reading->out;
    const char *own = reading->request->who.org_id;
    struct ol_json_iter it = {0};

    for (size_t i = 0; ol_json_next(array, &it); i++) {
        struct outlog_new_message *message = &out->messages[i];
        if (ol_message_json_read(it.value.text, it.value.bytes, reading->arena, message, err) < 0)
            return point_to_item("messages", i, err);
        if (!message->org_id)
            message->org_id = reading->defaults.org_id;
        if (!message->correlation_id)
            message->correlation_id = reading->defaults.correlation_id;
        if (own && (!message->org_id || strcmp(message->org_id, own) != 0))
            return fail_forbidden(err);
        const char *traceparent = reading->defaults.traceparent;
        if (traceparent &&
            !(message->metadata =
                  ol_traceparent_store(traceparent, message->metadata, reading->arena)))
            return ol_no_memory(err);
        out->message_count++;
    }
    return 0;
}

/* The events of one command share a correlation_id where they give none. */
static int make_correlation(struct append_reading *reading, outlog_err *err)
{
    char *correlation = ol_arena_alloc(reading->arena, OL_UUID_TEXT);
    if (!correlation)
        return ol_no_memory(err);
    ol_uuid_make(correlation);
    reading->defaults.correlation_default = correlation;
    return 0;
}

static int read_lists(struct append_reading *reading, outlog_err *err)
{
    const struct ol_json *events = &reading->parts.events, *messages = &reading->parts.messages;
    size_t event_count = count_items(events), message_count = count_items(messages);
    struct ol_append_request *out = reading->out;

    if ((events->type > OL_JSON_NULL && events->type != OL_JSON_ARRAY) ||
        (messages->type > OL_JSON_NULL && messages->type != OL_JSON_ARRAY))
        return ol_fail(err, OUTLOG_INVALID_FIELD, "events and messages are arrays");
    if (event_count + message_count == 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/events",
                          "a command has at least one event or message");
    if (event_count > COMMAND_EVENTS_MAX || message_count > COMMAND_EVENTS_MAX)
        return ol_fail(err, OUTLOG_TOO_LARGE,
                       "a command has at most %d events and as many messages", COMMAND_EVENTS_MAX);
    out->events = ol_arena_array(reading->arena, event_count + 1, sizeof *out->events);
    out->messages = ol_arena_array(reading->arena, message_count + 1, sizeof *out->messages);
    out->submitted = ol_arena_alloc(reading->arena, sizeof *out->submitted);
    if (!out->events || !out->messages || !out->submitted)
        return ol_no_memory(err);
    if (event_count > 1 && make_correlation(reading, err) < 0)
        return -1;
    if (read_events(reading, events, err) < 0)
        return -1;
    return read_messages(reading, messages, err);
}

/* Set the key as every interface does: without messages it is that of outlog_append_many(). */
static int set_key(struct append_reading *reading, outlog_err *err)
{
    struct ol_append_request *out = reading->out;
    const struct ol_json *messages = &reading->parts.messages;
    struct ol_buf text = {0};

    if (!out->idempotency.key)
        return 0;
    if (out->event_count)
        out->events[0].idempotency_key = out->message_count ? NULL : out->idempotency.key;
    if (!out->message_count)
        return 0;
    ol_event_request(out->events, out->event_count, &text);
    text.bytes--; // the closing brace
    ol_buf_text(&text, ",\"messages\":");
    ol_buf_add(&text, messages->text, messages->bytes);
    ol_buf_char(&text, '}');
    const char *actor = out->event_count ? out->events[0].actor_id : reading->defaults.actor_id;
    out->idempotency.org_id = reading->defaults.org_id;
    out->idempotency.actor_id = actor ? actor : "system";
    out->idempotency.endpoint = "append";
    out->idempotency.request = text.failed ? NULL
                                           : ol_arena_copy(reading->arena, text.data, text.bytes);
    ol_buf_clear(&text);
    return out->idempotency.request ? 0 : ol_no_memory(err);
}

static int parse_command(struct append_reading *reading, const char *text, size_t bytes,
                         outlog_err *err)
{
    struct ol_json object;
    if (ol_json_parse_wrapped(text, bytes, &object, err) < 0)
        return -1;
    if (object.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_JSON, "a command is a JSON object");
    return read_parts(&object, &reading->parts, err) < 0 || read_defaults(reading, err) < 0 ||
                   read_lists(reading, err) < 0 || set_key(reading, err) < 0
               ? -1
               : 0;
}

/* --- answering --- */

static void set_problem(struct ol_append_request *append, const outlog_err *err)
{
    append->status = ol_problem_json(append->request, err, &append->answer);
}

int ol_append_request_parse(struct ol_request *request, const char *text, size_t bytes,
                            const char *key, struct ol_append_request *out)
{
    struct append_reading reading = {.request = request, .arena = &request->arena, .out = out};
    outlog_err err;

    *out = (struct ol_append_request){.request = request, .idempotency = {.key = key}};
    if (parse_command(&reading, text, bytes, &err) == 0)
        return 0;
    set_problem(out, &err);
    return -1;
}

static void put_answer(struct ol_append_request *append, const struct ol_batcher_command *command)
{
    bool was_there = append->event_count && append->events[0].idempotency_key &&
                     command->appended[0].duplicate;
    append->status = 201;
    append->is_replayed = command->is_replayed || was_there;
    for (size_t i = 0; was_there && i < append->event_count; i++)
        command->appended[i].duplicate = false; // a replay has the body of the first answer
    if (command->is_replayed)
        ol_buf_add(&append->answer, command->response.data, command->response.bytes);
    else
        ol_batcher_json(command, &append->answer);
}

static void on_command_done(struct ol_batcher_command *command, int result)
{
    struct ol_append_request *append = command->user;
    if (result == 0)
        put_answer(append, command);
    else {
        if (command->err.index >= 0)
            point_to_item(command->is_message ? "messages" : "events", (size_t)command->err.index,
                          &command->err);
        set_problem(append, &command->err);
    }
    append->done(append);
}

void ol_append_request_submit(struct ol_batcher *batcher, struct ol_append_request *append)
{
    outlog_err err;
    *append->submitted = (struct ol_batcher_command){
        .events = append->events,
        .event_count = append->event_count,
        .messages = append->messages,
        .message_count = append->message_count,
        .idempotency = append->idempotency.request ? &append->idempotency : NULL,
        .done = on_command_done,
        .user = append,
    };
    if (ol_batcher_submit(batcher, append->submitted, &err) < 0) {
        set_problem(append, &err);
        append->done(append);
    }
}
