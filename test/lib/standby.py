"""A streaming standby of a server of lib/postgres.py."""
import os
import pathlib
import tempfile

from lib.outbox import wait_for
from lib.postgres import PREFIX, Postgres, storage_folder


class Standby(Postgres):
    """Follows `primary` from the moment it is entered; to be read from only, until promote()."""

    def __init__(self, primary):
        super().__init__()
        self.primary = primary
        self.password = primary.password

    def _create(self):
        self._folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=storage_folder()))
        self.data = self._folder / "data"
        self.socket_dir = self._folder / "socket"
        self.log_path = self._folder / "log"
        self.socket_dir.mkdir(mode=0o700)
        self.log_path.touch()
        if self._owner:
            for path in (self._folder, self.socket_dir, self.log_path):
                os.chown(path, self._owner.pw_uid, self._owner.pw_gid)
        copy = self._spawn(
            self._bin / "pg_basebackup",
            "-D",
            self.data,
            "-R",
            "-X",
            "stream",
            "-c",
            "fast",
            "--no-sync",
            "-d",
            self.primary.url(),
            output=self.log_path,
        )
        if copy.wait() != 0:
            raise RuntimeError(f"pg_basebackup failed:\n{self.log()}")
        with open(self.data / "postgresql.auto.conf", "a") as conf:
            conf.write(f"unix_socket_directories = '{self.socket_dir}'\n")

    def follow_synchronously(self):
        """From now on a commit of the primary is acknowledged when it is on our disk too."""
        self.primary.sql("alter system set synchronous_standby_names = '*'")
        self.primary.sql("select pg_reload_conf()")
        wait_for(
            lambda: self.primary.sql("select sync_state from pg_stat_replication") == [("sync",)],
            "the standby to be synchronous",
        )

    def detach(self):
        """From now on receive nothing: what the primary commits is lost when we take over."""
        self.sql("alter system set primary_conninfo = ''")
        self.sql("select pg_reload_conf()")
        wait_for(lambda: self.sql("select count(*) from pg_stat_wal_receiver") == [(0,)], "the stream to end")

    def promote(self):
        """Become the primary, of a new timeline."""
        self.sql("select pg_promote(true, 30)")

    def fall_behind(self):
        """From now on show what was committed until now, and nothing later."""
        position = self.primary.sql("select pg_current_wal_lsn()")[0][0]
        wait_for(
            lambda: self.sql("select pg_last_wal_replay_lsn() >= %s::pg_lsn", position) == [(True,)],
            "the standby to have it all",
        )
        self.sql("select pg_wal_replay_pause()")
        wait_for(lambda: self.sql("select pg_get_wal_replay_pause_state()") == [("paused",)], "the replay to stop")
