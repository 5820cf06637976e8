"""PgBouncer in transaction mode in front of a server of lib/postgres.py.

    with PgBouncer(server) as pooler:
        outlog = Outlog(pooler.url(server.url("orders")))

Few server connections serve many clients, so that two transactions of one client are often two
sessions: whatever relies on a session shows.
"""
import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time

from lib.postgres import USER, die_with_parent, free_port


def program():
    path = shutil.which("pgbouncer") or "/usr/sbin/pgbouncer"
    return path if os.path.exists(path) else None


class PgBouncer:
    def __init__(self, server, size=4):
        self.server, self.size, self.port = server, size, free_port()
        self.process = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="outlog-bouncer-"))

    def __enter__(self):
        users = self.folder / "users"
        users.write_text(f'"{USER}" "{self.server.password}"\n')
        config = self.folder / "pgbouncer.ini"
        config.write_text(
            f"""
[databases]
* = host=127.0.0.1 port={self.server.port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = md5
auth_file = {users}
pool_mode = transaction
default_pool_size = {self.size}
max_client_conn = 500
server_round_robin = 1
logfile = {self.folder}/log
"""
        )
        who = {}
        if os.getuid() == 0:  # it refuses to run as root
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, users, config):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        self.process = subprocess.Popen(
            [program(), "-q", config],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=die_with_parent(signal.SIGKILL),
            **who,
        )
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return self
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"PgBouncer did not start: {self.log()}")
            time.sleep(0.02)

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def log(self):
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def url(self, url):
        """The same database, through the pooler."""
        return url.replace(f":{self.server.port}/", f":{self.port}/")
