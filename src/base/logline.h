/* logline.h: log lines on standard error, as logfmt or as JSON (M2). They never contain a payload,
 * a header or a secret. */
#ifndef OL_BASE_LOGLINE_H
#define OL_BASE_LOGLINE_H

#include "base/buf.h"

#include <stdint.h>

enum ol_logline_format { OL_LOGLINE_LOGFMT, OL_LOGLINE_JSON };
enum ol_logline_level { OL_LOGLINE_DEBUG, OL_LOGLINE_INFO, OL_LOGLINE_WARN, OL_LOGLINE_ERROR };

/* The format, and the lowest level that is written. Set once, before threads start. The default is
 * logfmt and info. */
void ol_logline_setup(enum ol_logline_format format, enum ol_logline_level level_min);

/* Would a line of this level be written? */
bool ol_logline_wants(enum ol_logline_level level);

/* Begin a line, add fields in order, and end it, which writes the line. A NULL or empty text is
 * left out. A word is a text that needs no quotes. */
void ol_logline_begin(struct ol_buf *line, enum ol_logline_level level, const char *msg);
void ol_logline_text(struct ol_buf *line, const char *name, const char *value);
void ol_logline_word(struct ol_buf *line, const char *name, const char *value);
void ol_logline_int(struct ol_buf *line, const char *name, int64_t value);
void ol_logline_end(struct ol_buf *line);

#endif
