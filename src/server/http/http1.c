/* http1.c: parses requests with llhttp and writes answers. */
#include "server/http/http1.h"

#include "base/url.h"
#include "base/uuid.h"

#include <ctype.h>
#include <llhttp.h>
#include <stdlib.h>
#include <string.h>

enum {
    REQUEST_HEADERS_MAX = 100,
    URL_BYTES_MAX = 8192,
    INPUT_BYTES_MAX = 128 * 1024,    /* buffered while a request is answered */
    UNREAD_ANSWERS_MAX = 256 * 1024, /* bytes the client has not read */
    SMALL_BODY_BYTES = 64 * 1024,
    STRANGER_BODIES_MAX = 2 /* large ones that an address sends at a time */
};

enum http1_state { HTTP1_READING, HTTP1_ANSWERING, HTTP1_STREAMING };

/* The position in the head: llhttp accepts folded lines, we do not. */
enum head_state { HEAD_BEFORE, HEAD_IN_LINE, HEAD_CR, HEAD_LINE_START, HEAD_LAST_CR, HEAD_DONE };

struct ol_http1 {
    struct ol_client_conn *conn;
    struct ol_http1_handler *handler;
    llhttp_t parser;
    enum http1_state state;
    enum head_state head;
    size_t head_bytes;
    struct ol_request *request; /* read or answered now; NULL between requests */
    struct ol_buf url, field, value;
    struct ol_pair headers[REQUEST_HEADERS_MAX];
    size_t header_count, host_count;
    struct ol_buf input; /* received and not parsed yet */
    bool is_value, is_complete, keeps_alive;
    bool is_large, is_strange; /* its body is large, and its sender not known */
    bool is_last;              /* the connection closes after this answer */
    bool is_running;           /* run_input() is on the stack: on_closed() must not free */
    bool is_gone;              /* the connection is closed */
    int refused;               /* a status, once the request is rejected; 0: it is not */
    const char *refusal;
};

static void run_input(struct ol_http1 *http);

static void set_deadline(struct ol_http1 *http, int ms)
{
    http->conn->deadline = uv_now(http->conn->conns->loop) + (uint64_t)ms;
}

/* --- reading --- */

static int reject_request(struct ol_http1 *http, int status, const char *why)
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
    return http->url.bytes > URL_BYTES_MAX
               ? reject_request(http, 414, "the address is longer than 8192 bytes")
               : 0;
}

/* llhttp accepts a name with a space inside, which other servers may read as two headers. */
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

static int add_header(struct ol_http1 *http)
{
    struct ol_request *request = http->request;
    if (http->header_count == REQUEST_HEADERS_MAX)
        return reject_request(http, 431, "more than 100 headers");
    if (!is_token(&http->field))
        return reject_request(http, 400, "the name of a header is not one word");
    for (size_t i = 0; i < http->field.bytes; i++)
        http->field.data[i] = (char)tolower((unsigned char)http->field.data[i]);
    struct ol_pair pair = {ol_arena_copy(&request->arena, http->field.data, http->field.bytes),
                           ol_arena_copy(&request->arena, http->value.bytes ? http->value.data : "",
                                         http->value.bytes)};
    if (!pair.name || !pair.value)
        return reject_request(http, 503, "out of memory");
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
        return 0; // trailers are ignored
    if (http->is_value && add_header(http))
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

static int refuse_body(struct ol_http1 *http, int status, const char *why)
{
    atomic_fetch_add(&http->conn->conns->refused[OL_REFUSAL_BODY], 1);
    return reject_request(http, status, why);
}

/* Decide about a large body by the head, before it is buffered. Small ones are always accepted: the
 * number of connections limits them. */
static int admit_body(struct ol_http1 *http)
{
    struct ol_http1_handler *handler = http->handler;
    struct ol_request *request = http->request;
    http->is_large = true;
    request->body_memory.total = &handler->held_bytes;
    if (handler->is_known(handler->server, request))
        return 0;
    if (!ol_request_header(request, "authorization"))
        return refuse_body(http, 401, "a body of more than 64 KiB needs a token in the head");
    if (http->conn->peer->body_count >= STRANGER_BODIES_MAX)
        return refuse_body(http, 503,
                           "too many large bodies from this address; nothing was stored");
    request->body_memory.total = &handler->stranger_held_bytes;
    http->is_strange = true;
    http->conn->peer->body_count++;
    return 0;
}

/* The body has arrived, or never will. */
static void leave_body(struct ol_http1 *http)
{
    if (http->is_strange)
        http->conn->peer->body_count--;
    http->is_large = http->is_strange = false;
}

static int on_headers(llhttp_t *parser)
{
    struct ol_http1 *http = parser->data;
    struct ol_request *request = http->request;

    if (http->field.bytes && add_header(http))
        return -1;
    size_t bytes = http->header_count * sizeof *http->headers;
    request->headers = ol_arena_alloc(&request->arena, bytes + 1);
    if (!request->headers)
        return reject_request(http, 503, "out of memory"), -1;
    memcpy(request->headers, http->headers, bytes);
    request->header_count = http->header_count;
    request->method = llhttp_method_name((llhttp_method_t)parser->method);
    if (http->host_count != 1)
        return reject_request(http, 400, "a request has one Host header"), -1;
    if (parser->http_major != 1)
        return reject_request(http, 505, "only HTTP/1.1 is supported"), -1;
    if (parser->content_length > http->handler->limits.body_bytes)
        return reject_request(http, 413, "the body is too large"), -1;
    if (parser->content_length > SMALL_BODY_BYTES && admit_body(http))
        return -1;
    const char *expect = ol_request_header(request, "expect");
    if (expect && strcasecmp(expect, "100-continue") == 0)
        ol_client_conn_write(http->conn, "HTTP/1.1 100 Continue\r\n\r\n", 25);
    else if (expect)
        return reject_request(http, 417, "only Expect: 100-continue is supported"), -1;
    set_deadline(http, http->handler->limits.body_ms);
    return 0;
}

static int count_body(struct ol_http1 *http, struct ol_request *request)
{
    const struct ol_http1_limits *limits = &http->handler->limits;
    size_t max = http->is_strange ? limits->stranger_bodies_bytes : limits->bodies_bytes;
    size_t more = request->body.capacity - request->body_memory.bytes;
    request->body_memory.bytes += more;
    if (atomic_fetch_add(request->body_memory.total, more) + more <= max)
        return 0;
    return refuse_body(http, 503, "too many large bodies at a time; nothing was stored");
}

static int on_body(llhttp_t *parser, const char *at, size_t bytes)
{
    struct ol_http1 *http = parser->data;
    struct ol_request *request = http->request;
    if (request->body.bytes + bytes > http->handler->limits.body_bytes)
        return reject_request(http, 413, "the body is too large");
    ol_buf_add(&request->body, at, bytes);
    if (request->body.failed)
        return reject_request(http, 503, "out of memory");
    if (!http->is_large && request->body.bytes > SMALL_BODY_BYTES && admit_body(http))
        return HPE_USER;
    return http->is_large ? count_body(http, request) : 0;
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

/* The state after one more byte of the head. *error is set when the byte is not allowed there. */
static enum head_state scan_byte(enum head_state head, char c, const char **error)
{
    static const char bare[] = "lines end with CR LF";
    switch (head) {
    case HEAD_BEFORE:
        return c == '\r' || c == '\n' ? HEAD_BEFORE : HEAD_IN_LINE;
    case HEAD_IN_LINE:
        if (c == '\n')
            *error = bare;
        return c == '\r' ? HEAD_CR : HEAD_IN_LINE;
    case HEAD_CR:
        if (c != '\n')
            *error = bare;
        return HEAD_LINE_START;
    case HEAD_LINE_START:
        if (c == ' ' || c == '\t')
            *error = "a header is folded over two lines";
        if (c == '\n')
            *error = bare;
        return c == '\r' ? HEAD_LAST_CR : HEAD_IN_LINE;
    case HEAD_LAST_CR:
        if (c != '\n')
            *error = bare;
        return HEAD_DONE;
    default:
        return HEAD_DONE;
    }
}

/* Check the bytes of the head up to its end: its size, that no line is folded, and that each ends
 * with CR LF. llhttp takes a carriage return alone for the end of the head. */
static void scan_head(struct ol_http1 *http, const char *data, size_t bytes)
{
    const char *error = NULL;
    for (size_t i = 0; i < bytes && http->head != HEAD_DONE; i++) {
        if (++http->head_bytes > http->handler->limits.head_bytes) {
            reject_request(http, 431, "the head is too large");
            return;
        }
        http->head = scan_byte(http->head, data[i], &error);
        if (error) {
            reject_request(http, 400, error);
            return;
        }
    }
}

static int begin_request(struct ol_http1 *http)
{
    llhttp_init(&http->parser, HTTP_REQUEST, &callbacks);
    http->parser.data = http;
    ol_buf_reset(&http->url);
    ol_buf_reset(&http->field);
    ol_buf_reset(&http->value);
    http->header_count = http->host_count = http->head_bytes = 0;
    http->head = HEAD_BEFORE;
    http->is_value = http->is_complete = false;
    http->request = ol_request_new(http->handler->server);
    if (!http->request)
        return -1;
    http->request->http = http;
    set_deadline(http, http->handler->limits.head_ms);
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

static void set_request_id(struct ol_request *request)
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

static void answer_rejection(struct ol_http1 *http)
{
    static const struct {
        int status;
        const char *code;
    } codes[] = {{401, "unauthorized"}, {413, "too_large"}, {414, "too_large"},
                 {431, "too_large"},    {408, "timeout"},   {503, "unavailable"}};
    const char *code = "invalid_request";
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
        if (codes[i].status == http->refused)
            code = codes[i].code;
    http->is_last = true;
    leave_body(http);
    if (!http->request->request_id)
        http->request->request_id = "";
    ol_problem_say(http->request, http->refused, code, "%s", http->refusal);
    http->state = HTTP1_ANSWERING;
    ol_http1_answer(http->request);
}

static void dispatch_request(struct ol_http1 *http)
{
    struct ol_request *request = http->request;
    http->conn->deadline = 0;
    leave_body(http);
    set_request_id(request);
    if (!read_target(http)) {
        reject_request(http, 400, "the target is a path of UTF-8 text");
        answer_rejection(http);
        return;
    }
    http->is_last |= !http->keeps_alive;
    http->state = HTTP1_ANSWERING;
    http->handler->request(http->handler->server, request);
}

/* Parse one chunk. *rest gets the bytes after the end of the request. */
static void parse_chunk(struct ol_http1 *http, const char *data, size_t bytes, struct ol_buf *rest)
{
    if (!http->request && begin_request(http) < 0) {
        ol_client_conn_close(http->conn);
        return;
    }
    scan_head(http, data, bytes);
    if (http->refused) {
        answer_rejection(http);
        return;
    }
    llhttp_errno_t result = llhttp_execute(&http->parser, data, bytes);
    if (http->is_complete) {
        const char *end = llhttp_get_error_pos(&http->parser);
        if (end && end >= data && end <= data + bytes)
            ol_buf_add(rest, end, (size_t)(data + bytes - end));
        dispatch_request(http);
    } else if (result != HPE_OK) {
        reject_request(http, 400, llhttp_get_error_reason(&http->parser));
        answer_rejection(http);
    }
}

/* A client that does not read its answers gets no more of them: they would fill our memory. */
static bool has_unread_answers(const struct ol_http1 *http)
{
    return http->conn->queued > UNREAD_ANSWERS_MAX;
}

static void run_input(struct ol_http1 *http)
{
    if (http->is_running)
        return;
    http->is_running = true;
    while (!http->is_gone && http->state == HTTP1_READING && http->input.bytes &&
           !has_unread_answers(http)) {
        struct ol_buf chunk = http->input;
        http->input = (struct ol_buf){0};
        parse_chunk(http, chunk.data, chunk.bytes, &http->input);
        ol_buf_clear(&chunk);
    }
    http->is_running = false;
    if (http->is_gone)
        free(http);
    else
        ol_client_conn_pause(http->conn, http->input.bytes >= INPUT_BYTES_MAX);
}

static void on_data(struct ol_client_conn *conn, const char *data, size_t bytes)
{
    struct ol_http1 *http = conn->owner;
    ol_buf_add(&http->input, data, bytes);
    if (http->input.failed)
        ol_client_conn_close(conn);
    else
        run_input(http);
}

static void on_drained(struct ol_client_conn *conn)
{
    struct ol_http1 *http = conn->owner;
    if (http->state == HTTP1_STREAMING) {
        conn->deadline = 0;
        http->handler->drained(http->handler->server, http->request);
    } else if (http->state == HTTP1_READING) {
        if (!http->request)
            set_deadline(http, http->handler->limits.idle_ms);
        run_input(http);
    }
}

static void on_expired(struct ol_client_conn *conn)
{
    struct ol_http1 *http = conn->owner;
    if (http->state == HTTP1_READING && http->request && http->head_bytes) {
        atomic_fetch_add(&conn->conns->refused[OL_REFUSAL_SLOW], 1);
        reject_request(http, 408, "the request did not arrive in time");
        answer_rejection(http);
    } else {
        ol_client_conn_close(conn);
    }
}

static void on_closed(struct ol_client_conn *conn)
{
    struct ol_http1 *http = conn->owner;
    struct ol_request *request = http->request;

    leave_body(http);
    if (request) {
        request->http = NULL;
        if (http->state == HTTP1_READING)
            ol_request_free(request);
        else
            http->handler->gone(http->handler->server, request);
    }
    ol_buf_clear(&http->url);
    ol_buf_clear(&http->field);
    ol_buf_clear(&http->value);
    ol_buf_clear(&http->input);
    http->is_gone = true;
    if (!http->is_running)
        free(http);
}

static const struct ol_client_conn_handler http1_handler = {on_data, on_drained, on_expired,
                                                            on_closed};

int ol_http1_accept(struct ol_client_conns *conns, uv_stream_t *listener,
                    struct ol_http1_handler *handler)
{
    struct ol_http1 *http = calloc(1, sizeof *http);
    struct ol_client_conn *conn = ol_client_conn_accept(conns, listener, &http1_handler);
    if (!conn || !http) {
        if (conn)
            ol_client_conn_drop(conn);
        free(http);
        return -1;
    }
    http->conn = conn;
    http->handler = handler;
    conn->owner = http;
    set_deadline(http, handler->limits.head_ms);
    return 0;
}

void ol_http1_recognize(struct ol_request *request)
{
    if (!request->http)
        return;
    ol_client_conn_recognize(request->http->conn);
    if (request->is_tried)
        request->http->conn->peer->tries += 1; // it was new, not wrong
    request->is_tried = false;
}

bool ol_http1_try_token(struct ol_request *request)
{
    const struct ol_client_conn *conn = request->http->conn;
    request->is_tried = ol_peer_try_token(conn->peer, uv_now(conn->conns->loop));
    if (request->is_tried)
        return true;
    atomic_fetch_add(&conn->conns->refused[OL_REFUSAL_TOKEN], 1);
    return false;
}

/* --- writing --- */

static const char *const status_phrases[] = {
    [200] = "OK",
    [201] = "Created",
    [202] = "Accepted",
    [204] = "No Content",
    [304] = "Not Modified",
    [400] = "Bad Request",
    [401] = "Unauthorized",
    [403] = "Forbidden",
    [404] = "Not Found",
    [405] = "Method Not Allowed",
    [408] = "Request Timeout",
    [409] = "Conflict",
    [413] = "Content Too Large",
    [414] = "URI Too Long",
    [415] = "Unsupported Media Type",
    [417] = "Expectation Failed",
    [421] = "Misdirected Request",
    [422] = "Unprocessable Content",
    [429] = "Too Many Requests",
    [431] = "Request Header Fields Too Large",
    [503] = "Service Unavailable",
    [504] = "Gateway Timeout",
    [505] = "HTTP Version Not Supported",
};

static const char *status_phrase(int status)
{
    bool is_listed = status >= 0 && (size_t)status < sizeof status_phrases / sizeof *status_phrases;
    if (is_listed && status_phrases[status])
        return status_phrases[status];
    return status < 400 ? "OK" : "Error";
}

static void put_head(const struct ol_http1 *http, const struct ol_request *request, bool has_length,
                     struct ol_buf *out)
{
    ol_buf_print(out, "HTTP/1.1 %d %s\r\n", request->status, status_phrase(request->status));
    if (request->content_type)
        ol_buf_print(out, "content-type: %s\r\n", request->content_type);
    if (has_length && request->status != 204 && request->status != 304) // those have no body
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

/* Write an answer and set the next deadline. The connection may be closed afterwards. */
static void write_answer(struct ol_http1 *http, struct ol_buf *head, struct ol_buf *body)
{
    const struct ol_http1_limits *limits = &http->handler->limits;
    struct ol_client_conn *conn = http->conn;
    if (head->failed)
        ol_client_conn_close(conn);
    else
        ol_client_conn_answer(conn, head, body);
    ol_buf_clear(head);
    ol_buf_clear(body);
    if (http->is_gone)
        return;
    set_deadline(http, conn->queued ? limits->write_ms : limits->idle_ms);
    if (http->is_last) {
        http->state = HTTP1_ANSWERING; // reads nothing more
        ol_client_conn_end(conn);
    }
}

void ol_http1_answer(struct ol_request *request)
{
    struct ol_http1 *http = request->http;
    struct ol_buf head = {0}, body = {0};

    if (!http) {
        ol_request_free(request);
        return;
    }
    put_head(http, request, true, &head);
    if (!(request->method && strcmp(request->method, "HEAD") == 0)) {
        body = request->reply;
        request->reply = (struct ol_buf){0};
    }
    http->request = NULL;
    ol_request_free(request);
    http->refused = 0;
    http->state = HTTP1_READING;
    bool was_running = http->is_running;
    http->is_running = true; // keeps `http` allocated while we write
    write_answer(http, &head, &body);
    http->is_running = was_running;
    if (was_running)
        return;
    if (http->is_gone)
        free(http);
    else
        run_input(http);
}

void ol_http1_stream(struct ol_request *request)
{
    struct ol_http1 *http = request->http;
    struct ol_buf out = {0};
    if (!http)
        return;
    http->state = HTTP1_STREAMING;
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
    struct ol_client_conn *conn = http->conn;
    ol_client_conn_write(conn, data, bytes);
    if (request->http && conn->queued && !conn->deadline)
        set_deadline(http, http->handler->limits.write_ms);
}

size_t ol_http1_queued(const struct ol_request *request)
{
    const struct ol_client_conn *conn = request->http ? request->http->conn : NULL;
    return !conn ? 0 : conn->is_broken ? 1 : conn->queued; // a broken connection never drains
}

void ol_http1_end(struct ol_request *request)
{
    if (request->http)
        ol_client_conn_end(request->http->conn);
}

struct ol_client_conn *ol_http1_release(struct ol_request *request, struct ol_buf *early)
{
    struct ol_http1 *http = request->http;
    struct ol_client_conn *conn = http->conn;
    *early = http->input;
    http->input = (struct ol_buf){0};
    http->request = NULL;
    request->http = NULL;
    conn->owner = http;
    on_closed(conn); // frees `http`; the connection stays open
    conn->owner = NULL;
    return conn;
}

void ol_http1_finish_all(struct ol_client_conns *conns)
{
    for (struct ol_client_conn *conn = conns->first, *next; conn; conn = next) {
        next = conn->next;
        if (conn->handler != &http1_handler)
            continue;
        struct ol_http1 *http = conn->owner;
        http->is_last = true;
        if (http->state != HTTP1_ANSWERING)
            ol_client_conn_end(conn);
    }
}
