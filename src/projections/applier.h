/* applier.h: applies events to one set of tables: the live ones of a projection, or the shadow
 * tables of a rebuild.
 *
 * T1  The tables and the position change in one transaction. Its first statement moves the position
 *     from the value we know, so of two workers that apply the same events one can commit (P1).
 * T2  Events are applied in event_id order, each with all of its statements or none.
 * T3  An event that cannot be applied stops the applier after the last one that could. A transient
 *     error does not stop it: the step is tried again (P6). */
#ifndef OL_PROJECTIONS_APPLIER_H
#define OL_PROJECTIONS_APPLIER_H

#include "log/log.h"
#include "projections/definition.h"
#include "store/user_sql.h"

struct ol_applier;

/* Where an applier's position is stored. */
struct ol_position_store {
    /* Begin a transaction on the applier's connection. */
    int (*begin)(struct ol_applier *applier, outlog_err *err);

    /* Move the position inside it. *moved = false: it is not at `from`, or not ours any more. */
    int (*move)(struct ol_applier *applier, int64_t from, int64_t to, bool *moved, outlog_err *err);
};

struct ol_applier {
    struct ol_conn *conn; /* borrowed */
    const struct ol_position_store *positions;
    void *context; /* of the position store */
    int64_t position;

    struct ol_arena arena; /* the definition and the program */
    struct ol_projection definition;
    struct ol_user_program program;
    int64_t *skips; /* event_ids to leave out, ascending */
    size_t skip_count;
    bool is_open;

    struct outlog_page page;
    struct outlog_page readahead; /* the next page, read while the server applied this one */
    int64_t readahead_after;      /* the position it was read from; -1: it holds nothing */
    outlog *reader;               /* of the current step */
    struct ol_arena batch;
    struct ol_user_call *calls;
    size_t call_capacity;
    size_t limit;                       /* events per step; smaller when they are large */
    size_t page_limit, readahead_limit; /* the limits with which the pages were read */
};

struct ol_applier_step {
    size_t applied;  /* events */
    bool is_at_end;  /* nothing more is settled */
    bool is_lost;    /* another worker moved the position: read the row again */
    bool is_stopped; /* `error` has the reason, as JSON; the caller clears it */
    struct ol_buf error;
};

/* Read a definition and prepare its statements on applier->conn. A mistake in the definition is no
 * error: then *stopped has the reason as JSON. It stays empty otherwise. */
int ol_applier_open(struct ol_applier *applier, const char *name, const char *definition,
                    struct ol_buf *stopped, outlog_err *err);

/* Free all but the borrowed connection; it can be opened again. */
void ol_applier_close(struct ol_applier *applier);

/* Apply the next events that `reader` sees. -1: nothing was changed, try again. */
int ol_applier_step(struct ol_applier *applier, outlog *reader, struct ol_applier_step *out,
                    outlog_err *err);

#endif
