/* worker.c: the loop of one relay thread. See internal.h for its parts. */
#include "relay/worker.h"

#include "base/clock.h"
#include "log/log.h"
#include "relay/internal.h"
#include "store/migrate.h"
#include "store/postgres/shutdown.h"
#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { TELL_US = 1000000 };

struct ol_worker_options ol_worker_defaults(const char *store)
{
    return (struct ol_worker_options){.store = store,
                                      .name = "relay",
                                      .lease_us = 30 * INT64_C(1000000),
                                      .poll_us = 50000,
                                      .patience_us = 250000,
                                      .drain_us = 20 * INT64_C(1000000),
                                      .batch = 1000,
                                      .siblings = 1};
}

int ol_worker_load(struct ol_worker_options *options, outlog_err *err)
{
    struct ol_conn *conn = NULL;
    struct ol_policy policy = {0};
    int result = -1;

    if (ol_store_open(options->store, &conn, err) < 0 || ol_migrate_check(conn, err) < 0 ||
        ol_policy_refresh(&policy, conn, err) < 0)
        goto out;
    if (policy.relay.lease_us)
        options->lease_us = policy.relay.lease_us;
    if (policy.relay.poll_us)
        options->poll_us = policy.relay.poll_us;
    if (policy.relay.patience_us)
        options->patience_us = policy.relay.patience_us;
    if (policy.relay.batch)
        options->batch = (size_t)policy.relay.batch;
    if (policy.relay.threads)
        options->siblings = (int)policy.relay.threads;
    options->notify = policy.relay.notify;
    result = policy.tracing.endpoint
                 ? ol_span_exporter_open(policy.tracing.endpoint, policy.tracing.headers,
                                         &options->tracer, err)
                 : 0;
out:
    ol_policy_clear(&policy);
    ol_store_close(conn);
    return result;
}

/* --- the loop --- */

/* One look at all lanes that have nothing to do. *waits: something is there that cannot be done
 * now, and nobody will say when. */
static int poll_lanes(struct ol_worker *worker, bool *news, bool *waits, outlog_err *err)
{
    struct ol_lane_status found[OL_RELAY_LANES_MAX];
    struct ol_buf numbers = {0};
    size_t count;

    for (size_t i = 0; i < worker->lane_count; i++)
        if (worker->lanes[i].is_owned)
            ol_buf_print(&numbers, "%s%d", numbers.bytes ? "," : "[", worker->lanes[i].lane.number);
    worker->next_us = INT64_MAX;
    if (!numbers.bytes)
        return 0;
    ol_buf_char(&numbers, ']');
    int result = ol_lane_poll(worker->conn, numbers.data, found, OL_RELAY_LANES_MAX, &count, err);
    ol_buf_clear(&numbers);
    for (size_t i = 0; result == 0 && i < count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[found[i].number];
        if (found[i].newest > wl->lane.head || wl->lane.gap_count)
            wl->wants_read = true;
        if (found[i].parked_gen != wl->lane.parked_gen && found[i].epoch == wl->lane.epoch &&
            ol_lane_loop_reload(wl, err) < 0)
            return -1;
        // Many may be due by their time and yet stand behind a key or a closed destination.
        if (found[i].due_us <= 0)
            ol_lane_loop_finds_due(wl, err);
        if (found[i].expiry_us <= 0)
            wl->wants_reap = true;
        *news |= ol_plan_may_read(wl) || wl->wants_due || wl->wants_reap || worker->wants_settings;
        if (ol_lane_reload_older_keys(worker->conn, &wl->lane, err) < 0)
            return -1;
        *waits |= wl->wants_read || found[i].due_us <= 0;
        if (found[i].due_us > 0 && found[i].due_us < worker->next_us)
            worker->next_us = found[i].due_us;
        if (found[i].expiry_us > 0 && found[i].expiry_us < worker->next_us)
            worker->next_us = found[i].expiry_us;
    }
    return result;
}

static bool is_idle(const struct ol_worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        const struct ol_relay_lane *wl = &worker->lanes[i];
        if (wl->is_owned && (wl->open || wl->loose || ol_plan_may_read(wl) || wl->wants_due))
            return false;
    }
    return ol_sender_in_flight(worker->targets.sender) == 0;
}

/* Is there no lane that nobody has, so that nothing can be left in one? */
static bool has_all(struct ol_worker *worker)
{
    outlog_err ignored;
    int64_t count;
    return worker->owned > 0 &&
           ol_store_number(worker->conn, OL_Q_LANES_OWNERLESS, OL_NO_PARAMS, &count, &ignored) ==
               0 &&
           count == 0;
}

static bool has_backlog(const struct ol_worker *worker)
{
    for (size_t i = 0; i < worker->lane_count; i++)
        if (worker->lanes[i].is_owned && worker->lanes[i].is_full)
            return true;
    return false;
}

/* When to poll again. */
static int64_t next_poll(const struct ol_worker *worker)
{
    enum { SOON_US = 5000 };
    int64_t pause = ol_idle_pause_us(worker), polled_at = worker->polled_at;
    if (pause < SOON_US && has_backlog(worker))
        pause = SOON_US;
    int64_t next = pause + (polled_at > worker->looked_at ? polled_at : worker->looked_at);
    if (worker->is_told && next > polled_at + SOON_US)
        next = polled_at + SOON_US;
    return worker->next_us < next - polled_at ? polled_at + worker->next_us : next;
}

/* Read all lanes instead of asking first which of them have something new, where one read does it.
 */
static void look(struct ol_worker *worker)
{
    if (worker->owned > 1 && !ol_multi_lane_turn_is_possible(worker)) {
        worker->wants_look = false;
        worker->polled_at = 0;
        return;
    }
    for (size_t i = 0; i < worker->lane_count; i++)
        worker->lanes[i].wants_read |= worker->lanes[i].is_owned;
    worker->wants_look = false;
    worker->looked_at = worker->now;
}

/* Where something just came the next comes soon: look again at once. Lanes with a backlog need no
 * look, and the others wait for them a moment. */
static void look_again(struct ol_worker *worker)
{
    enum { SELDOM_US = 5000 };
    worker->wants_look = !has_backlog(worker) || worker->now - worker->looked_at >= SELDOM_US;
    worker->is_told = false;
    worker->vain_looks = 0;
}

/* Most commits of this process may have nothing for us, events without messages: then a look a
 * millisecond is enough. */
static void pause_if_vain(const struct ol_worker *worker)
{
    enum { MOST_VAIN = 8, PAUSE_US = 1000 };
    int64_t left_us = worker->looked_at + PAUSE_US - ol_clock_boot_us();
    if (worker->vain_looks > MOST_VAIN && left_us > 0)
        ol_clock_sleep_us(left_us);
}

/* Wait until somebody commits. */
static void listen(struct ol_worker *worker, int64_t left_us)
{
    const struct ol_store *store = worker->conn->store;
    bool is_woken = store->drain_wake(worker->conn);
    if (!is_woken)
        is_woken = ol_waiter_wait(&worker->waiter, store->wake_fd(worker->conn),
                                  (int)((left_us + 999) / 1000));
    if (is_woken) {
        pause_if_vain(worker);
        store->drain_wake(worker->conn);
        worker->wants_look = worker->is_told = true;
    }
}

/* Wait for outcomes while something is in flight, else for a commit or the next poll. */
static void rest(struct ol_worker *worker, bool moved)
{
    if (moved)
        worker->pause_us = 1000;
    if (ol_sender_in_flight(worker->targets.sender)) {
        ol_sender_drive(worker->targets.sender, moved ? 0 : 2);
        listen(worker, 0);
        return;
    }
    int64_t until = next_poll(worker);
    if (until > worker->beat_at)
        until = worker->beat_at;
    if (until > worker->linger_until)
        until = worker->linger_until;
    if (until > worker->tidy_at)
        until = worker->tidy_at;
    int64_t left_us = until - ol_clock_boot_us();
    if (!moved && left_us > 0)
        listen(worker, left_us);
}

static int turn_all(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    bool news = false, waits = false;
    if (ol_ownership_heartbeat(worker, err) < 0 || ol_ownership_load_settings(worker, err) < 0 ||
        ol_maintenance_step(worker, err) < 0)
        return -1;
    worker->linger_until = INT64_MAX;
    if (worker->wants_look)
        look(worker);
    if (ol_multi_lane_turn_step(worker, moved, err) < 0)
        return -1;
    worker->first_lane++; // else the last lanes would get the places that the first ones leave
    for (size_t i = 0; i < worker->lane_count; i++)
        if (ol_lane_loop_step(&worker->lanes[(worker->first_lane + i) % worker->lane_count], moved,
                              err) < 0)
            return -1;
    ol_sender_flush(worker->targets.sender); // before a poll
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        if (wl->is_owned && wl->gives_back && ol_ownership_release(wl, err) < 0)
            return -1;
    }
    *moved |= worker->wants_settings;
    if (*moved)
        look_again(worker);
    else
        worker->vain_looks += worker->looked_at == worker->now;
    // Also under load: what is due by its time is found by a poll.
    if (*moved && worker->now - worker->polled_at < worker->options->poll_us)
        return ol_idle_wake(worker, err);
    if (!*moved && worker->now < next_poll(worker))
        return 0;
    worker->polled_at = worker->now;
    worker->is_told = false;
    if (ol_idle_before_poll(worker, err) < 0 || poll_lanes(worker, &news, &waits, err) < 0 ||
        ol_idle_after_poll(worker, news || waits || !is_idle(worker), err) < 0)
        return -1;
    worker->pause_us = news                                              ? 1000
                       : worker->pause_us * 2 < worker->options->poll_us ? worker->pause_us * 2
                                                                         : worker->options->poll_us;
    *moved |= news;
    return 0;
}

/* The connection may be lost while the store is there: make another. */
static void reconnect(struct ol_worker *worker)
{
    outlog_err err;
    if (worker->conn->store->revive(worker->conn, &err) == 0 &&
        ol_lane_set_timeouts(worker->conn, worker->options->lease_us, &err) == 0)
        ol_idle_listen(worker, &err);
}

/* Record what has ended, and hand back the lanes of which nothing is on the wire. */
static int drain_lanes(struct ol_worker *worker, outlog_err *err)
{
    int result = 0;
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        bool moved = false;
        wl->gives_back = wl->is_owned;
        wl->wants_read = wl->wants_due = false;
        if (ol_lane_loop_step(wl, &moved, err) < 0) {
            wl->retry_at = worker->now + 100000;
            result = -1;
        }
        if (wl->is_owned && !wl->loose && ol_ownership_release(wl, err) < 0)
            result = -1;
    }
    return result;
}

/* Stop claiming; what is on the wire ends or is left to its lease; hand the lanes back. When the
 * store is given up nothing of this can be recorded any more. */
static void drain(struct ol_worker *worker)
{
    enum { AGAIN_MS = 50 };
    outlog_err err;
    int wait_ms = 5;
    int64_t end = ol_clock_boot_us() + worker->options->drain_us;
    for (;;) {
        worker->now = ol_clock_boot_us();
        ol_sender_drive(worker->targets.sender, wait_ms);
        bool is_stuck = drain_lanes(worker, &err) < 0;
        if (worker->owned == 0 || worker->now > end || atomic_load(worker->stop) > 1 ||
            ol_shutdown_is_over())
            break;
        if (is_stuck)
            reconnect(worker);
        wait_ms = is_stuck ? AGAIN_MS : 5;
    }
    ol_ownership_write_successes(worker, &err);
    ol_store_exec(worker->conn, OL_Q_RELAY_GONE, OL_PARAMS(ol_value_text(worker->run)), NULL, &err);
}

static int start(struct ol_worker *worker, outlog_err *err)
{
    if (ol_store_open(worker->options->store, &worker->conn, err) < 0 ||
        ol_migrate_check(worker->conn, err) < 0 ||
        ol_lane_set_timeouts(worker->conn, worker->options->lease_us, err) < 0 ||
        ol_idle_listen(worker, err) < 0 ||
        ol_sender_open(&worker->targets.sender, ol_batch_done, worker, err) < 0)
        return -1;
    worker->targets.store = worker->conn->wake_key;
    if (!(worker->lanes =
              calloc(OL_RELAY_LANES_MAX, sizeof *worker->lanes))) // as many as there can be
        return ol_no_memory(err);
    return ol_waiter_open(&worker->waiter, worker->conn->wake_key) == 0
               ? 0
               : ol_fail(err, OUTLOG_NO_MEMORY, "no file descriptor left");
}

static void finish(struct ol_worker *worker)
{
    if (worker->targets.sender) {
        ol_targets_clear(&worker->targets); // ends what is in flight: outcomes still arrive here
        ol_sender_close(worker->targets.sender);
    }
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        if (wl->open)
            ol_batch_free(wl->open);
        while (wl->loose) {
            struct ol_batch *next = wl->loose->next;
            ol_batch_free(wl->loose);
            wl->loose = next;
        }
        ol_lane_clear(&wl->lane);
    }
    ol_map_clear(&worker->chain);
    ol_map_clear(&worker->queues);
    ol_map_clear(&worker->parked);
    ol_map_clear(&worker->parked_to);
    ol_map_clear(&worker->single);
    ol_side_effects_clear(&worker->record);
    ol_policy_clear(&worker->policy);
    ol_render_clear(&worker->notices);
    ol_turn_clear(&worker->turn);
    ol_multi_lane_turn_clear(worker);
    ol_waiter_close(&worker->waiter);
    free(worker->lanes);
    free(worker->holders);
    ol_store_close(worker->conn);
}

struct ol_worker *ol_worker_open(const struct ol_worker_options *options, atomic_int *stop,
                                 struct ol_worker_stats *stats, outlog_err *err)
{
    struct ol_worker *worker = calloc(1, sizeof *worker);
    if (!worker) {
        ol_no_memory(err);
        return NULL;
    }
    worker->options = options;
    worker->margin_us = options->margin_us ? options->margin_us : options->lease_us / 15;
    worker->stop = stop;
    worker->stats = stats;
    worker->pause_us = 1000;
    worker->waiter.fd = -1;
    ol_uuid_make(worker->run);
    if (start(worker, err) < 0) {
        ol_worker_close(worker);
        return NULL;
    }
    return worker;
}

bool ol_worker_round(struct ol_worker *worker)
{
    bool moved = false;
    outlog_err why;

    worker->now = ol_clock_boot_us();
    if (turn_all(worker, &moved, &why) == 0)
        return moved;
    if (worker->now - worker->told_at > TELL_US) {
        ol_report_store_error(&why);
        worker->told_at = worker->now;
    }
    worker->polled_at = worker->now;
    worker->pause_us = worker->options->poll_us;
    reconnect(worker);
    return false;
}

void ol_worker_close(struct ol_worker *worker)
{
    finish(worker);
    free(worker);
}

int ol_worker_run(const struct ol_worker_options *options, atomic_int *stop,
                  struct ol_worker_stats *stats, outlog_err *err)
{
    struct ol_worker *worker = ol_worker_open(options, stop, stats, err);
    int idle_rounds = 0;

    if (!worker && options->begun)
        atomic_fetch_add(options->begun, 1); // nobody is to wait for it
    if (!worker)
        return -1;
    while (atomic_load(stop) == 0) {
        bool moved = ol_worker_round(worker);
        bool polled = worker->polled_at == worker->now;
        if (moved || !is_idle(worker))
            idle_rounds = 0;
        else
            idle_rounds += polled; // nothing found by a look, and not for want of one
        if (options->until_idle && idle_rounds > 3 && has_all(worker))
            break;
        rest(worker, moved);
    }
    if (atomic_load(stop) < 2)
        drain(worker);
    ol_worker_close(worker);
    return 0;
}
