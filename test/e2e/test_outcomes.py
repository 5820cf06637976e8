"""Any outcome of an attempt can be recorded (L8): whatever a receiver says, and whatever the store refuses.

Each test sends poison and then a witness to every lane. The witnesses must arrive: poison may cost its own
message, never a lane.
"""
import json
import os
import resource
import signal
import socketserver
import threading

import pytest

from interfaces import SqliteInterface, connect, execute, is_postgres
from lib.outbox import LANES, keys_in_lane, wait_for

PEM = b"-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkq\n-----END PRIVATE KEY-----\n"
POISON = {
    "plain": b"fine",
    "pem": PEM,
    "pem_in_two_lines": PEM.replace(b" PRIVATE", b"\n PRIVATE"),
    "pgp": b"-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQOYBF\n-----END PGP PRIVATE KEY BLOCK-----\n",
    "github_pat": b"github_pat_11ABCDEFG0",
    "github": b"token ghp_" + b"a1B2" * 9,
    "own_token": b"olk_abcdefgh12345678",
    "own_new_token": b"olt_abcdefgh12345678",
    "aws": b"AKIAQ3EGTZUHLWXF5OZQ",
    "jwt": b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmN",
    "url": b"redis://user:hunter2hunter2@host/0",
    "named": b'{"password": "hunter2-correct-horse"}',
    "invalid_utf8": b"caf\xe9 \xff\xfe \xc3(",
    "nul": b"a\0b",
    "control": b"\x1b[31mred\x07",
    "large": b"x" * 10_000_000,
    "deep": b"[" * 100_000,
    "quotes": b"\"}]}'; drop table outlog.events; -- \\u0000 \\",
}
NO_RETRY = {"base": "10ms", "max": "20ms", "jitter": 0, "max_attempts": 1}


def request_effect(store, destination, spec=None, max_attempts=1, org="acme"):
    """(effect, message)"""
    asked = {
        "effect_type": "API_CALL",
        "destination": destination,
        "effect_spec": spec or {"n": 1},
        "org_id": org,
        "max_attempts": max_attempts,
    }
    if is_postgres(store):
        connection = connect(store)
        said = execute(
            connection,
            "select effect_id::text, event_id::text from outlog.request_effect(effect_type => 'API_CALL', "
            f"destination => '{destination}', effect_spec => '{json.dumps(asked['effect_spec'])}', org_id => '{org}', "
            f"max_attempts => {max_attempts})",
        )[0]
        connection.close()
        return said
    interface = SqliteInterface(store)
    (text,) = interface.connection.execute("select outlog_request_effect(?)", (json.dumps(asked),)).fetchone()
    interface.close()
    return json.loads(text)["effect_id"], json.loads(text)["event_id"]


def effect_events(outlog, effect, org="acme"):
    said = outlog.run("events", "--org", org, "--aggregate", f"EFFECT/{effect}", "--json").json()
    return {event["event_type"]: event["payload"] for event in said}


def put_witnesses(outbox):
    """A message to `witness` in each lane; their ids."""
    outbox.destination("witness", type="null")
    return [
        outbox.put("witness", {"lane": lane}, key=next(keys_in_lane(lane, ["witness"]))[1]) for lane in range(LANES)
    ]


def drain(outlog, outbox, witnesses, **how):
    """Everything that can end has ended, the witnesses among it; what the relay said."""
    said = outlog.run("relay", "--until-idle", "--lease", "5s", "--poll", "20ms", timeout=120, **how)
    assert [outbox.state(one)["state"] for one in witnesses] == ["PUBLISHED"] * len(witnesses), said.stderr
    return said.stderr


def check_poison(outlog, outbox, sent, outcome):
    """Each poisonous effect has ended as it should, and its events say so without the poison."""
    for name, (effect, message) in sent.items():
        events = effect_events(outlog, effect)
        row = outbox.state(message)
        if outcome == "ok":
            assert (row["state"], row["attempts"]) == ("PUBLISHED", 1), (name, row)
            assert "EFFECT_COMPLETED" in events, (name, events)
        else:
            assert (row["state"], row["attempts"]) == ("DEAD", 1), (name, row)
            assert {"EFFECT_FAILED", "EFFECT_DEAD_LETTERED"} <= set(events), (name, events)
        told = json.dumps(events) + str(row["last_error"]) + str(outbox.attempts(message))
        for secret in ("MIIEvQ", "hunter2", "github_pat_11", "olk_abcd", "olt_abcd", "AKIAQ3", "a1B2a1B2", "lQOYBF"):
            assert secret not in told, (name, told)
    statuses = {row["status"] for row in outbox.run("select status from {}effects")}
    assert statuses == {"COMPLETED" if outcome == "ok" else "FAILED"}


# --- what receivers say ---


@pytest.mark.parametrize("outcome", ["ok", "failed", "unknown"])
def test_l8_every_answer_of_a_program_is_recorded(store, outlog, outbox, tmp_path, outcome):
    end = {"ok": "exit 0", "failed": "exit 65", "unknown": "kill -9 $$"}[outcome]
    sent = {}
    for name, poison in POISON.items():
        (tmp_path / name).write_bytes(poison)
        command = ["sh", "-c", f"cat {tmp_path}/{name}; cat {tmp_path}/{name} >&2; {end}"]
        outbox.destination(name, type="exec", command=command, retry=NO_RETRY)
        sent[name] = request_effect(store, name)
    drain(outlog, outbox, put_witnesses(outbox))
    check_poison(outlog, outbox, sent, outcome)


@pytest.mark.parametrize("outcome, status", [("ok", 200), ("failed", 400), ("unknown", 502)])
def test_l8_every_answer_of_a_webhook_is_recorded(store, outlog, outbox, receiver, outcome, status):
    sent = {}
    for name, poison in POISON.items():
        receiver.rule(status, destination=name, body=poison, headers={"content-type": "text/plain"})
        outbox.destination(name, receiver, retry=NO_RETRY)
        sent[name] = request_effect(store, name)
    drain(outlog, outbox, put_witnesses(outbox))
    check_poison(outlog, outbox, sent, outcome)


class Mails(socketserver.StreamRequestHandler):
    """An SMTP server that answers each mail with the poison of its recipient."""

    def handle(self):
        def say(line):
            self.wfile.write(line + b"\r\n")

        say(b"220 mx.test")
        poison, is_data = b"", False
        for line in self.rfile:
            word = line[:4].upper()
            if is_data:
                if line == b".\r\n":
                    is_data = False
                    say(self.server.status + b" " + poison.replace(b"\n", b" ").replace(b"\r", b" ")[:400])
            elif word == b"EHLO" or word == b"HELO":
                say(b"250 mx.test")
            elif word == b"RCPT":
                poison = POISON[line.split(b"<")[1].split(b"@")[0].decode()]
                say(b"250 ok")
            elif word == b"DATA":
                is_data = True
                say(b"354 go on")
            elif word == b"QUIT":
                say(b"221 bye")
                return
            else:
                say(b"250 ok")


class MailServer(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64  # all connect at once


@pytest.mark.parametrize("outcome, status", [("ok", b"250"), ("failed", b"554")])
def test_l8_every_answer_of_a_mail_server_is_recorded(store, outlog, outbox, outcome, status):
    with MailServer(("127.0.0.1", 0), Mails) as server:
        server.status = status
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings = {
            "type": "smtp",
            "url": f"smtp://127.0.0.1:{server.server_address[1]}",
            "from": "a@b.example",
            "tls": "none",
            "retry": NO_RETRY,
        }
        sent = {}
        for name in POISON:
            outbox.destination(name, **settings)
            sent[name] = request_effect(store, name, {"to": [f"{name}@b.example"], "subject": "s", "body_text": "t"})
        drain(outlog, outbox, put_witnesses(outbox))
        server.shutdown()
    check_poison(outlog, outbox, sent, outcome)


def test_l8_every_effect_of_a_destination_without_an_answer_is_recorded(store, outlog, outbox):
    outbox.destination("nowhere", type="null")
    outbox.destination("out", type="stdout")
    sent = {name: request_effect(store, name) for name in ("nowhere", "out")}
    drain(outlog, outbox, put_witnesses(outbox))
    check_poison(outlog, outbox, sent, "ok")


def test_l8_an_alert_about_a_poisonous_failure_is_sent(store, outlog, outbox, receiver, tmp_path):
    (tmp_path / "pem").write_bytes(PEM)
    outbox.destination("bad", type="exec", command=["sh", "-c", f"cat {tmp_path}/pem; exit 65"], retry=NO_RETRY)
    outbox.destination("ops", receiver)
    outbox.run("update {}destinations set is_alert = true where name = 'ops'")
    effect, message = request_effect(store, "bad")
    drain(outlog, outbox, put_witnesses(outbox))
    (alert,) = receiver.of(destination="ops")
    told = json.loads(alert.body)
    assert told["event_id"] == message and b"MIIEvQ" not in alert.body
    assert (told["effect_id"], told["run_id"]) == (effect, None)
    assert told["correlation_id"] == outbox.state(message)["correlation_id"]


@pytest.mark.parametrize(
    "settings",
    ["{type: smtp, url: 'smtp://127.0.0.1:9', tls: none, from: a@b.example}", "{type: in_app}", "{type: websocket}"],
)
def test_p7_alerts_go_only_where_they_can_be_sent(store, outlog, tmp_path, settings):
    (tmp_path / "outlog.yaml").write_text(f"destinations: {{ops: {settings}}}\nalerts: {{to: ops}}\n")
    said = outlog.run("apply", "-f", "outlog.yaml", check=False)
    assert said.returncode == 1 and "form of their own" in said.stderr


# --- what the store refuses ---


def test_l8_a_strict_org_does_not_refuse_what_happened(store, outlog, outbox, tmp_path):
    """Its shape of EFFECT_COMPLETED has a member that no relay knows: the event says what is wrong."""
    (tmp_path / "outlog.yaml").write_text(
        """
event_types:
  strict: [acme]
  EFFECT_EXECUTING: {version: 2, shape: {worker: string}}
  EFFECT_COMPLETED: {version: 2, shape: {receipt: string}}
"""
    )
    outlog.run("apply", "-f", "outlog.yaml")
    outbox.destination("one", type="null")
    effect, message = request_effect(store, "one")
    drain(outlog, outbox, put_witnesses(outbox))
    assert outbox.state(message)["state"] == "PUBLISHED"
    completed = effect_events(outlog, effect)["EFFECT_COMPLETED"]
    assert "receipt" in completed["shape_error"] and completed["execution_result"]["status"] == 0
    assert outbox.one("select status from {}effects")["status"] == "COMPLETED"


def break_events(outbox, event_type):
    """A user's trigger that refuses events of this type."""
    if outbox.is_sqlite:
        outbox.run(
            f"create trigger mine before insert on outlog_events when new.event_type = '{event_type}' "
            "begin select raise(abort, 'not in my log'); end"
        )
        return
    outbox.run("create function mine() returns trigger language plpgsql as $$begin raise 'not in my log'; end$$")
    outbox.run(
        f"create trigger mine before insert on outlog.events for each row when (new.event_type = '{event_type}') "
        "execute function mine()"
    )


def mend_events(outbox):
    outbox.run("drop trigger mine" if outbox.is_sqlite else "drop trigger mine on outlog.events")


@pytest.mark.parametrize("event_type", ["EFFECT_EXECUTING", "EFFECT_COMPLETED", "EFFECT_FAILED", "EFFECT_RETRYING"])
def test_l8_a_trigger_that_refuses_an_event_condemns_one_message(store, outlog, outbox, receiver, event_type):
    outbox.destination("one", receiver, retry={"base": "10ms", "max": "20ms", "jitter": 0, "max_attempts": 3})
    outbox.destination("ops", receiver)
    outbox.run("update {}destinations set is_alert = true where name = 'ops'")
    if event_type in ("EFFECT_FAILED", "EFFECT_RETRYING"):
        receiver.rule(500, destination="one")
    break_events(outbox, event_type)
    effect, message = request_effect(store, "one", max_attempts=3)
    bystanders = [outbox.put("one", {"n": n}, max_attempts=1) for n in range(20)]
    drain(outlog, outbox, put_witnesses(outbox))
    row = outbox.state(message)
    assert row["state"] == "DEAD" and "not in my log" in row["last_error"], row
    wanted = "DEAD" if event_type in ("EFFECT_FAILED", "EFFECT_RETRYING") else "PUBLISHED"
    assert {outbox.state(one)["state"] for one in bystanders} == {wanted}
    assert receiver.count(id=message) == (0 if event_type == "EFFECT_EXECUTING" else 1)
    drain(outlog, outbox, [])  # a second relay calls nobody again
    assert receiver.count(id=message) == (0 if event_type == "EFFECT_EXECUTING" else 1)
    alerts = [json.loads(one.body) for one in receiver.of(destination="ops")]
    assert message in [one["event_id"] for one in alerts]
    mend_events(outbox)
    receiver.forget()
    outlog.run("requeue", message, "--even-if-unknown")
    drain(outlog, outbox, [])
    assert outbox.state(message)["state"] == "PUBLISHED"
    assert outbox.one("select status from {}effects")["status"] == "COMPLETED"


def test_l8_a_message_whose_failure_the_log_refuses_can_be_killed(store, outlog, outbox, receiver):
    """Killing needs EFFECT_DEAD_LETTERED, which a trigger refuses: the message is DEAD all the same."""
    outbox.destination("one", receiver, retry={"base": "1h", "max": "1h", "jitter": 0, "max_attempts": 3})
    receiver.rule(500, destination="one")
    effect, message = request_effect(store, "one", max_attempts=3)
    drain(outlog, outbox, put_witnesses(outbox))
    break_events(outbox, "EFFECT_DEAD_LETTERED")
    outlog.run("kill", message)
    row = outbox.state(message)
    assert row["state"] == "DEAD" and "killed by" in row["last_error"]


def test_l8_an_attempt_that_cannot_be_stored_is_left_out(store, outlog, outbox, receiver):
    """The table of attempts refuses every row: the outcome is recorded all the same, and the relay says what is
    missing."""
    if outbox.is_sqlite:
        outbox.run(
            "create trigger mine before insert on outlog_attempts begin select raise(abort, 'no attempts here'); end"
        )
    else:
        outbox.run("create function mine() returns trigger language plpgsql as $$begin raise 'no attempts here'; end$$")
        outbox.run("create trigger mine before insert on outlog.attempts for each row execute function mine()")
    outbox.destination("one", receiver, retry=NO_RETRY)
    receiver.rule(400, destination="one", type="test.bad")
    good = [outbox.put("one", {"n": n}) for n in range(5)]
    bad = outbox.put("one", {"n": 6}, type="test.bad")
    said = drain(outlog, outbox, put_witnesses(outbox))
    assert {outbox.state(one)["state"] for one in good} == {"PUBLISHED"}
    assert outbox.state(bad)["state"] == "DEAD" and "HTTP 400" in outbox.state(bad)["last_error"]
    assert "no attempts here" in said


def test_l8_a_lane_that_cannot_be_written_waits_and_says_so(store, outlog, outbox, receiver, relays):
    """Nothing can be parked: no message can even be condemned. Nobody is called again, the cause is logged once,
    and the lane goes on when it is mended."""
    outbox.destination("one", receiver, retry=NO_RETRY)
    receiver.rule(500, destination="one", times=1)
    if outbox.is_sqlite:
        outbox.run("create trigger mine before insert on outlog_parked begin select raise(abort, 'no room'); end")
    else:
        outbox.run("create function mine() returns trigger language plpgsql as $$begin raise 'no room'; end$$")
        outbox.run("create trigger mine before insert on outlog.parked for each row execute function mine()")
    (lane_key,) = [key for _, key in [next(keys_in_lane(3, ["one"]))]]
    message = outbox.put("one", {"n": 1}, key=lane_key)
    relay = relays()
    wait_for(lambda: "no room" in relay.said(), lambda: relay.said()[-2000:])
    others = [outbox.put("one", {"n": n}, key=next(keys_in_lane(5, ["one"]))[1]) for n in range(3)]
    if not outbox.is_sqlite:  # there is but one lane in SQLite
        for one in others:
            outbox.wait(one, "PUBLISHED")
    assert receiver.count(id=message) == 1
    assert relay.said().count("no room") <= 2, relay.said()
    relay.kill()
    outbox.bury(relay)
    second = relays("second")
    wait_for(lambda: "no room" in second.said(), lambda: second.said()[-2000:])
    assert receiver.count(id=message) == 1
    outbox.run("drop trigger mine" if outbox.is_sqlite else "drop trigger mine on outlog.parked")
    for one in others:
        outbox.wait(one, "PUBLISHED")
    outbox.wait(message, "DEAD", "PUBLISHED")


def test_l8_a_right_that_was_taken_away_costs_no_lane(postgres_store, outlog, outbox, receiver):
    """The relay's own role may not store attempts any more: outcomes are recorded without them."""
    name = postgres_store.rsplit("/", 1)[1].split("?")[0]
    outbox.run(f"create role hand_{name} login")
    outbox.run(f"grant outlog_admin to hand_{name}")
    outbox.run(f"grant all on all tables in schema outlog to hand_{name}")
    outbox.run(f"grant all on all sequences in schema outlog to hand_{name}")
    outbox.run(f"grant usage on schema outlog to hand_{name}")
    outbox.run(f"revoke insert on outlog.attempts from hand_{name}, outlog_admin")
    outbox.destination("one", receiver, retry=NO_RETRY)
    receiver.rule(400, destination="one", type="test.bad")
    bad, good = outbox.put("one", {}, type="test.bad"), outbox.put("one", {})
    said = outlog.run("relay", "--until-idle", timeout=120, env={"PGOPTIONS": f"-c role=hand_{name}"})
    assert outbox.state(bad)["state"] == "DEAD", said.stderr
    assert outbox.state(good)["state"] == "PUBLISHED" and receiver.count(id=good) == 1
    assert "attempts" in said.stderr


def test_l8_a_full_disk_calls_nobody_again(sqlite_store, outlog, outbox, receiver, relays):
    """The file may not grow while the answer comes: nothing is lost, and nobody is called twice."""
    outbox.destination("one", receiver, retry=NO_RETRY)
    receiver.rule("hang", destination="one")
    effect, message = request_effect(sqlite_store, "one")
    relay = relays()
    wait_for(lambda: receiver.count(id=message) == 1, "the attempt")
    path = sqlite_store[len("sqlite:") :]
    size = max(os.path.getsize(path), os.path.getsize(path + "-wal"))
    resource.prlimit(relay.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    receiver.release(200)
    wait_for(lambda: "unavailable" in relay.said() or outbox.state(message)["state"] != "CLAIMED", relay.said)
    resource.prlimit(relay.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    outbox.wait(message, "PUBLISHED")
    assert receiver.count(id=message) == 1
    relay.signal(signal.SIGTERM)
    relay.wait()
