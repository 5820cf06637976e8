/* null.c: accepts every message and sends nothing: to measure what the relay itself costs.
 *
 * Success means only that the relay handed the message over. */
#include "publish/publisher.h"

static int null_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host; // all it needs is the host, which takes the outcomes
    return 0;
}

static void null_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                        void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    const struct outlog_publisher_host *host = instance;
    (void)message, (void)deadline_us;
    host->done(host->user, tag, &ok);
}

static void null_close(void *instance)
{
    (void)instance;
}

static const struct outlog_publisher publisher = {
    .name = "null",
    .batch_max = 0,
    .keeps_attempts = false,
    .open = null_open,
    .submit = null_submit,
    .close = null_close,
};

const struct ol_publisher_type ol_publisher_type_null = {
    .name = "null",
    .publisher = &publisher,
    .timeout_s = 10,
    .concurrency = 0,
    .sends_nothing = true,
};
