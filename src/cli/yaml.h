/* yaml.h: converts a YAML file to JSON and keeps the line of each value. */
#ifndef OL_CLI_YAML_H
#define OL_CLI_YAML_H

#include "base/arena.h"
#include "base/err.h"

struct ol_yaml_node;

struct ol_yaml {
    const char *json; /* the whole document; an empty file is {} */
    size_t bytes;
    const struct ol_yaml_node *root;
};

/* Read one document. Everything lives in `arena`.
 *
 * A plain scalar is a number, true, false or null if it is one in JSON, and text otherwise: `on`,
 * `no` and 007 are text, and so is `type: null`, which is the name of a type.
 *
 * OUTLOG_INVALID_FIELD: not YAML, or it has an anchor, alias, tag, merge key or repeated key. The
 * message begins with `line N: `. */
int ol_yaml_read(const char *text, size_t bytes, struct ol_arena *arena, struct ol_yaml *out,
                 outlog_err *err);

/* The line of the value at a JSON pointer, or of the nearest value around it; at least 1. */
int ol_yaml_line(const struct ol_yaml *yaml, const char *pointer);

#endif
