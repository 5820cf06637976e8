/* internal.h: shared by the files of a projector. projector.c owns projections and schedules them,
 * live.c fills the live tables, rebuild.c fills the shadow tables of a rebuild. */
#ifndef OL_PROJECTIONS_INTERNAL_H
#define OL_PROJECTIONS_INTERNAL_H

#include "projections/applier.h"
#include "projections/checkpoint.h"
#include "projections/projector.h"
#include "store/owner.h"

struct ol_projector {
    const struct ol_projector_options *options;
    outlog *reader;       /* reads the log */
    struct ol_conn *conn; /* writes the live tables and the checkpoints */
    struct ol_waiter waiter;
    struct ol_owner owner;
    struct ol_projection_task *tasks;
    struct ol_projector_stats *stats;
    int64_t settled;     /* read once per round */
    int64_t now;         /* boot clock, as are the next two */
    int64_t polled_at;   /* when the checkpoints were last read */
    int64_t reported_at; /* when an error was last logged */
    int64_t pause_us;
    bool needs_poll; /* the checkpoints we know may be stale: read them again */
};

/* A projection, and what this worker does for it. */
struct ol_projection_task {
    struct ol_projection_task *next;
    struct ol_projector *projector;
    struct ol_checkpoint row; /* as last read */
    bool is_seen;             /* it was among the checkpoints last read */
    bool is_owned;
    int64_t epoch;      /* ours, while it is owned */
    int64_t renewed_at; /* boot clock */
    int64_t retry_at;   /* after an error */

    struct ol_applier live;
    int live_version; /* of the definition that `live` was opened with */

    struct ol_applier shadow;             /* fills the shadow tables of a rebuild */
    struct ol_conn *shadow_conn;          /* its own connection */
    char shadow_rebuild_id[OL_UUID_TEXT]; /* the request it serves; "" for none */
    const char *shadow_definition;        /* in shadow_arena */
    struct ol_arena shadow_arena;
    char *older_transactions; /* those open when it caught up, as JSON; NULL: not yet */
    int64_t progress_at;      /* when its progress was last written */
};

/* --- live.c --- */

/* Apply the next events to the live tables. *moved is set when anything changed. */
int ol_live_advance(struct ol_projection_task *task, bool *moved, outlog_err *err);
void ol_live_close(struct ol_projection_task *task);

/* --- rebuild.c --- */

/* Apply the next events to the shadow tables, and swap when they have caught up. */
int ol_rebuild_advance(struct ol_projection_task *task, bool *moved, outlog_err *err);

/* Close the rebuild's connection. The shadow tables stay for the next owner, who resumes. */
void ol_rebuild_close(struct ol_projection_task *task);

/* --- projector.c --- */

/* The live and the declared definition, in `arena`; either may be NULL. */
int ol_projection_task_definitions(struct ol_projection_task *task, struct ol_arena *arena,
                                   const char **live, const char **declared, outlog_err *err);

/* Give up ownership: another worker has it, or its row changed under us. */
void ol_projection_task_lose(struct ol_projection_task *task);

#endif
