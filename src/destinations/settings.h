/* settings.h: a destination's settings, from the stored JSON to checked values. */
#ifndef OL_DESTINATIONS_SETTINGS_H
#define OL_DESTINATIONS_SETTINGS_H

#include "base/arena.h"
#include "base/err.h"
#include "outbox/retry.h"
#include "outlog_publisher.h"

enum ol_guarantee { OL_AT_LEAST_ONCE, OL_AT_MOST_ONCE };
enum ol_on_dead { OL_ON_DEAD_SKIP, OL_ON_DEAD_HOLD };
enum ol_keep_attempts { OL_KEEP_ALL, OL_KEEP_FAILURES };

struct ol_publisher_type;

/* What every destination has. Absent texts are NULL. */
struct ol_settings {
    const char *name; /* of the destination */
    const char *type;
    const char *json; /* the whole object, ${NAME} replaced: for plug-ins */

    /* how the relay delivers */
    enum ol_guarantee guarantee;
    enum ol_on_dead on_dead;
    enum ol_keep_attempts keep;
    int64_t timeout_us;
    int concurrency;
    int64_t rate_count, rate_period_us; /* 0: no rate */
    int64_t budget_bytes;               /* payload bytes in flight */
    struct ol_retry retry;              /* may be unset: see ol_retry_resolve */
    const char *preset;                 /* `retry` and `guarantee` already have its effect */
    int breaker_failures;               /* 0: no breaker */
    int64_t breaker_open_us, breaker_open_max_us;

    /* more headers for each message; only the types that send headers have the key */
    const struct outlog_header *headers;
    size_t header_count;

    const char *const *masked; /* what must never be shown, for ol_mask_add; NULL-terminated */

    const struct ol_publisher_type *publisher_type;
    void *own; /* the rest: a struct that the type's publisher declares and reads */

    struct ol_arena *arena; /* private: holds all of the above */
};

enum ol_settings_mode {
    OL_SETTINGS_CHECK, /* `apply`, PUT: ${NAME} stays, and values that hold one are not checked */
    OL_SETTINGS_USE    /* where the delivery runs: ${NAME} is read from the environment */
};

/* Read and check the settings of destination `name`. The result is read only, may be shared by
 * threads, and must outlive every publisher that was opened with it.
 *
 * "$${" stands for a plain "${". OUTLOG_UNKNOWN_FIELD: a key that this type does not have.
 * OUTLOG_INVALID_FIELD: a value is wrong, a needed one is absent, or a variable is not set. The
 * message and err->pointer name the key; a secret's value is never shown. */
int ol_settings_open(const char *name, const char *json, size_t bytes, enum ol_settings_mode mode,
                     struct ol_settings **out, outlog_err *err);
void ol_settings_close(struct ol_settings *settings);

#endif
