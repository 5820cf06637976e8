/* applier.h: one set of tables that is filled from the log: the live ones of a projection, or those
 * that are built beside them.
 *
 * T1  The tables and the position change in one transaction, whose first statement moves the
 * position from where we know it to be: of two that apply the same events only one can commit (P1).
 * T2  Events are applied in event_id order, each with all of its statements or none.
 * T3  An event that cannot be applied stops the track behind the last one that could; what may pass
 * by itself does not stop it, it is tried again (P6). */
#ifndef OL_PROJECTIONS_APPLIER_H
#define OL_PROJECTIONS_APPLIER_H

#include "log/log.h"
#include "projections/definition.h"
#include "store/user_sql.h"

struct ol_applier;

/* Where the position is kept. */
struct ol_position_store {
    /* Begin a transaction of the track's connection. */
    int (*begin)(struct ol_applier *track, outlog_err *err);

    /* Move the position inside it. *moved = false: it is not where we think, or not ours any more.
     */
    int (*move)(struct ol_applier *track, int64_t from, int64_t to, bool *moved, outlog_err *err);
};

struct ol_applier {
    struct ol_conn *conn; /* borrowed */
    const struct ol_position_store *keeper;
    void *context; /* of the keeper */
    int64_t position;

    struct ol_arena arena; /* the definition and the program */
    struct ol_projection definition;
    struct ol_user_program program;
    int64_t *skips; /* events to leave out, rising */
    size_t skip_count;
    bool is_open;

    struct outlog_page page;
    struct outlog_page ahead; /* the page after it, read while a server applied this one */
    int64_t ahead_of;         /* where `ahead` begins; -1: it holds nothing */
    outlog *reader;           /* of the step that is under way */
    struct ol_arena batch;
    struct ol_user_call *calls;
    size_t call_room;
    size_t limit;                   /* events a step, by their size */
    size_t limit_read, ahead_limit; /* those that the pages were read with */
};

struct ol_applier_step {
    size_t applied;  /* events that are behind us now */
    bool is_at_end;  /* nothing more was settled */
    bool is_lost;    /* somebody else moved it: look at the row again */
    bool is_stopped; /* `error` says why, as JSON; it belongs to the caller */
    struct ol_buf error;
};

/* Read a definition and prepare its statements on track->conn. Failing for what the definition says
 * is no error: *stopped (JSON, empty otherwise) tells. */
int ol_applier_open(struct ol_applier *track, const char *name, const char *definition,
                    struct ol_buf *stopped, outlog_err *err);

/* Free everything but what is borrowed; it can be opened again. */
void ol_applier_close(struct ol_applier *track);

/* Apply the next events that `reader` sees. -1: nothing is lost, try again. */
int ol_applier_step(struct ol_applier *track, outlog *reader, struct ol_applier_step *out,
                    outlog_err *err);

#endif
