/* tally.h: what came of a change of many messages, as every door tells it. */
#ifndef OL_VIEWS_TALLY_H
#define OL_VIEWS_TALLY_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct ol_tally {
    const char *verb; /* "requeued", "killed" */
    int64_t count, skipped;
    bool is_dry;     /* they were only counted */
    size_t most_ids; /* how many are named: a million ids help nobody */
    size_t named;
    struct ol_buf ids;
};

void ol_tally_clear(struct ol_tally *tally);

/* Count a message: the on_message of struct outlog_requeue. */
void ol_tally_note(void *tally, const char *event_id);

/* {"requeued":…,"skipped":…,"dry_run":…,"event_ids":[…]} */
void ol_tally_json(const struct ol_tally *tally, struct ol_buf *out);

#endif
