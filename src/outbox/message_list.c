/* message_list.c: listing and finding messages.
 *
 * Most messages have no row for their state, so a list walks over the lanes, each by its own
 * numbers from the newest down, and merges them by the time of creation. `next_after` holds how far
 * each lane was read: "0.812-1.790". */
#include "outbox/message_list.h"

#include "base/buf.h"
#include "base/json/json.h"
#include "log/read.h"
#include "outbox/retry.h"
#include "store/message_fields.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_ROWS_MAX = 10000, LIST_CHUNK = 100, TRACE_MESSAGES_MAX = 1000 };

/* The clocks of writers may differ by this much before a list by time misses a message. */
#define SLACK_US (INT64_C(600) * 1000000)

/* --- pages --- */

static struct ol_arena *reset_page(struct outlog_message_page *page)
{
    if (!page->memory)
        page->memory = calloc(1, sizeof(struct ol_arena));
    else
        ol_arena_reset(page->memory);
    page->messages = NULL;
    page->count = 0;
    page->next_after = NULL;
    return page->memory;
}

void outlog_message_page_clear(struct outlog_message_page *page)
{
    if (page->memory)
        ol_arena_clear(page->memory);
    free(page->memory);
    *page = (struct outlog_message_page){0};
}

/* --- lanes and locations --- */

int ol_message_list_lanes(struct ol_conn *conn, int lanes[OL_LANE_MAX], size_t *count,
                          outlog_err *err)
{
    struct ol_rows rows;
    int more;
    *count = 0;
    if (ol_store_query(conn, OL_Q_LANE_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < OL_LANE_MAX)
        lanes[(*count)++] = (int)ol_rows_int(&rows, 0);
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

int ol_message_list_locate(struct ol_conn *conn, const char *const *ids, size_t count,
                           struct ol_arena *arena, struct ol_message_location **out, size_t *found,
                           outlog_err *err)
{
    struct ol_buf json = {0};
    struct ol_rows rows;
    char id[OL_UUID_TEXT];
    int more = -1;

    *found = 0;
    *out = ol_arena_array(arena, count ? count : 1, sizeof **out);
    for (size_t i = 0; i < count; i++) {
        if (!ids[i] || !ol_uuid_parse(ids[i], id)) {
            ol_fail(err, OUTLOG_INVALID_FIELD, "'%.60s' is no message id; it is a UUID",
                    ids[i] ? ids[i] : "");
            goto out;
        }
        ol_buf_print(&json, "%s\"%s\"", i ? "," : "[", id);
    }
    ol_buf_text(&json, count ? "]" : "[]");
    if (!*out || json.failed) {
        ol_no_memory(err);
        goto out;
    }
    if (ol_store_query(conn, OL_Q_MESSAGE_LOCATIONS, OL_PARAMS(ol_value_text(json.data)), &rows,
                       err) < 0)
        goto out;
    while ((more = ol_rows_next(&rows, err)) > 0 && *found < count) {
        struct ol_message_location *location = &(*out)[(*found)++];
        ol_rows_uuid(&rows, 0, location->event_id);
        location->lane = (int)ol_rows_int(&rows, 1);
        location->seq = ol_rows_int(&rows, 2);
    }
    ol_rows_end(&rows);
out:
    ol_buf_clear(&json);
    return more < 0 ? -1 : 0;
}

/* --- a message --- */

static const int shown[OL_MESSAGE_SHOWN_COUNT] = {OL_MESSAGE_SHOWN_IDS};

/* The columns of message_rows after those that are shown. */
enum message_row_column {
    ROW_LANE = OL_MESSAGE_SHOWN_COUNT,
    ROW_SEQ,
    ROW_HELD,
    ROW_IS_REPLAY,
    ROW_AT_MOST_ONCE,
    ROW_IS_PARKED,
    ROW_DESTINATION_SETTINGS,
    ROW_TYPE_SETTINGS,
    ROW_PAYLOAD,
    ROW_PAYLOAD_BYTES
};

static int64_t time_or_0(const struct ol_rows *rows, int column)
{
    return ol_rows_is_null(rows, column) ? 0 : ol_rows_time(rows, column);
}

/* Is the outcome of the last attempt unknown? */
static bool is_unknown(const struct outlog_message *view)
{
    struct ol_json details, outcome;
    if (strcmp(view->state, "DEAD") != 0 || !view->at_most_once)
        return false;
    if (view->last_error && strncmp(view->last_error, "outcome unknown", 15) == 0)
        return true;
    if (!view->error_details ||
        ol_json_parse(view->error_details, strlen(view->error_details), &details, NULL) < 0)
        return false;
    outcome = ol_json_get(&details, "outcome");
    return ol_json_equals(&outcome, "unknown");
}

static void read_field(const struct ol_rows *rows, int column, const struct ol_field *field,
                       struct ol_arena *arena, struct outlog_message *out, bool *failed)
{
    char *at = (char *)out + field->stored;
    int64_t time;
    int number;
    switch (field->kind) {
    case OL_FIELD_UUID:
        if (!ol_rows_is_null(rows, column))
            ol_rows_uuid(rows, column, at);
        break;
    case OL_FIELD_COUNT:
        number = ol_rows_is_null(rows, column) ? 0 : (int)ol_rows_int(rows, column);
        memcpy(at, &number, sizeof number);
        break;
    case OL_FIELD_TIME:
        time = time_or_0(rows, column);
        memcpy(at, &time, sizeof time);
        break;
    default:
        ol_field_set_text(out, field->stored, ol_rows_copy(rows, column, arena, failed));
    }
}

/* {"retry": {…}} of a destination or a type; one that cannot be read counts as none. */
static void read_retry(const struct ol_rows *rows, int column, struct ol_retry *out)
{
    struct ol_json settings, retry, preset;
    struct ol_arena arena = {0};
    size_t bytes;
    const char *text = ol_rows_text(rows, column, &bytes);
    *out = (struct ol_retry){0};
    if (!text || ol_json_parse(text, bytes, &settings, NULL) < 0)
        return;
    retry = ol_json_get(&settings, "retry");
    preset = ol_json_get(&settings, "preset");
    if (retry.type == OL_JSON_OBJECT && ol_retry_parse(&retry, out, NULL) < 0)
        *out = (struct ol_retry){0};
    const char *name = ol_json_string(&preset, &arena, NULL);
    struct ol_retry known;
    if (name && out->kind == OL_RETRY_UNSET && ol_retry_preset(name, &known)) {
        if (out->max_attempts)
            known.max_attempts = out->max_attempts;
        *out = known;
    }
    ol_arena_clear(&arena);
}

/* How many attempts the message has: the relay decides by the same rule. */
static int find_max_attempts(const struct ol_rows *rows, const struct outlog_message *message)
{
    struct ol_retry type, destination, policy;
    if (message->max_attempts)
        return message->max_attempts;
    read_retry(rows, ROW_TYPE_SETTINGS, &type);
    read_retry(rows, ROW_DESTINATION_SETTINGS, &destination);
    struct ol_retry_subject subject = {.class = ol_retry_classify(message->aggregate_type,
                                                                  message->content_type),
                                       .event_type = message->event_type};
    ol_retry_resolve(&subject, &type, &destination, &policy);
    return policy.max_attempts;
}

static bool read_row(const struct ol_rows *rows, bool with_payload, struct ol_arena *arena,
                     struct ol_message_state *out)
{
    bool failed = false;
    struct outlog_message *v = &out->view;

    for (int i = 0; i < OL_MESSAGE_SHOWN_COUNT; i++)
        read_field(rows, i, &ol_message_fields[shown[i]], arena, v, &failed);
    if (with_payload) {
        int column = ol_rows_is_null(rows, ROW_PAYLOAD) ? ROW_PAYLOAD_BYTES : ROW_PAYLOAD;
        ol_rows_text(rows, column, &v->payload_bytes);
        v->payload = ol_rows_copy(rows, column, arena, &failed);
    }
    v->at_most_once = ol_rows_int(rows, ROW_AT_MOST_ONCE) != 0;
    v->is_replay = ol_rows_int(rows, ROW_IS_REPLAY) != 0;
    v->is_held = ol_rows_int(rows, ROW_HELD) != 0;
    out->lane = (int)ol_rows_int(rows, ROW_LANE);
    out->seq = ol_rows_int(rows, ROW_SEQ);
    out->is_parked = ol_rows_int(rows, ROW_IS_PARKED) != 0;
    if (failed)
        return false;
    v->max_attempts = find_max_attempts(rows, v);
    out->is_unknown = is_unknown(v);
    return true;
}

int ol_message_list_states(struct ol_conn *conn, const struct ol_message_location *locations,
                           size_t count, bool with_payload, struct ol_arena *arena,
                           struct ol_message_state **out, size_t *found, outlog_err *err)
{
    struct ol_buf json = {0};
    struct ol_rows rows;
    int more = -1;

    *found = 0;
    *out = ol_arena_array(arena, count ? count : 1, sizeof **out);
    for (size_t i = 0; i < count; i++)
        ol_buf_print(&json, "%s[%d,%lld]", i ? "," : "[", locations[i].lane,
                     (long long)locations[i].seq);
    ol_buf_text(&json, count ? "]" : "[]");
    if (!*out || json.failed) {
        ol_no_memory(err);
        goto out;
    }
    if (ol_store_query(conn, OL_Q_MESSAGE_ROWS,
                       OL_PARAMS(ol_value_text(json.data),
                                 with_payload ? ol_value_int(1) : ol_value_absent()),
                       &rows, err) < 0)
        goto out;
    while ((more = ol_rows_next(&rows, err)) > 0 && *found < count)
        if (!read_row(&rows, with_payload, arena, &(*out)[(*found)++])) {
            more = ol_no_memory(err);
            break;
        }
    ol_rows_end(&rows);
out:
    ol_buf_clear(&json);
    return more < 0 ? -1 : 0;
}

/* --- times as numbers --- */

int ol_message_list_seq_at(struct ol_conn *conn, int lane, int64_t time, int64_t *seq,
                           outlog_err *err)
{
    int64_t low = 1, high; // the answer is in [low, high]
    if (ol_store_number(conn, OL_Q_LANE_NEWEST, OL_PARAMS(ol_value_int(lane)), &high, err) < 0)
        return -1;
    high++;
    while (low < high) {
        int64_t middle = low + (high - low) / 2, at = 0, found = 0;
        struct ol_rows rows;
        if (ol_store_query(conn, OL_Q_MESSAGE_NEAR,
                           OL_PARAMS(ol_value_int(lane), ol_value_int(middle)), &rows, err) < 0)
            return -1;
        int got = ol_rows_next(&rows, err);
        if (got > 0) {
            found = ol_rows_int(&rows, 0);
            at = ol_rows_time(&rows, 1);
        }
        ol_rows_end(&rows);
        if (got < 0)
            return -1;
        if (!got || at >= time - SLACK_US)
            high = middle;
        else
            low = found + 1;
    }
    *seq = low;
    return 0;
}

/* --- lists --- */

struct list_bounds {
    int lanes[OL_LANE_MAX];
    int64_t low[OL_LANE_MAX], high[OL_LANE_MAX]; /* [low, high) */
    size_t count;
};

static int parse_after(struct list_bounds *bounds, const char *after, outlog_err *err)
{
    while (after && *after) {
        char *end;
        long lane = strtol(after, &end, 10);
        if (end == after || *end != '.')
            break;
        after = end + 1;
        long long seq = strtoll(after, &end, 10);
        if (end == after || (*end && *end != '-'))
            break;
        for (size_t i = 0; i < bounds->count; i++)
            if (bounds->lanes[i] == lane && seq < bounds->high[i])
                bounds->high[i] = seq;
        after = *end ? end + 1 : end;
    }
    return after && *after ? ol_fail_at(err, OUTLOG_INVALID_FIELD, "/after",
                                        "after must be the next_after of another page")
                           : 0;
}

static int find_bounds(struct ol_conn *conn, const struct outlog_message_filter *filter,
                       const char *after, struct list_bounds *out, outlog_err *err)
{
    if (ol_message_list_lanes(conn, out->lanes, &out->count, err) < 0)
        return -1;
    for (size_t i = 0; i < out->count; i++) {
        out->low[i] = 0;
        out->high[i] = INT64_MAX;
        if (filter->since &&
            ol_message_list_seq_at(conn, out->lanes[i], filter->since, &out->low[i], err) < 0)
            return -1;
        if (filter->until && // past it by as much as the other end is before it
            ol_message_list_seq_at(conn, out->lanes[i], filter->until + 2 * SLACK_US, &out->high[i],
                                   err) < 0)
            return -1;
    }
    return parse_after(out, after, err);
}

static const char *write_after(const struct list_bounds *bounds, struct ol_arena *arena)
{
    struct ol_buf out = {0};
    for (size_t i = 0; i < bounds->count; i++)
        if (bounds->high[i] != INT64_MAX)
            ol_buf_print(&out, "%s%d.%lld", out.bytes ? "-" : "", bounds->lanes[i],
                         (long long)bounds->high[i]);
    const char *copy = out.bytes ? ol_arena_copy(arena, out.data, out.bytes) : NULL;
    ol_buf_clear(&out);
    return copy;
}

static struct ol_value make_time(int64_t time)
{
    return time ? ol_value_time(time) : ol_value_absent();
}

static int query_list(struct ol_conn *conn, const struct outlog_message_filter *filter,
                      const char *bounds, size_t limit, struct ol_rows *rows, outlog_err *err)
{
    const char *state = filter->is_retrying ? "retrying" : filter->state ? filter->state : "";
    struct ol_value which = ol_value_text(bounds), rows_max = ol_value_int((int64_t)limit),
                    destination = ol_value_optional(filter->destination),
                    type = ol_value_optional(filter->event_type), since = make_time(filter->since),
                    until = make_time(filter->until);
    bool retries = strcmp(state, "retrying") == 0;
    if (retries || strcmp(state, "DEAD") == 0)
        return ol_store_query(conn, OL_Q_MESSAGES_PARKED,
                              OL_PARAMS(which, ol_value_text(retries ? "PENDING" : "DEAD"),
                                        rows_max, destination,
                                        retries ? ol_value_int(1) : ol_value_absent(), type, since,
                                        until),
                              rows, err);
    enum ol_query_id query = strcmp(state, "PENDING") == 0     ? OL_Q_MESSAGES_PENDING
                             : strcmp(state, "CLAIMED") == 0   ? OL_Q_MESSAGES_CLAIMED
                             : strcmp(state, "PUBLISHED") == 0 ? OL_Q_MESSAGES_PUBLISHED
                                                               : OL_Q_MESSAGES_ALL;
    return ol_store_query(conn, query, OL_PARAMS(which, rows_max, destination, type, since, until),
                          rows, err);
}

/* Find the messages of a page, the newest first. */
static int find_page(struct ol_conn *conn, const struct outlog_message_filter *filter,
                     struct list_bounds *bounds, size_t limit,
                     struct ol_message_location *locations, size_t *count, outlog_err *err)
{
    struct ol_buf json = {0};
    struct ol_rows rows;
    int more = -1;

    for (size_t i = 0; i < bounds->count; i++)
        ol_buf_print(&json, "%s[%d,%lld,%lld]", i ? "," : "[", bounds->lanes[i],
                     (long long)bounds->low[i], (long long)bounds->high[i]);
    ol_buf_char(&json, ']');
    if (json.failed) {
        ol_no_memory(err);
        goto out;
    }
    if (query_list(conn, filter, json.data, limit, &rows, err) < 0)
        goto out;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < limit) {
        struct ol_message_location *location = &locations[(*count)++];
        location->lane = (int)ol_rows_int(&rows, 0);
        location->seq = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
out:
    ol_buf_clear(&json);
    return more < 0 ? -1 : 0;
}

/* The next page continues below this one. */
static void move_bounds(struct list_bounds *bounds, const struct ol_message_location *locations,
                        size_t count)
{
    for (size_t n = 0; n < count; n++)
        for (size_t i = 0; i < bounds->count; i++)
            if (bounds->lanes[i] == locations[n].lane && locations[n].seq < bounds->high[i])
                bounds->high[i] = locations[n].seq;
}

static size_t text_bytes(const char *text)
{
    return text ? strlen(text) : 0;
}

/* The parts of a message that may be long when it is shown without its payload. */
static size_t count_bytes(const struct outlog_message *view)
{
    return text_bytes(view->headers) + text_bytes(view->metadata) + text_bytes(view->result) +
           text_bytes(view->error_details) + text_bytes(view->last_error);
}

/* Read the messages at these locations, or as many of the first ones as a page holds; *seen is
 * their number. */
static int read_page(outlog *log, const struct outlog_message_filter *filter,
                     const struct ol_message_location *locations, size_t count,
                     struct ol_arena *arena, struct outlog_message_page *page, size_t *seen,
                     outlog_err *err)
{
    struct ol_message_state *messages;
    size_t found, bytes = 0;

    if (!(page->messages = ol_arena_array(arena, count ? count : 1, sizeof *page->messages)))
        return ol_no_memory(err);
    for (*seen = 0; *seen < count && bytes < OL_READ_PAGE_BYTES;) {
        size_t some = count - *seen < LIST_CHUNK ? count - *seen : LIST_CHUNK;
        if (ol_message_list_states(log->conn, locations + *seen, some, false, arena, &messages,
                                   &found, err) < 0)
            return -1;
        size_t end = *seen + some;
        for (size_t i = 0; i < found && bytes < OL_READ_PAGE_BYTES; i++) {
            const struct outlog_message *view = &messages[i].view;
            while (locations[*seen].lane != messages[i].lane ||
                   locations[*seen].seq != messages[i].seq)
                ++*seen; // it was removed
            ++*seen;
            bytes += count_bytes(view);
            if (!filter->state || strcmp(filter->state, view->state) == 0)
                page->messages[page->count++] =
                    *view; // otherwise its state has changed between the two queries
        }
        if (bytes < OL_READ_PAGE_BYTES)
            *seen = end;
    }
    return 0;
}

static int check_filter(const struct outlog_message_filter *filter, size_t limit, outlog_err *err)
{
    static const char *const states[] = {"PENDING", "CLAIMED", "PUBLISHED", "DEAD"};
    bool is_known = !filter->state;
    if (limit < 1 || limit > LIST_ROWS_MAX)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/limit", "limit is 1 to %d", LIST_ROWS_MAX);
    for (int i = 0; i < 4 && !is_known; i++)
        is_known = strcmp(filter->state, states[i]) == 0;
    if (!is_known)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/state",
                          "state is PENDING, CLAIMED, PUBLISHED or DEAD, not '%.40s'",
                          filter->state);
    if (filter->is_retrying && filter->state && strcmp(filter->state, "PENDING") != 0)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/retrying",
                          "messages being retried are PENDING, not %s", filter->state);
    return 0;
}

int outlog_messages(outlog *log, const struct outlog_message_filter *filter, const char *after,
                    size_t limit, struct outlog_message_page *page, outlog_err *err)
{
    static const struct outlog_message_filter all;
    struct ol_arena *arena = reset_page(page);
    size_t count = 0, seen = 0;

    if (!filter)
        filter = &all;
    if (!arena)
        return ol_no_memory(err);
    if (check_filter(filter, limit, err) < 0 || ol_log_ready(log, err) < 0)
        return -1;
    struct list_bounds *bounds = ol_arena_alloc(arena, sizeof *bounds);
    struct ol_message_location *locations = ol_arena_array(arena, limit, sizeof *locations);
    if (!bounds || !locations)
        return ol_no_memory(err);
    if (find_bounds(log->conn, filter, after, bounds, err) < 0 ||
        find_page(log->conn, filter, bounds, limit, locations, &count, err) < 0 ||
        read_page(log, filter, locations, count, arena, page, &seen, err) < 0)
        return -1;
    move_bounds(bounds, locations, seen);
    page->next_after = count == limit || seen < count ? write_after(bounds, arena) : NULL;
    return 0;
}

int ol_message_list_trace(outlog *log, const char *correlation_id, struct outlog_message_page *page,
                          outlog_err *err)
{
    struct ol_arena *arena = reset_page(page);
    struct ol_message_location *locations =
        arena ? ol_arena_array(arena, TRACE_MESSAGES_MAX, sizeof *locations) : NULL;
    struct ol_message_state *messages;
    struct ol_rows rows;
    size_t count = 0, found;
    int more;

    if (!locations)
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_MESSAGES_OF_TRACE,
                       OL_PARAMS(ol_value_text(correlation_id), ol_value_int(TRACE_MESSAGES_MAX)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && count < TRACE_MESSAGES_MAX) {
        locations[count].lane = (int)ol_rows_int(&rows, 0);
        locations[count++].seq = ol_rows_int(&rows, 1);
    }
    ol_rows_end(&rows);
    if (more < 0 || ol_message_list_states(log->conn, locations, count, false, arena, &messages,
                                           &found, err) < 0)
        return -1;
    if (!(page->messages = ol_arena_array(arena, found ? found : 1, sizeof *page->messages)))
        return ol_no_memory(err);
    for (; page->count < found; page->count++)
        page->messages[page->count] = messages[page->count].view;
    return 0;
}

/* --- one message --- */

static int read_attempts(struct ol_conn *conn, const struct ol_message_state *message,
                         struct ol_arena *arena, struct outlog_message *out, outlog_err *err)
{
    struct ol_rows rows;
    struct outlog_attempt *all = NULL;
    size_t count = 0, capacity = 0;
    bool failed = false;
    int more;

    if (ol_store_query(conn, OL_Q_ATTEMPT_LIST,
                       OL_PARAMS(ol_value_int(message->lane), ol_value_int(message->seq)), &rows,
                       err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        if (count == capacity) {
            capacity = capacity ? capacity * 2 : 8;
            struct outlog_attempt *wider = ol_arena_array(arena, capacity, sizeof *wider);
            if (!wider) {
                failed = true;
                break;
            }
            if (count)
                memcpy(wider, all, count * sizeof *wider);
            all = wider;
        }
        all[count++] = (struct outlog_attempt){
            .attempt = (int)ol_rows_int(&rows, 0),
            .started_at = ol_rows_time(&rows, 1),
            .duration_ms = ol_rows_int(&rows, 2),
            .outcome = ol_rows_copy(&rows, 3, arena, &failed),
            .status = ol_rows_is_null(&rows, 4) ? 0 : (int)ol_rows_int(&rows, 4),
            .permanent = ol_rows_int(&rows, 5) != 0,
            .response = ol_rows_copy(&rows, 6, arena, &failed),
            .error = ol_rows_copy(&rows, 7, arena, &failed),
            .claimed_by = ol_rows_copy(&rows, 8, arena, &failed),
        };
    }
    ol_rows_end(&rows);
    out->attempts_log = all;
    out->attempt_count = count;
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

/* R4: if no row was written, the batch is the record of the only attempt. */
static int read_batch_attempt(struct ol_conn *conn, const struct ol_message_state *message,
                              struct ol_arena *arena, struct outlog_message *out, outlog_err *err)
{
    struct ol_rows rows;
    bool failed = false;
    struct outlog_attempt *attempt = ol_arena_alloc(arena, sizeof *attempt);
    if (!attempt)
        return ol_no_memory(err);
    if (ol_store_query(conn, OL_Q_ATTEMPT_OF_BATCH,
                       OL_PARAMS(ol_value_int(message->lane), ol_value_int(message->seq)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        int64_t claimed_at = ol_rows_time(&rows, 0), published_at = ol_rows_time(&rows, 1);
        *attempt = (struct outlog_attempt){.attempt = 1,
                                           .started_at = claimed_at,
                                           .duration_ms = (published_at - claimed_at) / 1000,
                                           .outcome = "ok",
                                           .claimed_by = ol_rows_copy(&rows, 2, arena, &failed)};
        out->attempts_log = attempt;
        out->attempt_count = 1;
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : got < 0 ? -1 : 0;
}

int outlog_message_get(outlog *log, const char *event_id, struct outlog_message_page *page,
                       outlog_err *err)
{
    struct ol_arena *arena = reset_page(page);
    struct ol_message_location *locations;
    struct ol_message_state *messages;
    size_t count, found = 0;

    if (!arena)
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 ||
        ol_message_list_locate(log->conn, &event_id, 1, arena, &locations, &count, err) < 0 ||
        ol_message_list_states(log->conn, locations, count, true, arena, &messages, &found, err) <
            0)
        return -1;
    if (!found)
        return ol_fail(err, OUTLOG_NOT_FOUND, "there is no message %.60s", event_id);
    struct outlog_message *view = &messages->view;
    if (read_attempts(log->conn, messages, arena, view, err) < 0)
        return -1;
    if (!view->attempt_count && !messages->is_parked && strcmp(view->state, "PUBLISHED") == 0 &&
        read_batch_attempt(log->conn, messages, arena, view, err) < 0)
        return -1;
    page->messages = view;
    page->count = 1;
    return 0;
}
