/* outlog_publisher.h: how one message leaves, and how to write a publisher of your own.
 *
 * A publisher turns one claimed message into bytes on a wire and one outcome. It knows nothing of
 * the store. A plug-in is a shared object that exports
 *
 *     const struct outlog_publisher outlog_publisher_plugin = {
 *         .abi = OUTLOG_PUBLISHER_ABI, .bytes = sizeof(struct outlog_publisher), .name = "file", …
 *     };
 *
 * and a destination {type: plugin, path: /…/file.so, options: {…}}. examples/publisher_file.c is a
 * complete one. What "success" means is the publisher's to say: only when the target has taken
 * the message, never because the bytes left. */
#ifndef OUTLOG_PUBLISHER_H
#define OUTLOG_PUBLISHER_H

#include <outlog.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OUTLOG_PUBLISHER_ABI 1
#define OUTLOG_PUBLISHER_SYMBOL "outlog_publisher_plugin"

struct outlog_header {
    const char *name, *value;
};

/* A message as a publisher sees it. Text is UTF-8; absent values are NULL. `payload` is opaque and
 * goes out byte for byte. Metadata is internal and therefore not here. */
struct outlog_delivery {
    const char *event_id; /* UUID, the same on every attempt */
    const char *org_id;
    const char *destination;
    const char *event_type;
    const char *payload;
    size_t payload_bytes;
    const char *content_type; /* NULL: application/json */
    const struct outlog_header *headers;
    size_t header_count;
    const char *idempotency_key; /* NULL: the event_id is the key */
    const char *ordering_key;
    const char *partition_key;
    const char *correlation_id;
    const char *causation_id;
    const char *aggregate_type;
    const char *aggregate_id;
    const char *traceparent; /* W3C: the event's, else made of correlation_id; never NULL */
    int64_t created_at;      /* microseconds since 1970 */
    int attempt;             /* 1 for the first */
    bool is_replay;          /* an operator sends a published message again */
};

enum outlog_outcome_kind {
    OUTLOG_PUBLISH_OK,      /* the target has taken it */
    OUTLOG_PUBLISH_FAILED,  /* the target has not taken it, as far as it says */
    OUTLOG_PUBLISH_UNKNOWN, /* it may have: the answer was lost, late or unreadable */
    OUTLOG_PUBLISH_RELEASED /* nothing was tried; the attempt does not count */
};

/* What one attempt came to. Pointers are valid during the callback only. */
struct outlog_outcome {
    enum outlog_outcome_kind kind;
    int status;             /* HTTP or SMTP status, exit code; 0 when there is none */
    bool is_permanent;      /* FAILED: the same message cannot succeed later (R2) */
    bool surely_not_sent;   /* FAILED: at_most_once may try again (no connection, 429, a
                               complete answer 500, …) */
    bool is_unreached;      /* RELEASED: there was no way to the target; the breaker counts it */
    int64_t retry_after_us; /* the target asks for this pause; 0: it does not */
    int64_t duration_us;    /* from submit() to the outcome */
    const char *response;   /* at most 4 KiB of UTF-8 with secrets masked, or NULL */
    size_t response_bytes;
    const char *error; /* one line for last_error without secrets; NULL when OK */
};

/* Called once for each submit(), inside submit(), drive(), abandon() or close(), on the instance's
 * own thread. It notes the outcome and returns: it does not call the publisher. */
typedef void outlog_publish_done(void *user, void *tag, const struct outlog_outcome *outcome);

/* What a publisher gets when it is opened; it stays valid until close(). */
struct outlog_publisher_host {
    const char *destination;   /* its name */
    const char *settings;      /* its settings as a JSON object, ${NAME} already replaced */
    outlog_publish_done *done; /* where outcomes go, with `user` */
    void *user;
    const void *own; /* for outlog's own publishers; plug-ins leave it alone */
};

struct outlog_publisher {
    unsigned abi;        /* OUTLOG_PUBLISHER_ABI; outlog's own leave both at 0 */
    unsigned bytes;      /* sizeof(struct outlog_publisher) */
    const char *name;    /* also the destination's type and the name in metrics */
    int batch_max;       /* how many submits in flight pay off; 0: any number */
    bool keeps_attempts; /* each attempt is a row of its own (R4), not only the batch record */

    /* Make an instance for one destination. It belongs to the calling thread. Connects lazily: a
     * dead target is an outcome, not an open error; -1 means that the settings are wrong. */
    int (*open)(const struct outlog_publisher_host *host, void **instance, outlog_err *err);

    /* Start one attempt, and never more than one: no retry inside. Does not wait for the network.
     * Copies what it needs of `message`. `deadline_us` is a time of CLOCK_BOOTTIME in
     * microseconds at which the attempt ends: UNKNOWN, or FAILED and surely_not_sent when it can
     * prove that. `tag` comes back with the outcome, which may arrive before submit() returns. */
    void (*submit)(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                   void *tag);

    /* Move everything on that can move, waiting at most timeout_ms for it (outlog itself passes
     * 0). NULL: outcomes always arrive inside submit(). */
    void (*drive)(void *instance, int timeout_ms);

    /* A descriptor that polls readable while drive() has something to do, deadlines included.
     * NULL or -1: drive() is called every few milliseconds while anything is in flight. */
    int (*fd)(void *instance);

    /* End the attempt with this tag now, as its deadline would. NULL: attempts cannot be ended
     * early, which is fine when outcomes arrive inside submit(). */
    void (*abandon)(void *instance, void *tag);

    /* End every attempt as abandon() would, then free the instance. */
    void (*close)(void *instance);
};

#ifdef __cplusplus
}
#endif
#endif
