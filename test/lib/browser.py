"""One Chromium for many tests: test/console/run.mjs, driven by lines."""
import json
import os
import select
import shutil
import signal
import subprocess

from lib.cli import ROOT
from lib.postgres import die_with_parent

BROWSER = os.environ.get("CHROMIUM") or shutil.which("chromium")
PLAYWRIGHT = ROOT / "test" / "node_modules" / "playwright-core"
FLOW_SECONDS = 300


def why_not():
    """Why there is no browser here, or None."""
    if not BROWSER or not PLAYWRIGHT.exists():
        return "needs chromium and playwright-core (make setup)"
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    return None if int(version.lstrip("v").split(".")[0]) >= 18 else "playwright needs node 18"


class Browser:
    """test/console/run.mjs: one Chromium for the whole session, a page a flow."""

    def __init__(self):
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        self._node = subprocess.Popen(
            ["node", ROOT / "test" / "console" / "run.mjs"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**env, "CHROMIUM": BROWSER},
            text=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )

    def flow(self, name, server, shots, answers=None, **args):
        """Run a flow to its end; what it asks for on the way is done by `answers`."""
        self._put({"flow": name, "base": server.url, "shots": str(shots), "args": args})
        while True:
            line = self._line(name)
            if "ask" not in line:
                assert line["ok"], line["error"]
                return
            asked = line.pop("ask")
            self._put({"answer": answers[asked](**line)})

    def close(self):
        self._node.stdin.close()
        try:
            self._node.wait(10)
        except subprocess.TimeoutExpired:
            self._node.kill()
            self._node.wait()

    def _put(self, line):
        self._node.stdin.write(json.dumps(line) + "\n")
        self._node.stdin.flush()

    def _line(self, flow):
        ready, _, _ = select.select([self._node.stdout], [], [], FLOW_SECONDS)
        assert ready, f"{flow} did not end within {FLOW_SECONDS} s"
        line = self._node.stdout.readline()
        assert line, f"the browser ended during {flow}"
        return json.loads(line)
