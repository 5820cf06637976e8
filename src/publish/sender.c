/* sender.c: outlets share the thread's HTTP engine; those that bring a descriptor of their own (a
 * program, stdout, a plug-in) are gathered in one epoll, which the engine waits for as well. */
#include "publish/sender.h"

#include "net/http_client.h"
#include "publish/plugin.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { BUSY_POLL_MS = 5, EVENTS = 32 };

struct ol_sender_channel {
    struct ol_sender *sender;
    struct ol_sender_channel *next;
    const struct outlog_publisher *publisher;
    struct ol_publisher_own own;
    struct outlog_publisher_host host; /* what the publisher was opened with */
    void *instance;
    size_t in_flight;
    bool has_fd;
};

struct ol_sender {
    outlog_publish_done *done;
    void *user;
    struct ol_http_client *http;
    int epoll;
    struct ol_sender_channel *outlets;
    size_t in_flight, news;
    bool is_in_callback;
};

int ol_sender_open(struct ol_sender **out, outlog_publish_done *done, void *user, outlog_err *err)
{
    struct ol_sender *sender = calloc(1, sizeof *sender);
    if (!sender)
        return ol_no_memory(err);
    *sender = (struct ol_sender){.done = done, .user = user, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    if (sender->epoll < 0) {
        ol_fail(err, OUTLOG_NO_MEMORY, "epoll: %s", strerror(errno));
        goto fail;
    }
    if (ol_http_client_open(&sender->http, err) < 0 ||
        ol_http_client_watch(sender->http, sender->epoll, err) < 0)
        goto fail;
    *out = sender;
    return 0;
fail:
    ol_http_client_close(sender->http);
    if (sender->epoll >= 0)
        close(sender->epoll);
    free(sender);
    return -1;
}

void ol_sender_close(struct ol_sender *sender)
{
    if (!sender)
        return;
    for (struct ol_sender_channel *outlet = sender->outlets, *next; outlet; outlet = next) {
        next = outlet->next;
        ol_sender_channel_close(outlet);
    }
    ol_http_client_close(sender->http);
    close(sender->epoll);
    free(sender);
}

/* Every outcome of every outlet passes here. */
static void on_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct ol_sender_channel *outlet = user;
    struct ol_sender *sender = outlet->sender;
    assert(outlet->in_flight > 0 && sender->in_flight > 0); // one outcome a submit
    outlet->in_flight--;
    sender->in_flight--;
    sender->news++;
    sender->is_in_callback = true;
    sender->done(sender->user, tag, outcome);
    sender->is_in_callback = false;
}

int ol_sender_channel_open(struct ol_sender *sender, const struct ol_settings *settings,
                           struct ol_sender_channel **out, outlog_err *err)
{
    struct ol_sender_channel *outlet = calloc(1, sizeof *outlet);
    if (!outlet)
        return ol_no_memory(err);
    outlet->sender = sender;
    outlet->own = (struct ol_publisher_own){settings, sender->http};
    outlet->host = (struct outlog_publisher_host){.destination = settings->name,
                                                  .settings = settings->json,
                                                  .done = on_done,
                                                  .user = outlet};
    if (settings->path) {
        if (ol_plugin_load(settings->path, &outlet->publisher, err) < 0)
            goto fail;
    } else if (!(outlet->publisher = ol_publisher_by_name(settings->type))) {
        ol_fail_at(err, OUTLOG_INVALID_FIELD, "/type", "type: %s is not built into this outlog",
                   settings->type);
        goto fail;
    }
    if (!settings->path)
        outlet->host.own = &outlet->own;
    if (outlet->publisher->open(&outlet->host, &outlet->instance, err) < 0)
        goto fail;
    int fd = outlet->publisher->fd ? outlet->publisher->fd(outlet->instance) : -1;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = outlet};
    outlet->has_fd = fd >= 0 && epoll_ctl(sender->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
    outlet->next = sender->outlets;
    sender->outlets = outlet;
    *out = outlet;
    return 0;
fail:
    ol_err_prefix(err, "destination %s", settings->name);
    free(outlet);
    return -1;
}

void ol_sender_channel_close(struct ol_sender_channel *outlet)
{
    if (!outlet)
        return;
    assert(!outlet->sender->is_in_callback);
    struct ol_sender_channel **link = &outlet->sender->outlets;
    while (*link != outlet)
        link = &(*link)->next;
    *link = outlet->next;
    if (outlet->has_fd)
        epoll_ctl(outlet->sender->epoll, EPOLL_CTL_DEL, outlet->publisher->fd(outlet->instance),
                  NULL);
    outlet->publisher->close(outlet->instance);
    assert(outlet->in_flight == 0); // close() gave every attempt its outcome
    free(outlet);
}

void ol_sender_channel_submit(struct ol_sender_channel *outlet,
                              const struct outlog_delivery *message, int64_t deadline_us, void *tag)
{
    assert(!outlet->sender->is_in_callback); // or a long key would recurse without end
    outlet->in_flight++;
    outlet->sender->in_flight++;
    outlet->publisher->submit(outlet->instance, message, deadline_us, tag);
}

void ol_sender_channel_abandon(struct ol_sender_channel *outlet, void *tag)
{
    assert(!outlet->sender->is_in_callback);
    if (outlet->publisher->abandon)
        outlet->publisher->abandon(outlet->instance, tag);
}

size_t ol_sender_drive(struct ol_sender *sender, int timeout_ms)
{
    struct epoll_event events[EVENTS];
    bool has_fds = false;

    assert(!sender->is_in_callback);
    for (struct ol_sender_channel *o = sender->outlets; o; o = o->next) {
        has_fds = has_fds || o->has_fd;
        if (!o->has_fd && o->publisher->drive && o->in_flight > 0 &&
            (timeout_ms < 0 || timeout_ms > BUSY_POLL_MS))
            timeout_ms = BUSY_POLL_MS;
    }
    if (sender->news) // outcomes that came inside submit() are news too
        timeout_ms = 0;
    ol_http_client_drive(sender->http, timeout_ms);
    int ready = has_fds ? epoll_wait(sender->epoll, events, EVENTS, 0) : 0;
    for (int i = 0; i < ready; i++) {
        struct ol_sender_channel *outlet = events[i].data.ptr;
        if (outlet->publisher->drive)
            outlet->publisher->drive(outlet->instance, 0);
    }
    for (struct ol_sender_channel *o = sender->outlets; o; o = o->next)
        if (!o->has_fd && o->publisher->drive && o->in_flight > 0)
            o->publisher->drive(o->instance, 0);
    size_t news = sender->news;
    sender->news = 0;
    return news;
}

void ol_sender_flush(struct ol_sender *sender)
{
    ol_http_client_flush(sender->http);
}

int ol_sender_fd(const struct ol_sender *sender)
{
    return ol_http_client_fd(sender->http);
}

void ol_sender_wake(struct ol_sender *sender)
{
    ol_http_client_wake(sender->http);
}

size_t ol_sender_in_flight(const struct ol_sender *sender)
{
    return sender->in_flight;
}

size_t ol_sender_channel_in_flight(const struct ol_sender_channel *outlet)
{
    return outlet->in_flight;
}

const struct outlog_publisher *ol_sender_channel_publisher(const struct ol_sender_channel *outlet)
{
    return outlet->publisher;
}
