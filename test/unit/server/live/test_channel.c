/* test_channel.c: channels, subscribers and loads (H1-H3), without a network. */
#include "server/live/channel.h"
#include "server/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* --- what a channel uses, and what it did with it --- */

struct ol_websocket {
    void *owner;
    const struct ol_websocket_handler *handler;
    bool is_held;
};

static struct ol_websocket sockets[8];
static int opened, loads, cleared;
static struct ol_job *submitted;
static bool is_queue_full;

int ol_websocket_open(struct ol_request *request, const struct ol_websocket_handler *user,
                      void *owner, struct ol_websocket **out)
{
    *out = &sockets[opened++];
    **out = (struct ol_websocket){.owner = owner, .handler = user};
    ol_request_free(request);
    return 1;
}

void *ol_websocket_owner(const struct ol_websocket *socket)
{
    return socket->owner;
}

bool ol_websocket_send(struct ol_websocket *socket, const char *text, size_t bytes)
{
    (void)socket, (void)text, (void)bytes;
    return true;
}

void ol_websocket_hold(struct ol_websocket *socket, bool is_held)
{
    socket->is_held = is_held;
}

void ol_websocket_close(struct ol_websocket *socket, int code, const char *why)
{
    (void)code, (void)why;
    socket->handler->closed(socket);
}

bool ol_worker_pool_submit(struct ol_worker_pool *pool, struct ol_job *job)
{
    (void)pool;
    submitted = is_queue_full ? NULL : job;
    return !is_queue_full;
}

bool ol_auth_is_valid(struct ol_auth *auth, const struct ol_identity *who)
{
    (void)auth, (void)who;
    return true;
}

void ol_http1_answer(struct ol_request *request)
{
    ol_request_free(request);
}

/* --- a user of channels --- */

struct load {
    struct ol_channel_job base;
};

static bool start_load(struct ol_channel *channel)
{
    struct load *load = ol_channel_job_new(channel, sizeof *load, OL_JOB_SESSION_LOAD, NULL);
    loads++;
    return ol_channel_job_submit(&load->base);
}

static void end_load(bool has_next_page)
{
    struct load *load = (struct load *)submitted;
    load->base.channel->has_next_page = has_next_page;
    ol_channel_end_load(load->base.channel);
    ol_channel_job_free(&load->base);
}

static void clear_channel(struct ol_channel *channel)
{
    (void)channel;
    cleared++;
}

static const struct ol_channels_handler handler = {
    .socket = {.closed = ol_channels_on_close},
    .channel_bytes = sizeof(struct ol_channel),
    .start_load = start_load,
    .clear = clear_channel,
};

static struct ol_server server;
static struct ol_channels channels;

static int set_up(void **state)
{
    (void)state;
    ol_channels_init(&channels, &server, &handler);
    opened = loads = cleared = 0;
    is_queue_full = false;
    return 0;
}

static struct ol_subscriber *subscribe(const char *name)
{
    ol_channels_subscribe(&channels, ol_request_new(&server), "acme", name);
    return sockets[opened - 1].owner;
}

static void close_socket(struct ol_subscriber *subscriber)
{
    ol_websocket_close(subscriber->socket, 1000, "");
}

/* --- the tests --- */

static void h1_a_channel_exists_while_it_has_a_subscriber_or_a_job(void **state)
{
    (void)state;
    struct ol_subscriber *first = subscribe("a"), *second = subscribe("a");
    assert_ptr_equal(first->channel, second->channel);
    assert_ptr_equal(ol_channels_find(&channels, "acme", "a"), first->channel);
    assert_null(ol_channels_find(&channels, "other", "a"));
    assert_int_equal(channels.subscriber_count, 2);
    close_socket(first);
    close_socket(second);
    assert_non_null(ol_channels_find(&channels, "acme", "a")); // its load is running
    end_load(false);
    assert_null(ol_channels_find(&channels, "acme", "a"));
    assert_int_equal(cleared, 1);
}

static void h2_one_load_at_a_time_and_another_if_something_came_meanwhile(void **state)
{
    (void)state;
    struct ol_subscriber *one = subscribe("a");
    assert_int_equal(loads, 1);
    ol_channel_load(one->channel);
    ol_channel_load(one->channel);
    assert_int_equal(loads, 1);
    end_load(true);
    assert_int_equal(loads, 2); // the next page
    end_load(false);
    assert_int_equal(loads, 3); // what came meanwhile
    end_load(false);
    assert_int_equal(loads, 3);
    close_socket(one);
    assert_int_equal(cleared, 1);
}

static void h2_a_load_that_cannot_be_queued_is_due_again(void **state)
{
    (void)state;
    is_queue_full = true;
    struct ol_subscriber *one = subscribe("a");
    assert_false(one->channel->is_loading);
    assert_true(one->channel->due_at > 0);
    close_socket(one);
    assert_int_equal(cleared, 1);
}

static void h3_a_subscriber_remembers_what_it_was_sent(void **state)
{
    static const char id[] = "0190a7c3-0000-7000-8000-00000000000a";
    (void)state;
    struct ol_subscriber *one = subscribe("a");
    assert_null(ol_subscriber_find_sent(one, id));
    assert_non_null(ol_subscriber_add_sent(one, id));
    ol_subscriber_prune_sent(one);
    assert_non_null(ol_subscriber_find_sent(one, id)); // it was seen in this pass
    ol_subscriber_prune_sent(one);
    assert_null(ol_subscriber_find_sent(one, id));
    end_load(false);
    close_socket(one);
}

static void a_socket_with_too_many_pending_frames_is_held_until_half_are_done(void **state)
{
    (void)state;
    struct ol_subscriber *one = subscribe("a");
    for (int i = 0; i < OL_SUBSCRIBER_PENDING_MAX; i++) {
        assert_false(one->socket->is_held);
        ol_subscriber_begin(one);
    }
    assert_true(one->socket->is_held);
    for (int i = 0; i < OL_SUBSCRIBER_PENDING_MAX / 2; i++) {
        assert_true(one->socket->is_held);
        ol_subscriber_finish(one);
    }
    assert_false(one->socket->is_held);
    end_load(false);
    close_socket(one);
}

static void a_poll_reports_channels_that_have_subscribers(void **state)
{
    struct ol_channel_poll *poll = calloc(1, sizeof *poll);
    struct ol_channel_change change;
    (void)state;
    struct ol_subscriber *one = subscribe("a");
    poll->channels = &channels;
    poll->started_at = 42;
    ol_channel_poll_add(poll, "acme", "nobody", 1, NULL);
    ol_channel_poll_add(poll, "acme", "a", 2, "{}");
    ol_channel_poll_add(poll, "acme", "a", 3, NULL);
    assert_true(ol_channel_poll_next(poll, &change));
    assert_ptr_equal(change.channel, one->channel);
    assert_int_equal(change.version, 2);
    assert_string_equal(change.frame, "{}");
    assert_true(ol_channel_poll_next(poll, &change));
    assert_int_equal(change.version, 3);
    assert_null(change.frame);
    assert_false(ol_channel_poll_next(poll, &change));
    ol_channel_poll_end(poll);
    assert_int_equal(channels.polled_at, 42);
    end_load(false);
    close_socket(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(h1_a_channel_exists_while_it_has_a_subscriber_or_a_job, set_up),
        cmocka_unit_test_setup(h2_one_load_at_a_time_and_another_if_something_came_meanwhile,
                               set_up),
        cmocka_unit_test_setup(h2_a_load_that_cannot_be_queued_is_due_again, set_up),
        cmocka_unit_test_setup(h3_a_subscriber_remembers_what_it_was_sent, set_up),
        cmocka_unit_test_setup(a_socket_with_too_many_pending_frames_is_held_until_half_are_done,
                               set_up),
        cmocka_unit_test_setup(a_poll_reports_channels_that_have_subscribers, set_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
