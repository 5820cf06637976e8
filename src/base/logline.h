/* logline.h: what a process tells its operator: one line an occurrence on standard error, as logfmt
 * or as JSON (M2). Never a payload, a header or a secret. */
#ifndef OL_BASE_LOGLINE_H
#define OL_BASE_LOGLINE_H

#include "base/buf.h"

#include <stdint.h>

enum ol_logline_format { OL_LOGLINE_LOGFMT, OL_LOGLINE_JSON };
enum ol_logline_level { OL_LOGLINE_DEBUG, OL_LOGLINE_INFO, OL_LOGLINE_WARN, OL_LOGLINE_ERROR };

/* How lines are written, and from which level on: set once, before threads start. Logfmt from info
 * on unless told otherwise. */
void ol_logline_setup(enum ol_logline_format format, enum ol_logline_level least);

/* Would a line of this level be written? */
bool ol_logline_wants(enum ol_logline_level level);

/* Fields in the order they are given; a NULL or empty text is left out. Ending it writes the line.
 */
void ol_logline_begin(struct ol_buf *line, enum ol_logline_level level, const char *msg);
void ol_logline_text(struct ol_buf *line, const char *name, const char *value);
void ol_logline_word(struct ol_buf *line, const char *name,
                     const char *value); /* needs no quotes */
void ol_logline_int(struct ol_buf *line, const char *name, int64_t value);
void ol_logline_end(struct ol_buf *line);

#endif
