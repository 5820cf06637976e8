/* checkpoint.h: the position of each projection, its owner, and the rebuild it is asked for. */
#ifndef OL_PROJECTIONS_CHECKPOINT_H
#define OL_PROJECTIONS_CHECKPOINT_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/uuid.h"
#include "log/log.h"

struct ol_checkpoint {
    struct outlog_projection shown; /* lag is not filled in */
    char rebuild_id[OL_UUID_TEXT];
    int64_t epoch;
    char owner[OL_UUID_TEXT]; /* the worker that owns it, or "" */
    bool is_free;             /* it may be taken: it has no owner, or the lease has ended */
    int64_t declared_at;      /* when outlog.yaml last changed it; 0: it is not declared */
};

/* All of them, by name. */
int ol_checkpoint_list(struct ol_conn *conn, struct ol_arena *arena, struct ol_checkpoint **out,
                       size_t *count, outlog_err *err);

/* One of them. OUTLOG_NOT_FOUND when there is none. */
int ol_checkpoint_get(struct ol_conn *conn, const char *name, struct ol_checkpoint *out,
                      outlog_err *err);

/* Why a projection stopped, as JSON: event_id and event_type (of `event`, which may be NULL),
 * statement (may be NULL), message. */
void ol_checkpoint_error(const struct outlog_event *event, const char *statement,
                         const char *message, struct ol_buf *out);

/* Events per second since its rebuild began; *eta_s: the seconds left, or -1 when unknown. */
int64_t ol_checkpoint_rebuild_pace(const struct outlog_projection *projection, int64_t *eta_s);

/* A projection as JSON: the object of `GET /v1/projections`. */
void ol_projection_json(const struct outlog_projection *projection, struct ol_buf *out);

#endif
