"""Publishers against receivers that misbehave, and against a real SMTP server.

The publishers run in publish_driver (C), which speaks JSON lines. Receivers bind port 0 on loopback
and end with the test. Nothing here asserts how long something took: a hanging receiver is proved
harmless by what else was delivered meanwhile.
"""
import base64
import contextlib
import email
import email.policy
import gzip
import hashlib
import hmac
import json
import os
import re
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest
from aiosmtpd.smtp import AuthResult

from lib.cli import build_dir
from lib.mail import MailServer
from lib.postgres import die_with_parent, free_port

EVENT_ID = "0190e6a0-0000-7000-8000-000000000001"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
CAUSE = "0190a0b0-c0d0-7e0f-8000-0000000000aa"


# --- the driver -------------------------------------------------------------------------------------


class Driver:
    """publish_driver as a child process; outcomes by tag."""

    def __init__(self, env=None, inside=()):
        self.process = subprocess.Popen(
            [*inside, build_dir() / "test" / "publish_driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            env=env,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.outcomes, self.tags = {}, 0

    def ask(self, **command):
        self.process.stdin.write(json.dumps(command) + "\n")

    def answer(self):
        """The next line that is not an outcome; outcomes before it are kept."""
        while True:
            patience = threading.Timer(120, self.process.kill)
            patience.start()
            line = self.process.stdout.readline()
            patience.cancel()
            assert line, "publish_driver ended, or said nothing for two minutes"
            answer = json.loads(line)
            if "tag" not in answer:
                return answer
            assert answer["tag"] not in self.outcomes, "a second outcome for one attempt"
            self.outcomes[answer["tag"]] = answer

    def open(self, name, **settings):
        self.ask(open=name, settings=settings)
        return self.answer()

    def must_open(self, name, **settings):
        assert self.open(name, **settings) == {"opened": name}

    def send(self, name, timeout_ms=60000, **message):
        self.tags += 1
        message = {
            "event_id": EVENT_ID,
            "event_type": "order.created",
            "payload": {"n": 1},
            "idempotency_key": "k-1",
            **message,
        }
        self.ask(send=name, tag=self.tags, timeout_ms=timeout_ms, message=message)
        return self.tags

    def wait(self, count):
        self.ask(wait=count)
        assert self.answer() == {"waited": True}

    def deliver(self, name, **message):
        """One message, its outcome."""
        tag = self.send(name, **message)
        self.wait(1)
        return self.outcomes[tag]

    def close(self, name):
        self.ask(close=name)
        assert self.answer() == {"closed": True}

    def end(self):
        self.process.stdin.close()
        self.process.stdout.read()
        assert self.process.wait(timeout=60) == 0


@pytest.fixture
def driver():
    it = Driver()
    yield it
    it.end()


# --- an HTTP receiver that misbehaves on demand ----------------------------------------------------


class Receiver:
    """One thread per connection; the path of the request names the behaviour."""

    MOST_POURED = 100_000_000
    ENDLESS = {
        "trailers": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-Filler: y\r\n" * 10_000),
        "extension": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4;x=", b"y" * 100_000),
        "crumbs": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\ny\r\n" * 20_000),
        "interims": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000),
        "hints": (b"HTTP/1.1 103 Early Hints\r\n", b"Link: </x>\r\n" * 10_000),
        "bomb": (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n", gzip.compress(bytes(1 << 28))),
    }

    def __init__(self, tls=None, port=None, host="localhost"):
        self.poured = 0
        self.tls, self.host, self.requests, self.connections = tls, host, [], 0
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.listener = socket.create_server(("127.0.0.1", port or free_port()))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        self.thread = threading.Thread(target=self._accept, daemon=True)
        self.thread.start()

    def url(self, path):
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}{path}"

    def end(self):
        if self.ended.is_set():
            return
        self.ended.set()
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        with self.lock:
            for it in self.sockets:
                try:
                    it.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        self.thread.join(60)

    def _accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with self.lock:
                self.connections += 1
                self.sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with connection, connection.makefile("rb") as stream:
                while (request := self._read(stream)) is not None:
                    with self.lock:
                        self.requests.append(request)
                        number = len(self.requests)
                    if not self._behave(connection, request, number):
                        return
        except (OSError, ValueError):
            pass

    @staticmethod
    def _read(stream):
        line = stream.readline()
        if not line:
            return None
        method, path, _ = line.decode().split()
        pairs = []
        while (line := stream.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            pairs.append((name.lower(), value.strip()))
        headers = dict(pairs)
        assert len(headers) == len(pairs), "a header came twice"
        body = stream.read(int(headers.get("content-length", 0)))
        return {"method": method, "path": path, "headers": headers, "body": body}

    def _behave(self, connection, request, number):
        """Answer; True keeps the connection."""
        path = request["path"].split("?")[0].strip("/").split("/")
        answer = lambda status, body=b"", *lines: connection.sendall(  # noqa: E731
            "\r\n".join([f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *lines, "", ""]).encode() + body
        )
        kind = path[0]
        if kind == "ok":
            answer(200, b"fine")
        elif kind == "status":
            answer(int(path[1]), b"no")
        elif kind == "later":
            answer(int(path[1]), b"", f"Retry-After: {path[2]}")
        elif kind == "redirect":
            answer(int(path[1]), b"", f"Location: {self.url('/ok')}")
        elif kind == "echo":
            answer(200, json.dumps(request["headers"]).encode())
        elif kind == "interim":
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\nRetry-After: 9\r\n\r\n")
            answer(200)
        elif kind == "hang":
            self.ended.wait()
        elif kind == "drip":  # a complete head, then single bytes without end
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while not self.ended.wait(0.05):
                connection.sendall(b"x")
        elif kind == "driphead":
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not self.ended.wait(0.05):
                connection.sendall(b"x")
        elif kind == "huge":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            while True:
                connection.sendall(b"token=hidden " * 5000)
        elif kind == "hugehead":
            connection.sendall(b"HTTP/1.1 200 OK\r\n")
            while True:
                connection.sendall(b"X-Filler: " + b"y" * 900 + b"\r\n")
        elif kind in self.ENDLESS:
            begin, more = self.ENDLESS[kind]
            connection.sendall(begin)
            while self.poured < self.MOST_POURED:
                connection.sendall(more)
                self.poured += len(more)
            self.ended.wait()
        elif kind == "garbage":
            connection.sendall(b"\x00\xff\x1b[2Jthis is no HTTP\r\n\r\n")
            return False
        elif kind == "binary":
            answer(200, bytes(range(256)))
        elif kind == "half":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
            return False
        elif kind == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            return False
        elif kind == "close":
            return False
        elif kind == "pieces":  # byte by byte, chunked, with a trailer that is not a header
            for byte in (
                b"HTTP/1.1 503 Busy\r\nX-Empty:\r\nRetry-After:  7 \r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3;x=y\r\nfin\r\n1\r\ne\r\n0\r\nRetry-After: 99\r\n\r\n"
            ):
                connection.sendall(bytes([byte]))
        elif kind == "old":  # HTTP/1.0: the end of the connection ends the response
            connection.sendall(b"HTTP/1.0 200 OK\r\n\r\nfine")
            return False
        elif kind == "last":  # announces that it will close, and does
            answer(200, b"fine", "Connection: close")
            return False
        elif kind == "quits":  # closes without announcing it
            answer(200, b"fine")
            return False
        elif kind == "more":  # bytes after the response
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfineHTTP/1.1 500 Later\r\nContent-Length: 0\r\n\r\n"
            )
        elif kind == "upgrade":
            connection.sendall(b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n")
            return False
        elif kind == "once":  # answers the first request of the test, closes on the second
            if number > 1:
                return False
            answer(200)
        return True


@pytest.fixture(params=["localhost", "127.0.0.1"], ids=["by_name", "by_address"])
def receiver(request):
    """A name goes to curl at first; an address goes to http_plain.c."""
    it = Receiver(host=request.param)
    yield it
    it.end()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """A certificate for localhost and one for another name, each its own authority."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("localhost", "wrong.example"):
        subprocess.run(
            [
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
                "-days",
                "2",
                "-subj",
                f"/CN={name}",
                "-addext",
                f"subjectAltName=DNS:{name}",
                "-keyout",
                folder / f"{name}.key",
                "-out",
                folder / f"{name}.pem",
            ],
            check=True,
            capture_output=True,
        )
    return folder


def context(folder, name):
    it = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    it.load_cert_chain(folder / f"{name}.pem", folder / f"{name}.key")
    return it


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.005)


# --- webhooks ----------------------------------------------------------------------------------------


def verify(request, secret):
    """As a receiver would, from the specification."""
    headers = request["headers"]
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + request["body"]
    mac = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    return f"v1,{mac}" in headers["webhook-signature"].split()


def test_d1_delivery_carries_what_the_contract_names(driver, receiver):
    driver.must_open(
        "hook",
        type="webhook",
        url=receiver.url("/ok?x=1"),
        allow_private=True,
        secret=SECRET,
        headers={"x-fixed": "1", "authorization": "Bearer abc"},
    )
    outcome = driver.deliver(
        "hook",
        payload_text='{ "a":1.0,  "z":0 }',
        attempt=2,
        traceparent=TRACE,
        correlation_id="c-1",
        causation_id=CAUSE,
        headers={"x-own": "yes", "webhook-id": "forged", "authorization": "Bearer forged", "x-empty": ""},
    )
    assert (outcome["kind"], outcome["status"]) == ("ok", 200)
    assert outcome["response"] == "fine" and outcome["error"] is None
    [request] = receiver.requests
    headers = request["headers"]
    assert (request["method"], request["path"]) == ("POST", "/ok?x=1")
    assert request["body"] == b'{ "a":1.0,  "z":0 }'  # byte for byte
    assert headers["webhook-id"] == EVENT_ID
    assert headers["idempotency-key"] == headers["x-idempotency-key"] == "k-1"
    assert headers["outlog-event-type"] == "order.created"
    assert headers["outlog-attempt"] == "2"
    assert (headers["outlog-correlation-id"], headers["outlog-causation-id"]) == ("c-1", CAUSE)
    assert headers["content-type"] == "application/json"
    assert headers["x-fixed"] == "1" and headers["x-own"] == "yes" and headers["x-empty"] == ""
    assert headers["authorization"] == "Bearer abc"
    assert headers["traceparent"][:36] == TRACE[:36] and headers["traceparent"] != TRACE
    assert "expect" not in headers and "outlog-replay" not in headers
    assert verify(request, SECRET)


def test_t1_a_trace_is_made_of_the_correlation_and_kept_across_attempts(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    uuid_correlation = "0190a0b0-c0d0-7e0f-8000-000000000001"
    for attempt, correlation in ((1, "c-1"), (2, "c-1"), (1, uuid_correlation), (1, "a\nx: 1")):
        assert driver.deliver("hook", attempt=attempt, correlation_id=correlation)["kind"] == "ok"
    first, second, uuid_made, escaped = (request["headers"] for request in receiver.requests)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", first["traceparent"])
    assert first["traceparent"][:36] == second["traceparent"][:36], "one trace"
    assert first["traceparent"] != second["traceparent"], "each attempt is a span of its own"
    assert uuid_made["traceparent"].split("-")[1] == uuid_correlation.replace("-", "")
    assert escaped["outlog-correlation-id"] == "a%0Ax: 1" and "x" not in escaped
    assert "outlog-causation-id" not in first, "nothing caused it"


def test_t1_a_delivery_to_a_system_of_record_carries_it_too(driver, receiver):
    driver.must_open("sor", type="sor", url=receiver.url("/ok"), allow_private=True)
    payload = {"entity_type": "o", "entity_id": "1", "change": {}, "evidence_pack": {}}
    assert driver.deliver("sor", payload=payload, correlation_id="c-1", causation_id=CAUSE)["kind"] == "ok"
    headers = receiver.requests[0]["headers"]
    assert (headers["outlog-correlation-id"], headers["outlog-causation-id"]) == ("c-1", CAUSE)
    assert headers["traceparent"]


def test_t1_a_mail_carries_it_in_its_headers(driver, mail_server):
    url = f"smtp://127.0.0.1:{mail_server.port}"
    driver.must_open("mail", type="smtp", url=url, tls="none", **{"from": "a@a.example"})
    headers = {"Outlog-Correlation-Id": "forged"}
    ids = {"correlation_id": "c-1", "causation_id": CAUSE}
    assert driver.deliver("mail", payload=mail(), headers=headers, **ids)["kind"] == "ok"
    it = email.message_from_bytes(mail_server.mails[0].content, policy=email.policy.default)
    assert it.get_all("outlog-correlation-id") == ["c-1"] and it["outlog-causation-id"] == CAUSE
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", it["traceparent"])


def test_t1_a_program_gets_it_in_its_environment(driver):
    script = 'echo "$OUTLOG_CORRELATION_ID $OUTLOG_CAUSATION_ID $TRACEPARENT $OUTLOG_TRACEPARENT"'
    driver.must_open("run", type="exec", command=["/bin/sh", "-c", script])
    outcome = driver.deliver("run", correlation_id="c-1", causation_id=CAUSE)
    correlation, causation, trace, old = outcome["response"].split()
    assert (correlation, causation) == ("c-1", CAUSE)
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", trace) and old == trace


def test_d1_rotation_both_secrets_verify(driver, receiver):
    other = "whsec_" + base64.b64encode(b"x" * 32).decode()
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True, secrets=[other, SECRET])
    assert driver.deliver("hook", is_replay=True)["kind"] == "ok"
    [request] = receiver.requests
    assert verify(request, SECRET) and verify(request, other)
    assert request["headers"]["outlog-replay"] == "true"


def test_d1_connections_are_kept_and_reused(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    for _ in range(20):
        assert driver.deliver("hook")["kind"] == "ok"
    # Once curl has resolved the name, the next request goes without curl.
    assert receiver.connections == (2 if receiver.host == "localhost" else 1) and len(receiver.requests) == 20


def test_d1_methods(driver, receiver):
    for method in ("PUT", "PATCH", "DELETE", "POST"):
        driver.must_open(method, type="webhook", url=receiver.url("/ok"), allow_private=True, method=method)
        assert driver.deliver(method)["kind"] == "ok"
        assert receiver.requests[-1]["method"] == method
        assert receiver.requests[-1]["body"] == b'{"n": 1}'


@pytest.mark.parametrize(
    "status,permanent",
    [
        (301, True),
        (302, True),
        (307, True),
        (400, True),
        (401, True),
        (404, True),
        (408, False),
        (409, True),
        (410, True),
        (422, True),
        (425, False),
        (429, False),
        (500, False),
        (502, False),
        (503, False),
    ],
)
def test_r2_statuses(driver, receiver, status, permanent):
    driver.must_open("hook", type="webhook", url=receiver.url(f"/status/{status}"), allow_private=True)
    outcome = driver.deliver("hook")
    assert (outcome["kind"], outcome["status"]) == ("failed", status)
    assert outcome["permanent"] == permanent
    assert outcome["surely_not_sent"] == (status in (429, 500, 503))
    assert f"HTTP {status}" in outcome["error"]


def test_r2_retry_after_in_seconds_and_as_a_date(driver, receiver):
    for name, path in (
        ("a", "/later/429/7"),
        ("b", "/later/503/7"),
        ("c", "/later/503/Fri,%2031%20Dec%202100%2023:59:59%20GMT"),
    ):
        driver.must_open(name, type="webhook", url=receiver.url(path), allow_private=True)
    for name in "ab":
        outcome = driver.deliver(name)
        assert outcome["retry_after_us"] == 7_000_000 and outcome["surely_not_sent"]
    assert driver.deliver("c")["retry_after_us"] == 0  # with percent signs it is not a date


def test_d1_redirects_are_not_followed(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/redirect/302"), allow_private=True)
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "failed" and outcome["permanent"]
    assert "not followed" in outcome["error"]
    assert [request["path"] for request in receiver.requests] == ["/redirect/302"]


def test_d1_interim_answers_are_not_the_answer(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/interim"), allow_private=True)
    outcome = driver.deliver("hook")
    assert (outcome["kind"], outcome["retry_after_us"]) == ("ok", 0)


@pytest.mark.parametrize("path", ["hang", "driphead"])
def test_d1_no_answer_in_time_is_unknown(driver, receiver, path):
    driver.must_open("hook", type="webhook", url=receiver.url(f"/{path}"), allow_private=True)
    outcome = driver.deliver("hook", timeout_ms=1000)
    assert (outcome["kind"], outcome["status"]) == ("unknown", 0)
    assert not outcome["surely_not_sent"] and not outcome["permanent"]


@pytest.mark.parametrize("path", ["garbage", "reset", "close", "hugehead"])
def test_d1_unreadable_or_cut_answers_are_unknown(driver, receiver, path):
    driver.must_open("hook", type="webhook", url=receiver.url(f"/{path}"), allow_private=True)
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "unknown", outcome
    assert "\x1b" not in outcome["error"] and "\n" not in outcome["error"]
    assert len(receiver.requests) == 1  # one attempt is one request


@pytest.mark.parametrize("path", ["drip", "half"])
def test_d1_complete_2xx_head_is_success_whatever_the_body_does(driver, receiver, path):
    driver.must_open("hook", type="webhook", url=receiver.url(f"/{path}"), allow_private=True)
    assert driver.deliver("hook", timeout_ms=1500)["kind"] == "ok"


@pytest.mark.parametrize("path", Receiver.ENDLESS)
def test_d1_answers_without_end_are_cut_and_hold_up_nobody(driver, receiver, path):
    """However many bytes arrive at a time. Only the head of a chunk is not limited by curl, which waits."""
    is_patient = path == "extension" and receiver.host == "localhost"
    driver.must_open("hook", type="webhook", url=receiver.url(f"/{path}"), allow_private=True)
    driver.must_open("well", type="webhook", url=receiver.url("/ok"), allow_private=True)
    endless = driver.send("hook", timeout_ms=2000 if is_patient else 60000)
    well = driver.send("well")
    driver.wait(2)
    outcome = driver.outcomes[endless]
    assert driver.outcomes[well]["kind"] == "ok"
    assert outcome["kind"] == ("unknown" if path in ("interims", "hints") else "ok"), outcome
    assert is_patient or receiver.poured < receiver.MOST_POURED / 2
    assert len(outcome["response"] or "") <= 4096


def test_r4_huge_response_is_capped_and_masked(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/huge"), allow_private=True)
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "ok"
    assert 1000 < len(outcome["response"].encode()) <= 4096
    assert "hidden" not in outcome["response"]


def test_r4_binary_response_becomes_text(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/binary"), allow_private=True)
    response = driver.deliver("hook")["response"]
    assert "\0" not in response and "\x1b" not in response and "abc" in response


def test_e13_echoed_secrets_are_masked(driver, receiver):
    driver.must_open(
        "hook",
        type="webhook",
        url=receiver.url("/echo"),
        allow_private=True,
        secret=SECRET,
        headers={"x-api-key": "swordfish-1", "cookie": "a=monster"},
    )
    response = driver.deliver("hook", headers={"authorization": "Bearer opensesame"})["response"]
    signature = receiver.requests[0]["headers"]["webhook-signature"]
    for secret in ("swordfish-1", "monster", "opensesame", signature[3:]):
        assert secret not in response
    assert EVENT_ID in response


def test_o4_dead_kept_connection_is_not_silently_sent_twice(driver, receiver):
    """C1: the receiver may have acted on the request before it closed."""
    driver.must_open("hook", type="webhook", url=receiver.url("/once"), allow_private=True)
    assert driver.deliver("hook")["kind"] == "ok"
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "unknown"
    assert len(receiver.requests) == 2


def test_r2_an_answer_in_pieces_is_one_answer(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/pieces"), allow_private=True)
    for _ in range(3):
        outcome = driver.deliver("hook")
        assert (outcome["kind"], outcome["status"], outcome["response"]) == ("failed", 503, "fine")
        assert outcome["retry_after_us"] == 7_000_000 and outcome["surely_not_sent"]


@pytest.mark.parametrize("path", ["old", "last", "quits", "more"])
def test_o4_a_connection_that_ends_with_its_answer_costs_no_message(driver, receiver, path):
    """Each request is answered once; a connection that the receiver closes or sends more on is not reused."""
    driver.must_open("hook", type="webhook", url=receiver.url(f"/{path}"), allow_private=True)
    for number in range(1, 6):
        outcome = driver.deliver("hook")
        assert (outcome["kind"], outcome["status"], outcome["response"]) == ("ok", 200, "fine"), outcome
        with receiver.lock:  # its thread closes after the response
            ours = receiver.sockets[-1]
        until(lambda: ours.fileno() < 0 or path == "more")
        assert len(receiver.requests) == number
    assert receiver.connections == 5


def test_d1_an_answer_that_changes_the_protocol_is_unknown(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/upgrade"), allow_private=True)
    for _ in range(2):
        assert driver.deliver("hook")["kind"] == "unknown"


def test_o2_a_large_body_arrives_whole(driver, receiver):
    """Bodies larger than a socket buffer, twenty at a time."""
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    text = json.dumps({"note": "".join(chr(97 + i % 26) for i in range(3_000_000))})
    for _ in range(20):
        driver.send("hook", payload_text=text)
    driver.wait(20)
    assert {outcome["kind"] for outcome in driver.outcomes.values()} == {"ok"}
    assert {request["body"] for request in receiver.requests} == {text.encode()}


def test_d1_a_receiver_that_comes_back_elsewhere_is_found(driver, receiver):
    """Idle connections end with their receiver; the next message reaches the new one."""
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    assert [driver.deliver("hook")["kind"] for _ in range(3)] == ["ok"] * 3
    receiver.end()
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "failed" and outcome["surely_not_sent"], outcome
    again = Receiver(port=receiver.port, host=receiver.host)
    try:
        assert [driver.deliver("hook")["kind"] for _ in range(3)] == ["ok"] * 3
    finally:
        again.end()


def test_l5_hanging_destination_does_not_hold_up_a_healthy_one(driver, receiver):
    driver.must_open("hang", type="webhook", url=receiver.url("/hang"), allow_private=True)
    driver.must_open("well", type="webhook", url=receiver.url("/ok"), allow_private=True)
    hanging = [driver.send("hang", timeout_ms=600000) for _ in range(50)]
    well = [driver.send("well") for _ in range(200)]
    driver.wait(len(well))
    assert all(driver.outcomes[tag]["kind"] == "ok" for tag in well)
    assert not any(tag in driver.outcomes for tag in hanging)
    driver.ask(abandon="hang", tag=hanging[0])
    driver.close("hang")  # abandons the rest
    assert {driver.outcomes[tag]["kind"] for tag in hanging} <= {"unknown", "released"}


def test_d1_refused_connection_was_surely_not_sent(driver):
    port = free_port()
    driver.must_open("hook", type="webhook", url=f"http://127.0.0.1:{port}/", allow_private=True)
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "failed" and outcome["surely_not_sent"] and not outcome["permanent"]


def test_d1_unknown_host_was_surely_not_sent(driver):
    driver.must_open("hook", type="webhook", url="https://no-such-host.invalid/")
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "failed" and outcome["surely_not_sent"] and not outcome["permanent"]


def test_d1_private_address_behind_a_name_is_refused(driver):
    """The URL looks public, but its name resolves to a private address. No request is sent there. R9: the next
    answer of the resolver may be another one, so the message is tried again."""
    driver.must_open("hook", type="webhook", url="https://localhost/latest/meta-data")
    outcome = driver.deliver("hook")
    assert outcome["kind"] == "failed" and not outcome["permanent"] and outcome["surely_not_sent"]
    assert "loopback" in outcome["error"] and "allow_private" in outcome["error"]


def test_d1_private_urls_are_refused_when_opened(driver):
    for url in (
        "http://example.com/",
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://10.1.2.3/",
        "https://2130706433/",
        "https://example.com:8443/",
        "https://u:p@example.com/",
    ):
        assert "url" in driver.open("hook", type="webhook", url=url)["error"]


def test_d1_proxy_variables_are_not_obeyed(receiver):
    driver = Driver(
        env={"http_proxy": "http://127.0.0.1:1", "HTTPS_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "http://127.0.0.1:1"}
    )
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    assert driver.deliver("hook")["kind"] == "ok"
    driver.end()


def test_d1_tls_is_verified(driver, certificates):
    right, wrong = (Receiver(context(certificates, name)) for name in ("localhost", "wrong.example"))
    plain = Receiver()
    try:
        driver.must_open(
            "right",
            type="webhook",
            url=right.url("/ok"),
            allow_private=True,
            ca_file=str(certificates / "localhost.pem"),
        )
        assert driver.deliver("right")["kind"] == "ok"
        cases = {
            "name": {"url": wrong.url("/ok"), "ca_file": str(certificates / "wrong.example.pem")},
            "authority": {"url": right.url("/ok")},
            "plain": {"url": plain.url("/ok").replace("http:", "https:")},
        }
        for name, settings in cases.items():
            driver.must_open(name, type="webhook", allow_private=True, **settings)
            outcome = driver.deliver(name)
            assert outcome["kind"] == "failed" and outcome["surely_not_sent"], (name, outcome)
            assert not outcome["permanent"]
        assert not wrong.requests and not plain.requests and len(right.requests) == 1
    finally:
        for it in (right, wrong, plain):
            it.end()


def test_d1_guard_looks_again_at_a_connection_that_is_reused(driver, certificates):
    """One destination may use private addresses and has an idle connection; another may not, and must not use it."""
    try:
        inside = Receiver(context(certificates, "localhost"), port=443)  # the guard allows no other port
    except OSError as error:
        pytest.skip(f"port 443 is taken: {error}")
    try:
        both = {"type": "webhook", "url": "https://localhost/ok", "ca_file": str(certificates / "localhost.pem")}
        driver.must_open("inside", allow_private=True, **both)
        assert driver.deliver("inside")["kind"] == "ok"
        driver.must_open("outside", **both)
        outcome = driver.deliver("outside")
        assert outcome["kind"] == "failed" and outcome["surely_not_sent"], outcome
        assert "loopback" in outcome["error"]
        assert driver.deliver("inside")["kind"] == "ok"
        assert len(inside.requests) == 2
    finally:
        inside.end()


def test_d1_http_2_is_spoken_where_it_is_offered(driver, receiver, certificates, tmp_path):
    """nghttpx in front of the receiver: many messages, one connection, and it logs the protocol."""
    port = free_port()
    log = tmp_path / "access.log"
    proxy = subprocess.Popen(
        [
            "nghttpx",
            f"--frontend=127.0.0.1,{port}",
            f"--backend=127.0.0.1,{receiver.port}",
            "--workers=1",
            "--conf=/dev/null",
            f"--accesslog-file={log}",
            "--accesslog-format=$alpn $client_port $status",
            "--no-ocsp",
            f"--errorlog-file={tmp_path}/error.log",
            str(certificates / "localhost.key"),
            str(certificates / "localhost.pem"),
        ],
        preexec_fn=die_with_parent(signal.SIGKILL),
    )
    try:
        driver.must_open(
            "hook",
            type="webhook",
            url=f"https://localhost:{port}/ok",
            allow_private=True,
            ca_file=str(certificates / "localhost.pem"),
            secret=SECRET,
        )
        deadline = time.monotonic() + 60
        while driver.deliver("hook")["kind"] != "ok":  # until it accepts connections
            assert time.monotonic() < deadline and proxy.poll() is None
        tags = [driver.send("hook", payload={"n": n}) for n in range(40)]
        driver.wait(len(tags))
        assert {driver.outcomes[tag]["kind"] for tag in tags} == {"ok"}
        assert {json.loads(one["body"])["n"] for one in receiver.requests[-40:]} == set(range(40))
        assert all("2 nghttpx" in one["headers"]["via"] for one in receiver.requests)
    finally:
        proxy.terminate()
        proxy.wait(20)
    spoken = [line.split() for line in log.read_text().splitlines()]
    assert {line[0] for line in spoken} == {"h2"} and len({line[1] for line in spoken}) == 1


def test_d1_a_name_server_that_hangs_holds_up_nobody(receiver, tmp_path):
    """The name server never replies: other destinations are not affected, and nothing was sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        try:
            address = f"127.0.{os.getpid() % 250}.99"  # not used by other tests
            silent.bind((address, 53))
        except OSError as error:
            pytest.skip(f"port 53 cannot be had: {error}")
        (tmp_path / "resolv.conf").write_text(f"nameserver {address}\n")
        driver = Driver(
            inside=[
                "unshare",
                "--mount",
                "sh",
                "-c",
                f'mount --bind {tmp_path}/resolv.conf "$(readlink -f /etc/resolv.conf)" && exec "$0"',
            ]
        )
        driver.must_open("dark", type="webhook", url="https://dark.example/hook")
        driver.must_open("well", type="webhook", url=f"http://127.0.0.1:{receiver.port}/ok", allow_private=True)
        dark = [driver.send("dark", timeout_ms=2000) for _ in range(5)]
        well = [driver.send("well") for _ in range(100)]
        driver.wait(len(well) + len(dark))
        assert {driver.outcomes[tag]["kind"] for tag in well} == {"ok"}
        assert next(iter(driver.outcomes)) in well, "the others did not wait for them"
        for tag in dark:
            outcome = driver.outcomes[tag]
            assert outcome["kind"] == "failed" and outcome["surely_not_sent"] and not outcome["permanent"], outcome
        silent.settimeout(5)
        assert b"dark" in silent.recv(512), "the name was really asked for"
        driver.end()


def test_d1_header_that_would_split_the_request_is_refused(driver, receiver):
    driver.must_open("hook", type="webhook", url=receiver.url("/ok"), allow_private=True)
    for header in (
        {"x-a": "b\r\nx-c: d"},
        {"x a": "b"},
        {"Host": "evil"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
    ):
        outcome = driver.deliver("hook", headers=header)
        assert outcome["kind"] == "failed" and outcome["permanent"] and outcome["surely_not_sent"]
    outcome = driver.deliver("hook", idempotency_key="a\nb")
    assert outcome["permanent"]
    assert receiver.requests == []


def test_d8_cloudevents(driver, receiver):
    message = {"org_id": "acme", "aggregate_type": "order", "aggregate_id": "o 1", "payload_text": '{"b": 2, "a": 1.0}'}
    for mode in ("binary", "structured"):
        driver.must_open(
            mode,
            type="webhook",
            url=receiver.url("/ok"),
            allow_private=True,
            envelope=f"cloudevents-{mode}",
            secret=SECRET,
        )
        assert driver.deliver(mode, **message)["kind"] == "ok"
    binary, structured = receiver.requests
    assert binary["body"] == b'{"b": 2, "a": 1.0}'
    assert binary["headers"]["ce-id"] == EVENT_ID
    assert binary["headers"]["ce-subject"] == "order/o%201"
    event = json.loads(structured["body"])
    assert structured["headers"]["content-type"].startswith("application/cloudevents+json")
    assert (event["specversion"], event["id"], event["type"]) == ("1.0", EVENT_ID, "order.created")
    assert event["data"] == {"b": 2, "a": 1.0} and event["source"] == "/outlog/acme"
    assert verify(binary, SECRET) and verify(structured, SECRET)


def test_d1_request_payload_names_the_request(driver, receiver):
    driver.must_open("call", type="webhook", request="payload", allow_private=True, allow_hosts=[receiver.host])
    payload = {
        "url": receiver.url("/ok/orders"),
        "method": "PUT",
        "headers": {"Authorization": "Bearer token", "X-Idempotency-Key": "loses"},
        "body": {"order_id": "order-123"},
        "idempotency_key": "run-456",
    }
    assert driver.deliver("call", payload=payload)["kind"] == "ok"
    [request] = receiver.requests
    assert (request["method"], request["path"]) == ("PUT", "/ok/orders")
    assert request["headers"]["authorization"] == "Bearer token"
    assert request["headers"]["x-idempotency-key"] == request["headers"]["idempotency-key"] == "run-456"
    assert json.loads(request["body"]) == {"order_id": "order-123"}
    for bad in (
        {**payload, "url": f"http://127.0.0.2:{receiver.port}/ok"},  # not in allow_hosts
        {**payload, "url": "ftp://localhost/"},
        {**payload, "method": "TRACE"},
        {"body": 1},
        {**payload, "extra": 1},
        [],
        {**payload, "headers": {"a": "b\nc"}},
    ):
        outcome = driver.deliver("call", payload=bad)
        assert outcome["kind"] == "failed" and outcome["permanent"] and outcome["surely_not_sent"]
    assert len(receiver.requests) == 1


def test_d3_sor_posts_the_change_with_its_provenance(driver, receiver):
    driver.must_open("sor", type="sor", url=receiver.url("/ok"), allow_private=True)
    payload = {
        "entity_type": "CASE",
        "entity_id": "case-1",
        "change": {"status": "IN_PROGRESS", "a": [1, 2]},
        "evidence_pack": {"e": 1},
    }
    for _ in range(2):
        assert driver.deliver("sor", org_id="acme", payload=payload)["kind"] == "ok"
    first, second = receiver.requests
    normal = json.dumps(payload["change"], sort_keys=True, separators=(",", ":"))
    assert json.loads(first["body"]) == {
        "org_id": "acme",
        **payload,
        "source_id": "orchestrator:k-1",
        "source_hash": hashlib.sha256(normal.encode()).hexdigest(),
        "timestamp": "2026-01-04T12:05:00.000001Z",
        "inference": False,
    }
    assert first["body"] == second["body"]  # the same on every attempt, byte for byte
    assert first["headers"]["idempotency-key"] == "k-1"
    for bad in ({}, [], {**payload, "change": 1}, {**payload, "x": 1}, {"entity_type": "CASE"}):
        assert driver.deliver("sor", payload=bad)["permanent"]


# --- mail ----------------------------------------------------------------------------------------------


@pytest.fixture
def mail_server():
    it = MailServer()
    yield it
    it.end()


def mail(to="c@x.example", **fields):
    return {"to": [to] if isinstance(to, str) else to, "subject": "Order", "body_html": "<p>hi</p>", **fields}


def test_d2_mail_arrives_as_it_was_meant(driver, mail_server):
    driver.must_open(
        "mail",
        type="smtp",
        url=f"smtp://127.0.0.1:{mail_server.port}",
        tls="none",
        **{"from": "Shop & Söhne <shop@a.example>"},
    )
    payload = mail(
        ["c@x.example", "Dé <d@x.example>"],
        subject="Grüße – 1/2 €" * 9,
        body_text=".\r\n.dots\nand ünïcode\n" + "long " * 500,
        cc="e@x.example",
        reply_to="r@x.example",
        body_html="<p>.hi</p>\r\n.\r\nQUIT\r\n",
    )
    outcome = driver.deliver("mail", payload=payload, headers={"X-Tag": "ünique", "To": "z@x.example"})
    assert outcome["kind"] == "ok", outcome
    [envelope] = mail_server.mails
    assert envelope.mail_from == "shop@a.example"
    assert envelope.rcpt_tos == ["c@x.example", "d@x.example", "e@x.example"]
    it = email.message_from_bytes(envelope.content, policy=email.policy.default)
    assert it["subject"] == payload["subject"]
    assert it["from"].addresses[0].display_name == "Shop & Söhne"
    assert it["to"].addresses[1].display_name == "Dé" and len(it["to"].addresses) == 2
    assert it["cc"] == "e@x.example" and it["reply-to"] == "r@x.example"
    assert it["x-tag"] == "ünique"
    parts = list(it.iter_parts())
    assert [part.get_content_type() for part in parts] == ["text/plain", "text/html"]
    assert parts[0].get_payload(decode=True).decode() == payload["body_text"]
    assert parts[1].get_payload(decode=True).decode() == payload["body_html"]
    assert not it.defects and re.fullmatch(r"<[0-9a-f]{40}@a\.example>", it["message-id"])


def test_d2_message_id_is_the_same_on_every_attempt(driver, mail_server):
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{mail_server.port}", tls="none", **{"from": "a@a.example"}
    )
    for key in ("k-1", "k-1", "k-2"):
        assert driver.deliver("mail", payload=mail(), idempotency_key=key)["kind"] == "ok"
    ids = [email.message_from_bytes(it.content)["message-id"] for it in mail_server.mails]
    assert ids[0] == ids[1] != ids[2]
    assert mail_server.connections == 1  # kept and reused


@pytest.mark.parametrize(
    "to,permanent,status",
    [
        ("450@x.example", False, 450),
        ("550@x.example", True, 550),
        ("data451@x.example", False, 451),
        ("data554@x.example", True, 554),
    ],
)
def test_r2_smtp_refusals(driver, mail_server, to, permanent, status):
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{mail_server.port}", tls="none", **{"from": "a@a.example"}
    )
    outcome = driver.deliver("mail", payload=mail(to))
    assert (outcome["kind"], outcome["status"]) == ("failed", status)
    assert outcome["permanent"] == permanent and outcome["surely_not_sent"]
    assert "scripted" in outcome["error"]
    assert driver.deliver("mail", payload=mail())["kind"] == "ok"  # the next one is fine


def test_d2_one_refused_recipient_means_nobody_gets_it(driver, mail_server):
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{mail_server.port}", tls="none", **{"from": "a@a.example"}
    )
    outcome = driver.deliver("mail", payload=mail(["c@x.example", "550@x.example"]))
    assert outcome["kind"] == "failed" and outcome["permanent"]
    assert mail_server.mails == []


@pytest.mark.parametrize("to", ["hang@x.example", "cut@x.example"])
def test_d2_no_reply_after_the_body_is_unknown(driver, mail_server, to):
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{mail_server.port}", tls="none", **{"from": "a@a.example"}
    )
    outcome = driver.deliver("mail", payload=mail(to), timeout_ms=2000)
    assert outcome["kind"] == "unknown" and not outcome["surely_not_sent"], outcome


def test_d2_starttls_and_login(driver, certificates):
    logins = []

    def authenticator(server, session, envelope, mechanism, data):
        logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"p@ss word", handled=False)

    server = MailServer(
        require_starttls=True,
        tls_context=context(certificates, "localhost"),
        authenticator=authenticator,
        auth_required=True,
    )
    try:
        common = {"type": "smtp", "from": "a@a.example", "ca_file": str(certificates / "localhost.pem")}
        driver.must_open("mail", url=f"smtp://bob:p%40ss%20word@localhost:{server.port}", **common)
        assert driver.deliver("mail", payload=mail())["kind"] == "ok"
        assert logins == [(b"bob", b"p@ss word")] and len(server.mails) == 1
        driver.must_open("wrong", url=f"smtp://localhost:{server.port}", user="bob", password="hunter22", **common)
        outcome = driver.deliver("wrong", payload=mail())
        assert outcome["kind"] == "failed" and outcome["surely_not_sent"], outcome
        assert not outcome["permanent"]  # the operator's mistake, not the mail's
        assert "hunter22" not in json.dumps(outcome)
    finally:
        server.end()


def test_d2_tls_is_required_and_verified(driver, certificates, mail_server):
    driver.must_open(
        "plain", type="smtp", url=f"smtp://localhost:{mail_server.port}", **{"from": "a@a.example"}
    )  # the server offers no STARTTLS
    outcome = driver.deliver("plain", payload=mail())
    assert outcome["kind"] == "failed" and outcome["surely_not_sent"]
    wrong = MailServer(require_starttls=True, tls_context=context(certificates, "wrong.example"))
    try:
        driver.must_open(
            "wrong",
            type="smtp",
            url=f"smtp://localhost:{wrong.port}",
            ca_file=str(certificates / "wrong.example.pem"),
            **{"from": "a@a.example"},
        )
        outcome = driver.deliver("wrong", payload=mail())
        assert outcome["kind"] == "failed" and outcome["surely_not_sent"]
        assert mail_server.mails == wrong.mails == []
    finally:
        wrong.end()


def test_d2_smtps(driver, certificates):
    server = MailServer(implicit_tls=context(certificates, "localhost"))
    try:
        driver.must_open(
            "mail",
            type="smtp",
            url=f"smtps://localhost:{server.port}",
            ca_file=str(certificates / "localhost.pem"),
            **{"from": "a@a.example"},
        )
        assert driver.deliver("mail", payload=mail())["kind"] == "ok"
        assert len(server.mails) == 1
    finally:
        server.end()


def test_d2_injection_reaches_no_server(driver, mail_server):
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{mail_server.port}", tls="none", **{"from": "a@a.example"}
    )
    for bad in (
        mail("c@x.example>\r\nRCPT TO:<e@x.example"),
        mail(subject="a\r\nBcc: e@x.example"),
        mail("c@x.example\nd@x.example"),
        mail(reply_to="a\r\n@x.example"),
        {"to": []},
        [],
    ):
        outcome = driver.deliver("mail", payload=bad)
        assert outcome["kind"] == "failed" and outcome["permanent"] and outcome["surely_not_sent"]
    assert mail_server.connections == 0
    error = driver.open("bad", type="smtp", url="smtp://h", **{"from": "a@b\r\nx"})["error"]
    assert "from" in error


# --- programs ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script, kind",
    [
        ("exec yes", "unknown"),
        ("for i in 1 2 3 4 5 6; do cat /dev/zero & done; cat /dev/zero", "unknown"),
        ("trap '' TERM INT HUP; while :; do echo still here; done", "unknown"),
        ("setsid yes & exit 0", "ok"),
        ("yes & exit 65", "failed"),
        ("exec >&- 2>&-; sleep 600", "unknown"),
    ],
)
def test_d6_a_program_that_writes_without_end_holds_up_nobody(driver, script, kind):
    """It is killed at its deadline; a process that it left behind ends with its first write to the closed pipe."""
    driver.must_open("loud", type="exec", command=["/bin/sh", "-c", script])
    driver.must_open("calm", type="exec", command=["/bin/cat"])
    loud = [driver.send("loud", timeout_ms=1500) for _ in range(3)]
    calm = [driver.send("calm") for _ in range(5)]
    driver.wait(8)
    assert {driver.outcomes[tag]["kind"] for tag in loud} == {kind}
    assert [driver.outcomes[tag]["kind"] for tag in calm] == ["ok"] * 5
    assert all(len(driver.outcomes[tag]["response"] or "") <= 4096 for tag in loud)


# --- mail servers that never end -------------------------------------------------------------------------

ENDLESS_MAIL = {
    "greeting": {},
    "EHLO": {"greeting": b"220 hi\r\n"},
    "MAIL": {"greeting": b"220 hi\r\n", "EHLO": b"250 hi\r\n"},
    ".": {
        "greeting": b"220 hi\r\n",
        "EHLO": b"250 hi\r\n",
        "MAIL": b"250 ok\r\n",
        "RCPT": b"250 ok\r\n",
        "DATA": b"354 go\r\n",
    },
}


@pytest.mark.parametrize("line", [b"250-more\r\n" * 10_000, b"250 " + b"x" * 100_000], ids=["lines", "line"])
@pytest.mark.parametrize("where", ENDLESS_MAIL)
@pytest.mark.parametrize("receiver", ["127.0.0.1"], indirect=True, ids=["others"])
def test_d2_a_mail_server_that_never_ends_its_reply_is_given_up(driver, receiver, where, line):
    """Other destinations are served meanwhile."""
    listener, poured = socket.create_server(("127.0.0.1", 0)), [0]

    def pour(link):
        while poured[0] < Receiver.MOST_POURED:
            link.sendall(line)
            poured[0] += len(line)

    def talk(link):
        with link, link.makefile("rb") as stream:
            known, word = ENDLESS_MAIL[where], "greeting"
            while word in known:
                link.sendall(known[word])
                asked = stream.readline()
                while word == "DATA" and asked not in (b".\r\n", b""):
                    asked = stream.readline()
                word = asked.decode().strip().split(" ")[0].split(":")[0]
            pour(link)

    def serve():
        with contextlib.suppress(OSError):
            while True:
                link, _ = listener.accept()
                with contextlib.suppress(OSError):
                    talk(link)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    driver.must_open(
        "mail", type="smtp", url=f"smtp://127.0.0.1:{listener.getsockname()[1]}", tls="none", **{"from": "a@x.example"}
    )
    driver.must_open("well", type="webhook", url=receiver.url("/ok"), allow_private=True)
    endless = driver.send("mail", payload=mail())
    well = driver.send("well")
    driver.wait(2)
    outcome = driver.outcomes[endless]
    assert driver.outcomes[well]["kind"] == "ok"
    assert outcome["kind"] == ("unknown" if where == "." else "failed") and not outcome["permanent"], outcome
    assert poured[0] < Receiver.MOST_POURED / 2
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_d2_dead_mail_server_was_surely_not_sent(driver):
    port = free_port()
    driver.must_open("mail", type="smtp", url=f"smtp://127.0.0.1:{port}", tls="none", **{"from": "a@a.example"})
    outcome = driver.deliver("mail", payload=mail())
    assert outcome["kind"] == "failed" and outcome["surely_not_sent"] and not outcome["permanent"]
