/* document.h: reads the text of outlog.yaml, as JSON, into entries. */
#ifndef OL_CONFIG_DOCUMENT_H
#define OL_CONFIG_DOCUMENT_H

#include "config/entry.h"

/* Read and check the whole text, without a store: ${NAME} stays as written. OUTLOG_UNKNOWN_FIELD,
 * OUTLOG_INVALID_FIELD: message and err->pointer name the position. */
int ol_config_document_read(struct ol_config_entries *entries, const char *json, size_t bytes,
                            outlog_err *err);

/* --- for the readers of sections --- */

struct ol_config_reader {
    struct ol_config_entries *entries;
    struct ol_arena *arena;
    outlog_err *err;
};

/* Fail if the object has other keys than these; NULL-terminated. */
int ol_config_document_check_keys(struct ol_config_reader *r, const struct ol_json *object,
                                  const char *pointer, const char *what, const char *const *known);

#endif
