"""The HTTP API's resources: what is asked rightly, wrongly and with ill will, on both stores."""
import base64
import contextlib
import datetime
import http.client
import json
import re
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

import psycopg2
import pytest

from lib.cli import ROOT
from lib.outbox import wait_for
from lib.server import Server, Stream

sys.path.insert(0, str(ROOT / "scripts"))
import embed_sql  # noqa: E402
import fields  # noqa: E402


@pytest.fixture
def server(store, serve):
    """With a relay of its own, without tokens."""
    return serve()


@pytest.fixture
def still(store, serve):
    """Nothing is delivered."""
    return serve("--no-relay")


def command(org="acme", **event):
    return {
        "org_id": org,
        "events": [
            {
                "aggregate_type": "order",
                "aggregate_id": "1",
                "event_type": "order.made",
                "payload": {"total": 1},
                **event,
            }
        ],
    }


def send(server, destination="none", **more):
    status, sent = server.post(
        "/v1/messages", {"destination": destination, "event_type": "t", "payload": {"n": 1}, **more}
    )
    assert status in (200, 201), sent
    return sent["event_id"]


# --- messages ---------------------------------------------------------------------------------


def test_o1_a_message_is_stored_and_delivered_and_shown_with_its_attempts(server, receiver):
    server.put("/v1/destinations/hook", {"type": "webhook", "url": receiver.url("d"), "allow_private": True})
    status, sent = server.post(
        "/v1/messages",
        {
            "destination": "hook",
            "event_type": "invoice.made",
            "payload": {"b": 1, "a": [1.0, 2e3]},
            "org_id": "acme",
            "ordering_key": "k",
            "headers": {"x-a": "b", "authorization": "Bearer s3cret"},
            "metadata": {"m": 1},
        },
    )
    assert status == 201 and sent["duplicate"] is False
    message = server.wait_message(sent["event_id"], "PUBLISHED")
    assert message["payload"] == {"b": 1, "a": [1.0, 2e3]} and message["org_id"] == "acme"
    assert message["headers"] == {"x-a": "b", "authorization": "***"}, "E13: a secret is not shown"
    assert [one["outcome"] for one in message["attempts_log"]] == ["ok"]
    listed = server.get("/v1/messages?destination=hook").json["messages"]
    assert [one["event_id"] for one in listed] == [sent["event_id"]]
    assert "payload" not in listed[0] and "attempts_log" not in listed[0]


def test_i2_the_key_of_a_message_makes_a_repeat_a_duplicate(still):
    body = {"destination": "d", "event_type": "t", "payload": 1, "idempotency_key": "k"}
    first, second = still.post("/v1/messages", body), still.post("/v1/messages", body)
    assert (first.status, second.status) == (201, 200)
    assert (second.json["event_id"], second.json["duplicate"]) == (first.json["event_id"], True)


def test_i1_the_header_repeats_status_and_body(still):
    body = {"destination": "d", "event_type": "t", "payload": 1}
    first = still.post("/v1/messages", body, headers={"idempotency-key": '"a"'})
    second = still.post("/v1/messages", body, headers={"idempotency-key": "a"})
    assert (first.status, second.status) == (201, 201) and first.body == second.body
    assert second.headers["idempotency-replayed"] == "true" and "idempotency-replayed" not in first.headers
    other = still.post("/v1/messages", {**body, "payload": 2}, headers={"idempotency-key": "a"})
    assert (other.status, other.code) == (409, "idempotency_key_reuse")
    assert len(still.get("/v1/messages").json["messages"]) == 1


def test_any_payload_is_kept_as_sent(still):
    for payload in ("null", "0", '"x"', "[]", '{"b":1,  "a":1.50}', "true"):
        sent = still.post("/v1/messages", f'{{"destination":"d","event_type":"t","payload":{payload}}}')
        assert sent.status == 201, sent
        shown = still.get(f"/v1/messages/{sent.json['event_id']}")
        assert f'"payload":{payload},' in shown.body.decode()
    raw = bytes(range(256))
    sent = still.post(
        "/v1/messages",
        {
            "destination": "d",
            "event_type": "t",
            "payload_base64": base64.b64encode(raw).decode(),
            "content_type": "application/octet-stream",
        },
    )
    shown = still.get(f"/v1/messages/{sent.json['event_id']}").json
    assert base64.b64decode(shown["payload_base64"]) == raw


def test_a_wrong_message_is_refused_and_nothing_is_stored(still):
    for change, status, code in [
        ({"destination": None}, 400, "invalid_field"),
        ({"destination": ""}, 400, "invalid_field"),
        ({"destination": "x" * 101}, 400, "invalid_field"),
        ({"event_type": 7}, 400, "invalid_field"),
        ({"payload": ...}, 400, "invalid_field"),
        ({"payload_base64": "AA=="}, 400, "invalid_field"),
        ({"payload": "x" * 300000}, 413, "too_large"),
        ({"headers": []}, 400, "invalid_field"),
        ({"metadata": {"key": "-----BEGIN PRIVATE KEY-----"}}, 422, "secret_material"),
        ({"delay": "soon"}, 400, "invalid_field"),
        ({"max_attempts": 0}, 400, "invalid_field"),
        ({"causation_id": "x"}, 400, "unknown_causation"),
        ({"surprise": 1}, 400, "unknown_field"),
    ]:
        body = {"destination": "d", "event_type": "t", "payload": {"n": 1}, **change}
        answer = still.post("/v1/messages", {k: v for k, v in body.items() if v is not ...})
        assert (answer.status, answer.code) == (status, code), answer
        assert still.get("/v1/messages").json["messages"] == []


def test_messages_come_newest_first_in_pages(still):
    ids = [send(still) for _ in range(7)]
    seen, after = [], ""
    while True:
        page = still.get(f"/v1/messages?limit=3{after}").json
        seen += [one["event_id"] for one in page["messages"]]
        if not page["next_after"]:
            break
        after = "&after=" + page["next_after"]
    assert sorted(seen) == sorted(ids)


def test_a_wrong_query_is_refused(still):
    for query, code in [
        ("state=SENT", "invalid_field"),
        ("limit=0", "invalid_field"),
        ("limit=-1", "invalid_field"),
        ("limit=x", "invalid_field"),
        ("after=zzz", "invalid_field"),
        ("since=yesterday", "invalid_field"),
        ("retrying=maybe", "invalid_field"),
        ("retrying=true&state=DEAD", "invalid_field"),
        ("nonsense=1", "unknown_field"),
        ("state=DEAD&state=DEAD", "invalid_field"),
    ]:
        answer = still.get(f"/v1/messages?{query}")
        assert (answer.status, answer.code) == (400, code)


def test_o3_dead_is_requeued_and_pending_is_killed_and_each_leaves_an_audit_event(still):
    one, two = send(still), send(still)
    killed = still.post(f"/v1/messages/{one}/kill")
    assert killed.status == 200 and killed.json["state"] == "DEAD" and killed.json["attempts"] == 0
    again = still.post(f"/v1/messages/{one}/kill")
    assert (again.status, again.code) == (409, "illegal_transition")
    assert still.post(f"/v1/messages/{one}/requeue", {"dry_run": True}).json["requeued"] == 1
    assert still.get(f"/v1/messages/{one}").json["state"] == "DEAD", "a dry run changes nothing"
    requeued = still.post(f"/v1/messages/{one}/requeue")
    assert requeued.status == 200 and requeued.json["event_ids"] == [one]
    assert still.post(f"/v1/messages/{two}/requeue").code == "illegal_transition"
    audit = [
        event for event in still.get("/v1/events").json["events"] if event["event_type"].startswith("outlog.message.")
    ]
    assert [event["event_type"] for event in audit] == ["outlog.message.killed", "outlog.message.requeued"]
    assert all(event["org_id"] is None for event in audit)
    assert audit[0]["request_id"] == killed.headers["x-request-id"]


def test_many_messages_are_requeued_by_filter(still):
    a, b, c = send(still, "a"), send(still, "a", event_type="u"), send(still, "b")
    for id in (a, b, c):
        still.post(f"/v1/messages/{id}/kill")
    for body, code in [
        ({}, "invalid_field"),
        ({"state": "PENDING"}, "invalid_field"),
        ({"state": "PUBLISHED"}, "invalid_field"),
        ({"ids": []}, "unknown_field"),
        ({"since": 5}, "invalid_field"),
        ({"dry_run": "yes"}, "invalid_field"),
        ([], "invalid_field"),
    ]:
        answer = still.post("/v1/messages/requeue", body)
        assert (answer.status, answer.code) == (400, code), body
    dry = still.post("/v1/messages/requeue", {"state": "DEAD", "dry_run": True}).json
    assert (dry["requeued"], dry["event_ids"]) == (3, [])
    assert still.post("/v1/messages/requeue", {"destination": "a", "event_type": "u"}).json["event_ids"] == [b]
    assert still.post("/v1/messages/requeue", {"until": "2020-01-01T00:00:00Z"}).json["requeued"] == 0
    assert set(still.post("/v1/messages/requeue", {"state": "DEAD", "since": "1h"}).json["event_ids"]) == {a, c}
    assert still.get("/v1/messages?state=DEAD").json["messages"] == []


def test_many_messages_are_killed_by_filter(still, outlog):
    a, b, c = send(still, "a"), send(still, "a", event_type="u"), send(still, "b")
    for body, code in [
        ({}, "invalid_field"),
        ({"state": "DEAD"}, "invalid_field"),
        ({"state": "CLAIMED"}, "invalid_field"),
        ({"ids": []}, "unknown_field"),
        ({"since": 5}, "invalid_field"),
        ({"dry_run": "yes"}, "invalid_field"),
        ({"state": "PENDING", "retrying": "yes"}, "invalid_field"),
        ([], "invalid_field"),
        ({"state": "PENDING", "even_if_unknown": True}, "unknown_field"),
    ]:
        answer = still.post("/v1/messages/kill", body)
        assert (answer.status, answer.code) == (400, code), body
    dry = still.post("/v1/messages/kill", {"state": "PENDING", "dry_run": True}).json
    assert dry == {"killed": 3, "skipped": 0, "dry_run": True, "event_ids": []}
    assert still.get("/v1/messages?state=DEAD").json["messages"] == [], "a dry run changes nothing"
    assert still.post("/v1/messages/kill", {"until": "2020-01-01T00:00:00Z"}).json["killed"] == 0
    assert still.post("/v1/messages/kill", {"retrying": True}).json["killed"] == 0, "none was tried"
    done = still.post("/v1/messages/kill", {"destination": "a", "event_type": "u"})
    assert done.json == {"killed": 1, "skipped": 0, "dry_run": False, "event_ids": [b]}
    assert set(still.post("/v1/messages/kill", {"state": "PENDING", "since": "1h"}).json["event_ids"]) == {a, c}
    assert still.post("/v1/messages/kill", {"state": "PENDING"}).json["killed"] == 0, "what is dead stays as it is"
    audit = [
        event
        for event in still.get("/v1/events?before=end").json["events"]
        if event["event_type"] == "outlog.message.killed"
    ]
    assert {event["aggregate_id"] for event in audit} == {a, b, c} and {event["org_id"] for event in audit} == {None}
    assert [event["request_id"] for event in audit if event["aggregate_id"] == b] == [done.headers["x-request-id"]]


def test_messages_retried_with_one_error_are_killed_and_others_continue(server, receiver):
    server.put(
        "/v1/destinations/d",
        {
            "type": "webhook",
            "url": receiver.url("d"),
            "allow_private": True,
            "breaker": {"failures": 0},
            "retry": {"delays": ["1h"]},
        },
    )
    receiver.rule(503, type="a")
    receiver.rule(500, type="b")
    ids = {kind: [send(server, "d", event_type=kind) for _ in range(2)] for kind in "ab"}
    wait_for(lambda: len(server.get("/v1/messages?retrying=true").json["messages"]) == 4, "four retries")
    late = send(server, "d", event_type="c", available_at="2099-01-01T00:00:00Z")
    error = server.get(f"/v1/messages/{ids['a'][0]}").json["last_error"]
    body = {"retrying": True, "destination": "d", "error": error}
    assert server.post("/v1/messages/kill", {**body, "dry_run": True}).json["killed"] == 2
    assert sorted(server.post("/v1/messages/kill", body).json["event_ids"]) == sorted(ids["a"])
    assert sorted(server.post("/v1/messages/kill", {"retrying": True}).json["event_ids"]) == sorted(ids["b"])
    assert server.get(f"/v1/messages/{late}").json["state"] == "PENDING", "it was never tried"
    assert {server.get(f"/v1/messages/{id}").json["attempts"] for id in ids["a"] + ids["b"]} == {1}


def test_e7_the_log_is_read_backwards_page_by_page(still):
    """The pages of one way are the pages of the other, turned round; also with filters, and for an org's token."""
    for n in range(25):
        still.append("acme" if n % 3 else "other", aggregate_id=str(n % 4))
    forwards = still.get("/v1/events?limit=1000").json
    for query in (
        "",
        "&org_id=acme",
        "&aggregate_type=thing&aggregate_id=2",
        "&org_id=none",
        "&since=1h",
        "&until=1h",
        "&since=1h&org_id=other",
        "&event_type=t",
    ):
        wanted = [one["event_id"] for one in still.get(f"/v1/events?limit=1000{query}").json["events"]]
        for limit in (1, 4, len(wanted) or 1, 1000):
            seen, before = [], "end"
            while before:
                page = still.get(f"/v1/events?before={before}&limit={limit}{query}").json
                assert (
                    set(page) == {"events", "next_before", "settled", "log_id"}
                    and page["settled"] == forwards["settled"]
                )
                seen += [one["event_id"] for one in page["events"]]
                before = page["next_before"]
                if not before:
                    break
                still_there = still.get(f"/v1/events?before={before}&limit=1{query}").json["events"]
                assert all(one["event_id"] < before for one in still_there)
            assert seen == wanted[::-1], (query, limit)
    middle = forwards["events"][10]["event_id"]
    page = still.get(f"/v1/events?before={middle}&limit=3").json
    assert [one["event_id"] for one in page["events"]] == [one["event_id"] for one in forwards["events"][7:10][::-1]]
    assert page["events"] == forwards["events"][7:10][::-1], "the same events"
    assert still.get("/v1/events?before=1").json["events"] == []
    for query in (
        "before=0",
        "before=-1",
        "before=x",
        "before=",
        "before=5&after=1",
        "before=5&wait=1",
        "before=5&limit=0",
        "before=99999999999999999999",
    ):
        answer = still.get(f"/v1/events?{query}")
        assert (answer.status, answer.code) == (400, "invalid_field"), query


def test_e7_backwards_by_time_sees_later_appends(still):
    """A window without end is asked again and again: the newest is always first."""
    for n in range(5):
        new = still.append("acme")[0]["event_id"]
        for query in ("since=1h", "since=1h&until=2099-01-01T00:00:00Z"):
            page = still.get(f"/v1/events?before=end&limit=2&{query}").json
            assert page["events"][0]["event_id"] == new, (n, query)


def test_l5_an_open_breaker_shows_when_it_is_tried_again(server, receiver, outlog):
    server.put(
        "/v1/destinations/d",
        {
            "type": "webhook",
            "url": receiver.url("d"),
            "allow_private": True,
            "breaker": {"failures": 1, "open": "300s", "open_max": "300s"},
            "retry": {"delays": ["1h"]},
        },
    )
    assert server.get("/v1/destinations/d").json["retry_at"] is None
    receiver.rule(503)
    send(server, "d")
    one = wait_for(
        lambda: (now := server.get("/v1/destinations/d").json)["breaker"] == "open" and now, "the breaker to open"
    )
    seconds = (
        datetime.datetime.fromisoformat(one["retry_at"]) - datetime.datetime.now(datetime.timezone.utc)
    ).total_seconds()
    assert 0 < seconds <= 301
    (stats,) = server.get("/v1/stats").json["destinations"]
    assert stats["retry_at"] == one["retry_at"] and stats["since"] < one["retry_at"]
    (listed,) = outlog.run("destinations", "--json").json()
    assert listed["retry_at"] == one["retry_at"]
    assert re.search(r"open .*next try in \d+ s: HTTP 503", outlog.run("destinations").stdout)


def test_missing_messages_are_not_found(still):
    for id in ("x", str(uuid.uuid4()), "%00", "..%2f..", "a" * 300, "%F0%9F%98%80", "'; drop table outbox; --"):
        for verb in ("", "/kill", "/requeue", "/release"):
            path = f"/v1/messages/{urllib.parse.quote(id, safe='%')}{verb}"
            answer = still.post(path) if verb else still.get(path)
            assert (answer.status, answer.code) in ((404, "not_found"), (400, "invalid_field")), answer


def test_dead_letters_of_one_error_are_requeued_together(server, receiver):
    """A status is what went wrong; other numbers differ from message to message."""
    server.put(
        "/v1/destinations/d",
        {
            "type": "webhook",
            "url": receiver.url("d"),
            "allow_private": True,
            "retry": {"max_attempts": 1},
            "breaker": {"failures": 0},
        },
    )
    receiver.rule(503, type="a")
    receiver.rule(404, type="b")
    ids = {kind: [send(server, "d", event_type=kind) for _ in range(2)] for kind in "ab"}
    for id in ids["a"] + ids["b"]:
        server.wait_message(id, "DEAD")
    groups = {one["error"]: one["count"] for one in server.get("/v1/dead/groups").json["groups"]}
    assert sorted(groups.values()) == [2, 2] and len({re.search(r"HTTP (\d+)", one).group(1) for one in groups}) == 2
    receiver.forget()
    (error,) = [one for one in groups if "503" in one]
    body = {"state": "DEAD", "error": error}
    assert server.post("/v1/messages/requeue", {**body, "dry_run": True}).json["requeued"] == 2
    assert sorted(server.post("/v1/messages/requeue", body).json["event_ids"]) == sorted(ids["a"])
    for id in ids["a"]:
        server.wait_message(id, "PUBLISHED")
    assert server.post("/v1/messages/requeue", {"error": "no such"}).json["requeued"] == 0
    assert server.get("/v1/dead/groups").json["groups"][0]["count"] == 2


def test_dead_letters_are_grouped_by_error(server):
    server.put(
        "/v1/destinations/off",
        {"type": "webhook", "url": "http://127.0.0.1:1/", "allow_private": True, "retry": {"max_attempts": 1}},
    )
    ids = [send(server, "off") for _ in range(3)]
    for id in ids:
        server.wait_message(id, "DEAD")
    groups = server.get("/v1/dead/groups").json["groups"]
    assert [(one["destination"], one["count"]) for one in groups] == [("off", 3)]
    assert "127" not in groups[0]["error"] and groups[0]["oldest"] <= groups[0]["newest"]
    assert server.get("/v1/dead/groups?destination=other").json["groups"] == []


# --- destinations -----------------------------------------------------------------------------


def test_x4_a_destination_is_created_changed_and_deleted_and_each_is_an_event(still):
    made = still.put("/v1/destinations/d", {"type": "null"})
    assert made.status == 201 and made.json == {
        "name": "d",
        "type": "null",
        "paused": False,
        "breaker": "closed",
        "pending": 0,
        "oldest_pending_ms": None,
        "last_error": None,
        "last_ok_at": None,
        "retry_at": None,
    }
    assert still.put("/v1/destinations/d", {"type": "null"}).status == 200, "a repeat changes nothing"
    changed = still.put("/v1/destinations/d", {"type": "null", "timeout": "3s"})
    assert changed.status == 200
    assert [one["name"] for one in still.get("/v1/destinations").json["destinations"]] == ["d"]
    assert still.get("/v1/destinations/d").json["type"] == "null"
    gone = still.delete("/v1/destinations/d")
    assert (gone.status, gone.body) == (204, b"")
    assert still.delete("/v1/destinations/d").code == "not_found"
    audit = [(e["event_type"], e["payload"]["change"], e["request_id"]) for e in still.get("/v1/events").json["events"]]
    assert audit == [
        ("outlog.destination.applied", "added", made.headers["x-request-id"]),
        ("outlog.destination.applied", "changed", changed.headers["x-request-id"]),
        ("outlog.destination.deleted", "deleted", gone.headers["x-request-id"]),
    ]


def test_a_destination_in_use_stays(still, outlog, tmp_path):
    (tmp_path / "o.yaml").write_text(
        "destinations: {d: {type: 'null'}, ops: {type: 'null'}}\n" "routes: [{on: 'x.*', to: d}]\nalerts: {to: ops}\n"
    )
    outlog.run("apply", "-f", tmp_path / "o.yaml")
    for name in ("d", "ops"):
        answer = still.delete(f"/v1/destinations/{name}")
        assert (answer.status, answer.code) == (409, "illegal_transition"), answer


def test_an_invalid_destination_points_to_the_field(still):
    for body, pointer, code in [
        ({}, None, "invalid_field"),
        ({"type": "pigeon"}, "/type", "invalid_field"),
        ({"type": "webhook", "url": 5}, "/url", "invalid_field"),
        ({"type": "null", "retry": {"max_attempts": "many"}}, "/retry/max_attempts", "invalid_field"),
        ({"type": "null", "timeuot": "3s"}, "/timeuot", "unknown_field"),
        ([], None, "invalid_field"),
        ("{", None, "invalid_json"),
        ('{"type":"null","type":"null"}', None, "invalid_json"),
    ]:
        answer = still.put("/v1/destinations/d", body)
        assert (answer.status, answer.code) == (400, code), answer
        if pointer:
            assert [error["pointer"] for error in answer.json["errors"]] == [pointer]
        assert still.get("/v1/destinations").json["destinations"] == []


def test_m1_a_breaker_shows_since_when_it_is_open(server):
    made = server.put(
        "/v1/destinations/d",
        {
            "type": "webhook",
            "url": "http://127.0.0.1:1/",
            "allow_private": True,
            "retry": {"base": "4s", "max": "4s", "jitter": 0, "max_attempts": 100},
            "breaker": {"failures": 1, "open": "1500ms", "open_max": "1500ms"},
        },
    )
    assert made.status == 201, made
    send(server, "d")
    seen = set()

    def look():
        one = server.get("/v1/stats").json["destinations"][0]
        seen.add((one["breaker"], one["since"]))
        return {breaker for breaker, _ in seen} >= {"open", "half_open"}

    wait_for(look, lambda: f"both states: {seen}")
    began = {since for breaker, since in seen if breaker != "closed"}
    assert len(began) == 1 and None not in began, "a probe that failed is not a new beginning"


FILTERS = {
    "org_id": "acme",
    "event_type": "order.made",
    "aggregate_type": "order",
    "aggregate_id": "1",
    "correlation_id": "c-1",
    "app_id": "a-1",
    "env_id": "e-1",
    "visibility": "v-1",
}


def post_one(server, **changes):
    """One event with every field that can be asked for; its event_id."""
    event = {**FILTERS, "payload": {}, **changes}
    answer = server.post("/v1/events", {"org_id": event.pop("org_id"), "events": [event]})
    return answer.json["events"][0]["event_id"]


@pytest.mark.parametrize("name", FILTERS)
def test_e15_every_filter_holds_for_pages_and_consumers(still, name):
    ids = [post_one(still), post_one(still, **{name: "other"}), post_one(still)]
    page = still.get(f"/v1/events?{name}={FILTERS[name]}").json
    assert [event["event_id"] for event in page["events"]] == [ids[0], ids[2]] and page["next_after"] >= ids[2]
    assert still.put("/v1/consumers/c", {"filters": {name: FILTERS[name]}}).status == 201
    assert [event["event_id"] for event in still.get("/v1/consumers/c/events").json["events"]] == [ids[0], ids[2]]


@pytest.mark.parametrize("name", FILTERS)
def test_e15_every_filter_holds_for_streams(still, name):
    """For what is read from the store, and for what comes while it is open."""
    wanted = [post_one(still)]
    post_one(still, **{name: "other"})
    wanted.append(post_one(still))
    stream = Stream(still, f"/v1/events/stream?after=0&{name}={FILTERS[name]}")
    seen = iter(stream)
    assert [next(seen)[0] for _ in wanted] == wanted
    for _ in range(2):
        post_one(still, **{name: "other"})
        live = post_one(still)
        number, event = next(seen)
        assert number == live and event[name] == FILTERS[name]
    stream.close()


def test_secrets_of_a_destination_are_never_shown(still):
    still.put(
        "/v1/destinations/d",
        {"type": "webhook", "url": "https://u:pass9@h.example/x", "secret": "whsec_" + "c2VjcmV0" * 4},
    )
    everything = b"".join(
        still.get(path).body for path in ("/v1/destinations", "/v1/destinations/d", "/v1/stats", "/v1/events")
    )
    assert b"c2VjcmV0" not in everything and b"pass9" not in everything


def test_a_paused_destination_waits_and_a_resumed_one_continues(server, receiver, outbox):
    server.put("/v1/destinations/d", {"type": "webhook", "url": receiver.url("d"), "allow_private": True})
    paused = server.post("/v1/destinations/d/pause")
    assert paused.status == 200 and paused.json["paused"] is True
    id = send(server, "d")
    wait_for(lambda: server.get("/v1/stats").json["destinations"][0]["pending"] == 1, "it to wait")
    stats = server.get("/v1/stats").json["destinations"][0]
    assert stats["paused"] and stats["since"] and stats["oldest_pending_ms"] >= 0
    assert server.get(f"/v1/messages/{id}").json["state"] == "PENDING"
    assert server.post("/v1/destinations/d/resume").json["paused"] is False
    server.wait_message(id, "PUBLISHED")
    for verb in ("pause", "resume", "deliver", "test"):
        assert server.post(f"/v1/destinations/nowhere/{verb}").code == "not_found"
        assert server.post(f"/v1/destinations/d/{verb}", {"x": 1}).code == "unknown_field"


def test_l6_deliver_makes_due_what_waits(server, receiver):
    server.put("/v1/destinations/d", {"type": "webhook", "url": receiver.url("d"), "allow_private": True})
    id = send(server, "d", delay="1h")
    wait_for(lambda: server.get("/v1/stats").json["pending"] == 1, "it to wait")

    def hurry():
        answer = server.post("/v1/destinations/d/deliver")
        assert answer.status == 202
        return answer.json["hurried"] == 1

    wait_for(hurry, "the relay to have seen it")
    server.wait_message(id, "PUBLISHED")


def test_testing_a_destination_returns_the_outcome(still, receiver):
    still.put("/v1/destinations/d", {"type": "webhook", "url": receiver.url("d"), "allow_private": True})
    trial = still.post("/v1/destinations/d/test")
    assert trial.status == 200 and trial.json["outcome"] == "ok" and trial.json["status"] == 200
    trial = still.post("/v1/destinations/d/test", {"payload": {"mine": [1, 2]}}).json
    assert trial["outcome"] == "ok" and json.loads(receiver.requests[-1].body) == {"mine": [1, 2]}
    still.put("/v1/destinations/off", {"type": "webhook", "url": "http://127.0.0.1:1/", "allow_private": True})
    trial = still.post("/v1/destinations/off/test").json
    assert trial["outcome"] == "failed" and "127.0.0.1" in trial["error"]
    assert still.get("/v1/messages").json["messages"] == [], "past the outbox"


# --- consumers --------------------------------------------------------------------------------


def test_c1_a_consumer_reads_commits_and_resumes(still):
    made = still.put("/v1/consumers/c", {"filters": {"org_id": "acme"}})
    assert made.status == 201 and made.json["cursor_event_id"] == 0 and made.json["filters"] == {"org_id": "acme"}
    assert still.put("/v1/consumers/c", {}).status == 200
    ids = [event["event_id"] for event in still.append("acme", 3) + still.append("other", 1)][:3]
    page = still.get("/v1/consumers/c/events?limit=2").json
    assert [event["event_id"] for event in page["events"]] == ids[:2] and page["cursor_event_id"] == 0
    assert still.get("/v1/consumers/c/events?limit=2").json == page, "reading moves nothing"
    assert still.post("/v1/consumers/c/commit", {"event_id": ids[1]}).json == {"cursor_event_id": ids[1], "moved": True}
    assert still.post("/v1/consumers/c/commit", {"event_id": ids[0]}).json == {
        "cursor_event_id": ids[1],
        "moved": False,
    }
    assert [e["event_id"] for e in still.get("/v1/consumers/c/events").json["events"]] == ids[2:]
    beyond = still.post("/v1/consumers/c/commit", {"event_id": 10**9})
    assert (beyond.status, beyond.code) == (409, "beyond_settled")
    listed = still.get("/v1/consumers").json["consumers"]
    assert [(one["name"], one["lag"]) for one in listed] == [("c", 2)], "C3"
    assert still.get("/v1/consumers/c").json == listed[0]
    assert still.delete("/v1/consumers/c").status == 204
    assert still.get("/v1/consumers/c/events").code == "not_found"


def test_c4_a_cursor_is_reset_to_0_an_event_a_time_or_the_end(still):
    still.put("/v1/consumers/c")
    events = still.append("acme", 4)

    def reset(to):
        answer = still.post("/v1/consumers/c/reset", {"to": to})
        assert answer.status == 200, answer
        return answer.json["cursor_event_id"]

    assert reset("end") == events[-1]["event_id"] + 1, "past the audit event of the reset"
    assert reset(0) == 0
    assert reset(events[1]["event_id"]) == events[1]["event_id"]
    assert reset(events[0]["occurred_at"]) < events[0]["event_id"]
    assert reset("2099-01-01T00:00:00Z") == events[-1]["event_id"] + 4
    assert reset("1h") < events[0]["event_id"]
    for to, status in [
        (-1, 400),
        ("soon", 400),
        (None, 400),
        (True, 400),
        ([], 400),
        (1.5, 400),
        (10**9, 409),
        (10**30, 400),
    ]:
        assert still.post("/v1/consumers/c/reset", {"to": to}).status == status, to
    assert still.put("/v1/consumers/late", {"from": "end"}).json["lag"] == 0
    assert still.put("/v1/consumers/early", {"from": events[0]["occurred_at"]}).json["lag"] >= 4


def test_a_wrong_consumer_is_refused(still):
    for body, code in [
        ({"filters": {"color": "red"}}, "unknown_field"),
        ({"filters": []}, "invalid_field"),
        ({"filter": {}}, "unknown_field"),
        ({"filters": {"event_type": 5}}, "invalid_field"),
        ({"from": {}}, "invalid_field"),
        ("nonsense", "invalid_json"),
        ({"filters": {"event_type": "x" * 2000}}, "too_large"),
    ]:
        answer = still.put("/v1/consumers/c", body)
        assert answer.code == code, answer
        assert still.get("/v1/consumers").json["consumers"] == []


def test_a_consumers_name_is_any_text_of_100_bytes(still):
    for name in ("ä/b c?", "x" * 100, "😀"):
        path = "/v1/consumers/" + urllib.parse.quote(name, safe="")
        assert still.put(path).json["name"] == name
        assert still.get(path).json["name"] == name
    assert still.put("/v1/consumers/" + "x" * 101).code == "invalid_field"


def test_e6_a_page_shows_the_settled_position(still, outlog):
    """Also to a reader far behind, whichever thread answers: a page finds the end of the log by it."""
    still.append("acme", 3)
    for _ in range(8):
        still.get("/v1/events?limit=1")
    outlog.run("append", "--org", "acme", "--aggregate", "thing/2", "--type", "t", "--data", "{}")
    assert {still.get("/v1/events?limit=1").json["settled"] for _ in range(8)} == {4}


def test_c2_a_long_poll_answers_when_an_event_arrives(still):
    still.put("/v1/consumers/c")
    result = []
    polls = [
        threading.Thread(target=lambda path=path: result.append(still.get(path)))
        for path in ("/v1/events?after=0&wait=20", "/v1/consumers/c/events?wait=20")
    ]
    for poll in polls:
        poll.start()
    polls[0].join(0.3)
    assert all(poll.is_alive() for poll in polls), "nothing is there yet"
    event = still.append("acme")[0]
    for poll in polls:
        poll.join(15)
    assert [[e["event_id"] for e in one.json["events"]] for one in result] == [[event["event_id"]]] * 2


def test_c2_a_long_poll_ends_when_no_event_arrives(still):
    still.put("/v1/consumers/c")
    for path in ("/v1/events?after=0&wait=1", "/v1/consumers/c/events?wait=1"):
        began = time.monotonic()
        answer = still.get(path)
        assert answer.status == 200 and answer.json["events"] == [] and time.monotonic() - began >= 0.9


def test_long_polls_hold_no_thread(store, serve):
    """More of them wait than there are threads, and the server answers others at once."""
    server = serve("--no-relay", "--threads", "1")
    polls = [threading.Thread(target=server.get, args=("/v1/events?wait=20",)) for _ in range(8)]
    for poll in polls:
        poll.start()
    assert server.get("/v1/consumers").status == 200
    server.append("acme")
    for poll in polls:
        poll.join(15)
        assert not poll.is_alive()


# --- traces -----------------------------------------------------------------------------------


def test_t3_a_trace_has_its_events_and_messages(still):
    event = still.append("acme", correlation_id="trace-1")[0]
    first = send(still, correlation_id="trace-1")
    second = send(still, correlation_id="trace-1")
    send(still, correlation_id="trace-2")
    trace = still.get("/v1/traces/trace-1").json
    assert [e["event_id"] for e in trace["events"]] == [event["event_id"]]
    assert [m["event_id"] for m in trace["messages"]] == [first, second]


# --- numbers ----------------------------------------------------------------------------------


def test_stats_show_recent_rates(server, receiver):
    server.put("/v1/destinations/good", {"type": "webhook", "url": receiver.url("d"), "allow_private": True})
    server.put(
        "/v1/destinations/bad",
        {
            "type": "webhook",
            "url": "http://127.0.0.1:1/",
            "allow_private": True,
            "retry": {"max_attempts": 2, "base": "100ms"},
        },
    )
    wait_for(lambda: server.get("/v1/stats").json["rates"]["published"] is not None, "a first sample")
    for _ in range(6):
        send(server, "good")
        send(server, "bad")
    server.append("acme", 5)

    def counted():
        by_name = {one["name"]: one for one in server.get("/v1/stats").json["destinations"]}
        return (by_name["good"]["ok_per_min"], by_name["bad"]["fail_per_min"]) == (6, 12) and by_name

    by_name = wait_for(counted, lambda: server.get("/v1/stats").json)
    assert by_name["bad"]["dead"] == 6 and by_name["bad"]["p99_ms"] is None and by_name["bad"]["ok_per_min"] == 0
    assert by_name["good"]["dead"] == 0 and by_name["good"]["p99_ms"] >= 0 and by_name["good"]["fail_per_min"] == 0
    created = max(one["created_at"] for one in server.get("/v1/messages?destination=good").json["messages"])
    assert by_name["bad"]["last_ok_at"] is None and by_name["good"]["last_ok_at"] >= created
    stats = server.get("/v1/stats").json
    assert stats["dead"] == 6 and stats["settled"] == stats["events_total"] == server.get("/v1/events").json["settled"]
    assert (
        stats["rates"]["published"] > 0
        and stats["rates"]["failed"] > 0
        and stats["publish_p50_ms"] <= stats["publish_p99_ms"]
    )
    series = server.get("/v1/stats/series").json
    lengths = {len(series[name]) for name in ("appended", "published", "failed")}
    assert lengths == {900 // series["step_s"]}
    assert series["published"][0] is None, "unknown before it began"

    def drawn():
        known = [x for x in server.get("/v1/stats/series").json["failed"] if x is not None]
        return sum(known) * series["step_s"] > 0

    wait_for(drawn, "the failures to be drawn")


def test_paused_messages_are_not_counted_as_published(server):
    server.put("/v1/destinations/d", {"type": "null"})
    server.post("/v1/destinations/d/pause")
    wait_for(lambda: server.get("/v1/stats").json["rates"]["published"] is not None, "a first sample")
    for _ in range(5):
        send(server, "d")
    wait_for(lambda: server.get("/v1/stats").json["pending"] == 5, "them to wait")
    server.put("/v1/destinations/later", {"type": "null"})
    send(server, "later")
    wait_for(
        lambda: {one["name"]: one["ok_per_min"] for one in server.get("/v1/stats").json["destinations"]}["later"] == 1,
        "a sample that reaches beyond them",
    )
    assert server.get("/v1/stats").json["destinations"][0]["ok_per_min"] == 0


def test_m1_prometheus_understands_the_metrics(server):
    for name in ("d", 'with "quotes" and \\', "ü"):
        server.put("/v1/destinations/" + urllib.parse.quote(name, safe=""), {"type": "null"})
    server.put("/v1/consumers/c")
    server.append("acme", 2)
    id = send(server, "d")
    server.wait_message(id, "PUBLISHED")
    wait_for(
        lambda: b'outlog_attempts_total{destination="d",outcome="ok"} 1' in server.get("/metrics").body, "the sample"
    )
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    checked = subprocess.run(["promtool", "check", "metrics"], input=answer.body, capture_output=True, timeout=30)
    assert checked.returncode == 0, checked.stderr.decode() + checked.stdout.decode()
    lines = answer.body.decode().splitlines()
    assert f"outlog_events_appended_total {server.get('/v1/events').json['settled']}" in lines
    assert "outlog_append_duration_seconds_count 1" in lines
    assert 'outlog_messages{destination="d",state="PENDING"} 0' in lines
    assert any(line.startswith('outlog_consumer_lag{consumer="c"} ') for line in lines)


def test_m1_metrics_read_no_big_table(postgres, postgres_store, outlog, tmp_path):
    """Twenty answers with 30,000 events and as many messages behind them; the server ends, so its counts are complete."""
    (tmp_path / "o.yaml").write_text("destinations: {d: {type: 'null'}}\nroutes: [{on: '*', to: d}]\n")
    outlog.run("apply", "-f", tmp_path / "o.yaml")
    line = (
        json.dumps({"org_id": "acme", "aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}})
        + "\n"
    )
    outlog.run("append", "--ndjson", "-", input=line * 30000, timeout=120)
    outlog.run("relay", "--until-idle", timeout=120)
    outlog.run("sessions")  # sessions are found by reading the log

    def rows_read():
        with contextlib.closing(psycopg2.connect(postgres_store)) as db, db.cursor() as cursor:
            cursor.execute(
                "select relname, coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables "
                "where schemaname = 'outlog' and relname in ('events', 'outbox', 'attempts', 'batches', 'parked')"
            )
            return dict(cursor.fetchall())

    def settled():
        was = None
        while was != (now := rows_read()):
            was = now
            time.sleep(1.1)  # counters are written at most once per second
        return now

    before = settled()
    assert before["outbox"] >= 30000, "the relay read them, and it is counted"
    server = Server(outlog, tmp_path / "serve.log", ["--no-relay"])
    for _ in range(20):
        body = server.get("/metrics").body
        assert b"outlog_events_appended_total" in body and b"# HELP outlog_messages " in body
    server.stop()
    read = {name: rows - before[name] for name, rows in settled().items()}
    assert all(rows < 5000 for rows in read.values()), read


# --- health -----------------------------------------------------------------------------------


def test_m3_not_ready_while_a_lane_is_stalled(still, outlog, relays, tmp_path):
    (tmp_path / "o.yaml").write_text("destinations: {d: {type: 'null'}}\nrelay: {lease: 1s}\n")
    outlog.run("apply", "-f", tmp_path / "o.yaml")
    send(still, "d")
    wait_for(lambda: still.get("/v1/stats").json["oldest_pending_ms"] > 1500, "more than a lease")
    assert still.get("/readyz").status == 200, "no relay was ever registered"
    relay = relays("a", lease="1s")
    wait_for(lambda: still.get("/v1/messages").json["messages"][0]["state"] == "PUBLISHED", "the relay")
    relay.kill()
    id = send(still, "d")
    assert still.get("/v1/messages/" + id).json["state"] != "PUBLISHED"
    wait_for(lambda: still.get("/readyz").status == 503, "the lane to be missed")
    assert "is stalled" in still.get("/readyz").json["detail"]
    assert still.get("/healthz").status == 200
    relays("b", lease="1s")
    wait_for(lambda: still.get("/readyz").status == 200, "another relay")


def test_m2_each_admin_change_and_each_5xx_is_a_line(still):
    made = still.put("/v1/destinations/d", {"type": "null"}, headers={"x-request-id": "req-7"})
    assert made.headers["x-request-id"] == "req-7"
    still.get("/v1/destinations")
    still.put("/v1/destinations/d", {"type": "pigeon"})
    lines = [line for line in still.lines() if " msg=admin " in line or " msg=request " in line]
    assert len(lines) == 1 and 'request_id="req-7"' in lines[0] and 'operation="putDestination"' in lines[0]
    assert " status=201 " in lines[0]


# --- cost -------------------------------------------------------------------------------------


def test_e15_queries_of_the_api_use_an_index(sqlite_store):
    """Samples and traces read as much as happened, however large the tables are."""
    queries = embed_sql.read_queries(
        fields.Schema(ROOT / "sql" / "schema"), "sqlite", ROOT / "sql" / "queries", ROOT / "sql" / "sqlite" / "queries"
    )
    indexes = {
        "batch_total": "outlog_batches_lately",
        "batch_newest": "outlog_batches_lately",
        "parked_published": "outlog_parked_lately",
        "attempts_failed": "outlog_attempts_lately",
        "messages_of_trace": "outlog_outbox_trace",
    }
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :])) as db:
        for name, index in indexes.items():
            text = "".join(text + (f":{param}" if param else "") for text, param, _ in queries[name].pieces("sqlite"))
            plan = [
                row[3] for row in db.execute("explain query plan " + text, {param: 1 for param in queries[name].params})
            ]
            assert any(index in step for step in plan), (name, plan)
            assert not any(step.startswith("SCAN ") and "INDEX" not in step for step in plan), (name, plan)


# --- I1: one transaction with the key ---------------------------------------------------------


def dead_letter(server, outlog=None):
    sent = send(server, "nowhere")
    assert server.post(f"/v1/messages/{sent}/kill").status == 200
    return sent


@pytest.mark.parametrize("call", ["requeue", "kill", "release", "pause", "token", "reset", "many"])
def test_i1_a_repeat_after_a_crash_does_not_execute_twice(store, serve, outbox, outlog, tmp_path, call):
    """At the last moment before the answer: what is there is there with its key, or neither is."""
    calm = serve("--no-relay")
    sent = dead_letter(calm)
    if call == "kill":
        sent = send(calm, "nowhere")
    if call == "release":
        calm.put(
            "/v1/destinations/held",
            {"type": "exec", "command": ["false"], "on_dead": "hold", "retry": {"max_attempts": 1}},
        )
        sent = send(calm, "held", ordering_key="k")
        outlog.run("relay", "--until-idle", "--quiet")
    calm.put("/v1/destinations/d", {"type": "null"})
    calm.put("/v1/consumers/c")
    calm.stop()
    path, body = {
        "requeue": (f"/v1/messages/{sent}/requeue", {}),
        "kill": (f"/v1/messages/{sent}/kill", {}),
        "release": (f"/v1/messages/{sent}/release", {}),
        "pause": ("/v1/destinations/d/pause", {}),
        "token": ("/v1/tokens", {"scope": "read"}),
        "reset": ("/v1/consumers/c/reset", {"to": "end"}),
        "many": ("/v1/messages/requeue", {"state": "DEAD"}),
    }[call]
    headers = {"idempotency-key": "k"}

    def audits(server):
        return [
            one["event_type"]
            for one in server.get("/v1/events?limit=1000").json["events"]
            if one["event_type"].startswith("outlog.")
        ]

    crashing = serve("--no-relay", env={"OUTLOG_FAULT": "idempotency.done:1:kill"})
    before = audits(crashing)
    with pytest.raises((OSError, http.client.HTTPException)):
        crashing.post(path, body, headers=headers)
    crashing.process.wait()
    server = serve("--no-relay")
    after = audits(server)
    again = server.post(path, body, headers=headers)
    if call == "many":  # it goes in parts: it was executed, but the answer was not stored
        assert len(after) == len(before) + 1 and again.code == "idempotency_in_progress"
        assert audits(server) == after
    else:
        assert after == before, "neither the work"
        assert again.status in (200, 201) and "idempotency-replayed" not in again.headers, "nor its key"
        assert len(audits(server)) == len(before) + 1
        third = server.post(path, body, headers=headers)
        assert third.headers["idempotency-replayed"] == "true" and third.status == again.status
        assert call == "token" or third.body == again.body
        assert len(audits(server)) == len(before) + 1


def test_i1_x1_a_repeat_does_not_show_a_tokens_secret_and_the_store_does_not_keep_it(still, outbox):
    first = still.post("/v1/tokens", {"scope": "read"}, headers={"idempotency-key": "k"}).json
    again = still.post("/v1/tokens", {"scope": "read"}, headers={"idempotency-key": "k"}).json
    assert first["token"] and again["id"] == first["id"] and not again.get("token")
    assert len(still.get("/v1/tokens").json["tokens"]) == 1
    kept = outbox.run("select response from {}idempotency_records")
    assert kept and first["token"] not in str(kept)


def test_i1_a_failed_bulk_change_releases_its_key(still):
    body = {"state": "PUBLISHED"}
    assert still.post("/v1/messages/requeue", body, headers={"idempotency-key": "k"}).status == 400
    dead = dead_letter(still)
    done = still.post("/v1/messages/requeue", {"state": "DEAD"}, headers={"idempotency-key": "m"})
    assert done.json["event_ids"] == [dead]
    again = still.post("/v1/messages/requeue", {"state": "DEAD"}, headers={"idempotency-key": "m"})
    assert again.body == done.body and again.headers["idempotency-replayed"] == "true"
    assert still.post("/v1/messages/requeue", body, headers={"idempotency-key": "k"}).status == 400


def test_x4_a_cursor_that_is_moved_or_removed_by_hand_is_an_event(still, outlog):
    still.append("acme", 3)
    still.put("/v1/consumers/c", {"from": 2})
    still.post("/v1/consumers/c/reset", {"to": 0}, headers={"x-request-id": "r-1"})
    still.post("/v1/consumers/c/reset", {"to": "2001-01-01T00:00:00Z"})
    outlog.run("consumers", "reset", "c", "--to", "1")
    still.delete("/v1/consumers/c")
    assert still.delete("/v1/consumers/c").status == 404
    events = [one for one in still.get("/v1/events").json["events"] if one["aggregate_type"] == "outlog.consumer"]
    assert [one["event_type"] for one in events] == ["outlog.consumer.reset"] * 3 + ["outlog.consumer.deleted"]
    assert events[0]["payload"] == {"name": "c", "from_event_id": 2, "to_event_id": 0}
    assert events[0]["request_id"] == "r-1" and events[0]["org_id"] is None
    assert events[3]["payload"] == {"name": "c", "from_event_id": 1}
