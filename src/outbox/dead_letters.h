/* dead_letters.h: dead letters grouped by destination and error. */
#ifndef OL_OUTBOX_DEAD_LETTERS_H
#define OL_OUTBOX_DEAD_LETTERS_H

#include "base/buf.h"
#include "log/log.h"

struct ol_dead_letter_group {
    const char *destination;
    const char
        *error; /* numbers are written as #: ids and times would make one group per message */
    int64_t count, held, oldest, newest;
};

struct ol_dead_letters_groups {
    struct ol_dead_letter_group *all; /* the largest first */
    size_t count;
};

/* Those of one destination, or all (NULL), in `arena`. Reads dead letters, by their index. */
int ol_dead_letters_groups(outlog *log, const char *destination, struct ol_arena *arena,
                           struct ol_dead_letters_groups *out, outlog_err *err);

/* {destination, error, count, held, oldest, newest} */
void ol_dead_letters_group_json(const struct ol_dead_letter_group *group, struct ol_buf *out);

#endif
