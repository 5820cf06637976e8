/* redis.c: a message as an entry of a Redis stream (D4).
 *
 * Success is the server's reply to XADD, the id of the entry. What a reply is worth is the server's
 * business: with `appendfsync always` the entry is on disk, with `everysec` the last second can be
 * lost in a crash of the machine.
 *
 * Commands are pipelined: everything that waits goes out in one write, replies come in the same
 * order. hiredis writes and reads the protocol; the connection is ours, because hiredis before 1.0
 * has no TLS. With `dedupe` a script looks first whether the event_id was added within that time.
 */
#include "base/clock.h"
#include "net/tls_stream.h"
#include "publish/broker/broker_thread.h"

#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 2 * (8 + 64), READ_BYTES = 64 * 1024, MOST_REPLY = 1024 * 1024 };

#if HIREDIS_MAJOR >= 1
typedef size_t array_length;
#else
typedef int array_length;
#endif

/* KEYS: the stream, the mark. ARGV: milliseconds, max_len (0: none), then the fields. */
static const char script[] = "local id = redis.call('GET', KEYS[2])\n"
                             "if id then return id end\n"
                             "local add = {KEYS[1]}\n"
                             "if ARGV[2] ~= '0' then add = {KEYS[1], 'MAXLEN', '~', ARGV[2]} end\n"
                             "add[#add + 1] = '*'\n"
                             "for i = 3, #ARGV do add[#add + 1] = ARGV[i] end\n"
                             "id = redis.call('XADD', unpack(add))\n"
                             "redis.call('SET', KEYS[2], id, 'PX', ARGV[1])\n"
                             "return id";

struct redis {
    struct ol_broker_thread courier; /* first */
    struct ol_tls_stream wire;
    redisReader *reader;
    redisReplyObjectFunctions makers; /* of replies, for the reader */
    struct ol_buf out;
    struct ol_broker_attempt *first, **end; /* sent, in the order of their replies */
};

/* --- commands
 * ----------------------------------------------------------------------------------------- */

struct command {
    const char *argv[FIELDS_MAX + 16];
    size_t bytes[FIELDS_MAX + 16];
    int count;
};

static void add_bytes(struct command *c, const char *text, size_t bytes)
{
    c->argv[c->count] = text;
    c->bytes[c->count++] = bytes;
}

static void add(struct command *c, const char *text)
{
    add_bytes(c, text, strlen(text));
}

static int append(struct redis *r, const struct command *c)
{
    char *text = NULL;
    int bytes = redisFormatCommandArgv(&text, c->count, (const char **)c->argv, c->bytes);
    if (bytes > 0)
        ol_buf_add(&r->out, text, (size_t)bytes);
    redisFreeCommand(text);
    return bytes > 0 && !r->out.failed ? 0 : -1;
}

/* The entry's fields: payload first, then what tells what it is, then the headers. */
static void add_fields(struct command *c, const struct ol_broker_message *parcel)
{
    add(c, "payload");
    add_bytes(c, parcel->body, parcel->body_bytes);
    add(c, "content-type");
    add(c, parcel->content_type);
    if (parcel->correlation_id) {
        add(c, "correlation-id");
        add(c, parcel->correlation_id);
    }
    for (size_t i = 0; i < parcel->header_count && c->count + 2 < FIELDS_MAX; i++) {
        add(c, parcel->headers[i].name);
        add(c, parcel->headers[i].value);
    }
}

static int redis_send(void *self, struct ol_broker_attempt *load, outlog_err *err)
{
    struct redis *r = self;
    const struct ol_settings *settings = r->courier.freight.settings;
    struct command c = {.count = 0};
    char max_len[24], span[24], mark[160];

    snprintf(max_len, sizeof max_len, "%lld", (long long)settings->max_len);
    if (settings->dedupe_us) {
        snprintf(span, sizeof span, "%lld", (long long)(settings->dedupe_us / 1000));
        // in the stream's slot, so that a cluster keeps both together
        snprintf(mark, sizeof mark, "outlog:{%.80s}:%.40s", load->parcel.name, load->parcel.id);
        add(&c, "EVAL");
        add(&c, script);
        add(&c, "2");
        add(&c, load->parcel.name);
        add(&c, mark);
        add(&c, span);
        add(&c, max_len);
    } else {
        add(&c, "XADD");
        add(&c, load->parcel.name);
        if (settings->max_len) {
            add(&c, "MAXLEN");
            add(&c, "~");
            add(&c, max_len);
        }
        add(&c, "*");
    }
    add_fields(&c, &load->parcel);
    *r->end = load;
    r->end = &load->next;
    return append(r, &c) == 0 ? 0 : ol_no_memory(err);
}

static int write_out(struct redis *r, outlog_err *err)
{
    int result = ol_tls_stream_write(&r->wire, r->out.data ? r->out.data : "", r->out.bytes, err);
    ol_buf_reset(&r->out);
    if (r->out.capacity > 4 << 20)
        ol_buf_clear(&r->out); // one large burst must not be kept for ever
    return result;
}

/* --- replies
 * ------------------------------------------------------------------------------------------ */

static void end_one(struct redis *r, const redisReply *reply)
{
    struct ol_broker_attempt *load = r->first;
    r->first = load->next;
    if (!r->first)
        r->end = &r->first;
    if (reply->type == REDIS_REPLY_ERROR)
        // A full server, a key of another kind: the operator can mend that. Too large stays so.
        ol_broker_attempt_refuse(load, strncmp(reply->str, "ERR Protocol error", 18) == 0,
                                 "redis: %.200s", reply->str);
    else
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_OK, "%s %.60s", load->parcel.name,
                              reply->str ? reply->str : "");
}

/* Nothing that we ask for is answered by a list, and one may claim any length. */
static void *make_no_array(const redisReadTask *task, array_length length)
{
    (void)task, (void)length;
    return NULL;
}

/* NULL in *reply: it is not all there yet. */
static int next_reply(struct redis *r, redisReply **reply, outlog_err *err)
{
    void *got = NULL;
    if (redisReaderGetReply(r->reader, &got) != REDIS_OK)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "redis: %.100s", r->reader->errstr);
    if (!got && r->reader->len > MOST_REPLY)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "redis: a reply of more than %d bytes", MOST_REPLY);
    *reply = got;
    return 0;
}

static int redis_listen(void *self, outlog_err *err)
{
    struct redis *r = self;
    redisReply *reply;
    char data[READ_BYTES];
    ssize_t got;

    while ((got = ol_tls_stream_read(&r->wire, data, sizeof data, 0, err)) > 0) {
        ol_broker_thread_answered(&r->courier);
        redisReaderFeed(r->reader, data, (size_t)got);
        do {
            if (next_reply(r, &reply, err) < 0)
                return -1;
            if (reply && !r->first) {
                ol_fail(err, OUTLOG_UNAVAILABLE, "redis: %.100s",
                        reply->str ? reply->str : "a reply to nothing");
                freeReplyObject(reply);
                return -1;
            }
            if (reply)
                end_one(r, reply);
            freeReplyObject(reply);
        } while (reply);
    }
    return got < 0 ? -1 : 0;
}

/* A server that refuses says why and hangs up: that may lie there when writing fails. */
static int redis_flush(void *self, outlog_err *err)
{
    outlog_err ignored;
    if (write_out(self, err) == 0)
        return 0;
    redis_listen(self, &ignored);
    return -1;
}

/* --- the connection
 * ------------------------------------------------------------------------------------- */

/* One command and its reply, before any message is on its way. */
static int ask(struct redis *r, const struct command *c, int timeout_ms, outlog_err *err)
{
    int64_t until = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    redisReply *reply = NULL;
    char data[4096];
    ssize_t got = 0;

    if (append(r, c) < 0)
        return ol_no_memory(err);
    if (write_out(r, err) < 0)
        return -1;
    while (!reply) {
        int64_t left_ms = (until - ol_clock_boot_us()) / 1000; // of all of it, byte by byte
        got = left_ms > 0 ? ol_tls_stream_read(&r->wire, data, sizeof data, (int)left_ms, err) : 0;
        if (got == 0)
            ol_fail(err, OUTLOG_UNAVAILABLE, "redis: no answer in %d ms", timeout_ms);
        if (got <= 0)
            return -1;
        redisReaderFeed(r->reader, data, (size_t)got);
        if (next_reply(r, &reply, err) < 0)
            return -1;
    }
    int result = reply->type == REDIS_REPLY_ERROR
                     ? ol_fail(err, OUTLOG_UNAVAILABLE, "redis: %.200s", reply->str)
                     : 0;
    freeReplyObject(reply);
    return result;
}

static int log_in(struct redis *r, const struct ol_settings *settings, int timeout_ms,
                  outlog_err *err)
{
    struct command auth = {.count = 0}, choose = {.count = 0}, ping = {.count = 0};
    const char *number = settings->addresses[0].path;

    if (settings->password) {
        add(&auth, "AUTH");
        if (settings->user && *settings->user)
            add(&auth, settings->user);
        add(&auth, settings->password);
        if (ask(r, &auth, timeout_ms, err) < 0)
            return -1;
    }
    if (number && *number) {
        add(&choose, "SELECT");
        add(&choose, number);
        return ask(r, &choose, timeout_ms, err);
    }
    add(&ping, "PING"); // a login that is missing shows here, before a message is tried
    return ask(r, &ping, timeout_ms, err);
}

static int redis_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct redis *r = self;
    const struct ol_settings *settings = r->courier.freight.settings;

    ol_buf_reset(&r->out);
    if (!(r->reader = redisReaderCreate()))
        return ol_no_memory(err);
    r->makers = *r->reader->fn;
    r->makers.createArray = make_no_array;
    r->reader->fn = &r->makers;
    const struct ol_tls_files files = {settings->ca_file, settings->cert_file, settings->key_file};
    if (ol_tls_stream_open(&r->wire, &settings->addresses[0], &files, timeout_ms, err) < 0)
        return -1;
    return log_in(r, settings, timeout_ms, err);
}

static void redis_disconnect(void *self, const char *why)
{
    struct redis *r = self;
    ol_tls_stream_close(&r->wire);
    if (r->reader)
        redisReaderFree(r->reader);
    r->reader = NULL;
    while (r->first) {
        struct ol_broker_attempt *load = r->first;
        r->first = load->next;
        ol_broker_attempt_end(load, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s", why);
    }
    r->end = &r->first;
}

static int redis_fd(void *self)
{
    struct redis *r = self;
    return r->wire.fd;
}

static const struct ol_broker_driver trade = {
    .connect = redis_connect,
    .send = redis_send,
    .flush = redis_flush,
    .listen = redis_listen,
    .fd = redis_fd,
    .disconnect = redis_disconnect,
};

/* --- the publisher
 * ---------------------------------------------------------------------------------------- */

static int redis_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    struct ol_broker_naming form = {.name = own->settings->stream, .forbidden = ""};
    struct redis *r = calloc(1, sizeof *r);
    if (!r)
        return ol_no_memory(err);
    r->wire.fd = -1;
    r->end = &r->first;
    if (ol_broker_thread_open(&r->courier, host, &form, &trade, r, err) < 0) {
        free(r);
        return -1;
    }
    *instance = r;
    return 0;
}

static void redis_close(void *instance)
{
    struct redis *r = instance;
    ol_broker_thread_close(&r->courier);
    ol_buf_clear(&r->out);
    free(r);
}

const struct outlog_publisher ol_publisher_redis = {
    .name = "redis",
    .batch_max = 1024, // one write, one read
    .open = redis_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = redis_close,
};
