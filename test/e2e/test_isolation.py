"""L5: a message whose destination has room leaves at once, whatever waits for others.

A backlog for a destination that takes it slowly or not at all, then one message for another. No test
looks at a clock: "at once" means that the one arrives while most of the backlog still waits.
"""

import signal

import pytest

from lib.outbox import Writer, keys_in_lane, wait_for

BACKLOG = 4_000


def fill(outbox, destination, count, key=None, org=None):
    """Many messages in one statement. `key`: every message has one of so many keys."""
    outbox.run("begin")
    if outbox.is_sqlite:
        outbox.run(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < %s) "
            "insert into outlog_outbox (destination, event_type, payload, ordering_key, org_id, headers) "
            "select %s, 'test.sent', json_object('n', i), 'k-' || (i %% %s), %s, "
            "json_object('x-key', 'k-' || (i %% %s)) from n".replace("%%", "%")
            if key
            else "with recursive n(i) as (select 1 union all select i + 1 from n where i < %s) "
            "insert into outlog_outbox (destination, event_type, payload, org_id) "
            "select %s, 'test.sent', json_object('n', i), %s from n",
            *([count, destination, key, org, key] if key else [count, destination, org]),
        )
    elif key:
        outbox.run(
            "insert into outlog.outbox (destination, event_type, payload, ordering_key, org_id, headers) "
            "select %s, 'test.sent', json_build_object('n', i), 'k-' || (i %% %s), %s, "
            "json_build_object('x-key', 'k-' || (i %% %s)) from generate_series(1, %s) i",
            destination,
            key,
            org,
            key,
            count,
        )
    else:
        outbox.run(
            "insert into outlog.outbox (destination, event_type, payload, org_id) "
            "select %s, 'test.sent', json_build_object('n', i), %s from generate_series(1, %s) i",
            destination,
            org,
            count,
        )
    outbox.run("commit")


def left(outbox, destination):
    return outbox.one(
        "select count(*) as n from {}outbox_state where destination = %s and state in ('PENDING', 'CLAIMED')",
        destination,
    )["n"]


def arrives_before(outbox, receiver, destination, backlog, count=BACKLOG, times=3, **more):
    """Messages to `destination` arrive, one after the other, while at least half of the backlog waits."""
    for n in range(times):
        one = outbox.put(destination, {"one": n}, **more)
        wait_for(lambda: receiver.count(id=one) == 1, lambda: f"{one}; {left(outbox, backlog)} of {backlog} wait")
        assert left(outbox, backlog) > count / 2
        outbox.wait(one, "PUBLISHED", attempts=1)


def make_slow(outbox, receiver, case):
    """The destination `slow`, in one of the ways in which receivers are."""
    settings = {}
    if isinstance(case, float):
        receiver.rule("slow", seconds=case, destination="slow")
    elif case == "rate":
        settings["rate"] = "20/s"
    elif case == "concurrency":
        settings["concurrency"] = 1
        receiver.rule("slow", seconds=0.05, destination="slow")
    elif case == "hang":
        receiver.rule("hang", destination="slow")
    elif case == "refuse":
        receiver.rule("refuse", destination="slow")
        settings["breaker"] = {"failures": 5, "open": "1s"}
    elif case == "fail":
        receiver.rule(503, destination="slow")
        settings["retry"] = {"base": "10s", "max": "10s", "jitter": 0, "max_attempts": 50}
    if case != "undeclared":
        outbox.destination("slow", receiver, **settings)
    if case == "paused":
        outbox.run("update {}destinations set paused = true where name = 'slow'")


CASES = [0.1, 0.5, 1.5, "rate", "concurrency", "hang", "refuse", "fail", "paused", "undeclared"]


@pytest.mark.parametrize("key", [None, 500], ids=["plain", "keys"])
@pytest.mark.parametrize("case", CASES)
def test_l5_another_destination_does_not_wait(store, outbox, receiver, relays, case, key):
    make_slow(outbox, receiver, case)
    outbox.destination("quick", receiver)
    count = BACKLOG * 5 if case == 0.1 else BACKLOG
    fill(outbox, "slow", count, key)
    relays("a", lease=None, patience=None)
    arrives_before(outbox, receiver, "quick", "slow", count)
    receiver.release()


def test_l5_another_destination_does_not_wait_for_a_hundred_thousand(store, outbox, receiver, relays):
    make_slow(outbox, receiver, 0.5)
    outbox.destination("quick", receiver)
    fill(outbox, "slow", 100_000)
    relays("a", lease=None, patience=None, threads=4)
    arrives_before(outbox, receiver, "quick", "slow", 100_000)
    assert outbox.one("select count(*) as n from {}parked")["n"] < 5_000


@pytest.mark.torture
@pytest.mark.parametrize("case", [0.5, "hang", "paused"])
def test_l5_another_destination_does_not_wait_for_a_million(store, outbox, receiver, relays, case):
    make_slow(outbox, receiver, case)
    outbox.destination("quick", receiver)
    fill(outbox, "slow", 1_000_000)
    relay = relays("a", lease=None, patience=None)
    one = outbox.put("quick", {})
    outbox.wait(one, "PUBLISHED")
    assert receiver.count(destination="slow") < 100_000
    resident = [line for line in open(f"/proc/{relay.pid}/status") if line.startswith("VmRSS")]
    assert int(resident[0].split()[1]) < 64 * 1024
    receiver.release()


def test_l5_slow_and_quick_ones_side_by_side(store, outbox, receiver, relays):
    """They alternate in the outbox: every quick one goes while the slow ones wait."""
    make_slow(outbox, receiver, 0.5)
    outbox.destination("quick", receiver)
    for _ in range(10):
        fill(outbox, "slow", 200)
        fill(outbox, "quick", 200)
    relays("a", lease=None, patience=None)
    wait_for(lambda: receiver.count(destination="quick") == 2_000, "the quick ones")
    assert left(outbox, "slow") > 1_000


def sides(outbox):
    return outbox.run("select * from {}side_cursors order by lane, destination")


def hold(outbox, receiver, history=None, count=60):
    """Lane 0 with a side cursor for `slow`, which hangs: keyed messages, and quick ones behind them."""
    writer = Writer(outbox, history) if history else None
    outbox.destination("slow", receiver, concurrency=2)
    outbox.destination("quick", receiver)
    receiver.rule("hang", destination="slow")
    slow, quick = keys_in_lane(0, ["slow"]), keys_in_lane(0, ["quick"])
    keys = [next(slow)[1] for _ in range(20)]
    put = writer.send if writer else outbox.put
    ids = [put("slow", {"n": n}, key=keys[n % 20]) for n in range(count)]
    return ids, put("quick", {}, key=next(quick)[1]), keys


@pytest.fixture
def held(outbox, receiver, relays, history):
    """The same with a relay that has opened the side cursor; (ids of slow, keys, relay)."""
    ids, quick, keys = hold(outbox, receiver, history)
    relay = relays("a", lease="8s")  # an attempt ends within it
    outbox.wait(quick, "PUBLISHED")
    wait_for(lambda: sides(outbox), "a side cursor")
    return ids, keys, relay


def claims(outbox, receiver):
    """Let the slow one answer until the side cursor has claimed something."""

    def is_claimed():
        receiver.release(forget=False)
        claim = "claim_from is not null" if outbox.is_sqlite else "claim <> '{}'"
        return outbox.run(f"select 1 as one from {{}}side_cursors where {claim}")

    wait_for(is_claimed, "a claim of the side cursor", pause=0.05)


def test_33_states_follow_the_side_cursor(store, outbox, receiver, held):
    """What the lane has passed is PENDING or CLAIMED until its side cursor has come to it."""
    ids, _, _ = held
    assert outbox.lane(0)["head"] >= len(ids)
    assert {outbox.state(id)["state"] for id in ids} <= {"PENDING", "CLAIMED"}
    assert [outbox.state(id)["attempts"] for id in ids[20:]] == [0] * (len(ids) - 20)
    claims(outbox, receiver)
    assert "CLAIMED" in {outbox.state(id)["state"] for id in ids}
    receiver.release()
    outbox.wait_drained()
    wait_for(lambda: not sides(outbox), "the side cursor to be closed")
    assert all(outbox.state(id)["published_at"] for id in ids)


def test_33_operators_see_what_was_passed(store, outbox, receiver, outlog, held, history):
    ids, keys, _ = held
    killed, replayed = ids[-1], ids[-2]
    outlog.run("kill", killed)
    history.operator("kill", killed)
    assert outbox.state(killed)["state"] == "DEAD"
    shown = outlog.run("outbox", "--state", "PENDING", "--to", "slow", "--limit", "100", "--json").stdout
    assert replayed in shown and killed not in shown
    receiver.release()
    outbox.wait_drained()
    assert receiver.count(id=killed) == 0
    for key in keys:
        order = [id for id in ids if id != killed and outbox.state(id)["ordering_key"] == key]
        assert receiver.ids(key=key) == order


def test_35_a_late_message_of_a_passed_destination_is_delivered(postgres_store, outbox, receiver, relays):
    """It fills a gap that the lane and the side cursor have both passed."""
    slow = keys_in_lane(0, ["slow"])
    key = next(slow)[1]
    with outbox.session() as writer:
        writer.begin()
        late = writer.put("slow", {"late": True}, key=key)
        ids, quick, _ = hold(outbox, receiver)
        relays("a")
        outbox.wait(quick, "PUBLISHED")
        wait_for(lambda: sides(outbox), "a side cursor")
        writer.commit()
    wait_for(lambda: outbox.lane(0)["gaps"] is not None and outbox.parked(late), "the late one to be parked")
    assert outbox.state(late)["attempts"] == 0
    receiver.release()
    outbox.wait_drained()
    assert receiver.count(id=late) == 1 and all(receiver.count(id=id) == 1 for id in ids)


@pytest.mark.parametrize("end", ["kill", "freeze"])
def test_37_a_takeover_parks_the_claim_of_a_side_cursor(store, outbox, receiver, relays, held, history, end):
    ids, keys, relay = held
    claims(outbox, receiver)
    if end == "kill":
        relay.kill()
        history.fault("kill")
        outbox.bury(relay)
    else:
        relay.freeze()
        history.fault("freeze")
    relays("b")
    wait_for(lambda: outbox.lane(0)["owner_name"] == "b", "a takeover")
    receiver.release()
    if end == "freeze":
        relay.thaw()
    outbox.wait_drained()
    history.check(outbox, [receiver])
    assert {outbox.state(id)["state"] for id in ids} == {"PUBLISHED"}


SIDE_POINTS = ["side.open", "side.sent", "side.close", "mark.sent", "mark.done", "publish.sent"]


@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("point", SIDE_POINTS)
def test_34_ended_at_any_point_of_a_side_cursor(store, outbox, receiver, relays, history, point, how):
    """Keys on both sides of the opening, a receiver that flaps between slow and quick."""
    if outbox.is_sqlite and how == "stop" and point not in ("mark.done", "publish.sent"):
        pytest.skip("SQLite: who is stopped inside its transaction stops all writers (docs)")
    outbox.destination("slow", receiver, concurrency=4)
    outbox.destination("quick", receiver)
    receiver.rule("slow", seconds=0.15, destination="slow", probability=0.5)
    receiver.rule(500, attempt=1, probability=0.1)
    writer = Writer(outbox, history)

    def put(count):
        for n in range(count):
            writer.send("slow", {"n": n}, key=f"s-{n % 9}" if n % 4 else None, rollback=n % 10 == 3)
            if n % 3 == 0:
                writer.send("quick", {"n": n}, key=f"q-{n % 5}")

    put(90)

    def more():  # a side cursor is closed when it has caught up; without one, the receiver was too quick
        if point != "side.close":
            put(1)
        elif "PENDING" not in outbox.states().values():
            put(90)

    first = relays("a", fault=f"{point}:{1 if point in ('side.open', 'side.close') else 9}:{how}", lease="1s")
    wait_for(lambda: first.status() in ("T", None, "Z") or more(), f"{point} to be reached", seconds=60, pause=0.02)
    history.fault(how, point=point)
    put(20)
    if how == "kill":
        assert first.wait() == -signal.SIGKILL
        outbox.bury(first)
    relays("b")
    if how == "stop":
        wait_for(
            lambda: all(row["owner_name"] != "a" for row in outbox.run("select owner_name from {}lanes"))
            or outbox.is_sqlite,
            "a takeover",
        )
        first.thaw()
    outbox.wait_drained(60)
    counts = history.check(outbox, [receiver])
    assert counts["states"] == {"PUBLISHED": counts["appended"]["ok"]}
    wait_for(lambda: not sides(outbox), "all side cursors to be closed")


def test_39_a_resize_waits_for_no_side_cursor_but_its_destination_does(
    postgres_store, outbox, receiver, relays, held, outlog
):
    """New lanes deliver to others at once; what is for the slow one keeps its order."""
    ids, keys, _ = held
    outbox.run("select outlog.resize_lanes(3)")
    quick, later = outbox.put("quick", {}), [outbox.put("slow", {"later": n}, key=key) for n, key in enumerate(keys)]
    outbox.wait(quick, "PUBLISHED")
    assert {outbox.state(id)["state"] for id in later} == {"PENDING"} and sides(outbox)
    receiver.release()
    outbox.wait_drained()
    for n, key in enumerate(keys):
        assert receiver.ids(key=key) == ids[n::20] + [later[n]]


# P2: what waits is counted where it waits


def test_p2_what_waits_for_a_side_cursor_is_counted(store, outbox, receiver, held, outlog, serve):
    ids, _, _ = held
    server = serve("--no-relay")
    counted = {one["name"]: one for one in server.get("/v1/stats").json["destinations"]}
    pending = len([id for id in ids if outbox.state(id)["state"] == "PENDING"])
    assert counted["slow"]["pending"] == pending > 10 and not counted["slow"]["is_estimate"]
    assert counted["quick"]["pending"] == 0


def test_p2_what_no_relay_has_read_is_counted(store, outbox, receiver, outlog, serve):
    outbox.destination("slow", receiver)
    outbox.destination("quick", receiver)
    fill(outbox, "slow", 40_000)
    fill(outbox, "quick", 40)
    server = serve("--no-relay")
    counted = {one["name"]: one for one in server.get("/v1/stats").json["destinations"]}
    assert counted["quick"]["pending"] > 0 and counted["quick"]["is_estimate"]
    assert 30_000 < counted["slow"]["pending"] < 41_000
