/* nats.c: a message on a subject that a JetStream stream captures (D4).
 *
 * Success is the stream's acknowledgement, with its sequence number; `duplicate` in it is success
 * too. Core NATS acknowledges nothing: when no stream captures the subject, the server replies "no
 * responders" and the attempt has failed.
 *
 * `Nats-Msg-Id` is the event_id, so a stream drops repeats within its duplicate window. Each
 * message has its own reply subject below one inbox, and the wait for the reply ends at its
 * deadline. The client's asynchronous publish does so too, but its queue outlives a connection. */
#include "publish/broker/broker_thread.h"

struct nats_settings {
    struct ol_broker_settings broker; /* first */
    const char *stream;               /* the stream that must take the message; NULL: any */
    const char *credentials;          /* a .creds file */
};

#ifdef OL_WITH_NATS

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NATS_BUCKETS = 1024, NATS_TOO_LARGE = 10054, NATS_PING_MS = 5000 };

struct nats {
    struct ol_broker_thread thread; /* first */
    natsConnection *conn;
    natsSubscription *replies;
    char inbox[64];
    uint64_t number;

    pthread_mutex_t lock;   /* guards what follows, which the client's threads use too */
    pthread_cond_t changed; /* is_closed or is_complete */
    struct ol_broker_attempt *waiting[NATS_BUCKETS]; /* sent, by number */
    bool is_closed, is_complete; /* the client's threads will not call us again */
};

static const struct nats_settings *settings_of(const struct nats *n)
{
    return n->thread.inflight.settings->own;
}

/* --- attempts by number ----------------------------------------------------------------------- */

static void add_waiting(struct nats *n, struct ol_broker_attempt *attempt)
{
    pthread_mutex_lock(&n->lock);
    attempt->number = ++n->number;
    attempt->next = n->waiting[attempt->number % NATS_BUCKETS];
    n->waiting[attempt->number % NATS_BUCKETS] = attempt;
    pthread_mutex_unlock(&n->lock);
}

static struct ol_broker_attempt *take_waiting(struct nats *n, uint64_t number)
{
    pthread_mutex_lock(&n->lock);
    struct ol_broker_attempt **at = &n->waiting[number % NATS_BUCKETS];
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct ol_broker_attempt *attempt = *at;
    if (attempt)
        *at = attempt->next;
    pthread_mutex_unlock(&n->lock);
    return attempt;
}

/* --- replies, on the client's thread ---------------------------------------------------------- */

static void refuse_attempt(struct ol_broker_attempt *attempt, const struct ol_json *error)
{
    struct ol_arena arena = {0};
    struct ol_json code = ol_json_get(error, "err_code"), why = ol_json_get(error, "description");
    int64_t number = 0;
    ol_json_int(&code, &number);
    const char *text = ol_json_string(&why, &arena, NULL);
    ol_broker_attempt_refuse(attempt, number == NATS_TOO_LARGE, "nats: %.200s (%d)",
                             text ? text : "refused", (int)number);
    ol_arena_clear(&arena);
}

static void end_attempt(struct ol_broker_attempt *attempt, natsMsg *reply)
{
    const char *status = NULL;
    struct ol_json body;
    struct ol_arena arena = {0};
    int64_t sequence = 0;

    if (natsMsgHeader_Get(reply, "Status", &status) == NATS_OK && status &&
        strcmp(status, "503") == 0) {
        ol_broker_attempt_refuse(attempt, false, "nats: no stream takes the subject %s",
                                 attempt->message.name);
        return;
    }
    const char *data = natsMsg_GetData(reply);
    if (!data || ol_json_parse(data, (size_t)natsMsg_GetDataLength(reply), &body, NULL) < 0) {
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN,
                              "nats: an answer that cannot be read");
        return;
    }
    struct ol_json error = ol_json_get(&body, "error"), number = ol_json_get(&body, "seq");
    struct ol_json stream = ol_json_get(&body, "stream");
    struct ol_json duplicate = ol_json_get(&body, "duplicate");
    const char *name = ol_json_string(&stream, &arena, NULL);
    if (error.type == OL_JSON_OBJECT)
        refuse_attempt(attempt, &error);
    else if (ol_json_int(&number, &sequence) && name)
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "%s %lld%s", name, (long long)sequence,
                              duplicate.type == OL_JSON_TRUE ? " duplicate" : "");
    else
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN,
                              "nats: an answer without stream and seq");
    ol_arena_clear(&arena);
}

static void on_reply(natsConnection *conn, natsSubscription *replies, natsMsg *reply, void *arg)
{
    struct nats *n = arg;
    const char *tail = strrchr(natsMsg_GetSubject(reply), '.');
    (void)conn, (void)replies;
    ol_broker_thread_replied(&n->thread);
    struct ol_broker_attempt *attempt = tail ? take_waiting(n, strtoull(tail + 1, NULL, 10)) : NULL;
    if (attempt)
        end_attempt(attempt, reply); // a second reply finds nothing
    natsMsg_Destroy(reply);
}

static void on_closed(natsConnection *conn, void *arg)
{
    struct nats *n = arg;
    (void)conn;
    ol_broker_thread_lost(&n->thread);
    pthread_mutex_lock(&n->lock);
    n->is_closed = true;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

static void on_complete(void *arg)
{
    struct nats *n = arg;
    pthread_mutex_lock(&n->lock);
    n->is_complete = true;
    pthread_cond_signal(&n->changed);
    pthread_mutex_unlock(&n->lock);
}

/* The default handler prints on stderr. Errors that matter arrive as a reply or in on_closed. */
static void on_error(natsConnection *conn, natsSubscription *replies, natsStatus status, void *arg)
{
    (void)conn, (void)replies, (void)status, (void)arg;
}

/* --- the connection --------------------------------------------------------------------------- */

static natsStatus set_servers(natsOptions *options, const struct ol_broker_settings *settings)
{
    struct ol_arena arena = {0};
    const char **urls = ol_arena_array(&arena, settings->address_count, sizeof *urls);
    natsStatus status = urls ? NATS_OK : NATS_NO_MEMORY;
    for (size_t i = 0; status == NATS_OK && i < settings->address_count; i++) {
        const struct ol_address *a = &settings->addresses[i];
        bool is_six = strchr(a->host, ':') != NULL;
        urls[i] = ol_arena_print(&arena, "%s://%s%s%s:%d", a->is_tls ? "tls" : "nats",
                                 is_six ? "[" : "", a->host, is_six ? "]" : "", a->port);
        if (!urls[i])
            status = NATS_NO_MEMORY;
    }
    if (status == NATS_OK)
        status = natsOptions_SetServers(options, urls, (int)settings->address_count);
    ol_arena_clear(&arena);
    return status;
}

static natsStatus set_identity(natsOptions *o, const struct nats_settings *settings)
{
    const struct ol_broker_settings *s = &settings->broker;
    natsStatus status = NATS_OK;
    if (s->user && s->password)
        status = natsOptions_SetUserInfo(o, s->user, s->password);
    else if (s->user || s->password) // nats://TOKEN@host
        status = natsOptions_SetToken(o, s->user ? s->user : s->password);
    if (status == NATS_OK && settings->credentials)
        status = natsOptions_SetUserCredentialsFromFiles(o, settings->credentials, NULL);
    if (status == NATS_OK && s->addresses[0].is_tls)
        status = natsOptions_SetSecure(o, true);
    if (status == NATS_OK && s->ca_file)
        status = natsOptions_LoadCATrustedCertificates(o, s->ca_file);
    if (status == NATS_OK && s->cert_file)
        status = natsOptions_LoadCertificatesChain(o, s->cert_file, s->key_file);
    return status;
}

/* The client must not reconnect by itself: it would send messages that have an outcome already. */
static natsStatus set_options(struct nats *n, natsOptions *o, int timeout_ms)
{
    const struct nats_settings *own = settings_of(n);
    natsStatus status = set_servers(o, &own->broker);
    if (status == NATS_OK)
        status = set_identity(o, own);
    if (status == NATS_OK)
        status = natsOptions_SetAllowReconnect(o, false);
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(o, timeout_ms);
    if (status == NATS_OK)
        status = natsOptions_SetName(o, "outlog");
    if (status == NATS_OK)
        status = natsOptions_SetPingInterval(o, NATS_PING_MS);
    if (status == NATS_OK)
        status = natsOptions_SetWriteDeadline(o, n->thread.inflight.settings->timeout_us / 1000);
    if (status == NATS_OK)
        status = natsOptions_SetClosedCB(o, on_closed, n);
    if (status == NATS_OK)
        status = natsOptions_SetErrorHandler(o, on_error, NULL);
    return status;
}

static int fail_status(natsStatus status, const struct ol_address *where, outlog_err *err)
{
    natsStatus last;
    const char *text = nats_GetLastError(&last);
    if (!text || !*text || last != status)
        text = natsStatus_GetText(status);
    return ol_fail(err, OUTLOG_UNAVAILABLE, "nats %s:%d: %.200s", where->host, where->port, text);
}

static int nats_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct nats *n = self;
    const struct ol_address *where = settings_of(n)->broker.addresses;
    natsOptions *options = NULL;
    natsInbox *inbox = NULL;
    char subject[80];

    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK)
        status = set_options(n, options, timeout_ms);
    if (status == NATS_OK)
        status = natsConnection_Connect(&n->conn, options);
    if (status == NATS_OK) {
        n->is_closed = false;
        n->is_complete = true; // until there is a subscription
        status = natsInbox_Create(&inbox);
    }
    if (status == NATS_OK) {
        snprintf(n->inbox, sizeof n->inbox, "%s", inbox);
        snprintf(subject, sizeof subject, "%s.*", inbox);
        status = natsConnection_Subscribe(&n->replies, n->conn, subject, on_reply, n);
    }
    if (status == NATS_OK) {
        n->is_complete = false;
        natsSubscription_SetPendingLimits(n->replies, -1, -1);
        status = natsSubscription_SetOnCompleteCB(n->replies, on_complete, n);
    }
    natsInbox_Destroy(inbox);
    natsOptions_Destroy(options);
    return status == NATS_OK ? 0 : fail_status(status, where, err);
}

static void nats_disconnect(void *self, const char *why)
{
    struct nats *n = self;
    if (n->conn) {
        natsConnection_Close(n->conn);
        pthread_mutex_lock(&n->lock);
        while (!n->is_closed || !n->is_complete) // both threads of the client hold a pointer to n
            pthread_cond_wait(&n->changed, &n->lock);
        pthread_mutex_unlock(&n->lock);
    }
    natsSubscription_Destroy(n->replies);
    natsConnection_Destroy(n->conn);
    n->replies = NULL;
    n->conn = NULL;
    for (int i = 0; i < NATS_BUCKETS; i++)
        while (n->waiting[i]) {
            struct ol_broker_attempt *attempt = n->waiting[i];
            n->waiting[i] = attempt->next;
            ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s",
                                  why);
        }
}

static int nats_fd(void *self)
{
    (void)self;
    return -1; // the client's threads read
}

/* --- messages --------------------------------------------------------------------------------- */

static natsStatus make_message(struct nats *n, const struct ol_broker_attempt *attempt,
                               natsMsg **out)
{
    const struct ol_broker_message *message = &attempt->message;
    const char *stream = settings_of(n)->stream;
    char reply[96];

    snprintf(reply, sizeof reply, "%s.%llu", n->inbox, (unsigned long long)attempt->number);
    natsStatus status =
        natsMsg_Create(out, message->name, reply, message->body, (int)message->body_bytes);
    if (status == NATS_OK)
        status = natsMsgHeader_Set(*out, "Nats-Msg-Id", message->id);
    if (status == NATS_OK && stream)
        status = natsMsgHeader_Set(*out, "Nats-Expected-Stream", stream);
    if (status == NATS_OK)
        status = natsMsgHeader_Set(*out, "content-type", message->content_type);
    if (status == NATS_OK && message->correlation_id)
        status = natsMsgHeader_Set(*out, "correlation-id", message->correlation_id);
    for (size_t i = 0; status == NATS_OK && i < message->header_count; i++)
        status = natsMsgHeader_Set(*out, message->headers[i].name, message->headers[i].value);
    return status;
}

static int nats_send(void *self, struct ol_broker_attempt *attempt, outlog_err *err)
{
    struct nats *n = self;
    natsMsg *out = NULL;

    add_waiting(n, attempt);
    uint64_t number = attempt->number; // once it is sent another thread may end the attempt
    natsStatus status = make_message(n, attempt, &out);
    if (status == NATS_OK)
        status = natsConnection_PublishMsg(n->conn, out);
    natsMsg_Destroy(out);
    switch (status) {
    case NATS_OK:
        return 0;
    case NATS_MAX_PAYLOAD:
    case NATS_INVALID_SUBJECT:
    case NATS_INVALID_ARG: // nothing was written
        if ((attempt = take_waiting(n, number)))
            ol_broker_attempt_refuse(attempt, true, "nats: %s", natsStatus_GetText(status));
        return 0;
    default:
        return fail_status(status, settings_of(n)->broker.addresses, err);
    }
}

static const struct ol_broker_driver driver = {
    .connect = nats_connect,
    .send = nats_send,
    .fd = nats_fd,
    .disconnect = nats_disconnect,
};

/* --- the publisher ---------------------------------------------------------------------------- */

static int nats_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static const struct ol_broker_naming naming = {.forbidden = " *>", .ce_prefix = "ce-"};
    struct nats *n = calloc(1, sizeof *n);
    if (!n)
        return ol_no_memory(err);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->changed, NULL);
    if (ol_broker_thread_open(&n->thread, host, &naming, &driver, n, err) < 0) {
        free(n);
        return -1;
    }
    *instance = n;
    return 0;
}

static void nats_close(void *instance)
{
    struct nats *n = instance;
    ol_broker_thread_close(&n->thread);
    pthread_cond_destroy(&n->changed);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

static const struct outlog_publisher publisher = {
    .name = "nats",
    .batch_max = 1024,
    .open = nats_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = nats_close,
};

#define NATS_PUBLISHER &publisher
#else
#define NATS_PUBLISHER NULL
#endif

/* --- settings --------------------------------------------------------------------------------- */

static const struct ol_address_scheme schemes[] = {
    {"nats", 4222, false},
    {"tls", 4222, true},
    {NULL, 0, false},
};

static int check_nats(struct ol_setting_reader *r)
{
    static const struct ol_broker_rules rules = {.schemes = schemes,
                                                 .has_many_addresses = true,
                                                 .has_headers = true};
    return ol_broker_settings_check(r, &rules);
}

#define AT(member) offsetof(struct nats_settings, member)

static const struct ol_setting_key nats_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(broker.url), .is_needed = true},
    {.name = "subject",
     .read = ol_setting_types_name,
     .offset = AT(broker.name),
     .is_needed = true},
    {.name = "stream", .read = ol_setting_types_name, .offset = AT(stream)},
    {.name = "credentials", .read = ol_setting_types_text, .offset = AT(credentials)},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_nats = {
    .name = "nats",
    .publisher = NATS_PUBLISHER,
    .timeout_s = 10,
    .concurrency = 1024,
    .own_bytes = sizeof(struct nats_settings),
    .keys = {nats_keys, ol_broker_settings_keys},
    .check = check_nats,
};
