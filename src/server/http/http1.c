/* http1.c: requests out of bytes, answers into bytes. */
#include "server/http/http1.h"

#include "base/url.h"
#include "base/uuid.h"

#include <ctype.h>
#include <llhttp.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_HEADERS = 100,
    MOST_EARLY = 128 * 1024,
    MOST_UNREAD = 256 * 1024,
    SMALL_BODY = 64 * 1024
};

enum state { READING, BUSY, STREAMING };

/* Where we are in the head's bytes: llhttp takes folded lines, we do not. */
enum head { HEAD_BEFORE, HEAD_IN_LINE, HEAD_CR, HEAD_LINE_START, HEAD_LAST_CR, HEAD_DONE };

struct ol_http1 {
    struct ol_client_conn *peer;
    struct ol_http1_handler *user;
    llhttp_t parser;
    enum state state;
    enum head head;
    size_t head_bytes;
    struct ol_request *request; /* being read or answered */
    struct ol_buf url, field, value;
    struct ol_pair headers[MOST_HEADERS];
    size_t header_count, host_count;
    struct ol_buf early; /* came before it could be read */
    bool is_value, is_complete, keeps_alive, is_last, is_running, is_gone;
    int refused; /* a status, once the request cannot be taken */
    const char *refusal;
};

static void run(struct ol_http1 *http);

/* --- reading --- */

static int refuse(struct ol_http1 *http, int status, const char *why)
{
    if (!http->refused) {
        http->refused = status;
        http->refusal = why;
    }
    return HPE_USER;
}

static int on_url(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_http1 *http = parser->data;
    ol_buf_add(&http->url, at, bytes);
    return http->url.bytes > 8192 ? refuse(http, 414, "the address is longer than 8192 bytes") : 0;
}

/* A name is a token; llhttp also takes one with a space inside, which others may read as two. */
static bool is_token(const struct ol_buf *name)
{
    static const char marks[] = "!#$%&'*+-.^_`|~";
    for (size_t i = 0; i < name->bytes; i++) {
        char c = name->data[i];
        if (!isalnum((unsigned char)c) && (!c || !strchr(marks, c)))
            return false;
    }
    return name->bytes > 0;
}

static int keep_header(struct ol_http1 *http)
{
    struct ol_request *request = http->request;
    if (http->header_count == MOST_HEADERS)
        return refuse(http, 431, "more than 100 headers");
    if (!is_token(&http->field))
        return refuse(http, 400, "the name of a header is not one word");
    for (size_t i = 0; i < http->field.bytes; i++)
        http->field.data[i] = (char)tolower((unsigned char)http->field.data[i]);
    struct ol_pair pair = {ol_arena_copy(&request->arena, http->field.data, http->field.bytes),
                           ol_arena_copy(&request->arena, http->value.bytes ? http->value.data : "",
                                         http->value.bytes)};
    if (!pair.name || !pair.value)
        return refuse(http, 503, "out of memory");
    http->host_count += strcmp(pair.name, "host") == 0;
    http->headers[http->header_count++] = pair;
    ol_buf_reset(&http->field);
    ol_buf_reset(&http->value);
    http->is_value = false;
    return 0;
}

static int on_field(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_http1 *http = parser->data;
    if (http->head == HEAD_DONE && http->request->headers)
        return 0; // a trailer: nobody asks for it
    if (http->is_value && keep_header(http))
        return HPE_USER;
    ol_buf_add(&http->field, at, bytes);
    return 0;
}

static int on_value(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_http1 *http = parser->data;
    if (http->request->headers)
        return 0;
    http->is_value = true;
    ol_buf_add(&http->value, at, bytes);
    return 0;
}

static int on_headers(llhttp_t *parser)
{
    struct ol_http1 *http = parser->data;
    struct ol_request *request = http->request;

    if (http->field.bytes && keep_header(http))
        return -1;
    size_t bytes = http->header_count * sizeof *http->headers;
    request->headers = ol_arena_alloc(&request->arena, bytes + 1);
    if (!request->headers)
        return refuse(http, 503, "out of memory"), -1;
    memcpy(request->headers, http->headers, bytes);
    request->header_count = http->header_count;
    request->method = llhttp_method_name((llhttp_method_t)parser->method);
    if (http->host_count != 1)
        return refuse(http, 400, "a request has one Host header"), -1;
    if (parser->http_major != 1)
        return refuse(http, 505, "HTTP/1.1 is spoken here"), -1;
    if (parser->content_length > http->user->limits.body_bytes)
        return refuse(http, 413, "the body is too large"), -1;
    const char *expect = ol_request_header(request, "expect");
    if (expect && strcasecmp(expect, "100-continue") == 0)
        ol_client_conn_write(http->peer, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    else if (expect)
        return refuse(http, 417, "only Expect: 100-continue is understood"), -1;
    http->peer->deadline = uv_now(http->peer->peers->loop) + (uint64_t)http->user->limits.body_ms;
    return 0;
}

/* Nobody knows yet who sends this: all large bodies together have a bound, and small ones have room
 * beside it, as many as there may be connections. */
static int hold(struct ol_http1 *http, struct ol_request *request)
{
    size_t more = request->body.room - request->body_memory.bytes;
    request->body_memory.total = &http->user->held_bytes;
    request->body_memory.bytes += more;
    size_t all = atomic_fetch_add(request->body_memory.total, more) + more;
    return all > http->user->limits.bodies_bytes && request->body.bytes > SMALL_BODY
               ? refuse(http, 503, "too many large bodies at a time; nothing was stored")
               : 0;
}

static int on_body(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_http1 *http = parser->data;
    struct ol_request *request = http->request;
    if (request->body.bytes + bytes > http->user->limits.body_bytes)
        return refuse(http, 413, "the body is too large");
    ol_buf_add(&request->body, at, bytes);
    if (request->body.failed)
        return refuse(http, 503, "out of memory");
    return hold(http, request);
}

static int on_complete(llhttp_t *parser)
{
    struct ol_http1 *http = parser->data;
    http->is_complete = true;
    http->keeps_alive = llhttp_should_keep_alive(parser) != 0;
    return HPE_PAUSED;
}

static const llhttp_settings_t callbacks = {
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* Follow the head's bytes up to its end: how many they are, whether a line is folded, and whether
 * each ends as it should: llhttp takes a carriage return alone for the end of the head. */
static void scan_head(struct ol_http1 *http, const char *data, size_t bytes)
{
    static const char bare[] = "lines end with CR LF";
    for (size_t i = 0; i < bytes && http->head != HEAD_DONE; i++) {
        char c = data[i];
        if (++http->head_bytes > http->user->limits.head_bytes) {
            refuse(http, 431, "the head is too large");
            return;
        }
        switch (http->head) {
        case HEAD_BEFORE:
            if (c != '\r' && c != '\n')
                http->head = HEAD_IN_LINE;
            break;
        case HEAD_IN_LINE:
            if (c == '\n') {
                refuse(http, 400, bare);
                return;
            }
            if (c == '\r')
                http->head = HEAD_CR;
            break;
        case HEAD_CR:
            if (c != '\n') {
                refuse(http, 400, bare);
                return;
            }
            http->head = HEAD_LINE_START;
            break;
        case HEAD_LINE_START:
            if (c == ' ' || c == '\t') {
                refuse(http, 400, "a header is folded over two lines");
                return;
            }
            if (c == '\n') {
                refuse(http, 400, bare);
                return;
            }
            http->head = c == '\r' ? HEAD_LAST_CR : HEAD_IN_LINE;
            break;
        case HEAD_LAST_CR:
            if (c != '\n') {
                refuse(http, 400, bare);
                return;
            }
            http->head = HEAD_DONE;
            break;
        case HEAD_DONE:
            break;
        }
    }
}

static int begin(struct ol_http1 *http)
{
    llhttp_init(&http->parser, HTTP_REQUEST, &callbacks);
    http->parser.data = http;
    ol_buf_reset(&http->url);
    ol_buf_reset(&http->field);
    ol_buf_reset(&http->value);
    http->header_count = http->host_count = http->head_bytes = 0;
    http->head = HEAD_BEFORE;
    http->is_value = http->is_complete = false;
    http->request = ol_request_new(http->user->server);
    if (!http->request)
        return -1;
    http->request->http = http;
    http->peer->deadline = uv_now(http->peer->peers->loop) + (uint64_t)http->user->limits.head_ms;
    return 0;
}

/* --- the target --- */

static bool read_query(struct ol_request *request, char *query)
{
    size_t count = 1;
    for (const char *c = query; *c; c++)
        count += *c == '&';
    if (!(request->params = ol_arena_array(&request->arena, count, sizeof *request->params)))
        return false;
    char *rest = query, *part;
    while ((part = strsep(&rest, "&"))) {
        if (!*part)
            continue;
        char *value = part;
        const char *name = strsep(&value, "=");
        if (!ol_url_decode(part, true) || (value && !ol_url_decode(value, true)))
            return false;
        request->params[request->param_count++] = (struct ol_pair){name, value ? value : ""};
    }
    return true;
}

/* The path stays encoded: the router splits it first. */
static bool read_target(struct ol_http1 *http)
{
    struct ol_request *request = http->request;
    char *target =
        ol_arena_copy(&request->arena, http->url.bytes ? http->url.data : "", http->url.bytes);
    if (!target || target[0] != '/')
        return false;
    target[strcspn(target, "#")] = '\0';
    char *query = strchr(target, '?');
    if (query)
        *query++ = '\0';
    request->path = target;
    return !query || read_query(request, query);
}

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text < 0x21 || *text > 0x7e)
            return false;
    return true;
}

static void name_request(struct ol_request *request)
{
    const char *given = ol_request_header(request, "x-request-id");
    char made[OL_UUID_TEXT];
    if (given && *given && strlen(given) <= 128 && is_printable(given)) {
        request->request_id = given;
        return;
    }
    ol_uuid_make(made);
    request->request_id = ol_arena_copy(&request->arena, made, OL_UUID_TEXT - 1);
}

/* --- the life of a connection --- */

static void answer_refusal(struct ol_http1 *http)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {{413, "too_large"},
                 {414, "too_large"},
                 {431, "too_large"},
                 {408, "timeout"},
                 {503, "unavailable"}};
    const char *code = "invalid_request";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == http->refused)
            code = codes[i].code;
    http->is_last = true;
    if (!http->request->request_id)
        http->request->request_id = "";
    ol_problem_say(http->request, http->refused, code, "%s", http->refusal);
    http->state = BUSY;
    ol_http1_answer(http->request);
}

static void dispatch(struct ol_http1 *http)
{
    struct ol_request *request = http->request;
    http->peer->deadline = 0;
    name_request(request);
    if (!read_target(http)) {
        refuse(http, 400, "the target is a path of UTF-8 text");
        answer_refusal(http);
        return;
    }
    http->is_last |= !http->keeps_alive;
    http->state = BUSY;
    http->user->request(http->user->server, request);
}

/* Parse one chunk; what is behind the request's end goes back. */
static void parse(struct ol_http1 *http, const char *data, size_t bytes, struct ol_buf *rest)
{
    if (!http->request && begin(http) < 0) {
        ol_client_conn_close(http->peer);
        return;
    }
    scan_head(http, data, bytes);
    if (http->refused) {
        answer_refusal(http);
        return;
    }
    llhttp_errno_t result = llhttp_execute(&http->parser, data, bytes);
    if (http->is_complete) {
        const char *end = llhttp_get_error_pos(&http->parser);
        if (end && end >= data && end <= data + bytes)
            ol_buf_add(rest, end, (size_t)(data + bytes - end));
        dispatch(http);
    } else if (result != HPE_OK) {
        refuse(http, 400, llhttp_get_error_reason(&http->parser));
        answer_refusal(http);
    }
}

/* Who leaves answers lying is not asked what else it wants: they would pile up here. */
static bool is_clogged(const struct ol_http1 *http)
{
    return http->peer->queued > MOST_UNREAD;
}

static void run(struct ol_http1 *http)
{
    if (http->is_running)
        return;
    http->is_running = true;
    while (!http->is_gone && http->state == READING && http->early.bytes && !is_clogged(http)) {
        struct ol_buf chunk = http->early;
        http->early = (struct ol_buf){0};
        parse(http, chunk.data, chunk.bytes, &http->early);
        ol_buf_clear(&chunk);
    }
    http->is_running = false;
    if (http->is_gone)
        free(http);
    else
        ol_client_conn_pause(http->peer, http->early.bytes >= MOST_EARLY);
}

static void on_data(struct ol_client_conn *peer, const char *data, size_t bytes)
{
    struct ol_http1 *http = peer->owner;
    ol_buf_add(&http->early, data, bytes);
    if (http->early.failed)
        ol_client_conn_close(peer);
    else
        run(http);
}

static void on_drained(struct ol_client_conn *peer)
{
    struct ol_http1 *http = peer->owner;
    if (http->state == STREAMING) {
        peer->deadline = 0;
        http->user->drained(http->user->server, http->request);
    } else if (http->state == READING) {
        if (!http->request)
            peer->deadline = uv_now(peer->peers->loop) + (uint64_t)http->user->limits.idle_ms;
        run(http);
    }
}

static void on_expired(struct ol_client_conn *peer)
{
    struct ol_http1 *http = peer->owner;
    if (http->state == READING && http->request && http->head_bytes) {
        refuse(http, 408, "the request did not come in time");
        answer_refusal(http);
    } else {
        ol_client_conn_close(peer);
    }
}

static void on_closed(struct ol_client_conn *peer)
{
    struct ol_http1 *http = peer->owner;
    struct ol_request *request = http->request;

    if (request) {
        request->http = NULL;
        if (http->state == READING)
            ol_request_free(request);
        else
            http->user->gone(http->user->server, request);
    }
    ol_buf_clear(&http->url);
    ol_buf_clear(&http->field);
    ol_buf_clear(&http->value);
    ol_buf_clear(&http->early);
    http->is_gone = true;
    if (!http->is_running)
        free(http);
}

static const struct ol_client_conn_handler peer_user = {on_data, on_drained, on_expired, on_closed};

int ol_http1_accept(struct ol_client_conns *peers, uv_stream_t *listener,
                    struct ol_http1_handler *user)
{
    struct ol_http1 *http = calloc(1, sizeof *http);
    struct ol_client_conn *peer = ol_client_conn_accept(peers, listener, &peer_user);
    if (!peer || !http) {
        if (peer)
            ol_client_conn_drop(peer);
        free(http);
        return -1;
    }
    http->peer = peer;
    http->user = user;
    peer->owner = http;
    peer->deadline = uv_now(peers->loop) + (uint64_t)user->limits.head_ms;
    return 0;
}

/* --- writing --- */

static const char *phrase(int status)
{
    switch (status) {
    case 200:
        return "OK";
    case 201:
        return "Created";
    case 202:
        return "Accepted";
    case 204:
        return "No Content";
    case 304:
        return "Not Modified";
    case 400:
        return "Bad Request";
    case 401:
        return "Unauthorized";
    case 403:
        return "Forbidden";
    case 404:
        return "Not Found";
    case 405:
        return "Method Not Allowed";
    case 408:
        return "Request Timeout";
    case 409:
        return "Conflict";
    case 413:
        return "Content Too Large";
    case 414:
        return "URI Too Long";
    case 415:
        return "Unsupported Media Type";
    case 417:
        return "Expectation Failed";
    case 421:
        return "Misdirected Request";
    case 422:
        return "Unprocessable Content";
    case 429:
        return "Too Many Requests";
    case 431:
        return "Request Header Fields Too Large";
    case 503:
        return "Service Unavailable";
    case 504:
        return "Gateway Timeout";
    case 505:
        return "HTTP Version Not Supported";
    default:
        return status < 400 ? "OK" : "Error";
    }
}

static void put_head(const struct ol_http1 *http, const struct ol_request *request, bool has_length,
                     struct ol_buf *out)
{
    ol_buf_print(out, "HTTP/1.1 %d %s\r\n", request->status, phrase(request->status));
    if (request->content_type)
        ol_buf_print(out, "content-type: %s\r\n", request->content_type);
    if (has_length && request->status != 204 && request->status != 304) // which have no body at all
        ol_buf_print(out, "content-length: %zu\r\n", request->reply.bytes);
    if (request->request_id && *request->request_id)
        ol_buf_print(out, "x-request-id: %s\r\n", request->request_id);
    ol_buf_text(out, "x-content-type-options: nosniff\r\n");
    if (request->extra.bytes)
        ol_buf_add(out, request->extra.data, request->extra.bytes);
    if (!request->extra.bytes || !strstr(request->extra.data, "cache-control: "))
        ol_buf_text(out, "cache-control: no-store\r\n");
    ol_buf_print(out, "connection: %s\r\n\r\n", http->is_last ? "close" : "keep-alive");
}

void ol_http1_answer(struct ol_request *request)
{
    struct ol_http1 *http = request->http;
    struct ol_buf out = {0};

    if (!http) {
        ol_request_free(request);
        return;
    }
    put_head(http, request, true, &out);
    struct ol_buf body = {0};
    if (!(request->method && strcmp(request->method, "HEAD") == 0)) {
        body = request->reply;
        request->reply = (struct ol_buf){0};
    }
    http->request = NULL;
    ol_request_free(request);
    http->refused = 0;
    http->state = READING;
    bool failed = out.failed, is_last = http->is_last;
    struct ol_client_conn *peer = http->peer;
    bool was_running = http->is_running;
    http->is_running = true; // keeps it alive while we write
    if (failed)
        ol_client_conn_close(peer);
    else
        ol_client_conn_answer(peer, &out, &body);
    ol_buf_clear(&out);
    ol_buf_clear(&body);
    if (!http->is_gone) {
        peer->deadline = uv_now(peer->peers->loop) + (uint64_t)(peer->queued
                                                                    ? http->user->limits.write_ms
                                                                    : http->user->limits.idle_ms);
        if (is_last) {
            http->state = BUSY; // reads nothing more
            ol_client_conn_end(peer);
        }
    }
    http->is_running = was_running;
    if (was_running)
        return;
    if (http->is_gone)
        free(http);
    else
        run(http);
}

void ol_http1_stream(struct ol_request *request)
{
    struct ol_http1 *http = request->http;
    struct ol_buf out = {0};
    if (!http)
        return;
    http->state = STREAMING;
    http->is_last = true;
    put_head(http, request, false, &out);
    ol_http1_push(request, out.data, out.bytes);
    ol_buf_clear(&out);
}

void ol_http1_push(struct ol_request *request, const char *data, size_t bytes)
{
    struct ol_http1 *http = request->http;
    if (!http)
        return;
    struct ol_client_conn *peer = http->peer;
    ol_client_conn_write(peer, data, bytes);
    if (request->http && peer->queued && !peer->deadline)
        peer->deadline = uv_now(peer->peers->loop) + (uint64_t)http->user->limits.write_ms;
}

size_t ol_http1_queued(const struct ol_request *request)
{
    const struct ol_client_conn *peer = request->http ? request->http->peer : NULL;
    return !peer ? 0 : peer->is_broken ? 1 : peer->queued; // a broken one never drains
}

void ol_http1_end(struct ol_request *request)
{
    if (request->http)
        ol_client_conn_end(request->http->peer);
}

struct ol_client_conn *ol_http1_release(struct ol_request *request, struct ol_buf *early)
{
    struct ol_http1 *http = request->http;
    struct ol_client_conn *peer = http->peer;
    *early = http->early;
    http->early = (struct ol_buf){0};
    http->request = NULL;
    request->http = NULL;
    peer->owner = http;
    on_closed(peer); // frees what is HTTP's, the connection stays
    peer->owner = NULL;
    return peer;
}

void ol_http1_finish_all(struct ol_client_conns *peers)
{
    for (struct ol_client_conn *peer = peers->first, *next; peer; peer = next) {
        next = peer->next;
        if (peer->user != &peer_user)
            continue;
        struct ol_http1 *http = peer->owner;
        http->is_last = true;
        if (http->state != BUSY)
            ol_client_conn_end(peer);
    }
}
