/* webhook.c: a message as an HTTP request (D1).
 *
 * Success is the complete head of a 2xx response before the deadline; its body may be long or late.
 * With `request: payload` the payload describes the request, as in S0 9.1, and its host must be one
 * of allow_hosts. */
#include "net/ssrf_guard.h"
#include "publish/http/http_settings.h"
#include "publish/http/signed_request.h"

#include <stdlib.h>
#include <string.h>

struct webhook {
    struct ol_signed_request sender; /* first */
    struct ol_buf body;
    struct ol_arena arena;
};

static int webhook_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    struct webhook *w = calloc(1, sizeof *w);
    if (!w)
        return ol_no_memory(err);
    if (ol_signed_request_open(&w->sender, host, err) < 0) {
        free(w);
        return -1;
    }
    *instance = w;
    return 0;
}

static void webhook_close(void *instance)
{
    struct webhook *w = instance;
    ol_signed_request_close(&w->sender);
    ol_buf_clear(&w->body);
    ol_arena_clear(&w->arena);
    free(w);
}

/* --- request: payload ------------------------------------------------------------------------- */

static int check_payload_url(const struct webhook *w, const char *url, outlog_err *err)
{
    const struct ol_webhook_settings *own = w->sender.settings->own;
    struct ol_parsed_url parts;
    if (ol_ssrf_guard_url(url, own->http.allow_private, &parts, err) < 0)
        return -1;
    if (ol_ssrf_guard_host_is_listed(parts.host, own->allow_hosts.items, own->allow_hosts.count))
        return 0;
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/url",
                      "payload.url: the host %s is not in allow_hosts", parts.host);
}

static int read_payload_key(struct webhook *w, const struct ol_json_iter *it,
                            struct ol_signed_request_input *request, outlog_err *err)
{
    struct outlog_header *headers = NULL;
    if (ol_json_equals(&it->key, "url")) {
        request->url = ol_json_string(&it->value, &w->arena, NULL);
        return request->url ? check_payload_url(w, request->url, err)
                            : ol_fail(err, OUTLOG_INVALID_FIELD, "payload.url: a text is wanted");
    }
    if (ol_json_equals(&it->key, "method")) {
        request->method = ol_http_settings_method(&it->value);
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
        request->body = it->value.text; // byte for byte as in the payload
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
            if (read_payload_key(w, &it, request, err) < 0)
                return -1;
    return request->url ? 0 : ol_fail(err, OUTLOG_INVALID_FIELD, "payload.url: it is missing");
}

/* --- request: destination --------------------------------------------------------------------- */

static int make_request(struct webhook *w, const struct outlog_delivery *message,
                        struct ol_signed_request_input *request, outlog_err *err)
{
    const struct ol_webhook_settings *own = w->sender.settings->own;
    *request = (struct ol_signed_request_input){
        .url = own->http.url,
        .method = own->http.method,
        .content_type = message->content_type ? message->content_type : "application/json",
        .body = message->payload,
        .body_bytes = message->payload_bytes,
        .key = ol_publisher_message_key(message),
        .envelope = own->envelope,
    };
    if (own->envelope != OL_ENVELOPE_CLOUDEVENTS)
        return 0;
    ol_buf_reset(&w->body);
    if (ol_cloudevents_structured(message, own->http.source, &w->body) < 0)
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
    const struct ol_webhook_settings *own = w->sender.settings->own;
    int made = own->request == OL_URL_FROM_PAYLOAD ? read_request(w, message, &request, &err)
                                                   : make_request(w, message, &request, &err);
    if (made < 0)
        ol_signed_request_refuse(&w->sender, tag, &err);
    else
        ol_signed_request_send(&w->sender, message, &request, deadline_us, tag);
}

static void webhook_abandon(void *instance, void *tag)
{
    struct webhook *w = instance;
    ol_signed_request_abandon(&w->sender, tag);
}

static const struct outlog_publisher publisher = {
    .name = "webhook",
    .batch_max = 256,
    .keeps_attempts = true,
    .open = webhook_open,
    .submit = webhook_submit, // the thread's HTTP client drives it
    .abandon = webhook_abandon,
    .close = webhook_close,
};

/* --- settings --------------------------------------------------------------------------------- */

static int check_webhook(struct ol_setting_reader *r)
{
    const struct ol_webhook_settings *own = r->settings->own;

    if (ol_http_settings_check_secrets(r) < 0)
        return -1;
    if (own->request == OL_URL_FROM_PAYLOAD && own->http.url)
        return ol_setting_types_wrong(r, "url",
                                      "with `request: payload` each message brings its own");
    if (own->request == OL_URL_FROM_PAYLOAD)
        return own->allow_hosts.count ? 0
                                      : ol_setting_types_wrong(r, "allow_hosts",
                                                               "`request: payload` needs the hosts"
                                                               " that a payload may name");
    if (own->allow_hosts.count)
        return ol_setting_types_wrong(r, "allow_hosts", "it belongs to `request: payload`");
    if (!own->http.url)
        return ol_setting_types_wrong(r, "url", "it is missing");
    return ol_http_settings_check_url(r);
}

#define AT(member) offsetof(struct ol_webhook_settings, member)

static const char *const request_names[] = {"destination", "payload", NULL};

static const struct ol_setting_key webhook_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(http.url)},
    {.name = "allow_hosts", .read = ol_setting_types_texts, .offset = AT(allow_hosts)},
    {.name = "envelope",
     .read = ol_setting_types_choice,
     .offset = AT(envelope),
     .choices = ol_envelope_names},
    {.name = "request",
     .read = ol_setting_types_choice,
     .offset = AT(request),
     .choices = request_names},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_webhook = {
    .name = "webhook",
    .publisher = &publisher,
    .timeout_s = 10,
    .concurrency = 64,
    .own_bytes = sizeof(struct ol_webhook_settings),
    .own_defaults = &(const struct ol_webhook_settings){.http.method = "POST"},
    .keys = {webhook_keys, ol_http_settings_keys},
    .check = check_webhook,
};
