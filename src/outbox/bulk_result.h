/* bulk_result.h: the result of a change of many messages, as the API and the CLI show it. */
#ifndef OL_OUTBOX_BULK_RESULT_H
#define OL_OUTBOX_BULK_RESULT_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

struct ol_bulk_result {
    const char *verb; /* "requeued", "killed" */
    int64_t count, skipped;
    bool is_dry;    /* a dry run: they were only counted */
    size_t ids_max; /* how many ids are listed: a million would help nobody */
    size_t named;
    struct ol_buf ids;
};

void ol_bulk_result_clear(struct ol_bulk_result *result);

/* Count a message: the on_message of struct outlog_requeue. */
void ol_bulk_result_note(void *result, const char *event_id);

/* {"requeued":…,"skipped":…,"dry_run":…,"event_ids":[…]} */
void ol_bulk_result_json(const struct ol_bulk_result *result, struct ol_buf *out);

#endif
