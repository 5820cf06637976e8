/* broker_settings.c: keys and checks that all brokers share. */
#include "publish/broker/broker_settings.h"

#define AT(member) offsetof(struct ol_broker_settings, member)

const struct ol_setting_key ol_broker_settings_keys[] = {
    {.name = "headers", .read = ol_setting_types_headers},
    {.name = "envelope",
     .read = ol_setting_types_choice,
     .offset = AT(envelope),
     .choices = ol_envelope_names},
    {.name = "ca_file", .read = ol_setting_types_text, .offset = AT(ca_file)},
    {.name = "source", .read = ol_setting_types_text, .offset = AT(source)},
    {.name = "user", .read = ol_setting_types_text, .offset = AT(user)},
    {.name = "password", .read = ol_setting_types_text, .offset = AT(password)},
    {.name = "cert_file", .read = ol_setting_types_text, .offset = AT(cert_file)},
    {.name = "key_file", .read = ol_setting_types_text, .offset = AT(key_file)},
    {.name = NULL},
};

static int parse_url(struct ol_setting_reader *r, const struct ol_broker_rules *rules)
{
    struct ol_broker_settings *broker = r->settings->own;
    struct ol_address *list = NULL;

    if (ol_address_parse(broker->url, rules->schemes, r->settings->arena, &list,
                         &broker->address_count, r->err) < 0)
        return -1;
    if (broker->address_count > 1 && !rules->has_many_addresses)
        return ol_setting_types_wrong(r, "url", "one address is wanted");
    broker->addresses = list;
    if (!broker->user) {
        broker->user = list[0].user;
        if (!broker->password)
            broker->password = list[0].password;
    }
    return 0;
}

static int check_values(struct ol_setting_reader *r, const struct ol_broker_rules *rules)
{
    const struct ol_broker_settings *broker = r->settings->own;

    if (broker->envelope == OL_ENVELOPE_CLOUDEVENTS_BINARY && !rules->has_headers)
        return ol_setting_types_wrong(r, "envelope",
                                      "here CloudEvents are sent only as cloudevents-structured");
    if (!broker->cert_file != !broker->key_file)
        return ol_setting_types_wrong(r, broker->cert_file ? "key_file" : "cert_file",
                                      "the two go together");
    return rules->schemes ? parse_url(r, rules) : 0;
}

int ol_broker_settings_check(struct ol_setting_reader *r, const struct ol_broker_rules *rules)
{
    const struct ol_broker_settings *broker = r->settings->own;
    if (!r->is_url_pending && check_values(r, rules) < 0)
        return -1;
    return ol_setting_types_mask(r, broker->password);
}
