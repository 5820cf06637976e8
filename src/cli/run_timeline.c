/* run_timeline.c: outlog run show: draws a run as a timeline.
 *
 *   ORDER 019a…  COMPLETED in 1.240 s
 *   org acme · v1.2 · signal order.placed PROCESSED · 2 steps done, 1 failure
 *
 *    +0.002 s  1  RESERVE   ▐████▌              │ COMPLETED  310 ms
 *                 ⚙ stock.lookup                   ok  12 ms
 *    +0.320 s  2  CHARGE          ▐███████████▌ │ COMPLETED  retry 1
 *                 ✗ CARD_TIMEOUT: no answer after 500 ms
 *                 → API_CALL to payments           COMPLETED, attempt 2
 *    +0.900 s  ◆  checkpoint 1
 *
 * Steps are in the order in which they began; below each are its tools, errors and effects. */
#include "base/timestamp.h"
#include "cli/run_command.h"

#include "base/clock.h"
#include "runs/snapshot.h"

#include <stdlib.h>
#include <string.h>

enum { TIMELINE_BAR_WIDTH = 28, TIMELINE_NAME_WIDTH = 22 };

struct timeline {
    struct ol_cli *cli;
    struct ol_run_snapshot snapshot;
    struct outlog_page page;
    int64_t begin, end; /* the time that the width of a bar covers */
    size_t name_width;
    struct ol_buf line;
};

/* --- reading --- */

static const char *get_text(struct timeline *d, const struct ol_row *object, int field)
{
    const char *text = ol_row_text(object, field, &d->snapshot.arena);
    return text ? text : "";
}

static int64_t get_time(struct timeline *d, const struct ol_row *object, int field)
{
    const char *text = get_text(d, object, field);
    int64_t at = 0;
    ol_timestamp_parse(text, strlen(text), &at);
    return at;
}

static const char *get_member(struct timeline *d, const struct outlog_event *event,
                              const char *name)
{
    struct ol_json payload, value;
    if (ol_json_parse(event->payload, event->payload_bytes, &payload, NULL) < 0)
        return "";
    value = ol_json_get(&payload, name);
    const char *text = ol_json_string(&value, &d->snapshot.arena, NULL);
    return text ? text : "";
}

static bool is_type(const struct outlog_event *event, const char *type)
{
    return strcmp(event->event_type, type) == 0;
}

/* When a step first began: its row has only the start of the last attempt. */
static int64_t first_began(struct timeline *d, const struct ol_row *step)
{
    const char *id = get_text(d, step, OL_IN_STEP_ID);
    for (size_t i = 0; i < d->page.count; i++)
        if (is_type(&d->page.events[i], "STEP_STARTED") &&
            strcmp(d->page.events[i].aggregate_id, id) == 0)
            return d->page.events[i].occurred_at;
    return get_time(d, step, OL_IN_STEP_STARTED_AT);
}

/* --- parts of a line --- */

static const char *status_color(const struct ol_cli *cli, const char *status)
{
    if (strcmp(status, "COMPLETED") == 0 || strcmp(status, "PROCESSED") == 0)
        return ol_cli_good(cli);
    if (strcmp(status, "FAILED") == 0)
        return ol_cli_bad(cli);
    bool is_open = strcmp(status, "RUNNING") == 0 || strcmp(status, "EXECUTING") == 0;
    return is_open ? ol_cli_accent(cli) : ol_cli_dim(cli);
}

static void put_status(struct timeline *d, const char *status)
{
    ol_buf_print(&d->line, "%s%s%s", status_color(d->cli, status), status, ol_cli_plain(d->cli));
}

static void put_span(struct timeline *d, int64_t us)
{
    if (us < 1000000)
        ol_buf_print(&d->line, "%lld ms", (long long)(us / 1000));
    else if (us < 60000000)
        ol_buf_print(&d->line, "%.3f s", (double)us / 1e6);
    else
        ol_buf_print(&d->line, "%lld min %lld s", (long long)(us / 60000000),
                     (long long)(us / 1000000 % 60));
}

static void put_offset(struct timeline *d, int64_t at)
{
    ol_buf_print(&d->line, "%s%+10.3f s%s  ", ol_cli_dim(d->cli), (double)(at - d->begin) / 1e6,
                 ol_cli_plain(d->cli));
}

/* Begin a line below a step: a sign and a text. */
static void put_detail(struct timeline *d, const char *color, const char *sign, const char *text)
{
    ol_buf_print(&d->line, "%19s%s%s%s ", "", color, sign, ol_cli_plain(d->cli));
    ol_cli_put_safe(&d->line, text, strlen(text));
}

static void put_error(struct timeline *d, const char *sign, const char *code, const char *message)
{
    char *text =
        ol_arena_print(&d->snapshot.arena, "%s%s%.200s", code, *message ? ": " : "", message);
    put_detail(d, ol_cli_bad(d->cli), sign, text ? text : code);
    ol_cli_put_line(&d->line);
}

/* --- the head --- */

static void draw_head(struct timeline *d)
{
    const struct ol_row *run = d->snapshot.runs.first, *signal = d->snapshot.signals.first;
    const struct ol_cli *cli = d->cli;
    const char *status = get_text(d, run, OL_IN_RUN_STATUS), *org = get_text(d, run, OL_IN_RUN_ORG);
    int64_t failures = ol_row_int(run, OL_IN_RUN_FAILED);

    ol_buf_text(&d->line, ol_cli_bold(cli));
    ol_cli_put_safe(&d->line, get_text(d, run, OL_IN_RUN_TYPE),
                    strlen(get_text(d, run, OL_IN_RUN_TYPE)));
    ol_buf_print(&d->line, "%s %s  ", ol_cli_plain(cli), get_text(d, run, OL_IN_RUN_ID));
    put_status(d, status);
    ol_buf_text(&d->line, strcmp(status, "RUNNING") == 0 ? " for " : " in ");
    put_span(d, d->end - d->begin);
    ol_cli_put_line(&d->line);

    ol_buf_print(&d->line, "%s%s%s · ", ol_cli_dim(cli), *org ? "org " : "infrastructure", org);
    ol_cli_put_safe(&d->line, get_text(d, run, OL_IN_RUN_VERSION),
                    strlen(get_text(d, run, OL_IN_RUN_VERSION)));
    if (signal) {
        const char *type = get_text(d, signal, OL_IN_SIGNAL_TYPE);
        ol_buf_text(&d->line, " · signal ");
        ol_cli_put_safe(&d->line, type, strlen(type));
        ol_buf_print(&d->line, " %s", get_text(d, signal, OL_IN_SIGNAL_STATUS));
    }
    ol_buf_print(&d->line, " · %lld step%s done", (long long)ol_row_int(run, OL_IN_RUN_TOTAL),
                 ol_row_int(run, OL_IN_RUN_TOTAL) == 1 ? "" : "s");
    if (failures)
        ol_buf_print(&d->line, ", %lld failure%s", (long long)failures, failures == 1 ? "" : "s");
    ol_buf_text(&d->line, ol_cli_plain(cli));
    ol_cli_put_line(&d->line);
    ol_buf_print(&d->line, "%scorrelation ", ol_cli_dim(cli));
    ol_cli_put_safe(&d->line, get_text(d, run, OL_IN_RUN_CORRELATION),
                    strlen(get_text(d, run, OL_IN_RUN_CORRELATION)));
    ol_buf_text(&d->line, ol_cli_plain(cli));
    ol_cli_put_line(&d->line);
    ol_cli_put_line(&d->line);
}

/* --- a step --- */

/* A bar from `from` to `to`, in eighths of a column. */
static void put_bar(struct timeline *d, int64_t from, int64_t to, const char *status)
{
    static const char *const eighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    int64_t width = d->end > d->begin ? d->end - d->begin : 1;
    int64_t left = (from - d->begin) * TIMELINE_BAR_WIDTH / width;
    int64_t length = (to - from) * TIMELINE_BAR_WIDTH * 8 / width;

    if (left > TIMELINE_BAR_WIDTH - 1)
        left = TIMELINE_BAR_WIDTH - 1;
    if (length < 1)
        length = 1;
    if (left * 8 + length > TIMELINE_BAR_WIDTH * 8)
        length = (TIMELINE_BAR_WIDTH - left) * 8;
    ol_buf_print(&d->line, "%*s%s", (int)left, "", status_color(d->cli, status));
    for (int64_t i = 0; i < length / 8; i++)
        ol_buf_text(&d->line, "█");
    ol_buf_text(&d->line, eighths[length % 8]);
    int64_t used = left + length / 8 + (length % 8 != 0);
    ol_buf_print(&d->line, "%s%*s", ol_cli_plain(d->cli), (int)(TIMELINE_BAR_WIDTH - used), "");
}

static void draw_tool(struct timeline *d, const struct outlog_event *called)
{
    const struct outlog_event *ended = NULL;
    for (size_t i = 0; i < d->page.count && !ended; i++)
        if (strcmp(d->page.events[i].causation_id, called->id) == 0 &&
            strncmp(d->page.events[i].event_type, "TOOL_", 5) == 0)
            ended = &d->page.events[i];
    put_detail(d, ol_cli_accent(d->cli), "⚙", get_member(d, called, "tool_name"));
    if (!ended) {
        ol_buf_print(&d->line, "  %sstill running%s", ol_cli_accent(d->cli), ol_cli_plain(d->cli));
    } else {
        bool is_ok = is_type(ended, "TOOL_COMPLETED");
        ol_buf_print(&d->line, "  %s%s%s  %s", is_ok ? ol_cli_good(d->cli) : ol_cli_bad(d->cli),
                     is_ok ? "ok" : "failed", ol_cli_plain(d->cli), ol_cli_dim(d->cli));
        put_span(d, ended->occurred_at - called->occurred_at);
        ol_buf_text(&d->line, ol_cli_plain(d->cli));
        if (!is_ok) {
            ol_buf_text(&d->line, "  ");
            ol_cli_put_safe(&d->line, get_member(d, ended, "error_code"),
                            strlen(get_member(d, ended, "error_code")));
        }
    }
    ol_cli_put_line(&d->line);
}

static void draw_effect(struct timeline *d, const struct ol_row *effect)
{
    const char *id = get_text(d, effect, OL_IN_EFFECT_ID);
    int64_t attempts = ol_row_int(effect, OL_IN_EFFECT_ATTEMPTS), failed = 0;
    char *text = ol_arena_print(&d->snapshot.arena, "%s to %s",
                                get_text(d, effect, OL_IN_EFFECT_TYPE),
                                get_text(d, effect, OL_IN_EFFECT_DESTINATION));

    put_detail(d, ol_cli_accent(d->cli), "→", text ? text : "");
    ol_buf_text(&d->line, "  ");
    put_status(d, get_text(d, effect, OL_IN_EFFECT_STATUS));
    if (attempts)
        ol_buf_print(&d->line, "%s, %lld attempt%s%s", ol_cli_dim(d->cli), (long long)attempts,
                     attempts == 1 ? "" : "s", ol_cli_plain(d->cli));
    ol_cli_put_line(&d->line);
    for (size_t i = 0; i < d->page.count; i++) {
        const struct outlog_event *event = &d->page.events[i];
        if (!is_type(event, "EFFECT_FAILED") || strcmp(event->aggregate_id, id) != 0)
            continue;
        ol_buf_print(&d->line, "%2s", "");
        text = ol_arena_print(&d->snapshot.arena, "attempt %lld: %s", (long long)++failed,
                              get_member(d, event, "error_code"));
        put_error(d, "✗", text ? text : "", get_member(d, event, "error_message"));
    }
}

static void draw_step_event(struct timeline *d, const struct outlog_event *event)
{
    if (is_type(event, "TOOL_CALLED")) {
        draw_tool(d, event);
    } else if (is_type(event, "STEP_FAILED")) {
        put_error(d, "✗", get_member(d, event, "error_code"),
                  get_member(d, event, "error_message"));
    } else if (is_type(event, "STEP_RETRIED")) {
        put_detail(d, ol_cli_accent(d->cli), "↻", "tried again");
        ol_buf_print(&d->line, "  %s%+.3f s%s", ol_cli_dim(d->cli),
                     (double)(event->occurred_at - d->begin) / 1e6, ol_cli_plain(d->cli));
        ol_cli_put_line(&d->line);
    } else if (is_type(event, "STEP_SKIPPED") && *get_member(d, event, "reason")) {
        put_detail(d, ol_cli_dim(d->cli), "↷", get_member(d, event, "reason"));
        ol_cli_put_line(&d->line);
    } else if (is_type(event, "STEP_CORRECTED")) {
        put_detail(d, ol_cli_accent(d->cli), "✎", "corrected by ");
        ol_cli_put_safe(&d->line, event->actor_id, strlen(event->actor_id));
        ol_cli_put_line(&d->line);
    }
}

static void draw_step(struct timeline *d, const struct ol_row *step)
{
    const char *id = get_text(d, step, OL_IN_STEP_ID),
               *status = get_text(d, step, OL_IN_STEP_STATUS);
    int64_t from = first_began(d, step), to = get_time(d, step, OL_IN_STEP_COMPLETED_AT);
    int64_t retries = ol_row_int(step, OL_IN_STEP_RETRIES);

    if (!to)
        to = d->end;
    put_offset(d, from);
    ol_buf_print(&d->line, "%3lld  ", (long long)ol_row_int(step, OL_IN_STEP_INDEX));
    ol_cli_put_wide(&d->line, get_text(d, step, OL_IN_STEP_TYPE), d->name_width);
    ol_buf_text(&d->line, "  ");
    put_bar(d, from, to < from ? from : to, status);
    ol_buf_text(&d->line, "  ");
    put_status(d, status);
    if (step->values[OL_IN_STEP_DURATION]) {
        ol_buf_print(&d->line, "  %s", ol_cli_dim(d->cli));
        put_span(d, ol_row_int(step, OL_IN_STEP_DURATION) * 1000);
        ol_buf_text(&d->line, ol_cli_plain(d->cli));
    }
    if (retries)
        ol_buf_print(&d->line, "  %sretry %lld%s", ol_cli_dim(d->cli), (long long)retries,
                     ol_cli_plain(d->cli));
    ol_cli_put_line(&d->line);
    for (size_t i = 0; i < d->page.count; i++)
        if (strcmp(d->page.events[i].aggregate_id, id) == 0)
            draw_step_event(d, &d->page.events[i]);
    for (const struct ol_row *e = d->snapshot.effects.first; e; e = e->next)
        if (ol_row_is(e, OL_IN_EFFECT_STEP, id))
            draw_effect(d, e);
}

/* --- the whole run --- */

static void draw_run_effects(struct timeline *d)
{
    bool is_first = true;
    for (const struct ol_row *e = d->snapshot.effects.first; e; e = e->next) {
        if (e->values[OL_IN_EFFECT_STEP])
            continue;
        if (is_first)
            ol_cli_put_line(&d->line);
        is_first = false;
        draw_effect(d, e);
    }
}

static void draw_mark(struct timeline *d, const struct outlog_event *event)
{
    if (is_type(event, "RUN_CHECKPOINT_CREATED")) {
        for (const struct ol_row *c = d->snapshot.checkpoints.first; c; c = c->next)
            if (ol_row_int(c, OL_IN_CHECKPOINT_EVENT) == event->event_id) {
                put_offset(d, event->occurred_at);
                ol_buf_print(&d->line, "%s  ◆  checkpoint %lld%s", ol_cli_accent(d->cli),
                             (long long)ol_row_int(c, OL_IN_CHECKPOINT_INDEX),
                             ol_cli_plain(d->cli));
                ol_cli_put_line(&d->line);
            }
    } else if (is_type(event, "RUN_FAILED")) {
        put_offset(d, event->occurred_at);
        ol_buf_text(&d->line, "  ■  failed");
        ol_cli_put_line(&d->line);
        put_error(d, "✗", get_member(d, event, "error_code"),
                  get_member(d, event, "error_message"));
    } else if (is_type(event, "RUN_CANCELLED")) {
        put_offset(d, event->occurred_at);
        ol_buf_text(&d->line, "  ■  cancelled");
        if (*get_member(d, event, "reason")) {
            ol_buf_text(&d->line, ": ");
            ol_cli_put_safe(&d->line, get_member(d, event, "reason"),
                            strlen(get_member(d, event, "reason")));
        }
        ol_cli_put_line(&d->line);
    }
}

static void draw_events(struct timeline *d)
{
    for (size_t i = 0; i < d->page.count; i++) {
        const struct outlog_event *event = &d->page.events[i];
        if (!is_type(event, "STEP_STARTED")) {
            draw_mark(d, event);
            continue;
        }
        const char *id = ol_row_value_text(&d->snapshot.arena, event->aggregate_id);
        const struct ol_row *step = ol_row_find(&d->snapshot.steps, id);
        if (step)
            draw_step(d, step);
    }
}

static void measure_run(struct timeline *d)
{
    const struct ol_row *run = d->snapshot.runs.first;
    d->begin = get_time(d, run, OL_IN_RUN_STARTED_AT);
    d->end = get_time(d, run, OL_IN_RUN_COMPLETED_AT);
    if (!d->end)
        d->end = ol_clock_wall_us();
    d->name_width = 4;
    for (const struct ol_row *step = d->snapshot.steps.first; step; step = step->next) {
        size_t width = strlen(get_text(d, step, OL_IN_STEP_TYPE));
        if (width > d->name_width)
            d->name_width = width < TIMELINE_NAME_WIDTH ? width : TIMELINE_NAME_WIDTH;
    }
}

int ol_cli_timeline(struct ol_cli *cli, outlog *log, const char *run_id, outlog_err *err)
{
    struct timeline d = {.cli = cli};
    int result = ol_run_snapshot_load_all(log, run_id, &d.snapshot, &d.page, err);
    if (result == 0) {
        measure_run(&d);
        draw_head(&d);
        draw_events(&d);
        draw_run_effects(&d);
    }
    outlog_page_clear(&d.page);
    ol_run_snapshot_clear(&d.snapshot);
    ol_buf_clear(&d.line);
    return result;
}
