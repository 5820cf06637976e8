"""The lane protocol, rule by rule: each row of "one rule removed at a time" (docs/lanes.md) as a test.

The number in a name is the rule. Every test makes the situation of a counterexample by hand: a
receiver that holds its answer, a writer that stays open, a relay that is stopped or killed at a named
point, an operator's SQL. What must not happen is then asked of the receiver and of `outbox_state`.
"""
import datetime
import itertools
import signal
import time

import psycopg2
import pytest

from lib.outbox import keys_in_lane, wait_for

LEASE = "2s"
LANE = 0


def keys(*destinations):
    """Ordering keys that fall into one lane on both stores: key(destination)."""
    rest = {name: keys_in_lane(LANE, [name]) for name in destinations}
    return lambda name: next(rest[name])[1]


@pytest.fixture
def one(outbox, receiver):
    """A webhook destination `one`, and its key maker: all messages in one lane."""
    outbox.destination("one", receiver)
    return keys("one")


def arrive(receiver, count, **match):
    wait_for(
        lambda: receiver.count(**match) >= count, lambda: f"{count} requests {match}, there are {receiver.of(**match)}"
    )
    return receiver.of(**match)


def is_alive(outbox, relay):
    """Wait until the relay is seen to work after now: its heartbeat moves."""

    def beats():
        return [
            row["heartbeat_at"] for row in outbox.run("select heartbeat_at from {}relays where name = %s", relay.name)
        ]

    before = beats()
    wait_for(lambda: beats() and beats() != before, f"a heartbeat of {relay.name}")


def lose_lane(outbox, lane=LANE):
    """Somebody else takes the lane, as after the end of its lease."""
    outbox.run(
        "update {}lanes set epoch = epoch + 1, owner = 'somebody else', owner_name = 'else', "
        f"lease_until = {outbox.now(3600_000_000)}, parked_gen = parked_gen + 1 where lane = %s",
        lane,
    )


# 7, 10, 20, 21: gaps (SQLite has one writer, and none)


@pytest.fixture
def gap(postgres_store, outbox, receiver, one):
    """A writer that has taken a number for key K, and stays open; (session, id, key)."""
    key = one("one")
    with outbox.session() as writer:
        writer.begin()
        yield writer, writer.put("one", {"m": 1}, key=key), key


def gaps(outbox):
    return outbox.run("select gaps::text as gaps from {}lanes where lane = %s", LANE)[0]["gaps"]


def test_7_an_open_writer_is_passed_and_its_message_is_never_lost(gap, outbox, receiver, relays, one):
    writer, m1, key = gap
    m2, other = outbox.put("one", {"m": 2}, key=key), outbox.put("one", {"m": 3}, key=one("one"))
    relays("a")
    outbox.wait(other, "PUBLISHED")
    outbox.wait(m2, "PUBLISHED")  # begun before m1 was committed: either order is right (21)
    assert gaps(outbox) == "{[1,2)}" and receiver.count(id=m1) == 0
    writer.commit()
    row = outbox.wait(m1, "PUBLISHED", attempts=1)
    assert receiver.count(id=m1) == 1
    assert row["published_at"] > outbox.state(m2)["published_at"]  # of its own batch, the inner one
    wait_for(lambda: gaps(outbox) == "{}", "the gap to be closed")


def test_7_a_message_that_fills_a_gap_is_pending_until_it_is_claimed(gap, outbox, receiver, relays):
    """The claim covers what its snapshot showed: a late one never looks CLAIMED or PUBLISHED unsent."""
    writer, m1, key = gap
    m2 = outbox.put("one", {"m": 2}, key=key)
    relay = relays("a")
    outbox.wait(m2, "PUBLISHED")
    wait_for(lambda: gaps(outbox) != "{}", "the gap")
    relay.freeze()
    writer.commit()
    assert (outbox.state(m1)["state"], outbox.state(m1)["attempts"]) == ("PENDING", 0)
    relay.thaw()
    outbox.wait(m1, "PUBLISHED", attempts=1)


def test_7_a_gap_survives_its_owner(gap, outbox, receiver, relays, one):
    writer, m1, key = gap
    m2 = outbox.put("one", {"m": 2}, key=one("one"))
    relay = relays("a")
    outbox.wait(m2, "PUBLISHED")
    wait_for(lambda: gaps(outbox) != "{}", "the gap")
    relay.kill()
    outbox.bury(relay)
    relays("b")
    writer.commit()
    outbox.wait(m1, "PUBLISHED", attempts=1)
    assert receiver.count(id=m1) == 1


def test_10_fills_and_new_messages_go_in_the_order_of_their_numbers(gap, outbox, receiver, relays, one):
    """m1 and then m2 commit between two reads: m1 first."""
    writer, m1, key = gap
    other = outbox.put("one", {"m": 0}, key=one("one"))
    relay = relays("a")
    outbox.wait(other, "PUBLISHED")
    wait_for(lambda: gaps(outbox) != "{}", "the gap")
    relay.freeze()
    writer.commit()
    m2 = outbox.put("one", {"m": 2}, key=key)
    relay.thaw()
    outbox.wait(m2, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2]


def test_20_a_rolled_back_number_is_forgotten(gap, outbox, receiver, relays, one):
    writer, m1, key = gap
    relays("a")
    outbox.wait(outbox.put("one", {"m": 2}, key=key), "PUBLISHED")
    assert gaps(outbox) != "{}"
    writer.rollback()

    def is_dead():
        outbox.wait(outbox.put("one", {"m": 3}, key=key), "PUBLISHED")
        return gaps(outbox) == "{}"

    wait_for(is_dead, "the gap to die")
    assert m1 not in receiver.ids()


def test_20_gaps_die_also_while_messages_never_stop(postgres_store, outbox, relays, one):
    """Rollbacks beside a stream of others: the read that decides brings messages too, and a new gap. How many
    gaps there are at once is a matter of how fast the relay gets to run; that each of them dies is not."""
    outbox.destination("one", type="null")
    relays("a")
    key = one("one")

    def stream(session):
        """A number that nobody will ever fill, and messages after it."""
        session.begin()
        id = session.put("one", {"m": 0}, key=key)
        seq = session.one("select seq from {}outbox where event_id = %s", id)["seq"]
        session.rollback()
        for _ in range(3):
            outbox.put("one", {"m": 1}, key=key)
        return seq

    with outbox.session() as writer:
        for _ in range(8):
            seq = stream(writer)

            def is_dead():
                stream(writer)
                lane = outbox.one("select head, gaps @> %s::bigint as is_open from {}lanes where lane = %s", seq, LANE)
                return lane["head"] > seq and not lane["is_open"]

            wait_for(is_dead, f"gap {seq} to die in the stream", pause=0)
    outbox.wait_drained()


def test_20_old_gaps_do_not_slow_a_backlog(postgres_store, outbox, relays, one):
    """A hundred rolled-back numbers between messages: by turns, not by time."""
    outbox.destination("one", type="null")
    with outbox.session() as writer:
        for _ in range(100):
            writer.begin()
            writer.put("one", {"m": 0}, key="x")
            writer.rollback()
            writer.put("one", {"m": 1}, key="x")
    lane = outbox.one("select lane from {}outbox limit 1")["lane"]
    relays("a")
    outbox.wait_drained()
    assert outbox.lane(lane)["claim_no"] < 60


def test_20_a_writer_that_outlives_all_others_is_waited_for(gap, outbox, receiver, relays, one):
    """Others come and go, also ones that began after the gap was seen: only its own writer decides."""
    writer, m1, key = gap
    relays("a")
    later = [outbox.session() for _ in range(3)]
    try:
        for n in range(30):
            own = later[n % 3]
            own.begin()
            own.put("one", {"n": n}, key=one("one"))
            (own.rollback if n % 4 == 0 else own.commit)()
            outbox.wait(outbox.put("one", {"n": n}, key=one("one")), "PUBLISHED")
        assert gaps(outbox).startswith("{[1,")
        writer.commit()
        outbox.wait(m1, "PUBLISHED", attempts=1)
        assert receiver.count(id=m1) == 1
    finally:
        for own in later:
            own.close()


def test_15_a_filled_gap_waits_for_the_straggler_of_its_key(gap, outbox, receiver, relays):
    """m2 is on the wire when m1, the lower one, appears: not both at once."""
    writer, m1, key = gap
    receiver.rule("hang", key=key)
    m2 = outbox.put("one", {"m": 2}, key=key)
    relays("a", lease="6s")
    outbox.wait(m2, "CLAIMED")
    wait_for(lambda: outbox.parked(m2), "m2 to be a straggler")
    writer.commit()
    wait_for(lambda: outbox.parked(m1), "m1 to be parked behind it")
    assert receiver.ids(key=key) == [m2]
    receiver.release()
    outbox.wait(m1, "PUBLISHED")
    assert receiver.ids(key=key) == [m2, m1]
    assert all(one.concurrent == 0 for one in receiver.of(key=key))


# 2, 3, 4: ownership


def test_3_a_takeover_parks_the_open_claim(store, outbox, receiver, relays, one):
    """Claimed, the relay dies: CLAIMED until somebody takes the lane, then PENDING with attempts 1."""
    m1 = outbox.put("one", {"m": 1}, key=one("one"))
    first = relays("a", fault="publish.sent:1:kill")
    assert first.wait() == -signal.SIGKILL
    before = outbox.state(m1)
    assert (before["state"], before["attempts"]) == ("CLAIMED", 1)
    assert before["claimed_by"] == outbox.lane(LANE)["owner"]
    outbox.run("update {}destinations set paused = %s", outbox.is_sqlite or True)
    epoch = outbox.lane(LANE)["epoch"]
    outbox.bury(first)
    relays("b")
    row = outbox.wait(m1, "PENDING", attempts=1)
    assert row["last_error"].startswith("outcome unknown")
    assert outbox.lane(LANE)["epoch"] > epoch
    assert receiver.count() == 0
    outbox.run(
        f"update {{}}destinations set paused = %s, updated_at = {outbox.now()}", 0 if outbox.is_sqlite else False
    )
    outbox.wait(m1, "PUBLISHED", attempts=2)
    assert [one.attempt for one in receiver.of(id=m1)] == [2]


def test_3_a_lane_that_another_has_locked_is_not_taken_when_he_lets_go(postgres_store, outbox, receiver, relays, one):
    """Not without having parked its claim: the holder of the lock may have rolled back, as one that dies does."""
    m1 = outbox.put("one", {"m": 1}, key=one("one"))
    first = relays("a", fault="publish.sent:1:kill")
    assert first.wait() == -signal.SIGKILL
    outbox.bury(first)
    with psycopg2.connect(postgres_store) as other, other.cursor() as cursor:
        cursor.execute("select from outlog.lanes order by lane for update")
        second = relays("b", fault="lane.locked:1:stop")
        second.wait_frozen()
        other.rollback()
    second.thaw()
    outbox.wait(m1, "PUBLISHED", attempts=2)
    assert [one.attempt for one in receiver.of(id=m1)] == [2]


def test_3_a_relay_of_the_same_name_waits_for_the_lease_too(store, outbox, receiver, relays, one):
    first = relays("same")
    outbox.wait(outbox.put("one", {"m": 0}, key=one("one")), "PUBLISHED")
    first.freeze()
    before = outbox.lane(LANE)
    relays("same")
    m1 = outbox.put("one", {"m": 1}, key=one("one"))
    wait_for(lambda: outbox.lane(LANE)["owner"] != before["owner"], "the takeover")
    now = outbox.one(f"select {outbox.now()} as now")["now"]
    assert now >= before["lease_until"]
    outbox.wait(m1, "PUBLISHED")
    first.thaw()
    is_alive(outbox, first)
    assert receiver.count(id=m1) == 1


@pytest.mark.parametrize("how", ["claimed", "sent"])
def test_2_a_stale_owner_is_fenced(store, outbox, receiver, relays, one, how):
    """A freezes with m1 on the wire, B takes over and works; A's late record changes nothing."""
    key = one("one")
    receiver.rule("hang", key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    first = relays("a", patience="30s" if how == "claimed" else "100ms")
    arrive(receiver, 1, id=m1)
    if how == "sent":
        wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    owner = outbox.lane(LANE)["owner"]
    first.freeze()
    relays("b")
    m2 = outbox.put("one", {"m": 2}, key=one("one"))
    outbox.wait(m2, "PUBLISHED")
    if how == "claimed":
        outbox.wait(m1, "PUBLISHED", attempts=2)
    receiver.release()  # the answer for A
    before = outbox.run("select * from {}parked order by seq"), outbox.run(
        "select * from {}batches order by lane, to_seq"
    )
    first.thaw()
    is_alive(outbox, first)
    if how == "claimed":  # nothing of A's: it had no token of its own
        assert (
            outbox.run("select * from {}parked order by seq"),
            outbox.run("select * from {}batches order by lane, to_seq"),
        ) == before
        assert (
            outbox.run(
                "select * from {}batches where claimed_by = %s and to_seq >= %s and lane = %s",
                owner,
                outbox.state(m1)["seq"],
                LANE,
            )
            == []
        )
    outbox.wait(m1, "PUBLISHED")
    assert [one.attempt for one in receiver.of(id=m1)] in ([1, 2], [1])


@pytest.mark.parametrize("point", ["claim.sent", "mark.done"])
def test_4_a_relay_that_wakes_after_its_lease_sends_nothing(store, outbox, receiver, relays, one, point):
    """Stopped just before or just after its claim is stored, for longer than its lease."""
    if outbox.is_sqlite and point == "claim.sent":
        pytest.skip("SQLite: who is stopped inside its transaction stops all writers (docs)")
    ids = [outbox.put("one", {"m": n}, key=one("one")) for n in range(3)]
    first = relays("a", fault=f"{point}:1:stop")
    first.wait_frozen()
    relays("b")
    for id in ids:
        outbox.wait(id, "PUBLISHED")
    requests = receiver.count()
    first.thaw()
    is_alive(outbox, first)
    is_alive(outbox, first)
    assert receiver.count() == requests, receiver.requests
    assert sorted(receiver.ids()) == sorted(ids)


def test_4_a_relay_that_was_fenced_can_take_the_lane_again(request, store, outbox, receiver, relays, one):
    m1 = outbox.put("one", {"m": 1}, key=one("one"))
    first = relays("a", fault="mark.done:1:stop")
    first.wait_frozen()
    second = relays("b")
    outbox.wait(m1, "PUBLISHED")
    first.thaw()
    is_alive(outbox, first)
    second.term()
    assert second.wait() == 0
    m2 = outbox.put("one", {"m": 2}, key=one("one"))
    outbox.wait(m2, "PUBLISHED")
    assert receiver.count(id=m2) == 1


def test_5_a_relay_frozen_inside_its_transaction_does_not_keep_the_lane(postgres_store, outbox, receiver, relays, one):
    m1 = outbox.put("one", {"m": 1}, key=one("one"), due_us=-1)
    delayed = outbox.put("one", {"m": 2}, key=one("one"), due_us=100_000)  # parked: a real transaction
    first = relays("a", fault="mark.sent:1:stop")
    first.wait_frozen()
    relays("b")
    try:
        outbox.wait(m1, "PUBLISHED")
        outbox.wait(delayed, "PUBLISHED")
    finally:
        first.kill()


# 8, 9: what must wait


def test_9_a_delayed_message_blocks_its_key_and_no_other(store, outbox, receiver, relays, one):
    key = one("one")
    m1 = outbox.put("one", {"m": 1}, key=key, due_us=4_000_000)
    m2, other = outbox.put("one", {"m": 2}, key=key), outbox.put("one", {"m": 3}, key=one("one"))
    relays("a")
    outbox.wait(other, "PUBLISHED")
    m3 = outbox.put("one", {"m": 4}, key=key)
    wait_for(lambda: outbox.parked(m3), "m3 to be parked")
    for id in (m1, m2, m3):
        assert (outbox.state(id)["state"], outbox.state(id)["attempts"]) == ("PENDING", 0)
    due = outbox.state(m1)["available_at"]
    outbox.wait(m1, "CLAIMED", "PUBLISHED")
    assert outbox.one(f"select {outbox.now()} as now")["now"] >= due
    outbox.wait(m3, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2, m3]
    assert [outbox.state(id)["attempts"] for id in (m1, m2, m3)] == [1, 1, 1]


def test_9_what_comes_after_a_failed_one_waits_for_it(store, outbox, receiver, relays, one):
    key = one("one")
    receiver.rule(500, key=key, times=4)
    m1 = outbox.put("one", {"m": 1}, key=key)
    relays("a")
    arrive(receiver, 1, id=m1)
    rest = [outbox.put("one", {"m": n}, key=key) for n in range(2, 6)]
    outbox.wait(rest[-1], "PUBLISHED")
    assert receiver.ids(key=key) == [m1] * 5 + rest
    assert [one.attempt for one in receiver.of(id=m1)] == [1, 2, 3, 4, 5]
    assert not [one for one in receiver.of(key=key) if one.concurrent]


def test_9_a_new_owner_knows_the_keys_that_wait(store, outbox, receiver, relays, one):
    """A parks m1 and dies; B claims m2 only after it."""
    key = one("one")
    outbox.destination("one", receiver, retry={"base": "3s", "factor": 1, "jitter": 0, "max_attempts": 9})
    receiver.rule(500, key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    first = relays("a")
    outbox.wait(m1, "PENDING", attempts=1)
    first.kill()
    outbox.bury(first)
    second = relays("b")
    wait_for(lambda: outbox.lane(LANE)["owner_name"] == "b", "the takeover")
    m2 = outbox.put("one", {"m": 2}, key=key)
    wait_for(lambda: outbox.parked(m2) or outbox.state(m2)["state"] == "PUBLISHED", "m2 to be seen")
    outbox.wait(m2, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m1, m2] and second.is_running()


def test_9_an_owner_hears_of_what_an_operator_did(store, outbox, receiver, relays, one):
    """m1 died, its key went on; it is requeued for later: m3 goes behind it."""
    key = one("one")
    receiver.rule(404, key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    relays("a")
    outbox.wait(m1, "DEAD")
    m2 = outbox.put("one", {"m": 2}, key=key)
    outbox.wait(m2, "PUBLISHED")
    outbox.operate(m1, f"state = 'PENDING', budget_from = attempts, available_at = {outbox.now(1_000_000)}")
    m3 = outbox.put("one", {"m": 3}, key=key)
    outbox.wait(m3, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2, m1, m3]
    assert outbox.state(m1)["attempts"] == 2


def test_15_an_operators_requeue_waits_for_the_open_batch(store, outbox, receiver, relays, one):
    """m2 of the key is in the batch on the wire; m1 is requeued: not both at once."""
    key = one("one")
    receiver.rule(404, key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    relays("a", patience="1s", lease="6s")
    outbox.wait(m1, "DEAD")
    receiver.rule("hang", key=key)
    m2 = outbox.put("one", {"m": 2}, key=key)
    arrive(receiver, 1, id=m2)
    outbox.requeue(m1)
    wait_for(lambda: outbox.parked(m2), "m2 to become a straggler")
    is_alive(outbox, relays.all[0])
    assert receiver.count(id=m1) == 1
    receiver.release()
    outbox.wait(m1, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2, m1]
    assert not [one for one in receiver.of(key=key) if one.concurrent]


def test_9_a_claim_that_ends_beside_a_reaped_one_keeps_its_key_in_order(postgres_store, outbox, receiver, relays, one):
    """One turn ends m1 and reaps another's claim: m3 still waits for m2, which is on the wire by then.

    The relay is held in its look at the parked rows until both have happened."""
    key = one("one")
    relays("a", lease="60s", threads=1)

    def plain():
        """A published message without a row of its own; on a slow machine any may become a straggler."""
        other = outbox.put("one", {"m": 0}, key=one("one"))
        outbox.wait(other, "PUBLISHED")
        return None if outbox.parked(other) else other

    other = wait_for(plain, "a message on the plain path")
    receiver.rule("hang", key=key)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key)
    wait_for(lambda: outbox.parked(m1) and outbox.parked(m2), "a straggler, and one behind it")
    with outbox.session() as own:
        own.begin()
        own.run("lock table {}parked in access exclusive mode")
        wait_for(
            lambda: outbox.run(
                "select 1 from pg_stat_activity where wait_event_type = 'Lock' " "and datname = current_database()"
            ),
            "the relay to wait",
        )
        place = own.one("select lane, seq from {}outbox where event_id = %s", other)
        own.run(
            "insert into {}parked (lane, seq, destination, ordering_key, state, attempts, available_at, "
            "claimed_by, claimed_at, lease_until) values (%s, %s, 'one', 'elsewhere', 'CLAIMED', 1, "
            "now(), 'dead', now(), now() - interval '1 second')",
            place["lane"],
            place["seq"],
        )
        receiver.release()
        receiver.rule("hang", key=key)
        wait_for(lambda: receiver.of(id=m1)[0].answer == 200, "the answer")
        own.commit()
    arrive(receiver, 1, id=m2)
    outbox.wait(other, "PUBLISHED", attempts=2)  # reaped, and sent again
    m3 = outbox.put("one", {"m": 3}, key=key)
    wait_for(lambda: outbox.parked(m3) or receiver.count(id=m3), "m3 to be seen")
    assert receiver.ids(key=key) == [m1, m2]
    receiver.release()
    outbox.wait(m3, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2, m3]


def test_15_a_message_that_falls_due_in_its_own_turn_waits_for_the_batch(sqlite_store, outbox, receiver, relays, one):
    """m2 is parked as not yet due in the turn that claims m1, and is due when the turn looks for due ones.

    A relay whose clock is behind the database's meets this all the time."""
    key = one("one")
    receiver.rule("hang", key=key)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key, due_us=150_000)
    relays("a", fault="claim.sent:1:delay", lease="6s")
    arrive(receiver, 1, id=m1)
    wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    is_alive(outbox, relays.all[0])
    assert receiver.ids(key=key) == [m1]
    receiver.release()
    outbox.wait(m2, "PUBLISHED")
    assert receiver.ids(key=key) == [m1, m2]


# 11, 12, 13, 14: the wire, the record, stragglers


def test_11_one_message_of_a_key_is_on_the_wire(store, outbox, receiver, relays, one):
    some = [one("one") for _ in range(4)]
    receiver.rule("slow", seconds=0.01)
    with outbox.session() as own:
        own.begin()
        sent = {key: [own.put("one", {"n": n}, key=key) for n in range(10)] for key in some}
        own.commit()
    relays("a")
    outbox.wait_drained()
    for key in some:
        assert receiver.ids(key=key) == sent[key]
        assert not [one for one in receiver.of(key=key) if one.concurrent]


def test_12_a_straggler_is_parked_and_only_its_key_waits(store, outbox, receiver, relays, one):
    key = one("one")
    receiver.rule("hang", key=key)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key)
    other = outbox.put("one", {"m": 3}, key=one("one"))
    relays("a", lease="10s")
    row = wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    assert (row["state"], row["attempts"], row["unsent"]) == ("CLAIMED", 1, 0)
    assert row["lease_until"] and row["claimed_by"] == outbox.lane(LANE)["owner"]
    row = outbox.parked(m2)
    assert (row["state"], row["attempts"], row["unsent"]) == ("PENDING", 1, 1)  # claimed, never sent
    outbox.wait(other, "PUBLISHED", attempts=1)
    m3 = outbox.put("one", {"m": 4}, key=key)
    wait_for(lambda: outbox.parked(m3), "m3 to be parked behind")
    assert outbox.state(m3)["attempts"] == 0 and receiver.ids(key=key) == [m1]
    receiver.release()
    outbox.wait(m3, "PUBLISHED", attempts=1)
    assert receiver.ids(key=key) == [m1, m2, m3]
    assert (outbox.state(m1)["attempts"], outbox.state(m2)["attempts"]) == (1, 2)


@pytest.mark.parametrize("answer, state", [(200, "PUBLISHED"), (404, "DEAD"), (500, "PENDING")])
def test_13_a_straggler_ends_by_its_own_token_after_the_lane_moved(store, outbox, receiver, relays, one, answer, state):
    key = one("one")
    receiver.rule("hang", key=key)
    outbox.destination("one", receiver, retry={"base": "100s", "max": "100s", "max_attempts": 9})
    m1 = outbox.put("one", {"m": 1}, key=key)
    relays("a", lease="10s")
    wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    lose_lane(outbox)
    gen = outbox.lane(LANE)["parked_gen"]
    is_alive(outbox, relays.all[0])
    receiver.release(answer)
    outbox.wait(m1, state, attempts=1)
    assert outbox.lane(LANE)["parked_gen"] > gen  # the new owner reloads
    assert outbox.lane(LANE)["owner"] == "somebody else"
    assert receiver.count(id=m1) == 1


def test_13_a_late_result_does_not_touch_a_row_that_was_reaped(store, outbox, receiver, relays, one):
    """Its lease is over, the new owner has made it PENDING: the answer that comes then is too late."""
    key = one("one")
    receiver.rule("hang", key=key)
    m1 = outbox.put("one", {"m": 1}, key=key)
    first = relays("a", lease="10s")
    wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    first.freeze()
    lose_lane(outbox)
    outbox.operate(
        m1,
        f"state = 'PENDING', claimed_by = null, claimed_at = null, lease_until = null, "
        f"available_at = {outbox.now(3600_000_000)}",
    )  # as a reaper does
    before = outbox.parked(m1)
    receiver.release()
    wait_for(lambda: receiver.of(id=m1)[0].answer == 200, "the answer")
    first.thaw()
    is_alive(outbox, first)
    is_alive(outbox, first)
    after = outbox.parked(m1)
    assert (after["state"], after["attempts"], after["published_at"]) == ("PENDING", 1, None)
    assert after == before


@pytest.mark.parametrize("guarantee, state", [("at_least_once", "PUBLISHED"), ("at_most_once", "DEAD")])
def test_14_a_dead_relays_straggler_is_reaped_when_its_own_lease_is_over(
    store, outbox, receiver, relays, one, guarantee, state
):
    key = one("one")
    outbox.destination("one", receiver, guarantee=guarantee, timeout="2500ms")
    receiver.rule("hang", key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    first = relays("a", lease="2s")
    row = wait_for(lambda: outbox.parked(m1), "m1 to be a straggler")
    first.kill()
    relays("b", lease="2s")
    wait_for(lambda: outbox.lane(LANE)["owner_name"] == "b", "the takeover")
    mine, now = outbox.parked(m1), outbox.one(f"select {outbox.now()} as now")["now"]
    assert mine == row or now >= row["lease_until"]  # nobody touches it before its lease is over
    outbox.wait(m1, state)
    assert outbox.one(f"select {outbox.now()} as now")["now"] >= row["lease_until"]
    after = outbox.state(m1)
    if guarantee == "at_most_once":
        assert after["last_error"].startswith("outcome unknown") and receiver.count(id=m1) == 1
    else:
        assert after["attempts"] == 2 and [one.attempt for one in receiver.of(id=m1)] == [1, 2]


def test_12_claims_that_were_never_sent_do_not_use_the_budget(store, outbox, receiver, relays, one):
    """A budget of two: the wait behind a straggler and a relay's death cost nothing of it."""
    outbox.destination("one", receiver, timeout="20s")
    key = one("one")
    receiver.rule("hang", key=key, times=1)
    m1 = outbox.put("one", {"m": 1}, key=key)
    m2 = outbox.put("one", {"m": 2}, key=key, max_attempts=2)
    first = relays("a")
    row = wait_for(lambda: outbox.parked(m2), "m2 to be parked unsent")
    assert (row["attempts"], row["unsent"]) == (1, 1)
    first.kill()
    receiver.release()
    receiver.rule(500, id=m2)
    outbox.bury(first)
    relays("b")
    row = outbox.wait(m2, "DEAD")
    assert receiver.count(id=m2) == 2 and row["attempts"] == 3
    assert receiver.first_ids(key=key) == [m1, m2]


def test_12_a_crash_does_not_use_a_budget_of_two(store, outbox, receiver, relays, one):
    m1 = outbox.put("one", {"m": 1}, key=one("one"), max_attempts=2)
    first = relays("a", fault="publish.sent:1:kill")
    first.wait()
    outbox.bury(first)
    receiver.rule(500, id=m1)
    relays("b")
    row = outbox.wait(m1, "DEAD")
    assert receiver.count(id=m1) == 2, row
    assert row["last_error"] == "HTTP 500"


def test_14_a_message_that_crashes_relays_ends_dead(store, outbox, receiver, relays, one):
    """Every relay that takes it up dies. After its attempts it is DEAD, and the others are delivered."""
    m1 = outbox.put("one", {"m": 1}, key=one("one"), max_attempts=2)
    for n in range(6):
        relay = relays(f"r-{n}", fault="publish.sent:1:kill")
        wait_for(lambda: not relay.is_running() or outbox.state(m1)["state"] == "DEAD", "a death")
        if outbox.state(m1)["state"] == "DEAD":
            break
        outbox.bury(relay)
    row = outbox.state(m1)
    assert row["state"] == "DEAD" and "unknown" in row["last_error"], row
    assert receiver.count(id=m1) == 0
    relays.all[-1].kill()
    outbox.bury(relays.all[-1])
    relays("healthy")
    outbox.wait(outbox.put("one", {"m": 2}, key=one("one")), "PUBLISHED")


# at_most_once (3, 12)


def test_3_at_most_once_a_crash_condemns_only_what_may_have_left(store, outbox, receiver, relays, one):
    """Two places, six messages: the two on the wire are DEAD, the other four are delivered."""
    outbox.destination("one", receiver, guarantee="at_most_once", concurrency=2)
    with outbox.session() as own:
        own.begin()
        ids = [own.put("one", {"m": n}, key=one("one")) for n in range(6)]
        own.commit()
    receiver.rule("hang")
    first = relays("a", patience="30s", lease="20s")
    arrive(receiver, 2)
    first.kill()
    receiver.release()
    outbox.bury(first)
    relays("b")
    outbox.wait_drained()
    states = [outbox.state(id)["state"] for id in ids]
    assert states == ["DEAD"] * 2 + ["PUBLISHED"] * 4
    assert all(outbox.state(id)["last_error"].startswith("outcome unknown") for id in ids[:2])
    assert sorted(receiver.ids()) == sorted(ids)  # each once, whatever became of it


def test_3_at_most_once_the_next_of_a_key_is_not_condemned_with_the_first(store, outbox, receiver, relays, one):
    key = one("one")
    outbox.destination("one", receiver, guarantee="at_most_once")
    with outbox.session() as own:
        own.begin()
        ids = [own.put("one", {"m": n}, key=key) for n in range(3)]
        own.commit()
    receiver.rule("hang")
    first = relays("a", patience="30s", lease="20s")
    arrive(receiver, 1)
    first.kill()
    receiver.release()
    outbox.bury(first)
    relays("b")
    outbox.wait_drained()
    assert [outbox.state(id)["state"] for id in ids] == ["DEAD", "PUBLISHED", "PUBLISHED"]


def test_3_at_most_once_what_the_rate_holds_back_is_not_condemned(store, outbox, receiver, relays, one):
    outbox.destination("one", receiver, guarantee="at_most_once", rate="1/m")
    with outbox.session() as own:
        own.begin()
        ids = [own.put("one", {"m": n}, key=one("one")) for n in range(4)]
        own.commit()
    receiver.rule("hang")
    first = relays("a", patience="30s", lease="20s")
    arrive(receiver, 1)
    first.kill()
    receiver.release()
    outbox.bury(first)
    outbox.destination("one", receiver, guarantee="at_most_once", rate="4/s")
    relays("b")
    outbox.wait_drained()
    sent = receiver.ids()
    assert [outbox.state(id)["state"] for id in ids].count("DEAD") == 1, [outbox.state(id)["state"] for id in ids]
    assert sorted(sent) == sorted(ids)


def test_3_at_most_once_reaches_a_destination_without_a_limit(store, outbox, relays, one):
    outbox.destination("one", guarantee="at_most_once", type="null")
    ids = [outbox.put("one", {"m": n}, key=one("one")) for n in range(3)]
    relays("a")
    for id in ids:
        outbox.wait(id, "PUBLISHED", attempts=1)


@pytest.mark.parametrize(
    "action, more, state",
    [
        ("reset", {}, "DEAD"),
        (502, {}, "DEAD"),
        (504, {}, "DEAD"),
        (500, {}, "PUBLISHED"),
        (429, {}, "PUBLISHED"),
        (503, {"headers": {"retry-after": "1"}}, "PUBLISHED"),
    ],
)
def test_12_at_most_once_tries_again_only_what_surely_did_not_happen(
    store, outbox, receiver, relays, one, action, more, state
):
    outbox.destination("one", receiver, guarantee="at_most_once")
    receiver.rule(action, times=1, **more)
    m1 = outbox.put("one", {"m": 1}, key=one("one"))
    relays("a")
    outbox.wait(m1, state)
    assert receiver.count(id=m1) == (1 if state == "DEAD" else 2)


# 17, 18: the dead


def test_17_skip_lets_the_key_go_on(store, outbox, receiver, relays, one):
    key = one("one")
    receiver.rule(404, key=key, times=1)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key)
    relays("a")
    outbox.wait(m2, "PUBLISHED")
    row = outbox.state(m1)
    assert (row["state"], row["attempts"], row["last_error"]) == ("DEAD", 1, "HTTP 404")
    assert receiver.ids(key=key) == [m1, m2]


@pytest.mark.parametrize("then", ["requeue", "release"])
def test_17_hold_keeps_the_key_waiting_for_a_person(store, outbox, receiver, relays, one, then):
    key = one("one")
    outbox.destination("one", receiver, on_dead="hold")
    receiver.rule(404, key=key, times=1)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key)
    first = relays("a")
    outbox.wait(m1, "DEAD")
    outbox.wait(outbox.put("one", {"m": 0}, key=one("one")), "PUBLISHED")  # other keys flow
    m3 = outbox.put("one", {"m": 3}, key=key)
    wait_for(lambda: outbox.parked(m3), "m3 to be parked")
    first.kill()  # also for the next owner
    outbox.bury(first)
    relays("b")
    wait_for(lambda: outbox.lane(LANE)["owner_name"] == "b", "the takeover")
    outbox.wait(outbox.put("one", {"m": 0}, key=one("one")), "PUBLISHED")
    assert [outbox.state(id)["state"] for id in (m1, m2, m3)] == ["DEAD", "PENDING", "PENDING"]
    assert receiver.ids(key=key) == [m1]
    if then == "requeue":
        outbox.requeue(m1)
    else:
        outbox.operate(m1, "held = false")
    outbox.wait(m3, "PUBLISHED")
    assert receiver.ids(key=key) == ([m1, m1, m2, m3] if then == "requeue" else [m1, m2, m3])
    assert outbox.state(m1)["state"] == ("PUBLISHED" if then == "requeue" else "DEAD")


def test_19_a_killed_message_lets_its_key_go_on(store, outbox, receiver, relays, one):
    key = one("one")
    m1 = outbox.put("one", {"m": 1}, key=key, due_us=3600_000_000)
    m2 = outbox.put("one", {"m": 2}, key=key)
    relays("a")
    wait_for(lambda: outbox.parked(m2), "both to be parked")
    outbox.kill(m1)
    outbox.wait(m2, "PUBLISHED")
    assert outbox.state(m1)["state"] == "DEAD" and receiver.ids(key=key) == [m2]


# 6: a commit whose answer was lost: test_relay_crash.py

# Breaker, limits, isolation (8, L5)


def pair(outbox, receiver, **settings):
    """Destinations `down` and `up` in one lane."""
    outbox.destination("down", receiver, **settings)
    outbox.destination("up", receiver)
    return keys("down", "up")


def test_8_an_open_breaker_spends_no_attempt_and_lets_others_pass(store, outbox, receiver, relays):
    make = pair(
        outbox,
        receiver,
        breaker={"failures": 3, "open": "300ms", "open_max": "300ms"},
        concurrency=2,
        retry={"base": "10ms", "jitter": 0, "max": "20ms", "max_attempts": 1000},
    )
    receiver.rule(500, destination="down")
    down, up = [], []
    for n in range(40):
        down.append(outbox.put("down", {"n": n}, key=make("down")))
        up.append(outbox.put("up", {"n": n}, key=make("up")))
    relays("a")
    for id in up:
        outbox.wait(id, "PUBLISHED", attempts=1)
    arrive(receiver, 6, destination="down")  # a few probes later
    assert receiver.count(destination="down") < 40
    late = outbox.put("up", {"n": "late"}, key=make("up"))
    outbox.wait(late, "PUBLISHED")
    receiver.forget()
    outbox.wait_drained()
    for id in down:
        row = outbox.parked(id) or {"attempts": 1, "unsent": 0}
        assert row["attempts"] - row["unsent"] == receiver.count(id=id), (row, receiver.of(id=id))


def test_8_a_breaker_that_opens_hands_back_what_was_claimed_unsent(store, outbox, receiver, relays):
    """Retries that are due together: the breaker opens after the first few; the others keep their budget."""
    make = pair(outbox, receiver, breaker={"failures": 2, "open": "60s", "open_max": "60s"}, concurrency=1)
    ids = [outbox.put("down", {"n": n}, key=make("down"), due_us=600_000, max_attempts=5) for n in range(20)]
    receiver.rule(500, destination="down")
    relays("a")
    arrive(receiver, 2, destination="down")
    late = outbox.put("up", {"n": 0}, key=make("up"))
    outbox.wait(late, "PUBLISHED")
    time_to_reap = time.monotonic() + 2.3  # longer than a lease
    wait_for(lambda: time.monotonic() > time_to_reap, "the lease to pass")
    for id in ids:
        row = outbox.parked(id)
        assert row["attempts"] - row["unsent"] == receiver.count(id=id), row


def test_4_the_lease_of_a_parked_message_counts_from_its_claim(postgres_store, outbox, receiver, relays):
    """And not from the beginning of the round, in which other lanes may have taken their time: or it would be handed
    back for want of time, with a claim more than were sent."""
    outbox.destination("d", receiver)
    due = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=3)
    ids = [outbox.put("d", {"n": n}, available_at=due.isoformat()) for n in range(8)]
    lanes = {id: outbox.lane_for(id) for id in ids}
    first = relays("a")
    wait_for(lambda: all(outbox.parked(id) for id in ids), "all to be parked")
    first.term()
    assert first.wait() == 0
    relay = relays("b", fault="mark.done:9:stop")  # each lane was looked through, and one has claimed
    relay.wait_frozen()
    claimed = {lanes[id] for id in ids if outbox.parked(id)["state"] == "CLAIMED"}
    assert len(claimed) == 1 and {outbox.parked(id)["state"] for id in ids} == {"PENDING", "CLAIMED"}
    stopped_at = time.monotonic()
    wait_for(lambda: time.monotonic() > stopped_at + 1.2, "more than half of the lease to pass")
    relay.thaw()
    for id in ids:
        row = outbox.wait(id, "PUBLISHED")
        assert lanes[id] in claimed or (outbox.parked(id)["attempts"], outbox.parked(id)["unsent"]) == (1, 0), row


def test_l5_one_of_ten_hangs_and_the_others_get_everything(store, outbox, receiver, relays):
    names = [f"d-{n}" for n in range(10)]
    for name in names:
        outbox.destination(name, receiver, concurrency=4)
    receiver.rule("hang", destination="d-3")
    with outbox.session() as own:
        own.begin()
        ids = {name: [] for name in names}
        for n in range(40):
            for name in names:
                ids[name].append(own.put(name, {"n": n}, key=f"k-{n % 7}"))
        own.commit()
    relays("a", lease="20s", threads=1)
    for name in names:
        if name != "d-3":
            arrive(receiver, 40, destination=name)
            assert sorted(receiver.ids(destination=name)) == sorted(ids[name])
    assert receiver.count(destination="d-3") <= 4  # its own places, and not one more
    receiver.release()
    outbox.wait_drained()
    for name in names:
        for n in range(7):
            mine = [id for i, id in enumerate(ids[name]) if i % 7 == n]
            assert receiver.first_ids(destination=name, key=f"k-{n}") == mine


def test_l5_while_a_webhook_hangs_wave_after_wave_of_the_others_is_published(store, outbox, receiver, relays):
    """Each wave is made after the one before it was recorded, all in the hanging one's lanes; it hangs to the end."""
    for name in ("stuck", "well"):
        outbox.destination(name, receiver, timeout="10m", concurrency=8)
    receiver.rule("hang", destination="stuck")
    relays("a", lease="20s", threads=1)
    stuck = []
    for wave in range(4):
        stuck += [outbox.put("stuck", {"n": n}, key=f"k-{wave}-{n}") for n in range(20)]
        well = [outbox.put("well", {"n": n}, key=f"k-{wave}-{n}") for n in range(20)]
        for id in well:
            outbox.wait(id, "PUBLISHED")
        states = outbox.states()
        assert not any(states[id] in ("PUBLISHED", "DEAD") for id in stuck), "it still hangs"
        assert receiver.count(destination="stuck") <= 8
    assert len(arrive(receiver, 8, destination="stuck")) == 8, "all its places are taken, the others were published"
    receiver.release()
    outbox.wait_drained()
    assert set(receiver.ids(destination="stuck")) == set(stuck)


def test_l5_a_long_queue_of_a_hanging_destination_does_not_hide_others(store, outbox, receiver, relays):
    """More messages than one read returns are before one of a healthy destination."""
    make = pair(outbox, receiver, concurrency=2, timeout="500ms", retry={"base": "1h", "max": "1h", "max_attempts": 9})
    receiver.rule("hang", destination="down")
    relays("a", lease="20s")
    for _ in range(2):  # it is known to be slow
        outbox.wait(outbox.put("down", {"n": 0}, key=make("down")), "PENDING", attempts=1)
    with outbox.session() as own:
        own.begin()
        for n in range(1500):
            own.put("down", {"n": n}, key=make("down"))
        own.commit()
    last = outbox.put("up", {"n": 0}, key=make("up"))
    outbox.wait(last, "PUBLISHED")  # the queue itself would take minutes


def test_l5_who_never_answers_is_not_waited_for_while_others_answer(store, outbox, receiver, relays):
    """A lane's batch is recorded when all that is left of it hangs, long before patience is over."""
    make = pair(outbox, receiver)
    receiver.rule("hang", destination="down")
    with outbox.session() as own:
        own.begin()
        m1 = own.put("down", {"n": 0}, key=make("down"))
        for n in range(10):
            own.put("up", {"n": n}, key=make("up"))
        own.commit()
    relays("a", lease="300s", patience="40s", threads=1)
    arrive(receiver, 10, destination="up")
    outbox.wait(outbox.put("up", {"n": 10}, key=make("up")), "PUBLISHED", attempts=1)
    assert outbox.parked(m1)["state"] == "CLAIMED" and receiver.count(destination="down") == 1
    receiver.release()
    outbox.wait(m1, "PUBLISHED", attempts=1)


def test_l5_the_rate_is_kept(store, outbox, receiver, relays):
    make = keys("one")
    outbox.destination("one", receiver, rate="20/s")
    with outbox.session() as own:
        own.begin()
        ids = [own.put("one", {"n": n}, key=make("one")) for n in range(50)]
        own.commit()
    relays("a")
    outbox.wait_drained()
    # By when they left: on a busy machine they may arrive in heaps.
    times = sorted(
        datetime.datetime.fromisoformat(str(row["started_at"]).replace("Z", "+00:00")).timestamp()
        for row in outbox.run("select started_at from {}attempts")
    )
    assert sorted(receiver.ids()) == sorted(ids) and len(times) == 50
    for first, last in itertools.combinations(range(50), 2):  # 20 a second, and a quarter second's worth
        assert last - first + 1 <= (times[last] - times[first]) * 20 + 5 + 2


@pytest.mark.parametrize("concurrency", [1, 3])
def test_l5_limits_hold_for_all_threads_of_a_relay(postgres_store, outbox, receiver, relays, concurrency):
    """The destination's limits are of the destination: one place is one, and each thread gets its turn."""
    outbox.destination("one", receiver, concurrency=concurrency)
    receiver.rule("slow", seconds=0.02)
    relays("a", threads=2)
    shares = "select owner, count(*) as n from {}lanes where owner is not null group by 1"
    wait_for(
        lambda: sorted(row["n"] for row in outbox.run(shares)) == [4, 4], lambda: f"two owners: {outbox.run(shares)}"
    )
    with outbox.session() as own:
        own.begin()
        ids = [own.put("one", {"n": n}) for n in range(60)]
        own.commit()
    outbox.wait_drained()
    starts = [(one.at, 1) for one in receiver.requests] + [(one.ended_at, -1) for one in receiver.requests]
    assert max(itertools.accumulate(step for _, step in sorted(starts))) <= concurrency
    assert sorted(receiver.ids()) == sorted(ids)
    assert outbox.one("select count(distinct claimed_by) as n from {}attempts")["n"] == 2


def test_l3_the_last_thread_takes_over_from_those_that_have_ended(postgres_store, outlog, outbox, receiver, one):
    """With --until-idle: one has nothing to do and ends while the other still waits for an answer."""
    receiver.rule("hang")
    outbox.put("one", {"n": 1}, key=one("one"))
    relay = outlog.start("relay", "--until-idle", "--threads", "2")
    arrive(receiver, 1)
    lanes = "select count(owner) as owned, count(distinct owner) as owners from {}lanes"
    wait_for(lambda: outbox.one(lanes) == {"owned": 8, "owners": 1}, lambda: f"one owner, not {outbox.one(lanes)}")
    receiver.release()
    relay.communicate(timeout=30)
    assert relay.returncode == 0 and receiver.count() == 1


def test_l5_nothing_that_must_wait_makes_the_relay_busy(postgres_store, postgres, outbox, receiver, relays):
    """Due, but behind a held one: by the number of transactions, not by feeling."""
    outbox.destination("one", receiver, on_dead="hold")
    key = keys("one")("one")
    receiver.rule(404, key=key, times=1)
    m1, m2 = outbox.put("one", {"m": 1}, key=key), outbox.put("one", {"m": 2}, key=key)
    relays("a", lease="20s", poll="50ms", threads=1)
    outbox.wait(m1, "DEAD")
    wait_for(lambda: outbox.parked(m2), "m2 to wait")
    name = postgres_store.rsplit("/", 1)[1]

    def commits():
        return postgres.sql("select xact_commit from pg_stat_database where datname = %s", name)[0][0]

    wait_for(lambda: commits() > 0, "statistics")
    started = time.monotonic()
    wait_for(lambda: time.monotonic() - started > 2, "what came before to be counted", pause=0.1)
    before, started = commits(), time.monotonic()
    wait_for(lambda: time.monotonic() - started > 2, "two seconds", pause=0.1)
    assert commits() - before < 2 * 20 * 4, "many more transactions than polls"


def test_l5_the_database_is_not_asked_for_what_a_hanging_destination_cannot_take(
    postgres_store, postgres, outbox, receiver, relays
):
    """All lanes hold messages that are due: by the number of transactions again."""
    outbox.destination("down", receiver, concurrency=2)
    outbox.destination("up", receiver)
    receiver.rule("hang", destination="down")
    with outbox.session() as own:
        own.begin()
        for lane in range(8):
            down, up = keys_in_lane(lane, ["down"]), keys_in_lane(lane, ["up"])
            for n in range(10):
                own.put("down", {"n": n}, key=next(down)[1])
            own.put("up", {}, key=next(up)[1])  # what is before it is left to a side cursor
        own.commit()
    relays("a", lease="20s", poll="50ms", threads=1)
    arrive(receiver, 8, destination="up")
    wait_for(
        lambda: outbox.one(
            "select count(distinct lane) as n from {}outbox_state where state = 'PENDING' and seq <= 10"
        )["n"]
        == 8,
        "all lanes to have some that wait",
    )
    name = postgres_store.rsplit("/", 1)[1]

    def commits():
        return postgres.sql("select xact_commit from pg_stat_database where datname = %s", name)[0][0]

    started = time.monotonic()
    wait_for(lambda: time.monotonic() - started > 2, "what came before to be counted", pause=0.1)
    before, started = commits(), time.monotonic()
    wait_for(lambda: time.monotonic() - started > 2, "two seconds", pause=0.1)
    assert commits() - before < 2 * 20 * 4, "many more transactions than polls"
    receiver.release()
    outbox.wait_drained()
    assert receiver.count(destination="down") == 80


def wait_for_lock(outbox):
    wait_for(
        lambda: outbox.one(
            "select count(*) as n from pg_stat_activity where datname = current_database() "
            "and wait_event_type = 'Lock'"
        )["n"],
        "a turn that waits for the lane's row",
    )


def test_l5_other_lanes_go_on_while_the_store_is_at_work_for_one(postgres_store, outbox, receiver, relays):
    """The record of lane 0 waits for a lock; what is claimed of lane 1 is sent meanwhile."""
    for name in ("a", "b"):
        outbox.destination(name, receiver, concurrency=1)
    receiver.rule("hang")
    others = keys_in_lane(1, ["b"])
    with outbox.session() as own:
        own.begin()
        first = own.put("a", {"n": 0}, key=keys("a")("a"))
        rest = [own.put("b", {"n": n}, key=next(others)[1]) for n in range(4)]
        own.commit()
    relays("a", lease="300s", patience="100s", threads=1)
    arrive(receiver, 1, destination="a")
    arrive(receiver, 1, destination="b")
    with outbox.session() as holder:
        holder.begin()
        holder.run("select lane from {}lanes where lane = 0 for update")
        receiver.release()
        arrive(receiver, 4, destination="b")
        wait_for_lock(outbox)
        assert outbox.state(first)["state"] == "CLAIMED"
        holder.rollback()
    outbox.wait_drained()
    assert sorted(receiver.ids(destination="b")) == sorted(rest) and receiver.ids(destination="a") == [first]
    assert all(outbox.state(id)["attempts"] == 1 for id in [first, *rest])


def test_12_an_outcome_that_comes_while_its_straggler_is_recorded_is_not_lost(
    postgres_store, outbox, receiver, relays, one
):
    """What the turn recorded of a message stays; its outcome follows by the message's own token."""
    receiver.rule("hang")
    m1 = outbox.put("one", {"n": 1}, key=one("one"))
    relays("a", lease="300s", patience="1s", threads=1)
    [request] = arrive(receiver, 1)
    with outbox.session() as holder:
        holder.begin()
        holder.run("select lane from {}lanes where lane = 0 for update")
        wait_for_lock(outbox)  # patience is over: it is being recorded as on the wire
        receiver.release()
        wait_for(lambda: request.ended_at and time.monotonic() > request.ended_at + 0.3, "the outcome to arrive")
        holder.rollback()
    outbox.wait(m1, "PUBLISHED", attempts=1)
    row = outbox.parked(m1)
    assert (row["state"], row["attempts"], row["unsent"]) == ("PUBLISHED", 1, 0)
    assert receiver.ids() == [m1] and len(outbox.attempts(m1)) == 1


def test_l5_what_the_rate_holds_back_is_sent_once(store, outbox, receiver, relays):
    """Parked messages that are due together, more than the rate lets go within a lease."""
    make = keys("one")
    outbox.destination("one", receiver, rate="8/s")
    ids = [outbox.put("one", {"n": n}, key=make("one"), due_us=4_000_000) for n in range(26)]
    relays("a", lease="2s")
    wait_for(lambda: all(outbox.parked(id) for id in ids), "all to be parked")
    outbox.wait_drained()
    assert sorted(receiver.ids()) == sorted(ids)
    for id in ids:
        row = outbox.parked(id)
        assert row["attempts"] - row["unsent"] == 1, row


def test_l5_concurrency_is_kept_across_lanes(store, outbox, receiver, relays):
    outbox.destination("one", receiver, concurrency=3)
    receiver.rule("slow", seconds=0.03)
    ids = [outbox.put("one", {"n": n}) for n in range(30)]
    relays("a", threads=1)
    outbox.wait_drained()
    starts = [(one.at, 1) for one in receiver.requests] + [(one.ended_at, -1) for one in receiver.requests]
    most = max(itertools.accumulate(step for _, step in sorted(starts)))
    assert sorted(receiver.ids()) == sorted(ids) and most <= 3


def test_l5_a_changed_destination_does_not_disturb_what_is_being_recorded(store, outbox, receiver, relays):
    """`up` is done and idle, and is changed while the batch still waits for `down`."""
    make = pair(outbox, receiver)
    receiver.rule("hang", destination="down")
    with outbox.session() as own:
        own.begin()
        m1, m2 = own.put("up", {"n": 1}, key=make("up")), own.put("down", {"n": 2}, key=make("down"))
        own.commit()
    relay = relays("a", patience="20s", lease="20s")
    arrive(receiver, 2)
    outbox.destination("up", receiver, concurrency=7)
    is_alive(outbox, relay)
    is_alive(outbox, relay)
    receiver.release()
    outbox.wait(m1, "PUBLISHED", attempts=1)
    outbox.wait(m2, "PUBLISHED", attempts=1)
    outbox.wait(outbox.put("up", {"n": 3}, key=make("up")), "PUBLISHED")
    assert relay.is_running(), relay.said()
