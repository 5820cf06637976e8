/* retry.c: retry policies.
 *
 * The wait after failed attempt n is d = min(max, base * factor^n) and then up to d * jitter more:
 * S0's 2, 4, 8 s with base 1 s. Jitter only adds, so a receiver never sees us early. */
#include "outbox/retry.h"

#include "base/duration.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND INT64_C(1000000)
#define MINUTE (60 * SECOND)
#define HOUR (60 * MINUTE)

/* --- the defaults (R1); docs/relay.md shows them --- */

/* Effects by type, with S0's retries counted as attempts. */
static const struct {
    const char *event_type;
    int max_attempts;
    int64_t base_us;
} effect_defaults[] = {
    {"SEND_EMAIL", 4, 2 * SECOND},
    {"API_CALL", 6, 1 * SECOND},
    {"SOR_UPDATE", 2, 5 * SECOND},
    {NULL, 4, 1 * SECOND}, // every other type
};

/* S2's schedule. */
static const struct ol_retry notification_default = {
    .kind = OL_RETRY_SCHEDULE,
    .delays_us = {1 * MINUTE, 5 * MINUTE, 15 * MINUTE, 60 * MINUTE},
    .delay_count = 4,
    .has_jitter = true, // none: it is applied exactly as written
    .max_attempts = 5,
};

/* Every other message: a receiver may be down for a day. */
static const struct ol_retry message_default = {
    .kind = OL_RETRY_SCHEDULE,
    .delays_us = {5 * SECOND, 30 * SECOND, 2 * MINUTE, 10 * MINUTE, 30 * MINUTE, 1 * HOUR, 2 * HOUR,
                  4 * HOUR, 8 * HOUR, 8 * HOUR},
    .delay_count = 10,
    .jitter = 0.2,
    .has_jitter = true,
    .max_attempts = 11,
};

/* What an exponential policy does not say. */
static const struct ol_retry exponential_default = {
    .kind = OL_RETRY_EXPONENTIAL,
    .base_us = 1 * SECOND,
    .max_us = 5 * MINUTE,
    .factor = 2,
    .jitter = 0.2,
    .has_jitter = true,
};

/* --- from JSON --- */

static int fail_key(outlog_err *err, const char *key, const char *wanted)
{
    char pointer[64];
    snprintf(pointer, sizeof pointer, "/retry/%s", key);
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "retry.%s: %s", key, wanted);
}

/* The text of a string or number, for values that may come through ${NAME}. */
static bool read_scalar(const struct ol_json *value, char out[64])
{
    struct ol_json inner = *value;
    if (value->type == OL_JSON_STRING) {
        inner.text++;
        inner.bytes -= 2;
    } else if (value->type != OL_JSON_NUMBER) {
        return false;
    }
    if (inner.bytes == 0 || inner.bytes > 63 || memchr(inner.text, '\\', inner.bytes))
        return false;
    memcpy(out, inner.text, inner.bytes);
    out[inner.bytes] = '\0';
    return true;
}

static bool read_duration(const struct ol_json *value, int64_t *out_us)
{
    char text[64];
    return value->type == OL_JSON_STRING && read_scalar(value, text) &&
           ol_duration_parse(text, out_us) == 0 && *out_us <= 366 * 24 * 60 * MINUTE;
}

static bool read_number(const struct ol_json *value, double *out)
{
    char text[64], *end;
    if (!read_scalar(value, text) || text[0] < '0' || text[0] > '9')
        return false;
    *out = strtod(text, &end);
    return *end == '\0';
}

static int read_delays(const struct ol_json *value, struct ol_retry *out, outlog_err *err)
{
    struct ol_json_iter it = {0};
    out->delay_count = 0;
    if (value->type != OL_JSON_ARRAY)
        return fail_key(err, "delays", "a list like [1m, 5m, 15m, 60m] is wanted");
    while (ol_json_next(value, &it)) {
        if (out->delay_count == OL_RETRY_DELAYS)
            return fail_key(err, "delays", "at most 32");
        if (!read_duration(&it.value, &out->delays_us[out->delay_count++]))
            return fail_key(err, "delays", "each is a time like 30s, 5m or 1h");
    }
    return out->delay_count ? 0 : fail_key(err, "delays", "at least one is wanted");
}

static int read_policy(const struct ol_json *value, enum ol_retry_kind *kind, outlog_err *err)
{
    if (ol_json_equals(value, "exponential"))
        *kind = OL_RETRY_EXPONENTIAL;
    else if (ol_json_equals(value, "schedule"))
        *kind = OL_RETRY_SCHEDULE;
    else
        return fail_key(err, "policy", "exponential or schedule");
    return 0;
}

static int read_key(const struct ol_json_iter *it, struct ol_retry *out, outlog_err *err)
{
    double number;
    if (ol_json_equals(&it->key, "policy"))
        return read_policy(&it->value, &out->kind, err);
    if (ol_json_equals(&it->key, "delays"))
        return read_delays(&it->value, out, err);
    if (ol_json_equals(&it->key, "base"))
        return read_duration(&it->value, &out->base_us) && out->base_us > 0
                   ? 0
                   : fail_key(err, "base", "a time like 1s is wanted");
    if (ol_json_equals(&it->key, "max"))
        return read_duration(&it->value, &out->max_us) && out->max_us > 0
                   ? 0
                   : fail_key(err, "max", "a time like 5m is wanted");
    if (ol_json_equals(&it->key, "factor"))
        return read_number(&it->value, &out->factor) && out->factor >= 1 && out->factor <= 100
                   ? 0
                   : fail_key(err, "factor", "a number from 1 to 100 is wanted");
    if (ol_json_equals(&it->key, "jitter")) {
        out->has_jitter = true;
        return read_number(&it->value, &out->jitter) && out->jitter <= 1
                   ? 0
                   : fail_key(err, "jitter", "a number from 0 to 1 is wanted");
    }
    if (ol_json_equals(&it->key, "max_attempts")) {
        if (!read_number(&it->value, &number) || number < 1 || number > 1000 ||
            number != (double)(int)number)
            return fail_key(err, "max_attempts", "a whole number from 1 to 1000 is wanted");
        out->max_attempts = (int)number;
        return 0;
    }
    return ol_fail_at(err, OUTLOG_UNKNOWN_FIELD, "/retry", "retry: unknown key %.*s",
                      (int)(it->key.bytes < 60 ? it->key.bytes : 60), it->key.text);
}

int ol_retry_parse(const struct ol_json *object, struct ol_retry *out, outlog_err *err)
{
    struct ol_json_iter it = {0};
    *out = (struct ol_retry){0};
    if (object->type != OL_JSON_OBJECT)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/retry", "retry: an object is wanted");
    while (ol_json_next(object, &it))
        if (read_key(&it, out, err) < 0)
            return -1;
    bool is_exponential = out->base_us || out->max_us || out->factor > 0;
    if (out->kind == OL_RETRY_UNSET)
        out->kind = out->delay_count ? OL_RETRY_SCHEDULE
                    : is_exponential ? OL_RETRY_EXPONENTIAL
                                     : OL_RETRY_UNSET;
    if (out->kind == OL_RETRY_SCHEDULE && (is_exponential || out->delay_count == 0))
        return fail_key(err, "delays", "a schedule has delays, and no base, factor or max");
    if (out->kind == OL_RETRY_EXPONENTIAL && out->delay_count)
        return fail_key(err, "delays", "they belong to policy: schedule");
    return 0;
}

bool ol_retry_preset(const char *name, struct ol_retry *out)
{
    if (strcmp(name, "notification") != 0)
        return false;
    *out = notification_default;
    return true;
}

/* --- which policy, and its waits --- */

/* `layer` provides what `out` does not set yet. */
static void fill_missing(struct ol_retry *out, const struct ol_retry *layer)
{
    if (out->kind == OL_RETRY_UNSET && layer->kind == OL_RETRY_SCHEDULE) {
        out->kind = layer->kind;
        out->delay_count = layer->delay_count;
        memcpy(out->delays_us, layer->delays_us, sizeof out->delays_us);
    } else if (out->kind == OL_RETRY_UNSET) {
        out->kind = layer->kind;
    }
    if (out->base_us == 0)
        out->base_us = layer->base_us;
    if (out->max_us == 0)
        out->max_us = layer->max_us;
    if (!(out->factor > 0))
        out->factor = layer->factor;
    if (!out->has_jitter) {
        out->has_jitter = layer->has_jitter;
        out->jitter = layer->jitter;
    }
    if (out->max_attempts == 0)
        out->max_attempts = layer->max_attempts;
}

static bool is_text(const char *text, const char *wanted)
{
    return text && strcmp(text, wanted) == 0;
}

enum ol_retry_class ol_retry_classify(const char *aggregate_type, const char *content_type)
{
    return is_text(content_type, OL_NOTIFICATION_CONTENT_TYPE) ? OL_RETRY_NOTIFICATION
           : is_text(aggregate_type, "EFFECT")                 ? OL_RETRY_EFFECT
                                                               : OL_RETRY_MESSAGE;
}

static struct ol_retry find_default(const struct ol_retry_subject *message)
{
    struct ol_retry effect = exponential_default;
    size_t i = 0;
    if (message->class != OL_RETRY_EFFECT)
        return message->class == OL_RETRY_NOTIFICATION ? notification_default : message_default;
    while (effect_defaults[i].event_type &&
           strcmp(effect_defaults[i].event_type, message->event_type) != 0)
        i++;
    effect.base_us = effect_defaults[i].base_us;
    effect.max_attempts = effect_defaults[i].max_attempts;
    return effect;
}

void ol_retry_resolve(const struct ol_retry_subject *message, const struct ol_retry *type,
                      const struct ol_retry *destination, struct ol_retry *out)
{
    struct ol_retry last = find_default(message);
    *out = (struct ol_retry){.max_attempts = message->max_attempts};
    if (type)
        fill_missing(out, type);
    if (destination)
        fill_missing(out, destination);
    if (out->kind == OL_RETRY_SCHEDULE) // a schedule is applied exactly as written
        last = (struct ol_retry){.has_jitter = true, .max_attempts = (int)out->delay_count + 1};
    fill_missing(out, &last);
    if (out->kind == OL_RETRY_EXPONENTIAL)
        fill_missing(out, &exponential_default);
}

int64_t ol_retry_wait_us(const struct ol_retry *policy, int attempt, double chance,
                         int64_t retry_after_us)
{
    double wait;
    if (policy->kind == OL_RETRY_SCHEDULE) {
        size_t i = attempt < 1 ? 0 : (size_t)attempt - 1;
        if (i >= policy->delay_count)
            i = policy->delay_count - 1; // more attempts than delays: the last one repeats
        wait = (double)policy->delays_us[i];
    } else {
        wait = (double)policy->base_us;
        for (int i = 0; i < attempt && wait < (double)policy->max_us; i++)
            wait *= policy->factor;
        if (wait > (double)policy->max_us)
            wait = (double)policy->max_us;
    }
    int64_t wait_us = (int64_t)(wait + wait * policy->jitter * chance);
    if (retry_after_us > OL_RETRY_AFTER_MAX_US)
        retry_after_us = OL_RETRY_AFTER_MAX_US;
    return wait_us > retry_after_us ? wait_us : retry_after_us;
}

enum ol_retry_decision ol_retry_decide(const struct ol_retry *policy, bool at_most_once,
                                       int attempt, const struct outlog_outcome *outcome,
                                       double chance, int64_t *wait_us)
{
    *wait_us = 0;
    switch (outcome->kind) {
    case OUTLOG_PUBLISH_OK:
        return OL_DECISION_DONE;
    case OUTLOG_PUBLISH_RELEASED:
        if (outcome->is_unreached)
            *wait_us = ol_retry_wait_us(policy, 1, chance, outcome->retry_after_us);
        return OL_DECISION_RELEASE;
    case OUTLOG_PUBLISH_FAILED:
        if (outcome->is_permanent || (at_most_once && !outcome->surely_not_sent))
            return OL_DECISION_DEAD;
        break;
    case OUTLOG_PUBLISH_UNKNOWN:
        if (at_most_once)
            return OL_DECISION_DEAD;
        break;
    }
    if (attempt >= policy->max_attempts)
        return OL_DECISION_DEAD;
    *wait_us = ol_retry_wait_us(policy, attempt, chance, outcome->retry_after_us);
    return OL_DECISION_RETRY;
}
