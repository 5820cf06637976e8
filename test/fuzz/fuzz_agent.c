/* fuzz_agent.c: the output of an agent: JSON lines, or the server-sent events of a model.
 *
 * However the bytes are cut into pieces, the answer is the same. It is valid UTF-8 within its
 * limit, a checkpoint is JSON, and a failure has a reason. Input: one byte for the length of the
 * pieces, whose highest bit selects server-sent events, then the output. */
#include "fuzz.h"

#include "sessions/agent.h"

static bool read_output(struct ol_agent_stream *stream, const char *data, size_t bytes,
                        size_t piece)
{
    for (size_t at = 0; at < bytes; at += piece)
        if (!ol_agent_stream_feed(stream, data + at, bytes - at < piece ? bytes - at : piece))
            return false;
    return ol_agent_stream_end(stream);
}

static void check_output(const struct ol_agent_stream *stream, bool is_good)
{
    struct ol_json mark;
    if (!is_good)
        check_err(&stream->err);
    check(stream->content.bytes <= 1024 * 1024);
    check(!stream->content.bytes || ol_utf8_is_valid(stream->content.data, stream->content.bytes));
    check(!stream->checkpoint.bytes ||
          ol_json_parse_wrapped(stream->checkpoint.data, stream->checkpoint.bytes, &mark, NULL) ==
              0);
}

static void check_same(const struct ol_buf *a, const struct ol_buf *b)
{
    check(a->bytes == b->bytes && (!a->bytes || memcmp(a->data, b->data, a->bytes) == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct ol_session_work work = {.request_id = "r"};
    if (bytes < 2)
        return 0;
    struct ol_agent_stream whole = {.work = &work, .is_event_stream = data[0] & 0x80}, cut = whole;
    char *text = copy_text(data + 1, bytes - 1);
    bool is_good = read_output(&whole, text, bytes - 1, bytes);
    check_output(&whole, is_good);
    check(read_output(&cut, text, bytes - 1, 1 + (data[0] & 0x7fu) % 61) == is_good);
    check_same(&whole.content, &cut.content);
    check_same(&whole.checkpoint, &cut.checkpoint);
    check(strcmp(whole.err.message, cut.err.message) == 0);
    ol_agent_stream_clear(&whole);
    ol_agent_stream_clear(&cut);
    free(text);
    return 0;
}
