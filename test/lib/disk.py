"""A disk that fails on purpose, under one running process.

    with failing(server.process, "fdatasync", "EIO"):
        …                                      # each of its calls gets the error, and does nothing
"""
import contextlib
import os
import pathlib
import signal
import subprocess

from lib.outbox import wait_for
from lib.postgres import die_with_parent


@contextlib.contextmanager
def failing(process, call, error, when=""):
    """Until the end of the block, or of the process. `when` is strace's: ":when=1" for the first one only."""
    tracer = subprocess.Popen(
        [
            "strace",
            "-f",
            "-q",
            "-p",
            str(process.pid),
            "-o",
            os.devnull,
            "-e",
            f"trace={call}",
            "-e",
            f"inject={call}:error={error}{when}",
        ],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent(signal.SIGKILL),
    )

    def is_attached():
        assert tracer.poll() is None, tracer.stderr.read()
        return all(
            "TracerPid:\t0\n" not in (task / "status").read_text()
            for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir()
        )

    try:
        wait_for(is_attached, "strace to attach")
        yield
    finally:
        tracer.terminate()  # it lets go of the process
        tracer.communicate(timeout=30)
