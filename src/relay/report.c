/* report.c: see report.h. */
#include "relay/report.h"

#include "base/line.h"

void ol_report_move(enum ol_line_level level, const struct outlog_message *message,
                    const char *from, const char *to, const char *error)
{
    struct ol_buf line = {0};
    if (!ol_line_wants(level))
        return;
    ol_line_begin(&line, level, "message");
    ol_line_text(&line, "message_id", message->event_id);
    ol_line_text(&line, "event_id", message->causation_id);
    ol_line_text(&line, "destination", message->destination);
    ol_line_text(&line, "event_type", message->event_type);
    ol_line_text(&line, "correlation_id", message->correlation_id);
    ol_line_int(&line, "attempt", message->attempt);
    ol_line_word(&line, "from", from);
    ol_line_word(&line, "to", to);
    ol_line_text(&line, "error", error);
    ol_line_end(&line);
}

void ol_report_projection(const char *name, const char *what, const char *error)
{
    struct ol_buf line = {0};
    ol_line_begin(&line, error ? OL_LINE_WARN : OL_LINE_INFO, "projection");
    ol_line_text(&line, "projection", name);
    ol_line_text(&line, "what", what);
    ol_line_text(&line, "error", error);
    ol_line_end(&line);
}

void ol_report_trouble(const outlog_err *err)
{
    struct ol_buf line = {0};
    ol_line_begin(&line, OL_LINE_WARN, "store");
    ol_line_text(&line, "code", outlog_code_name(err->code));
    ol_line_text(&line, "error", err->message);
    ol_line_end(&line);
}
