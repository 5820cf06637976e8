/* event_tail.c: a ring of the newest events, and the thread that fills it. */
#include "server/live/event_tail.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/err.h"
#include "log/event.h"
#include "log/filter.h"
#include "log/read.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { TAIL_EVENTS = 4096, TAIL_BYTES = 8 * 1024 * 1024 };
enum { TAIL_PAGE = 500, TAIL_PAGE_BYTES = 1024 * 1024, TAIL_WAIT_MS = 500 };

struct tail_entry {
    struct outlog_event event; /* the fields that filters use; its texts are in `memory` */
    struct ol_buf text;        /* in the form in which it is sent */
    struct ol_arena memory;
};

struct ol_event_tail {
    const char *store;
    void (*moved)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_follower;
    int followers;
    bool is_closing, is_known;
    struct tail_entry ring[TAIL_EVENTS]; /* positions first … first + count - 1 */
    size_t first, count, bytes;
    int64_t base, end; /* all settled events in (base, end] are in the ring */
    char log_id[37];   /* of this log */
};

void ol_event_tail_put_event(const struct outlog_event *event, struct ol_buf *out)
{
    ol_buf_print(out, "id: %lld\ndata: ", (long long)event->event_id);
    ol_event_write_json(event, out); // on one line, whatever the payload looks like
    ol_buf_text(out, "\n\n");
}

/* --- the ring --- */

static void drop_oldest(struct ol_event_tail *tail)
{
    struct tail_entry *entry = &tail->ring[tail->first];
    tail->base = entry->event.event_id;
    tail->bytes -= entry->text.capacity;
    ol_buf_clear(&entry->text);
    ol_arena_clear(&entry->memory);
    tail->first = (tail->first + 1) % TAIL_EVENTS;
    tail->count--;
}

static const char *copy_text(struct tail_entry *entry, const char *text)
{
    return text ? ol_arena_copy(&entry->memory, text, strlen(text)) : NULL;
}

static void add_event(struct ol_event_tail *tail, const struct outlog_event *event)
{
    if (tail->count == TAIL_EVENTS)
        drop_oldest(tail);
    struct tail_entry *entry = &tail->ring[(tail->first + tail->count) % TAIL_EVENTS];
    *entry = (struct tail_entry){0};
    entry->event.event_id = event->event_id;
    entry->event.occurred_at = event->occurred_at;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (field->filter != OL_FIELD_NONE)
            ol_field_set_text(&entry->event, field->stored,
                              copy_text(entry, ol_field_text(event, field->stored)));
    }
    ol_event_tail_put_event(event, &entry->text);
    tail->bytes += entry->text.capacity;
    tail->count++;
    while (tail->bytes > TAIL_BYTES && tail->count > 1)
        drop_oldest(tail);
}

static void drop_all(struct ol_event_tail *tail)
{
    while (tail->count)
        drop_oldest(tail);
    tail->is_known = false;
}

/* --- reading --- */

/* The first position of the ring after `after`: ids ascend. */
static size_t seek_after(const struct ol_event_tail *tail, int64_t after)
{
    size_t low = 0, high = tail->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (tail->ring[(tail->first + middle) % TAIL_EVENTS].event.event_id <= after)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ol_event_tail_take(struct ol_event_tail *tail, const struct outlog_filter *filter,
                        int64_t *after, size_t max, struct ol_buf *out, size_t *matched)
{
    pthread_mutex_lock(&tail->lock);
    bool is_same = !filter->log_id || strcmp(filter->log_id, tail->log_id) == 0;
    bool reaches = tail->is_known && is_same && *after >= tail->base;
    if (reaches && *after < tail->end) {
        size_t at = seek_after(tail, *after);
        for (; at < tail->count && out->bytes < max; at++) {
            const struct tail_entry *entry = &tail->ring[(tail->first + at) % TAIL_EVENTS];
            if (ol_filter_matches(filter, &entry->event)) {
                ol_buf_add(out, entry->text.data, entry->text.bytes);
                if (matched)
                    ++*matched;
            }
            *after = entry->event.event_id;
        }
        if (at == tail->count)
            *after = tail->end;
    }
    pthread_mutex_unlock(&tail->lock);
    return reaches;
}

bool ol_event_tail_is_before(struct ol_event_tail *tail, int64_t after)
{
    pthread_mutex_lock(&tail->lock);
    bool is_before = tail->is_known && tail->end < after;
    pthread_mutex_unlock(&tail->lock);
    return is_before;
}

/* --- the thread --- */

static bool wait_for_follower(struct ol_event_tail *tail)
{
    pthread_mutex_lock(&tail->lock);
    if (!tail->followers)
        drop_all(tail); // events until the next follower comes are not read
    while (!tail->followers && !tail->is_closing)
        pthread_cond_wait(&tail->has_follower, &tail->lock);
    bool is_open = !tail->is_closing;
    pthread_mutex_unlock(&tail->lock);
    return is_open;
}

/* Start at the end of the log. */
static int find_end(struct ol_event_tail *tail, outlog *log, outlog_err *err)
{
    int64_t settled;
    if (outlog_settled(log, &settled, err) < 0)
        return -1;
    pthread_mutex_lock(&tail->lock);
    tail->base = tail->end = settled;
    memcpy(tail->log_id, log->log_id, sizeof tail->log_id);
    tail->is_known = true;
    pthread_mutex_unlock(&tail->lock);
    tail->moved(tail->user);
    return 0;
}

/* Another log has other events behind the same positions: its followers read the store, which
 * refuses their cursors (R3). */
static bool is_other_log(struct ol_event_tail *tail, int result, const struct outlog_page *page,
                         const outlog_err *err)
{
    bool is_other = result < 0 ? err->code == OUTLOG_BEYOND_LOG
                               : strcmp(page->log_id, tail->log_id) != 0;
    if (!is_other)
        return false;
    pthread_mutex_lock(&tail->lock);
    drop_all(tail);
    pthread_mutex_unlock(&tail->lock);
    return true;
}

static int read_new_events(struct ol_event_tail *tail, outlog *log, struct outlog_page *page,
                           outlog_err *err)
{
    if (!tail->is_known)
        return find_end(tail, log, err);
    int result = ol_read_follow_short(log, NULL, tail->end, TAIL_PAGE, TAIL_PAGE_BYTES,
                                      TAIL_WAIT_MS, page, err);
    if (is_other_log(tail, result, page, err))
        return find_end(tail, log, err);
    if (result < 0)
        return -1;
    if (page->next_after == tail->end)
        return 0;
    pthread_mutex_lock(&tail->lock);
    for (size_t i = 0; i < page->count; i++)
        add_event(tail, &page->events[i]);
    tail->end = page->next_after;
    pthread_mutex_unlock(&tail->lock);
    tail->moved(tail->user);
    return 0;
}

static void *run_tail(void *argument)
{
    struct ol_event_tail *tail = argument;
    struct outlog_page page = {0};
    outlog *log = NULL;
    outlog_err err;

    while (wait_for_follower(tail))
        if ((!log && outlog_open(tail->store, &log, &err) < 0) ||
            read_new_events(tail, log, &page, &err) < 0)
            ol_clock_sleep_us(200000); // the store is away: followers keep their positions
    outlog_page_clear(&page);
    outlog_close(log);
    return NULL;
}

int ol_event_tail_open(struct ol_event_tail **out, const char *store, void (*moved)(void *user),
                       void *user, outlog_err *err)
{
    struct ol_event_tail *tail = calloc(1, sizeof *tail);
    if (!tail)
        return ol_no_memory(err);
    tail->store = store;
    tail->moved = moved;
    tail->user = user;
    pthread_mutex_init(&tail->lock, NULL);
    pthread_cond_init(&tail->has_follower, NULL);
    if (pthread_create(&tail->thread, NULL, run_tail, tail) != 0) {
        free(tail);
        return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
    }
    *out = tail;
    return 0;
}

void ol_event_tail_close(struct ol_event_tail *tail)
{
    if (!tail)
        return;
    pthread_mutex_lock(&tail->lock);
    tail->is_closing = true;
    tail->followers++; // ends the wait
    pthread_cond_signal(&tail->has_follower);
    pthread_mutex_unlock(&tail->lock);
    pthread_join(tail->thread, NULL);
    drop_all(tail);
    pthread_mutex_destroy(&tail->lock);
    pthread_cond_destroy(&tail->has_follower);
    free(tail);
}

void ol_event_tail_watch(struct ol_event_tail *tail, int by)
{
    pthread_mutex_lock(&tail->lock);
    tail->followers += by;
    pthread_cond_signal(&tail->has_follower);
    pthread_mutex_unlock(&tail->lock);
}
