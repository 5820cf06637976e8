/* channel.c: the table of channels, their subscribers, loads and polls. */
#include "server/live/channel.h"

#include "base/clock.h"
#include "server/http/auth.h"
#include "server/http/http1.h"
#include "server/server.h"
#include "server/worker_pool.h"

#include <stdlib.h>
#include <string.h>

/* --- the table --- */

static struct ol_channel **find_bucket(struct ol_channels *channels, const char *org_id,
                                       const char *name)
{
    uint64_t hash = 14695981039346656037u; // FNV-1a
    for (const char *text = org_id; text; text = text == org_id ? name : NULL)
        for (const char *c = text; *c; c++)
            hash = (hash ^ (unsigned char)*c) * 1099511628211u;
    return &channels->buckets[hash % OL_CHANNELS_BUCKETS];
}

struct ol_channel *ol_channels_find(struct ol_channels *channels, const char *org_id,
                                    const char *name)
{
    struct ol_channel *channel = *find_bucket(channels, org_id, name);
    while (channel && (strcmp(channel->name, name) != 0 || strcmp(channel->org_id, org_id) != 0))
        channel = channel->next;
    return channel;
}

static void free_channel(struct ol_channel *channel)
{
    if (channel->channels->handler->clear)
        channel->channels->handler->clear(channel);
    free(channel->org_id);
    free(channel->name);
    free(channel);
}

static struct ol_channel *find_or_make(struct ol_channels *channels, const char *org_id,
                                       const char *name)
{
    struct ol_channel *channel = ol_channels_find(channels, org_id, name);
    if (channel || !(channel = calloc(1, channels->handler->channel_bytes)))
        return channel;
    channel->channels = channels;
    channel->org_id = strdup(org_id);
    channel->name = strdup(name);
    if (!channel->org_id || !channel->name) {
        free_channel(channel);
        return NULL;
    }
    struct ol_channel **bucket = find_bucket(channels, org_id, name);
    channel->next = *bucket;
    *bucket = channel;
    return channel;
}

void ol_channels_each(struct ol_channels *channels, void (*each)(struct ol_channel *channel))
{
    for (size_t i = 0; i < OL_CHANNELS_BUCKETS; i++)
        for (struct ol_channel *channel = channels->buckets[i], *next; channel; channel = next) {
            next = channel->next;
            each(channel);
        }
}

/* H1 */
static void free_if_unused(struct ol_channel *channel)
{
    if (channel->subscribers || channel->references)
        return;
    struct ol_channel **link = find_bucket(channel->channels, channel->org_id, channel->name);
    while (*link != channel)
        link = &(*link)->next;
    *link = channel->next;
    free_channel(channel);
}

void ol_channel_retain(struct ol_channel *channel)
{
    channel->references++;
}

void ol_channel_release(struct ol_channel *channel)
{
    channel->references--;
    free_if_unused(channel);
}

/* --- subscribers --- */

struct ol_sent_entry *ol_subscriber_find_sent(const struct ol_subscriber *subscriber,
                                              const char *id)
{
    struct ol_sent_entry *sent = subscriber->sent;
    while (sent && strcmp(sent->id, id) != 0)
        sent = sent->next;
    return sent;
}

struct ol_sent_entry *ol_subscriber_add_sent(struct ol_subscriber *subscriber, const char *id)
{
    struct ol_sent_entry *sent = calloc(1, sizeof *sent);
    if (!sent)
        return NULL;
    memcpy(sent->id, id, sizeof sent->id);
    sent->is_seen = true;
    sent->next = subscriber->sent;
    subscriber->sent = sent;
    return sent;
}

void ol_subscriber_prune_sent(struct ol_subscriber *subscriber)
{
    for (struct ol_sent_entry **link = &subscriber->sent; *link;) {
        struct ol_sent_entry *sent = *link;
        if (sent->is_seen) {
            sent->is_seen = false;
            link = &sent->next;
        } else {
            *link = sent->next;
            free(sent);
        }
    }
}

struct ol_subscriber *ol_channel_subscriber(const struct ol_channel *channel, uint64_t id)
{
    struct ol_subscriber *subscriber = channel->subscribers;
    while (subscriber && subscriber->id != id)
        subscriber = subscriber->next;
    return subscriber;
}

void ol_subscriber_begin(struct ol_subscriber *subscriber)
{
    if (++subscriber->pending == OL_SUBSCRIBER_PENDING_MAX)
        ol_websocket_hold(subscriber->socket, true);
}

void ol_subscriber_finish(struct ol_subscriber *subscriber)
{
    if (--subscriber->pending == OL_SUBSCRIBER_PENDING_MAX / 2)
        ol_websocket_hold(subscriber->socket, false);
}

void ol_subscriber_refuse(struct ol_subscriber *subscriber, const char *frame, size_t bytes)
{
    if (ol_websocket_send(subscriber->socket, frame, bytes) &&
        ++subscriber->errors > OL_SUBSCRIBER_ERRORS_MAX)
        ol_websocket_close(subscriber->socket, 1008, "too many bad frames");
}

static void remove_subscriber(struct ol_subscriber *subscriber)
{
    struct ol_channel *channel = subscriber->channel;
    struct ol_subscriber **link = &channel->subscribers;

    while (*link != subscriber)
        link = &(*link)->next;
    *link = subscriber->next;
    channel->channels->subscriber_count--;
    ol_subscriber_prune_sent(subscriber);
    ol_subscriber_prune_sent(subscriber); // the second call finds nothing seen
    free(subscriber);
    free_if_unused(channel);
}

void ol_channels_on_close(struct ol_websocket *socket)
{
    remove_subscriber(ol_websocket_owner(socket));
}

static struct ol_subscriber *add_subscriber(struct ol_channel *channel,
                                            const struct ol_identity *who)
{
    struct ol_channels *channels = channel->channels;
    struct ol_subscriber *subscriber = calloc(1, sizeof *subscriber);
    if (!subscriber)
        return NULL;
    *subscriber = (struct ol_subscriber){.next = channel->subscribers,
                                         .channel = channel,
                                         .id = ++channels->last_id,
                                         .who = *who,
                                         .is_new = true};
    subscriber->who.org_id = NULL; // it is in the request's memory
    channel->subscribers = subscriber;
    if (!channels->subscriber_count++) { // the first after a time without polls
        channels->polled_at = ol_clock_boot_us();
        channels->position = -1;
    }
    return subscriber;
}

void ol_channels_subscribe(struct ol_channels *channels, struct ol_request *request,
                           const char *org_id, const char *name)
{
    struct ol_channel *channel = find_or_make(channels, org_id, name);
    struct ol_subscriber *subscriber = NULL;

    if (channel) {
        ol_channel_retain(channel); // the socket may close before this returns
        subscriber = add_subscriber(channel, &request->who);
    }
    if (!subscriber) {
        ol_problem_say(request, 503, "no_memory", "out of memory");
        ol_http1_answer(request);
    } else {
        int opened =
            ol_websocket_open(request, &channels->handler->socket, subscriber, &subscriber->socket);
        if (opened < 0)
            remove_subscriber(subscriber); // else it is removed when the socket closes
        if (opened > 0)
            ol_channel_load(channel);
    }
    if (channel)
        ol_channel_release(channel);
}

/* --- jobs --- */

void *ol_channel_job_new(struct ol_channel *channel, size_t bytes, enum ol_job_type type,
                         bool (*run)(struct ol_job *job))
{
    struct ol_channel_job *job = calloc(1, bytes);
    if (!job)
        return NULL;
    job->job.type = type;
    job->job.run = run;
    job->channel = channel;
    ol_channel_retain(channel);
    return job;
}

void ol_channel_job_free(struct ol_channel_job *job)
{
    if (!job)
        return;
    struct ol_channel *channel = job->channel;
    struct ol_subscriber *subscriber =
        job->subscriber_id ? ol_channel_subscriber(channel, job->subscriber_id) : NULL;
    if (subscriber)
        ol_subscriber_finish(subscriber);
    ol_arena_clear(&job->arena);
    free(job);
    ol_channel_release(channel);
}

bool ol_channel_job_submit(struct ol_channel_job *job)
{
    if (job && ol_worker_pool_submit(job->channel->channels->server->workers, &job->job))
        return true;
    ol_channel_job_free(job);
    return false;
}

bool ol_channel_job_submit_frame(struct ol_channel_job *job, struct ol_subscriber *subscriber)
{
    job->subscriber_id = subscriber->id;
    ol_subscriber_begin(subscriber);
    return ol_channel_job_submit(job);
}

/* --- loads (H2) --- */

void ol_channel_load(struct ol_channel *channel)
{
    if (channel->is_loading) {
        channel->load_again = true;
        return;
    }
    channel->is_loading = channel->channels->handler->start_load(channel);
    if (!channel->is_loading)
        channel->due_at = ol_clock_boot_us() + OL_CHANNELS_POLL_US; // the sweep tries again
}

void ol_channel_end_load(struct ol_channel *channel)
{
    bool is_more = channel->load_again || channel->has_next_page;
    channel->is_loading = false;
    channel->load_again = channel->load_again && channel->has_next_page; // after the last page
    if (is_more && channel->subscribers)
        ol_channel_load(channel);
}

/* --- polls --- */

void ol_channel_poll_add(struct ol_channel_poll *poll, const char *org_id, const char *name,
                         int64_t version, const char *frame)
{
    ol_buf_add(&poll->changes, &version, sizeof version);
    ol_buf_add(&poll->changes, org_id, strlen(org_id) + 1);
    ol_buf_add(&poll->changes, name, strlen(name) + 1);
    ol_buf_add(&poll->changes, frame ? frame : "", frame ? strlen(frame) + 1 : 1);
}

bool ol_channel_poll_next(struct ol_channel_poll *poll, struct ol_channel_change *out)
{
    const struct ol_buf *changes = &poll->changes;
    while (poll->read < changes->bytes && !changes->failed) {
        const char *at = changes->data + poll->read;
        memcpy(&out->version, at, sizeof out->version);
        const char *org_id = at + sizeof out->version, *name = org_id + strlen(org_id) + 1;
        const char *frame = name + strlen(name) + 1;
        poll->read = (size_t)(frame + strlen(frame) + 1 - changes->data);
        out->frame = *frame ? frame : NULL;
        out->channel = ol_channels_find(poll->channels, org_id, name);
        if (out->channel && out->channel->subscribers)
            return true;
    }
    return false;
}

void ol_channel_poll_end(struct ol_channel_poll *poll)
{
    struct ol_channels *channels = poll->channels;
    channels->is_polling = false;
    if (poll->job.result == 0 && !poll->changes.failed) {
        channels->polled_at = poll->started_at;
        channels->position = poll->position;
    }
    ol_buf_clear(&poll->changes);
    free(poll);
}

static void start_poll(struct ol_channels *channels, int64_t now)
{
    struct ol_channel_poll *poll = calloc(1, sizeof *poll);
    channels->poll_at = now + OL_CHANNELS_POLL_US;
    if (!poll)
        return;
    poll->job.type = channels->handler->poll_type;
    poll->job.run = channels->handler->poll;
    poll->channels = channels;
    poll->since = channels->polled_at;
    poll->position = channels->position;
    poll->started_at = now;
    channels->is_polling = ol_worker_pool_submit(channels->server->workers, &poll->job);
    if (!channels->is_polling)
        free(poll);
}

static void sweep_channel(struct ol_channel *channel)
{
    ol_channel_retain(channel);
    if (channel->due_at && ol_clock_boot_us() >= channel->due_at && channel->subscribers)
        ol_channel_load(channel);
    for (struct ol_subscriber *subscriber = channel->subscribers, *next; subscriber;
         subscriber = next) {
        next = subscriber->next;
        if (subscriber->who.token_id[0] &&
            !ol_auth_is_valid(channel->channels->server->auth, &subscriber->who))
            ol_websocket_close(subscriber->socket, 1008, "the token was revoked");
    }
    ol_channel_release(channel);
}

void ol_channels_sweep(struct ol_channels *channels)
{
    int64_t now = ol_clock_boot_us();
    if (!channels->subscriber_count)
        return;
    if (!channels->is_polling && now >= channels->poll_at)
        start_poll(channels, now);
    ol_channels_each(channels, sweep_channel);
}

/* --- life cycle --- */

void ol_channels_init(struct ol_channels *channels, struct ol_server *server,
                      const struct ol_channels_handler *handler)
{
    *channels = (struct ol_channels){.server = server, .handler = handler};
}

static void close_channel(struct ol_channel *channel)
{
    ol_channel_retain(channel);
    for (struct ol_subscriber *subscriber = channel->subscribers, *next; subscriber;
         subscriber = next) {
        next = subscriber->next;
        ol_websocket_close(subscriber->socket, 1001, "the server is stopping; reconnect");
    }
    ol_channel_release(channel);
}

void ol_channels_close_all(struct ol_channels *channels)
{
    ol_channels_each(channels, close_channel);
}

void ol_channels_clear(struct ol_channels *channels)
{
    for (size_t i = 0; i < OL_CHANNELS_BUCKETS; i++)
        while (channels->buckets[i]) {
            struct ol_channel *channel = channels->buckets[i];
            channels->buckets[i] = channel->next;
            free_channel(channel);
        }
}
