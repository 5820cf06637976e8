"""Agents that fail, hang, stop half-way or whose client leaves (S-3, S-4): each ends in a defined state."""
import json
import os
import signal
import sys
import threading
import time
from datetime import datetime, timezone

import pytest

from lib.outbox import Outbox, wait_for, wait_frozen
from lib.websocket import WebSocket

pytestmark = pytest.mark.usefixtures("store")
KEY = "u-1:helper:t-1"


def effects(server, key=KEY):
    return server.get(f"/v1/sessions/{key}/effects?limit=1000").json["effects"]


def session(server, key=KEY):
    return next(one for one in server.get("/v1/sessions").json["sessions"] if one["session_key"] == key)


def program(text):
    return [
        sys.executable,
        "-c",
        "import json, os, signal, sys, time\nq = json.loads(sys.stdin.readline())\n"
        "def say(**what): print(json.dumps(what), flush=True)\n"
        "if q['text'] == 'good': say(token='fine'); sys.exit()\nsay(token='half ')\n" + text,
    ]


def test_s4_an_answer_that_is_not_whole_is_none(serve, chat, agent, configure):
    """The client sees the tokens of each bad answer, no effect is stored, and the next message is answered."""

    def words(bad):
        return lambda question: ["fine"] if question["text"] == "good" else bad

    programs = {
        "exit": ("sys.exit(3)", "exit code 3"),
        "killed": ("os.kill(os.getpid(), 9)", "signal 9"),
        "error": ("say(error='no more')", "no more"),
        "garbage": ("print('}')", "neither a token nor"),
        "hangs": ("time.sleep(60)", "did not end in time"),
        # its output has ended, the process has not: the daemon does not wait for ever
        "lingers": ("os.close(1); time.sleep(60)", "did not end in time"),
        "long": ("say(token='x' * 300_000)", "256 KiB"),
        "endless": ("[say(token='x' * 200_000) for _ in range(6)]", "1 MiB"),
        "number": ("say(token=7)", "no text"),
    }
    agents = {
        name: ({"type": "exec", "command": program(text), "timeout": "2s" if "in time" in why else "60s"}, why)
        for name, (text, why) in programs.items()
    }
    agents |= {
        "undone": ({"type": "http", "url": agent(words(["half ", None]), style="openai").url}, "without [DONE]"),
        "overloaded": (
            {"type": "http", "url": agent(words(["half ", {"error": {"message": "overloaded"}}]), style="openai").url},
            "the agent says: overloaded",
        ),
        "cut": (
            {"type": "http", "url": agent(words(["half ", None]), style="chunked").url},
            "no answer from the agent",
        ),
        "stuck": ({"type": "http", "url": agent(words(["half ", 60])).url, "timeout": "1s"}, "did not end in time"),
        "refuses": ({"type": "http", "url": agent(words(503)).url}, "HTTP 503"),
        "absent": ({"type": "exec", "command": ["/nowhere/at/all"]}, "cannot start"),
        "unplugged": ({"type": "http", "url": "http://127.0.0.1:9/"}, "no answer from the agent"),
    }
    configure(**{name: {**settings, "tries": 1} for name, (settings, _) in agents.items()})
    server = serve()
    sockets = {name: chat(server, f"u:{name}:t") for name in agents}
    for one in sockets.values():
        one.say("r-1", "bad")
        one.say("r-2", "good")
    for name, one in sockets.items():
        failed = one.next("error")
        assert (failed["code"], failed["requestId"]) == ("agent_failed", "r-1") and agents[name][1] in failed[
            "detail"
        ], name
        if name in ("refuses", "absent", "unplugged"):
            assert not [frame for frame in one.frames if frame["type"] == "token"]
            if name != "refuses":
                continue
        else:
            assert [frame["text"] for frame in one.frames if frame["type"] == "token"][0] == "half "
        assert one.next("send_message")["content"] == "fine", name
        assert [
            effect["checkpoint_id"] for effect in effects(server, f"u:{name}:t") if effect["status"] != "FAILED"
        ] == [f"u:{name}:t#2"]


def test_a_program_that_lingers_does_not_keep_the_daemon(serve, chat, configure):
    configure(helper={"type": "exec", "command": program("os.close(1); time.sleep(600)"), "timeout": "600s"})
    server = serve()
    one = chat(server, KEY)
    one.say("r-1", "bad")
    one.next("token")
    assert server.stop() == 0


def test_s4_an_agent_is_asked_again_before_it_has_failed(serve, chat, agent, configure):
    """Two failures, then an answer; every try gets the same checkpoint and message."""
    answers = iter([500, ["half ", None], ["whole"]])
    listener = agent(lambda _: next(answers), style="chunked")
    configure(helper={"type": "http", "url": listener.url, "tries": 3})
    server = serve()
    one = chat(server, KEY)
    one.say("r-1", "hello")
    assert one.next("send_message", "error")["content"] == "whole"
    assert len(listener.questions) == 3 and listener.questions[0] == listener.questions[1] == listener.questions[2]
    assert [effect["effect_spec"]["content"] for effect in effects(server)] == ["whole"]
    assert (session(server)["tries"], session(server)["done_seq"]) == (0, 1)


def test_s4_the_pause_between_many_tries_stays_a_pause(serve, chat, agent, configure, store):
    """The delay before try 40 of 100 is about a minute: it neither vanishes nor overflows."""
    release = threading.Event()
    listener = agent(lambda _: release.wait(60) and 500)
    configure(helper={"type": "http", "url": listener.url, "tries": 100})
    server = serve()
    one = chat(server, KEY)
    with Outbox(store) as db:
        one.say("r-1", "hello")
        wait_for(lambda: listener.questions, "the first try")
        release.set()
        wait_for(lambda: session(server)["tries"] >= 1, "it to fail")
        db.run("update {}sessions set tries = 40")
        wait_for(lambda: session(server)["tries"] == 41, "the next to fail")
        at = db.run("select retry_at from {}sessions")[0]["retry_at"]
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    assert 20 < (at - datetime.now(timezone.utc)).total_seconds() < 70


def test_s4_everybody_goes_while_the_answer_comes(serve, chat, agent, configure):
    """The client leaves before the end: the answer is stored once, and delivered after a reconnect."""
    release = threading.Event()

    def words(_):
        yield "the first half, "
        release.wait(60)
        yield "the second"

    configure(helper={"type": "http", "url": agent(words).url})
    server = serve()
    sockets = [chat(server, KEY) for _ in range(3)]
    sockets[0].say("r-1", "hello")
    for one in sockets:
        assert one.next("token")["text"] == "the first half, "
    for one in sockets:
        one.close()
    assert effects(server) == []
    release.set()
    (effect,) = wait_for(lambda: effects(server), "the answer")
    assert (effect["status"], effect["attempts"], effect["last_attempt_at"]) == ("PENDING", 0, None)
    back = chat(server, KEY)
    assert back.next()["content"] == "the first half, the second"  # and nothing before it
    back.ack(effect["effect_id"])
    wait_for(lambda: effects(server)[0]["status"] == "COMPLETED", "the ack")


def test_s3_an_answer_longer_than_the_lease_is_asked_for_once(serve, chat, agent, configure):
    """Two daemons: the owner renews its lease of the session while the other one receives more messages."""
    listener = agent(lambda _: ["a", 5, "b"])  # the lease is 3 s
    configure(helper={"type": "http", "url": listener.url})
    servers = [serve(), serve()]
    one, other = chat(servers[0], KEY), chat(servers[1], KEY)
    one.say("r-1", "hello")
    one.next("token")
    other.say("r-2", "and")
    other.next("accepted")
    assert one.next("send_message")["content"] == "ab"
    wait_for(lambda: len(effects(servers[1])) == 2, "the other answer")
    assert [question["requestId"] for question in listener.questions] == ["r-1", "r-2"] and listener.most_busy == 1


def test_s3_a_daemon_that_lost_its_session_cannot_answer_any_more(serve, chat, agent, configure):
    """One daemon stops during an agent's answer, another takes the session over, then the first one continues."""
    release, asked = threading.Event(), []

    def words(question):
        asked.append(question)
        if len(asked) == 1:
            yield "first "
            release.wait(60)
            yield "answer"
        else:
            yield "second answer"

    listener = agent(words)
    configure(helper={"type": "http", "url": listener.url})
    stands = serve()
    one = chat(stands, KEY)
    one.say("r-1", "hello")
    one.next("token")
    os.kill(stands.process.pid, signal.SIGSTOP)
    wait_frozen(stands.process.pid)
    try:
        runs = serve()
        assert chat(runs, KEY).next("send_message")["content"] == "second answer"
        release.set()
        wait_for(lambda: not any(listener.busy.values()), "the first answer to be said")
    finally:
        os.kill(stands.process.pid, signal.SIGCONT)
    assert one.next("send_message")["content"] == "second answer"
    one.say("r-2", "again")
    wait_for(lambda: len(effects(runs)) == 2, "the next answer")
    assert [(effect["checkpoint_id"], effect["effect_spec"]["content"]) for effect in effects(runs)] == [
        (f"{KEY}#1", "second answer"),
        (f"{KEY}#2", "second answer"),
    ]
    requested = runs.get("/v1/events?event_type=EFFECT_REQUESTED").json["events"]
    assert len(requested) == 2


def test_s3_sessions_take_turns(serve, chat, agent, configure):
    """With one agent at a time, a session with one message does not wait for a session with many."""
    release = threading.Event()
    listener = agent(lambda _: release.wait(60) and ["x"])
    configure(serve={"answers": 1}, helper={"type": "http", "url": listener.url})
    server = serve()
    much, little = chat(server, "u-1:helper:t"), chat(server, "u-2:helper:t")
    for n in range(20):
        much.say(f"r-{n}", "x")
    for _ in range(20):
        much.next("accepted")
    little.say("r", "x")
    little.next("accepted")
    release.set()
    little.next("send_message")
    assert [one["session_key"] for one in listener.questions].index("u-2:helper:t") <= 2
    wait_for(lambda: len(effects(server, "u-1:helper:t")) == 20, "the others")
    assert [one["seq"] for one in listener.questions if one["session_key"] == "u-1:helper:t"] == list(range(1, 21))


def test_s5_a_daemon_that_stood_still_for_long_tells_what_others_stored_meanwhile(
    serve, chat, agent, configure, outlog
):
    """Longer than a poll looks back: an answer, a failure and a notice still reach sockets that stayed open."""
    configure(
        helper={
            "type": "http",
            "url": agent(lambda question: 500 if question["text"] == "bad" else ["fine"]).url,
            "tries": 1,
        }
    )
    outlog.run(
        "apply",
        "-f",
        "-",
        input=json.dumps(
            {
                "notifications": {
                    "rules": [{"on": "x.y", "recipients": {"path": "/who"}, "channels": ["in_app"], "template": "t"}],
                    "templates": {"t": {"subject": "{{n}}", "text": "x"}},
                }
            }
        ),
    )
    runs, stands = serve(), serve("--no-relay")
    keys = [f"u-{n}:helper:t" for n in range(2)]
    here, there = [chat(runs, key) for key in keys], [chat(stands, key) for key in keys]
    feed = WebSocket(f"http://127.0.0.1:{stands.port}", "/v1/users/u/socket?org_id=default")

    def notify(number):
        runs.post(
            "/v1/events",
            {
                "org_id": "default",
                "events": [
                    {
                        "aggregate_type": "x",
                        "aggregate_id": str(number),
                        "event_type": "x.y",
                        "payload": {"who": "u", "n": number},
                    }
                ],
            },
        )

    notify(0)
    assert feed.receive()["subject"] == "0"
    for one in here:
        one.say("r-0", "bad")
    for one in (*here, *there):  # each has polled, and nothing is in flight any more
        one.next("error")
    os.kill(stands.process.pid, signal.SIGSTOP)
    wait_frozen(stands.process.pid)
    try:
        for one, text in zip(here, ("good", "bad")):
            one.say("r-1", text)
            one.next("send_message", "error")
        notify(1)
        wait_for(lambda: len(runs.get("/v1/users/u/notifications").json["notifications"]) == 2, "the notice")
        time.sleep(12)  # only time can pass here: longer than a poll looks back
    finally:
        os.kill(stands.process.pid, signal.SIGCONT)
    assert there[0].next("send_message")["requestId"] == "r-1"
    assert there[1].next("error")["requestId"] == "r-1"
    assert feed.receive()["subject"] == "1"
    notify(2)
    assert feed.receive()["subject"] == "2", "and nothing came twice before it"
    feed.socket.close()
