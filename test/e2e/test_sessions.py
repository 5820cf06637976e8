"""Live sessions (S-1 … S-6): no message and no answer is lost."""
import hashlib
import json
import os
import random
import sys
import threading
import time
import urllib.parse
import uuid
from datetime import datetime

import pytest
import websocket

from lib.cli import Outlog
from lib.liboutlog import Log
from lib.outbox import Outbox, wait_for
from lib.proxy import Proxy
from lib.server import Server

pytestmark = pytest.mark.usefixtures("store")
KEY = "u-1:helper:t-1"


@pytest.fixture
def live(serve, agent, configure):
    """A server with an agent that echoes."""
    configure(helper={"type": "http", "url": agent().url, "tries": 1})
    return serve()


def effects(server, key=KEY, **query):
    """Every item of the list, page by page."""
    more = "".join(f"&{name}={value}" for name, value in ({"limit": 1000} | query).items())
    found, after = [], ""
    while after is not None:
        status, answer = server.get(f"/v1/sessions/{key}/effects?{more[1:]}{after}")
        assert status == 200, answer
        found += answer["effects"]
        after = answer["next_after"] and f"&after={urllib.parse.quote(answer['next_after'])}"
    return found


# promises


def test_s2_a_message_is_accepted_answered_and_acknowledged(live, chat):
    one = chat(live, KEY)
    one.say("r-1", "hello")
    assert one.next() == {"type": "accepted", "requestId": "r-1", "seq": 1}
    message = one.next("send_message")
    tokens = [frame["text"] for frame in one.frames if frame["type"] == "token"]
    assert "".join(tokens) == message["content"] == "you said hello"
    assert (message["requestId"], message["isFinal"]) == ("r-1", True)
    (effect,) = effects(live)
    assert (effect["effect_type"], effect["checkpoint_id"]) == ("send_message", f"{KEY}#1")
    assert effect["status"] in ("PENDING", "EXECUTING") and effect["message_id"] is None
    body = '{"content":"you said hello","requestId":"r-1","isFinal":true}'
    assert effect["idempotency_key"] == hashlib.sha256(f"{KEY}#1send_message{body}".encode()).hexdigest()
    one.ack(message["effect_id"])
    wait_for(lambda: effects(live, status="COMPLETED"), "the ack")
    wait_for(lambda: effects(live)[0]["attempts"] == 1, "the attempt to be counted")
    (done,) = effects(live)
    assert done["last_attempt_at"] and done["executed_at"]
    (said,) = live.get(f"/v1/sessions/{KEY}/events").json["events"]
    assert (said["event_type"], said["aggregate_seq"], said["payload"]) == (
        "user_message",
        1,
        {"text": "hello", "requestId": "r-1"},
    )
    assert (said["actor_type"], said["actor_id"], said["org_id"]) == ("user", "u-1", "default")


def test_s6_an_effect_is_pending_then_executing_then_completed_with_its_events(live, chat, outlog):
    one = chat(live, KEY)
    one.say("r-1", "hello")
    id = one.next("send_message")["effect_id"]
    wait_for(lambda: effects(live, status="EXECUTING"), "sent, not acknowledged")
    one.ack(id)
    wait_for(lambda: effects(live, status="COMPLETED"), "the ack")
    (effect,) = effects(live)
    assert effect["attempts"] >= 1 and effect["last_attempt_at"] and effect["executed_at"]
    told = outlog.run("events", "--aggregate", f"EFFECT/{id}", "--json").json()
    assert [event["event_type"] for event in told] == ["EFFECT_REQUESTED", "EFFECT_EXECUTING", "EFFECT_COMPLETED"]
    causes = [event["causation_id"] for event in told[1:]]
    assert causes == [event["id"] for event in told[:-1]], "each is the cause of the next"
    assert told[-1]["payload"]["attempts"] == effect["attempts"]
    (counts,) = outlog.run("verify", "--all", "--json").json()
    assert (counts["effects"], counts["differences"]) == (1, 0), "U3: a session's effect is compared too"


def test_s6_what_is_owed_is_listed_across_sessions(live, chat, outlog):
    for key in (KEY, "u-2:helper:t-2"):
        one = chat(live, key)
        one.say("r-1", "hello")
        one.next("send_message")
    wait_for(lambda: len(live.get("/v1/effects?status=EXECUTING").json["effects"]) == 2, "both, over HTTP")
    (listed,) = outlog.run("sessions", "effects", "--status", "EXECUTING", "--limit", "1", "--json").json()
    assert listed["session_key"] == KEY, "the oldest first, by the command line"
    assert len(outlog.run("sessions", "effects", "u-2:helper:t-2", "--json").json()) == 1
    assert live.get("/v1/effects?org_id=other").json["effects"] == []
    assert live.get("/v1/effects?status=odd").status == 400


@pytest.mark.parametrize("door", ["http", "cli"])
def test_s6_an_operator_ends_an_effect_and_sends_it_again(live, chat, outlog, door):
    def change(word, id):
        if door == "http":
            return live.post(f"/v1/effects/{id}/{word}?reason=moved", {}).status == 200
        return outlog.run("sessions", word, id, "--reason", "moved", check=False).returncode == 0

    one = chat(live, KEY)
    one.say("r-1", "hello")
    id = one.next("send_message")["effect_id"]
    wait_for(lambda: effects(live, status="EXECUTING"), "sent, not acknowledged")
    assert change("end", id) and not change("end", id), "once"
    assert [effect["status"] for effect in effects(live)] == ["FAILED"]
    one.ack(id)
    other = chat(live, KEY)
    other.say("r-2", "again")
    assert other.next("send_message")["requestId"] == "r-2", "what was ended is not sent to a new client"
    assert change("resend", id)
    wait_for(lambda: any(f.get("effect_id") == id for f in [other.next("send_message")]), "it again")
    other.ack(id)
    wait_for(lambda: id in [effect["effect_id"] for effect in effects(live, status="COMPLETED")], "the ack")
    assert not change("resend", id) and not change("end", "0190b5a0-0000-7000-8000-000000000000")
    told = [event["event_type"] for event in outlog.run("events", "--aggregate", f"EFFECT/{id}", "--json").json()]
    assert told[:4] == ["EFFECT_REQUESTED", "EFFECT_EXECUTING", "EFFECT_DEAD_LETTERED", "EFFECT_RETRYING"]
    audit = outlog.run("events", "--aggregate", f"outlog.effect/{id}", "--json").json()
    assert [event["event_type"] for event in audit] == ["outlog.effect.ended", "outlog.effect.resent"]
    assert outlog.run("verify", "--all", "--json").json()[-1]["differences"] == 0


def test_m11_an_answer_that_an_agent_never_gave_stays_visible(serve, agent, configure, chat, outlog):
    echo = agent()
    configure(helper={"type": "exec", "command": ["false"], "tries": 1}, other={"type": "http", "url": echo.url})
    live = serve()
    one = chat(live, KEY)
    one.say("r-1", "hello")
    assert one.next("error")["code"] == "agent_failed"
    (lost,) = wait_for(lambda: effects(live, status="FAILED"), "the answer that never came")
    assert (lost["effect_type"], lost["effect_spec"]["requestId"]) == ("agent_failed", "r-1")
    told = outlog.run("events", "--aggregate", f"EFFECT/{lost['effect_id']}", "--json").json()
    assert [event["event_type"] for event in told] == ["EFFECT_REQUESTED", "EFFECT_DEAD_LETTERED"]
    assert told[1]["payload"]["error_code"] == "AGENT_FAILED" and told[1]["payload"]["error_message"]
    assert live.post(f"/v1/effects/{lost['effect_id']}/resend", {}).status == 409, "there is nothing to send"
    two = chat(live, KEY)
    two.say("r-1", "hello")
    assert two.next() == {"type": "accepted", "requestId": "r-1", "seq": 1}, "and it is never sent to a client"
    assert outlog.run("verify", "--all", "--json").json()[-1]["differences"] == 0


def test_s2_a_repeated_request_is_the_same_event_and_runs_once(live, chat, agent):
    one = chat(live, KEY)
    for _ in range(3):
        one.say("r-1", "hello")
        assert one.next("accepted")["seq"] == 1
    one.next("send_message")
    one.say("r-1", "something else")  # the requestId decides, not the text
    assert one.next("accepted")["seq"] == 1
    one.say("r-2", "more")
    assert one.next("accepted")["seq"] == 2
    one.next("send_message")
    said = live.get(f"/v1/sessions/{KEY}/events").json["events"]
    assert [event["payload"]["text"] for event in said] == ["hello", "more"]


def test_s5_what_was_missed_comes_at_reconnect_in_order_until_acknowledged(live, chat):
    one = chat(live, KEY)
    for n in range(5):
        one.say(f"r-{n}", f"word {n}")
    wait_for(lambda: len(effects(live)) == 5, "five answers")
    one.close()
    two = chat(live, KEY)
    came = [two.next() for _ in range(5)]
    assert [frame["content"] for frame in came] == [f"you said word {n}" for n in range(5)]
    two.ack(came[0]["effect_id"])
    two.ack(came[1]["effect_id"])
    wait_for(lambda: len(effects(live, status="COMPLETED")) == 2, "two acks")
    three = chat(live, KEY)
    assert [three.next()["effect_id"] for _ in range(3)] == [frame["effect_id"] for frame in came[2:]]
    assert three.silent()


def test_s5_a_clock_that_is_set_back_changes_no_order(serve, chat, agent, configure, store):
    """The clock goes back an hour after every two answers: effects keep the order of the log, sent and listed."""
    configure(helper={"type": "http", "url": agent().url})
    for hours in (2, 1, 0):
        server = serve(env={"OUTLOG_SKEW": str(hours * 3600)})
        one = chat(server, KEY)
        for n in range(2):
            one.say(f"r-{hours}-{n}", f"{2 - hours}.{n}")
        wait_for(lambda: len(effects(server)) == 6 - 2 * hours, "the answers")
        server.stop()
    with Outbox(store) as db:
        if not store.startswith("sqlite"):  # its clock is the database's, which cannot be set here
            db.run(
                "update {}effects set created_at = created_at - interval '1 hour' * substr(checkpoint_id, %s)::int",
                len(KEY) + 2,
            )
        found = [row["created_at"] for row in db.run("select created_at from {}effects order by event_id")]
        assert min(found[:2]) > max(found[2:4]) > max(found[4:]), "the clock was not set back"
    server = serve()
    two = chat(server, KEY)
    order = [f"you said {hour}.{n}" for hour in range(3) for n in range(2)]
    assert [two.next()["content"] for _ in order] == order
    for limit in (1000, 4):
        assert [one["effect_spec"]["content"] for one in effects(server, limit=limit)] == order


def test_s5_a_clock_that_is_set_ahead_hides_nothing_from_an_open_socket(live, chat, store):
    """Another process stores an effect with a time that is an hour old."""
    one, other = chat(live, KEY), chat(live, "u-2:helper:t-1")
    cause = live.append("default")[0]["id"]

    def owe(key, off=0):
        id = str(uuid.uuid4())
        with Outbox(store) as session:
            at = session.now(off * 1_000_000)
            session.run(
                "insert into {}effects (effect_id, org_id, session_key, effect_type, effect_spec, destination, "
                "idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at) select "
                f"%s, 'default', %s, 'update_ui', %s, 'session', %s, %s, max(event_id) + 1, %s, 'c', {at}, {at} "
                "from {}events",
                id,
                key,
                "{}",
                id,
                id,
                cause,
            )
        return {"type": "update_ui", "effect_id": id}

    for _ in range(2):  # the first poll reads every socket, as all are new; the next one only what changed
        assert owe("u-2:helper:t-1") == other.next()
    assert owe(KEY, -3600) == one.next()


def test_s5_what_is_not_acknowledged_comes_again_after_ten_seconds_in_order(live, chat):
    one = chat(live, KEY, timeout=60)
    for n in range(4):
        one.say(f"r-{n}", "hello")
    first = [one.next("send_message") for _ in range(4)]
    one.ack(first[1]["effect_id"])
    owed = [frame for frame in first if frame != first[1]]
    assert [one.next("send_message") for _ in owed] == owed
    again = wait_for(
        lambda: [one for one in effects(live) if one["attempts"] == 2][2:] and effects(live),
        "the second attempts to be noted",
    )
    assert [effect["attempts"] for effect in again] == [2, 1, 2, 2]
    for effect in again[0], again[2], again[3]:
        waited = datetime.fromisoformat(effect["last_attempt_at"]) - datetime.fromisoformat(effect["created_at"])
        assert 10 <= waited.total_seconds() < 14
    one.ack(first[0]["effect_id"])
    wait_for(lambda: len(effects(live, status="COMPLETED")) == 2, "the acks")


def test_s5_every_socket_of_a_session_gets_it_and_the_first_ack_ends_it(live, chat):
    sockets = [chat(live, KEY) for _ in range(3)]
    sockets[0].say("r-1", "hello")
    ids = {one.next("send_message")["effect_id"] for one in sockets}
    assert len(ids) == 1
    sockets[2].ack(ids.pop())
    wait_for(lambda: effects(live, status="COMPLETED"), "the ack")
    late = chat(live, KEY)
    assert late.silent()


def test_s4_the_last_checkpoint_goes_to_the_agent(live, chat, serve, agent, configure):
    listener = agent()
    configure(helper={"type": "http", "url": listener.url})
    one = chat(live, KEY)
    for n in (1, 2):
        one.say(f"r-{n}", "x")
        one.next("send_message")
    assert [q["checkpoint"] for q in listener.questions] == [None, {"seq": 1}]
    assert listener.questions[1] == {
        "session_key": KEY,
        "seq": 2,
        "requestId": "r-2",
        "text": "x",
        "checkpoint": {"seq": 1},
    }


def test_s4_openai_deltas_and_programs_answer_too(serve, chat, agent, configure, root):
    program = root / "examples" / "agent.py"
    configure(
        gpt={"type": "http", "url": agent(style="openai").url},
        program={"type": "exec", "command": [sys.executable, str(program), "0"]},
    )
    server = serve()
    for name, answer in (("gpt", "you said hi"), ("program", "You said: hi (this was your message number 1) ")):
        one = chat(server, f"u:{name}:t")
        one.say("r", "hi")
        assert one.next("send_message")["content"] == answer


def test_s3_one_message_at_a_time_and_sessions_side_by_side(serve, chat, agent, configure):
    gate = threading.Barrier(4, timeout=60)

    def words(question):
        if question["text"] == "meet":
            gate.wait()  # all four sessions are answered at once, or none is
        return [question["text"]]

    busy = agent(words)
    configure(helper={"type": "http", "url": busy.url})
    server = serve()
    sockets = [chat(server, f"u-{n}:helper:t", timeout=60) for n in range(4)]
    for one in sockets:
        for number, text in enumerate(("meet", "b", "c")):
            one.say(f"r-{number}", text)
    for one in sockets:
        answers = {}  # by effect: one that is not acknowledged is sent again
        while len(answers) < 3:
            frame = one.next("send_message")
            answers[frame["effect_id"]] = frame["content"]
        assert list(answers.values()) == ["meet", "b", "c"]
    assert busy.most_busy == 1


@pytest.mark.parametrize("number", [1, 12])
def test_s3_as_many_agents_speak_at_a_time_as_the_setting_says(serve, chat, agent, configure, number):
    """With 12, twelve agents run at once, more than the default of eight; with 1, never two at once."""
    gate, lock, now, most = threading.Barrier(number, timeout=60), threading.Lock(), 0, 0

    def words(question):
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()
        with lock:
            now -= 1
        return ["done"]

    configure(serve={"answers": number}, helper={"type": "http", "url": agent(words).url})
    server = serve()
    sockets = [chat(server, f"u-{n}:helper:t", timeout=60) for n in range(12)]
    for one in sockets:
        one.say("r", "meet")
    assert [one.next("send_message")["content"] for one in sockets] == ["done"] * 12
    assert most == number


def test_s4_a_failing_agent_is_told_and_the_session_goes_on(serve, chat, agent, configure):
    def words(question):
        return {"die": 500, "garbage": [{"neither": 1}]}.get(question["text"], ["fine"])

    configure(
        helper={"type": "http", "url": agent(words).url, "tries": 1},
        slow={"type": "http", "url": agent(lambda _: ["a", 60]).url, "tries": 1, "timeout": "1s"},
    )
    server = serve()
    one = chat(server, KEY)
    for n, text in enumerate(("die", "garbage", "good")):
        one.say(f"r-{n}", text)
    codes = [(one.next("error")["code"], one.frames[-1]["requestId"]) for _ in range(2)]
    assert codes == [("agent_failed", f"r-{n}") for n in range(2)]
    assert one.next("send_message")["content"] == "fine"
    assert [one["status"] == "FAILED" for one in effects(server)] == [True, True, False]  # half an answer is not stored
    for agent_id in ("slow", "nobody"):
        two = chat(server, f"u:{agent_id}:t", timeout=30)
        two.say("r", "x")
        assert two.next("error")["code"] == "agent_failed"


def test_s4_a_failing_agent_is_told_by_every_daemon_and_once(serve, chat, agent, configure):
    configure(
        helper={
            "type": "http",
            "url": agent(lambda question: 500 if question["text"] == "die" else ["fine"]).url,
            "tries": 1,
        }
    )
    sockets = [chat(serve(), KEY), chat(serve(), KEY)]
    for n, text in enumerate(("die", "good", "die", "good")):
        sockets[n % 2].say(f"r-{n}", text)
        for one in sockets:
            frame = one.next("error", "send_message")
            assert (frame["type"], frame["requestId"]) == ("error" if text == "die" else "send_message", f"r-{n}")
            assert frame.get("code", "agent_failed") == "agent_failed"
            if text == "good":
                one.ack(frame["effect_id"])


def test_s4_a_second_run_of_the_agent_does_not_make_a_second_answer(serve, chat, agent, configure):
    """Killed between the agent's answer and its commit: the agent is asked again and answers differently;
    one answer is stored, and the client sees that one."""
    configure(helper={"type": "http", "url": agent(lambda _: [str(random.random())]).url})
    server = serve(env={"OUTLOG_FAULT": "session.answer:1:kill"})
    one = chat(server, KEY)
    one.say("r-1", "hello")
    assert one.next("accepted")["seq"] == 1
    server.process.wait(20)
    server.kill()
    again = serve()
    two = chat(again, KEY, timeout=60)
    message = two.next("send_message")
    assert [effect["effect_spec"]["content"] for effect in effects(again)] == [message["content"]]


@pytest.mark.parametrize("point", ["session.answer", "session.answered"])
def test_s2_the_daemon_dies_while_an_answer_streams(serve, chat, agent, configure, point):
    """What the chat example promises: after a kill in mid-answer and a restart the whole answer is there, once."""
    configure(helper={"type": "http", "url": agent().url})
    server = serve(env={"OUTLOG_FAULT": f"{point}:1:kill"})
    one = chat(server, KEY)
    one.say("r-1", "hello")
    one.next("accepted")
    server.process.wait(20)
    server.kill()
    again = serve()
    two = chat(again, KEY, timeout=60)
    message = two.next("send_message")
    assert message["content"] == "you said hello"
    two.ack(message["effect_id"])
    wait_for(lambda: effects(again, status="COMPLETED"), "the ack")
    assert len(effects(again)) == 1


def test_s3_two_daemons_share_sessions_and_either_holds_the_socket(serve, chat, agent, configure):
    busy = agent()
    configure(helper={"type": "http", "url": busy.url})
    servers = [serve(), serve()]
    for n in range(6):
        one = chat(servers[n % 2], KEY)
        one.say(f"r-{n}", f"word {n}")
        one.next("accepted")
    last = chat(servers[1], KEY)
    seen = []
    while len(seen) < 6:
        frame = last.next("send_message")
        seen += [frame["content"]] if frame["content"] not in seen else []
    assert seen == [f"you said word {n}" for n in range(6)]
    assert busy.most_busy == 1 and len(effects(servers[0])) == 6


def test_s7_other_types_of_events_pass_through(live, chat):
    live.post(
        "/v1/events",
        {
            "org_id": "default",
            "events": [
                {"aggregate_type": "session", "aggregate_id": KEY, "event_type": "user_edit", "payload": {"of": 1}}
            ],
        },
    )
    one = chat(live, KEY)
    one.say("r-1", "hello")
    assert one.next("accepted")["seq"] == 2
    assert one.next("send_message")["content"] == "you said hello"


def test_s7_effects_of_other_types_pass_through_as_data(live, chat, store):
    """Any program may insert an effect for a session; effects with another destination belong to the relay."""
    ids = {name: str(uuid.uuid4()) for name in ("update_ui", "send_notification", "send_mail")}
    cause = live.append("default")[0]
    now = int(time.time() * 1e6) if store.startswith("sqlite") else "now"
    with Outbox(store) as session:
        for name, destination in (("update_ui", "session"), ("send_notification", "session"), ("send_mail", "mailer")):
            session.run(
                "insert into {}effects (effect_id, org_id, session_key, effect_type, effect_spec, destination, "
                "idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at) values "
                "(%s, 'default', %s, %s, %s, %s, %s, %s, %s, %s, 'c', %s, %s)",
                ids[name],
                KEY,
                name,
                "{}" if name == "update_ui" else '{"n":[1,{"a":"ü"}]}',
                destination,
                name,
                ids[name],
                cause["event_id"],
                cause["id"],
                now,
                now,
            )
    one = chat(live, KEY)
    came = {frame["type"]: frame for frame in (one.next(), one.next())}
    assert came == {
        "update_ui": {"type": "update_ui", "effect_id": ids["update_ui"]},
        "send_notification": {"type": "send_notification", "effect_id": ids["send_notification"], "n": [1, {"a": "ü"}]},
    }
    for frame in came.values():
        one.ack(frame["effect_id"])
    one.ack(ids["send_mail"])
    wait_for(lambda: len(effects(live, status="COMPLETED")) == 2, "two acks")
    ended = [
        event["payload"]["effect_type"] for event in live.get("/v1/events?event_type=EFFECT_COMPLETED").json["events"]
    ]
    assert sorted(ended) == ["send_notification", "update_ui"]
    assert one.silent()


def test_d5_a_message_to_a_websocket_destination_is_owed_to_its_session(serve, chat, outlog, tmp_path):
    (tmp_path / "chat.json").write_text(json.dumps({"destinations": {"chat": {"type": "websocket"}}}))
    outlog.run("apply", "-f", tmp_path / "chat.json")
    server = serve()
    one, other = chat(server, KEY), chat(server, "u-2:helper:t-1")

    def send(payload, **more):
        return server.post(
            "/v1/messages",
            {"destination": "chat", "event_type": "update_ui", "org_id": "default", "payload": payload, **more},
        ).json["event_id"]

    ids = [send({"session_key": KEY, "badge": n}, ordering_key=KEY) for n in range(3)]
    came = [one.next() for _ in ids]
    assert [(frame["type"], frame["badge"]) for frame in came] == [("update_ui", n) for n in range(3)]
    for message_id in ids:
        server.wait_message(message_id, "PUBLISHED")
    for wrong in ({"badge": 1}, {"session_key": "u:a"}, {"session_key": KEY, "type": "x"}, [KEY]):
        dead = server.wait_message(send(wrong), "DEAD")
        assert dead["attempts"] == 1 and dead["last_error"]
    assert other.silent() and len(effects(server)) == 3
    one.ack(came[0]["effect_id"])
    wait_for(lambda: len(effects(server, status="COMPLETED")) == 1, "the ack")
    late = chat(server, KEY)
    assert [late.next()["badge"] for _ in range(2)] == [1, 2]


def test_d5_a_crash_neither_loses_nor_doubles_what_a_session_is_owed(serve, chat, outlog, tmp_path):
    (tmp_path / "chat.json").write_text(
        json.dumps({"destinations": {"chat": {"type": "websocket"}}, "relay": {"lease": "1s"}})
    )
    outlog.run("apply", "-f", tmp_path / "chat.json")
    for n in range(20):
        outlog.run(
            "send",
            "--to",
            "chat",
            "--org",
            "default",
            "--type",
            "update_ui",
            "--ordering-key",
            "k",
            "--data",
            json.dumps({"session_key": KEY, "n": n}),
        )
    killed = outlog.run("relay", "--until-idle", env={"OUTLOG_FAULT": "publish.sent:5:kill"}, check=False)
    assert killed.returncode == -9
    outlog.run("relay", "--until-idle")
    one = chat(serve(), KEY)
    assert [one.next()["n"] for _ in range(20)] == list(range(20))
    assert one.silent()


def test_a_message_appended_by_another_interface_is_answered(live, chat, outlog):
    outlog.run(
        "append",
        "--org",
        "default",
        "--aggregate",
        f"session/{KEY}",
        "--type",
        "user_message",
        "--data",
        '{"text":"from the shell","requestId":"cli-1"}',
    )
    assert chat(live, KEY).next("send_message")["content"] == "you said from the shell"


def test_messages_of_many_sessions_in_one_statement_are_all_heard(live, chat, store):
    """Messages by plain INSERT, other events between them: every session is answered up to its newest, in order."""
    now = "'2026-01-01T00:00:00.000000Z'" if store.startswith("sqlite") else "now()"
    rows = [
        (kind, key, seq)
        for seq in (1, 2)
        for kind, key in (("session", KEY), ("order", KEY), ("session", "u-2:helper:t-1"))
    ] + [("session", KEY, 3)]
    with Outbox(store) as session:
        session.run(
            "insert into {}events (id, occurred_at, org_id, aggregate_type, aggregate_id, aggregate_seq, "
            "event_type, actor_type, actor_id, request_id, correlation_id, payload) values "
            + ", ".join(
                f"('{uuid.uuid4()}', {now}, 'default', '{kind}', '{key}', {seq}, 'user_message', "
                f"'system', 'sql', 'r-{seq}', 'c', '{{\"text\":\"{seq}\",\"requestId\":\"r-{seq}\"}}')"
                for kind, key, seq in rows
            )
        )
    for key, last in ((KEY, 3), ("u-2:helper:t-1", 2)):
        one = chat(live, key)
        assert [one.next("send_message")["content"] for _ in range(last)] == [f"you said {n + 1}" for n in range(last)]
    known = {one["session_key"]: one["last_seq"] for one in live.get("/v1/sessions").json["sessions"]}
    assert known == {KEY: 3, "u-2:helper:t-1": 2}


@pytest.mark.parametrize("store", ["postgres"], indirect=True)
@pytest.mark.parametrize("where", ["request", "reply"])
@pytest.mark.parametrize("sql", ["set done_seq =", "commit"])
def test_s4_a_store_that_goes_away_does_not_count_as_the_agents_failure(
    store, postgres, tmp_path, chat, agent, sql, where
):
    """The connection to the store is cut while the answer is committed, before or after: the agent is asked
    once, and its answer arrives."""
    with Proxy(postgres.port) as proxy:
        outlog = Outlog(proxy.url(store), cwd=tmp_path)
        mouth = agent(lambda _: (proxy.cut_at(sql, where), [str(random.random())])[1])
        (tmp_path / "agents.json").write_text(
            json.dumps({"agents": {"helper": {"type": "http", "url": mouth.url, "tries": 1}}, "relay": {"lease": "2s"}})
        )
        outlog.run("apply", "-f", tmp_path / "agents.json")
        server = Server(outlog, tmp_path / "serve.log", ["--no-relay"])
        try:
            one = chat(server, KEY, timeout=60)
            one.say("r-1", "hello")
            message = one.next("send_message", "error")
            assert message["type"] == "send_message" and proxy.happened.is_set()
            assert [effect["effect_spec"]["content"] for effect in effects(server)] == [message["content"]]
            assert len(mouth.questions) == 1
        finally:
            server.stop()


# refusals


@pytest.mark.parametrize(
    "key", ["u:a", "u:a:t:x", ":a:t", "u::t", "u:a:", "u;x:a:t", "u:a:t%20", "u:a:%C3%A4", "u:a:" + "t" * 129]
)
def test_s1_bad_keys_are_refused(live, key):
    for path in ("events", "effects", "socket"):
        assert live.get(f"/v1/sessions/{key}/{path}").code == "bad_session_key"
    assert live.post(f"/v1/sessions/{key}/ticket").code == "bad_session_key"


def test_hostile_frames_get_an_error_and_are_disconnected(live, chat):
    one = chat(live, KEY)
    for frame, code in (
        ("{", "invalid_json"),
        ("[]", "invalid_field"),
        ('{"type":"nope"}', "invalid_field"),
        ('{"type":"user_message","text":"x"}', "invalid_field"),
        ('{"type":"user_message","requestId":1,"text":"x"}', "invalid_field"),
        ('{"type":"user_message","requestId":"r","text":"key olk_0123456789abcdef"}', "secret_material"),
        ('{"type":"ack","effect_id":7}', "invalid_field"),
    ):
        one.send(frame)
        assert one.next()["code"] == code
    one.say("r-1", "still here")
    assert one.next("accepted")["seq"] == 1
    with pytest.raises((websocket.WebSocketException, OSError)):
        for _ in range(40):
            one.send("{")
            one.next()
    big = chat(live, KEY)
    with pytest.raises((websocket.WebSocketException, OSError)):
        big.say("r-2", "x" * 70_000)
        big.next("accepted")
    raw = chat(live, KEY)
    with pytest.raises((websocket.WebSocketException, OSError)):
        raw.socket.send_binary(b"\x00\x01")
        raw.next("accepted")


def test_d5_a_ping_is_answered(live, chat):
    one = chat(live, KEY)
    one.socket.ping("are you there")
    code, words = one.socket.recv_data(control_frame=True)
    assert (code, words) == (websocket.ABNF.OPCODE_PONG, b"are you there")


@pytest.mark.torture
@pytest.mark.skipif("OUTLOG_TORTURE_ROWS" not in os.environ, reason="takes a minute: make torture")
def test_d5_whoever_answers_no_ping_is_dropped_and_is_owed_what_he_missed(live, chat):
    """After 30 s of silence the server pings; after 30 s more without an answer it closes the socket."""
    one, other = chat(live, KEY, timeout=90), chat(live, KEY, timeout=90)
    code, words = one.socket.recv_data(control_frame=True)
    assert code == websocket.ABNF.OPCODE_PING
    one.socket.pong(words)
    with pytest.raises((websocket.WebSocketException, OSError)):
        while other.socket.recv_frame():  # receives the ping and does not answer
            pass
    one.say("r-1", "still here")
    sent = one.next("send_message")
    assert chat(live, KEY).next("send_message") == sent


def test_s6_effects_are_listed_by_a_status_that_there_is(live, chat):
    one = chat(live, KEY)
    one.say("r-1", "hello")
    one.next("send_message")
    statuses = ("PENDING", "EXECUTING", "COMPLETED", "FAILED")
    counts = lambda: [len(effects(live, status=status)) for status in statuses]  # noqa: E731
    wait_for(lambda: counts() == [0, 1, 0, 0], "the effect to be sent, not acknowledged")
    for status in ("pending", "OWED", ""):
        answer = live.get(f"/v1/sessions/{KEY}/effects?status={status}")
        assert (answer.status, answer.code) == (400, "invalid_field"), "not: nothing is owed"


def test_a_plain_request_is_told_that_this_is_a_socket(live):
    assert live.get(f"/v1/sessions/{KEY}/socket").code == "invalid_request"


def test_x1_sockets_want_a_token_or_a_ticket(serve, outlog, chat, agent, configure, store):
    configure(helper={"type": "http", "url": agent().url})
    server = serve(dev=False)

    def token(*args):
        return json.loads(outlog.run("token", "create", "--json", *args).stdout)["token"]

    def status_of(query="", **headers):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            chat(server, KEY, query, **headers)
        return refused.value.status_code

    append = token("--scope", "append", "--org", "acme")
    assert status_of() == 401
    assert status_of(authorization=f"Bearer {token('--scope', 'read')}") == 403
    assert status_of("?org_id=other", authorization=f"Bearer {append}") == 403
    one = chat(server, KEY, authorization=f"Bearer {append}")
    one.say("r-1", "hello")
    one.next("send_message")
    ticket = server.post(f"/v1/sessions/{KEY}/ticket", token=append).json["ticket"]
    with pytest.raises(websocket.WebSocketBadStatusException):
        chat(server, "u-2:helper:t-1", f"?ticket={ticket}")  # of another session
    two = chat(server, KEY, f"?ticket={ticket}")
    assert two.next("send_message")["content"] == "you said hello"
    assert status_of(f"?ticket={ticket}") == 401  # used
    late = server.post(f"/v1/sessions/{KEY}/ticket", token=append).json["ticket"]
    assert server.get(f"/v1/sessions/{KEY}/events", token=late).status == 401  # it is no token
    with Outbox(store) as session:
        session.run("update {}tickets set expires_at = %s", 0 if store.startswith("sqlite") else "1970-01-01Z")
    assert status_of(f"?ticket={late}") == 401  # expired
    assert status_of(origin="http://evil.example", authorization=f"Bearer {append}") == 403
    admin = token("--scope", "admin")
    assert [s["org_id"] for s in server.get("/v1/sessions", token=admin).json["sessions"]] == ["acme"]
    other = token("--scope", "read", "--org", "other")
    assert server.get("/v1/sessions", token=other).json["sessions"] == []
    assert server.get(f"/v1/sessions/{KEY}/effects", token=other).json["effects"] == []
    assert server.get(f"/v1/sessions/{KEY}/events", token=other).json["events"] == []


def test_x1_a_socket_ends_when_its_token_is_revoked(serve, outlog, chat, agent, configure):
    configure(helper={"type": "http", "url": agent().url})
    server = serve(dev=False)
    made, kept = (
        outlog.run("token", "create", "--json", "--scope", "append", "--org", "acme").json()[0] for _ in range(2)
    )
    ends, stays = (chat(server, KEY, authorization=f"Bearer {one['token']}") for one in (made, kept))
    ends.say("r-1", "hello")
    for one in (ends, stays):
        assert one.next("send_message")["content"] == "you said hello"
    outlog.run("token", "revoke", made["id"])
    with pytest.raises(websocket.WebSocketConnectionClosedException):
        while True:
            ends.next()
    stays.say("r-2", "again")
    assert stays.next("accepted")["requestId"] == "r-2"


def test_x1_pages_of_named_origins_open_sockets_and_nothing_else(serve, outlog, chat, tmp_path):
    def name(*origins):
        path = tmp_path / "serve.json"
        path.write_text(json.dumps({"serve": {"origins": origins}}))
        return outlog.run("apply", "-f", path, check=False)

    for wrong in ("chat.example", "https://chat.example/page", "*", "https://*.example", "https://a@b", ""):
        refused = name(wrong)
        assert refused.returncode == 1 and "serve.origins" in refused.stderr
    assert name("https://chat.example", "http://127.0.0.1:7480").returncode == 0
    server = serve()
    assert chat(server, KEY, origin="https://chat.example").socket.connected
    assert chat(server, KEY, origin="http://127.0.0.1:7480").socket.connected
    assert chat(server, KEY, origin=f"http://127.0.0.1:{server.port}").socket.connected
    for other in ("http://chat.example", "https://chat.example.evil", "https://chat.example:8443", "null"):
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            chat(server, KEY, origin=other)
        assert refused.value.status_code == 403
    assert server.get("/v1/sessions", headers={"origin": "https://chat.example"}).code == "forbidden"
    name()
    wait_for(
        lambda: server.get(
            f"/v1/sessions/{KEY}/socket", headers={"origin": "https://chat.example", "upgrade": "websocket"}
        ).status
        == 403,
        "the origin to be forgotten",
    )


def test_sigterm_while_messages_are_being_stored_ends_in_order(serve, chat, agent, configure):
    """The next daemon answers what this one accepted; this one exits with 0."""
    configure(helper={"type": "http", "url": agent().url})
    for round in range(5):
        server = serve()
        one = chat(server, KEY)
        for n in range(20):
            one.say(f"r-{round}-{n}", "x")
        assert server.stop() == 0
    again = serve()
    said = again.get(f"/v1/sessions/{KEY}/events?limit=1000").json["events"]
    wait_for(lambda: len(effects(again)) == len(said), "every message to be answered")


def ask_http(server, store, outlog):
    answer = server.post(f"/v1/sessions/{KEY}/deliver")
    assert answer.status == 202
    return answer.json["hurried"]


def ask_cli(server, store, outlog):
    return outlog.run("sessions", "deliver", KEY, "--json").json()[0]["hurried"]


def ask_c(server, store, outlog):
    with Log(store) as log:
        return log.deliver_session("default", KEY)


@pytest.mark.parametrize("ask", [ask_http, ask_cli, ask_c])
def test_l6_delivery_on_demand(live, serve, chat, store, outlog, ask):
    """Every daemon sends all effects again that are not acknowledged, at once, and no other. Each request that
    sent something is an audit event."""
    sockets = [chat(live, KEY), chat(serve(), KEY)]
    sockets[0].say("r-1", "hello")
    first = [one.next("send_message") for one in sockets]
    for _ in range(2):
        assert ask(live, store, outlog) == 1
        assert [one.next("send_message") for one in sockets] == first
    sockets[0].ack(first[0]["effect_id"])
    wait_for(lambda: effects(live, status="COMPLETED"), "the ack")
    assert ask(live, store, outlog) == 0
    assert all(one.silent() for one in sockets)
    told = [
        event
        for event in live.get("/v1/events?limit=1000").json["events"]
        if event["event_type"] == "outlog.session.delivered"
    ]
    assert [(event["org_id"], event["aggregate_id"], event["payload"]) for event in told] == [
        (None, KEY, {"org_id": "default", "effects": 1})
    ] * 2


def test_l6_a_key_that_is_none_is_refused(live, outlog):
    assert live.post("/v1/sessions/nobody/deliver").code == "bad_session_key"
    refused = outlog.run("sessions", "deliver", "nobody", check=False)
    assert refused.returncode == 1 and "userId:agentId:threadId" in refused.stderr


def test_m6_the_command_line_lists_sessions(live, chat, outlog):
    for n in range(3):
        one = chat(live, f"u-{n}:helper:t")
        one.say("r", "hello")
        one.next("send_message")
    listed = outlog.run("sessions", "--limit", "2")
    shown = [line.split() for line in listed.stdout.splitlines()[1:]]
    assert [(row[:4]) for row in shown] == [["default", f"u-{n}:helper:t", "1", "1"] for n in (2, 1)]
    after = listed.stderr.split("--after '")[1].split("'")[0]
    rest = outlog.run("sessions", "--after", after, "--json").json()
    assert [row["session_key"] for row in rest] == ["u-0:helper:t"]
    assert outlog.run("sessions", "--org", "other", "--json").json() == []


def test_a_page_of_sessions_begins_where_another_ended_or_nowhere(live):
    for wrong in ("x", "x%20y", "2026-99-01T00:00:00Z%20u:a:t", "%20u:a:t"):
        answer = live.get(f"/v1/sessions?after={wrong}")
        assert (answer.code, answer.json["detail"]) == ("invalid_field", "after is the next_after of a page"), wrong


@pytest.mark.parametrize("timeout", [5, "0s", "soon", None, ["1s"]])
def test_s4_an_agents_timeout_is_a_span(outlog, timeout):
    agents = {"a": {"type": "exec", "command": ["x"], "timeout": timeout}}
    refused = outlog.run("apply", "-f", "-", input=json.dumps({"agents": agents}), check=False)
    assert refused.returncode == 1 and "timeout is a span like 120s" in refused.stderr


def test_s5_an_ack_from_another_org_is_none(live, chat):
    one, other = chat(live, KEY), chat(live, KEY, query="?org_id=other")
    one.say("r-1", "hello")
    message = one.next("send_message")
    other.ack(message["effect_id"])
    other.say("r-1", "hello")  # it connected later and speaks later
    other.next("send_message")
    assert [effect["status"] in ("PENDING", "EXECUTING") for effect in effects(live)] == [True]
    one.ack(message["effect_id"])
    wait_for(lambda: effects(live, status="COMPLETED"), "the ack")


def test_r3_a_reader_that_is_too_slow_is_dropped_and_gets_its_answers_later(serve, chat, agent, configure):
    """An answer larger than the buffers of the kernel and the daemon: as tokens it closes the connection; after
    a reconnect the stored effects arrive one after another."""
    configure(helper={"type": "http", "url": agent(lambda question: [question["text"] * 100_000] * 10).url})
    server = serve()
    lazy = chat(server, KEY, timeout=60, room=4096)
    words = "abcdefghij"
    for word in words:
        lazy.say(f"r-{word}", word)
    wait_for(lambda: len(effects(server)) == len(words), "the answers", 60)
    with pytest.raises((websocket.WebSocketConnectionClosedException, OSError)):
        while len(lazy.frames) < 12 * len(words):  # accepted, ten tokens and the answer, of each
            lazy.next()
    again = chat(server, KEY, timeout=60, room=4096)
    for word in words:
        assert again.next("send_message")["content"] == word * 1_000_000
        if word == "b":
            time.sleep(11)  # unacknowledged effects are sent again after ten seconds, after all the others
