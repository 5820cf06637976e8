/* consumer.h: a consumer as the JSON object of the contract. */
#ifndef OL_VIEWS_CONSUMER_H
#define OL_VIEWS_CONSUMER_H

#include "base/buf.h"
#include "outlog.h"

void ol_consumer_json(const struct outlog_consumer *consumer, struct ol_buf *out);

#endif
