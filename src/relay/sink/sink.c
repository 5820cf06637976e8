/* sink.c: one thread for all sinks of a process. See sink.h for S1 to S5. */
#include "relay/sink/sink.h"

#include "base/clock.h"
#include "base/counter_map.h"
#include "base/fault.h"
#include "base/traceparent.h"
#include "log/log.h"
#include "log/read.h"
#include "log/sink_cursor.h"
#include "relay/target/target.h"
#include "store/owner.h"
#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SINK_PAGE = 500,
    SINK_REFRESH_US = 1000000,
    SINK_REST_MS = 50,
    NO_SINKS_US = 300000,
    SINK_HEADERS = 4
};
enum { SINK_RETRY_US = 200000, SINK_RETRY_MAX_US = 30000000 };

enum sink_item_state { SINK_WAITING, SINK_IN_FLIGHT, SINK_DONE };

/* One event of the page that is being sent. */
struct sink_item {
    struct relay_sink *sink;
    const struct outlog_event *event;
    struct sink_item *before; /* of the same aggregate */
    enum sink_item_state state;
    int attempts;
    int64_t retry_at;
    struct ol_target *target; /* while it is in flight */
    size_t bytes;
};

struct relay_sink {
    struct relay_sink *next;
    struct sink_runner *runner;
    char *name, *source, *to, *event_type, *org_id; /* source: the setting as stored */
    bool takes_infrastructure;
    bool is_owned, is_retired, is_at_end;
    int64_t epoch, cursor, stored_cursor; /* stored: as it is in the store */
    int64_t lease_end, stored_at;
    int64_t quiet_until; /* what the former owner has sent may be on its way until then */
    char trouble[400], stored_trouble[400];
    struct outlog_page page;
    struct sink_item *items;
    size_t count, first; /* first: everything before it is done */
    size_t in_flight;
};

struct sink_runner {
    const struct ol_worker_options *options;
    atomic_int *stop;
    outlog *log;
    struct ol_targets targets;
    struct relay_sink *first;
    struct ol_owner owner;
    int64_t now, refreshed_at;
};

/* --- settings --- */

static void drop_page(struct relay_sink *sink)
{
    free(sink->items);
    sink->items = NULL;
    sink->count = sink->first = 0;
}

static void free_sink(struct relay_sink *sink)
{
    drop_page(sink);
    outlog_page_clear(&sink->page);
    free(sink->name);
    free(sink->source);
    free(sink->to);
    free(sink->event_type);
    free(sink->org_id);
    free(sink);
}

static void free_list(struct relay_sink *list)
{
    while (list) {
        struct relay_sink *next = list->next;
        free_sink(list);
        list = next;
    }
}

static char *read_text(const struct ol_json *object, const char *key, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, key);
    const char *text = ol_json_string(&value, arena, NULL);
    return text ? strdup(text) : NULL;
}

static struct relay_sink *read_sink(struct sink_runner *runner, const char *name, const char *text)
{
    struct relay_sink *sink = calloc(1, sizeof *sink);
    struct ol_arena arena = {0};
    struct ol_json object;

    if (!sink || ol_json_parse(text, strlen(text), &object, NULL) < 0) {
        free(sink);
        return NULL;
    }
    struct ol_json infrastructure = ol_json_get(&object, "infrastructure");
    sink->runner = runner;
    sink->name = strdup(name);
    sink->source = strdup(text);
    sink->to = read_text(&object, "to", &arena);
    sink->event_type = read_text(&object, "event_type", &arena);
    sink->org_id = read_text(&object, "org_id", &arena);
    sink->takes_infrastructure = infrastructure.type == OL_JSON_TRUE;
    ol_arena_clear(&arena);
    if (sink->name && sink->source && sink->to)
        return sink;
    free_sink(sink);
    return NULL;
}

/* Every setting sinks.<name>; the caller frees the list. */
static int load_sinks(struct sink_runner *runner, outlog *log, struct relay_sink **list,
                      outlog_err *err)
{
    struct ol_rows rows;
    int more;
    *list = NULL;
    if (ol_store_query(log->conn, OL_Q_SETTING_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        const char *key = ol_rows_text(&rows, 0, NULL), *text = ol_rows_text(&rows, 1, NULL);
        if (strncmp(key, "sinks.", 6) != 0 || !text)
            continue;
        struct relay_sink *sink = read_sink(runner, key + 6, text);
        if (sink) {
            sink->next = *list;
            *list = sink;
        }
    }
    ol_rows_end(&rows);
    for (struct relay_sink *sink = *list; more == 0 && sink; sink = sink->next)
        if (ol_sink_cursor_declare(log->conn, sink->name, sink->source, err) < 0)
            more = -1;
    if (more < 0) {
        free_list(*list);
        *list = NULL;
    }
    return more;
}

/* --- one owner (S3) --- */

/* False: the store is away, and the sink stays ours until others see that we have ended. */
static bool release_sink(struct relay_sink *sink)
{
    outlog_err err;
    bool is_released = !sink->is_owned || ol_store_exec(sink->runner->log->conn, OL_Q_SINK_RELEASE,
                                                        OL_PARAMS(ol_value_text(sink->name),
                                                                  ol_value_int(sink->epoch)),
                                                        NULL, &err) == 0;
    sink->is_owned = false;
    return is_released;
}

/* For how long what a former owner has sent may be on its way (rule 24). */
static int64_t find_wire_us(const struct relay_sink *sink, int64_t lease_us, int64_t margin_us,
                            bool is_unchanged)
{
    const struct ol_target *target = ol_target_find(&sink->runner->targets, sink->to);
    if (!is_unchanged || !target || !target->settings)
        return lease_us + margin_us;
    if (target->settings->publisher_type->sends_nothing)
        return 0;
    int64_t timeout_us = target->settings->timeout_us;
    return (timeout_us < lease_us ? timeout_us : lease_us) + margin_us;
}

/* An owner that died before its lease ended; "": there is none. */
static int find_dead_owner(const struct relay_sink *sink, char owner[OL_UUID_TEXT],
                           int64_t *wire_us, outlog_err *err)
{
    struct ol_rows rows;
    owner[0] = '\0';
    *wire_us = 0;
    if (ol_store_query(sink->runner->log->conn, OL_Q_SINK_DEAD,
                       OL_PARAMS(ol_value_text(sink->name), ol_value_text(sink->to)), &rows,
                       err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        snprintf(owner, OL_UUID_TEXT, "%s", ol_rows_text(&rows, 0, NULL));
        *wire_us = find_wire_us(sink, ol_rows_int(&rows, 1), ol_rows_int(&rows, 2),
                                ol_rows_int(&rows, 3) != 0);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Nothing is parked here, so the sink itself waits for what its former owner has sent (rule 24). */
static int take_sink(struct relay_sink *sink, outlog_err *err)
{
    struct sink_runner *runner = sink->runner;
    struct ol_rows rows;
    int64_t wire_us, asked_at = ol_clock_boot_us();
    char former[OL_UUID_TEXT];

    if (find_dead_owner(sink, former, &wire_us, err) < 0 ||
        ol_store_query(runner->log->conn, OL_Q_SINK_TAKE,
                       OL_PARAMS(ol_value_text(sink->name), ol_value_text(runner->owner.run),
                                 ol_value_text(runner->options->name),
                                 ol_value_int(runner->options->lease_us),
                                 ol_value_text(former[0] ? former : NULL)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        sink->is_owned = true;
        sink->epoch = ol_rows_int(&rows, 0);
        sink->cursor = sink->stored_cursor = ol_rows_int(&rows, 1);
        sink->lease_end = asked_at + runner->options->lease_us;
        sink->quiet_until = wire_us ? ol_clock_boot_us() + wire_us : 0;
        sink->stored_at = 0;
        sink->trouble[0] = '\0';
        drop_page(sink);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Write the cursor and renew the lease. Only in our epoch: 0 rows mean that it is not ours any
 * more. */
static int write_cursor(struct relay_sink *sink, outlog_err *err)
{
    struct sink_runner *runner = sink->runner;
    int64_t changed, asked_at = ol_clock_boot_us();
    ol_fault("sink.renew");
    if (ol_store_exec(runner->log->conn, OL_Q_SINK_HOLD,
                      OL_PARAMS(ol_value_text(sink->name), ol_value_int(sink->epoch),
                                ol_value_int(sink->cursor),
                                ol_value_text(sink->trouble[0] ? sink->trouble : NULL),
                                ol_value_int(runner->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    sink->is_owned = changed > 0;
    sink->stored_at = asked_at;
    sink->stored_cursor = sink->cursor;
    sink->lease_end = asked_at + runner->options->lease_us;
    memcpy(sink->stored_trouble, sink->trouble, sizeof sink->trouble);
    return 0;
}

/* --- which events (S5) --- */

/* `*` matches any characters, as in routes. */
static bool match_pattern(const char *pattern, const char *text)
{
    const char *star = NULL, *back = NULL;
    while (*text) {
        if (*pattern == '*') {
            star = pattern++;
            back = text;
        } else if (*pattern == *text) {
            pattern++;
            text++;
        } else if (star) {
            pattern = star + 1;
            text = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}

static bool wants_event(const struct relay_sink *sink, const struct outlog_event *event)
{
    bool wants_audit = sink->event_type && strncmp(sink->event_type, "outlog.", 7) == 0;
    bool is_audit = strncmp(event->event_type, "outlog.", 7) == 0;
    if (is_audit && !wants_audit)
        return false;
    if (!event->org_id && !sink->takes_infrastructure && !wants_audit)
        return false;
    return !sink->event_type || match_pattern(sink->event_type, event->event_type);
}

static int read_page(struct relay_sink *sink, outlog_err *err)
{
    struct outlog_filter filter = {.org_id = sink->org_id};
    struct ol_counter_map last = {0};
    struct ol_buf key = {0};
    int result = -1;

    if (sink->event_type && !strchr(sink->event_type, '*'))
        filter.event_type = sink->event_type; // the store has an index for it
    if (ol_read_short(sink->runner->log, &filter, sink->cursor, SINK_PAGE, OL_READ_PAGE_BYTES,
                      &sink->page, err) < 0)
        return -1;
    sink->is_at_end = sink->page.next_after >= sink->page.settled;
    sink->items = calloc(sink->page.count + 1, sizeof *sink->items);
    sink->count = sink->first = 0;
    if (!sink->items) {
        ol_no_memory(err);
        goto out;
    }
    for (size_t i = 0; i < sink->page.count; i++) {
        const struct outlog_event *event = &sink->page.events[i];
        if (!wants_event(sink, event))
            continue;
        struct sink_item *item = &sink->items[sink->count++];
        *item = (struct sink_item){.sink = sink, .event = event, .bytes = event->payload_bytes};
        ol_buf_reset(&key);
        ol_buf_print(&key, "%s\x1f%s\x1f%s", event->org_id ? event->org_id : "",
                     event->aggregate_type, event->aggregate_id);
        int64_t before = key.failed ? 0 : ol_counter_map_get(&last, key.data);
        if (before)
            item->before = &sink->items[before - 1];
        if (key.failed || !ol_counter_map_add(&last, key.data, (int64_t)sink->count - before)) {
            ol_no_memory(err);
            goto out;
        }
    }
    result = 0;
out:
    ol_counter_map_clear(&last);
    ol_buf_clear(&key);
    if (result < 0)
        drop_page(sink);
    return result;
}

/* --- sending --- */

static void on_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct sink_runner *runner = user;
    struct sink_item *item = tag;
    struct relay_sink *sink = item->sink;

    sink->in_flight--;
    ol_quota_give(&item->target->quota, item->bytes);
    ol_target_note(item->target, outcome, runner->now);
    item->state = outcome->kind == OUTLOG_PUBLISH_OK ? SINK_DONE : SINK_WAITING;
    if (item->state == SINK_DONE) {
        sink->trouble[0] = '\0';
        return;
    }
    int64_t wait_us = SINK_RETRY_US;
    for (int i = 0; i < item->attempts && wait_us < SINK_RETRY_MAX_US; i++)
        wait_us *= 2;
    item->attempts++;
    item->retry_at = runner->now +
                     (wait_us < SINK_RETRY_MAX_US ? wait_us : SINK_RETRY_MAX_US); // S4: without end
    snprintf(sink->trouble, sizeof sink->trouble, "event %lld: %.300s",
             (long long)item->event->event_id,
             outcome->error ? outcome->error : "it could not be sent");
}

static void submit_event(struct sink_item *item, int64_t end_us)
{
    const struct outlog_event *e = item->event;
    char position[24], seq[24], key[1100];
    struct ol_arena arena = {0};
    struct outlog_header headers[SINK_HEADERS] = {{"log-position", position},
                                                  {"aggregate-type", e->aggregate_type},
                                                  {"aggregate-id", e->aggregate_id},
                                                  {"aggregate-seq", seq}};
    snprintf(position, sizeof position, "%lld", (long long)e->event_id);
    snprintf(seq, sizeof seq, "%lld", (long long)e->aggregate_seq);
    snprintf(key, sizeof key, "%s/%s", e->aggregate_type, e->aggregate_id);
    struct outlog_delivery message = {
        .event_id = e->id,
        .org_id = e->org_id,
        .destination = item->sink->to,
        .event_type = e->event_type,
        .payload = e->payload,
        .payload_bytes = e->payload_bytes,
        .headers = headers,
        .header_count = SINK_HEADERS,
        .ordering_key = key,
        .correlation_id = e->correlation_id,
        .causation_id = e->causation_id[0] ? e->causation_id : NULL,
        .aggregate_type = e->aggregate_type,
        .aggregate_id = e->aggregate_id,
        .traceparent = ol_traceparent_find(e->metadata, &arena),
        .created_at = e->occurred_at,
        .attempt = item->attempts + 1,
    };
    item->state = SINK_IN_FLIGHT;
    item->sink->in_flight++;
    ol_fault("sink.sent");
    ol_sender_channel_submit(item->target->channel, &message, end_us, item);
    ol_arena_clear(&arena);
}

/* False: nothing of this sink can go now. */
static bool send_event(struct sink_runner *runner, struct relay_sink *sink, struct sink_item *item)
{
    struct ol_target *target = ol_target_find(&runner->targets, sink->to);
    if (!target || !target->channel || target->is_paused) {
        snprintf(sink->trouble, sizeof sink->trouble, "%s",
                 target && target->trouble[0] ? target->trouble : "the destination is paused");
        return false;
    }
    runner->now = ol_clock_boot_us();
    int64_t end_us = runner->now + target->settings->timeout_us;
    int64_t safe_us = sink->lease_end - runner->owner.margin_us;
    if (end_us > safe_us) // S3
        end_us = safe_us;
    if (end_us - runner->now < runner->options->lease_us / 4 &&
        end_us - runner->now < target->settings->timeout_us)
        return false;
    if (!ol_quota_take(&target->quota, item->bytes, runner->now))
        return false;
    if (!ol_breaker_admit(&target->breaker, runner->now)) {
        ol_quota_give(&target->quota, item->bytes);
        return false;
    }
    item->target = target;
    submit_event(item, end_us);
    return true;
}

static bool pump_sink(struct sink_runner *runner, struct relay_sink *sink)
{
    bool moved = false;
    for (size_t i = sink->first; i < sink->count && !sink->is_retired; i++) {
        struct sink_item *item = &sink->items[i];
        if (item->state != SINK_WAITING || item->retry_at > runner->now ||
            (item->before && item->before->state != SINK_DONE)) // S2
            continue;
        if (!send_event(runner, sink, item))
            break;
        moved = true;
    }
    return moved;
}

/* S1: past what was acknowledged, and at the end of a page past the events that were not wanted. */
static bool advance_cursor(struct relay_sink *sink)
{
    size_t before = sink->first;
    while (sink->first < sink->count && sink->items[sink->first].state == SINK_DONE)
        sink->cursor = sink->items[sink->first++].event->event_id;
    if (sink->first == sink->count && sink->items) {
        sink->cursor = sink->page.next_after;
        drop_page(sink);
        return true;
    }
    return sink->first != before;
}

/* --- the loop --- */

/* R3: a cursor of another log stops this sink until somebody resets it; the others go on. */
static bool stop_sink(struct relay_sink *sink, const outlog_err *err)
{
    if (err->code != OUTLOG_BEYOND_LOG)
        return false;
    snprintf(sink->trouble, sizeof sink->trouble, "%.300s; `outlog sinks reset %.60s --to N`",
             err->message, sink->name);
    sink->is_at_end = true;
    return true;
}

static int step_sink(struct relay_sink *sink, bool *moved, outlog_err *err)
{
    struct sink_runner *runner = sink->runner;
    if (!sink->is_owned && !sink->in_flight && take_sink(sink, err) < 0)
        return -1;
    if (!sink->is_owned)
        return 0;
    if (!sink->items && read_page(sink, err) < 0 && !stop_sink(sink, err))
        return -1;
    *moved |= runner->now >= sink->quiet_until && pump_sink(runner, sink);
    bool is_new_page = advance_cursor(sink) && !sink->items;
    *moved |= is_new_page && !sink->is_at_end;
    bool is_news = sink->cursor != sink->stored_cursor ||
                   strcmp(sink->trouble, sink->stored_trouble) != 0;
    int64_t since = runner->now - sink->stored_at;
    if ((is_news && (is_new_page || since > SINK_REFRESH_US / 4)) ||
        since > runner->options->lease_us / 3)
        return write_cursor(sink, err);
    return 0;
}

/* Sinks that were added, changed or removed. A changed one is a new sink with the same cursor. */
static int refresh_sinks(struct sink_runner *runner, outlog_err *err)
{
    struct relay_sink *list;
    if (load_sinks(runner, runner->log, &list, err) < 0)
        return -1;
    if ((list || runner->first) &&
        ol_targets_refresh(&runner->targets, runner->log->conn, err) < 0) {
        free_list(list);
        return -1;
    }
    for (struct relay_sink **at = &runner->first; *at;) {
        struct relay_sink *old = *at, **fresh = &list;
        while (*fresh && (strcmp((*fresh)->name, old->name) != 0 ||
                          strcmp((*fresh)->source, old->source) != 0))
            fresh = &(*fresh)->next;
        if (*fresh) { // unchanged
            struct relay_sink *same = *fresh;
            *fresh = same->next;
            free_sink(same);
            at = &old->next;
        } else if (old->in_flight) {
            old->is_retired = true; // until what is in flight has ended
            at = &old->next;
        } else {
            release_sink(old);
            *at = old->next;
            free_sink(old);
        }
    }
    struct relay_sink **end = &runner->first;
    while (*end)
        end = &(*end)->next;
    *end = list;
    runner->refreshed_at = runner->now;
    return 0;
}

/* Nothing of it can be sent now: it is at the end, or waits to be tried again. */
static bool is_resting(const struct relay_sink *sink)
{
    if (!sink->is_owned)
        return true;
    if (sink->in_flight || sink->cursor != sink->stored_cursor)
        return false;
    if (!sink->items)
        return sink->is_at_end;
    for (size_t i = sink->first; i < sink->count; i++)
        if (sink->items[i].state == SINK_WAITING && sink->items[i].attempts > 0)
            return true;
    return false;
}

static bool is_idle(const struct sink_runner *runner)
{
    for (const struct relay_sink *sink = runner->first; sink; sink = sink->next)
        if (!is_resting(sink))
            return false;
    return true;
}

static int step_sinks(struct sink_runner *runner, bool *moved, outlog_err *err)
{
    bool has_died = false;
    if (ol_owner_look(&runner->owner, runner->log->conn, &has_died, err) < 0)
        return -1;
    if (runner->now - runner->refreshed_at > SINK_REFRESH_US && refresh_sinks(runner, err) < 0)
        return -1;
    for (struct relay_sink *sink = runner->first; sink; sink = sink->next)
        if (step_sink(sink, moved, err) < 0)
            return -1;
    return 0;
}

static void close_runner(struct sink_runner *runner)
{
    outlog_err err;
    bool is_released = runner->log != NULL;
    ol_targets_clear(&runner->targets); // outcomes still arrive here
    if (runner->targets.sender)
        ol_sender_close(runner->targets.sender);
    while (runner->first) {
        struct relay_sink *sink = runner->first;
        runner->first = sink->next;
        if (sink->is_owned) {
            advance_cursor(sink);
            write_cursor(sink, &err);
            is_released &= release_sink(sink);
        }
        free_sink(sink);
    }
    if (is_released)
        ol_owner_remove(&runner->owner, runner->log->conn);
    outlog_close(runner->log);
    ol_owner_close(&runner->owner);
}

int ol_sink_run(const struct ol_worker_options *options, atomic_int *stop, outlog_err *err)
{
    struct sink_runner runner = {.options = options,
                                 .stop = stop,
                                 .refreshed_at = -SINK_REFRESH_US * 2};
    struct ol_waiter waiter = {.fd = -1};
    outlog_err why;
    int result = -1, idle_rounds = 0;

    ol_owner_init(&runner.owner, "sinks", options->name, options->lease_us, options->margin_us);
    if (outlog_open(options->store, &runner.log, err) < 0 || ol_log_ready(runner.log, err) < 0 ||
        ol_owner_open(&runner.owner, runner.log->conn, err) < 0 ||
        ol_sender_open(&runner.targets.sender, on_done, &runner, err) < 0)
        goto out;
    runner.targets.store = runner.log->conn->wake_key; // limits are shared with the workers
    ol_waiter_open(&waiter, runner.log->conn->wake_key);
    result = 0;
    while (atomic_load(stop) == 0) {
        bool moved = false;
        runner.now = ol_clock_boot_us();
        if (step_sinks(&runner, &moved, &why) < 0) {
            ol_report_store_error(&why);
            runner.log->conn->store->reconnect(runner.log->conn, &why);
            ol_sender_drive(runner.targets.sender, SINK_REST_MS);
            continue;
        }
        idle_rounds = moved || !is_idle(&runner) ? 0 : idle_rounds + 1;
        if (options->until_idle && (idle_rounds > 3 || !runner.first))
            break; // without a sink there is nothing to wait for
        if (ol_sender_in_flight(runner.targets.sender))
            ol_sender_drive(runner.targets.sender, moved ? 0 : 5);
        else if (!moved && runner.first)
            ol_store_await(runner.log->conn, &waiter, SINK_REST_MS);
        else if (!moved)
            ol_clock_sleep_us(NO_SINKS_US); // no commit matters to us
    }
out:
    close_runner(&runner);
    ol_waiter_close(&waiter);
    return result;
}

static void *run_thread(void *argument)
{
    struct ol_sink_thread *thread = argument;
    outlog_err err;
    while (atomic_load(thread->stop) == 0 && ol_sink_run(thread->options, thread->stop, &err) < 0) {
        ol_report_store_error(&err);
        if (thread->options->until_idle)
            break;
        ol_clock_sleep_us(1000000); // the store cannot be opened: try again
    }
    return NULL;
}

void ol_sink_thread_start(struct ol_sink_thread *thread, const struct ol_worker_options *options,
                          atomic_int *stop)
{
    *thread = (struct ol_sink_thread){.options = options, .stop = stop};
    thread->is_running = pthread_create(&thread->id, NULL, run_thread, thread) == 0;
}

void ol_sink_thread_join(struct ol_sink_thread *thread)
{
    if (thread->is_running)
        pthread_join(thread->id, NULL);
    thread->is_running = false;
}
