/* env.h: ${NAME} in settings. It is stored as written and expanded where the delivery runs, so that
 * secrets are only in the environment of the relay. */
#ifndef OL_BASE_ENV_H
#define OL_BASE_ENV_H

#include "base/json/json.h"

/* Append `value` with every ${NAME} in its strings replaced; keys stay as they are, and "$${"
 * becomes a plain "${".
 *
 * OUTLOG_INVALID_FIELD: a variable is not set; the message names the key and the variable. */
int ol_env_expand(const struct ol_json *value, struct ol_arena *arena, struct ol_buf *out,
                  outlog_err *err);

#endif
