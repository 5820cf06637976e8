/* dedupe.c: requests by heart. */
#include "sessions/dedupe.h"

#include "base/err.h"
#include "base/json/json.h"
#include "log/log.h"
#include "sessions/session.h"

#include <string.h>

void ol_dedupe_clear(struct ol_dedupe *heard)
{
    ol_map_clear(&heard->seqs);
    heard->upto = 0;
}

int64_t ol_dedupe_seq(const struct ol_dedupe *heard, const char *request_id)
{
    return ol_map_get(&heard->seqs, request_id);
}

bool ol_dedupe_add(struct ol_dedupe *heard, const char *request_id, int64_t seq)
{
    // Other doors may have said the same twice: the first one counts.
    if (request_id && !ol_dedupe_seq(heard, request_id) &&
        !ol_map_add(&heard->seqs, request_id, seq))
        return false;
    heard->upto = seq;
    return true;
}

/* What a client could say again. */
static const char *request_of(const char *payload, struct ol_arena *arena)
{
    struct ol_json object;
    if (!payload || ol_json_parse_wrapped(payload, strlen(payload), &object, NULL) < 0)
        return NULL;
    struct ol_json id = ol_json_get(&object, "requestId");
    const char *text = ol_json_string(&id, arena, NULL);
    return text && *text && strlen(text) <= OL_SESSION_REQUEST_BYTES ? text : NULL;
}

/* One page; how many there were, or -1. */
static int read_page(outlog *log, const char *org_id, const char *key, int64_t *after,
                     struct ol_arena *arena, struct ol_dedupe_entry ***last, outlog_err *err)
{
    struct ol_rows rows;
    int more, count = 0;

    if (ol_store_query(log->conn, OL_Q_SESSION_SAID,
                       OL_PARAMS(ol_value_text(org_id), ol_value_text(key), ol_value_int(*after),
                                 ol_value_int(OL_DEDUPE_MAX)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        struct ol_dedupe_entry *said = ol_arena_alloc(arena, sizeof *said);
        if (!said) {
            more = ol_no_memory(err);
            break;
        }
        said->seq = *after = ol_rows_int(&rows, 0);
        said->request_id = request_of(ol_rows_text(&rows, 1, NULL), arena);
        **last = said;
        *last = &said->next;
        count++;
    }
    ol_rows_end(&rows);
    return more < 0 ? -1 : count;
}

int ol_dedupe_read(outlog *log, const char *org_id, const char *key, int64_t after,
                   struct ol_arena *arena, struct ol_dedupe_entry **out, outlog_err *err)
{
    struct ol_dedupe_entry **last = out;
    int count = 1;

    *out = NULL;
    if (ol_log_ready(log, err) < 0)
        return -1;
    while (count > 0 && after < OL_DEDUPE_MAX)
        count = read_page(log, org_id, key, &after, arena, &last, err);
    return count < 0 ? -1 : 0;
}
