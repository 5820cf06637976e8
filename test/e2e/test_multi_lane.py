"""Several lanes in one read and one commit (docs/lanes.md, "Several lanes at once"): what happens to one lane
must not affect the others, and a crash or a lost answer is handled per lane.

SQLite has one lane, so all of this is about PostgreSQL.
"""
import itertools
import signal
import time

import pytest

from lib.outbox import LANES, Load, Writer, keys_in_lane, wait_for
from lib.proxy import Proxy
from test_lanes import lose_lane

pytestmark = pytest.mark.usefixtures("postgres_store")
MOVE_AT = r"from old where l\.ctid"  # a lane's row moves, found by its location


@pytest.fixture
def quiet(outbox, receiver):
    """A destination whose successes keep no row, so that a turn writes nothing but the lane's row."""
    outbox.destination("d", receiver, keep="failures")


def one_each(outbox, start=0):
    """A message in every lane, all in one transaction: {lane: id}."""
    with outbox.session() as writer:
        writer.begin()
        ids = {
            lane: writer.put("d", {"n": start + lane}, key=next(keys_in_lane(lane, ["d"], f"c{start}"))[1])
            for lane in range(LANES)
        }
        writer.commit()
    return ids


def warm_up(outbox):
    """Until the relay owns all lanes and has nothing to do."""
    for id in one_each(outbox, -100).values():
        outbox.wait(id, "PUBLISHED")
    wait_for(lambda: outbox.run("select 1 from {}lanes where claim <> '{}'") == [], "all records")


def test_2_lanes_with_a_message_each_share_a_commit(outbox, quiet, relays):
    relays("a")
    warm_up(outbox)
    ids = one_each(outbox)
    for id in ids.values():
        outbox.wait(id, "PUBLISHED")
    wait_for(lambda: outbox.run("select 1 from {}lanes where claim <> '{}'") == [], "all records")
    claims = outbox.run(
        "select b.claimed_at from {}batches b join {}outbox o on o.lane = b.lane "
        "and o.seq between b.from_seq and b.to_seq where o.event_id = any(%s::uuid[])",
        list(ids.values()),
    )
    assert len(claims) == LANES and len({row["claimed_at"] for row in claims}) == 1, claims


def stop_before_a_claim(outbox, relays):
    """A relay that is stopped just before several lanes move in one commit; what it will claim, {lane: id}. It owns
    them all and nothing has happened, so what moves first is the claim of what comes at once."""
    for attempt in range(8):
        relay = relays(f"a{attempt}", fault="multi_lane.sent:1:stop", lease="20s")
        wait_for(
            lambda: not outbox.run("select 1 from {}lanes where coalesce(owner_name, '') <> %s", relay.name),
            "all lanes",
        )
        ids = one_each(outbox, attempt * 10)
        wait_for(
            lambda: relay.status() == "T" or all(outbox.state(id)["state"] == "PUBLISHED" for id in ids.values()),
            "the stop, or all of them published",
        )
        left = {lane: id for lane, id in ids.items() if outbox.state(id)["state"] == "PENDING"}
        if relay.status() == "T" and len(left) > 1:
            return relay, left
        relay.kill()  # each lane took its own turn, which is allowed: try again
        outbox.bury(relay)
        relays(f"b{attempt}", until_idle=True).wait()
    pytest.fail("no turn of several lanes has claimed anything")


@pytest.mark.parametrize("what", ["lost", "changed"])
def test_2_a_lane_that_is_not_as_it_was_keeps_no_other_back(outbox, quiet, receiver, relays, what):
    """Between the read and the commit one lane is taken by somebody else, or its parked rows change."""
    relay, ids = stop_before_a_claim(outbox, relays)
    odd = min(ids)
    if what == "lost":
        lose_lane(outbox, odd)
    else:
        outbox.run("update {}lanes set parked_gen = parked_gen + 1 where lane = %s", odd)
    relay.thaw()
    for lane, id in ids.items():
        if lane != odd or what == "changed":
            outbox.wait(id, "PUBLISHED", attempts=1)
    for lane, id in ids.items():
        assert receiver.count(id=id) == (0 if lane == odd and what == "lost" else 1)


@pytest.mark.parametrize("point", ["multi_lane.sent", "multi_lane.done"])
def test_l4_killed_while_lanes_move_together(outbox, quiet, receiver, relays, history, point):
    writers = [Writer(outbox, history) for _ in range(4)]
    first = relays("a", fault=f"{point}:3:kill")
    deadline = time.monotonic() + 60
    for n in itertools.count():
        if not first.is_running():
            break
        assert time.monotonic() < deadline, f"{point} was never reached"
        for writer in writers:  # several within a poll
            writer.send("d", {"n": n}, key=f"{writers.index(writer)}-{n % 11}", rollback=n % 10 == 3)
    assert first.wait() == -signal.SIGKILL
    history.fault("kill", point=point)
    outbox.bury(first)
    relays("b")
    outbox.wait_drained()
    counts = history.check(outbox, [receiver])
    assert counts["states"] == {"PUBLISHED": counts["appended"]["ok"]}


@pytest.mark.parametrize("where", ["request", "reply", "down"])
def test_6_the_answer_to_a_multi_lane_turn_is_lost(
    postgres, postgres_store, outbox, quiet, receiver, relays, history, where
):
    loads = [Load(outbox, history, ["d"], pause=0.004, keys=4, name=f"load{n}") for n in range(2)]
    try:
        with Proxy(postgres.port) as proxy:
            relay = relays("a", store=proxy.url(postgres_store))
            wait_for(lambda: receiver.count() > 50, "the first deliveries")
            proxy.lose_answers(MOVE_AT, where, receiver, history)
            for load in loads:
                load.end()
            outbox.wait_drained()
            history.check(outbox, [receiver])
            assert relay.is_running()
    finally:
        for load in loads:
            load.is_over.set()


def test_7_a_gap_in_one_lane_does_not_stop_the_others(outbox, quiet, receiver, relays):
    relays("a")
    warm_up(outbox)
    keys = keys_in_lane(0, ["d"], "gap")
    with outbox.session() as writer:
        writer.begin()
        late = writer.put("d", {"m": 1}, key=next(keys)[1])
        ids = one_each(outbox)
        for id in ids.values():
            outbox.wait(id, "PUBLISHED")
        assert outbox.run("select gaps::text as gaps from {}lanes where lane = 0")[0]["gaps"] != "{}"
        writer.commit()
    outbox.wait(late, "PUBLISHED", attempts=1)
    more = one_each(outbox, 100)
    for id in more.values():
        outbox.wait(id, "PUBLISHED")
    assert all(receiver.count(id=id) == 1 for id in [late, *ids.values(), *more.values()])
