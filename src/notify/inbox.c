/* inbox.c: the queries of notices, preferences and suppressions, and their JSON. */
#include "notify/inbox.h"

#include "base/timestamp.h"
#include "base/uuid.h"
#include "log/audit.h"
#include "log/log.h"
#include "log/read.h"
#include "publish/mail/mime.h"

#include <stdio.h>
#include <string.h>

enum {
    INBOX_UNREAD_MAX = 100,
    INBOX_PAGE_MAX = 1000,
    INBOX_PAGE_BYTES = 4 * 1024 * 1024,
    INBOX_USER_BYTES = 320
};

int ol_inbox_check_user(const char *user_id, outlog_err *err)
{
    size_t bytes = strlen(user_id);
    return bytes >= 1 && bytes <= INBOX_USER_BYTES
               ? 0
               : ol_fail_at(err, OUTLOG_INVALID_FIELD, "/user_id", "user_id has 1 to %d bytes",
                            INBOX_USER_BYTES);
}

/* --- notices --- */

/* The columns of every query of notices. */
enum {
    NOTICE_ID,
    NOTICE_ORG_ID,
    NOTICE_USER_ID,
    NOTICE_TEMPLATE_VERSION = 5,
    NOTICE_SUBJECT = 11,
    NOTICE_CREATED_AT = 14,
    NOTICE_READ_AT = 15
};

/* A store that returns complete results counts the bytes itself, and ends its result at the
 * limit. */
static struct ol_value limit_bytes(const struct ol_conn *conn, size_t bytes)
{
    return conn->store->answers_whole ? ol_value_int((int64_t)bytes) : ol_value_absent();
}

static size_t count_bytes(const struct ol_rows *rows)
{
    size_t all = 0, bytes;
    for (int i = NOTICE_SUBJECT; i < NOTICE_CREATED_AT; i++) {
        ol_rows_text(rows, i, &bytes);
        all += bytes;
    }
    return all;
}

static void write_notice(const struct ol_rows *rows, struct ol_buf *out)
{
    static const char *const names[] = {"id",           "org_id",         "user_id",
                                        "category",     "template",       "template_version",
                                        "event_type",   "event_id",       "aggregate_type",
                                        "aggregate_id", "correlation_id", "subject",
                                        "body_text",    "body_html"};
    for (int i = 0; i < NOTICE_CREATED_AT; i++) {
        char uuid[OL_UUID_TEXT] = "";
        ol_buf_print(out, "%c\"%s\":", i ? ',' : '{', names[i]);
        if (i == NOTICE_TEMPLATE_VERSION) {
            ol_buf_print(out, "%lld", (long long)ol_rows_int(rows, i));
        } else if (i == NOTICE_ID || i == 7) {
            ol_rows_uuid(rows, i, uuid);
            ol_buf_json_text(out, *uuid ? uuid : NULL);
        } else {
            ol_buf_json_text(out, ol_rows_text(rows, i, NULL));
        }
    }
    ol_buf_text(out, ",\"created_at\":");
    ol_buf_json_time(out, ol_rows_time(rows, NOTICE_CREATED_AT));
    ol_buf_text(out, ",\"read_at\":");
    ol_buf_json_time(out, ol_rows_time(rows, NOTICE_READ_AT));
    ol_buf_char(out, '}');
}

/* "TIME ID": the end of the last page. */
static int parse_after(const char *after, char time[OL_TIMESTAMP_TEXT], char id[OL_UUID_TEXT],
                       outlog_err *err)
{
    const char *space = strchr(after, ' ');
    int64_t parsed;
    if (space && (size_t)(space - after) < OL_TIMESTAMP_TEXT &&
        strlen(space + 1) == OL_UUID_TEXT - 1) {
        memcpy(time, after, (size_t)(space - after));
        time[space - after] = '\0';
        memcpy(id, space + 1, OL_UUID_TEXT);
        if (ol_timestamp_parse(time, strlen(time), &parsed) == 0 && ol_uuid_parse(id, id))
            return 0;
    }
    return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/after", "after: a next_after is wanted");
}

int ol_inbox_list(outlog *log, const char *org_id, const char *user_id, int unread,
                  const char *after, int limit, struct ol_buf *out, outlog_err *err)
{
    char time[OL_TIMESTAMP_TEXT] = "", id[OL_UUID_TEXT] = "00000000-0000-0000-0000-000000000000";
    char last[OL_TIMESTAMP_TEXT + OL_UUID_TEXT] = "";
    struct ol_rows rows;
    size_t bytes = 0;
    int more = 0, count = 0;

    if ((user_id && ol_inbox_check_user(user_id, err) < 0) ||
        (after && parse_after(after, time, id, err) < 0) || ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_NOTICE_FEED,
                       OL_PARAMS(ol_value_optional(org_id), ol_value_optional(user_id),
                                 unread < 0 ? ol_value_absent() : ol_value_int(unread),
                                 ol_value_optional(after ? time : NULL), ol_value_text(id),
                                 ol_value_int(limit), limit_bytes(log->conn, OL_READ_PAGE_BYTES)),
                       &rows, err) < 0)
        return -1;
    ol_buf_text(out, "{\"notifications\":[");
    while (bytes < OL_READ_PAGE_BYTES && (more = ol_rows_next(&rows, err)) > 0) {
        ol_buf_text(out, count++ ? "," : "");
        write_notice(&rows, out);
        bytes += count_bytes(&rows);
        ol_rows_uuid(&rows, NOTICE_ID, id);
        snprintf(last, sizeof last, "%s %s",
                 ol_timestamp_format(ol_rows_time(&rows, NOTICE_CREATED_AT), time), id);
    }
    ol_rows_end(&rows);
    ol_buf_text(out, "],\"next_after\":");
    // A server with another encoding counts other bytes, but not twice as many.
    ol_buf_json_text(out, count == limit || bytes >= OL_READ_PAGE_BYTES / 2 ? last : NULL);
    ol_buf_char(out, '}');
    return more < 0 ? -1 : 0;
}

int ol_inbox_begin(outlog *log, const char *org_id, const char *user_id, struct ol_inbox_place *out,
                   outlog_err *err)
{
    struct ol_rows rows;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_NOTICE_NEWEST,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id),
                                 ol_value_int(INBOX_UNREAD_MAX)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *out = (struct ol_inbox_place){.at = got > 0 ? ol_rows_time(&rows, 0) : 0};
    if (got > 0)
        ol_rows_uuid(&rows, 1, out->id);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static int read_item(const struct ol_rows *rows, struct ol_buf *json, struct ol_arena *arena,
                     struct ol_inbox_item *out, outlog_err *err)
{
    ol_buf_reset(json);
    write_notice(rows, json);
    ol_rows_uuid(rows, NOTICE_ID, out->id);
    out->json = json->failed ? NULL : ol_arena_copy(arena, json->data, json->bytes);
    out->bytes = json->bytes;
    out->is_read = !ol_rows_is_null(rows, NOTICE_READ_AT);
    return out->json ? 0 : ol_no_memory(err);
}

int ol_inbox_page_read(outlog *log, struct ol_inbox_page *page, struct ol_arena *arena,
                       outlog_err *err)
{
    struct ol_inbox_place *place = &page->place;
    struct ol_buf json = {0};
    struct ol_rows rows;
    size_t bytes = 0;
    int more = 0;

    page->count = 0;
    if (!(page->items = ol_arena_array(arena, INBOX_PAGE_MAX, sizeof *page->items)))
        return ol_no_memory(err);
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_NOTICE_RECENT,
                       OL_PARAMS(ol_value_text(page->org_id), ol_value_text(page->user_id),
                                 page->is_unread ? ol_value_int(1) : ol_value_absent(),
                                 page->is_unread || place->at ? ol_value_absent()
                                                              : ol_value_int(page->back_us),
                                 place->at ? ol_value_time(place->at) : ol_value_absent(),
                                 ol_value_text(place->id), ol_value_int(INBOX_PAGE_MAX),
                                 limit_bytes(log->conn, INBOX_PAGE_BYTES)),
                       &rows, err) < 0)
        return -1;
    while (bytes < INBOX_PAGE_BYTES && page->count < INBOX_PAGE_MAX &&
           (more = ol_rows_next(&rows, err)) > 0) {
        struct ol_inbox_item *item = &page->items[page->count++];
        if ((more = read_item(&rows, &json, arena, item, err)) < 0)
            break;
        bytes += count_bytes(&rows);
        place->at = ol_rows_time(&rows, NOTICE_CREATED_AT);
        memcpy(place->id, item->id, sizeof place->id);
    }
    ol_rows_end(&rows);
    ol_buf_clear(&json);
    // as in ol_inbox_list()
    page->is_all = page->count < INBOX_PAGE_MAX && bytes < INBOX_PAGE_BYTES / 2;
    return more < 0 ? -1 : 0;
}

int ol_inbox_list_changed(outlog *log, int64_t back_us,
                          void (*each)(void *user, const char *org_id, const char *user_id,
                                       int64_t stamp),
                          void *user, outlog_err *err)
{
    struct ol_rows rows;
    int more;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_NOTICE_NEWLY, OL_PARAMS(ol_value_int(back_us)), &rows, err) <
            0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        each(user, ol_rows_text(&rows, 0, NULL), ol_rows_text(&rows, 1, NULL),
             ol_rows_time(&rows, 3) + ol_rows_int(&rows, 2));
    ol_rows_end(&rows);
    return more;
}

static bool matches_name(const struct ol_rows *rows, int column, const char *name)
{
    return !name || strcmp(ol_rows_text(rows, column, NULL), name) == 0;
}

int ol_inbox_mark_read(outlog_tx *tx, const char *org_id, const char *user_id, const char *id,
                       struct ol_buf *out, outlog_err *err)
{
    struct ol_rows rows;
    char uuid[OL_UUID_TEXT];
    if (!ol_uuid_parse(id, uuid))
        return ol_fail(err, OUTLOG_NOT_FOUND, "there is no notification %.40s", id);
    for (int round = 0; round < 2; round++) { // read it, mark it, and read it again
        if (round == 1 && ol_store_exec(tx->conn, OL_Q_NOTICE_READ, OL_PARAMS(ol_value_text(uuid)),
                                        NULL, err) < 0)
            return -1;
        if (ol_store_query(tx->conn, OL_Q_NOTICE_GET, OL_PARAMS(ol_value_text(uuid)), &rows, err) <
            0)
            return -1;
        int got = ol_rows_next(&rows, err);
        bool is_ours = got > 0 && matches_name(&rows, NOTICE_ORG_ID, org_id) &&
                       matches_name(&rows, NOTICE_USER_ID, user_id);
        if (is_ours && round == 1)
            write_notice(&rows, out);
        ol_rows_end(&rows);
        if (got < 0)
            return -1;
        if (!is_ours)
            return ol_fail(err, OUTLOG_NOT_FOUND, "there is no notification %.40s", id);
    }
    return 0;
}

/* --- preferences --- */

static int write_channels(struct ol_conn *conn, const char *org_id, const char *user_id,
                          struct ol_buf *out, outlog_err *err)
{
    struct ol_rows rows;
    char last[128] = "";
    int more, count = 0;
    if (ol_store_query(conn, OL_Q_PREFERENCE_LIST,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id)), &rows, err) < 0)
        return -1;
    ol_buf_char(out, '{');
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *category = ol_rows_text(&rows, 0, NULL);
        bool is_next = !count || strcmp(category, last) != 0;
        if (is_next) {
            ol_buf_text(out, count ? "}," : "");
            ol_buf_json_text(out, category);
            ol_buf_text(out, ":{");
        }
        ol_buf_print(out, "%s\"%s\":%s", is_next ? "" : ",", ol_rows_text(&rows, 1, NULL),
                     ol_rows_int(&rows, 2) ? "true" : "false");
        snprintf(last, sizeof last, "%s", category);
        count++;
    }
    ol_rows_end(&rows);
    ol_buf_text(out, count ? "}}" : "}");
    return more;
}

static int write_preferences(struct ol_conn *conn, const char *org_id, const char *user_id,
                             struct ol_buf *out, outlog_err *err)
{
    struct ol_rows rows;
    ol_buf_text(out, "{\"org_id\":");
    ol_buf_json_text(out, org_id);
    ol_buf_text(out, ",\"user_id\":");
    ol_buf_json_text(out, user_id);
    if (ol_store_query(conn, OL_Q_CONTACT_GET,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id)), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    ol_buf_text(out, ",\"email\":");
    ol_buf_json_text(out, got > 0 ? ol_rows_text(&rows, 0, NULL) : NULL);
    ol_rows_end(&rows);
    ol_buf_text(out, ",\"channels\":");
    if (got < 0 || write_channels(conn, org_id, user_id, out, err) < 0)
        return -1;
    ol_buf_char(out, '}');
    return 0;
}

int ol_inbox_preferences(outlog *log, const char *org_id, const char *user_id, struct ol_buf *out,
                         outlog_err *err)
{
    return ol_inbox_check_user(user_id, err) < 0 || ol_log_ready(log, err) < 0
               ? -1
               : write_preferences(log->conn, org_id, user_id, out, err);
}

static int set_email(outlog_tx *tx, const char *org_id, const char *user_id,
                     const struct ol_json *value, outlog_err *err)
{
    struct ol_mailbox box;
    if (value->type == OL_JSON_NULL)
        return ol_store_exec(tx->conn, OL_Q_CONTACT_DELETE,
                             OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id)), NULL, err);
    const char *text = ol_json_string(value, &tx->arena, NULL);
    if (!text || ol_mailbox_parse(text, "email", &tx->arena, &box, err) < 0 || box.name)
        return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/email",
                          "email: an address like a@b.example is wanted");
    return ol_store_exec(tx->conn, OL_Q_CONTACT_PUT,
                         OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id),
                                   ol_value_text(text)),
                         NULL, err);
}

static int set_category(outlog_tx *tx, const char *org_id, const char *user_id,
                        const struct ol_json_iter *it, outlog_err *err)
{
    size_t bytes = 0;
    const char *category = ol_json_string(&it->key, &tx->arena, &bytes);
    struct ol_json_iter channel = {0};
    bool is_right = category && bytes >= 1 && bytes <= 100 && it->value.type == OL_JSON_OBJECT;
    while (is_right && ol_json_next(&it->value, &channel)) {
        const char *name = ol_json_equals(&channel.key, "email")    ? "email"
                           : ol_json_equals(&channel.key, "in_app") ? "in_app"
                                                                    : NULL;
        bool is_on = channel.value.type == OL_JSON_TRUE;
        is_right = name && (is_on || channel.value.type == OL_JSON_FALSE);
        if (is_right && ol_store_exec(tx->conn, OL_Q_PREFERENCE_ADD,
                                      OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id),
                                                ol_value_text(category), ol_value_text(name),
                                                ol_value_int(is_on)),
                                      NULL, err) < 0)
            return -1;
    }
    return is_right ? 0
                    : ol_fail_at(err, OUTLOG_INVALID_FIELD, "/channels",
                                 "channels: {category: {email: true, in_app: false}} is wanted");
}

int ol_inbox_prefer(outlog_tx *tx, const char *org_id, const char *user_id,
                    const struct ol_json *body, struct ol_buf *out, outlog_err *err)
{
    struct ol_json email = ol_json_get(body, "email"), channels = ol_json_get(body, "channels");
    struct ol_json_iter it = {0};
    if (ol_inbox_check_user(user_id, err) < 0)
        return -1;
    if (email.type != OL_JSON_NONE && set_email(tx, org_id, user_id, &email, err) < 0)
        return -1;
    if (channels.type > OL_JSON_NULL) {
        if (channels.type != OL_JSON_OBJECT)
            return ol_fail_at(err, OUTLOG_INVALID_FIELD, "/channels",
                              "channels: an object is wanted");
        if (ol_store_exec(tx->conn, OL_Q_PREFERENCE_CLEAR,
                          OL_PARAMS(ol_value_text(org_id), ol_value_text(user_id)), NULL, err) < 0)
            return -1;
        while (ol_json_next(&channels, &it))
            if (set_category(tx, org_id, user_id, &it, err) < 0)
                return -1;
    }
    return write_preferences(tx->conn, org_id, user_id, out, err);
}

/* --- suppressions --- */

int ol_inbox_suppressions(outlog *log, const char *after, int limit, struct ol_buf *out,
                          outlog_err *err)
{
    struct ol_rows rows;
    struct ol_buf last = {0};
    int more, count = 0;
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_SUPPRESSION_LIST,
                       OL_PARAMS(ol_value_optional(after), ol_value_int(limit)), &rows, err) < 0)
        return -1;
    ol_buf_text(out, "{\"suppressions\":[");
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *address = ol_rows_text(&rows, 0, NULL);
        ol_buf_reset(&last);
        ol_buf_text(&last, address);
        ol_buf_text(out, count++ ? ",{\"address\":" : "{\"address\":");
        ol_buf_json_text(out, address);
        ol_buf_text(out, ",\"reason\":");
        ol_buf_json_text(out, ol_rows_text(&rows, 1, NULL));
        ol_buf_text(out, ",\"created_at\":");
        ol_buf_json_time(out, ol_rows_time(&rows, 2));
        ol_buf_char(out, '}');
    }
    ol_rows_end(&rows);
    ol_buf_text(out, "],\"next_after\":");
    ol_buf_json_text(out, count == limit ? last.data : NULL);
    ol_buf_char(out, '}');
    out->failed = out->failed || last.failed;
    ol_buf_clear(&last);
    return more < 0 ? -1 : 0;
}

int ol_inbox_unsuppress(outlog_tx *tx, const char *address, const struct outlog_operator *by,
                        outlog_err *err)
{
    int64_t changed = 0;
    if (ol_store_exec(tx->conn, OL_Q_SUPPRESSION_DELETE, OL_PARAMS(ol_value_text(address)),
                      &changed, err) < 0)
        return -1;
    if (!changed)
        return ol_fail(err, OUTLOG_NOT_FOUND, "%.100s is not suppressed", address);
    return ol_audit_append(tx, by, "outlog.suppression.deleted", "outlog.suppression", address,
                           "{}", err);
}
