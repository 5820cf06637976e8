/* rabbitmq.c: a message to an exchange of a RabbitMQ broker (D4).
 *
 * Success is the broker's confirm: basic.ack for a persistent, mandatory message. The broker sends
 * it once every queue the message went to has taken it; on quorum queues that means a majority, on
 * classic ones this node's disk. A message that leads to no queue comes back first (basic.return)
 * and is acknowledged all the same: the return wins. basic.nack: the broker could not take it.
 *
 * The client has no interface for confirms, so frames are read as they come. It blocks for ever in
 * a write to a broker that is out of memory: it runs on the courier's thread, and the courier's
 * watchdog shuts the socket down. */
#include "publish/broker/broker_thread.h"

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
    CHANNEL = 1,
    HEARTBEAT_S = 20,
    FRAME_BYTES = 131072,
    HEADERS_MAX = 80,
    NAME_MAX_BYTES = 255
};

struct rabbit {
    struct ol_broker_thread courier; /* first */
    amqp_connection_state_t link;
    struct ol_broker_attempt *first, **end; /* sent and unconfirmed, delivery tags ascending */
    uint64_t number;                        /* the last delivery tag */
};

static struct timeval span(int ms)
{
    return (struct timeval){ms / 1000, ms % 1000 * 1000};
}

static amqp_bytes_t bytes_of(const char *text)
{
    return (amqp_bytes_t){strlen(text), (void *)(uintptr_t)text}; // it is only read
}

/* --- confirms
 * ------------------------------------------------------------------------------------------- */

enum { CONFIRMED, NACKED };

static void confirm(struct rabbit *r, uint64_t tag, bool is_multiple, int what)
{
    struct ol_broker_attempt **at = &r->first;
    while (*at && (*at)->number <= tag) {
        struct ol_broker_attempt *load = *at;
        if (load->number < tag && !is_multiple) {
            at = &load->next;
            continue;
        }
        *at = load->next;
        if (load->is_returned)
            ol_broker_attempt_refuse(load, false,
                                     "rabbitmq: no queue for exchange \"%s\", routing key \"%s\"",
                                     r->courier.freight.settings->exchange
                                         ? r->courier.freight.settings->exchange
                                         : "",
                                     load->parcel.name);
        else if (what == NACKED)
            ol_broker_attempt_refuse(load, false, "rabbitmq: the broker could not take it (nack)");
        else
            ol_broker_attempt_end(load, OUTLOG_PUBLISH_OK, "confirmed");
    }
    if (!*at)
        r->end = at; // else the tail is as it was
}

/* The message that came back tells who it is by its message id. Its body is read and dropped. */
static int take_return(struct rabbit *r, outlog_err *err)
{
    amqp_message_t message;
    amqp_rpc_reply_t reply = amqp_read_message(r->link, CHANNEL, &message, 0);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: a returned message was cut off");
    amqp_bytes_t id = message.properties.message_id;
    for (struct ol_broker_attempt *load = r->first; load; load = load->next)
        if (strlen(load->parcel.id) == id.len && memcmp(load->parcel.id, id.bytes, id.len) == 0)
            load->is_returned = true;
    amqp_destroy_message(&message);
    return 0;
}

/* The broker names no message when it closes the channel; it names the size of one too large. */
static void find_too_large(struct rabbit *r, const char *text)
{
    unsigned long long size = 0;
    const char *at = strstr(text, "message size ");
    if (!at || sscanf(at, "message size %llu", &size) != 1)
        return;
    for (struct ol_broker_attempt **link = &r->first; *link; link = &(*link)->next) {
        struct ol_broker_attempt *load = *link;
        if (load->parcel.body_bytes != size)
            continue;
        *link = load->next;
        ol_broker_attempt_refuse(load, true, "rabbitmq: %.200s", text);
        return;
    }
}

static int closed(struct rabbit *r, int code, amqp_bytes_t why, outlog_err *err)
{
    char text[256];
    snprintf(text, sizeof text, "%.*s", why.len < 240 ? (int)why.len : 240, (char *)why.bytes);
    find_too_large(r, text);
    return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %d %s", code, text);
}

static int take_method(struct rabbit *r, const amqp_method_t *method, outlog_err *err)
{
    switch (method->id) {
    case AMQP_BASIC_ACK_METHOD: {
        const amqp_basic_ack_t *ack = method->decoded;
        confirm(r, ack->delivery_tag, ack->multiple, CONFIRMED);
        return 0;
    }
    case AMQP_BASIC_NACK_METHOD: {
        const amqp_basic_nack_t *nack = method->decoded;
        confirm(r, nack->delivery_tag, nack->multiple, NACKED);
        return 0;
    }
    case AMQP_BASIC_RETURN_METHOD:
        return take_return(r, err);
    case AMQP_CHANNEL_CLOSE_METHOD: {
        const amqp_channel_close_t *close = method->decoded;
        return closed(r, close->reply_code, close->reply_text, err);
    }
    case AMQP_CONNECTION_CLOSE_METHOD: {
        const amqp_connection_close_t *close = method->decoded;
        return closed(r, close->reply_code, close->reply_text, err);
    }
    default:
        return 0; // connection.blocked and the like: the deadline speaks for itself
    }
}

static int rabbit_listen(void *self, outlog_err *err)
{
    struct rabbit *r = self;
    amqp_frame_t frame;
    for (;;) {
        struct timeval now = {0, 0};
        amqp_maybe_release_buffers(r->link);
        int status = amqp_simple_wait_frame_noblock(r->link, &frame, &now);
        if (status == AMQP_STATUS_TIMEOUT)
            return 0;
        if (status != AMQP_STATUS_OK)
            return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s", amqp_error_string2(status));
        ol_broker_thread_answered(&r->courier);
        if (frame.frame_type == AMQP_FRAME_METHOD && take_method(r, &frame.payload.method, err) < 0)
            return -1;
    }
}

/* --- messages
 * ---------------------------------------------------------------------------------------------- */

static void set_headers(const struct ol_broker_message *parcel, amqp_table_entry_t *entries,
                        amqp_basic_properties_t *properties)
{
    size_t count = parcel->header_count < HEADERS_MAX ? parcel->header_count : HEADERS_MAX;
    for (size_t i = 0; i < count; i++) {
        entries[i].key = bytes_of(parcel->headers[i].name);
        entries[i].value.kind = AMQP_FIELD_KIND_UTF8;
        entries[i].value.value.bytes = bytes_of(parcel->headers[i].value);
    }
    properties->headers = (amqp_table_t){(int)count, entries};
}

static int rabbit_send(void *self, struct ol_broker_attempt *load, outlog_err *err)
{
    struct rabbit *r = self;
    const struct ol_settings *settings = r->courier.freight.settings;
    const struct ol_broker_message *parcel = &load->parcel;
    amqp_table_entry_t entries[HEADERS_MAX];
    amqp_basic_properties_t properties = {
        ._flags = AMQP_BASIC_CONTENT_TYPE_FLAG | AMQP_BASIC_DELIVERY_MODE_FLAG |
                  AMQP_BASIC_MESSAGE_ID_FLAG | AMQP_BASIC_TYPE_FLAG | AMQP_BASIC_TIMESTAMP_FLAG |
                  AMQP_BASIC_HEADERS_FLAG | AMQP_BASIC_APP_ID_FLAG,
        .content_type = bytes_of(parcel->content_type),
        .delivery_mode = AMQP_DELIVERY_PERSISTENT,
        .message_id = bytes_of(parcel->id),
        .type = bytes_of(parcel->event_type),
        .timestamp = (uint64_t)(parcel->created_at / 1000000),
        .app_id = bytes_of("outlog"),
    };
    if (parcel->correlation_id && strlen(parcel->correlation_id) <= NAME_MAX_BYTES) {
        properties._flags |= AMQP_BASIC_CORRELATION_ID_FLAG;
        properties.correlation_id = bytes_of(parcel->correlation_id);
    }
    set_headers(parcel, entries, &properties);
    load->number = ++r->number;
    *r->end = load;
    r->end = &load->next;
    int status =
        amqp_basic_publish(r->link, CHANNEL, bytes_of(settings->exchange ? settings->exchange : ""),
                           bytes_of(parcel->name), 1, 0, &properties,
                           (amqp_bytes_t){parcel->body_bytes, (void *)(uintptr_t)parcel->body});
    if (status == AMQP_STATUS_OK)
        return 0;
    outlog_err said;
    if (rabbit_listen(r, &said) < 0) { // why it closed may lie there unread
        *err = said;
        return -1;
    }
    return ol_fail(err, OUTLOG_UNAVAILABLE, "rabbitmq: %s", amqp_error_string2(status));
}

/* --- the connection
 * -------------------------------------------------------------------------------------- */

static int trouble(amqp_rpc_reply_t reply, const char *what, outlog_err *err)
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

static amqp_socket_t *make_socket(struct rabbit *r, const struct ol_settings *s)
{
    if (!s->addresses[0].is_tls)
        return amqp_tcp_socket_new(r->link);
    amqp_socket_t *socket = amqp_ssl_socket_new(r->link);
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

static int log_in(struct rabbit *r, const struct ol_settings *s, outlog_err *err)
{
    const char *path = s->addresses[0].path;
    const char *vhost = path && *path ? path : "/";
    amqp_rpc_reply_t reply = amqp_login(r->link, vhost, 0, FRAME_BYTES, HEARTBEAT_S,
                                        AMQP_SASL_METHOD_PLAIN, s->user ? s->user : "guest",
                                        s->password ? s->password : "guest");
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return trouble(reply, "login", err);
    amqp_channel_open(r->link, CHANNEL);
    reply = amqp_get_rpc_reply(r->link);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        return trouble(reply, "channel", err);
    amqp_confirm_select(r->link, CHANNEL);
    reply = amqp_get_rpc_reply(r->link);
    return reply.reply_type == AMQP_RESPONSE_NORMAL ? 0 : trouble(reply, "confirms", err);
}

static int rabbit_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct rabbit *r = self;
    const struct ol_settings *s = r->courier.freight.settings;
    const struct ol_address *where = s->addresses;
    struct timeval limit = span(timeout_ms);

    r->number = 0;
    if (!(r->link = amqp_new_connection()))
        return ol_no_memory(err);
    amqp_set_handshake_timeout(r->link, &limit);
    amqp_set_rpc_timeout(r->link, &limit);
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

static void rabbit_disconnect(void *self, const char *why)
{
    struct rabbit *r = self;
    if (r->link)
        amqp_destroy_connection(r->link); // no goodbye: it could block
    r->link = NULL;
    while (r->first) {
        struct ol_broker_attempt *load = r->first;
        r->first = load->next;
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN, "sent, but not confirmed: %s", why);
    }
    r->end = &r->first;
}

static int rabbit_fd(void *self)
{
    struct rabbit *r = self;
    return r->link ? amqp_get_sockfd(r->link) : -1;
}

static const struct ol_broker_driver trade = {
    .connect = rabbit_connect,
    .send = rabbit_send,
    .flush = rabbit_listen, // confirms of the first may be here already
    .listen = rabbit_listen,
    .fd = rabbit_fd,
    .disconnect = rabbit_disconnect,
    .tick_ms = HEARTBEAT_S * 1000 / 4, // heartbeats are sent only from inside the client's calls
};

/* --- the publisher
 * ------------------------------------------------------------------------------------------- */

static int rabbit_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    struct ol_broker_naming form = {.name = own->settings->routing_key,
                                    .forbidden = "",
                                    .name_max = NAME_MAX_BYTES};
    struct rabbit *r = calloc(1, sizeof *r);
    if (!r)
        return ol_no_memory(err);
    r->end = &r->first;
    if (ol_broker_thread_open(&r->courier, host, &form, &trade, r, err) < 0) {
        free(r);
        return -1;
    }
    *instance = r;
    return 0;
}

static void rabbit_close(void *instance)
{
    struct rabbit *r = instance;
    ol_broker_thread_close(&r->courier);
    free(r);
}

const struct outlog_publisher ol_publisher_rabbitmq = {
    .name = "rabbitmq",
    .batch_max = 1024,
    .open = rabbit_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = rabbit_close,
};
