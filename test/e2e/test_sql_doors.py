"""The SQL doors as somebody careless or hostile uses them: what cannot be meant is refused by name, with the same
code on both stores, and no setting or schema of a session changes what the functions do."""
import contextlib
import json
import os
import sqlite3
import subprocess
import threading
import uuid

import psycopg2
import pytest

from doors import connect, is_postgres
from lib.cli import Outlog, build_dir
from lib.postgres import bin_dir

PASSWORD, ID = "sql-doors", "019a8c1e-6201-7740-99a9-72da44c8a123"


class Sql:
    """A connection of a program's own; functions take named arguments on both stores."""

    def __init__(self, store):
        self.is_postgres, self.connection = is_postgres(store), connect(store)
        if not self.is_postgres:
            self.connection.enable_load_extension(True)
            self.connection.load_extension(str(build_dir() / "src" / "ext" / "outlog"))

    def run(self, sql, *args):
        """Rows; `outlog.` and %s are those of PostgreSQL."""
        if not self.is_postgres:
            return self.connection.execute(sql.replace("outlog.", "outlog_").replace("%s", "?"), args).fetchall()
        with self.connection.cursor() as cursor:
            cursor.execute(sql, args or None)
            return cursor.fetchall() if cursor.description else None

    def call(self, function, **given):
        if self.is_postgres:
            names = ", ".join(f"{name} => %s" for name in given)
            return self.run(f"select to_json(answer) from outlog.{function}({names}) answer", *given.values())[0][0]
        return json.loads(self.run(f"select outlog_{function}(%s)", json.dumps(given))[0][0])

    def refusal(self, what, *args, **given):
        """(code, message) of what is not done: a function with its arguments, or a statement."""
        with pytest.raises((psycopg2.Error, sqlite3.Error)) as refused:
            if " " in what:
                self.run(what, *args)
            else:
                self.call(what, **given)
        text = refused.value.diag.message_primary if self.is_postgres else str(refused.value)
        assert not self.is_postgres or refused.value.pgcode == "OL000", refused.value
        return text.partition(": ")[::2]

    def count(self, table):
        return self.run(f"select count(*) from outlog.{table}")[0][0]


@pytest.fixture
def sql(store):
    door = Sql(store)
    yield door
    door.connection.close()


@pytest.fixture
def postgres_sql(postgres_store):
    door = Sql(postgres_store)
    yield door
    door.connection.close()


def event(**more):
    return {"org_id": "acme", "aggregate_type": "order", "aggregate_id": "o-1", "event_type": "order.made",
            "payload": "{}", **more}


# Text

@pytest.mark.parametrize("text", ['{"a":1}\0', '{}\0junk', '\0{}', '{"a":"b\0c"}'])
def test_i1_a_nul_ends_no_text_in_sqlite(sqlite_store, text):
    """What stood behind it was neither hashed nor refused: another request had the same hash."""
    sql = Sql(sqlite_store)
    for function in ("request_hash", "wait_projection", "append", "enqueue", "request_effect", "start_run"):
        code, _ = sql.refusal(f"select outlog.{function}(%s)", text)
        assert code == "invalid_json", function
    assert sql.refusal("select outlog.wait_projection('{\"name\":\"p\",\"event_id\":1}' || char(0) || 'x')")[0] == "invalid_json"


FILTERS = {"events --org": "org_id", "events --type": "event_type", "events --correlation": "correlation_id",
           "events --app": "app_id", "trace": "correlation_id", "runs --org": "org_id", "destinations pause": "name",
           "notices --user": "user_id"}


@pytest.mark.parametrize("has_events", [False, True])
def test_e7_a_filter_that_is_no_text_is_refused_by_name(store, outlog, has_events):
    """SQLite looked for it and found nothing, PostgreSQL refused it in words of its own."""
    if has_events:
        outlog.run("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.made", "--data", "{}")
    for command, field in FILTERS.items():
        refused = outlog.run(*command.split(), os.fsdecode(b"a\xffb"), check=False)
        assert refused.returncode == 1 and refused.stdout == "", command
        assert refused.stderr == f"outlog: {field} is not UTF-8 [invalid_field]\n", command
