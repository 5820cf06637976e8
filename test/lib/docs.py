"""Runs what the documentation shows.

A page is run from top to bottom in an empty folder, with an empty PostgreSQL database in
DATABASE_URL, outlog in PATH and `outlog.db` as its store. `/usr/local` stands for where outlog was
installed, port 7400 for a free one. The word after the fence says what a block is:

    console         lines with `$ ` are typed into one shell (`> ` continues a line); what follows
                    is their output. `…` matches anything, alone on a line any lines. Ids, times,
                    durations and schema versions match any others. A command may fail only where an error is shown.
    sh              the same without output; every line must succeed
    sql postgres    given to psql; `-- error: CODE` says that the block is refused, and how
    sql sqlite      given to sqlite3 with the extension loaded, on outlog.db; the same
    python          a program
    c               a program, compiled against the installed library and run
    text            nothing to run: a picture, a format

A block that must not run has `norun` after its word and the reason in a comment above it:
`<!-- norun: it would install packages -->`.
"""
import contextlib
import os
import re
import shlex
import signal
import subprocess
import threading

from lib.postgres import free_port

SECONDS = 60
MARK = "--- done"
FENCE = re.compile(r"^```(.*)$")
NORUN = re.compile(r"<!-- norun: .{8,} -->")
VARYING = [  # what differs from run to run, and what it becomes on both sides
    (r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "<id>"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?", "<time>"),
    (r"\+\d+\.\d ms|in \d+\.\d s\b", "<duration>"),
    (r"\b(version|schema) \d+\b", r"\1 <n>"),
]


class Block:
    def __init__(self, path, line, words, lines, above):
        self.where = f"{path.name}:{line}"
        self.kind = " ".join(word for word in words if word != "norun")
        self.is_run = "norun" not in words and self.kind != "text"
        self.has_reason = bool(NORUN.fullmatch(above))
        self.lines, self.text = lines, "\n".join(lines) + "\n"


def blocks(path):
    """The fenced blocks of a page, in order."""
    out, above, start, words, lines = [], "", None, [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fence = FENCE.match(line)
        if not fence and start:
            lines.append(line)
        elif fence and not start:
            start, words, lines = number, fence.group(1).split(), []
        elif fence:
            out.append(Block(path, start, words, lines, above))
            start = None
        if not start and line.strip():
            above = line.strip()
    assert start is None, f"{path}:{start}: a fence is not closed"
    return out


def normal(text):
    """The same for every run: what varies replaced, no blanks at the end of a line."""
    for varying, name in VARYING:
        text = re.sub(varying, name, text)
    return re.sub(r"[ \t]+$", "", text, flags=re.M)


def matches(shown, output):
    """Whether a command printed what the page shows, a list of lines."""
    wanted = ""
    for line in normal("\n".join(shown)).split("\n") if shown else []:
        wanted += r"(?:.*\n)*?" if line == "…" else re.escape(line).replace("…", ".*") + r"\n"
    return re.fullmatch(wanted, normal(output)) is not None


class Shell:
    """One bash for all console blocks of a page, so that variables stay."""

    def __init__(self, folder, env):
        self.bash = subprocess.Popen(
            ["bash", "--norc", "--noprofile"],
            cwd=folder,
            env=env,
            encoding="utf-8",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, command):
        """What the command printed, both streams, and its exit status."""
        watch = threading.Timer(SECONDS, self.kill)
        watch.start()
        self.bash.stdin.write(f'{{ {command}\n}} </dev/null\necho "{MARK} $?"\n')
        self.bash.stdin.flush()
        lines = []
        for line in self.bash.stdout:
            before, mark, status = line.partition(MARK)
            if mark:
                watch.cancel()
                return "".join(lines) + (before + "\n" if before else ""), int(status)
            lines.append(line)
        raise AssertionError(f"the shell ended, or took longer than {SECONDS} s:\n{command}\n" f"{''.join(lines)}")

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.bash.pid, signal.SIGKILL)  # what it started, too

    def close(self):
        self.kill()
        self.bash.communicate()


class Page:
    """`loader_env` is for programs that load our code into themselves; a sanitizer needs it."""

    def __init__(self, path, folder, prefix, env, loader_env):
        self.blocks, self.folder, self.prefix = blocks(path), folder, str(prefix)
        self.env, self.loader_env = env, loader_env
        self.shell = Shell(folder, env)
        self.port = free_port()

    def local(self, text):
        """As it is on this machine."""
        return text.replace("/usr/local", self.prefix).replace("127.0.0.1:7400", f"127.0.0.1:{self.port}")

    def run(self):
        try:
            for block in self.blocks:
                self.run_block(block)
        finally:
            self.shell.close()

    def run_block(self, block):
        runners = {
            "console": self.console,
            "sh": self.sh,
            "sql postgres": self.sql_postgres,
            "sql sqlite": self.sql_sqlite,
            "python": self.python,
            "c": self.c,
        }
        assert (
            block.kind in runners or block.kind == "text"
        ), f"{block.where}: a block is one of {', '.join(runners)} or text, not '{block.kind}'"
        if not block.is_run:
            assert block.kind == "text" or block.has_reason, f"{block.where}: norun, but why?"
            return
        block.lines = [self.local(line) for line in block.lines]
        block.text = self.local(block.text)
        runners[block.kind](block)

    def console(self, block):
        commands = []
        for line in block.lines:
            if line.startswith("$ "):
                commands.append((line[2:], []))
            elif line.startswith("> ") and not commands[-1][1]:
                commands[-1] = (commands[-1][0] + "\n" + line[2:], [])
            else:
                commands[-1][1].append(line)
        for command, shown in commands:
            output, status = self.shell.run(command)
            fails = any(re.match(r"outlog: |ERROR|psql:|Error|exit [1-9]", line) for line in shown)
            wanted = "\n".join(shown)
            said = f"{block.where}: $ {command}\n--- shown\n{wanted}\n--- was (exit {status})\n{output}"
            assert (status == 0) or fails, said
            assert matches(shown, output), said

    def sh(self, block):
        self.call(block, ["bash", "-euc", block.text], self.env)

    def sql_postgres(self, block):
        self.sql(block, ["psql", "-XqtA", "-v", "ON_ERROR_STOP=1", self.env["DATABASE_URL"]], self.env)

    def sql_sqlite(self, block):
        self.sql(
            block, ["sqlite3", "-bail", "-cmd", f".load {self.prefix}/lib/outlog/outlog", "outlog.db"], self.loader_env
        )

    def sql(self, block, program, env):
        refused = re.search(r"^-- error: (\w+)", block.text, re.M)
        done = self.call(block, program, env, input=block.text, check=not refused)
        if refused:
            assert (
                done.returncode != 0 and refused.group(1) + ":" in done.stdout
            ), f"{block.where}: expected {refused.group(1)}\n{done.stdout}"

    def python(self, block):
        (self.folder / "page.py").write_text(block.text)
        self.call(block, ["/usr/bin/python3", "page.py"], self.loader_env)

    def c(self, block):
        (self.folder / "page.c").write_text(block.text)
        compile_c(self.folder / "page.c", self.folder / "page", self.loader_env, block.where)
        self.call(block, ["./page"], self.env)

    def call(self, block, command, env, input=None, check=True):
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=env,
            input=input,
            encoding="utf-8",
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
        assert not check or done.returncode == 0, f"{block.where}:\n{block.text}\n{done.stdout}"
        return done


def compile_c(source, program, loader_env, where=""):
    """As a user would: the public header, the shared library, pkg-config."""
    env = dict(loader_env)
    preload = env.pop("LD_PRELOAD", "")
    sanitize = (
        ["-fsanitize=address,undefined"] if "asan" in preload else ["-fsanitize=thread"] if "tsan" in preload else []
    )
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "outlog", "sqlite3", "libpq"], env=env, capture_output=True, text=True
    )
    assert flags.returncode == 0, flags.stderr
    done = subprocess.run(
        ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", *sanitize, "-o", program, source, *shlex.split(flags.stdout)],
        env=env,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{where or source}:\n{done.stderr}"
