/* line.h: what a process tells its operator: one line an occurrence on standard error, as logfmt or as
 * JSON (M2). Never a payload, a header or a secret. */
#ifndef OL_BASE_LINE_H
#define OL_BASE_LINE_H

#include "base/buf.h"

#include <stdint.h>

enum ol_line_format { OL_LINE_LOGFMT, OL_LINE_JSON };
enum ol_line_level { OL_LINE_DEBUG, OL_LINE_INFO, OL_LINE_WARN, OL_LINE_ERROR };

/* How lines are written, and from which level on: set once, before threads start. Logfmt from info on
 * unless told otherwise. */
void ol_line_setup(enum ol_line_format format, enum ol_line_level least);

/* Would a line of this level be written? */
bool ol_line_wants(enum ol_line_level level);

/* Fields in the order they are given; a NULL or empty text is left out. Ending it writes the line. */
void ol_line_begin(struct ol_buf *line, enum ol_line_level level, const char *msg);
void ol_line_text(struct ol_buf *line, const char *name, const char *value);
void ol_line_word(struct ol_buf *line, const char *name, const char *value); /* needs no quotes */
void ol_line_int(struct ol_buf *line, const char *name, int64_t value);
void ol_line_end(struct ol_buf *line);

#endif
