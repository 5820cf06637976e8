/* worker.c: the loop of one relay thread. internal.h lists its parts. */
#include "relay/worker.h"

#include "base/clock.h"
#include "log/log.h"
#include "relay/internal.h"
#include "store/migrate.h"
#include "store/postgres/shutdown.h"
#include "telemetry/report.h"

#include <stdlib.h>

enum { REPORT_EVERY_US = 1000000, PAUSE_MIN_US = 1000 };

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

/* At most once a second: what looks expired may be our own, which stays. */
static void note_expiry(struct ol_relay_lane *lane)
{
    enum { REAP_EVERY_US = 1000000 };
    int64_t now = lane->worker->clock.now;
    if (now < lane->reap_after || now < lane->worker->clock.trusted_at)
        return;
    lane->has_expired_claims = true;
    lane->reap_after = now + REAP_EVERY_US;
}

/* Poll all lanes. *must_poll: a message is blocked now, and no commit will signal when it is not.
 */
static int poll_lanes(struct ol_worker *worker, bool *has_news, bool *must_poll, outlog_err *err)
{
    struct ol_lane_status found[OL_RELAY_LANES_MAX];
    struct ol_buf numbers = {0};
    size_t count;

    for (size_t i = 0; i < worker->lanes.count; i++)
        if (worker->lanes.all[i].is_owned)
            ol_buf_print(&numbers, "%s%d", numbers.bytes ? "," : "[",
                         worker->lanes.all[i].outbox.number);
    worker->idle.next_us = INT64_MAX;
    if (!numbers.bytes)
        return 0;
    ol_buf_char(&numbers, ']');
    int result = ol_lane_poll(worker->conn, numbers.data, found, OL_RELAY_LANES_MAX, &count, err);
    ol_buf_clear(&numbers);
    for (size_t i = 0; result == 0 && i < count; i++) {
        struct ol_relay_lane *lane = &worker->lanes.all[found[i].number];
        if (found[i].newest > lane->outbox.head || lane->outbox.gap_count)
            lane->wants_read = true;
        if (found[i].parked_gen != lane->outbox.parked_gen &&
            found[i].epoch == lane->outbox.epoch && ol_lane_loop_reload(lane, err) < 0)
            return -1;
        // A due message may still wait behind its key, or for a destination with an open breaker.
        if (found[i].due_us <= 0)
            ol_lane_loop_finds_due(lane, err);
        if (found[i].expiry_us <= 0)
            note_expiry(lane);
        *has_news |= ol_plan_may_read(lane) || lane->wants_due || lane->has_expired_claims ||
                     worker->wants_settings;
        if (ol_lane_reload_older(worker->conn, &lane->outbox, err) < 0)
            return -1;
        *must_poll |= lane->wants_read || found[i].due_us <= 0;
        if (found[i].due_us > 0 && found[i].due_us < worker->idle.next_us)
            worker->idle.next_us = found[i].due_us;
        if (found[i].expiry_us > 0 && found[i].expiry_us < worker->idle.next_us)
            worker->idle.next_us = found[i].expiry_us;
    }
    return result;
}

static bool is_idle(const struct ol_worker *worker)
{
    for (size_t i = 0; i < worker->lanes.count; i++) {
        const struct ol_relay_lane *lane = &worker->lanes.all[i];
        if (lane->is_owned && (lane->open || lane->loose || ol_plan_may_read(lane) ||
                               lane->wants_due || ol_side_loop_is_busy(lane)))
            return false;
    }
    return ol_sender_in_flight(worker->targets.sender) == 0;
}

/* Does every lane have an owner, so that no message is left in an unowned one? */
static bool are_lanes_owned(struct ol_worker *worker)
{
    outlog_err ignored;
    int64_t count;
    return worker->lanes.owned_count > 0 &&
           ol_store_number(worker->conn, OL_Q_LANES_OWNERLESS, OL_NO_PARAMS, &count, &ignored) ==
               0 &&
           count == 0;
}

static bool has_backlog(const struct ol_worker *worker)
{
    for (size_t i = 0; i < worker->lanes.count; i++)
        if (worker->lanes.all[i].is_owned && worker->lanes.all[i].is_full)
            return true;
    return false;
}

/* The time of the next poll. */
static int64_t find_next_poll(const struct ol_worker *worker)
{
    enum { SOON_US = 5000 };
    int64_t pause = ol_idle_pause_us(worker), polled_at = worker->clock.polled_at;
    if (pause < SOON_US && has_backlog(worker))
        pause = SOON_US;
    int64_t next = pause + (polled_at > worker->clock.read_at ? polled_at : worker->clock.read_at);
    if (worker->idle.has_unread_wake && next > polled_at + SOON_US)
        next = polled_at + SOON_US;
    return worker->idle.next_us < next - polled_at ? polled_at + worker->idle.next_us : next;
}

/* Read all lanes without polling first, if one read can do that; otherwise poll. */
static void read_all_lanes(struct ol_worker *worker)
{
    if (worker->lanes.owned_count > 1 && !ol_multi_lane_turn_is_possible(worker)) {
        worker->idle.wants_read_all = false;
        worker->clock.polled_at = 0;
        return;
    }
    for (size_t i = 0; i < worker->lanes.count; i++)
        worker->lanes.all[i].wants_read |= worker->lanes.all[i].is_owned;
    worker->idle.wants_read_all = false;
    worker->clock.read_at = worker->clock.now;
}

/* If something just came, the next message comes soon: read again at once. Lanes with a backlog are
 * read anyway; then the others wait for a moment. */
static void plan_next_read(struct ol_worker *worker)
{
    enum { BACKLOG_US = 5000 };
    worker->idle.wants_read_all = !has_backlog(worker) ||
                                  worker->clock.now - worker->clock.read_at >= BACKLOG_US;
    worker->idle.has_unread_wake = false;
    worker->idle.empty_reads = 0;
}

/* Many commits may hold nothing for us, only events without messages. Then one read per millisecond
 * is enough. */
static void pause_if_empty(const struct ol_worker *worker)
{
    enum { EMPTY_MAX = 8, READ_EVERY_US = 1000 };
    int64_t left_us = worker->clock.read_at + READ_EVERY_US - ol_clock_boot_us();
    if (worker->idle.empty_reads > EMPTY_MAX && left_us > 0)
        ol_clock_sleep_us(left_us);
}

/* Wait for a commit of anybody, for at most left_us. */
static void wait_for_commit(struct ol_worker *worker, int64_t left_us)
{
    const struct ol_store *store = worker->conn->store;
    bool is_woken = store->drain_wake(worker->conn);
    if (!is_woken)
        is_woken = ol_waiter_wait(&worker->waiter, store->wake_fd(worker->conn),
                                  (int)((left_us + 999) / 1000));
    if (is_woken) {
        pause_if_empty(worker);
        store->drain_wake(worker->conn);
        worker->idle.wants_read_all = worker->idle.has_unread_wake = true;
    }
}

/* Wait for outcomes while something is in flight, otherwise for a commit or the next poll. */
static void wait_for_work(struct ol_worker *worker, bool moved)
{
    if (moved)
        worker->idle.pause_us = PAUSE_MIN_US;
    if (ol_sender_in_flight(worker->targets.sender)) {
        ol_sender_drive(worker->targets.sender, moved ? 0 : 2);
        wait_for_commit(worker, 0);
        return;
    }
    int64_t until = find_next_poll(worker);
    if (until > worker->clock.heartbeat_at)
        until = worker->clock.heartbeat_at;
    if (until > worker->clock.linger_until)
        until = worker->clock.linger_until;
    if (until > worker->clock.maintenance_at)
        until = worker->clock.maintenance_at;
    if (until > ol_owner_next_look(&worker->owner))
        until = ol_owner_next_look(&worker->owner);
    int64_t left_us = until - ol_clock_boot_us();
    if (!moved && left_us > 0)
        wait_for_commit(worker, left_us);
}

/* Every lane once, each round starting with another one: otherwise the last lanes would only get
 * the capacity that the first ones leave. */
static int step_lanes(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    struct ol_worker_lanes *lanes = &worker->lanes;
    lanes->next++;
    for (size_t i = 0; i < lanes->count; i++)
        if (ol_lane_loop_step(&lanes->all[(lanes->next + i) % lanes->count], moved, err) < 0)
            return -1;
    ol_sender_flush(worker->targets.sender); // before a poll, which takes time
    for (size_t i = 0; i < lanes->count; i++) {
        struct ol_relay_lane *lane = &lanes->all[i];
        if (lane->is_owned && lane->is_releasing && ol_ownership_release(lane, err) < 0)
            return -1;
    }
    return 0;
}

static int poll_store(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    bool has_news = false, must_poll = false;
    int64_t pause_us = worker->idle.pause_us * 2, poll_us = worker->options->poll_us;
    worker->clock.polled_at = worker->clock.now;
    worker->idle.has_unread_wake = false;
    if (ol_idle_before_poll(worker, err) < 0 ||
        poll_lanes(worker, &has_news, &must_poll, err) < 0 ||
        ol_idle_after_poll(worker, has_news || must_poll || !is_idle(worker), err) < 0)
        return -1;
    worker->idle.pause_us = has_news ? PAUSE_MIN_US : pause_us < poll_us ? pause_us : poll_us;
    *moved |= has_news;
    return 0;
}

static int run_round(struct ol_worker *worker, bool *moved, outlog_err *err)
{
    if (ol_ownership_heartbeat(worker, err) < 0 || ol_ownership_load_settings(worker, err) < 0 ||
        ol_maintenance_step(worker, err) < 0)
        return -1;
    worker->clock.linger_until = INT64_MAX;
    if (worker->idle.wants_read_all)
        read_all_lanes(worker);
    if (ol_multi_lane_turn_step(worker, moved, err) < 0 || step_lanes(worker, moved, err) < 0)
        return -1;
    *moved |= worker->wants_settings;
    if (*moved)
        plan_next_read(worker);
    else
        worker->idle.empty_reads += worker->clock.read_at == worker->clock.now;
    // Also under load: only a poll finds what is due by its time.
    if (*moved && worker->clock.now - worker->clock.polled_at < worker->options->poll_us)
        return ol_idle_wake(worker, err);
    if (!*moved && worker->clock.now < find_next_poll(worker))
        return 0;
    return poll_store(worker, moved, err);
}

/* The connection may be lost while the store is up: open another. */
static void reconnect_store(struct ol_worker *worker)
{
    outlog_err err;
    if (worker->conn->store->reconnect(worker->conn, &err) == 0 &&
        ol_lane_set_timeouts(worker->conn, worker->options->lease_us, &err) == 0)
        ol_idle_listen(worker, &err);
}

/* Record what has ended, and release the lanes that have nothing on the wire. */
static int drain_lanes(struct ol_worker *worker, outlog_err *err)
{
    int result = 0;
    for (size_t i = 0; i < worker->lanes.count; i++) {
        struct ol_relay_lane *lane = &worker->lanes.all[i];
        bool moved = false;
        lane->is_releasing = lane->is_owned;
        lane->wants_read = lane->wants_due = false;
        if (ol_lane_loop_step(lane, &moved, err) < 0) {
            lane->retry_at = worker->clock.now + 100000;
            result = -1;
        }
        if (lane->is_owned && !lane->loose && ol_ownership_release(lane, err) < 0)
            result = -1;
    }
    return result;
}

/* Stop claiming. Messages in flight finish, or their lease ends; lanes are released. Once the store
 * is given up nothing can be recorded any more. */
static void drain_worker(struct ol_worker *worker)
{
    enum { RETRY_MS = 50 };
    outlog_err err;
    int wait_ms = 5;
    int64_t end = ol_clock_boot_us() + worker->options->drain_us;
    for (;;) {
        worker->clock.now = ol_clock_boot_us();
        ol_sender_drive(worker->targets.sender, wait_ms);
        bool is_stuck = drain_lanes(worker, &err) < 0;
        if (worker->lanes.owned_count == 0 || worker->clock.now > end ||
            atomic_load(worker->stop) > 1 || ol_shutdown_is_over())
            break;
        if (is_stuck)
            reconnect_store(worker);
        wait_ms = is_stuck ? RETRY_MS : 5;
    }
    ol_ownership_write_successes(worker, &err);
    ol_store_exec(worker->conn, OL_Q_RELAY_REMOVE, OL_PARAMS(ol_value_text(worker->owner.run)),
                  NULL, &err);
    if (worker->lanes.owned_count == 0) // else others see that it has ended
        ol_owner_remove(&worker->owner, worker->conn);
}

static int start_worker(struct ol_worker *worker, outlog_err *err)
{
    if (ol_store_open(worker->options->store, &worker->conn, err) < 0 ||
        ol_migrate_check(worker->conn, err) < 0 ||
        ol_lane_set_timeouts(worker->conn, worker->options->lease_us, err) < 0 ||
        ol_idle_listen(worker, err) < 0 || ol_owner_open(&worker->owner, worker->conn, err) < 0 ||
        ol_sender_open(&worker->targets.sender, ol_batch_done, worker, err) < 0)
        return -1;
    worker->targets.store = worker->conn->wake_key;
    if (!(worker->lanes.all = calloc(OL_RELAY_LANES_MAX, sizeof *worker->lanes.all)))
        return ol_no_memory(err);
    return ol_waiter_open(&worker->waiter, worker->conn->wake_key) == 0
               ? 0
               : ol_fail(err, OUTLOG_NO_MEMORY, "no file descriptor left");
}

static void clear_worker(struct ol_worker *worker)
{
    if (worker->targets.sender) {
        ol_targets_clear(&worker->targets); // ends what is in flight: outcomes still arrive here
        ol_sender_close(worker->targets.sender);
    }
    for (size_t i = 0; i < worker->lanes.count; i++) {
        struct ol_relay_lane *lane = &worker->lanes.all[i];
        if (lane->open)
            ol_batch_free(lane->open);
        for (struct ol_side_cursor *side = lane->outbox.sides; side; side = side->next)
            if (side->open)
                ol_batch_free(side->open);
        while (lane->loose) {
            struct ol_batch *next = lane->loose->next;
            ol_batch_free(lane->loose);
            lane->loose = next;
        }
        ol_lane_clear(&lane->outbox);
    }
    ol_counter_map_clear(&worker->scratch.chain);
    ol_counter_map_clear(&worker->scratch.queues);
    ol_counter_map_clear(&worker->scratch.parked);
    ol_counter_map_clear(&worker->scratch.parked_to);
    ol_counter_map_clear(&worker->scratch.single);
    ol_side_effects_clear(&worker->effects);
    ol_policy_clear(&worker->policy);
    ol_template_cache_clear(&worker->templates);
    ol_turn_clear(&worker->turn);
    ol_turn_clear(&worker->part);
    ol_multi_lane_turn_clear(worker);
    ol_waiter_close(&worker->waiter);
    free(worker->lanes.all);
    free(worker->idle.holders);
    ol_store_close(worker->conn);
    ol_owner_close(&worker->owner); // nothing of it is on the wire any more
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
    ol_owner_init(&worker->owner, "relay", options->name, options->lease_us, options->margin_us);
    worker->owner.sends = true;
    worker->margin_us = worker->owner.margin_us;
    worker->stop = stop;
    worker->stats = stats;
    worker->idle.pause_us = PAUSE_MIN_US;
    worker->waiter.fd = -1;
    if (start_worker(worker, err) < 0) {
        ol_worker_close(worker);
        return NULL;
    }
    return worker;
}

bool ol_worker_round(struct ol_worker *worker)
{
    bool moved = false;
    outlog_err why;

    worker->clock.now = ol_clock_boot_us();
    if (run_round(worker, &moved, &why) == 0)
        return moved;
    if (worker->clock.now - worker->clock.reported_at > REPORT_EVERY_US) {
        ol_report_store_error(&why);
        worker->clock.reported_at = worker->clock.now;
    }
    worker->clock.polled_at = worker->clock.now;
    worker->idle.pause_us = worker->options->poll_us;
    reconnect_store(worker);
    return false;
}

void ol_worker_close(struct ol_worker *worker)
{
    clear_worker(worker);
    free(worker);
}

int ol_worker_run(const struct ol_worker_options *options, atomic_int *stop,
                  struct ol_worker_stats *stats, outlog_err *err)
{
    struct ol_worker *worker = ol_worker_open(options, stop, stats, err);
    int idle_rounds = 0;

    if (!worker && options->begun)
        atomic_fetch_add(options->begun,
                         1); // it counts as started: the others must not wait for it
    if (!worker)
        return -1;
    while (atomic_load(stop) == 0) {
        bool moved = ol_worker_round(worker);
        bool polled = worker->clock.polled_at == worker->clock.now;
        if (moved || !is_idle(worker))
            idle_rounds = 0;
        else
            idle_rounds += polled; // counts only rounds that polled and found nothing
        if (options->until_idle && idle_rounds > 3 && are_lanes_owned(worker))
            break;
        wait_for_work(worker, moved);
    }
    if (atomic_load(stop) < 2)
        drain_worker(worker);
    ol_worker_close(worker);
    return 0;
}
