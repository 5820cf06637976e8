"""The SQLite extension keeps statements prepared, and the host must never notice: it closes its
connection whenever and however it likes."""
import contextlib
import ctypes
import ctypes.util
import json
import os
import pathlib
import sqlite3
import threading

import pytest

OK, BUSY, ROW = 0, 5, 100
EVENT = json.dumps(
    {
        "org_id": "acme",
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "event_type": "order.created",
        "payload": {"n": 1},
    }
)


class Host:
    """A host that speaks SQLite's C interface: only there a close can fail."""

    def __init__(self, path, extension):
        self.sqlite = ctypes.CDLL(ctypes.util.find_library("sqlite3"))
        self.db = ctypes.c_void_p()
        assert self.sqlite.sqlite3_open(os.fsencode(path), ctypes.byref(self.db)) == OK
        self.extension = extension
        self.sqlite.sqlite3_enable_load_extension(self.db, 1)
        self.load()

    def load(self):
        return self.sqlite.sqlite3_load_extension(self.db, os.fsencode(self.extension), None, None)

    def run(self, sql):
        return self.sqlite.sqlite3_exec(self.db, sql.encode(), None, None, None)

    def append(self):
        return self.run(f"select outlog_append('{EVENT}')")

    def prepare(self, sql):
        statement = ctypes.c_void_p()
        assert self.sqlite.sqlite3_prepare_v2(self.db, sql.encode(), -1, ctypes.byref(statement), None) == OK
        return statement

    def statements(self):
        """How many prepared statements the connection has."""
        count, at = 0, None
        self.sqlite.sqlite3_next_stmt.restype = ctypes.c_void_p
        while at := self.sqlite.sqlite3_next_stmt(self.db, ctypes.c_void_p(at)):
            count += 1
        return count


@pytest.fixture
def path(sqlite_store):
    return sqlite_store.removeprefix("sqlite:")


@pytest.fixture
def host(path, extension):
    return Host(path, extension)


def open_files(path):
    links = (os.readlink(link) for link in pathlib.Path("/proc/self/fd").iterdir() if link.is_symlink())
    return [link for link in links if link.startswith(path)]


def events(outlog):
    return outlog.run("events", "--json").stdout.count('"order.created"')


@pytest.mark.parametrize("close", ["sqlite3_close", "sqlite3_close_v2"])
@pytest.mark.parametrize("end", ["commit", "rollback", None])
def test_a1_host_closes_its_connection(host, path, outlog, close, end):
    assert host.run("begin") == OK
    assert host.append() == OK and host.append() == OK
    assert host.statements() > 2  # they are kept: the point of it all
    if end:
        assert host.run(end) == OK
    assert getattr(host.sqlite, close)(host.db) == OK
    assert open_files(path) == []  # really closed, not a zombie that waits for our statements
    assert events(outlog) == (2 if end == "commit" else 0)


def test_a1_a_close_that_the_host_holds_up_itself_changes_nothing(host, path, outlog):
    assert host.append() == OK
    mine = host.prepare("select 1")
    assert host.sqlite.sqlite3_close(host.db) == BUSY
    assert host.append() == OK and host.append() == OK
    host.sqlite.sqlite3_finalize(mine)
    assert host.sqlite.sqlite3_close(host.db) == OK
    assert open_files(path) == []
    assert events(outlog) == 3


def test_a1_extension_may_be_loaded_twice(host, path, outlog):
    assert host.append() == OK
    assert host.load() == OK
    assert host.append() == OK
    running = host.prepare(f"select outlog_append('{EVENT}') union all select 1")
    assert host.sqlite.sqlite3_step(running) == ROW
    host.load()  # SQLite refuses new functions while a statement runs
    host.sqlite.sqlite3_finalize(running)
    assert host.append() == OK
    assert host.sqlite.sqlite3_close(host.db) == OK
    assert open_files(path) == []
    assert events(outlog) == 4


def test_a1_kept_statements_outlive_a_change_of_the_schema(host, outlog):
    assert host.append() == OK
    assert host.run("create table mine (n)") == OK
    assert host.append() == OK
    assert host.run("begin; insert into mine values (1)") == OK
    assert host.append() == OK
    assert host.run("rollback; drop table mine; vacuum") == OK
    assert host.append() == OK
    assert host.sqlite.sqlite3_close(host.db) == OK
    assert events(outlog) == 3


@pytest.mark.parametrize("command", ["start_run", "request_effect"])
def test_a1_a_command_outside_a_transaction_waits_for_its_turn(path, extension, command):
    """It reads before it writes, and SQLite lets nobody wait who has read already."""

    def connect():
        return contextlib.closing(sqlite3.connect(path, isolation_level=None, timeout=20, check_same_thread=False))

    with connect() as host, connect() as other:
        host.enable_load_extension(True)
        host.load_extension(str(extension))

        def call(name, **body):
            return json.loads(host.execute(f"select outlog_{name}(?)", (json.dumps(body),)).fetchone()[0])

        signal = call("receive_signal", org_id="acme", signal_type="order.placed", payload={})["signal_id"]
        start = {"org_id": "acme", "run_type": "T", "orchestrator_version": "v1", "signal_id": signal}
        run = None if command == "start_run" else call("start_run", **start)["run_id"]
        other.execute("begin immediate")
        turn = threading.Timer(0.2, other.execute, ["commit"])
        turn.start()
        if run:
            assert not call("request_effect", run_id=run, effect_type="API_CALL", destination="x", effect_spec={})[
                "duplicate"
            ]
        else:
            assert call("start_run", **start)["status"] == "RUNNING"
        turn.join()
