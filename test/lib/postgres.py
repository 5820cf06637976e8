"""A private PostgreSQL for tests: its own folder, its own port, nothing left behind.

    with Postgres() as server:
        url = server.create("orders")

It never runs as root (PostgreSQL refuses), needs no service manager, and dies with the process that
started it, even when that one is killed with SIGKILL. Local users of the machine cannot enter: the
socket lies in a private folder and TCP asks for a password. Its folder is below OUTLOG_TEST_FOLDER, which
scripts/test sets, else where temporary files are.
"""
import atexit
import contextlib
import ctypes
import glob
import os
import pathlib
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse

USER = "outlog_test"
PREFIX = "outlog-pg-"
START_SECONDS = 60
WORKERS = 8
MEMORY = pathlib.Path("/dev/shm")
FAKETIME = pathlib.Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")
ENOUGH = 6 << 30  # bytes that must be free before anything is kept in memory
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)
_given = set()


def bin_dir():
    """The folder of the newest PostgreSQL; Debian keeps it out of PATH."""

    def version(path):
        number = pathlib.Path(path).parents[1].name
        return float(number) if number.replace(".", "").isdigit() else 0

    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=version)
    path = found[-1] if found else shutil.which("postgres")
    if not path:
        raise RuntimeError("no PostgreSQL server found; run scripts/setup test")
    return pathlib.Path(path).resolve().parent


def free_port():
    """A port below the ephemeral range, so that no outgoing connection can take it meanwhile. Each is given
    out once, and tests that run side by side have ports of their own."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % WORKERS
    while True:
        port = 20000 + secrets.randbelow(12000 // WORKERS) * WORKERS + worker
        with socket.socket() as probe:
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                if port not in _given:
                    _given.add(port)
                    return port


def memory_folder():
    """A folder in memory where there is plenty of it, else None. What tests store need not outlive the machine:
    for a process that is killed memory is as good as a disk, and several times as fast."""
    with contextlib.suppress(OSError, ValueError):
        room = os.statvfs(MEMORY)
        free = [room.f_bavail * room.f_frsize]
        free += [
            int(line.split()[1]) << 10
            for line in pathlib.Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemAvailable:")
        ]
        group = pathlib.Path("/sys/fs/cgroup")
        if (group / "memory.max").exists() and (most := (group / "memory.max").read_text().strip()) != "max":
            free.append(int(most) - int((group / "memory.current").read_text()))
        if min(free) >= ENOUGH and os.access(MEMORY, os.W_OK) and not room.f_flag & os.ST_NOEXEC:
            return MEMORY
    return None


def storage_folder():
    return pathlib.Path(os.environ.get("OUTLOG_TEST_FOLDER") or tempfile.gettempdir())


class Postgres:
    """One server. `fsync=False` only where durability is not the point. With has_own_clock, set_clock() sets it."""

    def __init__(self, fsync=True, settings=None, has_own_clock=False):
        self.fsync = fsync
        self.has_own_clock = has_own_clock
        self.settings = dict(settings or {})
        self.process = None
        self.port = free_port()
        self.password = secrets.token_hex(12)
        self._owner = self._pick_owner()
        self._folder = None
        self._bin = bin_dir()

    def __enter__(self):
        exit_on_sigterm()
        atexit.register(self.remove)
        try:
            self._create()
            self.start()
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(self, *_):
        self.remove()

    # Life cycle

    def start(self):
        """Start the server and wait until it takes connections; also after stop() or kill()."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            self.process = self._spawn(
                self._bin / "postgres", "-D", self.data, "-p", str(self.port), output=self.log_path
            )
            if self._wait_ready(deadline):
                return
            # Backends of a killed server may still hold its shared memory for a moment; or
            # somebody took the port.
            log = self.log()
            retry = "shared memory block" in log.rsplit("starting PostgreSQL", 1)[-1]
            if "Address already in use" in log:
                self.port, retry = free_port(), True
                self.log_path.write_text("")
            if not retry or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{log[-4000:]}")
            time.sleep(0.05)

    def stop(self, mode="fast"):
        """`fast` ends connections and writes a checkpoint, `immediate` is a crash with manners."""
        self._signal({"smart": signal.SIGTERM, "fast": signal.SIGINT, "immediate": signal.SIGQUIT}[mode])

    def kill(self):
        """SIGKILL: the crash that asks nobody."""
        self._signal(signal.SIGKILL)

    def restart(self, mode="immediate"):
        """Stop and start again on the same port with the same data."""
        if mode == "kill":
            self.kill()
        else:
            self.stop(mode)
        self.start()

    def remove(self):
        """Stop the server and delete its folder. May be repeated."""
        atexit.unregister(self.remove)
        if self.process and self.process.poll() is None:
            try:
                self.stop("immediate")  # the data is thrown away: no checkpoint needed
            except subprocess.TimeoutExpired:
                self.kill()
        if self._folder:
            self._free_shared_memory()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    # Work

    def set_clock(self, seconds):
        """Its wall clock is wrong by so many seconds from now on."""
        fresh = self.clock_path.with_suffix(".new")
        fresh.write_text(f"{seconds:+d}\n")
        fresh.chmod(0o644)
        fresh.rename(self.clock_path)

    def url(self, database="postgres", user=USER, password=None):
        """A libpq URL over TCP."""
        password = urllib.parse.quote(password or self.password)
        return f"postgres://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database="postgres", user=USER):
        """The same over the Unix socket; for this user and root only."""
        host = urllib.parse.quote(str(self.socket_dir), safe="")
        return f"postgres://{user}@/{database}?host={host}&port={self.port}"

    def sql(self, statement, *args, database="postgres"):
        """Run one statement on a connection of its own; its rows, or None."""
        import psycopg2  # not needed to start a server

        connection = psycopg2.connect(self.url(database))
        try:
            connection.autocommit = True
            with connection.cursor() as cursor:
                cursor.execute(statement, args or None)
                return cursor.fetchall() if cursor.description else None
        finally:
            connection.close()

    def create(self, database, template=None):
        """Create a database, as a copy of `template` where given; its URL."""
        of = f' template "{template}"' if template else ""
        self.sql(f'create database "{database}"{of}')
        return self.url(database)

    def drop(self, database):
        self.sql(f'drop database if exists "{database}" with (force)')

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    # Inside

    @staticmethod
    def _pick_owner():
        if os.getuid() != 0:
            return None
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                return pwd.getpwnam(name)
        raise RuntimeError("running as root, and there is no user postgres or nobody to run as")

    def _create(self):
        sweep()
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=storage_folder()))
        self.data = self._folder / "data"
        self.socket_dir = self._folder / "socket"
        self.log_path = self._folder / "log"
        self.clock_path = self._folder / "clock"
        self.set_clock(0)
        self.socket_dir.mkdir(mode=0o700)
        password = self._folder / "password"
        password.write_text(self.password)
        self.log_path.touch()
        if self._owner:
            for path in (self._folder, self.socket_dir, password, self.log_path):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        initdb = self._spawn(
            self._bin / "initdb",
            "-D",
            self.data,
            "-U",
            USER,
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--auth-local=trust",
            "--auth-host=md5",
            f"--pwfile={password}",
            output=self.log_path,
        )
        if initdb.wait() != 0:
            raise RuntimeError(f"initdb failed:\n{self.log()}")
        password.unlink()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": self.socket_dir,
            "password_encryption": "md5",  # scram costs milliseconds a connection
            "fsync": "on" if self.fsync else "off",
            "max_connections": 200,
            "shared_buffers": "128MB",
            "timezone": "UTC",
            "dynamic_shared_memory_type": "mmap",  # below the folder, so it goes with it
            "max_wal_size": "512MB" if os.environ.get("OUTLOG_TEST_FOLDER") else "4GB",
            **self.settings,
        }
        with open(self.data / "postgresql.auto.conf", "a") as conf:
            for name, value in settings.items():
                conf.write(f"{name} = '{value}'\n")

    def _spawn(self, program, *args, output):
        who = {}
        if self._owner:
            who = {"user": self._owner.pw_uid, "group": self._owner.pw_gid, "extra_groups": []}
        env = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        if self.has_own_clock:
            env |= {
                "LD_PRELOAD": str(FAKETIME),
                "FAKETIME_TIMESTAMP_FILE": str(self.clock_path),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        with open(output, "ab") as log:
            return subprocess.Popen(
                [str(program), *map(str, args)],
                cwd=self._folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGQUIT),
                **who,
            )

    def _wait_ready(self, deadline):
        pid_file = self.data / "postmaster.pid"
        while self.process.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                lines = pid_file.read_text().splitlines()
                if len(lines) >= 8 and lines[0] == str(self.process.pid) and lines[7].strip() == "ready":
                    return True
            time.sleep(0.01)
        return False

    def _signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.wait(START_SECONDS)

    def _free_shared_memory(self):
        """A killed server leaves its small System V segment; the pid file still knows its id."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            segment = int((self.data / "postmaster.pid").read_text().splitlines()[6].split()[1])
            _libc.shmctl(segment, 0, None)  # IPC_RMID


def die_with_parent(number):
    """For Popen's preexec_fn, which runs after the child gave up root: no orphan survives us."""
    parent = os.getpid()

    def ask():
        _libc.prctl(_PR_SET_PDEATHSIG, number)
        if os.getppid() != parent:
            os._exit(1)

    return ask


def sweep():
    """Delete folders of runs that were killed before they could."""
    for path in storage_folder().glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            pid = int(path.name[len(PREFIX) :].split("-")[0])
            is_old = time.time() - path.stat().st_mtime > 120
            if is_old and not pathlib.Path(f"/proc/{pid}").exists():
                shutil.rmtree(path, ignore_errors=True)


def exit_on_sigterm():
    """Let SIGTERM and SIGHUP unwind the stack like Ctrl-C, so that `with` blocks clean up."""

    def leave(number, _frame):
        sys.exit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        with contextlib.suppress(ValueError):  # not the main thread
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, leave)
