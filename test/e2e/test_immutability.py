"""E1: nobody changes the past, and X2: each role may do what it needs and no more.

Each way to change an event is tried as each role. Roles without the right are stopped by PostgreSQL
(42501), those with it by the triggers (OL000). Whatever the answer, the log must be the same after.
"""
import contextlib
import hashlib
import json
import sqlite3
import uuid

import psycopg2
import pytest

from lib.cli import Outlog

DATABASE = "immutable"
OWNER = "log_owner"
GROUPS = ("outlog_append", "outlog_read", "outlog_relay", "outlog_admin")
PASSWORD = "let-me-in"
DENIED, REFUSED, TAKEN = "42501", "OL000", "23505"

COLUMNS = (
    "id, aggregate_type, aggregate_id, aggregate_seq, event_type, actor_type, actor_id, "
    "request_id, correlation_id, payload"
)
VALUES = "'order', 'o-9', 1, 'order.created', 'system', 's', 'r', 'c', '{}'"

CHANGES = {
    "update": "update outlog.events set payload = '{\"forged\":1}'",
    "update of nothing": "update outlog.events set payload = '{}' where false",
    "delete": "delete from outlog.events where event_id = 1",
    "truncate": "truncate outlog.events",
    "truncate cascade": "truncate outlog.events restart identity cascade",
    "upsert": f"insert into outlog.events ({COLUMNS}) select id, {VALUES} from outlog.events limit 1 "
    "on conflict (id) do update set payload = '{\"forged\":1}'",
    "merge update": "merge into outlog.events e using (select 1 as one) s on e.event_id = s.one "
    "when matched then update set payload = '{\"forged\":1}'",
    "merge delete": "merge into outlog.events e using (select 1 as one) s on e.event_id = s.one "
    "when matched then delete",
    "update of a foreign row by cte": "with gone as (delete from outlog.events returning *) "
    "select count(*) from gone",
}
# These only add rows, so they fail at the keys of what is there.
OVERWRITES = {
    "insert over event_id": f"insert into outlog.events (event_id, {COLUMNS}) overriding system value "
    f"values (1, gen_random_uuid(), {VALUES})",
    "insert over id": f"insert into outlog.events ({COLUMNS}) select id, {VALUES} "
    "from outlog.events where event_id = 1",
    "insert over aggregate_seq": f"insert into outlog.events (org_id, {COLUMNS}) select org_id, "
    "gen_random_uuid(), aggregate_type, aggregate_id, aggregate_seq, event_type, actor_type, "
    "actor_id, request_id, correlation_id, payload from outlog.events where event_id = 1",
}


@pytest.fixture(scope="module")
def store(postgres, template):
    """A log that belongs to a plain role, with one login for each group."""
    postgres.sql(f"create role {OWNER} login password '{PASSWORD}'")
    for group in GROUPS:
        postgres.sql(f"create role app_{group} login password '{PASSWORD}' in role {group}")
    postgres.sql(f"create role app_nobody login password '{PASSWORD}'")
    postgres.sql(f"create database {DATABASE} owner {OWNER}")
    url = postgres.url(DATABASE, OWNER, PASSWORD)
    owner = Outlog(url)
    owner.run("init")
    for order in ("o-1", "o-2"):
        owner.run("append", "--org", "acme", "--aggregate", f"order/{order}", "--type", "order.created", "--data", "{}")
    owner.run("append", "--infra", "--aggregate", "node/n-1", "--type", "node.joined", "--data", "{}")
    return url


class Someone:
    """A session as one role; each attempt is a transaction of its own."""

    def __init__(self, connection):
        self.connection = connection
        connection.autocommit = True

    def run(self, sql, *args):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else None

    def state_of(self, sql, *args):
        """The SQLSTATE it fails with; None when it works (and then it is undone)."""
        self.run("begin")
        try:
            self.run(sql, *args)
            return None
        except psycopg2.Error as error:
            self.message = str(error)
            return error.pgcode
        finally:
            self.run("rollback")


@pytest.fixture
def login(postgres, store):
    with contextlib.ExitStack() as stack:

        def connect(user=None):
            url = postgres.url(DATABASE, user, PASSWORD) if user else postgres.url(DATABASE)
            connection = psycopg2.connect(url)
            stack.callback(connection.close)
            return Someone(connection)

        yield connect


@pytest.fixture
def unchanged(postgres, store):
    """What the test leaves must be what it found."""

    def state():
        return postgres.sql("select * from outlog.events order by event_id", database=DATABASE)

    before = state()
    yield
    assert [list(map(str, row)) for row in state()] == [list(map(str, row)) for row in before]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("role", ["superuser", "replica", OWNER, "app_nobody", *(f"app_{group}" for group in GROUPS)])
def test_e1_no_role_changes_an_event(login, unchanged, role, change):
    if role in ("superuser", "replica"):
        who, expected = login(), REFUSED
        if role == "replica":
            who.run("set session_replication_role = replica")
    else:
        who = login(role)
        expected = REFUSED if role == OWNER else DENIED
    assert who.state_of(CHANGES[change]) == expected, change
    if expected == REFUSED:
        assert "read_only: " in who.message and "append a correction" in who.message


@pytest.mark.parametrize("role", ["superuser", "replica", OWNER, *(f"app_{group}" for group in GROUPS)])
def test_e1_no_role_overwrites_an_event(login, unchanged, role):
    who = login() if role in ("superuser", "replica") else login(role)
    if role == "replica":
        who.run("set session_replication_role = replica")
    expected = DENIED if role.startswith("app_") else TAKEN
    for what, sql in OVERWRITES.items():
        assert who.state_of(sql) == expected, what
    # COPY writes generated columns too, and must meet the same keys.
    line = f"1\t{uuid.uuid4()}\torder\to-9\t1\torder.created\tsystem\ts\tr\tc\t{{}}\n"
    with who.connection.cursor() as cursor, pytest.raises(psycopg2.Error) as error:
        cursor.copy_expert(f"copy outlog.events (event_id, {COLUMNS}) from stdin", _Lines(line))
    assert error.value.pgcode == expected


def test_e1_plain_roles_cannot_switch_triggers_off(login, unchanged):
    for group in GROUPS:
        who = login(f"app_{group}")
        assert who.state_of("set session_replication_role = replica") == DENIED
        assert who.state_of("alter table outlog.events disable trigger all") == DENIED
        assert who.state_of("drop table outlog.events") == DENIED
        assert who.state_of("create table outlog.mine (n int)") == DENIED


def _append(**more):
    given = {
        "org_id": "acme",
        "aggregate_type": "order",
        "aggregate_id": "o-3",
        "event_type": "order.created",
        "payload": "{}",
        **more,
    }
    return "select * from outlog.append(" + ", ".join(f"{k} => '{v}'" for k, v in given.items()) + ")"


# What a role does in its ordinary day, and what it must not.
NEED = {
    "read": ["select * from outlog.events", "select outlog.settled()", "select * from outlog.read(0, 10)"],
    "append": [_append(), _append(idempotency_key="k", id=uuid.uuid4())],
    "consume": ["select outlog.consumer_create('c')", "select outlog.consumer_commit('c', 1)"],
    "move": ["insert into outlog.consumers (name) values ('c')", "update outlog.consumers set cursor_event_id = 1"],
    "configure": [
        "insert into outlog.strict_orgs values ('acme')",
        "update outlog.secret_rules set mode = 'warn'",
        "delete from outlog.event_types",
        "delete from outlog.consumers",
        "delete from outlog.idempotency_records",
    ],
    "look": ["select * from outlog.heads"],
    "number": [
        "update outlog.heads set aggregate_seq = 7",
        "insert into outlog.heads values ('acme', 'a', 'b', 9)",
        "delete from outlog.heads",
        "select setval('outlog.events_event_id_seq', 1)",
    ],
    "insert": [f"insert into outlog.events ({COLUMNS}) values (gen_random_uuid(), {VALUES})"],
    "peek": ["select response from outlog.idempotency_records"],
    "forge": [
        "update outlog.idempotency_records set response = 'forged'",
        "insert into outlog.idempotency_records values ('acme', 'a', 'e', 'k', 'h', 'r')",
    ],
    "migrate": ["insert into outlog.schema_migrations values (99, 'future')"],
}
MAY = {
    "app_outlog_append": {"read", "append"},
    "app_outlog_read": {"read", "consume"},
    "app_outlog_relay": {"read", "look"},
    "app_outlog_admin": {"read", "append", "consume", "move", "configure", "look", "peek", "forge"},
    "app_nobody": set(),
}


@pytest.mark.parametrize("role", MAY)
def test_x2_role_may_do_what_it_needs_and_no_more(login, unchanged, role):
    who = login(role)
    for need, statements in NEED.items():
        for sql in statements:
            expected = None if need in MAY[role] else DENIED
            assert who.state_of(sql) == expected, (need, sql, getattr(who, "message", ""))


def test_x2_appender_cannot_touch_what_others_stored_under_a_key(login, store):
    one, two = login("app_outlog_append"), login("app_outlog_append")
    first = one.run(_append(aggregate_id="o-4", idempotency_key="mine", actor_id="alice"))
    # The functions are the only interface, and they write an answer once.
    two.run("select outlog.idempotency_end('acme', 'alice', 'append', 'mine', 'forged')")
    again = one.run(_append(aggregate_id="o-4", idempotency_key="mine", actor_id="alice"))
    assert again[0][:3] == first[0][:3] and again[0][5] is True
    assert two.state_of(_append(aggregate_id="other", idempotency_key="mine", actor_id="alice")) == REFUSED
    assert "idempotency_key_reuse" in two.message


def test_x2_library_needs_no_more_than_the_role(postgres, store):
    def binary(user):
        return Outlog(postgres.url(DATABASE, user, PASSWORD))

    append = (
        "append",
        "--org",
        "acme",
        "--aggregate",
        "order/o-5",
        "--type",
        "order.created",
        "--data",
        "{}",
        "--json",
    )
    appender, reader = binary("app_outlog_append"), binary("app_outlog_read")

    own = str(uuid.uuid4())
    first = appender.run(*append, "--key", "k5").json()[0]
    assert appender.run(*append, "--key", "k5").json()[0] == {**first, "duplicate": True}
    assert appender.run(*append, "--id", own).json()[0]["id"] == own
    cause = appender.run(*append, "--causation", own).json()[0]
    assert reader.run("causality", cause["id"], "--json").json()
    assert [e["id"] for e in reader.run("events", "--aggregate", "order/o-5", "--json").json()][0] == first["id"]
    reader.run("consumers", "create", "c5")
    reader.run("consumers", "commit", "c5", "1")
    for user, command in (
        ("app_outlog_read", append),
        ("app_outlog_append", ("consumers", "create", "x")),
        ("app_nobody", ("events",)),
    ):
        refused = binary(user).run(*command, check=False)
        assert refused.returncode == 1 and refused.stdout == ""
        assert len(refused.stderr.splitlines()) == 1 and "permission denied" in refused.stderr
        assert "grant the role one of outlog_append, outlog_read, outlog_admin" in refused.stderr


# Functions that run with their owner's rights


def test_x2_definer_functions_have_a_pinned_search_path(login):
    functions = login().run(
        "select p.oid::regprocedure::text, p.prosecdef, p.proconfig, p.prorettype = 'trigger'::regtype,"
        "       p.prolang = (select oid from pg_language where lanname = 'sql') "
        "  from pg_proc p where p.pronamespace = 'outlog'::regnamespace"
    )
    assert len(functions) > 10 and any(definer for _, definer, *_ in functions)
    for name, is_definer, settings, is_trigger, _ in functions:
        if is_definer or is_trigger:
            assert settings and "search_path=pg_catalog, pg_temp" in settings, name


def test_x2_public_may_execute_nothing(login):
    assert (
        login().run(
            "select p.oid::regprocedure::text from pg_proc p "
            "where p.pronamespace = 'outlog'::regnamespace "
            "  and has_function_privilege('app_nobody', p.oid, 'execute')"
        )
        == []
    )


def test_x2_a_malicious_schema_cannot_hijack_the_functions(postgres, login, unchanged):
    postgres.sql(f"grant create, temporary on database {DATABASE} to app_outlog_append")
    who = login("app_outlog_append")
    who.run("create schema evil")
    try:
        who.run(
            "create function evil.run() returns text language plpgsql as $$ begin "
            "raise exception 'hijacked as %', current_user; end $$"
        )
        body = "language sql as $$ select evil.run() $$"
        for signature in (
            "lower(text)",
            "octet_length(text)",
            "octet_length(unknown)",
            "format(text, variadic text[])",
            "format(text, text, name, name)",
            "format(text, text, text)",
            "encode(bytea, text)",
            "sha256(bytea)",
            "to_char(timestamp, text)",
            "clock_timestamp()",
            "gen_random_uuid()",
            "current_setting(text, boolean)",
            "set_config(text, text, boolean)",
            "pg_advisory_xact_lock_shared(bigint)",
            "json_typeof(json)",
            "jsonb_build_object(text, text)",
            "json_build_object(text, text)",
        ):
            with contextlib.suppress(psycopg2.Error):  # no such pseudo type for SQL functions
                who.run(f"create function evil.{signature} returns text {body}")
        who.run(
            "create function evil.same(text, text) returns boolean language sql as " "$$ select evil.run() is null $$"
        )
        who.run("create function evil.join(text, text) returns text language sql as " "$$ select evil.run() $$")
        who.run("create operator evil.= (leftarg = text, rightarg = text, function = evil.same)")
        who.run("create operator evil.|| (leftarg = text, rightarg = text, function = evil.join)")
        who.run("create temporary table heads (like outlog.schema_migrations)")
        who.run("create temporary table events (n int)")
        for path in ("evil, pg_catalog, outlog", "pg_temp, evil, pg_catalog", "public, evil"):
            who.run(f"set search_path = {path}")
            assert who.state_of(_append(idempotency_key="k6", id=uuid.uuid4())) is None, who.message
            assert who.state_of("select outlog.settled()") is None
            assert who.state_of("select * from outlog.read(0, 1)") is None
            # The administrator who is led into that path runs none of it either.
            admin = login()
            admin.run(f"set search_path = {path}")
            assert admin.state_of(CHANGES["update"]) == REFUSED, admin.message
            assert "hijacked" not in admin.message
            assert admin.state_of(_append()) is None
    finally:
        who.run("set search_path = pg_catalog; drop schema evil cascade")
        postgres.sql(f"revoke create, temporary on database {DATABASE} from app_outlog_append")


# SQLite: whoever may write the file may do all that SQL allows, and the triggers must hold.

SQLITE_COLUMNS = (
    "id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type, "
    "actor_type, actor_id, request_id, correlation_id, payload"
)
SQLITE_CHANGES = {
    "update": "update outlog_events set payload = '{}'",
    "update or replace": "update or replace outlog_events set event_id = 1 where event_id = 2",
    "update of the key": "update outlog_events set event_id = event_id + 100",
    "delete": "delete from outlog_events",
    "delete one": "delete from outlog_events where event_id = 2",
    "insert or replace by event_id": f"insert or replace into outlog_events (event_id, {SQLITE_COLUMNS}) "
    "select 1, '00000000-0000-4000-8000-000000000001', occurred_at, 'x', 'a', 'b', 1, event_type, "
    "'system', 's', 'r', 'c', '{}' from outlog_events where event_id = 1",
    "replace by id": f"replace into outlog_events ({SQLITE_COLUMNS}) select id, occurred_at, 'x', 'a', "
    "'b', 1, event_type, 'system', 's', 'r', 'c', '{}' from outlog_events where event_id = 1",
    "replace by aggregate_seq": f"replace into outlog_events ({SQLITE_COLUMNS}) select "
    "'00000000-0000-4000-8000-000000000002', occurred_at, org_id, aggregate_type, aggregate_id, "
    "aggregate_seq, event_type, 'system', 's', 'r', 'c', '{}' from outlog_events where event_id = 1",
    "replace by aggregate_seq without org": f"replace into outlog_events ({SQLITE_COLUMNS}) select "
    "'00000000-0000-4000-8000-000000000003', occurred_at, null, aggregate_type, aggregate_id, "
    "aggregate_seq, event_type, 'system', 's', 'r', 'c', '{}' from outlog_events "
    "where org_id is null",
    "upsert": f"insert into outlog_events ({SQLITE_COLUMNS}) select id, occurred_at, org_id, "
    "aggregate_type, aggregate_id, aggregate_seq, event_type, 'system', 's', 'r', 'c', '{}' "
    "from outlog_events where true on conflict do update set payload = '{\"forged\":1}'",
}


@pytest.mark.parametrize("recursive", ["on", "off"])
@pytest.mark.parametrize("change", SQLITE_CHANGES)
def test_e1_sqlite_events_cannot_be_changed(sqlite_store, outlog, change, recursive):
    for order in ("o-1", "o-2"):
        outlog.run(
            "append", "--org", "acme", "--aggregate", f"order/{order}", "--type", "order.created", "--data", '{"n":1}'
        )
    outlog.run("append", "--infra", "--aggregate", "node/n-1", "--type", "node.joined", "--data", "{}")
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :])) as db:

        def content():
            rows = db.execute("select * from outlog_events order by event_id").fetchall()
            return hashlib.sha256(json.dumps(rows).encode()).hexdigest()

        before = content()
        db.execute(f"pragma recursive_triggers = {recursive}")
        with pytest.raises(sqlite3.IntegrityError, match="read_only|id_conflict|UNIQUE"):
            db.execute(SQLITE_CHANGES[change])
        db.commit()
        assert content() == before
        assert db.execute("select count(*) from outlog_events").fetchone() == (3,)


SQLITE_KEYS = {
    "event_id": {"event_id": 1},
    "id": {"id": "00000000-0000-4000-8000-000000000001"},
    "sequence": {"aggregate_seq": 1},
    "nothing": {},
}


def sqlite_row(**fields):
    return {
        "event_id": 2,
        "id": "00000000-0000-4000-8000-000000000002",
        "occurred_at": "t",
        "org_id": "acme",
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "aggregate_seq": 2,
        "event_type": "e",
        "actor_type": "system",
        "actor_id": "s",
        "request_id": "r",
        "correlation_id": "c",
        "payload": "{}",
    } | fields


@pytest.mark.parametrize("taken", SQLITE_KEYS)
def test_e1_sqlite_a_plain_insert_leaves_uniqueness_to_the_indexes(sqlite_store, taken):
    """OR REPLACE is refused by each key, and also where it would replace nothing."""
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :], isolation_level=None)) as db:

        def insert(verb, fields, rest=""):
            db.execute(f"{verb} into outlog_events ({', '.join(fields)}) values (:{', :'.join(fields)}) {rest}", fields)
            return db.execute("select count(*) from outlog_events").fetchone()[0]

        first = sqlite_row(**SQLITE_KEYS["event_id"], **SQLITE_KEYS["id"], **SQLITE_KEYS["sequence"])
        assert insert("insert", first) == 1
        second = sqlite_row(**SQLITE_KEYS[taken])
        for verb in ("replace", "insert or replace"):
            with pytest.raises(sqlite3.IntegrityError, match="id_conflict: INSERT OR REPLACE"):
                insert(verb, second)
        for verb in ("insert or abort", "insert or rollback"):
            with pytest.raises(sqlite3.IntegrityError, match="say_insert_without_or|UNIQUE.*outlog_events"):
                insert(verb, second)
        with pytest.raises(sqlite3.IntegrityError, match="read_only"):
            db.execute("delete from outlog_replaced")
        if taken == "nothing":
            assert insert("insert", second) == 2
            return
        with pytest.raises(sqlite3.IntegrityError, match="UNIQUE constraint failed:.*outlog_events"):
            insert("insert", second)
        assert insert("insert or ignore", second) == 1
        assert insert("insert", second, "on conflict do nothing") == 1
        assert db.execute("select id from outlog_events").fetchall() == [(first["id"],)]


SQLITE_REFUSED = {name: fields for name, fields in SQLITE_KEYS.items() if fields} | {
    "actor": {"actor_type": "nobody"},
    "payload": {"payload": "[]"},
    "length": {"event_type": "e" * 101},
    "null": {"actor_id": None},
}


@pytest.mark.parametrize(
    "verb", ["insert", "insert or abort", "insert or fail", "insert or ignore", "insert or replace"]
)
def test_e1_sqlite_a_refused_row_stays_out_whatever_the_insert_says(sqlite_store, verb):
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :], isolation_level=None)) as db:
        first = sqlite_row(**SQLITE_KEYS["event_id"], **SQLITE_KEYS["id"], **SQLITE_KEYS["sequence"])
        insert_sqlite(db, "insert", first)
        before = db.execute("select * from outlog_events").fetchall()
        for fields in SQLITE_REFUSED.values():
            with contextlib.nullcontext() if verb == "insert or ignore" else pytest.raises(sqlite3.IntegrityError):
                insert_sqlite(db, verb, sqlite_row(**fields))
            assert db.execute("select * from outlog_events").fetchall() == before, fields


def test_e1_sqlite_or_fail_says_no_and_keeps_the_first_row(sqlite_store, outlog):
    """As docs/sql.md has it: the row and its messages are whole, the rest of the statement is not there, and a rollback
    undoes it."""
    outlog.run(
        "apply",
        "-f",
        "-",
        input=json.dumps({"destinations": {"one": {"type": "null"}}, "routes": [{"on": "*", "to": "one"}]}),
    )
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :], isolation_level=None)) as db:
        (last,) = db.execute("select max(event_id) from outlog_events").fetchone()
        rows = [sqlite_row(event_id=last + n, id=f"00000000-0000-4000-8000-{n:012x}", aggregate_seq=n) for n in (1, 2)]
        for verb, kept in (("abort", 0), ("rollback", 0), ("fail", 1)):
            with pytest.raises(sqlite3.IntegrityError, match="say_insert_without_or"):
                insert_sqlite(db, f"insert or {verb}", *rows)
            assert db.execute("select id from outlog_events where event_id > ?", [last]).fetchall() == [
                (row["id"],) for row in rows[:kept]
            ]
        assert db.execute("select causation_id from outlog_outbox").fetchall() == [(rows[0]["id"],)]
        db.execute("begin")
        with pytest.raises(sqlite3.IntegrityError, match="say_insert_without_or"):
            insert_sqlite(db, "insert or fail", rows[1])
        db.execute("rollback")
        assert db.execute("select max(event_id) from outlog_events").fetchone() == (last + 1,)


def insert_sqlite(db, verb, *rows):
    db.execute(
        f"{verb} into outlog_events ({', '.join(rows[0])}) values "
        + ", ".join(f"({', '.join('?' * len(row))})" for row in rows),
        [value for row in rows for value in row.values()],
    )


class _Lines:
    """What copy_expert reads from."""

    def __init__(self, text):
        self.text = text

    def read(self, _size):
        text, self.text = self.text, ""
        return text
