/* in_app.c: a notification for a user's feed (N3).
 *
 * This publisher sends nothing itself. The relay writes the notification in the transaction that
 * records the message as published (relay/side_effects.c), so the feed has it exactly when the
 * message is published. Only a rendered notification can be written to a feed. */
#include "publish/publisher.h"

#include <string.h>

static int in_app_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host; // all it needs is the host, which takes the outcomes
    return 0;
}

static void in_app_submit(void *instance, const struct outlog_delivery *message,
                          int64_t deadline_us, void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    static const struct outlog_outcome not_a_notification =
        {.kind = OUTLOG_PUBLISH_FAILED,
         .is_permanent = true,
         .error = "not a notification: only rules of outlog.yaml write to a feed"};
    const struct outlog_publisher_host *host = instance;
    (void)deadline_us;
    bool is_notification = message->content_type &&
                           strcmp(message->content_type, OL_NOTIFICATION_CONTENT_TYPE) == 0;
    host->done(host->user, tag, is_notification ? &ok : &not_a_notification);
}

static void in_app_close(void *instance)
{
    (void)instance;
}

static const struct outlog_publisher publisher = {
    .name = "in_app",
    .batch_max = 0,
    .keeps_attempts = false,
    .open = in_app_open,
    .submit = in_app_submit,
    .close = in_app_close,
};

const struct ol_publisher_type ol_publisher_type_in_app = {
    .name = "in_app",
    .publisher = &publisher,
    .has_own_form = true,
    .is_feed = true,
    .timeout_s = 10,
    .concurrency = 0,
    .sends_nothing = true,
};
