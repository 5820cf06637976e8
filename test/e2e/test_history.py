"""Everyday trouble, all of it at once, judged by the history checker (L1, L4, L5, L8, L9, E6).

For a minute two relays and a daemon work while relays are killed, frozen and started with wrong clocks, the
daemon is killed, the connections of PostgreSQL are ended, one destination is slow, one hangs, one fails, one
is paused now and then, nobody declared another, and one gives answers that no event may carry. Writers write
all the while, and readers follow the log. Nobody tells a relay that another one is dead: it has to find out.

`make torture` runs it; OUTLOG_HISTORY_SECONDS says how long, OUTLOG_HISTORY_SEED which faults.
"""
import http.client
import os
import random
import secrets
import threading
import time
import uuid

import pytest

from lib.outbox import Load, Writer, wait_for

pytestmark = [
    pytest.mark.torture,
    pytest.mark.skipif("OUTLOG_TORTURE_ROWS" not in os.environ, reason="make torture runs it"),
]

SECONDS = int(os.environ.get("OUTLOG_HISTORY_SECONDS", 60))
SEED = int(os.environ.get("OUTLOG_HISTORY_SEED") or secrets.randbits(32))
DRAIN = 240 + SECONDS  # what waits at the end is drained by one relay, on a machine that does much else
SKEWS = (0, 0, 1, -1, 20, -20, 3600, -3600, 31_536_000, -31_536_000)
PEM = "-----BEGIN PRIVATE KEY-----"


def declare(outbox, receiver):
    """The neighbours. `fine` is the one that must never wait for the others."""
    retry = {"base": "100ms", "max": "1s", "jitter": 0, "max_attempts": 500}
    common = {"timeout": "2s", "retry": retry}
    for name in ("fine", "slow", "flaky", "hanging", "paused"):
        outbox.destination(name, receiver, **common)
    outbox.destination("limited", receiver, rate="20/s", **common)
    outbox.destination("poison", type="exec", command=["/bin/sh", "-c", f"echo '{PEM}'"], timeout="2s", retry=retry)
    receiver.rule("slow", seconds=0.3, destination="slow")
    receiver.rule(503, destination="flaky", probability=0.3)
    receiver.rule("reset", destination="flaky", probability=0.1)
    receiver.rule("slow", seconds=4, destination="hanging", probability=0.2)


class Trouble:
    """One fault after the other, drawn from a seed, until the time is over."""

    def __init__(self, outbox, outlog, relays, server, history, chance):
        self.outbox, self.outlog, self.relays, self.server = outbox, outlog, relays, server
        self.history, self.chance, self.started = history, chance, 0
        self.running = [self.start_relay(), self.start_relay()]
        self.kinds = [self.kill_relay, self.kill_relay, self.freeze_relay, self.stop_relay, self.kill_server]
        self.kinds += [self.pause_destination] + ([] if outbox.is_sqlite else [self.end_connections])

    def start_relay(self):
        self.started += 1
        skew = self.chance.choice(SKEWS)
        return self.relays(f"r-{self.started}", lease="5s", skew=skew, threads=self.chance.choice((1, 2)))

    def replace_relay(self, end):
        victim = self.running.pop(self.chance.randrange(len(self.running)))
        end(victim)
        self.running.append(self.start_relay())

    def kill_relay(self):
        self.replace_relay(lambda relay: relay.kill())

    def stop_relay(self):
        self.replace_relay(lambda relay: (relay.term(), relay.wait(60)))

    def freeze_relay(self):
        relay = self.chance.choice(self.running)
        relay.freeze()
        time.sleep(self.chance.uniform(0.1, 7))  # shorter and longer than the lease
        relay.thaw()

    def kill_server(self):
        port = self.server.port
        self.server.kill()
        self.server.start(port)

    def pause_destination(self):
        self.outlog.run("destinations", "pause", "paused")
        time.sleep(self.chance.uniform(0.1, 2))
        self.outlog.run("destinations", "resume", "paused")

    def end_connections(self):
        with self.outbox.session() as own:
            own.run(
                "select pg_terminate_backend(pid) from pg_stat_activity where random() < 0.5 and "
                "application_name like 'outlog%%' and datname = current_database()"
            )

    def make(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            fault = self.chance.choice(self.kinds)
            self.history.fault(fault.__name__)
            fault()
            self.history.fault(fault.__name__ + " ended")
            time.sleep(self.chance.uniform(0.05, 1))


class Appender(threading.Thread):
    """Appends events over HTTP, each until it is told that it is stored; it knows what must be in the log."""

    def __init__(self, server, name):
        super().__init__(daemon=True)
        self.server, self.name, self.ids, self.is_over, self.error = server, name, [], threading.Event(), None
        self.start()

    def run(self):
        try:
            while not self.is_over.is_set():
                self.append(str(uuid.uuid4()), len(self.ids))
                self.is_over.wait(0.02)
        except Exception as error:
            self.error = error

    def append(self, id, n):
        event = {"id": id, "aggregate_type": "order", "aggregate_id": self.name, "event_type": "order.created"}
        event["payload"] = {"n": n}

        def is_stored():
            try:
                answer = self.server.call("POST", "/v1/events", {"org_id": "acme", "events": [event]})
            except (OSError, http.client.HTTPException):
                return False
            assert answer.status in (200, 201, 429, 503), answer
            return answer.status < 300

        wait_for(is_stored, f"event {n} of {self.name} to be stored", 120, pause=0.05)
        self.ids.append(id)

    def end(self):
        self.is_over.set()
        self.join(130)
        assert not self.error, self.error


class Follower(threading.Thread):
    """Reads the log page by page over HTTP from where it was."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.after, self.seen, self.is_over = server, 0, [], threading.Event()
        self.start()

    def run(self):
        while not self.is_over.is_set():
            if not self.read_page("1"):
                self.is_over.wait(0.05)

    def read_page(self, wait):
        try:
            answer = self.server.get(f"/v1/events?after={self.after}&limit=50&org_id=acme&wait={wait}")
        except (OSError, http.client.HTTPException):
            return False
        if answer.status != 200:
            return False
        page = answer.json
        self.seen += [one["id"] for one in page["events"] if one["aggregate_type"] == "order"]
        self.after = page["next_after"]
        return bool(page["events"])

    def end(self):
        self.is_over.set()
        self.join(60)
        while self.read_page("0"):
            pass


def send_poison(server, outbox, history, count):
    """Effects whose answer is a private key: what came of them is recorded, and nobody waits for them."""
    run = server.call("POST", "/v1/runs", {"org_id": "acme", "run_type": "t", "orchestrator_version": "1"}).json
    spec = {"effect_type": "API_CALL", "destination": "poison"}
    for n in range(count):
        made = server.call("POST", f"/v1/runs/{run['run_id']}/effects", {**spec, "effect_spec": {"n": n}}).json
        body = next(iter(outbox.run("select payload from {}outbox where event_id = %s", made["event_id"])))["payload"]
        history.note_message(made["event_id"], "poison", body)


def check_isolation(writer, receiver):
    """A message to a healthy destination arrives while a thousand others wait for a slow one."""
    for n in range(1000):
        writer.send("slow", {"n": n, "bulk": True})
    before = receiver.count(destination="slow")
    id = writer.send("fine", {"n": "beside"})
    wait_for(lambda: receiver.count(id=id), "the message to the healthy destination", 60)
    assert receiver.count(destination="slow") - before < 1000, "it waited for all the others"


def test_l4_everything_at_once(store, outbox, outlog, receiver, relays, serve, history):
    print(f"OUTLOG_HISTORY_SEED={SEED}")
    chance = random.Random(SEED)
    declare(outbox, receiver)
    server = serve("--no-relay")
    trouble = Trouble(outbox, outlog, relays, server, history, chance)
    send_poison(server, outbox, history, 10)
    names = ["fine", "slow", "flaky", "hanging", "paused", "limited"]
    loads = [Load(outbox, history, names, pause=0.02, name=f"w-{n}", keys=20) for n in range(2)]
    appenders, follower = [Appender(server, f"o-{n}") for n in range(2)], Follower(server)
    writer = Writer(outbox, history)
    undeclared = [writer.send("undeclared", {"n": n}) for n in range(20)]
    check_isolation(writer, receiver)
    trouble.make(SECONDS)
    for one in [*loads, *appenders]:
        one.end()
    outbox.wait_drained(DRAIN, but=undeclared)
    follower.end()
    stored = [id for one in appenders for id in one.ids]
    assert len(follower.seen) == len(set(follower.seen)) and set(follower.seen) == set(stored)
    counts = history.check(outbox, [receiver], observed=names)
    print(counts)
    assert counts["faults"] > 10 and counts["states"].get("DEAD", 0) == 0
