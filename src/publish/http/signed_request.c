/* signed_request.c: sets headers and signature, starts the request, reports the outcome. */
#include "publish/http/signed_request.h"

#include "base/clock.h"
#include "base/traceparent.h"
#include "publish/http/http_settings.h"

#include <stdio.h>

static void on_response(void *owner, void *tag, const struct ol_http_response *response)
{
    struct ol_signed_request *sender = owner;
    struct outlog_outcome outcome;
    const struct ol_http_settings *http = sender->settings->own;
    ol_outcome_http(response, sender->settings, &http->retry_on, ol_clock_wall_us(),
                    &sender->memory, &outcome);
    sender->host->done(sender->host->user, tag, &outcome);
}

int ol_signed_request_open(struct ol_signed_request *sender,
                           const struct outlog_publisher_host *host, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    const struct ol_settings *settings = own->settings;
    *sender = (struct ol_signed_request){.host = host, .settings = settings};
    const struct ol_http_settings *http = settings->own;
    if (http->secret_count &&
        ol_webhook_signature_open(http->secrets, http->secret_count, &sender->sign, err) < 0)
        return -1;
    if (ol_http_pool_open(own->http, settings->concurrency, on_response, sender, &sender->pool,
                          err) < 0) {
        ol_webhook_signature_close(sender->sign);
        return -1;
    }
    return 0;
}

void ol_signed_request_close(struct ol_signed_request *sender)
{
    ol_http_pool_close(sender->pool);
    ol_headers_clear(&sender->headers);
    ol_buf_clear(&sender->signature);
    ol_buf_clear(&sender->memory);
    ol_webhook_signature_close(sender->sign);
}

void ol_signed_request_abandon(struct ol_signed_request *sender, void *tag)
{
    ol_http_pool_abandon(sender->pool, tag);
}

void ol_signed_request_refuse(struct ol_signed_request *sender, void *tag, const outlog_err *err)
{
    struct outlog_outcome outcome;
    ol_outcome_refusal(err, sender->settings, &sender->memory, &outcome);
    sender->host->done(sender->host->user, tag, &outcome);
}

static int set_signature(struct ol_signed_request *sender, const struct outlog_delivery *message,
                         const struct ol_signed_request_input *request, int64_t now_s,
                         outlog_err *err)
{
    ol_buf_reset(&sender->signature);
    if (ol_webhook_signature_add(sender->sign, message->event_id, now_s, request->body,
                                 request->body_bytes, &sender->signature) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "the signature could not be made");
    return ol_headers_set(&sender->headers, "webhook-signature", sender->signature.data, err);
}

/* T1: the execution that the message belongs to, what caused it, and its trace. */
static int set_origin(struct ol_headers *h, const struct outlog_delivery *message, outlog_err *err)
{
    char escaped[OL_HEADER_ESCAPED], traceparent[OL_TRACEPARENT_TEXT];
    if (message->correlation_id &&
        ol_headers_set(h, "outlog-correlation-id",
                       ol_headers_escape(message->correlation_id, escaped), err) < 0)
        return -1;
    if (message->causation_id &&
        ol_headers_set(h, "outlog-causation-id", message->causation_id, err) < 0)
        return -1;
    if (!ol_traceparent_next(message->traceparent, message->event_id, message->attempt,
                             traceparent))
        return 0;
    return ol_headers_set(h, "traceparent", traceparent, err);
}

/* Ours come first, so no other source can replace them (H3). */
static int set_headers(struct ol_signed_request *sender, const struct outlog_delivery *message,
                       const struct ol_signed_request_input *request, outlog_err *err)
{
    struct ol_headers *h = &sender->headers;
    const struct ol_settings *settings = sender->settings;
    const struct ol_http_settings *http = settings->own;
    int64_t now_s = ol_clock_wall_us() / 1000000;
    char number[24];

    ol_headers_reset(h);
    snprintf(number, sizeof number, "%lld", (long long)now_s);
    if (ol_headers_set(h, "content-type", request->content_type, err) < 0 ||
        ol_headers_set(h, "webhook-id", message->event_id, err) < 0 ||
        ol_headers_set(h, "webhook-timestamp", number, err) < 0 ||
        (sender->sign && set_signature(sender, message, request, now_s, err) < 0) ||
        ol_headers_set(h, "Idempotency-Key", request->key, err) < 0 ||
        ol_headers_set(h, "X-Idempotency-Key", request->key, err) < 0 ||
        ol_headers_set(h, "outlog-event-type", message->event_type, err) < 0)
        return -1;
    snprintf(number, sizeof number, "%d", message->attempt);
    if (ol_headers_set(h, "outlog-attempt", number, err) < 0 ||
        (message->is_replay && ol_headers_set(h, "outlog-replay", "true", err) < 0) ||
        set_origin(h, message, err) < 0)
        return -1;
    if (request->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY &&
        ol_cloudevents_binary(message, http->source, h, err) < 0)
        return -1;
    if (ol_headers_offer_all(h, settings->headers, settings->header_count, err) < 0 ||
        ol_headers_offer_all(h, request->headers, request->header_count, err) < 0 ||
        ol_headers_offer_all(h, message->headers, message->header_count, err) < 0)
        return -1;
    return ol_headers_set(h, "user-agent", "outlog/" OUTLOG_VERSION, err);
}

void ol_signed_request_send(struct ol_signed_request *sender, const struct outlog_delivery *message,
                            const struct ol_signed_request_input *request, int64_t deadline_us,
                            void *tag)
{
    const struct ol_http_settings *http = sender->settings->own;
    outlog_err err;
    if (set_headers(sender, message, request, &err) < 0) {
        ol_signed_request_refuse(sender, tag, &err);
        return;
    }
    struct ol_http_client_request http_request = {
        .url = request->url,
        .method = request->method,
        .headers = &sender->headers,
        .body = request->body,
        .body_bytes = request->body_bytes,
        .allow_private = http->allow_private,
        .ca_file = http->ca_file,
        .deadline_us = deadline_us,
        .tag = tag,
    };
    if (ol_http_pool_start(sender->pool, &http_request, &err) < 0)
        ol_signed_request_refuse(sender, tag, &err);
}
