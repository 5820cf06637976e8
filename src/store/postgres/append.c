/* append.c: many events in one statement, as arrays in binary. */
#include "store/postgres/internal.h"

#include "base/buf.h"
#include "base/fault.h"
#include "store/append_batch.h"
#include "store/wake.h"

#include <assert.h>
#include <endian.h>
#include <libpq-fe.h>
#include <string.h>

enum { BOOL_OID = 16, INT8_OID = 20, INT4_OID = 23, TEXT_OID = 25, UUID_OID = 2950 };
enum { INT8_ARRAY = 1016, INT4_ARRAY = 1007, TEXT_ARRAY = 1009, UUID_ARRAY = 2951 };

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

/* The columns of events_append, in the order of its parameters. */
enum column {
    HEAD_ORG_KEY,
    HEAD_AGGREGATE_TYPE,
    HEAD_AGGREGATE_ID,
    HEAD_COUNT,
    HEAD,
    NTH,
    ORG_ID,
    AGGREGATE_TYPE,
    AGGREGATE_ID,
    EVENT_TYPE,
    EVENT_VERSION,
    PAYLOAD,
    METADATA,
    ID,
    ACTOR_TYPE,
    ACTOR_ID,
    REQUEST_ID,
    CORRELATION_ID,
    CAUSATION_ID,
    IDEMPOTENCY_KEY,
    APP_ID,
    ENV_ID,
    VISIBILITY,
    EXPECTED_SEQ,
    WAIT_MS, /* the only one that is no array */
    COLUMN_COUNT
};

static const struct {
    Oid array, element;
} column_types[COLUMN_COUNT] = {
    [HEAD_ORG_KEY] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_AGGREGATE_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_AGGREGATE_ID] = {TEXT_ARRAY, TEXT_OID},
    [HEAD_COUNT] = {INT8_ARRAY, INT8_OID},
    [HEAD] = {INT4_ARRAY, INT4_OID},
    [NTH] = {INT8_ARRAY, INT8_OID},
    [ORG_ID] = {TEXT_ARRAY, TEXT_OID},
    [AGGREGATE_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [AGGREGATE_ID] = {TEXT_ARRAY, TEXT_OID},
    [EVENT_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [EVENT_VERSION] = {INT4_ARRAY, INT4_OID},
    [PAYLOAD] = {TEXT_ARRAY, TEXT_OID},
    [METADATA] = {TEXT_ARRAY, TEXT_OID},
    [ID] = {UUID_ARRAY, UUID_OID},
    [ACTOR_TYPE] = {TEXT_ARRAY, TEXT_OID},
    [ACTOR_ID] = {TEXT_ARRAY, TEXT_OID},
    [REQUEST_ID] = {TEXT_ARRAY, TEXT_OID},
    [CORRELATION_ID] = {TEXT_ARRAY, TEXT_OID},
    [CAUSATION_ID] = {UUID_ARRAY, UUID_OID},
    [IDEMPOTENCY_KEY] = {TEXT_ARRAY, TEXT_OID},
    [APP_ID] = {TEXT_ARRAY, TEXT_OID},
    [ENV_ID] = {TEXT_ARRAY, TEXT_OID},
    [VISIBILITY] = {TEXT_ARRAY, TEXT_OID},
    [EXPECTED_SEQ] = {INT8_ARRAY, INT8_OID},
    [WAIT_MS] = {INT4_OID, INT4_OID},
};

static void fill_columns(const struct ol_append_batch *write, struct ol_buf *columns)
{
    for (int i = 0; i < WAIT_MS; i++)
        array_begin(&columns[i], column_types[i].element,
                    i <= HEAD_COUNT ? write->head_count : write->count);
    for (size_t i = 0; i < write->head_count; i++) {
        const struct ol_append_batch_head *head = &write->heads[i];
        array_text(&columns[HEAD_ORG_KEY], head->org_key);
        array_text(&columns[HEAD_AGGREGATE_TYPE], head->aggregate_type);
        array_text(&columns[HEAD_AGGREGATE_ID], head->aggregate_id);
        array_int8(&columns[HEAD_COUNT], head->count);
    }
    for (size_t i = 0; i < write->count; i++) {
        const struct ol_append_batch_event *event = &write->events[i];
        const struct outlog_new_event *said = event->said;
        array_int4(&columns[HEAD], event->head + 1);
        array_int8(&columns[NTH], event->nth);
        array_text(&columns[ORG_ID], said->org_id);
        array_text(&columns[AGGREGATE_TYPE], said->aggregate_type);
        array_text(&columns[AGGREGATE_ID], said->aggregate_id);
        array_text(&columns[EVENT_TYPE], said->event_type);
        array_int4(&columns[EVENT_VERSION], event->event_version);
        array_bytes(&columns[PAYLOAD], said->payload, event->payload_bytes);
        array_text(&columns[METADATA], said->metadata);
        array_uuid(&columns[ID], event->id);
        array_text(&columns[ACTOR_TYPE], event->actor_type);
        array_text(&columns[ACTOR_ID], event->actor_id);
        array_text(&columns[REQUEST_ID], event->request_id);
        array_text(&columns[CORRELATION_ID], event->correlation_id);
        array_uuid(&columns[CAUSATION_ID], event->causation_id);
        array_text(&columns[IDEMPOTENCY_KEY], said->idempotency_key);
        array_text(&columns[APP_ID], said->app_id);
        array_text(&columns[ENV_ID], said->env_id);
        array_text(&columns[VISIBILITY], said->visibility);
        if (said->expected_seq)
            array_int8(&columns[EXPECTED_SEQ], *said->expected_seq);
        else
            array_null(&columns[EXPECTED_SEQ]);
    }
}

/* An array of nulls is sent as none: one of them costs the server nothing, many do. */
static bool is_all_null(const struct ol_buf *array, size_t count)
{
    enum { HEADER = 20, WORD = 4 };
    if (array->bytes != HEADER + count * WORD)
        return false;
    for (size_t i = HEADER; i < array->bytes; i++)
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
    const struct ol_query *query = &ol_queries_postgres[OL_Q_EVENTS_APPEND];
    struct ol_value params[COLUMN_COUNT];
    struct ol_statement *text = &conn->text;
    struct ol_postgres_arguments arguments = {.count = COLUMN_COUNT};
    struct ol_buf columns[COLUMN_COUNT] = {{0}};
    PGresult *result = NULL;

    for (int i = 0; i < COLUMN_COUNT; i++)
        params[i] = ol_value_int(0); // all there; the values follow below
    int slot = ol_postgres_find_prepared(conn, OL_Q_EVENTS_APPEND, ol_statement_key(query, params));
    if (slot < 0 && ol_statement_build(query, params, '$', text, err) < 0)
        return NULL;
    fill_columns(write, columns);
    if (is_shared || write->wait_ms || (conn->base.is_pooled && write->is_alone))
        ol_buf_add(&columns[WAIT_MS], &wait_ms, sizeof wait_ms);
    for (int i = 0; i < COLUMN_COUNT; i++) {
        if (columns[i].failed) {
            ol_no_memory(err);
            goto out;
        }
        arguments.types[i] = column_types[i].array;
        arguments.values[i] = is_all_null(&columns[i], write->count) ? NULL : columns[i].data;
        arguments.lengths[i] = (int)columns[i].bytes;
        arguments.formats[i] = OL_POSTGRES_BINARY;
    }
    if (slot < 0)
        slot = ol_postgres_prepare(conn, OL_Q_EVENTS_APPEND, ol_statement_key(query, params), text,
                                   &arguments);
    result = ol_postgres_execute(conn, slot, text->text, &arguments);
out:
    for (int i = 0; i < COLUMN_COUNT; i++)
        ol_buf_clear(&columns[i]);
    return result;
}

static PGresult *send_one(struct ol_postgres_conn *conn, const struct ol_append_batch *write,
                          outlog_err *err)
{
    const struct ol_append_batch_event *event = &write->events[0];
    const struct ol_append_batch_head *head = &write->heads[0];
    const struct outlog_new_event *said = event->said;
    struct ol_rows rows = {0};

    if (ol_postgres_query(
            &conn->base, OL_Q_EVENT_APPEND,
            OL_PARAMS(ol_value_text(*head->org_key ? head->org_key : NULL),
                      ol_value_text(head->aggregate_type), ol_value_text(head->aggregate_id),
                      ol_value_text(said->event_type), ol_value_int(event->event_version),
                      ol_value_bytes(said->payload, event->payload_bytes),
                      ol_value_text(said->metadata), ol_value_text(event->id),
                      ol_value_text(event->actor_type), ol_value_text(event->actor_id),
                      ol_value_text(event->request_id), ol_value_text(event->correlation_id),
                      ol_value_text(event->causation_id), ol_value_text(said->idempotency_key),
                      ol_value_text(said->app_id), ol_value_text(said->env_id),
                      ol_value_text(said->visibility),
                      said->expected_seq ? ol_value_int(*said->expected_seq) : ol_value_text(NULL)),
            &rows, err) < 0)
        return NULL;
    return rows.handle;
}

/* A record in binary: how many fields, then for each its type, its length and its bytes; ours are
 * three numbers of eight bytes. */
static int64_t record_number(const PGresult *result, int field)
{
    enum { HEADER = 4, FIELD = 16 };
    uint64_t number;
    assert(PQgetlength(result, 0, 0) == HEADER + 3 * FIELD);
    memcpy(&number, PQgetvalue(result, 0, 0) + HEADER + field * FIELD + 8, sizeof number);
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

/* A single event has a statement of its own; only the one for many can be told how long to wait
 * (5). */
static bool is_single(const struct ol_postgres_conn *conn, const struct ol_append_batch *write)
{
    return write->count == 1 && !write->wait_ms && !(conn->base.is_pooled && write->is_alone);
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

static PGresult *send_write(struct ol_postgres_conn *conn, const struct ol_append_batch *write,
                            bool is_shared, outlog_err *err)
{
    conn->warned = false;
    ol_fault("append.insert");
    return is_single(conn, write) ? send_one(conn, write, err)
                                  : send_batch(conn, write, is_shared, err);
}

/* One write, or those of several handles as a transaction of its own. */
static struct ol_commit_result cross(struct ol_conn *base, struct ol_append_batch *write,
                                     bool is_shared, outlog_err *err)
{
    struct ol_postgres_conn *conn = ol_postgres_conn_from(base);
    struct ol_commit_result end = {.status = is_shared ? OL_COMMIT_ALONE : OL_COMMIT_FAILED};
    PGresult *result = send_write(conn, write, is_shared, err);
    bool is_ok = result && PQresultStatus(result) == PGRES_TUPLES_OK;

    // The server may have committed before it fell silent, or without its standby (2).
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

    if (write->is_alone && !write->wait_ms) // one that does not wait is company enough
        end = ol_group_commit_write(conn->group, base, write, cross, err);
    if (end.status == OL_COMMIT_ALONE)
        end = cross(base, write, false, err);
    if (end.status == OL_COMMIT_DONE)
        return 0;
    if (end.status == OL_COMMIT_UNKNOWN)
        ol_postgres_fail_unknown(conn, end.in_doubt, err);
    if (err && err->index >= 0 &&
        err->index < (int)write->count) // of what was sent; some were there
        err->index = write->events[err->index].index;
    return -1;
}
