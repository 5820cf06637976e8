/* append.c: writes many events with few statements. */
#include "store/sqlite/internal.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/timestamp.h"
#include "store/append_batch.h"
#include "store/event_fields.h"

#include <string.h>

enum { APPEND_ROWS_MAX = 64 };

/* One call of append: what all its events have in common. */
struct batch_write {
    struct ol_append_batch *write;
    int64_t last_id; /* the highest event_id before it */
    char now[OL_TIMESTAMP_TEXT];
};

/* Set the parameters of row `i`; read a row of the result. */
typedef void fill_row(const struct batch_write *batch, size_t i, struct ol_value *params);
typedef void read_result(const struct batch_write *batch, const struct ol_rows *rows);

/* Run a query for many rows of values with few statements; `read` gets each row of the result. One
 * statement per row would open and close a dozen b-trees and, because of the triggers, keep a copy
 * of every page it touches so that this one row could be undone: together more than the insert
 * itself. The numbers of rows are powers of two, so that few statements are prepared. */
static int run_rows(struct ol_sqlite_conn *conn, enum ol_query_id id,
                    const struct batch_write *batch, size_t count, fill_row *fill,
                    read_result *read, outlog_err *err)
{
    struct ol_value params[OL_EVENT_FIELD_COUNT]; // heads have fewer
    size_t rows;
    for (size_t at = 0; at < count; at += rows) {
        for (rows = APPEND_ROWS_MAX; rows > count - at; rows /= 2)
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
            read(batch, &result);
        if (got < 0)
            return -1;
    }
    return 0;
}

static void fill_head_row(const struct batch_write *batch, size_t i, struct ol_value *params)
{
    const struct ol_append_batch_head *head = &batch->write->heads[i];
    params[0] = ol_value_int((int64_t)i);
    params[1] = ol_value_text(head->org_key);
    params[2] = ol_value_text(head->aggregate_type);
    params[3] = ol_value_text(head->aggregate_id);
}

static void read_head_base(const struct batch_write *batch, const struct ol_rows *rows)
{
    batch->write->heads[ol_rows_int(rows, 0)].base = ol_rows_int(rows, 1);
}

/* A host's own transaction may have done nothing yet: make it a writer before it reads. */
static int read_heads(struct ol_sqlite_conn *conn, const struct batch_write *batch, outlog_err *err)
{
    if (conn->base.is_borrowed &&
        ol_store_exec(&conn->base, OL_Q_WRITE_BEGIN, OL_NO_PARAMS, NULL, err) < 0)
        return -1;
    return run_rows(conn, OL_Q_HEADS_GET, batch, batch->write->head_count, fill_head_row,
                    read_head_base, err);
}

/* Number the events; refuse one that expected another number. */
static int number_events(const struct batch_write *batch, outlog_err *err)
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

static struct ol_value read_column(const struct batch_write *batch,
                                   const struct ol_append_batch_event *event, int column)
{
    const struct ol_field *field = &ol_event_fields[column];
    switch (column) {
    case OL_EVENT_EVENT_ID:
        return ol_value_int(event->out->event_id);
    case OL_EVENT_OCCURRED_AT:
        return ol_value_text(batch->now);
    case OL_EVENT_AGGREGATE_SEQ:
        return ol_value_int(event->out->aggregate_seq);
    case OL_EVENT_EVENT_VERSION:
        return ol_value_int(event->row.event_version);
    case OL_EVENT_PAYLOAD:
        return ol_value_bytes(event->row.payload, event->payload_bytes);
    default:
        return ol_value_text(ol_field_text(&event->row, field->given));
    }
}

static void fill_event(const struct batch_write *batch, size_t i, struct ol_value *params)
{
    for (int column = 0; column < OL_EVENT_FIELD_COUNT; column++)
        params[column] = read_column(batch, &batch->write->events[i], column);
}

int ol_sqlite_append(struct ol_conn *base, struct ol_append_batch *write, outlog_err *err)
{
    struct ol_sqlite_conn *conn = ol_sqlite_conn_from(base);
    struct batch_write batch = {.write = write};
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
