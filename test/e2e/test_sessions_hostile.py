"""Hostile and broken clients of session sockets (S-1, S-5, X1): other clients are not affected."""
import contextlib
import hashlib
import itertools
import json
import socket
import struct
import threading
import uuid
from datetime import datetime, timedelta, timezone

import pytest
import websocket

from lib.outbox import Outbox, wait_for
from lib.websocket import WebSocket

pytestmark = pytest.mark.usefixtures("store")
KEY = "u-1:helper:t-1"
TEXT, BINARY, CLOSE, PING, PONG = 1, 2, 8, 9, 10


@pytest.fixture
def live(serve, agent, configure):
    configure(helper={"type": "http", "url": agent().url, "tries": 1})
    return serve()


class Wire:
    """A socket that sends any bytes, and sees every frame."""

    def __init__(self, server, path=f"/v1/sessions/{KEY}/socket", early=b"", timeout=60):
        self.frames = WebSocket(f"http://127.0.0.1:{server.port}", path, timeout=timeout, early=early)
        self.send = self.frames.socket.sendall

    def next(self):
        """(opcode, body), or None when the connection is over."""
        try:
            kind, size = self.frames._take(2)
            if size >= 126:
                (size,) = struct.unpack("!H" if size == 126 else "!Q", self.frames._take(2 if size == 126 else 8))
            return kind & 15, self.frames._take(size)
        except (AssertionError, ConnectionError):
            return None

    def json(self):
        kind, body = self.next()
        assert kind == TEXT
        return json.loads(body)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with contextlib.suppress(OSError):
            self.frames.socket.shutdown(socket.SHUT_RDWR)  # also for a thread that is writing
        self.frames.socket.close()


def frame(kind, body, *, fin=True, masked=True, reserved=0, size=None):
    """The bytes of a frame, valid or not; its mask is zero."""
    size = len(body) if size is None else size
    head = bytes([(0x80 if fin else 0) | reserved << 4 | kind])
    mark = 0x80 if masked else 0
    if size < 126:
        head += bytes([mark | size])
    elif size < 65536:
        head += bytes([mark | 126]) + struct.pack("!H", size)
    else:
        head += bytes([mark | 127]) + struct.pack("!Q", size)
    return head + (bytes(4) if masked else b"") + body


def words(request_id, text):
    return json.dumps({"type": "user_message", "requestId": request_id, "text": text}).encode()


def answers(server, chat, key=KEY, request_id="still"):
    """The server works: a client's message is accepted and answered."""
    one = chat(server, key)
    one.say(request_id, "there?")
    assert one.next("accepted")
    while one.next("send_message")["requestId"] != request_id:
        pass


# frames


def test_a_frame_that_comes_with_the_handshake_is_answered_like_any_other(live, chat):
    """The frame arrives together with the upgrade request."""
    for body, code in (
        (b"{", "invalid_json"),
        (b'{"type":"ack","effect_id":7}', "invalid_field"),
        (b'{"type":"user_message"}', "invalid_field"),
    ):
        with Wire(live, early=frame(TEXT, body)) as wire:
            assert wire.json()["code"] == code
        with Wire(live, "/v1/users/u/socket", early=frame(TEXT, body)) as wire:
            assert wire.json()["type"] == "error"
    with Wire(live, early=frame(TEXT, words("early", "x"))) as wire:
        assert wire.json() == {"type": "accepted", "requestId": "early", "seq": 1}
    with Wire(live, early=frame(TEXT, b"{") * 30) as wire:
        while wire.next():
            pass  # one error each
    answers(live, chat)


def test_a_message_in_pieces_is_one_and_a_ping_between_them_is_answered(live):
    body = words("r-1", "ünd")
    cut = body.index(b"\\") if b"\\" in body else 40
    with Wire(live) as wire:
        wire.send(
            frame(TEXT, body[:5], fin=False)
            + frame(0, body[5:cut], fin=False)
            + frame(PING, b"hi")
            + frame(0, body[cut:])
        )
        assert wire.next() == (PONG, b"hi")
        assert wire.json() == {"type": "accepted", "requestId": "r-1", "seq": 1}


AGAINST = [
    ("unmasked", frame(TEXT, b"{}", masked=False), 1002),
    ("a reserved bit", frame(TEXT, b"{}", reserved=4), 1002),
    ("an unknown opcode", frame(3, b"{}"), 1002),
    ("a rest without a beginning", frame(0, b"{}"), 1002),
    ("a beginning within a message", frame(TEXT, b"{", fin=False) + frame(TEXT, b"}"), 1002),
    ("binary", frame(BINARY, b"\0\1"), 1003),
    ("no UTF-8", frame(TEXT, b'{"type":"\xff"}'), 1007),
    ("no UTF-8 over two frames", frame(TEXT, b'{"type":"\xc3', fin=False) + frame(0, b'"}'), 1007),
    ("a ping over 125 bytes", frame(PING, b"x" * 126), None),
    ("a ping in pieces", frame(PING, b"x", fin=False), None),
    ("a length with its highest bit", b"\x81\xff" + b"\xff" * 8 + bytes(4), None),
    ("a length of 2^62", frame(TEXT, b"x", size=1 << 62), 1009),
    ("over 64 KiB", frame(TEXT, b"x" * 65537), 1009),
    ("over 64 KiB in pieces", frame(TEXT, b"x" * 1000, fin=False) + frame(0, b"x" * 1000, fin=False) * 65, 1009),
    ("a close of one byte", frame(CLOSE, b"x"), None),
    ("a close with a code that is none", frame(CLOSE, struct.pack("!H", 1005)), 1002),
    ("a close that is no UTF-8", frame(CLOSE, struct.pack("!H", 1000) + b"\xff"), 1007),
    ("goodbye", frame(CLOSE, struct.pack("!H", 1000)), 1000),
]


def test_a_frame_against_the_protocol_ends_its_socket_alone(live, chat):
    for (name, sent, code), path in itertools.product(AGAINST, (f"/v1/sessions/{KEY}/socket", "/v1/users/u/socket")):
        with Wire(live, path) as wire:
            wire.send(sent)
            kind, body = wire.next()
            assert kind == CLOSE and (code is None or struct.unpack("!H", body[:2])[0] == code), (name, body)
            assert wire.next() is None
    answers(live, chat)


def test_whoever_goes_in_the_middle_of_a_frame_or_a_handshake_is_forgotten(live, chat):
    whole = frame(TEXT, words("never", "x"))
    for end in (1, 2, 5, len(whole) - 1):
        with Wire(live) as wire:
            wire.send(whole[:end])
    for _ in range(20):
        link = socket.create_connection(("127.0.0.1", live.port))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # ends with a reset
        link.sendall(
            f"GET /v1/sessions/{KEY}/socket HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: "
            "Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        link.close()
    answers(live, chat)
    assert [event["payload"]["requestId"] for event in live.get(f"/v1/sessions/{KEY}/events").json["events"]] == [
        "still"
    ]


# floods


def test_r3_pings_whose_answers_nobody_reads_cost_no_memory(live, chat):
    """100 MB of pings: the server reads no faster than the client reads the pongs, and this one never does."""
    pings, sent = frame(PING, b"x" * 125) * 1000, []

    def flood():
        with contextlib.suppress(OSError):
            for _ in range(760):
                wire.send(pings)
                sent.append(len(pings))

    with Wire(live) as wire:
        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        before = -1
        while before < len(sent):  # until the sender is stuck, or done
            before = len(sent)
            thread.join(1)
        assert thread.is_alive() and sum(sent) < 50e6, "all that is taken has an answer that waits"
        answers(live, chat, "u-2:helper:t")
        for _ in range(1000):  # once the client reads, the server continues
            assert wire.next() == (PONG, b"x" * 125)
        assert thread.is_alive()
    thread.join(10)


def test_one_socket_cannot_take_the_whole_queue_of_the_store(live, store):
    """While the store is blocked the socket is not read: none of its frames is refused, nor those of others."""
    count, key = 6_000, "u-1:nobody:t"
    with Outbox(store) as session, Wire(live, f"/v1/sessions/{key}/socket") as wire:
        session.run("begin immediate" if store.startswith("sqlite") else "begin")
        if not store.startswith("sqlite"):
            session.run("lock table outlog.events in access exclusive mode")
        thread = threading.Thread(
            target=wire.send, daemon=True, args=(b"".join(frame(TEXT, words(f"r-{n}", "x")) for n in range(count)),)
        )
        thread.start()
        thread.join(1)
        session.run("rollback")
        came = []
        while len(came) < count:
            said = wire.json()
            if said["type"] == "accepted":
                came.append(said["seq"])
            else:
                assert said["code"] == "agent_failed", said
        thread.join()
    assert came == list(range(1, count + 1))
    assert wait_for(lambda: live.get("/healthz").status == 200, "the server")


# acknowledgements, repeats


def effects(server, key=KEY):
    return server.get(f"/v1/sessions/{key}/effects?limit=1000").json["effects"]


def completed(server):
    return [
        event["aggregate_id"]
        for event in server.get("/v1/events?event_type=EFFECT_COMPLETED&limit=1000").json["events"]
    ]


def at_once(*jobs):
    """Run the jobs in threads that start together."""
    gate, wrong = threading.Barrier(len(jobs)), []

    def run(job):
        gate.wait()
        try:
            job()
        except BaseException as error:  # reported by the test instead of a dead thread
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong


def test_s5_an_effect_ends_once_however_many_acknowledge_it_at_once(serve, chat, agent, configure):
    """Twelve sockets on two daemons, and each says it twice."""
    configure(helper={"type": "http", "url": agent().url})
    servers = [serve(), serve()]
    sockets = [chat(servers[n % 2], KEY) for n in range(12)]
    for round in range(8):
        sockets[0].say(f"r-{round}", "x")
        effect_id = None
        for one in sockets:
            while (sent := one.next("send_message"))["requestId"] != f"r-{round}":
                pass
            effect_id = sent["effect_id"]
        at_once(*(lambda one=one: (one.ack(effect_id), one.ack(effect_id)) for one in sockets))
        wait_for(lambda: [one["status"] for one in effects(servers[0])] == ["COMPLETED"] * (round + 1), "the ack")
    for one in sockets:  # frames are processed in order: after this answer the earlier ones are done
        one.say("last", "x")
        one.next("accepted")
    wait_for(lambda: len(effects(servers[0])) == 9, "the last answer")
    ended = completed(servers[0])
    assert len(ended) == len(set(ended)) == 8


def test_s5_only_the_sessions_own_effects_can_be_acknowledged(live, chat):
    mine, other = chat(live, KEY), chat(live, "u-2:helper:t-1")
    elsewhere = chat(live, KEY, "?org_id=other")
    mine.say("r-1", "x")
    effect_id = mine.next("send_message")["effect_id"]
    for stranger in (other, elsewhere):
        stranger.ack(effect_id)
        stranger.ack("0190b5a0-0000-7000-8000-000000000000")  # before it exists
        stranger.say("r-1", "x")
        own = stranger.next("send_message")["effect_id"]  # frames are processed in order: the acks are done
        stranger.ack(own)
        wait_for(lambda: own in completed(live), "its own")
    assert [one["status"] in ("PENDING", "EXECUTING") for one in effects(live)] == [True]
    assert chat(live, KEY).next()["effect_id"] == effect_id
    mine.ack(effect_id.upper())
    wait_for(lambda: effects(live)[0]["status"] == "COMPLETED", "the ack")


def test_an_ack_that_names_no_effect_is_a_bad_frame(live, chat):
    one = chat(live, KEY)
    for wrong in ("nonsense", "", "0190b5a0-0000-7000-8000-00000000000", "x" * 3000):
        one.ack(wrong)
        assert one.next()["code"] == "invalid_field"


def test_s2_one_request_said_on_many_sockets_at_once_is_one_event(serve, chat, agent, configure):
    listener = agent()
    configure(helper={"type": "http", "url": listener.url})
    servers = [serve(), serve()]
    sockets = [chat(servers[n % 2], KEY) for n in range(8)]
    for round in range(5):
        at_once(*(lambda one=one, n=n: one.say(f"r-{round}", f"words of {n}") for n, one in enumerate(sockets)))
        assert {one.next("accepted")["seq"] for one in sockets} == {round + 1}
    wait_for(lambda: len(effects(servers[0])) == 5, "five answers")
    assert len(servers[0].get(f"/v1/sessions/{KEY}/events").json["events"]) == len(listener.questions) == 5


# keys, orgs


def test_s1_a_key_that_is_taken_can_be_spoken_under(live, chat):
    """The longest keys: a user id longer than an actor id may be, and 255 bytes in all."""
    for key in (
        "u" * 128 + ":helper:t",
        "u" * 119 + ":helper:" + "t" * 128,
        "..:helper:~@-_.",
        "U:helper:" + "t" * 128,
    ):
        answers(live, chat, key)
        (said,) = live.get(f"/v1/sessions/{key}/events").json["events"]
        user = key.split(":")[0]
        assert said["actor_id"] == (user if len(user) <= 100 else f"sha256:{hashlib.sha256(user.encode()).hexdigest()}")
    for key in ("u" * 120 + ":helper:" + "t" * 128, ":".join(["x" * 128] * 3)):
        assert live.get(f"/v1/sessions/{key}/socket").code == "bad_session_key"
        assert live.get(f"/v1/sessions/{key}/effects").code == "bad_session_key"


@pytest.mark.parametrize("org", ["", "o" * 101, "%C3%A4" * 51])
def test_a_socket_of_an_org_that_cannot_be_is_not_opened(live, org):
    for path in (
        f"/v1/sessions/{KEY}/socket",
        f"/v1/sessions/{KEY}/events",
        "/v1/users/u/socket",
        "/v1/users/u/notifications",
    ):
        answer = live.get(
            f"{path}?org_id={org}",
            headers={
                "upgrade": "websocket",
                "connection": "upgrade",
                "sec-websocket-version": "13",
                "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA==",
            }
            if path.endswith("socket")
            else {},
        )
        assert (answer.status, answer.code) == (400, "invalid_field")
    assert live.post(f"/v1/sessions/{KEY}/ticket?org_id={org}").code == "invalid_field"


def test_s1_what_another_interface_says_under_a_bad_key_is_passed_over(live, outlog, chat):
    keys = ("nocolon", "a:b", "x:", "::", "a:b:c:d", "ä:helper:t", "u:helper:t t", "u:helper:" + "t" * 129)
    for key in keys:
        outlog.run(
            "append",
            "--org",
            "default",
            "--aggregate",
            f"session/{key}",
            "--type",
            "user_message",
            "--data",
            '{"text":"x","requestId":"r"}',
        )
    outlog.run(
        "append", "--org", "default", "--aggregate", f"session/{KEY}", "--type", "user_message", "--data", '{"n":1}'
    )
    outlog.run(
        "append",
        "--org",
        "default",
        "--aggregate",
        f"session/{KEY}",
        "--type",
        "user_message",
        "--data",
        '{"text":"without a request"}',
    )
    frame = chat(live, KEY).next("send_message")
    assert (frame["content"], frame["requestId"]) == ("you said without a request", None)
    wait_for(
        lambda: all(one["done_seq"] == one["last_seq"] for one in live.get("/v1/sessions").json["sessions"]),
        "all of it",
    )
    errors = {one["session_key"]: one["last_error"] for one in live.get("/v1/sessions").json["sessions"]}
    assert errors == {KEY: None, **{key: "the key is not userId:agentId:threadId" for key in keys}}


# large amounts


def owe(store, server, key, count, size=1):
    """Insert `count` effects into a session, in order. They are an hour old, so that no poll for new ones finds them,
    and their times go backwards."""
    since = datetime.now(timezone.utc) - timedelta(hours=1)
    ids = [str(uuid.uuid4()) for _ in range(count)]
    causes = [event for first in range(0, count, 100) for event in server.append("default", min(100, count - first))]
    with Outbox(store) as session:
        session.run("begin")
        for number, (effect_id, cause) in enumerate(zip(ids, causes)):
            at = f"{since - timedelta(microseconds=number // 7):%Y-%m-%dT%H:%M:%S.%fZ}"  # some are equal
            session.run(
                "insert into {}effects (effect_id, org_id, session_key, effect_type, effect_spec, destination, "
                "idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at) values "
                "(%s, 'default', %s, 'update_ui', %s, 'session', %s, %s, %s, %s, 'c', %s, %s)",
                effect_id,
                key,
                json.dumps({"n": number, "x": "y" * size}),
                effect_id,
                effect_id,
                cause["event_id"],
                cause["id"],
                at,
                at,
            )
        session.run("commit")
    return ids


@pytest.mark.parametrize("count, acks", [(450, False), (2100, True)])
def test_s5_who_was_away_for_long_gets_all_of_it_at_once_in_order(live, store, chat, count, acks):
    """More effects than one load, for a client that does not acknowledge; more than may be in flight, for one that
    does. A second socket joins in the middle."""
    owe(store, live, KEY, count)
    one, other, seen = chat(live, KEY, timeout=8), None, {}  # repeats come after ten seconds
    while len(seen) < count:
        sent = one.next()
        if acks:
            one.ack(sent["effect_id"])
        elif not other:
            other = chat(live, KEY, timeout=8)
        seen.setdefault(sent["n"])  # on a busy machine some may be repeated
    assert list(seen) == list(range(count))
    assert acks or [other.next()["n"] for _ in range(count)] == list(seen)


def test_s5_a_hundred_sockets_of_one_session_each_get_everything_and_it_counts_as_one_attempt(live, store, chat):
    ids = owe(store, live, KEY, 20)
    sockets = [chat(live, KEY) for _ in range(100)]
    for one in sockets:
        seen = []
        while len(seen) < len(ids):
            effect_id = one.next("update_ui")["effect_id"]
            seen += [effect_id] if effect_id not in seen else []
        assert seen == ids
    sockets[0].say("r-1", "to all of you")
    (effect_id,) = {one.next("send_message")["effect_id"] for one in sockets}
    wait_for(lambda: effects(live)[-1]["attempts"], "the attempt to be noted")
    assert (effects(live)[-1]["effect_id"], effects(live)[-1]["attempts"]) == (effect_id, 1)


def test_s5_every_ack_counts_though_it_is_said_once(live, store, chat):
    """More acks at once than are processed at a time. A client that also acknowledges repeats would hide a dropped ack;
    this one does not, so a dropped one would stay pending for ever."""
    ids = owe(store, live, KEY, 600)
    sockets = [chat(live, KEY) for _ in range(2)]
    for one in sockets:
        seen = set()
        while len(seen) < len(ids):
            seen.add(one.next("update_ui")["effect_id"])
    for number, effect_id in enumerate(ids):
        sockets[number < 40].ack(effect_id)  # most of them on one socket
    with Outbox(store) as db:
        wait_for(
            lambda: db.run("select count(*) as n from {}effects where status = 'COMPLETED'")[0]["n"] == len(ids),
            "every ack to be stored",
        )
        ended = db.run("select aggregate_id from {}events where event_type = 'EFFECT_COMPLETED'")
    assert sorted(str(row["aggregate_id"]) for row in ended) == sorted(ids)
    sockets.append(chat(live, KEY))
    sockets[0].say("r-1", "and now?")
    sockets[0].next("accepted")  # everything after this was sent after the acks
    for one in sockets[::2]:
        assert one.next("update_ui", "send_message")["type"] == "send_message", "sent again after the ack"


# tickets


def test_x1_a_ticket_opens_one_socket_however_many_try_at_once(serve, chat, agent, configure, outlog):
    """On two daemons. A ticket ends within a minute, is for one session and org, and is not a token."""
    configure(helper={"type": "http", "url": agent().url})
    servers = [serve(dev=False), serve(dev=False)]
    token = outlog.run("token", "create", "--scope", "append", "--org", "acme", "--json").json()[0]["token"]
    for _ in range(5):
        made = servers[0].post(f"/v1/sessions/{KEY}/ticket", token=token).json
        left = datetime.fromisoformat(made["expires_at"]) - datetime.now(timezone.utc)
        assert timedelta(seconds=1) < left <= timedelta(seconds=60)
        assert (
            servers[0]
            .post(
                "/v1/events",
                {
                    "org_id": "acme",
                    "events": [{"aggregate_type": "a", "aggregate_id": "b", "event_type": "c", "payload": {}}],
                },
                token=made["ticket"],
            )
            .status
            == 401
        )
        opened, refused = [], []

        def use(server):
            try:
                opened.append(chat(server, KEY, f"?ticket={made['ticket']}&org_id=other"))
            except websocket.WebSocketBadStatusException as error:
                refused.append(error.status_code)

        at_once(*(lambda n=n: use(servers[n % 2]) for n in range(16)))
        assert len(opened) == 1 and refused == [401] * 15
    opened[0].say("r-1", "hello")
    opened[0].next("send_message")
    reader = outlog.run("token", "create", "--scope", "admin", "--json").json()[0]["token"]
    assert [one["org_id"] for one in servers[0].get("/v1/sessions", token=reader).json["sessions"]] == ["acme"]
