"""A WebSocket client (RFC 6455), as small as it can be: JSON text frames in and out."""
import base64
import json
import os
import socket
import struct
import urllib.parse


class WebSocket:
    """Opened by its constructor, which fails unless the server says 101; `early` is sent with the request, `room` is all that
    the kernel holds for it."""

    def __init__(self, base, path, headers=None, timeout=30, early=b"", room=None):
        at = urllib.parse.urlsplit(base)
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        if room:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.connect((at.hostname, at.port))
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {at.netloc}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}",
            "Sec-WebSocket-Version: 13",
            *(f"{name}: {value}" for name, value in (headers or {}).items()),
        ]
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + early)
        self.rest, head = b"", b""
        while b"\r\n\r\n" not in head:
            more = self.socket.recv(65536)
            assert more, head
            head += more
        head, _, self.rest = head.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            self.socket.close()
            raise AssertionError(head.split(b"\r\n")[0].decode())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def _take(self, count):
        while len(self.rest) < count:
            more = self.socket.recv(65536)
            assert more, "the server closed the socket"
            self.rest += more
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def _frame(self, kind, data):
        mask = os.urandom(4)
        size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + struct.pack("!H", len(data))
        self.socket.sendall(bytes([0x80 | kind]) + size + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def send(self, value):
        self._frame(1, json.dumps(value).encode())

    def receive(self):
        """The next text frame; pings are answered on the way."""
        while True:
            kind, size = self._take(2)
            if size == 126:
                size = struct.unpack("!H", self._take(2))[0]
            elif size == 127:
                size = struct.unpack("!Q", self._take(8))[0]
            data = self._take(size)
            if kind & 15 == 9:
                self._frame(10, data)
            elif kind & 15 == 8:
                raise AssertionError(f"closed: {data!r}")
            elif kind & 15 == 1:
                return json.loads(data)
