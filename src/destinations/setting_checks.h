/* setting_checks.h: what can be said of a destination's settings only when all of them are read. */
#ifndef OL_DESTINATIONS_SETTING_CHECKS_H
#define OL_DESTINATIONS_SETTING_CHECKS_H

#include "destinations/setting_types.h"

/* The secrets, newest first, each of them usable. */
int ol_setting_checks_secrets(struct ol_setting_types_reader *r);

/* smtp://user:password@host:port becomes smtp://host:port/hello, with the login apart. */
int ol_setting_checks_smtp(struct ol_setting_types_reader *r);

/* The URL of a webhook or sor, or the hosts that a payload may name. */
int ol_setting_checks_webhook(struct ol_setting_types_reader *r);

/* The address and the login of a broker. */
int ol_setting_checks_broker(struct ol_setting_types_reader *r);

/* Everything of this destination that must not turn up in a stored response or an error. */
int ol_setting_checks_masked(struct ol_setting_types_reader *r);

#endif
