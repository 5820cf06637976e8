"""Many clients that send messages at once over /v1/sessions/{key}/socket, and lose their connections all the time.

    clients = ManySockets(lambda: server.port, count=100, messages=3, seed=1)
    clients.start()                   # in a thread of its own, with an agent at clients.agent_url
    …kill what can be killed…
    clients.wait_until_answered(seconds)   # every client received all answers
    clients.add_message()             # while none is connected: one message more, and each ack is sent once
    clients.stop()

Each client has one session and sends `messages` messages, each again under its requestId until it is accepted. It
acknowledges every answer, unless its connection is cut just before. After add_message() it acknowledges each answer only
once, so that an ack that the server drops is not repaired by the next. The agent never gives the same answer twice, so
that a second answer to a message cannot pass for the first. Frames that are wrong in themselves are in `violations`.
"""
import asyncio
import base64
import contextlib
import itertools
import json
import os
import random
import struct
import threading
import time


class Socket:
    """A minimal WebSocket client."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            (
                f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                "Sec-WebSocket-Version: 13\r\n\r\n"
            ).encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if b" 101 " not in head.split(b"\r\n", 1)[0]:
            writer.close()
            raise ConnectionError(head.decode(errors="replace"))
        return cls(reader, writer)

    def send(self, frame):
        body = json.dumps(frame).encode()
        size = bytes([0x80 | len(body)]) if len(body) < 126 else struct.pack("!BH", 0x80 | 126, len(body))
        self.writer.write(b"\x81" + size + b"\0\0\0\0" + body)  # a mask of zeros

    async def next(self):
        while True:
            first, size = await self.reader.readexactly(2)
            if size == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            body = await self.reader.readexactly(size)
            if first & 15 == 1:
                return json.loads(body)
            if first & 15 == 8:
                raise ConnectionError("closed")

    def cut(self):
        """Close without a close frame: what was written may or may not arrive."""
        self.writer.transport.abort()


class Client:
    def __init__(self, group, number):
        self.group, self.number = group, number
        self.key = f"u-{number}:helper:t"
        self.chance = random.Random(f"{group.seed}/{number}")
        self.accepted = {}  # requestId: seq
        self.answers = []  # (effect_id, requestId), in the order in which they were first seen
        self.contents = {}  # effect_id: content
        self.cuts = self.repeats = self.errors = 0

    async def run(self):
        while not self.group.is_over:
            try:
                await self.connect()
            except (OSError, EOFError, asyncio.TimeoutError):
                await asyncio.sleep(self.chance.uniform(0.05, 0.4))

    async def connect(self):
        epoch = self.group.epoch
        socket = await Socket.open(self.group.port(), f"/v1/sessions/{self.key}/socket")
        try:
            self.send_next(socket)
            while not self.group.is_over:
                self.handle(socket, epoch, await asyncio.wait_for(socket.next(), 60))
        finally:
            socket.cut()

    def send_next(self, socket):
        """The next message, or two at once; perhaps not for the first time."""
        left = [n for n in range(self.group.messages) if f"r-{n}" not in self.accepted]
        for n in left[: self.chance.choice((1, 1, 2))]:
            socket.send({"type": "user_message", "requestId": f"r-{n}", "text": f"{self.number}/{n}"})

    def handle(self, socket, epoch, frame):
        self.group.frames += 1
        if frame["type"] == "accepted":
            known = self.accepted.setdefault(frame["requestId"], frame["seq"])
            if known != frame["seq"]:
                self.group.report(f"{self.key} {frame['requestId']}: accepted as {known} and {frame['seq']}")
            self.send_next(socket)
        elif frame["type"] == "send_message":
            is_new = self.receive_answer(frame, epoch)
            if not self.group.has_no_cuts and self.chance.random() < self.group.cut_chance:
                self.cuts += 1
                raise ConnectionError("cut before the ack")
            if is_new or not self.group.acks_once:
                socket.send({"type": "ack", "effect_id": frame["effect_id"]})
        elif frame["type"] == "error":
            self.errors += 1
            if frame["code"] not in ("unavailable", "outcome_unknown"):
                self.group.report(f"{self.key}: {frame}")
            raise ConnectionError("try again")
        if not self.group.has_no_cuts and self.chance.random() < self.group.cut_chance / 4:
            self.cuts += 1
            raise ConnectionError("cut at any time")

    def receive_answer(self, frame, epoch):
        """Is it new?"""
        effect_id = frame["effect_id"]
        if self.group.completed.get(effect_id, epoch + 1) <= epoch:
            self.group.report(f"{self.key}: {effect_id} was sent although it had been acknowledged")
        if effect_id in self.contents:
            self.repeats += 1
            if self.contents[effect_id] != frame["content"]:
                self.group.report(f"{self.key}: {effect_id} has other content than before")
            return False
        self.contents[effect_id] = frame["content"]
        self.answers.append((effect_id, frame["requestId"]))
        if self.has_all_answers():
            self.group.done += 1
        return True

    def has_all_answers(self):
        return len(self.answers) >= self.group.messages


class ManySockets:
    def __init__(self, port, count, messages, seed, cut_chance=0.2):
        self.port, self.messages, self.seed, self.cut_chance = port, messages, seed, cut_chance
        self.clients = [Client(self, number) for number in range(count)]
        self.violations, self.completed, self.epoch = [], {}, 0
        self.done = self.frames = self.asked = 0
        self.is_over = self.has_no_cuts = self.acks_once = False
        self.agent_url, self._ready = None, threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def open_agent(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self.agent_url

    def start(self):
        self._begin.set()

    def note_completed(self, effect_ids):
        """These are known to be acknowledged: a connection that begins from now on must not get them."""
        self.epoch += 1
        for effect_id in effect_ids:
            self.completed.setdefault(effect_id, self.epoch)

    def wait_until_answered(self, seconds):
        end = time.monotonic() + seconds
        while self.done < len(self.clients) and time.monotonic() < end:
            time.sleep(0.05)
        return self.done

    def stop_cuts(self):
        """No more cuts."""
        self.has_no_cuts = True

    def add_message(self):
        self.acks_once, self.done = True, 0
        self.messages += 1

    def stop(self):
        self.is_over = True
        self._begin.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def report(self, what):
        if len(self.violations) < 20:
            self.violations.append(what)

    # internal

    async def _run(self):
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=512)
        self.agent_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        self._begin = threading.Event()
        self._ready.set()
        while not self._begin.is_set():
            await asyncio.sleep(0.02)
        tasks = [asyncio.ensure_future(client.run()) for client in self.clients]
        while not self.is_over:
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        server.close()

    _runs = itertools.count(1)

    async def _answer(self, reader, writer):
        """One question over HTTP, answered token by token."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(
                int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")
            )
            question = json.loads(await reader.readexactly(size))
            self.asked += 1
            tokens = ["you said ", question["text"], f", answer {next(self._runs)}"]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n")
            for token in tokens:
                writer.write(json.dumps({"token": token}).encode() + b"\n")
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b'{"checkpoint":{"seq":%d}}\n' % question["seq"])
            await writer.drain()
        writer.close()
