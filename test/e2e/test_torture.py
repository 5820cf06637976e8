"""E6: a reader never misses an event, whatever the writers do.

The short form runs with every `make test`; `make torture` sets OUTLOG_TORTURE_ROWS for the long one.
The program is test/torture/torture_feed.c; what it saw is judged here.
"""
import json
import os
import secrets
import signal
import subprocess

import pytest

from lib.cli import SANITIZER_EXIT, Outlog
from lib.postgres import Postgres, die_with_parent

pytestmark = pytest.mark.torture

ROWS = int(os.environ.get("OUTLOG_TORTURE_ROWS", 10000))
IS_LONG = "OUTLOG_TORTURE_ROWS" in os.environ
SLEEP_MS = 500 if IS_LONG else 60
SEED = int(os.environ.get("OUTLOG_TORTURE_SEED") or secrets.randbits(32))


def torture(build, url):
    Outlog(url).run("init")
    done = subprocess.run(
        [build / "test" / "torture" / "torture_feed", url, str(ROWS), str(SLEEP_MS), str(SEED)],
        capture_output=True,
        text=True,
        timeout=120 + ROWS / 50,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    assert done.returncode not in (SANITIZER_EXIT, -signal.SIGABRT), done.stderr
    assert done.returncode == 0, f"OUTLOG_TORTURE_SEED={SEED}: {done.stderr}"
    report = json.loads(done.stdout)
    print(done.stdout)
    return report, {reader["name"]: reader for reader in report["readers"]}


def check(report, readers):
    assert report["rows"] == report["committed"] >= ROWS, "an acknowledged commit is missing"
    assert report["wrong_seq"] == 0, "aggregate_seq has a gap, or falls while event_id rises"
    for name, reader in readers.items():
        assert reader["unordered"] == 0 and reader["extra"] == 0, reader
        if name != "control":
            assert reader["lost"] == 0, reader
            assert reader["seen"] == reader["truth"] > 0, reader
    assert readers["consumer"]["restarts"] > 0


def test_e6_readers_lose_nothing_on_postgres(build):
    with Postgres(settings={"max_prepared_transactions": 32}) as server:
        report, readers = torture(build, server.create("torture"))
    check(report, readers)
    assert report["undone"] == 0, "what a savepoint undid is there"
    assert report["max_event_id"] > report["rows"], "nothing was rolled back"
    assert readers["control"]["lost"] > 0, "the naive reader lost nothing: this run proves nothing"


def test_e6_readers_lose_nothing_on_sqlite(build, tmp_path):
    check(*torture(build, f"sqlite:{tmp_path}/outlog.db"))
