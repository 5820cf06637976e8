/* timing_publisher.c: a publisher plug-in that records when it gets each message. The payload has
 * the number of the message: {"order_id":"ord_0000000042", …} is number 42. */
#include <outlog_publisher.h>

#include <stdlib.h>
#include <time.h>

/* Set by publish_latency.c, which loads this plug-in too: the array of times, in seconds. */
double *bench_timing_times;
long bench_timing_count;

enum { NUMBER_AT = 17 };

static int timing_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host;
    return 0;
}

static void timing_submit(void *instance, const struct outlog_delivery *message,
                          int64_t deadline_us, void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    const struct outlog_publisher_host *host = instance;
    struct timespec now;
    long number = strtol(message->payload + NUMBER_AT, NULL, 10);

    (void)deadline_us;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (number >= 0 && number < bench_timing_count)
        bench_timing_times[number] = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    host->done(host->user, tag, &ok);
}

static void timing_close(void *instance)
{
    (void)instance;
}

const struct outlog_publisher outlog_publisher_plugin = {
    .abi = OUTLOG_PUBLISHER_ABI,
    .bytes = sizeof(struct outlog_publisher),
    .name = "timing",
    .open = timing_open,
    .submit = timing_submit,
    .close = timing_close,
};
