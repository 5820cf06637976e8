/* append_batch.c: numbers a batch: which aggregates it has, and which event is the nth of which. */
#include "store/append_batch.h"

#include "base/arena.h"
#include "base/err.h"

#include <stdlib.h>
#include <string.h>

static int compare_heads(const void *a, const void *b)
{
    const struct ol_append_batch_head *one = a, *two = b;
    int order = strcmp(one->org_key, two->org_key);
    if (order == 0)
        order = strcmp(one->aggregate_type, two->aggregate_type);
    return order ? order : strcmp(one->aggregate_id, two->aggregate_id);
}

static struct ol_append_batch_head find_head_key(const struct outlog_new_event *event)
{
    return (struct ol_append_batch_head){.org_key = event->org_id ? event->org_id : "",
                                         .aggregate_type = event->aggregate_type,
                                         .aggregate_id = event->aggregate_id};
}

/* The event as the store writes it. */
static struct outlog_new_event make_row(const struct ol_append_batch_event *event)
{
    struct outlog_new_event row = *event->said;
    row.id = event->id;
    row.event_version = event->event_version;
    row.actor_type = event->actor_type;
    row.actor_id = event->actor_id;
    row.request_id = event->request_id;
    row.correlation_id = event->correlation_id;
    row.causation_id = event->causation_id;
    return row;
}

int ol_append_batch_number(struct ol_append_batch *write, struct ol_arena *arena, outlog_err *err)
{
    write->heads = ol_arena_array(arena, write->count, sizeof *write->heads);
    if (!write->heads)
        return ol_no_memory(err);
    write->head_count = 0;
    for (size_t i = 0; i < write->count; i++)
        write->heads[i] = find_head_key(write->events[i].said);
    if (write->count > 1)
        qsort(write->heads, write->count, sizeof *write->heads, compare_heads);
    for (size_t i = 0; i < write->count; i++)
        if (i == 0 || compare_heads(&write->heads[i], &write->heads[write->head_count - 1]) != 0)
            write->heads[write->head_count++] = write->heads[i];
    for (size_t i = 0; i < write->count; i++) {
        struct ol_append_batch_head key = find_head_key(write->events[i].said);
        struct ol_append_batch_head *head =
            bsearch(&key, write->heads, write->head_count, sizeof key, compare_heads);
        write->events[i].head = (int)(head - write->heads);
        write->events[i].nth = ++head->count;
        write->events[i].row = make_row(&write->events[i]);
    }
    return 0;
}
