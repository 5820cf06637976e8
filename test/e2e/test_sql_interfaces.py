"""The SQL interfaces as somebody careless or hostile uses them: what cannot be meant is refused by name, with the same
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

from interfaces import connect, is_postgres
from lib.cli import Outlog, build_dir
from lib.postgres import bin_dir

PASSWORD, ID = "sql-interfaces", "019a8c1e-6201-7740-99a9-72da44c8a123"


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
    interface = Sql(store)
    yield interface
    interface.connection.close()


@pytest.fixture
def postgres_sql(postgres_store):
    interface = Sql(postgres_store)
    yield interface
    interface.connection.close()


def event(**more):
    return {
        "org_id": "acme",
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "event_type": "order.made",
        "payload": "{}",
        **more,
    }


# Times


def test_o5_a_time_beyond_all_times_is_refused_and_never_means_now(sql, outlog):
    """What was meant for never went out at once: the number of microseconds had overflowed."""
    message = {"destination": "d", "event_type": "t", "payload": "1"}
    if sql.is_postgres:
        given = [
            {"available_at": at} for at in ("infinity", "-infinity", "294276-12-31", "4000-01-01 BC", "10000-01-01")
        ]
        given += [{"delay": delay} for delay in ("1000000 years", "-1000000 years", "8000 years")]
    else:
        given = [{"delay": delay} for delay in ("106751991d", "5000000d")]
    for extra in given:
        code, text = sql.refusal("enqueue", **message, **extra)
        assert (code, text) == (
            "invalid_field",
            "available_at, or the end of delay, must be a time of the years 1 to 9999",
        ), extra
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
        postgres_sql.run(
            "insert into outlog.outbox (destination, event_type, payload, available_at) values ('d', 't', '1', %s)", at
        )


# What a plain INSERT may say


def insert(sql, **columns):
    names = ", ".join(columns)
    sql.run(f"insert into outlog.outbox ({names}) values ({', '.join(['%s'] * len(columns))})", *columns.values())


MESSAGE = {"destination": "d", "event_type": "t", "payload": "{}"}
LIMITS = {
    "destination": 100,
    "event_type": 100,
    "org_id": 100,
    "content_type": 200,
    "correlation_id": 255,
    "aggregate_type": 50,
    "aggregate_id": 255,
    "idempotency_key": 512,
    "ordering_key": 512,
    "partition_key": 512,
}


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
    names = [
        "payload_bytes",
        "content_type",
        "org_id",
        "idempotency_key",
        "ordering_key",
        "partition_key",
        "headers",
        "metadata",
        "available_at",
        "delay",
        "max_attempts",
        "correlation_id",
        "causation_id",
        "aggregate_type",
        "aggregate_id",
        "event_id",
    ]
    sql.call("enqueue", **MESSAGE, **{name: None for name in names if sql.is_postgres or name != "payload_bytes"})
    assert sql.run("select content_type from outlog.outbox") == [("application/json",)]


@pytest.mark.parametrize(
    "column, value",
    [
        ("destination", b"d"),
        ("destination", "d\0evil"),
        ("event_type", b"\xff"),
        ("event_type", "t\0u"),
        ("org_id", b"acme"),
        ("org_id", "acme\0x"),
        ("idempotency_key", b"k"),
        ("idempotency_key", "k\0x"),
        ("ordering_key", b"k"),
        ("correlation_id", "c\0x"),
        ("correlation_id", b"c"),
        ("content_type", b"text/plain"),
        ("event_id", f"{ID}\0x"),
        ("causation_id", "x"),
        ("causation_id", f"{ID}\0x"),
        ("max_attempts", "x"),
        ("max_attempts", 1.5),
        ("max_attempts", 1 << 40),
        ("lane", 3),
        ("lane", -1),
        ("available_at", "12:00"),
        ("available_at", "2460000.5"),
        ("available_at", 2460000.5),
        ("available_at", "now"),
        ("available_at", b"2030-01-01"),
        ("available_at", "0000-01-01"),
    ],
)
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
            with contextlib.suppress(sqlite3.IntegrityError):  # OR IGNORE says nothing, and does nothing
                sql.run(
                    f"{verb} into outlog.outbox (seq, destination, event_type, payload) values (%s, 'd', 't', 'x')", seq
                )
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
    effect = {
        "effect_type": "API_CALL",
        "destination": "d",
        "org_id": "acme",
        "idempotency_key": "k",
        "effect_spec": "{}" if sql.is_postgres else {},
    }
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


@pytest.mark.parametrize(
    "given, words",
    [
        ({"timeout": -1}, "timeout must be 0 to 3600 seconds"),
        ({"timeout": 3601}, "timeout must be 0 to 3600 seconds"),
        ({"event_id": 0}, "name and event_id are wanted"),
        ({"event_id": -5}, "name and event_id are wanted"),
    ],
)
def test_p4_a_wait_that_cannot_be_meant_is_refused(sql, given, words):
    assert sql.refusal("wait_projection", **{"name": "p", "event_id": 1, "timeout": 0, **given}) == (
        "invalid_field",
        words,
    )


def test_p4_a_wait_for_nothing_ends(sql):
    """A null as timeout waited for ever."""
    sql.run(
        "insert into outlog.projection_checkpoints (name, last_applied_event_id, updated_at) values ('p', 3, %s)",
        "2026-01-01T00:00:00.000000Z",
    )
    if sql.is_postgres:
        sql.run("set statement_timeout = '30s'")
        assert sql.run(
            "select outlog.wait_projection('p', 3, null::interval), outlog.wait_projection('p', 3, null::numeric), "
            "outlog.wait_projection('p', 4, 0.01), outlog.wait_projection('p', 3)"
        ) == [(True, True, False, True)]
        assert sql.refusal("select outlog.wait_projection('p', 4, 'NaN'::numeric)")[0] == "invalid_field"
        assert sql.refusal("select outlog.wait_projection('p', 4, '1000000 years')")[0] == "invalid_field"
        assert sql.refusal("select outlog.wait_projection('p', null)") == (
            "invalid_field",
            "name and event_id are wanted",
        )
        assert sql.refusal("select outlog.wait_projection(null, 4)") == (
            "invalid_field",
            "name and event_id are wanted",
        )
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


@pytest.mark.parametrize("filters", ["5", "[]", "null", '"acme"'])
def test_c1_filters_that_are_none_do_not_mean_all(sql, outlog, filters):
    """A consumer that was written by plain SQL read the events of every org."""
    sql.call("append", **event(payload="{}" if sql.is_postgres else {}))
    sql.run(
        "insert into outlog.consumers (name, filters, created_at, updated_at) values ('c', %s, %s, %s)",
        filters,
        "2026-01-01T00:00:00.000000Z",
        "2026-01-01T00:00:00.000000Z",
    )
    refused = outlog.run("consumers", "read", "c", check=False)
    assert refused.returncode == 1 and refused.stdout == ""
    assert refused.stderr == "outlog: filters must be a JSON object [invalid_field]\n"


# Text


@pytest.mark.parametrize("text", ['{"a":1}\0', "{}\0junk", "\0{}", '{"a":"b\0c"}'])
def test_i1_a_nul_ends_no_text_in_sqlite(sqlite_store, text):
    """What stood behind it was neither hashed nor refused: another request had the same hash."""
    sql = Sql(sqlite_store)
    for function in ("request_hash", "wait_projection", "append", "enqueue", "request_effect", "start_run"):
        code, _ = sql.refusal(f"select outlog.{function}(%s)", text)
        assert code == "invalid_json", function
    assert (
        sql.refusal('select outlog.wait_projection(\'{"name":"p","event_id":1}\' || char(0) || \'x\')')[0]
        == "invalid_json"
    )


FILTERS = {
    "events --org": "org_id",
    "events --type": "event_type",
    "events --correlation": "correlation_id",
    "events --app": "app_id",
    "trace": "correlation_id",
    "runs --org": "org_id",
    "destinations pause": "name",
    "notices --user": "user_id",
}


@pytest.mark.parametrize("has_events", [False, True])
def test_e7_a_filter_that_is_no_text_is_refused_by_name(store, outlog, has_events):
    """SQLite looked for it and found nothing, PostgreSQL refused it in words of its own."""
    if has_events:
        outlog.run("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.made", "--data", "{}")
    for command, field in FILTERS.items():
        refused = outlog.run(*command.split(), os.fsdecode(b"a\xffb"), check=False)
        assert refused.returncode == 1 and refused.stdout == "", command
        assert refused.stderr == f"outlog: {field} is not UTF-8 [invalid_field]\n", command


# Settings and schemas of a session


def use_every_interface(sql):
    """Each function that a program calls, with text that needs a look at every byte."""
    told = event(
        payload='{"a": "b\\nc", "name": "\\u00e9"}', metadata='{"source": "a\\\\b"}', idempotency_key=str(uuid.uuid4())
    )
    made = sql.call("append", **told)
    sql.call("append", **{**told, "idempotency_key": None}, id=str(uuid.uuid4()), causation_id=made["id"])
    sql.call("enqueue", **MESSAGE, headers='{"x-a": "b"}', metadata='{"source": "\\u0061"}', delay="1 second")
    insert(sql, **MESSAGE, metadata='{"source": "b"}')
    sql.call("request_effect", effect_type="API_CALL", destination="d", effect_spec='{"n": "\\u00e9"}', org_id="acme")
    signal = sql.call("receive_signal", org_id="acme", signal_type="order", payload='{"a": "\\n"}')["signal_id"]
    run = sql.call("start_run", org_id="acme", run_type="ORDER", orchestrator_version="v1", signal_id=signal)["run_id"]
    step = sql.call("start_step", run_id=run, step_type="PAY")["step_id"]
    tool = sql.call("call_tool", step_id=step, tool_name="t", input='{"a": 1}')["tool_call_id"]
    sql.call("end_tool", tool_call_id=tool, result='{"b": "\\t"}')
    sql.call("checkpoint_run", run_id=run, checkpoint_data='{"c": 1}')
    sql.call("complete_step", step_id=step, output_result='{"paid": true}')
    sql.call("end_run", run_id=run)
    sql.run(
        "select outlog.uuid7(), outlog.rfc3339(now())::text, outlog.request_hash(%s), "
        "outlog.derived_key('a', 'b', 'c', '{\"d\": 1}'), outlog.find_event('1')::text",
        '{"b": 1, "a": "\\u00e9"}',
    )
    sql.run("select outlog.idempotency_begin('acme', 'a', 'e', %s, '{\"a\": 1}')", str(uuid.uuid4()))
    if sql.run("show transaction_isolation")[0][0] == "read committed":
        with pytest.raises(psycopg2.Error, match="not_found: no projection p"):
            sql.run("select outlog.wait_projection('p', 1, 0.01)")
        sql.run("select count(*) from outlog.read()")


SETTINGS = (
    "standard_conforming_strings = off",
    "standard_conforming_strings = off; set escape_string_warning = off",
    "datestyle = 'SQL, DMY'",
    "intervalstyle = sql_standard",
    "timezone = 'Asia/Kathmandu'",
    "bytea_output = escape",
    "client_encoding = LATIN1",
    "default_transaction_isolation = serializable",
    "extra_float_digits = -15",
    "transform_null_equals = on",
    "array_nulls = off",
    "plpgsql.variable_conflict = use_variable",
    "plpgsql.extra_errors = 'all'",
    "search_path = ''",
    "quote_all_identifiers = on",
    "xmloption = document",
)


def test_a1_no_setting_of_a_session_changes_what_the_functions_do(postgres_store, outlog):
    outlog.run("apply", "-f", "-", input="destinations: {d: {type: 'null'}}\nroutes: [{on: 'order.*', to: d}]\n")
    for n, setting in enumerate(SETTINGS, 1):
        sql = Sql(postgres_store)
        sql.run(f"set {setting}")
        use_every_interface(sql)
        assert sql.run("select count(*) from outlog.outbox") == [(5 * n,)], setting
        sql.connection.close()


def test_a1_no_backslash_of_a_function_depends_on_a_setting(postgres_sql):
    """In '\\' a session with standard_conforming_strings off sees no end; E'\\\\' is the same for all."""
    bodies = postgres_sql.run(
        "select oid::regprocedure::text, prosrc from pg_proc where pronamespace = 'outlog'::regnamespace"
    )
    assert len(bodies) > 100
    for name, body in bodies:
        code = "\n".join(line.partition("--")[0] for line in body.splitlines())
        assert "\\" not in code.replace(r"E'\\", "").replace(r"E' \t\n\r'", ""), name


HIJACKS = [
    ("double precision", "integer", "*", "double precision"),
    ("bigint", "interval", "*", "interval"),
    ("numeric", "interval", "*", "interval"),
    ("json", "text", "#>>", "text"),
    ("json", "text", "->>", "text"),
    ("timestamptz", "interval", "+", "timestamptz"),
    ("text", "text", "||", "text"),
    ("text", "text", "=", "boolean"),
]


@pytest.mark.parametrize("path", ["evil, public", "evil, pg_catalog"])
def test_x2_no_operator_of_another_schema_runs_inside_ours(postgres_sql, path):
    """A plain INSERT by the owner makes its id by a function of ours: whoever could make an operator in a schema on
    the owner's search_path had it run with the owner's rights."""
    run = postgres_sql.run
    run("create schema evil")
    for n, (left, right, name, result) in enumerate(HIJACKS):
        run(
            f"create function evil.f{n}({left}, {right}) returns {result} language plpgsql as "
            f"$$ begin raise exception 'hijacked: {left} {name} {right}'; end $$"
        )
        run(f"create operator evil.{name} (leftarg = {left}, rightarg = {right}, function = evil.f{n})")
    run(f"set search_path = {path}")
    use_every_interface(postgres_sql)
    run("select outlog.after(5), outlog.normal_json('{\"a\": [\"b\"]}'), outlog.checked_json('{\"a\": 1}', 'f')")


def test_x2_no_operator_of_another_schema_comes_in_by_init(postgres):
    """What SQL functions, views and defaults mean is settled when they are made."""
    url = postgres.create("sql_interfaces_init")
    try:
        with contextlib.closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
            cursor.execute("create schema evil")
            for n, (left, right, name, result) in enumerate(HIJACKS):
                cursor.execute(
                    f"create function evil.f{n}({left}, {right}) returns {result} language plpgsql as "
                    "$$ begin raise exception 'hijacked'; end $$"
                )
                cursor.execute(
                    f"create operator evil.{name} (leftarg = {left}, rightarg = {right}, function = evil.f{n})"
                )
            cursor.execute("alter database sql_interfaces_init set search_path = evil, public")
        Outlog(url).run("init")
        with contextlib.closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "select count(*) from pg_depend d where d.refclassid = 'pg_operator'::regclass and d.refobjid in "
                "(select oid from pg_operator where oprnamespace = 'evil'::regnamespace)"
            )
            assert cursor.fetchone() == (0,)
    finally:
        postgres.drop("sql_interfaces_init")


def test_a_dump_of_the_schema_is_restored(postgres, postgres_store):
    """Bodies that were read when they were made come after what they name."""
    sql = Sql(postgres_store)
    sql.run("insert into outlog.destinations (name, settings, guarantee) values ('once', '{}', 'at_most_once')")
    use_every_interface(sql)
    dump = subprocess.run([bin_dir() / "pg_dump", postgres_store], capture_output=True, check=True).stdout
    copy = postgres.create("sql_interfaces_copy")
    try:
        done = subprocess.run(
            [bin_dir() / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", copy], input=dump, capture_output=True
        )
        assert done.returncode == 0, done.stderr
        again = Sql(copy)
        assert again.count("events") == sql.count("events") > 5
        use_every_interface(again)
        again.call("enqueue", **{**MESSAGE, "destination": "once"})
        assert again.run("select at_most_once from outlog.outbox where destination = 'once'") == [(True,)]
        again.connection.close()
    finally:
        postgres.drop("sql_interfaces_copy")


def test_x2_what_a_role_may_call_is_bound_to_no_search_path(postgres_sql):
    """Pinned, or read when it was made. Projections and lookups are the user's own SQL: they name ours in full."""
    loose = postgres_sql.run(
        "select p.proname from pg_proc p, unnest(array['outlog_append', 'outlog_read', 'outlog_relay', 'outlog_admin', "
        "       'outlog_tenant']) role where p.pronamespace = 'outlog'::regnamespace and p.prosqlbody is null "
        "   and has_function_privilege(role, p.oid, 'execute') "
        "   and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)"
    )
    assert {name for name, in loose if not name.startswith("projection_")} <= {"look_up"}


# Roles


@pytest.fixture
def role(postgres, postgres_store):
    """A session of a role that has one of ours."""
    made, database = [], postgres_store.rpartition("/")[2].partition("?")[0]

    def login(group):
        name = f"sql_interfaces_{group}"
        if name not in made:
            postgres.sql(f"create role {name} login password '{PASSWORD}' in role {group}")
            made.append(name)
        return Sql(postgres.url(database, name, PASSWORD))

    yield login
    for name in made:
        postgres.sql(f"drop owned by {name}", database=database)
        postgres.sql(f"drop role {name}")


def denied(sql, statement):
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        sql.run(statement)


def test_x2_an_appender_removes_no_answers(role):
    denied(role("outlog_append"), "select outlog.purge_idempotency('infinity', 1000000)")


def test_x2_a_relay_writes_no_sql_that_others_run(role):
    denied(role("outlog_relay"), "insert into outlog.projections (name, version, definition) values ('p', 1, '{}')")
    denied(role("outlog_relay"), "update outlog.projections set definition = '{}'")


RULE = (
    "insert into outlog.notification_rules (name, pattern, is_audit, {who}, email_to, template, once_event, source) "
    "values ('n', '%', false, '{said}', 'mail', 't', true, '{{}}')"
)


def test_x2_an_administrator_runs_no_query_with_the_owners_rights(postgres_store, role):
    """A rule's query is run by the owner, whoever appends: who may write rules could become the owner by it."""
    admin, owner = role("outlog_admin"), Sql(postgres_store)
    code, text = admin.refusal(RULE.format(who="lookup", said="select current_user"))
    assert code == "store_error" and "rule n finds its users by a query, which runs with the rights of" in text
    denied(admin, "select outlog.recipients((select r from outlog.notification_rules r limit 1), '{}')")
    # What the owner let in, and what is no query, it may write.
    owner.run(RULE.format(who="lookup", said="select current_user"))
    admin.run("update outlog.notification_rules set template = 't2'")
    assert admin.refusal("update outlog.notification_rules set lookup = 'select 1'")[0] == "store_error"
    admin.run("delete from outlog.notification_rules")
    admin.run(RULE.format(who="path", said="/user"))
    assert admin.refusal("update outlog.notification_rules set path = null, lookup = 'select 1'")[0] == "store_error"


# Runs


def start(sql):
    run = sql.call("start_run", org_id="acme", run_type="R", orchestrator_version="v")["run_id"]
    return run, sql.call("start_step", run_id=run, step_type="S")["step_id"]


def test_u1_a_command_that_cannot_be_meant_is_refused_by_name(sql):
    """PostgreSQL said a state of its own, or took it; the codes are those of every interface."""
    run, step = start(sql)
    for function, name, more in (
        ("start_step", "run_id", {"step_type": "S"}),
        ("end_run", "run_id", {}),
        ("skip_step", "step_id", {}),
        ("retry_step", "step_id", {}),
        ("call_tool", "step_id", {"tool_name": "t"}),
        ("end_tool", "tool_call_id", {}),
    ):
        assert sql.refusal(function, **{name: None, **more}) == ("invalid_field", f"{name} is required")
    assert sql.refusal("start_step", run_id=run, step_type="S", expected_seq=-1) == (
        "invalid_field",
        "expected_seq must be a whole number from 0",
    )
    for function, given in (("skip_step", {"step_id": step}), ("end_run", {"run_id": run, "status": "CANCELLED"})):
        assert sql.refusal(function, **given, reason="") == (
            "invalid_field",
            "reason must have 1 to 262144 bytes, it has 0",
        )
    assert (
        sql.refusal("start_run", org_id="acme", run_type="R", orchestrator_version="v", signal_id="")[0]
        == "invalid_field"
    )
    for function, more in (
        ("start_run", {"run_type": "R", "orchestrator_version": "v"}),
        ("receive_signal", {"signal_type": "t"}),
    ):
        assert sql.refusal(function, org_id="", **more)[0] == "org_required"


@pytest.mark.parametrize(
    "text", [r'"\u0000"', r'{"a": ["\u0000"]}', r'{"\u0000": 1}', r'"\ud800"', r'{"a": "\udc00x"}']
)
def test_e2_a_character_that_cannot_be_kept_is_invalid_json_in_a_run_too(sql, text):
    run, step = start(sql)
    for function, given in (
        ("receive_signal", {"org_id": "acme", "signal_type": "t", "payload": text}),
        ("complete_step", {"step_id": step, "output_result": text}),
        ("call_tool", {"step_id": step, "tool_name": "t", "input": text}),
        ("checkpoint_run", {"run_id": run, "checkpoint_data": text}),
    ):
        if sql.is_postgres:
            assert sql.refusal(function, **given)[0] == "invalid_json"
        else:
            body = ", ".join(
                f'"{name}": {value if value == text else json.dumps(value)}' for name, value in given.items()
            )
            assert sql.refusal(f"select outlog.{function}(%s)", f"{{{body}}}")[0] == "invalid_json"


def test_u1_steps_have_an_end(sql):
    run, _ = start(sql)
    sql.call("start_step", run_id=run, step_type="S", step_index=2147483647)
    assert sql.refusal("start_step", run_id=run, step_type="S") == (
        "invalid_field",
        "no step_index is left after 2147483647; give one",
    )
    assert sql.call("start_step", run_id=run, step_type="S", step_index=7)["step_index"] == 7


# A host's own SQLite

APPEND = json.dumps({**event(), "payload": {}})


def test_a1_sqlite_writes_to_the_main_file_and_to_no_other(sqlite_store, tmp_path):
    """A temporary table with the name of one of ours took the event, and nobody ever saw it."""
    sql = Sql(sqlite_store)
    for table in ("events", "heads", "outbox", "lanes", "idempotency_records"):
        sql.run(f"create temp table outlog.{table} as select * from main.outlog_{table} where false")
    sql.run("create temp table counted (n integer primary key autoincrement)")
    for n in (1, 2):
        assert json.loads(sql.run("select outlog.append(%s)", APPEND)[0][0])["aggregate_seq"] == n
        sql.call("enqueue", **MESSAGE)
    other = Sql(sqlite_store)
    assert (other.count("events"), other.count("heads"), other.count("outbox")) == (2, 1, 2)
    host = Sql(f"sqlite:{tmp_path}/host.db")  # the log is attached: its commit is another's
    host.run('attach %s as "lo\'g"', sqlite_store.removeprefix("sqlite:"))
    assert host.refusal("select outlog.append(%s)", APPEND)[0] == "no_schema"
    assert other.count("events") == 2


def test_a1_a_host_that_trusts_no_schema_is_told_what_to_do(sqlite_store):
    sql = Sql(sqlite_store)
    sql.run("pragma trusted_schema = off")
    try:
        sql.run("select outlog.append(%s)", APPEND)
    except sqlite3.OperationalError as error:
        assert str(error).startswith("misuse: ") and "PRAGMA trusted_schema = ON" in str(error)
    sql.run("pragma trusted_schema = on")
    sql.run("select outlog.append(%s)", APPEND)


@pytest.mark.parametrize("mode", ["wal", "delete"])
def test_p4_a_wait_inside_a_writing_transaction_is_misuse(sqlite_store, mode):
    """Nobody else can write: it waited in vain, or for the lock that its own connection held."""
    sql = Sql(sqlite_store)
    sql.run(f"pragma journal_mode = {mode}")
    sql.run("begin immediate")
    code, text = sql.refusal("wait_projection", name="p", event_id=1, timeout=0)
    assert code == "misuse" and "commit, then wait" in text
    sql.run("commit")
    assert sql.refusal("wait_projection", name="p", event_id=1, timeout=0)[0] == "not_found"


def test_e16_a_database_that_counts_other_bytes_is_refused(postgres, tmp_path):
    """In UTF-16 half of every limit was refused; in LATIN1 not every text can be kept."""
    with contextlib.closing(sqlite3.connect(tmp_path / "wide.db")) as db:
        db.execute("pragma encoding = 'UTF-16'")
        db.execute("create table mine (n)")
    refused = Outlog(f"sqlite:{tmp_path}/wide.db").run("init", check=False)
    assert refused.returncode == 1 and "outlog_needs_a_file_in_utf_8" in refused.stderr
    postgres.sql("create database sql_interfaces_latin encoding 'LATIN1' locale 'C' template template0")
    try:
        refused = Outlog(postgres.url("sql_interfaces_latin")).run("init", check=False)
        assert refused.returncode == 1 and "keeps text as LATIN1; outlog needs one that is UTF8" in refused.stderr
    finally:
        postgres.drop("sql_interfaces_latin")


# Two at once


def test_e4_two_that_append_crosswise_get_a_clear_error_and_no_gap(postgres_store):
    one, two = Sql(postgres_store), Sql(postgres_store)
    for sql in (one, two):
        sql.connection.autocommit = False
    one.call("append", **event(aggregate_id="A"))
    two.call("append", **event(aggregate_id="B"))
    failed = []

    def cross(sql, aggregate):
        try:
            sql.call("append", **event(aggregate_id=aggregate))
            sql.connection.commit()
        except psycopg2.Error as error:
            failed.append(error.pgcode)
            sql.connection.rollback()

    threads = [threading.Thread(target=cross, args=pair) for pair in ((one, "B"), (two, "A"))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == ["40P01"]
    reader = Sql(postgres_store)
    assert sorted(reader.run("select aggregate_id, aggregate_seq from outlog.events")) == [("A", 1), ("B", 1)]
    assert sorted(reader.run("select aggregate_id, aggregate_seq from outlog.heads")) == [("A", 1), ("B", 1)]
