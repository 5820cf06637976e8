/* publisher_type.h: what a publisher declares about the destinations of its type.
 *
 * Each publisher has one instance at the bottom of its own file, and publish/registry.c lists them
 * all. A type is known even when its client library was absent at build time: `outlog apply` then
 * still checks such a destination, which a relay with the library delivers to. */
#ifndef OL_DESTINATIONS_PUBLISHER_TYPE_H
#define OL_DESTINATIONS_PUBLISHER_TYPE_H

#include "base/buf.h"
#include "destinations/setting_types.h"

struct ol_publisher_type {
    const char *name; /* the value of `type` in the destination's settings */

    /* NULL: `load` finds it, or it is not built into this program. */
    const struct outlog_publisher *publisher;

    /* Find the publisher at run time, outside this program. NULL: `publisher` is it. */
    int (*load)(const struct ol_settings *settings, const struct outlog_publisher **out,
                outlog_err *err);

    /* What a published message becomes in the store, in the transaction that records it. */
    bool is_feed; /* a row in a user's feed */
    bool is_push; /* an effect of a session */

    /* A payload must have a form of its own (a mail has recipients): an alert cannot go there. */
    bool has_own_form;

    int timeout_s;   /* defaults of the common settings */
    int concurrency; /* 0: no limit */

    /* Nothing leaves the process before the transaction that records the message as published. */
    bool sends_nothing;

    /* settings->own: its size, and its content before any key is read (NULL: zeros). */
    size_t own_bytes;
    const void *own_defaults;

    /* The keys besides the common ones: up to two tables. A table ends with a key without a name;
     * the offsets of its fields are those in settings->own. */
    const struct ol_setting_key *keys[2];

    /* Called when all keys are read: what depends on more than one of them. NULL: nothing does.
     * It also names what must be masked, with ol_setting_types_mask. */
    int (*check)(struct ol_setting_reader *reader);

    /* Write a payload that this type can send as a test. NULL: {"test":true}. */
    void (*write_sample)(const struct ol_settings *settings, struct ol_buf *out);
};

/* All types, in the order in which errors list them, then NULL. Defined in publish/registry.c. */
extern const struct ol_publisher_type *const ol_publisher_types[];

#endif
