/* smtp.c: a message as a mail (D2).
 *
 * Success is the server's 250 after the final dot. A mail goes to all its recipients in one
 * transaction: when the server refuses one of them, none gets it, so an attempt has one
 * outcome. A crash between that 250 and our record of it sends the mail twice; both copies have the
 * same Message-ID. */
#include "base/clock.h"
#include "net/ssrf_guard.h"
#include "publish/mail/mime.h"
#include "publish/mail/smtp.h"
#include "publish/outcome.h"
#include "publish/publisher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

struct smtp {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    const struct ol_smtp_settings *own;
    struct ol_http_pool *pool;
    struct ol_mailbox from;
    struct ol_arena instance_arena, mail_arena; /* the second only for the mail being built */
    struct ol_buf mail, memory;
};

static void on_response(void *owner, void *tag, const struct ol_http_response *response)
{
    struct smtp *s = owner;
    struct outlog_outcome outcome;
    ol_outcome_mail(response, s->settings, &s->memory, &outcome);
    s->host->done(s->host->user, tag, &outcome);
}

static void smtp_close(void *instance)
{
    struct smtp *s = instance;
    ol_http_pool_close(s->pool);
    ol_buf_clear(&s->mail);
    ol_buf_clear(&s->memory);
    ol_arena_clear(&s->mail_arena);
    ol_arena_clear(&s->instance_arena);
    free(s);
}

static int smtp_open(const struct outlog_publisher_host *host, void **instance, outlog_err *err)
{
    const struct ol_publisher_own *own = host->own;
    struct smtp *s = calloc(1, sizeof *s);
    if (!s)
        return ol_no_memory(err);
    s->host = host;
    s->settings = own->settings;
    s->own = s->settings->own;
    if (ol_mailbox_parse(s->own->from, "from", &s->instance_arena, &s->from, err) < 0 ||
        ol_http_pool_open(own->http, s->settings->concurrency, on_response, s, &s->pool, err) < 0) {
        smtp_close(s);
        return -1;
    }
    *instance = s;
    return 0;
}

static void refuse_message(struct smtp *s, void *tag, const outlog_err *err)
{
    struct outlog_outcome outcome;
    ol_outcome_refusal(err, s->settings, &s->memory, &outcome);
    s->host->done(s->host->user, tag, &outcome);
}

static void smtp_submit(void *instance, const struct outlog_delivery *message, int64_t deadline_us,
                        void *tag)
{
    struct smtp *s = instance;
    struct ol_mime_mail mail;
    outlog_err err;

    ol_arena_reset(&s->mail_arena);
    ol_buf_reset(&s->mail);
    struct ol_mime_input input = {
        .message = message,
        .from = &s->from,
        .headers = s->settings->headers,
        .header_count = s->settings->header_count,
        .now_us = ol_clock_wall_us(),
    };
    if (ol_mime_build(&input, &s->mail_arena, &mail, &s->mail, &err) < 0) {
        refuse_message(s, tag, &err);
        return;
    }
    struct ol_mail_envelope envelope = {
        .from = s->from.address,
        .to = mail.recipients,
        .to_count = mail.recipient_count,
        .user = s->own->user,
        .password = s->own->password,
        .is_plain = s->own->tls == OL_TLS_NONE,
    };
    struct ol_http_client_request request = {
        .url = s->own->url,
        .body = s->mail.data,
        .body_bytes = s->mail.bytes,
        .ca_file = s->own->ca_file,
        .mail = &envelope,
        .deadline_us = deadline_us,
        .tag = tag,
    };
    if (ol_http_pool_start(s->pool, &request, &err) < 0)
        refuse_message(s, tag, &err);
}

static void smtp_abandon(void *instance, void *tag)
{
    struct smtp *s = instance;
    ol_http_pool_abandon(s->pool, tag);
}

static const struct outlog_publisher publisher = {
    .name = "smtp",
    .batch_max = 8, // connections that stay open; more only queue at the server
    .keeps_attempts = true,
    .open = smtp_open,
    .submit = smtp_submit, // the thread's HTTP client drives it
    .abandon = smtp_abandon,
    .close = smtp_close,
};

/* --- settings --------------------------------------------------------------------------------- */

/* Undo percent-encoding. */
static int unescape_login(struct ol_setting_reader *r, const char *text, size_t bytes,
                          const char **out)
{
    char *copy = ol_arena_copy(r->settings->arena, text, bytes), *to = copy;
    unsigned byte;
    if (!copy)
        return ol_setting_types_no_memory(r);
    for (const char *at = copy; *at; to++) {
        if (*at != '%') {
            *to = *at++;
        } else if (strspn(at + 1, "0123456789abcdefABCDEF") >= 2 &&
                   sscanf(at + 1, "%2x", &byte) == 1 && byte) {
            *to = (char)byte;
            at += 3;
        } else {
            return ol_setting_types_wrong(r, "url",
                                          "a % is not followed by two hexadecimal digits");
        }
    }
    *to = '\0';
    *out = copy;
    return 0;
}

/* Read the scheme and user:password@ of the URL; *host: what follows. */
static int read_login(struct ol_setting_reader *r, const char **host)
{
    struct ol_smtp_settings *own = r->settings->own;
    bool is_implicit = strncasecmp(own->url, "smtps://", 8) == 0;
    const char *at = own->url + (is_implicit ? 8 : 7), *login;

    if (!is_implicit && strncasecmp(own->url, "smtp://", 7) != 0)
        return ol_setting_types_wrong(r, "url", "it must begin with smtp:// or smtps://");
    if (is_implicit)
        own->tls = OL_TLS_IMPLICIT;
    else if (own->tls == OL_TLS_IMPLICIT)
        return ol_setting_types_wrong(r, "tls", "TLS from the start is written as smtps://");
    if ((login = strrchr(at, '@'))) {
        const char *colon = memchr(at, ':', (size_t)(login - at));
        if (!colon)
            return ol_setting_types_wrong(r, "url", "a user name without a password");
        if (unescape_login(r, at, (size_t)(colon - at), &own->user) < 0 ||
            unescape_login(r, colon + 1, (size_t)(login - colon - 1), &own->password) < 0)
            return -1;
        at = login + 1;
    }
    if (!own->user != !own->password)
        return ol_setting_types_wrong(r, own->user ? "password" : "user", "a login has both");
    if (own->user && own->tls == OL_TLS_NONE)
        return ol_setting_types_wrong(r, "tls", "a password is not sent without TLS");
    *host = at;
    return 0;
}

/* smtp://user:password@host:port becomes smtp://host:port/hello. */
static int rewrite_url(struct ol_setting_reader *r)
{
    struct ol_smtp_settings *own = r->settings->own;
    struct ol_parsed_url parts;
    const char *host;

    if (read_login(r, &host) < 0)
        return -1;
    char *copy = ol_arena_print(r->settings->arena, "http://%s", host); // for the guard's parser
    if (!copy)
        return ol_setting_types_no_memory(r);
    size_t bytes = strlen(copy);
    if (copy[bytes - 1] == '/')
        copy[--bytes] = '\0';
    if (strpbrk(copy + 7, "/?") || ol_ssrf_guard_url(copy, true, &parts, r->err) < 0)
        return ol_setting_types_wrong(r, "url", "smtp://host:port is wanted");
    const char *bracket = strchr(copy, ']');
    bool has_port = strchr(bracket ? bracket : copy + 7, ':') != NULL;
    bool is_implicit = own->tls == OL_TLS_IMPLICIT;
    int port = has_port ? parts.port : is_implicit ? 465 : own->tls == OL_TLS_NONE ? 25 : 587;
    const char *hello = own->hello ? own->hello : "outlog";
    if (strspn(hello, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") !=
        strlen(hello))
        return ol_setting_types_wrong(r, "hello", "a host name is wanted");
    bool is_six = strchr(parts.host, ':') != NULL;
    own->url = ol_arena_print(r->settings->arena, "%s://%s%s%s:%d/%s",
                              is_implicit ? "smtps" : "smtp", is_six ? "[" : "", parts.host,
                              is_six ? "]" : "", port, hello);
    return own->url ? 0 : ol_setting_types_no_memory(r);
}

static int check_smtp(struct ol_setting_reader *r)
{
    struct ol_smtp_settings *own = r->settings->own;
    if (!r->is_url_pending && rewrite_url(r) < 0)
        return -1;
    return ol_setting_types_mask(r, own->password);
}

static void write_sample(const struct ol_settings *settings, struct ol_buf *out)
{
    const struct ol_smtp_settings *own = settings->own;
    ol_buf_text(out, "{\"to\":[");
    ol_buf_json_text(out, own->from ? own->from : "");
    ol_buf_text(out, "],\"subject\":\"outlog test\",\"body_html\":\"<p>A test of outlog.</p>\","
                     "\"body_text\":\"A test of outlog.\"}");
}

#define AT(member) offsetof(struct ol_smtp_settings, member)

static const struct ol_setting_key smtp_keys[] = {
    {.name = "url", .read = ol_setting_types_url, .offset = AT(url), .is_needed = true},
    {.name = "headers", .read = ol_setting_types_headers},
    {.name = "ca_file", .read = ol_setting_types_text, .offset = AT(ca_file)},
    {.name = "from", .read = ol_setting_types_text, .offset = AT(from), .is_needed = true},
    {.name = "user", .read = ol_setting_types_text, .offset = AT(user)},
    {.name = "password", .read = ol_setting_types_text, .offset = AT(password)},
    {.name = "hello", .read = ol_setting_types_text, .offset = AT(hello)},
    {.name = "tls",
     .read = ol_setting_types_choice,
     .offset = AT(tls),
     .choices = ol_tls_mode_names},
    {.name = NULL},
};

const struct ol_publisher_type ol_publisher_type_smtp = {
    .name = "smtp",
    .publisher = &publisher,
    .has_own_form = true,
    .timeout_s = 20,
    .concurrency = 8,
    .own_bytes = sizeof(struct ol_smtp_settings),
    .keys = {smtp_keys},
    .check = check_smtp,
    .write_sample = write_sample,
};
