"""Everything through PgBouncer in transaction mode: two transactions of a client may be two sessions.

What relies on a session fails here, or spoils it for the next client; `clean` looks for both.
"""
import json
import threading
import time

import psycopg2
import pytest

from lib import pgbouncer
from lib.cli import Outlog
from lib.liboutlog import Log, Refused, event
from lib.outbox import Outbox, Relays, Writer, wait_for
from lib.pgbouncer import PgBouncer
from lib.proxy import Proxy
from lib.server import Server

pytestmark = pytest.mark.skipif(not pgbouncer.program(), reason="pgbouncer is not installed: scripts/setup test")

SETTINGS = (
    "role",
    "lock_timeout",
    "statement_timeout",
    "idle_in_transaction_session_timeout",
    "jit",
    "enable_seqscan",
    "search_path",
    "outlog.org_id",
    "default_transaction_isolation",
)


@pytest.fixture(scope="module")
def pooler(postgres):
    with PgBouncer(postgres) as pooler:
        yield pooler


@pytest.fixture
def pooled(pooler, postgres_store):
    """The test's store through the pooler; afterwards its sessions must be as anybody expects them."""
    url = pooler.url(postgres_store)
    yield url
    seen = {}
    for _ in range(200):  # round robin: each session comes by
        with psycopg2.connect(url) as db, db.cursor() as cursor:
            cursor.execute(
                "select pg_backend_pid(), "
                + ", ".join(f"coalesce(current_setting('{name}', true), '')" for name in SETTINGS)
                + ", (select count(*) from pg_prepared_statements where name <> ''), (select count(*) from pg_locks "
                "where locktype = 'advisory' and pid = pg_backend_pid())"
            )
            pid, *values = cursor.fetchone()
        db.close()
        seen[pid] = dict(zip((*SETTINGS, "prepared", "advisory"), values))
        if len(seen) >= 4:
            break
    with psycopg2.connect(postgres_store) as db, db.cursor() as cursor:
        cursor.execute("select " + ", ".join(f"coalesce(current_setting('{name}', true), '')" for name in SETTINGS))
        expected = dict(zip((*SETTINGS, "prepared", "advisory"), (*cursor.fetchone(), 0, 0)))
    db.close()
    assert seen and all(values == expected for values in seen.values()), (seen, expected)


def test_a4_every_verb_works_through_a_pooler(pooled, postgres, tmp_path):
    outlog = Outlog(pooled, cwd=tmp_path)
    for n in range(1, 30):
        done = outlog.run(
            "append",
            "--org",
            "acme",
            "--aggregate",
            "order/o-1",
            "--type",
            "order.created",
            "--data",
            "{}",
            "--key",
            f"k-{n}",
            "--json",
        )
        assert done.json()[0]["aggregate_seq"] == n
    again = outlog.run(
        "append",
        "--org",
        "acme",
        "--aggregate",
        "order/o-1",
        "--type",
        "order.created",
        "--data",
        "{}",
        "--key",
        "k-1",
        "--json",
    )
    assert again.json()[0]["aggregate_seq"] == 1
    lines = "\n".join(
        json.dumps(
            {"org_id": "acme", "aggregate_type": "a", "aggregate_id": str(n % 7), "event_type": "t", "payload": {}}
        )
        for n in range(500)
    )
    outlog.run("append", "--ndjson", "-", input=lines)
    assert len(outlog.run("events", "--json", "--limit", "1000").json()) == 529
    outlog.run("consumers", "create", "c")
    read = outlog.run("consumers", "read", "c", "--limit", "1000", "--json").json()
    assert len(read) == 529
    outlog.run("consumers", "commit", "c", read[-1]["event_id"])
    assert outlog.run("consumers", "read", "c").lines() == []
    outlog.run("verify", "--all")
    outlog.run("send", "--to", "nowhere", "--type", "t", "--data", "{}", "--key", "once")
    outlog.run("send", "--to", "nowhere", "--type", "t", "--data", "{}", "--key", "once")
    assert len(outlog.run("outbox", "--json").lines()) == 1
    outlog.run("doctor")


def test_e5_init_works_through_a_pooler(pooler, postgres):
    url = pooler.url(postgres.create("pooled_init"))
    try:
        Outlog(url).run("init")
        Outlog(url).run("append", "--infra", "--aggregate", "a/1", "--type", "t", "--data", "{}")
    finally:
        postgres.drop("pooled_init")


def test_e5_appenders_share_sessions_and_nothing_else(pooled):
    """Threads by the C library: single appends, group commits and transactions of their own."""
    failed = []

    def work(name):
        try:
            with Log(pooled) as log:
                for n in range(40):
                    if n % 3:
                        log.append_now(event(f"own/{name}"), event("shared/s"))
                    else:
                        tx = log.begin()
                        tx.append(event(f"own/{name}"))
                        tx.append(event("shared/s"))
                        tx.commit()
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failed, failed
    with Outbox(pooled) as store:
        rows = store.run(
            "select aggregate_type, aggregate_id, count(*) as n, max(aggregate_seq) as last from {}events "
            "group by 1, 2"
        )
    assert sum(row["n"] for row in rows) == 480 and all(row["n"] == row["last"] for row in rows)


def test_e4_a_lone_append_waits_for_a_lock_ten_seconds_at_most(pooled, postgres_store):
    with Outbox(postgres_store) as holder, Log(pooled) as log:
        log.append_now(event("order/o-1"))
        holder.begin()
        holder.run("select * from outlog.heads where aggregate_id = 'o-1' for update")
        started = time.monotonic()
        with pytest.raises(Refused) as refused:
            log.append_now(event("order/o-1"))
        assert refused.value.code == "unavailable" and time.monotonic() - started > 5
        holder.rollback()
        log.append_now(event("order/o-1"))


def test_l1_relays_and_serve_work_through_a_pooler(pooled, postgres_store, receiver, history, tmp_path):
    outbox = Outbox(postgres_store)
    outbox.destination("d", receiver)
    outbox.run(
        "insert into outlog.settings (key, value) values ('relay.wakeup', '\"notify\"') on conflict (key) "
        "do update set value = excluded.value"
    )  # which needs a session: they poll instead
    receiver.rule(500, attempt=1, probability=0.2)
    relays = Relays(pooled, tmp_path)
    server = Server(Outlog(pooled), tmp_path / "serve.log", ["--no-relay"])
    follower = Outlog(pooled).start("events", "--follow", "--json")
    try:
        first = relays("a", threads=2)
        relays("b", threads=2)
        writer = Writer(Outbox(pooled), history)
        for n in range(200):
            writer.send("d", {"n": n}, key=f"k-{n % 9}", rollback=n % 10 == 3)
        for n in range(20):
            server.append("acme")
        wait_for(lambda: receiver.count() > 40, "deliveries")
        first.kill()
        history.fault("kill")
        outbox.wait_drained()
        history.check(outbox, [receiver])
        seen = [json.loads(follower.stdout.readline()) for _ in range(20)]
        assert [one["aggregate_seq"] for one in seen] == list(range(1, 21))
        assert server.get("/v1/events?limit=5").status == 200
        wait_for(
            lambda: "OUTLOG_STORE_DIRECT" in (tmp_path / "serve.log").read_text(),
            "to be told that projections need the server itself",
        )
    finally:
        server.stop()
        relays.close()
        follower.kill()
        follower.communicate()


@pytest.mark.parametrize("direct", [False, True])
def test_x1_a_token_of_an_org_sees_that_org_through_a_pooler(pooled, postgres_store, tmp_path, direct):
    """Row security needs a session: past the pooler if there is a way, else the handlers' filters stand alone."""
    outlog = Outlog(pooled, cwd=tmp_path)
    for org in ("acme", "other"):
        outlog.run("append", "--org", org, "--aggregate", "a/1", "--type", "t", "--data", "{}")
    tokens = {
        org: outlog.run("token", "create", "--scope", "read", "--org", org, "--json").json()[0]["token"]
        for org in ("acme", "other")
    }
    server = Server(
        outlog,
        tmp_path / "serve.log",
        ["--no-relay"],
        dev=False,
        env={"OUTLOG_STORE_DIRECT": postgres_store} if direct else None,
    )
    try:
        for _ in range(10):
            for org, token in tokens.items():
                answer = server.get("/v1/events?limit=50", token=token)
                assert {one["org_id"] for one in answer.json["events"]} == {org}
    finally:
        server.stop()


def test_p2_projections_of_serve_go_past_the_pooler(pooled, postgres_store, tmp_path):
    definition = tmp_path / "p.yaml"
    definition.write_text(
        """
projections:
  totals:
    tables: [totals]
    create: create table if not exists totals (id text primary key, n integer not null)
    on:
      thing.added: insert into totals values (:aggregate_id, 1) on conflict (id) do update set n = totals.n + 1
"""
    )
    outlog = Outlog(pooled, cwd=tmp_path)
    outlog.run("apply", "-f", definition)
    server = Server(outlog, tmp_path / "serve.log", ["--no-relay"], env={"OUTLOG_STORE_DIRECT": postgres_store})
    try:
        for _ in range(3):
            server.append("acme", event_type="thing.added")
        with Outbox(postgres_store) as store:
            wait_for(
                lambda: store.run("select to_regclass('totals') as t")[0]["t"]
                and store.run("select n from totals") == [{"n": 3}],
                "the projection",
            )
    finally:
        server.stop()
    done = outlog.run("projections", "run", "--until-idle", check=False)
    assert done.returncode != 0 and "OUTLOG_STORE_DIRECT" in done.stderr


def test_a4_a_lost_commit_is_resolved_behind_a_pooler(postgres, postgres_store):
    """The client's end is cut while the commit is on its way; the session that may still commit is known by name."""
    with PgBouncer(postgres, size=2) as pooler, Proxy(pooler.port) as proxy:
        url = postgres_store.replace(f":{postgres.port}/", f":{proxy.port}/")
        with Log(url) as log:
            for where in ("request", "reply", "held"):
                proxy.cut_at("^commit$", where)
                tx = log.begin()
                appended = tx.append(event("order/o-1"))[0]
                with pytest.raises(Refused) as refused:
                    tx.commit()
                assert refused.value.code == "outcome_unknown"
                assert bool(log.resolve(appended.id)) == (where == "reply")
                if where == "held":  # the commit reaches the pooler now: its session was ended
                    proxy.release()
                    assert log.append_now(event("order/o-1"))[0].aggregate_seq == 2
                    assert not log.resolve(appended.id)
