"""The relay's core in a simulation: one seed is one history (test/sim/sim_relay.c lists what must hold)."""
import json
import os
import subprocess

import pytest

from lib.cli import Outlog

# These have found something once: a parked message was sent after its own row's lease was over.
SEEDS = [3, 8, 30, 51, 58] + list(range(1000, 1001 + int(os.environ.get("OUTLOG_SIM_SEEDS", 1))))
STEPS = 1000


def simulate(build, folder, seed, steps=STEPS):
    folder.mkdir()
    store = f"sqlite:{folder}/outlog.db"
    Outlog(store).run("init")
    done = subprocess.run(
        [
            build / "test" / "sim" / "sim_relay",
            store,
            build / "test" / "sim" / "sim_publisher.so",
            str(seed),
            str(steps),
        ],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, f"seed {seed}: {done.stderr[-2000:]}"
    return json.loads(done.stdout)


@pytest.mark.parametrize("seed", SEEDS)
def test_l1_a_simulated_history_keeps_every_rule(build, tmp_path, seed):
    report = simulate(build, tmp_path / "one", seed)
    assert report["messages"] > 100 and report["sends"] > 100
    assert report["crashes"] > 0 and report["taken"] > 2


def test_l1_the_same_seed_is_the_same_history(build, tmp_path):
    assert simulate(build, tmp_path / "one", 42, 600) == simulate(build, tmp_path / "two", 42, 600)
