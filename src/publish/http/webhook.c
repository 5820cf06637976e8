/* webhook.c: a message as an HTTP request (D1).
 *
 * Success is the complete head of a 2xx answer before the deadline; its body may be long or late.
 * With `request: payload` the payload names the request itself, as in S0 9.1, and its host must be
 * one of allow_hosts. */
#include "net/ssrf_guard.h"
#include "publish/cloudevents.h"
#include "publish/http/signed_request.h"

#include <stdlib.h>
#include <string.h>

struct webhook {
    struct ol_signed_request post; /* first: it is the owner of its transfers */
    struct ol_buf body;
    struct ol_arena arena;
};

static int webhook_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    struct webhook *w = calloc(1, sizeof *w);
    if (!w)
        return ol_no_memory(err);
    if (ol_signed_request_open(&w->post, host, err) < 0) {
        free(w);
        return -1;
    }
    *instance = w;
    return 0;
}

static void webhook_close(void *instance)
{
    struct webhook *w = instance;
    ol_signed_request_close(&w->post);
    ol_buf_clear(&w->body);
    ol_arena_clear(&w->arena);
    free(w);
}

/* --- request: payload ----------------------------------------------------------------------------
 */

static const char *read_method(const struct ol_json *value)
{
    static const char *const methods[] = {"POST", "PUT", "PATCH", "DELETE", "GET"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (ol_json_equals(value, methods[i]))
            return methods[i];
    return NULL;
}

static int check_url(const struct webhook *w, const char *url, outlog_err *err)
{
    const struct ol_settings *settings = w->post.settings;
    struct ol_parsed_url parts;
    if (ol_ssrf_guard_url(url, settings->allow_private, &parts, err) < 0)
        return -1;
    if (ol_ssrf_guard_host_is_listed(parts.host, settings->allow_hosts, settings->allow_host_count))
        return 0;
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/url",
                      "payload.url: the host %s is not in allow_hosts", parts.host);
}

static int read_member(struct webhook *w, const struct ol_json_iter *it,
                       struct ol_signed_request_input *request, outlog_err *err)
{
    struct outlog_header *headers = NULL;
    if (ol_json_equals(&it->key, "url")) {
        request->url = ol_json_string(&it->value, &w->arena, NULL);
        return request->url ? check_url(w, request->url, err)
                            : ol_fail(err, OUTLOG_INVALID_FIELD, "payload.url: a text is wanted");
    }
    if (ol_json_equals(&it->key, "method")) {
        request->method = read_method(&it->value);
        return request->method ? 0
                               : ol_fail(err, OUTLOG_INVALID_FIELD,
                                         "payload.method: POST, PUT, PATCH, DELETE or GET");
    }
    if (ol_json_equals(&it->key, "headers")) {
        if (ol_headers_read(&it->value, &w->arena, &headers, &request->header_count, err) < 0)
            return -1;
        request->headers = headers;
        return 0;
    }
    if (ol_json_equals(&it->key, "body")) {
        request->body = it->value.text; // the bytes as they stand in the payload
        request->body_bytes = it->value.bytes;
        return 0;
    }
    if (ol_json_equals(&it->key, "idempotency_key")) {
        request->key = ol_json_string(&it->value, &w->arena, NULL);
        return request->key ? 0
                            : ol_fail(err, OUTLOG_INVALID_FIELD,
                                      "payload.idempotency_key: a text is wanted");
    }
    return ol_fail(
        err, OUTLOG_UNKNOWN_FIELD,
        "payload: unknown key; url, method, headers, body and idempotency_key are known");
}

static int read_request(struct webhook *w, const struct outlog_delivery *message,
                        struct ol_signed_request_input *request, outlog_err *err)
{
    struct ol_json payload;
    struct ol_json_iter it = {0};

    ol_arena_reset(&w->arena);
    if (ol_json_parse(message->payload, message->payload_bytes, &payload, err) < 0)
        return -1;
    if (payload.type != OL_JSON_OBJECT)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "payload: an object with url and body is wanted");
    *request = (struct ol_signed_request_input){.method = "POST",
                                                .content_type = "application/json",
                                                .key = ol_publisher_message_key(message)};
    while (ol_json_next(&payload, &it))
        if (it.value.type != OL_JSON_NULL || ol_json_equals(&it.key, "body"))
            if (read_member(w, &it, request, err) < 0)
                return -1;
    return request->url ? 0 : ol_fail(err, OUTLOG_INVALID_FIELD, "payload.url: it is missing");
}

/* --- the usual kind ------------------------------------------------------------------------------
 */

static int make_request(struct webhook *w, const struct outlog_delivery *message,
                        struct ol_signed_request_input *request, outlog_err *err)
{
    const struct ol_settings *settings = w->post.settings;
    *request = (struct ol_signed_request_input){
        .url = settings->url,
        .method = settings->method,
        .content_type = message->content_type ? message->content_type : "application/json",
        .body = message->payload,
        .body_bytes = message->payload_bytes,
        .key = ol_publisher_message_key(message),
        .envelope = settings->envelope,
    };
    if (settings->envelope != OL_ENVELOPE_CLOUDEVENTS)
        return 0;
    ol_buf_reset(&w->body);
    if (ol_cloudevents_structured(message, settings->source, &w->body) < 0)
        return ol_no_memory(err);
    request->content_type = OL_CLOUDEVENTS_JSON;
    request->body = w->body.data;
    request->body_bytes = w->body.bytes;
    return 0;
}

static void webhook_submit(void *instance, const struct outlog_delivery *message,
                           int64_t deadline_us, void *tag)
{
    struct webhook *w = instance;
    struct ol_signed_request_input request;
    outlog_err err;
    int made = w->post.settings->request == OL_URL_FROM_PAYLOAD
                   ? read_request(w, message, &request, &err)
                   : make_request(w, message, &request, &err);
    if (made < 0)
        ol_signed_request_refuse(&w->post, tag, &err);
    else
        ol_signed_request_send(&w->post, message, &request, deadline_us, tag);
}

static void webhook_abandon(void *instance, void *tag)
{
    struct webhook *w = instance;
    ol_signed_request_abandon(&w->post, tag);
}

const struct outlog_publisher ol_publisher_webhook = {
    .name = "webhook",
    .batch_max = 256,
    .keeps_attempts = true,
    .open = webhook_open,
    .submit = webhook_submit, // the thread's engine drives it
    .abandon = webhook_abandon,
    .close = webhook_close,
};
