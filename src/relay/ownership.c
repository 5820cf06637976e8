/* ownership.c: which lanes are ours, and that others know it. */
#include "base/timestamp.h"
#include "relay/internal.h"

#include "base/clock.h"
#include "relay/janitor.h"
#include "telemetry/report.h"

enum { BEAT_US = 1000000 };

/* Lanes come with a new generation, and stay. */
static int know_lanes(struct ol_worker *worker, int64_t count, outlog_err *err)
{
    if (count > OL_RELAY_LANES_MAX)
        return ol_fail(err, OUTLOG_STORE_ERROR, "more lanes than this relay knows");
    for (; worker->lane_count < (size_t)count; worker->lane_count++) {
        struct ol_relay_lane *wl = &worker->lanes[worker->lane_count];
        wl->worker = worker;
        wl->limit = worker->options->batch;
        wl->lane = (struct ol_lane){.number = (int)worker->lane_count,
                                    .run = worker->run,
                                    .lease_us = worker->options->lease_us,
                                    .has_gaps = worker->conn->store->has_gaps,
                                    .fallen = ol_side_effects_abandoned,
                                    .context = &worker->record};
    }
    return 0;
}

/* Tell that we live, see who else does, and learn the database's clock: times in messages are its
 * times. It is read after the answer came, so a message can be late by that much and never early.
 */
static int count_relays(struct ol_worker *worker, int64_t *live, outlog_err *err)
{
    int64_t dead_after = worker->options->lease_us;
    struct ol_rows rows;
    if (ol_store_exec(worker->conn, OL_Q_RELAY_BEAT,
                      OL_PARAMS(ol_value_text(worker->run), ol_value_text(worker->options->name)),
                      NULL, err) < 0 ||
        ol_store_exec(worker->conn, OL_Q_RELAY_FORGET, OL_PARAMS(ol_value_int(dead_after * 10)),
                      NULL, err) < 0)
        return -1;
    if (ol_store_query(worker->conn, OL_Q_RELAY_COUNT, OL_PARAMS(ol_value_int(dead_after)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    int64_t lanes = 0;
    if (got > 0) {
        *live = ol_rows_int(&rows, 0);
        worker->ahead_us = ol_rows_time(&rows, 1) - ol_clock_boot_us();
        lanes = ol_rows_int(&rows, 2);
        worker->newest_first = (int)ol_rows_int(&rows, 3);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : know_lanes(worker, lanes, err);
}

struct free_lane {
    int number, first_lane, generation_size;
};

static int find_free(struct ol_worker *worker, struct free_lane *free_lanes, size_t *count,
                     outlog_err *err)
{
    struct ol_rows rows;
    int64_t is_safe;
    int more;

    *count = 0;
    if (ol_store_number(worker->conn, OL_Q_SERVER_IS_KNOWN,
                        OL_PARAMS(ol_value_int(worker->options->lease_us)), &is_safe, err) < 0 ||
        ol_store_query(worker->conn, OL_Q_LANE_FREE, OL_PARAMS(ol_value_int(is_safe)), &rows, err) <
            0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0 && *count < OL_RELAY_LANES_MAX)
        free_lanes[(*count)++] = (struct free_lane){(int)ol_rows_int(&rows, 0),
                                                    (int)ol_rows_int(&rows, 1),
                                                    (int)ol_rows_int(&rows, 2)};
    ol_rows_end(&rows);
    return more < 0 ? -1 : 0;
}

static int take(struct ol_relay_lane *wl, const struct free_lane *free_lane, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    bool taken;
    int64_t parked;
    outlog_err why;

    if (ol_lane_check(worker->conn, &wl->lane, &why) < 0) {
        if (why.code != OUTLOG_STORE_ERROR) {
            *err = why;
            return -1;
        }
        ol_report_store_error(&why); // the other lanes are well
        return 0;
    }
    if (ol_lane_take(worker->conn, &wl->lane, worker->options->name, &taken, &parked, err) < 0)
        return -1;
    if (!taken)
        return 0;
    wl->first_lane = free_lane->first_lane;
    wl->generation_size = free_lane->generation_size;
    wl->is_owned = wl->wants_read = wl->wants_due = true;
    wl->gives_back = false;
    worker->owned++;
    if (worker->stats->taken++ == 0)
        worker->stats->started_at = ol_clock_boot_us();
    worker->stats->parked += parked;
    return 0;
}

static size_t owned_of(const struct ol_worker *worker, int first_lane)
{
    size_t count = 0;
    for (size_t i = 0; i < worker->lane_count; i++)
        count += worker->lanes[i].is_owned && worker->lanes[i].first_lane == first_lane;
    return count;
}

/* Each generation is shared by itself: the lanes of an old one have nothing to do. */
static size_t share_of(int generation_size, int64_t live)
{
    return ((size_t)generation_size + (size_t)live - 1) / (size_t)live;
}

static int take_free(struct ol_worker *worker, int64_t live, outlog_err *err)
{
    struct free_lane free_lanes[OL_RELAY_LANES_MAX];
    size_t count;

    if (worker->owned >= worker->lane_count)
        return 0;
    if (find_free(worker, free_lanes, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const struct free_lane *f = &free_lanes[i];
        struct ol_relay_lane *wl = &worker->lanes[f->number];
        if ((size_t)f->number >= worker->lane_count || wl->is_owned || wl->loose ||
            owned_of(worker, f->first_lane) >= share_of(f->generation_size, live))
            continue;
        if (take(wl, f, err) < 0)
            return -1;
    }
    return 0;
}

/* Hand one lane over where we hold more than our share. */
static void give_some(struct ol_worker *worker, int64_t live)
{
    for (size_t i = worker->lane_count; i-- > 0;) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        if (wl->is_owned && !wl->gives_back &&
            owned_of(worker, wl->first_lane) > share_of(wl->generation_size, live)) {
            wl->gives_back = true;
            return;
        }
    }
}

static int renew_all(struct ol_worker *worker, outlog_err *err)
{
    for (size_t i = 0; i < worker->lane_count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[i];
        bool held;
        if (!wl->is_owned || wl->lane.lease_end - worker->now > worker->options->lease_us * 2 / 3)
            continue;
        if (ol_lane_renew(worker->conn, &wl->lane, &held, err) < 0)
            return -1;
        if (!held) {
            worker->stats->fenced++;
            ol_lane_loop_lose(wl);
        }
    }
    return 0;
}

int ol_ownership_release(struct ol_relay_lane *wl, outlog_err *err)
{
    struct ol_worker *worker = wl->worker;
    if (wl->open || wl->has_finished)
        return 0;
    if (ol_lane_release(worker->conn, &wl->lane, err) < 0)
        return -1;
    wl->is_owned = wl->gives_back = false;
    worker->owned--;
    return 0;
}

/* Show breakers to whoever asks: rows only for those that are not closed. */
static int show_breakers(struct ol_worker *worker, outlog_err *err)
{
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        enum ol_breaker_state state = ol_breaker_state(&t->breaker, worker->now);
        int64_t ready_at = state == OL_BREAKER_OPEN ? ol_breaker_ready_at(&t->breaker) : 0;
        if (!t->outlet || t->is_retired || (state == t->shown && ready_at == t->shown_ready_at))
            continue;
        const struct ol_value run = ol_value_text(worker->run), name = ol_value_text(t->name);
        if ((state == OL_BREAKER_CLOSED
                 ? ol_store_exec(worker->conn, OL_Q_BREAKER_CLOSE, OL_PARAMS(run, name), NULL, err)
                 : ol_store_exec(worker->conn, OL_Q_BREAKER_PUT,
                                 OL_PARAMS(run, name, ol_value_text(ol_breaker_name(state)),
                                           ol_value_int(ready_at ? ready_at - worker->now : 0)),
                                 NULL, err)) < 0)
            return -1;
        t->shown = state;
        t->shown_ready_at = ready_at;
    }
    return 0;
}

int ol_ownership_write_successes(struct ol_worker *worker, outlog_err *err)
{
    struct ol_buf told = {0};
    char time[OL_TIMESTAMP_TEXT];
    int result = 0;
    for (struct ol_target *t = worker->targets.first; t; t = t->next) {
        if (t->ok_at == t->shown_ok_at)
            continue;
        ol_buf_text(&told, told.bytes ? ",[" : "[[");
        ol_buf_json_text(&told, t->name);
        ol_buf_print(&told, ",\"%s\"]", ol_timestamp_format(t->ok_at + worker->ahead_us, time));
        t->shown_ok_at = t->ok_at;
    }
    if (told.bytes) {
        ol_buf_char(&told, ']');
        result = told.failed
                     ? ol_no_memory(err)
                     : ol_store_exec(worker->conn, OL_Q_SUCCESS_PUT,
                                     OL_PARAMS(ol_value_bytes(told.data, told.bytes)), NULL, err);
    }
    for (struct ol_target *t = worker->targets.first; result < 0 && t; t = t->next)
        t->shown_ok_at = 0; // nobody knows: all of it is told again
    ol_buf_clear(&told);
    return result;
}

/* Old messages go, a stretch of one lane at a time, by the lane's owner (O10). */
static int prune(struct ol_worker *worker, bool *has_more, outlog_err *err)
{
    for (size_t i = 0; worker->policy.messages_us && i < worker->lane_count; i++) {
        struct ol_relay_lane *wl = &worker->lanes[(worker->pruned_lane + i) % worker->lane_count];
        if (!wl->is_owned || worker->now < wl->prune_at)
            continue;
        worker->pruned_lane = (size_t)(wl - worker->lanes); // goes on behind it when it is done
        *has_more = true;
        if (ol_janitor_prune(worker->conn, &worker->policy, &wl->lane,
                             worker->now + worker->ahead_us, &wl->pruned_to, err) < 0)
            return -1;
        if (wl->pruned_to)
            return 0;
        worker->pruned_lane++;
        wl->prune_at = worker->now + ol_janitor_pause_us(&worker->policy);
        return 0;
    }
    return 0;
}

/* Every minute, by whoever owns the first lane, and until nothing old is left. */
static int sweep(struct ol_worker *worker, bool *has_more, outlog_err *err)
{
    if (!worker->lanes[0].is_owned || worker->now < worker->sweep_at)
        return 0;
    if (ol_janitor_sweep(worker->conn, &worker->policy, has_more, err) < 0)
        return -1;
    if (*has_more)
        return 0;
    worker->sweep_at = worker->now + 60 * BEAT_US;
    return ol_store_exec(worker->conn, OL_Q_SUCCESS_FORGET, OL_NO_PARAMS, NULL, err) < 0
               ? -1
               : ol_store_exec(worker->conn, OL_Q_BREAKER_FORGET,
                               OL_PARAMS(ol_value_int(worker->options->lease_us * 10)), NULL, err);
}

int ol_maintenance_step(struct ol_worker *worker, outlog_err *err)
{
    enum { REST = 4 }; // times as long as it took: a fifth of our time, however much there is
    bool has_more = false;
    if (worker->now < worker->tidy_at)
        return 0;
    int64_t began = ol_clock_boot_us();
    if (sweep(worker, &has_more, err) < 0 || (!has_more && prune(worker, &has_more, err) < 0))
        return -1;
    int64_t ended = ol_clock_boot_us();
    worker->tidy_at = has_more ? ended + REST * (ended - began) : worker->now + BEAT_US;
    return 0;
}

/* Will there be more of us than can be seen yet? Who was there and is missing has ended. */
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

static int look_at_settings(struct ol_worker *worker, outlog_err *err)
{
    if (ol_targets_refresh(&worker->targets, worker->conn, err) < 0 ||
        ol_policy_refresh(&worker->policy, worker->conn, err) < 0)
        return -1;
    worker->wants_settings = false;
    return 0;
}

int ol_ownership_load_settings(struct ol_worker *worker, outlog_err *err)
{
    return worker->wants_settings ? look_at_settings(worker, err) : 0;
}

/* Once a second: tell that we live, take what is free up to a fair share, hand one lane over when
 * we hold more. */
int ol_ownership_heartbeat(struct ol_worker *worker, outlog_err *err)
{
    int64_t live = 0;
    if (worker->now < worker->beat_at)
        return 0;
    int64_t third = worker->options->lease_us / 3;
    worker->beat_at = worker->now + (third < BEAT_US ? third : BEAT_US);
    if (count_relays(worker, &live, err) < 0 || renew_all(worker, err) < 0 ||
        look_at_settings(worker, err) < 0 || show_breakers(worker, err) < 0 ||
        ol_ownership_write_successes(worker, err) < 0)
        return -1;
    if (atomic_load(worker->stop))
        return 0;
    if (are_starting(worker))
        live = worker->options->siblings;
    give_some(worker, live ? live : 1);
    return take_free(worker, live ? live : 1, err);
}
