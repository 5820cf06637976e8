/* request.c: readers of headers, parameters and JSON bodies; writers of the answer. */
#include "server/http/request.h"

#include "base/clock.h"
#include "base/duration.h"
#include "base/timestamp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ol_request *ol_request_new(struct ol_server *server)
{
    struct ol_request *request = calloc(1, sizeof *request);
    if (request) {
        request->job.type = OL_JOB_REQUEST;
        request->server = server;
        request->began_at = ol_clock_boot_us();
    }
    return request;
}

void ol_request_keep_log(struct ol_request *request, const struct outlog_page *page)
{
    memcpy(request->log_id, page->log_id, sizeof request->log_id);
    request->filter.log_id = request->log_id;
}

void ol_request_free(struct ol_request *request)
{
    if (!request)
        return;
    if (request->body_memory.total)
        atomic_fetch_sub(request->body_memory.total, request->body_memory.bytes);
    ol_buf_clear(&request->body);
    ol_buf_clear(&request->extra);
    ol_buf_clear(&request->reply);
    ol_buf_clear(&request->kept);
    ol_arena_clear(&request->arena);
    free(request);
}

/* --- what was asked --- */

static const char *find_pair(const struct ol_pair *pairs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(pairs[i].name, name) == 0)
            return pairs[i].value;
    return NULL;
}

const char *ol_request_header(const struct ol_request *request, const char *name)
{
    return find_pair(request->headers, request->header_count, name);
}

const char *ol_request_param(const struct ol_request *request, const char *name)
{
    return find_pair(request->params, request->param_count, name);
}

int ol_request_number(struct ol_request *request, const char *name, int64_t min, int64_t max,
                      int64_t fallback, int64_t *out)
{
    const char *text = ol_request_param(request, name);
    char *end;

    *out = fallback;
    if (!text)
        return 0;
    long long number = strtoll(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || strlen(text) > 18 || number < min) {
        ol_problem_say(request, 400, "invalid_field",
                       "%s is a whole number from %lld to %lld, not '%.40s'", name, (long long)min,
                       (long long)max, text);
        return -1;
    }
    *out = number > max ? max : number;
    return 0;
}

int ol_request_wait(struct ol_request *request, const char *name, int64_t max_s, int64_t fallback_s,
                    int64_t *out_us)
{
    const char *text = ol_request_param(request, name);
    char seconds[32];

    *out_us = fallback_s * 1000000;
    if (!text)
        return 0;
    snprintf(seconds, sizeof seconds, "%.24ss", text);
    if (ol_duration_parse(text, out_us) < 0 && ol_duration_parse(seconds, out_us) < 0) {
        ol_problem_say(
            request, 400, "invalid_field",
            "%s is a number of seconds, at most %lld, or a span such as 200ms, not '%.40s'", name,
            (long long)max_s, text);
        return -1;
    }
    if (*out_us > max_s * 1000000)
        *out_us = max_s * 1000000;
    return 0;
}

static int read_time(struct ol_request *request, const char *name, const char *text, int64_t *out)
{
    int64_t span;

    *out = 0;
    if (!text || ol_timestamp_parse(text, strlen(text), out) == 0)
        return 0;
    if (ol_duration_parse(text, &span) == 0) {
        *out = ol_clock_wall_us() - span;
        return 0;
    }
    ol_problem_say(request, 400, "invalid_field",
                   "%s is a time like 2026-01-04T12:00:00Z, or a span like 1h, not '%.40s'", name,
                   text);
    return -1;
}

int ol_request_time(struct ol_request *request, const char *name, int64_t *out)
{
    return read_time(request, name, ol_request_param(request, name), out);
}

int ol_request_member_time(struct ol_request *request, const struct ol_json *object,
                           const char *name, int64_t *out)
{
    const char *text;
    return ol_request_text(request, object, name, &text) < 0 ||
                   read_time(request, name, text, out) < 0
               ? -1
               : 0;
}

static bool is_allowed_key(const struct ol_json *key, const char *const *allowed)
{
    for (; *allowed; allowed++)
        if (ol_json_equals(key, *allowed))
            return true;
    return false;
}

int ol_request_object(struct ol_request *request, const char *const *allowed, struct ol_json *out)
{
    struct ol_json_iter it = {0};
    outlog_err err;

    if (request->body.bytes == 0)
        ol_buf_text(&request->body, "{}");
    if (ol_json_parse_wrapped(request->body.data, request->body.bytes, out, &err) < 0) {
        ol_problem(request, &err);
        return -1;
    }
    if (out->type != OL_JSON_OBJECT) {
        ol_problem_say(request, 400, "invalid_field", "the body must be a JSON object");
        return -1;
    }
    while (allowed && ol_json_next(out, &it))
        if (!is_allowed_key(&it.key, allowed)) {
            const char *name = ol_json_string(&it.key, &request->arena, NULL);
            ol_fail_at(&err, OUTLOG_UNKNOWN_FIELD, "", "there is no field '%.60s' here",
                       name ? name : "?");
            ol_json_pointer(out, it.value.text, err.pointer, sizeof err.pointer);
            ol_problem(request, &err);
            return -1;
        }
    return 0;
}

int ol_request_text(struct ol_request *request, const struct ol_json *object, const char *name,
                    const char **out)
{
    struct ol_json value = ol_json_get(object, name);
    outlog_err err;

    *out = NULL;
    if (value.type == OL_JSON_NONE || value.type == OL_JSON_NULL)
        return 0;
    if (value.type == OL_JSON_STRING && (*out = ol_json_string(&value, &request->arena, NULL)))
        return 0;
    ol_fail(&err, OUTLOG_INVALID_FIELD, "%s must be a string", name);
    ol_json_pointer(object, value.text, err.pointer, sizeof err.pointer);
    ol_problem(request, &err);
    return -1;
}

int ol_request_flag(struct ol_request *request, const struct ol_json *object, const char *name,
                    bool *out)
{
    struct ol_json value = ol_json_get(object, name);
    *out = value.type == OL_JSON_TRUE;
    if (value.type != OL_JSON_NONE && value.type != OL_JSON_NULL && value.type != OL_JSON_TRUE &&
        value.type != OL_JSON_FALSE) {
        ol_problem_say(request, 400, "invalid_field", "%s must be true or false", name);
        return -1;
    }
    return 0;
}

struct outlog_operator ol_request_operator(struct ol_request *request)
{
    struct outlog_operator by = {.request_id = request->request_id};
    if (request->who.token_id[0]) {
        by.actor_type = "service_principal";
        by.actor_id = request->who.token_id;
    }
    return by;
}

int ol_request_org(struct ol_request *request, const char *asked, const char **out)
{
    const char *own = request->who.org_id;
    if (own && asked && strcmp(own, asked) != 0) {
        ol_problem_say(request, 403, "forbidden", "this token is of another org");
        return -1;
    }
    *out = own ? own : asked;
    return 0;
}

/* --- the answer --- */

struct ol_buf *ol_request_reply(struct ol_request *request, int status)
{
    request->status = status;
    request->content_type = "application/json";
    ol_buf_reset(&request->reply);
    return &request->reply;
}

void ol_request_add(struct ol_request *request, const char *name, const char *value)
{
    ol_buf_print(&request->extra, "%s: %s\r\n", name, value);
}
