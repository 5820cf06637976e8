"""Stores that are deleted, renamed, replaced or made read-only while they are open (R4, P11).

Nothing is acknowledged that is not on disk where the path says, and everybody says why.
"""
import contextlib
import os
import pathlib
import shutil
import sqlite3
import stat
import subprocess

import pytest

from lib.cli import ROOT, Outlog
from lib.liboutlog import Log, Refused, event
from lib.outbox import wait_for
from lib.server import Stream


def path_of(store):
    return pathlib.Path(store.removeprefix("sqlite:"))


def files_of(store):
    return [pathlib.Path(f"{path_of(store)}{end}") for end in ("", "-wal", "-shm")]


def delete(store):
    for path in files_of(store):
        path.unlink(missing_ok=True)


def delete_wal(store):
    files_of(store)[1].unlink()


def rename(store):
    path_of(store).rename(f"{path_of(store)}.away")


def rename_all(store):
    for path in files_of(store):
        if path.exists():
            path.rename(path.parent / f"away-{path.name}")


def replace(store):
    """Another store is put in its place, as a restored backup is."""
    other = path_of(store).parent / "other.db"
    Outlog(f"sqlite:{other}").run("init")
    os.replace(other, path_of(store))


TROUBLES = [delete, delete_wal, rename, rename_all, replace]


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_r4_a_store_that_is_not_at_its_path_acknowledges_nothing(sqlite_store, outlog, serve, trouble):
    server = serve("--no-relay")
    server.append("acme")
    assert server.get("/readyz").status == 200
    before = set(os.listdir(path_of(sqlite_store).parent))
    trouble(sqlite_store)
    after = set(os.listdir(path_of(sqlite_store).parent))
    body = {
        "org_id": "acme",
        "events": [{"aggregate_type": "a", "aggregate_id": "1", "event_type": "t", "payload": {}}],
    }
    for _ in range(20):
        answer = server.post("/v1/events", body)
        assert (answer.status, answer.code) == (503, "unavailable"), answer
        message = server.post("/v1/messages", {"destination": "d", "event_type": "t", "payload": {}})
        assert (message.status, message.code) == (503, "unavailable"), message
    answer = server.get("/readyz")
    assert answer.status == 503
    assert "while it was open" in answer.json["detail"]
    assert server.get("/v1/events").status == 503
    assert Stream(server).status == 503
    made = set(os.listdir(path_of(sqlite_store).parent)) - after
    assert not {name for name in made if name.startswith("outlog.db")}, (before, after, made)


def test_r4_a_file_that_is_put_back_is_used_again(sqlite_store, outlog, serve):
    server = serve("--no-relay")
    server.append("acme")
    path_of(sqlite_store).rename(f"{path_of(sqlite_store)}.away")
    body = {
        "org_id": "acme",
        "events": [{"aggregate_type": "a", "aggregate_id": "1", "event_type": "t", "payload": {}}],
    }
    assert server.post("/v1/events", body).status == 503
    os.rename(f"{path_of(sqlite_store)}.away", path_of(sqlite_store))
    assert server.post("/v1/events", body).status == 201
    assert server.get("/readyz").status == 200
    assert len(outlog.run("events", "--json").lines()) == 2


@pytest.mark.parametrize("trouble", TROUBLES, ids=lambda trouble: trouble.__name__)
def test_r4_a_handle_of_c_refuses_before_the_commit(sqlite_store, trouble):
    with Log(sqlite_store) as log:
        log.append_now(event())
        tx = log.begin()
        tx.append(event())
        trouble(sqlite_store)
        with pytest.raises(Refused, match="unavailable"):
            tx.commit()
        for call in (lambda: log.append_now(event()), log.settled, log.read, log.begin):
            with pytest.raises(Refused, match="while it was open.*unavailable"):
                call()
        if trouble in (delete, rename):
            with pytest.raises(Refused, match="unavailable"):
                Log(sqlite_store)  # never an empty file under the eyes of an open handle
            assert not path_of(sqlite_store).exists()


def test_r4_a_relay_sends_nothing_from_a_file_that_is_gone(sqlite_store, outlog, tmp_path):
    outlog.run("apply", "-f", "-", input='{"destinations": {"out": {"type": "exec", "command": ["true"]}}}')
    relay = outlog.start("relay")
    outlog.run("send", "--to", "out", "--type", "t", "--data", "{}")
    wait_for(lambda: "PUBLISHED" in outlog.run("outbox", "--json").stdout, "the first message to be sent")
    delete(sqlite_store)
    line = relay.stderr.readline()
    while line and "while it was open" not in line:
        line = relay.stderr.readline()
    assert "while it was open" in line
    assert not path_of(sqlite_store).exists()
    relay.kill()


def test_r4_a_follower_says_that_the_file_is_gone(sqlite_store, outlog):
    follow = outlog.start("events", "--follow")
    outlog.run("append", "--org", "acme", "--aggregate", "a/1", "--type", "t", "--data", "{}")
    delete(sqlite_store)
    _, err = follow.communicate(timeout=60)
    assert follow.returncode == 1 and "while it was open" in err


def test_r4_the_extension_refuses_on_a_file_that_was_moved(sqlite_store, extension):
    with contextlib.closing(sqlite3.connect(sqlite_store.removeprefix("sqlite:"), isolation_level=None)) as db:
        db.enable_load_extension(True)
        db.load_extension(str(extension))
        append = """select outlog_append('{"org_id":"a","aggregate_type":"a","aggregate_id":"1","event_type":"t","payload":{}}')"""
        db.execute(append)
        path_of(sqlite_store).rename(f"{path_of(sqlite_store)}.away")
        with pytest.raises(sqlite3.Error, match="unavailable: "):
            db.execute(append)


def test_r4_a_file_that_was_made_read_only_is_said_and_still_read(sqlite_store, outlog, serve):
    server = serve("--no-relay")
    server.append("acme")
    path_of(sqlite_store).chmod(0o400)
    answer = server.get("/readyz")
    assert (answer.status, answer.code) == (503, "read_only")
    body = {
        "org_id": "acme",
        "events": [{"aggregate_type": "a", "aggregate_id": "1", "event_type": "t", "payload": {}}],
    }
    answer = server.post("/v1/events", body)
    assert (answer.status, answer.code) == (503, "read_only")
    assert len(server.get("/v1/events").json["events"]) == 1
    path_of(sqlite_store).chmod(0o600)
    assert server.post("/v1/events", body).status == 201
    assert server.get("/readyz").status == 200


def test_r6_the_files_of_a_store_are_for_their_owner_alone(sqlite_store, serve, tmp_path):
    server = serve()
    server.append("acme")
    found = {path.name: stat.S_IMODE(path.stat().st_mode) for path in files_of(sqlite_store)}
    assert set(found.values()) == {0o600} and len(found) == 3
    fresh = tmp_path / "fresh.db"
    with Log(f"sqlite:{fresh}"):
        pass
    assert stat.S_IMODE(fresh.stat().st_mode) == 0o600


def test_p11_the_tour_leaves_the_store_of_a_running_demo_alone(tmp_path, build):
    demo = tmp_path / "demo"
    demo.mkdir()
    outlog = Outlog(f"sqlite:{demo}/outlog.db")
    outlog.run("init")
    before = (demo / "outlog.db").stat().st_ino
    done = subprocess.run(
        [ROOT / "scripts" / "tour"],
        cwd=tmp_path,
        env={**os.environ, "OUTLOG_BUILD": str(build), "OUTLOG_DEMO": str(demo)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (demo / "outlog.db").stat().st_ino == before
    assert outlog.run("events", "--json").lines() == []
    shutil.rmtree(demo)


def run_sql(postgres, url, sql):
    postgres.sql(sql, database=url.rsplit("/", 1)[1])


def test_p11_a_schema_that_is_dropped_under_a_daemon_is_said(postgres_store, postgres, outlog, serve):
    server = serve("--no-relay")
    server.append("acme")
    stream = Stream(server)
    run_sql(postgres, postgres_store, "drop schema outlog cascade")
    answer = wait_for(lambda: (a := server.get("/readyz")).status == 503 and a, "readyz to fail")
    assert answer.code == "no_schema"
    body = {
        "org_id": "acme",
        "events": [{"aggregate_type": "a", "aggregate_id": "1", "event_type": "t", "payload": {}}],
    }
    answer = server.post("/v1/events", body)
    assert (answer.status, answer.code) == (503, "no_schema")
    stream.close()


def test_p11_a_database_that_is_made_anew_is_another_log(postgres_store, postgres, outlog, serve):
    server = serve("--no-relay")
    server.append("acme", 5)
    page = server.get("/v1/events").json
    stream = Stream(server, "/v1/events/stream?after=5")
    name = postgres_store.rsplit("/", 1)[1]
    postgres.drop(name)
    wait_for(lambda: server.get("/readyz").status == 503, "readyz to fail")
    postgres.create(name)
    answer = server.get("/readyz")
    assert (answer.status, answer.code) == (503, "no_schema")
    outlog.run("init")
    wait_for(lambda: server.get("/readyz").status == 200, "the daemon to find it")
    answer = server.get("/v1/events?after=5")
    assert (answer.status, answer.code) == (409, "beyond_log")
    answer = server.get(f"/v1/events?after=0&log_id={page['log_id']}")
    assert (answer.status, answer.code) == (409, "beyond_log")
    assert list(stream) == []  # it ends, and does not wait for ids that others will have
    server.append("acme", 6)
    assert len(server.get("/v1/events").json["events"]) == 6
