/* user_sql.h: statements and tables of a user, written for a projection.
 *
 * A program is a set of statements that are run again and again with the values of events. Its
 * tables can be built a second time, as shadow tables beside the live ones, and replace them in one
 * transaction. */
#ifndef OL_STORE_USER_SQL_H
#define OL_STORE_USER_SQL_H

#include "store/store.h"

struct ol_user_statement {
    const char *const *texts; /* param_count + 1 pieces of SQL, with a value between each two */
    int param_count;
    bool *wants_json; /* filled by prepare: this value is passed as JSON, not as plain text */
};

struct ol_user_program {
    struct ol_user_statement *statements;
    size_t count;
    struct ol_conn *conn; /* filled by prepare */
    void *handle;         /* the store's own */

    /* Work that may overlap with applying a batch: called at most once per batch, perhaps by
     * another thread. May be NULL. */
    void (*overlap)(void *context);
    void *context;
};

/* One statement with its values. Their text must live until apply returns. */
struct ol_user_call {
    int statement;
    const struct ol_value *values;
};

/* Shadow tables that are ready to replace the live ones. */
struct ol_user_swap {
    const char *name; /* of the projection */
    const char *const *tables;
    size_t table_count;
    const char *tables_json;
    const char *create;
    int64_t event_id; /* their position; the swap checks that it has not changed */

    /* Called inside the transaction of the swap; -1 rolls it back. */
    int (*record)(void *context, struct ol_conn *conn, outlog_err *err);
    void *context;
};

/* Errors of a user's SQL are OUTLOG_STORE_ERROR, with the text of the database. A temporary error
 * (a lock, a lost connection, a full disk) has a retryable code. */
struct ol_user_sql {
    /* Prepare a program on this connection. err->index: which statement is wrong, or -1. */
    int (*prepare)(struct ol_conn *conn, struct ol_user_program *program, outlog_err *err);

    /* Run calls in order, inside a transaction. With one_by_one err->index is the call that failed;
     * otherwise it may be -1. */
    int (*apply)(struct ol_user_program *program, const struct ol_user_call *calls, size_t count,
                 bool one_by_one, outlog_err *err);

    /* Release what prepare allocated. Does nothing for a program that was never prepared. */
    void (*forget)(struct ol_user_program *program);

    /* Run a user's script inside a transaction of ours; one that ends the transaction fails. */
    int (*script)(struct ol_conn *conn, const char *sql, outlog_err *err);

    /* Whether the schema in which tables are created has this one. */
    int (*has_table)(struct ol_conn *conn, const char *table, bool *out, outlog_err *err);

    /* Fail if one of the tables exists and has rows. */
    int (*refuse_filled)(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err);

    /* Empty the tables. */
    int (*clear)(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err);

    /* A connection to the shadow of a projection (a schema or a file of its own), which is created
     * if needed. Tables created without a schema name go there; other tables can still be read. */
    int (*shadow_open)(const char *url, const char *name, struct ol_conn **out, outlog_err *err);

    /* A transaction in the shadow, which does not lock the live tables. Ended as any other. */
    int (*shadow_begin)(struct ol_conn *shadow, outlog_err *err);

    /* Remove the shadow. */
    int (*shadow_drop)(struct ol_conn *live, const char *name, outlog_err *err);

    /* Replace the live tables by the shadow tables, in one transaction that also records it. No
     * reader sees a state in between. OUTLOG_UNAVAILABLE: not now, readers hold the tables. */
    int (*shadow_swap)(struct ol_conn *live, const struct ol_user_swap *swap, outlog_err *err);

    /* Install a notification rule's own query for recipients, which the database runs when it
     * evaluates the rule, and try it once inside the caller's transaction. NULL: remove it. */
    int (*set_lookup)(struct ol_conn *conn, const char *rule, const char *sql, outlog_err *err);

    bool has_types; /* values are passed as text and cast by the database */
};

extern const struct ol_user_sql ol_user_sql_sqlite, ol_user_sql_postgres;

#endif
