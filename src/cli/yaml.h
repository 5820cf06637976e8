/* yaml.h: a YAML file as JSON, and on which line each value stands. */
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
 * A plain scalar is a number, true, false or null where JSON would say so, and text otherwise:
 * `on`, `no` and 007 are text, and so is `type: null`, which is a type's name. Anchors, aliases,
 * tags, merge keys and repeated keys are refused. OUTLOG_INVALID_FIELD: the message begins with
 * `line N: `. */
int ol_yaml_read(const char *text, size_t bytes, struct ol_arena *arena, struct ol_yaml *out,
                 outlog_err *err);

/* The line of the value at a JSON pointer, or of the nearest value around it; 1 at least. */
int ol_yaml_line(const struct ol_yaml *yaml, const char *pointer);

#endif
