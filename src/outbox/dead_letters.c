/* dead_letters.c: rows with different errors form one group if their error patterns are equal. */
#include "outbox/dead_letters.h"

#include "outbox/admin.h"

#include <stdlib.h>
#include <string.h>

struct letter_grouping {
    struct ol_dead_letters_groups *out;
    struct ol_arena *arena;
    size_t capacity;
};

static struct ol_dead_letter_group *find_group(struct letter_grouping *grouping,
                                               const char *destination, const char *error)
{
    struct ol_dead_letters_groups *out = grouping->out;
    for (size_t i = 0; i < out->count; i++)
        if (strcmp(out->all[i].destination, destination) == 0 &&
            strcmp(out->all[i].error, error) == 0)
            return &out->all[i];
    if (out->count == grouping->capacity) {
        grouping->capacity = grouping->capacity ? grouping->capacity * 2 : 16;
        struct ol_dead_letter_group *wider =
            ol_arena_array(grouping->arena, grouping->capacity, sizeof *wider);
        if (!wider)
            return NULL;
        if (out->count)
            memcpy(wider, out->all, out->count * sizeof *wider);
        out->all = wider;
    }
    struct ol_dead_letter_group *group = &out->all[out->count];
    *group =
        (struct ol_dead_letter_group){.destination = ol_arena_copy(grouping->arena, destination,
                                                                   strlen(destination)),
                                      .error = error};
    out->count += group->destination != NULL;
    return group->destination ? group : NULL;
}

static int compare_counts(const void *a, const void *b)
{
    const struct ol_dead_letter_group *one = a, *two = b;
    if (one->count != two->count)
        return one->count > two->count ? -1 : 1;
    int order = strcmp(one->destination, two->destination);
    return order ? order : strcmp(one->error, two->error);
}

static int add_row(struct letter_grouping *grouping, const struct ol_rows *rows, outlog_err *err)
{
    const char *last_error = ol_rows_text(rows, 1, NULL);
    const char *error = ol_admin_error_pattern(last_error ? last_error : "", grouping->arena);
    struct ol_dead_letter_group *group =
        error ? find_group(grouping, ol_rows_text(rows, 0, NULL), error) : NULL;
    if (!group)
        return ol_no_memory(err);
    int64_t oldest = ol_rows_time(rows, 3), newest = ol_rows_time(rows, 4);
    group->count += ol_rows_int(rows, 2);
    group->held += ol_rows_int(rows, 5);
    group->oldest = group->oldest && group->oldest < oldest ? group->oldest : oldest;
    group->newest = group->newest > newest ? group->newest : newest;
    return 0;
}

int ol_dead_letters_groups(outlog *log, const char *destination, struct ol_arena *arena,
                           struct ol_dead_letters_groups *out, outlog_err *err)
{
    struct letter_grouping grouping = {.out = out, .arena = arena};
    struct ol_rows rows;
    int more;

    *out = (struct ol_dead_letters_groups){0};
    if (ol_log_ready(log, err) < 0 ||
        ol_store_query(log->conn, OL_Q_DEAD_GROUPS, OL_PARAMS(ol_value_optional(destination)),
                       &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        if (add_row(&grouping, &rows, err) < 0) {
            more = -1;
            break;
        }
    ol_rows_end(&rows);
    if (out->count)
        qsort(out->all, out->count, sizeof *out->all, compare_counts);
    return more < 0 ? -1 : 0;
}

void ol_dead_letters_group_json(const struct ol_dead_letter_group *group, struct ol_buf *out)
{
    ol_buf_text(out, "{\"destination\":");
    ol_buf_json_text(out, group->destination);
    ol_buf_text(out, ",\"error\":");
    ol_buf_json_text(out, group->error);
    ol_buf_print(out, ",\"count\":%lld,\"held\":%lld,\"oldest\":", (long long)group->count,
                 (long long)group->held);
    ol_buf_json_time(out, group->oldest);
    ol_buf_text(out, ",\"newest\":");
    ol_buf_json_time(out, group->newest);
    ol_buf_char(out, '}');
}
