/* outcome.c: outcomes of HTTP and mail, and the dates of Retry-After. */
#include "publish/outcome.h"

#include "base/timestamp.h"
#include "publish/mask.h"
#include "publish/publisher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- texts ------------------------------------------------------------------------------------ */

/* Write response and error into `memory`, then set the pointers: it moves while it grows. */
static void set_texts(struct outlog_outcome *out, struct ol_buf *memory, const char *body,
                      size_t body_bytes, const char *error, const struct ol_settings *settings)
{
    ol_buf_reset(memory);
    ol_mask_add(memory, body, body_bytes, settings->masked, OL_RESPONSE_KEPT);
    size_t response_bytes = memory->bytes;
    ol_buf_char(memory, '\0');
    if (error)
        ol_mask_line(memory, error, strlen(error), settings->masked, OL_ERROR_KEPT);
    if (memory->failed) {
        out->error = error ? "out of memory for the error's text" : NULL;
        return;
    }
    out->response = response_bytes ? memory->data : NULL;
    out->response_bytes = response_bytes;
    out->error = error ? memory->data + response_bytes + 1 : NULL;
}

bool ol_status_set_has(const struct ol_status_set *set, int status)
{
    return status >= 0 && status < 1000 && (set->bits[status / 8] >> status % 8 & 1);
}

void ol_outcome_refusal(const outlog_err *err, const struct ol_settings *settings,
                        struct ol_buf *memory, struct outlog_outcome *out)
{
    bool is_ours = err->code == OUTLOG_NO_MEMORY;
    *out = (struct outlog_outcome){
        .kind = is_ours ? OUTLOG_PUBLISH_RELEASED : OUTLOG_PUBLISH_FAILED,
        .is_permanent = !is_ours,
        .surely_not_sent = true,
    };
    set_texts(out, memory, "", 0, err->message, settings);
}

/* --- Retry-After ------------------------------------------------------------------------------ */

static int parse_month(const char *name)
{
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    for (int i = 0; i < 12; i++)
        if (strncmp(months + 3 * i, name, 3) == 0)
            return i + 1;
    return 0;
}

/* RFC 9110 5.6.7: IMF-fixdate, and the two obsolete forms that must still be read. */
static bool parse_date(const char *text, int64_t *out_us)
{
    int year, month, day, hour, minute, second;
    char name[4] = "", iso[40];
    const char *comma = strchr(text, ',');

    if (comma) {
        if (sscanf(comma + 1, " %2d %3s %4d %2d:%2d:%2d GMT", &day, name, &year, &hour, &minute,
                   &second) != 6) {
            if (sscanf(comma + 1, " %2d-%3s-%2d %2d:%2d:%2d GMT", &day, name, &year, &hour, &minute,
                       &second) != 6)
                return false;
            year += year < 70 ? 2000 : 1900;
        }
    } else if (sscanf(text, "%*3s %3s %2d %2d:%2d:%2d %4d", name, &day, &hour, &minute, &second,
                      &year) != 6) {
        return false;
    }
    month = parse_month(name);
    if (month == 0 || year < 1970 || year > 9999 || day < 0 || hour < 0 || minute < 0 || second < 0)
        return false;
    int bytes = snprintf(iso, sizeof iso, "%04d-%02d-%02dT%02d:%02d:%02dZ", year, month, day, hour,
                         minute, second);
    return ol_timestamp_parse(iso, (size_t)bytes, out_us) == 0;
}

int64_t ol_outcome_retry_after_us(const char *value, int64_t now_us)
{
    size_t digits = strspn(value, "0123456789");
    int64_t at;
    if (digits > 0)
        return value[digits] != '\0' ? 0
               : digits > 9          ? OL_RETRY_AFTER_MAX_US
                                     : (int64_t)atol(value) * 1000000;
    if (!parse_date(value, &at) || at <= now_us)
        return 0;
    return at - now_us;
}

/* --- HTTP ------------------------------------------------------------------------------------- */

static bool is_transient_status(int status)
{
    return status == 408 || status == 425 || status == 429 || status >= 500;
}

static void set_failed(const struct ol_http_response *response,
                       const struct ol_status_set *retry_on, int64_t now_us,
                       struct outlog_outcome *out, char *error, size_t room)
{
    int status = response->status;
    out->kind = OUTLOG_PUBLISH_FAILED;
    out->is_permanent = !is_transient_status(status) && !ol_status_set_has(retry_on, status);
    out->retry_after_us = ol_outcome_retry_after_us(response->retry_after, now_us);
    // A gateway's 502 or 504 does not say what was done behind it; other 5xx are the receiver's
    // own.
    out->surely_not_sent = status == 429 || (status >= 500 && status != 502 && status != 504);
    const char *why = status == 410                   ? ": the receiver is gone for good"
                      : status >= 300 && status < 400 ? ": redirects are not followed"
                                                      : "";
    snprintf(error, room, "HTTP %d%s", status, why);
}

void ol_outcome_http(const struct ol_http_response *response, const struct ol_settings *settings,
                     const struct ol_status_set *retry_on, int64_t now_us, struct ol_buf *memory,
                     struct outlog_outcome *out)
{
    char error[512] = "";

    *out =
        (struct outlog_outcome){.status = response->status, .duration_us = response->duration_us};
    switch (response->reach) {
    case OL_REACH_ANSWERED:
        if (response->status >= 200 && response->status < 300)
            out->kind = OUTLOG_PUBLISH_OK;
        else
            set_failed(response, retry_on, now_us, out, error, sizeof error);
        break;
    case OL_REACH_NOTHING:
        out->status = 0;
        out->kind = response->is_abandoned ? OUTLOG_PUBLISH_RELEASED : OUTLOG_PUBLISH_FAILED;
        out->surely_not_sent = true;
        snprintf(error, sizeof error, "%s", response->error);
        break;
    case OL_REACH_REFUSED: // mail only
    case OL_REACH_LOST:
        out->status = 0;
        out->kind = OUTLOG_PUBLISH_UNKNOWN;
        snprintf(error, sizeof error, "sent, but no complete answer: %s", response->error);
        break;
    }
    set_texts(out, memory, response->body, response->body_bytes,
              out->kind == OUTLOG_PUBLISH_OK ? NULL : error, settings);
}

/* --- mail ------------------------------------------------------------------------------------- */

void ol_outcome_mail(const struct ol_http_response *response, const struct ol_settings *settings,
                     struct ol_buf *memory, struct outlog_outcome *out)
{
    char error[512] = "";

    *out =
        (struct outlog_outcome){.status = response->status, .duration_us = response->duration_us};
    switch (response->reach) {
    case OL_REACH_ANSWERED:
        out->kind = OUTLOG_PUBLISH_OK;
        break;
    case OL_REACH_REFUSED:
        out->kind = OUTLOG_PUBLISH_FAILED;
        out->surely_not_sent = true;
        // The operator can correct a wrong password: it must not make every mail a dead letter.
        out->is_permanent = response->status >= 500 && !response->is_before_message;
        snprintf(error, sizeof error, "refused by the mail server: %.*s",
                 (int)(response->body_bytes < 300 ? response->body_bytes : 300), response->body);
        break;
    case OL_REACH_NOTHING:
        out->kind = response->is_abandoned ? OUTLOG_PUBLISH_RELEASED : OUTLOG_PUBLISH_FAILED;
        out->surely_not_sent = true;
        snprintf(error, sizeof error, "%s", response->error);
        break;
    case OL_REACH_LOST:
        out->kind = OUTLOG_PUBLISH_UNKNOWN;
        snprintf(error, sizeof error, "sent, but not acknowledged: %s", response->error);
        break;
    }
    set_texts(out, memory, response->body, response->body_bytes,
              out->kind == OUTLOG_PUBLISH_OK ? NULL : error, settings);
}
