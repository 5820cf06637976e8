"""Projections: views that are derived from the log (P1-P6), on both stores."""
import json
import random
import re
import signal
import sqlite3
import textwrap
import threading
import time
from contextlib import closing

import psycopg2
import pytest

from interfaces import connect, execute, is_postgres
from lib.cli import Outlog
from lib.outbox import wait_for, wait_frozen

TOTALS = """\
projections:
  totals:
    version: 1
    tables: [totals, orders]
    create: |
      create table if not exists totals (org text primary key, orders integer not null, total integer not null);
      create table if not exists orders (id text primary key, total integer not null, seen bigint not null);
      create index if not exists orders_total on orders (total)
    on:
      order.created:
        - insert into orders (id, total, seen) values (:aggregate_id, :payload.total, :event_id)
        - insert into totals (org, orders, total) values (:org_id, 1, :payload.total)
            on conflict (org) do update set orders = totals.orders + 1, total = totals.total + excluded.total
      order.changed:
        - update totals set total = total + :payload.by where org = :org_id
        - update orders set total = total + :payload.by where id = :aggregate_id
"""


def apply(outlog, text, **options):
    return outlog.run("apply", "-f", "-", input=textwrap.dedent(text), **options)


def append(outlog, *events):
    """(aggregate, type, payload, more…) each; returns the event_ids."""
    lines = "".join(
        json.dumps(
            {
                "org_id": "acme",
                "aggregate_type": "order",
                "aggregate_id": aggregate,
                "event_type": type_,
                "payload": payload,
                **(more[0] if more else {}),
            }
        )
        + "\n"
        for aggregate, type_, payload, *more in events
    )
    done = outlog.run("append", "--ndjson", "-", "--json", input=lines)
    return [line["event_id"] for line in done.json()]


def orders(first, count, seed=0):
    chance = random.Random(seed + first)
    return [
        (f"o-{first + i}", "order.created", {"total": chance.randrange(100)})
        if chance.random() < 0.8 or i == 0
        else (f"o-{first + chance.randrange(i)}", "order.changed", {"by": chance.randrange(-5, 9)})
        for i in range(count)
    ]


def rows(store, sql, *args):
    connection = connect(store)
    try:
        return execute(connection, sql, *args)
    finally:
        connection.close()


def view(store):
    return (
        rows(store, "select org, orders, total from totals order by org"),
        rows(store, "select id, total, seen from orders order by id"),
    )


def recomputed(store):
    """The same view, made from the log by Python."""
    totals, all_orders = {}, {}
    for event_id, org, aggregate, type_, payload in rows(
        store, "select event_id, org_id, aggregate_id, event_type, payload from outlog_events order by event_id"
    ):
        payload = payload if isinstance(payload, dict) else json.loads(payload)
        if type_ == "order.created":
            count, total = totals.get(org, (0, 0))
            totals[org] = (count + 1, total + payload["total"])
            all_orders[aggregate] = [payload["total"], event_id]
        elif type_ == "order.changed":
            if org in totals:
                totals[org] = (totals[org][0], totals[org][1] + payload["by"])
            if aggregate in all_orders:
                all_orders[aggregate][0] += payload["by"]
    return (
        sorted((org, *value) for org, value in totals.items()),
        sorted((id_, *value) for id_, value in all_orders.items()),
    )


def assert_exact(store):
    found, wanted = view(store), recomputed(store)
    assert [tuple(row) for row in found[0]] == wanted[0]
    assert sorted(tuple(row) for row in found[1]) == wanted[1]


def catch_up(outlog):
    return outlog.run("projections", "run", "--until-idle")


def shown(outlog, name="totals"):
    return next(p for p in outlog.run("projections", "--json").json() if p["name"] == name)


def wait_applied(outlog, event_id, name="totals"):
    outlog.run("projections", "wait", name, event_id, "--timeout", "60s")


def worker(outlog, *args, env=None):
    return outlog.start("projections", "run", *args, env=env)


def finish(process):
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return err


# --- P1, P2 ---


def test_p1_a_view_equals_its_recomputation(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 300))
    catch_up(outlog)
    assert_exact(store)
    append(outlog, *orders(1000, 300))
    catch_up(outlog)
    assert_exact(store)
    state = shown(outlog)
    assert (state["status"], state["version"], state["lag"], state["error"]) == ("running", 1, 0, None)
    assert rows(store, "select last_applied_event_id, status from outlog_projection_checkpoints") == [
        (state["last_applied_event_id"], "running")
    ]


def test_p2_values_of_every_kind_are_bound(store, outlog):
    kinds = "jsonb" if is_postgres(store) else "text"
    apply(
        outlog,
        f"""\
        projections:
          kinds:
            tables: [kinds]
            create: >
              create table if not exists kinds (event_id bigint primary key, id text, whole bigint, part double precision,
              yes boolean, empty text, deep text, item text, object {kinds}, list {kinds}, word {kinds}, meta text, org text,
              type text, version int, at text, seq bigint, actor text, correlation text, cause text, payload {kinds})
            on:
              thing.done: >
                insert into kinds values (:event_id, :aggregate_id, :payload.whole, :payload.part, :payload.yes,
                :payload.nothing, :payload.a.b, :payload.list.1.x, :payload.object, :payload.list, :payload.word,
                :metadata.source, :org_id, :event_type, :event_version, :occurred_at, :aggregate_seq, :actor_id,
                :correlation_id, :causation_id, :payload) -- :not_a_name, nor ':this'
        """,
    )
    evil = "o'); drop table kinds; -- \" \\ é"
    (event_id,) = append(
        outlog,
        (
            evil,
            "thing.done",
            {
                "whole": 9007199254740993,
                "part": 1.5,
                "yes": True,
                "nothing": None,
                "a": {"b": "deep ☃ 'x'"},
                "list": [1, {"x": "y"}],
                "object": {"k": [True]},
                "word": 'w"ord',
            },
            {"metadata": {"source": "m"}, "actor_type": "user", "actor_id": "u-1"},
        ),
    )
    catch_up(outlog)
    (row,) = rows(
        store, "select id, whole, part, yes, empty, deep, item, meta, org, type, version, seq, actor, cause from kinds"
    )
    assert row == (
        evil,
        9007199254740993,
        1.5,
        1,
        None,
        "deep ☃ 'x'",
        "y",
        "m",
        "acme",
        "thing.done",
        1,
        1,
        "u-1",
        None,
    )
    ((object_, list_, word, payload),) = rows(store, "select object, list, word, payload from kinds")
    if is_postgres(store):
        assert (object_, list_, word, payload["whole"]) == ({"k": [True]}, [1, {"x": "y"}], 'w"ord', 9007199254740993)
    else:
        assert (json.loads(object_), json.loads(list_), word) == ({"k": [True]}, [1, {"x": "y"}], 'w"ord')
    assert rows(store, "select at from kinds")[0][0].endswith("Z")
    assert shown(outlog, "kinds")["last_applied_event_id"] == event_id


VERSIONS = """\
event_types:
  order.created: {version: 3, upcast: {2: [{rename: [/sum, /total]}]}}
projections:
  versions:
    tables: [versions]
    create: create table if not exists versions (event_id bigint primary key, how text, n int)
    on:
      order.created@1: insert into versions values (:event_id, 'one', :payload.old)
      order.created: insert into versions values (:event_id, 'current', :payload.total)
  strict:
    tables: [strict]
    create: create table if not exists strict (event_id bigint primary key, n int)
    on:
      order.created@2: insert into strict values (:event_id, :payload.sum)
      order.created@3: insert into strict values (:event_id, :payload.total)
"""


def test_p2_current_and_previous_event_versions_both_apply(store, outlog):
    apply(outlog, VERSIONS)
    ids = append(
        outlog,
        ("a", "order.created", {"sum": 2}, {"event_version": 2}),
        ("b", "order.created", {"total": 3}, {"event_version": 3}),
        ("c", "order.created", {"sum": 4}, {"event_version": 2}),
        ("d", "order.created", {"old": 1}, {"event_version": 1}),
    )
    catch_up(outlog)
    assert rows(store, "select how, n from versions order by event_id") == [
        ("current", 2),
        ("current", 3),
        ("current", 4),
        ("one", 1),
    ]
    # An exact version sees the event as it is stored; version 1 is brought to 3, which is handled.
    assert rows(store, "select event_id, n from strict order by event_id") == list(zip(ids, (2, 3, 4, None)))
    assert shown(outlog, "strict")["status"] == "running"


def test_p2_a_version_without_a_statement_stops_its_projection(store, outlog):
    apply(
        outlog,
        """\
        projections:
          strict:
            tables: [strict]
            create: create table if not exists strict (event_id bigint primary key)
            on: {order.created@2: insert into strict values (:event_id)}
        """,
    )
    ids = append(
        outlog, ("a", "order.created", {}, {"event_version": 2}), ("b", "order.created", {}, {"event_version": 4})
    )
    catch_up(outlog)
    state = shown(outlog, "strict")
    assert (state["status"], state["error"]["event_id"]) == ("stopped", ids[1])
    assert "no statement for order.created@4" in state["error"]["message"]
    assert state["last_applied_event_id"] == ids[0]


@pytest.mark.parametrize(
    "definition, line, message",
    [
        ("{tables: [t], on: {a.b: 'insert into t values (:payload.x, :nonsense)'}}", 3, "unknown parameter :nonsense"),
        ("{tables: [t], on: {a.b: 'drop table t'}}", 3, "begins with insert"),
        ("{tables: [t], on: {a.b: 'delete from t; delete from t'}}", 3, "one statement"),
        ("{tables: [t], on: {a.b@x: 'delete from t'}}", 3, "event_version"),
        ("{tables: [public.t], on: {}}", 3, "without a schema"),
        ("{tables: [], on: {}}", 3, "at least one"),
        ("{tables: [t], on: {}, colour: red}", 3, "unknown key"),
        ("{tables: [t], version: 0, on: {}}", 3, "whole number from 1"),
    ],
)
def test_p2_a_wrong_definition_is_refused_with_its_line(outlog, sqlite_store, definition, line, message):
    done = apply(outlog, f"projections:\n  # a comment\n  it: {definition}\n", check=False)
    assert done.returncode == 1 and f"line {line}" in done.stderr and message in done.stderr, done


def test_p2_other_sql_under_the_same_version_is_refused(store, outlog):
    apply(outlog, TOTALS)
    catch_up(outlog)
    changed = TOTALS.replace("by where id", "by + 1 where id")
    done = apply(outlog, changed, check=False)
    assert done.returncode == 1 and "raise version" in done.stderr, done
    assert "nothing to change" in apply(outlog, TOTALS).stdout
    apply(outlog, changed.replace("version: 1", "version: 2"))
    assert shown(outlog)["rebuild"]["version"] == 2


def test_p2_a_table_that_others_filled_is_not_touched(store, outlog):
    rows(store, "create table totals (mine integer)")
    rows(store, "insert into totals values (1)")
    apply(outlog, TOTALS)
    catch_up(outlog)
    state = shown(outlog)
    assert state["status"] == "stopped" and "not empty" in state["error"]["message"]
    assert rows(store, "select * from totals") == [(1,)]


def test_p2_a_projection_in_c_applies_each_event_once(store, outlog, build):
    program = Outlog(store)
    program.path = build / "test" / "projection_c"
    append(outlog, *[(f"o-{i}", "order.created", {"total": i}) for i in range(60)])
    assert program.run(store).stdout == "60\n"
    assert rows(store, "select n, total from counted") == [(60, sum(range(60)))]
    append(outlog, *[(f"p-{i}", "order.created", {"total": 1}) for i in range(60)])
    program.run(store, check=False, env={"OUTLOG_FAULT": "projection.applied:1:kill"})
    both = [program.start(store) for _ in range(2)]
    assert sum(int(process.communicate(timeout=30)[0]) for process in both) == 60
    assert rows(store, "select n, total from counted") == [(120, sum(range(60)) + 60)]

    # What it cannot apply is shown, and can be left out.
    _, bad, _ = append(
        outlog,
        ("q", "order.created", {"total": 3}),
        ("q", "order.created", {"fail": 1}),
        ("r", "order.created", {"total": 5}),
    )
    done = program.run(store, check=False)
    assert done.returncode == 1 and "cannot be applied" in done.stderr
    state = shown(outlog, "counted")
    assert (state["status"], state["error"]["event_id"], state["lag"]) == ("stopped", bad, 2)
    outlog.run("projections", "skip", "counted", bad)
    program.run(store)
    assert rows(store, "select n, total from counted") == [(122, sum(range(60)) + 68)]
    assert shown(outlog, "counted")["status"] == "running"
    assert outlog.run("projections", "rebuild", "counted", "--aside", check=False).returncode == 1

    # A rebuild starts again without the skipped event; another version fails at it again.
    rows(store, "update counted set n = -1")
    outlog.run("projections", "rebuild", "counted", "--no-wait")
    program.run(store)
    assert rows(store, "select n, total from counted") == [(122, sum(range(60)) + 68)]
    assert program.run(store, "2", check=False).returncode == 1
    assert rows(store, "select n from counted") == [(121,)], "everything before it"
    program.close()


# --- P1: crashes ---

FAULTS = [
    "projection.applied:{n}:kill",
    "projection.committed:{n}:kill",
    "append.commit_sent:{n}:kill",
    "append.commit_done:{n}:kill",
    "projection.begun:1:kill",
    "projection.swap:1:kill",
    "projection.swapped:1:kill",
]


def test_p1_kill_9_at_any_point_leaves_every_effect_exactly_once(store, outlog):
    apply(outlog, TOTALS)
    chance = random.Random(5)
    append(outlog, *orders(0, 50))
    killed = 0
    for turn in range(16):
        ids = append(outlog, *orders(100 * (turn + 1), 40))
        if turn % 6 == 3:
            outlog.run("projections", "rebuild", "totals", "--no-wait", *(["--aside"] if turn % 12 == 3 else []))
        fault = FAULTS[turn % len(FAULTS)].format(n=chance.randrange(1, 4))
        process = worker(outlog, "--lease", "1s", "--until-idle", env={"OUTLOG_FAULT": fault})
        if turn % 3 == 2:  # and where no point is marked
            time.sleep(chance.random() * 0.05)
            process.kill()
        process.communicate(timeout=30)
        killed += process.returncode == -signal.SIGKILL
        if turn % 8 == 7:
            catch_up(outlog)
            wait_applied(outlog, ids[-1])
            assert_exact(store)
    catch_up(outlog)
    assert_exact(store)
    assert killed > 6, f"only {killed} were killed: this run proves little"
    assert shown(outlog)["status"] == "running"


# --- P3 ---


def test_p3_a_rebuild_in_place_repairs_what_was_changed_by_hand(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 100))
    catch_up(outlog)
    rows(store, "update totals set total = -1")
    rows(store, "delete from orders")
    done = outlog.run("projections", "rebuild", "totals", "--actor", "user:u-1", "--json").json()[0]
    assert (done["status"], done["rebuild"]) == ("running", None)
    assert_exact(store)
    event = outlog.run("events", "--infra", "--type", "outlog.projection.rebuild_requested", "--json").json()[-1]
    assert (event["actor_id"], event["payload"]["kind"]) == ("u-1", "in_place")


class Reader(threading.Thread):
    """Looks again and again; what it counts must never fall, and the table never be gone."""

    def __init__(self, store, isolation=None):
        super().__init__(daemon=True)
        self.store, self.isolation, self.stop, self.wrong, self.looks = store, isolation, False, [], 0

    def run(self):
        connection, best = connect(self.store), 0
        while not self.stop:
            try:
                ((count,),) = execute(connection, "select count(*) from orders")
            except Exception as error:  # noqa: BLE001
                self.wrong.append(repr(error))
                break
            if count < best:
                self.wrong.append(f"{count} after {best}")
            best = max(best, count)
            self.looks += 1
        connection.close()


def test_p3_nobody_sees_a_gap_while_it_is_rebuilt_aside(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 2000))
    process = worker(outlog)
    wait_applied(outlog, shown(outlog)["lag"])
    readers = [Reader(store), Reader(store)]
    for reader in readers:
        reader.start()
    for turn in range(4):
        outlog.run("projections", "rebuild", "totals", "--aside", "--no-wait")
        ids = append(outlog, (f"m-{turn}", "order.created", {"total": 1}))
        while shown(outlog)["rebuild"]:
            ids = append(outlog, *[(f"n-{turn}-{time.monotonic_ns()}", "order.created", {"total": 1})])
        wait_applied(outlog, ids[-1])
    for reader in readers:
        reader.stop = True
        reader.join(10)
        assert not reader.wrong and reader.looks > 50, (reader.wrong[:3], reader.looks)
    assert "4 swaps" in finish(process)
    assert_exact(store)
    if is_postgres(store):
        assert rows(store, "select count(*) from pg_namespace where strpos(nspname, '_aside_') > 0") == [(0,)]


NEWER = """\
projections:
  totals:
    version: 2
    tables: [totals, orders]
    create: |
      create table if not exists totals (org text primary key, orders integer not null, total integer not null);
      create table if not exists orders (id text primary key, total integer not null, seen bigint not null, label text);
    on:
      order.created:
        - insert into orders (id, total, seen, label) values (:aggregate_id, :payload.total, :event_id, 'v2')
        - insert into totals (org, orders, total) values (:org_id, 1, :payload.total)
            on conflict (org) do update set orders = totals.orders + 1, total = totals.total + excluded.total
      order.changed:
        - update totals set total = total + :payload.by where org = :org_id
        - update orders set total = total + :payload.by where id = :aggregate_id
"""


def test_p3_a_new_version_is_built_aside_by_itself(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 500))
    process = worker(outlog)
    wait_for(lambda: shown(outlog)["lag"] == 0, "the first version")
    if is_postgres(store):
        rows(store, "create role reader_of_totals")
        rows(store, "grant select on orders to reader_of_totals")
    apply(outlog, NEWER)
    wait_for(lambda: shown(outlog)["version"] == 2, "the second version")
    assert rows(store, "select distinct label from orders") == [("v2",)]
    wait_applied(outlog, append(outlog, *orders(900, 5))[-1])
    finish(process)
    assert_exact(store)
    if is_postgres(store):
        ((granted,),) = rows(store, "select has_table_privilege('reader_of_totals', 'orders', 'select')")
        rows(store, "drop owned by reader_of_totals")
        rows(store, "drop role reader_of_totals")
        assert granted, "rights on the old table hold for the new one"


def test_p3_a_dropped_view_comes_back_aside(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 100))
    catch_up(outlog)
    rows(store, "drop table orders")
    append(outlog, *orders(500, 20))
    catch_up(outlog)
    assert shown(outlog)["status"] == "stopped"
    outlog.run("projections", "rebuild", "totals", "--aside")
    assert shown(outlog)["status"] == "running"
    catch_up(outlog)
    assert_exact(store)


def test_p3_a_cancelled_rebuild_leaves_the_live_view_and_nothing_else(store, outlog, tmp_path):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 200))
    catch_up(outlog)
    outlog.run("projections", "rebuild", "totals", "--aside", "--no-wait")
    dead = worker(outlog, "--lease", "1s", env={"OUTLOG_FAULT": "projection.swap:1:kill"})
    dead.communicate(timeout=30)
    assert dead.returncode == -signal.SIGKILL, "it was ready to be swapped"
    rebuild = shown(outlog)["rebuild"]
    assert (rebuild["kind"], rebuild["version"]) == ("aside", 1) and rebuild["event_id"] == rebuild["upto"] > 0
    assert rebuild["events_per_s"] > 0 and rebuild["eta_s"] == 0
    assert outlog.run("projections", "cancel", "totals", "--json").json()[0]["rebuild"] is None
    assert outlog.run("projections", "cancel", "totals", check=False).returncode == 1
    append(outlog, *orders(600, 20))
    wait_for(lambda: (catch_up(outlog), shown(outlog)["lag"] == 0)[1], "the lease to end")
    assert_exact(store)
    message = outlog.run("projections", "rebuild", "totals", "--aside").stderr
    assert re.search(r"^totals rebuilt up to event \d+ in [\d.]+ s, \d+ events/s$", message, re.M), message
    assert_exact(store)
    assert [path.name for path in tmp_path.iterdir() if "-outlog-" in path.name] == []


def test_p3_a_rebuild_shows_how_far_it_is_how_fast_and_how_long_it_takes(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 32000))
    catch_up(outlog)
    # Between the second batch and the last: the live view may have one of its own.
    slow = worker(outlog, "--lease", "1h", env={"OUTLOG_FAULT": "projection.applied:3:stop"})
    wait_for(lambda: shown(outlog)["owner"], "a worker that owns it")
    person = outlog.at_terminal("projections", "rebuild", "totals", "--aside")
    wait_frozen(slow.pid)
    (line,) = [line for line in outlog.run("projections").lines() if "is built" in line]
    far = re.fullmatch(r"  version 1 is built aside: (\d+),000 of 32,\d+ events, [\d,]+ events/s, \d+ s left", line)
    person.see(rf"\r\x1b\[K{far[1]},000 events  \[#+ +\]  \d\d %  \d+ s left  [\d,]+/s")
    slow.send_signal(signal.SIGCONT)
    person.see(r"totals rebuilt up to event \d+ in [\d.]+ s, \d+ events/s")
    person.end()
    finish(slow)
    assert_exact(store)


def test_p3_an_old_snapshot_never_sees_the_new_tables_half_filled(postgres_store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 300))
    catch_up(outlog)
    old = psycopg2.connect(postgres_store)
    old.set_session(isolation_level="REPEATABLE READ", readonly=True)
    cursor = old.cursor()
    cursor.execute("select 1")  # its snapshot is taken, and holds no lock on the view
    outlog.run("projections", "rebuild", "totals", "--aside", "--no-wait")
    process = worker(outlog)
    ids = append(outlog, *orders(700, 20))
    wait_applied(outlog, ids[-1])
    wait_for(lambda: (shown(outlog)["rebuild"] or {}).get("event_id", 0) >= ids[-1], "the build to catch up")
    assert shown(outlog)["rebuild"], "it waits for the old transaction"
    cursor.execute("select count(*) from orders")
    (before,) = cursor.fetchone()
    assert before == sum(type_ == "order.created" for _, type_, _ in orders(0, 300))
    old.close()
    wait_for(lambda: shown(outlog)["rebuild"] is None, "the swap")
    finish(process)
    assert_exact(postgres_store)


def test_p3_what_depends_on_the_table_stops_the_swap_and_not_the_view(postgres_store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 50))
    catch_up(outlog)
    rows(postgres_store, "create view top as select * from orders")
    done = outlog.run("projections", "rebuild", "totals", "--aside", check=False)
    state = shown(outlog)
    assert done.returncode == 1 and "depend" in state["rebuild"]["error"]["message"], (done, state)
    append(outlog, *orders(500, 50))
    catch_up(outlog)
    assert_exact(postgres_store)
    rows(postgres_store, "drop view top")
    outlog.run("projections", "retry", "totals")
    catch_up(outlog)
    assert shown(outlog)["rebuild"] is None
    assert_exact(postgres_store)


def test_p3_what_the_swap_cannot_move_is_refused(store, outlog):
    more = (
        "create type size as enum ('s', 'm');" if is_postgres(store) else "create view small as select * from orders;"
    )
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 20))
    catch_up(outlog)
    apply(outlog, NEWER.replace("create: |", f"create: |\n      {more}"))
    catch_up(outlog)
    state = shown(outlog)
    assert state["version"] == 1 and "cannot be built aside" in state["rebuild"]["error"]["message"], state
    assert_exact(store)


# --- P4, P5 ---


def test_p4_wait_returns_when_the_event_is_in_the_view(store, outlog, extension):
    apply(outlog, TOTALS)
    (event_id,) = append(outlog, ("o-1", "order.created", {"total": 1}))
    late = outlog.run("projections", "wait", "totals", event_id, "--timeout", "50ms", check=False)
    assert late.returncode == 1 and "[projection_behind]" in late.stderr
    assert shown(outlog)["lag"] >= 1
    process = worker(outlog)
    waited = outlog.run("projections", "wait", "totals", event_id, "--timeout", "20s", "--json").json()[0]
    assert waited["name"] == "totals" and waited["last_applied_event_id"] >= event_id
    assert rows(store, "select total from orders where id = 'o-1'") == [(1,)]
    (event_id,) = append(outlog, ("o-2", "order.created", {"total": 2}))
    if is_postgres(store):
        for timeout in ("'20 s'", "20", "20.5", "'20'", "interval '20 s'"):
            assert rows(store, f"select outlog.wait_projection('totals', {event_id}, {timeout})") == [(True,)]
        assert rows(store, f"select outlog.wait_projection(name => 'totals', event_id => {event_id})") == [(True,)]
        assert rows(store, f"select outlog.wait_projection('totals', {event_id + 1000}, 0.02)") == [(False,)]
        assert rows(
            store, f"select outlog.wait_projection(name => 'totals', event_id => {event_id + 1000}, timeout => '20 ms')"
        ) == [(False,)]
        with pytest.raises(psycopg2.Error, match="not_found"):
            rows(store, "select outlog.wait_projection('nobody', 1)")
    else:
        connection = connect(store)
        connection.enable_load_extension(True)
        connection.load_extension(extension)

        def wait(**fields):
            return json.loads(
                connection.execute("select outlog_wait_projection(?)", (json.dumps(fields),)).fetchone()[0]
            )

        found = wait(name="totals", event_id=event_id, timeout=20)
        assert found["reached"] is True and found["last_applied_event_id"] >= event_id
        assert wait(name="totals", event_id=event_id + 1000, timeout=0.02)["reached"] is False
        with pytest.raises(Exception, match="not_found"):
            wait(name="nobody", event_id=1)
        with pytest.raises(Exception, match="unknown_field"):
            wait(name="totals", event_id=1, colour="red")
    assert rows(store, "select total from orders where id = 'o-2'") == [(2,)]
    assert outlog.run("projections", "wait", "nobody", "1", check=False).stderr.count("[not_found]") == 1
    finish(process)


def test_p4_p5_over_http_and_in_metrics(store, outlog, serve):
    apply(outlog, BOTH)
    first, poison, last = append(
        outlog,
        ("o-1", "order.created", {"total": 1}),
        ("o-2", "order.created", {"total": 95}),
        ("o-3", "order.created", {"total": 2}),
    )
    server = serve()
    answer = server.get(f"/v1/projections/totals/wait?event_id={last}&timeout=20")
    assert answer.status == 200 and answer.json["last_applied_event_id"] >= last
    assert rows(store, "select count(*) from orders") == [(3,)], "what was waited for can be read"
    for timeout in ("0", "0.02", "20ms"):
        answer = server.get(f"/v1/projections/checked/wait?event_id={last}&timeout={timeout}")
        assert (answer.status, answer.code) == (504, "projection_behind")
    for timeout in ("soon", "-1", "", "1.", "5 s"):
        answer = server.get(f"/v1/projections/checked/wait?event_id={last}&timeout={timeout.replace(' ', '%20')}")
        assert (answer.status, answer.code) == (400, "invalid_field") and "timeout" in answer.json["detail"]
    wait_for(lambda: shown(outlog, "checked")["status"] == "stopped", "the event that cannot be applied")
    lag = shown(outlog, "checked")["lag"]
    assert (
        lag >= 2
        and {one["name"]: one["lag"] for one in server.get("/v1/projections").json["projections"]}["checked"] == lag
    )
    assert f'outlog_projection_lag{{projection="checked"}} {lag}' in server.get("/metrics").body.decode().splitlines()


# --- P6 ---

BOTH = (
    TOTALS
    + """\
  checked:
    version: 1
    tables: [checked]
    create: create table if not exists checked (id text primary key, total integer check (total < 90))
    on:
      order.created: insert into checked values (:aggregate_id, :payload.total)
"""
)


def test_p6_a_poison_event_stops_only_its_own_projection(store, outlog):
    apply(outlog, BOTH)
    ids = append(
        outlog,
        ("a", "order.created", {"total": 1}),
        ("b", "order.created", {"total": 2}),
        ("c", "order.created", {"total": 95}),
        ("d", "order.created", {"total": 4}),
        ("e", "order.created", {"total": 99}),
    )
    catch_up(outlog)
    assert_exact(store)
    state = shown(outlog, "checked")
    assert (state["status"], state["last_applied_event_id"]) == ("stopped", ids[1])
    error = state["error"]
    assert (error["event_id"], error["event_type"]) == (ids[2], "order.created")
    assert error["statement"] == "insert into checked values (:aggregate_id, :payload.total)"
    assert "check" in error["message"].lower()
    assert rows(store, "select id from checked order by id") == [("a",), ("b",)]
    text = outlog.run("projections").stdout
    assert f"stopped at event {ids[2]} order.created" in text and "insert into checked" in text

    # A retry fails again; another event cannot be skipped; the one it stopped at can, and is audited.
    outlog.run("projections", "retry", "checked")
    catch_up(outlog)
    assert shown(outlog, "checked")["error"]["event_id"] == ids[2]
    refused = outlog.run("projections", "skip", "checked", ids[4], check=False)
    assert refused.returncode == 1 and "[illegal_transition]" in refused.stderr
    outlog.run("projections", "skip", "checked", ids[2], "--actor", "user:u-7")
    catch_up(outlog)
    assert shown(outlog, "checked")["error"]["event_id"] == ids[4]
    outlog.run("projections", "skip", "checked", ids[4])
    catch_up(outlog)
    assert shown(outlog, "checked")["status"] == "running"
    assert rows(store, "select id from checked order by id") == [("a",), ("b",), ("d",)]
    audited = outlog.run("events", "--infra", "--type", "outlog.projection.skipped", "--json").json()
    assert [(event["payload"]["event_id"], event["actor_id"]) for event in audited] == [
        (ids[2], "u-7"),
        (ids[4], "system"),
    ]
    assert outlog.run("projections", "retry", "checked", check=False).returncode == 1

    # A rebuild leaves out what a person left out.
    outlog.run("projections", "rebuild", "checked", "--aside")
    assert rows(store, "select id from checked order by id") == [("a",), ("b",), ("d",)]
    outlog.run("projections", "rebuild", "checked")
    assert rows(store, "select id from checked order by id") == [("a",), ("b",), ("d",)]


def test_p6_an_event_is_applied_with_all_its_statements_or_none(store, outlog):
    apply(
        outlog,
        """\
        projections:
          pair:
            tables: [one, two]
            create: "create table if not exists one (id text); create table if not exists two (id text, n integer check (n < 5))"
            on:
              order.created: ["insert into one values (:aggregate_id)", "insert into two values (:aggregate_id, :payload.total)"]
        """,
    )
    append(outlog, ("a", "order.created", {"total": 1}), ("b", "order.created", {"total": 7}))
    catch_up(outlog)
    assert rows(store, "select id from one") == [("a",)] == rows(store, "select id from two")


def test_p6_a_poison_event_stops_a_rebuild_and_not_the_live_view(store, outlog):
    apply(outlog, TOTALS)
    ids = append(outlog, ("a", "order.created", {"total": 1}), ("b", "order.created", {"total": 50}))
    catch_up(outlog)
    apply(outlog, NEWER.replace("total integer not null, seen", "total integer not null check (total < 50), seen"))
    catch_up(outlog)
    state = shown(outlog)
    assert (state["version"], state["rebuild"]["error"]["event_id"]) == (1, ids[1])
    ids += append(outlog, ("c", "order.created", {"total": 60}))
    catch_up(outlog)
    assert_exact(store)
    outlog.run("projections", "skip", "totals", ids[1])
    catch_up(outlog)
    outlog.run("projections", "skip", "totals", ids[2])
    catch_up(outlog)
    assert shown(outlog)["version"] == 2
    assert rows(store, "select id from orders order by id") == [("a",)]


# --- several workers ---


def freeze(process, store):
    """Stop it, but on SQLite not while it holds the one lock that every writer needs."""

    def is_free():
        process.send_signal(signal.SIGSTOP)
        if is_postgres(store):
            return True
        try:
            with closing(sqlite3.connect(store[len("sqlite:") :], isolation_level=None, timeout=0.1)) as db:
                db.execute("begin immediate")
            return True
        except sqlite3.OperationalError:
            process.send_signal(signal.SIGCONT)
            return False

    wait_for(is_free, "a moment without a transaction")


def test_p1_one_worker_owns_a_projection_and_a_frozen_one_is_fenced(store, outlog):
    apply(outlog, TOTALS)
    first = worker(outlog, "--id", "first", "--lease", "1s")
    wait_for(lambda: shown(outlog)["owner"] == "first", "the first worker")
    second = worker(outlog, "--id", "second", "--lease", "1s")
    wait_applied(outlog, append(outlog, *orders(0, 50))[-1])
    freeze(first, store)
    ids = append(outlog, *orders(100, 50))
    wait_applied(outlog, ids[-1])
    assert shown(outlog)["owner"] == "second"
    first.send_signal(signal.SIGCONT)
    for turn in range(5):
        ids = append(outlog, *orders(200 + 100 * turn, 20))
    wait_applied(outlog, ids[-1])
    finish(second)
    ids = append(outlog, *orders(900, 20))
    wait_applied(outlog, ids[-1])
    assert shown(outlog)["owner"] == "first", "what is given back is taken at once"
    finish(first)
    assert shown(outlog)["owner"] is None
    assert_exact(store)


def test_p1_two_workers_and_random_kills_apply_nothing_twice(store, outlog):
    apply(outlog, TOTALS)
    chance = random.Random(11)
    workers = {}
    ids = [0]
    for turn in range(10):
        for name in ("a", "b"):
            if name not in workers:
                workers[name] = worker(outlog, "--id", name, "--lease", "1s")
        ids = append(outlog, *orders(1000 * turn, 150))
        victim = chance.choice("ab")
        time.sleep(chance.random() * 0.1)
        workers[victim].kill()
        workers.pop(victim).communicate()
    workers["last"] = worker(outlog, "--lease", "1s")
    wait_applied(outlog, ids[-1])
    for process in workers.values():
        finish(process)
    assert_exact(store)


def test_p1_a_store_that_goes_away_is_waited_for(own_postgres, tmp_path):
    store = own_postgres.create("views")
    outlog = Outlog(store, cwd=tmp_path)
    outlog.run("init")
    apply(outlog, TOTALS)
    process = worker(outlog)
    wait_applied(outlog, append(outlog, *orders(0, 20))[-1])
    own_postgres.kill()
    own_postgres.start()
    wait_applied(outlog, append(outlog, *orders(100, 20))[-1])
    finish(process)
    assert_exact(store)
    outlog.close()


# --- what is gone ---


def test_p2_a_projection_that_is_no_longer_declared_leaves_its_tables(store, outlog):
    apply(outlog, TOTALS)
    append(outlog, *orders(0, 20))
    catch_up(outlog)
    before = view(store)
    outlog.run("apply", "-f", "-", "--prune", input="destinations: {}\n")
    assert outlog.run("projections", "--json").stdout == ""
    catch_up(outlog)
    assert view(store) == before


def test_the_command_reports_what_is_wrong(sqlite_store, outlog):
    for args, status, message in (
        (("projections", "dance"), 2, "takes run"),
        (("projections", "skip", "x"), 2, "usage"),
        (("projections", "skip", "x", "abc"), 2, "not an event_id"),
        (("projections", "rebuild", "x"), 1, "[not_found]"),
        (("projections", "run", "--lease", "1"), 2, "--lease is a span"),
    ):
        done = outlog.run(*args, check=False)
        assert done.returncode == status and message in done.stderr, done
