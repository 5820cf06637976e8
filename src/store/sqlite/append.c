/* append.c: appends, many events in few statements. */
#include "base/timestamp.h"
#include "store/sqlite/internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "store/append_batch.h"

#include <string.h>

enum { MOST_ROWS = 64, MOST_PARAMS = 20 };

/* A write on its way: what all its events have in common. */
struct batch {
    struct ol_append_batch *write;
    int64_t last_id; /* the highest event_id before it */
    char now[OL_TIMESTAMP_TEXT];
};

/* Fills in the parameters of row `i`; takes a row of the answer. */
typedef void fill_row(const struct batch *batch, size_t i, struct ol_value *params);
typedef void take_row(const struct batch *batch, const struct ol_rows *rows);

/* Run a query for many rows of values with few statements; `take` gets what it answers. One
 * statement for each row would open and close a dozen b-trees and, because of the triggers, keep a
 * copy of every page it touches so that this one row could be undone: together more than the insert
 * itself. Powers of two, so that few forms are prepared. */
static int run_rows(struct ol_sqlite_conn *conn, enum ol_query_id id, const struct batch *batch,
                    size_t count, fill_row *fill, take_row *take, outlog_err *err)
{
    struct ol_value params[MOST_PARAMS];
    size_t rows;
    for (size_t at = 0; at < count; at += rows) {
        for (rows = MOST_ROWS; rows > count - at; rows /= 2)
            ;
        fill(batch, at, params);
        struct ol_sqlite_prepared *prepared = ol_sqlite_prepare(conn, id, params, rows, err);
        if (!prepared)
            return -1;
        struct ol_rows result = {.conn = &conn->base, .handle = prepared->statement};
        for (size_t i = 0; i < rows; i++) {
            fill(batch, at + i, params);
            if (ol_sqlite_bind_row(conn, prepared, i, params, err) < 0) {
                ol_rows_end(&result);
                return -1;
            }
        }
        int got;
        while ((got = ol_rows_next(&result, err)) > 0)
            take(batch, &result);
        if (got < 0)
            return -1;
    }
    return 0;
}

static void fill_head(const struct batch *batch, size_t i, struct ol_value *params)
{
    const struct ol_append_batch_head *head = &batch->write->heads[i];
    params[0] = ol_value_int((int64_t)i);
    params[1] = ol_value_text(head->org_key);
    params[2] = ol_value_text(head->aggregate_type);
    params[3] = ol_value_text(head->aggregate_id);
}

static void take_head(const struct batch *batch, const struct ol_rows *rows)
{
    batch->write->heads[ol_rows_int(rows, 0)].base = ol_rows_int(rows, 1);
}

/* A host's own transaction may have done nothing yet: it begins to write before it reads. */
static int read_heads(struct ol_sqlite_conn *conn, const struct batch *batch, outlog_err *err)
{
    if (conn->base.is_borrowed &&
        ol_store_exec(&conn->base, OL_Q_WRITE_BEGIN, OL_NO_PARAMS, NULL, err) < 0)
        return -1;
    return run_rows(conn, OL_Q_HEADS_GET, batch, batch->write->head_count, fill_head, take_head,
                    err);
}

/* Number the events; refuse one that was to have another number. */
static int number_events(const struct batch *batch, outlog_err *err)
{
    for (size_t i = 0; i < batch->write->count; i++) {
        struct ol_append_batch_event *event = &batch->write->events[i];
        const struct ol_append_batch_head *head = &batch->write->heads[event->head];
        const int64_t *expected = event->said->expected_seq;
        int64_t seq = head->base + event->nth;
        if (expected && *expected != seq - 1) {
            ol_fail(err, OUTLOG_SEQUENCE_CONFLICT,
                    "%s/%s: expected sequence %lld, actual %lld; read it again and decide anew",
                    head->aggregate_type, head->aggregate_id, (long long)*expected,
                    (long long)(seq - 1));
            if (err) {
                err->expected = *expected;
                err->actual = seq - 1;
                err->index = event->index;
            }
            return -1;
        }
        event->out->event_id = batch->last_id + (int64_t)i + 1;
        event->out->aggregate_seq = seq;
    }
    return 0;
}

static void fill_event(const struct batch *batch, size_t i, struct ol_value *params)
{
    const struct ol_append_batch_event *event = &batch->write->events[i];
    const struct ol_append_batch_head *head = &batch->write->heads[event->head];
    const struct outlog_new_event *said = event->said;
    const struct ol_value values[MOST_PARAMS] = {
        ol_value_int(event->out->event_id),
        ol_value_text(event->id),
        ol_value_text(batch->now),
        ol_value_text(*head->org_key ? head->org_key : NULL),
        ol_value_text(head->aggregate_type),
        ol_value_text(head->aggregate_id),
        ol_value_int(event->out->aggregate_seq),
        ol_value_text(said->event_type),
        ol_value_int(event->event_version),
        ol_value_text(event->actor_type),
        ol_value_text(event->actor_id),
        ol_value_text(event->request_id),
        ol_value_text(said->idempotency_key),
        ol_value_text(event->correlation_id),
        ol_value_text(event->causation_id),
        ol_value_text(said->app_id),
        ol_value_text(said->env_id),
        ol_value_text(said->visibility),
        ol_value_text(said->metadata),
        ol_value_bytes(said->payload, event->payload_bytes),
    };
    memcpy(params, values, sizeof values);
}

int ol_sqlite_append(struct ol_conn *base, struct ol_append_batch *write, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    struct batch batch = {.write = write};
    int64_t now_us = ol_clock_wall_us();

    if (write->is_alone && ol_sqlite_begin(base, err) < 0)
        return -1;
    ol_timestamp_format(now_us, batch.now);
    if (read_heads(conn, &batch, err) < 0 ||
        ol_store_number(base, OL_Q_EVENT_LAST, OL_NO_PARAMS, &batch.last_id, err) < 0 ||
        number_events(&batch, err) < 0)
        goto failed;
    ol_fault("append.insert");
    if (run_rows(conn, OL_Q_EVENT_INSERT, &batch, write->count, fill_event, NULL, err) < 0)
        goto failed;
    for (size_t i = 0; i < write->count; i++)
        write->events[i].out->occurred_at = now_us;
    return write->is_alone ? ol_sqlite_commit(base, err) : 0;
failed:
    if (write->is_alone)
        ol_sqlite_rollback(base);
    return -1;
}
