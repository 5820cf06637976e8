"""S-2: a known requestId is no second event, from any client, on any daemon, however old it is."""
import json
import threading

import pytest

from lib.outbox import wait_for

pytestmark = pytest.mark.usefixtures("store")
KEY = "u-1:helper:t-1"
CACHED = 1024  # src/sessions/dedupe.h: later ones have ids made of the request
SECRET = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\n-----END RSA PRIVATE KEY-----"


@pytest.fixture
def mute(configure, agent):
    """An agent that takes a minute: the tests look at the messages only."""
    configure(helper={"type": "http", "url": agent(lambda question: [60]).url, "tries": 1})


def said(server, key=KEY):
    """(seq, requestId) of every message of the session."""
    found, after = [], 0
    while True:
        page = server.get(f"/v1/sessions/{key}/events?limit=1000&after={after}").json
        found += [(event["aggregate_seq"], event["payload"].get("requestId")) for event in page["events"]]
        if not page["events"]:
            return found
        after = page["events"][-1]["event_id"]


def accepted(one, request_id, text="x"):
    one.say(request_id, text)
    frame = one.next("accepted")
    assert frame["requestId"] == request_id
    return frame["seq"]


def append(outlog, *request_ids, key=KEY, event_type="user_message"):
    outlog.run(
        "append",
        "--ndjson",
        "-",
        input="".join(
            json.dumps(
                {
                    "org_id": "default",
                    "aggregate_type": "session",
                    "aggregate_id": key,
                    "event_type": event_type,
                    "payload": {"text": "x", **({"requestId": id} if id else {})},
                }
            )
            + "\n"
            for id in request_ids
        ),
    )


def test_s2_what_another_interface_said_is_known(serve, mute, chat, outlog):
    append(outlog, "a", None, "b", "a")
    append(outlog, "c", event_type="user_edit")
    one = chat(serve(), KEY)
    assert [accepted(one, id) for id in ("b", "a", "new", "c")] == [3, 1, 6, 7]  # an edited event is no message
    append(outlog, "d", "e")  # without the daemon
    assert [accepted(one, id) for id in ("e", "newer", "d", "new")] == [9, 10, 8, 6]


def test_s2_a_daemon_that_starts_anew_knows_what_was_said(serve, mute, chat):
    server = serve()
    one = chat(server, KEY)
    assert [accepted(one, f"r-{n}") for n in range(5)] == [1, 2, 3, 4, 5]
    server.kill()
    server = serve()
    two = chat(server, KEY)
    assert [accepted(two, id) for id in ("r-3", "r-9", "r-0", "r-9")] == [4, 6, 1, 6]
    assert len(said(server)) == 6


def test_s2_two_daemons_at_once_make_no_second_event_and_no_gap(serve, mute, chat):
    servers = [serve(), serve()]
    sockets = [chat(server, KEY, timeout=60) for server in servers for _ in range(2)]
    seqs = [{} for _ in sockets]
    count = 40

    def talk(n):
        for m in range(count):  # half are the same for everybody, half are its own
            id = f"all-{m}" if m % 2 else f"own-{n}-{m}"
            sockets[n].say(id, "x")
        while len(seqs[n]) < count:
            frame = sockets[n].next("accepted")
            seqs[n][frame["requestId"]] = frame["seq"]

    threads = [threading.Thread(target=talk, args=(n,)) for n in range(len(sockets))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    there = said(servers[0])
    assert [seq for seq, _ in there] == list(range(1, count // 2 * (len(sockets) + 1) + 1))
    assert len({id for _, id in there}) == len(there)
    for heard in seqs:
        assert heard.items() <= {id: seq for seq, id in there}.items()


def test_s2_what_is_refused_takes_no_place(serve, mute, chat):
    server = serve()
    one = chat(server, KEY)
    for id, text in (
        ("a", "x"),
        ("b", SECRET),
        ("c", "x"),
        ("d", SECRET),
        ("e", "x"),
    ):  # all sent before the first answer
        one.say(id, text)
    frames = [one.next() for _ in range(5)]
    assert {frame["requestId"]: frame.get("seq") or frame["code"] for frame in frames} == {
        "a": 1,
        "b": "secret_material",
        "c": 2,
        "d": "secret_material",
        "e": 3,
    }
    assert said(server) == [(1, "a"), (2, "c"), (3, "e")]
    assert accepted(one, "b", "in other words") == 4  # it was never stored


def test_s2_a_session_longer_than_is_known_by_heart(serve, mute, chat, outlog):
    append(outlog, *(f"r-{n}" for n in range(1, CACHED - 1)))
    server = serve()
    one = chat(server, KEY, timeout=60)
    for n in range(CACHED - 1, CACHED + 20):  # across the limit, all sent before the first answer
        one.say(f"r-{n}", "x")
    seqs = {}
    while len(seqs) < 21:
        frame = one.next("accepted")
        seqs[frame["requestId"]] = frame["seq"]
    assert seqs == {f"r-{n}": n for n in range(CACHED - 1, CACHED + 20)}
    again = (7, CACHED - 2, CACHED - 1, CACHED, CACHED + 1, CACHED + 19)
    assert [accepted(one, f"r-{n}") for n in again] == list(again)
    server.kill()
    server = serve()
    two = chat(server, KEY, timeout=60)
    assert [accepted(two, f"r-{n}") for n in again] == list(again)
    assert accepted(two, "new") == CACHED + 20
    assert said(server) == [(n, f"r-{n}") for n in range(1, CACHED + 20)] + [(CACHED + 20, "new")]


def test_s2_who_goes_before_it_is_stored_has_said_it(serve, mute, chat, outlog):
    append(outlog, *(f"r-{n}" for n in range(300)))  # takes a moment to be read
    server = serve()
    for n in range(10):
        one = chat(server, KEY)
        one.say(f"gone-{n}", "x")
        one.close()
    wait_for(lambda: len(said(server)) == 310, "what was said")
    assert sorted(id for _, id in said(server) if id.startswith("gone")) == [f"gone-{n}" for n in range(10)]
