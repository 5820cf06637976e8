"""Export and import: everything keeps its id, so that a repeat after the move is still a repeat."""
import contextlib
import datetime
import gzip
import json
import sqlite3
import uuid

import psycopg2
import pytest

from lib.cli import Outlog
from lib.outbox import Outbox, wait_for
from lib.secrets import SECRETS
from lib.server import Server

CONFIG = """
destinations: {sink: {type: 'null'}, second: {type: 'null', on_dead: hold}}
routes: [{on: "order.pa*", to: sink, when: {/void: true}}, {on: "order.paid", to: sink}]
alerts: {to: second}
sinks: {copy: {to: sink}}
event_types:
  strict: [tidy]
  order.created: {version: 2, upcast: {1: [{rename: [/sum, /total]}]}}
"""


@pytest.fixture(params=["sqlite-postgres", "postgres-sqlite", "sqlite-sqlite"])
def stores(request, tmp_path):
    """Two stores with their schema: one to fill, one that is new."""
    made = []
    for number, kind in enumerate(request.param.split("-")):
        if kind == "sqlite":
            made.append(Outlog(f"sqlite:{tmp_path}/{number}.db", cwd=tmp_path))
            made[-1].run("init")
        else:
            made.append(Outlog(request.getfixturevalue("postgres_store"), cwd=tmp_path))
    return made


def append(outlog, aggregate, type, data, *more):
    return outlog.run(
        "append", "--org", "acme", "--aggregate", aggregate, "--type", type, "--data", data, "--json", *more
    ).json()[0]


@pytest.fixture
def filled(stores):
    old, _ = stores
    old.run("apply", "-f", "-", input=CONFIG)
    first = append(
        old,
        "order/o-1",
        "order.created",
        '{"sum":1.50,  "big":123456789012345678901234567890}',
        "--version",
        "1",
        "--key",
        "once",
        "--metadata",
        '{"a":\n1}',
    )
    append(old, "order/o-1", "order.paid", '{\n  "text": "ä\\u0041\\n",\t"e": 1E2\n}', "--causation", first["id"])
    old.run("append", "--infra", "--aggregate", "host/h", "--type", "disk.full", "--data", "{}")
    many = "".join(
        json.dumps(
            {
                "org_id": "acme",
                "aggregate_type": "bulk",
                "aggregate_id": f"b-{n % 9}",
                "event_type": "bulk.made",
                "payload": {"n": n},
            }
        )
        + "\n"
        for n in range(2500)
    )
    old.run("append", "--ndjson", "-", input=many)
    old.run("send", "--to", "sink", "--type", "t", "--data", "{}", "--org", "acme", "--key", "k-1")
    old.run("consumers", "create", "billing", "--type", "order.paid")
    old.run("consumers", "commit", "billing", "3")
    old.run("relay", "--until-idle", "--quiet")
    return first


def events(outlog):
    return outlog.run("events", "--limit", "10000", "--json").lines()


def raw(outlog):
    """Documents byte for byte, as they are stored."""
    with Outbox(outlog.store) as store:
        return [
            (row["event_id"], row["payload"], row["metadata"])
            for row in store.run(
                "select event_id, cast(payload as text) as payload, cast(metadata as text) as metadata"
                "  from {}events where event_id <= 20 order by event_id"
            )
        ]


def assert_moved(old, new, first):
    assert events(new) == events(old)
    assert raw(new) == raw(old)
    assert new.run("consumers", "--json").lines() == old.run("consumers", "--json").lines()
    assert new.run("apply", "-f", "-", input=CONFIG).stdout.endswith("nothing to change\n")
    where = lambda outlog: [
        (one["name"], one["to"], one["cursor_event_id"]) for one in outlog.run("sinks", "--json").json()  # noqa: E731
    ]
    assert where(new) == where(old)
    messages = len(old.run("outbox", "--json").lines())
    assert len(new.run("outbox", "--json").lines()) == messages  # no route has seen the old events again
    # a repeat is a repeat
    again = append(
        new,
        "order/o-1",
        "order.created",
        '{"sum":1.50,  "big":123456789012345678901234567890}',
        "--version",
        "1",
        "--key",
        "once",
        "--metadata",
        '{"a":\n1}',
    )
    assert (again["id"], again["event_id"], again["duplicate"]) == (first["id"], first["event_id"], True)
    sent = new.run(
        "send", "--to", "sink", "--type", "t", "--data", "{}", "--org", "acme", "--key", "k-1", "--json"
    ).json()[0]
    assert sent["duplicate"] is True
    # and what is new goes on where the old log ended
    last = json.loads(events(old)[-1])["event_id"]
    more = append(new, "order/o-1", "order.paid", "{}", "--expect", "2", "--causation", first["id"])
    assert (more["aggregate_seq"], more["event_id"] > last) == (3, True)
    assert len(new.run("outbox", "--json").lines()) == messages + 1  # the route is at work
    lost = new.run(
        "append", "--org", "tidy", "--aggregate", "a/b", "--type", "nobody.knows", "--data", "{}", check=False
    )
    assert "unknown_event_type" in lost.stderr


def test_e2_a_log_moves_to_another_store(stores, filled):
    old, new = stores
    exported = old.run("export")
    assert "events" in exported.stderr and "on their way" not in exported.stderr
    new.run("import", "-", input=exported.stdout)
    assert_moved(old, new, filled)


def test_e2_and_back_again(stores, filled, tmp_path):
    old, new = stores
    new.run("import", "-", input=old.run("export").stdout)
    third = Outlog(f"sqlite:{tmp_path}/third.db", cwd=tmp_path)
    third.run("init")
    new.run("export", "--output", f"{tmp_path}/all.ndjson.gz")
    assert gzip.open(tmp_path / "all.ndjson.gz").readline().startswith(b'{"outlog_export"')
    third.run("import", f"{tmp_path}/all.ndjson.gz")
    assert_moved(old, third, filled)


@pytest.mark.parametrize("stores", ["sqlite-postgres"], indirect=True)
def test_e2_segments_grow_and_are_read_in_order(stores, filled, tmp_path):
    old, new = stores
    folder = tmp_path / "segments"
    old.run("export", "--segments", folder)
    append(old, "order/o-9", "order.created", "{}")
    old.run("export", "--segments", folder)  # only what came since
    names = sorted(path.name for path in folder.iterdir())
    assert len(names) == 3 and names[-1] == "state.ndjson.gz"
    assert gzip.open(folder / names[1]).read().count(b'{"event"') == 1
    new.run("import", folder)
    assert_moved(old, new, filled)


@pytest.mark.parametrize("stores", ["postgres-sqlite"], indirect=True)
def test_e2_an_export_that_was_cut_off_is_not_taken_for_a_whole_one(stores, filled):
    old, new = stores
    lines = old.run("export").stdout.splitlines(keepends=True)
    cut = new.run("import", "-", input="".join(lines[:1500]), check=False)
    assert cut.returncode == 1 and "the last line is missing" in cut.stderr
    missing = [line for line in lines if '"event_id":700,' not in line]
    short = new.run("import", "-", input="".join(missing), check=False)
    assert short.returncode == 1 and "were read" in short.stderr


@pytest.mark.parametrize("stores", ["sqlite-postgres", "sqlite-sqlite"], indirect=True)
def test_e2_an_interrupted_import_goes_on(stores, filled):
    old, new = stores
    text = old.run("export").stdout
    half = "".join(text.splitlines(keepends=True)[:1800])
    assert new.run("import", "-", input=half, check=False).returncode == 1
    new.run("import", "-", input=text)
    assert_moved(old, new, filled)
    assert "has events of its own" in new.run("import", "-", input=text, check=False).stderr


@pytest.mark.parametrize("stores", ["sqlite-sqlite"], indirect=True)
def test_e2_an_interrupted_import_does_not_go_on_after_an_append(stores, filled):
    old, new = stores
    text = old.run("export").stdout
    half = "".join(text.splitlines(keepends=True)[:1800])
    assert new.run("import", "-", input=half, check=False).returncode == 1
    append(new, "new/n-1", "t", "{}")
    assert "has events of its own" in new.run("import", "-", input=text, check=False).stderr


@pytest.mark.parametrize("stores", ["sqlite-sqlite"], indirect=True)
def test_e2_an_import_needs_a_new_store_and_the_same_log(stores, filled, tmp_path):
    old, new = stores
    text = old.run("export").stdout
    assert "has events of its own" in old.run("import", "-", input=text, check=False).stderr
    half = "".join(text.splitlines(keepends=True)[:1200])
    new.run("import", "-", input=half, check=False)
    other = Outlog(f"sqlite:{tmp_path}/other.db", cwd=tmp_path)
    other.run("init")
    other.run(
        "append",
        "--ndjson",
        "-",
        input="".join(
            json.dumps({"org_id": "x", "aggregate_type": "a", "aggregate_id": "b", "event_type": "c", "payload": {}})
            + "\n"
            for _ in range(1200)
        ),
    )
    wrong = new.run("import", "-", input=other.run("export").stdout, check=False)
    assert wrong.returncode == 1 and "another log" in wrong.stderr
    for bad in ("", "{}\n", '{"event":{}}\n', "no json\n", '{"outlog_export":{"format":9}}\n'):
        assert Outlog(new.store).run("import", "-", input=bad, check=False).returncode == 1


STATE = """
destinations:
  d: {type: webhook, url: "%s", allow_private: true, breaker: {failures: 0},
      retry: {base: 1h, jitter: 0, max_attempts: 9}}
  held: {type: webhook, url: "%s", allow_private: true, on_dead: hold, breaker: {failures: 0}}
  api: {type: webhook, url: "%s", allow_private: true}
  app: {type: in_app}
notifications:
  rules: [{on: "user.*", recipients: {path: /user}, channels: [in_app], template: hello, destinations: {in_app: app}}]
  templates: {hello: {subject: "Hello {{user}}", text: "You are {{user}}"}}
projections:
  users:
    tables: [users]
    create: create table if not exists users (id text primary key)
    on: {user.made: "insert into users values (:payload.user)"}
"""


def put_state(old, receiver):
    """Messages in every state, a run with an effect and a checkpoint, a notice, a session, a token."""
    urls = tuple(receiver.url(name) for name in ("d", "held", "api"))
    old.run("apply", "-f", "-", input=STATE % urls)
    receiver.rule(400, destination="held", times=1)
    receiver.rule(500, key="retry")
    with Outbox(old.store) as store:
        ids = {
            "done": [store.put("d", {"n": n}, key=f"k-{n % 3}") for n in range(6)],
            "dead": [store.put("held", {"n": 1}, key="h")],
            "behind": [store.put("held", {"n": 2}, key="h")],
            "retry": [store.put("d", {"n": n}, key="retry") for n in range(2)],
        }
    old.run("append", "--org", "acme", "--aggregate", "user/u", "--type", "user.made", "--data", '{"user":"u-1"}')
    signal = old.run("signal", "--org", "acme", "--type", "order.placed", "--data", '{"o":1}', "--json").json()[0]
    run = old.run(
        "run", "start", "--org", "acme", "--type", "ORDER", "--version", "v1", "--signal", signal["signal_id"], "--json"
    ).json()[0]["run_id"]
    step = old.run("run", "step", run, "--type", "PAY", "--json").json()[0]["step_id"]
    old.run("run", "effect", run, "--type", "API_CALL", "--to", "api", "--data", '{"x":1}', "--step", step)
    old.run("run", "checkpoint", run, "--data", '{"at":1}')
    relay = old.start("relay", "--id", "old", "--lease", "2s")
    with Outbox(old.store) as store:
        for id in ids["done"]:
            store.wait(id, "PUBLISHED")
        store.wait(ids["dead"][0], "DEAD")
        store.wait(ids["retry"][0], "PENDING", attempts=1)
        store.wait(ids["behind"][0], "PENDING")
        wait_for(lambda: store.one("select status from {}effects")["status"] == "COMPLETED", "the effect")
        wait_for(lambda: store.one("select count(*) as n from {}notices")["n"] == 1, "the notice")
    relay.terminate()
    relay.communicate()
    old.run("run", "effect", run, "--type", "API_CALL", "--to", "api", "--data", '{"x":2}', "--step", step)
    with Outbox(old.store) as store:
        ids["new"] = [store.put("d", {"n": n}, key=f"k-{n % 3}") for n in range(6, 12)]
        ids["bytes"] = [store.put("d", b"\x00\xff\r\nraw", content_type="application/octet-stream")]
        ids["later"] = [store.put("d", {"n": "later"}, due_us=3_600_000_000)]
    old.run(
        "append",
        "--org",
        "acme",
        "--aggregate",
        "session/u:a:t",
        "--type",
        "user_message",
        "--data",
        '{"text":"hi","requestId":"r"}',
    )
    assert "u:a:t" in old.run("sessions").stdout  # which notes it
    return ids, run


SAME = {
    "outbox_state": "event_id, org_id, destination, event_type, state, attempts, max_attempts, created_at, "
    "coalesce(available_at, created_at) as due_at, published_at, last_error, idempotency_key, "
    "ordering_key, partition_key, content_type, headers, metadata, correlation_id, causation_id, aggregate_type, aggregate_id, payload, payload_bytes, held",
    "attempts": "attempt, started_at, duration_ms, outcome, status, permanent, response, error, claimed_by",
    "effects": "*",
    "signals": "*",
    "runs": "*",
    "steps": "*",
    "run_checkpoints": "*",
    "templates": "*",
    "notices": "*",
    "sessions": "org_id, session_key, last_seq, done_seq, checkpoint, tries",
    "tokens": "*",
    "projections": "*",
    "secret_rules": "rule, mode",
    "consumers": "*",
}


def plain(value):
    """The same in both stores: times to the microsecond in UTC, truth as a number, JSON without white space."""
    if isinstance(value, datetime.datetime):
        return value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    if isinstance(value, (dict, list)):
        return json.dumps(value, sort_keys=True)
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, str) and value[:1] in "{[":
        with contextlib.suppress(ValueError):
            return json.dumps(json.loads(value), sort_keys=True)
    return int(value) if isinstance(value, bool) else str(value) if isinstance(value, uuid.UUID) else value


def held_by(outlog):
    with Outbox(outlog.store) as store:
        return {
            table: sorted(
                repr(sorted((name, plain(value)) for name, value in row.items()))
                for row in store.run(f"select {columns} from {{}}{table}")
            )
            for table, columns in SAME.items()
        }


def test_e2_messages_runs_and_all_else_move_with_the_log(stores, receiver, tmp_path):
    old, new = stores
    token = old.run("token", "create", "--scope", "read", "--org", "acme", "--json").json()[0]["token"]
    old.run("consumers", "create", "c")
    ids, run = put_state(old, receiver)
    old.run("export", "--output", tmp_path / "all.ndjson.gz")
    new.run("import", tmp_path / "all.ndjson.gz")
    before, after = held_by(old), held_by(new)
    for table in SAME:
        assert after[table] == before[table], table
        assert before[table], f"{table} is empty: nothing is proved"
    new.run("verify", "--all")
    assert new.run("runs", "--json").lines() == old.run("runs", "--json").lines()
    assert new.run("run", "resume", run).stdout == old.run("run", "resume", run).stdout
    assert new.run(
        "apply", "-f", "-", input=STATE % tuple(receiver.url(n) for n in ("d", "held", "api"))
    ).stdout.endswith("nothing to change\n")

    # what was delivered is not delivered again, what waits is, in order; what is dead stays
    arrived, relay = receiver.count(), new.start("relay", "--id", "new", "--lease", "2s")
    with Outbox(new.store) as store:
        for id in ids["new"] + ids["bytes"]:
            store.wait(id, "PUBLISHED")
        wait_for(
            lambda: {row["status"] for row in store.run("select status from {}effects")} == {"COMPLETED"},
            "both effects",
        )
        got = receiver.requests[arrived:]
        assert not {one.id for one in got} & set(ids["done"] + ids["dead"] + ids["later"] + ids["retry"])
        assert [one.body for one in got if one.id in ids["bytes"]] == [b"\x00\xff\r\nraw"]
        for key in ("k-0", "k-1", "k-2"):
            assert [one.id for one in got if one.key == key] == [
                id for n, id in enumerate(ids["new"]) if f"k-{n % 3}" == key
            ]
        assert store.state(ids["dead"][0])["state"] == "DEAD"
        assert store.state(ids["retry"][0])["attempts"] == 1
        assert store.state(ids["behind"][0])["state"] == "PENDING"  # the dead one holds its key
        new.run("requeue", ids["dead"][0])
        store.wait(ids["dead"][0], "PUBLISHED", attempts=2)
        store.wait(ids["behind"][0], "PUBLISHED")
    relay.terminate()
    relay.communicate()
    new.run("verify", "--all")
    new.run("projections", "run", "--until-idle")
    with Outbox(new.store) as store:
        assert [row["id"] for row in store.run("select id from users")] == ["u-1"]
    server = Server(new, tmp_path / "serve.log", ["--no-relay"], dev=False)
    try:
        assert server.get("/v1/events?limit=1", token=token).status == 200
    finally:
        server.stop()


@pytest.mark.parametrize("stores", ["sqlite-postgres", "postgres-sqlite"], indirect=True)
def test_e2_what_a_relay_had_in_hand_is_tried_again_after_the_move(stores, receiver):
    old, new = stores
    with Outbox(old.store) as store:
        store.destination("d", receiver)
        store.destination("once", receiver, guarantee="at_most_once")
        receiver.rule("hang")
        ids = [store.put("d", {"n": 1}), store.put("once", {"n": 2})]
        relay = old.start("relay", "--id", "old", "--lease", "30s")
        wait_for(lambda: receiver.count() == 2, "both to be on the wire")
        relay.kill()
        relay.communicate()
    exported = old.run("export")
    assert "2 messages are claimed" in exported.stderr
    receiver.rule(200)
    receiver.release()
    new.run("import", "-", input=exported.stdout)
    with Outbox(new.store) as store:
        assert store.state(ids[1])["state"] == "DEAD" and "moved" in store.state(ids[1])["last_error"]
        again = new.start("relay", "--id", "new", "--lease", "2s")
        store.wait(ids[0], "PUBLISHED", attempts=2)
        assert store.state(ids[1])["state"] == "DEAD"
        again.terminate()
        again.communicate()


def test_e13_what_an_older_rule_let_pass_moves_too(stores):
    old, new = stores
    metadata = json.dumps(SECRETS["github"][1])
    with Outbox(old.store) as store:
        store.run("update {}secret_rules set mode = 'off' where rule = 'github_token'")
        store.run(
            "insert into {}outbox (destination, event_type, payload, metadata) values ('d', 't', '{}', %s)", metadata
        )
        store.run("update {}secret_rules set mode = 'reject' where rule = 'github_token'")
    new.run("import", "-", input=old.run("export").stdout)
    with Outbox(new.store) as store:
        (row,) = store.run("select cast(metadata as text) as metadata from {}outbox")
        assert row["metadata"] == metadata
        with pytest.raises((psycopg2.Error, sqlite3.Error), match="rule github_token"):
            store.run(
                "insert into {}outbox (destination, event_type, payload, metadata) values ('d', 't', '{}', %s)",
                metadata,
            )


STAYS = {
    "schema_migrations": "the new store has its own",
    "log_epochs": "the new store is another log",
    **dict.fromkeys(("relays", "owners"), "who runs there"),
    "side_cursors": "places of the lanes that stay",
    "breakers": "what they saw",
    "successes": "what they saw",
    "tickets": "seconds old at most",
    "sessions_noted": "the new log is gone through once",
    **dict.fromkeys(("replaced", "prunings", "routing", "notified"), "work of a trigger"),
}


def test_e2_every_table_moves_or_stays_for_a_reason(sqlite_store, root):
    with Outbox(sqlite_store) as store:
        rows = store.run("select name from sqlite_master where type = 'table' and name like 'outlog_%%'")
    tables = {row["name"].removeprefix("outlog_") for row in rows}
    queries = "".join(
        (root / "sql" / path / "export.sql").read_text() for path in ("queries", "sqlite/queries", "postgres/queries")
    )
    moved = {table for table in tables if f"outlog.{table}" in queries or f"outlog_{table}" in queries}
    assert tables - moved == set(STAYS)
