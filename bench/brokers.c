/* brokers.c: messages to a broker, acknowledged one by one: by outlog's publisher, and by the bare
 * client library with the same subject, headers and body.
 *
 *     bench_brokers outlog|bare SETTINGS COUNT        prints acknowledged messages a second
 *
 * Both keep at most WINDOW messages in flight. */
#include "base/clock.h"
#include "publish/broker/broker_message.h"
#include "publish/publisher.h"
#include "publish/sender.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined OL_WITH_KAFKA && defined OL_WITH_MQTT && defined OL_WITH_NATS && \
    defined OL_WITH_RABBITMQ && defined OL_WITH_REDIS
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <hiredis.h>
#include <librdkafka/rdkafka.h>
#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <nats/nats.h>
#include <poll.h>
#include <unistd.h>

enum { WINDOW = 1000, MQTT_WINDOW = 200 };

static long acked, failed;
static struct ol_settings *settings;
static const struct ol_broker_settings *broker; /* settings->own */
static struct ol_broker_message sample;
static char id[64];

static const char *next_id(long n)
{
    snprintf(id, sizeof id, "0190e6a0-%04lx-7000-8000-%012lx", (long)getpid() & 0xffff, n);
    return id;
}

static struct outlog_delivery make_message(long n)
{
    static char payload[201];
    if (!*payload) {
        memset(payload, 'x', 200);
        memcpy(payload, "{\"text\":\"", 9);
        memcpy(payload + 198, "\"}", 2);
    }
    return (struct outlog_delivery){.event_id = next_id(n),
                                    .org_id = "acme",
                                    .destination = "bench",
                                    .event_type = "order.created",
                                    .payload = payload,
                                    .payload_bytes = 200,
                                    .created_at = 1767528300000001,
                                    .attempt = 1};
}

/* --- outlog ----------------------------------------------------------------------------------- */

static void on_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    (void)user, (void)tag;
    if (outcome->kind == OUTLOG_PUBLISH_OK)
        acked++;
    else if (failed++ == 0)
        fprintf(stderr, "%s\n", outcome->error ? outcome->error : "?");
}

static void publish_by_outlog(long count)
{
    struct ol_sender *sender;
    struct ol_sender_channel *channel;
    outlog_err err;
    int window = strcmp(settings->type, "mqtt") == 0 ? MQTT_WINDOW : WINDOW;
    if (ol_sender_open(&sender, on_done, NULL, &err) < 0 ||
        ol_sender_channel_open(sender, settings, &channel, &err) < 0) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    for (long n = 0; n < count || ol_sender_in_flight(sender);) {
        while (n < count && ol_sender_in_flight(sender) < (size_t)window) {
            struct outlog_delivery message = make_message(n++);
            ol_sender_channel_submit(channel, &message, ol_clock_boot_us() + 30000000, NULL);
        }
        ol_sender_drive(sender, 100);
    }
    ol_sender_close(sender);
}

/* --- the bare clients ------------------------------------------------------------------------- */

/* A key of the settings that only the broker's publisher reads. */
static struct ol_json read_key(const char *name)
{
    struct ol_json object;
    if (ol_json_parse(settings->json, strlen(settings->json), &object, NULL) < 0)
        return (struct ol_json){0};
    return ol_json_get(&object, name);
}

static void exit_with_error(const char *what)
{
    fprintf(stderr, "bare: %s\n", what);
    exit(1);
}

static void publish_by_redis(long count)
{
    const struct ol_address *a = broker->addresses;
    redisContext *link = redisConnect(a->host, a->port);
    const char *argv[64] = {"XADD",         sample.name,        "*", "payload", sample.body,
                            "content-type", sample.content_type};
    size_t bytes[64];
    int argc = 7;
    void *reply;

    if (!link || link->err)
        exit_with_error("redis");
    for (size_t i = 0; i < sample.header_count; i++) {
        argv[argc++] = sample.headers[i].name;
        argv[argc++] = sample.headers[i].value;
    }
    for (int i = 0; i < argc; i++)
        bytes[i] = strlen(argv[i]);
    for (long n = 0; n < count; n += WINDOW) {
        for (int i = 0; i < WINDOW; i++)
            redisAppendCommandArgv(link, argc, argv, bytes);
        for (int i = 0; i < WINDOW; i++) {
            if (redisGetReply(link, &reply) != REDIS_OK)
                exit_with_error("redis: reply");
            acked += ((redisReply *)reply)->type != REDIS_REPLY_ERROR;
            freeReplyObject(reply);
        }
    }
    redisFree(link);
}

static void publish_by_nats(long count)
{
    natsConnection *link = NULL;
    jsCtx *js = NULL;
    jsOptions options;
    jsOptions_Init(&options);
    options.PublishAsync.MaxPending = WINDOW;
    options.PublishAsync.StallWait = 30000;
    if (natsConnection_ConnectTo(&link, broker->url) != NATS_OK ||
        natsConnection_JetStream(&js, link, &options) != NATS_OK)
        exit_with_error("nats");
    for (long n = 0; n < count; n++) {
        natsMsg *message = NULL;
        natsMsg_Create(&message, sample.name, NULL, sample.body, (int)sample.body_bytes);
        natsMsgHeader_Set(message, "Nats-Msg-Id", next_id(n));
        for (size_t i = 0; i < sample.header_count; i++)
            natsMsgHeader_Set(message, sample.headers[i].name, sample.headers[i].value);
        if (js_PublishMsgAsync(js, &message, NULL) != NATS_OK)
            exit_with_error("nats: publish");
    }
    if (js_PublishAsyncComplete(js, NULL) != NATS_OK)
        exit_with_error("nats: acknowledgements");
    acked = count;
    jsCtx_Destroy(js);
    natsConnection_Destroy(link);
}

static void publish_by_rabbitmq(long count)
{
    const struct ol_address *a = broker->addresses;
    amqp_connection_state_t link = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(link);
    amqp_table_entry_t entries[64];
    amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG |
                                                    AMQP_BASIC_MESSAGE_ID_FLAG |
                                                    AMQP_BASIC_HEADERS_FLAG |
                                                    AMQP_BASIC_CONTENT_TYPE_FLAG,
                                          .delivery_mode = 2,
                                          .content_type = amqp_cstring_bytes(sample.content_type)};
    amqp_frame_t frame;

    if (amqp_socket_open(socket, a->host, a->port) != AMQP_STATUS_OK ||
        amqp_login(link, "/", 0, 131072, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest").reply_type !=
            AMQP_RESPONSE_NORMAL)
        exit_with_error("rabbitmq");
    amqp_channel_open(link, 1);
    amqp_confirm_select(link, 1);
    for (size_t i = 0; i < sample.header_count; i++) {
        entries[i].key = amqp_cstring_bytes(sample.headers[i].name);
        entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
        entries[i].value.value.bytes = amqp_cstring_bytes(sample.headers[i].value);
    }
    properties.headers = (amqp_table_t){(int)sample.header_count, entries};
    for (long n = 0; acked < count;) {
        for (; n < count && n - acked < WINDOW; n++) {
            properties.message_id = amqp_cstring_bytes(next_id(n));
            if (amqp_basic_publish(link, 1, amqp_empty_bytes, amqp_cstring_bytes(sample.name), 1, 0,
                                   &properties, amqp_cstring_bytes(sample.body)) != AMQP_STATUS_OK)
                exit_with_error("rabbitmq: publish");
        }
        amqp_maybe_release_buffers(link);
        if (amqp_simple_wait_frame(link, &frame) != AMQP_STATUS_OK)
            exit_with_error("rabbitmq: confirm");
        if (frame.frame_type != AMQP_FRAME_METHOD ||
            frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
            continue;
        const amqp_basic_ack_t *ack = frame.payload.method.decoded;
        acked = ack->multiple ? (long)ack->delivery_tag : acked + 1;
    }
    amqp_destroy_connection(link);
}

static void on_mqtt(struct mosquitto *link, void *arg, int number)
{
    (void)link, (void)arg, (void)number;
    acked++;
}

static void publish_by_mqtt(long count)
{
    struct ol_json written = read_key("qos");
    int qos = written.type == OL_JSON_NUMBER ? atoi(written.text) : 1;
    const struct ol_address *a = broker->addresses;
    mosquitto_property *properties = NULL;
    mosquitto_lib_init();
    struct mosquitto *link = mosquitto_new(NULL, true, NULL);
    mosquitto_int_option(link, MOSQ_OPT_PROTOCOL_VERSION, MQTT_PROTOCOL_V5);
    mosquitto_int_option(link, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_max_inflight_messages_set(link, MQTT_WINDOW);
    mosquitto_publish_callback_set(link, on_mqtt);
    if (mosquitto_connect(link, a->host, a->port, 30) != MOSQ_ERR_SUCCESS)
        exit_with_error("mqtt");
    mosquitto_property_add_string(&properties, MQTT_PROP_CONTENT_TYPE, sample.content_type);
    for (size_t i = 0; i < sample.header_count; i++)
        mosquitto_property_add_string_pair(&properties, MQTT_PROP_USER_PROPERTY,
                                           sample.headers[i].name, sample.headers[i].value);
    for (long n = 0; acked < count;) {
        for (; n < count && n - acked < MQTT_WINDOW; n++)
            mosquitto_publish_v5(link, NULL, sample.name, (int)sample.body_bytes, sample.body, qos,
                                 false, properties);
        if (mosquitto_loop(link, 100, 1) != MOSQ_ERR_SUCCESS)
            exit_with_error("mqtt: loop");
    }
    mosquitto_property_free_all(&properties);
    mosquitto_destroy(link);
}

static void on_kafka(rd_kafka_t *producer, const rd_kafka_message_t *report, void *arg)
{
    (void)producer, (void)arg;
    acked += report->err == RD_KAFKA_RESP_ERR_NO_ERROR;
    failed += report->err != RD_KAFKA_RESP_ERR_NO_ERROR;
}

static void publish_by_kafka(long count)
{
    char why[200];
    struct ol_arena arena = {0};
    struct ol_json written = read_key("brokers");
    const char *brokers = ol_json_string(&written, &arena, NULL);
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers ? brokers : "", why, sizeof why);
    ol_arena_clear(&arena);
    rd_kafka_conf_set(conf, "enable.idempotence", "true", why, sizeof why);
    rd_kafka_conf_set(conf, "linger.ms", "1", why, sizeof why);
    rd_kafka_conf_set_dr_msg_cb(conf, on_kafka);
    rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
    if (!producer)
        exit_with_error(why);
    for (long n = 0; acked + failed < count;) {
        for (; n < count && n - acked - failed < WINDOW; n++) {
            rd_kafka_headers_t *headers = rd_kafka_headers_new(sample.header_count);
            for (size_t i = 0; i < sample.header_count; i++)
                rd_kafka_header_add(headers, sample.headers[i].name, -1,
                                    sample.headers[i].value == sample.id ? next_id(n)
                                                                         : sample.headers[i].value,
                                    -1);
            __extension__ rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(sample.name),
                                            RD_KAFKA_V_VALUE((void *)(uintptr_t)sample.body,
                                                             sample.body_bytes),
                                            RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
        }
        rd_kafka_poll(producer, 10);
    }
    rd_kafka_destroy(producer);
}

/* --- the whole -------------------------------------------------------------------------------- */

static void publish_by_client(long count)
{
    const struct {
        const char *type;
        void (*run)(long count);
    } clients[] = {{"redis", publish_by_redis},
                   {"nats", publish_by_nats},
                   {"rabbitmq", publish_by_rabbitmq},
                   {"mqtt", publish_by_mqtt},
                   {"kafka", publish_by_kafka}};
    struct ol_arena arena = {0};
    struct outlog_delivery message = make_message(0);
    outlog_err err;
    for (size_t i = 0; i < sizeof clients / sizeof *clients; i++)
        if (strcmp(clients[i].type, settings->type) == 0) {
            struct ol_broker_naming naming = {.forbidden = "", .ce_prefix = ""};
            if (ol_broker_message_make(settings, &naming, &message, &arena, &sample, &err) < 0)
                exit_with_error(err.message);
            clients[i].run(count);
        }
    ol_arena_clear(&arena);
}

int main(int argc, char **argv)
{
    outlog_err err;
    if (argc != 4 ||
        ol_settings_open("bench", argv[2], strlen(argv[2]), OL_SETTINGS_USE, &settings, &err) < 0) {
        fprintf(stderr, "bench_brokers outlog|bare SETTINGS COUNT\n");
        return 2;
    }
    broker = settings->own;
    long count = atol(argv[3]);
    int64_t started = ol_clock_boot_us();
    if (strcmp(argv[1], "outlog") == 0)
        publish_by_outlog(count);
    else
        publish_by_client(count);
    double seconds = (double)(ol_clock_boot_us() - started) / 1e6;
    printf("%.0f\n", (double)acked / seconds);
    ol_settings_close(settings);
    return failed || acked < count;
}
#else
int main(void)
{
    fprintf(stderr, "this build has not all of the brokers\n");
    return 2;
}
#endif
