/* websocket.c: a message for the WebSocket clients of a session (D5, S-7).
 *
 * This publisher sends nothing itself. The relay writes an effect of the session in the transaction
 * that records the message as published (sessions/outbox_push.c). The daemon that holds a socket of
 * the session sends it until a client acknowledges it. */
#include "publish/publisher.h"

static int websocket_open(const struct outlog_publisher_host *host, void **instance,
                          outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host; // all it needs is the host, which takes the outcomes
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

static const struct outlog_publisher publisher = {
    .name = "websocket",
    .batch_max = 0,
    .keeps_attempts = false,
    .open = websocket_open,
    .submit = websocket_submit,
    .close = websocket_close,
};

const struct ol_publisher_type ol_publisher_type_websocket = {
    .name = "websocket",
    .publisher = &publisher,
    .has_own_form = true,
    .is_push = true,
    .timeout_s = 10,
    .concurrency = 64,
    .sends_nothing = true,
};
