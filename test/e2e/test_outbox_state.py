"""What a message is at any moment (O1-O7), whoever asks and whatever was done to it.

A model of S1's state machine, random operations beside it, and every illegal wish as plain SQL. The
rules of message keys, the waits of retries and the bytes of payloads are here too.
"""
import contextlib
import datetime
import itertools
import json
import random
import re
import sqlite3
import time
import uuid

import psycopg2
import pytest

from lib.outbox import Writer, keys_in_lane, lane_of, wait_for
from lib.secrets import SECRETS

REFUSED = (psycopg2.Error, sqlite3.Error)
IMMUTABLE = (
    "event_id",
    "event_type",
    "ordering_key",
    "partition_key",
    "payload",
    "headers",
    "created_at",
    "destination",
    "org_id",
    "idempotency_key",
    "correlation_id",
    "lane",
    "seq",
    "max_attempts",
)
LEGAL = {
    ("PENDING", "CLAIMED"),
    ("CLAIMED", "PENDING"),
    ("CLAIMED", "PUBLISHED"),
    ("CLAIMED", "DEAD"),
    ("PUBLISHED", "PENDING"),
    ("DEAD", "PENDING"),
}
STATES = ("PENDING", "CLAIMED", "PUBLISHED", "DEAD")


def moment(value):
    """A time of either store as a number of seconds."""
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
    return value.timestamp() if value is not None else None


def run_settled(outbox, relays, name):
    """A relay that works until nothing moves any more; some messages may have to wait for a person."""
    relay, seen = relays(name), [None]

    def is_still():
        before, seen[0] = seen[0], outbox.run("select * from {}outbox_state order by lane, seq")
        return seen[0] == before and not any(row["state"] == "CLAIMED" for row in seen[0])

    wait_for(lambda: outbox.run("select 1 from {}relays where name = %s", name), "the relay")
    wait_for(is_still, "nothing to move any more", pause=0.08)
    relay.term()
    assert relay.wait() == 0, relay.said()


def run_idle(relays, name="idle", **more):
    """A relay that ends when nothing is left to send now."""
    relay = relays(name, until_idle=True, **more)
    code = relay.wait()
    assert code == 0, relay.said()
    return relay


# The machine


def reachable():
    """From where to where a message can come by legal moves alone, operators apart."""
    moves = {pair for pair in LEGAL if pair[0] in ("PENDING", "CLAIMED")}
    ways = {(one, one) for one in STATES}
    while True:
        more = {(a, d) for (a, b), (c, d) in itertools.product(ways, moves) if b == c} - ways
        if not more:
            return ways
        ways |= more


REACHABLE = reachable()


class Watch:
    """Looks at every message after every step: are its fields right, was its way legal?"""

    def __init__(self, outbox):
        self.outbox, self.last, self.asked = outbox, {}, set()

    def look(self):
        rows = {str(row["event_id"]): row for row in self.outbox.run("select * from {}outbox_state")}
        assert set(self.last) <= set(rows), "a message is gone"
        for id, row in rows.items():
            self.check_fields(row)
            if id in self.last:
                self.check_move(id, self.last[id], row)
        self.last, self.asked = rows, set()
        return rows

    def check_fields(self, row):
        state = row["state"]
        assert state in STATES
        assert (row["claimed_at"] is not None) == (state == "CLAIMED"), row  # O3
        assert (row["claimed_by"] is not None) == (state == "CLAIMED"), row
        assert (row["published_at"] is not None) == (state == "PUBLISHED"), row
        assert row["event_id"] and row["event_type"] and row["created_at"], row  # O1
        assert row["correlation_id"] and row["idempotency_key"], row  # O8, I2
        assert row["attempts"] >= (1 if state in ("CLAIMED", "PUBLISHED") else 0), row  # O4
        if state == "DEAD":
            assert row["last_error"], row
        assert not row["held"] or state == "DEAD", row

    def check_move(self, id, before, now):
        for name in IMMUTABLE:  # O2
            assert before[name] == now[name], (name, before, now)
        assert now["attempts"] >= before["attempts"], (before, now)  # O4
        way = before["state"], now["state"]
        if id in self.asked:  # by an operator
            return
        assert way in REACHABLE, (way, before, now)  # O7
        if way == ("PUBLISHED", "PUBLISHED"):
            assert before["published_at"] == now["published_at"]
            assert before["attempts"] == now["attempts"]
        if way[0] == "PENDING" and way[1] != "PENDING":
            assert now["attempts"] > before["attempts"], (before, now)
        if now["state"] == "CLAIMED" and before["available_at"]:  # O5
            assert moment(now["claimed_at"]) >= moment(before["available_at"]), (before, now)


class Machine:
    """Random operations, and what must come of them."""

    def __init__(self, outbox, receiver, relays, history, seed):
        self.outbox, self.receiver, self.relays, self.history = outbox, receiver, relays, history
        self.chance = random.Random(seed)
        self.watch, self.writer = Watch(outbox), Writer(outbox, history)
        self.relay, self.runs, self.killed = None, 0, set()
        for name, on_dead in (("skip", "skip"), ("hold", "hold")):
            outbox.destination(
                name, receiver, on_dead=on_dead, retry={"base": "5ms", "max": "5ms", "jitter": 0, "max_attempts": 3}
            )
        receiver.rule(500, probability=0.25)
        receiver.rule(404, probability=0.08)
        receiver.rule("reset", probability=0.08)
        self.keys = [f"k-{n}" for n in range(4)] + [None]

    def step(self):
        operations = (
            (self.enqueue,) * 6
            + (self.delay,) * 2
            + (self.relay_turns,) * 5
            + (self.crash,) * 2
            + (self.requeue, self.replay, self.kill, self.release)
        )
        operation = self.chance.choice(operations)
        operation()
        self.rows = self.watch.look()
        return operation.__name__

    def enqueue(self, due_us=None):
        for _ in range(self.chance.randrange(1, 5)):
            more = {"due_us": due_us} if due_us else {}
            if self.chance.random() < 0.3:
                more["max_attempts"] = self.chance.randrange(1, 4)
            self.writer.send(
                self.chance.choice(("skip", "hold")),
                {"n": self.chance.random()},
                key=self.chance.choice(self.keys),
                rollback=self.chance.random() < 0.1,
                **more,
            )

    def delay(self):
        self.enqueue(due_us=self.chance.choice((1, 150_000, 600_000)))

    def relay_turns(self):
        """A relay works until nothing is due; then each message is what its last answer says."""
        run_settled(self.outbox, self.relays, f"turn-{self.runs}")
        self.runs += 1
        for id, row in self.watch.look().items():
            self.check_outcome(id, row)

    def check_outcome(self, id, row):
        arrivals = self.receiver.of(id=id)
        assert row["state"] != "CLAIMED", row
        assert row["attempts"] >= len(arrivals), (row, arrivals)
        if not arrivals or self.watch.last[id] is None or id in self.killed:
            return
        last = arrivals[-1].answer
        if last == 200:
            # After a crash nobody knows of the answer: PENDING, or DEAD where one attempt was all.
            is_unknown = row["state"] == "DEAD" and "outcome" in (row["last_error"] or "")
            assert row["state"] in ("PUBLISHED", "PENDING") or is_unknown, (row, arrivals)
        elif last == 404:
            assert row["state"] != "PUBLISHED", (row, arrivals)
        elif row["state"] == "PUBLISHED":
            raise AssertionError(f"PUBLISHED after {last}: {row} {arrivals}")

    def crash(self):
        """A relay dies at a point, or finds nothing that leads there; its leases pass."""
        point = self.chance.choice(("claim.sent", "mark.sent", "mark.done", "publish.sent"))
        relay = self.relays(f"crash-{self.runs}", fault=f"{point}:{self.chance.randrange(1, 4)}:kill")
        self.runs += 1
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not relay.is_running(), "its death", seconds=0.4)
        relay.kill()
        self.history.fault("kill")
        self.watch.look()
        self.outbox.bury(relay)
        self.outbox.run(f"update {{}}parked set lease_until = {self.outbox.now(-1_000_000)} " "where state = 'CLAIMED'")

    def pick(self, state):
        found = [id for id, row in self.watch.last.items() if row["state"] == state and self.outbox.parked(id)]
        return self.chance.choice(found) if found else None

    def operate(self, what, state, do):
        id = self.pick(state)
        if id:
            self.history.operator(what, id)
            self.watch.asked.add(id)
            do(id)

    def requeue(self):
        self.operate("requeue", "DEAD", self.outbox.requeue)

    def replay(self):
        self.operate("replay", "PUBLISHED", self.outbox.requeue)

    def kill(self):
        def do(id):
            self.killed.add(id)
            self.outbox.kill(id)

        self.operate("kill", "PENDING", do)

    def release(self):
        self.operate("release", "DEAD", lambda id: self.outbox.operate(id, "held = false"))

    def finish(self):
        """Heal, let go of what is held, and come to rest: the checker has the last word."""
        self.receiver.forget()
        self.watch.look()
        for id, row in self.watch.last.items():
            if row["held"]:
                self.outbox.operate(id, "held = false")
        self.relays("last")
        self.outbox.wait_drained()
        self.watch.look()
        return self.history.check(self.outbox, [self.receiver], observed=["skip", "hold"])


@pytest.mark.parametrize("seed", range(2))
def test_o7_random_operations_never_leave_the_machine(store, outbox, receiver, relays, history, seed):
    machine = Machine(outbox, receiver, relays, history, f"{seed}-{uuid.uuid4()}" if seed else seed)
    done = []
    try:
        for _ in range(40):
            done.append(machine.step())
        counts = machine.finish()
    except AssertionError as error:
        raise AssertionError(f"after {done}: {error}") from error
    assert counts["appended"]["ok"] > 5


def test_o7_every_way_through_the_machine_is_seen(store, outbox, receiver, relays):
    """PENDING, CLAIMED, PENDING, CLAIMED, DEAD, PENDING, CLAIMED, PUBLISHED: one message, by outbox_state."""
    outbox.destination("d", receiver, retry={"base": "10ms", "jitter": 0, "max_attempts": 2})
    key = next(keys_in_lane(0, ["d"]))[1]
    watch, seen = Watch(outbox), []
    id = outbox.put("d", {"n": 1}, key=key)
    receiver.rule("hang", key=key)
    for _ in range(3):
        row = watch.look()[id]
        seen.append((row["state"], row["attempts"]))
        if not relays.all:
            relays("a", lease="20s")
        wait_for(lambda: receiver.count(id=id) == len(seen), "the request")
        row = outbox.wait(id, "CLAIMED", attempts=len(seen))
        watch.look()
        seen_before = outbox.state(id)
        assert seen_before["claimed_by"] == outbox.lane(0)["owner"]
        receiver.release(500 if len(seen) < 3 else 200, forget=False)
        if len(seen) == 1:
            wait_for(
                lambda: outbox.state(id)["attempts"] == 1
                and outbox.state(id)["state"] != "CLAIMED"
                or outbox.state(id)["attempts"] == 2,
                "the failure to be recorded",
            )
        elif len(seen) == 2:
            outbox.wait(id, "DEAD")
            watch.look()
            watch.asked.add(id)
            outbox.requeue(id)
            watch.look()
    row = outbox.wait(id, "PUBLISHED", attempts=3)
    watch.look()
    assert [one.attempt for one in receiver.of(id=id)] == [1, 2, 3]


# What the database refuses


def must_refuse(outbox, sql, *args):
    before = (
        outbox.run("select * from {}outbox_state order by lane, seq"),
        outbox.run("select * from {}parked order by lane, seq"),
        outbox.run("select * from {}lanes order by lane"),
    )
    with outbox.session() as own:
        try:
            own.run(sql, *args)
            refused = False
        except REFUSED as error:
            refused = str(error)
    after = (
        outbox.run("select * from {}outbox_state order by lane, seq"),
        outbox.run("select * from {}parked order by lane, seq"),
        outbox.run("select * from {}lanes order by lane"),
    )
    assert refused and before == after, f"not refused: {sql} {args}"
    return refused


@pytest.fixture
def zoo(outbox, receiver, relays):
    """A parked message in every state, and one of the plain path: {state: id}."""
    outbox.destination("d", receiver, retry={"base": "1h", "max": "1h", "max_attempts": 9})
    keys = keys_in_lane(0, ["d"])
    ids = {state: outbox.put("d", {"s": state}, key=next(keys)[1]) for state in STATES}
    receiver.rule(500, times=1, id=ids["PUBLISHED"])
    receiver.rule(404, id=ids["DEAD"])
    receiver.rule(500, id=ids["PENDING"])
    receiver.rule(500, id=ids["CLAIMED"])
    ids["plain"] = outbox.put("d", {"s": "plain"}, key=next(keys)[1])
    relay = relays("a")
    for state in ("PENDING", "CLAIMED", "PUBLISHED"):
        outbox.wait(ids[state], "PENDING", attempts=1)
    outbox.wait(ids["plain"], "PUBLISHED")
    outbox.wait(ids["DEAD"], "DEAD")
    outbox.requeue(ids["PUBLISHED"])
    outbox.wait(ids["PUBLISHED"], "PUBLISHED", attempts=2)
    relay.term()
    relay.wait()
    outbox.operate(
        ids["CLAIMED"],
        f"state = 'CLAIMED', attempts = attempts + 1, claimed_by = 'r', "
        f"claimed_at = {outbox.now()}, lease_until = {outbox.now(3600_000_000)}",
    )
    return ids


def fields_of(outbox, state):
    """What belongs to a state, so that only the move itself is wrong."""
    return {
        "PENDING": "claimed_by = null, claimed_at = null, lease_until = null, published_at = null",
        "CLAIMED": f"claimed_by = 'x', claimed_at = {outbox.now()}, lease_until = {outbox.now()}, "
        "published_at = null, attempts = attempts + 1",
        "PUBLISHED": f"claimed_by = null, claimed_at = null, lease_until = null, published_at = {outbox.now()}",
        "DEAD": "claimed_by = null, claimed_at = null, lease_until = null, published_at = null",
    }[state]


def test_o7_the_database_refuses_illegal_moves(store, outbox, zoo):
    for one, other in itertools.permutations(STATES, 2):
        seq = outbox.state(zoo[one])["seq"]
        sql = f"update {{}}parked set state = '{other}', {fields_of(outbox, other)} " "where lane = 0 and seq = %s"
        if (one, other) not in LEGAL:
            assert "illegal_transition" in must_refuse(outbox, sql, seq), (one, other)
            continue
        with outbox.session() as own:  # a legal one passes, and is taken back
            own.begin()
            own.run(sql, seq)
            own.rollback()


WRONG = [
    ("PENDING", "attempts = attempts - 1"),
    ("PENDING", "attempts = attempts + 1"),
    ("CLAIMED", "attempts = attempts + 1"),
    ("CLAIMED", "attempts = 0, unsent = 0"),
    ("DEAD", "attempts = attempts + 1"),
    ("PUBLISHED", "attempts = attempts - 1"),
    ("PUBLISHED", "published_at = '2001-01-01T00:00:00.000000Z'"),
    ("PUBLISHED", "published_at = null"),
    ("PENDING", "claimed_at = '2001-01-01T00:00:00.000000Z'"),
    ("PENDING", "claimed_by = 'x'"),
    ("PENDING", "lease_until = '2001-01-01T00:00:00.000000Z'"),
    ("PENDING", "published_at = '2001-01-01T00:00:00.000000Z'"),
    ("CLAIMED", "claimed_by = null"),
    ("CLAIMED", "claimed_at = null"),
    ("PENDING", "state = 'SENT'"),
    ("PENDING", "held = true"),
    ("PENDING", "unsent = attempts + 1"),
    ("PENDING", "budget_from = attempts + 1"),
    ("PENDING", "seq = seq + 1000"),
    ("PENDING", "destination = 'elsewhere'"),
    ("PENDING", "ordering_key = 'other'"),
    ("PENDING", "ordering_key = null"),
    ("PENDING", "state = null"),
]


def test_o3_o4_the_database_refuses_wrong_fields(store, outbox, zoo):
    for state, change in WRONG:
        must_refuse(
            outbox, f"update {{}}parked set {change} where lane = 0 and seq = %s", outbox.state(zoo[state])["seq"]
        )


def test_o7_a_parked_row_is_neither_forged_nor_removed(store, outbox, zoo):
    """Without its row a message would be PUBLISHED; with a forged one it would be whatever it says."""
    waiting = outbox.put("d", {"n": 1}, key="z")
    row = outbox.state(waiting)
    for state, attempts in (("PUBLISHED", 1), ("PENDING", 7), ("DEAD", 7)):
        stamp = outbox.now() if state == "PUBLISHED" else "null"
        must_refuse(
            outbox,
            "insert into {}parked (lane, seq, attempts, state, available_at, updated_at, "
            f"destination, ordering_key, published_at) values (%s, %s, {attempts}, '{state}', "
            f"{outbox.now()}, {outbox.now()}, 'd', 'z', {stamp})",
            row["lane"],
            row["seq"],
        )
    for state in STATES:
        must_refuse(outbox, "delete from {}parked where lane = 0 and seq = %s", outbox.state(zoo[state])["seq"])
    if outbox.is_sqlite:
        must_refuse(
            outbox,
            "insert or replace into {}parked (lane, seq, attempts, state, available_at, "
            "updated_at, destination, ordering_key) select lane, seq, 0, 'PENDING', available_at, "
            "updated_at, destination, ordering_key from {}parked where state = 'PUBLISHED'",
        )
    else:
        must_refuse(outbox, "truncate {}parked")


def test_a_lane_only_advances(store, outbox, zoo):
    for column in ("epoch", "head", "claim_no", "parked_gen"):
        assert "illegal_transition" in must_refuse(
            outbox, f"update {{}}lanes set {column} = {column} - 1 where lane = 0"
        )


def test_a_gap_cannot_open_below_the_head(postgres_store, outbox, zoo):
    assert "illegal_transition" in must_refuse(outbox, "update {}lanes set gaps = '{[1,2)}' where lane = 0")


def test_a_lane_is_not_removed(store, outbox, zoo):
    must_refuse(outbox, "delete from {}lanes where lane = 0")
    if outbox.is_sqlite:
        must_refuse(outbox, "insert or replace into {}lanes (lane) values (0)")


def test_r4_what_happened_stays(store, outbox, zoo):
    for sql in (
        "update {}attempts set outcome = 'ok'",
        "delete from {}attempts",
        "update {}batches set to_seq = to_seq + 1",
        "delete from {}batches",
    ):
        assert "read_only" in must_refuse(outbox, sql)
    if outbox.is_sqlite:  # REPLACE deletes, and fires no trigger of that
        for table in ("attempts", "batches"):
            assert outbox.run(f"select * from {{}}{table}")
            assert "id_conflict" in must_refuse(outbox, f"replace into {{}}{table} select * from outlog_{table}")


CHANGES = {
    "event_id": str(uuid.uuid4()),
    "event_type": "other",
    "ordering_key": "other",
    "partition_key": "other",
    "payload": '{"forged":1}',
    "headers": '{"a":"b"}',
    "metadata": '{"a":1}',
    "created_at": "2001-01-01T00:00:00.000000Z",
    "available_at": "2001-01-01T00:00:00.000000Z",
    "destination": "other",
    "org_id": "other",
    "idempotency_key": "other",
    "correlation_id": "other",
    "causation_id": str(uuid.uuid4()),
    "max_attempts": 99,
    "content_type": "text/plain",
    "aggregate_type": "other",
    "aggregate_id": "other",
    "seq": 4711,
    "lane": 1,
}


def test_o2_a_message_never_changes(store, outbox):
    outbox.put("d", {"n": 1}, key="k")
    for column, value in CHANGES.items():
        assert "read_only" in must_refuse(outbox, f"update {{}}outbox set {column} = %s", value)


def test_o2_a_message_is_neither_removed_nor_replaced(store, outbox):
    id = outbox.put("d", {"n": 1}, key="k", idempotency_key="key-1")
    seq = outbox.state(id)["seq"]
    assert "read_only" in must_refuse(outbox, "delete from {}outbox")
    if not outbox.is_sqlite:
        assert "read_only" in must_refuse(outbox, "truncate {}outbox cascade")
        return
    replace = "insert or replace into {}outbox (%s, destination, event_type, payload) values (%%s, 'd', 't', 'x')"
    must_refuse(outbox, replace % "event_id", id)
    must_refuse(outbox, replace % "seq", seq)


def test_i2_a_repeated_key_never_replaces_the_older_message(store, outbox):
    """Refused by a plain INSERT, ignored where it says so; SQLite's OR REPLACE is refused too."""
    id = outbox.put("d", {"n": 1}, idempotency_key="key-1")
    outbox.put("d", {"n": 2}, idempotency_key="key-1", org_id="acme")  # another org: another key
    insert = (
        "insert %s into {}outbox (destination, event_type, payload, idempotency_key) "
        "values ('d', 't', '{}', 'key-1') %s"
    )
    assert "unique" in must_refuse(outbox, insert % ("", "")).lower()
    outbox.run(insert % ("", "on conflict do nothing"))
    if outbox.is_sqlite:
        outbox.run(insert % ("or ignore", ""))
        assert "id_conflict" in must_refuse(outbox, insert % ("or replace", ""))
        assert "unique" in must_refuse(outbox, insert % ("or fail", "")).lower()
    rows = outbox.run("select event_id, payload from {}outbox order by created_at")
    assert [row["payload"] for row in rows] == ['{"n": 1}', '{"n": 2}'] and str(rows[0]["event_id"]) == id


# Message keys (I2-I5)


def send(outlog, *more):
    return outlog.run("send", "--to", "d", "--type", "t", "--data", '{"n":1}', "--json", *more).json()[0]


def test_i2_a_repeat_is_ignored_and_answers_with_the_first(store, outbox, outlog, receiver, relays):
    outbox.destination("d", receiver)
    first = send(outlog, "--key", "k-1", "--org", "acme")
    assert not first["duplicate"]
    run_idle(relays, "a")
    again = send(outlog, "--key", "k-1", "--org", "acme")  # also when it is delivered (I5)
    assert again == {"event_id": first["event_id"], "duplicate": True}
    with pytest.raises(REFUSED):
        outbox.put("d", {"n": 2}, idempotency_key="k-1", org_id="acme")
    run_idle(relays, "b")
    assert receiver.ids() == [first["event_id"]]
    assert receiver.requests[0].idempotency_key == "k-1"  # I4


def test_i3_nothing_that_is_not_a_repeat_is_swallowed(store, outbox, outlog, receiver, relays):
    """The same payload twice, the same key in two orgs, in none, and at two destinations."""
    for name in ("d", "e"):
        outbox.destination(name, receiver)
    ids = [
        send(outlog)["event_id"],
        send(outlog)["event_id"],
        send(outlog, "--key", "k")["event_id"],
        send(outlog, "--key", "k", "--org", "a")["event_id"],
        send(outlog, "--key", "k", "--org", "b")["event_id"],
        outlog.run("send", "--to", "e", "--type", "t", "--data", '{"n":1}', "--key", "k", "--json").json()[0][
            "event_id"
        ],
    ]
    ids += [outbox.put("d", {"n": 1}), outbox.put("d", {"n": 1})]
    assert len(set(ids)) == 8
    run_idle(relays)
    assert sorted(receiver.ids()) == sorted(ids)
    keys = [(one.destination, one.idempotency_key) for one in receiver.requests]
    assert sorted(keys).count(("d", "k")) == 3 and keys.count(("e", "k")) == 1
    assert all(one.idempotency_key in (one.id, "k") for one in receiver.requests)


def test_i3_one_event_to_two_destinations(store, outbox, outlog, receiver, relays):
    for name in ("d", "e"):
        outbox.destination(name, receiver)
        outbox.run(
            "insert into {}routes (name, pattern, is_audit, destination, source) values " "(%s, %s, %s, %s, '{}')",
            f"to-{name}",
            "order.*" if outbox.is_sqlite else "order.%",
            0 if outbox.is_sqlite else False,
            name,
        )
    # A second route to `d` makes no second message.
    outbox.run(
        "insert into {}routes (name, pattern, is_audit, destination, source) values " "('again', %s, %s, 'd', '{}')",
        "order.created",
        0 if outbox.is_sqlite else False,
    )
    for n in range(2):
        outlog.run(
            "append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.created", "--data", '{"same":1}'
        )
    run_idle(relays)
    assert sorted(one.destination for one in receiver.requests) == ["d", "d", "e", "e"]
    assert len({one.idempotency_key for one in receiver.requests}) == 4
    assert {one.body for one in receiver.requests} == {b'{"same":1}'}
    for row in outbox.run("select * from {}outbox_state"):
        assert row["causation_id"] and row["state"] == "PUBLISHED"


# Retries (R1), by a turned clock: each wait is read from available_at, then cut short


def waits(outbox, receiver, relays, count, **settings):
    outbox.destination("d", receiver, **settings)
    receiver.rule(500)
    id = outbox.put("d", {"n": 1}, key=next(keys_in_lane(0, ["d"]))[1])
    relays("a")
    found = []
    for attempt in range(1, count + 1):
        row = outbox.wait(id, "PENDING", attempts=attempt)
        assert row["last_error"] == "HTTP 500" and receiver.count(id=id) == attempt
        found.append(round(moment(row["available_at"]) - moment(row["updated_at"]), 2))
        outbox.operate(id, f"available_at = {outbox.now()}")
    row = outbox.wait(id, "DEAD", attempts=count + 1)
    assert receiver.count(id=id) == count + 1 and row["last_error"] == "HTTP 500"
    assert [one["attempt"] for one in outbox.attempts(id)] == list(range(1, count + 2))
    return found


def test_r1_the_waits_grow_by_powers_of_two(store, outbox, receiver, relays):
    assert waits(outbox, receiver, relays, 5, retry={"base": "5s", "jitter": 0, "max_attempts": 6}) == [
        10,
        20,
        40,
        80,
        160,
    ]


def test_r1_jitter_only_adds(store, outbox, receiver, relays):
    found = waits(outbox, receiver, relays, 5, retry={"base": "5s", "jitter": 0.2, "max_attempts": 6})
    for wait, least in zip(found, [10, 20, 40, 80, 160]):
        assert least <= wait <= least * 1.2 + 0.01


def test_r1_a_schedule_is_kept_as_written(store, outbox, receiver, relays):
    assert waits(outbox, receiver, relays, 4, retry={"delays": ["1m", "5m", "15m", "60m"]}) == [60, 300, 900, 3600]


def test_r1_an_effect_has_the_attempts_of_its_type_and_any_other_message_eleven(store, outbox, receiver, relays):
    outbox.destination("d", receiver, retry={"base": "5ms", "max": "5ms"})
    receiver.rule(500)
    types = {"SEND_EMAIL": 4, "API_CALL": 6, "SOR_UPDATE": 2, "other.type": 4}
    ids = {outbox.put("d", {"n": 1}, key=type, type=type): 11 for type in types}
    for type, attempts in types.items():
        effect = {"aggregate_type": "EFFECT", "aggregate_id": f"e-{type}"}
        ids[outbox.put("d", {"n": 1}, key=f"e-{type}", type=type, **effect)] = attempts
    relays("a")
    for id, attempts in ids.items():
        outbox.wait(id, "DEAD", attempts=attempts)
        assert receiver.count(id=id) == attempts


def test_r2_retry_after_is_honoured(store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    receiver.rule(429, headers={"retry-after": "90"})
    id = outbox.put("d", {"n": 1}, key="k")
    relays("a")
    row = outbox.wait(id, "PENDING", attempts=1)
    assert 89 < moment(row["available_at"]) - moment(row["updated_at"]) <= 90


def test_r2_permanent_is_dead_at_once(store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    ids = {status: outbox.put("d", {"n": status}) for status in (400, 401, 403, 404, 410, 422, 301)}
    for status, id in ids.items():
        receiver.rule(status, id=id, headers={"location": "/elsewhere"})
    run_idle(relays)
    for status, id in ids.items():
        row = outbox.state(id)
        assert (row["state"], row["attempts"]) == ("DEAD", 1), row
        assert row["last_error"].startswith(f"HTTP {status}")


def test_r3_a_requeue_starts_a_new_budget_and_attempts_go_on(store, outbox, receiver, relays):
    outbox.destination("d", receiver, retry={"base": "5ms", "max": "5ms", "jitter": 0, "max_attempts": 2})
    receiver.rule(500)
    id = outbox.put("d", {"n": 1}, key="k")
    relays("a")
    outbox.wait(id, "DEAD", attempts=2)
    outbox.requeue(id)
    outbox.wait(id, "DEAD", attempts=4)
    receiver.forget()
    outbox.requeue(id)
    outbox.wait(id, "PUBLISHED", attempts=5)
    assert [one.attempt for one in receiver.of(id=id)] == [1, 2, 3, 4, 5]
    assert [one["outcome"] for one in outbox.attempts(id)] == ["failed"] * 4 + ["ok"]


def test_l1_two_runs_of_a_relay_send_a_message_once(store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    id = outbox.put("d", {"n": 1})
    run_idle(relays, "a")
    before = outbox.state(id)
    run_idle(relays, "b")
    assert receiver.ids() == [id] and outbox.state(id) == before


# What comes in by plain SQL, and goes out as it is


@pytest.mark.parametrize(
    "column, value",
    [
        ("event_id", "abc"),
        ("event_id", "019A7C3E-0000-7000-8000-000000000001"),
        ("available_at", "soon"),
        ("available_at", "1794845669"),
        ("org_id", ""),
        ("headers", "[]"),
        ("max_attempts", 0),
    ],
)
def test_a1_a_plain_insert_of_what_no_relay_could_use_is_refused(sqlite_store, column, value):
    with contextlib.closing(sqlite3.connect(sqlite_store.removeprefix("sqlite:"))) as db:
        with pytest.raises(sqlite3.IntegrityError, match="CHECK"):
            db.execute(
                f"insert into outlog_outbox (destination, event_type, payload, {column}) values ('d', 't', '{{}}', ?)",
                (value,),
            )
        for good in ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00+02:00", "2030-01-01 00:00:00", None):
            db.execute(
                "insert into outlog_outbox (destination, event_type, payload, available_at) values ('d', 't', '{}', ?)",
                (good,),
            )


def test_a1_a_plain_insert_with_the_stock_module_is_delivered(sqlite_store, outbox, receiver, relays):
    """No extension, no functions of ours: Python's sqlite3 and three columns."""
    outbox.destination("d", receiver)
    plain = sqlite3.connect(sqlite_store[len("sqlite:") :])
    with plain:
        for n in range(3):
            plain.execute(
                "insert into outlog_outbox (destination, event_type, payload) values " "('d', 'order.paid', ?)",
                (json.dumps({"n": n}),),
            )
    plain.close()
    run_idle(relays)
    rows = outbox.run("select * from {}outbox_state order by seq")
    assert sorted(receiver.ids()) == sorted(row["event_id"] for row in rows)
    for row in rows:
        id = uuid.UUID(row["event_id"])
        assert id.version == 7 and id.variant == uuid.RFC_4122
        assert abs((id.int >> 80) / 1000 - time.time()) < 60
        assert row["lane"] == 0 and row["state"] == "PUBLISHED" and row["correlation_id"]


def test_a1_a_plain_insert_on_postgres_is_delivered(postgres_store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    outbox.run(
        "insert into {}outbox (destination, event_type, payload) select 'd', 'order.paid', n::text "
        "from generate_series(1, 50) n"
    )
    run_idle(relays)
    wait_for(lambda: receiver.count() == 50, "all")
    assert {one.body for one in receiver.requests} == {str(n).encode() for n in range(1, 51)}


def test_l3_messages_without_a_key_go_by_the_millisecond(postgres_store, outbox):
    """What was written at once lies together, and all lanes get their share."""
    for ms in range(40):
        outbox.run(
            "insert into {}outbox (destination, event_type, payload, event_id) select 'd', 'order.paid', '1', "
            "('01a1e51b-27' || lpad(to_hex(%s), 2, '0') || '-7' || lpad(n::text, 3, '0') || '-8000-000000000000')::uuid "
            "from generate_series(1, 5) n",
            ms,
        )
    rows = outbox.run("select lane, event_id from {}outbox")
    assert [row["lane"] for row in rows] == [lane_of("d", str(row["event_id"])[:13]) for row in rows]
    assert len({row["lane"] for row in rows}) == 8


def insert_metadata(outbox, metadata):
    outbox.run(
        "insert into {}outbox (destination, event_type, payload, metadata) values ('d', 'order.paid', '{}', %s)",
        metadata if isinstance(metadata, str) else json.dumps(metadata),
    )


@pytest.mark.parametrize("name", SECRETS, ids=lambda name: name.replace(" ", "-"))
def test_e13_metadata_of_a_plain_insert_holds_no_secret(store, outbox, name):
    rule, document, pointer, secret = SECRETS[name]
    escaped = json.dumps(document).replace(secret[:3], "".join(f"\\u{ord(c):04x}" for c in secret[:3]))
    for metadata in (document, escaped):
        with pytest.raises((psycopg2.Error, sqlite3.Error)) as refusal:
            insert_metadata(outbox, metadata)
        said = str(refusal.value)
        assert re.search(
            rf"^secret_material: metadata.* \(rule {rule}\)|metadata{pointer} .*\(rule {rule}\)", said
        ), said
        assert secret[:12] not in said and secret[-8:] not in said
    assert outbox.run("select 1 from {}outbox") == []


def test_e13_what_only_looks_alike_passes_a_plain_insert(store, outbox):
    insert_metadata(
        outbox,
        {
            "secret_version_id": "projects/1/secrets/db/versions/7",
            "token_count": 12,
            "none": None,
            "list": [1, [True]],
            "prefixes": ["ghp_", "sk_live_", "AKIA", "whsec_", "xoxb-"],
            "note": "task_live_1234567890",
            "folk_song1": 1,
            "example": "AKIAIOSFODNN7EXAMPLE",
            "public": "-----BEGIN PUBLIC KEY-----",
            "id": str(uuid.uuid4()),
        },
    )
    insert_metadata(outbox, {})
    insert_metadata(outbox, {"traceparent": "00-" + "ab" * 16 + "-" + "cd" * 8 + "-01"})
    assert len(outbox.run("select 1 from {}outbox")) == 3


def test_e13_a_plain_insert_finds_a_secret_where_the_library_does(store, outbox):
    pem, block, aws = "-----BEGIN RSA PRIVATE " "KEY-----", "PGP PRIVATE " "KEY BLOCK-----", "AK" "IA"
    for text in (
        f"x{pem}",
        f'-----BEGIN CERTIFICATE----- " {pem}',
        f"see -----BEGIN {block}",
        aws + "EXAMPLEQ7Z3XB5KJ",
    ):
        with pytest.raises((psycopg2.Error, sqlite3.Error), match="rule (private_key|aws_access_key)"):
            insert_metadata(outbox, {"text": text})
    for text in ("-----BEGIN of a long text about a PRIVATE " "KEY-----", f"-----BEGIN {'A' * 101}PRIVATE " "KEY-----"):
        insert_metadata(outbox, {"text": text})


def test_e13_rules_are_a_setting_for_a_plain_insert_too(store, outbox):
    outbox.run("update {}secret_rules set mode = 'warn' where rule = 'github_token'")
    outbox.run("update {}secret_rules set mode = 'off' where rule = 'slack_token'")
    insert_metadata(outbox, SECRETS["github"][1])
    insert_metadata(outbox, SECRETS["slack"][1])
    with pytest.raises((psycopg2.Error, sqlite3.Error), match="rule stripe_live_key"):
        insert_metadata(outbox, SECRETS["stripe"][1])


def test_d1_bytes_are_delivered_as_they_were_put(store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1)  # the second attempt, read from the parked row, is the same
    payloads = [
        bytes(range(256)),
        bytes(range(256)) * 1024,
        b"\0",
        b"{}\n",
        b"",
        "not json at all",
        '{ "spaces" :  1.0e0 }\n',
        "\u00e9\U0001f600",
    ]
    ids = [outbox.put("d", payload, content_type="application/octet-stream") for payload in payloads]
    relays("a")
    for id, payload in zip(ids, payloads):
        outbox.wait(id, "PUBLISHED", attempts=2)
        wanted = payload if isinstance(payload, bytes) else payload.encode()
        assert [one.body for one in receiver.of(id=id)] == [wanted, wanted]
    assert {one.headers["content-type"] for one in receiver.requests} == {"application/octet-stream"}
