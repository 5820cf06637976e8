/* kafka.c: a message on a topic of a Kafka cluster (D4).
 *
 * Success is a delivery report without error from a producer with acks=all: every in-sync replica
 * has the record (min.insync.replicas should be 2 or more). The producer is idempotent: what the
 * client itself sends again is stored once. That holds only for the life of the producer, so the
 * event_id is sent as a header. The record's key is the partition_key, else the ordering_key, else
 * none.
 *
 * The client has threads of its own and never blocks; drive() fetches its reports. The report of a
 * message that timed out states whether it may be stored. After a fatal error an idempotent
 * producer cannot continue: it is destroyed and a new one made. */
#include "publish/broker/inflight.h"

struct kafka_settings {
    struct ol_broker_settings broker; /* first */
    const char *brokers;              /* host:port, … to bootstrap from */
    const char *options;              /* more properties for the client, as JSON text */
    enum ol_tls_mode tls;
};

#ifdef OL_WITH_KAFKA

#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { KAFKA_FLUSH_MS = 100, KAFKA_SCAN_MS = 1200 };

struct kafka {
    struct ol_inflight inflight; /* first */
    rd_kafka_t *producer;        /* NULL: the next message makes one */
    int wake_fd;                 /* an eventfd: the client writes to it when there is a report */
    bool is_fatal, is_down;      /* down: no broker was reachable since the last success */
    char error[256];             /* the client's last error about the connection */
};

/* --- reports, inside rd_kafka_poll on the owner's thread -------------------------------------- */

static void on_report(rd_kafka_t *producer, const rd_kafka_message_t *report, void *arg)
{
    struct kafka *k = arg;
    struct ol_broker_attempt *attempt = report->_private;
    const char *why = rd_kafka_err2str(report->err);
    (void)producer;

    if (report->err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        k->is_down = false;
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "%s %d %lld", attempt->message.name,
                              report->partition, (long long)report->offset);
        return;
    }
    switch (report->err) {
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
        ol_broker_attempt_refuse(attempt, true, "kafka: %s: %s", attempt->message.name, why);
        return;
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__PURGE_QUEUE:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
        if (k->is_down && rd_kafka_message_status(report) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED) {
            ol_broker_attempt_unreached(attempt, k->error); // it was never sent
            return;
        }
        break;
    default:
        break;
    }
    if (rd_kafka_message_status(report) == RD_KAFKA_MSG_STATUS_NOT_PERSISTED)
        ol_broker_attempt_refuse(attempt, false, "kafka: %s: %s", attempt->message.name, why);
    else
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN,
                              "kafka: sent, but not acknowledged: %s", why);
}

static void on_error(rd_kafka_t *producer, int code, const char *reason, void *arg)
{
    struct kafka *k = arg;
    char text[200];
    k->is_down = k->is_down || code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN ||
                 code == RD_KAFKA_RESP_ERR__AUTHENTICATION || code == RD_KAFKA_RESP_ERR__SSL ||
                 code == RD_KAFKA_RESP_ERR__RESOLVE;
    if (code == RD_KAFKA_RESP_ERR__FATAL) {
        k->is_fatal = true;
        rd_kafka_fatal_error(producer, text, sizeof text);
        reason = text;
    }
    snprintf(k->error, sizeof k->error, "kafka: %.200s", reason);
}

static void on_log(const rd_kafka_t *producer, int level, const char *part, const char *text)
{
    (void)producer, (void)level, (void)part, (void)text; // errors that matter arrive in on_error
}

/* --- the producer ----------------------------------------------------------------------------- */

static int set_option(rd_kafka_conf_t *conf, const char *name, const char *value, outlog_err *err)
{
    char why[200];
    if (!value || rd_kafka_conf_set(conf, name, value, why, sizeof why) == RD_KAFKA_CONF_OK)
        return 0;
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/options", "options: %s", why);
}

/* The destination's options come last. They may change all but what success depends on. */
static int set_options(rd_kafka_conf_t *conf, const char *options, outlog_err *err)
{
    static const char *const fixed[] = {"acks", "request.required.acks", "enable.idempotence",
                                        "bootstrap.servers"};
    struct ol_json object;
    struct ol_json_iter it = {0};
    struct ol_arena arena = {0};
    int result = ol_json_parse(options, strlen(options), &object, err);

    while (result == 0 && ol_json_next(&object, &it)) {
        const char *name = ol_json_string(&it.key, &arena, NULL);
        const char *value = it.value.type == OL_JSON_STRING
                                ? ol_json_string(&it.value, &arena, NULL)
                                : ol_arena_copy(&arena, it.value.text, it.value.bytes);
        if (!name || !value) {
            result = ol_no_memory(err);
            break;
        }
        for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
            if (strcmp(name, fixed[i]) == 0)
                result = ol_fail_at(err, OUTLOG_INVALID_FIELD, "/options",
                                    "options: %s cannot be changed", name);
        if (result == 0)
            result = set_option(conf, name, value, err);
    }
    ol_arena_clear(&arena);
    return result;
}

static int make_conf(struct kafka *k, rd_kafka_conf_t **out, outlog_err *err)
{
    const struct kafka_settings *own = k->inflight.settings->own;
    const struct ol_broker_settings *s = &own->broker;
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    bool is_tls = own->tls == OL_TLS_IMPLICIT || s->ca_file || s->cert_file;
    char timeout[24];
    long long timeout_ms = k->inflight.settings->timeout_us / 1000;

    // The client checks for timeouts once a second. Wait for that: only its report states that
    // nothing was sent.
    snprintf(timeout, sizeof timeout, "%lld",
             timeout_ms > 2 * KAFKA_SCAN_MS ? timeout_ms - KAFKA_SCAN_MS : (timeout_ms + 1) / 2);
    *out = conf;
    if (set_option(conf, "bootstrap.servers", own->brokers, err) < 0 ||
        set_option(conf, "client.id", "outlog", err) < 0 ||
        set_option(conf, "enable.idempotence", "true", err) < 0 ||
        set_option(conf, "message.timeout.ms", timeout, err) < 0 ||
        set_option(conf, "linger.ms", "1", err) < 0 ||
        set_option(conf, "reconnect.backoff.max.ms", "2000", err) < 0 ||
        set_option(conf, "security.protocol",
                   s->user ? (is_tls ? "sasl_ssl" : "sasl_plaintext")
                           : (is_tls ? "ssl" : "plaintext"),
                   err) < 0 ||
        (s->user && set_option(conf, "sasl.mechanism", "PLAIN", err) < 0) ||
        set_option(conf, "sasl.username", s->user, err) < 0 ||
        set_option(conf, "sasl.password", s->password, err) < 0 ||
        set_option(conf, "ssl.ca.location", s->ca_file, err) < 0 ||
        set_option(conf, "ssl.certificate.location", s->cert_file, err) < 0 ||
        set_option(conf, "ssl.key.location", s->key_file, err) < 0 ||
        (own->options && set_options(conf, own->options, err) < 0))
        return -1;
    rd_kafka_conf_set_opaque(conf, k);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    rd_kafka_conf_set_log_cb(conf, on_log);
    return 0;
}

static int make_producer(struct kafka *k, outlog_err *err)
{
    rd_kafka_conf_t *conf;
    sigset_t all, before;
    char why[200];

    if (make_conf(k, &conf, err) < 0) {
        rd_kafka_conf_destroy(conf);
        return -1;
    }
    sigfillset(&all); // the client's threads must not handle our signals
    pthread_sigmask(SIG_SETMASK, &all, &before);
    k->producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!k->producer) {
        rd_kafka_conf_destroy(conf);
        return ol_fail(err, OUTLOG_INVALID_FIELD, "kafka: %s", why);
    }
    rd_kafka_queue_t *queue = rd_kafka_queue_get_main(k->producer);
    uint64_t one = 1;
    rd_kafka_queue_io_event_enable(queue, k->wake_fd, &one, sizeof one);
    rd_kafka_queue_destroy(queue);
    k->is_fatal = k->is_down = false;
    return 0;
}

/* Every attempt ends by its report, at the latest here as purged. */
static void end_producer(struct kafka *k)
{
    if (!k->producer)
        return;
    rd_kafka_purge(k->producer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT |
                                    RD_KAFKA_PURGE_F_NON_BLOCKING);
    while (rd_kafka_outq_len(k->producer) > 0)
        rd_kafka_poll(k->producer, KAFKA_FLUSH_MS);
    rd_kafka_destroy(k->producer);
    k->producer = NULL;
}

/* --- messages --------------------------------------------------------------------------------- */

static rd_kafka_headers_t *make_headers(const struct ol_broker_message *message)
{
    rd_kafka_headers_t *list = rd_kafka_headers_new(message->header_count + 2);
    rd_kafka_header_add(list, "content-type", -1, message->content_type, -1);
    if (message->correlation_id)
        rd_kafka_header_add(list, "correlation-id", -1, message->correlation_id, -1);
    for (size_t i = 0; i < message->header_count; i++)
        rd_kafka_header_add(list, message->headers[i].name, -1, message->headers[i].value, -1);
    return list;
}

static void produce_message(struct kafka *k, struct ol_broker_attempt *attempt)
{
    const struct ol_broker_message *message = &attempt->message;
    rd_kafka_headers_t *headers = make_headers(message);
    rd_kafka_resp_err_t failed = __extension__ // its macros use GNU C
        rd_kafka_producev(k->producer, RD_KAFKA_V_TOPIC(message->name),
                          RD_KAFKA_V_VALUE((void *)(uintptr_t)message->body, message->body_bytes),
                          RD_KAFKA_V_KEY(message->key, message->key ? strlen(message->key) : 0),
                          RD_KAFKA_V_TIMESTAMP(message->created_at / 1000),
                          RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_OPAQUE(attempt),
                          RD_KAFKA_V_END); // not copied: the attempt outlives its report
    if (failed == RD_KAFKA_RESP_ERR_NO_ERROR)
        return;
    rd_kafka_headers_destroy(headers);
    switch (failed) {
    case RD_KAFKA_RESP_ERR__QUEUE_FULL:
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_RELEASED,
                              "kafka: the client's queue is full");
        break;
    case RD_KAFKA_RESP_ERR__FATAL:
        k->is_fatal = true;
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_RELEASED,
                              "kafka: the producer is restarting");
        break;
    default:
        ol_broker_attempt_refuse(attempt, failed == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                 "kafka: %s: %s", message->name, rd_kafka_err2str(failed));
    }
}

static void kafka_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                         void *tag)
{
    struct kafka *k = instance;
    outlog_err err;
    struct ol_broker_attempt *attempt = ol_inflight_add(&k->inflight, message, deadline_us, tag);
    if (!attempt)
        return;
    ol_broker_attempt_start(attempt); // only this thread could withdraw it
    if (!k->producer && make_producer(k, &err) < 0)
        ol_broker_attempt_unreached(attempt, err.message);
    else
        produce_message(k, attempt);
}

static void kafka_drive(void *instance, int timeout_ms)
{
    struct kafka *k = instance;
    uint64_t count;
    if (timeout_ms != 0)
        ol_poller_wait(&k->inflight.poller, timeout_ms);
    while (read(k->wake_fd, &count, sizeof count) > 0)
        ;
    if (k->producer)
        rd_kafka_poll(k->producer, 0);
    if (k->is_fatal)
        end_producer(k);
    ol_inflight_drive(&k->inflight);
}

/* --- the publisher ---------------------------------------------------------------------------- */

static int kafka_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static const struct ol_broker_naming naming = {.forbidden = " !\"#$%&'()*+,/:;<=>?@[\\]^`{|}~",
                                                   .name_max = 249,
                                                   .ce_prefix = "ce_"};
    struct kafka *k = calloc(1, sizeof *k);
    rd_kafka_conf_t *probe = NULL;
    if (!k)
        return ol_no_memory(err);
    if (ol_inflight_open(&k->inflight, host, &naming, err) < 0) {
        free(k);
        return -1;
    }
    k->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int result =
        k->wake_fd < 0 || ol_poller_add(&k->inflight.poller, k->wake_fd, EPOLLIN) < 0
            ? ol_fail(err, OUTLOG_NO_MEMORY, "no descriptor left")
            : make_conf(k, &probe, err); // wrong options fail here, not with the first message
    if (probe)
        rd_kafka_conf_destroy(probe);
    if (result < 0) {
        if (k->wake_fd >= 0)
            close(k->wake_fd);
        ol_inflight_close(&k->inflight);
        free(k);
        return -1;
    }
    *instance = k;
    return 0;
}

static int kafka_fd(void *instance)
{
    struct kafka *k = instance;
    return k->inflight.poller.fd;
}

static void kafka_abandon(void *instance, void *tag)
{
    struct kafka *k = instance;
    ol_inflight_abandon(&k->inflight, tag);
}

static void kafka_close(void *instance)
{
    struct kafka *k = instance;
    ol_inflight_abandon_all(&k->inflight);
    end_producer(k);
    ol_inflight_close(&k->inflight);
    close(k->wake_fd);
    free(k);
}

static const struct outlog_publisher publisher = {
    .name = "kafka",
    .batch_max = 1024,
    .open = kafka_open,
    .submit = kafka_submit,
    .drive = kafka_drive,
    .fd = kafka_fd,
    .abandon = kafka_abandon,
    .close = kafka_close,
};

#define KAFKA_PUBLISHER &publisher
#else
#define KAFKA_PUBLISHER NULL
#endif

/* --- settings --------------------------------------------------------------------------------- */

static int check_kafka(struct ol_setting_reader *r)
{
    static const struct ol_broker_rules rules = {.has_headers = true};
    return ol_broker_settings_check(r, &rules);
}

#define AT(member) offsetof(struct kafka_settings, member)

static const struct ol_setting_key kafka_keys[] = {
    {.name = "brokers", .read = ol_setting_types_text, .offset = AT(brokers), .is_needed = true},
    {.name = "topic", .read = ol_setting_types_name, .offset = AT(broker.name), .is_needed = true},
    {.name = "tls",
     .read = ol_setting_types_choice,
     .offset = AT(tls),
     .choices = ol_tls_mode_names},
    {.name = "options", .read = ol_setting_types_object, .offset = AT(options)},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_kafka = {
    .name = "kafka",
    .publisher = KAFKA_PUBLISHER,
    .timeout_s = 10,
    .concurrency = 1024,
    .own_bytes = sizeof(struct kafka_settings),
    .keys = {kafka_keys, ol_broker_settings_keys},
    .check = check_kafka,
};
