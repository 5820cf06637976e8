/* websocket.c: a message for the sockets of a session (D5, S-7).
 *
 * Nothing leaves here: the relay writes an effect of the session in the transaction that records
 * the message as published (sessions/outbox_push.c), and whichever daemon holds a socket of it
 * delivers that until a client has acknowledged it. */
#include "publish/publisher.h"

static int websocket_open(const struct outlog_publisher_host *host, void **instance,
                          outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host; // all it needs is where outcomes go
    return 0;
}

static void websocket_submit(void *instance, const struct outlog_delivery *message,
                             int64_t deadline_us, void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    const struct outlog_publisher_host *host = instance;
    (void)message;
    (void)deadline_us;
    host->done(host->user, tag, &ok);
}

static void websocket_close(void *instance)
{
    (void)instance;
}

const struct outlog_publisher ol_publisher_websocket = {
    .name = "websocket",
    .batch_max = 0,
    .keeps_attempts = false,
    .open = websocket_open,
    .submit = websocket_submit,
    .close = websocket_close,
};
