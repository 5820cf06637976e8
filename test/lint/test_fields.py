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
--< 0001_log/7_append.sql
""",
    "sqlite": """alter table outlog_events add column channel text
    constraint events_channel_length check (length(cast(channel as blob)) between 1 and 30);
create index outlog_events_channel on outlog_events (channel) where channel is not null;
""",
}


CAMPAIGN = {
    "name": "campaign",
    "kind": "text",
    "max_bytes": 100,
    "set_by": "caller",
    "since": 10,
    "flag": "campaign",
    "metavar": "C",
    "about": "what it is sent for",
}
MESSAGE_MIGRATIONS = {
    "postgres": """alter table outlog.outbox add column campaign outlog.message_100;
drop function outlog.enqueue;
drop type outlog.enqueue_result;
--< 0002_outbox/3_enqueue.sql
drop view outlog.open_outbox, outlog.open_claims, outlog.outbox_state;
--< 0002_outbox/4_state.sql
""",
    "sqlite": """alter table outlog_outbox add column campaign text
    constraint outbox_campaign_length check (length(cast(campaign as blob)) between 1 and 100);
drop view outlog_open_outbox;
drop view outlog_open_claims;
drop view outlog_outbox_state;
drop view outlog_published;
drop view outlog_plain_state;
--< 0002_outbox/4_state.sql
""",
}


def add_field(root, what, entry):
    """Put an entry into sql/schema, where the others of its kind stand."""
    path = root / f"sql/schema/{what}.json"
    schema = json.loads(path.read_text())
    at = [field["name"] for field in schema["fields"]].index("metadata")
    schema["fields"].insert(at, entry)
    if "shown" in schema:
        schema["shown"].append(entry["name"])
    path.write_text(json.dumps(schema))


def add_member(root, name, count, after, line):
    """Put a line after each of the `count` places of a header that declare this member."""
    path = root / "include" / name
    text = path.read_text()
    assert len(re.findall(after, text, re.MULTILINE)) == count
    path.write_text(re.sub(after, lambda match: f"{match[0]}\n{line}", text, flags=re.MULTILINE))


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A copy of sql/ and include/ with a new field `channel` of events and a new one `campaign` of messages."""
    root = tmp_path_factory.mktemp("tree")
    shutil.copytree(ROOT / "sql", root / "sql")
    shutil.copytree(ROOT / "include", root / "include")
    add_field(root, "event", CHANNEL)
    add_field(root, "message", CAMPAIGN)
    for dialect in MIGRATIONS:
        folder = root / "sql" / dialect / "migrations"
        (folder / "0009_channel.sql").write_text(MIGRATIONS[dialect])
        (folder / "0010_campaign.sql").write_text(MESSAGE_MIGRATIONS[dialect])
    # Of an event, of a new one, of a filter.
    add_member(root, "outlog.h", 3, r"^    const char \*visibility;.*$", "    const char *channel;")
    # Of a message, of a new one; and of a delivery.
    add_member(root, "outlog.h", 2, r"^    const char .*\*partition_key[,;].*$", "    const char *campaign;")
    add_member(root, "outlog_publisher.h", 1, r"^    const char \*partition_key;$", "    const char *campaign;")
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


def check_c(tree, text):
    """Compile a few lines against the headers of the copy."""
    (tree / "check.c").write_text(
        '#include "outlog.h"\n#include "outlog_publisher.h"\n#include "base/field.h"\n#include "fields.h"\n' + text
    )
    folders = [f"-I{tree}/include", f"-I{tree}", f"-I{ROOT}/src"]
    subprocess.run(["cc", "-std=gnu11", "-Werror", "-fsyntax-only", *folders, tree / "check.c"], check=True)


def test_a_new_field_is_in_the_tables_of_c(tree):
    """With the offsets of all three structs, and nothing is missing in them."""
    check_c(
        tree,
        "const struct ol_field rows[OL_EVENT_FIELD_ALL] = {OL_EVENT_FIELD_ROWS};\n"
        '_Static_assert(OL_EVENT_CHANNEL < OL_EVENT_FIELD_COUNT, "a column");\n',
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
    assert "channel must have 1 to 30 bytes" in made and "'channel', append_own.channel" in made


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


def product_files(word):
    return {
        str(path.relative_to(ROOT))
        for folder in ("src", "sql", "include", "console/src")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and re.search(rf"\b{word}\b", path.read_text())
    }


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
@pytest.mark.parametrize("name", ["message_insert", "outbox_read", "message_rows", "export_message_list"])
def test_a_new_field_is_in_every_query_of_messages(tree, dialect, name):
    assert re.search(r"\bcampaign\b", query(tree, dialect, name))


def test_a_new_field_of_a_message_is_in_the_tables_of_c(tree):
    """Its limit, its option of `outlog send`, its line of `outlog outbox show`, and what publishers get."""
    check_c(
        tree,
        "const struct ol_field rows[OL_MESSAGE_FIELD_ALL] = {OL_MESSAGE_FIELD_ROWS};\n"
        "const int shown[OL_MESSAGE_SHOWN_COUNT] = {OL_MESSAGE_SHOWN_IDS};\n"
        "const struct { int field; size_t offset; } texts[] = {OL_MESSAGE_DELIVERED};\n"
        "const char options[] = OL_MESSAGE_OPTIONS;\n",
    )
    made = (tree / "fields.h").read_text()
    assert "offsetof(struct outlog_delivery, campaign)" in made and "offsetof(struct outlog_message, campaign)" in made
    assert "[--campaign C]" in made and re.search(r"OL_MESSAGE_SHOWN_IDS .*OL_MESSAGE_CAMPAIGN", made)
    shapes = fields.expand_schemas(
        fields.Schema(tree / "sql/schema"), json.loads((ROOT / "src/server/resources/schemas.json").read_text())
    )["schemas"]
    assert shapes["Message"]["properties"]["campaign"] == {"type": ["string", "null"]}


def test_a_new_field_of_a_message_is_in_the_view_and_may_be_written(tree):
    assert not re.search(r"\bcampaign\b", migration(tree, "postgres", 2) + migration(tree, "sqlite", 2))
    made = migration(tree, "postgres", 10)
    assert "campaign text default null" in made and "       o.campaign,\n" in made
    grant = re.search(r"grant insert \((.*?)\) on outlog.outbox to outlog_append", made, re.DOTALL)
    assert re.search(r"\bcampaign\b", grant[1])


def test_sqlite_shows_a_new_field_of_a_message(tree):
    db = sqlite3.connect(":memory:")
    for number in (1, 2, 10):
        db.executescript(migration(tree, "sqlite", number))
    db.execute(
        "insert into outlog_outbox (destination, event_type, payload, campaign) values ('d', 't', '{}', 'spring')"
    )
    assert db.execute("select state, campaign from outlog_outbox_state").fetchall() == [("PENDING", "spring")]
    with pytest.raises(sqlite3.IntegrityError, match="outbox_campaign_length"):
        db.execute("insert into outlog_outbox (destination, event_type, payload, campaign) values ('d', 't', '{}', '')")


def test_no_other_file_lists_the_fields_of_messages():
    """The rest of what names `partition_key` uses it: a transport's own format, the layout of a page."""
    listing = {
        "sql/schema/message.json",
        "include/outlog.h",
        "include/outlog_publisher.h",
        "sql/postgres/migrations/0002_outbox/4_state.sql",  # the names of another specification
        "sql/sqlite/migrations/0002_outbox/4_state.sql",
        "console/src/pages/message.js",
    }
    using = {name for name in product_files("partition_key") if name.startswith(("src/publish/", "src/destinations/"))}
    assert product_files("partition_key") - using == listing


def test_no_other_file_lists_the_fields():
    """`env_id` once stood in 28 product files."""
    assert product_files("env_id") == {
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
