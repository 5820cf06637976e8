/* nats.c: a message on a subject that a JetStream stream listens to (D4).
 *
 * Success is the stream's acknowledgement, with its sequence number; `duplicate` in it is success
 * too. Core NATS acknowledges nothing: where no stream takes the subject, the server says so
 * (no responders) and the attempt has failed.
 *
 * `Nats-Msg-Id` is the event_id, so that a stream drops repeats within its duplicate window. Each
 * message carries a reply subject of its own below one inbox, and its deadline ends the wait for
 * the answer; that is the client's asynchronous publish, without its queue that outlives a
 * connection. */
#include "base/json/json.h"
#include "publish/broker/broker_thread.h"

#include <nats/nats.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUCKETS = 1024, TOO_LARGE = 10054, PING_MS = 5000 };

struct nats {
    struct ol_broker_thread courier; /* first */
    natsConnection *link;
    natsSubscription *answers;
    char inbox[64];
    uint64_t number;

    pthread_mutex_t lock; /* guards what follows: the client's threads come here too */
    pthread_cond_t over;
    struct ol_broker_attempt *waiting[BUCKETS]; /* sent, by number */
    bool is_closed, is_complete;                /* the client's threads have left */
};

/* --- loads by number
 * -------------------------------------------------------------------------------- */

static void wait_answer(struct nats *n, struct ol_broker_attempt *load)
{
    pthread_mutex_lock(&n->lock);
    load->number = ++n->number;
    load->next = n->waiting[load->number % BUCKETS];
    n->waiting[load->number % BUCKETS] = load;
    pthread_mutex_unlock(&n->lock);
}

static struct ol_broker_attempt *find_load(struct nats *n, uint64_t number)
{
    pthread_mutex_lock(&n->lock);
    struct ol_broker_attempt **at = &n->waiting[number % BUCKETS];
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct ol_broker_attempt *load = *at;
    if (load)
        *at = load->next;
    pthread_mutex_unlock(&n->lock);
    return load;
}

/* --- answers, on the client's thread
 * ------------------------------------------------------------------ */

static void end_refused(struct ol_broker_attempt *load, const struct ol_json *error)
{
    struct ol_arena arena = {0};
    struct ol_json code = ol_json_get(error, "err_code"), why = ol_json_get(error, "description");
    int64_t number = 0;
    ol_json_int(&code, &number);
    const char *text = ol_json_string(&why, &arena, NULL);
    ol_broker_attempt_refuse(load, number == TOO_LARGE, "nats: %.200s (%d)",
                             text ? text : "refused", (int)number);
    ol_arena_clear(&arena);
}

static void end_answered(struct ol_broker_attempt *load, natsMsg *answer)
{
    const char *status = NULL;
    struct ol_json whole;
    struct ol_arena arena = {0};
    int64_t sequence = 0;

    if (natsMsgHeader_Get(answer, "Status", &status) == NATS_OK && status &&
        strcmp(status, "503") == 0) {
        ol_broker_attempt_refuse(load, false, "nats: no stream takes the subject %s",
                                 load->parcel.name);
        return;
    }
    const char *data = natsMsg_GetData(answer);
    if (!data || ol_json_parse(data, (size_t)natsMsg_GetDataLength(answer), &whole, NULL) < 0) {
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN, "nats: an answer that cannot be read");
        return;
    }
    struct ol_json error = ol_json_get(&whole, "error"), number = ol_json_get(&whole, "seq");
    struct ol_json stream = ol_json_get(&whole, "stream");
    struct ol_json duplicate = ol_json_get(&whole, "duplicate");
    const char *name = ol_json_string(&stream, &arena, NULL);
    if (error.type == OL_JSON_OBJECT)
        end_refused(load, &error);
    else if (ol_json_int(&number, &sequence) && name)
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_OK, "%s %lld%s", name, (long long)sequence,
                              duplicate.type == OL_JSON_TRUE ? " duplicate" : "");
    else
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN,
                              "nats: an answer without stream and seq");
    ol_arena_clear(&arena);
}

static void on_answer(natsConnection *link, natsSubscription *answers, natsMsg *answer, void *arg)
{
    struct nats *n = arg;
    const char *tail = strrchr(natsMsg_GetSubject(answer), '.');
    (void)link, (void)answers;
    ol_broker_thread_answered(&n->courier);
    struct ol_broker_attempt *load = tail ? find_load(n, strtoull(tail + 1, NULL, 10)) : NULL;
    if (load)
        end_answered(load, answer); // a second answer finds nothing
    natsMsg_Destroy(answer);
}

static void on_closed(natsConnection *link, void *arg)
{
    struct nats *n = arg;
    (void)link;
    ol_broker_thread_lost(&n->courier);
    pthread_mutex_lock(&n->lock);
    n->is_closed = true;
    pthread_cond_signal(&n->over);
    pthread_mutex_unlock(&n->lock);
}

static void on_complete(void *arg)
{
    struct nats *n = arg;
    pthread_mutex_lock(&n->lock);
    n->is_complete = true;
    pthread_cond_signal(&n->over);
    pthread_mutex_unlock(&n->lock);
}

/* Its default prints on stderr; what matters reaches us as an answer or as the end. */
static void on_error(natsConnection *link, natsSubscription *answers, natsStatus status, void *arg)
{
    (void)link, (void)answers, (void)status, (void)arg;
}

/* --- the connection
 * -------------------------------------------------------------------------------------- */

static natsStatus set_servers(natsOptions *options, const struct ol_settings *settings)
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

static natsStatus set_identity(natsOptions *o, const struct ol_settings *s)
{
    natsStatus status = NATS_OK;
    if (s->user && s->password)
        status = natsOptions_SetUserInfo(o, s->user, s->password);
    else if (s->user || s->password) // nats://TOKEN@host
        status = natsOptions_SetToken(o, s->user ? s->user : s->password);
    if (status == NATS_OK && s->credentials)
        status = natsOptions_SetUserCredentialsFromFiles(o, s->credentials, NULL);
    if (status == NATS_OK && s->addresses[0].is_tls)
        status = natsOptions_SetSecure(o, true);
    if (status == NATS_OK && s->ca_file)
        status = natsOptions_LoadCATrustedCertificates(o, s->ca_file);
    if (status == NATS_OK && s->cert_file)
        status = natsOptions_LoadCertificatesChain(o, s->cert_file, s->key_file);
    return status;
}

/* No reconnecting behind our back: what it would send later has had its outcome by then. */
static natsStatus set_options(struct nats *n, natsOptions *o, int timeout_ms)
{
    const struct ol_settings *s = n->courier.freight.settings;
    natsStatus status = set_servers(o, s);
    if (status == NATS_OK)
        status = set_identity(o, s);
    if (status == NATS_OK)
        status = natsOptions_SetAllowReconnect(o, false);
    if (status == NATS_OK)
        status = natsOptions_SetTimeout(o, timeout_ms);
    if (status == NATS_OK)
        status = natsOptions_SetName(o, "outlog");
    if (status == NATS_OK)
        status = natsOptions_SetPingInterval(o, PING_MS);
    if (status == NATS_OK)
        status = natsOptions_SetWriteDeadline(o, s->timeout_us / 1000);
    if (status == NATS_OK)
        status = natsOptions_SetClosedCB(o, on_closed, n);
    if (status == NATS_OK)
        status = natsOptions_SetErrorHandler(o, on_error, NULL);
    return status;
}

static int trouble(natsStatus status, const struct ol_address *where, outlog_err *err)
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
    const struct ol_address *where = n->courier.freight.settings->addresses;
    natsOptions *options = NULL;
    natsInbox *inbox = NULL;
    char subject[80];

    natsStatus status = natsOptions_Create(&options);
    if (status == NATS_OK)
        status = set_options(n, options, timeout_ms);
    if (status == NATS_OK)
        status = natsConnection_Connect(&n->link, options);
    if (status == NATS_OK) {
        n->is_closed = false;
        n->is_complete = true; // until there is a subscription
        status = natsInbox_Create(&inbox);
    }
    if (status == NATS_OK) {
        snprintf(n->inbox, sizeof n->inbox, "%s", inbox);
        snprintf(subject, sizeof subject, "%s.*", inbox);
        status = natsConnection_Subscribe(&n->answers, n->link, subject, on_answer, n);
    }
    if (status == NATS_OK) {
        n->is_complete = false;
        natsSubscription_SetPendingLimits(n->answers, -1, -1);
        status = natsSubscription_SetOnCompleteCB(n->answers, on_complete, n);
    }
    natsInbox_Destroy(inbox);
    natsOptions_Destroy(options);
    return status == NATS_OK ? 0 : trouble(status, where, err);
}

static void nats_disconnect(void *self, const char *why)
{
    struct nats *n = self;
    if (n->link) {
        natsConnection_Close(n->link);
        pthread_mutex_lock(&n->lock);
        while (!n->is_closed || !n->is_complete) // both threads hold a pointer to us
            pthread_cond_wait(&n->over, &n->lock);
        pthread_mutex_unlock(&n->lock);
    }
    natsSubscription_Destroy(n->answers);
    natsConnection_Destroy(n->link);
    n->answers = NULL;
    n->link = NULL;
    for (int i = 0; i < BUCKETS; i++)
        while (n->waiting[i]) {
            struct ol_broker_attempt *load = n->waiting[i];
            n->waiting[i] = load->next;
            ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s",
                                  why);
        }
}

static int nats_fd(void *self)
{
    (void)self;
    return -1; // the client's threads listen
}

/* --- messages
 * ---------------------------------------------------------------------------------------------- */

static natsStatus make_message(struct nats *n, const struct ol_broker_attempt *load, natsMsg **out)
{
    const struct ol_broker_message *parcel = &load->parcel;
    const char *stream = n->courier.freight.settings->stream;
    char reply[96];

    snprintf(reply, sizeof reply, "%s.%llu", n->inbox, (unsigned long long)load->number);
    natsStatus status =
        natsMsg_Create(out, parcel->name, reply, parcel->body, (int)parcel->body_bytes);
    if (status == NATS_OK)
        status = natsMsgHeader_Set(*out, "Nats-Msg-Id", parcel->id);
    if (status == NATS_OK && stream)
        status = natsMsgHeader_Set(*out, "Nats-Expected-Stream", stream);
    if (status == NATS_OK)
        status = natsMsgHeader_Set(*out, "content-type", parcel->content_type);
    if (status == NATS_OK && parcel->correlation_id)
        status = natsMsgHeader_Set(*out, "correlation-id", parcel->correlation_id);
    for (size_t i = 0; status == NATS_OK && i < parcel->header_count; i++)
        status = natsMsgHeader_Set(*out, parcel->headers[i].name, parcel->headers[i].value);
    return status;
}

static int nats_send(void *self, struct ol_broker_attempt *load, outlog_err *err)
{
    struct nats *n = self;
    natsMsg *message = NULL;

    wait_answer(n, load);
    uint64_t number = load->number; // once it is sent the load may be gone
    natsStatus status = make_message(n, load, &message);
    if (status == NATS_OK)
        status = natsConnection_PublishMsg(n->link, message);
    natsMsg_Destroy(message);
    switch (status) {
    case NATS_OK:
        return 0;
    case NATS_MAX_PAYLOAD:
    case NATS_INVALID_SUBJECT:
    case NATS_INVALID_ARG: // nothing was written
        if ((load = find_load(n, number)))
            ol_broker_attempt_refuse(load, true, "nats: %s", natsStatus_GetText(status));
        return 0;
    default:
        return trouble(status, n->courier.freight.settings->addresses, err);
    }
}

static const struct ol_broker_driver trade = {
    .connect = nats_connect,
    .send = nats_send,
    .fd = nats_fd,
    .disconnect = nats_disconnect,
};

/* --- the publisher
 * ------------------------------------------------------------------------------------------- */

static int nats_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    struct ol_broker_naming form = {.name = own->settings->subject,
                                    .forbidden = " *>",
                                    .ce_prefix = "ce-"};
    struct nats *n = calloc(1, sizeof *n);
    if (!n)
        return ol_no_memory(err);
    pthread_mutex_init(&n->lock, NULL);
    pthread_cond_init(&n->over, NULL);
    if (ol_broker_thread_open(&n->courier, host, &form, &trade, n, err) < 0) {
        free(n);
        return -1;
    }
    *instance = n;
    return 0;
}

static void nats_close(void *instance)
{
    struct nats *n = instance;
    ol_broker_thread_close(&n->courier);
    pthread_cond_destroy(&n->over);
    pthread_mutex_destroy(&n->lock);
    free(n);
}

const struct outlog_publisher ol_publisher_nats = {
    .name = "nats",
    .batch_max = 1024,
    .open = nats_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = nats_close,
};
