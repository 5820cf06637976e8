"""The outbox seen past outlog: plain SQL on either store, relays as processes, histories for the checker.

    outbox = Outbox(store)
    outbox.destination("billing", receiver)             # a webhook to a lib.receiver
    id = outbox.put("billing", {"n": 1}, key="k-1")     # a plain INSERT, committed
    with relays(store) as start:
        relay = start("a", lease="2s")
        outbox.wait(id, "PUBLISHED")
"""
import contextlib
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import uuid

import psycopg2
import psycopg2.extras
import pytest

from lib.cli import SANITIZER_EXIT, Outlog

DEADLINE = 30  # seconds until a condition that should hold soon is given up
LANES = 8
PREFIX = re.compile(r"\{\}(?=[a-z])")
CHECKER = pathlib.Path(__file__).resolve().parents[1] / "checker" / "check.py"

psycopg2.extras.register_uuid()


def known(reason, is_sure=True):
    """A test that shows a bug of the relay which is not mended yet; not sure: it shows by chance."""
    return pytest.mark.xfail(strict=is_sure, reason=reason)


def wait_for(condition, what="the condition", seconds=DEADLINE, pause=0.01):
    """The first true value of condition(); what it was is said when there is none in time."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            said = what() if callable(what) else what
            raise AssertionError(f"waited {seconds} s for {said}")
        time.sleep(pause)


def wait_frozen(pid):
    """Until a process stands still, with every thread."""

    def states():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a thread may just end
            return {
                path.read_text().rpartition(")")[2].split()[0]
                for path in pathlib.Path(f"/proc/{pid}/task").glob("*/stat")
            }

    wait_for(lambda: states() == {"T"}, lambda: f"process {pid} to be stopped: {states()}")


def lane_of(destination, key):
    """The lane of a message with an ordering key: the hash is for ever, so it may be written twice."""
    return int(hashlib.md5(f"{destination}\x1f{key}".encode()).hexdigest()[:7], 16) % LANES


def keys_in_lane(lane, destinations, prefix="k"):
    """Endless keys that fall into this lane, for each destination in turn: (destination, key)."""
    for n in itertools.count():
        for destination in destinations:
            for salt in itertools.count():
                key = f"{prefix}-{n}-{salt}"
                if lane_of(destination, key) == lane:
                    yield destination, key
                    break


def sha256(payload):
    return hashlib.sha256(payload.encode() if isinstance(payload, str) else payload).hexdigest()


class Session:
    """One connection. `{}` in SQL stands for the prefix of our tables, `%s` for a value."""

    def __init__(self, url):
        self.is_sqlite = url.startswith("sqlite:")
        if self.is_sqlite:
            self.db = sqlite3.connect(url[len("sqlite:") :], timeout=20, isolation_level=None, check_same_thread=False)
        else:
            self.db = psycopg2.connect(url)
            self.db.autocommit = True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        with contextlib.suppress(psycopg2.Error, sqlite3.Error):
            self.db.close()

    def begin(self):
        self.run("begin immediate" if self.is_sqlite else "begin")

    def commit(self):
        self.run("commit")

    def rollback(self):
        self.run("rollback")

    def run(self, sql, *args):
        """Rows as dicts, or [] where there are none."""
        if self.is_sqlite:
            cursor = self.db.execute(PREFIX.sub("outlog_", sql).replace("%s", "?"), args)
            names = [column[0] for column in cursor.description or ()]
            return [dict(zip(names, row)) for row in cursor.fetchall()]
        with self.db.cursor() as cursor:
            cursor.execute(PREFIX.sub("outlog.", sql), args or None)
            if not cursor.description:
                return []
            names = [column.name for column in cursor.description]
            return [dict(zip(names, row)) for row in cursor.fetchall()]

    def one(self, sql, *args):
        rows = self.run(sql, *args)
        assert len(rows) == 1, rows
        return rows[0]

    def now(self, us=0):
        """The SQL of a time from now."""
        if self.is_sqlite:
            return f"(strftime('%Y-%m-%dT%H:%M:%f', 'now', '{us / 1e6:+.3f} seconds') || '000Z')"
        return f"(clock_timestamp() + interval '{us} microseconds')"

    def put(self, destination, payload, key=None, type="test.sent", id=None, due_us=None, **more):
        """A plain INSERT into the open transaction; the message's id."""
        id = id or str(uuid.uuid4())
        if not isinstance(payload, (bytes, str)):
            payload = json.dumps(payload)
        values = {
            "event_id": id,
            "destination": destination,
            "event_type": type,
            "payload_bytes" if isinstance(payload, bytes) else "payload": payload,
            "ordering_key": key,
            **more,
        }
        if key and "headers" not in more:
            values["headers"] = json.dumps({"x-key": key})
        columns = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        if due_us is not None:
            columns, marks = columns + ", available_at", f"{marks}, {self.now(due_us)}"
        self.run(f"insert into {{}}outbox ({columns}) values ({marks})", *values.values())
        return id


class Outbox(Session):
    """A store, and what the tests ask it."""

    def __init__(self, url):
        super().__init__(url)
        self.url = url

    def session(self):
        return Session(self.url)

    def destination(self, name, receiver=None, guarantee="at_least_once", on_dead="skip", **settings):
        """Put a destination there, or change it. With a receiver it is a webhook."""
        if receiver:
            settings = {
                "type": "webhook",
                "url": receiver.url(name),
                "allow_private": True,
                "timeout": "60s",
                "retry": {"base": "10ms", "max": "50ms", "jitter": 0, "max_attempts": 50},
                "breaker": {"failures": 0},
                **settings,
            }
        settings = {"on_dead": on_dead, "guarantee": guarantee, **settings}
        self.run("delete from {}destinations where name = %s", name)
        self.run(
            "insert into {}destinations (name, settings, guarantee, on_dead) values (%s, %s, %s, %s)",
            name,
            json.dumps(settings),
            guarantee,
            on_dead,
        )

    def set_times(self, times):
        """Change created_at, {id: time}, which the store lets nobody do."""
        guard = (
            self.one("select sql from sqlite_master where name = 'outlog_outbox_no_update'")["sql"]
            if self.is_sqlite
            else "alter table outlog.outbox enable always trigger outbox_is_immutable"
        )
        self.run(
            "drop trigger outlog_outbox_no_update"
            if self.is_sqlite
            else "alter table outlog.outbox disable trigger outbox_is_immutable"
        )
        for id, created_at in times.items():
            self.run("update {}outbox set created_at = %s where event_id = %s", created_at, id)
        self.run(guard)

    def state(self, id):
        return self.one("select * from {}outbox_state where event_id = %s", str(id))

    def states(self):
        return {str(row["event_id"]): row["state"] for row in self.run("select event_id, state from {}outbox_state")}

    def parked(self, id):
        """Its parked row, or None."""
        where = self.one("select lane, seq from {}outbox where event_id = %s", str(id))
        rows = self.run("select * from {}parked where lane = %s and seq = %s", where["lane"], where["seq"])
        return rows[0] if rows else None

    def lane(self, number=0):
        return self.one("select * from {}lanes where lane = %s", number)

    def lane_for(self, id):
        return self.one("select lane from {}outbox where event_id = %s", str(id))["lane"]

    def attempts(self, id):
        where = self.one("select lane, seq from {}outbox where event_id = %s", str(id))
        return self.run(
            "select * from {}attempts where lane = %s and seq = %s order by attempt", where["lane"], where["seq"]
        )

    def wait(self, id, *states, seconds=DEADLINE, **fields):
        """Wait until the message is in one of these states, and has these fields; its row."""
        row = {}

        def is_there():
            row.update(self.state(id))
            return row["state"] in states and all(row[name] == value for name, value in fields.items())

        wait_for(is_there, lambda: f"{id} to be {states} {fields}, it is {row}", seconds)
        return row

    def wait_drained(self, seconds=DEADLINE, but=()):
        """Until every message is PUBLISHED or DEAD."""

        def open_ones():
            return self.run(
                "select event_id, state, attempts, last_error, available_at, ordering_key, lane, seq "
                "from {}outbox_state where state in ('PENDING', 'CLAIMED')"
            )

        def is_drained():
            return not [row for row in open_ones() if str(row["event_id"]) not in but]

        wait_for(
            is_drained,
            lambda: f"an empty outbox; left: {open_ones()[:8]}\n" f"{self.run('select * from {}lanes')}",
            seconds,
            pause=0.03,
        )

    def bury(self, relay):
        """As if a lease had passed since a relay died. Not for one that lives: its own clock knows."""
        assert not relay.is_running()
        past = self.now(-1_000_000)
        runs = [row["run"] for row in self.run("select run from {}relays where name = %s", relay.name)]
        self.run("delete from {}relays where name = %s", relay.name)
        self.run(
            f"update {{}}lanes set lease_until = {past} where owner_name = %s and lease_until > {past}", relay.name
        )
        if not self.is_sqlite:
            self.run("update {}servers set met_at = met_at - interval '1 hour'")
        for run in runs:
            self.run(f"update {{}}parked set lease_until = {past} where state = 'CLAIMED' and claimed_by = %s", run)

    # As an operator, in the legal way (T4): the lane first, then the row, from the state it was seen in.

    def operate(self, id, sql, *args):
        """Change the parked row of a message (`p`'s columns) under its lane's lock."""
        with self.session() as own:
            own.begin()
            where = own.one("select lane, seq from {}outbox where event_id = %s", str(id))
            own.run("update {}lanes set parked_gen = parked_gen + 1 where lane = %s", where["lane"])
            own.run(f"update {{}}parked set {sql} where lane = %s and seq = %s", *args, where["lane"], where["seq"])
            own.commit()

    def requeue(self, id):
        self.operate(
            id,
            f"state = 'PENDING', held = false, published_at = null, budget_from = attempts - unsent, "
            f"available_at = {self.now()}, updated_at = {self.now()}",
        )

    def kill(self, id):
        """PENDING to DEAD, through CLAIMED, in one transaction (rule 19)."""
        with self.session() as own:
            own.begin()
            where = own.one("select lane, seq from {}outbox where event_id = %s", str(id))
            own.run("update {}lanes set parked_gen = parked_gen + 1 where lane = %s", where["lane"])
            for change in (
                f"state = 'CLAIMED', claimed_by = 'operator', "
                f"claimed_at = {self.now()}, lease_until = {self.now()}",
                "state = 'DEAD', claimed_by = null, claimed_at = null, lease_until = null, "
                "last_error = 'killed by an operator'",
            ):
                own.run(f"update {{}}parked set {change} where lane = %s and seq = %s", where["lane"], where["seq"])
            own.commit()

    # For the checker

    def lines(self):
        """Everything the store knows at the end, as lines of a history."""
        for table in ("outbox_state", "parked", "attempts", "batches", "lanes", "destinations"):
            drop = {"payload", "payload_bytes"}
            for row in self.run(f"select * from {{}}{table}"):
                line = {"from": "store", "table": table}
                if table == "outbox_state":
                    body = row["payload"] if row["payload"] is not None else bytes(row["payload_bytes"])
                    line["body"] = sha256(body)
                yield {**line, **{name: plain(value) for name, value in row.items() if name not in drop}}


def plain(value):
    return value if value is None or isinstance(value, (int, float, str, dict, list)) else str(value)


class History:
    """What everybody saw, in one order; check() asks the checker, a program of its own."""

    def __init__(self):
        self.written = []
        self.lock = threading.Lock()

    def note(self, **line):
        with self.lock:
            self.written.append({"t": time.monotonic(), **line})

    def fault(self, what, **more):
        self.note(**{"from": "fault", "what": what, **more})

    def operator(self, what, id):
        self.note(**{"from": "operator", "what": what, "id": str(id)})

    def append(self, what, id, **more):
        self.note(**{"from": "appender", "what": what, "id": id, **more})

    def note_message(self, id, destination, body, key=None):
        """A message that another command has made: it is known when it is stored."""
        self.append("invoke", str(id), destination=destination, key=key, body=sha256(body))
        self.append("ok", str(id))

    def check(self, outbox, receivers=(), drained=True, observed=None):
        """Fail with the checker's report unless all promises were kept; the report's counts."""
        seen = set() if observed is None else set(observed)
        lines = list(self.written)
        for receiver in receivers:
            lines += receiver.lines()
            if observed is None:
                seen |= {one.destination for one in receiver.requests}
        lines += [{"from": "receiver", "serves": name} for name in sorted(seen)]
        lines += outbox.lines()
        text = "\n".join(json.dumps(line) for line in lines)
        done = subprocess.run(
            [sys.executable, CHECKER, *(["--drained"] if drained else [])],
            input=text,
            capture_output=True,
            text=True,
            timeout=120,
        )
        if done.returncode != 0 and os.environ.get("OUTLOG_KEEP_HISTORY"):
            pathlib.Path(os.environ["OUTLOG_KEEP_HISTORY"]).write_text(text)
        assert done.returncode == 0, done.stdout[:6000] + done.stderr[-3000:]
        return json.loads(done.stdout)["counts"]


class Writer:
    """Puts messages and tells the history: committed, rolled back, or unknown."""

    def __init__(self, outbox, history):
        self.session, self.history = outbox.session(), history

    def send(self, destination, payload, key=None, rollback=False, **more):
        id = more.pop("id", None) or str(uuid.uuid4())
        text = payload if isinstance(payload, (bytes, str)) else json.dumps(payload)
        self.history.append("invoke", id, destination=destination, key=key, body=sha256(text))
        try:
            self.session.begin()
            self.session.put(destination, text, key=key, id=id, **more)
            if rollback:
                self.session.rollback()
                self.history.append("rolled_back", id)
                return id
            self.session.commit()
        except (psycopg2.Error, sqlite3.Error) as error:
            # Whatever was cut: only the store can tell now.
            self.history.append("unknown", id, error=str(error)[:100])
            raise
        self.history.append("ok", id)
        return id

    def close(self):
        self.session.close()


class Load:
    """A writer in the background: begin, put, commit or roll back, until it is stopped."""

    def __init__(self, outbox, history, destinations, pause=0.003, name="load", keys=12):
        self.outbox, self.history, self.destinations = outbox, history, destinations
        self.pause, self.name, self.keys, self.sent = pause, name, keys, 0
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.error = None
        self.thread.start()

    def run(self):
        writer, chance = None, random.Random(self.name)
        while not self.is_over.is_set():
            try:
                writer = writer or Writer(self.outbox, self.history)
                key = f"{self.name}-{chance.randrange(self.keys)}" if chance.random() < 0.8 else None
                writer.send(
                    chance.choice(self.destinations),
                    {"n": self.sent, "by": self.name},
                    key=key,
                    rollback=chance.random() < 0.05,
                )
                self.sent += 1
            except psycopg2.Error:  # the server is away: the history records unknown
                if writer:
                    writer.close()
                writer = None
            except Exception as error:
                self.error = error
                return
            self.is_over.wait(self.pause)
        if writer:
            writer.close()

    def end(self):
        self.is_over.set()
        self.thread.join(30)
        assert not self.thread.is_alive() and not self.error, self.error


class Relay:
    """`outlog relay` as a process."""

    def __init__(self, store, name, env, args, log, host=None):
        self.name, self.log = name, log
        self.outlog = Outlog(store, host=host)
        self.file = open(log, "ab")
        self.process = self.outlog.start("relay", "--id", name, *args, env=env, stdout=self.file, stderr=self.file)
        self.pid = self.process.pid

    def signal(self, number):
        self.process.send_signal(number)

    def freeze(self):
        self.signal(signal.SIGSTOP)
        self.wait_frozen()

    def wait_frozen(self):
        """Until it stands still, also by a fault point's `stop`."""
        wait_frozen(self.pid)

    def status(self):
        try:
            return pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return None

    def thaw(self):
        self.signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def wait(self, seconds=DEADLINE):
        """Its exit code; a negative one is the signal that ended it."""
        code = self.process.wait(seconds)
        assert code != SANITIZER_EXIT, self.said()
        return code

    def is_running(self):
        return self.process.poll() is None

    def term(self):
        self.signal(signal.SIGTERM)

    def has_signals(self):
        """Signals that it has not taken yet."""
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"^ShdPnd:\s*(\w+)", status, re.M)[1], 16) != 0

    def said(self):
        return pathlib.Path(self.log).read_text(errors="replace")

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.file.close()


class Relays:
    """Starts relays of one store, and ends what still runs."""

    def __init__(self, store, folder):
        self.store, self.folder, self.all = store, pathlib.Path(folder), []

    def __call__(
        self,
        name="relay",
        fault=None,
        lease="2s",
        poll="20ms",
        patience="100ms",
        store=None,
        skew=None,
        host=None,
        env=None,
        *args,
        **options,
    ):
        """With a fault that happens there, with a wall clock that is wrong by `skew` seconds, or on another host."""
        env = {**(env or {}), **({"OUTLOG_FAULT": fault} if fault else {})}
        if skew:
            env["OUTLOG_SKEW"] = str(skew)
        flags = []
        for option, value in {"lease": lease, "poll": poll, "patience": patience}.items():
            flags += [f"--{option}", value] if value else []
        for option, value in options.items():
            flags += [f"--{option.replace('_', '-')}"] + ([] if value is True else [str(value)])
        relay = Relay(
            store or self.store, name, env, flags + list(args), self.folder / f"relay-{len(self.all)}.log", host
        )
        self.all.append(relay)
        return relay

    def close(self):
        for relay in self.all:
            relay.close()
        bad = [
            relay.said()[-3000:]
            for relay in self.all
            if relay.process.returncode == SANITIZER_EXIT or "Assertion" in relay.said()
        ]
        assert not bad, bad[0]
