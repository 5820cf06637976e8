/* match.h: the patterns and conditions of routes and rules (`on`, `when`), as each store reads
 * them. */
#ifndef OL_LOG_MATCH_H
#define OL_LOG_MATCH_H

#include "base/json/json.h"

/* Append a key, escaped, to a JSON pointer: "/a/b" becomes "/a/b/key". */
const char *ol_match_below(struct ol_arena *arena, const char *pointer, const char *key);

/* A path that both stores read alike: names without quotes. */
bool ol_match_is_path(const char *path);

/* Check {"/path": value}, with scalar values only. Errors have `pointer` or a pointer below it. */
int ol_match_check_when(const struct ol_json *when, const char *pointer, struct ol_arena *arena,
                        outlog_err *err);

/* `on` as a GLOB or LIKE pattern: `*` matches anything, every other character itself. */
void ol_match_write(const char *on, bool is_glob, struct ol_buf *out);

/* "/a/0/b" as SQLite's $."a"[0]."b". */
void ol_match_write_path(const char *pointer, struct ol_buf *out);

/* `when`, with paths in SQLite's form if `has_paths`. */
void ol_match_write_when(const struct ol_json *when, bool has_paths, struct ol_arena *arena,
                         struct ol_buf *out);

#endif
