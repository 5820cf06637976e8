/* internal.h: what the files of a projector share: projector.c decides whose turn it is, live.c
 * fills the live tables, rebuild.c those beside them. */
#ifndef OL_PROJECTIONS_INTERNAL_H
#define OL_PROJECTIONS_INTERNAL_H

#include "projections/applier.h"
#include "projections/checkpoint.h"
#include "projections/projector.h"

struct ol_projector {
    const struct ol_projector_options *options;
    outlog *reader;       /* reads the log */
    struct ol_conn *conn; /* writes the live tables and the checkpoints */
    struct ol_waiter waiter;
    char run[OL_UUID_TEXT];
    struct ol_projection_task *views;
    struct ol_projector_stats *stats;
    int64_t settled; /* asked once a round */
    int64_t now, looked_at, told_at, pause_us;
    bool looks_again; /* what we know of the checkpoints may be old */
};

/* A projection as this worker sees it. */
struct ol_projection_task {
    struct ol_projection_task *next;
    struct ol_projector *projector;
    struct ol_checkpoint row; /* as last read */
    bool is_seen;             /* it was in the last list */
    bool is_owned;
    int64_t epoch;      /* ours, while it is owned */
    int64_t renewed_at; /* boot clock */
    int64_t retry_at;   /* after trouble */

    struct ol_applier live;
    int64_t live_declared_at; /* what the live track was opened for */
    int live_version;

    struct ol_applier build;
    struct ol_conn *aside;       /* the build's own connection */
    char build_id[OL_UUID_TEXT]; /* which request it serves */
    const char *declared;        /* what is being built; in build_arena */
    struct ol_arena build_arena;
    char *older;     /* transactions that were open when it caught up, as JSON; NULL: not yet */
    int64_t told_at; /* when its progress was last written */
};

/* --- live.c --- */

/* Fill the live tables; *moved when something happened. */
int ol_live_turn(struct ol_projection_task *view, bool *moved, outlog_err *err);
void ol_live_close(struct ol_projection_task *view);

/* --- rebuild.c --- */

/* Build beside the live tables, and swap when that has caught up. */
int ol_rebuild_turn(struct ol_projection_task *view, bool *moved, outlog_err *err);

/* Let go of it; what was built stays for whoever goes on. */
void ol_rebuild_close(struct ol_projection_task *view);

/* --- projector.c --- */

/* What is live and what is declared, in `arena`; either may be NULL. */
int ol_projection_task_definitions(struct ol_projection_task *view, struct ol_arena *arena,
                                   const char **live, const char **declared, outlog_err *err);

/* It is not ours any more, or not as we knew it. */
void ol_projection_task_lose(struct ol_projection_task *view);

#endif
