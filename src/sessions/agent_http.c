/* agent_http.c: an agent behind a URL. */
#include "sessions/agent.h"

#include "base/clock.h"
#include "base/err.h"

#include <curl/curl.h>
#include <string.h>

enum { TICK_MS = 100, CONNECT_MS = 10000 };

struct call {
    CURL *easy;
    struct ol_agent_stream *ear;
    bool has_begun, is_garbled;
};

/* The first bytes: by now the status and the content type are known. */
static size_t on_bytes(char *data, size_t size, size_t count, void *user)
{
    struct call *call = user;
    size_t bytes = size * count;
    long status = 0;

    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2)
        return bytes; // nobody reads it
    if (!call->has_begun) {
        const char *type = NULL;
        curl_easy_getinfo(call->easy, CURLINFO_CONTENT_TYPE, &type);
        call->ear->is_stream = type && strncasecmp(type, "text/event-stream", 17) == 0;
        call->has_begun = true;
    }
    call->is_garbled = !ol_agent_stream_feed(call->ear, data, bytes);
    return call->is_garbled ? 0 : bytes;
}

static int verdict(struct call *call, CURLcode result, outlog_err *err)
{
    long status = 0;
    if (call->is_garbled) {
        *err = call->ear->err;
        return -1;
    }
    if (result != CURLE_OK)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent cannot be heard: %s",
                       curl_easy_strerror(result));
    curl_easy_getinfo(call->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status / 100 != 2)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent answers HTTP %ld", status);
    if (ol_agent_stream_end(call->ear))
        return 0;
    *err = call->ear->err;
    return -1;
}

/* Until it is over, the time is, or the ear does not want to hear any more. */
static int hear_out(struct call *call, CURLM *multi, int64_t until, outlog_err *err)
{
    CURLMsg *message;
    int running = 1, left;

    for (;;) {
        if (curl_multi_perform(multi, &running) != CURLM_OK)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent cannot be asked");
        while ((message = curl_multi_info_read(multi, &left)))
            if (message->msg == CURLMSG_DONE)
                return verdict(call, message->data.result, err);
        if (!call->ear->goes_on(call->ear->user))
            return ol_fail(err, OUTLOG_UNAVAILABLE, "given up");
        if (ol_clock_boot_us() >= until)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "the agent did not end in time");
        curl_multi_poll(multi, NULL, 0, TICK_MS, NULL);
    }
}

int ol_agent_http(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *ear, outlog_err *err)
{
    struct call call = {.easy = curl_easy_init(), .ear = ear};
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
    curl_easy_setopt(call.easy, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    curl_easy_setopt(call.easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(call.easy, CURLOPT_WRITEDATA, &call);
    curl_multi_add_handle(multi, call.easy);
    result = hear_out(&call, multi, ol_clock_boot_us() + agent->timeout_us, err);
    curl_multi_remove_handle(multi, call.easy);
out:
    curl_slist_free_all(headers);
    curl_easy_cleanup(call.easy);
    curl_multi_cleanup(multi);
    return result;
}
