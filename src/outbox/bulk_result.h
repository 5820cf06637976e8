/* bulk_result.h: what came of a change of many messages, as every door tells it. */
#ifndef OL_OUTBOX_BULK_RESULT_H
#define OL_OUTBOX_BULK_RESULT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct ol_bulk_result {
    const char *verb; /* "requeued", "killed" */
    int64_t count, skipped;
    bool is_dry;     /* they were only counted */
    size_t most_ids; /* how many are named: a million ids help nobody */
    size_t named;
    struct ol_buf ids;
};

void ol_bulk_result_clear(struct ol_bulk_result *tally);

/* Count a message: the on_message of struct outlog_requeue. */
void ol_bulk_result_note(void *tally, const char *event_id);

/* {"requeued":…,"skipped":…,"dry_run":…,"event_ids":[…]} */
void ol_bulk_result_json(const struct ol_bulk_result *tally, struct ol_buf *out);

#endif
