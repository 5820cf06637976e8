"""AUDIT R2: clocks that are set while the relay works, by seconds and by a year, forward and back.

A store on SQLite is as old as its processes' clock says; on PostgreSQL the clock of the relay and that of the server
are two. While a message is on the wire, one waits for its next attempt and one for its delay, the clock is set, and
set back. Nothing is sent twice at once or out of order, and everything arrives without a restart.
"""
import itertools

import pytest

from lib.cli import Outlog
from lib.outbox import Outbox, Relays, keys_in_lane, wait_for
from lib.postgres import Postgres

YEAR = 365 * 24 * 3600
STEPS = [1, 20, 3600, YEAR, -3600, -YEAR]


class Clocked:
    """A store, and a clock that a test can set."""

    def __init__(self, outbox, relays, change):
        self.outbox, self.relays, self.change, self.ahead = outbox, relays, change, 0

    def set_clock(self, seconds):
        self.change(seconds)
        self.ahead = seconds if self.outbox.is_sqlite else 0

    def put(self, key, wait=None):
        """A message of this key, with a delay of some seconds by the clock of whoever writes."""
        return self.outbox.put("one", {}, key=key, due_us=(wait + self.ahead) * 1_000_000 if wait else None)

    def beats(self):
        return {row["run"]: row["heartbeat_at"] for row in self.outbox.run("select run, heartbeat_at from {}relays")}

    def wait_for_beats(self, count=2):
        """Every relay has seen the clock."""
        for _ in range(count):
            before = self.beats()
            wait_for(
                lambda: all(self.beats().get(run) not in (None, at) for run, at in before.items()), "heartbeats", 60
            )


@pytest.fixture(params=["sqlite", "relay", "server"])
def clocked(request, tmp_path):
    """With the clock of the processes (SQLite), of the relay or of the server (PostgreSQL)."""
    file = tmp_path / "clock"
    file.write_text("0")

    def set_file(seconds):
        (tmp_path / "new").write_text(str(seconds))
        (tmp_path / "new").rename(file)

    if request.param == "server":
        with Postgres(fsync=False, has_own_clock=True) as server:
            url = server.create("clocked")
            Outlog(url).run("init")
            yield from start(url, tmp_path, None, server.set_clock)
    else:
        kind = "sqlite_store" if request.param == "sqlite" else "postgres_store"
        yield from start(request.getfixturevalue(kind), tmp_path, f"@{file}", set_file)


def start(url, folder, skew, set_clock):
    with Outbox(url) as outbox:
        relays = Relays(url, folder)
        yield Clocked(outbox, lambda name, lease="30s": relays(name, skew=skew, lease=lease), set_clock)
        relays.close()


@pytest.fixture
def keys():
    rest = keys_in_lane(0, ["one"])
    return lambda: next(rest)[1]


def check(receiver, expected):
    """{key: ids in order}: each was on the wire alone, and the first of each came in order."""
    overlaps = [one for one in receiver.of() if one.concurrent]
    assert not overlaps, overlaps
    for key, ids in expected.items():
        assert receiver.first_ids(key=key) == ids


@pytest.mark.parametrize("step", STEPS)
def test_32_a_clock_that_is_set_repeats_strands_and_reorders_nothing(clocked, receiver, keys, step):
    outbox = clocked.outbox
    outbox.destination("one", receiver, retry={"base": "2s", "max": "2s", "jitter": 0, "max_attempts": 50})
    clocked.relays("a")
    clocked.relays("b")
    sent = {}
    for seconds in (step, 0):
        slow, failing, late = keys(), keys(), keys()
        receiver.rule("hang", key=slow)
        receiver.rule(500, times=1, key=failing)
        sent[slow] = [clocked.put(slow) for n in range(3)]
        sent[failing] = [clocked.put(failing) for n in range(2)]
        sent[late] = [clocked.put(late, wait=3), clocked.put(late)]
        first = sent[slow][0]
        wait_for(lambda: receiver.count(id=first) == 1, "the first on the wire")
        wait_for(lambda: outbox.parked(first), "its own row")
        wait_for(lambda: receiver.count(id=sent[failing][0]) == 1, "the one that fails")
        wait_for(lambda: outbox.parked(sent[late][0]), "the delayed one to be read")
        clocked.set_clock(seconds)
        clocked.wait_for_beats(3)
        assert receiver.count(id=first) == 1  # it is still on the wire
        receiver.release()
        for id in itertools.chain(*sent.values()):
            outbox.wait(id, "PUBLISHED")
        assert receiver.count(key=slow) == 3
    check(receiver, sent)


@pytest.mark.parametrize("step", [3600, YEAR])
def test_32_what_was_stored_by_a_clock_far_ahead_does_not_wait_for_it(clocked, receiver, keys, step):
    """The relay that held the lanes dies before the clock is set back; another one takes them in the time of a lease."""
    outbox = clocked.outbox
    outbox.destination(
        "one", receiver, timeout="3s", retry={"base": "2s", "max": "2s", "jitter": 0, "max_attempts": 50}
    )
    clocked.set_clock(step)
    relay = clocked.relays("a", lease="5s")
    hanging, failing, late = keys(), keys(), keys()
    receiver.rule("hang", key=hanging)
    receiver.rule(500, times=1, key=failing)
    ids = [clocked.put(hanging), clocked.put(failing)]
    ids.append(clocked.put(late, wait=3))
    wait_for(lambda: outbox.parked(ids[0]), "its own row")
    wait_for(lambda: receiver.count(id=ids[1]) == 1, "the one that fails")
    relay.kill()
    clocked.set_clock(0)
    ids.append(clocked.put(late))
    receiver.release()
    clocked.relays("b", lease="5s")
    for id in ids:
        outbox.wait(id, "PUBLISHED", seconds=120)
