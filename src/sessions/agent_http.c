/* agent_http.c: asks an agent behind a URL. */
#include "sessions/agent.h"

#include "base/clock.h"
#include "base/err.h"

#include <curl/curl.h>
#include <string.h>

enum { AGENT_POLL_MS = 100, AGENT_CONNECT_MS = 10000 };

struct agent_call {
    CURL *easy;
    struct ol_agent_stream *stream;
    bool has_begun, is_invalid;
};

/* With the first bytes the status and the content type are known. */
static size_t on_bytes(char *data, size_t size, size_t count, void *user)
{
    struct agent_call *call = user;
    size_t bytes = size * count;
    long status = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2)
        return bytes; // the body of an error is not read
    if (!call->has_begun) {
        const char *type = NULL;
        curl_easy_getinfo(call->easy, CURLINFO_CONTENT_TYPE, &type);
        call->stream->is_event_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
        call->has_begun = true;
    }
    call->is_invalid = !ol_agent_stream_feed(call->stream, data, bytes);
    return call->is_invalid ? 0 : bytes;
}

static int judge_response(struct agent_call *call, CURLcode result, outlog_err *err)
{
    long status = 0;
    if (call->is_invalid) {
        *err = call->stream->err;
        return -1;
    }
    if (result != CURLE_OK)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "no answer from the agent: %s",
                       curl_easy_strerror(result));
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent answers HTTP %ld", status);
    if (ol_agent_stream_end(call->stream))
        return 0;
    *err = call->stream->err;
    return -1;
}

/* Until the response is complete, time is up, or the caller gives up. */
static int read_response(struct agent_call *call, CURLM *multi, int64_t until, outlog_err *err)
{
    CURLMsg *message;
    int running = 1, left;

    for (;;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent cannot be asked");
        while ((message = curl_multi_info_read(multi, &left)))
            if (message->msg == CURLMSG_DONE)
                return judge_response(call, message->data.result, err);
        if (!call->stream->may_continue(call->stream->user))
            return ol_fail(err, OUTLOG_UNAVAILABLE, "given up");
        if (ol_clock_boot_us() >= until)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent did not end in time");
        curl_multi_poll(multi, NULL, 0, AGENT_POLL_MS, NULL);
    }
}

int ol_agent_http(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *stream, outlog_err *err)
{
    struct agent_call call = {.easy = curl_easy_init(), .stream = stream};
    CURLM *multi = curl_multi_init();
    struct curl_slist *headers = curl_slist_append(NULL, "content-type: application/json");
    int result = -1;

    headers = curl_slist_append(headers, "accept: application/x-ndjson, text/event-stream");
    if (!call.easy || !multi || !headers) {
        ol_no_memory(err);
        goto out;
    }
    curl_easy_setopt(call.easy, CURLOPT_URL, agent->url);
    curl_easy_setopt(call.easy, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(call.easy, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(call.easy, CURLOPT_PROXY, "");
    curl_easy_setopt(call.easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(call.easy, CURLOPT_POSTFIELDS, line);
    curl_easy_setopt(call.easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)bytes);
    curl_easy_setopt(call.easy, CURLOPT_CONNECTTIMEOUT_MS, (long)AGENT_CONNECT_MS);
    curl_easy_setopt(call.easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(call.easy, CURLOPT_WRITEDATA, &call);
    curl_multi_add_handle(multi, call.easy);
    result = read_response(&call, multi, ol_clock_boot_us() + agent->timeout_us, err);
    curl_multi_remove_handle(multi, call.easy);
out:
    curl_slist_free_all(headers);
    curl_easy_cleanup(call.easy);
    curl_multi_cleanup(multi);
    return result;
}
