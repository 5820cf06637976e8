/* agent.c: what an agent is, and how its words are read. */
#include "sessions/agent.h"

#include "base/duration.h"
#include "base/err.h"

#include <string.h>

enum { MOST_ANSWER = 1024 * 1024, MOST_LINE = 256 * 1024 };

/* --- settings --- */

static int wrong(outlog_err *err, const char *pointer, const char *why)
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
        return wrong(err, "/command", "an exec agent has a command, a list of texts");
    out->argv = ol_arena_array(arena, count + 1, sizeof *out->argv);
    it = (struct ol_json_iter){0};
    for (size_t i = 0; out->argv && ol_json_next(list, &it); i++)
        if (!(out->argv[i] = ol_json_string(&it.value, arena, NULL)))
            return wrong(err, "/command", "command is a list of texts");
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
    struct ol_json command = ol_json_get(settings, "command"),
                   span = ol_json_get(settings, "timeout");
    int64_t count = 3;

    *out = (struct ol_agent){.timeout_us = 120 * 1000000};
    if (check_keys(settings, err) < 0)
        return -1;
    const char *timeout = ol_json_string(&span, arena, NULL);
    if (span.type != OL_JSON_NONE &&
        (!timeout || ol_duration_parse(timeout, &out->timeout_us) < 0 || out->timeout_us <= 0))
        return wrong(err, "/timeout", "timeout is a span like 120s");
    if (tries.type != OL_JSON_NONE && (!ol_json_int(&tries, &count) || count < 1 || count > 100))
        return wrong(err, "/tries", "tries is a number from 1 to 100");
    out->tries = (int)count;
    if (ol_json_equals(&type, "exec")) {
        out->type = OL_AGENT_EXEC;
        return read_command(&command, arena, out, err);
    }
    if (!ol_json_equals(&type, "http"))
        return wrong(err, "/type", "an agent's type is http or exec");
    out->type = OL_AGENT_HTTP;
    out->url = text_at(settings, "url", arena);
    if (!out->url ||
        (strncmp(out->url, "http://", 7) != 0 && strncmp(out->url, "https://", 8) != 0))
        return wrong(err, "/url", "an http agent has a url that begins with http:// or https://");
    return 0;
}

/* --- hearing --- */

void ol_agent_stream_clear(struct ol_agent_stream *ear)
{
    ol_buf_clear(&ear->line);
    ol_buf_clear(&ear->content);
    ol_buf_clear(&ear->checkpoint);
    ol_arena_clear(&ear->arena);
}

static bool take_token(struct ol_agent_stream *ear, const struct ol_json *value)
{
    size_t bytes;
    const char *text = ol_json_string(value, &ear->arena, &bytes);
    if (!text || ear->content.bytes + bytes > MOST_ANSWER) {
        ol_fail(&ear->err, OUTLOG_TOO_LARGE,
                text ? "the agent's answer has more than 1 MiB" : "the agent's token is no text");
        return false;
    }
    ol_buf_add(&ear->content, text, bytes);
    if (bytes)
        ear->token(ear->user, text, bytes);
    return true;
}

static bool garbled(struct ol_agent_stream *ear)
{
    ol_fail(&ear->err, OUTLOG_INVALID_JSON,
            "the agent said something that is neither a token nor a checkpoint");
    return false;
}

/* "…", or {"message":"…"} as servers of models say it. */
static bool gave_up(struct ol_agent_stream *ear, const struct ol_json *error)
{
    struct ol_json message = ol_json_get(error, "message");
    const char *why =
        ol_json_string(message.type == OL_JSON_STRING ? &message : error, &ear->arena, NULL);
    ol_fail(&ear->err, OUTLOG_UNAVAILABLE, "the agent says: %.200s", why ? why : "error");
    return false;
}

/* {"token":"…"}, {"checkpoint":{…}}, {"error":"…"} */
static bool hear_line(struct ol_agent_stream *ear, const char *text, size_t bytes)
{
    struct ol_json line;
    if (ol_json_parse_wrapped(text, bytes, &line, NULL) < 0 || line.type != OL_JSON_OBJECT)
        return garbled(ear);
    struct ol_json token = ol_json_get(&line, "token"), mark = ol_json_get(&line, "checkpoint");
    struct ol_json error = ol_json_get(&line, "error");
    if (error.type != OL_JSON_NONE)
        return gave_up(ear, &error);
    if (mark.type != OL_JSON_NONE) {
        ol_buf_reset(&ear->checkpoint);
        ol_buf_add(&ear->checkpoint, mark.text, mark.bytes);
    }
    if (token.type != OL_JSON_NONE)
        return take_token(ear, &token);
    return mark.type != OL_JSON_NONE || garbled(ear);
}

/* data: {"choices":[{"delta":{"content":"…"}}]}, and data: [DONE] at the end */
static bool hear_delta(struct ol_agent_stream *ear, const char *text, size_t bytes)
{
    struct ol_json chunk;
    if (bytes < 5 || memcmp(text, "data:", 5) != 0)
        return true; // comments, event names, empty lines
    for (text += 5, bytes -= 5; bytes && *text == ' '; text++, bytes--)
        ;
    if (bytes == 6 && memcmp(text, "[DONE]", 6) == 0) {
        ear->is_over = true;
        return true;
    }
    if (ol_json_parse_wrapped(text, bytes, &chunk, NULL) < 0)
        return garbled(ear);
    struct ol_json content = ol_json_at(&chunk, "/choices/0/delta/content");
    struct ol_json mark = ol_json_get(&chunk, "checkpoint"), error = ol_json_get(&chunk, "error");
    if (error.type > OL_JSON_NULL)
        return gave_up(ear, &error); // though [DONE] may follow
    if (mark.type != OL_JSON_NONE) {
        ol_buf_reset(&ear->checkpoint);
        ol_buf_add(&ear->checkpoint, mark.text, mark.bytes);
    }
    return content.type <= OL_JSON_NULL || take_token(ear, &content);
}

static bool hear_whole(struct ol_agent_stream *ear, const char *text, size_t bytes)
{
    // The standard of SSE ignores one byte-order mark before the first line; some programs write it
    // too.
    if (!ear->has_begun && bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        text += 3, bytes -= 3;
    ear->has_begun = true;
    while (bytes && (text[bytes - 1] == '\r' || text[bytes - 1] == ' '))
        bytes--;
    if (bytes == 0 || ear->is_over)
        return true;
    bool is_good = ear->is_stream ? hear_delta(ear, text, bytes) : hear_line(ear, text, bytes);
    ol_arena_reset(&ear->arena);
    return is_good;
}

bool ol_agent_stream_feed(struct ol_agent_stream *ear, const char *data, size_t bytes)
{
    const char *end = data + bytes;
    while (data < end) {
        const char *stop = memchr(data, '\n', (size_t)(end - data));
        ol_buf_add(&ear->line, data, (size_t)((stop ? stop : end) - data));
        if (ear->line.bytes > MOST_LINE || ear->line.failed) {
            ol_fail(&ear->err, OUTLOG_TOO_LARGE, "the agent said a line of more than 256 KiB");
            return false;
        }
        if (!stop)
            return true;
        if (!hear_whole(ear, ear->line.data ? ear->line.data : "", ear->line.bytes))
            return false;
        ol_buf_reset(&ear->line);
        data = stop + 1;
    }
    return true;
}

bool ol_agent_stream_end(struct ol_agent_stream *ear)
{
    if (ear->line.bytes && !hear_whole(ear, ear->line.data, ear->line.bytes))
        return false;
    if (ear->is_stream && !ear->is_over) {
        ol_fail(&ear->err, OUTLOG_UNAVAILABLE, "the agent's stream ended without [DONE]");
        return false;
    }
    return true;
}

int ol_agent_ask(const struct ol_agent *agent, const char *line, size_t bytes,
                 struct ol_agent_stream *ear, outlog_err *err)
{
    return agent->type == OL_AGENT_HTTP ? ol_agent_http(agent, line, bytes, ear, err)
                                        : ol_agent_exec(agent, line, bytes, ear, err);
}
