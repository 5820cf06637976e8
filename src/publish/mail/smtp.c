/* smtp.c: a message as a mail (D2).
 *
 * Success is the server's 250 after the final dot. A mail goes to all its recipients in one
 * transaction: when the server refuses one of them nobody gets it, so an attempt has one outcome.
 * Between that 250 and our record lies a window in which a crash sends the mail twice; both copies
 * have the same Message-ID. */
#include "base/clock.h"
#include "publish/mail/mime.h"
#include "publish/outcome.h"
#include "publish/publisher.h"

#include <stdlib.h>

struct smtp {
    const struct outlog_publisher_host *host;
    const struct ol_settings *settings;
    struct ol_http_pool *link;
    struct ol_mailbox from;
    struct ol_arena own, arena; /* for the instance, and for the mail being built */
    struct ol_buf mail, memory;
};

static void on_answer(void *owner, void *tag, const struct ol_http_response *answer)
{
    struct smtp *s = owner;
    struct outlog_outcome outcome;
    ol_outcome_mail(answer, s->settings, &s->memory, &outcome);
    s->host->done(s->host->user, tag, &outcome);
}

static void smtp_close(void *instance)
{
    struct smtp *s = instance;
    ol_http_pool_close(s->link);
    ol_buf_clear(&s->mail);
    ol_buf_clear(&s->memory);
    ol_arena_clear(&s->arena);
    ol_arena_clear(&s->own);
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
    if (ol_mailbox_parse(s->settings->from, "from", &s->own, &s->from, err) < 0 ||
        ol_http_pool_open(own->http, s->settings->concurrency, on_answer, s, &s->link, err) < 0) {
        smtp_close(s);
        return -1;
    }
    *instance = s;
    return 0;
}

static void refuse(struct smtp *s, void *tag, const outlog_err *err)
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

    ol_arena_reset(&s->arena);
    ol_buf_reset(&s->mail);
    if (ol_mime_build(message, &s->from, s->settings->headers, s->settings->header_count,
                      ol_clock_wall_us(), &s->arena, &mail, &s->mail, &err) < 0) {
        refuse(s, tag, &err);
        return;
    }
    struct ol_mail_envelope envelope = {
        .from = s->from.address,
        .to = mail.recipients,
        .to_count = mail.recipient_count,
        .user = s->settings->user,
        .password = s->settings->password,
        .is_plain = s->settings->tls == OL_TLS_NONE,
    };
    struct ol_http_client_request request = {
        .url = s->settings->url,
        .body = s->mail.data,
        .body_bytes = s->mail.bytes,
        .ca_file = s->settings->ca_file,
        .mail = &envelope,
        .deadline_us = deadline_us,
        .tag = tag,
    };
    if (ol_http_pool_start(s->link, &request, &err) < 0)
        refuse(s, tag, &err);
}

static void smtp_abandon(void *instance, void *tag)
{
    struct smtp *s = instance;
    ol_http_pool_abandon(s->link, tag);
}

const struct outlog_publisher ol_publisher_smtp = {
    .name = "smtp",
    .batch_max = 8, // connections that stay open; more only queue at the server
    .keeps_attempts = true,
    .open = smtp_open,
    .submit = smtp_submit, // the thread's engine drives it
    .abandon = smtp_abandon,
    .close = smtp_close,
};
