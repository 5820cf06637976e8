/* user_sql.h: statements and tables that are not ours: what a user wrote for a projection.
 *
 * A program is a set of statements that are run again and again with the values of events. Its
 * tables can be built a second time aside, beside the live ones, and take their place in one
 * moment. */
#ifndef OL_STORE_USER_SQL_H
#define OL_STORE_USER_SQL_H

#include "store/store.h"

struct ol_user_statement {
    const char *const
        *texts; /* param_count + 1 stretches of SQL: a value stands between each two */
    int param_count;
    bool *wants_json; /* filled by prepare: this value goes in as JSON, not as plain text */
};

struct ol_user_program {
    struct ol_user_statement *statements;
    size_t count;
    struct ol_conn *conn; /* filled by prepare */
    void *handle;         /* the store's own */

    /* Called at most once while a batch is applied, perhaps by another thread; may be NULL. */
    void (*meanwhile)(void *context);
    void *context;
};

/* One statement with its values. Their text must live until apply returns. */
struct ol_user_call {
    int statement;
    const struct ol_value *values;
};

/* Tables that are ready to take the place of the live ones. */
struct ol_user_swap {
    const char *name; /* of the projection */
    const char *const *tables;
    size_t table_count;
    const char *tables_json;
    const char *create;
    int64_t event_id; /* how far they are; the swap looks whether that is still so */

    /* Called inside the transaction of the swap; -1 undoes it all. */
    int (*record)(void *context, struct ol_conn *conn, outlog_err *err);
    void *context;
};

/* Errors of a user's SQL are OUTLOG_STORE_ERROR, with the database's own words; what may pass by
 * itself (a lock, a lost connection, a full disk) has a code that is retryable. */
struct ol_user_sql {
    /* Make a program ready on this connection. err->index: which statement is wrong, or -1. */
    int (*prepare)(struct ol_conn *conn, struct ol_user_program *program, outlog_err *err);

    /* Run calls in their order, inside a transaction. One by one, err->index names the call that
     * failed; otherwise it may be -1. */
    int (*apply)(struct ol_user_program *program, const struct ol_user_call *calls, size_t count,
                 bool one_by_one, outlog_err *err);

    /* Let go of what prepare made. Does nothing for one that was never prepared. */
    void (*forget)(struct ol_user_program *program);

    /* Run a user's script inside a transaction of ours, which it cannot end. */
    int (*script)(struct ol_conn *conn, const char *sql, outlog_err *err);

    /* Whether the place where tables are created has this one. */
    int (*has_table)(struct ol_conn *conn, const char *table, bool *out, outlog_err *err);

    /* Fail if one of the tables is there and has rows. */
    int (*refuse_filled)(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err);

    /* Empty the tables. */
    int (*clear)(struct ol_conn *conn, const struct ol_user_swap *swap, outlog_err *err);

    /* A connection to the place beside the live tables, made when it is not there. What is created
     * there without a schema's name stays there; what is only read is found where it is. */
    int (*aside_open)(const char *url, const char *name, struct ol_conn **out, outlog_err *err);

    /* A transaction there, which does not lock the live tables. Ended as any other. */
    int (*aside_begin)(struct ol_conn *aside, outlog_err *err);

    /* Throw the place away. */
    int (*aside_drop)(struct ol_conn *live, const char *name, outlog_err *err);

    /* Put what was built aside in the place of the live tables, in one transaction that also
     * records it. Nobody sees anything between. OUTLOG_UNAVAILABLE: not now, readers hold the
     * tables. */
    int (*aside_swap)(struct ol_conn *live, const struct ol_user_swap *swap, outlog_err *err);

    /* A rule's own query for recipients, ready to run as the database evaluates the rule, and tried
     * once inside the caller's transaction; NULL: no longer. */
    int (*lookup)(struct ol_conn *conn, const char *rule, const char *sql, outlog_err *err);

    bool has_types; /* values are read as text by their type; else they carry their own */
};

extern const struct ol_user_sql ol_user_sqlite, ol_user_postgres;

#endif
