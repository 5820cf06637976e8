/* report.c: one line an occurrence; never a payload, a header or a secret. */
#include "relay/report.h"

#include "base/buf.h"
#include "base/clock.h"

#include <stdio.h>

static void begin(struct ol_buf *line, const char *level, const char *what)
{
    char time[OL_TIME_TEXT];
    ol_buf_print(line, "time=%s level=%s msg=%s", ol_time_format(ol_clock_wall_us(), time), level,
                 what);
}

static void field(struct ol_buf *line, const char *name, const char *value)
{
    if (!value)
        return;
    ol_buf_print(line, " %s=", name);
    ol_buf_json_text(line, value); // quotes keep spaces and control bytes harmless
}

static void end(struct ol_buf *line)
{
    ol_buf_char(line, '\n');
    if (!line->failed)
        fwrite(line->data, 1, line->bytes, stderr);
    ol_buf_clear(line);
}

void ol_report_move(const struct outlog_message *message, const char *from, const char *to,
                    const char *error)
{
    struct ol_buf line = {0};
    begin(&line, "info", "message");
    field(&line, "message_id", message->event_id);
    field(&line, "event_id", message->causation_id);
    field(&line, "destination", message->destination);
    field(&line, "event_type", message->event_type);
    field(&line, "correlation_id", message->correlation_id);
    ol_buf_print(&line, " attempt=%d from=%s to=%s", message->attempt, from, to);
    field(&line, "error", error);
    end(&line);
}

void ol_report_projection(const char *name, const char *what, const char *error)
{
    struct ol_buf line = {0};
    begin(&line, error ? "warn" : "info", "projection");
    field(&line, "projection", name);
    field(&line, "what", what);
    field(&line, "error", error);
    end(&line);
}

void ol_report_trouble(const outlog_err *err)
{
    struct ol_buf line = {0};
    begin(&line, "warn", "store");
    field(&line, "code", outlog_code_name(err->code));
    field(&line, "error", err->message);
    end(&line);
}
