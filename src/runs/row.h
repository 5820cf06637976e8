/* row.h: a signal, run, step, effect or checkpoint as its fields, each of them JSON text.
 *
 * What is stored and what is replayed have this one form: so they are printed by one function, and
 * compared field by field without knowing what a field means. */
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
    OL_COLUMN_SPEC, /* JSON that may carry credentials: masked, and not in any event (E13) */
};

struct ol_column {
    const char *name;
    enum ol_column_type type;
};

enum { OL_COLUMNS_MAX = 18 };

/* The tables, and the order in which their queries name the columns. */
struct ol_table {
    const char *table;
    struct ol_column fields[OL_COLUMNS_MAX]; /* the first is the id */
    int count;
};

enum {
    OL_IN_SIGNAL_ID,
    OL_IN_SIGNAL_ORG,
    OL_IN_SIGNAL_TYPE,
    OL_IN_SIGNAL_PAYLOAD,
    OL_IN_SIGNAL_STATUS,
    OL_IN_SIGNAL_CORRELATION,
    OL_IN_SIGNAL_RECEIVED_AT
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
    OL_IN_RUN_COMPLETED_AT
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
    OL_IN_STEP_COMPLETED_AT
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
    OL_IN_EFFECT_UPDATED_AT
};
enum {
    OL_IN_CHECKPOINT_RUN,
    OL_IN_CHECKPOINT_INDEX,
    OL_IN_CHECKPOINT_DATA,
    OL_IN_CHECKPOINT_EVENT,
    OL_IN_CHECKPOINT_CREATED_AT
};

extern const struct ol_table ol_kind_signal, ol_kind_run, ol_kind_step, ol_kind_effect,
    ol_kind_checkpoint;

struct ol_row {
    const struct ol_table *kind;
    const char *values[OL_COLUMNS_MAX]; /* JSON text; NULL is null */
    struct ol_row *next;
};

/* A list in the order it was made. Start from {0}. */
struct ol_row_list {
    struct ol_row *first, *last;
};

/* A new object at the end of the list, all null; NULL when memory is out. */
struct ol_row *ol_row_add(struct ol_row_list *list, const struct ol_table *kind,
                          struct ol_arena *arena);

/* Run a query whose columns are the kind's fields, and add an object for each row. */
int ol_row_list_load(struct ol_conn *conn, enum ol_query_id query, const struct ol_value *params,
                     const struct ol_table *kind, struct ol_arena *arena, struct ol_row_list *list,
                     outlog_err *err);

/* The same, but it ends with the object that makes `most_bytes` of JSON. *is_full: it may have, and
 * nothing is known of what is behind it. */
int ol_row_list_load_short(struct ol_conn *conn, enum ol_query_id query,
                           const struct ol_value *params, const struct ol_table *kind,
                           size_t most_bytes, struct ol_arena *arena, struct ol_row_list *list,
                           bool *is_full, outlog_err *err);

/* The object whose id, or for a checkpoint whose index, is this JSON text; NULL when there is none.
 */
struct ol_row *ol_row_find(const struct ol_row_list *list, const char *id);

/* What tells an object from others of its list. */
const char *ol_row_key(const struct ol_row *object);

/* JSON text for a field, in the arena; NULL for a NULL. JSON stays as it was written. */
const char *ol_row_value_text(struct ol_arena *arena, const char *text);
const char *ol_row_value_int(struct ol_arena *arena, int64_t number);
const char *ol_row_value_time(struct ol_arena *arena, int64_t time_us);
const char *ol_row_value_json(struct ol_arena *arena, const struct ol_json *value);

/* What a field says: the string without quotes (NULL when it is none), the number (0 for none). */
const char *ol_row_text(const struct ol_row *object, int field, struct ol_arena *arena);
int64_t ol_row_int(const struct ol_row *object, int field);
bool ol_row_is(const struct ol_row *object, int field, const char *text);

/* The object as JSON; for a list as an array. */
void ol_row_json(const struct ol_row *object, struct ol_buf *out);
void ol_row_list_json(const struct ol_row_list *list, struct ol_buf *out);

/* The members alone, without braces: for an object with more to it. */
void ol_row_members(const struct ol_row *object, struct ol_buf *out);

#endif
