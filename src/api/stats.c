/* stats.c: /v1/stats: the store at a glance. */
#include "api/route.h"
#include "api/server.h"

#include "base/clock.h"
#include "views/dead.h"
#include "views/destination.h"

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

static void put_destination(struct ol_pulse *pulse, const struct ol_destination *one,
                            struct ol_buf *out)
{
    struct ol_flow flow = ol_pulse_flow(pulse, one->name);

    ol_destination_json(one, out);
    out->bytes--; // the closing brace
    ol_buf_char(out, ',');
    put_rate(out, "ok_per_min", flow.ok_per_min, flow.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "fail_per_min", flow.fail_per_min, flow.is_known);
    put_number(out, "p99_ms", flow.p99_ms, flow.p99_ms >= 0);
    put_number(out, "retrying", one->count.retrying, true);
    put_number(out, "dead", one->count.dead, true);
    put_number(out, "held", one->count.held, true);
    ol_buf_print(out, ",\"is_estimate\":%s,\"since\":", one->count.is_estimate ? "true" : "false");
    ol_buf_json_time(out, one->since);
    ol_buf_char(out, '}');
}

static void put_totals(struct ol_pulse *pulse, const struct ol_count *total, int64_t settled,
                       struct ol_buf *out)
{
    struct ol_rates rates = ol_pulse_rates(pulse);
    struct ol_flow flow = ol_pulse_flow(pulse, NULL);

    ol_buf_print(out, "{\"settled\":%lld,\"events_total\":%lld,\"rates\":{", (long long)settled,
                 (long long)settled);
    put_rate(out, "appended", rates.appended, rates.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "published", rates.published, rates.is_known);
    ol_buf_char(out, ',');
    put_rate(out, "failed", rates.failed, rates.is_known);
    ol_buf_char(out, '}');
    put_number(out, "publish_p50_ms", flow.p50_ms, flow.p50_ms >= 0);
    put_number(out, "publish_p99_ms", flow.p99_ms, flow.p99_ms >= 0);
    put_number(out, "oldest_pending_ms", (ol_clock_wall_us() - total->oldest_pending_at) / 1000,
               total->oldest_pending_at != 0);
    put_number(out, "pending", total->pending, true);
    put_number(out, "retrying", total->retrying, true);
    put_number(out, "claimed", total->claimed, true);
    put_number(out, "dead", total->dead, true);
    put_number(out, "held", total->held, true);
    ol_buf_print(out, ",\"is_estimate\":%s", total->is_estimate ? "true" : "false");
}

static enum ol_answer stats(struct ol_request *request)
{
    struct ol_pulse *pulse = request->server->pulse;
    struct ol_destinations all;
    int64_t settled;
    outlog_err err;

    if (outlog_settled(request->log, &settled, &err) < 0 ||
        ol_destination_list(request->log, &request->arena, &all, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    put_totals(pulse, &all.total, settled, out);
    ol_buf_text(out, ",\"destinations\":[");
    for (size_t i = 0; i < all.count; i++) {
        ol_buf_text(out, i ? "," : "");
        put_destination(pulse, &all.all[i], out);
    }
    ol_buf_text(out, "]}");
    return OL_ANSWERED;
}

static enum ol_answer series(struct ol_request *request)
{
    ol_pulse_series(request->server->pulse, ol_request_reply(request, 200));
    return OL_ANSWERED;
}

static enum ol_answer dead_groups(struct ol_request *request)
{
    struct ol_dead_groups groups;
    outlog_err err;

    if (ol_dead_groups(request->log, ol_request_param(request, "destination"), &request->arena,
                       &groups, &err) < 0)
        return ol_problem(request, &err);
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_text(out, "{\"groups\":[");
    for (size_t i = 0; i < groups.count; i++) {
        ol_buf_text(out, i ? "," : "");
        ol_dead_group_json(&groups.all[i], out);
    }
    ol_buf_text(out, "]}");
    return OL_ANSWERED;
}

const struct ol_route ol_stats_routes[] = {
    {"GET", "/v1/stats", OL_SCOPE_ADMIN, stats, "getStats",
     "Rates, backlog and destinations right now", .reply = "Stats"},
    {"GET", "/v1/stats/series", OL_SCOPE_ADMIN, series, "getSeries",
     "The last fifteen minutes, a second's worth a point; null where unknown", .reply = "Series"},
    {"GET", "/v1/dead/groups", OL_SCOPE_ADMIN, dead_groups, "listDeadGroups",
     "Dead letters by destination and error", .query = "destination", .reply = "DeadGroups"},
    {0},
};
