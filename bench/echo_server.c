/* echo_server.c: a minimal WebSocket server with libuv and wslay, to compare outlog with.
 *
 *     bench_echo_server [URL]
 *
 * Prints {"port":N}. Every path is a socket; a text frame is sent back as it is. With the URL of a
 * store each frame is first inserted into the bare table there (scripts/bench), which has the
 * columns and indexes of events and nothing else; all waiting frames share a statement or a
 * transaction. A frame that begins with `fan N` is sent to every socket N times instead. The server
 * ends with its standard input. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "base/uuid.h"
#include "bench.h"

#include <libpq-fe.h>
#include <openssl/evp.h>
#include <openssl/sha.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include <wslay/wslay.h>

enum { CHUNK = 64 * 1024, OUT = 64 * 1024 };

struct client {
    uv_tcp_t tcp;
    struct client *next, **link;
    wslay_event_context_ptr frames;
    const char *in;
    size_t in_bytes, out_bytes, head_bytes;
    char head[4096], out[OUT];
    bool is_open;
    int number, received;
    int waiting; /* its frames that are being stored */
    bool is_gone;
};

/* A frame that is being stored. */
struct stored {
    struct stored *next;
    struct client *client;
    int seq;
    size_t bytes;
    char text[];
};

struct outgoing {
    uv_write_t write;
    char data[];
};

static uv_loop_t *loop;
static struct client *clients;
static char chunk[CHUNK];

static void on_written(uv_write_t *write, int status)
{
    (void)status;
    free(write->data);
}

static void put_bytes(struct client *client, const char *data, size_t bytes)
{
    uv_buf_t now = uv_buf_init((char *)data, (unsigned)bytes);
    int sent = uv_try_write((uv_stream_t *)&client->tcp, &now, 1);
    if (sent == (int)bytes || (sent < 0 && sent != UV_EAGAIN))
        return;
    size_t done = sent > 0 ? (size_t)sent : 0;
    struct outgoing *out = malloc(sizeof *out + bytes - done);
    if (!out)
        bench_die("out of memory");
    memcpy(out->data, data + done, bytes - done);
    out->write.data = out;
    uv_buf_t rest = uv_buf_init(out->data, (unsigned)(bytes - done));
    uv_write(&out->write, (uv_stream_t *)&client->tcp, &rest, 1, on_written);
}

static void flush_client(struct client *client)
{
    wslay_event_send(client->frames);
    if (client->out_bytes)
        put_bytes(client, client->out, client->out_bytes);
    client->out_bytes = 0;
}

static ssize_t on_recv(wslay_event_context_ptr frames, uint8_t *into, size_t size, int flags,
                       void *user)
{
    struct client *client = user;
    (void)flags;
    if (!client->in_bytes) {
        wslay_event_set_error(frames, WSLAY_ERR_WOULDBLOCK);
        return -1;
    }
    size_t bytes = client->in_bytes < size ? client->in_bytes : size;
    memcpy(into, client->in, bytes);
    client->in += bytes;
    client->in_bytes -= bytes;
    return (ssize_t)bytes;
}

static ssize_t on_send(wslay_event_context_ptr frames, const uint8_t *data, size_t bytes, int flags,
                       void *user)
{
    struct client *client = user;
    (void)frames;
    (void)flags;
    if (client->out_bytes + bytes > OUT) {
        put_bytes(client, client->out, client->out_bytes);
        client->out_bytes = 0;
    }
    memcpy(client->out + client->out_bytes, data, bytes);
    client->out_bytes += bytes;
    return (ssize_t)bytes;
}

static void fan_out(const struct wslay_event_msg *message, int times)
{
    for (int i = 0; i < times; i++)
        for (struct client *one = clients; one; one = one->next)
            if (one->is_open) {
                wslay_event_queue_msg(one->frames, message);
                flush_client(one);
            }
}

/* --- the store --- */

static struct {
    PGconn *pg;
    sqlite3 *db;
    sqlite3_stmt *insert;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    struct stored *waiting, **last; /* for the thread */
    struct stored *done, **done_last;
    uv_async_t woken;
} store = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .news = PTHREAD_COND_INITIALIZER,
           .last = &store.waiting,
           .done_last = &store.done};

static void check_result(PGresult *result)
{
    ExecStatusType status = PQresultStatus(result);
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK)
        bench_die("%s", PQerrorMessage(store.pg));
    PQclear(result);
}

static void put_element(struct ol_buf *array, const char *text, size_t bytes)
{
    ol_buf_text(array, array->bytes ? ",\"" : "{\"");
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '"' || text[i] == '\\')
            ol_buf_char(array, '\\');
        ol_buf_char(array, text[i]);
    }
    ol_buf_char(array, '"');
}

static void insert_postgres(const struct stored *all)
{
    enum { SEQS, IDS, NAMES, TEXTS, ARRAYS };
    struct ol_buf arrays[ARRAYS] = {0};
    const char *values[ARRAYS];
    for (const struct stored *one = all; one; one = one->next) {
        char id[OL_UUID_TEXT], number[24];
        ol_uuid_make(id);
        put_element(&arrays[SEQS], number, (size_t)snprintf(number, sizeof number, "%d", one->seq));
        put_element(&arrays[IDS], id, strlen(id));
        put_element(&arrays[NAMES], number,
                    (size_t)snprintf(number, sizeof number, "u-%d:helper:t", one->client->number));
        put_element(&arrays[TEXTS], one->text, one->bytes);
    }
    for (int i = 0; i < ARRAYS; i++) {
        ol_buf_char(&arrays[i], '}');
        values[i] = arrays[i].data;
    }
    check_result(PQexecPrepared(store.pg, "put", ARRAYS, values, NULL, NULL, 0));
    for (int i = 0; i < ARRAYS; i++)
        ol_buf_clear(&arrays[i]);
}

static void insert_sqlite(const struct stored *all)
{
    char id[OL_UUID_TEXT], now[OL_TIMESTAMP_TEXT], name[24];
    sqlite3_exec(store.db, "begin immediate", NULL, NULL, NULL);
    ol_timestamp_format(ol_clock_wall_us(), now);
    for (const struct stored *one = all; one; one = one->next) {
        ol_uuid_make(id);
        snprintf(name, sizeof name, "u-%d:helper:t", one->client->number);
        sqlite3_bind_text(store.insert, 1, id, -1, SQLITE_STATIC);
        sqlite3_bind_text(store.insert, 2, now, -1, SQLITE_STATIC);
        sqlite3_bind_text(store.insert, 3, name, -1, SQLITE_STATIC);
        sqlite3_bind_int(store.insert, 4, one->seq);
        sqlite3_bind_text(store.insert, 5, one->text, (int)one->bytes, SQLITE_STATIC);
        if (sqlite3_step(store.insert) != SQLITE_DONE)
            bench_die("%s", sqlite3_errmsg(store.db));
        sqlite3_reset(store.insert);
    }
    if (sqlite3_exec(store.db, "commit", NULL, NULL, NULL) != SQLITE_OK)
        bench_die("%s", sqlite3_errmsg(store.db));
}

static void *store_frames(void *unused)
{
    for (;;) {
        pthread_mutex_lock(&store.lock);
        while (!store.waiting)
            pthread_cond_wait(&store.news, &store.lock);
        struct stored *all = store.waiting, **end = store.last;
        store.waiting = NULL;
        store.last = &store.waiting;
        pthread_mutex_unlock(&store.lock);
        if (store.pg)
            insert_postgres(all);
        else
            insert_sqlite(all);
        pthread_mutex_lock(&store.lock);
        *store.done_last = all;
        store.done_last = end;
        pthread_mutex_unlock(&store.lock);
        uv_async_send(&store.woken);
    }
    return unused;
}

static void close_client(struct client *client);

static void on_stored(uv_async_t *async)
{
    (void)async;
    pthread_mutex_lock(&store.lock);
    struct stored *all = store.done;
    store.done = NULL;
    store.done_last = &store.done;
    pthread_mutex_unlock(&store.lock);
    while (all) {
        struct stored *one = all;
        const struct wslay_event_msg message = {WSLAY_TEXT_FRAME, (uint8_t *)one->text, one->bytes};
        struct client *client = one->client;
        all = one->next;
        client->waiting--;
        if (client->is_open) {
            wslay_event_queue_msg(client->frames, &message);
            flush_client(client);
        } else if (client->is_gone) {
            close_client(client);
        }
        free(one);
    }
}

static void queue_frame(struct client *client, const uint8_t *text, size_t bytes)
{
    struct stored *one = malloc(sizeof *one + bytes);
    if (!one)
        bench_die("out of memory");
    *one = (struct stored){.client = client, .seq = ++client->received, .bytes = bytes};
    memcpy(one->text, text, bytes);
    client->waiting++;
    pthread_mutex_lock(&store.lock);
    bool was_empty = !store.waiting;
    *store.last = one;
    store.last = &one->next;
    if (was_empty)
        pthread_cond_signal(&store.news);
    pthread_mutex_unlock(&store.lock);
}

#define COLUMNS                                                                               \
    "(id, correlation_id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, " \
    "event_type, actor_type, actor_id, request_id, payload) "

static void open_store(const char *url)
{
    static const char postgres[] =
        "insert into bench.bare " COLUMNS // lint: sql
        "select i, i::text, clock_timestamp(), 'default', 'session', n, s, 'user_message', 'user', n, "
        "i::text, t "
        "from unnest($1::bigint[], $2::uuid[], $3::text[], $4::json[]) as x (s, i, n, t)";
    static const char sqlite[] =
        "insert into bench_bare " COLUMNS // lint: sql
        "values (?1, ?1, ?2, 'default', 'session', ?3, ?4, 'user_message', 'user', ?3, ?1, ?5)";
    if (strncmp(url, "sqlite:", 7) == 0) {
        if (sqlite3_open(url + 7, &store.db) != SQLITE_OK ||
            sqlite3_exec(store.db, "pragma journal_mode = wal; pragma synchronous = full", NULL,
                         NULL, NULL) != SQLITE_OK ||
            sqlite3_prepare_v2(store.db, sqlite, -1, &store.insert, NULL) != SQLITE_OK)
            bench_die("%s", sqlite3_errmsg(store.db));
    } else {
        store.pg = PQconnectdb(url);
        check_result(PQprepare(store.pg, "put", postgres, 4, NULL));
    }
    uv_async_init(loop, &store.woken, on_stored);
    pthread_create(&store.thread, NULL, store_frames, NULL);
}

/* --- frames --- */

static void on_message(wslay_event_context_ptr frames,
                       const struct wslay_event_on_msg_recv_arg *got, void *user)
{
    const struct wslay_event_msg message = {got->opcode, got->msg, got->msg_length};
    if (got->opcode != WSLAY_TEXT_FRAME)
        return;
    if (got->msg_length > 4 && got->msg_length < 20 && memcmp(got->msg, "fan ", 4) == 0) {
        char number[20] = "";
        memcpy(number, got->msg + 4, got->msg_length - 4);
        fan_out(&message, atoi(number));
    } else if (store.pg || store.db) {
        queue_frame(user, got->msg, got->msg_length);
    } else {
        wslay_event_queue_msg(frames, &message);
    }
}

static void answer_upgrade(struct client *client)
{
    static const struct wslay_event_callbacks callbacks = {.recv_callback = on_recv,
                                                           .send_callback = on_send,
                                                           .on_msg_recv_callback = on_message};
    unsigned char digest[SHA_DIGEST_LENGTH];
    char text[128], accept[32], head[256];
    const char *key = strcasestr(client->head, "sec-websocket-key: ");
    if (!key)
        bench_die("this is no WebSocket handshake");
    snprintf(text, sizeof text, "%.24s258EAFA5-E914-47DA-95CA-C5AB0DC85B11", key + 19);
    SHA1((const unsigned char *)text, strlen(text), digest);
    EVP_EncodeBlock((unsigned char *)accept, digest, sizeof digest);
    int bytes = snprintf(head, sizeof head,
                         "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n"
                         "connection: Upgrade\r\nsec-websocket-accept: %s\r\n\r\n",
                         accept);
    wslay_event_context_server_init(&client->frames, &callbacks, client);
    client->is_open = true;
    put_bytes(client, head, (size_t)bytes);
}

static void on_closed(uv_handle_t *handle)
{
    struct client *client = handle->data;
    client->is_gone = true;
    close_client(client);
}

static void close_client(struct client *client)
{
    if (client->waiting)
        return;
    if (client->frames)
        wslay_event_context_free(client->frames);
    free(client);
}

static void on_alloc(uv_handle_t *handle, size_t wanted, uv_buf_t *out)
{
    (void)handle;
    (void)wanted;
    *out = uv_buf_init(chunk, sizeof chunk);
}

static void on_read(uv_stream_t *stream, ssize_t got, const uv_buf_t *data)
{
    struct client *client = stream->data;
    if (got < 0) {
        *client->link = client->next;
        if (client->next)
            client->next->link = client->link;
        client->is_open = false;
        uv_close((uv_handle_t *)stream, on_closed);
    } else if (client->is_open) {
        client->in = data->base;
        client->in_bytes = (size_t)got;
        wslay_event_recv(client->frames);
        flush_client(client);
    } else {
        if (client->head_bytes + (size_t)got >= sizeof client->head)
            bench_die("a handshake that long");
        memcpy(client->head + client->head_bytes, data->base, (size_t)got);
        client->head_bytes += (size_t)got;
        if (memmem(client->head, client->head_bytes, "\r\n\r\n", 4))
            answer_upgrade(client);
    }
}

static void on_connection(uv_stream_t *listener, int status)
{
    static int count;
    struct client *client = status == 0 ? calloc(1, sizeof *client) : NULL;
    if (!client)
        bench_die("cannot accept");
    client->number = ++count;
    uv_tcp_init(loop, &client->tcp);
    client->tcp.data = client;
    uv_accept(listener, (uv_stream_t *)&client->tcp);
    uv_tcp_nodelay(&client->tcp, 1);
    client->next = clients;
    client->link = &clients;
    if (clients)
        clients->link = &client->next;
    clients = client;
    uv_read_start((uv_stream_t *)&client->tcp, on_alloc, on_read);
}

static void on_input(uv_stream_t *input, ssize_t got, const uv_buf_t *data)
{
    (void)data;
    (void)input;
    if (got < 0)
        exit(0);
}

int main(int argc, char **argv)
{
    struct sockaddr_in address;
    int bytes = sizeof address;
    uv_tcp_t listener;
    uv_pipe_t input;

    loop = uv_default_loop();
    if (argc > 1)
        open_store(argv[1]);
    uv_ip4_addr("127.0.0.1", 0, &address);
    uv_tcp_init(loop, &listener);
    uv_tcp_bind(&listener, (const struct sockaddr *)&address, 0);
    if (uv_listen((uv_stream_t *)&listener, 1024, on_connection) < 0)
        bench_die("cannot listen");
    uv_tcp_getsockname(&listener, (struct sockaddr *)&address, &bytes);
    printf("{\"port\":%d}\n", ntohs(address.sin_port));
    fflush(stdout);
    uv_pipe_init(loop, &input, 0);
    uv_pipe_open(&input, 0);
    uv_read_start((uv_stream_t *)&input, on_alloc, on_input);
    return uv_run(loop, UV_RUN_DEFAULT);
}
