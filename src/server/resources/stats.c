/* stats.c: /v1/stats and /v1/dead/groups: rates, backlog, destinations, dead letters by error. */
#include "server/http/router.h"
#include "server/server.h"

#include "base/clock.h"
#include "outbox/dead_letters.h"
#include "outbox/destination_health.h"
#include "outbox/waiting.h"

static void put_number(struct ol_buf *out, const char *name, int64_t number, bool is_known)
{
    ol_buf_print(out, ",\"%s\":", name);
    if (is_known)
        ol_buf_int(out, number);
    else
        ol_buf_text(out, "null");
}

static void put_rate(struct ol_buf *out, const char *name, double rate, bool is_known)
{
    ol_buf_print(out, "\"%s\":", name);
    if (is_known)
        ol_buf_print(out, "%.6g", rate);
    else
        ol_buf_text(out, "null");
}

static void put_destination(struct ol_rates *rates, const struct ol_destination_health *one,
                            struct ol_buf *out)
{
    struct ol_throughput throughput = ol_rates_throughput(rates, one->name);

    ol_destination_health_json(one, out);
    out->bytes--; // the closing brace
    ol_buf_char(out, ',');
    put_rate(out, "ok_per_min", throughput.ok_per_min, throughput.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "fail_per_min", throughput.fail_per_min, throughput.is_known);
    put_number(out, "p99_ms", throughput.p99_ms, throughput.p99_ms >= 0);
    put_number(out, "retrying", one->count.retrying, true);
    put_number(out, "dead", one->count.dead, true);
    put_number(out, "held", one->count.held, true);
    ol_buf_print(out, ",\"is_estimate\":%s,\"since\":", one->count.is_estimate ? "true" : "false");
    ol_buf_json_time(out, one->since);
    ol_buf_char(out, '}');
}

static void put_totals(struct ol_rates *rates, const struct ol_message_count *total,
                       int64_t settled, struct ol_buf *out)
{
    struct ol_rate_values recent = ol_rates_recent(rates);
    struct ol_throughput throughput = ol_rates_throughput(rates, NULL);

    ol_buf_print(out, "{\"settled\":%lld,\"events_total\":%lld,\"rates\":{", (long long)settled,
                 (long long)settled);
    put_rate(out, "appended", recent.appended, recent.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "published", recent.published, recent.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "failed", recent.failed, recent.is_known);
    ol_buf_char(out, '}');
    put_number(out, "publish_p50_ms", throughput.p50_ms, throughput.p50_ms >= 0);
    put_number(out, "publish_p99_ms", throughput.p99_ms, throughput.p99_ms >= 0);
    put_number(out, "oldest_pending_ms", (ol_clock_wall_us() - total->oldest_pending_at) / 1000,
               total->oldest_pending_at != 0);
    put_number(out, "pending", total->pending, true);
    put_number(out, "retrying", total->retrying, true);
    put_number(out, "claimed", total->claimed, true);
    put_number(out, "dead", total->dead, true);
    put_number(out, "held", total->held, true);
    ol_buf_print(out, ",\"is_estimate\":%s", total->is_estimate ? "true" : "false");
}

static enum ol_handler_result get_stats(struct ol_request *request)
{
    struct ol_rates *rates = request->server->rates;
    struct ol_destination_healths all;
    struct ol_waitings waiting;
    int64_t settled;
    outlog_err err;

    if (outlog_settled(request->log, &settled, &err) < 0 ||
        ol_destination_health_list(request->log, &request->arena, &all, &err) < 0 ||
        ol_waiting_list(request->log->conn, &request->arena, &waiting, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    put_totals(rates, &all.total, settled, out);
    ol_buf_text(out, ",\"destinations\":[");
    for (size_t i = 0; i < all.count; i++) {
        ol_buf_text(out, i ? "," : "");
        put_destination(rates, &all.all[i], out);
    }
    ol_buf_text(out, "],\"waiting\":");
    ol_waiting_json(&waiting, out);
    ol_buf_char(out, '}');
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_series(struct ol_request *request)
{
    ol_rates_series(request->server->rates, ol_request_reply(request, 200));
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result list_dead_groups(struct ol_request *request)
{
    struct ol_dead_letters_groups groups;
    outlog_err err;

    if (ol_dead_letters_groups(request->log, ol_request_param(request, "destination"),
                               &request->arena, &groups, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"groups\":[");
    for (size_t i = 0; i < groups.count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_dead_letters_group_json(&groups.all[i], out);
    }
    ol_buf_text(out, "]}");
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_stats_routes[] = {
    {"GET", "/v1/stats", OL_SCOPE_ADMIN, get_stats, "getStats",
     "Rates, backlog and destinations right now", .reply = "Stats"},
    {"GET", "/v1/stats/series", OL_SCOPE_ADMIN, get_series, "getSeries",
     "The last fifteen minutes, in events per second; null where unknown", .reply = "Series"},
    {"GET", "/v1/dead/groups", OL_SCOPE_ADMIN, list_dead_groups, "listDeadGroups",
     "Dead letters by destination and error", .query = "destination", .reply = "DeadGroups"},
    {0},
};
