/* analyzer.h: what clang-tidy cannot see, because it looks at one file at a time. Included by
 * scripts/lint before each file but err.c, never by the build. */
#include "base/err.h"

#define ol_fail(...) (ol_fail(__VA_ARGS__), -1)
#define ol_fail_at(...) (ol_fail_at(__VA_ARGS__), -1)
