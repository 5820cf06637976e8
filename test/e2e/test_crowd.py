"""S-2 … S-5 under fire: people whose connections break, a daemon and a PostgreSQL that are killed.

Every accepted message has exactly one answer, each client saw each answer at least once and in order, and an
acknowledgement that was stored stays. When nothing is killed any more, each that is said once is stored. The short form runs with every `make test`, `make torture` has 1,000 sockets.
"""
import json
import os
import random
import resource
import secrets
import time

import pytest

from lib.cli import Outlog
from lib.crowd import Crowd
from lib.outbox import Outbox, wait_for
from lib.postgres import Postgres
from lib.server import Server

pytestmark = pytest.mark.torture

IS_LONG = "OUTLOG_TORTURE_ROWS" in os.environ
PEOPLE = int(os.environ.get("OUTLOG_TORTURE_SOCKETS") or (1000 if IS_LONG else 100))
WORDS = 5 if IS_LONG else 3
KILLS = 8 if IS_LONG else 2
SECONDS = 60 + PEOPLE * WORDS / 10  # far more than it takes; a machine may be busy
SEED = int(os.environ.get("OUTLOG_TORTURE_SEED") or secrets.randbits(32))


def completed(url):
    with Outbox(url) as store:
        return [str(row["effect_id"]) for row in store.run(
            "select effect_id from {}effects where status = 'COMPLETED'")]


def torment(crowd, server, database, url):
    """Kill the daemon, or the database below it, again and again while people talk."""
    chance = random.Random(SEED)
    for number in range(KILLS):
        crowd.wait_until_heard(chance.uniform(0.4, 1.5) * (3 if IS_LONG else 1))
        crowd.note_completed(completed(url))
        if database and number % 2:
            database.restart("immediate")
        else:
            server.kill()
            server.start(server.port)
    crowd.calm()


def judge(crowd, url):
    with Outbox(url) as store:
        said = store.run("select aggregate_id, aggregate_seq, payload from {}events where aggregate_type = 'session'"
                         " order by event_id")
        effects = store.run("select effect_id, session_key, checkpoint_id, effect_spec, status, attempts from {}effects")
        asked = store.run("select aggregate_id from {}events where event_type = 'EFFECT_REQUESTED'")
        acks = store.run("select aggregate_id from {}events where event_type = 'EFFECT_COMPLETED'")
    assert len(said) == len(crowd.people) * crowd.words, "a message is missing, or stored twice"
    assert len(effects) == len(said) == len({one["checkpoint_id"] for one in effects}), "not one answer a message"
    assert sorted(str(one["aggregate_id"]) for one in asked) == sorted(str(one["effect_id"]) for one in effects)
    assert sorted(str(one["aggregate_id"]) for one in acks) == sorted(str(one["effect_id"]) for one in effects)
    assert {one["status"] for one in effects} == {"COMPLETED"}, "an ack was lost"
    stored = {str(one["effect_id"]): one for one in effects}
    numbers = {(one["aggregate_id"], read(one["payload"])["requestId"]): one["aggregate_seq"] for one in said}
    for person in crowd.people:
        for request_id, seq in person.accepted.items():
            assert numbers[person.key, request_id] == seq, "accepted under another number than stored"
        order = [numbers[person.key, request_id] for _, request_id in person.heard]
        assert order == list(range(1, crowd.words + 1)), f"{person.key} heard {order}"
        for effect_id, content in person.contents.items():
            effect = stored[effect_id]
            spec = read(effect["effect_spec"])
            assert (effect["session_key"], spec["content"]) == (person.key, content)
            number = spec["requestId"].removeprefix("r-")
            assert content.startswith(f"you said {person.number}/{number}, answer ")


def read(value):
    return json.loads(value) if isinstance(value, (str, bytes)) else value


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_s5_every_accepted_message_is_answered_once_and_every_answer_is_seen(kind, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * PEOPLE + 200)), hard))
    if kind == "sqlite":
        run(f"sqlite:{tmp_path}/outlog.db", None, tmp_path)
    else:
        with Postgres() as database:
            run(database.create("crowd"), database, tmp_path)


def await_all(crowd, url):
    heard = crowd.wait_until_heard(SECONDS)
    assert heard == PEOPLE, f"OUTLOG_TORTURE_SEED={SEED}: {PEOPLE - heard} never heard all their answers"
    wait_for(lambda: len(completed(url)) == PEOPLE * crowd.words, "every answer to be acknowledged", 60)


def run(url, database, folder):
    outlog = Outlog(url, cwd=folder)
    outlog.run("init")
    crowd = Crowd(lambda: server.port, PEOPLE, WORDS, SEED)
    (folder / "outlog.json").write_text(json.dumps({
        "agents": {"helper": {"type": "http", "url": crowd.open_agent(), "tries": 1}}, "relay": {"lease": "1s"}}))
    outlog.run("apply", "-f", folder / "outlog.json")
    server = Server(outlog, folder / "serve.log", [])
    try:
        began = time.monotonic()
        crowd.start()
        torment(crowd, server, database, url)
        await_all(crowd, url)
        crowd.note_completed(completed(url))
        assert server.stop() == 0
        crowd.go_on()
        server.start(server.port)
        await_all(crowd, url)
        print(f"{PEOPLE} sockets, {crowd.frames} frames, {sum(p.cuts for p in crowd.people)} cuts, "
              f"{sum(p.repeats for p in crowd.people)} repeats, {sum(p.errors for p in crowd.people)} errors, "
              f"{crowd.asked} runs of the agent, {time.monotonic() - began:.1f} s")
        assert sum(person.cuts for person in crowd.people) > 0
        assert crowd.wrongs == [], f"OUTLOG_TORTURE_SEED={SEED}"
        assert server.stop() == 0
    finally:
        crowd.stop()
        if server.process.poll() is None:
            server.kill()
    judge(crowd, url)
