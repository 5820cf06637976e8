/* mime.h: a message's payload as an Internet mail (D2). Pure: it writes bytes and sends nothing.
 *
 * M1  Every line ends in CRLF, and no text from outside reaches a header without being checked or
 *     encoded: no injected header, no smuggled second mail.
 * M2  Bodies are base64: no line begins with a dot, none is too long, no relay rewrites them.
 * M3  The same key gives the same Message-ID, so a repeat is recognisable. */
#ifndef OL_PUBLISH_MAIL_MIME_H
#define OL_PUBLISH_MAIL_MIME_H

#include "base/json/json.h"
#include "outlog_publisher.h"

enum { OL_MIME_RECIPIENTS = 100 };

/* An address: "a@b.example", or "A Name <a@b.example>". Local part up to 64 bytes, domain up to
 * 255, both plain ASCII as nearly every server demands. */
struct ol_mailbox {
    const char *name; /* the display name, or NULL */
    const char *address;
};

/* OUTLOG_INVALID_FIELD: the message begins with `what`, the place of the address. */
int ol_mailbox_parse(const char *text, const char *what, struct ol_arena *arena,
                     struct ol_mailbox *out, outlog_err *err);

/* A mail ready to be sent: the envelope, and the text with its headers. */
struct ol_mime_mail {
    const char *recipients[OL_MIME_RECIPIENTS]; /* to and cc, each once */
    size_t recipient_count;
    char message_id[320]; /* with its angle brackets */
};

/* What a mail is made of. */
struct ol_mime_input {
    const struct outlog_delivery *message;
    const struct ol_mailbox *from;
    const struct outlog_header *headers; /* the destination's */
    size_t header_count;
    int64_t now_us; /* becomes Date */
};

/* Build the mail from the payload {to:[…], subject, body_html, body_text?, cc?, reply_to?,
 * idempotency_key?} and append it to `out`. The destination's headers and the message's are added
 * where they do not collide with those that a mail has anyway. Texts of *mail are in `arena`.
 *
 * OUTLOG_INVALID_JSON, _INVALID_FIELD, _UNKNOWN_FIELD: the payload cannot become a mail. */
int ol_mime_build(const struct ol_mime_input *input, struct ol_arena *arena,
                  struct ol_mime_mail *mail, struct ol_buf *out, outlog_err *err);

#endif
