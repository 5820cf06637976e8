/* match.h: what routes and rules match, in the words of a store: `on`, paths, `when`. */
#ifndef OL_LOG_MATCH_H
#define OL_LOG_MATCH_H

#include "base/json/json.h"

/* "/a/b" and a key, escaped, make "/a/b/key". */
const char *ol_match_below(struct ol_arena *arena, const char *pointer, const char *key);

/* A path that means the same to both stores: names without quotes. */
bool ol_match_is_path(const char *path);

/* {"/path": value}, with plain values only. Errors are at `pointer`. */
int ol_match_check_when(const struct ol_json *when, const char *pointer, struct ol_arena *arena,
                        outlog_err *err);

/* `on` as GLOB or as LIKE: `*` is anything, all else is itself. */
void ol_match_write(const char *on, bool is_glob, struct ol_buf *out);

/* "/a/0/b" as SQLite's $."a"[0]."b". */
void ol_match_write_path(const char *pointer, struct ol_buf *out);

/* `when`, its paths as SQLite's if `has_paths`. */
void ol_match_write_when(const struct ol_json *when, bool has_paths, struct ol_arena *arena,
                         struct ol_buf *out);

#endif
