/* broker_settings.h: the settings that all brokers share. */
#ifndef OL_PUBLISH_BROKER_BROKER_SETTINGS_H
#define OL_PUBLISH_BROKER_BROKER_SETTINGS_H

#include "destinations/setting_types.h"
#include "net/address.h"
#include "publish/cloudevents.h"

/* The first member of settings->own of each broker. */
struct ol_broker_settings {
    const char *url;
    const struct ol_address *addresses; /* `url`, parsed; its login is in `user` and `password` */
    size_t address_count;
    const char *name; /* the template of the subject, topic, stream or routing key */
    enum ol_envelope envelope;
    const char *source; /* CloudEvents source */
    const char *user, *password;
    const char *ca_file;
    const char *cert_file, *key_file; /* the client's certificate for TLS */
};

/* All keys of struct ol_broker_settings but `url` and the name, which brokers call differently. */
extern const struct ol_setting_key ol_broker_settings_keys[];

/* What a broker's protocol can do. */
struct ol_broker_rules {
    const struct ol_address_scheme *schemes; /* of `url`; NULL: it has no `url` */
    bool has_many_addresses;                 /* `url` may list several servers */
    bool has_headers;                        /* binary CloudEvents are possible */
};

/* Check envelope, certificate and address, and take the login from the address. Nothing but the
 * password's mask is done while `url` holds a ${NAME}. */
int ol_broker_settings_check(struct ol_setting_reader *reader, const struct ol_broker_rules *rules);

#endif
