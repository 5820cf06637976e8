"""Strangers and clumsy clients at the HTTP door: none of them ends the daemon, takes its memory, or keeps others waiting."""
import concurrent.futures
import contextlib
import itertools
import json
import pathlib
import re
import signal
import socket
import ssl
import struct
import threading
import time

import pytest

from lib.cli import build_dir
from lib.outbox import Outbox, wait_for

HOST = b"Host: localhost\r\n"
EVENT = {"aggregate_type": "thing", "aggregate_id": "1", "event_type": "t", "payload": {}}
BODY = json.dumps({"org_id": "acme", "events": [EVENT]}).encode()
IS_SANITIZED = "san" in build_dir().name    # a sanitizer keeps what was freed


@pytest.fixture
def server(store, serve):
    return serve("--no-relay")


def connect(server, timeout=30):
    return socket.create_connection(("127.0.0.1", server.port), timeout)


def get(path, *lines):
    return b"GET " + path + b" HTTP/1.1\r\n" + HOST + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def post(*lines, body=BODY, path=b"/v1/events"):
    return (b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n" % len(body) +
            b"".join(line + b"\r\n" for line in lines) + b"\r\n" + body)


def statuses(answer):
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


def read_all(link):
    return b"".join(iter(lambda: link.recv(1 << 20), b""))


def resident(server):
    """Megabytes."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) / 1024


def flood(link, data, times):
    """Send in a thread, until it is done or nobody takes any more."""
    def run():
        with contextlib.suppress(OSError):
            for _ in range(times):
                link.sendall(data)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


# what is not read


def test_answers_nobody_reads_hold_up_their_own_connection_alone(server):
    """3000 requests for the console's script in a row: the answers would be some hundred megabytes."""
    before, count = resident(server), 300 if IS_SANITIZED else 3000
    length = len(server.get("/app.js").body)
    with connect(server) as link:
        thread = flood(link, get(b"/app.js") * count + get(b"/healthz", b"Connection: close"), 1)
        thread.join(3)
        assert server.get("/v1/events").status == 200
        assert IS_SANITIZED or resident(server) - before < 50
        answer = read_all(link)     # once they are read, it goes on
        assert statuses(answer) == [200] * (count + 1) and len(answer) > count * length
        thread.join()


def test_bodies_of_strangers_have_a_bound_together(store, serve):
    """Forty of sixteen megabytes, none of them complete, without a token; a small one has room beside them."""
    server = serve("--no-relay", dev=False)
    before, links, large = resident(server), [], 15 << 20
    for _ in range(40):
        links.append(connect(server))
        flood(links[-1], b"POST /v1/events HTTP/1.1\r\n" + HOST + b"Content-Length: %d\r\n\r\n" % (large + 1) +
              b" " * large, 1)

    def refused():
        found = 0
        for link in links:
            link.setblocking(False)
            with contextlib.suppress(BlockingIOError, ConnectionError):
                found += link.recv(100, socket.MSG_PEEK).startswith(b"HTTP/1.1 503 ")
            link.setblocking(True)
        return found >= 20
    wait_for(refused, "most of them to be refused")
    assert IS_SANITIZED or resident(server) - before < 400
    assert server.post("/v1/events", BODY).status == 401
    assert server.post("/v1/events", BODY + b" " * 60_000).status == 401
    for link in links:
        link.close()
    wait_for(lambda: server.post("/v1/events", BODY + b" " * (1 << 20)).status == 401, "room again")


def test_an_answer_without_a_body_has_no_length(server):
    stamp = server.get("/").headers["etag"]
    assert (known := server.get("/", headers={"if-none-match": stamp})).status == 304
    server.put("/v1/destinations/d", {"type": "null"})
    assert (gone := server.delete("/v1/destinations/d")).status == 204
    for answer in (known, gone):
        assert "content-length" not in answer.headers and not answer.body
    assert int(server.call("HEAD", "/").headers["content-length"]) == len(server.get("/").body)
