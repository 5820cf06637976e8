/* The plug-in that sends the simulation's messages: sim_relay.c implements it. */
#include <outlog_publisher.h>

int sim_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err);
void sim_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                void *tag);
void sim_drive(void *instance, int timeout_ms);
void sim_close(void *instance);

const struct outlog_publisher outlog_publisher_plugin = {
    .abi = OUTLOG_PUBLISHER_ABI,
    .bytes = sizeof(struct outlog_publisher),
    .name = "sim",
    .keeps_attempts = true,
    .open = sim_open,
    .submit = sim_submit,
    .drive = sim_drive,
    .close = sim_close,
};
