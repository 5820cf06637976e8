/* probe.c: a publisher plug-in that notes when a message came. The payload says which one it is:
 * {"order_id":"ord_0000000042", …} is number 42. */
#include <outlog_publisher.h>

#include <stdlib.h>
#include <time.h>

/* Set by the measuring program, which loads this file too: where times go, in seconds. */
double *bench_probe_times;
long bench_probe_count;

enum { NUMBER_AT = 17 };

static int probe_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    (void)err;
    *instance = (void *)(uintptr_t)host;
    return 0;
}

static void probe_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                         void *tag)
{
    static const struct outlog_outcome ok = {.kind = OUTLOG_PUBLISH_OK};
    const struct outlog_publisher_host *host = instance;
    struct timespec now;
    long number = strtol(message->payload + NUMBER_AT, NULL, 10);

    (void)deadline_us;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (number >= 0 && number < bench_probe_count)
        bench_probe_times[number] = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
    host->done(host->user, tag, &ok);
}

static void probe_close(void *instance)
{
    (void)instance;
}

const struct outlog_publisher outlog_publisher_plugin = {
    .abi = OUTLOG_PUBLISHER_ABI,
    .bytes = sizeof(struct outlog_publisher),
    .name = "probe",
    .open = probe_open,
    .submit = probe_submit,
    .close = probe_close,
};
