/* outcome.h: what an answer means for the message (R2). Pure. */
#ifndef OL_PUBLISH_OUTCOME_H
#define OL_PUBLISH_OUTCOME_H

#include "destinations/settings.h"
#include "net/http_client.h"

/* The outcome of an HTTP exchange. `retry_on` of the settings widens what is tried again. The texts
 * of *out are masked and live in `memory`, which is reset first.
 *
 *   2xx                                  OK, even when its body was cut off or late
 *   408, 425, 429, 5xx                   FAILED; 429, and 503 with Retry-After, surely not sent
 *   other 4xx, 3xx (never followed)      FAILED, permanent
 *   no connection, TLS refused           FAILED, surely not sent
 *   address refused by the guard         FAILED, permanent, surely not sent
 *   request sent, no readable answer     UNKNOWN
 *   abandoned before a byte left         RELEASED */
void ol_outcome_http(const struct ol_http_response *answer, const struct ol_settings *settings,
                     int64_t now_us, struct ol_buf *memory, struct outlog_outcome *out);

/* The outcome of a mail: 4xx FAILED, 5xx FAILED and permanent (both surely not sent, for all its
 * recipients); refused before the mail itself was spoken of: FAILED, not permanent; no reply after
 * the body: UNKNOWN. */
void ol_outcome_mail(const struct ol_http_response *answer, const struct ol_settings *settings,
                     struct ol_buf *memory, struct outlog_outcome *out);

/* The message itself cannot be sent, and no try will change that: FAILED, permanent, surely not
 * sent. When it was we who lacked memory: RELEASED. */
void ol_outcome_refusal(const outlog_err *err, const struct ol_settings *settings,
                        struct ol_buf *memory, struct outlog_outcome *out);

/* Retry-After as seconds or as an HTTP date of any of the three forms; how long from now, or 0
 * when it is neither. */
int64_t ol_outcome_retry_after_us(const char *value, int64_t now_us);

#endif
