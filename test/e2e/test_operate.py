"""What people do to messages: look, requeue, kill, release, deliver now, pause. On both stores."""
import base64
import itertools
import json
import random
import threading
import time

import pytest

from interfaces import SqliteInterface, connect, execute, is_postgres
from lib.outbox import wait_for

FAST = {"base": "10ms", "max": "20ms", "jitter": 0, "max_attempts": 2}
MESSAGE = [
    "event_id",
    "org_id",
    "destination",
    "event_type",
    "state",
    "attempts",
    "max_attempts",
    "available_at",
    "created_at",
    "updated_at",
    "claimed_at",
    "claimed_by",
    "published_at",
    "last_error",
    "error_details",
    "result",
    "idempotency_key",
    "ordering_key",
    "partition_key",
    "content_type",
    "headers",
    "metadata",
    "correlation_id",
    "causation_id",
    "aggregate_type",
    "aggregate_id",
]
ATTEMPT = ["attempt", "started_at", "duration_ms", "outcome", "status", "response", "error", "permanent", "claimed_by"]


def show(outlog, id):
    return outlog.run("outbox", "show", id, "--json").json()[0]


def listed(outlog, *args):
    return [one["event_id"] for one in outlog.run("outbox", "--json", *args).json()]


def audit(outlog, id=None):
    args = ["--aggregate", f"outlog.message/{id}"] if id else []
    return outlog.run("events", "--infra", "--json", "--limit", "10000", *args).json()


def refused(outlog, *args, code="illegal_transition"):
    said = outlog.run(*args, check=False)
    assert said.returncode == 1 and said.stderr.rstrip().endswith(f"[{code}]"), said
    return said.stderr


def snapshot(outbox):
    return {
        table: sorted(map(repr, outbox.run(f"select * from {{}}{table}")))
        for table in ("parked", "lanes", "batches", "attempts", "events")
    }


def dead_one(outbox, receiver, relays, destination="one", key=None, **settings):
    """A message that died of two failures, and no relay running."""
    outbox.destination(destination, receiver, **{"retry": FAST, **settings})
    receiver.rule(500, destination=destination)
    id = outbox.put(destination, {"n": 1}, key=key)
    relay = relays()
    outbox.wait(id, "DEAD")
    stop(outbox, relay)
    receiver.rule(200, destination=destination)  # the newest rule decides
    return id


def stop(outbox, relay):
    relay.term()
    relay.wait()
    outbox.run("delete from {}relays")


def published_one(outbox, receiver, relays, destination="one"):
    outbox.destination(destination, receiver, retry=FAST)
    id = outbox.put(destination, {"n": 1})
    relay = relays(patience="30s")  # so that it is not parked on a busy machine
    outbox.wait(id, "PUBLISHED")
    stop(outbox, relay)
    return id


# --- looking ---


def test_oo_99_lists_are_newest_first_and_pages_cover_everything_once(store, outlog, outbox):
    ids = [outbox.put("one" if n % 3 else "two", {"n": n}, type=f"t.{n % 2}") for n in range(60)]
    before = snapshot(outbox)
    newest_first = ids[::-1]
    assert listed(outlog) == newest_first
    assert listed(outlog, "--to", "two") == [id for n, id in reversed(list(enumerate(ids))) if n % 3 == 0]
    assert listed(outlog, "--type", "t.1", "--limit", "5") == newest_first[::2][:5]
    for filter in ([], ["--state", "PENDING"], ["--state", "PENDING", "--to", "one"]):
        seen, after = [], []
        for _ in range(100):
            page = outlog.run("outbox", "--json", "--limit", "7", *filter, *after)
            seen += [one["event_id"] for one in page.json()]
            if "--after" not in page.stderr:
                break
            after = ["--after", page.stderr.split("--after ")[1].strip()]
        assert len(seen) == len(set(seen)) and seen == listed(outlog, *filter)
    assert snapshot(outbox) == before, "looking changes nothing"


def test_oo_99_pages_cover_everything_though_clocks_went_back(store, outlog, outbox):
    """Numbers and times are given one after the other: of two writers each may be first with one of them."""
    times = [f"2026-01-01T00:00:{(n * 7) % 40:02d}.000000Z" for n in range(40)]
    ids = [outbox.put("one", {"n": n}) for n in range(40)]
    outbox.set_times(dict(zip(ids, times)))
    for filter in ([], ["--state", "PENDING"]):
        seen, after = [], []
        while True:
            page = outlog.run("outbox", "--json", "--limit", "3", *filter, *after)
            seen += [one["event_id"] for one in page.json()]
            if "--after" not in page.stderr:
                break
            after = ["--after", page.stderr.split("--after ")[1].strip()]
        assert sorted(seen) == sorted(ids)


def test_oo_100_each_state_has_its_list(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    outbox.destination("slow", receiver, retry={**FAST, "base": "1h", "max": "1h"})
    receiver.rule(500, destination="one", type="dies")
    receiver.rule(503, destination="slow", type="waits")
    receiver.rule("hang", destination="one", type="flies")
    kinds = {
        "DEAD": outbox.put("one", {}, type="dies"),
        "PUBLISHED": outbox.put("one", {}, type="goes"),
        "CLAIMED": outbox.put("one", {}, type="flies"),
        "PENDING": outbox.put("slow", {}, type="waits"),
    }
    relay = relays(lease="60s")  # what flies stays its own, on a busy machine too
    for state, id in kinds.items():
        outbox.wait(id, state, **({"attempts": 1} if state == "PENDING" else {}))
    for state, id in kinds.items():
        assert listed(outlog, "--state", state) == [id], state
        assert listed(outlog, "--state", state, "--since", "1h") == [id]
        assert listed(outlog, "--state", state, "--until", "1h") == []
    assert listed(outlog, "--retrying") == [kinds["PENDING"]]
    assert len(listed(outlog)) == 4
    receiver.release()
    relay.kill()
    assert outlog.run("outbox", "--state", "LOST", check=False).returncode == 2
    refused(outlog, "outbox", "--after", "nonsense", code="invalid_field")


def test_s1_one_message_shows_every_field_and_every_attempt(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    receiver.rule(500, times=1, body=b"not today")
    id = outbox.put(
        "one",
        b"\x00\xff bytes",
        key="k-1",
        headers=json.dumps({"x-a": "b", "Authorization": "hush"}),
        metadata=json.dumps({"note": 1, "api_token": "hush"}),
        partition_key="p",
        content_type="application/octet-stream",
    )
    relays()
    outbox.wait(id, "PUBLISHED")
    one = show(outlog, id)
    assert [name for name in one if name in MESSAGE] == MESSAGE
    assert base64.b64decode(one["payload_base64"]) == b"\x00\xff bytes" and "payload" not in one
    assert one["headers"] == {"x-a": "b", "Authorization": "***"}
    assert one["metadata"] == {"note": 1, "api_token": "***"}
    assert (one["state"], one["attempts"], one["claimed_at"], one["claimed_by"]) == ("PUBLISHED", 2, None, None)
    assert one["published_at"] and one["idempotency_key"] == id
    assert [list(attempt) for attempt in one["attempts_log"]] == [ATTEMPT, ATTEMPT]
    first, second = one["attempts_log"]
    assert (first["attempt"], first["outcome"], first["status"]) == (1, "failed", 500)
    assert (second["attempt"], second["outcome"], second["status"], second["error"]) == (2, "ok", 200, None)
    assert list(outlog.run("outbox", "--json").json()[0]) == MESSAGE
    text = outlog.run("outbox", "show", id).stdout
    assert "hush" not in text and "status 500" in text
    refused(outlog, "outbox", "show", "019a7c3e-0000-7000-8000-000000000001", code="not_found")


def test_r4_a_success_is_kept_with_its_answer_where_it_is_asked_for(store, outlog, outbox, receiver, relays):
    """Webhooks keep every attempt; `keep: failures` only what went wrong, and then the batch is the record."""
    outbox.destination("all", receiver)
    outbox.destination("few", receiver, keep="failures")
    receiver.rule(201, body=b"made", headers={"content-type": "text/plain"})
    kept, plain = outbox.put("all", {"n": 1}), outbox.put("few", {"n": 2})
    receiver.rule(503, destination="few", type="retried", attempt=1)
    retried = outbox.put("few", {"n": 3}, type="retried")
    relays("a")
    for id in (kept, plain, retried):
        outbox.wait(id, "PUBLISHED")
    (row,) = outbox.attempts(kept)
    assert (row["attempt"], row["outcome"], row["status"], row["response"]) == (1, "ok", 201, "made")
    assert row["error"] is None and row["duration_ms"] >= 0
    assert outbox.attempts(plain) == []
    assert [(row["attempt"], row["outcome"], row["status"]) for row in outbox.attempts(retried)] == [(1, "failed", 503)]
    shown = show(outlog, kept)
    assert shown["result"] == {"status": 201, "response": "made"} and len(shown["attempts_log"]) == 1
    assert show(outlog, plain)["attempts_log"][0]["outcome"] == "ok"


def test_r4_where_no_row_was_kept_the_batch_is_the_attempt(store, outlog, outbox, relays):
    outbox.destination("one", type="null")
    id = outbox.put("one", {"n": 1})
    relays()
    outbox.wait(id, "PUBLISHED")
    one = show(outlog, id)
    assert one["payload"] == {"n": 1}
    (attempt,) = one["attempts_log"]
    assert (attempt["attempt"], attempt["outcome"]) == (1, "ok") and attempt["claimed_by"]


def test_r3_dead_letters_come_in_groups_first(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry={**FAST, "max_attempts": 1})
    outbox.destination("two", receiver, retry={**FAST, "max_attempts": 1})
    receiver.rule(500)
    ids = [outbox.put("one", {"n": n}) for n in range(3)] + [outbox.put("two", {"n": 9})]
    relays()
    for id in ids:
        outbox.wait(id, "DEAD")
    groups = outlog.run("dead", "--groups", "--json").json()
    assert [(group["destination"], group["count"]) for group in groups] == [("one", 3), ("two", 1)]
    assert [one["event_id"] for one in outlog.run("dead", "--json").json()] == ids[::-1]
    assert [one["event_id"] for one in outlog.run("dead", "--json", "--to", "two").json()] == ids[3:]
    text = outlog.run("dead").stdout
    assert text.index(" 3  one") < text.index(ids[0])


def test_m1_stats_and_destinations_count_by_destination_and_state(store, outlog, outbox, receiver, relays):
    dead_one(outbox, receiver, relays)
    outbox.destination("two", type="null")
    for n in range(5):
        outbox.put("two", {"n": n})
    outbox.put("two", {"n": 9}, due_us=3_600_000_000)
    stats = outlog.run("stats", "--json").json()[0]
    assert (stats["messages"]["pending"], stats["messages"]["dead"]) == (6, 1)
    by = {one["name"]: one for one in stats["destinations"]}
    assert by["two"]["pending"] == 6 and by["two"]["oldest_pending_ms"] >= 0 and not by["two"]["is_estimate"]
    assert by["one"]["dead"] == 1
    assert len(stats["lanes"]) == (8 if is_postgres(store) else 1)
    rows = {one["name"]: one for one in outlog.run("destinations", "--json").json()}
    assert list(rows["one"]) == [
        "name",
        "type",
        "paused",
        "breaker",
        "pending",
        "oldest_pending_ms",
        "last_error",
        "last_ok_at",
        "retry_at",
    ]
    assert rows["two"]["pending"] == 6 and "500" in rows["one"]["last_error"]
    assert "relays" in outlog.run("stats").stdout


def test_m1_a_destinations_last_success_is_known_to_whoever_asks(store, outlog, outbox, receiver, serve):
    """It outlives the relay that saw it, is the same by every interface, and goes with the destination."""
    outbox.destination("one", receiver, retry={**FAST, "max_attempts": 1})
    outbox.destination("two", type="null")

    def last_ok():
        return {one["name"]: one["last_ok_at"] for one in outlog.run("destinations", "--json").json()}

    assert last_ok() == {"one": None, "two": None}
    receiver.rule(500, destination="one")
    outbox.put("one", {"n": 1})
    second = outbox.put("two", {"n": 1})
    outlog.run("relay", "--until-idle", "--quiet")  # too short for a beat of its own
    first = last_ok()
    assert first["one"] is None and first["two"] >= show(outlog, second)["created_at"]
    rows = {line.split()[0]: line for line in outlog.run("destinations").lines()}
    assert "last success" in rows["destination"] and " s ago" in rows["two"] and " ago" not in rows["one"]
    receiver.rule(200, destination="one")  # the newest rule decides
    outbox.put("one", {"n": 2})
    outlog.run("relay", "--until-idle", "--quiet")
    then = last_ok()
    assert then["one"] > then["two"] == first["two"]
    server = serve("--no-relay")
    for path in ("/v1/destinations", "/v1/stats"):
        assert {one["name"]: one["last_ok_at"] for one in server.get(path).json["destinations"]} == then
    assert server.delete("/v1/destinations/two").status == 204
    serve()  # with a relay, which tidies up
    wait_for(
        lambda: [row["destination"] for row in outbox.run("select destination from {}successes")] == ["one"], "it to go"
    )


def test_m1_a_long_backlog_is_projected_and_says_so(store, outlog, outbox):
    outbox.destination("two", type="null")
    total = 20000 if is_postgres(store) else 2500
    series = (
        f"select n from generate_series(1, {total}) n"
        if is_postgres(store)
        else f"with recursive s(n) as (select 1 union all select n + 1 from s where n < {total}) select n from s"
    )
    outbox.run(
        "insert into {}outbox (destination, event_type, payload) "
        f"select case when n % 4 = 0 then 'one' else 'two' end, 't', '{{}}' from ({series}) x"
    )
    stats = outlog.run("stats", "--json").json()[0]
    assert stats["messages"]["is_estimate"] and stats["messages"]["pending"] == pytest.approx(total, rel=0.01)
    assert {one["name"]: one["pending"] for one in stats["destinations"]}["one"] == pytest.approx(total / 4, rel=0.1)


def test_m1_dead_ones_without_end_are_counted_to_a_bound_and_it_is_said(store, outlog, outbox):
    outbox.destination("two", type="null")
    series = (
        "select n from generate_series(1, 20001) n"
        if is_postgres(store)
        else "with recursive s(n) as (select 1 union all select n + 1 from s where n < 20001) select n from s"
    )
    outbox.run(
        "insert into {}outbox (destination, event_type, payload) " f"select 'two', 't', '{{}}' from ({series}) x"
    )
    dead = (
        "insert into {}parked (lane, seq, destination, state, attempts, available_at, updated_at, last_error) "
        f"select o.lane, o.seq, o.destination, 'DEAD', 1, {outbox.now()}, {outbox.now()}, 'gone' from {{}}outbox o "
        "where not exists (select 1 from {}parked p where p.lane = o.lane and p.seq = o.seq) order by o.seq limit "
    )
    outbox.run(dead + "19999")
    stats = outlog.run("stats", "--json").json()[0]
    assert (stats["messages"]["dead"], stats["messages"]["is_estimate"]) == (19999, False)
    outbox.run(dead + "2")
    stats = outlog.run("stats", "--json").json()[0]
    assert (stats["messages"]["dead"], stats["messages"]["is_estimate"]) == (20000, True)
    assert outlog.run("destinations", "--json").json()[0]["last_error"] == "gone"


# --- requeue ---


def sent(outbox, id):
    """How often it may have left: a busy relay hands back a claim whose lease is nearly over."""
    row = outbox.parked(id)
    return row["attempts"] - row["unsent"]


def test_r3_requeue_of_a_dead_one_starts_a_new_budget_and_keeps_the_history(store, outlog, outbox, receiver, relays):
    id = dead_one(outbox, receiver, relays)
    generation = outbox.lane(outbox.lane_for(id))["parked_gen"]
    said = outlog.run("requeue", id, "--actor", "user:ann", "--json").json()
    assert said == [{"requeued": 1, "skipped": 0, "dry_run": False, "event_ids": [id]}]
    row, parked = outbox.state(id), outbox.parked(id)
    assert (row["state"], row["attempts"], row["last_error"], row["published_at"]) == ("PENDING", 2, None, None)
    assert (parked["budget_from"], bool(parked["held"]), bool(parked["is_replay"])) == (2, False, False)
    assert outbox.lane(outbox.lane_for(id))["parked_gen"] == generation + 1, "the owner must hear of it"
    (event,) = audit(outlog, id)
    assert (event["event_type"], event["org_id"]) == ("outlog.message.requeued", None)
    assert (event["actor_type"], event["actor_id"]) == ("user", "ann")
    assert (event["payload"]["from"], event["payload"]["attempts"]) == ("DEAD", 2)
    receiver.rule(500)
    relays("again")
    outbox.wait(id, "DEAD")
    assert sent(outbox, id) == 4
    attempts = [one["attempt"] for one in outbox.attempts(id) if one["outcome"] != "released"]
    assert attempts[:2] == [1, 2] and len(attempts) == 4 and attempts == sorted(set(attempts))


def test_o3_replay_of_a_published_one_is_marked_and_its_time_is_kept_in_the_audit(
    store, outlog, outbox, receiver, relays
):
    id = published_one(outbox, receiver, relays)
    assert outbox.parked(id) is None, "it went the plain path"
    before = show(outlog, id)["published_at"]
    outlog.run("requeue", id)
    row = outbox.state(id)
    assert (row["state"], row["attempts"], row["published_at"]) == ("PENDING", 1, None)
    (event,) = audit(outlog, id)
    assert event["event_type"] == "outlog.message.replayed" and event["payload"]["published_at"] == before
    relays("again")
    row = outbox.wait(id, "PUBLISHED")
    first, second = receiver.of(id=id)
    assert (first.is_replay, second.is_replay) == (False, True)
    assert (first.idempotency_key, first.body) == (second.idempotency_key, second.body)
    assert sent(outbox, id) == 2 and show(outlog, id)["published_at"] > before
    outlog.run("requeue", id)  # and once more, now from its parked row
    wait_for(lambda: receiver.count(id=id) == 3, "the third")
    outbox.wait(id, "PUBLISHED")
    assert sent(outbox, id) == 3


def test_o7_only_dead_and_published_ones_are_requeued_all_or_none(store, outlog, outbox, receiver, relays):
    dead = dead_one(outbox, receiver, relays)
    waiting = outbox.put("nowhere", {"n": 1})
    before = snapshot(outbox)
    assert waiting in refused(outlog, "requeue", dead, waiting)
    refused(outlog, "requeue", dead, "019a7c3e-0000-7000-8000-000000000001", code="not_found")
    refused(outlog, "requeue", "x", code="invalid_field")
    assert snapshot(outbox) == before
    assert outlog.run("requeue", dead, dead, dead.upper(), "--json").json()[0]["requeued"] == 1, "each once"
    assert len(audit(outlog, dead)) == 1


def test_oo_107_requeue_by_filter_and_dry_run(store, outlog, outbox, receiver, relays):
    for name in ("one", "two"):
        outbox.destination(name, receiver, retry={**FAST, "max_attempts": 1})
    receiver.rule(500, type="dies")
    one = [outbox.put("one", {"n": n}, type="dies", key=f"k-{n % 5}") for n in range(20)]
    two = [outbox.put("two", {"n": n}, type="dies") for n in range(5)]
    good = [outbox.put("one", {"n": n}, type="goes") for n in range(4)]
    relay = relays()
    for id in one + two:
        outbox.wait(id, "DEAD")
    for id in good:
        outbox.wait(id, "PUBLISHED")
    stop(outbox, relay)
    before = snapshot(outbox)

    def count(*args):
        (said,) = outlog.run("requeue", "--dry-run", "--json", *args).json()
        assert said["event_ids"] == []
        return said["requeued"]

    assert count("--all") == 25 and count("--to", "two") == 5 and count("--type", "goes") == 0
    assert count("--since", "1h") == 25 and count("--until", "1h") == 0 and count("--to", "one", "--type", "dies") == 20
    assert count("--state", "PUBLISHED", "--to", "one") == 4 and count("--state", "PUBLISHED", "--to", "two") == 0
    assert snapshot(outbox) == before, "a dry run writes nothing"
    assert outlog.run("requeue", check=False).returncode == 2
    assert outlog.run("requeue", "--all", one[0], check=False).returncode == 2
    assert outlog.run("requeue", "--state", "PUBLISHED", "--all", check=False).returncode == 2
    assert outlog.run("requeue", "--state", "PENDING", "--all", check=False).returncode == 2
    receiver.rule(200)
    (said,) = outlog.run("requeue", "--to", "one", "--json").json()
    assert said["requeued"] == 20 and sorted(said["event_ids"]) == sorted(one)
    assert outlog.run("requeue", "--state", "PUBLISHED", "--type", "goes", "--json").json()[0]["requeued"] == 4
    seen = len(receiver.requests)
    relays("again")
    for id in one + good:
        outbox.wait(id, "PUBLISHED")
    assert all(outbox.state(id)["state"] == "DEAD" for id in two)
    for key in range(5):  # 102: the order within a key holds among what was requeued
        arrived = [request.id for request in receiver.requests[seen:] if request.key == f"k-{key}"]
        assert arrived == one[key::5]
    assert len({event["correlation_id"] for event in audit(outlog)}) <= 2


def test_r3_more_than_a_chunk_is_requeued_once_each(store, outlog, outbox):
    """Also when what is requeued dies again at once: nothing is requeued twice."""
    outbox.begin()
    ids = [outbox.put("one", "{}") for _ in range(1203)]
    outbox.commit()
    for start in range(0, len(ids), 400):
        outlog.run("kill", *ids[start : start + 400])
    (said,) = outlog.run("requeue", "--all", "--json").json()
    assert said["requeued"] == 1203 and len(set(said["event_ids"])) == 1203
    assert set(outbox.states().values()) == {"PENDING"}


def test_o_unknown_outcomes_of_at_most_once_need_a_flag(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, guarantee="at_most_once", retry=FAST)
    receiver.rule("reset", times=1)
    id = outbox.put("one", {"n": 1})
    relays()
    outbox.wait(id, "DEAD")
    assert "--even-if-unknown" in refused(outlog, "requeue", id)
    said = outlog.run("requeue", "--all", "--json")
    assert said.json()[0]["requeued"] == 0 and "left alone" in said.stderr
    assert audit(outlog, id) == []
    outlog.run("requeue", id, "--even-if-unknown")
    outbox.wait(id, "PUBLISHED")
    assert receiver.count(id=id) == 2


# --- kill ---


def test_oo_c7_kill_before_any_relay_came_and_the_relay_passes_it_by(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    ids = [outbox.put("one", {"n": n}, key="k") for n in range(5)]
    (killed,) = outlog.run("kill", ids[1], "--actor", "user:ann", "--json").json()
    assert (killed["state"], killed["attempts"], killed["last_error"]) == ("DEAD", 0, "killed by user:ann")
    assert list(killed) == MESSAGE
    (event,) = audit(outlog, ids[1])
    assert (event["event_type"], event["payload"]["from"]) == ("outlog.message.killed", "PENDING")
    relays()
    for id in ids[:1] + ids[2:]:
        outbox.wait(id, "PUBLISHED")
    assert receiver.first_ids() == ids[:1] + ids[2:]
    assert outbox.state(ids[1])["state"] == "DEAD"
    outlog.run("requeue", ids[1])
    outbox.wait(ids[1], "PUBLISHED", attempts=1)
    assert receiver.count(id=ids[1]) == 1


def test_oo_c7_kill_while_the_relay_runs_and_the_key_goes_on(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry={**FAST, "base": "1h", "max": "1h"})
    receiver.rule(503, times=1)
    first, second = outbox.put("one", {"n": 1}, key="k"), outbox.put("one", {"n": 2}, key="k")
    relays()
    outbox.wait(first, "PENDING", attempts=1)
    outlog.run("kill", first)
    row = outbox.wait(first, "DEAD")
    assert row["attempts"] == 1 and row["claimed_by"] is None
    outbox.wait(second, "PUBLISHED")
    assert receiver.count(id=first) == 1


def test_oo_c7_more_than_a_chunk_is_killed_by_filter_and_none_is_delivered(store, outlog, outbox, receiver, relays):
    """--dry-run counts the same; what was not meant goes on; a relay finds nothing of the rest."""
    for name in ("one", "two"):
        outbox.destination(name, receiver)
    outbox.begin()
    for n in range(1203):
        outbox.put("one", {"n": n}, key=str(n % 7), type="t" if n % 2 else "u")
    outbox.commit()
    kept = [outbox.put("two", {"n": n}, type="t") for n in range(3)]

    def count(*args):
        return outlog.run("kill", "--dry-run", "--json", *args).json()[0]["killed"]

    assert (count("--all"), count("--to", "one"), count("--to", "one", "--type", "t"), count("--retrying")) == (
        1206,
        1203,
        601,
        0,
    )
    assert count("--until", "1h") == 0 and count("--since", "1h", "--to", "two") == 3
    assert outlog.run("kill", check=False).returncode == 2
    assert outlog.run("kill", "--all", kept[0], check=False).returncode == 2
    assert outlog.run("kill", "--dry-run", kept[0], check=False).returncode == 2
    (said,) = outlog.run("kill", "--to", "one", "--actor", "user:ann", "--json").json()
    assert said["killed"] == 1203 and len(set(said["event_ids"])) == 1203
    assert outlog.run("kill", "--to", "one").stdout == "0 are killed\n"
    audit = outlog.run("events", "--infra", "--type", "outlog.message.killed", "--limit", "10000", "--json").json()
    assert sorted(one["aggregate_id"] for one in audit) == sorted(said["event_ids"])
    assert {one["actor_id"] for one in audit} == {"ann"}
    relays("a")
    for id in kept:
        outbox.wait(id, "PUBLISHED")
    assert receiver.count(destination="one") == 0


def test_rule_19_what_is_claimed_published_or_dead_is_not_killed(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    receiver.rule("hang", type="flies")
    in_flight, gone = outbox.put("one", {}, type="flies"), outbox.put("one", {}, type="goes")
    waiting = outbox.put("nowhere", {})
    relays()
    outbox.wait(in_flight, "CLAIMED")
    outbox.wait(gone, "PUBLISHED")
    assert "being sent" in refused(outlog, "kill", waiting, in_flight)
    refused(outlog, "kill", gone)
    assert outbox.state(waiting)["state"] == "PENDING", "all or none"
    outlog.run("kill", waiting)
    refused(outlog, "kill", waiting)
    receiver.release()
    outbox.wait(in_flight, "PUBLISHED")


# --- held keys ---


def test_rule_17_release_lets_the_key_go_on_and_the_message_stays_dead(store, outlog, outbox, receiver, relays):
    first = dead_one(outbox, receiver, relays, key="k", on_dead="hold")
    second = outbox.put("one", {"n": 2}, key="k")
    other = outbox.put("one", {"n": 3}, key="other")
    relays("again")
    outbox.wait(other, "PUBLISHED")
    wait_for(lambda: outbox.parked(second), "the second to be parked behind the first")
    assert bool(outbox.state(first)["held"]) and outbox.state(second)["state"] == "PENDING"
    outlog.run("dead", "release", first)
    outbox.wait(second, "PUBLISHED")
    assert outbox.state(first)["state"] == "DEAD" and not outbox.state(first)["held"]
    assert audit(outlog, first)[-1]["event_type"] == "outlog.key.released"
    refused(outlog, "dead", "release", first)
    refused(outlog, "dead", "release", second)


def test_rule_18_requeue_of_a_held_one_goes_before_what_waits_behind_it(store, outlog, outbox, receiver, relays):
    first = dead_one(outbox, receiver, relays, key="k", on_dead="hold")
    later = [outbox.put("one", {"n": n}, key="k") for n in range(3)]
    relays("again")
    wait_for(lambda: outbox.parked(later[2]), "the others to be parked")
    receiver.requests.clear()
    outlog.run("requeue", first)
    outbox.wait(later[2], "PUBLISHED")
    assert receiver.ids() == [first] + later


# --- destinations ---


def test_l6_deliver_makes_what_waits_due_now(store, outlog, outbox, receiver, relays):
    for name in ("one", "two"):
        outbox.destination(name, receiver, retry={**FAST, "base": "1h", "max": "1h"})
    receiver.rule(503, times=2)
    ids = [outbox.put(name, {"n": 1}) for name in ("one", "two")]
    delayed = outbox.put("one", {"n": 2}, due_us=3_600_000_000)
    relays()
    for id in ids:
        outbox.wait(id, "PENDING", attempts=1)
    wait_for(lambda: outbox.parked(delayed), "the delayed one to be parked")
    assert outlog.run("destinations", "deliver", "one", "--json").json() == [{"hurried": 2}]
    outbox.wait(ids[0], "PUBLISHED", attempts=2)
    outbox.wait(delayed, "PUBLISHED", attempts=1)
    assert outbox.state(ids[1])["state"] == "PENDING"
    told = [event for event in audit(outlog) if event["event_type"] == "outlog.destination.delivered"]
    assert sum(event["payload"]["messages"] for event in told) == 2
    refused(outlog, "destinations", "deliver", "nowhere", code="not_found")


def test_x4_pause_and_resume_are_told_once(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    outlog.run("destinations", "pause", "one", "--actor", "user:ann")
    outlog.run("destinations", "pause", "one")
    assert outlog.run("destinations", "--json").json()[0]["paused"] is True
    id = outbox.put("one", {"n": 1})
    outbox.destination("two", type="null")
    relays()
    outbox.wait(outbox.put("two", {}), "PUBLISHED")
    assert outbox.state(id)["state"] == "PENDING" and receiver.count() == 0
    outlog.run("destinations", "resume", "one")
    outbox.wait(id, "PUBLISHED")
    assert [event["event_type"] for event in audit(outlog)] == [
        "outlog.destination.paused",
        "outlog.destination.resumed",
    ]
    refused(outlog, "destinations", "pause", "nowhere", code="not_found")


def test_d_test_sends_one_message_past_the_outbox(store, outlog, outbox, receiver):
    outbox.destination("one", receiver)
    (said,) = outlog.run("destinations", "test", "one", "--json").json()
    assert (said["outcome"], said["status"], said["error"]) == ("ok", 200, None)
    (request,) = receiver.requests
    assert request.type == "outlog.test" and json.loads(request.body) == {"test": True}
    receiver.rule(404)
    failed = outlog.run("destinations", "test", "one", "--data", '{"a":1}', "--json", check=False)
    assert failed.returncode == 1
    assert (failed.json()[0]["outcome"], failed.json()[0]["status"]) == ("failed", 404)
    assert json.loads(receiver.requests[1].body) == {"a": 1}
    assert outbox.run("select * from {}outbox") == [] == outbox.run("select * from {}attempts")


# --- effects ---


def request_effect(store, max_attempts):
    """An effect to `one`; its id and that of its message."""
    if is_postgres(store):
        return execute(
            connect(store),
            "select effect_id::text, event_id::text from outlog.request_effect(effect_type => 'API_CALL', "
            "destination => 'one', effect_spec => '{\"n\":1}', org_id => 'acme', "
            f"run_id => 'r-1', max_attempts => {max_attempts})",
        )[0]
    asked = {
        "effect_type": "API_CALL",
        "destination": "one",
        "effect_spec": {"n": 1},
        "org_id": "acme",
        "run_id": "r-1",
        "max_attempts": max_attempts,
    }
    interface = SqliteInterface(store)
    (text,) = interface.connection.execute("select outlog_request_effect(?)", (json.dumps(asked),)).fetchone()
    interface.close()
    return json.loads(text)["effect_id"], json.loads(text)["event_id"]


def effect_events(outlog, effect):
    return [
        event["event_type"]
        for event in outlog.run("events", "--org", "acme", "--aggregate", f"EFFECT/{effect}", "--json").json()
    ]


@pytest.fixture
def abandoned(request, outbox, receiver, relays):
    """Sends an effect, and ends the relay that has it: while it is in a batch (takeover), or as a straggler with
    a lease of its own (reap). Then another relay comes. (start(store, max_attempts) -> effect, message)"""
    how = request.param
    outbox.destination("ops", receiver)
    outbox.run("update {}destinations set is_alert = true where name = 'ops'")

    def start(store, max_attempts):
        receiver.rule("hang", destination="one", attempt=1)
        effect, message = request_effect(store, max_attempts)
        first = relays("a", patience="60s" if how == "takeover" else "10ms")
        wait_for(lambda: receiver.count(id=message) == 1, "the first attempt")
        if how == "reap":
            wait_for(lambda: outbox.parked(message), "the straggler")
        assert outbox.state(message)["state"] == "CLAIMED"
        first.kill()
        outbox.bury(first)
        relays("b")
        return effect, message

    return start


@pytest.mark.parametrize("abandoned", ["takeover", "reap"], indirect=True)
@pytest.mark.parametrize("max_attempts, guarantee", [(1, "at_least_once"), (5, "at_most_once")])
def test_r3_u5_what_dies_with_its_relay_is_reported(
    store, outlog, outbox, receiver, abandoned, max_attempts, guarantee
):
    """DEAD, as nobody knows the outcome: the relay that finds it writes its alert and its events."""
    outbox.destination("one", receiver, guarantee=guarantee)
    effect, message = abandoned(store, max_attempts)
    outbox.wait(message, "DEAD", attempts=1)
    wait_for(lambda: receiver.count(destination="ops"), "the alert")
    (alert,) = receiver.of(destination="ops")
    told = json.loads(alert.body)
    assert (told["event_id"], told["destination"], told["attempts"]) == (message, "one", 1)
    assert "outcome unknown" in told["last_error"] and alert.type == "outlog.dead_letter"
    assert effect_events(outlog, effect) == [
        "EFFECT_REQUESTED",
        "EFFECT_EXECUTING",
        "EFFECT_FAILED",
        "EFFECT_DEAD_LETTERED",
    ]
    assert outbox.one("select status from {}effects")["status"] == "FAILED"
    assert receiver.count(id=message) == 1


@pytest.mark.parametrize("abandoned", ["takeover", "reap"], indirect=True)
def test_u5_what_is_tried_again_after_its_relay_writes_its_events(store, outlog, outbox, receiver, abandoned):
    outbox.destination("one", receiver)
    effect, message = abandoned(store, 5)
    outbox.wait(message, "PUBLISHED", attempts=2)
    assert effect_events(outlog, effect) == [
        "EFFECT_REQUESTED",
        "EFFECT_EXECUTING",
        "EFFECT_FAILED",
        "EFFECT_RETRYING",
        "EFFECT_EXECUTING",
        "EFFECT_COMPLETED",
    ]
    assert outbox.one("select status from {}effects")["status"] == "COMPLETED"
    assert receiver.count(destination="ops") == 0


def test_u5_requeue_and_kill_of_an_effect_write_its_events(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry=FAST)
    receiver.rule(500)
    effect, message = request_effect(store, 1)
    relay = relays()
    outbox.wait(message, "DEAD")
    stop(outbox, relay)

    def events():
        return effect_events(outlog, effect)

    assert events() == ["EFFECT_REQUESTED", "EFFECT_EXECUTING", "EFFECT_FAILED", "EFFECT_DEAD_LETTERED"]
    outlog.run("requeue", message)
    assert events()[4:] == ["EFFECT_RETRYING"]
    assert outbox.one("select status from {}effects")["status"] == "PENDING"
    outlog.run("kill", message)
    assert events()[5:] == ["EFFECT_DEAD_LETTERED"]
    assert outbox.one("select status from {}effects")["status"] == "FAILED"


# --- beside running relays ---


def test_oo_106_operators_beside_relays_lose_nothing(store, outlog, outbox, receiver, relays):
    """Kills, requeues and replays at random moments while messages fail, retry and arrive."""
    outbox.destination("one", receiver, retry={**FAST, "max_attempts": 3}, timeout="2s")
    receiver.rule(500, probability=0.4)
    relays("a")
    relays("b")
    ids, stop_at = [], time.monotonic() + 6
    trouble = []

    def write():
        with outbox.session() as own:
            for n in itertools.count():
                if time.monotonic() > stop_at:
                    return
                ids.append(own.put("one", {"n": n}, key=f"k-{n % 7}" if n % 2 else None))
                time.sleep(0.005)

    def operate(seed):
        dice = random.Random(seed)
        while time.monotonic() < stop_at:
            if not ids:
                continue
            verb = dice.choice(["requeue", "kill"])
            said = outlog.run(verb, dice.choice(ids[-50:]), check=False)
            if said.returncode and "[illegal_transition]" not in said.stderr:
                trouble.append(repr(said))

    threads = [threading.Thread(target=write)] + [threading.Thread(target=operate, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble, trouble[0]
    receiver.rule(200)
    outbox.wait_drained(60)
    outlog.run("requeue", "--all")
    outbox.wait_drained(60)
    assert set(outbox.states().values()) == {"PUBLISHED"} and len(outbox.states()) == len(ids)
    assert set(receiver.ids()) == set(ids), "everything arrived, at least in the end"
    for row in outbox.run("select event_id, attempts from {}outbox_state"):
        kept = [one["attempt"] for one in outbox.attempts(row["event_id"])]
        assert kept == sorted(set(kept)) and (not kept or kept[-1] <= row["attempts"])
    told = [event["event_type"] for event in audit(outlog)]
    assert {"outlog.message.killed", "outlog.message.requeued", "outlog.message.replayed"} >= set(told)
