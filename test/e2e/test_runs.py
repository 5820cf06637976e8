"""Runs: every command through every interface, replay, verify and resume, on both stores (U1-U5, E9)."""
import itertools
import json
import random
import re
import sqlite3
import threading
import time
import urllib.error
import urllib.request
import uuid

import psycopg2
import pytest

from interfaces import Refused, connect, execute, is_postgres
from lib.cli import ROOT
from lib.outbox import wait_for
from run_interfaces import CliRuns, DOORS, open_runs

TAMPERED = {  # a changed value for each field of each table, as SQL
    "signals": {
        "status": "'FAILED'",
        "signal_type": "'x'",
        "payload": "'{\"o\":2}'",
        "org_id": "'other'",
        "correlation_id": "'x'",
        "received_at": "'2001-01-01T00:00:00.000000Z'",
    },
    "runs": {
        "status": "'FAILED'",
        "total_steps": "7",
        "failed_steps": "7",
        "run_type": "'x'",
        "orchestrator_version": "'x'",
        "signal_id": "null",
        "correlation_id": "'x'",
        "org_id": "'other'",
        "started_at": "'2001-01-01T00:00:00.000000Z'",
        "completed_at": "null",
    },
    "steps": {
        "status": "'SKIPPED'",
        "output_result": "'{\"x\":3}'",
        "error_code": "'E'",
        "error_message": "'m'",
        "duration_ms": "99999",
        "retry_count": "9",
        "step_index": "9",
        "step_type": "'x'",
        "started_at": "'2001-01-01T00:00:00.000000Z'",
        "completed_at": "null",
    },
    "effects": {
        "status": "'COMPLETED'",
        "attempts": "9",
        "destination": "'x'",
        "idempotency_key": "'x'",
        "effect_type": "'x'",
        "step_id": "null",
        "execution_result": "'{}'",
        "executed_at": "'2001-01-01T00:00:00.000000Z'",
        "created_at": "'2001-01-01T00:00:00.000000Z'",
        "updated_at": "'2001-01-01T00:00:00.000000Z'",
    },
    "run_checkpoints": {
        "checkpoint_data": "'{\"n\":2}'",
        "event_id": "1",
        "created_at": "'2001-01-01T00:00:00.000000Z'",
    },
}


@pytest.fixture(params=[name for name in DOORS if name != "c-join"])
def interface(store, request):
    interface = open_runs(request.param, store)
    yield interface
    interface.close()


@pytest.fixture(params=["c", "sql"])
def logic(store, request):
    """Two interfaces: C and SQL, for cases where the others add nothing."""
    interface = open_runs(request.param, store)
    yield interface
    interface.close()


@pytest.fixture
def runs(store):
    """The fastest interface, for cases where the interface does not matter."""
    runs = open_runs("c", store)
    yield runs
    runs.close()


@pytest.fixture
def db(store):
    connection = connect(store)
    yield connection
    connection.close()


def start(interface, **more):
    return interface.do("start_run", org_id="acme", run_type="ORDER", orchestrator_version="v1.2.3", **more)["run_id"]


def step(interface, run, kind="CHARGE", **more):
    return interface.do("start_step", run, step_type=kind, **more)["step_id"]


def refused(code, call, *args, **named):
    with pytest.raises(Refused) as caught:
        call(*args, **named)
    assert caught.value.code == code, str(caught.value)
    return caught.value


def events(db, where="true", *args):
    """Events as dicts, in order, payloads parsed and ids as text."""
    names = (
        "event_id",
        "id",
        "causation_id",
        "event_type",
        "aggregate_type",
        "aggregate_id",
        "aggregate_seq",
        "correlation_id",
        "actor_id",
        "request_id",
        "payload",
    )
    rows = execute(db, f"select {', '.join(names)} from outlog_events where {where} order by event_id", *args)
    out = [dict(zip(names, row)) for row in rows]
    for event in out:
        event["id"] = str(event["id"])
        event["causation_id"] = event["causation_id"] and str(event["causation_id"])
        if isinstance(event["payload"], str):
            event["payload"] = json.loads(event["payload"])
    return out


def whole_run(interface):
    """A run with something of everything; returns its ids."""
    signal = interface.do("receive_signal", org_id="acme", signal_type="order.placed", payload={"o": 1})
    run = start(interface, signal_id=signal["signal_id"])
    one = step(interface, run, "RESERVE")
    tool = interface.do("call_tool", one, tool_name="stock.lookup", input={"sku": [1, 2]})["tool_call_id"]
    interface.do("complete_tool", tool, result={"left": 4})
    interface.do("complete_step", one, output_result={"x": 1.50}, duration_ms=1523)
    interface.do("checkpoint_run", run, checkpoint_data={"n": 1})
    two = step(interface, run)
    bad = interface.do("call_tool", two, tool_name="card.charge", input=None)["tool_call_id"]
    interface.do("fail_tool", bad, error_code="TIMEOUT", error_message="30 s")
    interface.do("fail_step", two, error_code="CARD", error_message="no answer")
    interface.do("retry_step", two)
    effect = interface.do(
        "request_effect",
        run,
        effect_type="SEND_EMAIL",
        destination="mail",
        step_id=two,
        effect_spec={"to": ["a@b.example"]},
    )
    interface.do("complete_step", two, output_result="ok")
    three = step(interface, run, "THANK")
    interface.do("skip_step", three, reason="nothing to say")
    interface.do("correct_step", one, output_result={"x": 2})
    interface.do("complete_run", run)
    return {
        "signal": signal["signal_id"],
        "run": run,
        "steps": [one, two, three],
        "tools": [tool, bad],
        "effect": effect["effect_id"],
        "correlation": signal["correlation_id"],
    }


# U1: commands


def test_a2_a_run_inside_the_callers_own_transactions(store):
    interface = open_runs("c-join", store)
    assert interface.verify(whole_run(interface)["run"]) == {"matches": True, "differences": []}
    interface.close()


def test_u1_a_run_from_its_signal_to_its_end(interface, db):
    ids = whole_run(interface)
    found = [e for e in events(db) if not e["event_type"].startswith("EFFECT")]
    assert [e["event_type"] for e in found] == [
        "SIGNAL_RECEIVED",
        "SIGNAL_PROCESSING_STARTED",
        "RUN_STARTED",
        "STEP_STARTED",
        "TOOL_CALLED",
        "TOOL_COMPLETED",
        "STEP_COMPLETED",
        "RUN_CHECKPOINT_CREATED",
        "STEP_STARTED",
        "TOOL_CALLED",
        "TOOL_FAILED",
        "STEP_FAILED",
        "STEP_RETRIED",
        "STEP_COMPLETED",
        "STEP_STARTED",
        "STEP_SKIPPED",
        "STEP_CORRECTED",
        "RUN_COMPLETED",
        "SIGNAL_PROCESSED",
    ]
    assert {e["correlation_id"] for e in found} == {ids["correlation"]}
    run, (one, two, _) = ids["run"], ids["steps"]
    payloads = [e["payload"] for e in found]
    assert payloads[2] == {
        "run_id": run,
        "signal_id": ids["signal"],
        "run_type": "ORDER",
        "orchestrator_version": "v1.2.3",
    }
    assert payloads[6] == {
        "step_id": one,
        "run_id": run,
        "step_index": 1,
        "step_type": "RESERVE",
        "output_result": {"x": 1.5},
        "duration_ms": 1523,
    }
    failed = payloads[11]
    assert failed.pop("duration_ms") >= 0
    assert failed == {
        "step_id": two,
        "run_id": run,
        "step_index": 2,
        "step_type": "CHARGE",
        "error_code": "CARD",
        "error_message": "no answer",
    }
    assert payloads[12]["retry_count"] == 1
    assert payloads[4]["tool_name"] == "stock.lookup" and payloads[4]["input"] == {"sku": [1, 2]}
    assert payloads[5]["result"] == {"left": 4} and payloads[10]["error_code"] == "TIMEOUT"
    assert interface.verify(run) == {"matches": True, "differences": []}

    found = interface.get(run)
    assert (found["status"], found["total_steps"], found["failed_steps"]) == ("COMPLETED", 2, 1)
    assert [(s["status"], s["retry_count"], s["output_result"], s["error_code"]) for s in found["steps"]] == [
        ("COMPLETED", 0, {"x": 2}, None),
        ("COMPLETED", 1, "ok", None),
        ("SKIPPED", 0, None, None),
    ]
    assert execute(db, "select status from outlog_signals") == [("PROCESSED",)]


def test_t2_the_commands_set_the_causes(logic, db):
    whole_run(logic)
    by_id = {e["id"]: e for e in events(db)}
    cause = [
        (e["event_type"], by_id[e["causation_id"]]["event_type"] if e["causation_id"] else None) for e in by_id.values()
    ]
    assert [pair for pair in cause if not pair[0].startswith("EFFECT")] == [
        ("SIGNAL_RECEIVED", None),
        ("SIGNAL_PROCESSING_STARTED", "SIGNAL_RECEIVED"),
        ("RUN_STARTED", "SIGNAL_RECEIVED"),
        ("STEP_STARTED", "RUN_STARTED"),
        ("TOOL_CALLED", "STEP_STARTED"),
        ("TOOL_COMPLETED", "TOOL_CALLED"),
        ("STEP_COMPLETED", "STEP_STARTED"),
        ("RUN_CHECKPOINT_CREATED", "STEP_COMPLETED"),
        ("STEP_STARTED", "RUN_STARTED"),
        ("TOOL_CALLED", "STEP_STARTED"),
        ("TOOL_FAILED", "TOOL_CALLED"),
        ("STEP_FAILED", "STEP_STARTED"),
        ("STEP_RETRIED", "STEP_FAILED"),
        ("STEP_COMPLETED", "STEP_RETRIED"),
        ("STEP_STARTED", "RUN_STARTED"),
        ("STEP_SKIPPED", "STEP_STARTED"),
        ("STEP_CORRECTED", "STEP_COMPLETED"),
        ("RUN_COMPLETED", "STEP_CORRECTED"),
        ("SIGNAL_PROCESSED", "RUN_COMPLETED"),
    ]
    assert ("EFFECT_REQUESTED", "STEP_RETRIED") in cause


def test_u1_the_rows_times_are_the_events(logic, db):
    ids = whole_run(logic)
    times = dict(
        execute(
            db,
            """select event_type || aggregate_id, occurred_at from outlog_events
                                 where event_type not in ('TOOL_CALLED', 'TOOL_COMPLETED', 'TOOL_FAILED')""",
        )
    )
    run, (one, two, _) = ids["run"], ids["steps"]
    assert execute(db, "select started_at, completed_at from outlog_runs") == [
        (times["RUN_STARTED" + run], times["RUN_COMPLETED" + run])
    ]
    rows = {row[0]: row[1:] for row in execute(db, "select step_id, started_at, completed_at from outlog_steps")}
    assert rows[one] == (times["STEP_STARTED" + one], times["STEP_COMPLETED" + one])
    assert rows[two] == (times["STEP_RETRIED" + two], times["STEP_COMPLETED" + two])
    assert execute(db, "select received_at from outlog_signals") == [(times["SIGNAL_RECEIVED" + ids["signal"]],)]
    assert execute(db, "select created_at from outlog_run_checkpoints") == [(times["RUN_CHECKPOINT_CREATED" + run],)]


def test_u1_a_run_with_an_open_or_failed_step_does_not_complete(logic):
    run = start(logic)
    one = step(logic, run)
    assert one in refused("illegal_transition", logic.do, "complete_run", run).message
    logic.do("fail_step", one, error_code="E", error_message="m")
    assert "is FAILED" in refused("illegal_transition", logic.do, "complete_run", run).message
    logic.do("skip_step", one)
    assert logic.do("complete_run", run)["status"] == "COMPLETED"


@pytest.mark.parametrize(
    "how, body, reason",
    [
        ("fail_run", {"error_code": "E", "error_message": "m"}, {"error_code": "E", "error_message": "m"}),
        ("cancel_run", {"reason": "too late"}, {"reason": "too late"}),
    ],
)
def test_u1_a_failed_or_cancelled_run_fails_its_signal(logic, db, how, body, reason):
    signal = logic.do("receive_signal", org_id="acme", signal_type="s")["signal_id"]
    run = start(logic, signal_id=signal)
    refused("illegal_transition", start, logic, signal_id=signal)  # it is being worked on
    ended = logic.do(how, run, **body)
    assert ended["status"] == {"fail_run": "FAILED", "cancel_run": "CANCELLED"}[how] and ended["completed_at"]
    last = events(db)[-2:]
    assert [e["event_type"] for e in last] == [f"RUN_{ended['status']}", "SIGNAL_PROCESSING_FAILED"]
    assert last[1]["payload"] == {"signal_id": signal, "run_id": run, **reason}
    again = start(logic, signal_id=signal)  # a second try of the signal
    logic.do("complete_run", again)
    assert execute(db, "select status from outlog_signals") == [("PROCESSED",)]
    refused("illegal_transition", start, logic, signal_id=signal)
    assert logic.verify(run)["matches"] and logic.verify(again)["matches"]


def test_u1_counters_after_retry_and_correct(logic):
    run = start(logic)
    one, two = step(logic, run), step(logic, run)
    for _ in range(2):
        logic.do("fail_step", one, error_code="E", error_message="m")
        logic.do("retry_step", one)
    logic.do("complete_step", one, output_result=1)
    logic.do("correct_step", one, output_result=2)
    logic.do("fail_step", two, error_code="E", error_message="m")
    corrected = logic.do("correct_step", two, output_result=3)
    assert (corrected["status"], corrected["output_result"], corrected["error_code"]) == ("COMPLETED", 3, None)
    found = logic.get(run)
    assert (found["total_steps"], found["failed_steps"]) == (2, 3)
    assert logic.verify(run)["matches"]


def test_e9_a_correction_names_what_it_corrects(logic, db):
    run = start(logic)
    one = step(logic, run)
    logic.do("complete_step", one, output_result=1)
    completed = events(db)[-1]
    logic.do("complete_run", run)
    logic.do("correct_step", one, output_result=2)  # also after the end
    logic.do("correct_step", one, output_result=3)
    first, second = (e for e in events(db) if e["event_type"] == "STEP_CORRECTED")
    assert first["causation_id"] == completed["id"] and second["causation_id"] == first["id"]
    logic.do("correct_step", one, output_result=4, causation_id=completed["id"])
    assert events(db)[-1]["causation_id"] == completed["id"]
    assert logic.verify(run)["matches"]


def test_u1_tools_end_once(interface):
    run = start(interface)
    one = step(interface, run)
    tool = interface.do("call_tool", one, tool_name="t", input={"a": 1})
    assert tool["status"] == "RUNNING" and tool["step_id"] == one and tool["run_id"] == run
    done = interface.do("complete_tool", tool["tool_call_id"], result=[1])
    assert (done["status"], done["tool_name"]) == ("COMPLETED", "t")
    for verb, body in (("complete_tool", {"result": 1}), ("fail_tool", {"error_code": "E", "error_message": "m"})):
        assert "is COMPLETED" in refused("illegal_transition", interface.do, verb, tool["tool_call_id"], **body).message
    interface.do("complete_step", one, output_result=None)
    refused("illegal_transition", interface.do, "call_tool", one, tool_name="t")
    refused("not_found", interface.do, "complete_tool", one, result=1)  # no tool call


def test_u1_a_missing_target_is_not_found(interface):
    missing = "019a8c1e-0000-7000-8000-000000000000"
    for verb, body in (
        ("start_step", {"step_type": "A"}),
        ("complete_step", {"output_result": 1}),
        ("complete_tool", {"result": 1}),
        ("complete_run", {}),
        ("checkpoint_run", {"checkpoint_data": 1}),
    ):
        refused("not_found", interface.do, verb, missing, **body)
        refused("not_found", interface.do, verb, "no-uuid", **body)
    refused("not_found", start, interface, signal_id=missing)
    other = interface.do("receive_signal", org_id="other", signal_type="s")["signal_id"]
    refused("not_found", start, interface, signal_id=other)  # of another org


def test_e4_expected_seq_is_that_of_what_the_command_names(interface):
    run = start(interface, expected_seq=0)
    error = refused("sequence_conflict", step, interface, run, expected_seq=0)
    assert error.expected in (0, None) and error.actual in (1, None)
    one = step(interface, run, expected_seq=1)
    refused("sequence_conflict", interface.do, "complete_step", one, output_result=1, expected_seq=2)
    interface.do("call_tool", one, tool_name="t", expected_seq=1)
    interface.do("complete_step", one, output_result=1, expected_seq=2)
    interface.do("checkpoint_run", run, checkpoint_data={}, expected_seq=1)
    refused("sequence_conflict", interface.do, "complete_run", run, expected_seq=1)
    interface.do("complete_run", run, expected_seq=2)
    assert interface.verify(run)["matches"]


def test_i1_a_command_with_a_key_is_done_once(interface, db):
    run = start(interface)
    first = interface.do("start_step", run, step_type="A", key="k")
    count = len(events(db))
    again = interface.do("start_step", run, step_type="A", key="k")
    assert again == first and len(events(db)) == count
    assert getattr(interface, "is_replay", True) is True
    refused("idempotency_key_reuse", interface.do, "start_step", run, step_type="B", key="k")
    refused("idempotency_key_reuse", interface.do, "start_step", start(interface), step_type="A", key="k")
    if not hasattr(interface, "base"):
        interface.do("start_step", run, step_type="A", key="k", actor_id="somebody-else")
    done = interface.do("complete_step", first["step_id"], output_result=1, key="k")  # another endpoint
    assert done["status"] == "COMPLETED"
    assert interface.do("complete_step", first["step_id"], output_result=1, key="k") == done
    assert getattr(interface, "is_replay", True) is True


def test_e2_events_carry_the_caller(interface, db):
    who = {} if hasattr(interface, "base") else {"actor_id": "planner"}  # over HTTP the token is the actor
    run = start(interface, request_id="r-1", **who)
    (found,) = events(db)
    assert found["actor_id"] == who.get("actor_id", "system") and found["request_id"] == "r-1"
    assert found["aggregate_id"] == run


def test_u1_infrastructure_runs_have_no_org(logic):
    run = logic.do("start_run", org_id=None, run_type="ROTATE", orchestrator_version="v1")
    assert run["org_id"] is None
    step(logic, run["run_id"])
    assert logic.verify(run["run_id"])["matches"]


WRONG = [
    ("receive_signal", {"signal_type": "s"}, "org_required", "/org_id"),
    ("receive_signal", {"org_id": "acme"}, "invalid_field", "/signal_type"),
    ("receive_signal", {"org_id": "acme", "signal_type": "x" * 101}, "invalid_field", "/signal_type"),
    ("start_run", {"org_id": "acme", "run_type": "R"}, "invalid_field", "/orchestrator_version"),
    (
        "start_run",
        {"org_id": "acme", "run_type": "R", "orchestrator_version": ""},
        "invalid_field",
        "/orchestrator_version",
    ),
    (
        "receive_signal",
        {"org_id": "acme", "signal_type": "s", "payload": {"key": "ghp_" + "a1B2c3D4e5F6" * 3}},
        "secret_material",
        None,
    ),
    ("receive_signal", {"org_id": "acme", "signal_type": "s", "payload": {"x": "a" * 262144}}, "too_large", None),
]


@pytest.mark.parametrize("name", ["c", "c-join", "sql"])
def test_u1_a_wrong_body_is_refused_by_name(store, db, name):
    interface = open_runs(name, store)
    for verb, body, code, pointer in WRONG:
        error = refused(code, interface.do, verb, **body)
        if pointer and error.pointer:
            assert error.pointer == pointer, body
    interface.close()
    assert events(db) == []


EFFECT = {"effect_type": "API_CALL", "destination": "d", "effect_spec": {}}


def test_u1_an_unknown_field_is_refused(store):
    runs = open_runs("c", store)
    run = start(runs)
    one = step(runs, run)
    for verb, target, body in (
        ("start_step", run, {"step_type": "A", "colour": 1}),
        ("retry_step", one, {"x": None}),
        ("complete_run", run, {"reason": "x"}),
    ):
        refused("unknown_field", runs.do, verb, target, **body)
    for verb, target, body in (
        ("start_step", run, {"step_type": 7}),
        ("start_step", run, {"step_type": "A", "step_index": -1}),
        ("fail_step", one, {"error_code": "E"}),
        ("complete_step", one, {}),
        ("complete_step", one, {"output_result": 1, "duration_ms": 1.5}),
        ("start_step", run, {"step_type": "A", "step_index": 1 << 31}),
        ("request_effect", run, {**EFFECT, "max_attempts": 0}),
        ("request_effect", run, {**EFFECT, "max_attempts": 1 << 31}),
    ):
        refused("invalid_field", runs.do, verb, target, **body)
    runs.close()


def test_u1_a_refusal_leaves_nothing_and_a_rollback_too(store, db):
    runs = open_runs("c-join", store)
    run = start(runs)
    before = len(events(db))
    runs.program.ask("join")
    refused("invalid_field", runs.program.ask, "run", verb="start_step", id=run, body='{"step_type":""}')
    runs.program.ask("run", verb="start_step", id=run, body='{"step_type":"A"}')  # still usable
    runs.program.ask("end", how="rollback")
    assert len(events(db)) == before and execute(db, "select count(*) from outlog_steps") == [(0,)]
    assert runs.verify(run)["matches"]
    runs.close()


def test_u1_no_two_commands_of_a_run_at_once(store, db):
    """Racing completions: one wins, the others are refused; no event without its row."""
    setup = open_runs("c", store)
    run = start(setup)
    steps = [step(setup, run) for _ in range(6)]
    wins, losses = [], []

    def race():
        interface = open_runs("c", store)
        for one in steps:
            try:
                interface.do("complete_step", one, output_result=1)
                wins.append(one)
            except Refused as error:
                assert error.code in ("illegal_transition", "unavailable"), str(error)
                losses.append(error.code)
        interface.close()

    threads = [threading.Thread(target=race) for _ in range(3)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert sorted(wins) == sorted(steps) and len(losses) == 12
    assert setup.get(run)["total_steps"] == 6 and setup.verify(run)["matches"]
    setup.close()


# The legal moves, against a model


def legal_moves():
    """The table of docs/runs.md: of a verb what it moves, from which states, which of a step forbid it, to what."""
    page = (ROOT / "docs" / "runs.md").read_text()
    for row in page.split("| verb | from | to |\n|---|---|---|\n")[1].split("\n\n")[0].splitlines():
        verbs, before, after = row.split("|")[1:4]
        start, _, forbidden = before.partition(", and no ")
        states = re.findall(r"[A-Z]{2,}", after)
        for verb in re.findall(r"`(\w+)`", verbs):
            yield verb, (
                start.split()[0],
                set(re.findall(r"[A-Z]{2,}", start)),
                set(re.findall(r"[A-Z]{2,}", forbidden)),
                states[0] if states else None,
            )


class Model:
    """docs/runs.md as a program: what is legal, and what comes of it."""

    MOVES = dict(legal_moves())
    STEP = {verb: (start, end) for verb, (what, start, _, end) in MOVES.items() if what == "step"}
    END = {verb: end for verb, (_, _, _, end) in MOVES.items() if verb in ("complete_run", "fail_run", "cancel_run")}

    def __init__(self):
        self.status, self.steps, self.tools = "RUNNING", {}, {}
        self.total = self.failed = self.checkpoints = 0

    def allows(self, verb, target):
        if verb == "correct_step":  # also after the run's end
            return self.steps[target] in self.STEP[verb][0]
        if self.status != "RUNNING":
            return False
        if verb in self.STEP:
            return self.steps[target] in self.STEP[verb][0]
        if verb in ("complete_tool", "fail_tool"):
            return self.tools[target] == "RUNNING"
        return not self.MOVES[verb][2] & set(self.steps.values())

    def apply(self, verb, target, answer):
        if verb == "start_step":
            self.steps[answer["step_id"]] = "RUNNING"
        elif verb == "call_tool":
            self.tools[answer["tool_call_id"]] = "RUNNING"
        elif verb in self.STEP:
            was, now = self.steps[target], self.STEP[verb][1]
            self.total += now == "COMPLETED" != was
            self.failed += now == "FAILED"
            self.steps[target] = now
        elif verb in ("complete_tool", "fail_tool"):
            self.tools[target] = "ended"
        elif verb == "checkpoint_run":
            self.checkpoints += 1
        else:
            self.status = self.END[verb]


BODIES = {
    "start_step": {"step_type": "A"},
    "complete_step": {"output_result": {"n": 1}},
    "fail_step": {"error_code": "E", "error_message": "m"},
    "skip_step": {},
    "retry_step": {},
    "correct_step": {"output_result": 2},
    "call_tool": {"tool_name": "t"},
    "complete_tool": {"result": 1},
    "fail_tool": {"error_code": "E", "error_message": "m"},
    "checkpoint_run": {"checkpoint_data": {}},
    "complete_run": {},
    "fail_run": {"error_code": "E", "error_message": "m"},
    "cancel_run": {},
}
OFTEN = [verb for verb in BODIES if not verb.endswith("_run")] * 4 + list(BODIES)


@pytest.mark.parametrize("name", ["c", "sql"])
@pytest.mark.parametrize("seed", range(3))
def test_u1_every_transition_matches_the_table(store, name, seed):
    interface, dice = open_runs(name, store), random.Random(seed)
    for _ in range(6):
        model, run = Model(), start(interface)
        for _ in range(25):
            verb = dice.choice(OFTEN)
            places = (
                list(model.tools)
                if verb in ("complete_tool", "fail_tool")
                else list(model.steps)
                if verb in Model.STEP
                else [run]
            )
            if not places:
                continue
            target = dice.choice(places)
            if model.allows(verb, target):
                model.apply(verb, target, interface.do(verb, target, **BODIES[verb]))
            else:
                refused("illegal_transition", interface.do, verb, target, **BODIES[verb])
        found = interface.get(run)
        assert (found["status"], found["total_steps"], found["failed_steps"], len(found["checkpoints"])) == (
            model.status,
            model.total,
            model.failed,
            model.checkpoints,
        )
        assert {s["step_id"]: s["status"] for s in found["steps"]} == model.steps
        assert interface.verify(run) == {"matches": True, "differences": []}
    interface.close()


# U3: replay and verify


def test_u3_replay_rebuilds_the_run_from_events_alone(runs, db):
    ids = whole_run(runs)
    stored = runs.get(ids["run"])
    for table in ("runs", "steps", "effects", "run_checkpoints"):
        execute(db, f"delete from outlog_{table}")
    replayed = runs.replay(ids["run"])
    for effect in stored["effects"]:
        effect["effect_spec"] = None  # never in an event (E13)
    for part in ("steps", "effects", "checkpoints"):
        assert sorted(replayed[part], key=str) == sorted(stored.pop(part), key=str)
    assert replayed["run"] == stored


def test_u3_two_runs_under_one_correlation_are_kept_apart(runs):
    shared = {"org_id": "acme", "signal_type": "s", "correlation_id": "the-same"}
    both = [start(runs, signal_id=runs.do("receive_signal", **shared)["signal_id"]) for _ in range(2)]
    for run in both:
        runs.do("complete_step", step(runs, run), output_result=run)
    runs.do("fail_step", step(runs, both[1]), error_code="E", error_message="m")
    one, two = (runs.replay(run) for run in both)
    assert one["run"]["correlation_id"] == two["run"]["correlation_id"] == "the-same"
    assert [s["output_result"] for s in one["steps"]] == [both[0]]
    assert (one["run"]["failed_steps"], two["run"]["failed_steps"]) == (0, 1)
    assert runs.verify(both[0])["matches"] and runs.verify(both[1])["matches"]


def test_x1_another_org_cannot_write_into_a_run(runs, outlog, db):
    """By a command it is refused; and an event that is in the log all the same, by SQL, is none of this run's."""
    run = start(runs)

    def append(type):
        data = json.dumps({"run_id": run})
        return outlog.run(
            "append", "--org", "evil", "--aggregate", f"RUN/{run}", "--type", type, "--data", data, check=False
        )

    done = append("RUN_FAILED")
    assert done.returncode == 1 and "[invalid_field]" in done.stderr and "RUN_FAILED" in done.stderr
    assert events(db, "org_id = 'evil'") == []
    assert append("note").returncode == 0
    execute(
        db,
        """insert into outlog_events (id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, event_type,
                                      actor_type, actor_id, request_id, correlation_id, payload)
           select ?, occurred_at, org_id, aggregate_type, aggregate_id, 2, 'RUN_FAILED',
                  actor_type, actor_id, request_id, correlation_id, payload
             from outlog_events where org_id = 'evil'""",
        str(uuid.uuid4()),
    )
    assert [(e["event_type"], e["payload"]["run_id"]) for e in events(db, "org_id = 'evil'")] == [
        ("note", run),
        ("RUN_FAILED", run),
    ]
    assert runs.verify(run)["matches"] and runs.replay(run)["run"]["status"] == "RUNNING"
    assert [e["event_type"] for e in runs.resume(run)["events"]] == ["RUN_STARTED"]


def test_x1_an_org_bound_caller_stays_in_its_org(runs, store):
    """What the API asks for a token of an org: other orgs' runs are not there, and none is made for them."""
    theirs = runs.do("start_run", org_id="other", run_type="R", orchestrator_version="v")["run_id"]
    body = {"run_type": "R", "orchestrator_version": "v"}

    def ask(verb, id=None, **body):
        runs.program.ask("begin")
        try:
            return runs.program.ask("run", verb=verb, id=id, org_id="acme", body=json.dumps(body))["answer"]
        finally:
            runs.program.ask("rollback")

    assert ask("start_run", **body)["org_id"] == "acme" and ask("start_run", org_id="acme", **body)["org_id"] == "acme"
    refused("not_found", ask, "start_step", theirs, step_type="A")
    refused("invalid_field", ask, "start_run", org_id="other", **body)
    refused("invalid_field", ask, "start_run", org_id=None, **body)


def test_x1_a_token_of_an_org_makes_no_run_elsewhere(store, outlog):
    token = outlog.run("token", "create", "--scope", "append", "--org", "acme", "--json").json()[0]["token"]
    server = outlog.start("serve", "--no-relay", "--listen", "127.0.0.1:0")
    base = re.search(r"http://127\.0\.0\.1:\d+", server.stdout.readline())[0]

    def post(**body):
        request = urllib.request.Request(
            f"{base}/v1/signals",
            json.dumps({"signal_type": "s", **body}).encode(),
            {"authorization": f"Bearer {token}", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as done:
                return done.status, json.load(done)["org_id"]
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["code"]

    assert post() == (201, "acme") and post(org_id="acme") == (201, "acme")
    assert post(org_id="other") == (403, "forbidden")
    assert post(org_id=None) in [(403, "forbidden"), (400, "invalid_field")]


def test_e10_a_strict_org_takes_the_events_of_runs(runs, db):
    execute(db, "insert into outlog_strict_orgs values ('acme')")
    assert runs.verify(whole_run(runs)["run"])["matches"]


@pytest.mark.parametrize("table", TAMPERED)
def test_u3_verify_finds_every_tampered_field(runs, db, outlog, table):
    ids = whole_run(runs)
    key = {
        "runs": "run_id",
        "signals": "signal_id",
        "steps": "step_id",
        "effects": "effect_id",
        "run_checkpoints": "run_id",
    }[table]
    id = {
        "runs": ids["run"],
        "signals": ids["signal"],
        "steps": ids["steps"][0],
        "effects": ids["effect"],
        "run_checkpoints": ids["run"],
    }[table]
    for field, value in TAMPERED[table].items():
        (before,) = execute(db, f"select {field} from outlog_{table} where {key} = ?", id)
        execute(db, f"update outlog_{table} set {field} = {value} where {key} = ?", id)
        found = runs.verify(ids["run"])
        assert [(d["table"], d["id"], d["field"]) for d in found["differences"]] == [(table, id, field)], field
        (difference,) = found["differences"]
        assert difference["stored"] != difference["replayed"] and not found["matches"]
        old = before[0]
        if isinstance(old, (dict, list)):
            old = json.dumps(old)
        execute(db, f"update outlog_{table} set {field} = ? where {key} = ?", old, id)
        assert runs.verify(ids["run"])["matches"], field
    execute(db, f"delete from outlog_{table} where {key} = ?", id)
    found = runs.verify(ids["run"])["differences"]
    assert (table, id, "row", None) in [(d["table"], d["id"], d["field"], d["stored"]) for d in found]
    done = outlog.run("verify", "--all", check=False)
    assert done.returncode == 1 and f"{table} {id}  row" in done.stdout


# --- U3: every column of every table of state, as the catalog lists them ---

STATE_TABLES = {
    "signals": ["signal_id"],
    "runs": ["run_id"],
    "steps": ["step_id"],
    "effects": ["effect_id"],
    "run_checkpoints": ["run_id", "checkpoint_index"],
}
JSON_COLUMNS = {"payload", "output_result", "checkpoint_data", "effect_spec", "execution_result"}
UUID_COLUMNS = {"last_event_id", "started_event_id", "message_id", "effect_id"}
NO_STATE = {("effects", "hurried_at")}  # when an operator last asked for a delivery: a hint to daemons, no state


def columns_of(db, table):
    if isinstance(db, sqlite3.Connection):
        return [(row[1], row[2].lower()) for row in execute(db, f"pragma table_info(outlog_{table})")]
    question = (
        "select column_name, data_type from information_schema.columns where table_schema = 'outlog' and table_name = ?"
    )
    return execute(db, question, table)


def tampered(column, type, old):
    if column == "status":
        return "FAILED"
    if column.endswith("_at"):
        return "2001-01-01T00:00:00.000000Z"
    if column in JSON_COLUMNS:
        return '{"tampered":1}'
    if column in UUID_COLUMNS:
        return str(uuid.uuid4())
    if type in ("integer", "bigint"):
        return (old or 0) + 7
    return "tampered"


def request_alone(db, extension):
    """An effect of no run and no session."""
    fields = {"org_id": "acme", "effect_type": "API_CALL", "destination": "d", "effect_spec": {"a": 1}}
    if isinstance(db, sqlite3.Connection):
        db.enable_load_extension(True)
        db.load_extension(str(extension))
        return execute(db, "select outlog_request_effect(?)", json.dumps(fields))
    names = ", ".join(f"{name} => ?" for name in fields)
    return execute(db, f"select * from outlog.request_effect({names})", *{**fields, "effect_spec": '{"a":1}'}.values())


def put_back(db, column, value):
    """What the driver has parsed must become JSON again."""
    is_parsed = column in JSON_COLUMNS and value is not None and not isinstance(db, sqlite3.Connection)
    return json.dumps(value) if is_parsed else value


def test_u3_no_column_of_any_state_table_can_be_changed_unseen(store, outlog, db, extension):
    """Effects of a run, of a session and alone; pending, completed and dead ones."""
    whole_run(CliRuns(store))
    destinations = {"mail": {"type": "null"}, "d": {"type": "exec", "command": ["false"], "retry": {"max_attempts": 1}}}
    outlog.run("apply", "-f", "-", input=json.dumps({"destinations": {**destinations, "chat": {"type": "websocket"}}}))
    request_alone(db, extension)
    data = '{"session_key":"u:a:t","text":"hi"}'
    outlog.run("send", "--org", "acme", "--to", "chat", "--type", "send_notification", "--data", data)
    outlog.run("relay", "--until-idle", "--quiet")
    clean = outlog.run("verify", "--all", "--json").json()[-1]
    counts = {"runs": 1, "signals": 1, "steps": 3, "effects": 3, "checkpoints": 1, "differences": 0}
    assert {name: clean[name] for name in counts} == counts
    tried = 0
    for table, keys in STATE_TABLES.items():
        names = columns_of(db, table)
        assert len(names) >= 5, names
        for row in execute(db, f"select {', '.join(keys)} from outlog_{table}"):
            here = " and ".join(f"{key} = ?" for key in keys)
            for column, type in names:
                ((old, destination),) = execute(
                    db,
                    f"select {column}, {'destination' if table == 'effects' else 'null'} from outlog_{table} where {here}",
                    *row,
                )
                # a session's deliveries are counted in the row until it ends
                is_counted = destination == "session" and column in ("attempts", "last_attempt_at", "updated_at")
                if (table, column) in NO_STATE or is_counted:
                    continue
                value = tampered(column, type, old)
                execute(db, f"update outlog_{table} set {column} = ? where {here}", value, *row)
                there = [value if key == column else part for key, part in zip(keys, row)]
                if old != value:
                    done = outlog.run("verify", "--all", "--json", check=False)
                    assert done.returncode == 1, f"{table}.{column}: {old!r} became {value!r}, and nobody saw it"
                execute(db, f"update outlog_{table} set {column} = ? where {here}", put_back(db, column, old), *there)
                tried += 1
    assert tried > 90 and outlog.run("verify", "--all", "--json").json()[-1]["differences"] == 0


def test_u3_verify_finds_rows_without_events(runs, db, outlog):
    ids = whole_run(runs)
    execute(
        db,
        """insert into outlog_steps (step_id, run_id, step_index, step_type, status, started_at, last_event_id)
                   select 'made-up', run_id, 9, 'X', 'RUNNING', started_at, last_event_id from outlog_runs""",
    )
    found = runs.verify(ids["run"])["differences"]
    assert [(d["table"], d["id"], d["field"], d["replayed"]) for d in found] == [("steps", "made-up", "row", None)]
    execute(db, "update outlog_steps set run_id = 'no-run' where step_id = 'made-up'")
    assert runs.verify(ids["run"])["matches"]
    done = outlog.run("verify", "--all", "--json", check=False)
    assert done.returncode == 1
    assert [(d["table"], d["id"]) for d in done.json()[:-1]] == [("steps", "made-up")]


def test_u3_verify_all_resumes_where_it_stopped(runs, db, outlog):
    whole = [whole_run(runs) for _ in range(3)]
    person = outlog.at_terminal("verify", "--all")
    person.see(r"\r\x1b\[K[\d,]+ events  \[#* *\] +\d+ % .*/s")
    assert "Every row matches its events: 3 runs, 3 signals, " in person.end()
    execute(db, "update outlog_runs set total_steps = 5")
    done = outlog.run("verify", "--all", "--json", check=False)
    assert done.returncode == 1 and done.json()[-1]["differences"] == 3
    second = events(db, "aggregate_id = ?", whole[1]["run"])[0]["event_id"]
    rest = outlog.run("verify", "--all", "--after", second, "--json", check=False).json()
    assert [(d["id"], d["field"], d["stored"], d["replayed"]) for d in rest[:-1]] == [
        (whole[2]["run"], "total_steps", 5, 2)
    ]
    done = outlog.run("run", "verify", whole[0]["run"], check=False)
    assert done.returncode == 1
    assert done.stdout == f"runs {whole[0]['run']}  total_steps  stored 5  replayed 2\n"


def test_u3_verify_beside_writers_sees_no_difference(store, outlog):
    """V1: state and events are read at one moment, while the runs move on."""
    halt = threading.Event()

    def work(name):
        interface = open_runs(name, store)
        while not halt.is_set():
            run = start(interface)
            one = step(interface, run)
            interface.do("fail_step", one, error_code="E", error_message="m")
            interface.do("retry_step", one)
            interface.do("complete_step", one, output_result=1)
            interface.do("complete_run", run)
        interface.close()

    threads = [threading.Thread(target=work, args=("c",)) for _ in range(2)]
    [thread.start() for thread in threads]
    try:
        for _ in range(6):
            outlog.run("verify", "--all")
    finally:
        halt.set()
        [thread.join() for thread in threads]
    assert json.loads(outlog.run("verify", "--all", "--json").stdout)["runs"] > 0


# U4: resume


def test_u4_resume_returns_the_checkpoint_and_the_events_after_it(interface, db):
    run = start(interface)
    assert interface.resume(run)["checkpoint"] is None
    assert [e["event_type"] for e in interface.resume(run)["events"]] == ["RUN_STARTED"]
    for n in (1, 2):
        interface.do("complete_step", step(interface, run), output_result=n)
        made = interface.do("checkpoint_run", run, checkpoint_data={"done": n})
        assert (made["checkpoint_index"], made["checkpoint_data"]) == (n, {"done": n})
        assert made["event_id"] == events(db)[-1]["event_id"]
    open_step = step(interface, run)
    resumed = interface.resume(run)
    assert resumed["checkpoint"]["checkpoint_index"] == 2 and resumed["checkpoint"]["checkpoint_data"] == {"done": 2}
    assert [(e["event_type"], e["aggregate_id"]) for e in resumed["events"]] == [("STEP_STARTED", open_step)]
    assert resumed["run"]["status"] == "RUNNING" and len(resumed["run"]["steps"]) == 3


def test_u4_resume_goes_by_event_id_not_by_time(runs, db):
    run = start(runs)
    one = step(runs, run)
    made = runs.do("checkpoint_run", run, checkpoint_data=1)
    runs.do("complete_step", one, output_result=1)
    execute(db, "update outlog_run_checkpoints set created_at = '2999-01-01T00:00:00.000000Z'")  # a clock that lied
    resumed = runs.resume(run)
    assert [e["event_type"] for e in resumed["events"]] == ["STEP_COMPLETED"]
    assert resumed["events"][0]["event_id"] > made["event_id"]


def test_u4_resume_is_one_consistent_read(store):
    """The checkpoint, the events after it and the steps belong together, while the run moves on."""
    writer, reader = open_runs("c", store), open_runs("c", store)
    run, looks, is_over = start(writer), 0, threading.Event()

    def work():
        for n in itertools.count(1):
            writer.do("complete_step", step(writer, run), output_result=n)
            writer.do("checkpoint_run", run, checkpoint_data={"done": n})
            if is_over.is_set():
                return

    thread = threading.Thread(target=work)
    thread.start()
    while looks < 40 and thread.is_alive():
        seen = reader.resume(run)
        done = seen["checkpoint"]["checkpoint_data"]["done"] if seen["checkpoint"] else 0
        later = [e["event_type"] for e in seen["events"]].count("STEP_COMPLETED")
        assert [s["status"] for s in seen["run"]["steps"]].count("COMPLETED") == done + later, seen
        looks += done > 0
    is_over.set()
    thread.join()
    assert looks == 40, "the writer gave up"
    writer.close()
    reader.close()


# U5: effects


def test_u5_an_effect_belongs_to_its_run(runs, db):
    run = start(runs)
    one = step(runs, run)
    asked = {"effect_type": "API_CALL", "destination": "d", "effect_spec": {"n": 1}}
    refused("not_found", runs.do, "request_effect", run, step_id="no-step", **asked)
    first = runs.do("request_effect", run, step_id=one, idempotency_key="k", **asked)
    again = runs.do("request_effect", run, step_id=one, idempotency_key="k", **asked)
    assert again == {**first, "duplicate": True}
    found = events(db)[-1]
    assert found["event_type"] == "EFFECT_REQUESTED" and found["correlation_id"] == runs.get(run)["correlation_id"]
    assert found["payload"]["run_id"] == run and found["payload"]["step_id"] == one and "n" not in found["payload"]
    runs.do("skip_step", one)
    runs.do("complete_run", run)
    assert "is COMPLETED" in refused("illegal_transition", runs.do, "request_effect", run, **asked).message
    assert runs.verify(run)["matches"]


def test_u5_the_relay_executes_effects_and_their_run_sees_each_event(store, runs, db, outbox, relays, receiver, outlog):
    outbox.destination("hook", receiver)
    receiver.rule(500, times=1)
    run = start(runs)
    correlation = runs.get(run)["correlation_id"]
    follower = outlog.start("events", "--follow", "--after", "0", "--correlation", correlation, "--json")
    effect = runs.do("request_effect", run, effect_type="API_CALL", destination="hook", effect_spec={"n": 1})
    relays("a")
    seen = []
    while "EFFECT_COMPLETED" not in seen:  # the orchestrator sees each event
        seen.append(json.loads(follower.stdout.readline())["event_type"])
    assert seen == [
        "RUN_STARTED",
        "EFFECT_REQUESTED",
        "EFFECT_EXECUTING",
        "EFFECT_FAILED",
        "EFFECT_RETRYING",
        "EFFECT_EXECUTING",
        "EFFECT_COMPLETED",
    ]
    failed, again = (
        outlog.run("events", "--correlation", correlation, "--type", name, "--json").json()[0]["payload"]
        for name in ("EFFECT_FAILED", "EFFECT_RETRYING")
    )
    assert failed == {**again, "error_code": "STATUS_500", "error_message": failed["error_message"]}  # S0 3.3
    assert failed["error_message"] and failed["retry_count"] == 1
    due = outlog.run("outbox", "--json").json()[0]["available_at"]
    assert failed["next_retry_at"] >= due if store.startswith("sqlite") else failed["next_retry_at"] == due
    (found,) = wait_for(lambda: [e for e in runs.get(run)["effects"] if e["status"] == "COMPLETED"])
    assert found["effect_id"] == effect["effect_id"] and found["attempts"] == 2 and found["executed_at"]
    assert runs.verify(run) == {"matches": True, "differences": []}
    assert runs.replay(run)["effects"][0]["execution_result"] == found["execution_result"]
    (asked,) = outlog.run("events", "--correlation", correlation, "--type", "EFFECT_REQUESTED", "--json").json()
    message = outbox.one("select correlation_id, causation_id, aggregate_id from {}outbox")  # O8
    assert (message["correlation_id"], str(message["causation_id"]), message["aggregate_id"]) == (
        correlation,
        asked["id"],
        effect["effect_id"],
    )


def test_u5_a_dead_effect_and_its_requeue_replay(store, runs, outbox, relays, receiver, outlog):
    outbox.destination("hook", receiver)
    run = start(runs)
    asked = runs.do("request_effect", run, effect_type="API_CALL", destination="nowhere", effect_spec={"n": 1})
    outlog.run("kill", asked["event_id"])
    assert runs.get(run)["effects"][0]["status"] == "FAILED"
    assert runs.verify(run) == {"matches": True, "differences": []}
    outlog.run("requeue", asked["event_id"])
    assert runs.get(run)["effects"][0]["status"] == "PENDING"
    assert runs.verify(run) == {"matches": True, "differences": []}


# Rights


def test_x2_roles_for_runs(postgres_store, postgres):
    """An appender moves runs by the functions alone; a reader looks."""
    interface = open_runs("sql", postgres_store)
    interface.connection.cursor().execute("set role outlog_append")
    run = start(interface)
    one = step(interface, run)
    interface.do("request_effect", run, step_id=one, effect_type="API_CALL", destination="d", effect_spec={})
    interface.do("complete_step", one, output_result=1)
    interface.do("complete_run", run)
    for table in ("runs", "steps", "signals", "run_checkpoints"):
        with pytest.raises(psycopg2.errors.InsufficientPrivilege):
            execute(interface.connection, f"delete from outlog_{table}")
    interface.connection.cursor().execute("set role outlog_read")
    assert execute(interface.connection, "select status from outlog_runs") == [("COMPLETED",)]
    assert execute(interface.connection, "select count(*) from outlog_effects") == [(1,)]
    with pytest.raises(psycopg2.errors.InsufficientPrivilege):
        start(interface)
    interface.close()


# Looking


def test_u2_runs_are_listed_newest_first(runs, outlog):
    made = []
    for _ in range(5):
        made.append(start(runs))
        began = int(made[-1].replace("-", "")[:12], 16)  # two of one millisecond are in any order
        wait_for(lambda: time.time_ns() // 1_000_000 > began, "the next millisecond", pause=0)
    runs.do("cancel_run", made[1])
    page = runs.list(limit=2)
    assert [r["run_id"] for r in page["runs"]] == made[:2:-1] and page["next_after"] == made[3]
    rest = runs.list(limit=3, after=page["next_after"])
    assert [r["run_id"] for r in rest["runs"]] == made[2::-1] and rest["next_after"] is None
    assert [r["run_id"] for r in runs.list(status="CANCELLED")["runs"]] == [made[1]]
    refused("invalid_field", runs.list, status="ASLEEP")
    refused("invalid_field", runs.list, after="nowhere")
    listed = outlog.run("runs", "--json").json()
    assert [r["run_id"] for r in listed] == made[::-1]
    assert outlog.run("runs", "--limit", "1", "--org", "acme").lines()[0].startswith(made[4])
    assert outlog.run("runs", "--org", "nobody").stdout == ""


def test_u2_a_signal_is_shown_with_its_status(store, outlog, serve):
    (made,) = outlog.run("signal", "--org", "acme", "--type", "order.placed", "--data", '{"n":1}', "--json").json()
    mine, other = (
        outlog.run("token", "create", "--scope", "read", "--org", org, "--json").json()[0]["token"]
        for org in ("acme", "other")
    )
    server = serve("--no-relay", dev=False)
    path = f"/v1/signals/{made['signal_id']}"
    assert server.get(path, token=mine).json == made and made["status"] == "RECEIVED"
    (run,) = outlog.run(
        "run", "start", "--org", "acme", "--type", "T", "--version", "1", "--signal", made["signal_id"], "--json"
    ).json()
    assert server.get(path, token=mine).json == {**made, "status": "PROCESSING"}
    outlog.run("run", "complete", run["run_id"])
    assert server.get(path, token=mine).json == {**made, "status": "PROCESSED"}
    for path, token in ((path, other), ("/v1/signals/none", mine)):
        answer = server.get(path, token=token)
        assert (answer.status, answer.code) == (404, "not_found")


@pytest.mark.parametrize(
    "args, status, words",
    [
        (["run", "start", "--org", "acme", "--type", "T"], 2, "run start needs --type, --version;"),
        (["run", "effect", "r", "--type", "T", "--to", "d"], 2, "run effect needs --type, --data, --to;"),
        (["signal", "--org", "acme"], 2, "signal needs --type;"),
        (["step", "complete", "s"], 2, "step complete needs --data;"),
        (["step", "fail", "s", "--code", "E"], 2, "step fail needs --code, --message;"),
        (["tool", "call", "s"], 2, "tool call needs --name;"),
        (["step", "complete", "s", "--data", "{"], 1, "output_result: "),
        (["step", "complete", "s", "--data", "1", "--reason", "x"], 2, "takes no --reason"),
        (["run", "start", "--type", "T", "--version", "1"], 1, "[org_required]"),
    ],
)
def test_a4_a_wrong_command_line_reports_what_is_missing(sqlite_store, outlog, args, status, words):
    done = outlog.run(*args, check=False)
    assert done.returncode == status and words in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr


def test_u2_show_draws_the_run(runs, outlog):
    ids = whole_run(runs)
    drawn = outlog.run("run", "show", ids["run"]).stdout
    lines = drawn.splitlines()
    assert lines[0].startswith(f"ORDER {ids['run']}  COMPLETED in ")
    assert lines[1] == "org acme · v1.2.3 · signal order.placed PROCESSED · 2 steps done, 1 failure"
    for part in (
        "1  RESERVE",
        "⚙ stock.lookup  ok",
        "✎ corrected by system",
        "◆  checkpoint 1",
        "2  CHARGE",
        "⚙ card.charge  failed",
        "✗ CARD: no answer",
        "↻ tried again",
        "→ SEND_EMAIL to mail  PENDING",
        "3  THANK",
        "↷ nothing to say",
        "█",
    ):
        assert part in drawn, f"{part} is missing in\n{drawn}"
    assert outlog.run("run", "show", ids["run"], "--json").json()[0] == runs.get(ids["run"])
    assert outlog.run("run", "show", "no-such-run", check=False).returncode == 1


def test_u3_a_runs_events_are_found_by_index(store, runs, db):
    whole_run(runs)
    if is_postgres(store):
        execute(db, "set enable_seqscan = off")
        plan = execute(
            db,
            """explain select 1 from outlog_events where payload ->> 'run_id' = 'x' and event_id > 0
                               and aggregate_type in ('RUN', 'STEP', 'EFFECT') order by event_id limit 500""",
        )
    else:
        plan = execute(
            db,
            """explain query plan select 1 from outlog_events
                               where json_extract(payload, '$.run_id') = 'x' and event_id > 0
                                 and (aggregate_type = 'RUN' or aggregate_type = 'STEP' or aggregate_type = 'EFFECT')
                               order by event_id limit 500""",
        )
    text = "\n".join(str(row) for row in plan)
    assert "events_run" in text and "Sort" not in text and "B-TREE" not in text, text
