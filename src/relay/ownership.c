/* ownership.c: which lanes are ours, and what other relays and operators see of us. */
#include "relay/internal.h"

#include "base/clock.h"
#include "base/timestamp.h"
#include "telemetry/report.h"

enum { HEARTBEAT_US = 1000000 };

/* A new generation adds lanes; lanes are never removed. */
static int add_lanes(struct ol_worker *worker, int64_t count, outlog_err *err)
{
    if (count > OL_RELAY_LANES_MAX)
        return ol_fail(err, OUTLOG_STORE_ERROR, "the store has %lld lanes, this relay supports %d",
                       (long long)count, OL_RELAY_LANES_MAX);
    for (; worker->lanes.count < (size_t)count; worker->lanes.count++) {
        struct ol_relay_lane *lane = &worker->lanes.all[worker->lanes.count];
        lane->worker = worker;
        lane->limit = worker->options->batch;
        lane->outbox = (struct ol_lane){.number = (int)worker->lanes.count,
                                        .run = worker->owner.run,
                                        .lease_us = worker->options->lease_us,
                                        .has_gaps = worker->conn->store->has_gaps,
                                        .abandoned = ol_side_effects_abandoned,
                                        .context = &worker->effects};
    }
    return 0;
}

static int64_t find_beat_us(const struct ol_worker *worker)
{
    int64_t third = worker->options->lease_us / 3;
    return third < HEARTBEAT_US ? third : HEARTBEAT_US;
}

/* Learn the clock of the database, which was read between `before` and `after`. If it was set, no
 * lease ends by it before all owners that live have renewed theirs by the new time, and until what
 * they have sent is over: a lease. When we start we cannot know; owners that live notice within a
 * beat, so two are enough. */
static void note_clock(struct ol_worker *worker, int64_t time, int64_t before, int64_t after)
{
    enum { DRIFT_MAX_US = 10000 };
    struct ol_worker_clock *clock = &worker->clock;
    bool is_set = clock->is_known && (time - after > clock->ahead_max_us + DRIFT_MAX_US ||
                                      time - before < clock->ahead_us - DRIFT_MAX_US);
    if (!clock->is_known || is_set) {
        clock->trusted_at = after + (is_set ? worker->options->lease_us : 2 * find_beat_us(worker));
        clock->has_stepped = true;
    }
    clock->is_known = true;
    clock->ahead_us = time - after;
    clock->ahead_max_us = time - before;
}

/* The clock was set: give what was stored by the old one its meaning by the new one. */
static int follow_clock(struct ol_worker *worker, outlog_err *err)
{
    if (!worker->clock.has_stepped)
        return 0;
    if (ol_store_exec(worker->conn, OL_Q_LANES_CUT_LEASES, OL_NO_PARAMS, NULL, err) < 0)
        return -1;
    for (size_t i = 0; i < worker->lanes.count; i++)
        if (worker->lanes.all[i].is_owned &&
            ol_lane_rebase(worker->conn, &worker->lanes.all[i].outbox, err) < 0)
            return -1;
    worker->clock.has_stepped = false;
    worker->clock.polled_at = 0; // something may be due now
    return 0;
}

/* Write our heartbeat, count the live relays, and learn the database's clock: times in messages are
 * its times. The clock is read after the answer came, so a message can be late by that much and
 * never early. */
static int count_relays(struct ol_worker *worker, int64_t *live, outlog_err *err)
{
    int64_t dead_after = worker->options->lease_us;
    struct ol_rows rows;
    if (ol_store_exec(worker->conn, OL_Q_RELAY_HEARTBEAT,
                      OL_PARAMS(ol_value_text(worker->owner.run),
                                ol_value_text(worker->options->name)),
                      NULL, err) < 0)
        return -1;
    int64_t before = ol_clock_boot_us();
    if (ol_store_query(worker->conn, OL_Q_RELAY_COUNT, OL_PARAMS(ol_value_int(dead_after)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    int64_t lanes = 0;
    if (got > 0) {
        *live = ol_rows_int(&rows, 0);
        note_clock(worker, ol_rows_time(&rows, 1), before, ol_clock_boot_us());
        lanes = ol_rows_int(&rows, 2);
        worker->lanes.newest_first = (int)ol_rows_int(&rows, 3);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : add_lanes(worker, lanes, err);
}

struct free_lane {
    int number, first_lane, generation_size;
};

static int read_free_lanes(struct ol_worker *worker, struct free_lane *free_lanes, size_t *count,
                           bool *knows_server, outlog_err *err)
{
    struct ol_rows rows;
    int64_t is_known;
    int more;

    *count = 0;
    if (ol_store_number(worker->conn, OL_Q_SERVER_IS_KNOWN,
                        OL_PARAMS(ol_value_int(worker->options->lease_us)), &is_known, err) < 0)
        return -1;
    is_known = is_known && ol_clock_boot_us() >= worker->clock.trusted_at; // rule 32
    if (ol_store_query(worker->conn, OL_Q_LANE_FREE, OL_PARAMS(ol_value_int(is_known)), &rows,
                       err) < 0)
        return -1;
    *knows_server = is_known != 0;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < OL_RELAY_LANES_MAX)
        free_lanes[(*count)++] = (struct free_lane){(int)ol_rows_int(&rows, 0),
                                                    (int)ol_rows_int(&rows, 1),
                                                    (int)ol_rows_int(&rows, 2)};
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int take_lane(struct ol_relay_lane *lane, const struct free_lane *free_lane,
                     const struct ol_lane_taker *taker, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    bool taken;
    int64_t parked;
    outlog_err why;

    if (ol_lane_check(worker->conn, &lane->outbox, &why) < 0) {
        if (why.code != OUTLOG_STORE_ERROR) {
            *err = why;
            return -1;
        }
        ol_report_store_error(&why); // the other lanes can still be taken
        return 0;
    }
    if (ol_lane_take(worker->conn, &lane->outbox, taker, &taken, &parked, &why) < 0) {
        if (ol_poison_is_suspected(&why))
            ol_lane_loop_note_trouble(lane, &why); // the other lanes can still be taken
        *err = why;
        return ol_poison_is_suspected(&why) ? 0 : -1;
    }
    if (!taken)
        return 0;
    ol_lane_loop_end_trouble(lane);
    lane->first_lane = free_lane->first_lane;
    lane->generation_size = free_lane->generation_size;
    lane->is_owned = lane->wants_read = lane->wants_due = true;
    lane->is_releasing = false;
    worker->lanes.owned_count++;
    if (worker->stats->taken++ == 0)
        worker->stats->started_at = ol_clock_boot_us();
    worker->stats->parked += parked;
    return 0;
}

static size_t count_owned(const struct ol_worker *worker, int first_lane)
{
    size_t count = 0;
    for (size_t i = 0; i < worker->lanes.count; i++)
        count += worker->lanes.all[i].is_owned && worker->lanes.all[i].first_lane == first_lane;
    return count;
}

/* Each generation is divided separately: the lanes of an old one have nothing to do. */
static size_t find_fair_share(int generation_size, int64_t live)
{
    return ((size_t)generation_size + (size_t)live - 1) / (size_t)live;
}

static int take_free_lanes(struct ol_worker *worker, int64_t live, outlog_err *err)
{
    struct free_lane free_lanes[OL_RELAY_LANES_MAX];
    struct ol_lane_taker taker = {.name = worker->options->name};
    struct ol_buf timeouts = {0};
    size_t count;
    int result = 0;

    if (worker->lanes.owned_count >= worker->lanes.count)
        return 0;
    if (read_free_lanes(worker, free_lanes, &count, &taker.knows_server, err) < 0)
        return -1;
    if (count)
        ol_targets_timeouts(&worker->targets, &timeouts);
    taker.timeouts = timeouts.failed ? "[]" : timeouts.data;
    for (size_t i = 0; result == 0 && i < count; i++) {
        const struct free_lane *f = &free_lanes[i];
        struct ol_relay_lane *lane = &worker->lanes.all[f->number];
        if ((size_t)f->number < worker->lanes.count && !lane->is_owned && !lane->loose &&
            count_owned(worker, f->first_lane) < find_fair_share(f->generation_size, live))
            result = take_lane(lane, f, &taker, err);
    }
    ol_buf_clear(&timeouts);
    return result;
}

/* Release one lane if we hold more than our share. */
static void release_surplus(struct ol_worker *worker, int64_t live)
{
    for (size_t i = worker->lanes.count; i-- > 0;) {
        struct ol_relay_lane *lane = &worker->lanes.all[i];
        if (lane->is_owned && !lane->is_releasing &&
            count_owned(worker, lane->first_lane) > find_fair_share(lane->generation_size, live)) {
            lane->is_releasing = true;
            return;
        }
    }
}

static int purge_relays(struct ol_worker *worker, outlog_err *err)
{
    return ol_store_exec(worker->conn, OL_Q_RELAYS_PURGE,
                         OL_PARAMS(ol_value_int(worker->options->lease_us * 10)), NULL, err);
}

static int renew_leases(struct ol_worker *worker, bool all, outlog_err *err)
{
    for (size_t i = 0; i < worker->lanes.count; i++) {
        struct ol_relay_lane *lane = &worker->lanes.all[i];
        bool held;
        if (!lane->is_owned ||
            (!all && !worker->clock.has_stepped &&
             lane->outbox.lease_end - worker->clock.now > worker->options->lease_us * 2 / 3))
            continue;
        if (ol_lane_renew(worker->conn, &lane->outbox, &held, err) < 0)
            return -1;
        if (!held) {
            worker->stats->fenced++;
            ol_lane_loop_lose(lane);
        }
    }
    return 0;
}

int ol_ownership_release(struct ol_relay_lane *lane, outlog_err *err)
{
    struct ol_worker *worker = lane->worker;
    if (lane->open || lane->has_finished || ol_side_loop_is_open(lane))
        return 0;
    if (ol_lane_release(worker->conn, &lane->outbox, err) < 0)
        return -1;
    lane->is_owned = lane->is_releasing = false;
    ol_side_cursor_clear_all(&lane->outbox);
    worker->lanes.owned_count--;
    return 0;
}

/* Others see in the same rows what this relay cannot use. A destination that is usable after a
 * change is a new target. */
static int write_unusable(struct ol_worker *worker, struct ol_target *t, outlog_err *err)
{
    const struct ol_value run = ol_value_text(worker->owner.run), name = ol_value_text(t->name);
    bool is_unusable = !t->channel && *t->source;
    if (t->is_retired || t->is_shown_unusable == is_unusable ||
        (!is_unusable && !worker->targets.has_unusable))
        return 0;
    worker->targets.has_unusable |= is_unusable;
    t->is_shown_unusable = is_unusable;
    return is_unusable
               ? ol_store_exec(worker->conn, OL_Q_BREAKER_PUT_UNUSABLE,
                               OL_PARAMS(run, name, ol_value_text(t->trouble)), NULL, err)
               : ol_store_exec(worker->conn, OL_Q_BREAKER_CLOSE, OL_PARAMS(run, name), NULL, err);
}

/* Others read the breakers from rows; a closed breaker has none. */
static int write_breakers(struct ol_worker *worker, outlog_err *err)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        enum ol_breaker_state state = ol_breaker_state(&t->breaker, worker->clock.now);
        int64_t ready_at = state == OL_BREAKER_OPEN ? ol_breaker_ready_at(&t->breaker) : 0;
        if (write_unusable(worker, t, err) < 0)
            return -1;
        if (!t->channel || t->is_retired || (state == t->shown && ready_at == t->shown_ready_at))
            continue;
        const struct ol_value run = ol_value_text(worker->owner.run), name = ol_value_text(t->name);
        if ((state == OL_BREAKER_CLOSED
                 ? ol_store_exec(worker->conn, OL_Q_BREAKER_CLOSE, OL_PARAMS(run, name), NULL, err)
                 : ol_store_exec(worker->conn, OL_Q_BREAKER_PUT,
                                 OL_PARAMS(run, name, ol_value_text(ol_breaker_name(state)),
                                           ol_value_int(ready_at ? ready_at - worker->clock.now
                                                                 : 0)),
                                 NULL, err)) < 0)
            return -1;
        t->shown = state;
        t->shown_ready_at = ready_at;
    }
    return 0;
}

int ol_ownership_write_successes(struct ol_worker *worker, outlog_err *err)
{
    struct ol_buf rows = {0};
    char time[OL_TIMESTAMP_TEXT];
    int result = 0;
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->ok_at == t->shown_ok_at)
            continue;
        ol_buf_text(&rows, rows.bytes ? ",[" : "[[");
        ol_buf_json_text(&rows, t->name);
        ol_buf_print(&rows, ",\"%s\"]",
                     ol_timestamp_format(t->ok_at + worker->clock.ahead_us, time));
        t->shown_ok_at = t->ok_at;
    }
    if (rows.bytes) {
        ol_buf_char(&rows, ']');
        result = rows.failed
                     ? ol_no_memory(err)
                     : ol_store_exec(worker->conn, OL_Q_SUCCESS_PUT,
                                     OL_PARAMS(ol_value_bytes(rows.data, rows.bytes)), NULL, err);
    }
    for (struct ol_target *t = worker->targets.first; result < 0 && t; t = t->next)
        t->shown_ok_at = 0; // it is not known what was stored: write all again
    ol_buf_clear(&rows);
    return result;
}

/* Are other workers of this process still starting? One that began and is missing now has ended. */
static bool are_starting(struct ol_worker *worker)
{
    atomic_int *begun = worker->options->begun;
    if (!begun)
        return false;
    if (!worker->has_begun)
        atomic_fetch_add(begun, 1);
    worker->has_begun = true;
    return atomic_load(begun) < worker->options->siblings;
}

static int refresh_settings(struct ol_worker *worker, outlog_err *err)
{
    if (ol_targets_refresh(&worker->targets, worker->conn, err) < 0 ||
        ol_policy_refresh(&worker->policy, worker->conn, err) < 0)
        return -1;
    worker->wants_settings = false;
    return 0;
}

int ol_ownership_load_settings(struct ol_worker *worker, outlog_err *err)
{
    return worker->wants_settings ? refresh_settings(worker, err) : 0;
}

/* Rules 27 and 28: a new session has a new lock; then each lane must still be ours; and only an
 * answer after that lets us send. */
static int keep_session(struct ol_worker *worker, outlog_err *err)
{
    bool is_new;
    if (ol_owner_join_session(&worker->owner, worker->conn, &is_new, err) < 0)
        return -1;
    if (is_new && renew_leases(worker, true, err) < 0) {
        ol_owner_forget_session(&worker->owner);
        return -1;
    }
    return ol_owner_beat(&worker->owner, worker->conn, err);
}

/* Takes free lanes up to a fair share, and releases one lane at a time when we hold more. */
int ol_ownership_heartbeat(struct ol_worker *worker, outlog_err *err)
{
    int64_t live = 0;
    bool has_died = false;
    if (keep_session(worker, err) < 0)
        return -1;
    if (!atomic_load(worker->stop) &&
        ol_owner_look(&worker->owner, worker->conn, &has_died, err) < 0)
        return -1;
    if (worker->clock.now < worker->clock.heartbeat_at && !has_died)
        return 0;
    worker->clock.heartbeat_at = worker->clock.now + find_beat_us(worker);
    if (count_relays(worker, &live, err) < 0 || renew_leases(worker, false, err) < 0 ||
        follow_clock(worker, err) < 0 || purge_relays(worker, err) < 0 ||
        refresh_settings(worker, err) < 0 || write_breakers(worker, err) < 0 ||
        ol_ownership_write_successes(worker, err) < 0)
        return -1;
    if (atomic_load(worker->stop))
        return 0;
    if (are_starting(worker))
        live = worker->options->siblings;
    release_surplus(worker, live ? live : 1);
    return take_free_lanes(worker, live ? live : 1, err);
}
