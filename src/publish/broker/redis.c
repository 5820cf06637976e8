/* redis.c: a message as an entry of a Redis stream (D4).
 *
 * Success is the server's reply to XADD, the id of the entry. How durable that is depends on the
 * server: with `appendfsync always` the entry is on disk, with `everysec` a crash of the machine
 * can lose the last second.
 *
 * Commands are pipelined: all waiting ones leave in one write, and replies arrive in the same
 * order. hiredis writes and parses the protocol; the connection is ours, because hiredis before 1.0
 * has no TLS. With `dedupe` a script adds the entry only if the event_id was not added within that
 * time. */
#include "publish/broker/broker_thread.h"

struct redis_settings {
    struct ol_broker_settings broker; /* first */
    int64_t max_len;                  /* keep about this many entries; 0: all */
    int64_t dedupe_us;                /* a repeat within this time is not added; 0: off */
};

#ifdef OL_WITH_REDIS

#include "base/clock.h"
#include "net/tls_stream.h"

#include <hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    REDIS_FIELDS_MAX = 2 * (8 + 64),
    REDIS_READ_BYTES = 64 * 1024,
    REDIS_REPLY_BYTES_MAX = 1024 * 1024
};

#if HIREDIS_MAJOR >= 1
#define ARRAY_LENGTH size_t
#else
#define ARRAY_LENGTH int
#endif

/* KEYS: the stream, the key that remembers the event_id. ARGV: milliseconds, max_len (0: none),
 * then the fields. */
static const char dedupe_script[] =
    "local id = redis.call('GET', KEYS[2])\n"
    "if id then return id end\n"
    "local add = {KEYS[1]}\n"
    "if ARGV[2] ~= '0' then add = {KEYS[1], 'MAXLEN', '~', ARGV[2]} end\n"
    "add[#add + 1] = '*'\n"
    "for i = 3, #ARGV do add[#add + 1] = ARGV[i] end\n"
    "id = redis.call('XADD', unpack(add))\n"
    "redis.call('SET', KEYS[2], id, 'PX', ARGV[1])\n"
    "return id";

struct redis {
    struct ol_broker_thread thread; /* first */
    struct ol_tls_stream stream;
    redisReader *reader;
    redisReplyObjectFunctions makers; /* of replies, for the reader */
    struct ol_buf out;
    struct ol_broker_attempt *first, **end; /* sent, in the order of their replies */
};

/* --- commands --------------------------------------------------------------------------------- */

struct redis_command {
    const char *argv[REDIS_FIELDS_MAX + 16];
    size_t bytes[REDIS_FIELDS_MAX + 16];
    int count;
};

static void add_bytes(struct redis_command *c, const char *text, size_t bytes)
{
    c->argv[c->count] = text;
    c->bytes[c->count++] = bytes;
}

static void add_text(struct redis_command *c, const char *text)
{
    add_bytes(c, text, strlen(text));
}

static int append_command(struct redis *r, const struct redis_command *c)
{
    char *text = NULL;
    int bytes = redisFormatCommandArgv(&text, c->count, (const char **)c->argv, c->bytes);
    if (bytes > 0)
        ol_buf_add(&r->out, text, (size_t)bytes);
    redisFreeCommand(text);
    return bytes > 0 && !r->out.failed ? 0 : -1;
}

/* The entry's fields: payload, content type, correlation id, then the headers. */
static void add_fields(struct redis_command *c, const struct ol_broker_message *message)
{
    add_text(c, "payload");
    add_bytes(c, message->body, message->body_bytes);
    add_text(c, "content-type");
    add_text(c, message->content_type);
    if (message->correlation_id) {
        add_text(c, "correlation-id");
        add_text(c, message->correlation_id);
    }
    for (size_t i = 0; i < message->header_count && c->count + 2 < REDIS_FIELDS_MAX; i++) {
        add_text(c, message->headers[i].name);
        add_text(c, message->headers[i].value);
    }
}

static int redis_send(void *self, struct ol_broker_attempt *attempt, outlog_err *err)
{
    struct redis *r = self;
    const struct redis_settings *settings = r->thread.inflight.settings->own;
    struct redis_command c = {.count = 0};
    char max_len[24], dedupe_ms[24], seen_key[160];

    snprintf(max_len, sizeof max_len, "%lld", (long long)settings->max_len);
    if (settings->dedupe_us) {
        snprintf(dedupe_ms, sizeof dedupe_ms, "%lld", (long long)(settings->dedupe_us / 1000));
        // the hash tag puts it into the stream's slot of a cluster
        snprintf(seen_key, sizeof seen_key, "outlog:{%.80s}:%.40s", attempt->message.name,
                 attempt->message.id);
        add_text(&c, "EVAL");
        add_text(&c, dedupe_script);
        add_text(&c, "2");
        add_text(&c, attempt->message.name);
        add_text(&c, seen_key);
        add_text(&c, dedupe_ms);
        add_text(&c, max_len);
    } else {
        add_text(&c, "XADD");
        add_text(&c, attempt->message.name);
        if (settings->max_len) {
            add_text(&c, "MAXLEN");
            add_text(&c, "~");
            add_text(&c, max_len);
        }
        add_text(&c, "*");
    }
    add_fields(&c, &attempt->message);
    *r->end = attempt;
    r->end = &attempt->next;
    return append_command(r, &c) == 0 ? 0 : ol_no_memory(err);
}

static int write_commands(struct redis *r, outlog_err *err)
{
    int result = ol_tls_stream_write(&r->stream, r->out.data ? r->out.data : "", r->out.bytes, err);
    ol_buf_reset(&r->out);
    if (r->out.capacity > 4 << 20)
        ol_buf_clear(&r->out); // do not keep the memory of one large burst
    return result;
}

/* --- replies ---------------------------------------------------------------------------------- */

static void end_first(struct redis *r, const redisReply *reply)
{
    struct ol_broker_attempt *attempt = r->first;
    r->first = attempt->next;
    if (!r->first)
        r->end = &r->first;
    if (reply->type == REDIS_REPLY_ERROR)
        // The operator can correct a full server or a key of another type. Too large stays too
        // large.
        ol_broker_attempt_refuse(attempt, strncmp(reply->str, "ERR Protocol error", 18) == 0,
                                 "redis: %.200s", reply->str);
    else
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_OK, "%s %.60s", attempt->message.name,
                              reply->str ? reply->str : "");
}

/* None of our commands is answered by an array, and an array may claim any length. */
static void *make_no_array(const redisReadTask *task, ARRAY_LENGTH length)
{
    (void)task, (void)length;
    return NULL;
}

/* *reply is NULL until all of it has arrived. */
static int next_reply(struct redis *r, redisReply **reply, outlog_err *err)
{
    void *got = NULL;
    if (redisReaderGetReply(r->reader, &got) != REDIS_OK)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "redis: %.100s", r->reader->errstr);
    if (!got && r->reader->len > REDIS_REPLY_BYTES_MAX)
        return ol_fail(err, OUTLOG_UNAVAILABLE, "redis: a reply of more than %d bytes",
                       REDIS_REPLY_BYTES_MAX);
    *reply = got;
    return 0;
}

static int redis_read_replies(void *self, outlog_err *err)
{
    struct redis *r = self;
    redisReply *reply;
    char data[REDIS_READ_BYTES];
    ssize_t got;

    while ((got = ol_tls_stream_read(&r->stream, data, sizeof data, 0, err)) > 0) {
        ol_broker_thread_replied(&r->thread);
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
                end_first(r, reply);
            freeReplyObject(reply);
        } while (reply);
    }
    return got < 0 ? -1 : 0;
}

/* A server that refuses sends the reason and closes: read it when writing fails. */
static int redis_flush(void *self, outlog_err *err)
{
    outlog_err ignored;
    if (write_commands(self, err) == 0)
        return 0;
    redis_read_replies(self, &ignored);
    return -1;
}

/* --- the connection --------------------------------------------------------------------------- */

/* Send one command and wait for its reply, before any message is in flight. */
static int run_command(struct redis *r, const struct redis_command *c, int timeout_ms,
                       outlog_err *err)
{
    int64_t until = ol_clock_boot_us() + timeout_ms * INT64_C(1000);
    redisReply *reply = NULL;
    char data[4096];
    ssize_t got = 0;

    if (append_command(r, c) < 0)
        return ol_no_memory(err);
    if (write_commands(r, err) < 0)
        return -1;
    while (!reply) {
        int64_t left_ms = (until - ol_clock_boot_us()) / 1000; // for the whole reply
        got = left_ms > 0 ? ol_tls_stream_read(&r->stream, data, sizeof data, (int)left_ms, err)
                          : 0;
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

static int log_in(struct redis *r, const struct ol_broker_settings *settings, int timeout_ms,
                  outlog_err *err)
{
    struct redis_command auth = {.count = 0}, choose = {.count = 0}, ping = {.count = 0};
    const char *number = settings->addresses[0].path;

    if (settings->password) {
        add_text(&auth, "AUTH");
        if (settings->user && *settings->user)
            add_text(&auth, settings->user);
        add_text(&auth, settings->password);
        if (run_command(r, &auth, timeout_ms, err) < 0)
            return -1;
    }
    if (number && *number) {
        add_text(&choose, "SELECT");
        add_text(&choose, number);
        return run_command(r, &choose, timeout_ms, err);
    }
    add_text(&ping, "PING"); // fails when a login is missing, before a message is tried
    return run_command(r, &ping, timeout_ms, err);
}

static int redis_connect(void *self, int timeout_ms, outlog_err *err)
{
    struct redis *r = self;
    const struct ol_broker_settings *settings = r->thread.inflight.settings->own;

    ol_buf_reset(&r->out);
    if (!(r->reader = redisReaderCreate()))
        return ol_no_memory(err);
    r->makers = *r->reader->fn;
    r->makers.createArray = make_no_array;
    r->reader->fn = &r->makers;
    const struct ol_tls_files files = {settings->ca_file, settings->cert_file, settings->key_file};
    if (ol_tls_stream_open(&r->stream, &settings->addresses[0], &files, timeout_ms, err) < 0)
        return -1;
    return log_in(r, settings, timeout_ms, err);
}

static void redis_disconnect(void *self, const char *why)
{
    struct redis *r = self;
    ol_tls_stream_close(&r->stream);
    if (r->reader)
        redisReaderFree(r->reader);
    r->reader = NULL;
    while (r->first) {
        struct ol_broker_attempt *attempt = r->first;
        r->first = attempt->next;
        ol_broker_attempt_end(attempt, OUTLOG_PUBLISH_UNKNOWN, "sent, but not acknowledged: %s",
                              why);
    }
    r->end = &r->first;
}

static int redis_fd(void *self)
{
    struct redis *r = self;
    return r->stream.fd;
}

static const struct ol_broker_driver driver = {
    .connect = redis_connect,
    .send = redis_send,
    .flush = redis_flush,
    .read_replies = redis_read_replies,
    .fd = redis_fd,
    .disconnect = redis_disconnect,
};

/* --- the publisher ---------------------------------------------------------------------------- */

static int redis_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    static const struct ol_broker_naming naming = {.forbidden = ""};
    struct redis *r = calloc(1, sizeof *r);
    if (!r)
        return ol_no_memory(err);
    r->stream.fd = -1;
    r->end = &r->first;
    if (ol_broker_thread_open(&r->thread, host, &naming, &driver, r, err) < 0) {
        free(r);
        return -1;
    }
    *instance = r;
    return 0;
}

static void redis_close(void *instance)
{
    struct redis *r = instance;
    ol_broker_thread_close(&r->thread);
    ol_buf_clear(&r->out);
    free(r);
}

static const struct outlog_publisher publisher = {
    .name = "redis",
    .batch_max = 1024, // one write, one read
    .open = redis_open,
    .submit = ol_broker_thread_submit,
    .drive = ol_broker_thread_drive,
    .fd = ol_broker_thread_fd,
    .abandon = ol_broker_thread_abandon,
    .close = redis_close,
};

#define REDIS_PUBLISHER &publisher
#else
#define REDIS_PUBLISHER NULL
#endif

/* --- settings --------------------------------------------------------------------------------- */

static const struct ol_address_scheme schemes[] = {
    {"redis", 6379, false},
    {"rediss", 6379, true},
    {NULL, 0, false},
};

static int check_redis(struct ol_setting_reader *r)
{
    static const struct ol_broker_rules rules = {.schemes = schemes};
    return ol_broker_settings_check(r, &rules);
}

#define AT(member) offsetof(struct redis_settings, member)

static const struct ol_setting_key redis_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(broker.url), .is_needed = true},
    {.name = "stream", .read = ol_setting_types_name, .offset = AT(broker.name), .is_needed = true},
    {.name = "max_len",
     .read = ol_setting_types_bytes,
     .offset = AT(max_len),
     .min = 1,
     .max = INT64_C(1) << 40},
    {.name = "dedupe",
     .read = ol_setting_types_duration,
     .offset = AT(dedupe_us),
     .min = 1000,
     .max = INT64_C(366) * 86400 * 1000000},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_redis = {
    .name = "redis",
    .publisher = REDIS_PUBLISHER,
    .timeout_s = 10,
    .concurrency = 1024,
    .own_bytes = sizeof(struct redis_settings),
    .keys = {redis_keys, ol_broker_settings_keys},
    .check = check_redis,
};
