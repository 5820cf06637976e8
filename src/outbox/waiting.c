/* waiting.c: the reasons for waiting, and who waits for them now. The query waiting_list() decides
 * which one applies: the first of this table. */
#include "outbox/waiting.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>

enum { WAITING_SAMPLE = 2000, WAITING_PARKED_MAX = 20000 };

static const struct waiting_reason {
    const char *name, *about;
    bool needs_help;
} reasons[] = {
    {"unknown_destination", "nobody declared the destination: add it and run outlog apply", true},
    {"paused", "the destination is paused", true},
    {"no_relay", "no relay owns its lane: start outlog relay", true},
    {"lane_stuck", "the store refuses what its lane must write", true},
    {"unusable_destination", "a relay cannot use the destination's settings", true},
    {"breaker_open", "the destination fails; its breaker is open", false},
    {"held_key", "a dead letter holds its ordering key", true},
    {"behind_key", "an earlier message of its ordering key comes first", false},
    {"queued", "it is due, and the destination has no room for it yet", false},
};

static const struct waiting_reason *find_reason(const char *name)
{
    enum { LAST = sizeof reasons / sizeof *reasons - 1 };
    for (size_t i = 0; i < LAST; i++)
        if (strcmp(reasons[i].name, name) == 0)
            return &reasons[i];
    return &reasons[LAST];
}

static struct ol_waiting *add_waiting(struct ol_waitings *list, size_t *capacity,
                                      struct ol_arena *arena)
{
    if (list->count == *capacity) {
        *capacity = *capacity ? *capacity * 2 : 16;
        struct ol_waiting *wider = ol_arena_array(arena, *capacity, sizeof *wider);
        if (!wider)
            return NULL;
        if (list->count)
            memcpy(wider, list->all, list->count * sizeof *wider);
        list->all = wider;
    }
    return &list->all[list->count++];
}

int ol_waiting_list(struct ol_conn *conn, struct ol_arena *arena, struct ol_waitings *out,
                    outlog_err *err)
{
    struct ol_rows rows;
    size_t capacity = 0;
    bool failed = false;
    int more = 0;

    *out = (struct ol_waitings){0};
    if (ol_store_query(conn, OL_Q_WAITING_LIST,
                       OL_PARAMS(ol_value_int(WAITING_SAMPLE), ol_value_int(WAITING_PARKED_MAX)),
                       &rows, err) < 0)
        return -1;
    while (!failed && (more = ol_rows_next(&rows, err)) > 0) {
        struct ol_waiting *one = add_waiting(out, &capacity, arena);
        const struct waiting_reason *reason = find_reason(ol_rows_text(&rows, 2, NULL));
        if (!one) {
            failed = true;
            break;
        }
        *one = (struct ol_waiting){.lane = (int)ol_rows_int(&rows, 0),
                                   .destination = ol_rows_copy(&rows, 1, arena, &failed),
                                   .reason = reason->name,
                                   .about = reason->about,
                                   .needs_help = reason->needs_help,
                                   .count = ol_rows_int(&rows, 3),
                                   .since = ol_rows_time(&rows, 4),
                                   .detail = ol_rows_copy(&rows, 5, arena, &failed)};
    }
    ol_rows_end(&rows);
    return failed ? ol_no_memory(err) : more < 0 ? -1 : 0;
}

int ol_waiting_is_unknown(struct ol_conn *conn, const char *destination, bool *is_unknown,
                          char text[200], outlog_err *err)
{
    struct ol_rows rows;
    if (ol_store_query(conn, OL_Q_DESTINATION_GET, OL_PARAMS(ol_value_text(destination)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    ol_rows_end(&rows);
    *is_unknown = got == 0;
    snprintf(text, 200,
             "there is no destination %.100s: the message waits until `outlog apply` adds it",
             destination);
    return got < 0 ? -1 : 0;
}

void ol_waiting_json(const struct ol_waitings *list, struct ol_buf *out)
{
    ol_buf_char(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        const struct ol_waiting *one = &list->all[i];
        ol_buf_print(out, "%s{\"lane\":%d,\"destination\":", i ? "," : "", one->lane);
        ol_buf_json_text(out, one->destination);
        ol_buf_print(out, ",\"reason\":\"%s\",\"detail\":", one->reason);
        ol_buf_json_text(out, one->detail);
        ol_buf_print(out, ",\"count\":%lld,\"oldest_ms\":%lld}", (long long)one->count,
                     (long long)(ol_clock_wall_us() - one->since) / 1000);
    }
    ol_buf_char(out, ']');
}
