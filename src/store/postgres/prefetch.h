/* prefetch.h: run a query before its result is needed, over one PostgreSQL connection.
 *
 * While the program works on one batch, the server can already read the next one. The query is sent
 * right behind the next statement, and its result is kept until the program runs exactly that
 * query. A kept result is only a hint: it may be dropped at any time, and then the query is run
 * normally.
 *
 * 1  Each statement ends in a sync of its own, so it commits or fails by itself, as without this.
 * 2  At most one prefetch is in flight; results arrive in the order of the statements.
 * 3  Everything else on the connection waits for ol_prefetch_finish(). */
#ifndef OL_STORE_POSTGRES_PREFETCH_H
#define OL_STORE_POSTGRES_PREFETCH_H

#include "queries.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

enum { OL_PREFETCH_SLOTS = 8, OL_PREFETCH_NUMBERS = 4 };

/* A prepared statement with its arguments, as libpq wants them; results come in binary. */
struct ol_prefetch_statement {
    const char *name;
    int count;
    const char *const *values;
    const int *lengths, *formats;
};

/* Identifies a query and its arguments. */
struct ol_prefetch_key {
    enum ol_query_id id;
    uint64_t statement_key; /* ol_statement_key() */
    int count;
    int64_t numbers[OL_PREFETCH_NUMBERS];
};

struct ol_prefetch {
    struct ol_prefetch_entry {
        struct ol_prefetch_key key;
        char statement[32];
        bool is_used;
        PGresult *answer; /* NULL: requested or in flight */
    } entries[OL_PREFETCH_SLOTS];
    int requested, in_flight; /* slots in `entries`, from 1; 0: none */
};

/* Send this query behind the next statement. The query and its first number are its subject (a
 * lane, for example): of each subject only the newest request is kept. */
void ol_prefetch_request(struct ol_prefetch *prefetch, const char *statement,
                         const struct ol_prefetch_key *key);

/* The result of a query if it was prefetched; the caller owns it. NULL: run the query. */
PGresult *ol_prefetch_take(struct ol_prefetch *prefetch, PGconn *pg,
                           const struct ol_prefetch_key *key);

/* Run a statement, and send the requested prefetch behind it. */
PGresult *ol_prefetch_execute(struct ol_prefetch *prefetch, PGconn *pg,
                              const struct ol_prefetch_statement *statement);

/* Whether the next statement has to go through ol_prefetch_execute(), because a prefetch is
 * requested or in flight. */
bool ol_prefetch_is_busy(const struct ol_prefetch *prefetch);

/* Receive what is in flight and leave pipeline mode: the connection can be used normally. */
void ol_prefetch_finish(struct ol_prefetch *prefetch, PGconn *pg);

/* Drop all results: the connection is gone. */
void ol_prefetch_drop(struct ol_prefetch *prefetch);

#endif
