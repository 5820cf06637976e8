"""E15: every filter of E7, E8 and T3 has an index, and a read costs what it returns, however long the log.

The statements are the product's own: scripts/embed_sql.py renders them from sql/ as the library sends
them, and PostgreSQL plans them with the library's session settings, on a log that was never analyzed
and on one that was. What the library prepares is executed often enough to get its generic plan; what it
sends whole each time (@replan) is planned for its values.

M1: what the console and metrics ask each few seconds is bounded too, however much a relay has given up.
"""
import contextlib
import json
import re
import sqlite3
import sys

import psycopg2
import pytest

from lib.cli import ROOT, Outlog

sys.path.insert(0, str(ROOT / "scripts"))
import embed_sql  # noqa: E402
import fields  # noqa: E402

EVENTS = 200_000
LIMIT = 100
MIDDLE = EVENTS // 2

# Event n: one a second; 50 orgs, 1 in 100 without; 20 types; 10 events an aggregate and a
# correlation; app, env and visibility on every second one; a few are rare. Every tenth event was
# caused by the tenth before it: one long chain.
ROWS = {
    "id": "('00000000-0000-4000-8000-' || {hex}){uuid}",
    "occurred_at": "{time}",
    "org_id": "case when n % 100 = 0 then null when n % 20000 = 1 then 'tiny' " "else 'org-' || (n % 50) end",
    "aggregate_type": "'order'",
    "aggregate_id": "'o-' || (n / 10)",
    "aggregate_seq": "n % 10 + 1",
    "event_type": "case when n % 50000 = 3 then 'rare.thing' else 'kind.' || (n % 20) end",
    "actor_type": "'system'",
    "actor_id": "'system'",
    "request_id": "'r-' || n",
    "correlation_id": "'c-' || (n / 10)",
    "causation_id": "case when n % 10 = 0 and n > 10 then " "('00000000-0000-4000-8000-' || {hex_of_cause}){uuid} end",
    "app_id": "case when n % 2 = 0 then 'app-' || (n % 7) end",
    "env_id": "case when n % 2 = 0 then 'env-' || (n % 3) end",
    "visibility": "case when n % 2 = 0 then 'v-' || (n % 5) end",
    "payload": "'{{\"n\":' || n || '}}'",
}
FIRST = "2026-01-01T00:00:00.000000Z"


def at(n):
    """When event n occurred, as the library writes it."""
    day, second = divmod(n, 86400)
    hour, second = divmod(second, 3600)
    return f"2026-01-{day + 1:02d}T{hour:02d}:{second // 60:02d}:{second % 60:02d}.000000Z"


def uuid_of(n):
    return f"00000000-0000-4000-8000-{n:012x}"


@pytest.fixture(scope="module")
def postgres_log(postgres, template):
    """The URL of a long log that was never analyzed."""
    url = postgres.create("plans", template)
    words = {
        "hex": "lpad(to_hex(n), 12, '0')",
        "hex_of_cause": "lpad(to_hex(n - 10), 12, '0')",
        "uuid": "::uuid",
        "time": f"'{FIRST}'::timestamptz + n * interval '1 second'",
    }
    row = {name: text.format(**words) for name, text in ROWS.items()}
    row["payload"] = f"({row['payload']})::json"
    with contextlib.closing(psycopg2.connect(url)) as db, db.cursor() as cursor:
        cursor.execute("alter table outlog.events set (autovacuum_enabled = off)")
        for half in (0, 1):  # the log grew; it was not loaded at once
            cursor.execute(
                f"insert into outlog.events ({', '.join(row)}) select {', '.join(row.values())} "
                f"from generate_series({half * MIDDLE + 1}, {(half + 1) * MIDDLE}) n"
            )
        db.commit()
    yield url
    postgres.drop("plans")


@pytest.fixture(scope="module")
def sqlite_log(tmp_path_factory):
    path = tmp_path_factory.mktemp("plans") / "outlog.db"
    Outlog(f"sqlite:{path}").run("init")
    words = {
        "hex": "printf('%012x', n)",
        "hex_of_cause": "printf('%012x', n - 10)",
        "uuid": "",
        "time": f"strftime('%Y-%m-%dT%H:%M:%S.000000Z', '{FIRST}', n || ' seconds')",
    }
    row = {name: text.format(**words) for name, text in ROWS.items()}
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("pragma synchronous = off")
        db.execute(
            f"insert into outlog_events ({', '.join(row)}) with recursive s(n) as (select 1 union "
            f"all select n + 1 from s where n < {EVENTS}) select {', '.join(row.values())} from s"
        )
        db.commit()
    return path


# Statements as the library sends them


def query_of(dialect, name):
    return embed_sql.read_queries(
        fields.Schema(ROOT / "sql" / "schema"), dialect, ROOT / "sql" / "queries", ROOT / "sql" / dialect / "queries"
    )[name]


def render(dialect, name, given):
    """The text for these parameters, and the values it binds, in order."""
    query = query_of(dialect, name)
    text, bound = "", []
    for piece, param, when in query.pieces(dialect):
        if when and when not in given:
            continue
        text += piece
        if param in query.literal:
            text += str(given[param])
        elif param:
            if param not in bound:
                bound.append(param)
            text += f"{'$' if dialect == 'postgres' else '?'}{bound.index(param) + 1}"
    return text, [given[param] for param in bound]


def session_settings():
    """What the library sets on each of its sessions."""
    source = (ROOT / "src" / "store" / "postgres" / "conn.c").read_text()
    literals = re.search(r"planner_settings\[\] =\s*((?:\"[^\n]*\"\s*)+);", source)[1]
    return "".join(re.findall(r'"(.*)"', literals))


def window(first, end):
    return {"after": first - 1, "upto": end, "limit": LIMIT}


PAGE = {"after": 0, "upto": EVENTS, "limit": LIMIT}
DEEP = {"after": MIDDLE, "upto": EVENTS, "limit": LIMIT}

# name: (query, parameters, rows it returns)
READS = {
    "everything": ("events_read", PAGE, LIMIT),
    "everything, deep": ("events_read", DEEP, LIMIT),
    "everything, a wide page": ("events_read", {**PAGE, "limit": 10000}, 10000),
    "the end": ("events_read", {**PAGE, "after": EVENTS - 5}, 5),
    "org": ("events_read", {**PAGE, "org_id": "org-7"}, LIMIT),
    "org, deep": ("events_read", {**DEEP, "org_id": "org-7"}, LIMIT),
    "org, tiny": ("events_read", {**PAGE, "org_id": "tiny"}, 10),
    "org, none": ("events_read", {**PAGE, "org_id": "nobody"}, 0),
    "infrastructure": ("events_read", {**PAGE, "infrastructure": 1}, LIMIT),
    "type": ("events_read", {**PAGE, "event_type": "kind.4"}, LIMIT),
    "type, deep": ("events_read", {**DEEP, "event_type": "kind.4"}, LIMIT),
    "type, rare": ("events_read", {**PAGE, "event_type": "rare.thing"}, 4),
    "aggregate": ("events_read", {**PAGE, "org_key": "org-7", "aggregate_type": "order", "aggregate_id": "o-1230"}, 1),
    "aggregate, infrastructure": (
        "events_read",
        {**PAGE, "org_key": "", "aggregate_type": "order", "aggregate_id": "o-1230"},
        1,
    ),
    "aggregate of any org": ("events_read", {**PAGE, "aggregate_type": "order", "aggregate_id": "o-1230"}, 10),
    "correlation": ("events_read", {**PAGE, "correlation_id": "c-1230"}, 10),
    "correlation in an org": ("events_read", {**PAGE, "org_key": "org-7", "correlation_id": "c-1230"}, 1),
    "app": ("events_read", {**PAGE, "app_id": "app-3"}, LIMIT),
    "app, none": ("events_read", {**PAGE, "app_id": "app-99"}, 0),
    "env": ("events_read", {**PAGE, "env_id": "env-1"}, LIMIT),
    "visibility": ("events_read", {**PAGE, "visibility": "v-2"}, LIMIT),
    # A time window is first turned into a range of event_ids; the read then stays inside it.
    "window": ("events_window", {"since": at(MIDDLE), "until": at(MIDDLE + 50)}, 1),
    "window since": ("events_window", {"since": at(EVENTS - 50)}, 1),
    "window until": ("events_window", {"until": at(50)}, 1),
    "window after the end": ("events_window", {"since": at(EVENTS + 10)}, 1),
    "org and time": (
        "events_read",
        {**window(MIDDLE, MIDDLE + 2500), "org_id": "org-7", "since": at(MIDDLE), "until": at(MIDDLE + 2500)},
        50,
    ),
    "org since": ("events_read", {**window(EVENTS - 2500, EVENTS), "org_id": "org-7", "since": at(EVENTS - 2500)}, 50),
    "time": ("events_read", {**window(MIDDLE, MIDDLE + 50), "since": at(MIDDLE), "until": at(MIDDLE + 50)}, 50),
    "since": ("events_read", {**window(EVENTS - 50, EVENTS), "since": at(EVENTS - 50)}, 51),
    "event by id": ("event_get", {"id": uuid_of(MIDDLE)}, 1),
    "event by event_id": ("event_get", {"event_id": MIDDLE}, 1),
    "no such event": ("event_get", {"id": uuid_of(EVENTS * 2)}, 0),
    "cause": ("event_cause", {"id": uuid_of(MIDDLE)}, 1),
    "first with this id": ("event_first", {"id": uuid_of(MIDDLE)}, 1),
    "causality up": ("causality_up", {"id": uuid_of(500), "limit": 10000}, 50),
    "causality down": ("causality_down", {"id": uuid_of(EVENTS - 500), "limit": 10000}, 51),
    "event of a session": ("session_event", {"org_id": "org-7", "session_key": "nobody", "seq": 1}, 0),
    "settled": ("events_settled", {}, 1),
}


def turned(given):
    """The same stretch, read from its other end."""
    return {
        **{name: value for name, value in given.items() if name not in ("after", "upto")},
        "before": given["upto"] + 1,
        "from": given["after"],
    }


READS |= {
    f"{what}, backwards": ("events_read_back", turned(given), count)
    for what, (query, given, count) in READS.items()
    if query == "events_read"
}

# The same where the store counts bytes: PostgreSQL alone does.
SHORT = {
    f"{what}, a short page": (f"{query}_short", {**given, "max_bytes": 1 << 40}, count)
    for what, (query, given, count) in READS.items()
    if query.startswith("events_read")
}

# PostgreSQL


def nodes(plan):
    yield plan
    for child in plan.get("Plans", ()):
        yield from nodes(child)


def touched(plan, table="events"):
    """How many rows of the log the plan looked at."""
    return sum(
        (node["Actual Rows"] + node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0))
        * node["Actual Loops"]
        for node in nodes(plan)
        if node.get("Relation Name") == table
    )


def explain(cursor, name, values):
    call = f"execute {name}"
    if values:
        call += "(" + cursor.mogrify(", ".join(["%s"] * len(values)), values).decode() + ")"
    cursor.execute(f"explain (analyze, buffers, timing off, format json) {call}")
    return cursor.fetchone()[0][0]["Plan"]


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
def test_e15_postgres_reads_cost_what_they_return(postgres_log, analyzed):
    wrong = []
    with contextlib.closing(psycopg2.connect(postgres_log)) as db, db.cursor() as cursor:
        db.autocommit = True
        if analyzed:
            cursor.execute("analyze outlog.events")
        cursor.execute(session_settings())
        for number, (what, (query, given, count)) in enumerate((READS | SHORT).items()):
            if query == "events_settled":
                continue
            text, values = render("postgres", query, given)
            known = query_of("postgres", query)
            is_prepared = not (known.is_replanned and known.optional & set(given))
            cursor.execute(f"prepare q{number} as {text}")
            for turn in range(12 if is_prepared else 1):  # after five it may become a generic plan
                plan = explain(cursor, f"q{number}", values)
                buffers = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
                scans = {node["Node Type"] for node in nodes(plan)}
                if plan["Actual Rows"] != count:
                    wrong.append(f"{what}: returned {plan['Actual Rows']}, not {count}")
                elif "Seq Scan" in scans or touched(plan) > 3 * count + 60 or buffers > 12 * count + 60:
                    wrong.append(
                        f"{what}, execution {turn + 1}: {touched(plan)} rows and {buffers} pages "
                        f"for {count}: {json.dumps(outline(plan))}"
                    )
                else:
                    continue
                break
    assert not wrong, "\n".join(wrong)


def test_e15_postgres_sql_interface_costs_what_it_returns(postgres_log):
    """In anybody's session, with the settings of anybody."""
    with contextlib.closing(psycopg2.connect(postgres_log)) as db, db.cursor() as cursor:
        for call, count in (
            ("outlog.settled()", 1),
            (f"outlog.read({MIDDLE}, {LIMIT})", LIMIT),
            (f"outlog.read({EVENTS - 5}, {LIMIT})", 5),
        ):
            cursor.execute(f"select * from {call}")  # the first call also reads the catalog
            cursor.execute(f"explain (analyze, buffers, timing off, format json) select * from {call}")
            plan = cursor.fetchone()[0][0]["Plan"]
            assert plan["Actual Rows"] == count
            assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= 12 * count + 60, call


def outline(plan):
    return [node["Node Type"] + " " + node.get("Index Name", "") + " " + node.get("Filter", "") for node in nodes(plan)]


# SQLite


@pytest.mark.parametrize("analyzed", [False, True], ids=["never analyzed", "analyzed"])
def test_e15_sqlite_reads_cost_what_they_return(sqlite_log, analyzed):
    wrong = []
    with contextlib.closing(sqlite3.connect(sqlite_log)) as db:
        if analyzed:
            db.execute("analyze")
        for what, (query, given, count) in READS.items():
            text, values = render("sqlite", query, given)
            plan = [row[3] for row in db.execute("explain query plan " + text, values)]
            rows, steps = steps_of(db, text, values)
            scans = [
                line
                for line in plan
                if line.startswith("SCAN")
                and not re.match(r"SCAN (chain|tree|CONSTANT ROW|outlog_events USING COVERING)", line)
            ]
            if len(rows) != count:
                wrong.append(f"{what}: returned {len(rows)}, not {count}")
            elif scans or steps * 100 > 300 * count + 2000:
                wrong.append(f"{what}: {steps * 100} steps for {count}: {plan}")
    assert not wrong, "\n".join(wrong)


# What the relay asks


def steps_of(db, text, values):
    """The rows of a statement, and how many steps SQLite took, in hundreds."""
    steps = 0

    def count_steps():
        nonlocal steps
        steps += 1

    db.set_progress_handler(count_steps, 100)
    rows = db.execute(text, values).fetchall()
    db.set_progress_handler(None, 0)
    return rows, steps


def test_l5_what_a_paused_destination_keeps_is_not_walked_for_the_others(store, outlog, tmp_path):
    """It may keep many keys, and the others are asked for what is due many times a second."""
    (tmp_path / "outlog.yaml").write_text(
        'destinations: {closed: {type: "null"}, other: {type: "null"}}\n'
        "routes: [{on: order.created, to: closed}, {on: order.created, to: other}]\n"
    )
    outlog.run("apply", "-f", tmp_path / "outlog.yaml")
    outlog.run("destinations", "pause", "closed")
    outlog.run(
        "append",
        "--ndjson",
        "-",
        input="".join(
            json.dumps(
                {
                    "org_id": "acme",
                    "aggregate_type": "order",
                    "aggregate_id": f"o-{n}",
                    "event_type": "order.created",
                    "payload": {},
                }
            )
            + "\n"
            for n in range(3000)
        ),
    )
    outlog.run("relay", "--until-idle", "--quiet")
    park_all = (
        "insert into {0}parked (lane, seq, attempts, state, available_at, updated_at, destination, ordering_key) "
        f"select lane, seq, 1, 'PENDING', '{at(0)}', '{at(0)}', destination, ordering_key from {{0}}outbox "
        "where destination = 'closed'"
    )  # each was tried once before it was paused: what was not waits at a side cursor
    capacity = json.dumps([{"destination": "other", "room": 10}])
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :])) as db:
            db.create_function("outlog_after", 1, lambda _: at(EVENTS) + "9")  # later than all
            db.execute(park_all.format("outlog_"))
            assert db.execute("select count(*) from outlog_parked where state = 'PENDING'").fetchone()[0] > 2500
            rows, steps = steps_of(db, *render("sqlite", "parked_due", {"lane": 0, "capacity": capacity}))
            assert rows == [] and steps < 20, steps
        return
    with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
        cursor.execute(park_all.format("outlog."))
        cursor.execute("select lane, count(*) from outlog.parked where state = 'PENDING' group by lane")
        lanes = cursor.fetchall()
        assert sum(count for _, count in lanes) > 2500
        cursor.execute("prepare due as " + render("postgres", "parked_due", {"lane": 0, "capacity": capacity})[0])
        for lane, _ in lanes:
            plan = explain(cursor, "due", render("postgres", "parked_due", {"lane": lane, "capacity": capacity})[1])
            assert plan["Actual Rows"] == 0 and touched(plan, "parked") < 20, outline(plan)


# What the console and metrics ask

PARKED = 21_000  # more than are counted of a state
PLACES = ["billing", "mail", "search"]
STATES = ["PUBLISHED", "PENDING", "CLAIMED", "DEAD"]


def park(store):
    """Statements that set aside so many messages of each state, spread over the places, each with an error of its
    own. What was published since is the newest."""
    if store.startswith("sqlite:"):
        table, lane = "outlog_parked", "0"
        numbers = (
            f"(with recursive s(n) as (select 1 union all select n + 1 from s where n < {PARKED}) select n from s)"
        )
        later = f"strftime('%Y-%m-%dT%H:%M:%S.000000Z', '{FIRST}', n || ' seconds')"
    else:
        table, lane, numbers = "outlog.parked", "n % 8", f"generate_series(1, {PARKED}) s(n)"
        later = f"timestamptz '{FIRST}' + n * interval '1 second'"
    for number, state in enumerate(STATES):
        claim = f"'{FIRST}'" if state in ("CLAIMED", "PUBLISHED") else "null"
        yield (
            f"insert into {table} (lane, seq, attempts, state, available_at, claimed_at, lease_until, claimed_by, updated_at, "
            f"destination, last_error) select {lane}, {number * PARKED} + n, 1, '{state.replace('PUBLISHED', 'CLAIMED')}', '{FIRST}', "
            f"{claim}, {claim}, {claim}, {later}, case n % 3 when 0 then 'billing' when 1 then 'mail' else 'search' end, "
            f"'{state} ' || n from {numbers}"
        )
    yield (
        f"update {table} set state = 'PUBLISHED', published_at = '{at(EVENTS)}', updated_at = '{at(EVENTS)}', claimed_at = null, "
        f"lease_until = null, claimed_by = null where last_error like 'PUBLISHED%'"
    )


@pytest.fixture
def parked_store(store, outlog, tmp_path):
    """A store where a relay gave up much, and where the planner was told nothing of it."""
    (tmp_path / "outlog.yaml").write_text(
        "destinations: {%s}\n" % ", ".join(f'{place}: {{type: "null"}}' for place in PLACES)
    )
    outlog.run("apply", "-f", tmp_path / "outlog.yaml")
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :])) as db:
            for statement in park(store):
                db.execute(statement)
            db.commit()
    else:
        with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
            cursor.execute("alter table outlog.parked set (autovacuum_enabled = off)")
            for statement in park(store):
                cursor.execute(statement)
            db.commit()
    return store


def cost_of(store, query, given):
    """The rows of a query, and for each of never analyzed and analyzed how much of `parked` it looked at: rows on
    PostgreSQL, steps in hundreds on SQLite."""
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :])) as db:
            text, values = render("sqlite", query, given)
            db.execute("select 1 from outlog_lanes").fetchall()  # reading the schema is steps too
            rows, before = steps_of(db, text, values)
            db.execute("analyze")
            return rows, [before, steps_of(db, text, values)[1]]
    with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
        cursor.execute(session_settings())
        cursor.execute("prepare asked as " + render("postgres", query, given)[0])
        looked = []
        for first in ("select", "analyze outlog.parked"):
            cursor.execute(first)
            looked.append(touched(explain(cursor, "asked", []), "parked"))
        cursor.execute("execute asked")
        return cursor.fetchall(), looked


def test_m1_the_newest_trouble_of_each_destination_is_found_by_its_index(parked_store):
    rows, costs = cost_of(parked_store, "last_errors", {})
    assert len(rows) == len(PLACES)
    assert all(
        error.split()[0] in ("PENDING", "CLAIMED", "DEAD") and int(error.split()[1]) > PARKED - 3 for _, error in rows
    ), rows
    assert max(costs) <= 10, costs  # of 84,000


def test_m1_what_is_parked_is_counted_up_to_a_bound(parked_store, outlog):
    most = 500
    rows, costs = cost_of(parked_store, "count_parked", {"limit": most})
    counted = {state: sum(row[2] for row in rows if row[1] == state) for state in STATES}
    assert counted == {"PENDING": most, "CLAIMED": most, "DEAD": most, "PUBLISHED": 0}
    assert all(row[6] for row in rows), "that there are more is said"
    assert max(costs) <= 3 * most, costs  # of 84,000; on SQLite a row is some seventy steps
    told = outlog.run("stats", "--json").json()[0]["messages"]
    assert (told["pending"], told["claimed"], told["dead"], told["is_estimate"]) == (20_000, 20_000, 20_000, True)


# What daemons with sockets ask, four times a second each

TALKS = 300  # sessions, with ten messages each; half of the answers are owed for long


@pytest.fixture
def talked_store(store, outlog):
    """A store where much was said, and nothing is new."""
    outlog.run(
        "append",
        "--ndjson",
        "-",
        input="".join(
            json.dumps(
                {
                    "org_id": "acme",
                    "aggregate_type": "session",
                    "aggregate_id": f"u-{n % TALKS}:helper:t",
                    "event_type": "user_message",
                    "payload": {"text": "x", "requestId": f"r-{n}"},
                }
            )
            + "\n"
            for n in range(10 * TALKS)
        ),
    )
    if store.startswith("sqlite:"):
        table, numbers, _, time = (
            "outlog_effects",
            (
                f"(with recursive s(n) as (select 0 union all select n + 1 from s where n < {10 * TALKS}) select n from s)"
            ),
            "",
            "",
        )
        id = "'00000000-0000-4000-8000-' || printf('%012x', n)"
    else:
        table, numbers, _, time = (
            "outlog.effects",
            f"generate_series(0, {10 * TALKS}) s(n)",
            "::uuid",
            "::timestamptz",
        )
        id = "('00000000-0000-4000-8000-' || lpad(to_hex(n), 12, '0'))::uuid"
    fill = (
        f"insert into {table} (effect_id, org_id, session_key, checkpoint_id, effect_type, effect_spec, destination, status, "
        f"idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at) select {id}, 'acme', "
        f"'u-' || (n % {TALKS}) || ':helper:t', 'u-' || (n % {TALKS}) || ':helper:t#' || (n / {TALKS}), 'send_message', '{{}}', "
        f"'session', case when n % 2 = 0 then 'COMPLETED' else 'PENDING' end, 'k-' || n, {id}, n + 1, {id}, 'c', '{FIRST}'{time}, "
        f"'{FIRST}'{time} from {numbers}"
    )
    connect = (
        (lambda: sqlite3.connect(store[len("sqlite:") :]))
        if store.startswith("sqlite:")
        else (lambda: psycopg2.connect(store))
    )
    with contextlib.closing(connect()) as db:
        db.cursor().execute(fill)
        db.commit()
    return store


SINCE, RANGE = {"since_us": 5_000_000}, {"after": 10 * TALKS, "upto": 10 * TALKS + 9}


@pytest.mark.parametrize(
    "query, asked",
    [
        ("sessions_changed", {"after": 10 * TALKS + 1, **SINCE}),
        ("sessions_failed", SINCE),
        ("sessions_have_message", RANGE),
        ("sessions_note", RANGE),
    ],
)
def test_s5_a_look_for_news_of_sessions_costs_what_is_new(talked_store, query, asked):
    for rows, looked, plan in looks_of(talked_store, query, asked):
        assert rows == 0 and looked <= 5, (looked, plan)


@pytest.mark.parametrize(
    "query, asked",
    [
        ("session_pending_effects", {"after": 0}),
        ("session_pending_effects", {"after": TALKS + 2}),
        ("session_effects", {"limit": 100}),
        ("session_effects", {"limit": 100, "status": "PENDING", "after": uuid_of(TALKS + 1)}),
    ],
)
def test_s5_what_a_session_is_owed_is_read_in_order_by_its_index(talked_store, query, asked):
    asked = {"org_id": "acme", "session_key": "u-1:helper:t", **asked}
    if query == "session_effects" and not talked_store.startswith("sqlite:"):
        asked["max_bytes"] = 1_000_000  # which only a store that answers as a whole is asked
    for rows, looked, plan in looks_of(talked_store, query, asked):
        assert rows == (8 if asked.get("after") else 10) and looked <= 12, (rows, looked, plan)
        assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan


def looks_of(store, query, asked):
    """For each of never analyzed and analyzed: how many rows come, how many of a table were looked at (SQLite: steps in
    hundreds), and the plan."""
    text, values = render("sqlite" if store.startswith("sqlite:") else "postgres", query, asked)
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :])) as db:
            db.create_function("outlog_after", 1, lambda _: "2099-01-01T00:00:00.000000Z")
            db.execute("select 1 from outlog_lanes").fetchall()
            for first in ("select 1", "analyze"):
                db.execute(first)
                rows, steps = steps_of(db, text, values)
                yield len(rows), steps, str(db.execute("explain query plan " + text, values).fetchall())
        return
    with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
        cursor.execute(session_settings())
        cursor.execute("prepare asked as " + text)
        for first in ("select", "analyze outlog.events", "analyze outlog.sessions", "analyze outlog.effects"):
            cursor.execute(first)
            for _ in range(7):  # after five it may become a generic plan
                plan = explain(cursor, "asked", values)
                yield (
                    plan["Actual Rows"],
                    max(touched(plan, table) for table in ("events", "sessions", "effects")),
                    str(outline(plan)),
                )
