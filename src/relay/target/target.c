/* target.c: loads destinations, opens their channels, and estimates how much they can take. */
#include "relay/target/target.h"

#include "telemetry/report.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many messages one place is assumed to send within our patience while its speed is unknown. */
enum { UNKNOWN_ROUNDS = 4, ROUNDS_MIN = 2 };

static void free_target(struct ol_target *target)
{
    if (target->channel)
        ol_sender_channel_close(target->channel); // ends what is in flight, which frees its places
    ol_quota_leave(&target->quota);
    ol_settings_close(target->settings);
    free(target->name);
    free(target->source);
    free(target);
}

void ol_targets_clear(struct ol_targets *targets)
{
    while (targets->first) {
        struct ol_target *next = targets->first->next;
        free_target(targets->first);
        targets->first = next;
    }
    targets->is_loaded = false;
}

static struct ol_target *find_target(struct ol_targets *targets, const char *name)
{
    for (struct ol_target *t = targets->first; t; t = t->next)
        if (!t->is_retired && strcmp(t->name, name) == 0)
            return t;
    return NULL;
}

static struct ol_target *add_target(struct ol_targets *targets, const char *name,
                                    const char *source)
{
    struct ol_target *target = calloc(1, sizeof *target);
    if (!target || !(target->name = strdup(name)) || !(target->source = strdup(source))) {
        if (target)
            free(target->name);
        free(target);
        return NULL;
    }
    target->targets = targets;
    target->next = targets->first;
    targets->first = target;
    return target;
}

/* Settings that do not work are no error of the relay: the messages wait, and show the reason. */
static void open_target(struct ol_targets *targets, struct ol_target *target)
{
    outlog_err why;
    if (ol_settings_open(target->name, target->source, strlen(target->source), OL_SETTINGS_USE,
                         &target->settings, &why) < 0 ||
        ol_sender_channel_open(targets->sender, target->settings, &target->channel, &why) < 0) {
        snprintf(target->trouble, sizeof target->trouble, "%.390s", why.message);
        return;
    }
    const struct ol_settings *s = target->settings;
    ol_breaker_init(&target->breaker, s->breaker_failures, s->breaker_open_us,
                    s->breaker_open_max_us);
    if (!ol_quota_join(&target->quota, targets->store, target->name, s)) {
        ol_sender_channel_close(target->channel);
        target->channel = NULL;
        snprintf(target->trouble, sizeof target->trouble, "out of memory");
    }
}

static int load_row(struct ol_targets *targets, const struct ol_rows *rows, outlog_err *err)
{
    const char *name = ol_rows_text(rows, 0, NULL), *source = ol_rows_text(rows, 1, NULL);
    struct ol_target *target = find_target(targets, name);

    if (target && strcmp(target->source, source) != 0) {
        target->is_retired = true;
        target = NULL;
    }
    if (!target) {
        if (!(target = add_target(targets, name, source)))
            return ol_no_memory(err);
        open_target(targets, target);
    }
    target->is_paused = ol_rows_int(rows, 3) != 0;
    target->is_seen = true;
    return 0;
}

static void close_retired(struct ol_targets *targets)
{
    for (struct ol_target **at = &targets->first; *at;) {
        struct ol_target *target = *at;
        bool is_idle = !target->channel || ol_sender_channel_in_flight(target->channel) == 0;
        if (!target->is_seen)
            target->is_retired = true;
        if (target->is_retired && is_idle) {
            if (target->is_told)
                ol_report_destination(target->name, NULL);
            *at = target->next;
            free_target(target);
        } else {
            at = &target->next;
        }
    }
}

int ol_targets_refresh(struct ol_targets *targets, struct ol_conn *conn, outlog_err *err)
{
    struct ol_rows rows;
    int64_t count = 0, at = 0;
    int more;

    if (ol_store_query(conn, OL_Q_DESTINATION_STAMP, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    if ((more = ol_rows_next(&rows, err)) > 0) {
        count = ol_rows_int(&rows, 0);
        at = ol_rows_is_null(&rows, 1) ? 0 : ol_rows_time(&rows, 1);
    }
    ol_rows_end(&rows);
    if (more < 0)
        return -1;
    if (targets->is_loaded && count == targets->stamp_count && at == targets->stamp_at) {
        close_retired(targets);
        return 0;
    }
    for (struct ol_target *t = targets->first; t; t = t->next)
        t->is_seen = false;
    if (ol_store_query(conn, OL_Q_DESTINATION_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        if (load_row(targets, &rows, err) < 0) {
            more = -1;
            break;
        }
    ol_rows_end(&rows);
    if (more < 0)
        return -1;
    close_retired(targets);
    targets->is_loaded = true;
    targets->stamp_count = count;
    targets->stamp_at = at;
    return 0;
}

void ol_targets_timeouts(const struct ol_targets *targets, struct ol_buf *out)
{
    ol_buf_char(out, '[');
    for (const struct ol_target *t = targets->first; t; t = t->next) {
        if (t->is_retired || !t->settings)
            continue;
        bool sends_nothing = t->settings->publisher_type->sends_nothing;
        ol_buf_print(out, "%s{\"us\":%lld,\"destination\":", out->bytes > 1 ? "," : "",
                     (long long)(sends_nothing ? 0 : t->settings->timeout_us));
        ol_buf_json_text(out, t->name);
        ol_buf_char(out, '}');
    }
    ol_buf_char(out, ']');
}

struct ol_target *ol_target_find(struct ol_targets *targets, const char *name)
{
    struct ol_target *target = find_target(targets, name);
    if (!target && (target = add_target(targets, name, ""))) {
        target->is_seen = true;
        snprintf(target->trouble, sizeof target->trouble,
                 "there is no destination %.100s; add it to outlog.yaml and run `outlog apply`",
                 name);
    }
    return target;
}

void ol_target_tell(struct ol_target *target)
{
    if (target->channel || target->is_told)
        return;
    ol_report_destination(target->name, target->trouble);
    target->is_told = true;
}

bool ol_target_is_open(const struct ol_target *target, int64_t now)
{
    return target->channel && !target->is_paused &&
           ol_breaker_state(&target->breaker, now) != OL_BREAKER_OPEN;
}

int ol_target_capacity(struct ol_target *target, bool at_once, int64_t patience_us, int64_t now)
{
    int64_t interval_us;
    if (!ol_target_is_open(target, now))
        return 0;
    if (ol_breaker_state(&target->breaker, now) == OL_BREAKER_HALF_OPEN)
        return target->breaker.is_probing ? 0 : 1;
    int places = ol_quota_places(&target->quota, now, &interval_us);
    if (places == INT_MAX && !interval_us)
        return INT_MAX;
    // All places are taken and none was freed within our patience: it hangs.
    int in_flight = (int)ol_sender_channel_in_flight(target->channel);
    bool hangs = places == 0 && (now - target->moved_at > patience_us ||
                                 ol_target_hangs(target, patience_us, now));
    double rounds = at_once || hangs         ? 1
                    : target->latency_us > 1 ? (double)patience_us / 2 / target->latency_us
                                             : UNKNOWN_ROUNDS;
    // A destination that answers has the next messages queued already; otherwise its places would
    // be empty for as long as a claim takes.
    double rounds_min = !at_once && ol_target_is_quick(target, patience_us, now) ? ROUNDS_MIN : 1;
    double capacity = ((double)places + in_flight) * (rounds < rounds_min ? rounds_min : rounds) -
                      in_flight;
    if (interval_us) { // what the rate allows meanwhile
        double paced = (double)(at_once ? 0 : patience_us) / (double)interval_us + 1;
        capacity = capacity < paced ? capacity : paced;
    }
    return capacity > 1e6 ? 1000000 : (int)capacity;
}

bool ol_target_is_quick(const struct ol_target *target, int64_t patience_us, int64_t now)
{
    // A relay that has just started opens hundreds of connections at once. Which destination is
    // slow is known only after others have been answering for a while.
    int64_t answered_at = target->targets->answered_at;
    bool is_early = !answered_at || now - answered_at < patience_us;
    int64_t window_us = target->has_answered || is_early ? patience_us * 4 : patience_us;
    return ol_target_is_open(target, now) && !target->settings->rate_count &&
           !ol_target_hangs(target, patience_us, now) && target->latency_us < (double)window_us &&
           now - target->moved_at < window_us;
}

int64_t ol_target_wait_us(struct ol_target *target, int64_t count, int64_t patience_us, int64_t now)
{
    int64_t interval_us;
    if (!ol_target_is_open(target, now) || ol_target_hangs(target, patience_us, now) ||
        ol_breaker_state(&target->breaker, now) != OL_BREAKER_CLOSED)
        return INT64_MAX;
    int places = ol_quota_places(&target->quota, now, &interval_us);
    int64_t in_flight = (int64_t)ol_sender_channel_in_flight(target->channel);
    double latency_us = target->latency_us, count_d = (double)count;
    if (in_flight && (double)(now - target->moved_at) > latency_us)
        latency_us = (double)(now - target->moved_at); // nothing has come back for so long
    double concurrency = (double)places + (double)in_flight;
    double wait_us = latency_us * count_d / (concurrency < 1 ? 1 : concurrency);
    double paced_us = count_d * (double)interval_us;
    return (int64_t)(wait_us > paced_us ? wait_us : paced_us);
}

bool ol_target_hangs(const struct ol_target *target, int64_t patience_us, int64_t now)
{
    enum { ANSWERS_PER_MESSAGE = 4, PATIENCE_PART = 8 };
    int64_t in_flight = target->channel ? (int64_t)ol_sender_channel_in_flight(target->channel) : 0;
    return !target->has_answered && in_flight &&
           now - target->moved_at > patience_us / PATIENCE_PART &&
           target->targets->answers - target->moved_answers > ANSWERS_PER_MESSAGE * in_flight;
}

void ol_target_begin(struct ol_target *target, int64_t now)
{
    target->moved_at = now;
    target->moved_answers = target->targets->answers;
}

void ol_target_note(struct ol_target *target, const struct outlog_outcome *outcome, int64_t now)
{
    ol_breaker_note(&target->breaker, outcome, now);
    if (outcome->kind == OUTLOG_PUBLISH_OK) {
        target->targets->answers++;
        target->ok_at = now;
        ol_target_begin(target, now);
        target->has_answered = true;
        if (!target->targets->answered_at)
            target->targets->answered_at = now;
    }
    double took = (double)outcome->duration_us;
    target->latency_us = target->latency_us > 0 ? target->latency_us * 0.9 + took * 0.1 : took;
}
