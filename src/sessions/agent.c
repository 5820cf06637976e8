/* agent.c: the settings of an agent, and the parser of its output. */
#include "sessions/agent.h"

#include "base/duration.h"
#include "base/err.h"

#include <string.h>

enum { ANSWER_BYTES_MAX = 1024 * 1024, ANSWER_LINE_MAX = 256 * 1024 };

/* --- settings --- */

static int fail_setting(outlog_err *err, const char *pointer, const char *why)
{
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s", why);
}

static const char *text_at(const struct ol_json *object, const char *name, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, name);
    return ol_json_string(&value, arena, NULL);
}

static int read_command(const struct ol_json *list, struct ol_arena *arena, struct ol_agent *out,
                        outlog_err *err)
{
    struct ol_json_iter it = {0};
    size_t count = 0;
    while (list->type == OL_JSON_ARRAY && ol_json_next(list, &it))
        count++;
    if (count == 0)
        return fail_setting(err, "/command", "an exec agent has a command, a list of texts");
    out->argv = ol_arena_array(arena, count + 1, sizeof *out->argv);
    it = (struct ol_json_iter){0};
    for (size_t i = 0; out->argv && ol_json_next(list, &it); i++)
        if (!(out->argv[i] = ol_json_string(&it.value, arena, NULL)))
            return fail_setting(err, "/command", "command is a list of texts");
    return out->argv ? 0 : ol_no_memory(err);
}

static int check_keys(const struct ol_json *settings, outlog_err *err)
{
    static const char *const known[] = {"type", "url", "command", "timeout", "tries"};
    struct ol_json_iter it = {0};
    while (ol_json_next(settings, &it)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found = found || ol_json_equals(&it.key, known[i]);
        if (!found)
            return ol_fail(
                err, OUTLOG_UNKNOWN_FIELD,
                "an agent has no key %.*s; type, url, command, timeout and tries are known",
                (int)(it.key.bytes < 60 ? it.key.bytes : 60), it.key.text);
    }
    return 0;
}

int ol_agent_parse(const struct ol_json *settings, struct ol_arena *arena, struct ol_agent *out,
                   outlog_err *err)
{
    struct ol_json type = ol_json_get(settings, "type"), tries = ol_json_get(settings, "tries");
    struct ol_json command = ol_json_get(settings, "command");
    struct ol_json span = ol_json_get(settings, "timeout");
    int64_t count = 3;

    *out = (struct ol_agent){.timeout_us = 120 * 1000000};
    if (check_keys(settings, err) < 0)
        return -1;
    const char *timeout = ol_json_string(&span, arena, NULL);
    if (span.type != OL_JSON_NONE &&
        (!timeout || ol_duration_parse(timeout, &out->timeout_us) < 0 || out->timeout_us <= 0))
        return fail_setting(err, "/timeout", "timeout is a span like 120s");
    if (tries.type != OL_JSON_NONE && (!ol_json_int(&tries, &count) || count < 1 || count > 100))
        return fail_setting(err, "/tries", "tries is a number from 1 to 100");
    out->tries = (int)count;
    if (ol_json_equals(&type, "exec")) {
        out->type = OL_AGENT_EXEC;
        return read_command(&command, arena, out, err);
    }
    if (!ol_json_equals(&type, "http"))
        return fail_setting(err, "/type", "an agent's type is http or exec");
    out->type = OL_AGENT_HTTP;
    out->url = text_at(settings, "url", arena);
    if (!out->url ||
        (strncmp(out->url, "http://", 7) != 0 && strncmp(out->url, "https://", 8) != 0))
        return fail_setting(err, "/url",
                            "an http agent has a url that begins with http:// or https://");
    return 0;
}

/* --- output --- */

void ol_agent_stream_clear(struct ol_agent_stream *stream)
{
    ol_buf_clear(&stream->line);
    ol_buf_clear(&stream->content);
    ol_buf_clear(&stream->checkpoint);
    ol_arena_clear(&stream->arena);
}

static bool take_token(struct ol_agent_stream *stream, const struct ol_json *value)
{
    size_t bytes;
    const char *text = ol_json_string(value, &stream->arena, &bytes);
    if (!text || stream->content.bytes + bytes > ANSWER_BYTES_MAX) {
        ol_fail(&stream->err, OUTLOG_TOO_LARGE,
                text ? "the agent's answer has more than 1 MiB" : "the agent's token is no text");
        return false;
    }
    ol_buf_add(&stream->content, text, bytes);
    if (bytes)
        ol_agent_events_add_token(stream->events, stream->work, text, bytes);
    return true;
}

static bool fail_format(struct ol_agent_stream *stream)
{
    ol_fail(&stream->err, OUTLOG_INVALID_JSON,
            "the agent sent a line that is neither a token nor a checkpoint");
    return false;
}

/* "…", or {"message":"…"} as model servers write it. */
static bool fail_answer(struct ol_agent_stream *stream, const struct ol_json *error)
{
    struct ol_json message = ol_json_get(error, "message");
    const char *why =
        ol_json_string(message.type == OL_JSON_STRING ? &message : error, &stream->arena, NULL);
    ol_fail(&stream->err, OUTLOG_UNAVAILABLE, "the agent says: %.200s", why ? why : "error");
    return false;
}

/* {"token":"…"}, {"checkpoint":{…}}, {"error":"…"} */
static bool read_line(struct ol_agent_stream *stream, const char *text, size_t bytes)
{
    struct ol_json line;
    if (ol_json_parse_wrapped(text, bytes, &line, NULL) < 0 || line.type != OL_JSON_OBJECT)
        return fail_format(stream);
    struct ol_json token = ol_json_get(&line, "token"), mark = ol_json_get(&line, "checkpoint");
    struct ol_json error = ol_json_get(&line, "error");
    if (error.type != OL_JSON_NONE)
        return fail_answer(stream, &error);
    if (mark.type != OL_JSON_NONE) {
        ol_buf_reset(&stream->checkpoint);
        ol_buf_add(&stream->checkpoint, mark.text, mark.bytes);
    }
    if (token.type != OL_JSON_NONE)
        return take_token(stream, &token);
    return mark.type != OL_JSON_NONE || fail_format(stream);
}

/* data: {"choices":[{"delta":{"content":"…"}}]}, and data: [DONE] at the end */
static bool read_delta(struct ol_agent_stream *stream, const char *text, size_t bytes)
{
    struct ol_json chunk;
    if (bytes < 5 || memcmp(text, "data:", 5) != 0)
        return true; // comments, event names, empty lines
    for (text += 5, bytes -= 5; bytes && *text == ' '; text++, bytes--)
        ;
    if (bytes == 6 && memcmp(text, "[DONE]", 6) == 0) {
        stream->is_done = true;
        return true;
    }
    if (ol_json_parse_wrapped(text, bytes, &chunk, NULL) < 0)
        return fail_format(stream);
    struct ol_json content = ol_json_at(&chunk, "/choices/0/delta/content");
    struct ol_json mark = ol_json_get(&chunk, "checkpoint"), error = ol_json_get(&chunk, "error");
    if (error.type > OL_JSON_NULL)
        return fail_answer(stream, &error); // though [DONE] may follow
    if (mark.type != OL_JSON_NONE) {
        ol_buf_reset(&stream->checkpoint);
        ol_buf_add(&stream->checkpoint, mark.text, mark.bytes);
    }
    return content.type <= OL_JSON_NULL || take_token(stream, &content);
}

static bool read_whole_line(struct ol_agent_stream *stream, const char *text, size_t bytes)
{
    // Like SSE, ignore one byte-order mark before the first line: some programs write it.
    if (!stream->has_begun && bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, bytes -= 3;
    stream->has_begun = true;
    while (bytes && (text[bytes - 1] == '\r' || text[bytes - 1] == ' '))
        bytes--;
    if (bytes == 0 || stream->is_done)
        return true;
    bool is_good = stream->is_event_stream ? read_delta(stream, text, bytes)
                                           : read_line(stream, text, bytes);
    ol_arena_reset(&stream->arena);
    return is_good;
}

bool ol_agent_stream_feed(struct ol_agent_stream *stream, const char *data, size_t bytes)
{
    const char *end = data + bytes;
    while (data < end) {
        const char *stop = memchr(data, '\n', (size_t)(end - data));
        ol_buf_add(&stream->line, data, (size_t)((stop ? stop : end) - data));
        if (stream->line.bytes > ANSWER_LINE_MAX || stream->line.failed) {
            ol_fail(&stream->err, OUTLOG_TOO_LARGE, "the agent sent a line of more than 256 KiB");
            return false;
        }
        if (!stop)
            return true;
        if (!read_whole_line(stream, stream->line.data ? stream->line.data : "",
                             stream->line.bytes))
            return false;
        ol_buf_reset(&stream->line);
        data = stop + 1;
    }
    return true;
}

bool ol_agent_stream_end(struct ol_agent_stream *stream)
{
    if (stream->line.bytes && !read_whole_line(stream, stream->line.data, stream->line.bytes))
        return false;
    if (stream->is_event_stream && !stream->is_done) {
        ol_fail(&stream->err, OUTLOG_UNAVAILABLE, "the agent's stream ended without [DONE]");
        return false;
    }
    return true;
}
