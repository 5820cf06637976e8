"""Every way into the log as one class, so that one suite can walk through all of them.

    c        the C library with a transaction of its own
    c-join   the C library inside a transaction of the caller's own PGconn or sqlite3 handle
    sql      PostgreSQL: outlog.append(…) by psycopg2; SQLite: outlog_append('{…}') by sqlite3
    cli      outlog append --org … --data …
    ndjson   outlog append --ndjson -

A interface takes the fields of an event by the names of the contract; payload and metadata are JSON
text, or bytes where the text is to be no UTF-8. It answers with the append result as a dict whose
occurred_at is RFC 3339 text, or raises Refused.
"""
import contextlib
import datetime
import json
import re
import sqlite3
import subprocess

import psycopg2

from lib.cli import Outlog, build_dir

DOORS = ("c", "c-join", "sql", "cli", "ndjson")
TRANSACTING = ("c", "c-join", "sql")  # more than one append in a transaction
CALLERS = ("c-join", "sql")  # the transaction is the caller's, with rows of its own

RESULT = ("event_id", "id", "aggregate_seq", "occurred_at", "correlation_id", "duplicate")
ERROR_LINE = re.compile(r"outlog: (.*) \[([a-z_]+)\]")


class Refused(Exception):
    """What an interface says when it says no. A interface that does not carry a value leaves it None."""

    def __init__(self, code, message, pointer=None, expected=None, actual=None, index=None):
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.pointer = code, message, pointer
        self.expected, self.actual, self.index = expected, actual, index


def is_postgres(store):
    return store.startswith("postgres")


def rfc3339(micros):
    at = datetime.datetime.fromtimestamp(micros // 1000000, datetime.timezone.utc)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{micros % 1000000:06}Z"


def micros(text):
    at = datetime.datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ")
    since = at - datetime.datetime(1970, 1, 1)
    return (since.days * 86400 + since.seconds) * 1000000 + since.microseconds


def connect(store):
    """An ordinary connection of the application: psycopg2, or sqlite3 without the extension."""
    if is_postgres(store):
        connection = psycopg2.connect(store)
        connection.autocommit = True
        return connection
    connection = sqlite3.connect(store[len("sqlite:") :], isolation_level=None, timeout=10)
    return connection


def execute(connection, sql, *args):
    """Run one statement, written for SQLite ('outlog_events', '?'), on either store."""
    if isinstance(connection, sqlite3.Connection):
        return connection.execute(sql, args).fetchall()
    with connection.cursor() as cursor:
        cursor.execute(sql.replace("outlog_", "outlog.").replace("?", "%s"), args)
        return cursor.fetchall() if cursor.description else []


def as_json(fields):
    """The fields as the JSON object of the JSON interfaces, payload and metadata byte for byte."""
    members = []
    for name, value in fields.items():
        if name in ("payload", "metadata") and value is not None:
            raw = value if isinstance(value, bytes) else value.encode()
        elif name == "causation_id" and isinstance(value, str) and value.isdigit():
            raw = value.encode()  # an event_id is a number
        else:
            raw = json.dumps(value).encode()
        members.append(json.dumps(name).encode() + b":" + raw)
    return b"{" + b",".join(members) + b"}"


class Interface:
    """What all interfaces have. `is_json`: events come as JSON objects, so unknown fields can be sent.
    `has_pointer`: a refusal says where as data, not only in its message."""

    name = None
    is_open = False  # inside a transaction
    is_json = has_pointer = False
    carries_bytes = True  # text that is no UTF-8 can be sent at all
    carries_newlines = True  # white space between tokens may be a new line

    def __init__(self, store):
        self.store = store

    def append(self, **fields):
        raise NotImplementedError

    def close(self):
        pass


class Program:
    """interface_c, the test's own C program, as a process that obeys one command after another."""

    def __init__(self, store):
        self._outlog = Outlog()
        self._outlog.path = build_dir() / "test" / "interface_c"
        self._process = self._outlog.start(store, stdin=subprocess.PIPE, stderr=None)

    def ask(self, verb, /, **arguments):
        command = json.dumps({"do": verb, **{name: self._text(value) for name, value in arguments.items()}})
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise AssertionError(f"interface_c ended with {self._process.wait()} at {command[:200]}")
        answer = json.loads(line)
        if "error" in answer:
            error = answer["error"]
            raise Refused(
                error["code"], error["message"], error["pointer"], error["expected"], error["actual"], error["index"]
            )
        return answer

    def append(self, *events):
        """Append as one command; events are dicts of fields."""
        events = [{name: self._text(value) for name, value in event.items()} for event in events]
        results = self.ask("append", events=events)["events"]
        return [{**result, "occurred_at": rfc3339(result["occurred_at"])} for result in results]

    @staticmethod
    def _text(value):
        return {"hex": value.hex()} if isinstance(value, bytes) else value

    def close(self):
        self._process.communicate(timeout=60)  # closes its input, which ends it
        assert self._process.returncode == 0, f"interface_c ended with {self._process.returncode}"


class CInterface(Interface):
    name = "c"
    has_pointer = True

    def __init__(self, store):
        super().__init__(store)
        self.program = Program(store)

    def append(self, **fields):
        return self.program.append(fields)[0]

    def begin(self):
        self.program.ask("begin")
        self.is_open = True

    def commit(self):
        self.is_open = False
        self.program.ask("commit")

    def rollback(self):
        self.is_open = False
        self.program.ask("rollback")

    def close(self):
        self.program.close()


class CJoinInterface(CInterface):
    name = "c-join"

    def append(self, **fields):
        if self.is_open:
            return super().append(**fields)
        self.begin()
        try:
            result = super().append(**fields)
        except Refused:
            self.rollback()
            raise
        self.commit()
        return result

    def begin(self):
        self.program.ask("join")
        self.is_open = True

    def write_row(self, row_id):
        self.program.ask("insert", id=row_id)

    def commit(self):
        self._end("commit")

    def rollback(self):
        self._end("rollback")

    def _end(self, how):
        self.is_open = False
        self.program.ask("end", how=how)


class SqliteInterface(Interface):
    name = "sql"
    is_json = True

    def __init__(self, store):
        super().__init__(store)
        self.connection = connect(store)
        self.connection.enable_load_extension(True)
        self.connection.load_extension(str(build_dir() / "src" / "ext" / "outlog"))

    def append(self, **fields):
        return self.append_json(as_json(fields))

    def append_json(self, text):
        with contextlib.suppress(UnicodeDecodeError):
            text = text.decode()
        try:
            rows = execute(self.connection, "select outlog_append(?)", text)
        except sqlite3.Error as error:
            code, _, message = str(error).partition(": ")
            raise Refused(code, message) from None
        return json.loads(rows[0][0])

    @property
    def is_open(self):
        return self.connection.in_transaction

    def begin(self):
        execute(self.connection, "begin immediate")

    def write_row(self, row_id):
        execute(self.connection, "insert into interface_orders (id) values (?)", row_id)

    def commit(self):
        execute(self.connection, "commit")

    def rollback(self):
        execute(self.connection, "rollback")

    def close(self):
        self.connection.close()


class PostgresInterface(Interface):
    name = "sql"
    has_pointer = True
    carries_bytes = False  # the server refuses the statement before it reaches us

    def __init__(self, store):
        super().__init__(store)
        self.connection = connect(store)

    def append(self, **fields):
        names = ", ".join(f"{name} => %s" for name in fields)
        with self.connection.cursor() as cursor:
            if self.is_open:  # an error ends a transaction unless there is a savepoint
                cursor.execute("savepoint interface")
            try:
                cursor.execute(f"select * from outlog.append({names})", list(fields.values()))
            except psycopg2.Error as error:
                if self.is_open:
                    cursor.execute("rollback to savepoint interface")
                if error.pgcode != "OL000":
                    raise
                raise self._refused(error.diag) from None
            columns = [column.name for column in cursor.description]
            result = dict(zip(columns, cursor.fetchone()))
        result["id"] = str(result["id"])  # psycopg2 may have been told to make UUIDs of them
        result["occurred_at"] = f"{result['occurred_at']:%Y-%m-%dT%H:%M:%S.%fZ}"
        return result

    @staticmethod
    def _refused(diag):
        code, _, message = diag.message_primary.partition(": ")
        detail = json.loads(diag.message_detail)
        assert detail["code"] == code
        return Refused(code, message, detail.get("pointer", ""), detail.get("expected"), detail.get("actual"))

    @property
    def is_open(self):
        return not self.connection.autocommit

    def begin(self):
        self.connection.autocommit = False

    def write_row(self, row_id):
        execute(self.connection, "insert into interface_orders (id) values (?)", row_id)

    def commit(self):
        self.connection.commit()
        self.connection.autocommit = True

    def rollback(self):
        self.connection.rollback()
        self.connection.autocommit = True

    def close(self):
        self.connection.close()


class CliInterface(Interface):
    name = "cli"
    FLAGS = {
        "event_type": "type",
        "event_version": "version",
        "expected_seq": "expect",
        "correlation_id": "correlation",
        "causation_id": "causation",
        "id": "id",
        "idempotency_key": "key",
        "request_id": "request-id",
        "app_id": "app",
        "env_id": "env",
        "visibility": "visibility",
        "metadata": "metadata",
    }

    def __init__(self, store):
        super().__init__(store)
        self.outlog = Outlog(store)

    def append(self, **fields):
        given = None
        args = ["append", "--json"]
        if "org_id" in fields:
            org_id = fields.pop("org_id")
            args += ["--infra"] if org_id is None else ["--org", org_id]
        args += ["--aggregate", f"{fields.pop('aggregate_type')}/{fields.pop('aggregate_id')}"]
        if "actor_id" in fields:
            args += ["--actor", f"{fields.pop('actor_type', 'system')}:{fields.pop('actor_id')}"]
        payload = fields.pop("payload")
        raw = payload if isinstance(payload, bytes) else payload.encode()
        if len(raw) > 100000 or isinstance(payload, bytes):  # an argument is 128 KiB at most
            args, given = args + ["--data", "@-"], raw
        else:
            args += [f"--data={payload}"]
        args += [f"--{self.FLAGS[name]}={value}" for name, value in fields.items() if value is not None]
        return self._result(self.outlog.run(*args, input=given, check=False))

    @staticmethod
    def _result(done):
        if done.returncode == 0:
            return done.json()[0]
        error = ERROR_LINE.fullmatch(done.stderr.splitlines()[-1])
        assert done.returncode == 1 and error and not done.stdout, repr(done)
        raise Refused(error[2], error[1])


class NdjsonInterface(CliInterface):
    name = "ndjson"
    is_json = True
    carries_newlines = False

    def append(self, **fields):
        return self.append_json(as_json(fields))

    def append_json(self, text):
        return self._result(self.outlog.run("append", "--json", "--ndjson", "-", input=text + b"\n", check=False))


def open_interface(name, store):
    sql = PostgresInterface if is_postgres(store) else SqliteInterface
    kinds = {"c": CInterface, "c-join": CJoinInterface, "sql": sql, "cli": CliInterface, "ndjson": NdjsonInterface}
    return kinds[name](store)
