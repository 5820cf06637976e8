/* frame.c: writers of the frames in docs/sessions.md. */
#include "sessions/frame.h"

void ol_session_frame_accepted(const char *request_id, int64_t seq, struct ol_buf *out)
{
    ol_buf_text(out, "{\"type\":\"accepted\",\"requestId\":");
    ol_buf_json_text(out, request_id);
    ol_buf_text(out, ",\"seq\":");
    ol_buf_int(out, seq);
    ol_buf_char(out, '}');
}

void ol_session_frame_token(const char *request_id, const char *text, size_t bytes,
                            struct ol_buf *out)
{
    ol_buf_text(out, "{\"type\":\"token\",\"requestId\":");
    ol_buf_json_text(out, request_id);
    ol_buf_text(out, ",\"text\":");
    ol_buf_json(out, text, bytes);
    ol_buf_char(out, '}');
}

void ol_session_frame_error(const char *code, const char *request_id, const char *detail,
                            struct ol_buf *out)
{
    ol_buf_print(out, "{\"type\":\"error\",\"code\":\"%s\",\"requestId\":", code);
    ol_buf_json_text(out, request_id);
    ol_buf_text(out, ",\"detail\":");
    ol_buf_json_text(out, detail);
    ol_buf_char(out, '}');
}

void ol_session_frame_effect(const struct ol_pending_effect *effect, struct ol_buf *out)
{
    ol_buf_text(out, "{\"type\":");
    ol_buf_json_text(out, effect->effect_type);
    ol_buf_print(out, ",\"effect_id\":\"%s\"", effect->effect_id);
    if (effect->spec[1] != '}')
        ol_buf_char(out, ',');
    ol_buf_text(out, effect->spec + 1);
}
