/* setting_types.h: how one value of a destination's settings is read and checked. */
#ifndef OL_DESTINATIONS_SETTING_TYPES_H
#define OL_DESTINATIONS_SETTING_TYPES_H

#include "base/json/json.h"
#include "destinations/settings.h"

/* Types of destinations, as bits. */
enum {
    OL_TO_WEBHOOK = 1 << 0,
    OL_TO_SMTP = 1 << 1,
    OL_TO_SOR = 1 << 2,
    OL_TO_EXEC = 1 << 3,
    OL_TO_STDOUT = 1 << 4,
    OL_TO_NOWHERE = 1 << 5,
    OL_TO_PLUGIN = 1 << 6,
    OL_TO_NATS = 1 << 7,
    OL_TO_KAFKA = 1 << 8,
    OL_TO_RABBITMQ = 1 << 9,
    OL_TO_REDIS = 1 << 10,
    OL_TO_MQTT = 1 << 11,
    OL_TO_WEBSOCKET = 1 << 12,
    OL_TO_IN_APP = 1 << 13,
    OL_TO_BROKERS = OL_TO_NATS | OL_TO_KAFKA | OL_TO_RABBITMQ | OL_TO_REDIS | OL_TO_MQTT,
    OL_TO_ANY = (1 << 14) - 1,
};

/* Settings in the making. */
struct ol_setting_types_reader {
    struct ol_settings *settings;
    enum ol_settings_mode mode;
    unsigned type;
    bool has_guarantee, is_url_pending;
    const char *secret, *secret_previous; /* until all keys are read */
    const char *const *secret_list;
    size_t secret_list_count;
    outlog_err *err;
};

struct ol_setting_types_key {
    const char *name;
    unsigned types, needed; /* which types have it, which cannot do without */
    int (*read)(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                const struct ol_json *value);
    size_t offset; /* of the field, for the plain kinds */
    int64_t min, max;
    const char *const *choices; /* in the order of their enum */
};

/* OUTLOG_INVALID_FIELD: "key: wanted", and where. */
int ol_setting_types_wrong(struct ol_setting_types_reader *r, const char *key, const char *wanted);
int ol_setting_types_no_memory(struct ol_setting_types_reader *r);

/* Into the field at key->offset. */
int ol_setting_types_text(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value);
int ol_setting_types_bool(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value);
int ol_setting_types_int(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value);
int ol_setting_types_bytes(struct ol_setting_types_reader *r,
                           const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_span(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value);
int ol_setting_types_choice(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_url(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value);
int ol_setting_types_name(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value);

/* Each into the fields it is named after. */
int ol_setting_types_method(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_rate(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                          const struct ol_json *value);
int ol_setting_types_retry(struct ol_setting_types_reader *r,
                           const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_breaker(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_secret(struct ol_setting_types_reader *r,
                            const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_secrets(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_allow_hosts(struct ol_setting_types_reader *r,
                                 const struct ol_setting_types_key *key,
                                 const struct ol_json *value);
int ol_setting_types_command(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_headers(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_env(struct ol_setting_types_reader *r, const struct ol_setting_types_key *key,
                         const struct ol_json *value);
int ol_setting_types_retry_on(struct ol_setting_types_reader *r,
                              const struct ol_setting_types_key *key, const struct ol_json *value);
int ol_setting_types_options(struct ol_setting_types_reader *r,
                             const struct ol_setting_types_key *key, const struct ol_json *value);

#endif
