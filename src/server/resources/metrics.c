/* metrics.c: GET /metrics for Prometheus (M1).
 *
 * Every number comes from memory, from small tables, or from ol_message_counts_read(), which reads
 * a limited part of the backlog and of the parked messages. docs/metrics.md lists the names. */
#include "server/http/router.h"
#include "server/server.h"

#include "base/clock.h"
#include "base/err.h"
#include "log/sink_cursor.h"
#include "outbox/destination_health.h"
#include "outbox/waiting.h"
#include "telemetry/span_exporter.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METRIC_LABELS_MAX = 1000 }; // consumers, projections

/* --- the text format --- */

static void put_help(struct ol_buf *out, const char *name, const char *type, const char *help)
{
    ol_buf_print(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void put_label(struct ol_buf *out, const char *value)
{
    for (; *value; value++) {
        if (*value == '\\' || *value == '"')
            ol_buf_char(out, '\\');
        if (*value == '\n')
            ol_buf_text(out, "\\n");
        else
            ol_buf_char(out, *value);
    }
}

/* name{key="value",more} number; `key` NULL: no label; `more` NULL or `state="DEAD"`. */
static void put_sample(struct ol_buf *out, const char *name, const char *key, const char *value,
                       const char *more, double number)
{
    ol_buf_text(out, name);
    if (key || more) {
        ol_buf_char(out, '{');
        if (key) {
            ol_buf_print(out, "%s=\"", key);
            put_label(out, value);
            ol_buf_print(out, "\"%s", more ? "," : "");
        }
        ol_buf_print(out, "%s}", more ? more : "");
    }
    ol_buf_print(out, " %.15g\n", number);
}

static void put_metric(struct ol_buf *out, const char *name, const char *type, const char *help,
                       double number)
{
    put_help(out, name, type, help);
    put_sample(out, name, NULL, NULL, NULL, number);
}

static void put_histogram(struct ol_buf *out, const char *name, const char *help,
                          const struct ol_histogram *histogram)
{
    int64_t count = 0;
    put_help(out, name, "histogram", help);
    for (int i = 0; i < OL_RATES_BOUNDS; i++) {
        count += histogram->counts[i];
        ol_buf_print(out, "%s_bucket{le=\"%g\"} %lld\n", name, ol_rates_bounds[i],
                     (long long)count);
    }
    count += histogram->counts[OL_RATES_BOUNDS];
    ol_buf_print(out, "%s_bucket{le=\"+Inf\"} %lld\n%s_sum %.9g\n%s_count %lld\n", name,
                 (long long)count, name, histogram->sum, name, (long long)count);
}

/* --- this process --- */

static void put_spans(struct ol_span_exporter *tracer, struct ol_buf *out)
{
    struct ol_span_exporter_counts counts = tracer ? ol_span_exporter_counts(tracer)
                                                   : (struct ol_span_exporter_counts){0};
    put_help(
        out, "outlog_trace_spans_total", "counter",
        "Spans of this process: accepted by the collector, failed to reach it, or dropped because "
        "too many were queued.");
    put_sample(out, "outlog_trace_spans_total", "outcome", "exported", NULL,
               (double)counts.exported);
    put_sample(out, "outlog_trace_spans_total", "outcome", "failed", NULL, (double)counts.failed);
    put_sample(out, "outlog_trace_spans_total", "outcome", "dropped", NULL, (double)counts.dropped);
}

static void put_process(struct ol_server *server, struct ol_buf *out)
{
    static const char *const kinds[] = {"other", "1xx", "2xx", "3xx", "4xx", "5xx"};
    static const char *const reasons[OL_REFUSAL_COUNT] = {"connection", "body", "token", "slow"};
    struct ol_histogram appends = ol_rates_appends(server->rates);

    put_help(out, "outlog_build_info", "gauge", "The version that answers; always 1.");
    put_sample(out, "outlog_build_info", "version", OUTLOG_VERSION, NULL, 1);
    put_metric(out, "outlog_uptime_seconds", "gauge", "How long this process has been running.",
               (double)(ol_clock_boot_us() - server->started_at) / 1e6);
    put_help(out, "outlog_http_responses_total", "counter", "Answers of this process by status.");
    for (int i = 1; i <= 5; i++)
        put_sample(out, "outlog_http_responses_total", "code", kinds[i], NULL,
                   (double)atomic_load(&server->answers[i]));
    put_help(out, "outlog_http_refused_total", "counter",
             "Clients that this process refused before a handler ran, by the reason.");
    for (int i = 0; i < OL_REFUSAL_COUNT; i++)
        put_sample(out, "outlog_http_refused_total", "reason", reasons[i], NULL,
                   (double)atomic_load(&server->conns.refused[i]));
    put_histogram(out, "outlog_append_duration_seconds",
                  "How long POST /v1/events took, from its first byte to its answer, in this "
                  "process.",
                  &appends);
    put_spans(server->options.tracer, out);
}

/* --- the log --- */

static int put_log(outlog *log, struct ol_buf *out, outlog_err *err)
{
    int64_t settled, bytes;
    if (outlog_settled(log, &settled, err) < 0 ||
        ol_store_number(log->conn, OL_Q_LOG_BYTES, OL_NO_PARAMS, &bytes, err) < 0)
        return -1;
    put_metric(out, "outlog_events_appended_total", "counter",
               "The settled position: an upper bound of how many events there are.",
               (double)settled);
    put_metric(
        out, "outlog_log_bytes", "gauge",
        "Size on disk: the table of events with its indexes (PostgreSQL), the file (SQLite).",
        (double)bytes);
    return 0;
}

static int put_consumers(outlog *log, struct ol_buf *out, outlog_err *err)
{
    struct outlog_consumer *all = calloc(METRIC_LABELS_MAX, sizeof *all);
    size_t count;

    if (!all)
        return ol_no_memory(err);
    int result = outlog_consumer_list(log, all, METRIC_LABELS_MAX, &count, err);
    put_help(out, "outlog_consumer_lag", "gauge",
             "Events between a consumer's cursor and the settled position, an upper bound of what "
             "waits; the first 1000 consumers.");
    for (size_t i = 0; result == 0 && i < count && i < METRIC_LABELS_MAX; i++)
        put_sample(out, "outlog_consumer_lag", "consumer", all[i].name, NULL, (double)all[i].lag);
    free(all);
    return result;
}

static int put_projections(outlog *log, struct ol_buf *out, outlog_err *err)
{
    struct outlog_projection *all = calloc(METRIC_LABELS_MAX, sizeof *all);
    size_t count;

    if (!all)
        return ol_no_memory(err);
    int result = outlog_projection_list(log, all, METRIC_LABELS_MAX, &count, err);
    put_help(
        out, "outlog_projection_lag", "gauge",
        "Events between what a projection has applied and the settled position; the first 1000.");
    for (size_t i = 0; result == 0 && i < count && i < METRIC_LABELS_MAX; i++)
        put_sample(out, "outlog_projection_lag", "projection", all[i].name, NULL,
                   (double)all[i].lag);
    free(all);
    return result;
}

static void on_sink(void *user, const struct ol_sink_cursor *sink)
{
    put_sample(user, "outlog_sink_lag", "sink", sink->name, NULL, (double)sink->lag);
}

static int put_sinks(outlog *log, struct ol_buf *out, outlog_err *err)
{
    put_help(
        out, "outlog_sink_lag", "gauge",
        "Events between a sink's cursor and the settled position, an upper bound of what waits.");
    return ol_sink_cursor_each(log, on_sink, out, err);
}

/* --- the outbox --- */

static void put_messages(const struct ol_destination_healths *all, struct ol_buf *out)
{
    const char *name = "outlog_messages";
    double open = (double)all->total.claimed;

    put_help(
        out, name, "gauge",
        "Messages that are not published, by destination and state. PENDING is estimated from the "
        "first 2000 of each lane when more wait; of parked messages at most 20000 per state are "
        "counted.");
    for (size_t i = 0; i < all->count; i++) {
        const struct ol_destination_health *one = &all->all[i];
        put_sample(out, name, "destination", one->name, "state=\"PENDING\"",
                   (double)one->count.pending);
        put_sample(out, name, "destination", one->name, "state=\"CLAIMED\"",
                   (double)one->count.claimed);
        put_sample(out, name, "destination", one->name, "state=\"DEAD\"", (double)one->count.dead);
        open -= (double)one->count.claimed;
    }
    put_metric(out, "outlog_batch_messages", "gauge",
               "Messages in open batches of first attempts, whichever destination they go to.",
               open > 0 ? open : 0);
}

static void put_by_destination(const struct ol_destination_healths *all, const char *name,
                               const char *help, double (*of)(const struct ol_destination_health *),
                               struct ol_buf *out)
{
    put_help(out, name, "gauge", help);
    for (size_t i = 0; i < all->count; i++)
        put_sample(out, name, "destination", all->all[i].name, NULL, of(&all->all[i]));
}

static double count_retrying(const struct ol_destination_health *one)
{
    return (double)one->count.retrying;
}

static double count_held(const struct ol_destination_health *one)
{
    return (double)one->count.held;
}

static double oldest_age(const struct ol_destination_health *one)
{
    int64_t at = one->count.oldest_pending_at;
    return at ? (double)(ol_clock_wall_us() - at) / 1e6 : 0;
}

static double paused_flag(const struct ol_destination_health *one)
{
    return one->is_paused;
}

static double breaker_level(const struct ol_destination_health *one)
{
    return strcmp(one->breaker, "open") == 0 ? 2 : strcmp(one->breaker, "half_open") == 0 ? 1 : 0;
}

/* By lane, destination and reason: the set of reasons is that of outbox/waiting.c. */
static int put_waiting(struct ol_request *request, struct ol_buf *out, outlog_err *err)
{
    struct ol_waitings waiting;
    char more[80];
    if (ol_waiting_list(request->log->conn, &request->arena, &waiting, err) < 0)
        return -1;
    put_help(out, "outlog_oldest_due_seconds", "gauge",
             "Age of the oldest message that is due and not sent.");
    for (size_t i = 0; i < waiting.count; i++) {
        const struct ol_waiting *one = &waiting.all[i];
        double age = (double)(ol_clock_wall_us() - one->since) / 1e6;
        snprintf(more, sizeof more, "lane=\"%d\",reason=\"%s\"", one->lane, one->reason);
        put_sample(out, "outlog_oldest_due_seconds", "destination", one->destination, more,
                   age > 0 ? age : 0);
    }
    return 0;
}

static int put_outbox(struct ol_request *request, struct ol_buf *out, outlog_err *err)
{
    struct ol_destination_healths all;
    if (ol_destination_health_list(request->log, &request->arena, &all, err) < 0)
        return -1;
    put_messages(&all, out);
    put_by_destination(&all, "outlog_messages_retrying",
                       "PENDING messages that failed at least once.", count_retrying, out);
    put_by_destination(&all, "outlog_messages_held", "DEAD messages that hold back their key.",
                       count_held, out);
    put_by_destination(&all, "outlog_oldest_pending_seconds",
                       "Age of the oldest message that waits; 0 when none does.", oldest_age, out);
    put_by_destination(&all, "outlog_destination_paused", "1 while an operator has paused it.",
                       paused_flag, out);
    put_by_destination(&all, "outlog_destination_breaker",
                       "0 closed, 1 half open, 2 open: the worst that any relay sees.",
                       breaker_level, out);
    return put_waiting(request, out, err);
}

static void on_destination(void *user, const char *destination, double ok, double failed)
{
    struct ol_buf *out = user;
    put_sample(out, "outlog_attempts_total", "destination", destination, "outcome=\"ok\"", ok);
    put_sample(out, "outlog_attempts_total", "destination", destination, "outcome=\"failed\"",
               failed);
}

static void put_delivery(struct ol_rates *rates, struct ol_buf *out)
{
    struct ol_histogram publishes = ol_rates_publishes(rates);
    put_help(
        out, "outlog_attempts_total", "counter",
        "Attempts of all relays since this process started, a few seconds late. ok is estimated "
        "from sampled batches under load; failed, with unknown outcomes, is exact.");
    ol_rates_each(rates, on_destination, out);
    put_histogram(out, "outlog_publish_latency_seconds",
                  "From a message's creation to its delivery, sampled: at most 1024 messages of "
                  "batches every two seconds.",
                  &publishes);
}

/* --- lanes and relays --- */

static int put_lanes(outlog *log, struct ol_buf *out, outlog_err *err)
{
    struct ol_rows rows;
    int64_t now = ol_clock_wall_us();
    double lanes = 0, owned = 0, epochs = 0, relays = 0;
    int more;

    if (ol_store_query(log->conn, OL_Q_LANE_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0) {
        lanes++;
        owned += !ol_rows_is_null(&rows, 2) && !ol_rows_is_null(&rows, 4) &&
                 ol_rows_time(&rows, 4) > now;
        epochs += (double)ol_rows_int(&rows, 5);
    }
    ol_rows_end(&rows);
    if (more < 0 || ol_store_query(log->conn, OL_Q_RELAY_LIST, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    while ((more = ol_rows_next(&rows, err)) > 0)
        relays += now - ol_rows_time(&rows, 3) < INT64_C(60000000);
    ol_rows_end(&rows);
    put_metric(out, "outlog_lanes", "gauge", "Lanes of the outbox.", lanes);
    put_metric(out, "outlog_lanes_owned", "gauge", "Lanes whose owner's lease is valid.", owned);
    put_metric(out, "outlog_lane_takeovers_total", "counter",
               "How often a lane got an owner: at first, by rebalancing, or after a lease expired.",
               epochs);
    put_metric(out, "outlog_relays", "gauge", "Relays that sent a heartbeat in the last minute.",
               relays);
    return more < 0 ? -1 : 0;
}

static enum ol_handler_result get_metrics(struct ol_request *request)
{
    struct ol_buf *out = ol_request_reply(request, 200);
    outlog_err err;

    request->content_type = "text/plain; version=0.0.4; charset=utf-8";
    put_process(request->server, out);
    if (put_log(request->log, out, &err) < 0 || put_consumers(request->log, out, &err) < 0 ||
        put_projections(request->log, out, &err) < 0 || put_sinks(request->log, out, &err) < 0 ||
        put_outbox(request, out, &err) < 0 || put_lanes(request->log, out, &err) < 0)
        return ol_problem(request, &err);
    put_delivery(request->server->rates, out);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_metrics_routes[] = {
    {"GET", "/metrics", OL_SCOPE_READ, get_metrics, "getMetrics",
     "Numbers for Prometheus; a global read or admin token", .reply = "text/plain"},
    {0},
};
