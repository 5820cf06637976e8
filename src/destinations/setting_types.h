/* setting_types.h: how one value of a destination's settings is read and checked.
 *
 * A key names the function that reads its value and the field that the value goes to. After
 * ${NAME} was replaced every value is text, so numbers and booleans may be written as text too. */
#ifndef OL_DESTINATIONS_SETTING_TYPES_H
#define OL_DESTINATIONS_SETTING_TYPES_H

#include "base/json/json.h"
#include "destinations/settings.h"

struct ol_setting_key;

/* Settings while they are read. */
struct ol_setting_reader {
    struct ol_settings *settings;
    void *target; /* what a key's offset is relative to: the common settings, or settings->own */
    enum ol_settings_mode mode;
    bool has_guarantee;
    bool is_url_pending; /* `url` holds a ${NAME} that is not replaced yet: do not check it */
    const char **masked; /* settings->masked, while it grows */
    size_t masked_count, masked_room;
    outlog_err *err;
};

struct ol_setting_key {
    const char *name;
    int (*read)(struct ol_setting_reader *r, const struct ol_setting_key *key,
                const struct ol_json *value);
    size_t offset; /* of the field */
    bool is_needed;
    int64_t min, max;
    const char *const *choices; /* in the order of their enum */
};

/* Items are NULL-terminated and counted. */
struct ol_text_list {
    const char *const *items;
    size_t count;
};

enum ol_tls_mode { OL_TLS_STARTTLS, OL_TLS_IMPLICIT, OL_TLS_NONE };
extern const char *const ol_tls_mode_names[];

/* OUTLOG_INVALID_FIELD: "key: wanted", with a pointer to the key. */
int ol_setting_types_wrong(struct ol_setting_reader *r, const char *key, const char *wanted);
int ol_setting_types_no_memory(struct ol_setting_reader *r);

/* Never show this value in a stored response or an error (E13). NULL is ignored. */
int ol_setting_types_mask(struct ol_setting_reader *r, const char *value);

/* The same for the values whose names look like secrets: authorization, x-api-key, … */
int ol_setting_types_mask_pairs(struct ol_setting_reader *r, const struct outlog_header *pairs,
                                size_t count);

/* Readers of a value into the field at key->offset, whose type is: */

/* const char *, not empty */
int ol_setting_types_text(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value);
/* const char *; sets is_url_pending */
int ol_setting_types_url(struct ol_setting_reader *r, const struct ol_setting_key *key,
                         const struct ol_json *value);
/* const char *: a subject, topic, stream or routing key, perhaps with {event_type} and the like */
int ol_setting_types_name(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value);
/* const char *: the JSON text of an object */
int ol_setting_types_object(struct ol_setting_reader *r, const struct ol_setting_key *key,
                            const struct ol_json *value);
/* struct ol_text_list, not empty */
int ol_setting_types_texts(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value);
/* bool */
int ol_setting_types_bool(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value);
/* int, from key->min to key->max */
int ol_setting_types_int(struct ol_setting_reader *r, const struct ol_setting_key *key,
                         const struct ol_json *value);
/* int64_t, from key->min to key->max */
int ol_setting_types_bytes(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value);
/* int64_t microseconds, from key->min to key->max */
int ol_setting_types_duration(struct ol_setting_reader *r, const struct ol_setting_key *key,
                              const struct ol_json *value);
/* an enum whose names are key->choices */
int ol_setting_types_choice(struct ol_setting_reader *r, const struct ol_setting_key *key,
                            const struct ol_json *value);

/* Into settings->headers, for the types that send headers. */
int ol_setting_types_headers(struct ol_setting_reader *r, const struct ol_setting_key *key,
                             const struct ol_json *value);

/* Into the common settings: rate_count and rate_period_us, retry, breaker_… */
int ol_setting_types_rate(struct ol_setting_reader *r, const struct ol_setting_key *key,
                          const struct ol_json *value);
int ol_setting_types_retry(struct ol_setting_reader *r, const struct ol_setting_key *key,
                           const struct ol_json *value);
int ol_setting_types_breaker(struct ol_setting_reader *r, const struct ol_setting_key *key,
                             const struct ol_json *value);

/* A string's value, or a number or boolean as written, in the settings' arena; else NULL. */
char *ol_setting_types_scalar(struct ol_setting_reader *r, const struct ol_json *value);

#endif
