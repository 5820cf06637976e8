/* signed_request.c: headers, signature, request, outcome. */
#include "publish/http/signed_request.h"

#include "base/clock.h"
#include "base/traceparent.h"
#include "publish/cloudevents.h"
#include "publish/outcome.h"

#include <stdio.h>

static void on_answer(void *owner, void *tag, const struct ol_http_response *answer)
{
    struct ol_signed_request *post = owner;
    struct outlog_outcome outcome;
    ol_outcome_http(answer, post->settings, ol_clock_wall_us(), &post->memory, &outcome);
    post->host->done(post->host->user, tag, &outcome);
}

int ol_signed_request_open(struct ol_signed_request *post, const struct outlog_publisher_host *host,
                           outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    const struct ol_settings *settings = own->settings;
    *post = (struct ol_signed_request){.host = host, .settings = settings};
    if (settings->secret_count &&
        ol_webhook_signature_open(settings->secrets, settings->secret_count, &post->sign, err) < 0)
        return -1;
    if (ol_http_pool_open(own->http, settings->concurrency, on_answer, post, &post->link, err) <
        0) {
        ol_webhook_signature_close(post->sign);
        return -1;
    }
    return 0;
}

void ol_signed_request_close(struct ol_signed_request *post)
{
    ol_http_pool_close(post->link);
    ol_headers_clear(&post->headers);
    ol_buf_clear(&post->signature);
    ol_buf_clear(&post->memory);
    ol_webhook_signature_close(post->sign);
}

void ol_signed_request_abandon(struct ol_signed_request *post, void *tag)
{
    ol_http_pool_abandon(post->link, tag);
}

void ol_signed_request_refuse(struct ol_signed_request *post, void *tag, const outlog_err *err)
{
    struct outlog_outcome outcome;
    ol_outcome_refusal(err, post->settings, &post->memory, &outcome);
    post->host->done(post->host->user, tag, &outcome);
}

static int set_signature(struct ol_signed_request *post, const struct outlog_delivery *message,
                         const struct ol_signed_request_input *request, int64_t now_s,
                         outlog_err *err)
{
    ol_buf_reset(&post->signature);
    if (ol_webhook_signature_add(post->sign, message->event_id, now_s, request->body,
                                 request->body_bytes, &post->signature) < 0)
        return ol_fail(err, OUTLOG_NO_MEMORY, "the signature could not be made");
    return ol_headers_set(&post->headers, "webhook-signature", post->signature.data, err);
}

/* Ours first (H3). */
static int set_headers(struct ol_signed_request *post, const struct outlog_delivery *message,
                       const struct ol_signed_request_input *request, outlog_err *err)
{
    struct ol_headers *h = &post->headers;
    const struct ol_settings *settings = post->settings;
    int64_t now_s = ol_clock_wall_us() / 1000000;
    char number[24], traceparent[OL_TRACEPARENT_TEXT];

    ol_headers_reset(h);
    snprintf(number, sizeof number, "%lld", (long long)now_s);
    if (ol_headers_set(h, "content-type", request->content_type, err) < 0 ||
        ol_headers_set(h, "webhook-id", message->event_id, err) < 0 ||
        ol_headers_set(h, "webhook-timestamp", number, err) < 0 ||
        (post->sign && set_signature(post, message, request, now_s, err) < 0) ||
        ol_headers_set(h, "Idempotency-Key", request->key, err) < 0 ||
        ol_headers_set(h, "X-Idempotency-Key", request->key, err) < 0 ||
        ol_headers_set(h, "outlog-event-type", message->event_type, err) < 0)
        return -1;
    snprintf(number, sizeof number, "%d", message->attempt);
    if (ol_headers_set(h, "outlog-attempt", number, err) < 0 ||
        (message->is_replay && ol_headers_set(h, "outlog-replay", "true", err) < 0) ||
        (ol_traceparent_next(message->traceparent, message->event_id, message->attempt,
                             traceparent) &&
         ol_headers_set(h, "traceparent", traceparent, err) < 0))
        return -1;
    if (request->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY &&
        ol_cloudevents_binary(message, settings->source, h, err) < 0)
        return -1;
    if (ol_headers_offer_all(h, settings->headers, settings->header_count, err) < 0 ||
        ol_headers_offer_all(h, request->headers, request->header_count, err) < 0 ||
        ol_headers_offer_all(h, message->headers, message->header_count, err) < 0)
        return -1;
    return ol_headers_set(h, "user-agent", "outlog/" OUTLOG_VERSION, err);
}

void ol_signed_request_send(struct ol_signed_request *post, const struct outlog_delivery *message,
                            const struct ol_signed_request_input *request, int64_t deadline_us,
                            void *tag)
{
    outlog_err err;
    if (set_headers(post, message, request, &err) < 0) {
        ol_signed_request_refuse(post, tag, &err);
        return;
    }
    struct ol_http_client_request wire = {
        .url = request->url,
        .method = request->method,
        .headers = &post->headers,
        .body = request->body,
        .body_bytes = request->body_bytes,
        .allow_private = post->settings->allow_private,
        .ca_file = post->settings->ca_file,
        .deadline_us = deadline_us,
        .tag = tag,
    };
    if (ol_http_pool_start(post->link, &wire, &err) < 0)
        ol_signed_request_refuse(post, tag, &err);
}
