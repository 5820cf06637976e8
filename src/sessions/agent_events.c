/* agent_events.c: a locked list and an eventfd. */
#include "sessions/agent_events.h"

#include "base/clock.h"
#include "base/err.h"
#include "sessions/frame.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct ol_agent_events {
    pthread_mutex_t lock;
    struct ol_agent_event *first, **last;
    int wake_fd;
};

int ol_agent_events_open(struct ol_agent_events **out, outlog_err *err)
{
    struct ol_agent_events *events = calloc(1, sizeof *events);
    if (!events)
        return ol_no_memory(err);
    events->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (events->wake_fd < 0) {
        free(events);
        return ol_fail(err, OUTLOG_UNAVAILABLE, "eventfd: %s", strerror(errno));
    }
    pthread_mutex_init(&events->lock, NULL);
    events->last = &events->first;
    *out = events;
    return 0;
}

void ol_agent_events_close(struct ol_agent_events *events)
{
    if (!events)
        return;
    for (struct ol_agent_event *event = events->first, *next; event; event = next) {
        next = event->next;
        ol_agent_event_free(event);
    }
    close(events->wake_fd);
    pthread_mutex_destroy(&events->lock);
    free(events);
}

int ol_agent_events_fd(const struct ol_agent_events *events)
{
    return events->wake_fd;
}

/* NULL: no memory. */
static struct ol_agent_event *new_event(enum ol_agent_event_type type,
                                        const struct ol_session_work *work)
{
    size_t org_bytes = strlen(work->org_id) + 1, key_bytes = strlen(work->session_key) + 1;
    struct ol_agent_event *event = calloc(1, sizeof *event + org_bytes + key_bytes);
    if (!event)
        return NULL;
    event->type = type;
    event->org_id = memcpy(event->names, work->org_id, org_bytes);
    event->session_key = memcpy(event->names + org_bytes, work->session_key, key_bytes);
    event->seq = work->seq;
    return event;
}

/* Takes the event. The first of several wakes the receiver, which takes them all. */
static void push_event(struct ol_agent_events *events, struct ol_agent_event *event)
{
    const uint64_t one = 1;
    if (event->frame.failed) {
        ol_agent_event_free(event);
        return;
    }
    pthread_mutex_lock(&events->lock);
    bool was_empty = !events->first;
    *events->last = event;
    events->last = &event->next;
    pthread_mutex_unlock(&events->lock);
    while (was_empty && write(events->wake_fd, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

void ol_agent_events_add_token(struct ol_agent_events *events, const struct ol_session_work *work,
                               const char *text, size_t bytes)
{
    struct ol_agent_event *event = events ? new_event(OL_AGENT_EVENT_TOKEN, work) : NULL;
    if (!event)
        return;
    ol_session_frame_token(work->request_id, text, bytes, &event->frame);
    push_event(events, event);
}

void ol_agent_events_add_failure(struct ol_agent_events *events, const struct ol_session_work *work,
                                 const char *why)
{
    struct ol_agent_event *event = events ? new_event(OL_AGENT_EVENT_FAILED, work) : NULL;
    if (!event)
        return;
    ol_session_frame_error("agent_failed", work->request_id, why, &event->frame);
    push_event(events, event);
}

void ol_agent_events_add_answer(struct ol_agent_events *events, const struct ol_session_work *work,
                                outlog *log)
{
    struct ol_agent_event *event = events ? new_event(OL_AGENT_EVENT_ANSWERED, work) : NULL;
    outlog_err err;
    if (!event)
        return;
    event->read_at = ol_clock_boot_us();
    event->has_page = ol_session_effect_pending(log, work->org_id, work->session_key, &event->arena,
                                                &event->page, &err) == 0;
    push_event(events, event);
}

struct ol_agent_event *ol_agent_events_take(struct ol_agent_events *events)
{
    uint64_t count;
    while (read(events->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&events->lock);
    struct ol_agent_event *all = events->first;
    events->first = NULL;
    events->last = &events->first;
    pthread_mutex_unlock(&events->lock);
    return all;
}

void ol_agent_event_free(struct ol_agent_event *event)
{
    ol_buf_clear(&event->frame);
    ol_arena_clear(&event->arena);
    free(event);
}
