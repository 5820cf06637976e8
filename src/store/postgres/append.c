/* append.c: writes many events in one statement, as arrays in binary. */
#include "store/postgres/internal.h"

#include "base/buf.h"
#include "base/fault.h"
#include "store/append_batch.h"
#include "store/event_fields.h"
#include "store/wake.h"

#include <assert.h>
#include <endian.h>
#include <libpq-fe.h>
#include <string.h>

/* PostgreSQL's numbers of the types, and of arrays of them. */
enum {
    APPEND_INT8_OID = 20,
    APPEND_INT4_OID = 23,
    APPEND_TEXT_OID = 25,
    APPEND_UUID_OID = 2950,
    APPEND_INT8_ARRAY = 1016,
    APPEND_INT4_ARRAY = 1007,
    APPEND_TEXT_ARRAY = 1009,
    APPEND_UUID_ARRAY = 2951
};

/* A one-dimensional array in PostgreSQL's binary form, built element by element. */
static void array_begin(struct ol_buf *to, Oid element, size_t count)
{
    uint32_t header[5] = {htobe32(1), htobe32(1), htobe32(element), htobe32((uint32_t)count),
                          htobe32(1)};
    ol_buf_add(to, header, sizeof header);
}

static void array_bytes(struct ol_buf *to, const void *bytes, size_t count)
{
    uint32_t length = htobe32((uint32_t)count);
    ol_buf_add(to, &length, sizeof length);
    ol_buf_add(to, bytes, count);
}

static void array_null(struct ol_buf *to)
{
    uint32_t length = htobe32(UINT32_MAX);
    ol_buf_add(to, &length, sizeof length);
}

static void array_text(struct ol_buf *to, const char *text)
{
    if (text)
        array_bytes(to, text, strlen(text));
    else
        array_null(to);
}

static void array_int8(struct ol_buf *to, int64_t number)
{
    uint64_t bytes = htobe64((uint64_t)number);
    array_bytes(to, &bytes, sizeof bytes);
}

static void array_int4(struct ol_buf *to, int number)
{
    uint32_t bytes = htobe32((uint32_t)number);
    array_bytes(to, &bytes, sizeof bytes);
}

static void array_uuid(struct ol_buf *to, const char *text)
{
    uint8_t bytes[16];
    if (!text) {
        array_null(to);
        return;
    }
    ol_uuid_to_bytes(text, bytes);
    array_bytes(to, bytes, sizeof bytes);
}

/* The parameters of events_append: the aggregates, the place of each event among them, the fields
 * that callers give in the order of sql/schema/event.json, and two more. */
enum append_param {
    APPEND_HEAD_ORG_KEY,
    APPEND_HEAD_AGGREGATE_TYPE,
    APPEND_HEAD_AGGREGATE_ID,
    APPEND_HEAD_COUNT,
    APPEND_HEAD,
    APPEND_NTH,
    APPEND_GIVEN,
    APPEND_EXPECTED_SEQ = APPEND_GIVEN + OL_EVENT_GIVEN_COUNT,
    APPEND_WAIT_MS, /* the only one that is no array */
    APPEND_PARAM_COUNT
};

static bool is_given(const struct ol_field *field)
{
    return field->given != OL_FIELD_NONE;
}

static Oid element_type(const struct ol_field *field)
{
    return field->kind == OL_FIELD_UUID      ? APPEND_UUID_OID
           : field->kind == OL_FIELD_VERSION ? APPEND_INT4_OID
                                             : APPEND_TEXT_OID;
}

static Oid array_type(Oid element)
{
    return element == APPEND_UUID_OID   ? APPEND_UUID_ARRAY
           : element == APPEND_INT4_OID ? APPEND_INT4_ARRAY
           : element == APPEND_INT8_OID ? APPEND_INT8_ARRAY
                                        : APPEND_TEXT_ARRAY;
}

/* The type of one element of each parameter. */
static void list_elements(Oid elements[APPEND_PARAM_COUNT])
{
    int at = APPEND_GIVEN;
    for (int i = 0; i < APPEND_GIVEN; i++)
        elements[i] = i < APPEND_HEAD_COUNT ? APPEND_TEXT_OID
                      : i == APPEND_HEAD    ? APPEND_INT4_OID
                                            : APPEND_INT8_OID;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++)
        if (is_given(&ol_event_fields[i]))
            elements[at++] = element_type(&ol_event_fields[i]);
    elements[APPEND_EXPECTED_SEQ] = APPEND_INT8_OID;
    elements[APPEND_WAIT_MS] = APPEND_INT4_OID;
}

static void add_field(struct ol_buf *column, const struct ol_append_batch_event *event, int field)
{
    const char *text = ol_field_text(&event->row, ol_event_fields[field].given);
    if (field == OL_EVENT_PAYLOAD)
        array_bytes(column, text, event->payload_bytes);
    else if (ol_event_fields[field].kind == OL_FIELD_UUID)
        array_uuid(column, text);
    else
        array_text(column, text);
}

static void add_event(struct ol_buf *columns, const struct ol_append_batch_event *event)
{
    struct ol_buf *given = &columns[APPEND_GIVEN];
    array_int4(&columns[APPEND_HEAD], event->head + 1);
    array_int8(&columns[APPEND_NTH], event->nth);
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        if (!is_given(&ol_event_fields[i]))
            continue;
        if (i == OL_EVENT_EVENT_VERSION)
            array_int4(given++, event->row.event_version);
        else
            add_field(given++, event, i);
    }
    if (event->row.expected_seq)
        array_int8(&columns[APPEND_EXPECTED_SEQ], *event->row.expected_seq);
    else
        array_null(&columns[APPEND_EXPECTED_SEQ]);
}

static void fill_columns(const struct ol_append_batch *write, const Oid *elements,
                         struct ol_buf *columns)
{
    for (int i = 0; i < APPEND_WAIT_MS; i++)
        array_begin(&columns[i], elements[i],
                    i <= APPEND_HEAD_COUNT ? write->head_count : write->count);
    for (size_t i = 0; i < write->head_count; i++) {
        const struct ol_append_batch_head *head = &write->heads[i];
        array_text(&columns[APPEND_HEAD_ORG_KEY], head->org_key);
        array_text(&columns[APPEND_HEAD_AGGREGATE_TYPE], head->aggregate_type);
        array_text(&columns[APPEND_HEAD_AGGREGATE_ID], head->aggregate_id);
        array_int8(&columns[APPEND_HEAD_COUNT], head->count);
    }
    for (size_t i = 0; i < write->count; i++)
        add_event(columns, &write->events[i]);
}

/* An array of nulls is sent as a null: the server pays for each element of an array. */
static bool is_all_null(const struct ol_buf *array, size_t count)
{
    enum { ARRAY_HEADER = 20, ARRAY_LENGTH = 4 };
    if (array->bytes != ARRAY_HEADER + count * ARRAY_LENGTH)
        return false;
    for (size_t i = ARRAY_HEADER; i < array->bytes; i++)
        if ((unsigned char)array->data[i] != 0xff)
            return false;
    return true;
}

static PGresult *send_batch(struct ol_postgres_conn *conn, const struct ol_append_batch *write,
                            bool is_shared, outlog_err *err)
{
    const uint32_t wait_ms = htobe32((uint32_t)(is_shared        ? OL_GROUP_COMMIT_LOCK_MS
                                                : write->wait_ms ? write->wait_ms
                                                                 : OL_POSTGRES_LOCK_MS));
    const enum ol_query_id id = conn->rights == OL_POSTGRES_TRUSTED ? OL_Q_EVENTS_APPEND
                                                                    : OL_Q_EVENTS_APPEND_CHECKED;
    const struct ol_query *query = &ol_queries_postgres[id];
    struct ol_value params[APPEND_PARAM_COUNT];
    struct ol_statement *text = &conn->text;
    struct ol_postgres_arguments arguments = {.count = APPEND_PARAM_COUNT};
    struct ol_buf columns[APPEND_PARAM_COUNT] = {{0}};
    Oid elements[APPEND_PARAM_COUNT];
    PGresult *result = NULL;

    for (int i = 0; i < APPEND_PARAM_COUNT; i++)
        params[i] = ol_value_int(0); // none is absent; the values follow below
    int slot = ol_postgres_find_prepared(conn, id, ol_statement_key(query, params));
    if (slot < 0 && ol_postgres_build(conn, query, params, err) < 0)
        return NULL;
    list_elements(elements);
    fill_columns(write, elements, columns);
    if (is_shared || write->wait_ms || (conn->base.is_pooled && write->is_alone))
        ol_buf_add(&columns[APPEND_WAIT_MS], &wait_ms, sizeof wait_ms);
    for (int i = 0; i < APPEND_PARAM_COUNT; i++) {
        if (columns[i].failed) {
            ol_no_memory(err);
            goto out;
        }
        arguments.types[i] = i == APPEND_WAIT_MS ? APPEND_INT4_OID : array_type(elements[i]);
        arguments.values[i] = is_all_null(&columns[i], write->count) ? NULL : columns[i].data;
        arguments.lengths[i] = (int)columns[i].bytes;
        arguments.formats[i] = OL_POSTGRES_BINARY;
    }
    if (slot < 0)
        slot = ol_postgres_prepare(conn, id, ol_statement_key(query, params), text, &arguments);
    result = ol_postgres_execute(conn, slot, text->text, &arguments);
out:
    for (int i = 0; i < APPEND_PARAM_COUNT; i++)
        ol_buf_clear(&columns[i]);
    return result;
}

/* The parameters of event_append. */
static void list_values(const struct ol_append_batch_event *event, struct ol_value *params)
{
    const struct outlog_new_event *row = &event->row;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (!is_given(field))
            continue;
        *params++ = i == OL_EVENT_EVENT_VERSION ? ol_value_int(row->event_version)
                    : i == OL_EVENT_PAYLOAD     ? ol_value_bytes(row->payload, event->payload_bytes)
                                                : ol_value_text(ol_field_text(row, field->given));
    }
    *params = row->expected_seq ? ol_value_int(*row->expected_seq) : ol_value_text(NULL);
}

static PGresult *send_one(struct ol_postgres_conn *conn, const struct ol_append_batch *write,
                          outlog_err *err)
{
    struct ol_value params[OL_EVENT_GIVEN_COUNT + 1];
    struct ol_rows rows = {0};

    list_values(&write->events[0], params);
    return ol_postgres_query(&conn->base, OL_Q_EVENT_APPEND, params, &rows, err) < 0 ? NULL
                                                                                     : rows.handle;
}

/* A record in binary: how many fields, then for each its type, its length and its bytes; ours are
 * three numbers of eight bytes. */
static int64_t record_number(const PGresult *result, int field)
{
    enum { RECORD_HEADER = 4, RECORD_FIELD = 16 };
    uint64_t number;
    assert(PQgetlength(result, 0, 0) == RECORD_HEADER + 3 * RECORD_FIELD);
    memcpy(&number, PQgetvalue(result, 0, 0) + RECORD_HEADER + field * RECORD_FIELD + 8,
           sizeof number);
    return (int64_t)be64toh(number);
}

static void read_one(const PGresult *result, struct outlog_appended *out)
{
    out->event_id = record_number(result, 0);
    out->aggregate_seq = record_number(result, 1);
    out->occurred_at = record_number(result, 2) + OL_POSTGRES_EPOCH;
}

static void read_batch(struct ol_rows *rows, struct ol_append_batch *write)
{
    for (rows->row = 0; rows->row < (int)write->count; rows->row++) {
        struct outlog_appended *out = write->events[rows->row].out;
        out->event_id = ol_postgres_column_int(rows, 0);
        out->aggregate_seq = ol_postgres_column_int(rows, 1);
        out->occurred_at = ol_postgres_column_time(rows, 2);
    }
}

/* A single event has a statement of its own. Only the one for many takes a lock timeout (5), and
 * only that exists with checks. */
static bool is_single(const struct ol_postgres_conn *conn, const struct ol_append_batch *write)
{
    return conn->rights == OL_POSTGRES_TRUSTED && write->count == 1 && !write->wait_ms &&
           !(conn->base.is_pooled && write->is_alone);
}

static void read_results(struct ol_conn *conn, PGresult *result, struct ol_append_batch *write)
{
    struct ol_rows rows = {.conn = conn, .handle = result};
    assert(PQntuples(result) == (int)write->count);
    if (is_single(ol_postgres_conn_from(conn), write))
        read_one(result, write->events[0].out);
    else
        read_batch(&rows, write);
}

/* An application's role has its events checked by the database as well (R5). */
static int learn_rights(struct ol_postgres_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    if (conn->rights != OL_POSTGRES_RIGHTS_UNKNOWN)
        return 0;
    if (ol_store_query(&conn->base, OL_Q_APPEND_IS_TRUSTED, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got >= 0)
        conn->rights = got > 0 && ol_rows_int(&rows, 0) ? OL_POSTGRES_TRUSTED : OL_POSTGRES_CHECKED;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

static PGresult *send_write(struct ol_postgres_conn *conn, const struct ol_append_batch *write,
                            bool is_shared, outlog_err *err)
{
    if (learn_rights(conn, err) < 0)
        return NULL;
    conn->warned = false;
    ol_fault("append.insert");
    return is_single(conn, write) ? send_one(conn, write, err)
                                  : send_batch(conn, write, is_shared, err);
}

/* One write, or those of several handles as a transaction of its own. */
static struct ol_commit_result write_events(struct ol_conn *base, struct ol_append_batch *write,
                                            bool is_shared, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    struct ol_commit_result end = {.status = is_shared ? OL_COMMIT_ALONE : OL_COMMIT_FAILED};
    PGresult *result = send_write(conn, write, is_shared, err);
    bool is_ok = result && PQresultStatus(result) == PGRES_TUPLES_OK;

    // The server may have committed before the connection was lost, or without its standby (2).
    if (write->is_alone && (ol_postgres_is_lost(conn) || (is_ok && conn->warned) ||
                            (result && !is_ok && ol_postgres_is_unknown(conn, result))))
        end = (struct ol_commit_result){OL_COMMIT_UNKNOWN, ol_postgres_backend_in_doubt(conn)};
    else if (is_ok) {
        end.status = OL_COMMIT_DONE;
        read_results(base, result, write);
        if (write->is_alone)
            ol_wake_signal(base->wake_key);
    } else if (result && !is_shared)
        ol_postgres_fail(conn, result, err);
    PQclear(result);
    return end;
}

int ol_postgres_append(struct ol_conn *base, struct ol_append_batch *write, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    struct ol_commit_result end = {.status = OL_COMMIT_ALONE};

    if (write->is_alone && !write->wait_ms) // one with a deadline waits for no other call
        end = ol_group_commit_write(conn->group, base, write, write_events, err);
    if (end.status == OL_COMMIT_ALONE)
        end = write_events(base, write, false, err);
    if (end.status == OL_COMMIT_DONE)
        return 0;
    if (end.status == OL_COMMIT_UNKNOWN)
        ol_postgres_fail_unknown(conn, end.in_doubt, err);
    if (err && err->index >= 0 &&
        err->index < (int)write->count) // of those that were sent: duplicates were not
        err->index = write->events[err->index].index;
    return -1;
}
