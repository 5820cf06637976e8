"""The bytes of HTTP: smuggling, slow clients, sizes, pipelines, streams, and a server that is killed."""
import contextlib
import http.client
import json
import os
import pathlib
import random
import re
import resource
import select
import signal
import socket
import subprocess
import threading
import time

import pytest

from lib.cli import Outlog, build_dir
from lib.disk import failing
from lib.outbox import wait_for
from lib.proxy import Proxy
from lib.server import Server, Stream

HOST = b"Host: localhost\r\n"
EVENT = {"aggregate_type": "thing", "aggregate_id": "1", "event_type": "t", "payload": {}}
BODY = json.dumps({"org_id": "acme", "events": [EVENT]}).encode()


@pytest.fixture
def server(store, serve):
    return serve("--no-relay")


def post(*lines, body=BODY):
    """A POST /v1/events with exactly these header lines."""
    return b"POST /v1/events HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


SIZE = b"Content-Length: %d" % len(BODY)
SMUGGLED = [
    ("two lengths", post(SIZE, b"Content-Length: 5")),
    ("the same length twice", post(SIZE, SIZE)),
    ("a list of lengths", post(b"Content-Length: %d, %d" % (len(BODY), len(BODY)))),
    ("length and chunks", post(SIZE, b"Transfer-Encoding: chunked", body=b"0\r\n\r\nGET / HTTP/1.1\r\n\r\n")),
    ("chunks and length", post(b"Transfer-Encoding: chunked", SIZE, body=b"0\r\n\r\n")),
    ("another coding", post(b"Transfer-Encoding: gzip")),
    ("chunked not last", post(b"Transfer-Encoding: chunked, identity", body=b"0\r\n\r\n")),
    ("chunked twice", post(b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n")),
    ("a folded header", post(SIZE, b"X-A: 1\r\n folded")),
    ("a space before the colon", post(b"Content-Length : %d" % len(BODY))),
    ("a space in the name", post(SIZE, b"Transfer-Encoded By: chunked")),
    ("a space before the name", post(b" Content-Length: %d" % len(BODY))),
    ("bare line feeds", post(SIZE).replace(b"\r\n", b"\n", 3)),
    ("a bare carriage return", post(SIZE, b"X-A: 1\rContent-Length: 0")),
    ("a head that ends in half", post(SIZE)[: -len(BODY) - 1] + b"(" + BODY),
    ("a negative length", post(b"Content-Length: -1")),
    ("a length with a sign", post(b"Content-Length: +%d" % len(BODY))),
    ("a length in hex", post(b"Content-Length: 0x10")),
    ("a huge length", post(b"Content-Length: 99999999999999999999999")),
    ("a chunk of no size", post(b"Transfer-Encoding: chunked", body=b"x\r\nabc\r\n0\r\n\r\n")),
    ("a chunk of too large a size", post(b"Transfer-Encoding: chunked", body=b"ffffffffffffffffff\r\nabc")),
    ("a NUL in a header", post(SIZE, b"X-A: a\0b")),
    ("no host", b"GET /v1/events HTTP/1.1\r\n\r\n"),
    ("two hosts", b"GET /v1/events HTTP/1.1\r\n" + HOST + HOST + b"\r\n"),
    ("another version", b"GET /v1/events HTTP/3.0\r\n" + HOST + b"\r\n"),
    ("a very old one", b"GET /v1/events\r\n\r\n"),
    ("no method", b"/v1/events HTTP/1.1\r\n" + HOST + b"\r\n"),
    ("TLS", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)),
    ("HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("noise", bytes(range(256)) * 4),
]


def test_nothing_is_smuggled(server):
    """Each is refused, the connection ends, and what stood behind it is never read as a request."""
    behind = b"POST /v1/events HTTP/1.1\r\n" + HOST + SIZE + b"\r\n\r\n" + BODY
    for what, sent in SMUGGLED:
        answer = server.raw(sent + behind, timeout=5, end=False)
        got = statuses(answer)
        assert len(got) <= 1 and all(400 <= status < 600 for status in got), (what, answer)
        assert b"connection: close" in answer.lower() or not got, (what, answer)
    assert server.get("/v1/events").json["events"] == []
    assert server.get("/healthz").status == 200


def test_requests_in_one_packet_are_answered_in_order(server):
    one = b"GET /v1/events?limit=%d HTTP/1.1\r\n" + HOST + b"\r\n"
    answer = server.raw(
        b"".join(one % n for n in range(1, 30)) + b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HOST + b"\r\n",
        end=False,
    )
    assert statuses(answer) == [200] * 30 and answer.rstrip().endswith(b"}") and b'"version"' in answer[-200:]


def test_bodies_come_in_any_pieces(server):
    chunked = b"".join(b"%x;ext=1\r\n%c\r\n" % (1, byte) for byte in BODY) + b"0\r\nX-Trailer: 1\r\n\r\n"
    sent = post(b"Transfer-Encoding: chunked", b"Connection: close", body=chunked)
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        for i in range(0, len(sent), 7):
            link.sendall(sent[i : i + 7])
        answer = b"".join(iter(lambda: link.recv(65536), b""))
    assert statuses(answer) == [201]
    answer = server.raw(post(SIZE, b"Expect: 100-continue", b"Connection: close"), end=False)
    assert statuses(answer) == [100, 201]
    assert len(server.get("/v1/events").json["events"]) == 2


def test_sizes_are_bounded(server):
    assert statuses(server.raw(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n"))[0] in (400, 414, 431)
    assert statuses(server.raw(b"GET / HTTP/1.1\r\n" + HOST + b"X-A: " + b"a" * 100000 + b"\r\n\r\n"))[0] in (400, 431)
    assert statuses(server.raw(b"GET / HTTP/1.1\r\n" + HOST + b"X: y\r\n" * 20000 + b"\r\n"))[0] in (400, 431)
    large = server.raw(post(b"Content-Length: 17000000", body=b" " * 70000), timeout=5)
    assert statuses(large)[0] == 413
    with socket.create_connection(("127.0.0.1", server.port), 10) as link:
        link.sendall(post(b"Transfer-Encoding: chunked", body=b""))
        with pytest.raises(OSError):  # a body without end: the server hangs up
            while True:
                link.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
    answer = server.post("/v1/events", {"org_id": "acme", "events": [{**EVENT, "payload": {"x": "y" * 300000}}]})
    assert (answer.status, answer.code) == (413, "too_large")
    deep = server.post("/v1/events", "[" * 5000 + "]" * 5000)
    assert (deep.status, deep.code) == (400, "invalid_json")
    assert server.get("/healthz").status == 200


def test_slow_clients_do_not_delay_others(server):
    slow = []
    for _ in range(50):
        link = socket.create_connection(("127.0.0.1", server.port), 10)
        link.sendall(b"POST /v1/events HTTP/1.1\r\nHost: lo")
        slow.append(link)
    began = time.monotonic()
    for _ in range(5):
        assert server.get("/v1/events").status == 200
    assert time.monotonic() - began < 10, "before the first of them was given up"
    for link in slow:
        link.close()


def test_c2_a_silent_client_is_closed_and_a_silent_stream_sends_heartbeats(server):
    """A head may take 10 s and a body 30 s; meanwhile others are served. A stream sends a heartbeat every 15 s, so
    that no proxy closes it. All cases run at once, since most of the time is waiting."""

    def dial(sent):
        link = socket.create_connection(("127.0.0.1", server.port), 90)
        link.sendall(sent)
        return link

    began = time.monotonic()
    head, stream = dial(b"GET / HTTP/1.1\r\n"), dial(b"GET /v1/events/stream HTTP/1.1\r\n" + HOST + b"\r\n")
    bodies = [dial(post(SIZE, body=BODY[:-5])) for _ in range(20)]
    for _ in range(5):
        assert server.get("/v1/events").json["events"] == []
    assert statuses(head.recv(65536)) == [408] and time.monotonic() - began > 5
    seen = b""
    while not re.search(rb"\n:[^\n]*\n", seen):
        seen += stream.recv(65536) or pytest.fail("the stream ended")
    assert b"data:" not in seen and b"event:" not in seen
    for link in bodies:
        assert statuses(link.recv(65536)) == [408]
        assert link.recv(65536) == b"", "and hangs up"
    assert time.monotonic() - began > 25, "a body may take longer than a head"
    for link in (head, stream, *bodies):
        link.close()
    assert server.get("/v1/events").json["events"] == [], "nothing was stored"


def test_connections_are_limited_and_open_ones_continue(serve, store, outlog):
    """At most 4096 that showed a token; further ones are refused, and accepted when another closes. Strangers of one
    address have 256 of them, and the oldest makes room for the newest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 5000:
        pytest.skip("this machine allows fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 5000), hard))
    server = serve("--no-relay", dev=False)
    token = outlog.run("token", "create", "--scope", "read", "--json").json()[0]["token"]
    request = b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"
    shown = b"GET /v1/consumers HTTP/1.1\r\nAuthorization: Bearer " + token.encode() + b"\r\n" + HOST + b"\r\n"
    links = []

    def is_served(link, request=request):
        try:
            link.sendall(request)
            return statuses(link.recv(65536)) == [200]
        except OSError:
            return False

    def connect():
        links.append(socket.create_connection(("127.0.0.1", server.port), 20))
        return links[-1]

    try:
        assert all(is_served(connect(), shown) for _ in range(100))
        strangers = [connect() for _ in range(256)]
        assert all(is_served(link) for link in strangers), "as many as there may be"
        strangers += [connect() for _ in range(40)]
        assert all(is_served(link) for link in strangers[40:]), "the newest have room"
        assert not any(is_served(link) for link in strangers[:40]), "the oldest made it"
        assert all(is_served(link) for link in links[:100]), "whoever showed a token stays"
        known = links[:100]
        while len(known) < 4096:
            known.append(connect())
            assert is_served(known[-1], shown), len(known)
        assert not any(is_served(link) for link in strangers), "they made room for those with a token"
        assert all(is_served(link) for link in known[:50] + known[2000:2050] + known[-50:])
        assert not any(is_served(connect(), how) for how in (request, shown) for _ in range(30))
        assert all(is_served(link) for link in known), "no known one made room"
        for link in known[:100]:
            link.close()

        def is_let_in():
            with socket.create_connection(("127.0.0.1", server.port), 20) as link:
                return is_served(link)

        wait_for(is_let_in, "room for another")
    finally:
        for link in links:
            link.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    wait_for(lambda: server.get("/v1/events", token=token).status == 200, "room again")


def test_a_full_queue_answers_503_with_retry_after(store, serve):
    """One thread, held by a destination that does not answer; what cannot wait is refused at once."""
    server = serve("--no-relay", "--threads", "1", "--queue", "20")
    blocker = socket.create_server(("127.0.0.1", 0))
    server.put(
        "/v1/destinations/hang",
        {
            "type": "webhook",
            "url": f"http://127.0.0.1:{blocker.getsockname()[1]}/",
            "allow_private": True,
            "timeout": "60s",
        },
    )
    test = threading.Thread(target=lambda: server.post("/v1/destinations/hang/test", timeout=90))
    test.start()
    held = blocker.accept()[0]
    links = []
    for _ in range(100):  # a connection holds one request at a time
        links.append(socket.create_connection(("127.0.0.1", server.port), 30))
        links[-1].sendall(b"GET /v1/events HTTP/1.1\r\n" + HOST + b"Connection: close\r\n\r\n")
    poll = select.poll()
    for link in links:
        poll.register(link, select.POLLIN)
    refused = wait_for(lambda: len(ready := poll.poll(0)) >= 50 and ready, "refusals")
    by_number = {link.fileno(): link for link in links}
    answer = by_number[refused[0][0]].recv(65536)
    assert b" 503 " in answer[:20] and b"retry-after: " in answer.lower() and b'"code":"unavailable"' in answer
    held.close()
    blocker.close()
    test.join(90)
    kept = [link for link in links if link.fileno() not in {number for number, _ in refused}]
    answered = [status for link in kept for status in statuses(link.recv(65536))]
    assert set(answered) <= {200, 503} and answered.count(200) >= 15, "every accepted request is answered"
    for link in links:
        link.close()
    assert server.get("/v1/events").status == 200
    assert any(" msg=request status=503 " in line for line in server.lines())


# --- streams ----------------------------------------------------------------------------------


def follow(server, path, total, seen, breaks, timeout=120):
    """Read until `total` events came, with `breaks` lost connections on the way."""
    last, left = 0, breaks
    deadline = time.monotonic() + timeout
    while len(seen) < total and time.monotonic() < deadline:
        stream = Stream(server, path, last=last, timeout=60)
        try:
            until = random.randint(1, total) if left else total + 1
            for number, event in stream:
                assert number == event["event_id"] and number > last
                seen.append(number)
                last = number
                until -= 1
                if until == 0 or len(seen) == total:
                    break
        except OSError:
            pass
        finally:
            left = max(0, left - 1)
            stream.close()


def test_c2_followers_that_come_and_go_miss_nothing(server):
    """200 of them on two filters, each reconnecting at random, while several writers append."""
    number, writers = 200, 4
    events = 60 * writers
    seen = [[] for _ in range(number)]
    paths = ["/v1/events/stream?after=0", "/v1/events/stream?after=0&org_id=o1"]
    totals = [events, events // writers]
    followers = [
        threading.Thread(target=follow, args=(server, paths[i % 2], totals[i % 2], seen[i], random.randint(0, 2)))
        for i in range(number)
    ]

    def write(org):
        for _ in range(20):
            server.append(f"o{org}", 3)

    writing = [threading.Thread(target=write, args=(org,)) for org in range(writers)]
    for thread in followers[:100] + writing + followers[100:]:
        thread.start()
    for thread in writing + followers:
        thread.join(150)
    everything, of_one = (
        [e["event_id"] for e in server.get(f"/v1/events?limit=10000{q}").json["events"]] for q in ("", "&org_id=o1")
    )
    assert len(everything) == events and len(of_one) == events // writers
    for i, got in enumerate(seen):
        assert got == (everything, of_one)[i % 2], f"follower {i} has {len(got)}"


def resident(server):
    """Megabytes."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def test_c2_a_follower_that_does_not_read_delays_nobody_and_misses_nothing(server):
    """What waits for it waits in the store, not in memory."""
    lazy = Stream(server, "/v1/events/stream?after=0", timeout=60)
    eager = Stream(server, "/v1/events/stream?after=0", timeout=60)
    ids, got = [], iter(eager)

    def write(megabytes):
        for _ in range(megabytes):
            made = [one["event_id"] for one in server.append("acme", 50, metadata={"large": "x" * 20_000})]
            assert [next(got)[0] for _ in made] == made, "the other one gets it at once"
            ids.extend(made)

    is_sanitized = "san" in build_dir().name
    write(3 if is_sanitized else 24)  # what buffers and pages take, they have now
    before = resident(server)
    write(8 if is_sanitized else 64)  # all in less than the half minute after which it would be dropped
    assert is_sanitized or resident(server) - before < 32, "64 MB were appended"
    seen = []
    for number, event in lazy:
        assert len(event["metadata"]["large"]) == 20_000
        seen.append(number)
        if len(seen) == len(ids):
            break
    assert seen == ids
    lazy.close(), eager.close()


def peak_resident(server):
    """Megabytes, the most there ever were."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def test_c2_followers_that_lag_behind_large_events_read_short_pages(server):
    """Four of them at once, behind 60 MB that are no longer in anybody's memory."""
    payload = {"large": "x" * 200_000}
    ids = [one["event_id"] for _ in range(60) for one in server.append("acme", 5, payload=payload)]
    before, seen = peak_resident(server), [[] for _ in range(4)]

    def follow(into):
        stream = Stream(server, "/v1/events/stream?after=0", timeout=60)
        for number, _ in stream:
            into.append(number)
            if len(into) == len(ids):
                break
        stream.close()

    threads = [threading.Thread(target=follow, args=(into,)) for into in seen]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [ids] * 4
    assert (
        "san" in build_dir().name or peak_resident(server) - before < 96
    ), "a page of 300 events would be 60 MB for each"


def append_directly(store, number, **event):
    """By another process; the event_ids."""
    line = json.dumps({**EVENT, "org_id": "acme", **event})
    done = Outlog(store).run("append", "--ndjson", "-", "--json", input=f"{line}\n" * number)
    return [one["event_id"] for one in done.json()]


@pytest.mark.parametrize("query", ["", "&org_id=acme", "&since=1h"])
def test_c2_a_page_is_short_however_small_the_events_before_it_were(store, server, query):
    """Small events make long pages; then 80 MB arrive, for a follower that is up to date and for one that lags."""
    large, path = {"large": "x" * 100_000}, f"/v1/events/stream?after=0{query}"
    stream = Stream(server, path, timeout=60)
    live, before = iter(stream), peak_resident(server)
    ids = append_directly(store, 1000)
    assert [next(live)[0] for _ in ids] == ids
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        ids += append_directly(store, 400, payload=large, metadata=large)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)  # it finds all of them at once
    assert [next(live)[0] for _ in ids[1000:]] == ids[1000:]
    while_live = peak_resident(server)
    late = Stream(server, path, timeout=60)
    got = iter(late)
    assert [next(got)[0] for _ in ids] == ids
    ids += append_directly(store, 1)
    assert next(got)[0] == next(live)[0] == ids[-1]
    grown = while_live - before, peak_resident(server) - before
    assert "san" in build_dir().name or max(grown) < 64, f"{grown} MB"
    stream.close(), late.close()


def test_last_event_id_wins_and_wrong_ones_are_refused(server):
    ids = [e["event_id"] for e in server.append("acme", 3)]
    stream = Stream(server, "/v1/events/stream?after=0", last=ids[1])
    assert next(iter(stream))[0] == ids[2]
    stream.close()
    for last in ("x", "-1", "1e3", "9" * 30):
        assert server.get("/v1/events/stream", headers={"last-event-id": last}).code == "invalid_field"


def unread(client):
    """How many bytes of this connection wait in the kernel for the server to read."""
    ends = [f"0100007F:{end[1]:04X}" for end in (client.getpeername(), client.getsockname())]
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()]
    (queues,) = [row[4] for row in rows if row[1:3] == ends]
    return int(queues.split(":")[1], 16)


def test_sigterm_ends_streams_and_polls_and_finishes_requests(server):
    stream = Stream(server)
    poll = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    poll.request("GET", "/v1/events?after=0&wait=60")
    wait_for(lambda: unread(poll.sock) == 0, "the server to have read it")
    assert server.stop() == 0
    answer = poll.getresponse()
    assert answer.status == 200 and json.load(answer)["events"] == []
    assert list(stream) == []


# --- killed -----------------------------------------------------------------------------------


def test_i1_killed_under_load_every_acknowledged_event_is_there_once(store, serve):
    """Clients retry with their key until they are answered; the server is killed twice meanwhile."""
    server = serve("--no-relay")
    port, acknowledged, lock = server.port, {}, threading.Lock()

    def client(number):
        for n in range(25):
            key = f"c{number}-{n}"
            body = {"org_id": "acme", "events": [{**EVENT, "aggregate_id": f"{number}", "payload": {"key": key}}]}
            for _ in range(400):
                try:
                    answer = server.post("/v1/events", body, headers={"idempotency-key": key}, timeout=30)
                except (OSError, http.client.HTTPException):
                    time.sleep(0.03)
                    continue
                if answer.status == 201:
                    with lock:
                        acknowledged[key] = answer.json["events"][0]["event_id"]
                    break
                assert answer.status in (409, 503), answer
                time.sleep(0.03)

    clients = [threading.Thread(target=client, args=(number,)) for number in range(6)]
    for one in clients:
        one.start()
    for goal in (25, 70):
        wait_for(lambda: len(acknowledged) >= goal or not any(one.is_alive() for one in clients), "some appends", 60)
        server.kill()
        server.start(port)
    for one in clients:
        one.join(90)
    stored = server.get("/v1/events?limit=10000").json["events"]
    by_key = {event["payload"]["key"]: event["event_id"] for event in stored}
    assert len(stored) == len(by_key) == 150, "each once"
    assert by_key == acknowledged


class SqliteFailure:
    """The disk fails under the server. What it wrote before may come back when the file is opened again."""

    def __init__(self, store, tmp_path):
        self.server = Server(Outlog(store, cwd=tmp_path), tmp_path / "serve.log", ["--no-relay"])

    @contextlib.contextmanager
    def at_commit(self, statement, is_stored):
        with failing(self.server.process, "fdatasync", "EIO"):
            yield
            if is_stored:  # the next commit would take its place in the WAL
                self.server.kill()
        if is_stored:
            self.server.start()

    def before_commit(self):
        return failing(self.server.process, "pwrite64", "ENOSPC")

    def close(self):
        self.server.stop()


class PostgresFailure:
    """The connection is cut when the commit was asked for, before or after the database did it."""

    def __init__(self, store, tmp_path, postgres):
        self.postgres, self.proxy = postgres, Proxy(postgres.port).__enter__()
        self.server = Server(Outlog(self.proxy.url(store), cwd=tmp_path), tmp_path / "serve.log", ["--no-relay"])

    @contextlib.contextmanager
    def at_commit(self, statement, is_stored):
        self.proxy.cut_at(statement, "reply" if is_stored else "request")
        yield
        assert self.proxy.happened.wait(30)

    @contextlib.contextmanager
    def before_commit(self):
        self.proxy.down()
        self.postgres.sql(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s",
            self.server.outlog.store.rpartition("/")[2],
        )
        yield
        self.proxy.down(False)

    def close(self):
        self.server.stop()
        self.proxy.__exit__()


@pytest.fixture
def failure(request, store, tmp_path):
    if store.startswith("sqlite:"):
        failure = SqliteFailure(store, tmp_path)
    else:
        failure = PostgresFailure(store, tmp_path, request.getfixturevalue("postgres"))
    yield failure
    failure.close()


KEY = {"idempotency-key": "k"}
ID = "6b1c5f0e-2f9a-4c1d-9a35-0d6f3a7b9c11"
# What is asked, how its repeat is known, and the statement that stores it.
UNKNOWN = {
    "events by key": ("/v1/events", {"org_id": "acme", "events": [EVENT]}, KEY, "^commit"),
    "events by id": ("/v1/events", {"org_id": "acme", "events": [{**EVENT, "id": ID}]}, {}, "append_batch"),
    "message by key": (
        "/v1/messages",
        {
            "org_id": "acme",
            "destination": "d",
            "aggregate_type": "thing",
            "aggregate_id": "1",
            "event_type": "t",
            "payload": {},
        },
        KEY,
        "^commit",
    ),
    "run by key": ("/v1/runs", {"org_id": "acme", "run_type": "triage", "orchestrator_version": "1"}, KEY, "^commit"),
}


@pytest.mark.parametrize("is_stored", [True, False], ids=["stored", "not stored"])
@pytest.mark.parametrize("what", UNKNOWN)
def test_a4_a_commit_nobody_answered_is_unknown_and_its_repeat_converges(failure, what, is_stored):
    """It is not 'unavailable', which says that surely nothing was stored."""
    server, (path, body, headers, statement) = failure.server, UNKNOWN[what]
    assert server.put("/v1/destinations/d", {"type": "null"}).status == 201
    assert server.post("/v1/events", {"org_id": "warm", "events": [EVENT]}).status == 201

    def count():
        of = "runs" if path == "/v1/runs" else path.split("/")[-1]
        return len([one for one in server.get(f"/v1/{of}?limit=100").json[of] if one["org_id"] == "acme"])

    with failure.before_commit():
        failed = server.post(path, body, headers=headers)
    assert (failed.status, failed.code, failed.json["outcome"]) == (503, "unavailable", "failed"), failed
    assert count() == 0
    with failure.at_commit(statement, is_stored):
        unknown = server.post(path, body, headers=headers)
    assert (unknown.status, unknown.code, unknown.json["outcome"]) == (503, "outcome_unknown", "unknown"), unknown
    assert failed.headers["retry-after"] and unknown.headers["retry-after"]
    assert count() == is_stored
    for was_there in (is_stored, True):
        again = wait_for(lambda: (one := server.post(path, body, headers=headers)).status != 503 and one, "the repeat")
        if headers:
            assert again.status == 201 and (again.headers.get("idempotency-replayed") == "true") == was_there, again
        else:
            assert again.json["events"][0]["duplicate"] == was_there, again
        assert count() == 1


# --- a full disk ------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 6 MB, which only root can make."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(folder)], capture_output=True).returncode:
        pytest.skip("no tmpfs can be mounted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_is_reported_and_survived(small_disk, tmp_path):
    """Not stored is 503 with when to come back, readiness goes red, reading goes on; with room again all is well."""
    outlog = Outlog(f"sqlite:{small_disk}/outlog.db", cwd=tmp_path)
    outlog.run("init")
    server = Server(outlog, tmp_path / "serve.log", ["--no-relay"])
    ballast = small_disk / "ballast"
    try:
        large = json.dumps({"org_id": "acme", "events": [{**EVENT, "payload": {"text": "x" * 100_000}}]})
        stored = 0
        for _ in range(200):
            answer = server.call("POST", "/v1/events", large)
            if answer.status != 201:
                break
            stored += 1
        assert 0 < stored < 200
        assert (answer.status, answer.code) == (503, "unavailable"), answer
        assert "full" in answer.json["detail"] and answer.headers["retry-after"] and answer.json["outcome"] == "failed"
        free = os.statvfs(small_disk)
        ballast.write_bytes(bytes(free.f_bavail * free.f_bsize))
        while server.call("POST", "/v1/events", BODY).status == 201:  # what the refused one left of the file is used
            stored += 1
            assert stored < 1000, "the disk is not full"
        for _ in range(3):
            answer = server.call("POST", "/v1/events", BODY)
            assert (answer.status, answer.code) == (503, "unavailable"), answer
        assert (
            len(server.get("/v1/events?limit=1000").json["events"]) == stored
        ), "reading goes on, and nothing is half there"
        wait_for(lambda: server.get("/readyz").status == 503, "readiness to go red")
        assert server.get("/healthz").status == 200
        ballast.unlink()
        subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
        wait_for(lambda: server.get("/readyz").status == 200, "readiness to come back")
        assert server.call("POST", "/v1/events", BODY).status == 201
        assert len(server.get("/v1/events?limit=1000").json["events"]) == stored + 1
    finally:
        assert server.stop() == 0
