/* prefetch.h: a question that is asked before its answer is needed, over one PostgreSQL connection.
 *
 * While a program works on one batch the server can already read the next. The question travels
 * behind the next statement; its answer is kept until somebody asks exactly that question. Whatever
 * is kept is a hint: it may be dropped at any time, and then the question is simply asked.
 *
 * 1  Each statement ends in a sync of its own, so it commits or fails by itself, as without this.
 * 2  At most one question is under way; answers come in the order of the statements.
 * 3  Everything else on the connection waits for ol_prefetch_finish(). */
#ifndef OL_STORE_POSTGRES_PREFETCH_H
#define OL_STORE_POSTGRES_PREFETCH_H

#include "queries.h"

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

enum { OL_PREFETCH_KEPT = 8, OL_PREFETCH_NUMBERS = 4 };

/* A prepared statement with its arguments, as libpq wants them; results come in binary. */
struct ol_prefetch_statement {
    const char *name;
    int count;
    const char *const *values;
    const int *lengths, *formats;
};

struct ol_prefetch_question {
    enum ol_query_id id;
    uint64_t key;
    int count;
    int64_t numbers[OL_PREFETCH_NUMBERS];
};

struct ol_prefetch {
    struct ol_prefetch_entry {
        struct ol_prefetch_question question;
        char statement[32];
        bool is_used;
        PGresult *answer; /* NULL: under way */
    } kept[OL_PREFETCH_KEPT];
    int wished, under_way; /* places in `kept`, from 1; 0: none */
};

/* Ask this behind the next statement. The first number tells what it is about: of a question about
 * the same only the newest is kept. */
void ol_prefetch_request(struct ol_prefetch *ahead, const char *statement,
                         const struct ol_prefetch_question *question);

/* The answer to a question, if it was asked ahead; the caller owns it. NULL: ask. */
PGresult *ol_prefetch_take(struct ol_prefetch *ahead, PGconn *pg,
                           const struct ol_prefetch_question *question);

/* Run a statement, and the wish behind it. */
PGresult *ol_prefetch_execute(struct ol_prefetch *ahead, PGconn *pg,
                              const struct ol_prefetch_statement *statement);

/* Does a statement have to go through ol_prefetch_execute() to keep the line moving? */
bool ol_prefetch_is_busy(const struct ol_prefetch *ahead);

/* Take in what is under way and make the connection an ordinary one again. */
void ol_prefetch_finish(struct ol_prefetch *ahead, PGconn *pg);

/* Forget everything: the connection is gone. */
void ol_prefetch_drop(struct ol_prefetch *ahead);

#endif
