/* publisher_file.c: a publisher plug-in that appends each payload to a file, one per line.
 *
 *     cc -shared -fPIC -o file.so publisher_file.c $(pkg-config --cflags --libs outlog jansson)
 *
 *     destinations:
 *       archive:
 *         type: plugin
 *         path: /usr/local/lib/outlog/file.so
 *         options: {file: /srv/all.ndjson}
 *
 * Success means that the line is on disk. submit() reports the outcome before it returns, so the
 * plug-in needs no functions to drive, abandon or poll. */
#include <outlog_publisher.h>

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct archive {
    const struct outlog_publisher_host *host;
    int fd;
};

static int set_error(outlog_err *err, const char *what, const char *why)
{
    *err = (outlog_err){.code = OUTLOG_INVALID_FIELD, .index = -1};
    snprintf(err->message, sizeof err->message, "%s: %s", what, why);
    return -1;
}

static int archive_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    int result = -1;
    const char *file = NULL;
    struct archive *a = NULL;
    json_t *settings = json_loads(host->settings, 0, NULL);

    if (json_unpack(settings, "{s:{s:s}}", "options", "file", &file) < 0) {
        set_error(err, "options.file", "must be a path");
        goto out;
    }
    if (!(a = calloc(1, sizeof *a))) {
        set_error(err, host->destination, "out of memory");
        goto out;
    }
    a->host = host;
    a->fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (a->fd < 0) {
        set_error(err, file, strerror(errno));
        goto out;
    }
    *instance = a;
    a = NULL;
    result = 0;
out:
    free(a);
    json_decref(settings);
    return result;
}

static void archive_submit(void *instance, const struct outlog_delivery *message,
                           int64_t deadline_us, void *tag)
{
    struct archive *a = instance;
    char newline = '\n';
    struct iovec line[2] = {{(void *)(uintptr_t)message->payload, message->payload_bytes},
                            {&newline, 1}};
    struct outlog_outcome outcome = {.kind = OUTLOG_PUBLISH_OK};
    (void)deadline_us;

    ssize_t put = writev(a->fd, line, 2); // O_APPEND: lines of several threads do not mix
    if (put < 0) {
        outcome.kind = OUTLOG_PUBLISH_FAILED;
        outcome.surely_not_sent = true;
        outcome.error = strerror(errno);
    } else if ((size_t)put != message->payload_bytes + 1 || fdatasync(a->fd) < 0) {
        outcome.kind = OUTLOG_PUBLISH_UNKNOWN; // some or all of it may be in the file
        outcome.error = "the line was not written completely";
    }
    a->host->done(a->host->user, tag, &outcome);
}

static void archive_close(void *instance)
{
    struct archive *a = instance;
    close(a->fd);
    free(a);
}

const struct outlog_publisher outlog_publisher_plugin __attribute__((visibility("default"))) = {
    .abi = OUTLOG_PUBLISHER_ABI,
    .bytes = sizeof(struct outlog_publisher),
    .name = "file",
    .batch_max = 64,
    .keeps_attempts = false,
    .open = archive_open,
    .submit = archive_submit,
    .close = archive_close,
};
