/* in_app.c: a notification for a user's feed (N3).
 *
 * Nothing leaves: the relay writes the notice in the transaction that records the message as
 * published (relay/side_effects.c), so it is there exactly when the message is. Only what was
 * rendered can become one. */
#include "publish/publisher.h"

#include <string.h>

static int in_app_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host; // all it needs is where outcomes go
    return 0;
}

static void in_app_submit(void *instance, const struct outlog_delivery *message,
                          int64_t deadline_us, void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    static const struct outlog_outcome no_notice =
        {.kind = OUTLOG_PUBLISH_FAILED,
         .is_permanent = true,
         .error = "not a notification: only rules of outlog.yaml write to a feed"};
    const struct outlog_publisher_host *host = instance;
    (void)deadline_us;
    bool is_notice = message->content_type &&
                     strcmp(message->content_type, OL_NOTIFICATION_CONTENT_TYPE) == 0;
    host->done(host->user, tag, is_notice ? &ok : &no_notice);
}

static void in_app_close(void *instance)
{
    (void)instance;
}

const struct outlog_publisher ol_publisher_in_app = {
    .name = "in_app",
    .batch_max = 0,
    .keeps_attempts = false,
    .open = in_app_open,
    .submit = in_app_submit,
    .close = in_app_close,
};
