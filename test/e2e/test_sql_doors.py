"""The SQL doors as somebody careless or hostile uses them: what cannot be meant is refused by name, with the same
code on both stores, and no setting or schema of a session changes what the functions do."""
import contextlib
import json
import os
import sqlite3
import subprocess
import threading
import uuid

import psycopg2
import pytest

from doors import connect, is_postgres
from lib.cli import Outlog, build_dir
from lib.postgres import bin_dir

PASSWORD, ID = "sql-doors", "019a8c1e-6201-7740-99a9-72da44c8a123"


class Sql:
    """A connection of a program's own; functions take named arguments on both stores."""

    def __init__(self, store):
        self.is_postgres, self.connection = is_postgres(store), connect(store)
        if not self.is_postgres:
            self.connection.enable_load_extension(True)
            self.connection.load_extension(str(build_dir() / "src" / "ext" / "outlog"))

    def run(self, sql, *args):
        """Rows; `outlog.` and %s are those of PostgreSQL."""
        if not self.is_postgres:
            return self.connection.execute(sql.replace("outlog.", "outlog_").replace("%s", "?"), args).fetchall()
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else None

    def call(self, function, **given):
        if self.is_postgres:
            names = ", ".join(f"{name} => %s" for name in given)
            return self.run(f"select to_json(answer) from outlog.{function}({names}) answer", *given.values())[0][0]
        return json.loads(self.run(f"select outlog_{function}(%s)", json.dumps(given))[0][0])

    def refusal(self, what, *args, **given):
        """(code, message) of what is not done: a function with its arguments, or a statement."""
        with pytest.raises((psycopg2.Error, sqlite3.Error)) as refused:
            if " " in what:
                self.run(what, *args)
            else:
                self.call(what, **given)
        text = refused.value.diag.message_primary if self.is_postgres else str(refused.value)
        assert not self.is_postgres or refused.value.pgcode == "OL000", refused.value
        return text.partition(": ")[::2]

    def count(self, table):
        return self.run(f"select count(*) from outlog.{table}")[0][0]


@pytest.fixture
def sql(store):
    door = Sql(store)
    yield door
    door.connection.close()


@pytest.fixture
def postgres_sql(postgres_store):
    door = Sql(postgres_store)
    yield door
    door.connection.close()


def event(**more):
    return {"org_id": "acme", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "order.made",
            "payload": "{}", **more}


# Times

def test_o5_a_time_beyond_all_times_is_refused_and_never_means_now(sql, outlog):
    """What was meant for never went out at once: the number of microseconds had overflowed."""
    message = {"destination": "d", "event_type": "t", "payload": "1"}
    if sql.is_postgres:
        given = [{"available_at": at} for at in ("infinity", "-infinity", "294276-12-31", "4000-01-01 BC", "10000-01-01")]
        given += [{"delay": delay} for delay in ("1000000 years", "-1000000 years", "8000 years")]
    else:
        given = [{"delay": delay} for delay in ("106751991d", "5000000d")]
    for extra in given:
        code, text = sql.refusal("enqueue", **message, **extra)
        assert (code, text) == ("invalid_field", "available_at, or the end of delay, must be a time of the years 1 to 9999"), extra
    for delay in ("106751991d", "5000000d"):
        refused = outlog.run("send", "--to", "d", "--type", "t", "--data", "1", "--delay", delay, check=False)
        assert refused.returncode == 1 and "years 1 to 9999 [invalid_field]" in refused.stderr
    assert sql.count("outbox") == 0
    sql.call("enqueue", **message, available_at="9999-12-31T23:59:59.999999Z")
    sql.call("enqueue", **message, delay="1000s" if not sql.is_postgres else "1000 seconds")
    outlog.run("relay", "--until-idle", "--quiet")
    assert [state for state, in sql.run("select state from outlog.outbox_state")] == ["PENDING", "PENDING"]


@pytest.mark.parametrize("at", ["infinity", "-infinity", "294276-12-31", "4000-01-01 BC"])
def test_o5_a_plain_insert_knows_no_such_time_on_postgres(postgres_sql, at):
    with pytest.raises(psycopg2.errors.CheckViolation, match="has_a_year_of_four_digits"):
        postgres_sql.run("insert into outlog.outbox (destination, event_type, payload, available_at) values ('d', 't', '1', %s)", at)


# What a plain INSERT may say

def insert(sql, **columns):
    names = ", ".join(columns)
    sql.run(f"insert into outlog.outbox ({names}) values ({', '.join(['%s'] * len(columns))})", *columns.values())


MESSAGE = {"destination": "d", "event_type": "t", "payload": "{}"}
LIMITS = {"destination": 100, "event_type": 100, "org_id": 100, "content_type": 200, "correlation_id": 255,
          "aggregate_type": 50, "aggregate_id": 255, "idempotency_key": 512, "ordering_key": 512, "partition_key": 512}


@pytest.mark.parametrize("field", LIMITS)
def test_e16_every_text_of_a_message_has_its_limit(sql, field):
    """By the function and by a plain INSERT; é has two bytes."""
    most = LIMITS[field]
    whole = "é" * (most // 2) + "x" * (most % 2)
    for wrong in ("", whole + "x"):
        code, text = sql.refusal("enqueue", **{**MESSAGE, field: wrong})
        assert code == "invalid_field"
        assert text == f"{field} must have 1 to {most} bytes, it has {len(wrong.encode())}"
        with pytest.raises((psycopg2.errors.CheckViolation, sqlite3.IntegrityError)):
            insert(sql, **{**MESSAGE, field: wrong})
    assert sql.count("outbox") == 0
    sql.call("enqueue", **{**MESSAGE, field: whole})
    insert(sql, **{**MESSAGE, field: whole[1:] + "xx"})
    assert sql.count("outbox") == 2


def test_e2_null_is_not_given(sql):
    names = ["payload_bytes", "content_type", "org_id", "idempotency_key", "ordering_key", "partition_key", "headers",
             "metadata", "available_at", "delay", "max_attempts", "correlation_id", "causation_id", "aggregate_type",
             "aggregate_id", "event_id"]
    sql.call("enqueue", **MESSAGE, **{name: None for name in names if sql.is_postgres or name != "payload_bytes"})
    assert sql.run("select content_type from outlog.outbox") == [("application/json",)]


@pytest.mark.parametrize("column, value", [
    ("destination", b"d"), ("destination", "d\0evil"), ("event_type", b"\xff"), ("event_type", "t\0u"),
    ("org_id", b"acme"), ("org_id", "acme\0x"), ("idempotency_key", b"k"), ("idempotency_key", "k\0x"),
    ("ordering_key", b"k"), ("correlation_id", "c\0x"), ("correlation_id", b"c"), ("content_type", b"text/plain"),
    ("event_id", f"{ID}\0x"), ("causation_id", "x"), ("causation_id", f"{ID}\0x"),
    ("max_attempts", "x"), ("max_attempts", 1.5), ("max_attempts", 1 << 40), ("lane", 3), ("lane", -1),
    ("available_at", "12:00"), ("available_at", "2460000.5"), ("available_at", 2460000.5), ("available_at", "now"),
    ("available_at", b"2030-01-01"), ("available_at", "0000-01-01")])
def test_a1_sqlite_takes_no_text_that_is_two_things(sqlite_store, column, value):
    """A blob, or what stands behind a NUL, is one thing to the index and another to whoever reads it: a message would
    go to a destination, or under a key, that is not its own. In another lane nobody would ever look."""
    sql = Sql(sqlite_store)
    with pytest.raises(sqlite3.IntegrityError, match="CHECK constraint failed: outbox_"):
        insert(sql, **{**MESSAGE, column: value})
    assert sql.count("outbox") == 0


def test_o2_sqlite_gives_out_the_numbers_itself(sqlite_store, outlog):
    """Below a relay's head a message would count as published; the highest would leave none for others."""
    sql = Sql(sqlite_store)
    first = sql.call("enqueue", **MESSAGE)
    outlog.run("apply", "-f", "-", input="destinations: {d: {type: 'null'}}\n")
    outlog.run("relay", "--until-idle", "--quiet")
    for seq in (-1, -5, 0, 1, 1000, (1 << 63) - 1):
        for verb in ("insert", "insert or replace", "insert or ignore", "replace"):
            with contextlib.suppress(sqlite3.IntegrityError):       # OR IGNORE says nothing, and does nothing
                sql.run(f"{verb} into outlog.outbox (seq, destination, event_type, payload) values (%s, 'd', 't', 'x')", seq)
            rows = sql.run("select seq, event_id, state from outlog.outbox_state")
            assert rows == [(1, first["event_id"], "PUBLISHED")], (verb, seq)
    with pytest.raises(sqlite3.IntegrityError, match="invalid_field: at_most_once is that of the destination"):
        insert(sql, **MESSAGE, at_most_once=0)
    insert(sql, **MESSAGE)
    assert sql.run("select seq from outlog.outbox_state where state = 'PENDING'") == [(2,)]


# Keys

def test_u5_an_effect_with_the_key_of_a_plain_message_is_refused(sql):
    """It was answered as a repeat, of an effect that is not there."""
    sql.call("enqueue", **MESSAGE, org_id="acme", idempotency_key="k")
    effect = {"effect_type": "API_CALL", "destination": "d", "org_id": "acme", "idempotency_key": "k",
              "effect_spec": "{}" if sql.is_postgres else {}}
    code, text = sql.refusal("request_effect", **effect)
    assert code == "idempotency_key_reuse" and "key k was used for a message that is no effect" in text
    assert sql.count("effects") == sql.count("events") == 0
    sql.call("request_effect", **{**effect, "idempotency_key": "k2"})
    sql.call("request_effect", **{**effect, "idempotency_key": "k2"})
    assert sql.count("effects") == 1


@pytest.mark.parametrize("missing", ["actor_id", "endpoint", "idempotency_key", "request"])
def test_i1_a_key_needs_all_its_parts(postgres_sql, missing):
    given = {"org_id": "acme", "actor_id": "a", "endpoint": "e", "idempotency_key": "k", "request": "{}", missing: None}
    code, text = postgres_sql.refusal("idempotency_begin", **given)
    assert code == "misuse" and text == "actor_id, endpoint, idempotency_key and request are required"


# Waiting and reading

@pytest.mark.parametrize("given, words", [
    ({"timeout": -1}, "timeout must be 0 to 3600 seconds"), ({"timeout": 3601}, "timeout must be 0 to 3600 seconds"),
    ({"event_id": 0}, "name and event_id are wanted"), ({"event_id": -5}, "name and event_id are wanted")])
def test_p4_a_wait_that_cannot_be_meant_is_refused(sql, given, words):
    assert sql.refusal("wait_projection", **{"name": "p", "event_id": 1, "timeout": 0, **given}) == ("invalid_field", words)


def test_p4_a_wait_for_nothing_ends(sql):
    """A null as timeout waited for ever."""
    sql.run("insert into outlog.projection_checkpoints (name, last_applied_event_id, updated_at) values ('p', 3, %s)",
            "2026-01-01T00:00:00.000000Z")
    if sql.is_postgres:
        sql.run("set statement_timeout = '30s'")
        assert sql.run("select outlog.wait_projection('p', 3, null::interval), outlog.wait_projection('p', 3, null::numeric), "
                       "outlog.wait_projection('p', 4, 0.01), outlog.wait_projection('p', 3)") == [(True, True, False, True)]
        assert sql.refusal("select outlog.wait_projection('p', 4, 'NaN'::numeric)")[0] == "invalid_field"
        assert sql.refusal("select outlog.wait_projection('p', 4, '1000000 years')")[0] == "invalid_field"
        assert sql.refusal("select outlog.wait_projection('p', null)") == ("invalid_field", "name and event_id are wanted")
        assert sql.refusal("select outlog.wait_projection(null, 4)") == ("invalid_field", "name and event_id are wanted")
    else:
        assert sql.call("wait_projection", name="p", event_id=3, timeout=None)["reached"] is True
        assert sql.call("wait_projection", name="p", event_id=4, timeout=0.01)["reached"] is False


def test_c1_null_is_no_position(postgres_sql):
    """A reader whose cursor was not found got nothing, for ever, or everything at once."""
    postgres_sql.call("append", **event())
    for given in ({"after": None}, {"max_rows": None}, {"after": 0, "max_rows": -1}):
        assert postgres_sql.refusal("read", **given)[0] == "invalid_field"
    assert len(postgres_sql.run("select * from outlog.read(after => 0, max_rows => 0)")) == 0
    assert len(postgres_sql.run("select * from outlog.read()")) == 1


# Text

@pytest.mark.parametrize("text", ['{"a":1}\0', '{}\0junk', '\0{}', '{"a":"b\0c"}'])
def test_i1_a_nul_ends_no_text_in_sqlite(sqlite_store, text):
    """What stood behind it was neither hashed nor refused: another request had the same hash."""
    sql = Sql(sqlite_store)
    for function in ("request_hash", "wait_projection", "append", "enqueue", "request_effect", "start_run"):
        code, _ = sql.refusal(f"select outlog.{function}(%s)", text)
        assert code == "invalid_json", function
    assert sql.refusal("select outlog.wait_projection('{\"name\":\"p\",\"event_id\":1}' || char(0) || 'x')")[0] == "invalid_json"


FILTERS = {"events --org": "org_id", "events --type": "event_type", "events --correlation": "correlation_id",
           "events --app": "app_id", "trace": "correlation_id", "runs --org": "org_id", "destinations pause": "name",
           "notices --user": "user_id"}


@pytest.mark.parametrize("has_events", [False, True])
def test_e7_a_filter_that_is_no_text_is_refused_by_name(store, outlog, has_events):
    """SQLite looked for it and found nothing, PostgreSQL refused it in words of its own."""
    if has_events:
        outlog.run("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.made", "--data", "{}")
    for command, field in FILTERS.items():
        refused = outlog.run(*command.split(), os.fsdecode(b"a\xffb"), check=False)
        assert refused.returncode == 1 and refused.stdout == "", command
        assert refused.stderr == f"outlog: {field} is not UTF-8 [invalid_field]\n", command
