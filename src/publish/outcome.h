/* outcome.h: the outcome of an attempt, from the response or the lack of one (R2). Pure. */
#ifndef OL_PUBLISH_OUTCOME_H
#define OL_PUBLISH_OUTCOME_H

#include "destinations/settings.h"
#include "net/http_client.h"

/* A set of HTTP statuses. */
struct ol_status_set {
    unsigned char bits[1000 / 8];
};

bool ol_status_set_has(const struct ol_status_set *set, int status);

/* The outcome of an HTTP exchange. A status in `retry_on` is never permanent. The texts of *out are
 * masked and live in `memory`, which is reset first.
 *
 *   2xx                                  OK, even when its body was cut off or late
 *   408, 425, 429, 5xx                   FAILED; 429, and 503 with Retry-After, surely not sent
 *   other 4xx, 3xx (never followed)      FAILED, permanent
 *   no connection, TLS refused           FAILED, surely not sent
 *   address refused by the guard         FAILED, surely not sent: the name may resolve to another
 *                                        address next time (a URL with a private address is
 *                                        refused before)
 *   request sent, no readable response   UNKNOWN
 *   abandoned before a byte left         RELEASED */
void ol_outcome_http(const struct ol_http_response *response, const struct ol_settings *settings,
                     const struct ol_status_set *retry_on, int64_t now_us, struct ol_buf *memory,
                     struct outlog_outcome *out);

/* The outcome of a mail. 4xx: FAILED; 5xx: FAILED and permanent; both surely not sent, to any
 * recipient. Refused at greeting, TLS or login: FAILED, not permanent. No reply after the body:
 * UNKNOWN. */
void ol_outcome_mail(const struct ol_http_response *response, const struct ol_settings *settings,
                     struct ol_buf *memory, struct outlog_outcome *out);

/* The message itself can never be sent: FAILED, permanent, surely not sent. When err is
 * OUTLOG_NO_MEMORY, which is not the message's fault: RELEASED. */
void ol_outcome_refusal(const outlog_err *err, const struct ol_settings *settings,
                        struct ol_buf *memory, struct outlog_outcome *out);

/* How long from now Retry-After asks to wait: seconds, or an HTTP date in any of its three forms.
 * 0: it is neither. */
int64_t ol_outcome_retry_after_us(const char *value, int64_t now_us);

#endif
