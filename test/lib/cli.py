"""Running the `outlog` binary from a test."""
import json
import os
import pathlib
import pty
import re
import select
import signal
import subprocess
import time

from lib.postgres import die_with_parent

ROOT = pathlib.Path(__file__).resolve().parents[2]

SANITIZER_EXIT = 99  # scripts/test tells the sanitizers


def build_dir():
    """OUTLOG_BUILD, else what `make test` builds, else what `make` builds."""
    if os.environ.get("OUTLOG_BUILD"):
        return pathlib.Path(os.environ["OUTLOG_BUILD"]).resolve()
    test = ROOT / "build-test"
    return test if (test / "build.ninja").exists() else ROOT / "build"


class Result:
    """What a command left: returncode, stdout, stderr."""

    def __init__(self, args, returncode, stdout, stderr):
        self.args, self.returncode, self.stdout, self.stderr = args, returncode, stdout, stderr

    def lines(self):
        """Split at line feeds only: U+2028 and others are part of a text."""
        return self.stdout.removesuffix("\n").split("\n") if self.stdout else []

    def json(self):
        """Every line of standard output as JSON."""
        return [json.loads(line) for line in self.lines()]

    def __repr__(self):
        return f"outlog {' '.join(self.args)} -> {self.returncode}\n" f"{self.stdout}{self.stderr}"


class Terminal:
    """A command whose standard error somebody looks at."""

    def __init__(self, process, terminal):
        self.process, self._terminal, self.drawn = process, terminal, ""

    def see(self, pattern, seconds=30):
        """Wait until this was drawn; what was found."""
        end = time.monotonic() + seconds
        while not (found := re.search(pattern, self.drawn, re.M)):
            assert select.select([self._terminal], [], [], max(0, end - time.monotonic()))[0], self.drawn[-500:]
            try:
                self.drawn += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError as ended:  # the other side is closed
                raise AssertionError(f"no {pattern!r} in {self.drawn[-500:]!r}") from ended
        return found

    def end(self):
        """Wait for its end; what it printed."""
        out, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, self.drawn
        os.close(self._terminal)
        return out


class Outlog:
    """The binary, bound to a store (or to none), here or on a host of lib/hosts.py."""

    def __init__(self, store=None, cwd=None, host=None):
        self.store, self.cwd = store, cwd
        self.path = build_dir() / "outlog"
        self.prefix = host.prefix if host else []
        self._started = []

    def run(self, *args, input=None, check=True, timeout=60, env=None):
        """Run to the end. check=True fails the test, with both outputs, unless it exits with 0."""
        args = [str(arg) for arg in args]
        done = subprocess.run(
            [*self.prefix, self.path, *args],
            input=input,
            capture_output=True,
            timeout=timeout,
            cwd=self.cwd,
            encoding=None if isinstance(input, bytes) else "utf-8",
            env=self._env(env),
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        out, err = (
            text.decode(errors="replace") if isinstance(text, bytes) else text for text in (done.stdout, done.stderr)
        )
        result = Result(args, done.returncode, out, err)
        # A sanitizer's report is a failure also where the test expects the command to fail.
        if (check and done.returncode != 0) or done.returncode == SANITIZER_EXIT:
            raise AssertionError(repr(result))
        return result

    def start(self, *args, env=None, **popen):
        """Start in the background, with pipes; what still runs when the test ends is killed."""
        process = subprocess.Popen(
            [*self.prefix, self.path, *map(str, args)],
            encoding="utf-8",
            cwd=self.cwd,
            env=self._env(env),
            preexec_fn=die_with_parent(signal.SIGKILL),
            **{"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **popen},
        )
        self._started.append(process)
        return process

    def at_terminal(self, *args, env=None):
        """Start it with standard error on a terminal of its own: Terminal."""
        ours, its = pty.openpty()
        process = self.start(*args, env=env, stderr=its)
        os.close(its)
        return Terminal(process, ours)

    def close(self):
        for process in self._started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def _env(self, more):
        # A user's own settings, or those of a shell, must not change what a test sees.
        env = {name: value for name, value in os.environ.items() if not name.startswith(("OUTLOG_", "PG"))}
        if "OUTLOG_ASAN_OPTIONS" in os.environ:
            env["ASAN_OPTIONS"] = os.environ["OUTLOG_ASAN_OPTIONS"]
        if self.store:
            env["OUTLOG_STORE"] = self.store
        return {**env, **(more or {})}
