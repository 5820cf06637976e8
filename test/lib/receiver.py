"""A webhook receiver that remembers everything, and misbehaves when it is told to.

    with Receiver() as receiver:
        settings = {"type": "webhook", "url": receiver.url("billing"), "allow_private": True}
        receiver.rule("hang", key="k-1")            # until release()
        receiver.rule(500, type="order.paid", times=2)
        receiver.rule("reset", probability=0.1)

The newest rule that fits decides. What it can do:

    200, 404, 503 …   answer with this status (`headers` and `body` may be given)
    "slow"            answer 200 after `seconds`
    "hang"            no answer until release(), then what that says
    "reset"           the request was read; the connection is reset without an answer
    "refuse"          the same before it was read: nobody can say that it was delivered

Every request that was read is in `requests`, in the order of arrival; each says who it was (id,
destination, key, type, attempt), what came (body, its SHA-256), when, and how it was answered. The
last part of the path is the destination; the key is the header x-key, which the tests' messages carry
because an ordering key itself does not leave the store.
"""
import hashlib
import http.server
import random
import socket
import struct
import threading
import time


class Request:
    def __init__(self, number, destination, headers, body):
        self.number, self.destination, self.headers, self.body = number, destination, headers, body
        self.id = headers.get("webhook-id")
        self.type = headers.get("outlog-event-type")
        self.key = headers.get("x-key")
        self.idempotency_key = headers.get("idempotency-key")
        self.attempt = int(headers.get("outlog-attempt", 0))
        self.is_replay = headers.get("outlog-replay") == "true"
        self.sha256 = hashlib.sha256(body).hexdigest()
        self.key_number = 0  # 1, 2 … within its destination and key
        self.at = time.monotonic()
        self.ended_at = None  # when the answer was given, or the connection ended
        self.answer = None  # the status, "reset", or None while it hangs
        self.concurrent = 0  # others of its destination and key that were not answered yet

    def __repr__(self):
        return f"#{self.number} {self.destination}/{self.key} {self.id} attempt {self.attempt} " f"-> {self.answer}"

    def line(self):
        """For the history checker."""
        return {
            "from": "receiver",
            "t": self.at,
            "n": self.number,
            "id": self.id,
            "key": self.key,
            "destination": self.destination,
            "attempt": self.attempt,
            "body": self.sha256,
            "answer": self.answer,
            "ended": self.ended_at,
            "replay": self.is_replay,
        }


class Rule:
    def __init__(self, action, times, probability, match, more):
        self.action, self.times, self.probability = action, times, probability
        self.match, self.more = match, more

    def takes(self, request):
        if self.times == 0 or any(getattr(request, name) != wanted for name, wanted in self.match.items()):
            return False
        if self.probability < 1 and random.random() >= self.probability:
            return False
        if self.times is not None:
            self.times -= 1
        return True


class _Gate(threading.Event):
    """What hangs waits for the gate of its time; `answer` is what it is answered then."""

    answer = 200


class Receiver:
    def __init__(self, address="127.0.0.1"):
        self.address = address
        self.requests = []
        self._lock = threading.Lock()
        self._rules = []
        self._released = _Gate()
        self._open = {}  # (destination, key) -> requests without an answer
        self._counts = {}  # (destination, key) -> requests
        self._sockets = set()
        self._server = _Server((address, 0), _handler(self))
        self.port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        with self._lock:
            for one in self._sockets:
                try:
                    one.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def url(self, destination):
        return f"http://{self.address}:{self.port}/{destination}"

    # Orders

    def rule(self, action, times=None, probability=1.0, seconds=0.0, headers=None, body=b"", **match):
        """Treat requests that fit (id, destination, key, type, attempt) in this way from now on."""
        assert isinstance(action, int) or action in ("hang", "slow", "reset", "refuse"), action
        more = {"seconds": seconds, "headers": headers or {}, "body": body}
        rule = Rule(action, times, probability, match, more)
        with self._lock:
            self._rules.insert(0, rule)
        return rule

    def forget(self, *rules):
        """Without arguments: all rules."""
        with self._lock:
            self._rules = [one for one in self._rules if rules and one not in rules]

    def release(self, answer=200, forget=True):
        """Answer what hangs, and forget the rules, else what comes next hangs again."""
        with self._lock:
            if forget:
                self._rules = []
            self._released.answer = answer
            event, self._released = self._released, _Gate()
        event.set()

    # Questions

    def of(self, **match):
        """The requests that fit, in order of arrival."""
        with self._lock:
            return [one for one in self.requests if all(getattr(one, name) == wanted for name, wanted in match.items())]

    def ids(self, **match):
        return [one.id for one in self.of(**match)]

    def first_ids(self, **match):
        """Each message once, at its first arrival."""
        return list(dict.fromkeys(self.ids(**match)))

    def count(self, **match):
        return len(self.of(**match))

    def lines(self):
        with self._lock:
            return [one.line() for one in self.requests]

    # Inside

    def _decide(self, request):
        for rule in self._rules:
            if rule.takes(request):
                return rule
        return None

    def _note(self, destination, headers, body):
        with self._lock:
            request = Request(len(self.requests) + 1, destination, headers, body)
            rule = self._decide(request)
            if rule and rule.action == "refuse":
                return None, rule, None
            self.requests.append(request)
            place = (request.destination, request.key)
            waiting = self._open.setdefault(place, set())
            request.concurrent = len(waiting)
            waiting.add(request)
            if request.key:
                self._counts[place] = request.key_number = self._counts.get(place, 0) + 1
            return request, rule, self._released

    def _end(self, request, answer):
        with self._lock:
            request.answer, request.ended_at = answer, time.monotonic()
            self._open[(request.destination, request.key)].discard(request)

    def _serve(self, handler):
        body = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        request, rule, gate = self._note(handler.path.rsplit("/", 1)[-1], handler.headers, body)
        action = rule.action if rule else 200
        more = rule.more if rule else {"headers": {}, "body": b""}
        if action in ("reset", "refuse"):
            if request:
                self._end(request, "reset")
            handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            handler.connection.close()
            handler.close_connection = True
            return
        if action == "hang":
            gate.wait()
            action = gate.answer
        elif action == "slow":
            gate.wait(more["seconds"])
        status = action if isinstance(action, int) else 200
        self._end(request, status)
        head = "".join(f"{name}: {value}\r\n" for name, value in more["headers"].items())
        handler.wfile.write(
            f"HTTP/1.1 {status} told\r\ncontent-length: {len(more['body'])}\r\n" f"{head}\r\n".encode() + more["body"]
        )


class _Server(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_):
        pass  # the other side went away: that is what the tests do to it


def _handler(receiver):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def setup(self):
            super().setup()
            with receiver._lock:
                receiver._sockets.add(self.connection)

        def finish(self):
            with receiver._lock:
                receiver._sockets.discard(self.connection)
            try:
                super().finish()
            except (OSError, ValueError):
                pass

        def do_POST(self):
            try:
                receiver._serve(self)
            except (OSError, ValueError):
                self.close_connection = True

        def log_message(self, *_):
            pass

    return Handler
