/* claimed_message.c: reads the rows of messages that a relay has claimed. */
#include "outbox/lane/claimed_message.h"

#include "base/json/json.h"
#include "base/traceparent.h"
#include "store/message_fields.h"

#include <stdlib.h>
#include <string.h>

/* The columns of outbox_read and parked_marked: the message's place, its columns, and of a parked
 * one what is known of it. */
enum claimed_column {
    CLAIMED_SEQ,
    CLAIMED_MESSAGE, /* + OL_MESSAGE_… */
    CLAIMED_ATTEMPTS = CLAIMED_MESSAGE + OL_MESSAGE_FIELD_COUNT,
    CLAIMED_UNSENT,
    CLAIMED_BUDGET_FROM,
    CLAIMED_IS_REPLAY
};
#define COLUMN(name) (CLAIMED_MESSAGE + OL_MESSAGE_##name)

int ol_claimed_message_used(const struct ol_claimed_message *message)
{
    return message->is_parked ? message->attempts - message->unsent - message->budget_from : 1;
}

static const char *copy_uuid(const struct ol_rows *rows, int column, struct ol_arena *arena,
                             bool *failed)
{
    char text[OL_UUID_TEXT];
    ol_rows_uuid(rows, column, text);
    if (!*text)
        return NULL;
    char *copy = ol_arena_copy(arena, text, OL_UUID_TEXT - 1);
    *failed |= !copy;
    return copy;
}

static const char *join_key(const struct outlog_delivery *message, struct ol_arena *arena,
                            bool *failed)
{
    if (!message->ordering_key)
        return NULL;
    size_t first = strlen(message->destination), second = strlen(message->ordering_key);
    char *key = ol_arena_alloc(arena, first + second + 2);
    if (!key) {
        *failed = true;
        return NULL;
    }
    memcpy(key, message->destination, first);
    key[first] = '\x1f';
    memcpy(key + first + 1, message->ordering_key, second + 1);
    return key;
}

/* A header that is no string is sent as its JSON text. */
static bool read_headers(const char *json, struct ol_arena *arena, struct outlog_delivery *out)
{
    struct ol_json object;
    struct ol_json_iter it = {0};
    size_t count = 0;

    if (!json || ol_json_parse(json, strlen(json), &object, NULL) < 0)
        return true;
    while (ol_json_next(&object, &it))
        count++;
    struct outlog_header *headers = ol_arena_array(arena, count, sizeof *headers);
    if (!headers)
        return count == 0;
    it = (struct ol_json_iter){0};
    for (size_t i = 0; ol_json_next(&object, &it); i++) {
        headers[i].name = ol_json_string(&it.key, arena, NULL);
        headers[i].value = it.value.type == OL_JSON_STRING
                               ? ol_json_string(&it.value, arena, NULL)
                               : ol_arena_copy(arena, it.value.text, it.value.bytes);
        if (!headers[i].name || !headers[i].value)
            return false;
    }
    out->headers = headers;
    out->header_count = count;
    return true;
}

/* The texts that publishers get. */
static void read_texts(const struct ol_rows *rows, struct ol_arena *arena,
                       struct outlog_delivery *out, bool *failed)
{
    static const struct {
        int field;
        size_t offset;
    } texts[] = {OL_MESSAGE_DELIVERED};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int column = CLAIMED_MESSAGE + texts[i].field;
        bool is_uuid = ol_message_fields[texts[i].field].kind == OL_FIELD_UUID;
        ol_field_set_text(out, texts[i].offset,
                          is_uuid ? copy_uuid(rows, column, arena, failed)
                                  : ol_rows_copy(rows, column, arena, failed));
    }
}

int ol_claimed_message_read(const struct ol_rows *rows, bool is_parked, struct ol_arena *arena,
                            struct ol_claimed_message *out, outlog_err *err)
{
    bool failed = false;
    struct outlog_delivery *message = &out->message;
    int payload = ol_rows_is_null(rows, COLUMN(PAYLOAD)) ? COLUMN(PAYLOAD_BYTES) : COLUMN(PAYLOAD);

    *out =
        (struct ol_claimed_message){.seq = ol_rows_int(rows, CLAIMED_SEQ), .is_parked = is_parked};
    read_texts(rows, arena, message, &failed);
    ol_rows_text(rows, payload, &message->payload_bytes);
    message->payload = ol_rows_copy(rows, payload, arena, &failed);
    out->key = join_key(message, arena, &failed);
    out->retry_class = ol_retry_classify(message->aggregate_type, message->content_type);
    message->created_at = ol_rows_time(rows, COLUMN(CREATED_AT));
    message->attempt = 1;
    out->available_at =
        ol_rows_is_null(rows, COLUMN(AVAILABLE_AT)) ? 0 : ol_rows_time(rows, COLUMN(AVAILABLE_AT));
    out->max_attempts = ol_rows_is_null(rows, COLUMN(MAX_ATTEMPTS))
                            ? 0
                            : (int)ol_rows_int(rows, COLUMN(MAX_ATTEMPTS));
    out->at_most_once = ol_rows_int(rows, COLUMN(AT_MOST_ONCE)) != 0;
    if (!ol_rows_is_null(rows, COLUMN(HEADERS)))
        failed |=
            !read_headers(ol_rows_copy(rows, COLUMN(HEADERS), arena, &failed), arena, message);
    if (!ol_rows_is_null(rows, COLUMN(METADATA))) {
        out->metadata = ol_rows_copy(rows, COLUMN(METADATA), arena, &failed);
        message->traceparent = ol_traceparent_find(out->metadata, arena);
    }
    if (is_parked) {
        out->attempts = (int)ol_rows_int(rows, CLAIMED_ATTEMPTS);
        out->unsent = (int)ol_rows_int(rows, CLAIMED_UNSENT);
        out->budget_from = (int)ol_rows_int(rows, CLAIMED_BUDGET_FROM);
        message->is_replay = ol_rows_int(rows, CLAIMED_IS_REPLAY) != 0;
        message->attempt = out->attempts;
    }
    return failed ? ol_no_memory(err) : 0;
}

struct ol_claimed_message *ol_claimed_message_add(struct ol_claimed_message **messages,
                                                  size_t *count, size_t *capacity,
                                                  struct ol_arena *arena)
{
    enum { CAPACITY_MIN = 16 };
    if (*count == *capacity) {
        size_t wider = *capacity ? *capacity * 4 : CAPACITY_MIN;
        struct ol_claimed_message *more = ol_arena_array(arena, wider, sizeof *more);
        if (!more)
            return NULL;
        if (*count)
            memcpy(more, *messages, *count * sizeof *more);
        *messages = more;
        *capacity = wider;
    }
    return &(*messages)[(*count)++];
}

int ol_claimed_message_read_all(struct ol_rows *rows, struct ol_arena *arena,
                                struct ol_claimed_message **messages, size_t *count,
                                outlog_err *err)
{
    size_t capacity = 0;
    int more;

    *messages = NULL;
    *count = 0;
    while ((more = ol_rows_next(rows, err)) > 0) {
        struct ol_claimed_message *message =
            ol_claimed_message_add(messages, count, &capacity, arena);
        if (!message) {
            more = ol_no_memory(err);
            break;
        }
        if (ol_claimed_message_read(rows, false, arena, message, err) < 0) {
            more = -1;
            break;
        }
    }
    ol_rows_end(rows);
    return more;
}

void ol_claimed_message_clear(struct ol_claimed_message *message)
{
    free(message->error);
    free(message->response);
    free(message->condemned);
    message->error = message->response = message->condemned = NULL;
}
