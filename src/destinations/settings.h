/* settings.h: a destination's settings, from the JSON that is stored to values that are checked. */
#ifndef OL_DESTINATIONS_SETTINGS_H
#define OL_DESTINATIONS_SETTINGS_H

#include "base/err.h"
#include "net/address.h"
#include "outbox/retry.h"
#include "outlog_publisher.h"

enum ol_guarantee { OL_AT_LEAST_ONCE, OL_AT_MOST_ONCE };
enum ol_on_dead { OL_ON_DEAD_SKIP, OL_ON_DEAD_HOLD };
enum ol_keep_attempts { OL_KEEP_ALL, OL_KEEP_FAILURES };
enum ol_envelope { OL_ENVELOPE_NONE, OL_ENVELOPE_CLOUDEVENTS_BINARY, OL_ENVELOPE_CLOUDEVENTS };
enum ol_url_source { OL_URL_FROM_DESTINATION, OL_URL_FROM_PAYLOAD }; /* who names the URL */
enum ol_mqtt_protocol { OL_PROTOCOL_5, OL_PROTOCOL_3_1_1 };
enum ol_tls_mode { OL_TLS_STARTTLS, OL_TLS_IMPLICIT, OL_TLS_NONE };

/* Texts that are absent are NULL. Lists are NULL-terminated and counted. */
struct ol_settings {
    const char *name; /* of the destination */
    const char *type;
    const char *json; /* the whole object, ${NAME} replaced: for plug-ins */

    /* how it is delivered: read by the relay */
    enum ol_guarantee guarantee;
    enum ol_on_dead on_dead;
    enum ol_keep_attempts keep;
    int64_t timeout_us;
    int concurrency;
    int64_t rate_count, rate_period_us; /* 0: no rate */
    int64_t budget_bytes;               /* payload bytes in flight */
    struct ol_retry retry;              /* may say nothing: see ol_retry_resolve */
    const char *preset;                 /* its effect is in `retry` and `guarantee` already */
    int breaker_failures;               /* 0: no breaker */
    int64_t breaker_open_us, breaker_open_max_us;

    /* webhook, sor, smtp */
    const char *url;
    const char *const *secrets; /* the newest first */
    size_t secret_count;
    const char *method;
    const struct outlog_header *headers;
    size_t header_count;
    bool allow_private;
    const char *const *allow_hosts;
    size_t allow_host_count;
    enum ol_envelope envelope;
    enum ol_url_source request;
    unsigned char retry_on[1000 / 8]; /* bit per status */
    const char *ca_file;
    const char *source; /* CloudEvents source; for sor the first half of source_id */
    const char *from;   /* smtp */
    const char *user, *password;
    const char *hello; /* the name said in EHLO */
    enum ol_tls_mode tls;

    /* exec */
    const char *const *command;
    size_t command_count;
    const struct outlog_header *env; /* more variables for the program */
    size_t env_count;

    /* plug-ins: the path, and options as JSON text */
    const char *path;
    const char *options;

    /* brokers: names may hold {event_type}, {org_id}, {ordering_key}, {partition_key} */
    const char *subject, *brokers, *topic, *exchange, *routing_key, *stream;
    const struct ol_address *addresses; /* `url`, read; the login is in `user` and `password` */
    size_t address_count;
    const char *cert_file, *key_file; /* who we are, for TLS */
    const char *credentials;          /* nats: a .creds file */
    const char *client_id;            /* mqtt */
    int qos;
    enum ol_mqtt_protocol protocol; /* mqtt */
    int64_t max_len;                /* redis: about this many entries stay; 0: all */
    int64_t dedupe_us; /* redis: a repeat within this time is not added; 0: never looked at */

    const char *const *masked; /* what must never be shown: for ol_mask_add */
    struct ol_arena *arena;    /* private: holds all of the above */
};

enum ol_settings_mode {
    OL_SETTINGS_CHECK, /* `apply`, PUT: ${NAME} stays; what depends on it is not checked yet */
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

/* Whether retry_on names this status. */
bool ol_settings_retries_on(const struct ol_settings *settings, int status);

#endif
