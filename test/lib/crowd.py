"""Many people who talk at once over /v1/sessions/{key}/socket, and lose their connections all the time.

    crowd = Crowd(lambda: server.port, people=100, words=3, seed=1)
    crowd.start()                     # in a thread of its own, with an agent at crowd.agent_url
    …kill what can be killed…
    crowd.wait_until_heard(seconds)   # everybody saw all answers
    crowd.go_on()                     # while nobody is connected: one word more, and nothing acknowledged twice
    crowd.stop()

One person has one session and says `words` messages, each again under its requestId until it is accepted. What
was sent is acknowledged, unless the connection is cut just before; at last once only, so that an ack that the server
drops is not made good by the next. The agent never says the same thing twice,
so that a second answer to a message could not pass for the first. What is wrong in itself is in `wrongs`.
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
    """A WebSocket client in as few steps as possible."""

    def __init__(self, reader, writer):
        self.reader, self.writer = reader, writer

    @classmethod
    async def open(cls, port, path):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write((f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\n"
                      f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n"
                      "Sec-WebSocket-Version: 13\r\n\r\n").encode())
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
                size, = struct.unpack("!H", await self.reader.readexactly(2))
            elif size == 127:
                size, = struct.unpack("!Q", await self.reader.readexactly(8))
            body = await self.reader.readexactly(size)
            if first & 15 == 1:
                return json.loads(body)
            if first & 15 == 8:
                raise ConnectionError("closed")

    def cut(self):
        """Gone without a word: what was written may or may not arrive."""
        self.writer.transport.abort()


class Person:
    def __init__(self, crowd, number):
        self.crowd, self.number = crowd, number
        self.key = f"u-{number}:helper:t"
        self.chance = random.Random(f"{crowd.seed}/{number}")
        self.accepted = {}   # requestId: seq
        self.heard = []      # (effect_id, requestId), in the order in which they were first seen
        self.contents = {}   # effect_id: content
        self.cuts = self.repeats = self.errors = 0

    async def live(self):
        while not self.crowd.is_over:
            try:
                await self.connect()
            except (OSError, EOFError, asyncio.TimeoutError):
                await asyncio.sleep(self.chance.uniform(0.05, 0.4))

    async def connect(self):
        epoch = self.crowd.epoch
        socket = await Socket.open(self.crowd.port(), f"/v1/sessions/{self.key}/socket")
        try:
            self.say(socket)
            while not self.crowd.is_over:
                self.take(socket, epoch, await asyncio.wait_for(socket.next(), 60))
        finally:
            socket.cut()

    def say(self, socket):
        """The next words; now and then twice, or two at once."""
        left = [n for n in range(self.crowd.words) if f"r-{n}" not in self.accepted]
        for n in left[:self.chance.choice((1, 1, 2))]:
            socket.send({"type": "user_message", "requestId": f"r-{n}", "text": f"{self.number}/{n}"})

    def take(self, socket, epoch, frame):
        self.crowd.frames += 1
        if frame["type"] == "accepted":
            known = self.accepted.setdefault(frame["requestId"], frame["seq"])
            if known != frame["seq"]:
                self.crowd.wrong(f"{self.key} {frame['requestId']}: accepted as {known} and {frame['seq']}")
            self.say(socket)
        elif frame["type"] == "send_message":
            is_new = self.hear(frame, epoch)
            if not self.crowd.is_calm and self.chance.random() < self.crowd.cut_chance:
                self.cuts += 1
                raise ConnectionError("cut before the ack")
            if is_new or not self.crowd.acks_once:
                socket.send({"type": "ack", "effect_id": frame["effect_id"]})
        elif frame["type"] == "error":
            self.errors += 1
            if frame["code"] not in ("unavailable", "outcome_unknown"):
                self.crowd.wrong(f"{self.key}: {frame}")
            raise ConnectionError("try again")
        if not self.crowd.is_calm and self.chance.random() < self.crowd.cut_chance / 4:
            self.cuts += 1
            raise ConnectionError("cut at any time")

    def hear(self, frame, epoch):
        """Is it new?"""
        effect_id = frame["effect_id"]
        if self.crowd.completed.get(effect_id, epoch + 1) <= epoch:
            self.crowd.wrong(f"{self.key}: {effect_id} was sent although it had been acknowledged")
        if effect_id in self.contents:
            self.repeats += 1
            if self.contents[effect_id] != frame["content"]:
                self.crowd.wrong(f"{self.key}: {effect_id} says something else than before")
            return False
        self.contents[effect_id] = frame["content"]
        self.heard.append((effect_id, frame["requestId"]))
        if self.has_heard_all():
            self.crowd.done += 1
        return True

    def has_heard_all(self):
        return len(self.heard) >= self.crowd.words


class Crowd:
    def __init__(self, port, people, words, seed, cut_chance=0.2):
        self.port, self.words, self.seed, self.cut_chance = port, words, seed, cut_chance
        self.people = [Person(self, number) for number in range(people)]
        self.wrongs, self.completed, self.epoch = [], {}, 0
        self.done = self.frames = self.asked = 0
        self.is_over = self.is_calm = self.acks_once = False
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

    def wait_until_heard(self, seconds):
        end = time.monotonic() + seconds
        while self.done < len(self.people) and time.monotonic() < end:
            time.sleep(0.05)
        return self.done

    def calm(self):
        """No more cuts."""
        self.is_calm = True

    def go_on(self):
        self.acks_once, self.done = True, 0
        self.words += 1

    def stop(self):
        self.is_over = True
        self._begin.set()
        self._thread.join(30)
        assert not self._thread.is_alive()

    def wrong(self, what):
        if len(self.wrongs) < 20:
            self.wrongs.append(what)

    # inside

    async def _run(self):
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=512)
        self.agent_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        self._begin = threading.Event()
        self._ready.set()
        while not self._begin.is_set():
            await asyncio.sleep(0.02)
        lives = [asyncio.ensure_future(person.live()) for person in self.people]
        while not self.is_over:
            await asyncio.sleep(0.05)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        server.close()

    _runs = itertools.count(1)

    async def _answer(self, reader, writer):
        """One question over HTTP, answered word by word."""
        with contextlib.suppress(OSError, EOFError, ValueError):
            head = await reader.readuntil(b"\r\n\r\n")
            size = next(int(line.split(b":")[1]) for line in head.split(b"\r\n")
                        if line.lower().startswith(b"content-length:"))
            question = json.loads(await reader.readexactly(size))
            self.asked += 1
            words = ["you said ", question["text"], f", answer {next(self._runs)}"]
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\nconnection: close\r\n\r\n")
            for word in words:
                writer.write(json.dumps({"token": word}).encode() + b"\n")
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b'{"checkpoint":{"seq":%d}}\n' % question["seq"])
            await writer.drain()
        writer.close()
