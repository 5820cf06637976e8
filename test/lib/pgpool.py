"""Pgpool-II in front of a primary and its standby: it sends every SELECT that it may to the standby.

    with Pgpool(primary, standby) as pooler:
        outlog = Outlog(pooler.url(primary.url("orders")))

With `trusts_functions` it sends also those there that call a function which writes: as badly set up
as it can be.
"""
import contextlib
import hashlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

from lib.postgres import USER, die_with_parent, free_port


def program():
    path = shutil.which("pgpool") or "/usr/sbin/pgpool"
    return path if os.path.exists(path) else None


class Pgpool:
    def __init__(self, primary, standby, trusts_functions=False):
        self.primary, self.standby, self.port = primary, standby, free_port()
        self.trusts_functions = trusts_functions
        self.process = None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="outlog-pgpool-"))

    def __enter__(self):
        config = self.folder / "pgpool.conf"
        config.write_text(self._settings())
        users = self.folder / "users"
        secret = hashlib.md5((self.primary.password + USER).encode()).hexdigest()
        users.write_text(f"{USER}:md5{secret}\n")
        who = {}
        if os.getuid() == 0:
            owner = pwd.getpwnam("postgres")
            for path in (self.folder, config, users):
                os.chown(path, owner.pw_uid, owner.pw_gid)
            who = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        with open(self.folder / "log", "wb") as log:
            self.process = subprocess.Popen(
                [program(), "-n", "-f", config],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=die_with_parent(signal.SIGINT),
                **who,
            )
        deadline = time.monotonic() + 60
        while not self._knows_the_standby():
            if self.process.poll() is not None or time.monotonic() > deadline:
                log = self.log()
                self.__exit__()
                raise RuntimeError(f"Pgpool did not start: {log[-4000:]}")
            time.sleep(0.1)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)  # fast: it ends its children
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(20)
            if self.process.poll() is None:
                self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _settings(self):
        lines = [
            "backend_clustering_mode = 'streaming_replication'",
            "listen_addresses = '127.0.0.1'",
            f"port = {self.port}",
            f"pcp_port = {free_port()}",
            f"socket_dir = '{self.folder}'",
            f"pcp_socket_dir = '{self.folder}'",
            f"pid_file_name = '{self.folder}/pid'",
            f"logdir = '{self.folder}'",
            "enable_pool_hba = off",
            f"pool_passwd = '{self.folder}/users'",
            "num_init_children = 40",
            "max_pool = 1",
            "load_balance_mode = on",
            "sr_check_period = 1",
            f"sr_check_user = '{USER}'",
            f"sr_check_password = '{self.primary.password}'",
            "sr_check_database = 'postgres'",
            "delay_threshold = 0",
            "health_check_period = 0",
            "failover_on_backend_error = off",
            f"read_only_function_list = '{'.*' if self.trusts_functions else ''}'",
        ]
        for number, server in enumerate((self.primary, self.standby)):
            lines += [
                f"backend_hostname{number} = '127.0.0.1'",
                f"backend_port{number} = {server.port}",
                f"backend_weight{number} = {number}",
                f"backend_flag{number} = 'DISALLOW_TO_FAILOVER'",
                f"backend_data_directory{number} = '{server.data}'",
            ]
        return "\n".join(lines) + "\n"

    def _knows_the_standby(self):
        """Does a plain SELECT go to the standby?"""
        import psycopg2

        with contextlib.suppress(psycopg2.Error):
            db = psycopg2.connect(self.url(self.primary.url()))
            try:
                db.autocommit = True
                with db.cursor() as cursor:
                    cursor.execute("select inet_server_port()")
                    return cursor.fetchone()[0] == self.standby.port
            finally:
                db.close()
        return False

    def log(self):
        path = self.folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def url(self, url):
        """The same database, through the pooler."""
        return url.replace(f":{self.primary.port}/", f":{self.port}/")
