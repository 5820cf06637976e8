/* mqtt.c: a message on a topic of an MQTT broker (D4).
 *
 * Success is PUBACK for QoS 1, PUBCOMP for QoS 2, with a reason below 0x80 where MQTT 5 gives one;
 * for QoS 0 only that the bytes were written. MQTT knows no streams: a broker that nobody
 * subscribed to takes a message and drops it, and that is success here too (0x10, no matching
 * subscribers).
 *
 * The client runs without a thread of its own, inside the courier's. It would send again, on a new
 * connection, what it holds from the old one; a message is one attempt, so each connection has a
 * client of its own. */
#include "base/clock.h"
#include "net/tls_stream.h"
#include "publish/broker/broker_thread.h"

#include <mosquitto.h>
#include <mqtt_protocol.h>
#include <openssl/x509.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { KEEPALIVE_S = 30, IN_FLIGHT_MAX = 200, IN_FLIGHT_OLD = 20, BUCKETS = 256, NOT_YET = -1 };

struct mqtt {
    struct ol_broker_thread courier; /* first */
    struct mosquitto *link;
    struct ol_broker_attempt *sent[BUCKETS]; /* by packet id */
    int answer;                              /* to CONNECT; NOT_YET: none */
    bool is_in_send, is_done_in_send;
};

static bool is_5(const struct mqtt *m)
{
    return m->courier.freight.settings->protocol == OL_PROTOCOL_5;
}

/* --- what the broker says
 * ------------------------------------------------------------------------------ */

static struct ol_broker_attempt *find_load(struct mqtt *m, uint64_t number)
{
    struct ol_broker_attempt **at = &m->sent[number % BUCKETS];
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct ol_broker_attempt *load = *at;
    if (load)
        *at = load->next;
    return load;
}

/* Reasons that the same message will meet again. */
static bool is_permanent(int reason)
{
    return reason == MQTT_RC_PACKET_TOO_LARGE || reason == MQTT_RC_TOPIC_NAME_INVALID ||
           reason == MQTT_RC_PAYLOAD_FORMAT_INVALID;
}

static void on_publish(struct mosquitto *link, void *arg, int number, int reason,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;
    struct ol_broker_attempt *load = find_load(m, (uint64_t)number);
    (void)link, (void)properties;
    if (!load) { // QoS 0: written before the call that sends it returned
        m->is_done_in_send = m->is_in_send;
        return;
    }
    if (reason >= 0x80)
        ol_broker_attempt_refuse(load, is_permanent(reason), "mqtt: %s: %s", load->parcel.name,
                                 mosquitto_reason_string(reason));
    else
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_OK, "%s",
                              reason == MQTT_RC_NO_MATCHING_SUBSCRIBERS ? "no subscriber"
                                                                        : "acknowledged");
}

static void on_connect(struct mosquitto *link, void *arg, int answer, int flags,
                       const mosquitto_property *properties)
{
    struct mqtt *m = arg;
    (void)link, (void)flags, (void)properties;
    m->answer = answer;
}

static int broke(int status, outlog_err *err)
{
    return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: %s", mosquitto_strerror(status));
}

static int mqtt_listen(void *self, outlog_err *err)
{
    struct mqtt *m = self;
    struct pollfd poll_fd = {.fd = mosquitto_socket(m->link), .events = POLLIN};
    int status = MOSQ_ERR_SUCCESS;

    while (status == MOSQ_ERR_SUCCESS && poll(&poll_fd, 1, 0) > 0) {
        ol_broker_thread_answered(&m->courier);
        status = mosquitto_loop_read(m->link, 1);
        poll_fd.fd = mosquitto_socket(m->link);
    }
    if (status == MOSQ_ERR_SUCCESS && mosquitto_want_write(m->link))
        status = mosquitto_loop_write(m->link, 1);
    if (status == MOSQ_ERR_SUCCESS)
        status = mosquitto_loop_misc(m->link);
    return status == MOSQ_ERR_SUCCESS ? 0 : broke(status, err);
}

/* --- messages
 * ---------------------------------------------------------------------------------------------- */

static int add_properties(const struct ol_broker_message *parcel, mosquitto_property **list)
{
    int status = mosquitto_property_add_string(list, MQTT_PROP_CONTENT_TYPE, parcel->content_type);
    if (status == MOSQ_ERR_SUCCESS && parcel->correlation_id)
        status = mosquitto_property_add_binary(list, MQTT_PROP_CORRELATION_DATA,
                                               parcel->correlation_id,
                                               (uint16_t)strlen(parcel->correlation_id));
    for (size_t i = 0; status == MOSQ_ERR_SUCCESS && i < parcel->header_count; i++)
        status = mosquitto_property_add_string_pair(list, MQTT_PROP_USER_PROPERTY,
                                                    parcel->headers[i].name,
                                                    parcel->headers[i].value);
    return status;
}

static int mqtt_send(void *self, struct ol_broker_attempt *load, outlog_err *err)
{
    struct mqtt *m = self;
    const struct ol_broker_message *parcel = &load->parcel;
    mosquitto_property *properties = NULL;
    int number = 0, status = is_5(m) ? add_properties(parcel, &properties) : MOSQ_ERR_SUCCESS;

    m->is_in_send = true;
    m->is_done_in_send = false;
    if (status == MOSQ_ERR_SUCCESS)
        status = mosquitto_publish_v5(m->link, &number, parcel->name, (int)parcel->body_bytes,
                                      parcel->body, m->courier.freight.settings->qos, false,
                                      properties);
    m->is_in_send = false;
    mosquitto_property_free_all(&properties);
    switch (status) {
    case MOSQ_ERR_SUCCESS:
        if (m->is_done_in_send) {
            ol_broker_attempt_end(load, OUTLOG_PUBLISH_OK, "written");
            return 0;
        }
        break;
    case MOSQ_ERR_INVAL:
    case MOSQ_ERR_PAYLOAD_SIZE:
    case MOSQ_ERR_OVERSIZE_PACKET:
    case MOSQ_ERR_MALFORMED_UTF8: // nothing was written
        ol_broker_attempt_refuse(load, true, "mqtt: %s: %s", parcel->name,
                                 mosquitto_strerror(status));
        return 0;
    case MOSQ_ERR_QOS_NOT_SUPPORTED:
        ol_broker_attempt_refuse(load, false, "mqtt: %s", mosquitto_strerror(status));
        return 0;
    default:
        break;
    }
    load->number = (uint64_t)number;
    load->next = m->sent[load->number % BUCKETS];
    m->sent[load->number % BUCKETS] = load;
    return status == MOSQ_ERR_SUCCESS ? 0 : broke(status, err);
}

/* --- the greeting
 * ---------------------------------------------------------------------------------------- */

/* A number of up to four bytes, seven bits each: its bytes, or 0 when it is none, or not all there.
 */
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

/* The bytes of a property with its name, 0: it is none. By MQTT 5, 2.2.2.2. */
static size_t property_bytes(const unsigned char *data, size_t bytes)
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
        size_t used = property_bytes(data + at, bytes - at);
        if (!used || used > bytes - at)
            return false;
        at += used;
    }
    return true;
}

enum greeting { GREETED, HALF_GREETED, NOT_GREETED };

static enum greeting read_greeting(const unsigned char *data, size_t bytes)
{
    enum { MOST = 4096, CONNACK = 0x20 };
    size_t length, head;
    if (!bytes)
        return HALF_GREETED;
    if (data[0] != CONNACK)
        return NOT_GREETED;
    head = 1 + read_number(data + 1, bytes - 1, &length);
    if (head == 1)
        return bytes < 5 ? HALF_GREETED : NOT_GREETED;
    if (length < 2 || head + length > MOST)
        return NOT_GREETED;
    if (bytes < head + length)
        return HALF_GREETED;
    return length == 2 || are_properties(data + head + 2, length - 2) ? GREETED : NOT_GREETED;
}

/* The client ends the process when it is sent a property that it does not know: whoever does not
 * speak MQTT must not get as far as to the client. (By TLS the certificate says who it is.) */
static int wait_greeting(int fd, int64_t until, outlog_err *err)
{
    enum greeting greeting = HALF_GREETED;
    unsigned char data[4096];
    while (greeting == HALF_GREETED && ol_clock_boot_us() < until) {
        struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
        poll(&poll_fd, 1, 100);
        ssize_t got = recv(fd, data, sizeof data, MSG_PEEK | MSG_DONTWAIT);
        if (got == 0)
            return broke(MOSQ_ERR_CONN_LOST, err);
        greeting = read_greeting(data, got > 0 ? (size_t)got : 0);
        if (got > 0 && greeting == HALF_GREETED)
            ol_clock_sleep_us(10000); // poll would not wait for the rest
    }
    if (greeting == NOT_GREETED)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: whoever answers there speaks no MQTT");
    return 0; // a late one is the client's to tell
}

/* --- the connection
 * -------------------------------------------------------------------------------------- */

static int set_options(struct mqtt *m, outlog_err *err)
{
    const struct ol_settings *s = m->courier.freight.settings;
    int status = mosquitto_int_option(m->link, MOSQ_OPT_PROTOCOL_VERSION,
                                      is_5(m) ? MQTT_PROTOCOL_V5 : MQTT_PROTOCOL_V311);
    // MQTT 5 brokers say how many they take at once; the others hang up when it is too many.
    int in_flight = is_5(m) ? IN_FLIGHT_MAX : IN_FLIGHT_OLD;
    if (s->concurrency > 0 && s->concurrency < in_flight)
        in_flight = s->concurrency;

    mosquitto_int_option(m->link, MOSQ_OPT_TCP_NODELAY, 1);
    mosquitto_max_inflight_messages_set(m->link, (unsigned)in_flight);
    mosquitto_connect_v5_callback_set(m->link, on_connect);
    mosquitto_publish_v5_callback_set(m->link, on_publish);
    if (status == MOSQ_ERR_SUCCESS && s->user)
        status = mosquitto_username_pw_set(m->link, s->user, s->password);
    if (status == MOSQ_ERR_SUCCESS && s->addresses[0].is_tls && !s->ca_file)
        status = mosquitto_int_option(m->link, MOSQ_OPT_TLS_USE_OS_CERTS, 1);
    if (status == MOSQ_ERR_SUCCESS && s->addresses[0].is_tls)
        status = mosquitto_tls_set(m->link, s->ca_file,
                                   s->ca_file ? NULL : X509_get_default_cert_dir(), s->cert_file,
                                   s->key_file, NULL);
    return status == MOSQ_ERR_SUCCESS ? 0 : broke(status, err);
}

static int wait_answer(struct mqtt *m, int timeout_ms, outlog_err *err)
{
    int64_t end_us = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    if (!m->courier.freight.settings->addresses[0].is_tls &&
        wait_greeting(mosquitto_socket(m->link), end_us, err) < 0)
        return -1;
    while (m->answer == NOT_YET) {
        int64_t left_ms = (end_us - ol_clock_boot_us()) / 1000;
        if (left_ms <= 0)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: no answer in %d ms", timeout_ms);
        struct pollfd poll_fd = {.fd = mosquitto_socket(m->link),
                                 .events = mosquitto_want_write(m->link) ? POLLIN | POLLOUT
                                                                         : POLLIN};
        poll(&poll_fd, 1, left_ms < 200 ? (int)left_ms : 200);
        if (mqtt_listen(m, err) < 0 && m->answer == NOT_YET)
            return -1;
    }
    if (m->answer == 0)
        return 0;
    return ol_fail(err, OUTLOG_UNAVAILABLE, "mqtt: %s",
                   is_5(m) ? mosquitto_reason_string(m->answer)
                           : mosquitto_connack_string(m->answer));
}

static int mqtt_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct mqtt *m = self;
    const struct ol_settings *s = m->courier.freight.settings;
    struct ol_address plain = s->addresses[0];
    struct ol_tls_stream probe = {.fd = -1};

    // The client connects without a limit of time: look first whether anybody is there.
    plain.is_tls = false;
    if (ol_tls_stream_open(&probe, &plain, NULL, timeout_ms, err) < 0)
        return -1;
    ol_tls_stream_close(&probe);
    m->answer = NOT_YET;
    if (!(m->link = mosquitto_new(s->client_id, true, m)))
        return ol_no_memory(err);
    if (set_options(m, err) < 0)
        return -1;
    int status =
        mosquitto_connect_bind_v5(m->link, plain.host, plain.port, KEEPALIVE_S, NULL, NULL);
    if (status != MOSQ_ERR_SUCCESS)
        return broke(status, err);
    return wait_answer(m, timeout_ms, err);
}

static void mqtt_disconnect(void *self, const char *why)
{
    struct mqtt *m = self;
    if (m->link)
        mosquitto_destroy(m->link);
    m->link = NULL;
    for (int i = 0; i < BUCKETS; i++)
        while (m->sent[i]) {
            struct ol_broker_attempt *load = m->sent[i];
            m->sent[i] = load->next;
            ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s",
                                  why);
        }
}

static int mqtt_fd(void *self)
{
    struct mqtt *m = self;
    return m->link ? mosquitto_socket(m->link) : -1;
}

static const struct ol_broker_driver trade = {
    .connect = mqtt_connect,
    .send = mqtt_send,
    .flush = mqtt_listen,
    .listen = mqtt_listen,
    .fd = mqtt_fd,
    .disconnect = mqtt_disconnect,
    .tick_ms = 1000,
};

/* --- the publisher
 * ------------------------------------------------------------------------------------------- */

static void start_library(void)
{
    mosquitto_lib_init();
}

static int mqtt_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const struct ol_publisher_own *own = host->own;
    struct ol_broker_naming form = {.name = own->settings->topic,
                                    .forbidden = "+#",
                                    .name_max = 65535,
                                    .ce_prefix = ""};
    struct mqtt *m = calloc(1, sizeof *m);
    if (!m)
        return ol_no_memory(err);
    pthread_once(&once, start_library);
    if (ol_broker_thread_open(&m->courier, host, &form, &trade, m, err) < 0) {
        free(m);
        return -1;
    }
    *instance = m;
    return 0;
}

static void mqtt_close(void *instance)
{
    struct mqtt *m = instance;
    ol_broker_thread_close(&m->courier);
    free(m);
}

const struct outlog_publisher ol_publisher_mqtt = {
    .name = "mqtt",
    .batch_max = IN_FLIGHT_MAX,
    .open = mqtt_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = mqtt_close,
};
