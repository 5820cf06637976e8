"""sql/schema is the one place that lists the fields of events and messages; scripts/fields.py does the rest."""
import json
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import fields  # noqa: E402
import rules  # noqa: E402

CHANNEL = {
    "name": "channel",
    "kind": "text",
    "max_bytes": 30,
    "set_by": "caller",
    "since": 9,
    "flag": "channel",
    "metavar": "C",
    "filter": "Of this channel.",
    "about": "where it came in",
}
MIGRATIONS = {
    "postgres": """create domain outlog.text_30 as text collate "C"
    constraint has_1_to_30_bytes check ((octet_length(value) - 1)::oid < 30::oid);
alter table outlog.events add column channel outlog.text_30;
create index events_channel on outlog.events (channel, event_id) where channel is not null;
drop function outlog.append, outlog.append_one, outlog.append_batch;
--< 0001_log/7_append.sql
""",
    "sqlite": """alter table outlog_events add column channel text
    constraint events_channel_length check (length(cast(channel as blob)) between 1 and 30);
create index outlog_events_channel on outlog_events (channel) where channel is not null;
""",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of sql/ and include/ to which somebody added an event's field `channel`, and nothing else."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "sql", root / "sql")
    shutil.copytree(ROOT / "include", root / "include")
    path = root / "sql/schema/event.json"
    schema = json.loads(path.read_text())
    at = [field["name"] for field in schema["fields"]].index("metadata")
    schema["fields"].insert(at, CHANNEL)
    path.write_text(json.dumps(schema))
    for dialect, text in MIGRATIONS.items():
        (root / f"sql/{dialect}/migrations/0009_channel.sql").write_text(text)
    header = (root / "include/outlog.h").read_text()
    assert header.count("const char *visibility;") == 3  # of an event, of a new one, of a filter
    (root / "include/outlog.h").write_text(
        header.replace("const char *visibility;", "const char *visibility;\n    const char *channel;")
    )
    subprocess.run(
        [
            sys.executable,
            ROOT / "scripts/embed_sql.py",
            root / "sql",
            root / "queries.h",
            root / "queries.c",
            root / "fields.h",
        ],
        check=True,
    )
    return root


def query(tree, dialect, name):
    """The text of a query in the generated C."""
    body = (tree / "queries.c").read_text()
    found = re.search(rf"{dialect}_{name}\[\] = \{{(.*?)\}};\n", body, re.DOTALL)
    return "".join(re.findall(r'\{"((?:[^"\\]|\\.)*)"', found[1])).replace("\\n", "\n")


def migration(tree, dialect, number):
    schema = fields.Schema(tree / "sql/schema")
    folder = tree / "sql" / dialect / "migrations"
    path = next(folder.glob(f"{number:04d}_*"))
    files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
    text = "\n".join(schema.expand(file.read_text(), dialect, number, folder) for file in files)
    return rules.expand(text, dialect, tree / "sql")


@pytest.mark.parametrize(
    "name",
    [
        "events_read",
        "events_read_back",
        "events_read_some",
        "event_get",
        "causality_up",
        "causality_down",
        "run_events",
        "signal_events",
        "export_event",
    ],
)
@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_a_new_field_is_in_every_query_of_events(tree, dialect, name):
    assert re.search(r"\bchannel\b", query(tree, dialect, name))


def test_a_new_field_is_written_by_both_stores(tree):
    for dialect, name in (("postgres", "event_append"), ("postgres", "events_append"), ("sqlite", "event_insert")):
        params = re.search(
            rf'\{{"{name}", {dialect}_{name}, \d+, \d+u, \d+u, "([^"]*)"\}}', (tree / "queries.c").read_text()
        )
        assert "channel" in params[1].split()


def test_a_new_field_is_a_filter(tree):
    for name in ("events_read", "events_read_back", "events_read_short", "events_read_back_short"):
        assert "channel = " in query(tree, "postgres", name)


def test_a_new_field_is_in_the_tables_of_c(tree):
    """With the offsets of all three structs, and nothing is missing in them."""
    (tree / "check.c").write_text(
        '#include "outlog.h"\n#include "base/field.h"\n#include "fields.h"\n'
        "const struct ol_field rows[OL_EVENT_FIELD_ALL] = {OL_EVENT_FIELD_ROWS};\n"
        '_Static_assert(OL_EVENT_CHANNEL < OL_EVENT_FIELD_COUNT, "a column");\n'
    )
    subprocess.run(
        [
            "cc",
            "-std=gnu11",
            "-Werror",
            "-fsyntax-only",
            f"-I{tree}/include",
            f"-I{tree}",
            f"-I{ROOT}/src",
            tree / "check.c",
        ],
        check=True,
    )
    made = (tree / "fields.h").read_text()
    assert "offsetof(struct outlog_filter, channel)" in made and "[--channel C]" in made
    assert re.search(r"OL_EVENT_FILTER_NAMES .*\bchannel\b", made)


def test_a_new_field_is_described_by_the_api(tree):
    schema = fields.Schema(tree / "sql/schema")
    api = fields.expand_schemas(schema, json.loads((ROOT / "src/server/resources/schemas.json").read_text()))
    shapes = api["schemas"]
    assert shapes["Event"]["properties"]["channel"] == {"type": ["string", "null"]}
    assert shapes["EventDraft"]["properties"]["channel"] == {"type": "string", "minLength": 1, "maxLength": 30}
    assert "channel" in shapes["Filters"]["properties"] and "channel" in shapes["Event"]["required"]
    assert "channel" in shapes["Causality"]["properties"]["events"]["items"]["properties"]
    assert api["parameters"]["channel"]["description"] == "Of this channel."


def test_a_migration_sees_the_fields_of_its_time(tree):
    for dialect in MIGRATIONS:
        assert not re.search(r"\bchannel\b", migration(tree, dialect, 1))
    made = migration(tree, "postgres", 9)
    assert "channel text default null" in made  # outlog.append
    assert "channel text," in made and "channel text[]," in made  # append_one, append_batch
    assert "channel must have 1 to 30 bytes" in made and "'channel', append.channel" in made


def test_sqlite_has_the_new_column_and_its_limit(tree):
    db = sqlite3.connect(":memory:")
    for number in (1, 9):
        db.executescript(migration(tree, "sqlite", number))
    insert = (
        "insert into outlog_events (id, occurred_at, aggregate_type, aggregate_id, aggregate_seq, event_type, "
        "actor_type, actor_id, request_id, correlation_id, payload, channel) values "
        "('01890a5d-ac96-774b-bcce-b302099a8057', 'now', 'a', 'b', 1, 't', 'system', 's', 'r', 'c', '{}', ?)"
    )
    with pytest.raises(sqlite3.IntegrityError, match="events_channel_length"):
        db.execute(insert, ["x" * 31])
    db.execute(insert, ["x" * 30])


def test_no_other_file_lists_the_fields():
    """`env_id` once stood in 28 product files."""
    found = {
        str(path.relative_to(ROOT))
        for folder in ("src", "sql", "include", "console/src")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and re.search(r"\benv_id\b", path.read_text())
    }
    assert found == {
        "sql/schema/event.json",
        "include/outlog.h",
        "sql/postgres/migrations/0001_log/1_tables.sql",  # its index
        "sql/sqlite/migrations/0001_log/1_tables.sql",
    }


def test_both_stores_have_the_columns_in_one_order():
    for what, table in (("event", "events"), ("message", "outbox")):
        orders = []
        for dialect in ("postgres", "sqlite"):
            text = "".join(migration(ROOT, dialect, number) for number in (1, 2))
            body = re.search(rf"create table outlog[._]{table} \((.*?)\n    constraint", text, re.DOTALL)[1]
            orders.append(re.findall(r"^    (\w+) ", body, re.MULTILINE))
        assert orders[0] == orders[1]
        assert orders[0][-3:] == [field.name for field in fields.Schema(ROOT / "sql/schema").set(what, "columns")][-3:]


def rows_of(text, heading):
    """{name: the row} of the table below a line of a page; a row may name several fields."""
    lines = text[text.index(heading) :].split("\n\n")[0].splitlines()[2:]
    return {name: line for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}


@pytest.mark.parametrize(
    "what, page, heading",
    [
        ("event", "sql.md", "| argument | type, default | |\n|---|---|---|\n| `org_id`"),
        ("message", "sql.md", "| argument | type, default | |\n|---|---|---|\n| `destination`"),
    ],
)
def test_the_docs_name_every_field_with_its_limit(what, page, heading):
    rows = rows_of((ROOT / "docs" / page).read_text(), heading)
    schema = fields.Schema(ROOT / "sql/schema")
    assert set(rows) == {field.name for field in schema.set(what, "arguments")}
    for field in schema.set(what, "texts"):
        if field.is_given:
            assert f"1-{field.max_bytes} bytes" in rows[field.name], rows[field.name]


def test_the_docs_name_every_field_of_an_event():
    text = (ROOT / "docs/concepts.md").read_text()
    rows = rows_of(text, "| field | |\n|---|---|\n| `event_id`")
    columns = fields.Schema(ROOT / "sql/schema").set("event", "columns")
    assert {field.name for field in columns} <= set(rows)
    limits = re.sub(r"\s+", " ", text[text.index("Limits in bytes:") :].split("\n\n")[0])
    for field in columns:
        if field.kind == "text" and field.max_bytes:
            name = "keys" if field.name == "idempotency_key" else f"`{field.name}`"
            assert re.search(rf"{name}[^0-9]*? {field.max_bytes}\b", limits), field.name
