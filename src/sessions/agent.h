/* agent.h: an agent answers the messages of a session: an HTTP endpoint that streams, or a program.
 *
 * An agent gets one JSON line {session_key, seq, requestId, text, checkpoint} and writes lines:
 * {"token":"…"} as often as it likes, and perhaps {"checkpoint":{…}} at the end. Over HTTP the
 * response may also be text/event-stream with the deltas of OpenAI's chat completions. The end of
 * the output ends the answer. A connection that breaks earlier, a status other than 2xx, an exit
 * code other than 0 or any other line is a failure, and nothing of the output becomes an answer. */
#ifndef OL_SESSIONS_AGENT_H
#define OL_SESSIONS_AGENT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/json/json.h"
#include "outlog.h"
#include "sessions/agent_events.h"

enum ol_agent_type { OL_AGENT_HTTP, OL_AGENT_EXEC };

struct ol_agent {
    enum ol_agent_type type;
    const char *url;    /* http */
    const char **argv;  /* exec; ends with NULL */
    int64_t timeout_us; /* for the whole answer */
    int tries;          /* then the session continues without an answer */
};

/* Read `agents.<id>`: {type, url | command, timeout?, tries?}. Texts live in the arena.
 * OUTLOG_INVALID_FIELD, OUTLOG_UNKNOWN_FIELD: err names the key. */
int ol_agent_parse(const struct ol_json *settings, struct ol_arena *arena, struct ol_agent *out,
                   outlog_err *err);

/* The output of an agent while it is read. */
struct ol_agent_stream {
    struct ol_agent_events *events; /* gets each token as it arrives; NULL: nobody does */
    const struct ol_session_work *work;
    bool (*may_continue)(void *user); /* called several times a second; false: give up */
    void *user;
    struct ol_arena arena;    /* for one line */
    struct ol_buf line;       /* the incomplete last line */
    struct ol_buf content;    /* the tokens, joined */
    struct ol_buf checkpoint; /* empty: none */
    bool is_event_stream;     /* text/event-stream */
    bool has_begun;           /* the first line is read */
    bool is_done;             /* [DONE] was read */
    outlog_err err;           /* why it is invalid, when code is not OUTLOG_OK */
};
void ol_agent_stream_clear(struct ol_agent_stream *stream);

/* Ask an agent of this type, and read until the answer is complete. -1: it failed. */
int ol_agent_http(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *stream, outlog_err *err);
int ol_agent_exec(const struct ol_agent *agent, const char *line, size_t bytes,
                  struct ol_agent_stream *stream, outlog_err *err);

/* --- for both types --- */

/* The next bytes of the output; false: it is invalid. */
bool ol_agent_stream_feed(struct ol_agent_stream *stream, const char *data, size_t bytes);

/* The output ended; its last line may lack a newline. */
bool ol_agent_stream_end(struct ol_agent_stream *stream);

#endif
