/* filter.c: the filter goes over the fields of sql/schema/event.json that have `filter`. */
#include "log/filter.h"

#include "base/utf8.h"

#include <stdio.h>

static bool is_filter(int field)
{
    return ol_event_fields[field].filter != OL_FIELD_NONE;
}

static const char *read_text(const struct outlog_filter *filter, int field)
{
    return ol_field_text(filter, ol_event_fields[field].filter);
}

static int find_field(const struct ol_json *key)
{
    int field = 0;
    while (field < OL_EVENT_FIELD_COUNT &&
           !(is_filter(field) && ol_json_equals(key, ol_event_fields[field].name)))
        field++;
    return field;
}

int ol_filter_check(const struct outlog_filter *filter, outlog_err *err)
{
    char pointer[64];
    if (filter->org_id && filter->is_infrastructure)
        return ol_fail(err, OUTLOG_INVALID_FIELD, "infrastructure events have no org_id");
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const char *text = is_filter(i) ? read_text(filter, i) : NULL;
        if (!text || ol_utf8_is_valid(text, strlen(text)))
            continue;
        snprintf(pointer, sizeof pointer, "/%s", ol_event_fields[i].name);
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, pointer, "%s is not UTF-8", pointer + 1);
    }
    return 0;
}

/* --- JSON --- */

void ol_filter_write(const struct outlog_filter *filter, struct ol_buf *out)
{
    const char *comma = "";
    ol_buf_char(out, '{');
    if (filter->is_infrastructure) {
        ol_buf_text(out, "\"org_id\":null");
        comma = ",";
    }
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const char *text = is_filter(i) ? read_text(filter, i) : NULL;
        if (!text)
            continue;
        ol_buf_print(out, "%s\"%s\":", comma, ol_event_fields[i].name);
        ol_buf_json_text(out, text);
        comma = ",";
    }
    ol_buf_char(out, '}');
}

int ol_filter_read(const char *json, struct ol_arena *arena, struct outlog_filter *out,
                   outlog_err *err)
{
    struct ol_json whole;
    struct ol_json_iter it = {0};
    *out = (struct outlog_filter){0};
    if (ol_json_parse(json, strlen(json), &whole, err) < 0)
        return -1;
    if (whole.type != OL_JSON_OBJECT) // written by plain SQL; an empty filter would match all
        return ol_fail(err, OUTLOG_INVALID_FIELD, "filters must be a JSON object");
    while (ol_json_next(&whole, &it)) {
        int field = find_field(&it.key);
        if (field == OL_EVENT_FIELD_COUNT)
            return ol_fail(err, OUTLOG_UNKNOWN_FIELD, "filters: unknown field %.*s",
                           (int)it.key.bytes, it.key.text);
        if (field == OL_EVENT_ORG_ID && it.value.type == OL_JSON_NULL) {
            out->is_infrastructure = true;
            continue;
        }
        const char *text = ol_json_string(&it.value, arena, NULL);
        if (!text)
            return ol_fail(err, OUTLOG_INVALID_FIELD, "filters: %s must be a string",
                           ol_event_fields[field].name);
        ol_field_set_text(out, ol_event_fields[field].filter, text);
    }
    return 0;
}

/* --- queries --- */

static struct ol_value time_or_absent(int64_t time_us)
{
    return time_us ? ol_value_time(time_us) : ol_value_absent();
}

void ol_filter_params(const struct outlog_filter *filter, struct ol_value *params)
{
    // Narrower than any org: the org is then only checked, see events_read.
    bool is_narrow = filter->correlation_id || filter->aggregate_id;
    const char *org_key = filter->is_infrastructure ? "" : filter->org_id;

    *params++ = filter->is_infrastructure && !is_narrow ? ol_value_int(1) : ol_value_absent();
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        if (is_filter(i))
            *params++ =
                ol_value_optional(i == OL_EVENT_ORG_ID && is_narrow ? NULL : read_text(filter, i));
    *params++ = time_or_absent(filter->since);
    *params++ = time_or_absent(filter->until);
    *params = ol_value_optional(is_narrow ? org_key : NULL);
}

/* --- events in memory --- */

bool ol_filter_matches(const struct outlog_filter *filter, const struct outlog_event *event)
{
    if (filter->is_infrastructure && event->org_id)
        return false;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const char *wanted = is_filter(i) ? read_text(filter, i) : NULL;
        const char *text = wanted ? ol_field_text(event, ol_event_fields[i].stored) : NULL;
        if (wanted && (!text || strcmp(wanted, text) != 0))
            return false;
    }
    return (!filter->since || event->occurred_at >= filter->since) &&
           (!filter->until || event->occurred_at < filter->until);
}
