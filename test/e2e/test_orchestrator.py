"""examples/orchestrator.py: killed half-way, it goes on from its checkpoint and does no step twice (U4)."""
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from interfaces import connect, execute
from lib.cli import ROOT

STEPS = ("RESERVE_STOCK", "CHARGE_CARD", "PACK", "SEND_RECEIPT")
DEATHS = ["RESERVE_STOCK:started", "CHARGE_CARD:started", "CHARGE_CARD:completed", "SEND_RECEIPT:completed"]


@pytest.fixture(params=["sql", "http"])
def where(request, store, outlog):
    """The store itself, or a server in front of it."""
    if request.param == "sql":
        return store
    server = outlog.start("serve", "--dev", "--no-relay", "--listen", "127.0.0.1:0")
    found = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
    assert found, "serve said nothing of where it listens"
    try:
        urllib.request.urlopen(f"{found[0]}/v1/runs", timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code == 404:
            pytest.skip("serve has no /v1/runs yet")
        raise
    return found[0]


def orchestrate(where, extension, extension_env, *orders, die_at=""):
    env = {**extension_env, "OUTLOG_EXTENSION": extension, "DIE_AT": die_at}
    env.pop("OUTLOG_TOKEN", None)
    return subprocess.run(
        [sys.executable, ROOT / "examples" / "orchestrator.py", where, *orders],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("die_at", DEATHS)
def test_u4_a_killed_orchestrator_goes_on_from_its_checkpoint(where, store, outlog, extension, extension_env, die_at):
    died = orchestrate(where, extension, extension_env, "o-1", die_at=die_at)
    assert died.returncode == -signal.SIGKILL, died
    left = outlog.run("runs", "--status", "RUNNING", "--json").json()
    assert len(left) == 1

    done = orchestrate(where, extension, extension_env, "o-2")
    assert done.returncode == 0, done.stderr
    name, when = die_at.split(":")
    before = STEPS[: STEPS.index(name) + (when == "completed")]
    assert done.stdout.splitlines() == [
        f"resumed o-1 after {', '.join(before) or 'nothing'}",
        "completed o-1",
        "completed o-2",
    ]

    runs = outlog.run("runs", "--json").json()
    assert [(run["status"], run["total_steps"], run["failed_steps"]) for run in runs] == [("COMPLETED", 4, 0)] * 2
    with_events = json.loads(outlog.run("run", "resume", left[0]["run_id"]).stdout)
    assert with_events["checkpoint"]["checkpoint_data"]["order_id"] == "o-1"
    db = connect(store)
    steps = execute(db, "select step_type from outlog_steps where run_id = ? order by step_index", left[0]["run_id"])
    assert [row[0] for row in steps] == list(STEPS)
    assert execute(db, "select count(*) from outlog_outbox") == [(2,)]  # one receipt an order
    db.close()
    outlog.run("verify", "--all")
