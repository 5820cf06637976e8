/* agent.h: whoever answers a session's messages: an HTTP endpoint that streams, or a program.
 *
 * An agent gets one JSON line {session_key, seq, requestId, text, checkpoint} and says lines:
 * {"token":"…"} as often as it likes, and perhaps {"checkpoint":{…}} at the end. Over HTTP the
 * answer may also be text/event-stream with the deltas of OpenAI's chat completions. The end of the
 * output is the end of the answer; a connection that breaks before, a status other than 2xx, an
 * exit code other than 0 or a line that is none of these is a failure, and nothing of it becomes an
 * answer. */
#ifndef OL_SESSIONS_AGENT_H
#define OL_SESSIONS_AGENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json/json.h"
#include "outlog.h"

enum ol_agent_type { OL_AGENT_HTTP, OL_AGENT_EXEC };

struct ol_agent {
    enum ol_agent_type type;
    const char *url;    /* http */
    const char **argv;  /* exec; ends with NULL */
    int64_t timeout_us; /* for the whole answer */
    int tries;          /* then the session goes on without one */
};

/* Read `agents.<id>`: {type, url | command, timeout?, tries?}. Texts live in the arena.
 * OUTLOG_INVALID_FIELD, OUTLOG_UNKNOWN_FIELD: err names the key. */
int ol_agent_parse(const struct ol_json *settings, struct ol_arena *arena, struct ol_agent *out,
                   outlog_err *err);

/* While an agent speaks. */
struct ol_agent_stream {
    void (*token)(void *user, const char *text, size_t bytes);
    bool (*goes_on)(void *user); /* asked several times a second; false: give up */
    void *user;
    struct ol_arena arena;    /* the ear's own */
    struct ol_buf line;       /* begun, not ended */
    struct ol_buf content;    /* the tokens, joined */
    struct ol_buf checkpoint; /* empty: none */
    bool is_stream;           /* text/event-stream */
    bool has_begun;           /* its first line is heard */
    bool is_over;             /* [DONE] */
    outlog_err err;           /* why it cannot be understood, when code is not OUTLOG_OK */
};
void ol_agent_stream_clear(struct ol_agent_stream *ear);

/* Ask, and listen until the answer is over. -1: it failed. */
int ol_agent_ask(const struct ol_agent *agent, const char *line, size_t bytes,
                 struct ol_agent_stream *ear, outlog_err *err);

/* --- for the two kinds --- */

/* Bytes of the answer; false when they cannot be understood. */
bool ol_agent_stream_feed(struct ol_agent_stream *ear, const char *data, size_t bytes);

/* The output ended: the last line may have no end. */
bool ol_agent_stream_end(struct ol_agent_stream *ear);

int ol_agent_http(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *ear, outlog_err *err);
int ol_agent_exec(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *ear, outlog_err *err);

#endif
