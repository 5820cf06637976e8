/* line.c: see line.h. */
#include "base/line.h"

#include "base/clock.h"

#include <stdio.h>

static enum ol_line_format format = OL_LINE_LOGFMT;
static enum ol_line_level least = OL_LINE_INFO;

void ol_line_setup(enum ol_line_format format_, enum ol_line_level least_)
{
    format = format_;
    least = least_;
}

bool ol_line_wants(enum ol_line_level level)
{
    return level >= least;
}

static void name_field(struct ol_buf *line, const char *name)
{
    if (format == OL_LINE_JSON)
        ol_buf_print(line, "%s\"%s\":", line->bytes ? "," : "{", name);
    else
        ol_buf_print(line, "%s%s=", line->bytes ? " " : "", name);
}

void ol_line_begin(struct ol_buf *line, enum ol_line_level level, const char *msg)
{
    static const char *const names[] = {"debug", "info", "warn", "error"};
    char time[OL_TIME_TEXT];
    ol_buf_reset(line);
    ol_line_word(line, "time", ol_time_format(ol_clock_wall_us(), time));
    ol_line_word(line, "level", names[level]);
    ol_line_word(line, "msg", msg);
}

/* Quotes keep spaces and control bytes harmless. */
void ol_line_text(struct ol_buf *line, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    name_field(line, name);
    ol_buf_json_text(line, value);
}

void ol_line_word(struct ol_buf *line, const char *name, const char *value)
{
    name_field(line, name);
    if (format == OL_LINE_JSON)
        ol_buf_json_text(line, value);
    else
        ol_buf_text(line, value);
}

void ol_line_int(struct ol_buf *line, const char *name, int64_t value)
{
    name_field(line, name);
    ol_buf_print(line, "%lld", (long long)value);
}

/* In one write, so that lines of several threads do not mix. */
void ol_line_end(struct ol_buf *line)
{
    ol_buf_text(line, format == OL_LINE_JSON ? "}\n" : "\n");
    if (!line->failed)
        fwrite(line->data, 1, line->bytes, stderr);
    ol_buf_clear(line);
}
