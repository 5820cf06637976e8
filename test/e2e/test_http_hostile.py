"""Hostile and broken HTTP clients: none of them stops the daemon, exhausts its memory, or delays others."""
import concurrent.futures
import contextlib
import json
import pathlib
import re
import resource
import socket
import threading

import pytest

from lib.cli import build_dir
from lib.outbox import wait_for

HOST = b"Host: localhost\r\n"
EVENT = {"aggregate_type": "thing", "aggregate_id": "1", "event_type": "t", "payload": {}}
BODY = json.dumps({"org_id": "acme", "events": [EVENT]}).encode()
IS_SANITIZED = "san" in build_dir().name  # a sanitizer keeps what was freed


@pytest.fixture
def server(store, serve):
    return serve("--no-relay")


def connect(server, timeout=30):
    return socket.create_connection(("127.0.0.1", server.port), timeout)


def get(path, *lines):
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(*lines, body=BODY, path=b"/v1/events"):
    return (
        b"POST "
        + path
        + b" HTTP/1.1\r\n"
        + HOST
        + b"Content-Length: %d\r\n" % len(body)
        + b"".join(line + b"\r\n" for line in lines)
        + b"\r\n"
        + body
    )


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def read_all(link):
    return b"".join(iter(lambda: link.recv(1 << 20), b""))


def resident(server):
    """Megabytes."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def flood(link, data, times):
    """Send in a thread, until all is sent or the server reads no more."""

    def run():
        with contextlib.suppress(OSError):
            for _ in range(times):
                link.sendall(data)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


# what is not read


def test_unread_answers_block_only_their_own_connection(server):
    """3000 requests for the console's script in a row: the answers would be some hundred megabytes."""
    before, count = resident(server), 300 if IS_SANITIZED else 3000
    length = len(server.get("/app.js").body)
    with connect(server) as link:
        thread = flood(link, get(b"/app.js") * count + get(b"/healthz", b"Connection: close"), 1)
        thread.join(3)
        assert server.get("/v1/events").status == 200
        assert IS_SANITIZED or resident(server) - before < 50
        answer = read_all(link)  # once they are read, it goes on
        assert statuses(answer) == [200] * (count + 1) and len(answer) > count * length
        thread.join()


@pytest.fixture
def guarded(store, serve, outlog):
    """A daemon that asks for tokens; this one's calls show the right one."""

    def start(**how):
        server = serve("--no-relay", dev=False, **how)
        server.token = outlog.run("token", "create", "--scope", "admin", "--json").json()[0]["token"]
        assert server.get("/v1/events").status == 200
        return server

    return start


def refusals(server):
    """How often this process refused somebody, by the reason."""
    text = server.get("/metrics").body.decode()
    return {reason: int(float(n)) for reason, n in re.findall(r'outlog_http_refused_total{reason="(\w+)"} (\S+)', text)}


def large_post(token, bytes):
    """The head of a POST that announces one byte more than it sends."""
    line = b"Authorization: Bearer " + token.encode() + b"\r\n" if token else b""
    return b"POST /v1/events HTTP/1.1\r\n" + HOST + line + b"Content-Length: %d\r\n\r\n" % (bytes + 1) + b" " * bytes


def answered(links):
    """The status of each that was answered, without waiting."""
    found = []
    for link in links:
        link.setblocking(False)
        with contextlib.suppress(BlockingIOError, ConnectionError):
            found += statuses(link.recv(100, socket.MSG_PEEK))
        link.setblocking(True)
    return found


def test_r8_large_bodies_of_strangers_take_no_room_from_others(guarded):
    """Sixteen of fifteen megabytes with wrong tokens, none of them complete, and as many without a token."""
    server = guarded()
    before, links, large = resident(server), [], 15 << 20
    for token in ["olk_wrong"] * 16 + [None] * 16:
        links.append(connect(server))
        flood(links[-1], large_post(token, large), 1)
    wait_for(lambda: answered(links).count(401) == 16 and answered(links).count(503) >= 12, "their refusal")
    assert IS_SANITIZED or resident(server) - before < 150
    honest = BODY + b" " * (8 << 20)
    assert [server.post("/v1/events", honest).status for _ in range(3)] == [201] * 3
    assert refusals(server)["body"] >= 28
    for link in links:
        link.close()


def test_r8_a_flood_of_connections_does_not_shut_others_out(guarded):
    """As many connections as the daemon takes at all, and more, from one address; each says half a head."""
    server = guarded(files=(1200, 1200))
    known = connect(server)
    token = b"Authorization: Bearer " + server.token.encode()
    known.sendall(post(token))
    assert statuses(known.recv(65536)) == [201]
    links = []
    for _ in range(900):
        links.append(connect(server))
        links[-1].sendall(b"GET / HTTP/1.1\r\n")
        if len(links) % 50 == 0:  # a new connection each
            with connect(server) as link:
                link.sendall(post(token, b"Connection: close"))
                assert statuses(read_all(link)) == [201], len(links)
    known.sendall(post(token))
    assert statuses(known.recv(65536)) == [201], "a connection that showed its token stays"
    known.close()
    assert refusals(server)["connection"] >= 600
    for link in links:
        link.close()


def test_r8_wrong_tokens_are_slowed_down_and_right_ones_are_not(guarded, outlog):
    """Each address has fifty tries and one more per second; then answers are held, and nothing is looked up."""
    server = guarded()
    codes = [server.get("/v1/events", token=f"olk_{n}").status for n in range(50)]
    assert codes == [401] * 50
    links = [connect(server) for _ in range(20)]
    for link in links:
        link.sendall(get(b"/v1/events", b"Authorization: Bearer olk_no"))
    assert [server.post("/v1/events", BODY).status for _ in range(20)] == [201] * 20, "the right token is not held"
    held = [statuses(link.recv(65536))[0] for link in links]
    assert held.count(429) >= 10 and set(held) <= {401, 429}
    assert refusals(server)["token"] == held.count(429)
    fresh = outlog.run("token", "create", "--scope", "append", "--json").json()[0]["token"]
    wait_for(lambda: server.post("/v1/events", BODY, token=fresh).status == 201, "a new token among wrong ones")
    for link in links:
        link.close()


def test_an_answer_without_a_body_has_no_length(server):
    stamp = server.get("/").headers["etag"]
    assert (known := server.get("/", headers={"if-none-match": stamp})).status == 304
    server.put("/v1/destinations/d", {"type": "null"})
    assert (gone := server.delete("/v1/destinations/d")).status == 204
    for answer in (known, gone):
        assert "content-length" not in answer.headers and not answer.body
    assert int(server.call("HEAD", "/").headers["content-length"]) == len(server.get("/").body)


# what is shared


def test_clients_do_not_exhaust_the_stores_descriptors(store, serve):
    """Clients get half of the 240 descriptors; open connections are served however many more are refused."""
    server = serve("--no-relay", files=(240, 240))
    links = []
    for n in range(300):
        links.append(connect(server))
        if n < 100:  # who was answered once stays
            links[-1].sendall(get(b"/v1/events?limit=1"))
            assert statuses(links[-1].recv(65536)) == [200]
    for link in links[:30] + links[85:100]:
        for request, status in ((get(b"/v1/events?limit=1"), 200), (post(), 201)):
            link.sendall(request)
            assert statuses(link.recv(65536)) == [status]
    with contextlib.suppress(ConnectionError):
        assert links[-1].recv(1) == b""
    for link in links:
        link.close()
    wait_for(lambda: server.get("/v1/events").status == 200, "room again")


def test_the_soft_limit_of_files_is_raised(sqlite_store, serve):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    server = serve("--no-relay", files=(240, hard))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] >= min(hard, 8192)


def test_x1_a_long_poll_ends_with_its_token(store, serve, outlog):
    server = serve("--no-relay", dev=False)
    (made,) = outlog.run("token", "create", "--scope", "read", "--json").json()
    (writer,) = outlog.run("token", "create", "--scope", "append", "--json").json()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        waiting = pool.submit(server.get, "/v1/events?event_type=t&wait=25", token=made["token"])
        wait_for(lambda: server.get("/v1/events", token=made["token"]).status == 200, "the token")
        outlog.run("token", "revoke", made["id"])
        wait_for(lambda: server.get("/v1/events", token=made["token"]).status == 401, "it to be known")
        assert server.post("/v1/events", BODY, token=writer["token"]).status == 201
        assert waiting.result().status == 401
