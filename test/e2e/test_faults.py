"""What holds when it hurts: processes killed, connections cut, disks full, servers down.

What was acknowledged is there, nothing is half written, and what cannot be known is called
outcome_unknown, never failed. The command line answers each fault with one line, a stable code and
exit code 1.
"""
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import urllib.parse
import uuid

import psycopg2
import pytest

from lib.cli import SANITIZER_EXIT, Outlog, build_dir
from lib.disk import failing
from lib.liboutlog import Log, Refused, event
from lib.postgres import Postgres, die_with_parent
from lib.proxy import Proxy
from lib.standby import Standby

APPENDER = pathlib.Path(__file__).parents[1] / "lib" / "appender.py"
APPEND = ("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.created", "--data", "{}")
DEADLINE = 60  # seconds until a condition that should hold at once is given up


# Tools


def wait_for(condition, what="the condition"):
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.005)
    raise AssertionError(f"waited {DEADLINE} s for {what}")


def ask(store, sql, *args):
    """Rows from the store, past outlog. `{}` stands for the prefix of our tables."""
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :], timeout=10)) as db:
            return db.execute(sql.format("outlog_").replace("%s", "?"), args).fetchall()
    with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
        cursor.execute(sql.format("outlog."), args or None)
        return cursor.fetchall()


def stored_ids(store):
    return {str(id) for id, in ask(store, "select id from {}events")}


def check_whole(store):
    """Nothing is half written: sequences without gaps, heads that agree, commands as a whole."""
    assert ask(
        store,
        "select count(*) from (select aggregate_seq, row_number() over (partition by "
        "org_id, aggregate_type, aggregate_id order by event_id) as n from {}events) x "
        "where aggregate_seq <> n",
    ) == [(0,)]
    assert ask(
        store,
        "select count(*) from {}heads h where aggregate_seq <> coalesce((select max("
        "e.aggregate_seq) from {}events e where coalesce(e.org_id, '') = h.org_key and "
        "e.aggregate_type = h.aggregate_type and e.aggregate_id = h.aggregate_id), 0)".replace("{}", "{0}"),
    ) == [(0,)]
    for correlation, size, payload in ask(
        store,
        "select correlation_id, count(*), min(cast(payload as text)) from {}events "
        "where aggregate_type in ('own', 'shared') group by correlation_id",
    ):
        assert payload == '{"size":%d}' % size, f"command {correlation} is half there"
    if store.startswith("sqlite:"):
        assert ask(store, "pragma integrity_check") == [("ok",)]


def refusal(result, code):
    """The command failed as it should: exit code 1, one line, this code. The line."""
    assert result.returncode == 1 and result.stdout == "", result
    lines = result.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("outlog: "), result
    assert lines[0].endswith(f" [{code}]"), result
    return lines[0]


class Appender:
    """lib/appender.py in the background, and what it said."""

    def __init__(self, store, name, fault=None):
        env = {**os.environ, "OUTLOG_BUILD": str(build_dir()), "PYTHONDONTWRITEBYTECODE": "1"}
        preload = sys.modules["conftest"].PRELOAD
        if preload:
            env.update(LD_PRELOAD=preload, ASAN_OPTIONS="detect_leaks=0")
        if fault:
            env["OUTLOG_FAULT"] = fault
        self.process = subprocess.Popen(
            [sys.executable, APPENDER, store, name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.tried, self.acknowledged, self.refused, self.last = [], [], [], []
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def _listen(self):
        for line in self.process.stdout:
            word, *ids = line.split()
            if word == "refused":
                self.refused += ids[1:]
            elif word == "ok":
                self.acknowledged += ids
            else:
                self.tried += ids
                self.last = ids

    def end(self, kill=True):
        """Wait for it to be dead (or kill it), and for all that it said."""
        if kill:
            self.process.kill()
        self.process.wait(60)
        self.thread.join(10)
        error = self.process.stderr.read()
        self.process.stderr.close()
        self.process.stdout.close()
        assert self.process.returncode == -signal.SIGKILL, error


@pytest.fixture
def appender():
    started = []

    def start(*args, **more):
        started.append(Appender(*args, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.process.wait()


@pytest.fixture(scope="module")
def server():
    """A server of this file's own, to restart and to break; each test leaves it running."""
    with Postgres(settings={"wal_writer_delay": "10s"}) as server:
        yield server


@pytest.fixture
def server_store(server):
    name = f"s{uuid.uuid4().hex[:8]}"
    url = server.create(name)
    Outlog(url).run("init")
    yield url
    server.drop(name)


@pytest.fixture
def proxy(postgres):
    with Proxy(postgres.port) as proxy:
        yield proxy


# kill -9


@pytest.mark.parametrize("nth", [1, 6])
@pytest.mark.parametrize("point", ["append.insert", "append.commit_sent", "append.commit_done"])
def test_e5_killed_at_a_point_leaves_a_whole_log(store, appender, point, nth):
    victim = appender(store, "victim", fault=f"{point}:{nth}:kill")
    victim.end(kill=False)  # the point was reached, else it would append for ever
    there = stored_ids(store)
    assert set(victim.acknowledged) <= there <= set(victim.tried)
    in_flight = set(victim.last) - set(victim.acknowledged)
    assert in_flight and there & in_flight == (in_flight if point == "append.commit_done" else set())
    check_whole(store)
    # The dead hold nothing: the next one appends at once, and the dead one's command converges.
    with Log(store) as log:
        done = log.append_now(*(event("late/l-1", id=id) for id in in_flight - there))
        assert [one.duplicate for one in done] == [False] * len(done)
    check_whole(store)


def test_e5_killed_at_any_instant_under_load(store, appender):
    chance = random.Random(uuid.uuid4().int)
    running = [appender(store, f"a-{n}") for n in range(4)]
    dead = []
    wait_for(lambda: all(one.acknowledged for one in running), "the first appends")
    for round in range(8):
        time.sleep(chance.uniform(0.01, 0.15))  # the instant is what varies; nothing depends on it
        victim = running.pop(0)
        victim.end()
        dead.append(victim)
        running.append(appender(store, f"b-{round}"))
    wait_for(lambda: all(one.acknowledged for one in running), "appends after the kills")
    for one in running:
        one.end()
    everyone = dead + running
    there = stored_ids(store)
    assert {id for one in everyone for id in one.acknowledged} <= there
    assert there <= {id for one in everyone for id in one.tried}
    assert not there & {id for one in everyone for id in one.refused}
    check_whole(store)


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate"])
def test_e5_sqlite_killed_at_every_system_call(sqlite_store, outlog, tmp_path, call):
    """The same without points of ours: at the N-th write, for every N there is."""
    outlog.run(*APPEND)
    home, path = tmp_path / "home", tmp_path / "outlog.db"
    home.mkdir()
    for n in range(1, 60):
        for left in home.iterdir():
            left.unlink()
        shutil.copy(path, home / "outlog.db")
        store, id = f"sqlite:{home}/outlog.db", str(uuid.uuid4())
        done = strace(store, f"{call}:signal=KILL:when={n}", *APPEND, "--id", id)
        check_whole(store)
        assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
        assert len(stored_ids(store)) in ((2,) if done.returncode == 0 else (1, 2))
        again = Outlog(store).run(*APPEND, "--id", id, "--json").json()[0]
        assert again["aggregate_seq"] == 2 and len(stored_ids(store)) == 2
        if done.returncode == 0:
            return
    raise AssertionError("the run never came to its end")


def strace(store, inject, *command):
    """`outlog COMMAND` with a system call that fails, or kills."""
    env = {
        "OUTLOG_STORE": store,
        "PATH": os.environ["PATH"],
        "ASAN_OPTIONS": "detect_leaks=0",
    }  # LeakSanitizer cannot run under strace
    done = subprocess.run(
        [
            "strace",
            "-f",
            "-qq",
            "-o",
            os.devnull,
            "-e",
            f"trace={inject.split(':')[0]}",
            "-e",
            f"inject={inject}",
            build_dir() / "outlog",
            *command,
        ],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    assert done.returncode != SANITIZER_EXIT, done.stderr
    return done


# The commit whose answer never came

CUTS = pytest.mark.parametrize("where, is_stored", [("request", False), ("reply", True), ("held", False)])


def settle_unknown(log, proxy, where, is_stored, store, unknown, *events):
    """After an unknown outcome: resolve tells, for good, and a repeat converges to one event."""
    assert unknown.code == "outcome_unknown"
    assert "look them up by id, or repeat them with the same id" in unknown.message
    ids = [one.id for one in unknown.appended] or [one.id.decode() for one in events]
    for id in ids:
        found = log.resolve(id)
        assert (found is not None) == is_stored
        assert not found or (found.id, found.aggregate_seq) == (id, 1)
    if where == "held":
        proxy.release()  # what was on its way arrives, and finds nobody
        assert not stored_ids(store)
    for one, id in zip(events, ids):
        one.id = id.encode()
    again = log.append_now(*events)
    assert [one.duplicate for one in again] == [is_stored] * len(events)
    assert stored_ids(store) == set(ids)
    check_whole(store)


@CUTS
def test_a4_commit_cut_is_unknown_and_resolved(postgres_store, proxy, where, is_stored):
    one = event(id=str(uuid.uuid4()))
    with Log(proxy.url(postgres_store)) as log:
        tx = log.begin()
        tx.append(one)
        proxy.cut_at(r"^commit$", where)
        with pytest.raises(Refused) as unknown:
            tx.commit()
        assert proxy.happened.wait(30)
        settle_unknown(log, proxy, where, is_stored, postgres_store, unknown.value, one)


@CUTS
@pytest.mark.parametrize("count", [1, 3])
def test_a4_single_statement_cut_is_unknown_and_resolved(postgres_store, proxy, where, is_stored, count):
    events = [event(f"order/o-{n}") for n in range(count)]
    with Log(proxy.url(postgres_store)) as log:
        proxy.cut_at(r"outlog\.append_(one|batch)", where)
        with pytest.raises(Refused) as unknown:
            log.append_now(*events)
        assert proxy.happened.wait(30)
        settle_unknown(log, proxy, where, is_stored, postgres_store, unknown.value, *events)


def test_a4_cut_after_any_number_of_bytes_converges(postgres_store, proxy):
    """Wherever the connection is reset: `unavailable` means not stored, and a repeat gives one event."""
    codes = set()
    with Log(postgres_store) as direct:
        for limit in range(40, 12000, 151):
            one = event(f"order/o-{limit}")
            proxy.reset_after(limit)
            try:
                with Log(proxy.url(postgres_store)) as log:
                    one.id = log.append_now(one)[0].id.encode()
                code = "ok"
            except Refused as refused:
                code = refused.code
                made = [done.id for done in refused.appended if done.id]
                one.id = (made[0] if made else str(uuid.uuid4())).encode()
            codes.add(code)
            # The server may not have noticed the reset yet; a repeat waits for it at the aggregate.
            (again,) = direct.append_now(one)
            assert again.aggregate_seq == 1
            if code != "outcome_unknown":
                assert again.duplicate == (code == "ok"), code
            if code == "ok" and not proxy.happened.is_set():
                break
    assert codes == {"ok", "unavailable", "outcome_unknown"}
    check_whole(postgres_store)


def test_a4_cli_tells_the_id_of_an_unknown_append(postgres_store, proxy):
    through = Outlog(proxy.url(postgres_store))
    proxy.cut_at(r"outlog\.append_one", "reply")
    line = refusal(through.run(*APPEND, check=False), "outcome_unknown")
    (id,) = re.findall(r"event ([0-9a-f-]{36}): ", line)
    assert stored_ids(postgres_store) == {id}
    assert "(was there already)" in through.run(*APPEND, "--id", id).stdout
    assert stored_ids(postgres_store) == {id}


@pytest.mark.parametrize("is_alone", [True, False])
def test_a4_commit_with_a_warning_is_unknown(server, server_store, is_alone):
    """The standby did not confirm: the row is here, and would be lost with this server."""
    id = str(uuid.uuid4())

    def cancel():
        pids = server.sql("select pid from pg_stat_activity where wait_event = 'SyncRep'")
        return pids and server.sql("select pg_cancel_backend(%s)", pids[0][0])

    with Log(server_store) as log, synchronous_standby(server, "ghost"):
        with pytest.raises(Refused) as unknown, in_background(lambda: wait_for(cancel)):
            if is_alone:
                log.append_now(event())
            else:
                tx = log.begin()
                tx.append(event(id=id))
                tx.commit()
        assert unknown.value.code == "outcome_unknown"
    with Log(server_store) as log:
        assert log.resolve(unknown.value.appended[0].id if is_alone else id).aggregate_seq == 1


@contextlib.contextmanager
def synchronous_standby(server, name):
    def set_to(value):
        with contextlib.closing(psycopg2.connect(server.url())) as db, db.cursor() as cursor:
            db.autocommit = True
            cursor.execute("set synchronous_commit = local")
            cursor.execute(f"alter system set synchronous_standby_names = '{value}'")
            cursor.execute("select pg_reload_conf()")
        wait_for(lambda: server.sql("show synchronous_standby_names") == [(value,)])

    set_to(name)
    try:
        yield
    finally:
        set_to("")


@contextlib.contextmanager
def in_background(work):
    thread = threading.Thread(target=work)
    thread.start()
    yield
    thread.join()


# A server that goes away


def test_x_server_restarted_between_calls_is_not_noticed(server, server_store):
    with Log(server_store) as log:
        for n in range(1, 4):
            assert log.append_now(event())[0].aggregate_seq == n
            assert log.read()[0][-1] == log.settled()
            server.restart(("immediate", "kill", "fast")[n - 1])
        tx = log.begin()
        assert tx.append(event())[0].aggregate_seq == 4
        tx.commit()
    check_whole(server_store)


def test_x_server_lost_in_a_transaction_stores_nothing(server, server_store):
    with Log(server_store) as log:
        tx = log.begin()
        tx.append(event())
        server.restart("immediate")
        with pytest.raises(Refused) as refused:  # before COMMIT was sent: no doubt about it
            tx.commit()
        assert refused.value.code == "unavailable" and "nothing was stored" in str(refused.value)
        assert log.append_now(event())[0].aggregate_seq == 1
    check_whole(server_store)


@pytest.mark.parametrize("is_noticed", [True, False])
def test_x_backend_terminated_in_a_transaction(postgres, postgres_store, is_noticed):
    with Log(postgres_store + "?application_name=victim") as log:
        tx = log.begin()
        tx.append(event())
        assert postgres.sql(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity " "where application_name = 'victim'"
        ) == [(True,)]
        if is_noticed:
            with pytest.raises(Refused) as refused:
                tx.append(event())
            assert refused.value.code == "unavailable"
        with pytest.raises(Refused) as refused:  # surely not stored, so never outcome_unknown
            tx.commit()
        assert refused.value.code == ("store_error" if is_noticed else "unavailable")
        assert log.append_now(event())[0].aggregate_seq == 1
    check_whole(postgres_store)


def test_x_unreachable_servers_are_told_apart(own_postgres):
    def line(url, *command):
        return refusal(Outlog(url).run(*(command or ("events",)), check=False), "unavailable")

    url = own_postgres.create("orders")
    Outlog(url).run("init")
    wrong = own_postgres.url("orders", password="wrong-pass")
    assert "password authentication failed" in line(wrong) and "wrong-pass" not in line(wrong)
    assert 'database "missing" does not exist' in line(own_postgres.url("missing"))
    assert "password authentication failed" in line(own_postgres.url("orders", user="nobody_here"))
    own_postgres.stop()
    for command in (("init",), APPEND, ("events",), ("consumers",), ("doctor",)):
        down = line(url, *command)
        assert "cannot connect to the store" in down and "Connection refused" in down
        assert own_postgres.password not in down
    own_postgres.start()
    Outlog(url).run(*APPEND)


def test_x_read_only_database_is_read_not_written(postgres, postgres_store, outlog):
    outlog.run(*APPEND)
    name = postgres_store.rsplit("/", 1)[1]
    postgres.sql(f"alter database {name} set default_transaction_read_only = on")
    assert "connect to the primary" in refusal(outlog.run(*APPEND, check=False), "read_only")
    refusal(outlog.run(*APPEND, "--key", "k", check=False), "read_only")
    refusal(outlog.run("consumers", "create", "c", check=False), "read_only")
    assert len(outlog.run("events", "--json").json()) == 1
    postgres.sql(f"alter database {name} reset default_transaction_read_only")
    assert outlog.run(*APPEND, "--json").json()[0]["aggregate_seq"] == 2


def test_e6_a_standby_refuses_to_say_what_is_settled(server, server_store):
    Outlog(server_store).run(*APPEND)
    with Standby(server) as standby:
        name = server_store.rsplit("/", 1)[1]
        url = standby.url(name)
        wait_for(
            lambda: standby.sql("select count(*) from outlog.events", database=name) == [(1,)], "the standby to follow"
        )
        for command in (("events",), ("consumers",), ("doctor",), APPEND):
            assert "primary" in refusal(Outlog(url).run(*command, check=False), "read_only")
        with contextlib.closing(psycopg2.connect(url)) as db, db.cursor() as cursor:
            for call in ("outlog.settled()", "outlog.read(0, 10)"):
                with pytest.raises(psycopg2.Error, match="^read_only: a standby"):
                    cursor.execute(f"select {call}")
                db.rollback()


# Locks


def impatient(url, ms):
    return url + "?options=" + urllib.parse.quote(f"-c lock_timeout={ms}")


def test_x_lock_timeout_is_unavailable(postgres_store, outlog):
    outlog.run(*APPEND)
    with contextlib.closing(psycopg2.connect(postgres_store)) as db, db.cursor() as cursor:
        cursor.execute(
            "select outlog.append(org_id => 'acme', aggregate_type => 'order', "
            "aggregate_id => 'o-1', event_type => 'order.paid', payload => '{}')"
        )
        line = refusal(Outlog(impatient(postgres_store, 100)).run(*APPEND, check=False), "unavailable")
        assert "another transaction holds the row, try again" in line
    assert outlog.run(*APPEND, "--json").json()[0]["aggregate_seq"] == 2


def test_x_sqlite_writer_busy_too_long_is_unavailable(sqlite_store, outlog):
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :])) as db:
        db.execute("begin immediate")
        waiting = outlog.start(*APPEND)
        assert len(outlog.run("events", "--json").json()) == 0  # readers do not wait
        out, err = waiting.communicate(timeout=60)
        assert (waiting.returncode, out) == (1, "") and err.endswith(" [unavailable]\n"), err
        assert "database is locked" in err
        db.rollback()
    assert outlog.run(*APPEND, "--json").json()[0]["aggregate_seq"] == 1


def test_i1_second_caller_waits_for_the_first_answer(store):
    with Log(store) as one, Log(store) as two:
        first = one.begin()
        assert first.idempotent_begin("k", '{"n": 1}') is None
        answers = []

        def second():
            tx = two.begin()
            answers.append(tx.idempotent_begin("k", '{"n":1}'))
            tx.rollback()

        with in_background(second):
            if store.startswith("postgres"):
                wait_for(
                    lambda: ask(store, "select count(*) from pg_stat_activity where " "wait_event_type = 'Lock'")
                    == [(1,)],
                    "the second to wait",
                )
            assert not answers
            first.append(event())
            first.idempotent_end('{"paid":true}')
            first.commit()
        assert answers == ['{"paid":true}']


def test_i1_first_call_that_fails_leaves_the_key_to_the_second(store):
    with Log(store) as one, Log(store) as two:
        tx = one.begin()
        assert tx.idempotent_begin("k") is None
        tx.rollback()
        tx = two.begin()
        assert tx.idempotent_begin("k") is None
        tx.idempotent_end("{}")
        tx.commit()


def test_i1_first_call_that_does_not_end_is_in_progress(postgres_store):
    with Log(postgres_store) as one, Log(impatient(postgres_store, 100)) as two:
        first = one.begin()
        first.idempotent_begin("k")
        with pytest.raises(Refused) as refused:
            second = two.begin()
            second.idempotent_begin("k")
        assert refused.value.code == "idempotency_in_progress"
        second.rollback()
        with contextlib.closing(psycopg2.connect(postgres_store)) as db, db.cursor() as cursor:
            cursor.execute("set lock_timeout = 100")
            with pytest.raises(psycopg2.Error, match="^idempotency_in_progress: ") as error:
                cursor.execute("select outlog.idempotency_begin('acme', 'a', 'pay', 'k', '{}')")
            assert error.value.pgcode == "OL000"
        first.rollback()
        keyed = event(idempotency_key="k2", actor_id="a")
        tx = one.begin()
        tx.append(keyed)
        with pytest.raises(Refused) as refused:
            two.append_now(keyed)
        assert refused.value.code == "idempotency_in_progress"
        tx.commit()
        assert two.append_now(keyed)[0].duplicate


# The settled position when somebody does not play by the rules


def test_e6_an_id_that_a_reader_has_passed_is_never_given_out_again(server, server_store):
    """A sequence goes back when the server crashes before a rolled-back use of it was written. Every few seconds
    the server writes what there is; then once more."""
    for _ in range(8):
        with Log(server_store) as log, contextlib.closing(psycopg2.connect(server_store)) as db, db.cursor() as cursor:
            # PostgreSQL writes a sequence's value to the WAL ahead, for 32 more; come to the end of those.
            last = log.append_now(event())[0].event_id
            while ask(server_store, "select log_cnt from outlog.events_event_id_seq") != [(0,)]:
                last = log.append_now(event())[0].event_id
            with pytest.raises(psycopg2.errors.CheckViolation):  # an id is taken, little else is written
                cursor.execute(
                    "insert into outlog.events (id, aggregate_type, aggregate_id, aggregate_seq, event_type,"
                    " actor_type, actor_id, request_id, correlation_id, payload) values (gen_random_uuid(),"
                    " 'a', 'a', 0, 't', 'system', 's', 'r', 'c', '{}')"
                )
            db.rollback()
            taken = ask(server_store, "select last_value from outlog.events_event_id_seq")[0][0]
            ids, reader_at = log.read(last - 1)
            assert ids == [last] and taken == last + 1
            server.restart("kill")
            next_id = log.append_now(event())[0].event_id
            assert log.read(reader_at)[0] == [next_id], "the reader had passed an event that came later"
        if next_id == taken:
            return
    pytest.fail("the sequence never went back: this run proves nothing")


def test_e6_an_appender_cannot_switch_its_hold_off(postgres_store):
    with Log(postgres_store) as log, contextlib.closing(psycopg2.connect(postgres_store)) as db, db.cursor() as cursor:
        for forged in (
            "pg_current_xact_id()::text",
            "pg_current_xact_id()::text || ' 999999999'",
            "pg_current_xact_id()::text || ' -1'",
            "'what'",
        ):
            cursor.execute(f"select set_config('outlog.holds', {forged}, true)")
            cursor.execute(
                "select event_id from outlog.append(org_id => 'acme', aggregate_type => 'a', "
                "aggregate_id => %s, event_type => 't', payload => '{}')",
                [forged],
            )
            open_id = cursor.fetchone()[0]
            later = log.append_now(event())[0].event_id
            assert later > open_id > log.settled(), forged
            db.commit()
            assert log.settled() == later


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_e6_an_old_snapshot_is_refused(postgres_store, level):
    with contextlib.closing(psycopg2.connect(postgres_store)) as db, db.cursor() as cursor:
        db.set_session(isolation_level=level)
        for call in ("outlog.settled()", "outlog.read(0, 10)"):
            with pytest.raises(psycopg2.Error, match="^misuse: .*READ COMMITTED"):
                cursor.execute(f"select {call}")
            db.rollback()


# The schema

COMMANDS = [
    APPEND,
    ("append", "--ndjson", "-"),
    ("events",),
    ("trace", "c"),
    ("causality", "1"),
    ("consumers",),
    ("consumers", "create", "c"),
    ("consumers", "read", "c"),
    ("doctor",),
]


def test_x_newer_schema_is_refused_by_every_command(store, outlog):
    outlog.run(*APPEND)
    execute(store, "insert into {}schema_migrations (version, name) values (999, 'future')")
    for command in [("init",), *COMMANDS]:
        line = refusal(outlog.run(*command, check=False, input=""), "newer_schema")
        assert "schema version 999" in line and "use a newer outlog" in line
    assert len(stored_ids(store)) == 1


def test_x_missing_schema_names_init(empty_store, outlog):
    for command in COMMANDS:
        assert "outlog init" in refusal(outlog.run(*command, check=False, input=""), "no_schema")
    outlog.run("init")
    outlog.run(*APPEND)


def test_x_init_may_be_repeated_and_run_by_many_at_once(empty_store, outlog):
    running = [outlog.start("init") for _ in range(8)]
    for one in running:
        out, err = one.communicate(timeout=60)
        assert one.returncode == 0, err
    outlog.run(*APPEND)
    assert "up to date" in outlog.run("init").stdout
    assert len(stored_ids(empty_store)) == 1
    applied = ask(empty_store, "select version from {}schema_migrations order by version")
    versions = [version for version, in applied]
    assert versions == sorted(set(versions)) and len(versions) > 5  # each once


def test_x_init_killed_in_a_migration_goes_on(empty_store, outlog):
    killed = outlog.run("init", check=False, env={"OUTLOG_FAULT": "migrate.step:1:kill"})
    assert killed.returncode == -signal.SIGKILL
    assert "outlog init" in refusal(outlog.run(*APPEND, check=False), "no_schema")
    outlog.run("init")
    outlog.run(*APPEND)
    outlog.run("doctor")


def execute(store, sql):
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :])) as db:
            db.execute(sql.format("outlog_"))
            db.commit()
    else:
        with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
            cursor.execute(sql.format("outlog."))
            db.commit()


# SQLite's disk


@contextlib.contextmanager
def mounted(path, *options):
    """Root can mount; a test that cannot says so."""
    path.mkdir(exist_ok=True)
    if os.getuid() != 0 or subprocess.run(["mount", *options, path]).returncode != 0:
        pytest.skip("mounting needs root")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def test_x_sqlite_full_disk_stores_nothing(tmp_path):
    big = '{"text":"' + "x" * 60000 + '"}'
    with mounted(tmp_path / "small", "-t", "tmpfs", "-o", "size=2m", "none") as disk:
        store = f"sqlite:{disk}/outlog.db"
        outlog = Outlog(store)
        outlog.run("init")
        for n in range(1, 100):
            done = outlog.run(*APPEND[:-1], big, "--json", check=False)
            if done.returncode != 0:
                break
            assert done.json()[0]["aggregate_seq"] == n
        assert "nothing was stored, try again" in refusal(done, "unavailable")
        assert len(stored_ids(store)) == n - 1
        check_whole(store)
        subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
        assert outlog.run(*APPEND, "--json").json()[0]["aggregate_seq"] == n


@pytest.mark.parametrize(
    "call, error, code",
    [("fdatasync", "EIO", "outcome_unknown"), ("pwrite64", "ENOSPC", "unavailable"), ("pwrite64", "EIO", None)],
)
def test_x_sqlite_disk_error_at_every_call(sqlite_store, outlog, tmp_path, call, error, code):
    outlog.run(*APPEND)
    home = tmp_path / "home"
    home.mkdir()
    codes = set()
    for n in range(1, 60):
        for left in home.iterdir():
            left.unlink()
        shutil.copy(tmp_path / "outlog.db", home / "outlog.db")
        store, id = f"sqlite:{home}/outlog.db", str(uuid.uuid4())
        done = strace(store, f"{call}:error={error}:when={n}", *APPEND, "--id", id)
        is_stored = id in stored_ids(store)
        check_whole(store)
        if done.returncode == 0:
            assert is_stored
            break
        found = re.fullmatch(r"outlog: [^\n]* \[(\w+)\]\n", done.stderr)
        assert found and done.returncode == 1 and done.stdout == "", done.stderr
        codes.add(found[1])
        assert not is_stored or found[1] == "outcome_unknown", done.stderr
        assert Outlog(store).run(*APPEND, "--id", id, "--json").json()[0]["aggregate_seq"] == 2
    assert codes == {code} if code else codes <= {"outcome_unknown", "store_error", "unavailable"}, codes


def test_a4_sqlite_resolve_is_final_after_a_failed_commit(sqlite_store, tmp_path):
    """The failed commit's frames lie in the WAL; a crash must not bring them back after `resolve`."""
    id = str(uuid.uuid4())
    script = tmp_path / "resolve.py"
    script.write_text(
        f"""
import os, signal, sys
sys.path.insert(0, {str(APPENDER.parents[1])!r})
from lib.liboutlog import Log, Refused, event
log = Log({sqlite_store!r})
log.settled()
print("ready", flush=True)
sys.stdin.readline()
try:
    log.append_now(event(id={id!r}))
except Refused as refused:
    print(refused.code, log.resolve({id!r}), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    env = {**os.environ, "OUTLOG_BUILD": str(build_dir())}
    if sys.modules["conftest"].PRELOAD:
        env.update(LD_PRELOAD=sys.modules["conftest"].PRELOAD, ASAN_OPTIONS="detect_leaks=0")
    child = subprocess.Popen(
        [sys.executable, script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=env,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    try:
        assert child.stdout.readline() == "ready\n"
        with failing(child, "fdatasync", "EIO", ":when=1"):
            answer = child.communicate("go\n", timeout=30)[0]
    finally:
        child.kill()
        child.wait()
    assert answer == "outcome_unknown None\n"
    assert id not in stored_ids(sqlite_store)  # the WAL was recovered just now


def test_x_sqlite_read_only_file_is_read_not_written(tmp_path):
    home, view = tmp_path / "home", tmp_path / "view"
    home.mkdir()
    Outlog(f"sqlite:{home}/outlog.db").run("init")
    Outlog(f"sqlite:{home}/outlog.db").run(*APPEND)
    with mounted(view, "--bind", home):
        subprocess.run(["mount", "-o", "remount,ro,bind", view], check=True)
        outlog = Outlog(f"sqlite:{view}/outlog.db")
        writes = (APPEND, ("consumers", "create", "c"), ("init",))
        # While a writer has it open its WAL can be read; alone, SQLite cannot even do that.
        with Log(f"sqlite:{home}/outlog.db") as writer:
            writer.append_now(event())
            assert len(outlog.run("events", "--json").json()) == 2
            for command in writes:
                assert "cannot be written" in refusal(outlog.run(*command, check=False), "read_only")
        for command in (("events",), *writes):
            assert "cannot be written" in refusal(outlog.run(*command, check=False), "read_only")
        refusal(Outlog(f"sqlite:{view}/new.db").run("init", check=False), "read_only")
    assert len(stored_ids(f"sqlite:{home}/outlog.db")) == 2


def test_x_sqlite_path_that_is_no_database(tmp_path):
    (tmp_path / "text.db").write_text("this is no database at all, only text, and a lot of it" * 50)
    for store, word in (
        (f"sqlite:{tmp_path}/text.db", "file is not a database"),
        (f"sqlite:{tmp_path}", "unable to open"),
        (f"sqlite:{tmp_path}/no/such/folder/x.db", "unable to open"),
    ):
        done = Outlog(store).run("events", check=False)
        said = refusal(done, "store_error" if "not a database" in word else "unavailable")
        assert word in said and ("not a database" in word or "an existing folder" in said)
    assert (tmp_path / "text.db").read_text().startswith("this is no database")
