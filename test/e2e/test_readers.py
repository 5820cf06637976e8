"""Readers of the log: settled and page from one server (P5, E6+), and cursors of another log (R3)."""
import contextlib
import itertools
import json
import os
import shutil
import sqlite3

import psycopg2
import pytest

from lib import pgpool
from lib.cli import Outlog
from lib.liboutlog import Log, Refused
from lib.outbox import wait_for
from lib.pgpool import Pgpool
from lib.postgres import Postgres
from lib.server import Server, Stream
from lib.standby import Standby

needs_pgpool = pytest.mark.skipif(not pgpool.program(), reason="pgpool2 is not installed: scripts/setup test")


def append(outlog, count, start=1):
    lines = "".join(
        json.dumps(
            {
                "org_id": "acme",
                "aggregate_type": "order",
                "aggregate_id": f"o-{n}",
                "event_type": "order.created",
                "payload": {"n": n},
            }
        )
        + "\n"
        for n in range(start, start + count)
    )
    outlog.run("append", "--ndjson", "-", input=lines)


def query(store, sql):
    """Plain SQL on either store, written for PostgreSQL; the rows, or None."""
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store.removeprefix("sqlite:"))) as db, db:
            return db.execute(sql.replace("outlog.", "outlog_")).fetchall()
    with contextlib.closing(psycopg2.connect(store)) as db, db, db.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall() if cursor.description else None


# --- behind a balancing pooler ---


@pytest.fixture(scope="module")
def lagging():
    """(url of the primary, primary, standby): the standby knows the schema and no event."""
    with Postgres() as primary, Standby(primary) as standby:
        url = primary.create("log")
        Outlog(url).run("init")
        standby.fall_behind()
        append(Outlog(url), 5)
        yield url, primary, standby


@pytest.fixture(scope="module", params=["by default", "trusting every function"])
def balanced(lagging, request):
    """The same store through a pooler that reads from the standby wherever it may."""
    url, primary, standby = lagging
    with Pgpool(primary, standby, request.param != "by default") as pooler:
        yield pooler.url(url)


def read_ids(outlog, *args):
    return [event["event_id"] for event in outlog.run("events", "--json", *args).json()]


@needs_pgpool
def test_p5_a_page_is_complete_behind_a_balancing_pooler(balanced, tmp_path):
    serve = Server(Outlog(balanced), tmp_path / "log", [])
    try:
        for _ in range(6):
            answer = serve.get("/v1/events")
            assert answer.status == 200, answer
            assert len(answer.json["events"]) >= 5, answer
        back = serve.get("/v1/events?before=6").json["events"]
        assert [event["event_id"] for event in back] == [5, 4, 3, 2, 1]
        stream = Stream(serve, "/v1/events/stream?after=0")
        assert [number for number, _ in itertools.islice(stream, 5)] == [1, 2, 3, 4, 5]
        stream.close()
        correlation = back[0]["correlation_id"]
        assert len(serve.get(f"/v1/traces/{correlation}").json["events"]) == 1
    finally:
        serve.stop()


@needs_pgpool
def test_p5_every_reader_is_complete_behind_a_balancing_pooler(balanced):
    outlog = Outlog(balanced)
    assert read_ids(outlog)[:5] == [1, 2, 3, 4, 5]
    assert read_ids(outlog, "--since", "1h", "--type", "order.created") == [1, 2, 3, 4, 5]
    with Log(balanced) as log:
        assert log.read()[0][:5] == [1, 2, 3, 4, 5]
    follow = outlog.start("events", "--follow", "--after", "0", "--json", "--limit", "5")
    out, _ = follow.communicate(timeout=60)
    assert len(out.splitlines()) == 5
    outlog.run("consumers", "create", "billing")
    [billing] = outlog.run("consumers", "--json").json()
    assert billing["lag"] >= 5
    assert outlog.run("export").stdout.count('{"event":') >= 5


@needs_pgpool
def test_p5_doctor_names_a_balancing_pooler(balanced, lagging):
    checks = {line["check"]: line for line in Outlog(balanced).run("doctor", "--json").json()}
    assert checks["pooler"]["state"] == "note"
    _, primary, standby = lagging
    assert f"plain reads to 127.0.0.1, port {standby.port}" in checks["pooler"]["detail"]
    direct = {line["check"] for line in Outlog(primary.url("log")).run("doctor", "--json").json()}
    assert "pooler" not in direct


def test_p5_a_read_that_reaches_a_standby_or_another_server_is_refused_by_name(lagging):
    """What a pooler of another make does: the statement of the page itself refuses."""
    _, primary, standby = lagging
    page = "select event_id from outlog.events where event_id > 1000 and (select outlog.is_server(%s))"
    [(server,)] = primary.sql("select (extract(epoch from pg_postmaster_start_time()) * 1000000)::bigint")
    assert primary.sql(page, server, database="log") == []
    with pytest.raises(psycopg2.Error, match="^read_only: "):
        standby.sql(page, server, database="log")
    with pytest.raises(psycopg2.Error, match="^unavailable: "):
        primary.sql(page, server + 1, database="log")
    done = Outlog(standby.url("log")).run("events", check=False)
    assert done.returncode == 1 and "[read_only]" in done.stderr


# --- cursors of another log ---


def test_r3_a_cursor_beyond_the_log_is_refused_by_every_reader(store, outlog, serve):
    append(outlog, 3)
    for args in (["--after", "4"], ["--after", "4", "--follow"], ["--after", "4", "--type", "order.created"]):
        done = outlog.run("events", *args, check=False)
        assert done.returncode == 1 and "[beyond_log]" in done.stderr, done
    assert read_ids(outlog, "--after", "3") == []
    with Log(store) as log, pytest.raises(Refused) as refused:
        log.read(after=4)
    assert (refused.value.code, refused.value.expected, refused.value.actual) == ("beyond_log", 4, 3)

    server = serve()
    for path in ("/v1/events?after=4", "/v1/events?after=4&wait=30", "/v1/events/stream?after=4"):
        answer = server.get(path)
        assert (answer.status, answer.code) == (409, "beyond_log"), path
        assert (answer.json["expected"], answer.json["actual"]) == (4, 3)
    assert Stream(server, last=4).status == 409
    assert server.get("/v1/events?after=3").json["next_after"] == 3


def test_r3_stored_cursors_beyond_the_log_are_said_and_not_silent(store, outlog, serve):
    append(outlog, 3)
    config = {
        "destinations": {"void": {"type": "null"}},
        "sinks": {"copy": {"to": "void"}, "other": {"to": "void"}},
        "projections": {
            "orders": {
                "version": 1,
                "tables": ["orders_seen"],
                "create": "create table if not exists orders_seen(n int)",
                "on": {"order.created": "insert into orders_seen values (1)"},
            }
        },
    }
    outlog.run("apply", "-f", "-", input=json.dumps(config))
    outlog.run("consumers", "create", "billing")
    outlog.run("relay", "--until-idle", "--quiet")
    outlog.run("projections", "run", "--until-idle")
    [(before,)] = query(store, "select max(event_id) from outlog.events")
    for table, column, name in (
        ("consumers", "cursor_event_id", "billing"),
        ("sinks", "cursor_event_id", "copy"),
        ("projection_checkpoints", "last_applied_event_id", "orders"),
    ):
        query(store, f"update outlog.{table} set {column} = {before + 100} where name = '{name}'")

    checks = {line["check"]: line for line in outlog.run("doctor", "--json", check=False).json()}
    assert checks["cursors"]["state"] == "wrong"
    for name in ("consumer billing", "sink copy", "projection orders"):
        assert name in checks["cursors"]["detail"]
    append(outlog, 1, start=10)
    answer = serve("--no-relay").get("/v1/consumers/billing/events")
    assert (answer.status, answer.code) == (409, "beyond_log")
    outlog.run("relay", "--until-idle", "--quiet")
    sinks = {sink["name"]: sink for sink in outlog.run("sinks", "--json").json()}
    assert "never given out" in sinks["copy"]["last_error"]
    assert sinks["other"]["lag"] == 0 and not sinks["other"]["last_error"]
    outlog.run("projections", "run", "--until-idle")
    [shown] = outlog.run("projections", "--json").json()
    assert shown["status"] == "stopped" and "never given out" in json.dumps(shown["error"])


class Backup:
    """A copy of a store, to be put in its place again: what was appended since is gone."""

    def __init__(self, store, tmp_path, postgres=None):
        self.store, self.postgres = store, postgres
        if store.startswith("sqlite:"):
            self.path, self.copy = store.removeprefix("sqlite:"), tmp_path / "backup.db"
            with contextlib.closing(sqlite3.connect(self.path)) as db:
                db.execute("vacuum into ?", (str(self.copy),))
        else:
            self.name = store.rsplit("/", 1)[1]
            postgres.sql(f'create database "{self.name}_copy" template "{self.name}"')

    def restore(self):
        if self.postgres:
            self.postgres.drop(self.name)
            self.postgres.sql(f'alter database "{self.name}_copy" rename to "{self.name}"')
            return
        for end in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + end)
        os.replace(self.copy, self.path)

    def restore_in_place(self):
        """Over the same file: nothing can tell it from the one that was there."""
        for end in ("-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.path + end)
        shutil.copyfile(self.copy, self.path)


@pytest.fixture
def backup(store, tmp_path, request):
    return lambda: Backup(store, tmp_path, None if "sqlite" in store else request.getfixturevalue("postgres"))


def test_r3_a_cursor_from_before_a_restore_is_refused_and_told_where_to_go_on(store, outlog, serve, backup):
    append(outlog, 52)
    kept = backup()
    append(outlog, 50, start=53)
    server = serve()
    page = server.get("/v1/events?after=0&limit=1000").json
    assert page["next_after"] == 102
    server.stop()
    with Log(store) as log:
        assert log.read(after=102, log_id=page["log_id"]) == ([], 102)
    kept.restore()
    append(outlog, 100, start=200)  # ids up to 152: the old cursor is inside of the log again

    server = serve()
    cursor = f"after=102&log_id={page['log_id']}"
    for path in (f"/v1/events?{cursor}", f"/v1/events?{cursor}&wait=30", f"/v1/events/stream?{cursor}"):
        answer = server.get(path)
        assert (answer.status, answer.code) == (409, "beyond_log"), path
        assert answer.json["actual"] == 52
    done = outlog.run("events", "--after", "102", "--log-id", page["log_id"], check=False)
    assert done.returncode == 1 and "[beyond_log]" in done.stderr
    with Log(store) as log, pytest.raises(Refused, match="beyond_log"):
        log.read(after=102, log_id=page["log_id"])

    after = server.get(f"/v1/events?after=52&limit=1000&log_id={page['log_id']}").json
    assert after["log_id"] != page["log_id"]
    assert [event["event_id"] for event in after["events"]] == list(range(53, 153))
    answer = server.get("/v1/events?after=0&log_id=0191d4a4-0000-7000-8000-000000000000")
    assert (answer.code, answer.json["actual"]) == ("beyond_log", -1)


def test_r3_after_restored_ids_go_on_above_every_known_cursor(store, outlog, backup):
    append(outlog, 52)
    kept = backup()
    append(outlog, 50, start=53)
    with Log(store) as log:
        log.read()
        before = log.log_id
    kept.restore() if kept.postgres else kept.restore_in_place()
    [epoch] = outlog.run("restored", "--above", "102", "--json").json()
    assert epoch["began_after"] == 52 and epoch["log_id"] != before
    append(outlog, 40, start=200)
    assert len(read_ids(outlog, "--after", "102", "--type", "order.created")) == 40
    assert [
        event["event_type"] for event in outlog.run("events", "--after", "52", "--limit", "1", "--json").json()
    ] == ["outlog.log.restored"]
    done = outlog.run("events", "--after", "102", "--log-id", before, check=False)
    assert "[beyond_log]" in done.stderr
    assert epoch["log_id"] in outlog.run("doctor").stdout


def test_r3_a_crash_that_loses_nothing_costs_no_reader_anything(own_postgres):
    url = own_postgres.create("log")
    outlog = Outlog(url)
    outlog.run("init")
    append(outlog, 5)
    with Log(url) as log:
        assert log.read()[1] == 5
        before = log.log_id
        own_postgres.restart("fast")
        append(outlog, 1, start=6)
        log.read()
        assert log.log_id == before
        own_postgres.restart("kill")
        append(outlog, 1, start=7)
        ids, end = log.read(after=5, log_id=before)
        assert ids == [6, end] and end > 6  # the sequence may skip some
        assert log.log_id != before


def test_r3_a_failover_that_lost_events_is_noticed_by_the_first_plain_insert():
    with Postgres() as primary, Standby(primary) as standby:
        url = primary.create("log")
        outlog = Outlog(url)
        outlog.run("init")
        append(outlog, 5)
        wait_for(
            lambda: standby.sql("select count(*) from outlog.events", database="log") == [(5,)],
            "the standby to have it",
        )
        standby.detach()
        append(outlog, 3, start=6)  # acknowledged by the primary alone
        with Log(url) as log:
            assert log.read()[1] == 8
            before = log.log_id
        primary.kill()
        standby.promote()
        for n in range(9):  # by plain SQL, before any process of outlog is there
            standby.sql(
                "select outlog.append(org_id => 'acme', aggregate_type => 'order', aggregate_id => 'x', "
                "event_type => 'order.created', payload => '{}')",
                database="log",
            )
        with Log(standby.url("log")) as log:
            with pytest.raises(Refused) as refused:
                log.read(after=8, log_id=before)
            assert (refused.value.code, refused.value.actual) == ("beyond_log", 5)
            assert len(log.read(after=5, log_id=before)[0]) == 9
        with pytest.raises(psycopg2.Error, match="^beyond_log: "):
            standby.sql("select outlog.check_cursor(8, %s)", before, database="log")
        with pytest.raises(psycopg2.Error, match="^beyond_log: "):
            standby.sql("select * from outlog.read(1000000)", database="log")
