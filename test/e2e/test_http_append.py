"""POST /v1/events: one command, many commands, and their outcomes (A3)."""
import itertools
import json
import threading

import pytest

from lib.outbox import wait_for
from lib.secrets import GITHUB

pytestmark = pytest.mark.usefixtures("store")


@pytest.fixture
def server(serve):
    return serve("--no-relay")


def event(number=1, aggregate="o-1", **more):
    return {
        "aggregate_type": "order",
        "aggregate_id": aggregate,
        "event_type": "order.created",
        "payload": {"n": number},
        **more,
    }


def command(*events, **more):
    return {"org_id": "acme", "events": list(events), **more}


def all_events(server, **query):
    more = "".join(f"&{name}={value}" for name, value in query.items())
    return server.get(f"/v1/events?limit=10000{more}").json["events"]


def test_a3_a_command_is_one_transaction(server):
    status, answer = server.post(
        "/v1/events",
        command(
            event(1),
            event(2),
            event(1, "o-2"),
            messages=[{"destination": "billing", "event_type": "invoice.send", "payload": {"n": 1}}],
        ),
    )
    assert status == 201
    assert [e["aggregate_seq"] for e in answer["events"]] == [1, 2, 1]
    assert len({e["correlation_id"] for e in answer["events"]}) >= 1 and not answer["messages"][0]["duplicate"]
    refused = server.post("/v1/events", command(event(3), event(4, expected_seq=99)))
    problem = refused.json
    assert (refused.code, problem["expected"], problem["actual"]) == ("sequence_conflict", 99, 3)
    assert problem["errors"][0]["pointer"].startswith("/events/1") and problem["outcome"] == "failed"
    assert len(all_events(server)) == 3


def test_a3_ndjson_gives_each_line_its_own_outcome(server):
    lines = [command(event(1)), {"bad": 1}, command(event(2)), command(event(3, expected_seq=7)), command()]
    answer = server.post(
        "/v1/events", "\n".join(map(json.dumps, lines)) + "\n\n", headers={"content-type": "application/x-ndjson"}
    )
    assert answer.status == 200 and answer.headers["content-type"] == "application/x-ndjson"
    got = [json.loads(line) for line in answer.body.decode().splitlines()]
    assert [one.get("code", "stored") for one in got] == [
        "stored",
        "unknown_field",
        "stored",
        "sequence_conflict",
        "invalid_field",
    ]
    assert len(all_events(server)) == 2


def test_i1_the_same_key_returns_the_same_bytes(server):
    body = command(event(1))
    first, again = (server.post("/v1/events", body, headers={"idempotency-key": '"k-1"'}) for _ in range(2))
    assert (first.status, again.status) == (201, 201) and first.body == again.body
    assert "idempotency-replayed" not in first.headers and again.headers["idempotency-replayed"] == "true"
    other = server.post("/v1/events", command(event(2)), headers={"idempotency-key": "k-1"})
    assert other.code == "idempotency_key_reuse"
    with_messages = command(event(5), messages=[{"destination": "d", "event_type": "t", "payload": 1}])
    one, two = (server.post("/v1/events", with_messages, headers={"idempotency-key": "k-2"}) for _ in range(2))
    assert one.body == two.body and two.headers["idempotency-replayed"] == "true"
    assert len(all_events(server)) == 2 and len(server.get("/v1/messages").json["messages"]) == 1


def test_i1_a_key_is_the_same_through_http_and_the_command_line(server, outlog):
    first = server.post("/v1/events", command(event(1)), headers={"idempotency-key": "k"}).json["events"][0]
    again = json.loads(
        outlog.run(
            "append",
            "--org",
            "acme",
            "--aggregate",
            "order/o-1",
            "--type",
            "order.created",
            "--data",
            '{"n": 1}',
            "--key",
            "k",
            "--json",
        ).stdout
    )
    assert (again["event_id"], again["duplicate"]) == (first["event_id"], True)


@pytest.mark.parametrize(
    "body, code",
    [
        ("{", "invalid_json"),
        ("[]", "invalid_json"),
        ({}, "invalid_field"),
        ({"org_id": "a"}, "invalid_field"),
        ({"events": [event()]}, "org_required"),
        (command({**event(), "nope": 1}), "unknown_field"),
        (command(event(), surplus=1), "unknown_field"),
        (command({**event(), "payload": []}), "invalid_field"),
        (command({**event(), "payload": {"a": "olk_0123456789abcdef"}}), "secret_material"),
        (command({**event(), "payload": {"a": "olt_0123456789abcdef"}}), "secret_material"),
        (command({**event(), "event_type": "RUN_COMPLETED"}), "invalid_field"),
        (command({**event(), "event_type": "outlog.message.requeued"}), "invalid_field"),
        (command({**event(), "causation_id": "01a1e30a-91cd-73d0-a8bd-64105536cd5c"}), "unknown_causation"),
        (command({**event(), "payload": {"a": "x" * 300_000}}), "too_large"),
        (command(event(), actor={"type": "user"}), "invalid_field"),
    ],
)
def test_bad_commands_store_nothing(server, body, code):
    assert server.post("/v1/events", body).code == code
    assert all_events(server) == []


def test_grouped_commands_do_not_fail_their_neighbours(server):
    """Many clients at once, every third command refused: each gets its own outcome."""
    outcomes, lock = [], threading.Lock()

    def client(number):
        for n in range(12):
            bad = n % 3 == 2
            body = command(event(n, f"o-{number}", **({"expected_seq": 1000} if bad else {})))
            answer = server.post("/v1/events", body)
            with lock:
                outcomes.append((bad, answer.status))

    threads = [threading.Thread(target=client, args=(n,)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {status for bad, status in outcomes if bad} == {409}
    assert {status for bad, status in outcomes if not bad} == {201}
    stored = all_events(server)
    assert len(stored) == 16 * 8
    for number in range(16):
        assert [e["aggregate_seq"] for e in stored if e["aggregate_id"] == f"o-{number}"] == list(range(1, 9))


def test_an_own_id_may_be_repeated(server):
    own = "0197c9a4-6f2e-7c3b-9d1f-2f6f3f0c1a5e"
    first, again = (server.post("/v1/events", command(event(1, id=own))).json["events"][0] for _ in range(2))
    assert (first["duplicate"], again["duplicate"]) == (False, True) and first["event_id"] == again["event_id"]
    assert server.post("/v1/events", command(event(2, id=own))).code == "id_conflict"


# --- settings that change while it runs ---

WAYS = {
    "an event": (command(event(event_type="unheard.of")), {}),
    "events and a message": (
        command(
            event(event_type="unheard.of"),
            event(),
            messages=[{"destination": "billing", "event_type": "invoice.send", "payload": {}}],
        ),
        {},
    ),
    "a key": (command(event(event_type="unheard.of")), {"idempotency-key": "k"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_e10_a_running_server_learns_of_a_strict_org(server, outlog, tmp_path, way):
    """And that it is strict no more: what it knows of the registry is never old."""
    number = itertools.count()

    def outcome():
        body, headers = WAYS[way]
        answer = server.post(
            "/v1/events", body, headers={name: f"{key}-{next(number)}" for name, key in headers.items()}
        )
        return "taken" if answer.status == 201 else answer.code

    def apply(text):
        (tmp_path / "outlog.yaml").write_text(text)
        outlog.run("apply", "-f", tmp_path / "outlog.yaml", "--prune")

    assert outcome() == "taken"
    apply("event_types: {strict: [acme]}\n")
    wait_for(lambda: outcome() == "unknown_event_type", "it to be refused")
    apply("event_types: {strict: [beta]}\n")
    wait_for(lambda: outcome() == "taken", "it to be taken again")


def test_e13_a_running_server_learns_of_a_rule_against_secrets(server, outbox):
    def outcome():
        answer = server.post("/v1/events", command({**event(), "payload": {"note": GITHUB}}))
        return "taken" if answer.status == 201 else answer.code

    assert outcome() == "secret_material"
    outbox.run("update {}secret_rules set mode = 'off' where rule = 'github_token'")
    wait_for(lambda: outcome() == "taken", "it to be taken")
    outbox.run("update {}secret_rules set mode = 'reject' where rule = 'github_token'")
    wait_for(lambda: outcome() == "secret_material", "it to be refused again")


def test_i1_an_event_without_a_payload_under_a_key_is_refused(server):
    """The key's request is put together before the events are checked."""
    event = {"aggregate_type": "order", "aggregate_id": "o-1", "event_type": "order.made"}
    answer = server.post(
        "/v1/events", {"org_id": "acme", "events": [{**event, "payload": {}, "idempotency_key": "k"}, event]}
    )
    assert (answer.status, answer.code) == (400, "invalid_field")
    assert server.append("acme")
