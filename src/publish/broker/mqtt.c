/* mqtt.c: a message on a topic of an MQTT broker (D4).
 *
 * Success is PUBACK for QoS 1 and PUBCOMP for QoS 2, with a reason below 0x80 where MQTT 5 gives
 * one; for QoS 0 only that the bytes were written. MQTT stores nothing for later subscribers: a
 * broker without a matching one takes a message and drops it, and that is success here too (0x10,
 * no matching subscribers).
 *
 * The client has no thread of its own; it runs on the broker thread. On a new connection it would
 * send again what it holds from the old one. A message is one attempt, so each connection gets a
 * new client. */
#include "net/tls_stream.h"
#include "publish/broker/broker_thread.h"

enum mqtt_version { MQTT_V5, MQTT_V3_1_1 };

struct mqtt_settings {
    struct ol_broker_settings broker; /* first */
    const char *client_id;
    int qos;
    enum mqtt_version protocol;
};

#ifdef OL_WITH_MQTT

#include "base/clock.h"

#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    MQTT_KEEPALIVE_S = 30,
    MQTT_IN_FLIGHT_MAX = 200,
    MQTT_IN_FLIGHT_V3 = 20, // MQTT 3.1.1 has no limit that the broker could announce
    MQTT_BUCKETS = 256,
    MQTT_NO_CONNACK = -1
};

struct mqtt {
    struct ol_broker_thread thread; /* first */
    struct mosquitto *client;
    struct ol_broker_attempt *sent[MQTT_BUCKETS]; /* by packet id */
    int connack;                                  /* its code, or MQTT_NO_CONNACK */
    bool is_in_send, is_done_in_send;
};

static const struct mqtt_settings *settings_of(const struct mqtt *m)
{
    return m->thread.inflight.settings->own;
}

static bool is_5(const struct mqtt *m)
{
    return settings_of(m)->protocol == MQTT_V5;
}

/* --- replies ---------------------------------------------------------------------------------- */

static struct ol_broker_attempt *take_sent(struct mqtt *m, uint64_t number)
{
    struct ol_broker_attempt **at = &m->sent[number % MQTT_BUCKETS];
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct ol_broker_attempt *attempt = *at;
    if (attempt)
        *at = attempt->next;
    return attempt;
}

/* Reasons that refuse the same message every time. */
static bool is_permanent(int reason)
{
    return reason == MQTT_RC_PACKET_TOO_LARGE || reason == MQTT_RC_TOPIC_NAME_INVALID ||
           reason == MQTT_RC_PAYLOAD_FORMAT_INVALID;
}

static void on_publish(struct mosquitto *client, void *arg, int number, int reason,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;
    struct ol_broker_attempt *attempt = take_sent(m, (uint64_t)number);
    (void)client, (void)properties;
    if (!attempt) { // QoS 0: written before the call that sends it returned
        m->is_done_in_send = m->is_in_send;
        return;
    }
    if (reason >= 0x80)
        ol_broker_attempt_refuse(attempt, is_permanent(reason), "mqtt: %s: %s",
                                 attempt->message.name, mosquitto_reason_string(reason));
    else
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "%s",
                              reason == MQTT_RC_NO_MATCHING_SUBSCRIBERS ? "no subscriber"
                                                                        : "acknowledged");
}

static void on_connect(struct mosquitto *client, void *arg, int code, int flags,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;
    (void)client, (void)flags, (void)properties;
    m->connack = code;
}

static int fail_status(int status, outlog_err *err)
{
    return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: %s", mosquitto_strerror(status));
}

static int mqtt_read_replies(void *self, outlog_err *err)
{
    struct mqtt *m = self;
    struct pollfd poll_fd = {.fd = mosquitto_socket(m->client), .events = POLLIN};
    int status = MOSQ_ERR_SUCCESS;

    while (status == MOSQ_ERR_SUCCESS && poll(&poll_fd, 1, 0) > 0) {
        ol_broker_thread_replied(&m->thread);
        status = mosquitto_loop_read(m->client, 1);
        poll_fd.fd = mosquitto_socket(m->client);
    }
    if (status == MOSQ_ERR_SUCCESS && mosquitto_want_write(m->client))
        status = mosquitto_loop_write(m->client, 1);
    if (status == MOSQ_ERR_SUCCESS)
        status = mosquitto_loop_misc(m->client);
    return status == MOSQ_ERR_SUCCESS ? 0 : fail_status(status, err);
}

/* --- messages --------------------------------------------------------------------------------- */

static int add_properties(const struct ol_broker_message *message, mosquitto_property **list)
{
    int status = mosquitto_property_add_string(list, MQTT_PROP_CONTENT_TYPE, message->content_type);
    if (status == MOSQ_ERR_SUCCESS && message->correlation_id)
        status = mosquitto_property_add_binary(list, MQTT_PROP_CORRELATION_DATA,
                                               message->correlation_id,
                                               (uint16_t)strlen(message->correlation_id));
    for (size_t i = 0; status == MOSQ_ERR_SUCCESS && i < message->header_count; i++)
        status = mosquitto_property_add_string_pair(list, MQTT_PROP_USER_PROPERTY,
                                                    message->headers[i].name,
                                                    message->headers[i].value);
    return status;
}

static int mqtt_send(void *self, struct ol_broker_attempt *attempt, outlog_err *err)
{
    struct mqtt *m = self;
    const struct ol_broker_message *message = &attempt->message;
    mosquitto_property *properties = NULL;
    int number = 0, status = is_5(m) ? add_properties(message, &properties) : MOSQ_ERR_SUCCESS;

    m->is_in_send = true;
    m->is_done_in_send = false;
    if (status == MOSQ_ERR_SUCCESS)
        status = mosquitto_publish_v5(m->client, &number, message->name, (int)message->body_bytes,
                                      message->body, settings_of(m)->qos, false, properties);
    m->is_in_send = false;
    mosquitto_property_free_all(&properties);
    switch (status) {
    case MOSQ_ERR_SUCCESS:
        if (m->is_done_in_send) {
            ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "written");
            return 0;
        }
        break;
    case MOSQ_ERR_INVAL:
    case MOSQ_ERR_PAYLOAD_SIZE:
    case MOSQ_ERR_OVERSIZE_PACKET:
    case MOSQ_ERR_MALFORMED_UTF8: // nothing was written
        ol_broker_attempt_refuse(attempt, true, "mqtt: %s: %s", message->name,
                                 mosquitto_strerror(status));
        return 0;
    case MOSQ_ERR_QOS_NOT_SUPPORTED:
        ol_broker_attempt_refuse(attempt, false, "mqtt: %s", mosquitto_strerror(status));
        return 0;
    default:
        break;
    }
    attempt->number = (uint64_t)number;
    attempt->next = m->sent[attempt->number % MQTT_BUCKETS];
    m->sent[attempt->number % MQTT_BUCKETS] = attempt;
    return status == MOSQ_ERR_SUCCESS ? 0 : fail_status(status, err);
}

/* --- CONNACK ---------------------------------------------------------------------------------- */

/* Read a number of up to four bytes, seven bits each. Returns its bytes; 0: invalid or cut off. */
static size_t read_number(const unsigned char *data, size_t bytes, size_t *out)
{
    *out = 0;
    for (size_t i = 0; i < bytes && i < 4; i++) {
        *out |= (size_t)(data[i] & 127) << 7 * i;
        if (data[i] < 128)
            return i + 1;
    }
    return 0;
}

/* The bytes of a property, its identifier included (MQTT 5, 2.2.2.2). 0: it is not one. */
static size_t measure_property(const unsigned char *data, size_t bytes)
{
    static const char one[] = "\x01\x17\x19\x24\x25\x28\x29\x2a", two[] = "\x13\x21\x22\x23",
                      four[] = "\x02\x11\x18\x27",
                      text[] = "\x03\x08\x09\x12\x15\x16\x1a\x1c\x1f\x26";
    size_t ignored;
    if (data[0] == 0)
        return 0;
    if (data[0] == 0x0b)
        return 1 + read_number(data + 1, bytes - 1, &ignored);
    if (strchr(one, data[0]))
        return 2;
    if (strchr(two, data[0]))
        return 3;
    if (strchr(four, data[0]))
        return 5;
    if (!strchr(text, data[0]))
        return 0;
    size_t at = 1;
    for (int i = 0; i < (data[0] == 0x26 ? 2 : 1); i++) { // a name and a value, or one text
        if (at + 2 > bytes)
            return 0;
        at += 2 + (size_t)(data[at] << 8 | data[at + 1]);
    }
    return at;
}

static bool are_properties(const unsigned char *data, size_t bytes)
{
    size_t length, at = read_number(data, bytes, &length);
    if (!at || at + length != bytes)
        return false;
    while (at < bytes) {
        size_t used = measure_property(data + at, bytes - at);
        if (!used || used > bytes - at)
            return false;
        at += used;
    }
    return true;
}

enum connack_check { CONNACK_VALID, CONNACK_INCOMPLETE, CONNACK_INVALID };

static enum connack_check check_connack(const unsigned char *data, size_t bytes)
{
    enum { CONNACK_BYTES_MAX = 4096, CONNACK_TYPE = 0x20 };
    size_t length, head;
    if (!bytes)
        return CONNACK_INCOMPLETE;
    if (data[0] != CONNACK_TYPE)
        return CONNACK_INVALID;
    head = 1 + read_number(data + 1, bytes - 1, &length);
    if (head == 1)
        return bytes < 5 ? CONNACK_INCOMPLETE : CONNACK_INVALID;
    if (length < 2 || head + length > CONNACK_BYTES_MAX)
        return CONNACK_INVALID;
    if (bytes < head + length)
        return CONNACK_INCOMPLETE;
    return length == 2 || are_properties(data + head + 2, length - 2) ? CONNACK_VALID
                                                                      : CONNACK_INVALID;
}

/* The client library aborts the process on a property that it does not know. So a server that does
 * not speak MQTT must be recognised before the client reads from it. (With TLS the certificate
 * identifies the server.) */
static int wait_valid_connack(int fd, int64_t until, outlog_err *err)
{
    enum connack_check check = CONNACK_INCOMPLETE;
    unsigned char data[4096];
    while (check == CONNACK_INCOMPLETE && ol_clock_boot_us() < until) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        poll(&poll_fd, 1, 100);
        ssize_t got = recv(fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0)
            return fail_status(MOSQ_ERR_CONN_LOST, err);
        check = check_connack(data, got > 0 ? (size_t)got : 0);
        if (got > 0 && check == CONNACK_INCOMPLETE)
            ol_clock_sleep_us(10000); // poll returns at once: some of it is there
    }
    if (check == CONNACK_INVALID)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: the server does not speak MQTT");
    return 0; // if it is late, wait_connack reports that
}

/* --- the connection --------------------------------------------------------------------------- */

static int set_options(struct mqtt *m, outlog_err *err)
{
    const struct ol_broker_settings *s = &settings_of(m)->broker;
    int concurrency = m->thread.inflight.settings->concurrency;
    int status = mosquitto_int_option(m->client, MOSQ_OPT_PROTOCOL_VERSION,
                                      is_5(m) ? MQTT_PROTOCOL_V5 : MQTT_PROTOCOL_V311);
    // MQTT 5 brokers announce their limit; others disconnect a client that exceeds it.
    int in_flight = is_5(m) ? MQTT_IN_FLIGHT_MAX : MQTT_IN_FLIGHT_V3;
    if (concurrency > 0 && concurrency < in_flight)
        in_flight = concurrency;

    mosquitto_int_option(m->client, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_max_inflight_messages_set(m->client, (unsigned)in_flight);
    mosquitto_connect_v5_callback_set(m->client, on_connect);
    mosquitto_publish_v5_callback_set(m->client, on_publish);
    if (status == MOSQ_ERR_SUCCESS && s->user)
        status = mosquitto_username_pw_set(m->client, s->user, s->password);
    if (status == MOSQ_ERR_SUCCESS && s->addresses[0].is_tls && !s->ca_file)
        status = mosquitto_int_option(m->client, MOSQ_OPT_TLS_USE_OS_CERTS, 1);
    if (status == MOSQ_ERR_SUCCESS && s->addresses[0].is_tls)
        status = mosquitto_tls_set(m->client, s->ca_file,
                                   s->ca_file ? NULL : X509_get_default_cert_dir(), s->cert_file,
                                   s->key_file, NULL);
    return status == MOSQ_ERR_SUCCESS ? 0 : fail_status(status, err);
}

static int wait_connack(struct mqtt *m, int timeout_ms, outlog_err *err)
{
    int64_t end_us = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    if (!settings_of(m)->broker.addresses[0].is_tls &&
        wait_valid_connack(mosquitto_socket(m->client), end_us, err) < 0)
        return -1;
    while (m->connack == MQTT_NO_CONNACK) {
        int64_t left_ms = (end_us - ol_clock_boot_us()) / 1000;
        if (left_ms <= 0)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: no answer in %d ms", timeout_ms);
        struct pollfd poll_fd = {.fd = mosquitto_socket(m->client),
                                 .events = mosquitto_want_write(m->client) ? POLLIN | POLLOUT
                                                                           : POLLIN};
        poll(&poll_fd, 1, left_ms < 200 ? (int)left_ms : 200);
        if (mqtt_read_replies(m, err) < 0 && m->connack == MQTT_NO_CONNACK)
            return -1;
    }
    if (m->connack == 0)
        return 0;
    return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: %s",
                   is_5(m) ? mosquitto_reason_string(m->connack)
                           : mosquitto_connack_string(m->connack));
}

static int mqtt_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct mqtt *m = self;
    const struct mqtt_settings *own = settings_of(m);
    struct ol_address plain = own->broker.addresses[0];
    struct ol_tls_stream probe = {.fd = -1};

    // The client connects without a timeout, so connect once ourselves first.
    plain.is_tls = false;
    if (ol_tls_stream_open(&probe, &plain, NULL, timeout_ms, err) < 0)
        return -1;
    ol_tls_stream_close(&probe);
    m->connack = MQTT_NO_CONNACK;
    if (!(m->client = mosquitto_new(own->client_id, true, m)))
        return ol_no_memory(err);
    if (set_options(m, err) < 0)
        return -1;
    int status =
        mosquitto_connect_bind_v5(m->client, plain.host, plain.port, MQTT_KEEPALIVE_S, NULL, NULL);
    if (status != MOSQ_ERR_SUCCESS)
        return fail_status(status, err);
    return wait_connack(m, timeout_ms, err);
}

static void mqtt_disconnect(void *self, const char *why)
{
    struct mqtt *m = self;
    if (m->client)
        mosquitto_destroy(m->client);
    m->client = NULL;
    for (int i = 0; i < MQTT_BUCKETS; i++)
        while (m->sent[i]) {
            struct ol_broker_attempt *attempt = m->sent[i];
            m->sent[i] = attempt->next;
            ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s",
                                  why);
        }
}

static int mqtt_fd(void *self)
{
    struct mqtt *m = self;
    return m->client ? mosquitto_socket(m->client) : -1;
}

static const struct ol_broker_driver driver = {
    .connect = mqtt_connect,
    .send = mqtt_send,
    .flush = mqtt_read_replies,
    .read_replies = mqtt_read_replies,
    .fd = mqtt_fd,
    .disconnect = mqtt_disconnect,
    .tick_ms = 1000,
};

/* --- the publisher ---------------------------------------------------------------------------- */

static void start_library(void)
{
    mosquitto_lib_init();
}

static int mqtt_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const struct ol_broker_naming naming = {.forbidden = "+#",
                                                   .name_max = 65535,
                                                   .ce_prefix = ""};
    struct mqtt *m = calloc(1, sizeof *m);
    if (!m)
        return ol_no_memory(err);
    pthread_once(&once, start_library);
    if (ol_broker_thread_open(&m->thread, host, &naming, &driver, m, err) < 0) {
        free(m);
        return -1;
    }
    *instance = m;
    return 0;
}

static void mqtt_close(void *instance)
{
    struct mqtt *m = instance;
    ol_broker_thread_close(&m->thread);
    free(m);
}

static const struct outlog_publisher publisher = {
    .name = "mqtt",
    .batch_max = MQTT_IN_FLIGHT_MAX,
    .open = mqtt_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = mqtt_close,
};

#define MQTT_PUBLISHER &publisher
#else
#define MQTT_PUBLISHER NULL
#endif

/* --- settings --------------------------------------------------------------------------------- */

static const struct ol_address_scheme schemes[] = {
    {"mqtt", 1883, false},
    {"mqtts", 8883, true},
    {NULL, 0, false},
};

static int check_mqtt(struct ol_setting_reader *r)
{
    const struct mqtt_settings *own = r->settings->own;
    struct ol_broker_rules rules = {.schemes = schemes, .has_headers = own->protocol == MQTT_V5};
    return ol_broker_settings_check(r, &rules);
}

#define AT(member) offsetof(struct mqtt_settings, member)

static const char *const protocol_names[] = {"5", "3.1.1", NULL};

static const struct ol_setting_key mqtt_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(broker.url), .is_needed = true},
    {.name = "topic", .read = ol_setting_types_name, .offset = AT(broker.name), .is_needed = true},
    {.name = "qos", .read = ol_setting_types_int, .offset = AT(qos), .max = 2},
    {.name = "protocol",
     .read = ol_setting_types_choice,
     .offset = AT(protocol),
     .choices = protocol_names},
    {.name = "client_id", .read = ol_setting_types_text, .offset = AT(client_id)},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_mqtt = {
    .name = "mqtt",
    .publisher = MQTT_PUBLISHER,
    .timeout_s = 10,
    .concurrency = 200,
    .own_bytes = sizeof(struct mqtt_settings),
    .own_defaults = &(const struct mqtt_settings){.qos = 1},
    .keys = {mqtt_keys, ol_broker_settings_keys},
    .check = check_mqtt,
};
