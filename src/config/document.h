/* document.h: the text of outlog.yaml, as JSON, read into clauses. */
#ifndef OL_CONFIG_DOCUMENT_H
#define OL_CONFIG_DOCUMENT_H

#include "config/entry.h"

/* Read and check the whole text, without a store: ${NAME} stays as written.
 * OUTLOG_UNKNOWN_FIELD, OUTLOG_INVALID_FIELD: message and err->pointer name the place. */
int ol_config_document_read(struct ol_config_entries *clauses, const char *json, size_t bytes,
                            outlog_err *err);

/* --- for those that read a section --- */

struct ol_config_reader {
    struct ol_config_entries *clauses;
    struct ol_arena *arena;
    outlog_err *err;
};

/* Only these keys, NULL-terminated. */
int ol_config_document_check_keys(struct ol_config_reader *r, const struct ol_json *object,
                                  const char *pointer, const char *what, const char *const *known);

#endif
