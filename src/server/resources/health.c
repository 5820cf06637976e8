/* health.c: liveness, readiness, and the identity of the caller. */
#include "base/duration.h"
#include "server/http/router.h"
#include "server/server.h"

#include "base/uuid.h"
#include "log/log.h"

static enum ol_handler_result get_health(struct ol_request *request)
{
    struct ol_buf *out = ol_request_reply(request, 200);
    ol_buf_print(out, "{\"status\":\"ok\",\"version\":\"%s\"}", OUTLOG_VERSION);
    return OL_HANDLER_ANSWERED;
}

/* `relay.lease` of outlog.yaml. */
static int read_lease(struct ol_request *request, int64_t *out, outlog_err *err)
{
    struct ol_rows rows;
    struct ol_json value;
    size_t bytes;

    *out = INT64_C(30000000);
    if (ol_store_query(request->log->conn, OL_Q_SETTING_GET,
                       OL_PARAMS(ol_value_text("relay.lease")), &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    const char *json = got > 0 ? ol_rows_text(&rows, 0, &bytes) : NULL;
    if (json && ol_json_parse(json, bytes, &value, NULL) == 0) {
        const char *text = ol_json_string(&value, &request->arena, NULL);
        if (text)
            ol_duration_parse(text, out);
    }
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Whether messages are expected to be delivered: this process has a relay, or one works or died. */
static int expects_relay(struct ol_request *request, bool *out, outlog_err *err)
{
    struct ol_rows rows;
    *out = request->server->options.has_relay;
    if (*out)
        return 0;
    if (ol_store_query(request->log->conn, OL_Q_OWNER_RELAY, OL_NO_PARAMS, &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    *out = got > 0;
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* A lane where messages are due and no relay owns it; -1: none. */
static int find_stalled(struct ol_request *request, int64_t *lane, outlog_err *err)
{
    struct ol_rows rows;
    int64_t lease_us;
    bool is_expected;

    *lane = -1;
    if (expects_relay(request, &is_expected, err) < 0 || read_lease(request, &lease_us, err) < 0)
        return -1;
    if (!is_expected)
        return 0;
    if (ol_store_query(request->log->conn, OL_Q_LANE_STALLED, OL_PARAMS(ol_value_int(lease_us)),
                       &rows, err) < 0)
        return -1;
    int got = ol_rows_next(&rows, err);
    if (got > 0)
        *lane = ol_rows_int(&rows, 0);
    ol_rows_end(&rows);
    return got < 0 ? -1 : 0;
}

/* Claim or delete one of the keys that a probe writes. */
static int write_probe(outlog_tx *tx, const char *id, int number, bool is_claim, outlog_err *err)
{
    char key[512];
    const struct outlog_idempotency probe = {.actor_id = "system",
                                             .endpoint = "readyz",
                                             .key = key,
                                             .request = "{}"};
    const char *stored;
    snprintf(key, sizeof key, "%s:%0450d", id, number);
    return is_claim ? outlog_idempotent_begin(tx, &probe, &stored, err)
                    : ol_idempotency_forget(tx, &probe, err);
}

/* Write and delete, each durably: is there room on the disk? It writes so many pages that it fails
 * where an append would. */
static int try_write(outlog *log, outlog_err *err)
{
    enum { PROBE_KEYS = 64 };
    char id[OL_UUID_TEXT];
    outlog_tx *tx;

    ol_uuid_make(id);
    for (int i = 0; i < 2; i++) {
        int result = 0;
        if (outlog_begin(log, &tx, err) < 0)
            return -1;
        for (int n = 0; n < PROBE_KEYS && result == 0; n++)
            result = write_probe(tx, id, n, i == 0, err);
        if (result < 0) {
            outlog_rollback(tx);
            return -1;
        }
        if (outlog_commit(tx, err) < 0)
            return -1;
    }
    return 0;
}

/* After a failed write, try one: reading alone would not notice a full disk. */
static int check_writes(struct ol_request *request, outlog_err *err)
{
    struct ol_server *server = request->server;
    struct ol_conn *conn = request->log->conn;
    if (conn->store->check_writable && conn->store->check_writable(conn, err) < 0)
        return -1;
    if (!atomic_load(&server->has_refused))
        return 0;
    if (try_write(request->log, err) < 0)
        return -1;
    atomic_store(&server->has_refused, false);
    return 0;
}

/* Ready: the store answers and accepts writes, and due messages are being delivered (M3). */
static enum ol_handler_result get_readiness(struct ol_request *request)
{
    int64_t settled, lane;
    outlog_err err;
    if (outlog_settled(request->log, &settled, &err) < 0 || check_writes(request, &err) < 0 ||
        find_stalled(request, &lane, &err) < 0)
        return ol_problem(request, &err);
    if (lane >= 0)
        return ol_problem_say(request, 503, "unavailable",
                              "lane %lld is stalled: messages are due and no relay owns it",
                              (long long)lane);
    ol_buf_text(ol_request_reply(request, 200), "{\"status\":\"ready\"}");
    return OL_HANDLER_ANSWERED;
}

static enum ol_handler_result get_identity(struct ol_request *request)
{
    static const char *const scopes[] = {"none", "read", "append", "admin"};
    const struct ol_identity *who = &request->who;
    struct ol_buf *out = ol_request_reply(request, 200);

    ol_buf_print(out, "{\"dev\":%s,\"token_id\":", who->is_dev ? "true" : "false");
    ol_buf_json_text(out, who->token_id[0] ? who->token_id : NULL);
    ol_buf_print(out, ",\"scope\":\"%s\",\"org_id\":", scopes[who->scope]);
    ol_buf_json_text(out, who->org_id);
    ol_buf_print(out, ",\"version\":\"%s\"}", OUTLOG_VERSION);
    return OL_HANDLER_ANSWERED;
}

const struct ol_route ol_health_routes[] = {
    {"GET", "/healthz", OL_SCOPE_NONE, get_health, "getHealth", "Whether the process is alive",
     .reply = "Health", .is_instant = true},
    {"GET", "/readyz", OL_SCOPE_NONE, get_readiness, "getReadiness",
     "Whether the store answers and no lane is stalled", .reply = "Readiness", .is_open = true},
    {"GET", "/v1/whoami", OL_SCOPE_NONE, get_identity, "whoAmI", "What this token may do",
     .reply = "Identity", .takes_org = true},
    {0},
};
