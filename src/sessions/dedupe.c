/* dedupe.c: a map of request ids, and how it is read from the store. */
#include "sessions/dedupe.h"

#include "base/err.h"
#include "base/json/json.h"
#include "log/log.h"
#include "sessions/session.h"

#include <string.h>

void ol_dedupe_clear(struct ol_dedupe *dedupe)
{
    ol_counter_map_clear(&dedupe->seqs);
    dedupe->upto = 0;
}

int64_t ol_dedupe_seq(const struct ol_dedupe *dedupe, const char *request_id)
{
    return ol_counter_map_get(&dedupe->seqs, request_id);
}

bool ol_dedupe_add(struct ol_dedupe *dedupe, const char *request_id, int64_t seq)
{
    // Other interfaces may have appended it twice: the first one counts.
    if (request_id && !ol_dedupe_seq(dedupe, request_id) &&
        !ol_counter_map_add(&dedupe->seqs, request_id, seq))
        return false;
    dedupe->upto = seq;
    return true;
}

/* The requestId of a message, if a client could repeat it. */
static const char *read_request_id(const char *payload, struct ol_arena *arena)
{
    struct ol_json object;
    if (!payload || ol_json_parse_wrapped(payload, strlen(payload), &object, NULL) < 0)
        return NULL;
    struct ol_json id = ol_json_get(&object, "requestId");
    const char *text = ol_json_string(&id, arena, NULL);
    return text && *text && strlen(text) <= OL_SESSION_REQUEST_BYTES ? text : NULL;
}

/* One page: the number of events, or -1. */
static int load_page(struct ol_dedupe *dedupe, outlog *log, const char *org_id, const char *key,
                     outlog_err *err)
{
    struct ol_arena arena = {0};
    struct ol_rows rows;
    int more, count = 0;

    if (ol_store_query(log->conn, OL_Q_SESSION_REQUESTS,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key),
                                 ol_value_int(dedupe->upto), ol_value_int(OL_DEDUPE_MAX)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *request_id = read_request_id(ol_rows_text(&rows, 1, NULL), &arena);
        if (!ol_dedupe_add(dedupe, request_id, ol_rows_int(&rows, 0))) {
            more = ol_no_memory(err);
            break;
        }
        ol_arena_reset(&arena);
        count++;
    }
    ol_rows_end(&rows);
    ol_arena_clear(&arena);
    return more < 0 ? -1 : count;
}

int ol_dedupe_load(struct ol_dedupe *dedupe, outlog *log, const char *org_id, const char *key,
                   outlog_err *err)
{
    int count = 1;
    if (ol_log_ready(log, err) < 0)
        return -1;
    while (count > 0 && dedupe->upto < OL_DEDUPE_MAX)
        count = load_page(dedupe, log, org_id, key, err);
    return count < 0 ? -1 : 0;
}
