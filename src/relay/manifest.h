/* manifest.h: the text of outlog.yaml, as JSON, read into clauses. */
#ifndef OL_RELAY_MANIFEST_H
#define OL_RELAY_MANIFEST_H

#include "relay/clause.h"

/* Read and check the whole text, without a store: ${NAME} stays as written.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: message and err->pointer name the place. */
int ol_manifest_read(struct ol_clauses *clauses, const char *json, size_t bytes, outlog_err *err);

/* --- for those that read a section --- */

struct ol_manifest_reader {
    struct ol_clauses *clauses;
    struct ol_arena *arena;
    outlog_err *err;
};

/* Only these keys, NULL-terminated. */
int ol_manifest_check_keys(struct ol_manifest_reader *r, const struct ol_json *object,
                           const char *pointer, const char *what, const char *const *known);

#endif
