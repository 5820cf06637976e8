/* whole.h: what can be said of a destination's settings only when all of them are read. */
#ifndef OL_PUBLISH_WHOLE_H
#define OL_PUBLISH_WHOLE_H

#include "publish/detail.h"

/* The secrets, newest first, each of them usable. */
int ol_whole_secrets(struct ol_detail_reader *r);

/* smtp://user:password@host:port becomes smtp://host:port/hello, with the login apart. */
int ol_whole_smtp(struct ol_detail_reader *r);

/* The URL of a webhook or sor, or the hosts that a payload may name. */
int ol_whole_webhook(struct ol_detail_reader *r);

/* The address and the login of a broker. */
int ol_whole_broker(struct ol_detail_reader *r);

/* Everything of this destination that must not turn up in a stored response or an error. */
int ol_whole_masked(struct ol_detail_reader *r);

#endif
