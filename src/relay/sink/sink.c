/* sink.c: one thread for all sinks of a process. See sink.h for S1 to S5. */
#include "relay/sink/sink.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/map.h"
#include "base/uuid.h"
#include "log/log.h"
#include "log/read.h"
#include "log/sink_cursor.h"
#include "relay/target/target.h"
#include "telemetry/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAGE = 500,
    REFRESH_US = 1000000,
    REST_MS = 50,
    NONE_US = 300000 /* while there is no sink */,
    HEADERS = 4
};
enum { RETRY_US = 200000, RETRY_MAX_US = 30000000 };

enum item_state { WAITING, FLYING, DONE };

/* One event of the page. */
struct item {
    struct sink *sink;
    const struct outlog_event *event;
    struct item *before; /* of the same aggregate */
    enum item_state state;
    int tries;
    int64_t retry_at;
    struct ol_target *target; /* while it is flying */
    size_t bytes;
};

struct sink {
    struct sink *next;
    struct sinks *all;
    char *name, *source, *to, *event_type, *org_id; /* source: the setting as stored */
    bool takes_infrastructure;
    bool is_owned, is_retired, is_at_end;
    int64_t epoch, cursor, held_cursor; /* held: as it stands in the store */
    int64_t lease_end, held_at;
    char trouble[400], held_trouble[400];
    struct outlog_page page;
    struct item *items;
    size_t count, first; /* first: everything before it is done */
    size_t flying;
};

struct sinks {
    const struct ol_worker_options *options;
    atomic_int *stop;
    outlog *log;
    struct ol_targets targets;
    struct sink *first;
    char run[OL_UUID_TEXT];
    int64_t now, refreshed_at;
};

/* --- what is declared
 * -------------------------------------------------------------------------------- */

static void drop_page(struct sink *sink)
{
    free(sink->items);
    sink->items = NULL;
    sink->count = sink->first = 0;
}

static void free_sink(struct sink *sink)
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

static void free_list(struct sink *list)
{
    while (list) {
        struct sink *next = list->next;
        free_sink(list);
        list = next;
    }
}

static char *member(const struct ol_json *object, const char *key, struct ol_arena *arena)
{
    struct ol_json value = ol_json_get(object, key);
    const char *text = ol_json_string(&value, arena, NULL);
    return text ? strdup(text) : NULL;
}

static struct sink *read_sink(struct sinks *all, const char *name, const char *text)
{
    struct sink *sink = calloc(1, sizeof *sink);
    struct ol_arena arena = {0};
    struct ol_json object;

    if (!sink || ol_json_parse(text, strlen(text), &object, NULL) < 0) {
        free(sink);
        return NULL;
    }
    struct ol_json infrastructure = ol_json_get(&object, "infrastructure");
    sink->all = all;
    sink->name = strdup(name);
    sink->source = strdup(text);
    sink->to = member(&object, "to", &arena);
    sink->event_type = member(&object, "event_type", &arena);
    sink->org_id = member(&object, "org_id", &arena);
    sink->takes_infrastructure = infrastructure.type == OL_JSON_TRUE;
    ol_arena_clear(&arena);
    if (sink->name && sink->source && sink->to)
        return sink;
    free_sink(sink);
    return NULL;
}

/* Every setting sinks.<name>; the list is the caller's. */
static int load(struct sinks *all, outlog *log, struct sink **list, outlog_err *err)
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
        struct sink *sink = read_sink(all, key + 6, text);
        if (sink) {
            sink->next = *list;
            *list = sink;
        }
    }
    ol_rows_end(&rows);
    for (struct sink *sink = *list; more == 0 && sink; sink = sink->next)
        if (ol_sink_cursor_declare(log->conn, sink->name, sink->source, err) < 0)
            more = -1;
    if (more < 0) {
        free_list(*list);
        *list = NULL;
    }
    return more;
}

/* --- one owner (S3)
 * --------------------------------------------------------------------------------- */

static void release(struct sink *sink)
{
    outlog_err err;
    if (sink->is_owned)
        ol_store_exec(sink->all->log->conn, OL_Q_SINK_RELEASE,
                      OL_PARAMS(ol_value_text(sink->name), ol_value_int(sink->epoch)), NULL, &err);
    sink->is_owned = false;
}

static int take(struct sink *sink, outlog_err *err)
{
    struct sinks *all = sink->all;
    struct ol_rows rows;
    int64_t asked_at = ol_clock_boot_us();

    if (ol_store_query(all->log->conn, OL_Q_SINK_TAKE,
                       OL_PARAMS(ol_value_text(sink->name), ol_value_text(all->run),
                                 ol_value_text(all->options->name),
                                 ol_value_int(all->options->lease_us)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0) {
        sink->is_owned = true;
        sink->epoch = ol_rows_int(&rows, 0);
        sink->cursor = sink->held_cursor = ol_rows_int(&rows, 1);
        sink->lease_end = asked_at + all->options->lease_us;
        sink->held_at = 0;
        sink->trouble[0] = '\0';
        drop_page(sink);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Write how far it is, and hold on. Only in our epoch: 0 rows, and it is not ours any more. */
static int hold(struct sink *sink, outlog_err *err)
{
    struct sinks *all = sink->all;
    int64_t changed, asked_at = ol_clock_boot_us();
    ol_fault("sink.hold");
    if (ol_store_exec(all->log->conn, OL_Q_SINK_HOLD,
                      OL_PARAMS(ol_value_text(sink->name), ol_value_int(sink->epoch),
                                ol_value_int(sink->cursor),
                                ol_value_text(sink->trouble[0] ? sink->trouble : NULL),
                                ol_value_int(all->options->lease_us)),
                      &changed, err) < 0)
        return -1;
    sink->is_owned = changed > 0;
    sink->held_at = asked_at;
    sink->held_cursor = sink->cursor;
    sink->lease_end = asked_at + all->options->lease_us;
    memcpy(sink->held_trouble, sink->trouble, sizeof sink->trouble);
    return 0;
}

/* --- which events (S5)
 * -------------------------------------------------------------------------------- */

/* `*` stands for any characters, as in routes. */
static bool matches(const char *pattern, const char *text)
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

static bool wants(const struct sink *sink, const struct outlog_event *event)
{
    bool names_audit = sink->event_type && strncmp(sink->event_type, "outlog.", 7) == 0;
    bool is_audit = strncmp(event->event_type, "outlog.", 7) == 0;
    if (is_audit && !names_audit)
        return false;
    if (!event->org_id && !sink->takes_infrastructure && !names_audit)
        return false;
    return !sink->event_type || matches(sink->event_type, event->event_type);
}

static int read_page(struct sink *sink, outlog_err *err)
{
    struct outlog_filter filter = {.org_id = sink->org_id};
    struct ol_map last = {0};
    struct ol_buf key = {0};
    int result = -1;

    if (sink->event_type && !strchr(sink->event_type, '*'))
        filter.event_type = sink->event_type; // an index knows it
    if (ol_read_short(sink->all->log, &filter, sink->cursor, PAGE, OL_READ_PAGE_BYTES, &sink->page,
                      err) < 0)
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
        if (!wants(sink, event))
            continue;
        struct item *item = &sink->items[sink->count++];
        *item = (struct item){.sink = sink, .event = event, .bytes = event->payload_bytes};
        ol_buf_reset(&key);
        ol_buf_print(&key, "%s\x1f%s\x1f%s", event->org_id ? event->org_id : "",
                     event->aggregate_type, event->aggregate_id);
        int64_t before = key.failed ? 0 : ol_map_get(&last, key.data);
        if (before)
            item->before = &sink->items[before - 1];
        if (key.failed || !ol_map_add(&last, key.data, (int64_t)sink->count - before)) {
            ol_no_memory(err);
            goto out;
        }
    }
    result = 0;
out:
    ol_map_clear(&last);
    ol_buf_clear(&key);
    if (result < 0)
        drop_page(sink);
    return result;
}

/* --- sending
 * --------------------------------------------------------------------------------------------- */

static void on_done(void *user, void *tag, const struct outlog_outcome *outcome)
{
    struct sinks *all = user;
    struct item *item = tag;
    struct sink *sink = item->sink;

    sink->flying--;
    ol_quota_give(&item->target->quota, item->bytes);
    ol_target_note(item->target, outcome, all->now);
    item->state = outcome->kind == OUTLOG_PUBLISH_OK ? DONE : WAITING;
    if (item->state == DONE) {
        sink->trouble[0] = '\0';
        return;
    }
    int64_t wait_us = RETRY_US;
    for (int i = 0; i < item->tries && wait_us < RETRY_MAX_US; i++)
        wait_us *= 2;
    item->tries++;
    item->retry_at = all->now + (wait_us < RETRY_MAX_US ? wait_us : RETRY_MAX_US); // S4: for ever
    snprintf(sink->trouble, sizeof sink->trouble, "event %lld: %.300s",
             (long long)item->event->event_id,
             outcome->error ? outcome->error : "it could not be sent");
}

static void submit(struct item *item, int64_t end_us)
{
    const struct outlog_event *e = item->event;
    char position[24], seq[24], key[1100];
    struct outlog_header headers[HEADERS] = {{"log-position", position},
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
        .header_count = HEADERS,
        .ordering_key = key,
        .correlation_id = e->correlation_id,
        .causation_id = e->causation_id[0] ? e->causation_id : NULL,
        .aggregate_type = e->aggregate_type,
        .aggregate_id = e->aggregate_id,
        .created_at = e->occurred_at,
        .attempt = item->tries + 1,
    };
    item->state = FLYING;
    item->sink->flying++;
    ol_fault("sink.sent");
    ol_sender_channel_submit(item->target->outlet, &message, end_us, item);
}

/* False: nothing of this sink can go now. */
static bool send(struct sinks *all, struct sink *sink, struct item *item)
{
    struct ol_target *target = ol_target_find(&all->targets, sink->to);
    if (!target || !target->outlet || target->is_paused) {
        snprintf(sink->trouble, sizeof sink->trouble, "%s",
                 target && target->trouble[0] ? target->trouble : "the destination is paused");
        return false;
    }
    all->now = ol_clock_boot_us();
    int64_t end_us = all->now + target->settings->timeout_us;
    int64_t safe_us = sink->lease_end - all->options->margin_us;
    if (end_us > safe_us) // S3
        end_us = safe_us;
    if (end_us - all->now < all->options->lease_us / 4 &&
        end_us - all->now < target->settings->timeout_us)
        return false;
    if (!ol_quota_take(&target->quota, item->bytes, all->now))
        return false;
    if (!ol_breaker_admit(&target->breaker, all->now)) {
        ol_quota_give(&target->quota, item->bytes);
        return false;
    }
    item->target = target;
    submit(item, end_us);
    return true;
}

static bool pump(struct sinks *all, struct sink *sink)
{
    bool moved = false;
    for (size_t i = sink->first; i < sink->count && !sink->is_retired; i++) {
        struct item *item = &sink->items[i];
        if (item->state != WAITING || item->retry_at > all->now ||
            (item->before && item->before->state != DONE)) // S2
            continue;
        if (!send(all, sink, item))
            break;
        moved = true;
    }
    return moved;
}

/* S1: over what was acknowledged, and at the end of a page over what it passed by. */
static bool advance(struct sink *sink)
{
    size_t before = sink->first;
    while (sink->first < sink->count && sink->items[sink->first].state == DONE)
        sink->cursor = sink->items[sink->first++].event->event_id;
    if (sink->first == sink->count && sink->items) {
        sink->cursor = sink->page.next_after;
        drop_page(sink);
        return true;
    }
    return sink->first != before;
}

/* --- the loop
 * ---------------------------------------------------------------------------------------------- */

static int step(struct sink *sink, bool *moved, outlog_err *err)
{
    struct sinks *all = sink->all;
    if (!sink->is_owned && !sink->flying && take(sink, err) < 0)
        return -1;
    if (!sink->is_owned)
        return 0;
    if (!sink->items && read_page(sink, err) < 0)
        return -1;
    *moved |= pump(all, sink);
    bool is_new_page = advance(sink) && !sink->items;
    *moved |= is_new_page && !sink->is_at_end;
    bool is_news = sink->cursor != sink->held_cursor ||
                   strcmp(sink->trouble, sink->held_trouble) != 0;
    int64_t since = all->now - sink->held_at;
    if ((is_news && (is_new_page || since > REFRESH_US / 4)) || since > all->options->lease_us / 3)
        return hold(sink, err);
    return 0;
}

/* Sinks that came, changed or went. A changed one is another sink with the same cursor. */
static int refresh(struct sinks *all, outlog_err *err)
{
    struct sink *list;
    if (load(all, all->log, &list, err) < 0)
        return -1;
    if ((list || all->first) && ol_targets_refresh(&all->targets, all->log->conn, err) < 0) {
        free_list(list);
        return -1;
    }
    for (struct sink **at = &all->first; *at;) {
        struct sink *old = *at, **fresh = &list;
        while (*fresh && (strcmp((*fresh)->name, old->name) != 0 ||
                          strcmp((*fresh)->source, old->source) != 0))
            fresh = &(*fresh)->next;
        if (*fresh) { // as it was
            struct sink *same = *fresh;
            *fresh = same->next;
            free_sink(same);
            at = &old->next;
        } else if (old->flying) {
            old->is_retired = true; // until what is on its way has ended
            at = &old->next;
        } else {
            release(old);
            *at = old->next;
            free_sink(old);
        }
    }
    struct sink **end = &all->first;
    while (*end)
        end = &(*end)->next;
    *end = list;
    all->refreshed_at = all->now;
    return 0;
}

/* Nothing of it can go now: it is at the end, or waits to be tried again. */
static bool rests(const struct sink *sink)
{
    if (!sink->is_owned)
        return true;
    if (sink->flying || sink->cursor != sink->held_cursor)
        return false;
    if (!sink->items)
        return sink->is_at_end;
    for (size_t i = sink->first; i < sink->count; i++)
        if (sink->items[i].state == WAITING && sink->items[i].tries > 0)
            return true;
    return false;
}

static bool is_idle(const struct sinks *all)
{
    for (const struct sink *sink = all->first; sink; sink = sink->next)
        if (!rests(sink))
            return false;
    return true;
}

static int turn(struct sinks *all, bool *moved, outlog_err *err)
{
    if (all->now - all->refreshed_at > REFRESH_US && refresh(all, err) < 0)
        return -1;
    for (struct sink *sink = all->first; sink; sink = sink->next)
        if (step(sink, moved, err) < 0)
            return -1;
    return 0;
}

static void finish(struct sinks *all)
{
    outlog_err err;
    ol_targets_clear(&all->targets); // outcomes still arrive here
    if (all->targets.sender)
        ol_sender_close(all->targets.sender);
    while (all->first) {
        struct sink *sink = all->first;
        all->first = sink->next;
        if (sink->is_owned) {
            advance(sink);
            hold(sink, &err);
            release(sink);
        }
        free_sink(sink);
    }
    outlog_close(all->log);
}

int ol_sinks_run(const struct ol_worker_options *options, atomic_int *stop, outlog_err *err)
{
    struct sinks all = {.options = options, .stop = stop, .refreshed_at = -REFRESH_US * 2};
    struct ol_waiter waiter = {.fd = -1};
    outlog_err why;
    int result = -1, idle_rounds = 0;

    ol_uuid_make(all.run);
    if (outlog_open(options->store, &all.log, err) < 0 || ol_log_ready(all.log, err) < 0 ||
        ol_sender_open(&all.targets.sender, on_done, &all, err) < 0)
        goto out;
    all.targets.store = all.log->conn->wake_key; // limits are shared with the workers
    ol_waiter_open(&waiter, all.log->conn->wake_key);
    result = 0;
    while (atomic_load(stop) == 0) {
        bool moved = false;
        all.now = ol_clock_boot_us();
        if (turn(&all, &moved, &why) < 0) {
            ol_report_store_error(&why);
            all.log->conn->store->revive(all.log->conn, &why);
            ol_sender_drive(all.targets.sender, REST_MS);
            continue;
        }
        idle_rounds = moved || !is_idle(&all) ? 0 : idle_rounds + 1;
        if (options->until_idle && idle_rounds > 3)
            break;
        if (ol_sender_in_flight(all.targets.sender))
            ol_sender_drive(all.targets.sender, moved ? 0 : 5);
        else if (!moved && all.first)
            ol_store_await(all.log->conn, &waiter, REST_MS);
        else if (!moved)
            ol_clock_sleep_us(NONE_US); // no commit concerns us
    }
out:
    finish(&all);
    ol_waiter_close(&waiter);
    return result;
}

static void *run_thread(void *argument)
{
    struct ol_sinks_thread *thread = argument;
    outlog_err err;
    while (atomic_load(thread->stop) == 0 &&
           ol_sinks_run(thread->options, thread->stop, &err) < 0) {
        ol_report_store_error(&err);
        if (thread->options->until_idle)
            break;
        ol_clock_sleep_us(1000000); // the store cannot be opened: again
    }
    return NULL;
}

void ol_sinks_start(struct ol_sinks_thread *thread, const struct ol_worker_options *options,
                    atomic_int *stop)
{
    *thread = (struct ol_sinks_thread){.options = options, .stop = stop};
    thread->is_running = pthread_create(&thread->id, NULL, run_thread, thread) == 0;
}

void ol_sinks_join(struct ol_sinks_thread *thread)
{
    if (thread->is_running)
        pthread_join(thread->id, NULL);
    thread->is_running = false;
}
