"""Where things came from: traceparent over HTTP (T4), and spans for a collector (M4), on both stores."""
import json
import re
import time

import pytest

from lib.collector import Collector
from lib.outbox import wait_for

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
def collector():
    with Collector() as collector:
        yield collector


@pytest.fixture
def traced(store, outlog, tmp_path, serve, collector):
    """Starts a server that tells the collector."""

    def start(*args, headers="", **how):
        (tmp_path / "tracing.yaml").write_text(f"tracing: {{endpoint: '{collector.url}'{headers}}}\n")
        outlog.run("apply", "-f", str(tmp_path / "tracing.yaml"))
        return serve(*args, **how)

    return start


def hook(server, receiver, **more):
    server.put("/v1/destinations/hook", {"type": "webhook", "url": receiver.url("hook"), "allow_private": True, **more})


def command(**more):
    return {
        "org_id": "acme",
        "events": [{"aggregate_type": "order", "aggregate_id": "1", "event_type": "order.made", "payload": {}, **more}],
    }


def message(**more):
    return {"destination": "hook", "event_type": "t", "payload": {}, **more}


def trace_of(header):
    return re.fullmatch("00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})", header).groups()


# --- T4 ---------------------------------------------------------------------------------------


def test_t4_traceparent_comes_in_over_http_and_goes_out_with_deliveries(store, serve, receiver, outlog, tmp_path):
    (tmp_path / "routes.yaml").write_text("routes: [{on: 'order.*', to: hook}]\n")
    server = serve()
    hook(server, receiver)
    outlog.run("apply", "-f", str(tmp_path / "routes.yaml"))
    headers = {"traceparent": PARENT}
    body = {**command(), "messages": [message(metadata={"m": 1}, event_type="told")]}
    (event,) = server.post("/v1/events", body, headers=headers).json["events"]
    stored = server.get(f"/v1/events/{event['id']}").json
    assert stored["metadata"] == {"traceparent": PARENT}, "as the SQL and C interfaces have it"
    sent = server.post("/v1/messages", message(event_type="sent"), headers=headers).json["event_id"]
    assert server.get(f"/v1/messages/{sent}").json["metadata"] == {"traceparent": PARENT}
    wait_for(lambda: receiver.count() == 3, "three deliveries")
    assert {one.type for one in receiver.of()} == {"order.made", "told", "sent"}
    for one in receiver.of():
        trace, span, flags = trace_of(one.headers["traceparent"])
        assert (trace, flags) == (TRACE, "01") and span != CALLER
    (told,) = [one for one in server.get("/v1/messages").json["messages"] if one["event_type"] == "told"]
    assert told["metadata"] == {"traceparent": PARENT, "m": 1}


def test_t1_every_delivery_names_its_correlation_and_its_cause(store, serve, receiver, outlog, tmp_path):
    (tmp_path / "routes.yaml").write_text("routes: [{on: 'order.*', to: hook}]\n")
    server = serve()
    hook(server, receiver, retry={"base": "1ms", "max_attempts": 3})
    outlog.run("apply", "-f", str(tmp_path / "routes.yaml"))
    receiver.rule(500, times=1)
    event = server.post("/v1/events", {**command(), "correlation_id": "c-7"}).json["events"][0]
    wait_for(lambda: receiver.count() == 2, "two attempts")
    first, second = receiver.of()
    for one in (first, second):
        assert one.headers["outlog-correlation-id"] == "c-7"
        assert one.headers["outlog-causation-id"] == event["id"]
    traces = [trace_of(one.headers["traceparent"]) for one in (first, second)]
    assert traces[0][0] == traces[1][0] and traces[0][1] != traces[1][1]


def test_t4_run_commands_pass_it_to_events_and_effects(store, serve, receiver):
    server = serve()
    hook(server, receiver)
    headers = {"traceparent": PARENT}
    run = server.post(
        "/v1/runs", {"org_id": "acme", "run_type": "r", "orchestrator_version": "1"}, headers=headers
    ).json
    step = server.post(f"/v1/runs/{run['run_id']}/steps", {"step_type": "s"}, headers=headers).json
    effect = server.post(
        f"/v1/runs/{run['run_id']}/effects",
        headers=headers,
        body={"effect_type": "API_CALL", "destination": "hook", "effect_spec": {"a": 1}},
    ).json
    plain = server.post(f"/v1/steps/{step['step_id']}/complete", {"output_result": {}})
    assert plain.status == 200
    server.wait_message(effect["event_id"], "PUBLISHED")
    events = {one["event_type"]: one for one in server.get("/v1/events?org_id=acme").json["events"]}
    for name in ("RUN_STARTED", "STEP_STARTED", "EFFECT_REQUESTED"):
        assert events[name]["metadata"] == {"traceparent": PARENT}, name
    assert events["STEP_COMPLETED"]["metadata"] is None, "the command before had one, this one had none"
    assert trace_of(receiver.of()[0].headers["traceparent"])[0] == TRACE


def test_t4_what_an_event_says_itself_stays_and_nonsense_is_left_out(store, serve):
    server = serve("--no-relay")
    own = "00-" + "1" * 32 + "-" + "2" * 16 + "-00"
    for header, metadata, stored in (
        (PARENT, {"traceparent": own}, {"traceparent": own}),
        (PARENT, {}, {"traceparent": PARENT}),
        ("00-nonsense", {"a": 1}, {"a": 1}),
        ("00-" + "0" * 32 + "-" + CALLER + "-01", None, None),
        (f'cc-{TRACE}-{CALLER}-01-"more', None, {"traceparent": PARENT}),
    ):
        (event,) = server.post("/v1/events", command(metadata=metadata), headers={"traceparent": header}).json["events"]
        assert server.get(f"/v1/events/{event['id']}").json["metadata"] == stored


def test_t4_i1_a_repeat_may_come_with_another_span(store, serve):
    server = serve("--no-relay")
    for number, body in enumerate(
        (command(), {**command(), "messages": [message()]}, command(id="0190a0b0-c0d0-7e0f-8000-000000000001"))
    ):
        key = {"idempotency-key": f"k-{number}"}
        first = server.post("/v1/events", body, headers={**key, "traceparent": PARENT})
        again = server.post("/v1/events", body, headers={**key, "traceparent": PARENT.replace(CALLER, "a" * 16)})
        assert (first.status, again.status) == (201, 201) and again.body == first.body
        assert again.headers["idempotency-replayed"] == "true"


# --- M4 ---------------------------------------------------------------------------------------


def test_m4_spans_of_append_claim_and_publish_hang_below_each_other(traced, receiver, collector, outlog, tmp_path):
    (tmp_path / "routes.yaml").write_text("routes: [{on: 'order.*', to: hook}]\n")
    server = traced()
    hook(server, receiver, retry={"policy": "schedule", "delays": ["1ms"], "max_attempts": 3})
    outlog.run("apply", "-f", str(tmp_path / "routes.yaml"))
    receiver.rule(503, attempt=1)
    done = server.post("/v1/events", command(), headers={"traceparent": PARENT, "x-request-id": "r-1"})
    wait_for(lambda: len(collector.spans) >= 5, "the append and two attempts to be told")
    assert not collector.refused, collector.refused
    (append,) = collector.named("append")
    assert (append["traceId"], append["parentSpanId"], append["kind"]) == (TRACE, CALLER, 2)
    assert append["attributes"]["outlog.operation"] == "appendEvents" and append["attributes"]["outlog.status"] == 201
    assert append["attributes"]["outlog.request_id"] == "r-1"
    event = server.get(f"/v1/events/{done.json['events'][0]['id']}").json
    assert event["metadata"]["traceparent"] == f"00-{TRACE}-{append['spanId']}-01", "the last hop is the append's"
    for attempt in (1, 2):
        (claim,) = collector.named("claim", attempt=attempt)
        (publish,) = collector.named("publish", attempt=attempt)
        assert {claim["traceId"], publish["traceId"]} == {TRACE}
        assert claim["parentSpanId"] == append["spanId"] and publish["parentSpanId"] == claim["spanId"]
        (arrived,) = receiver.of(attempt=attempt)
        assert trace_of(arrived.headers["traceparent"]) == (TRACE, publish["spanId"], "01")
        assert int(claim["startTimeUnixNano"]) >= int(append["startTimeUnixNano"])
        assert publish["attributes"]["outlog.destination"] == "hook"
        assert publish["attributes"]["outlog.correlation_id"] == event["correlation_id"]
    (failed,) = collector.named("publish", attempt=1)
    assert failed["status"]["code"] == 2 and "503" in failed["status"]["message"]
    assert collector.named("publish", attempt=2)[0]["status"] == {}
    assert len({one["spanId"] for one in collector.spans}) == 5


def test_m4_without_traceparent_the_correlation_id_joins(traced, receiver, collector, outlog):
    """Also what came by another interface: there is no append span then, and the claim begins the trace."""
    server = traced()
    hook(server, receiver)
    correlation = "0190a0b0-c0d0-7e0f-8000-00000000000a"
    server.post("/v1/messages", message(correlation_id=correlation, event_type="http"))
    server.post("/v1/messages", message(event_type="nameless"))
    outlog.run("send", "--to", "hook", "--type", "cli", "--data", "{}")
    wait_for(lambda: len(collector.spans) >= 8, "two appends and three attempts to be told")
    (http,) = collector.named("publish", event_type="http")
    assert http["traceId"] == correlation.replace("-", "")
    (claim,) = collector.named("claim", event_type="http")
    appends = {one["spanId"]: one for one in collector.named("append")}
    assert "parentSpanId" not in appends[claim["parentSpanId"]]
    (nameless,) = collector.named("claim", event_type="nameless")
    assert appends[nameless["parentSpanId"]]["traceId"] == nameless["traceId"]
    (cli,) = collector.named("claim", event_type="cli")
    assert "parentSpanId" not in cli
    assert cli["traceId"] == cli["attributes"]["outlog.correlation_id"].replace("-", "")
    (arrived,) = receiver.of(type="cli")
    assert trace_of(arrived.headers["traceparent"])[0] == cli["traceId"]


def test_m4_who_does_not_want_to_be_seen_is_not(traced, receiver, collector):
    server = traced()
    hook(server, receiver)
    unseen = PARENT[:-1] + "0"
    sent = server.post("/v1/messages", message(event_type="unseen"), headers={"traceparent": unseen}).json["event_id"]
    server.wait_message(sent, "PUBLISHED")
    server.post("/v1/messages", message(event_type="seen"), headers={"traceparent": PARENT})
    wait_for(lambda: len(collector.spans) >= 3, "the one to be told")
    assert sorted(one["name"] for one in collector.spans) == ["append", "claim", "publish"]
    assert collector.named("publish", event_type="seen")
    (arrived,) = receiver.of(type="unseen")
    assert trace_of(arrived.headers["traceparent"])[2] == "00"


def test_m4_a_relay_alone_tells_too_with_headers_from_its_environment(store, outlog, tmp_path, collector, receiver):
    (tmp_path / "all.yaml").write_text(
        f"tracing: {{endpoint: '{collector.url}/v1/traces', headers: {{x-key: 'Bearer ${{COLLECTOR_KEY}}'}}}}\n"
        f"destinations: {{hook: {{type: webhook, url: '{receiver.url('hook')}', allow_private: true}}}}\n"
    )
    outlog.run("apply", "-f", str(tmp_path / "all.yaml"))
    assert "s3cret" not in outlog.run("config", "--json").stdout
    outlog.run("send", "--to", "hook", "--type", "t", "--data", "{}")
    refused = outlog.run("relay", "--until-idle", check=False)
    assert refused.returncode == 1 and "COLLECTOR_KEY" in refused.stderr
    outlog.run("relay", "--until-idle", env={"COLLECTOR_KEY": "s3cret"})
    assert len(collector.named("publish")) == 1, "what had gathered is sent before the end"
    assert collector.headers[0]["x-key"] == "Bearer s3cret"


def test_m4_a_wrong_setting_names_its_place(store, outlog, tmp_path):
    for text, place in (
        ("{endpoint: nowhere}", "tracing.endpoint"),
        ("{endpoint: 7}", "tracing.endpoint"),
        ("{endpoint: 'http://h', headers: {a: plain}}", "tracing.headers"),
        ("{endpoint: 'http://h', headers: {'a b': '${X}'}}", "tracing.headers"),
        ("{endpoint: 'http://h', sampler: 1}", "sampler"),
    ):
        (tmp_path / "wrong.yaml").write_text(f"tracing: {text}\n")
        assert place in outlog.run("apply", "-f", str(tmp_path / "wrong.yaml"), check=False).stderr


def spans(server):
    found = re.findall(r'outlog_trace_spans_total\{outcome="(\w+)"\} (\d+)', server.get("/metrics").body.decode())
    return {name: int(number) for name, number in found}


def test_m4_a_collector_that_hangs_holds_up_nothing(traced, receiver, collector):
    """More spans than the queue takes, none of them answered: deliveries go on, the rest is counted."""
    collector.may_answer.clear()
    server = traced()
    hook(server, receiver)
    lines = "\n".join(json.dumps({"messages": [message(event_type=f"t{n}")]}) for n in range(1500))
    done = server.call("POST", "/v1/events", lines, headers={"content-type": "application/x-ndjson"})
    assert done.status == 200 and b'"code"' not in done.body
    wait_for(lambda: receiver.count() >= 1500, "every delivery")
    assert not collector.spans
    counts = wait_for(lambda: (found := spans(server)) and found["dropped"] and found, "spans to be dropped")
    assert counts["exported"] == 0
    began = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - began < 20, "nor does it hold up the end"


def test_m4_a_collector_that_comes_back_gets_what_waited(traced, receiver, collector):
    collector.status = 503
    server = traced()
    hook(server, receiver)
    server.post("/v1/messages", message())
    wait_for(lambda: receiver.count() == 1, "the delivery")
    collector.status = 200
    wait_for(lambda: len(collector.spans) == 3, "the spans")
    wait_for(lambda: spans(server) == {"exported": 3, "failed": 0, "dropped": 0}, "the count")


def test_m4_off_unless_asked_for(store, serve, receiver):
    server = serve()
    hook(server, receiver)
    server.post("/v1/messages", message())
    wait_for(lambda: receiver.count() == 1, "the delivery")
    assert trace_of(receiver.of()[0].headers["traceparent"]), "T1: receivers can join all the same"
    assert spans(server) == {"exported": 0, "failed": 0, "dropped": 0}


# --- M2 ---------------------------------------------------------------------------------------


def test_m2_lines_are_json_when_asked_and_tell_every_transition(store, serve, receiver):
    server = serve("--log-format", "json", "--log-level", "debug")
    hook(server, receiver, retry={"policy": "schedule", "delays": ["1ms"], "max_attempts": 2})
    receiver.rule(503, attempt=1)
    sent = server.post("/v1/messages", message(correlation_id='c "1"')).json["event_id"]
    server.wait_message(sent, "PUBLISHED")
    server.post(f"/v1/messages/{sent}/requeue", headers={"x-request-id": "r-1"})
    wait_for(lambda: receiver.count() == 3, "the second delivery")
    server.stop()
    lines = [json.loads(line) for line in server.lines() if line.startswith("{")]
    moves = [
        (one["attempt"], one["from"], one["to"])
        for one in lines
        if one["msg"] == "message" and one["message_id"] == sent and "from" in one
    ]
    assert moves == [
        (1, "PENDING", "CLAIMED"),
        (1, "CLAIMED", "PENDING"),
        (2, "PENDING", "CLAIMED"),
        (2, "CLAIMED", "PUBLISHED"),
        (3, "PENDING", "CLAIMED"),
        (3, "CLAIMED", "PUBLISHED"),
    ]
    (failed,) = [one for one in lines if one["msg"] == "message" and one.get("error")]
    assert failed["level"] == "info" and "503" in failed["error"] and failed["correlation_id"] == 'c "1"'
    admin = [one for one in lines if one["msg"] == "admin"]
    assert [one["operation"] for one in admin] == ["putDestination", "requeueMessage"]
    assert admin[1]["request_id"] == "r-1" and admin[1]["status"] == 200


def test_m2_a_wrong_format_or_level_is_wrong_usage(store, outlog):
    for args in (("--log-format", "xml"), ("--log-level", "loud")):
        assert outlog.run("relay", *args, check=False).returncode == 2
