/* event_tail.c: a ring of the newest events. */
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

enum {
    RING = 4096,
    RING_BYTES = 8 * 1024 * 1024,
    PAGE = 500,
    PAGE_BYTES = 1024 * 1024,
    PATIENCE_MS = 500
};

struct note {
    struct outlog_event event; /* what filters look at; its texts are in `memory` */
    struct ol_buf text;        /* as it is sent */
    struct ol_arena memory;
};

struct ol_event_tail {
    const char *store;
    void (*moved)(void *user);
    void *user;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t has_listener;
    int listeners;
    bool is_over, is_known;
    struct note ring[RING]; /* positions first … first + count - 1 */
    size_t first, count, bytes;
    int64_t base, tip; /* all settled events in (base, tip] are in the ring */
};

void ol_event_tail_put_event(const struct outlog_event *event, struct ol_buf *out)
{
    ol_buf_print(out, "id: %lld\ndata: ", (long long)event->event_id);
    ol_event_write_json(event, out); // on one line, whatever the payload looks like
    ol_buf_text(out, "\n\n");
}

/* --- the ring --- */

static void drop_oldest(struct ol_event_tail *hub)
{
    struct note *note = &hub->ring[hub->first];
    hub->base = note->event.event_id;
    hub->bytes -= note->text.room;
    ol_buf_clear(&note->text);
    ol_arena_clear(&note->memory);
    hub->first = (hub->first + 1) % RING;
    hub->count--;
}

static const char *keep(struct note *note, const char *text)
{
    return text ? ol_arena_copy(&note->memory, text, strlen(text)) : NULL;
}

static void add(struct ol_event_tail *hub, const struct outlog_event *event)
{
    if (hub->count == RING)
        drop_oldest(hub);
    struct note *note = &hub->ring[(hub->first + hub->count) % RING];
    *note = (struct note){0};
    note->event.event_id = event->event_id;
    note->event.occurred_at = event->occurred_at;
    for (int i = 0; i < OL_EVENT_FIELD_COUNT; i++) {
        const struct ol_field *field = &ol_event_fields[i];
        if (field->filter != OL_FIELD_NONE)
            ol_field_set_text(&note->event, field->stored,
                              keep(note, ol_field_text(event, field->stored)));
    }
    ol_event_tail_put_event(event, &note->text);
    hub->bytes += note->text.room;
    hub->count++;
    while (hub->bytes > RING_BYTES && hub->count > 1)
        drop_oldest(hub);
}

static void forget(struct ol_event_tail *hub)
{
    while (hub->count)
        drop_oldest(hub);
    hub->is_known = false;
}

/* --- taking --- */

/* The first position of the ring after `after`: ids ascend. */
static size_t seek(const struct ol_event_tail *hub, int64_t after)
{
    size_t low = 0, high = hub->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (hub->ring[(hub->first + middle) % RING].event.event_id <= after)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool ol_event_tail_take(struct ol_event_tail *hub, const struct outlog_filter *filter,
                        int64_t *after, size_t most, struct ol_buf *out, size_t *matched)
{
    pthread_mutex_lock(&hub->lock);
    bool reaches = hub->is_known && *after >= hub->base;
    if (reaches && *after < hub->tip) {
        size_t at = seek(hub, *after);
        for (; at < hub->count && out->bytes < most; at++) {
            const struct note *note = &hub->ring[(hub->first + at) % RING];
            if (ol_filter_matches(filter, &note->event)) {
                ol_buf_add(out, note->text.data, note->text.bytes);
                if (matched)
                    ++*matched;
            }
            *after = note->event.event_id;
        }
        if (at == hub->count)
            *after = hub->tip;
    }
    pthread_mutex_unlock(&hub->lock);
    return reaches;
}

/* --- the thread --- */

static bool wait_for_listener(struct ol_event_tail *hub)
{
    pthread_mutex_lock(&hub->lock);
    if (!hub->listeners)
        forget(hub); // what happens meanwhile is not seen
    while (!hub->listeners && !hub->is_over)
        pthread_cond_wait(&hub->has_listener, &hub->lock);
    bool goes_on = !hub->is_over;
    pthread_mutex_unlock(&hub->lock);
    return goes_on;
}

static int follow(struct ol_event_tail *hub, outlog *log, struct outlog_page *page, outlog_err *err)
{
    if (!hub->is_known) {
        int64_t settled;
        if (outlog_settled(log, &settled, err) < 0)
            return -1;
        pthread_mutex_lock(&hub->lock);
        hub->base = hub->tip = settled;
        hub->is_known = true;
        pthread_mutex_unlock(&hub->lock);
        hub->moved(hub->user);
        return 0;
    }
    if (ol_read_follow_short(log, NULL, hub->tip, PAGE, PAGE_BYTES, PATIENCE_MS, page, err) < 0)
        return -1;
    if (page->next_after == hub->tip)
        return 0;
    pthread_mutex_lock(&hub->lock);
    for (size_t i = 0; i < page->count; i++)
        add(hub, &page->events[i]);
    hub->tip = page->next_after;
    pthread_mutex_unlock(&hub->lock);
    hub->moved(hub->user);
    return 0;
}

static void *run(void *argument)
{
    struct ol_event_tail *hub = argument;
    struct outlog_page page = {0};
    outlog *log = NULL;
    outlog_err err;

    while (wait_for_listener(hub))
        if ((!log && outlog_open(hub->store, &log, &err) < 0) || follow(hub, log, &page, &err) < 0)
            ol_clock_sleep_us(200000); // the store is away: followers keep their place
    outlog_page_clear(&page);
    outlog_close(log);
    return NULL;
}

int ol_event_tail_open(struct ol_event_tail **out, const char *store, void (*moved)(void *user),
                       void *user, outlog_err *err)
{
    struct ol_event_tail *hub = calloc(1, sizeof *hub);
    if (!hub)
        return ol_no_memory(err);
    hub->store = store;
    hub->moved = moved;
    hub->user = user;
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->has_listener, NULL);
    if (pthread_create(&hub->thread, NULL, run, hub) != 0) {
        free(hub);
        return ol_fail(err, OUTLOG_NO_MEMORY, "cannot start a thread");
    }
    *out = hub;
    return 0;
}

void ol_event_tail_close(struct ol_event_tail *hub)
{
    if (!hub)
        return;
    pthread_mutex_lock(&hub->lock);
    hub->is_over = true;
    hub->listeners++; // ends the wait
    pthread_cond_signal(&hub->has_listener);
    pthread_mutex_unlock(&hub->lock);
    pthread_join(hub->thread, NULL);
    forget(hub);
    pthread_mutex_destroy(&hub->lock);
    pthread_cond_destroy(&hub->has_listener);
    free(hub);
}

void ol_event_tail_watch(struct ol_event_tail *hub, int by)
{
    pthread_mutex_lock(&hub->lock);
    hub->listeners += by;
    pthread_cond_signal(&hub->has_listener);
    pthread_mutex_unlock(&hub->lock);
}
