"""A TCP relay in front of PostgreSQL that fails on purpose.

    with Proxy(server.port) as proxy:
        log = Log(proxy.url(server.url("orders")))
        proxy.cut_at("commit", "reply")

It reads just enough of protocol 3 to know which SQL a client is about to run. One cut is armed at a
time and happens once; afterwards, and before, everything passes. Where the cut can be:

    request   the statement never reaches the server, which sees the connection end
    reply     the server has done it and answered; the client sees only the connection end
    held      the client sees the connection end; the server waits until release(), then gets it
    down      as reply, and nobody can connect again until down(False)
    away      as held, and nobody can connect again until down(False)
    deaf      the server has done it; this connection alone hears no more, nor that it ended
    lost      as deaf, but the statement never reaches the server
    mute      the server has done it; from here on nobody hears a word, nor that the connection ended

and without a statement: mute(), as a server does that is frozen, or a cable that was pulled.
"""
import contextlib
import re
import select
import socket
import struct
import threading

from lib.outbox import wait_for

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104


class Proxy:
    def __init__(self, port):
        self.server_port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.happened = threading.Event()
        self.refused = 0  # connections while it was down
        self._armed = None  # (pattern, where)
        self._is_down = False
        self._is_mute = False
        self._byte_limit = None  # reset both sides after so many bytes of the client
        self._release = threading.Event()
        self._released = threading.Event()
        self._sockets = []
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._release.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self._sockets:
            _close(one)

    def url(self, url):
        """The same database, through the proxy."""
        return url.replace(f":{self.server_port}/", f":{self.port}/")

    # What goes wrong

    def cut_at(self, sql, where):
        """Cut when the client runs a statement that contains `sql`."""
        self.happened.clear()
        self._armed = (re.compile(sql, re.I), where)

    def reset_after(self, count):
        """Reset the next new connection after `count` bytes of the client."""
        self.happened.clear()
        self._byte_limit = count

    def down(self, is_down=True):
        """Take no new connections, until down(False)."""
        self._is_down = is_down

    def mute(self):
        """Connections stay, new ones are taken, and nothing passes any more."""
        self._is_mute = True

    def release(self):
        """Let the server have what was held, and wait until it has answered it."""
        self._release.set()
        assert self._released.wait(30)

    def lose_answers(self, sql, where, receiver, history, times=3):
        """Cut the relay's connection under load, and see that it goes on. Where it is `down`, it finds
        nobody at first."""
        for _ in range(times):
            refused = self.refused
            self.cut_at(sql, where)
            history.fault("cut")
            assert self.happened.wait(30)
            before = receiver.count()
            if where == "down":
                wait_for(lambda: self.refused > refused + 2, "several attempts to connect")
                self.down(False)
            wait_for(lambda: receiver.count() > before + 20, "deliveries after the cut")
            history.fault("healed")

    # Inside

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            try:
                if self._is_down:
                    self.refused += 1
                    raise OSError
                server = socket.create_connection(("127.0.0.1", self.server_port))
            except OSError:
                _close(client)
                continue
            self._sockets += [client, server]
            threading.Thread(target=self._relay, args=(client, server), daemon=True).start()

    def _relay(self, client, server):
        front = _Frontend()
        with self._lock:
            limit, self._byte_limit = self._byte_limit, None
        passed = 0
        with contextlib.suppress(OSError, ValueError):  # ValueError: closed by __exit__ meanwhile
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        raise ConnectionResetError
                    if self._is_mute:
                        return
                    if ready is server:
                        client.sendall(data)
                        continue
                    if limit is not None and passed + len(data) >= limit:
                        server.sendall(data[: limit - passed])
                        self.happened.set()
                        _reset(client)
                        _reset(server)
                        return
                    passed += len(data)
                    sql = front.feed(data)
                    where = self._wanted(sql)
                    if where is None:
                        server.sendall(data)
                    else:
                        self._cut(where, client, server, data)
                        return
        _close(client)
        _close(server)

    def _wanted(self, statements):
        with self._lock:
            if self._armed and any(self._armed[0].search(sql) for sql in statements):
                where, self._armed = self._armed[1], None
                return where
        return None

    def _cut(self, where, client, server, data):
        if where in ("mute", "deaf", "lost"):
            self._is_mute |= where == "mute"
            if where != "lost":
                server.sendall(data)
                _read_until_ready(server)
            self.happened.set()
            return
        if where in ("down", "away"):
            self._is_down = True
        if where in ("reply", "down"):
            server.sendall(data)
            _read_until_ready(server)
        if where in ("held", "away"):
            _close(client)
            self.happened.set()
            self._release.wait(30)
            with contextlib.suppress(OSError):  # the library may have ended that backend
                server.sendall(data)
                _read_until_ready(server)
            self._released.set()
        _close(client)
        _close(server)
        self.happened.set()


class _Frontend:
    """Follows the client's half of the protocol."""

    def __init__(self):
        self.buffer = b""
        self.is_started = False
        self.prepared = {}

    def feed(self, data):
        """The SQL of each statement that these bytes complete the wish to run."""
        self.buffer += data
        found = []
        while True:
            head = 1 if self.is_started else 0
            if len(self.buffer) < head + 4:
                return found
            size = head + struct.unpack_from("!I", self.buffer, head)[0]
            if len(self.buffer) < size:
                return found
            kind, body = self.buffer[:head], self.buffer[head + 4 : size]
            self.buffer = self.buffer[size:]
            if not self.is_started:
                self.is_started = struct.unpack_from("!I", body)[0] not in (SSL_REQUEST, GSS_REQUEST)
            elif kind == b"Q":
                found.append(_text(body))
            elif kind == b"P":
                name, sql = body.split(b"\0")[:2]
                self.prepared[name] = _text(sql)
            elif kind == b"B":
                found.append(self.prepared.get(body.split(b"\0")[1], ""))


def _text(body):
    return body.rstrip(b"\0").decode(errors="replace")


def _read_until_ready(server):
    """Read the answer to its end: ReadyForQuery, which says that the transaction is over."""
    buffer = b""
    while True:
        while len(buffer) >= 5:
            size = 1 + struct.unpack_from("!I", buffer, 1)[0]
            if len(buffer) < size:
                break
            if buffer[:1] == b"Z":
                return
            buffer = buffer[size:]
        data = server.recv(65536)
        if not data:
            return
        buffer += data


def _reset(one):
    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    one.close()


def _close(one):
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
