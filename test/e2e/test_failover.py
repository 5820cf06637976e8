"""The primary is lost under load, its synchronous standby takes over, and everybody finds it (L4, E5).

Appenders by the C library, the command line and HTTP, and relays, know both servers by one URL of
several hosts. What was acknowledged must be on the new primary; the checker judges the deliveries.
"""
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import uuid

import pytest

from lib.cli import ROOT, Outlog
from lib.outbox import Outbox, Relays, sha256, wait_for
from lib.postgres import Postgres, die_with_parent
from lib.server import Server
from lib.standby import Standby


class Pair:
    """A primary, its synchronous standby, and a database on both."""

    def __init__(self, primary, standby):
        self.primary, self.standby = primary, standby
        self.first_url = primary.create("log")
        Outlog(self.first_url).run("init")
        standby.follow_synchronously()
        hosts = f"127.0.0.1:{primary.port},127.0.0.1:{standby.port}"
        self.url = self.first_url.replace(f"127.0.0.1:{primary.port}", hosts)
        self.second_url = standby.url("log")


@pytest.fixture
def pair():
    with Postgres() as primary, Standby(primary) as standby:
        yield Pair(primary, standby)


class Client(threading.Thread):
    """Does one thing after another until told to end, each again and again until it is acknowledged."""

    def __init__(self, one):
        super().__init__(daemon=True)
        self.one, self.is_over, self.error, self.done, self.again = one, threading.Event(), None, 0, 0
        self.start()

    def run(self):
        try:
            for n in itertools.count():
                if self.is_over.is_set():
                    return
                self.again += self.one(n) - 1
                self.done += 1
        except Exception as error:  # told by end(): a thread has nobody to raise to
            self.error = error

    def end(self):
        self.is_over.set()
        self.join(60)
        assert not self.is_alive() and not self.error, repr(self.error)


def until_acknowledged(attempt):
    """How often it took: what may or may not have been stored is repeated with the same id."""
    for n in itertools.count(1):
        if attempt():
            return n
        assert n < 3000, "never acknowledged"
        threading.Event().wait(0.02)


class Http:
    """Events and messages by HTTP."""

    def __init__(self, server, history, name):
        self.server, self.history, self.name, self.events = server, history, name, []

    def __call__(self, n):
        event_id, message_id = str(uuid.uuid4()), str(uuid.uuid4())
        key = f"{self.name}-{n % 5}"
        payload = json.dumps({"n": n, "by": self.name})
        body = {
            "org_id": "acme",
            "events": [
                {
                    "id": event_id,
                    "aggregate_type": "order",
                    "aggregate_id": key,
                    "event_type": "order.created",
                    "payload": {"n": n},
                }
            ],
            "messages": [
                {
                    "event_id": message_id,
                    "destination": "d",
                    "event_type": "t",
                    "ordering_key": key,
                    "headers": {"x-key": key},
                    "payload": json.loads(payload),
                }
            ],
        }
        text = json.dumps(body).encode()
        self.history.append("invoke", message_id, destination="d", key=key, body=sha256(payload))

        def attempt():
            try:
                answer = self.server.call(
                    "POST", "/v1/events", text, headers={"idempotency-key": message_id}, timeout=60
                )
            except (OSError, http.client.HTTPException):
                return False
            assert answer.status in (200, 201, 503, 500), answer
            return answer.status < 300

        times = until_acknowledged(attempt)
        self.history.append("ok", message_id)
        self.events.append(event_id)
        return times


class Cli:
    """Events by the command line, a process each."""

    def __init__(self, url):
        self.outlog, self.events = Outlog(url), []

    def __call__(self, n):
        id = str(uuid.uuid4())

        def attempt():
            done = self.outlog.run(
                "append",
                "--org",
                "acme",
                "--aggregate",
                f"cli/{n % 3}",
                "--type",
                "t",
                "--id",
                id,
                "--data",
                f'{{"n":{n}}}',
                check=False,
            )
            assert (
                done.returncode == 0
                or "try again" in done.stderr
                or "cannot connect" in done.stderr
                or "outcome_unknown" in done.stderr
            ), done
            return done.returncode == 0

        times = until_acknowledged(attempt)
        self.events.append(id)
        return times


class Library:
    """Events by the C library: lib/appender.py, which connects again by itself."""

    def __init__(self, url, name):
        preload = sys.modules["conftest"].PRELOAD
        env = {**os.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"} if preload else None
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "test" / "lib" / "appender.py", url, name],
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=env,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.acknowledged, self.tried = [], 0
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            word, *ids = line.split()
            self.tried += word == "try"
            if word == "ok":
                self.acknowledged += ids

    def end(self):
        assert self.process.poll() is None, "the appender gave up"
        self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()


@pytest.mark.parametrize("how", ["kill", pytest.param("immediate", marks=pytest.mark.torture)])
def test_l4_primary_lost_under_load_and_its_standby_promoted(pair, receiver, history, tmp_path, how):
    before = Outbox(pair.first_url)
    before.destination("d", receiver, retry={"base": "20ms", "jitter": 0, "max_attempts": 90})
    relays = Relays(pair.url, tmp_path)
    relays("a", threads=2)
    relays("b", threads=2)
    server = Server(Outlog(pair.url), tmp_path / "serve.log", ["--no-relay"])
    try:
        interfaces = [Http(server, history, "h-0"), Http(server, history, "h-1"), Cli(pair.url)]
        clients = [Client(interface) for interface in interfaces]
        library = Library(pair.url, "lib")
        wait_for(
            lambda: receiver.count() > 100
            and all(client.done > 5 for client in clients)
            and len(library.acknowledged) > 50,
            "load",
            60,
        )
        epochs = {row["lane"]: row["epoch"] for row in before.run("select lane, epoch from {}lanes")}
        before.close()

        history.fault("failover")
        pair.primary.kill() if how == "kill" else pair.primary.stop("immediate")
        done = [client.done for client in clients]
        pair.standby.promote()
        history.fault("promoted")
        promised, arrived = len(library.acknowledged), receiver.count()
        wait_for(
            lambda: all(client.done > had + 5 for client, had in zip(clients, done)),
            lambda: f"every interface to go on: {[c.done for c in clients]} after {done} {clients[0].error}",
            60,
        )
        wait_for(lambda: len(library.acknowledged) > promised + 50, "the library to go on", 60)
        wait_for(lambda: receiver.count() > arrived + 50, "deliveries to go on", 60)
        for client in clients:
            client.end()
        library.end()

        after = Outbox(pair.second_url)
        after.wait_drained(60)
        stored = {str(row["id"]) for row in after.run("select id from {}events")}
        promised = set(library.acknowledged).union(*(interface.events for interface in interfaces))
        assert promised <= stored, f"{len(promised - stored)} acknowledged events are lost"
        gaps = after.run(
            "select aggregate_type, aggregate_id from {}events group by org_id, aggregate_type, "
            "aggregate_id having max(aggregate_seq) <> count(*) or min(aggregate_seq) <> 1"
        )
        assert gaps == []
        for row in after.run("select lane, epoch from {}lanes"):
            assert row["epoch"] >= epochs[row["lane"]], "an epoch went back: a stale relay could write"
        counts = history.check(after, [receiver])
        assert counts["delivered"] == counts["appended"]["ok"] > 100
        assert all(relay.is_running() for relay in relays.all)
        assert sum(client.again for client in clients) > 0, "nobody noticed: this proves nothing"
        print(counts, [client.done for client in clients], len(library.acknowledged))
        after.close()
    finally:
        server.stop()
        relays.close()


@pytest.mark.parametrize("point", ["publish.sent", "mark.sent"])
def test_l1_a_relay_frozen_before_the_failover_writes_nothing_stale_after(pair, receiver, history, tmp_path, point):
    """It held a claim on the old primary. The other one takes its lanes on the new primary; then it wakes."""
    outbox = Outbox(pair.first_url)
    outbox.destination("d", receiver, retry={"base": "20ms", "jitter": 0, "max_attempts": 90})
    relays = Relays(pair.url, tmp_path)
    ids = []

    def put(count, to):
        for n in range(count):
            key, id = f"k-{n % 4}", str(uuid.uuid4())
            payload = json.dumps({"n": len(ids)})
            history.append("invoke", id, destination="d", key=key, body=sha256(payload))
            to.put("d", payload, key=key, id=id)
            history.append("ok", id)
            ids.append(id)

    try:
        frozen = relays("frozen", fault=f"{point}:2:stop", threads=1)
        put(30, outbox)
        frozen.wait_frozen()
        history.fault("stop")
        epochs = {row["lane"]: row["epoch"] for row in outbox.run("select lane, epoch from {}lanes")}
        outbox.close()
        history.fault("failover")
        pair.primary.kill()
        pair.standby.promote()
        history.fault("promoted")
        outbox = Outbox(pair.second_url)
        other = relays("other")
        put(30, outbox)
        wait_for(lambda: not outbox.run("select 1 from {}lanes where owner_name = 'frozen'"), "the takeover")
        outbox.wait_drained()
        assert any(row["epoch"] > epochs[row["lane"]] for row in outbox.run("select lane, epoch from {}lanes"))
        other.term()  # so that nobody else can have done what happens now
        assert other.wait() == 0
        requests, batches = receiver.count(), outbox.run("select * from {}batches order by lane, to_seq, from_seq")
        frozen.thaw()
        history.fault("thaw")
        wait_for(lambda: outbox.run("select 1 from {}lanes where owner_name = 'frozen'"), "it to take lanes anew")
        assert outbox.run("select * from {}batches order by lane, to_seq, from_seq") == batches
        assert receiver.count() == requests
        counts = history.check(outbox, [receiver])
        assert counts["delivered"] == len(ids)
    finally:
        outbox.close()
        relays.close()
