/* policy.c: reads the settings that `outlog apply` stored. They were checked then; a value that
 * cannot be read here is left out. */
#include "relay/policy.h"

#include "base/duration.h"

#include <stdlib.h>
#include <string.h>

#define DAY_US (24 * 3600 * INT64_C(1000000))

void ol_policy_clear(struct ol_policy *policy)
{
    for (size_t i = 0; i < policy->type_count; i++)
        free(policy->types[i].event_type);
    free(policy->types);
    free(policy->tracing.endpoint);
    free(policy->tracing.headers);
    *policy = (struct ol_policy){0};
}

/* `types.SEND_EMAIL` is {"retry": {…}}. */
static void read_type(struct ol_policy *policy, const char *name, const struct ol_json *value)
{
    struct ol_json retry = ol_json_get(value, "retry");
    struct ol_policy_type type = {0};
    struct ol_policy_type *wider = realloc(policy->types, (policy->type_count + 1) * sizeof *wider);
    if (!wider)
        return;
    policy->types = wider;
    if (ol_retry_parse(&retry, &type.retry, NULL) == 0 && (type.event_type = strdup(name)))
        policy->types[policy->type_count++] = type;
}

/* "48h" in microseconds; 0 when it is not a duration, such as "forever". */
static int64_t read_duration(const struct ol_json *value)
{
    struct ol_arena arena = {0};
    const char *text = ol_json_string(value, &arena, NULL);
    int64_t us;
    if (!text || ol_duration_parse(text, &us) < 0)
        us = 0;
    ol_arena_clear(&arena);
    return us;
}

static int64_t read_count(const struct ol_json *value)
{
    int64_t number;
    return ol_json_int(value, &number) ? number : 0;
}

static char *read_text(const struct ol_json *value)
{
    struct ol_arena arena = {0};
    const char *text = ol_json_string(value, &arena, NULL);
    char *copy = text ? strdup(text) : NULL;
    ol_arena_clear(&arena);
    return copy;
}

static void replace_text(char **field, char *text)
{
    free(*field);
    *field = text;
}

static void read_setting(struct ol_policy *policy, const char *key, const struct ol_json *value)
{
    if (strncmp(key, "types.", 6) == 0) {
        read_type(policy, key + 6, value);
    } else if (strcmp(key, "retention.idempotency") == 0) {
        int64_t us = read_duration(value);
        policy->idempotency_us = us > DAY_US ? us : DAY_US;
    } else if (strcmp(key, "retention.messages") == 0) {
        policy->messages_us = read_duration(value);
    } else if (strcmp(key, "retention.notices") == 0) {
        policy->notices_us = read_duration(value);
    } else if (strcmp(key, "relay.lease") == 0) {
        policy->relay.lease_us = read_duration(value);
    } else if (strcmp(key, "relay.poll") == 0) {
        policy->relay.poll_us = read_duration(value);
    } else if (strcmp(key, "relay.patience") == 0) {
        policy->relay.patience_us = read_duration(value);
    } else if (strcmp(key, "relay.batch") == 0) {
        policy->relay.batch = read_count(value);
    } else if (strcmp(key, "relay.threads") == 0) {
        policy->relay.threads = read_count(value);
    } else if (strcmp(key, "relay.parked") == 0) {
        policy->relay.parked = read_count(value);
    } else if (strcmp(key, "tracing.endpoint") == 0) {
        replace_text(&policy->tracing.endpoint, read_text(value));
    } else if (strcmp(key, "tracing.headers") == 0) {
        replace_text(&policy->tracing.headers, strndup(value->text, value->bytes));
    } else if (strcmp(key, "relay.wakeup") == 0) {
        policy->relay.notify = value->bytes == 8 && memcmp(value->text, "\"notify\"", 8) == 0;
    }
}

static int load_settings(struct ol_policy *policy, struct ol_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_json value;
    size_t bytes;
    int more;

    if (ol_store_query(conn, OL_Q_SETTING_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *text = ol_rows_text(&rows, 1, &bytes), *key = ol_rows_text(&rows, 0, NULL);
        if (text && ol_json_parse(text, bytes, &value, NULL) == 0)
            read_setting(policy, key, &value);
    }
    ol_rows_end(&rows);
    return more;
}

int ol_policy_refresh(struct ol_policy *policy, struct ol_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    int64_t count = 0, at = 0;

    if (ol_store_query(conn, OL_Q_SETTING_STAMP, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        count = ol_rows_int(&rows, 0);
        at = ol_rows_is_null(&rows, 1) ? 0 : ol_rows_time(&rows, 1);
    }
    ol_rows_end(&rows);
    if (got < 0)
        return -1;
    if (policy->is_loaded && count == policy->stamp_count && at == policy->stamp_at)
        return 0;
    struct ol_policy fresh = {.idempotency_us = DAY_US,
                              .stamp_count = count,
                              .stamp_at = at,
                              .is_loaded = true};
    if (load_settings(&fresh, conn, err) < 0) {
        ol_policy_clear(&fresh);
        return -1;
    }
    ol_policy_clear(policy);
    *policy = fresh;
    return 0;
}

const struct ol_retry *ol_policy_retry(const struct ol_policy *policy, const char *event_type)
{
    for (size_t i = 0; i < policy->type_count; i++)
        if (strcmp(policy->types[i].event_type, event_type) == 0)
            return &policy->types[i].retry;
    return NULL;
}
