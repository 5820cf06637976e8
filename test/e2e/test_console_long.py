"""The console over a long log: what a page asks, draws and reads has a bound that the log does not move.

Nothing is timed. The browser counts what each page asks for, how large the answers are and what it draws. What
that costs the store is counted too: on SQLite every question of the pages is asked once more, alone, and the
bytes are counted that the process reads for it; PostgreSQL says at the end which tables were scanned and how many
rows were fetched. 200,000 events in every run of the tests, a million with `make torture`.
"""
import os
import pathlib
import re

import pytest

from lib.browser import why_not
from lib.cli import Outlog
from lib.outbox import Outbox, known, wait_for
from lib.receiver import Receiver
from lib.server import Server, Stream
from test_console import PAGES

pytestmark = [pytest.mark.torture, pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]

EVENTS = 1_000_000 if "OUTLOG_TORTURE_ROWS" in os.environ else 200_000

TYPES = ("created", "paid", "packed", "shipped", "seen", "viewed", "rated", "asked", "told", "closed")
DEAD, RUNS = 2000, 300
MIB = 1 << 20

CONFIG = """
destinations:
  sink: {{type: "null"}}
  closed: {{type: "null"}}
  partner: {{type: webhook, url: "{partner}", allow_private: true}}
  in_app: {{type: in_app}}
routes:
  - {{on: order.paid, to: sink}}
  - {{on: order.shipped, to: closed}}
  - {{on: order.refused, to: partner}}
notifications:
  rules:
    - {{on: order.noticed, recipients: {{path: /user}}, channels: [in_app], template: noticed, once: event}}
  templates:
    noticed: {{subject: "Order {{{{aggregate_id}}}}", text: "It was noticed."}}
"""


def line(n, count):
    """Event n: ten events an order and a correlation, 50 orgs; some are refused, noticed, or said in a session."""
    order, every = n // 10, count // DEAD
    kind, type = ("order", f"order.{TYPES[n % 10]}")
    if n % every == 0:
        type = "order.refused"
    elif n % every == 5:
        type = "order.noticed"
    elif n % (5 * every) == 7:
        kind, type = "session", "session.noted"
    id = f"u-{n}:helper:t-1" if kind == "session" else f"o-{order}"
    return (
        f'{{"org_id":"org-{order % 50}","aggregate_type":"{kind}","aggregate_id":"{id}","event_type":"{type}",'
        f'"correlation_id":"c-{order}","payload":{{"n":{n},"user":"u-{n % 100}","text":"{"x" * 60}"}}}}\n'
    )


def fill(outlog, folder, count):
    """A store that was used for long: messages in every state, runs, sessions, notices, a reader that fell behind."""
    with Receiver() as receiver:
        (folder / "outlog.yaml").write_text(CONFIG.format(partner=receiver.url("partner")))
        receiver.rule(422, destination="partner", body=b"no such account")
        outlog.run("apply", "-f", folder / "outlog.yaml")
        outlog.run("destinations", "pause", "closed")
        outlog.run("consumers", "create", "search")
        with open(folder / "events.ndjson", "w") as out:
            out.writelines(line(n, count) for n in range(count))
        outlog.run("append", "--ndjson", folder / "events.ndjson", timeout=600)
        server = Server(outlog, folder / "fill.log", ["--no-relay"])
        for n in range(RUNS):
            status, run = server.post(
                "/v1/runs", {"org_id": f"org-{n % 50}", "run_type": "triage", "orchestrator_version": "1"}
            )
            assert status == 201, run
        outlog.run("sessions")  # all of them are noted
        with Outbox(outlog.store) as store:  # nothing is answered in them
            wait_for(
                lambda: not store.run("select 1 from {}sessions where last_seq > done_seq limit 1"), "the sessions", 120
            )
        server.stop()
        outlog.run("relay", "--until-idle", timeout=600)
    return outlog


def bytes_read(server):
    """By the process, of files and sockets."""
    return int(pathlib.Path(f"/proc/{server.process.pid}/io").read_text().split("rchar: ")[1].split()[0])


def tables(postgres):
    """Table: its rows, and how often it was scanned, how many of its rows and index entries were read."""
    return {
        name: list(map(int, numbers))
        for name, *numbers in postgres.sql(
            "select t.relname, t.n_live_tup, t.seq_scan, coalesce(t.idx_tup_fetch, 0) + t.seq_tup_read, "
            "(select coalesce(sum(i.idx_tup_read), 0) from pg_stat_user_indexes i where i.relid = t.relid) "
            "from pg_stat_user_tables t where t.schemaname = 'outlog'",
            database="long",
        )
    }


MUCH_READ = known("PostgreSQL reads more than a page for the outbox since side cursors", is_sure=False)


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=MUCH_READ)])
def long_store(request, tmp_path):
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path}/outlog.db"
    else:
        postgres = request.getfixturevalue("postgres")
        yield postgres.create("long")
        postgres.drop("long")


def pages_of(server, count):
    dead = server.get("/v1/messages?state=DEAD&limit=1").json["messages"][0]["event_id"]
    run = server.get("/v1/runs?limit=1").json["runs"][0]["run_id"]
    return {
        **PAGES,
        "destination": "destinations/partner",
        "message": f"messages/{dead}",
        "run": f"runs/{run}",
        "event": f"events/{count // 2}",
        "trace": f"traces/c-{count // 20}",
        "log since": "log?since=1h",
        "log until": "log?until=2099-01-01T00:00:00Z",
        "log of a type": "log?event_type=order.refused",
        "log of an org": "log?org_id=org-7",
        "log of an aggregate": f"log?aggregate=order/o-{count // 20}",
        "log of nobody": "log?org_id=nobody",
        "found": f"find?q=order/o-{count // 20}",
        "pending": "outbox?state=PENDING&destination=closed",
    }


def check_questions(server, questions, count):
    """Each alone, with nobody else there: what is read for it does not follow the log."""
    wrong, before = [], bytes_read(server)
    for one in sorted(questions):
        assert server.get(one).status in (200, 404), one
        now = bytes_read(server)
        # What waits for a paused destination, or is dead, is counted as often as somebody asks for numbers; the messages
        # of one destination are looked for among all.
        is_dear = re.match(r"/v1/(stats$|destinations|dead|messages\?(retrying|destination))", one)
        most = 1000 * (count // len(TYPES) + DEAD) if is_dear else 2 * MIB
        if now - before > most:
            wrong.append(f"{one}: {now - before} bytes")
        before = now
    assert not wrong, "\n".join(wrong)


def check_follower(server):
    """As the log's page follows the events of the last hour."""
    before = bytes_read(server)
    stream = Stream(server, "/v1/events/stream?since=1h", last=server.get("/v1/events?limit=1").json["settled"])
    server.append("acme")
    assert next(iter(stream))[1]["org_id"] == "acme"
    stream.close()
    assert bytes_read(server) - before < 2 * MIB


def check_tables(before, after, count):
    for name, (rows, *numbers) in after.items():
        scans, fetched, entries = (now - then for now, then in zip(numbers, before[name][1:]))
        if rows > 1000 and name != "parked":  # it is counted
            assert scans == 0 and fetched < count / 4 and entries < count / 2, (name, scans, fetched, entries)


def test_m5_a_long_log_is_looked_at_page_by_page(long_store, request, tmp_path, browser, shots):
    outlog = Outlog(long_store, cwd=tmp_path)
    outlog.run("init")
    fill(outlog, tmp_path, EVENTS)
    postgres = request.getfixturevalue("postgres") if long_store.startswith("postgres") else None
    before = postgres and tables(postgres)
    server = Server(outlog, tmp_path / "serve.log", ["--no-relay"])
    server.url = f"http://127.0.0.1:{server.port}"
    opened = {}

    def seen(name, **what):
        opened[name] = what

    try:
        browser.flow("long", server, shots, {"seen": seen}, pages=pages_of(server, EVENTS), count=EVENTS, dead=DEAD)
        for name, page in opened.items():
            largest = max((size for _, size in page["asked"]), default=0)
            assert len(page["asked"]) <= 40 and largest < MIB and page["rows"] <= 450 and page["nodes"] < 12_000, (
                name,
                page,
            )
        questions = {path for page in opened.values() for path, _ in page["asked"]}
        assert len(questions) > 30
        if not postgres:
            server.stop()
            server.start()  # what a handle learned of a time window is forgotten
            check_questions(server, questions, EVENTS)
            check_follower(server)
    finally:
        server.stop()
    if postgres:
        check_tables(before, tables(postgres), EVENTS)
