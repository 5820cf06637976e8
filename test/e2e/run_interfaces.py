"""Runs through every interface, as one class each: interface.do("start_step", run_id, step_type="CHARGE").

    c        the C library with a transaction of its own
    c-join   the C library inside a transaction of the caller's own connection
    sql      PostgreSQL: outlog.start_step(run_id => …); SQLite: outlog_start_step('{…}')
    cli      outlog run step …
    http     POST /v1/runs/{id}/steps of `outlog serve --dev`

`do` takes the verb of docs/runs.md, the id of what it is about and the members of its body; org_id is
one of them for what is new. `key`, `actor_id` and `request_id` are the caller's. It answers with the
object as a dict, its times RFC 3339 text, or raises Refused.
"""
import json
import re
import sqlite3
import urllib.error
import urllib.request

import psycopg2

from interfaces import ERROR_LINE, Program, Refused, connect, execute, is_postgres
from lib.cli import Outlog, build_dir

DOORS = ("c", "c-join", "sql", "cli", "http")
TARGETS = {"step": "step_id", "tool": "tool_call_id", "run": "run_id"}
CALLER = ("actor_id", "request_id", "key")


def target_of(verb):
    """The name of what a verb is about, or None."""
    if verb in ("receive_signal", "start_run"):
        return None
    if verb in ("start_step", "request_effect"):
        return "run_id"
    return "step_id" if verb == "call_tool" else TARGETS[verb.split("_")[1]]


class Runs:
    """What every interface can: look at a run with the C library, and close."""

    def __init__(self, store):
        self.store = store
        self.program = Program(store)

    def get(self, run_id):
        return self.program.ask("run_get", id=run_id)

    def list(self, **asked):
        return self.program.ask("run_list", **asked)

    def resume(self, run_id):
        return self.program.ask("run_resume", id=run_id)

    def replay(self, run_id):
        return self.program.ask("run_replay", id=run_id)

    def verify(self, run_id):
        return self.program.ask("run_verify", id=run_id)

    def close(self):
        self.program.close()


class CRuns(Runs):
    is_replay = None
    joins = False

    def do(self, verb, id=None, **body):
        call = {name: body.pop(name) for name in CALLER if name in body}
        self.program.ask("join" if self.joins else "begin")
        try:
            done = self.program.ask("run", verb=verb, id=id, body=json.dumps(body), **call)
        except Refused:
            self._end("rollback")
            raise
        self._end("commit")
        self.is_replay = done["is_replay"]
        return done["answer"]

    def _end(self, how):
        if self.joins:
            self.program.ask("end", how=how)
        else:
            self.program.ask(how)


class CJoinRuns(CRuns):
    joins = True


JSON_MEMBERS = ("payload", "output_result", "input", "result", "checkpoint_data", "effect_spec")


class SqlRuns(Runs):
    def __init__(self, store):
        super().__init__(store)
        self.connection = connect(store)
        if not is_postgres(store):
            self.connection.enable_load_extension(True)
            self.connection.load_extension(str(build_dir() / "src" / "ext" / "outlog"))

    def do(self, verb, id=None, **body):
        if "key" in body:
            body["idempotency_key"] = body.pop("key")
        if verb.endswith(("_run", "_tool")) and verb.split("_")[0] in ("complete", "fail", "cancel"):
            how, what = verb.split("_")
            body["status"] = {"complete": "COMPLETED", "fail": "FAILED", "cancel": "CANCELLED"}[how]
            verb = f"end_{what}"
        target = "tool_call_id" if verb == "end_tool" else "run_id" if verb == "end_run" else target_of(verb)
        if target:
            body[target] = id
        return (self._postgres if is_postgres(self.store) else self._sqlite)(verb, body)

    def _sqlite(self, verb, body):
        try:
            rows = execute(self.connection, f"select outlog_{verb}(?)", json.dumps(body))
        except sqlite3.Error as error:
            code, _, message = str(error).partition(": ")
            raise Refused(code, message) from None
        return json.loads(rows[0][0])

    def _postgres(self, verb, body):
        names = ", ".join(f"{name} => %s" for name in body)
        values = [
            json.dumps(value) if name in JSON_MEMBERS and value is not None else value for name, value in body.items()
        ]
        with self.connection.cursor() as cursor:
            try:
                cursor.execute(f"select * from outlog.{verb}({names})", values)
            except psycopg2.Error as error:
                if error.pgcode != "OL000":
                    raise
                code, _, message = error.diag.message_primary.partition(": ")
                detail = json.loads(error.diag.message_detail)
                raise Refused(
                    code, message, detail.get("pointer"), detail.get("expected"), detail.get("actual")
                ) from None
            columns = [column.name for column in cursor.description]
            answer = dict(zip(columns, cursor.fetchone()))
        for name, value in answer.items():
            if name.endswith("_at") and value is not None:
                answer[name] = f"{value:%Y-%m-%dT%H:%M:%S.%fZ}"
            elif name.endswith("_id") and value is not None and name != "event_id":
                answer[name] = str(value)
        return answer

    def close(self):
        self.connection.close()
        super().close()


class CliRuns(Runs):
    WORDS = {
        "receive_signal": ["signal"],
        "start_run": ["run", "start"],
        "start_step": ["run", "step"],
        "request_effect": ["run", "effect"],
        "call_tool": ["tool", "call"],
    }
    FLAGS = {
        "signal_type": "type",
        "run_type": "type",
        "step_type": "type",
        "effect_type": "type",
        "orchestrator_version": "version",
        "signal_id": "signal",
        "correlation_id": "correlation",
        "step_index": "index",
        "duration_ms": "duration-ms",
        "error_code": "code",
        "error_message": "message",
        "reason": "reason",
        "causation_id": "causation",
        "tool_name": "name",
        "destination": "to",
        "step_id": "step",
        "expected_seq": "expect",
        "idempotency_key": "effect-key",
        "max_attempts": "max-attempts",
        "key": "key",
        "request_id": "request-id",
        "ordering_key": "ordering-key",
        **{name: "data" for name in JSON_MEMBERS},
    }

    def do(self, verb, id=None, **body):
        args = list(self.WORDS.get(verb) or reversed(verb.split("_")))
        args += [id] if id else []
        if "org_id" in body:
            org_id = body.pop("org_id")
            args += ["--infra"] if org_id is None else ["--org", org_id]
        if "actor_id" in body:
            args += [f"--actor=system:{body.pop('actor_id')}"]
        for name, value in body.items():
            args.append(f"--{self.FLAGS[name]}={json.dumps(value) if name in JSON_MEMBERS else value}")
        done = Outlog(self.store).run(*args, "--json", check=False)
        if done.returncode == 0:
            return done.json()[0]
        error = ERROR_LINE.fullmatch(done.stderr.splitlines()[-1])
        assert done.returncode == 1 and error and not done.stdout, repr(done)
        raise Refused(error[2], error[1])


class HttpRuns(Runs):
    """Also looks by HTTP. Only tokens have other actors than system, so `actor_id` cannot be given."""

    PATHS = {
        "receive_signal": "signals",
        "start_run": "runs",
        "start_step": "runs/{}/steps",
        "request_effect": "runs/{}/effects",
        "call_tool": "steps/{}/tools",
    }
    CREATED = ("receive_signal", "start_run", "start_step", "request_effect", "call_tool", "checkpoint_run")
    is_replay = None

    def __init__(self, store):
        super().__init__(store)
        self.outlog = Outlog(store)
        server = self.outlog.start("serve", "--dev", "--no-relay", "--listen", "127.0.0.1:0")
        self.base = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]

    def do(self, verb, id=None, **body):
        how, what = verb.split("_")
        path = self.PATHS.get(verb, f"{what}s/{{}}/{how}").format(id)
        headers = {
            name: body.pop(member)
            for name, member in (("idempotency-key", "key"), ("x-request-id", "request_id"))
            if member in body
        }
        answer, status, got = self.call("POST", path, body, headers)
        assert status == (201 if verb in self.CREATED else 200)
        self.is_replay = got.get("idempotency-replayed") == "true"
        return answer

    def call(self, method, path, body=None, headers=None):
        request = urllib.request.Request(f"{self.base}/v1/{path}", method=method, headers=headers or {})
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=30) as done:
                return json.load(done), done.status, done.headers
        except urllib.error.HTTPError as error:
            problem = json.load(error)
            pointer = (problem.get("errors") or [{}])[0].get("pointer")
            raise Refused(
                problem["code"], problem["detail"], pointer, problem.get("expected"), problem.get("actual")
            ) from None

    def get(self, run_id):
        return self.call("GET", f"runs/{run_id}")[0]

    def resume(self, run_id):
        return self.call("POST", f"runs/{run_id}/resume", {})[0]

    def replay(self, run_id):
        return self.call("GET", f"runs/{run_id}/replay")[0]

    def verify(self, run_id):
        return self.call("GET", f"runs/{run_id}/verify")[0]

    def close(self):
        self.outlog.close()
        super().close()


def open_runs(name, store):
    kinds = {"c": CRuns, "c-join": CJoinRuns, "sql": SqlRuns, "cli": CliRuns, "http": HttpRuns}
    return kinds[name](store)
