/* janitor.c: each call takes a few milliseconds, so that messages do not wait for it. */
#include "relay/janitor.h"

#include "base/clock.h"

enum { JANITOR_CHUNK = 2000, JANITOR_RANGE = 1000 };

int ol_janitor_sweep(struct ol_conn *conn, const struct ol_policy *policy, bool *has_more,
                     outlog_err *err)
{
    int64_t before = ol_clock_wall_us() - policy->idempotency_us, records, keys, notices = 0,
            notices_before = ol_clock_wall_us() - policy->notices_us;
    if (ol_store_exec(conn, OL_Q_IDEMPOTENCY_PURGE,
                      OL_PARAMS(ol_value_time(before), ol_value_int(JANITOR_CHUNK)), &records,
                      err) < 0 ||
        ol_store_exec(conn, OL_Q_OUTBOX_KEYS_PURGE,
                      OL_PARAMS(ol_value_time(before), ol_value_int(JANITOR_CHUNK)), &keys,
                      err) < 0)
        return -1;
    if (policy->notices_us &&
        ol_store_exec(conn, OL_Q_NOTICES_PURGE,
                      OL_PARAMS(ol_value_time(notices_before), ol_value_int(JANITOR_CHUNK)),
                      &notices, err) < 0)
        return -1;
    *has_more = records == JANITOR_CHUNK || keys == JANITOR_CHUNK || notices == JANITOR_CHUNK;
    return 0;
}

int ol_janitor_prune(struct ol_conn *conn, const struct ol_policy *policy,
                     const struct ol_lane *lane, int64_t now_us, int64_t *after, outlog_err *err)
{
    int64_t before = now_us - policy->messages_us, last = 0, newest = 0, count = 0;
    struct ol_rows rows;

    if (ol_store_query(conn, OL_Q_OUTBOX_WINDOW,
                       OL_PARAMS(ol_value_int(lane->number), ol_value_int(*after),
                                 ol_value_int(JANITOR_RANGE)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0 && !ol_rows_is_null(&rows, 0)) {
        last = ol_rows_int(&rows, 0);
        newest = ol_rows_time(&rows, 1);
        count = ol_rows_int(&rows, 2);
    }
    ol_rows_end(&rows);
    if (got < 0)
        return -1;
    if (count &&
        ol_store_exec(conn, OL_Q_PRUNE,
                      OL_PARAMS(ol_value_int(lane->number), ol_value_int(lane->epoch),
                                ol_value_int(*after), ol_value_int(last), ol_value_time(before)),
                      NULL, err) < 0)
        return -1;
    // Numbers and times rise together, more or less: what comes after is younger.
    *after = count < JANITOR_RANGE || newest >= before ? 0 : last;
    return 0;
}

int64_t ol_janitor_pause_us(const struct ol_policy *policy)
{
    enum { SHORTEST_US = 1000000, LONGEST_US = 60000000 };
    int64_t tenth = policy->messages_us / 10;
    return tenth < SHORTEST_US ? SHORTEST_US : tenth > LONGEST_US ? LONGEST_US : tenth;
}
