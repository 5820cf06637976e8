/* logline.c: writing log lines as logfmt or JSON. */
#include "base/logline.h"

#include "base/clock.h"
#include "base/timestamp.h"

#include <stdio.h>

static enum ol_logline_format format = OL_LOGLINE_LOGFMT;
static enum ol_logline_level level_min = OL_LOGLINE_INFO;

void ol_logline_setup(enum ol_logline_format format_, enum ol_logline_level level_min_)
{
    format = format_;
    level_min = level_min_;
}

bool ol_logline_wants(enum ol_logline_level level)
{
    return level >= level_min;
}

static void write_name(struct ol_buf *line, const char *name)
{
    if (format == OL_LOGLINE_JSON)
        ol_buf_print(line, "%s\"%s\":", line->bytes ? "," : "{", name);
    else
        ol_buf_print(line, "%s%s=", line->bytes ? " " : "", name);
}

void ol_logline_begin(struct ol_buf *line, enum ol_logline_level level, const char *msg)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char time[OL_TIMESTAMP_TEXT];
    ol_buf_reset(line);
    ol_logline_word(line, "time", ol_timestamp_format(ol_clock_wall_us(), time));
    ol_logline_word(line, "level", names[level]);
    ol_logline_word(line, "msg", msg);
}

/* Quotes keep spaces and control bytes harmless. */
void ol_logline_text(struct ol_buf *line, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    write_name(line, name);
    ol_buf_json_text(line, value);
}

void ol_logline_word(struct ol_buf *line, const char *name, const char *value)
{
    write_name(line, name);
    if (format == OL_LOGLINE_JSON)
        ol_buf_json_text(line, value);
    else
        ol_buf_text(line, value);
}

void ol_logline_int(struct ol_buf *line, const char *name, int64_t value)
{
    write_name(line, name);
    ol_buf_print(line, "%lld", (long long)value);
}

/* One write per line, so that lines of several threads do not mix. */
void ol_logline_end(struct ol_buf *line)
{
    ol_buf_text(line, format == OL_LOGLINE_JSON ? "}\n" : "\n");
    if (!line->failed)
        fwrite(line->data, 1, line->bytes, stderr);
    ol_buf_clear(line);
}
