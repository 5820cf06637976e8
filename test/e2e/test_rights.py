"""R1 and R5: what a login with one of our roles can reach in PostgreSQL. The functions run with the rights of the
schema's owner, so nothing that a caller defines may run inside them."""
import contextlib
import itertools
import uuid

import psycopg2
import pytest

from lib.cli import Outlog

OWNER, PASSWORD = "rights_owner", "rights"
GROUPS = ("outlog_append", "outlog_read", "outlog_relay", "outlog_admin", "outlog_tenant")
POLYMORPHIC = {"anyelement", "anyarray", "anynonarray", "anyenum", "anyrange", "anymultirange", "any"} | {
    f"anycompatible{kind}" for kind in ("", "array", "nonarray", "range", "multirange")
}


class Login:
    """A session of one role; each statement is a transaction of its own."""

    def __init__(self, url):
        self.connection = psycopg2.connect(url)
        self.connection.autocommit = True

    def run(self, sql, *args):
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else None

    def refused(self, sql, *args):
        """The error that the statement fails with."""
        with pytest.raises(psycopg2.Error) as error:
            self.run(sql, *args)
        return error.value

    def try_run(self, sql, *args):
        with contextlib.suppress(psycopg2.Error):
            return self.run(sql, *args)


@pytest.fixture
def login(postgres, template):
    """Opens sessions on a store that belongs to a plain role: login("outlog_append")."""
    database, made, open_ones = "rights", [OWNER], []
    postgres.sql(f"create role {OWNER} login password '{PASSWORD}'")
    postgres.sql(f"create database {database} owner {OWNER}")
    Outlog(postgres.url(database, OWNER, PASSWORD)).run("init")

    def connect(group=None):
        name = f"rights_{group}" if group else OWNER
        if name not in made:
            member = f"in role {group}" if group in GROUPS else ""
            postgres.sql(f"create role {name} login password '{PASSWORD}' {member}")
            postgres.sql(f"grant create on database {database} to {name}")
            made.append(name)
        open_ones.append(Login(postgres.url(database, name, PASSWORD)))
        open_ones[-1].url = postgres.url(database, name, PASSWORD)
        return open_ones[-1]

    yield connect
    for session in open_ones:
        session.connection.close()
    postgres.drop(database)
    for name in made:
        postgres.sql(f"drop role {name}")


FUNCTIONS = """
    select p.oid, p.proname, p.prosecdef, p.proconfig, p.prokind, p.prorettype = 'trigger'::regtype,
           coalesce((select array_agg(t.typname::text order by a.n) from unnest(p.proargtypes) with ordinality a(type, n)
                       join pg_type t on t.oid = a.type), '{}'),
           coalesce((select array_agg(format_type(a.type, null) order by a.n)
                       from unnest(p.proargtypes) with ordinality a(type, n)), '{}'),
           p.proargnames[1:p.pronargs]
      from pg_proc p where p.pronamespace = 'outlog'::regnamespace"""


def test_r1_a_privileged_function_takes_concrete_types_and_has_its_search_path(login):
    functions = login().run(FUNCTIONS)
    definers = [f for f in functions if f[2]]
    assert len(definers) > 40
    for _, name, _, settings, _, _, types, *_ in definers:
        assert not POLYMORPHIC & set(types), name
        assert "search_path=pg_catalog, pg_temp" in (settings or []), name
    foreign = login().run(
        "select p.proname, format_type(t.oid, null) from pg_proc p, unnest(p.proargtypes || p.prorettype) a(type) "
        "  join pg_type t on t.oid = a.type "
        " where p.pronamespace = 'outlog'::regnamespace and p.prosecdef "
        "   and t.typnamespace not in ('pg_catalog'::regnamespace, 'outlog'::regnamespace)"
    )
    assert foreign == []


def test_r1_what_a_privileged_statement_touches_is_the_owners(login):
    """A trigger, a rule or a column type of somebody else would run with the rights of who writes the table."""
    owner = login()
    for group in GROUPS:
        login(group)
        assert not owner.run(
            "select c.relname from pg_class c where c.relnamespace = 'outlog'::regnamespace and c.relkind in ('r', 'v') "
            f"  and has_table_privilege('{group}', c.oid, 'trigger, references, truncate')"
        )
        assert owner.run(f"select has_schema_privilege('{group}', 'outlog', 'create')") == [(False,)]
    assert not owner.run(
        "select c.relname, a.attname from pg_attribute a join pg_class c on c.oid = a.attrelid "
        "  join pg_type t on t.oid = a.atttypid where c.relnamespace = 'outlog'::regnamespace and a.attnum > 0 "
        "   and t.typnamespace not in ('pg_catalog'::regnamespace, 'outlog'::regnamespace)"
    )
    # Defaults, checks, policies, views and index expressions were read when they were made.
    assert not owner.run(
        "select d.classid::regclass, d.objid from pg_depend d "
        "  join pg_proc p on d.refclassid = 'pg_proc'::regclass and p.oid = d.refobjid "
        " where d.classid in ('pg_attrdef'::regclass, 'pg_constraint'::regclass, 'pg_policy'::regclass, "
        "       'pg_rewrite'::regclass, 'pg_trigger'::regclass) "
        "   and p.pronamespace not in ('pg_catalog'::regnamespace, 'outlog'::regnamespace) "
        "   and p.pronamespace <> 'information_schema'::regnamespace"
    )


# What a hostile login brings along. Each piece says as whom it ran.
SPY = "raise warning 'ran as %', current_user;"
HOSTILE_TYPES = {
    "row": ("create type {s}.row_type as (a text)", "row('1')::{s}.row_type"),
    "enum": ("create type {s}.enum_type as enum ('1')", "'1'::{s}.enum_type"),
    "domain": ("create domain {s}.domain_type as text check ({s}.spy(value) is not null)", "'1'::{s}.domain_type"),
    "range": ("create type {s}.range_type as range (subtype = integer)", "'[1,2)'::{s}.range_type"),
}
HOSTILE_OPERATORS = ("=", "<>", "||", "->", "->>", "#>>", "~", "!~", "+", "<", ">", "<=", ">=", "&", "|", "<<")
HOSTILE_FUNCTIONS = (
    "lower",
    "octet_length",
    "length",
    "json_typeof",
    "to_json",
    "format",
    "coalesce_all",
    "left",
    "md5",
)


def arm(session, schema):
    """Types with casts, operators, functions and tables that are the caller's own, in one schema."""
    run, attempt = session.run, session.try_run
    run(f"create function {schema}.spy(text) returns text language plpgsql as $$ begin {SPY} return $1; end $$")
    for what, (make, _) in HOSTILE_TYPES.items():
        run(make.format(s=schema))
        if what == "domain":
            continue
        own = f"{schema}.{what}_type"
        for to, value in (("text", "'1'"), ("uuid", "gen_random_uuid()"), ("bigint", "1"), ("json", "'{}'")):
            run(
                f"create function {schema}.to_{to}({own}) returns {to} language plpgsql as "
                f"$$ begin {SPY} return {value}; end $$"
            )
            how = "as implicit" if to == "text" and what == "enum" else ""
            run(f"create cast ({own} as {to}) with function {schema}.to_{to}({own}) {how}")
    pairs = itertools.product(HOSTILE_OPERATORS, ("text", "json", "bigint", "character varying"))
    for n, (name, type_) in enumerate(pairs):
        function = f"{schema}.op{n}"
        result = "boolean" if name in ("=", "<>", "~", "!~", "<", ">", "<=", ">=") else type_
        run(
            f"create function {function}({type_}, {type_}) returns {result} language plpgsql as "
            f"$$ begin {SPY} return null; end $$"
        )
        attempt(f"create operator {schema}.{name} (leftarg = {type_}, rightarg = {type_}, function = {function})")
    for name, type_ in itertools.product(HOSTILE_FUNCTIONS, ("text", "json", "character varying")):
        run(
            f"create function {schema}.{name}({type_}) returns text language plpgsql as "
            f"$$ begin {SPY} return null; end $$"
        )
    for table in ("events", "heads", "outbox", "runs", "effects", "settings", "secret_rules", "pg_class", "pg_locks"):
        attempt(f"create table {schema}.{table} (a {schema}.row_type)")


def hostile_values(schema):
    for what, (_, value) in HOSTILE_TYPES.items():
        yield what, value.format(s=schema)


def calls(functions, schema):
    """Every function with one argument at a time, and with all polymorphic ones, of a hostile type."""
    for _, name, _, _, kind, is_trigger, plain, types, names in functions:
        if kind != "f" or is_trigger or name.startswith("projection_aside") or name == "wait_projection":
            continue
        given = [f"null::{type_}" if p not in POLYMORPHIC else "null" for p, type_ in zip(plain, types)]
        usual = {"text": "'a'", "json": '\'{"a": "b"}\'', "bigint": "1", "integer": "1"}
        for _, value in hostile_values(schema):
            for n in range(len(types)):
                for others in (given, [usual.get(t, g) for t, g in zip(types, given)]):
                    yield f"select outlog.{name}({', '.join(others[:n] + [value] + others[n + 1 :])})"
            if POLYMORPHIC & set(plain):
                mixed = [value if p in POLYMORPHIC else g for p, g in zip(plain, given)]
                yield f"select outlog.{name}({', '.join(mixed)})"


NAMED = [
    "outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => 'b', event_type => 't.made', payload => {p}{m})",
    "outlog.enqueue(destination => 'd', event_type => 't', payload => {p}{m})",
    "outlog.request_effect(effect_type => 'T', destination => 'd', effect_spec => {p}{m})",
    "outlog.correct_step(step_id => '1', output_result => {p}{m})",
    "outlog.complete_step(step_id => '1', output_result => {p}{m})",
    "outlog.receive_signal(org_id => 'acme', signal_type => 'S', payload => {p}{m})",
    "outlog.call_tool(step_id => '1', tool_name => 't', input => {p}{m})",
    "outlog.end_tool(tool_call_id => '1', result => {p}{m})",
    "outlog.checkpoint_run(run_id => '1', checkpoint_data => {p}{m})",
]
OWN_ID = {"outlog.append": "id", "outlog.enqueue": "event_id"}


def named_calls(schema):
    for call in NAMED:
        name = OWN_ID.get(call.partition("(")[0])
        for _, value in hostile_values(schema):
            for own, cause in itertools.product(([value, None] if name else [None]), (value, "1", None)):
                more = (f", {name} => {own}" if own else "") + (f", causation_id => {cause}" if cause else "")
                for payload in ("'{}'", "'{}'::jsonb", value):
                    yield "select " + call.format(p=payload, m=more)


PATHS = ("{s}, pg_catalog, outlog, public", "pg_temp, {s}, pg_catalog", "pg_catalog, outlog")


@pytest.mark.parametrize("group", GROUPS)
def test_r1_nothing_that_a_caller_defines_runs_as_the_owner(login, group):
    """A cast of the caller's own ran inside outlog.append() with the rights of the schema's owner."""
    functions = login().run(FUNCTIONS)
    session = login(group)
    session.run("create schema evil")
    ran, tried = set(), 0
    for schema in ("evil", "pg_temp"):
        arm(session, schema)
        statements = [*calls(functions, schema), *named_calls(schema)]
        for path in PATHS[: 2 if schema == "evil" else 1]:
            session.run("set search_path = " + path.format(s=schema))
            for statement in statements:
                del session.connection.notices[:]
                session.try_run(statement)
                tried += 1
                who = {note for note in session.connection.notices if "ran as" in note}
                assert not any(OWNER in note for note in who), statement
                ran |= who
        session.run("reset search_path")
    assert tried > 1000 and len(ran) == 1  # the traps work: they ran, as the caller
    session.run("drop schema evil cascade")


def test_r1_the_audits_own_attack_gets_nothing(login):
    session = login("outlog_append")
    session.run("create type pg_temp.t as (a int)")
    session.run(
        "create function pg_temp.c(pg_temp.t) returns text language plpgsql as $$ begin "
        "execute format('grant %I to %I', current_user, session_user); return gen_random_uuid()::text; end $$"
    )
    session.run("create cast (pg_temp.t as text) with function pg_temp.c(pg_temp.t)")
    for argument in ("id", "causation_id"):
        session.try_run(
            "select outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => 'b', event_type => 't.made', "
            f"payload => '{{}}', {argument} => row(1)::pg_temp.t)"
        )
    assert session.run(f"select pg_has_role(session_user, '{OWNER}', 'member')") == [(False,)]


# I6: arguments as drivers send them


DOCUMENTS = ("{0}", "{0}::text", "{0}::varchar", "{0}::json", "{0}::jsonb")
CAUSES = (
    None,
    "'{uuid}'",
    "'{uuid}'::text",
    "'{uuid}'::varchar",
    "'{uuid}'::uuid",
    "{n}",
    "{n}::bigint",
    "{n}::smallint",
    "'{n}'",
)
IDS = (None, "'{id}'", "'{id}'::text", "'{id}'::varchar", "'{id}'::uuid")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_i6_an_event_is_appended_with_arguments_of_the_types_that_drivers_send(login, document):
    session = login("outlog_append")
    append = (
        "select event_id, id::text from outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => 'b', "
        "event_type => 't.made', payload => {0}{1})"
    )
    n, first = session.run(append.format("'{}'", ""))[0]
    for cause, own, has_metadata in itertools.product(CAUSES, IDS, (False, True)):
        id_ = str(uuid.uuid4())
        more = f", causation_id => {cause.format(uuid=first, n=n)}" if cause else ""
        more += f", id => {own.format(id=id_)}" if own else ""
        more += ", metadata => " + document.format("'{\"m\": 1}'") if has_metadata else ""
        made = session.run(append.format(document.format("'{\"a\": 1}'"), more))[0]
        stored = session.run(
            "select id::text, causation_id::text, payload::text, metadata::text from outlog.events where event_id = %s",
            made[0],
        )[0]
        assert stored == (
            id_ if own else made[1],
            first if cause else None,
            '{"a": 1}',
            '{"m": 1}' if has_metadata else None,
        ), more
    positional = document.format("'{}'")
    session.run(f"select outlog.append('acme', 'a', 'b', 't.made', {positional})")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_i6_a_message_an_effect_and_a_run_take_them_too(login, document):
    session, owner = login("outlog_append"), login()
    said = document.format("'{\"a\": 1}'")
    n, first = session.run(
        "select event_id, id::text from outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => 'b', "
        "event_type => 't.made', payload => '{}')"
    )[0]
    for cause, own in itertools.product(CAUSES, IDS):
        id_ = str(uuid.uuid4())
        more = f", causation_id => {cause.format(uuid=first, n=n)}" if cause else ""
        own = f", event_id => {own.format(id=id_)}" if own else ""
        made = session.run(
            f"select event_id::text from outlog.enqueue(destination => 'd', event_type => 't', payload => {said}, "
            f"headers => {said}, metadata => {said}{more}{own})"
        )[0][0]
        stored = owner.run(
            "select causation_id::text, payload, headers::text from outlog.outbox where event_id = %s", made
        )
        assert stored == [(first if cause else None, '{"a": 1}', '{"a": 1}')] and (not own or made == id_)
        session.run(
            "select outlog.request_effect(effect_type => 'T', destination => 'd', org_id => 'acme', "
            f"effect_spec => {said}{more})"
        )
    session.run("select outlog.enqueue(destination => 'd', event_type => 't', payload_bytes => 'x'::bytea)")
    session.run(f"select outlog.receive_signal(org_id => 'acme', signal_type => 'S', payload => {said})")
    session.run("select outlog.receive_signal(org_id => 'acme', signal_type => 'S')")
    run = session.run("select run_id from outlog.start_run('acme', 'R', 'v')")[0][0]
    for cause in CAUSES:
        step = session.run("select step_id from outlog.start_step(%s, 'S')", run)[0][0]
        tool = session.run(f"select tool_call_id from outlog.call_tool(%s, 't', input => {said})", step)[0][0]
        session.run(f"select outlog.end_tool(%s, result => {said})", tool)
        session.run(f"select outlog.complete_step(step_id => %s, output_result => {said})", step)
        more = f", causation_id => {cause.format(uuid=first, n=n)}" if cause else ""
        assert session.run(
            f"select output_result::text from outlog.correct_step(step_id => %s, output_result => {said}{more})", step
        ) == [('{"a": 1}',)]
    session.run(f"select outlog.checkpoint_run(run_id => %s, checkpoint_data => {said})", run)


def test_i6_a_statement_whose_parameters_have_no_types_is_prepared(login):
    """asyncpg, and JDBC with stringtype=unspecified: the server decides."""
    session = login("outlog_append")
    session.run(
        "prepare add as select id from outlog.append(org_id => $1, aggregate_type => $2, aggregate_id => $3, "
        "event_type => $4, payload => $5, causation_id => $6, id => $7, metadata => $8)"
    )
    session.run("execute add('acme', 'a', 'b', 't.made', '{}', null, %s, '{}')", str(uuid.uuid4()))
    session.run(
        "prepare send as select event_id from outlog.enqueue(destination => $1, event_type => $2, payload => $3, "
        "headers => $4, causation_id => $5, event_id => $6)"
    )
    session.run("execute send('d', 't', '{}', '{}', '1', %s)", str(uuid.uuid4()))
    error = session.refused(
        "select outlog.enqueue(destination => 'd', event_type => 't', payload => '1', event_id => 'x')"
    )
    assert error.diag.message_primary == "invalid_field: event_id must be a UUID"


# R5: least privilege


APPEND = (
    "select * from outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => %s, event_type => 't.made', "
    "payload => '{}')"
)
# What an application's programs call: from SQL, and the C library for them.
APPLICATION = {
    "append", "append_checked", "lock_head", "find_event", "uuid7", "normal_json", "request_hash", "derived_key",
    "idempotency_claim", "idempotency_get", "idempotency_begin", "idempotency_end", "settled", "read", "fail", "rfc3339",
    "enqueue", "message_with_key", "request_effect", "run_command", "run_of_effect", "receive_signal", "start_run",
    "start_step", "complete_step", "fail_step", "skip_step", "retry_step", "correct_step", "call_tool", "end_tool",
    "checkpoint_run", "end_run", "wait_projection", "lanes_behind", "note_log", "is_server", "log_limits",
    "check_cursor", "cursors_beyond",
}  # fmt: skip
READER = {
    "settled", "read", "fail", "rfc3339", "wait_projection", "lanes_behind", "consumer_create", "consumer_cursor",
    "consumer_commit", "note_log", "is_server", "log_limits", "check_cursor", "cursors_beyond",
}  # fmt: skip


def test_r5_applications_call_what_is_meant_for_them_and_nothing_inside(login):
    owner = login()
    for group, meant in (("outlog_append", APPLICATION), ("outlog_read", READER)):
        may = owner.run(
            "select distinct proname from pg_proc where pronamespace = 'outlog'::regnamespace "
            f"and has_function_privilege('{group}', oid, 'execute')"
        )
        assert {name for name, in may} == meant, group


BATCH = {
    "head_org_key": "array['acme']",
    "head_aggregate_type": "array['a']",
    "head_aggregate_id": "array['b']",
    "head_count": "array[1]::bigint[]",
    "head": "array[1]",
    "nth": "array[1]::bigint[]",
    "id": "array[gen_random_uuid()]",
    "org_id": "array['acme']",
    "aggregate_type": "array['a']",
    "aggregate_id": "array['b']",
    "event_type": "array['t.made']",
    "event_version": "array[1]",
    "actor_type": "array['system']",
    "actor_id": "array['s']",
    "request_id": "array['r']",
    "correlation_id": "array['c']",
    "payload": "array['{}']",
}
WRONG = {
    "a gap": ("misuse", {"head_count": "array[5]::bigint[]"}),
    "a number that is not the first": ("misuse", {"nth": "array[2]::bigint[]"}),
    "another org": ("misuse", {"org_id": "array['other']"}),
    "another aggregate": ("misuse", {"aggregate_id": "array['other']"}),
    "no head": ("misuse", {"head": "array[2]"}),
    "an unknown cause": ("unknown_causation", {"causation_id": "array[gen_random_uuid()]"}),
    "a cause of another org": (
        "unknown_causation",
        {"causation_id": "array(select id from outlog.events where org_id = 'theirs' limit 1)"},
    ),
    "a secret": ("secret_material", {"payload": 'array[\'{"k": "ghp_' + "a1B2" * 9 + "\"}']"}),
    "a type of outlog's own": ("invalid_field", {"event_type": "array['RUN_COMPLETED']"}),
    "a repeated key": ("invalid_json", {"payload": 'array[\'{"a":1,"a":2}\']'}),
    "no object": ("invalid_field", {"payload": "array['[]']"}),
}


def batch(**other):
    names = list(BATCH)[:8] + [name for name in (*list(BATCH)[8:], "causation_id") if name in {**BATCH, **other}]
    given = {**BATCH, **other}
    rest = ("idempotency_key", "causation_id", "app_id", "env_id", "visibility", "metadata", "expected_seq")
    said = [f"{name} => {given[name]}" for name in dict.fromkeys(names)]
    said += [f"{name} => null" for name in (*rest, "wait_ms") if name not in given]
    return f"select * from outlog.append_checked({', '.join(said)})"


def test_r5_the_librarys_door_for_applications_checks_what_the_library_checks(login):
    """append_batch let an application make gaps, mix orgs and take unknown causes."""
    session, owner = login("outlog_append"), login()
    owner.run(APPEND.replace("'acme'", "'theirs'"), "x")
    assert session.run(batch())[0][1] == 1
    for what, (code, other) in WRONG.items():
        assert session.refused(batch(**other)).diag.message_primary.partition(":")[0] == code, what
    assert session.run(batch())[0][1] == 2
    for name in ("append_batch", "append_one"):
        assert session.refused(batch().replace("append_checked", name)).pgcode in ("42501", "42883")


def test_r5_the_command_line_appends_with_an_applications_rights(login):
    cli = Outlog(login("outlog_append").url)
    first = cli.run(
        "append", "--org", "acme", "--aggregate", "a/b", "--type", "t.made", "--data", "{}", "--json"
    ).json()[0]
    more = ("--causation", first["id"], "--id", str(uuid.uuid4()), "--key", "k")
    again = cli.run(
        "append", "--org", "acme", "--aggregate", "a/b", "--type", "t.made", "--data", "{}", "--json", *more
    )
    assert again.json()[0]["aggregate_seq"] == 2
    lines = "".join(
        '{"aggregate_type":"a","aggregate_id":"%d","event_type":"t.made","payload":{}}\n' % n for n in range(50)
    )
    cli.run("append", "--org", "acme", "--ndjson", "-", input=lines)
    assert login().run("select count(*) from outlog.events") == [(52,)]


def test_r5_a_reader_moves_cursors_forward_and_not_past_what_is_settled(login):
    reader, owner = login("outlog_read"), login()
    for name in "abc":
        owner.run(APPEND, name)
    assert reader.run("select outlog.consumer_create('mail')") == [(True,)]
    assert reader.run("select outlog.consumer_create('mail')") == [(False,)]
    for statement in (
        "update outlog.consumers set cursor_event_id = 1000000",
        "insert into outlog.consumers (name) values ('x')",
        "delete from outlog.consumers",
    ):
        assert reader.refused(statement).pgcode == "42501"
    assert "beyond_settled" in str(reader.refused("select outlog.consumer_commit('mail', 4)"))
    assert "beyond_settled" in str(reader.refused("select outlog.consumer_create('later', '{}', 4)"))
    assert reader.run("select outlog.consumer_commit('mail', 2)") == [(True,)]
    assert reader.run("select outlog.consumer_commit('mail', 1)") == [(False,)]
    assert reader.run("select outlog.consumer_cursor('mail')") == [(2,)]
    assert "not_found" in str(reader.refused("select outlog.consumer_cursor('nobody')"))
    # An open transaction holds back the commit too.
    writer = login()
    writer.run("begin")
    writer.run(APPEND, "d")
    owner.run(APPEND, "e")
    assert "beyond_settled" in str(reader.refused("select outlog.consumer_commit('mail', 5)"))
    writer.run("commit")
    assert reader.run("select outlog.consumer_commit('mail', 5)") == [(True,)]


def test_r5_no_setting_lets_anybody_delete_a_message_that_is_open(postgres, postgres_store, outlog):
    root = Login(postgres_store)
    for n in range(3):
        outlog.run("send", "--to", "d", "--type", "t", "--data", str(n))
    root.run("set outlog.pruning = 'on'")
    for table in ("outbox", "lanes"):
        assert "read_only" in str(root.refused(f"delete from outlog.{table}"))
    outlog.run("apply", "-f", "-", input="destinations: {d: {type: 'null'}}\n")
    outlog.run("relay", "--until-idle", "--quiet")
    assert root.run("select distinct state from outlog.outbox_state") == [("PUBLISHED",)]
    outlog.run("send", "--to", "e", "--type", "t", "--data", "1")
    outlog.run("relay", "--until-idle", "--quiet")
    dead = root.run("select event_id from outlog.outbox where destination = 'e'")[0][0]
    outlog.run("kill", dead, check=False)
    for table in ("outbox", "batches", "parked"):
        if root.run(f"select count(*) from outlog.{table}") != [(0,)]:
            assert "read_only" in str(root.refused(f"delete from outlog.{table}")), table
    assert root.run("select count(*) from outlog.outbox") == [(4,)]
    root.connection.close()


POSITION = "28492::bigint << 48 | "


def test_r5_a_strangers_lock_holds_back_no_reader_and_is_named(login):
    """Any login froze all readers with pg_advisory_lock(28492::bigint << 48)."""
    stranger, owner, application = login("stranger"), login(), login("outlog_append")
    owner.run(APPEND, "a")
    stranger.run(f"select pg_advisory_lock_shared({POSITION}0)")
    application.run(f"select pg_advisory_lock({POSITION}7)")
    assert owner.run("select outlog.settled()") == [(1,)]
    report = Outlog(owner.url).run("doctor", check=False).stdout
    assert "rights_stranger" in report and "rights_outlog_append" in report and "ignored" in report
    # Inside a transaction that reads the log, too.
    stranger.run("begin")
    stranger.try_run("select count(*) from outlog.events")
    stranger.run("rollback")
    assert owner.run("select outlog.settled()") == [(1,)]


def test_r5_a_strangers_exclusive_lock_stops_no_writer(login):
    stranger, owner = login("stranger"), login()
    for name in "abc":
        owner.run(APPEND, name)
    stranger.run(f"select pg_advisory_lock({POSITION}n) from generate_series(3, 12) n")
    owner.run("set lock_timeout = '5s'")
    owner.run("begin")
    owner.run(APPEND, "d")
    reader = login("outlog_read")
    assert reader.run("select outlog.settled()")[0][0] <= 3
    owner.run("commit")
    assert reader.run("select outlog.settled()") == [(4,)]


def test_e6_a_writer_is_seen_in_a_savepoint_and_when_it_is_prepared(own_postgres):
    """The two locks of a writer live and end together."""
    own_postgres.stop()
    with open(own_postgres.data / "postgresql.auto.conf", "a") as conf:
        conf.write("max_prepared_transactions = 5\n")
    own_postgres.start()
    url = own_postgres.create("prepared")
    Outlog(url).run("init")
    writer, reader = Login(url), Login(url)
    writer.run(APPEND, "a")
    writer.run("begin")
    writer.run("savepoint s")
    writer.run(APPEND, "b")
    reader.run(APPEND, "c")
    assert reader.run("select outlog.settled()") == [(1,)]
    writer.run("rollback to s")
    assert reader.run("select outlog.settled()") == [(3,)]
    writer.run(APPEND, "d")
    writer.run("prepare transaction 'p'")
    reader.run(APPEND, "e")
    assert reader.run("select outlog.settled()") == [(3,)]
    reader.connection.close()
    writer.connection.close()
    own_postgres.restart("kill")
    reader = Login(url)
    assert reader.run("select outlog.settled()") == [(3,)]
    reader.run("commit prepared 'p'")
    assert reader.run("select outlog.settled()") == [(5,)]
    reader.connection.close()
