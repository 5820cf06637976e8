"""What a relay does beside the rules of its lanes: clocks, settings, limits, sweeping, resizing.

The rules themselves are in test_lanes.py, crashes in test_relay_crash.py.
"""
import re

import pytest

from lib.outbox import wait_for
from lib.proxy import Proxy

HOUR = 3600
HOUR_US = HOUR * 1_000_000


# Clocks and doubts

@pytest.mark.parametrize("skew", [-2 * HOUR, 2 * HOUR])
def test_o5_a_delay_ends_by_the_database_clock(postgres_store, outbox, receiver, relays, skew):
    """The relay's own clock is two hours off: neither too early nor too late."""
    outbox.destination("d", receiver)
    later = outbox.put("d", {"n": 1}, due_us=HOUR_US)
    past = outbox.put("d", {"n": 2}, due_us=-HOUR_US)
    soon = outbox.put("d", {"n": 3}, due_us=300_000)
    relays("a", skew=skew)
    outbox.wait(past, "PUBLISHED", attempts=1)
    outbox.wait(soon, "PUBLISHED", attempts=1)
    assert outbox.wait(later, "PENDING", attempts=0)["available_at"] is not None
    assert receiver.count(id=later) == 0


def test_6_a_turn_given_up_for_lost_that_happened_after_all_ends_the_ownership(store, outbox, receiver, relays):
    """The same epoch with another claim_no: what is claimed is not known, so as after a crash."""
    outbox.destination("d", receiver)
    receiver.rule("hang", attempt=1)
    relay = relays("a", patience="60s")
    id = outbox.put("d", {"n": 1}, key="k")
    wait_for(lambda: receiver.count(id=id) == 1, "the request")
    before = outbox.lane(outbox.lane_for(id))
    outbox.run("update {}lanes set claim_no = claim_no + 1 where lane = %s", before["lane"])
    receiver.release()
    row = outbox.wait(id, "PUBLISHED", attempts=2)
    assert receiver.count(id=id) == 2 and row["last_error"] is None
    after = outbox.lane(before["lane"])
    assert after["epoch"] == before["epoch"] + 1 and after["owner"] == before["owner"]
    assert relay.is_running()


def test_5_a_connection_revived_within_a_lost_commit_keeps_its_time_limits(postgres, postgres_store, outbox,
                                                                          receiver, relays):
    """A lock on the lane's row is not waited for beyond a third of the lease (the session's own is 10 s)."""
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1)               # a turn that is a transaction: it ends in COMMIT
    with Proxy(postgres.port) as proxy, outbox.session() as other:
        relay = relays("a", lease="3s", store=proxy.url(postgres_store))
        wait_for(lambda: not outbox.run("select 1 from {}lanes where owner is null"), "the lanes")
        proxy.cut_at("^commit$", "reply")
        id = outbox.put("d", {"n": 1}, key="k")
        assert proxy.happened.wait(10)
        outbox.wait(id, "PUBLISHED")
        other.begin()
        other.run("select 1 from {}lanes for update")
        outbox.put("d", {"n": 2}, key="k")
        wait_for(lambda: re.search(r"lock timeout|statement timeout", relay.said()), relay.said, seconds=6)
        other.rollback()
        outbox.wait_drained()
