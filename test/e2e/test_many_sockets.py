"""S-2 … S-5 under failures: clients whose connections break, a daemon and a PostgreSQL that are killed.

Every accepted message has exactly one answer, each client received each answer at least once and in order, and an
acknowledgement that was stored stays. When nothing is killed any more, each ack that is sent once is stored. The short form
runs with every `make test`, `make torture` has 1,000 sockets.
"""
import json
import os
import random
import resource
import secrets
import time

import pytest

from lib.cli import Outlog
from lib.many_sockets import ManySockets
from lib.outbox import Outbox, wait_for
from lib.postgres import Postgres
from lib.server import Server

pytestmark = pytest.mark.torture

IS_LONG = "OUTLOG_TORTURE_ROWS" in os.environ
CLIENTS = int(os.environ.get("OUTLOG_TORTURE_SOCKETS") or (1000 if IS_LONG else 100))
MESSAGES = 5 if IS_LONG else 3
KILLS = 8 if IS_LONG else 2
SECONDS = 60 + CLIENTS * MESSAGES / 10  # far more than it takes; a machine may be busy
SEED = int(os.environ.get("OUTLOG_TORTURE_SEED") or secrets.randbits(32))


def completed(url):
    with Outbox(url) as store:
        return [
            str(row["effect_id"]) for row in store.run("select effect_id from {}effects where status = 'COMPLETED'")
        ]


def kill_repeatedly(clients, server, database, url):
    """Kill the daemon, or the database below it, again and again while clients send."""
    chance = random.Random(SEED)
    for number in range(KILLS):
        clients.wait_until_answered(chance.uniform(0.4, 1.5) * (3 if IS_LONG else 1))
        clients.note_completed(completed(url))
        if database and number % 2:
            database.restart("immediate")
        else:
            server.kill()
            server.start(server.port)
    clients.stop_cuts()


def check_store(clients, url):
    with Outbox(url) as store:
        messages = store.run(
            "select aggregate_id, aggregate_seq, payload from {}events where aggregate_type = 'session'"
            " order by event_id"
        )
        effects = store.run(
            "select effect_id, session_key, checkpoint_id, effect_spec, status, attempts from {}effects"
        )
        requested = store.run("select aggregate_id from {}events where event_type = 'EFFECT_REQUESTED'")
        acks = store.run("select aggregate_id from {}events where event_type = 'EFFECT_COMPLETED'")
    assert len(messages) == len(clients.clients) * clients.messages, "a message is missing, or stored twice"
    assert len(effects) == len(messages) == len({one["checkpoint_id"] for one in effects}), "not one answer per message"
    assert sorted(str(one["aggregate_id"]) for one in requested) == sorted(str(one["effect_id"]) for one in effects)
    assert sorted(str(one["aggregate_id"]) for one in acks) == sorted(str(one["effect_id"]) for one in effects)
    assert {one["status"] for one in effects} == {"COMPLETED"}, "an ack was lost"
    stored = {str(one["effect_id"]): one for one in effects}
    numbers = {(one["aggregate_id"], read(one["payload"])["requestId"]): one["aggregate_seq"] for one in messages}
    for client in clients.clients:
        for request_id, seq in client.accepted.items():
            assert numbers[client.key, request_id] == seq, "accepted under another number than stored"
        order = [numbers[client.key, request_id] for _, request_id in client.answers]
        assert order == list(range(1, clients.messages + 1)), f"{client.key} received {order}"
        for effect_id, content in client.contents.items():
            effect = stored[effect_id]
            spec = read(effect["effect_spec"])
            assert (effect["session_key"], spec["content"]) == (client.key, content)
            number = spec["requestId"].removeprefix("r-")
            assert content.startswith(f"you said {client.number}/{number}, answer ")


def read(value):
    return json.loads(value) if isinstance(value, (str, bytes)) else value


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_s5_every_accepted_message_is_answered_once_and_every_answer_is_seen(kind, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4 * CLIENTS + 200)), hard))
    if kind == "sqlite":
        run(f"sqlite:{tmp_path}/outlog.db", None, tmp_path)
    else:
        with Postgres() as database:
            run(database.create("many_sockets"), database, tmp_path)


def await_all(clients, url):
    answered = clients.wait_until_answered(SECONDS)
    assert answered == CLIENTS, f"OUTLOG_TORTURE_SEED={SEED}: {CLIENTS - answered} never received all their answers"
    wait_for(lambda: len(completed(url)) == CLIENTS * clients.messages, "every answer to be acknowledged", 60)


def run(url, database, folder):
    outlog = Outlog(url, cwd=folder)
    outlog.run("init")
    clients = ManySockets(lambda: server.port, CLIENTS, MESSAGES, SEED)
    (folder / "outlog.json").write_text(
        json.dumps(
            {"agents": {"helper": {"type": "http", "url": clients.open_agent(), "tries": 1}}, "relay": {"lease": "1s"}}
        )
    )
    outlog.run("apply", "-f", folder / "outlog.json")
    server = Server(outlog, folder / "serve.log", [])
    try:
        began = time.monotonic()
        clients.start()
        kill_repeatedly(clients, server, database, url)
        await_all(clients, url)
        clients.note_completed(completed(url))
        assert server.stop() == 0
        clients.add_message()
        server.start(server.port)
        await_all(clients, url)
        print(
            f"{CLIENTS} sockets, {clients.frames} frames, {sum(c.cuts for c in clients.clients)} cuts, "
            f"{sum(c.repeats for c in clients.clients)} repeats, {sum(c.errors for c in clients.clients)} errors, "
            f"{clients.asked} runs of the agent, {time.monotonic() - began:.1f} s"
        )
        assert sum(client.cuts for client in clients.clients) > 0
        assert clients.violations == [], f"OUTLOG_TORTURE_SEED={SEED}"
        assert server.stop() == 0
    finally:
        clients.stop()
        if server.process.poll() is None:
            server.kill()
    check_store(clients, url)
