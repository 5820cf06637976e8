/* row.h: a row of signals, runs, steps, effects or run_checkpoints, each column as JSON text.
 *
 * Stored rows and rows rebuilt from events have this one form. So one function prints both, and
 * they are compared column by column without knowing what a column means. */
#ifndef OL_RUNS_ROW_H
#define OL_RUNS_ROW_H

#include "base/json/json.h"
#include "log/log.h"

enum ol_column_type {
    OL_COLUMN_TEXT,
    OL_COLUMN_NUMBER,
    OL_COLUMN_JSON,
    OL_COLUMN_TIME,
    OL_COLUMN_UUID,
    OL_COLUMN_SPEC, /* JSON that may carry credentials: printed masked, never in an event (E13) */
};

struct ol_column {
    const char *name;
    enum ol_column_type type;
};

enum { OL_COLUMNS_MAX = 22 };

/* A table, and its columns in the order in which the queries select them. */
struct ol_table {
    const char *name;
    struct ol_column columns[OL_COLUMNS_MAX]; /* the first is the id */
    int count;
    int shown; /* as many are members of the object; the others are only compared (U3) */
};

enum {
    OL_IN_SIGNAL_ID,
    OL_IN_SIGNAL_ORG,
    OL_IN_SIGNAL_TYPE,
    OL_IN_SIGNAL_PAYLOAD,
    OL_IN_SIGNAL_STATUS,
    OL_IN_SIGNAL_CORRELATION,
    OL_IN_SIGNAL_RECEIVED_AT,
    OL_IN_SIGNAL_LAST_EVENT
};
enum {
    OL_IN_RUN_ID,
    OL_IN_RUN_ORG,
    OL_IN_RUN_SIGNAL,
    OL_IN_RUN_TYPE,
    OL_IN_RUN_VERSION,
    OL_IN_RUN_STATUS,
    OL_IN_RUN_TOTAL,
    OL_IN_RUN_FAILED,
    OL_IN_RUN_CORRELATION,
    OL_IN_RUN_STARTED_AT,
    OL_IN_RUN_COMPLETED_AT,
    OL_IN_RUN_STARTED_EVENT,
    OL_IN_RUN_LAST_EVENT
};
enum {
    OL_IN_STEP_ID,
    OL_IN_STEP_RUN,
    OL_IN_STEP_INDEX,
    OL_IN_STEP_TYPE,
    OL_IN_STEP_STATUS,
    OL_IN_STEP_OUTPUT,
    OL_IN_STEP_ERROR_CODE,
    OL_IN_STEP_ERROR_MESSAGE,
    OL_IN_STEP_DURATION,
    OL_IN_STEP_RETRIES,
    OL_IN_STEP_STARTED_AT,
    OL_IN_STEP_COMPLETED_AT,
    OL_IN_STEP_LAST_EVENT
};
enum {
    OL_IN_EFFECT_ID,
    OL_IN_EFFECT_RUN,
    OL_IN_EFFECT_STEP,
    OL_IN_EFFECT_SESSION,
    OL_IN_EFFECT_CHECKPOINT,
    OL_IN_EFFECT_TYPE,
    OL_IN_EFFECT_SPEC,
    OL_IN_EFFECT_DESTINATION,
    OL_IN_EFFECT_STATUS,
    OL_IN_EFFECT_KEY,
    OL_IN_EFFECT_MESSAGE,
    OL_IN_EFFECT_RESULT,
    OL_IN_EFFECT_EXECUTED_AT,
    OL_IN_EFFECT_ATTEMPTS,
    OL_IN_EFFECT_LAST_ATTEMPT_AT,
    OL_IN_EFFECT_CREATED_AT,
    OL_IN_EFFECT_UPDATED_AT,
    OL_IN_EFFECT_ORG,
    OL_IN_EFFECT_CORRELATION,
    OL_IN_EFFECT_EVENT,
    OL_IN_EFFECT_LAST_EVENT,
    OL_IN_EFFECT_SPEC_HASH /* no column: of a replayed row, what effect_spec must hash to */
};
enum {
    OL_IN_CHECKPOINT_RUN,
    OL_IN_CHECKPOINT_INDEX,
    OL_IN_CHECKPOINT_DATA,
    OL_IN_CHECKPOINT_EVENT,
    OL_IN_CHECKPOINT_CREATED_AT
};

extern const struct ol_table ol_table_signal, ol_table_run, ol_table_step, ol_table_effect,
    ol_table_checkpoint;

struct ol_row {
    const struct ol_table *table;
    const char *values[OL_COLUMNS_MAX]; /* JSON text; NULL is null */
    struct ol_row *next;
};

/* Rows in the order in which they were added. Start from {0}. */
struct ol_row_list {
    struct ol_row *first, *last;
};

/* Append a new row to the list, all columns null. NULL when memory is out. */
struct ol_row *ol_row_add(struct ol_row_list *list, const struct ol_table *table,
                          struct ol_arena *arena);

/* Run a query that selects the table's columns, and append every row of its result. */
int ol_row_list_load(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                     const struct ol_table *table, struct ol_arena *arena, struct ol_row_list *list,
                     outlog_err *err);

struct ol_row_query {
    struct ol_conn *conn;
    enum ol_query_id id;
    const struct ol_value *params;
    const struct ol_table *table;
    size_t json_bytes_max; /* of the JSON columns of all rows together */
};

/* The same, but stop after the row with which the JSON columns reach json_bytes_max. *is_cut is
 * true when it may have stopped early: then nothing is known about the rows that follow. */
int ol_row_list_load_some(const struct ol_row_query *query, struct ol_arena *arena,
                          struct ol_row_list *list, bool *is_cut, outlog_err *err);

/* The row whose key is this JSON text; NULL when the list has none. */
struct ol_row *ol_row_find(const struct ol_row_list *list, const char *key);

/* What identifies a row in its list: its id, or the index of a checkpoint. */
const char *ol_row_key(const struct ol_row *row);

/* JSON text for a column, in the arena; NULL for a NULL. JSON stays as it was written. */
const char *ol_row_value_text(struct ol_arena *arena, const char *text);
const char *ol_row_value_int(struct ol_arena *arena, int64_t number);
const char *ol_row_value_time(struct ol_arena *arena, int64_t time_us);
const char *ol_row_value_json(struct ol_arena *arena, const struct ol_json *value);

/* The value of a column: the string without quotes (NULL when it is none), the number (0 for none),
 * whether it is this string. */
const char *ol_row_text(const struct ol_row *row, int column, struct ol_arena *arena);
int64_t ol_row_int(const struct ol_row *row, int column);
bool ol_row_is(const struct ol_row *row, int column, const char *text);

/* The row as a JSON object, or null for NULL; a list as an array. */
void ol_row_json(const struct ol_row *row, struct ol_buf *out);
void ol_row_list_json(const struct ol_row_list *list, struct ol_buf *out);

/* The members alone, without braces: the caller adds more of them. */
void ol_row_members(const struct ol_row *row, struct ol_buf *out);

#endif
