"""Any plug pulled while relays work (L1, L3, L4): killed, frozen, cut off, stopped.

Writers, receivers and the store are asked what they saw, and test/checker judges: nothing lost,
nothing from a rollback delivered, first deliveries in order, attempts counted, states legal, and a
second delivery only where a crash, a cut or an unknown answer explains it.

`make torture` runs the random kills long: 500 instead of 30.
"""
import contextlib
import itertools
import json
import os
import random
import signal
import time
import uuid

import pytest

from lib.cli import Outlog
from lib.outbox import Load, Outbox, Relays, Writer, keys_in_lane, sha256, wait_for
from lib.postgres import Postgres
from lib.proxy import Proxy
from lib.receiver import Receiver

POINTS = ["claim.sent", "mark.sent", "mark.done", "publish.sent", "lease.renew"]
IS_LONG = "OUTLOG_TORTURE_ROWS" in os.environ
KILLS = 250 if IS_LONG else 15  # a store


def fill(writer, destination, count, keys=7, start=0):
    """Messages of a few keys and of none, some delayed, each tenth rolled back; the ids committed."""
    ids = []
    for n in range(start, start + count):
        key = None if n % 5 == 4 else f"k-{n % keys}"
        more = {"due_us": 30_000} if n % 10 == 9 else {}
        id = writer.send(destination, {"n": n}, key=key, rollback=n % 10 == 3, **more)
        if n % 10 != 3:
            ids.append(id)
    return ids


# kill -9 at each point


@pytest.mark.parametrize("publisher", ["webhook", "null"])
@pytest.mark.parametrize("point", POINTS)
def test_l4_killed_at_a_point(store, outbox, receiver, relays, history, point, publisher):
    if publisher == "webhook":
        outbox.destination("d", receiver)
        receiver.rule(500, attempt=1, probability=0.2)
    else:
        outbox.destination("d", type="null")
    writer = Writer(outbox, history)
    fill(writer, "d", 40)
    first = relays("a", fault=f"{point}:{1 if point == 'lease.renew' else 2}:kill")
    deadline = time.monotonic() + 60
    n = 40
    while first.is_running():  # each point is passed sooner or later
        assert time.monotonic() < deadline, f"{point} was never reached"
        if point != "lease.renew":  # which a relay does only when nothing else does it
            fill(writer, "d", 2, start=n)
            n += 2
        time.sleep(0.02)
    assert first.wait() == -signal.SIGKILL
    history.fault("kill", point=point)
    fill(writer, "d", 10, start=n)
    outbox.bury(first)
    relays("b")
    outbox.wait_drained()
    counts = history.check(outbox, [receiver], observed=["d"] if publisher == "webhook" else [])
    assert counts["states"] == {"PUBLISHED": counts["appended"]["ok"]}
    if publisher == "webhook":
        assert counts["delivered"] == counts["appended"]["ok"]


def said_lines(relay):
    """What the stdout publisher wrote, as a receiver's lines; a torn last line was not delivered."""
    for line in relay.said().splitlines():
        if line.startswith('{"event_id"') and line.endswith("}"):
            with contextlib.suppress(json.JSONDecodeError):
                one = json.loads(line)
                yield {
                    "id": one["event_id"],
                    "attempt": one["attempt"],
                    "destination": one["destination"],
                    "body": sha256(line.split(',"payload":', 1)[1][:-1]),
                }


@pytest.mark.parametrize("publisher", ["stdout", "exec"])
def test_l4_killed_with_other_publishers(store, outbox, relays, history, publisher, tmp_path):
    seen = tmp_path / "seen"
    seen.touch()
    if publisher == "exec":
        script = f'b=$(sha256sum | cut -d" " -f1); echo "$OUTLOG_EVENT_ID $OUTLOG_ATTEMPT $b" >>{seen}'
        outbox.destination("d", type="exec", command=["/bin/sh", "-c", script])
    else:
        outbox.destination("d", type="stdout")
    writer = Writer(outbox, history)
    fill(writer, "d", 20)
    first = relays("a", fault="claim.sent:2:kill")
    sent = itertools.count(20, 10)

    def is_over():  # lanes may move together: then there is something to claim again
        return not first.is_running() or fill(writer, "d", 10, start=next(sent)) == []

    wait_for(is_over, "the kill", pause=0.2)
    assert first.wait() == -signal.SIGKILL
    history.fault("kill")
    outbox.bury(first)
    relays("b")
    outbox.wait_drained()
    if publisher == "exec":
        arrivals = [dict(zip(("id", "attempt", "body"), line.split())) for line in seen.read_text().splitlines()]
    else:
        arrivals = [one for relay in relays.all for one in said_lines(relay)]
    for n, one in enumerate(arrivals):
        history.note(
            **{
                "from": "receiver",
                "n": n,
                "answer": 200,
                "ended": None,
                "replay": False,
                "destination": "d",
                **one,
                "attempt": int(one["attempt"]),
            }
        )
    counts = history.check(outbox, observed=["d"])
    assert counts["delivered"] == counts["appended"]["ok"]


@pytest.mark.torture
def test_l4_killed_at_any_instant_under_load(store, outbox, receiver, relays, history):
    """Two relays at work, one of them killed again and again; the receiver fails now and then."""
    chance = random.Random(uuid.uuid4().int)
    for name in ("d-0", "d-1", "d-2"):
        outbox.destination(name, receiver, concurrency=16)
    receiver.rule("slow", seconds=0.02, probability=0.05)
    receiver.rule(503, probability=0.02)
    receiver.rule("reset", probability=0.01)
    outbox.destination("n", type="null")
    load = [Load(outbox, history, ["d-0", "d-1", "d-2", "n"], name=f"w-{n}", pause=0.006) for n in range(2)]
    running = [relays(f"r-{n}") for n in range(2)]
    wait_for(lambda: receiver.count() > 20, "the first deliveries")
    for n in range(KILLS):
        time.sleep(chance.uniform(0.02, 0.35))  # the instant is what varies; nothing depends on it
        victim = running.pop(chance.randrange(2))
        victim.kill()
        history.fault("kill")
        outbox.bury(victim)
        running.append(relays(f"r-{n + 2}"))
    for one in load:
        one.end()
    outbox.wait_drained(60)
    counts = history.check(outbox, [receiver], observed=["d-0", "d-1", "d-2"])
    assert counts["faults"] == KILLS and counts["appended"]["rolled_back"] > 0
    print(
        counts,
        [
            (row["destination"], row["attempts"], row["last_error"])
            for row in outbox.run("select destination, attempts, last_error from {}outbox_state where state = 'DEAD'")
        ],
    )


# SIGSTOP


@pytest.mark.parametrize("point", ["publish.sent", "mark.done"])
def test_l1_frozen_past_its_lease_under_load(request, store, outbox, receiver, relays, history, point):
    """It wakes to find its lanes gone: it records nothing and sends nothing that was claimed before."""
    outbox.destination("d", receiver)
    load = Load(outbox, history, ["d"], pause=0.01)
    wait_for(lambda: load.sent > 10, "some messages")
    first = relays("a", fault=f"{point}:5:stop")
    first.wait_frozen()
    history.fault("stop")
    frozen = {row["owner"] for row in outbox.run("select owner from {}lanes where owner_name = 'a'")}
    second = relays("b")
    wait_for(lambda: not outbox.run("select 1 from {}lanes where owner_name = 'a'"), "the takeover")
    load.end()
    outbox.wait_drained()
    requests, batches = receiver.count(), outbox.run("select * from {}batches order by lane, to_seq, from_seq")
    parked = outbox.run("select * from {}parked order by lane, seq")
    second.term()  # so that nobody else can have done what happens now
    assert second.wait() == 0
    first.thaw()
    wait_for(lambda: outbox.run("select 1 from {}lanes where owner_name = 'a'"), "it to take lanes again")
    assert receiver.count() == requests, receiver.requests[requests:]
    assert outbox.run("select * from {}batches order by lane, to_seq, from_seq") == batches
    assert outbox.run("select * from {}parked order by lane, seq") == parked
    assert frozen
    history.check(outbox, [receiver])
    last = outbox.put("d", {"n": "last"}, key="k")
    outbox.wait(last, "PUBLISHED")


# Relays come and go


def test_l1_two_relays_with_one_name(store, outbox, receiver, relays, history):
    outbox.destination("d", receiver)
    load = Load(outbox, history, ["d"], pause=0.005)
    both = [relays("same", threads=1), relays("same", threads=1)]
    wait_for(lambda: receiver.count() > 150, "deliveries")
    if not outbox.is_sqlite:
        wait_for(
            lambda: len({row["owner"] for row in outbox.run("select owner from {}lanes")}) >= 2, "both to own lanes"
        )
    load.end()
    outbox.wait_drained()
    counts = history.check(outbox, [receiver])
    assert counts["duplicates"] == 0 and all(one.is_running() for one in both)


def test_l1_lanes_follow_within_one_lease(postgres_store, outbox, receiver, relays, history):
    outbox.destination("d", receiver)
    stays, goes = relays("stays"), relays("goes")

    def owned(name):
        return outbox.one("select count(*) as n from {}lanes where owner_name = %s", name)["n"]

    wait_for(lambda: (owned("stays"), owned("goes")) == (4, 4), "fair shares")
    goes.kill()
    died = time.monotonic()
    history.fault("kill")
    wait_for(lambda: owned("stays") == 8, "the takeover")
    assert time.monotonic() - died < 2 + 1 + 7  # a lease, a beat, and a busy machine
    assert stays.is_running()
    writer = Writer(outbox, history)
    fill(writer, "d", 30)
    outbox.wait_drained()
    history.check(outbox, [receiver])


def test_l1_relays_come_and_go_every_second(postgres_store, outbox, receiver, relays, history):
    outbox.destination("d", receiver)
    load = Load(outbox, history, ["d"], pause=0.01, keys=40)
    running = [relays("r-0"), relays("r-1")]
    slowest = 0
    for n in range(2, 9):
        started = time.monotonic()
        wait_for(lambda: time.monotonic() - started > 1, "a second", pause=0.05)
        victim = running.pop(0)
        if n % 2:
            victim.kill()
            history.fault("kill")
        else:
            victim.term()
        running.append(relays(f"r-{n}"))
    load.end()
    outbox.wait_drained()
    counts = history.check(outbox, [receiver])
    stored = {line["id"]: line["t"] for line in history.written if line.get("what") == "ok"}
    arrived = {}
    for one in receiver.requests:
        arrived.setdefault(one.id, one.at)
    slowest = max(arrived[id] - at for id, at in stored.items())
    assert slowest < 2 * 2 + 1 + 7, f"a message waited {slowest:.1f} s"  # two deaths in a row, on a busy machine
    assert counts["delivered"] == counts["appended"]["ok"]


# SIGTERM


def test_l3_sigterm_finishes_what_is_on_the_wire(store, outbox, receiver, relays, history):
    """Exit 0, nothing twice, and the next relay goes on at once: it waits for no lease."""
    outbox.destination("d", receiver, concurrency=8)
    receiver.rule("slow", seconds=0.3)  # all of them would take seven seconds
    writer = Writer(outbox, history)
    ids = fill(writer, "d", 200, keys=20)
    first = relays("a", lease="60s", patience="30s")
    wait_for(lambda: receiver.count() > 15, "some deliveries")
    first.term()
    assert first.wait() == 0, first.said()
    assert outbox.run("select * from {}lanes where owner is not null") == []
    assert "CLAIMED" not in outbox.states().values()
    left = sum(state == "PENDING" for state in outbox.states().values())
    assert left > 0, "it was too fast to prove anything"
    receiver.forget()
    relays("b", lease="60s")
    outbox.wait_drained()
    counts = history.check(outbox, [receiver])
    assert counts["duplicates"] == 0 and counts["arrivals"] == counts["delivered"] == len(ids)


def test_l3_sigterm_waits_for_a_slow_answer(store, outbox, receiver, relays, history):
    """Two of them: the one that comes first is recorded, and it still waits for the other."""
    with Receiver() as other:
        outbox.destination("d", receiver)
        outbox.destination("e", other)
        receiver.rule("hang")
        other.rule("hang")
        writer = Writer(outbox, history)
        id = writer.send("d", {"n": 1}, key="k")
        later = writer.send("d", {"n": 2}, key="k")
        sooner = writer.send("e", {"n": 3})
        first = relays("a", lease="30s")
        wait_for(lambda: outbox.parked(id) and outbox.parked(sooner), "two stragglers")
        first.term()
        wait_for(lambda: not first.has_signals(), "it to take the signal")
        other.release()
        outbox.wait(sooner, "PUBLISHED")
        assert first.is_running()
        receiver.release()
        assert first.wait() == 0
        assert outbox.state(id)["state"] == "PUBLISHED" and outbox.state(later)["state"] == "PENDING"
        relays("b", lease="30s")
        outbox.wait_drained()
        assert receiver.ids() == [id, later] and other.ids() == [sooner]
        history.check(outbox, [receiver, other])


def test_l3_sigterm_hands_back_what_the_rate_held_back(store, outbox, receiver, relays):
    outbox.destination("d", receiver, rate="1/s")
    for n in range(60):  # it would not wait a minute for their turns
        outbox.put("d", {"n": n}, due_us=200_000)
    first = relays("a", lease="30s")
    wait_for(lambda: receiver.count() >= 1, "the first delivery")
    first.term()
    assert first.wait() == 0
    assert "CLAIMED" not in outbox.states().values()
    assert outbox.run("select * from {}lanes where owner is not null") == []


def test_l3_a_second_sigterm_ends_at_once(store, outbox, receiver, relays, history):
    outbox.destination("d", receiver, timeout="60s")
    receiver.rule("hang", times=1)
    writer = Writer(outbox, history)
    id = writer.send("d", {"n": 1}, key="k")
    first = relays("a")
    wait_for(lambda: receiver.count() == 1, "the request")
    first.term()
    wait_for(lambda: outbox.parked(id) or outbox.state(id)["state"] != "CLAIMED", "the drain to begin")
    first.term()
    history.fault("term")
    first.wait()  # long before its timeout
    assert outbox.state(id)["state"] == "CLAIMED"  # nobody knows: as after a crash
    outbox.bury(first)
    outbox.run(f"update {{}}parked set lease_until = {outbox.now(-1)} where state = 'CLAIMED'")
    relays("b")
    outbox.wait_drained()
    receiver.release()
    wait_for(lambda: receiver.requests[0].answer, "the late answer")
    history.check(outbox, [receiver])


# PostgreSQL goes away


@pytest.fixture(scope="module")
def server():
    """A server of this file's own, to restart."""
    with Postgres() as server:
        yield server


@pytest.fixture
def own_store(server, tmp_path):
    name = f"r{uuid.uuid4().hex[:8]}"
    url = server.create(name)
    Outlog(url).run("init")
    yield url
    server.drop(name)


@pytest.fixture
def away(own_store, tmp_path):
    """(outbox, relays) on the file's own server; the outbox connects again after a restart."""
    relays = Relays(own_store, tmp_path)
    yield Outbox(own_store), relays
    relays.close()


def test_l4_postgres_is_restarted_under_load(server, own_store, away, receiver, history):
    outbox, relays = away
    outbox.destination("d", receiver)
    load = [Load(outbox, history, ["d"], pause=0.004, name=f"w-{n}") for n in range(2)]
    relays("a")
    relays("b")
    for _ in range(3):
        before = receiver.count()
        wait_for(lambda: receiver.count() > before + 60, "deliveries")
        history.fault("restart")
        server.restart("immediate")
        history.fault("restarted")
    before = receiver.count()
    wait_for(lambda: receiver.count() > before + 60, "deliveries after the restarts")
    for one in load:
        one.end()
    outbox = Outbox(own_store)
    outbox.wait_drained()
    history.check(outbox, [receiver])
    assert all(relay.is_running() for relay in relays.all)


def test_l4_backends_are_terminated_under_load(server, own_store, away, receiver, history):
    outbox, relays = away
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1, probability=0.1)
    load = Load(outbox, history, ["d"], pause=0.003)
    relays("a")
    relays("b")
    wait_for(lambda: receiver.count() > 20, "the first deliveries")
    deadline, killed = time.monotonic() + 4, 0
    with Outbox(own_store) as killer:
        while time.monotonic() < deadline or killed <= 10:
            assert time.monotonic() < deadline + 60, killed
            killed += len(
                killer.run(
                    "select pg_terminate_backend(pid) from pg_stat_activity where "
                    "application_name like 'outlog%%' and datname = current_database()"
                )
            )
            history.fault("terminate")
            time.sleep(0.2)
    load.end()
    outbox = Outbox(own_store)
    outbox.wait_drained()
    history.check(outbox, [receiver])
    assert all(relay.is_running() for relay in relays.all)


PLAIN = r"update outlog\.lanes\s+set head"  # the record of a batch that went well: one statement


@pytest.mark.parametrize("where", ["request", "reply", "down"])
@pytest.mark.parametrize("statement", ["^commit$", PLAIN])
def test_l4_the_answer_of_a_commit_is_lost(
    postgres, postgres_store, outbox, receiver, relays, history, statement, where
):
    """Rule 6: the lane's row decides whether its turn was stored; if it cannot be read, as after a crash."""
    outbox.destination("d", receiver, retry={"base": "20ms", "jitter": 0, "max_attempts": 90})
    receiver.rule(500, attempt=1, probability=0.5 if statement == "^commit$" else 0)
    load = Load(outbox, history, ["d"], pause=0.01, keys=4)
    try:
        with Proxy(postgres.port) as proxy:
            relay = relays("a", store=proxy.url(postgres_store))
            wait_for(lambda: receiver.count() > 20, "the first deliveries")
            proxy.lose_answers(statement, where, receiver, history)
            load.end()
            outbox.wait_drained()
            history.check(outbox, [receiver])
            assert relay.is_running()
    finally:
        load.is_over.set()


def test_l1_what_was_claimed_is_sent_though_the_connection_is_lost_after_the_commit(
    postgres, postgres_store, outbox, receiver, relays
):
    """A turn that also took back a claim whose lease was over reads the lane again. If that read is lost, what the turn
    has claimed is claimed all the same: to forget it would mean to record it as published."""
    outbox.destination("d", receiver, retry={"base": "1h", "max": "1h", "jitter": 0})
    outbox.destination("e", receiver)
    keys = keys_in_lane(0, ["d", "e"])
    receiver.rule(500, destination="d", times=1)
    with Proxy(postgres.port) as proxy:
        relay = relays("a", store=proxy.url(postgres_store), threads=1, lease="30s")
        failed = outbox.put("d", {"n": 1}, key=next(keys)[1])
        outbox.wait(failed, "PENDING", attempts=1)  # it is on no wire: what we have there ourselves is not taken back
        relay.freeze()
        with outbox.session() as own:  # a claim of another run whose lease is over, and something new, in one look
            own.begin()
            own.run(
                "update {}parked set state = 'CLAIMED', attempts = 2, claimed_by = 'gone', "
                f"claimed_at = {outbox.now(-2000)}, lease_until = {outbox.now(-1000)} where state = 'PENDING'"
            )
            fresh = own.put("e", {"n": 2}, key=next(keys)[1])
            own.commit()
        proxy.cut_at(r"select epoch, claim_no, parked_gen", "request")
        relay.thaw()
        assert proxy.happened.wait(30), "the lane to be read again"
        wait_for(lambda: receiver.count(id=fresh) == 1, "it to arrive")
        outbox.wait(fresh, "PUBLISHED")
        outbox.wait(failed, "PUBLISHED", attempts=3)


def test_l4_a_frozen_server_of_one_relay_does_not_stop_the_other(
    postgres, postgres_store, outbox, receiver, relays, history
):
    """The relay's connection is cut off without a word (held): the other takes its lanes."""
    outbox.destination("d", receiver)
    load = Load(outbox, history, ["d"], pause=0.01, keys=20)
    with Proxy(postgres.port) as proxy:
        relays("a", store=proxy.url(postgres_store), threads=1)
        wait_for(lambda: receiver.count() > 20, "the first deliveries")
        proxy.cut_at(PLAIN, "away")
        history.fault("cut")
        assert proxy.happened.wait(30)
        relays("b")
        wait_for(lambda: not outbox.run("select 1 from {}lanes where owner_name = 'a'"), "the takeover")
        proxy.release()  # the statement of the old owner arrives now: fenced, or too late
        history.fault("released")
        proxy.down(False)
        before = receiver.count()
        wait_for(lambda: receiver.count() > before + 50, "deliveries")
        load.end()
        outbox.wait_drained()
        history.check(outbox, [receiver])


def test_l4_lanes_of_one_key_after_everything(store, outbox, receiver, relays, history):
    """One key, one lane, and every plug in a row: freeze, kill, stop, failures."""
    outbox.destination("d", receiver)
    key = next(keys_in_lane(0, ["d"]))[1]
    writer = Writer(outbox, history)
    receiver.rule(500, probability=0.1)
    receiver.rule("reset", probability=0.05)
    for n, point in enumerate(["publish.sent:3:kill", "mark.sent:2:kill", "claim.sent:3:kill", None]):
        for m in range(10):
            writer.send("d", {"n": f"{n}-{m}"}, key=key)
        relay = relays(f"r-{n}", fault=point)
        if point:
            wait_for(lambda: not relay.is_running(), f"{point}; {relay.said()}")
            history.fault("kill")
            outbox.bury(relay)
    outbox.wait_drained()
    counts = history.check(outbox, [receiver])
    assert counts["delivered"] == 40
    relays.all[-1].term()
    assert relays.all[-1].wait() == 0
