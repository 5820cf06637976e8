"""Export and import: everything keeps its id, so that a repeat after the move is still a repeat."""
import gzip
import json

import pytest

from lib.cli import Outlog
from lib.outbox import Outbox

CONFIG = """
destinations: {sink: {type: 'null'}, second: {type: 'null', on_dead: hold}}
routes: [{on: "order.paid", to: sink}]
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
    return outlog.run("append", "--org", "acme", "--aggregate", aggregate, "--type", type,
                      "--data", data, "--json", *more).json()[0]


@pytest.fixture
def filled(stores):
    old, _ = stores
    old.run("apply", "-f", "-", input=CONFIG)
    first = append(old, "order/o-1", "order.created", '{"sum":1.50,  "big":123456789012345678901234567890}',
                   "--version", "1", "--key", "once", "--metadata", '{"a":\n1}')
    append(old, "order/o-1", "order.paid", '{\n  "text": "ä\\u0041\\n",\t"e": 1E2\n}', "--causation", first["id"])
    old.run("append", "--infra", "--aggregate", "host/h", "--type", "disk.full", "--data", "{}")
    many = "".join(json.dumps({"org_id": "acme", "aggregate_type": "bulk", "aggregate_id": f"b-{n % 9}",
                               "event_type": "bulk.made", "payload": {"n": n}}) + "\n" for n in range(2500))
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
        return [(row["event_id"], row["payload"], row["metadata"]) for row in store.run(
            "select event_id, cast(payload as text) as payload, cast(metadata as text) as metadata"
            "  from {}events where event_id <= 20 order by event_id")]


def assert_moved(old, new, first):
    assert events(new) == events(old)
    assert raw(new) == raw(old)
    assert new.run("consumers", "--json").lines() == old.run("consumers", "--json").lines()
    assert new.run("apply", "-f", "-", input=CONFIG).stdout.endswith("nothing to change\n")
    where = lambda outlog: [(one["name"], one["to"], one["cursor_event_id"])  # noqa: E731
                            for one in outlog.run("sinks", "--json").json()]
    assert where(new) == where(old)
    assert new.run("outbox", "--json").lines() == []  # no route has seen the old events again
    # a repeat is a repeat
    again = append(new, "order/o-1", "order.created", '{"sum":1.50,  "big":123456789012345678901234567890}',
                   "--version", "1", "--key", "once", "--metadata", '{"a":\n1}')
    assert (again["id"], again["event_id"], again["duplicate"]) == (first["id"], first["event_id"], True)
    sent = new.run("send", "--to", "sink", "--type", "t", "--data", "{}", "--org", "acme", "--key", "k-1",
                   "--json").json()[0]
    assert sent["duplicate"] is True
    # and what is new goes on where the old log ended
    last = json.loads(events(old)[-1])["event_id"]
    more = append(new, "order/o-1", "order.paid", "{}", "--expect", "2", "--causation", first["id"])
    assert (more["aggregate_seq"], more["event_id"] > last) == (3, True)
    assert len(new.run("outbox", "--json").lines()) == 1  # the route is at work
    lost = new.run("append", "--org", "tidy", "--aggregate", "a/b", "--type", "nobody.knows", "--data", "{}",
                   check=False)
    assert "unknown_event_type" in lost.stderr


def test_e2_a_log_moves_to_another_store(stores, filled):
    old, new = stores
    exported = old.run("export")
    assert "events" in exported.stderr and "not delivered" not in exported.stderr
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
    assert cut.returncode == 1 and "the end is missing" in cut.stderr
    missing = [line for line in lines if '"event_id":700,' not in line]
    short = new.run("import", "-", input="".join(missing), check=False)
    assert short.returncode == 1 and "were said to be there" in short.stderr


@pytest.mark.parametrize("stores", ["sqlite-postgres"], indirect=True)
def test_e2_an_interrupted_import_goes_on(stores, filled):
    old, new = stores
    text = old.run("export").stdout
    half = "".join(text.splitlines(keepends=True)[:1800])
    assert new.run("import", "-", input=half, check=False).returncode == 1
    new.run("import", "-", input=text)
    assert_moved(old, new, filled)


@pytest.mark.parametrize("stores", ["sqlite-sqlite"], indirect=True)
def test_e2_an_import_needs_a_new_store_and_the_same_log(stores, filled, tmp_path):
    old, new = stores
    text = old.run("export").stdout
    assert "has events of its own" in old.run("import", "-", input=text, check=False).stderr
    half = "".join(text.splitlines(keepends=True)[:1200])
    new.run("import", "-", input=half, check=False)
    other = Outlog(f"sqlite:{tmp_path}/other.db", cwd=tmp_path)
    other.run("init")
    other.run("append", "--ndjson", "-", input="".join(json.dumps({
        "org_id": "x", "aggregate_type": "a", "aggregate_id": "b", "event_type": "c", "payload": {}}) + "\n"
        for _ in range(1200)))
    wrong = new.run("import", "-", input=other.run("export").stdout, check=False)
    assert wrong.returncode == 1 and "another one" in wrong.stderr
    for bad in ("", "{}\n", '{"event":{}}\n', "no json\n", '{"outlog_export":{"format":9}}\n'):
        assert Outlog(new.store).run("import", "-", input=bad, check=False).returncode == 1


@pytest.mark.parametrize("stores", ["sqlite-sqlite"], indirect=True)
def test_e2_messages_that_wait_are_told_of(stores):
    old, _ = stores
    old.run("apply", "-f", "-", input="destinations: {sink: {type: 'null'}}")
    old.run("send", "--to", "sink", "--type", "t", "--data", "{}")
    assert "1 messages are not delivered yet" in old.run("export").stderr
