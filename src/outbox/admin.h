/* admin.h: what operators do to messages. The calls themselves are public: see outlog.h, "operating
 * messages". */
#ifndef OL_OUTBOX_ADMIN_H
#define OL_OUTBOX_ADMIN_H

#include "log/log.h"

enum { OL_ADMIN_CHUNK = 500, OL_ADMIN_IDS = 1000 };

/* The error without the numbers that differ from message to message: a run of digits is #, but a
 * status stays. NULL: no memory. */
const char *ol_admin_error_pattern(const char *error, struct ol_arena *arena);

#endif
