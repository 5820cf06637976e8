/* causation.h: finding the stored event that a causation_id names. */
#ifndef OL_LOG_CAUSATION_H
#define OL_LOG_CAUSATION_H

#include "base/uuid.h"
#include "store/store.h"

struct ol_causation {
    char id[OL_UUID_TEXT];
    const char *org_id; /* NULL: infrastructure */
    const char *correlation_id;
};

/* Find the event by its id or its event_id; texts come from `arena`. *found is false when there is
 * none. */
int ol_causation_find(struct ol_conn *conn, const char *text, struct ol_arena *arena,
                      struct ol_causation *out, bool *found, outlog_err *err);

bool ol_causation_is_of_org(const struct ol_causation *cause, const char *org_id);

/* Fails with OUTLOG_UNKNOWN_CAUSATION; always returns -1. */
int ol_causation_refuse(outlog_err *err, const char *text);

#endif
