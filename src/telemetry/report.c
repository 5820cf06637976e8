/* report.c: one log line per report, in the fields of logline.h. */
#include "telemetry/report.h"

#include "base/logline.h"

void ol_report_move(enum ol_logline_level level, const struct outlog_delivery *message,
                    const char *from, const char *to, const char *error)
{
    struct ol_buf line = {0};
    if (!ol_logline_wants(level))
        return;
    ol_logline_begin(&line, level, "message");
    ol_logline_text(&line, "message_id", message->event_id);
    ol_logline_text(&line, "event_id", message->causation_id);
    ol_logline_text(&line, "destination", message->destination);
    ol_logline_text(&line, "event_type", message->event_type);
    ol_logline_text(&line, "correlation_id", message->correlation_id);
    ol_logline_int(&line, "attempt", message->attempt);
    ol_logline_word(&line, "from", from);
    ol_logline_word(&line, "to", to);
    ol_logline_text(&line, "error", error);
    ol_logline_end(&line);
}

void ol_report_omitted(const struct outlog_delivery *message, const char *what,
                       const outlog_err *why)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, OL_LOGLINE_WARN, "omitted");
    ol_logline_text(&line, "message_id", message->event_id);
    ol_logline_text(&line, "destination", message->destination);
    ol_logline_word(&line, "what", what);
    ol_logline_text(&line, "code", outlog_code_name(why->code));
    ol_logline_text(&line, "error", why->message);
    ol_logline_end(&line);
}

void ol_report_lane(int lane, const outlog_err *why)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, why ? OL_LOGLINE_ERROR : OL_LOGLINE_INFO, "lane");
    ol_logline_int(&line, "lane", lane);
    ol_logline_word(&line, "what", why ? "stuck" : "moves again");
    if (why) {
        ol_logline_text(&line, "code", outlog_code_name(why->code));
        ol_logline_text(&line, "error", why->message);
    }
    ol_logline_end(&line);
}

void ol_report_destination(const char *destination, const char *why)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, why ? OL_LOGLINE_WARN : OL_LOGLINE_INFO, "destination");
    ol_logline_text(&line, "destination", destination);
    ol_logline_word(&line, "what", why ? "waiting" : "changed");
    ol_logline_text(&line, "error", why);
    ol_logline_end(&line);
}

void ol_report_projection(const char *name, const char *what, const char *error)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, error ? OL_LOGLINE_WARN : OL_LOGLINE_INFO, "projection");
    ol_logline_text(&line, "projection", name);
    ol_logline_text(&line, "what", what);
    ol_logline_text(&line, "error", error);
    ol_logline_end(&line);
}

void ol_report_store_error(const outlog_err *err)
{
    struct ol_buf line = {0};
    ol_logline_begin(&line, OL_LOGLINE_WARN, "store");
    ol_logline_text(&line, "code", outlog_code_name(err->code));
    ol_logline_text(&line, "error", err->message);
    ol_logline_end(&line);
}
