/* rabbitmq.c: a message to an exchange of a RabbitMQ broker (D4).
 *
 * Success is the broker's confirm: basic.ack for a persistent, mandatory message. The broker sends
 * it once every queue the message was routed to has stored it: a majority of the nodes for quorum
 * queues, this node's disk for classic ones. A message that is routed to no queue is returned first
 * (basic.return) and then acknowledged all the same; the return decides. basic.nack: the broker
 * could not take it.
 *
 * The client has no interface for confirms, so we read the frames ourselves. A write to a broker
 * that is out of memory blocks without end: the client runs on the broker thread, whose watchdog
 * shuts the socket down. */
#include "publish/broker/broker_thread.h"

struct rabbitmq_settings {
    struct ol_broker_settings broker; /* first */
    const char *exchange;             /* NULL: the default exchange */
};

#ifdef OL_WITH_RABBITMQ

#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_ssl_socket.h>
#include <amqp_tcp_socket.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

enum {
    RABBIT_CHANNEL = 1,
    RABBIT_HEARTBEAT_S = 20,
    RABBIT_FRAME_BYTES = 131072,
    RABBIT_HEADERS_MAX = 80,
    RABBIT_NAME_BYTES_MAX = 255
};

struct rabbitmq {
    struct ol_broker_thread thread; /* first */
    amqp_connection_state_t conn;
    struct ol_broker_attempt *first, **end; /* sent and unconfirmed, delivery tags ascending */
    uint64_t number;                        /* the last delivery tag */
};

static struct timeval make_timeval(int ms)
{
    return (struct timeval){ms / 1000, ms % 1000 * 1000};
}

static const char *exchange_of(const struct rabbitmq *r)
{
    const struct rabbitmq_settings *own = r->thread.inflight.settings->own;
    return own->exchange ? own->exchange : "";
}

static amqp_bytes_t bytes_of(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text}; // it is only read
}

/* --- confirms --------------------------------------------------------------------------------- */

/* The broker acknowledged the attempt `tag`, or all up to it. */
static void end_confirmed(struct rabbitmq *r, uint64_t tag, bool is_multiple, bool is_ack)
{
    struct ol_broker_attempt **at = &r->first;
    while (*at && (*at)->number <= tag) {
        struct ol_broker_attempt *attempt = *at;
        if (attempt->number < tag && !is_multiple) {
            at = &attempt->next;
            continue;
        }
        *at = attempt->next;
        if (attempt->is_returned)
            ol_broker_attempt_refuse(attempt, false,
                                     "rabbitmq: no queue for exchange \"%s\", routing key \"%s\"",
                                     exchange_of(r), attempt->message.name);
        else if (!is_ack)
            ol_broker_attempt_refuse(attempt, false,
                                     "rabbitmq: the broker could not take it (nack)");
        else
            ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "confirmed");
    }
    if (!*at)
        r->end = at; // else the tail did not change
}

/* Mark the attempt whose message was returned, by its message id. The body is read and dropped. */
static int read_return(struct rabbitmq *r, outlog_err *err)
{
    amqp_message_t message;
    amqp_rpc_reply_t reply = amqp_read_message(r->conn, RABBIT_CHANNEL, &message, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: a returned message was cut off");
    amqp_bytes_t id = message.properties.message_id;
    for (struct ol_broker_attempt *attempt = r->first; attempt; attempt = attempt->next)
        if (strlen(attempt->message.id) == id.len &&
            memcmp(attempt->message.id, id.bytes, id.len) == 0)
            attempt->is_returned = true;
    amqp_destroy_message(&message);
    return 0;
}

/* When the broker closes the channel it names no message, but the size of one too large. */
static void refuse_too_large(struct rabbitmq *r, const char *text)
{
    unsigned long long size = 0;
    const char *found = strstr(text, "message size ");
    if (!found || sscanf(found, "message size %llu", &size) != 1)
        return;
    for (struct ol_broker_attempt **at = &r->first; *at; at = &(*at)->next) {
        struct ol_broker_attempt *attempt = *at;
        if (attempt->message.body_bytes != size)
            continue;
        *at = attempt->next;
        ol_broker_attempt_refuse(attempt, true, "rabbitmq: %.200s", text);
        return;
    }
}

static int fail_closed(struct rabbitmq *r, int code, amqp_bytes_t why, outlog_err *err)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", why.len < 240 ? (int)why.len : 240, (char *)why.bytes);
    refuse_too_large(r, text);
    return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %d %s", code, text);
}

static int handle_method(struct rabbitmq *r, const amqp_method_t *method, outlog_err *err)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        end_confirmed(r, ack->delivery_tag, ack->multiple, true);
        return 0;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        end_confirmed(r, nack->delivery_tag, nack->multiple, false);
        return 0;
    }
    case AMQP_BASIC_RETURN_METHOD:
        return read_return(r, err);
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = method->decoded;
        return fail_closed(r, close->reply_code, close->reply_text, err);
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = method->decoded;
        return fail_closed(r, close->reply_code, close->reply_text, err);
    }
    default:
        return 0; // connection.blocked and the like: the deadline ends the attempt
    }
}

static int rabbitmq_read_replies(void *self, outlog_err *err)
{
    struct rabbitmq *r = self;
    amqp_frame_t frame;
    for (;;) {
        struct timeval now = {0, 0};
        amqp_maybe_release_buffers(r->conn);
        int status = amqp_simple_wait_frame_noblock(r->conn, &frame, &now);
        if (status == AMQP_STATUS_TIMEOUT)
            return 0;
        if (status != AMQP_STATUS_OK)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s", amqp_error_string2(status));
        ol_broker_thread_replied(&r->thread);
        if (frame.frame_type == AMQP_FRAME_METHOD &&
            handle_method(r, &frame.payload.method, err) < 0)
            return -1;
    }
}

/* --- messages --------------------------------------------------------------------------------- */

static void set_headers(const struct ol_broker_message *message, amqp_table_entry_t *entries,
                        amqp_basic_properties_t *properties)
{
    size_t count = message->header_count < RABBIT_HEADERS_MAX ? message->header_count
                                                              : RABBIT_HEADERS_MAX;
    for (size_t i = 0; i < count; i++) {
        entries[i].key = bytes_of(message->headers[i].name);
        entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
        entries[i].value.value.bytes = bytes_of(message->headers[i].value);
    }
    properties->headers = (amqp_table_t){(int)count, entries};
}

static int rabbitmq_send(void *self, struct ol_broker_attempt *attempt, outlog_err *err)
{
    struct rabbitmq *r = self;
    const struct ol_broker_message *message = &attempt->message;
    amqp_table_entry_t entries[RABBIT_HEADERS_MAX];
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
                  AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_APP_ID_FLAG,
        .content_type = bytes_of(message->content_type),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = bytes_of(message->id),
        .type = bytes_of(message->event_type),
        .timestamp = (uint64_t)(message->created_at / 1000000),
        .app_id = bytes_of("outlog"),
    };
    if (message->correlation_id && strlen(message->correlation_id) <= RABBIT_NAME_BYTES_MAX) {
        properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
        properties.correlation_id = bytes_of(message->correlation_id);
    }
    set_headers(message, entries, &properties);
    attempt->number = ++r->number;
    *r->end = attempt;
    r->end = &attempt->next;
    int status =
        amqp_basic_publish(r->conn, RABBIT_CHANNEL, bytes_of(exchange_of(r)),
                           bytes_of(message->name), 1, 0, &properties,
                           (amqp_bytes_t){message->body_bytes, (void *)(uintptr_t)message->body});
    if (status == AMQP_STATUS_OK)
        return 0;
    outlog_err reason;
    if (rabbitmq_read_replies(r, &reason) < 0) { // the broker may have sent why it closed
        *err = reason;
        return -1;
    }
    return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s", amqp_error_string2(status));
}

/* --- the connection --------------------------------------------------------------------------- */

static int fail_reply(amqp_rpc_reply_t reply, const char *what, outlog_err *err)
{
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s: %s", what,
                       amqp_error_string2(reply.library_error));
    if (reply.reply_type == AMQP_RESPONSE_SERVER_EXCEPTION &&
        reply.reply.id == AMQP_CONNECTION_CLOSE_METHOD) {
        const amqp_connection_close_t *close = reply.reply.decoded;
        return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s: %d %.*s", what, close->reply_code,
                       close->reply_text.len < 200 ? (int)close->reply_text.len : 200,
                       (char *)close->reply_text.bytes);
    }
    return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s: refused", what);
}

static amqp_socket_t *make_socket(struct rabbitmq *r, const struct ol_broker_settings *s)
{
    if (!s->addresses[0].is_tls)
        return amqp_tcp_socket_new(r->conn);
    amqp_socket_t *socket = amqp_ssl_socket_new(r->conn);
    if (!socket)
        return NULL;
    amqp_ssl_socket_set_verify_peer(socket, 1);
    amqp_ssl_socket_set_verify_hostname(socket, 1);
    amqp_ssl_socket_set_ssl_versions(socket, AMQP_TLSv1_2, AMQP_TLSvLATEST);
    if (s->ca_file ? amqp_ssl_socket_set_cacert(socket, s->ca_file) != AMQP_STATUS_OK
                   : SSL_CTX_set_default_verify_paths(amqp_ssl_socket_get_context(socket)) != 1)
        return NULL;
    if (s->cert_file &&
        amqp_ssl_socket_set_key(socket, s->cert_file, s->key_file) != AMQP_STATUS_OK)
        return NULL;
    return socket;
}

static int log_in(struct rabbitmq *r, const struct ol_broker_settings *s, outlog_err *err)
{
    const char *path = s->addresses[0].path;
    const char *vhost = path && *path ? path : "/";
    amqp_rpc_reply_t reply = amqp_login(r->conn, vhost, 0, RABBIT_FRAME_BYTES, RABBIT_HEARTBEAT_S,
                                        AMQP_SASL_METHOD_PLAIN, s->user ? s->user : "guest",
                                        s->password ? s->password : "guest");
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return fail_reply(reply, "login", err);
    amqp_channel_open(r->conn, RABBIT_CHANNEL);
    reply = amqp_get_rpc_reply(r->conn);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return fail_reply(reply, "channel", err);
    amqp_confirm_select(r->conn, RABBIT_CHANNEL);
    reply = amqp_get_rpc_reply(r->conn);
    return reply.reply_type == AMQP_RESPONSE_NORMAL ? 0 : fail_reply(reply, "confirms", err);
}

static int rabbitmq_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct rabbitmq *r = self;
    const struct ol_broker_settings *s = r->thread.inflight.settings->own;
    const struct ol_address *where = s->addresses;
    struct timeval limit = make_timeval(timeout_ms);

    r->number = 0;
    if (!(r->conn = amqp_new_connection()))
        return ol_no_memory(err);
    amqp_set_handshake_timeout(r->conn, &limit);
    amqp_set_rpc_timeout(r->conn, &limit);
    amqp_socket_t *socket = make_socket(r, s);
    if (!socket)
        return ol_fail(err, OUTLOG_UNAVAILABLE,
                       "rabbitmq: TLS: ca_file, cert_file or key_file cannot be used");
    int status = amqp_socket_open_noblock(socket, where->host, where->port, &limit);
    if (status != AMQP_STATUS_OK)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: connect %s:%d: %s", where->host,
                       where->port, amqp_error_string2(status));
    return log_in(r, s, err);
}

static void rabbitmq_disconnect(void *self, const char *why)
{
    struct rabbitmq *r = self;
    if (r->conn)
        amqp_destroy_connection(r->conn); // without connection.close, which could block
    r->conn = NULL;
    while (r->first) {
        struct ol_broker_attempt *attempt = r->first;
        r->first = attempt->next;
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN, "sent, but not confirmed: %s", why);
    }
    r->end = &r->first;
}

static int rabbitmq_fd(void *self)
{
    struct rabbitmq *r = self;
    return r->conn ? amqp_get_sockfd(r->conn) : -1;
}

static const struct ol_broker_driver driver = {
    .connect = rabbitmq_connect,
    .send = rabbitmq_send,
    .flush = rabbitmq_read_replies, // the first confirms may be here already
    .read_replies = rabbitmq_read_replies,
    .fd = rabbitmq_fd,
    .disconnect = rabbitmq_disconnect,
    .tick_ms = RABBIT_HEARTBEAT_S * 1000 / 4, // the client sends heartbeats only inside its calls
};

/* --- the publisher ---------------------------------------------------------------------------- */

static int rabbitmq_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static const struct ol_broker_naming naming = {.forbidden = "",
                                                   .name_max = RABBIT_NAME_BYTES_MAX};
    struct rabbitmq *r = calloc(1, sizeof *r);
    if (!r)
        return ol_no_memory(err);
    r->end = &r->first;
    if (ol_broker_thread_open(&r->thread, host, &naming, &driver, r, err) < 0) {
        free(r);
        return -1;
    }
    *instance = r;
    return 0;
}

static void rabbitmq_close(void *instance)
{
    struct rabbitmq *r = instance;
    ol_broker_thread_close(&r->thread);
    free(r);
}

static const struct outlog_publisher publisher = {
    .name = "rabbitmq",
    .batch_max = 1024,
    .open = rabbitmq_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = rabbitmq_close,
};

#define RABBITMQ_PUBLISHER &publisher
#else
#define RABBITMQ_PUBLISHER NULL
#endif

/* --- settings --------------------------------------------------------------------------------- */

static const struct ol_address_scheme schemes[] = {
    {"amqp", 5672, false},
    {"amqps", 5671, true},
    {NULL, 0, false},
};

static int check_rabbitmq(struct ol_setting_reader *r)
{
    static const struct ol_broker_rules rules = {.schemes = schemes};
    return ol_broker_settings_check(r, &rules);
}

#define AT(member) offsetof(struct rabbitmq_settings, member)

static const struct ol_setting_key rabbitmq_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(broker.url), .is_needed = true},
    {.name = "exchange", .read = ol_setting_types_text, .offset = AT(exchange)},
    {.name = "routing_key",
     .read = ol_setting_types_name,
     .offset = AT(broker.name),
     .is_needed = true},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_rabbitmq = {
    .name = "rabbitmq",
    .publisher = RABBITMQ_PUBLISHER,
    .timeout_s = 10,
    .concurrency = 1024,
    .own_bytes = sizeof(struct rabbitmq_settings),
    .keys = {rabbitmq_keys, ol_broker_settings_keys},
    .check = check_rabbitmq,
};
