/* fuzz_append_request.c: the body of POST /v1/events, and of POST /v1/messages.
 *
 * An accepted request is complete: events that can be checked and stored, payloads that are JSON,
 * keys that can be compared. A refused one has a status of 4xx and a problem in JSON. */
#include "log/event.h"
#include "outbox/enqueue.h"
#include "server/http/request.h"
#include "server/resources/append_request.h"
#include "server/server.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool is_ok)
{
    if (!is_ok)
        abort();
}

void ol_request_finish(struct ol_request *request)
{
    (void)request;
    abort();
}

static void check_accepted(const struct ol_append_request *draft)
{
    struct ol_json value;
    struct ol_buf text = {0};
    outlog_err err;

    check(draft->event_count + draft->message_count > 0);
    for (size_t i = 0; i < draft->event_count; i++) {
        const struct outlog_new_event *event = &draft->events[i];
        struct ol_json payload, metadata;
        if (ol_event_check(event, &payload, &metadata, &err) == 0)
            check(payload.type == OL_JSON_OBJECT);
    }
    if (draft->event_count && draft->events[0].payload) {
        bool is_complete = true;
        for (size_t i = 0; i < draft->event_count; i++)
            is_complete &= draft->events[i].payload != NULL;
        if (is_complete) {
            ol_event_request(draft->events, draft->event_count, &text);
            check(ol_json_parse_wrapped(text.data, text.bytes, &value, NULL) == 0);
        }
    }
    ol_buf_clear(&text);
}

static void check_refused(const struct ol_append_request *draft)
{
    struct ol_json problem;
    check(draft->status >= 400 && draft->status < 500);
    check(ol_json_parse(draft->answer.data, draft->answer.bytes, &problem, NULL) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static struct ol_server server;
    struct ol_pair header = {"traceparent",
                             "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"};
    struct ol_request *request = ol_request_new(&server);
    struct ol_append_request draft;
    struct outlog_new_message message = {0};
    outlog_err err;
    char *text = malloc(bytes + 1); // of exactly this size, for the sanitizer

    memcpy(text, data, bytes);
    text[bytes] = '\0';
    request->headers = &header;
    request->header_count = 1;
    request->request_id = "r";
    if (ol_append_request_parse(request, text, bytes, bytes % 2 ? "key" : NULL, &draft) == 0)
        check_accepted(&draft);
    else
        check_refused(&draft);
    ol_buf_clear(&draft.answer);
    ol_message_json_read(text, bytes, &request->arena, &message, &err);
    request->headers = NULL;
    ol_request_free(request);
    free(text);
    return 0;
}
