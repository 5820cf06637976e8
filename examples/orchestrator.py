#!/usr/bin/python3
"""Processes orders step by step, and can be killed at any moment.

    orchestrator.py WHERE ORDER_ID …

WHERE is an outlog server (http://127.0.0.1:7400, with the token in OUTLOG_TOKEN) or the database itself:
postgres://… by psycopg2, sqlite:PATH by the stock sqlite3 and the extension named in OUTLOG_EXTENSION.

First it resumes the runs of an earlier process, then it processes the orders given. After each step it
stores a checkpoint. To resume a run it loads the latest checkpoint and applies the events after it, so that
no recorded step runs twice. Every command has an idempotency key, so repeating the last one, whose reply may
have been lost, changes nothing. DIE_AT=CHARGE_CARD:started (or :completed) in the environment kills the
process at that point.
"""
import json
import os
import signal
import sqlite3
import sys
import urllib.error
import urllib.request

STEPS = ("RESERVE_STOCK", "CHARGE_CARD", "PACK", "SEND_RECEIPT")
VERSION = "orders-1.0"
ORG = "acme"


# The work. Each step gets the state of the order and returns its result.


def do_step(step, order):
    if step == "RESERVE_STOCK":
        return {"reserved": 2}
    if step == "CHARGE_CARD":
        return {"charged_cents": 12900}
    if step == "PACK":
        return {"parcel": f"p-{order['order_id']}"}
    return {"receipt": "sent by the relay"}


# The orchestrator


def process(log, order_id):
    """A new order: the signal, its run, and its steps."""
    signal_row = log.do(
        "receive_signal",
        org_id=ORG,
        signal_type="order.placed",
        payload={"order_id": order_id},
        key=f"signal:{order_id}",
    )
    run = log.do(
        "start_run",
        org_id=ORG,
        run_type="ORDER",
        orchestrator_version=VERSION,
        signal_id=signal_row["signal_id"],
        key=f"run:{order_id}",
    )
    run_steps(log, run["run_id"], {"order_id": order_id, "done": {}}, None)


def resume(log, run_id):
    """A run of an earlier process: its checkpoint, and the events after it by event_id."""
    left = log.resume(run_id)
    state = (left["checkpoint"] or {}).get("checkpoint_data") or {"order_id": None, "done": {}}
    if state["order_id"] is None:  # no checkpoint yet: the signal has the order
        state["order_id"] = log.signal(left["run"]["signal_id"])["payload"]["order_id"]
    open_step = None
    for event in left["events"]:
        payload = event["payload"]
        if event["event_type"] == "STEP_STARTED":
            open_step = payload["step_id"]
        elif event["event_type"] == "STEP_COMPLETED":
            state["done"][payload["step_type"]] = payload["output_result"]
            open_step = None
    print(f"resumed {state['order_id']} after {', '.join(state['done']) or 'nothing'}", flush=True)
    run_steps(log, run_id, state, open_step)


def run_steps(log, run_id, state, open_step):
    for name in STEPS:
        if name in state["done"]:
            continue
        step = open_step or log.do("start_step", run_id, step_type=name, key=f"{run_id}:{name}:start")["step_id"]
        open_step = None
        maybe_die(f"{name}:started")
        result = do_step(name, state)
        if name == "SEND_RECEIPT":  # an effect: the relay delivers it, once
            log.do(
                "request_effect",
                run_id,
                step_id=step,
                effect_type="SEND_EMAIL",
                destination="mail",
                effect_spec={
                    "to": ["customer@example.org"],
                    "subject": f"Order {state['order_id']}",
                    "body_text": "Thank you.",
                },
                idempotency_key=f"{run_id}:receipt",
            )
        log.do("complete_step", step, output_result=result, key=f"{run_id}:{name}:complete")
        maybe_die(f"{name}:completed")
        state["done"][name] = result
        log.do("checkpoint_run", run_id, checkpoint_data=state, key=f"{run_id}:{name}:checkpoint")
    log.do("complete_run", run_id, key=f"{run_id}:end")
    print(f"completed {state['order_id']}", flush=True)


def maybe_die(point):
    if os.environ.get("DIE_AT") == point:
        os.kill(os.getpid(), signal.SIGKILL)


# The same few calls over HTTP and over SQL


class Http:
    PATHS = {
        "receive_signal": "signals",
        "start_run": "runs",
        "start_step": "runs/{}/steps",
        "checkpoint_run": "runs/{}/checkpoint",
        "complete_run": "runs/{}/complete",
        "request_effect": "runs/{}/effects",
        "complete_step": "steps/{}/complete",
    }

    def __init__(self, base):
        self.base = base.rstrip("/")

    def do(self, verb, id=None, key=None, **body):
        return self._call("POST", self.PATHS[verb].format(id), body, key)

    def resume(self, run_id):
        return self._call("POST", f"runs/{run_id}/resume", {})

    def signal(self, signal_id):
        found = self._call("GET", f"events?aggregate_type=SIGNAL&aggregate_id={signal_id}&limit=1")
        return found["events"][0]["payload"]

    def unfinished(self):
        return [run["run_id"] for run in self._call("GET", "runs?status=RUNNING")["runs"]]

    def _call(self, method, path, body=None, key=None):
        request = urllib.request.Request(f"{self.base}/v1/{path}", method=method)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("content-type", "application/json")
        if key:
            request.add_header("idempotency-key", key)
        if os.environ.get("OUTLOG_TOKEN"):
            request.add_header("authorization", f"Bearer {os.environ['OUTLOG_TOKEN']}")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            sys.exit(f"orchestrator: {error.read().decode()}")


class Sql:
    """What both databases have in common: `ask` runs one statement and returns its rows."""

    JSON = ("payload", "output_result", "checkpoint_data", "effect_spec")

    def do(self, verb, id=None, key=None, **body):
        target = {
            "start_step": "run_id",
            "request_effect": "run_id",
            "checkpoint_run": "run_id",
            "complete_run": "run_id",
            "complete_step": "step_id",
        }.get(verb)
        if target:
            body[target] = id
        if key:
            body["idempotency_key"] = key
        return self.command("end_run" if verb == "complete_run" else verb, body)

    def resume(self, run_id):
        rows = self.ask(
            """select checkpoint_data, event_id from {}run_checkpoints where run_id = %s
                            order by checkpoint_index desc limit 1""",
            run_id,
        )
        checkpoint = {"checkpoint_data": load(rows[0][0])} if rows else None
        events = self.ask(
            f"""select event_type, payload from {{}}events where event_id > %s
                               and aggregate_type in ('RUN', 'STEP') and {self.run_id} = %s
                             order by event_id""",
            rows[0][1] if rows else 0,
            run_id,
        )
        (signal_id,) = self.ask("select signal_id from {}runs where run_id = %s", run_id)[0]
        return {
            "run": {"signal_id": signal_id},
            "checkpoint": checkpoint,
            "events": [{"event_type": kind, "payload": load(payload)} for kind, payload in events],
        }

    def signal(self, signal_id):
        return {"payload": load(self.ask("select payload from {}signals where signal_id = %s", signal_id)[0][0])}

    def unfinished(self):
        return [row[0] for row in self.ask("select run_id from {}runs where status = 'RUNNING' order by run_id")]


class Sqlite(Sql):
    run_id = "json_extract(payload, '$.run_id')"

    def __init__(self, url):
        self.db = sqlite3.connect(url[len("sqlite:") :], isolation_level=None, timeout=10)
        self.db.enable_load_extension(True)
        self.db.load_extension(os.environ.get("OUTLOG_EXTENSION", "/usr/local/lib/outlog/outlog"))

    def ask(self, sql, *values):
        return self.db.execute(sql.format("outlog_").replace("%s", "?"), values).fetchall()

    def command(self, verb, body):
        return json.loads(self.db.execute(f"select outlog_{verb}(?)", (json.dumps(body),)).fetchone()[0])


class Postgres(Sql):
    run_id = "payload ->> 'run_id'"

    def __init__(self, url):
        import psycopg2

        self.db = psycopg2.connect(url)
        self.db.autocommit = True

    def ask(self, sql, *values):
        with self.db.cursor() as cursor:
            cursor.execute(sql.format("outlog."), values)
            return cursor.fetchall()

    def command(self, verb, body):
        values = [json.dumps(value) if name in self.JSON else value for name, value in body.items()]
        with self.db.cursor() as cursor:
            cursor.execute(
                f"select to_json(o) from outlog.{verb}({', '.join(f'{name} => %s' for name in body)}) o", values
            )
            return cursor.fetchone()[0]


def load(value):
    return json.loads(value) if isinstance(value, str) else value


def main():
    where = sys.argv[1]
    kind = Http if where.startswith("http") else Sqlite if where.startswith("sqlite:") else Postgres
    log = kind(where)
    for run_id in log.unfinished():
        resume(log, run_id)
    for order_id in sys.argv[2:]:
        process(log, order_id)


if __name__ == "__main__":
    main()
