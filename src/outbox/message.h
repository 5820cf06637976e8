/* message.h: putting messages into the outbox. */
#ifndef OL_OUTBOX_MESSAGE_H
#define OL_OUTBOX_MESSAGE_H

#include "log/log.h"

#endif
