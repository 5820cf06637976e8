"""`outlog serve` as a process, and a client that sees every byte of its answers.

    server = serve("--dev")                      # the fixture; its store is the test's
    status, body = server.get("/v1/events")
    server.call("POST", "/v1/messages", {...}, token=t, headers={"idempotency-key": "k"})
"""
import http.client
import json
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading

from lib.cli import SANITIZER_EXIT, build_dir
from lib.outbox import wait_for
from lib.postgres import die_with_parent, free_port

READY = re.compile(r"https?://(\S+):(\d+)/")


class Answer:
    """status, headers (lower case), body (bytes), json."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The stable code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        problem = self.json
        assert problem["status"] == self.status
        return problem["code"]

    def __iter__(self):
        yield self.status
        yield self.json if self.body else None

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:2000]!r}"


class Server:
    def __init__(self, outlog, log, args, env=None, dev=True, files=None):
        self.outlog, self.log = outlog, pathlib.Path(log)
        self.args = [*(["--dev"] if dev else []), *args]
        self.env, self.files = env, files  # files: (soft, hard), how many it may open
        self.token = None  # sent unless a call says otherwise
        self._local = threading.local()
        self.port = 0
        self.start()

    def start(self, port=None):
        """On a port that nobody else takes while it is down."""
        port = port or free_port()
        self._out = open(self.log, "ab")
        self.process = subprocess.Popen(
            [build_dir() / "outlog", "serve", "--listen", f"127.0.0.1:{port}", *map(str, self.args)],
            stdout=subprocess.PIPE,
            stderr=self._out,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            env=self.outlog._env(self.env),
            cwd=self.outlog.cwd,
            preexec_fn=self._prepare(die_with_parent(signal.SIGKILL)),
        )
        line = self.process.stdout.readline()
        found = READY.search(line)
        assert found, f"{line!r}\n{self.log.read_text()[-3000:]}"
        self.port = int(found.group(2))

    def _prepare(self, first):
        def run():
            first()
            if self.files:
                resource.setrlimit(resource.RLIMIT_NOFILE, self.files)

        return run

    def lines(self):
        return self.log.read_text(errors="replace").splitlines()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self._out.close()

    def stop(self):
        """End it in order; a sanitizer's report fails the test."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("serve does not end on SIGTERM") from None
        self.process.stdout.close()
        self._out.close()
        assert self.process.returncode != SANITIZER_EXIT, self.log.read_text()[-5000:]
        return self.process.returncode

    # --- calls ---

    def _connection(self, timeout):
        connection = getattr(self._local, "connection", None)
        if connection is None or self._local.port != self.port:
            source = getattr(self._local, "source", None)
            connection = http.client.HTTPConnection("127.0.0.1", self.port, source_address=source)
            self._local.connection = connection
            self._local.port = self.port
        connection.timeout = timeout
        if connection.sock:
            connection.sock.settimeout(timeout)
        return connection

    def come_from(self, address):
        """This thread's next calls come from another address of the loopback network."""
        if getattr(self._local, "connection", None):
            self._local.connection.close()
        self._local.connection, self._local.source = None, (address, 0)

    def call(self, method, path, body=None, token=..., headers=None, timeout=30):
        """One request on this thread's connection; a dead connection is made anew once for reads."""
        headers = dict(headers or {})
        token = self.token if token is ... else token
        if token:
            headers["authorization"] = f"Bearer {token}"
        if body is not None and not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        if isinstance(body, str):
            body = body.encode()
        if body is not None:
            headers.setdefault("content-type", "application/json")
        connection = self._connection(timeout)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, data)

    def get(self, path, **more):
        return self.call("GET", path, **more)

    def post(self, path, body=None, **more):
        return self.call("POST", path, {} if body is None else body, **more)

    def put(self, path, body=None, **more):
        return self.call("PUT", path, {} if body is None else body, **more)

    def delete(self, path, **more):
        return self.call("DELETE", path, **more)

    def raw(self, data, timeout=10, end=True):
        """Bytes in, all bytes out, until the server closes or says nothing for a while."""
        with socket.create_connection(("127.0.0.1", self.port), timeout) as link:
            link.sendall(data)
            if end:
                link.shutdown(socket.SHUT_WR)
            out = b""
            while True:
                try:
                    chunk = link.recv(65536)
                except (TimeoutError, ConnectionResetError):
                    return out
                if not chunk:
                    return out
                out += chunk

    def append(self, org, number=1, **more):
        """Append events `t` of the aggregate (thing, 1); returns their ids."""
        body = {
            "org_id": org,
            "events": [
                {"aggregate_type": "thing", "aggregate_id": "1", "event_type": "t", "payload": {"n": n}, **more}
                for n in range(number)
            ],
        }
        status, result = self.post("/v1/events", body)
        assert status == 201, result
        return result["events"]

    def wait_message(self, event_id, state):
        def look():
            status, message = self.get(f"/v1/messages/{event_id}")
            return message if status == 200 and message["state"] == state else None

        return wait_for(look, f"{event_id} to be {state}")


class Stream:
    """One follower of /v1/events/stream."""

    def __init__(self, server, path="/v1/events/stream", token=None, last=None, timeout=30):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
        headers = {"authorization": f"Bearer {token}"} if token else {}
        if last is not None:
            headers["last-event-id"] = str(last)
        self.connection.request("GET", path, headers=headers)
        self.answer = self.connection.getresponse()
        self.status = self.answer.status

    def __iter__(self):
        """Events as (id, event)."""
        number = None
        for line in self.answer:
            line = line.rstrip(b"\n")
            if line.startswith(b"id: "):
                number = int(line[4:])
            elif line.startswith(b"data: "):
                yield number, json.loads(line[6:])

    def close(self):
        self.answer.close()
        self.connection.close()
