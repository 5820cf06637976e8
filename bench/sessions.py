"""Live sessions beside a bare echo server on the same libraries (libuv, wslay); scripts/bench runs it.

Every row's name begins with `sessions`. Messages are measured from `user_message` to `accepted`, which is said when
they are durable: beside an echo that only echoes, and beside one that first puts each message into the bare table, with the
columns and indexes of events and nothing else, all that waits in one transaction. Nobody answers meanwhile: the agent never
says a word.
"""
import contextlib
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading

SOCKETS, MANY_SOCKETS, WINDOW = 1000, 4000, 1
IDLE_SOCKETS, IDLE_MOST_MB = 2000, 64
MESSAGES_LEAST = 0.5
LISTENERS, TOKENS = 100, 2000
AGENT = 'import sys; sys.stdin.readline(); sys.stdout.write(\'{"token":"one word "}\\n\' * %d)' % TOKENS


class Sessions:
    def __init__(self, bench):
        self.bench, self.args = bench, bench.args
        self.programs = bench.build / "bench"

    def steps(self):
        return self.idle_sockets, self.messages, self.tokens

    def wants(self, name):
        return self.bench.wants(f"sessions {name}")

    def idle_sockets(self):
        for kind in ("sqlite", "postgres"):
            if not self.wants(f"{kind} idle sockets"):
                continue
            with self.bench.store(kind) as url, self.served(url) as (port, pid), subprocess.Popen(
                    [self.programs / "bench_talk", "hold", str(port), str(IDLE_SOCKETS)], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE) as crowd:
                assert json.loads(crowd.stdout.readline())["open"] == IDLE_SOCKETS
                resident = resident_mb(pid)
                crowd.stdin.close()
            yield {"name": f"sessions, {kind}: serve with {IDLE_SOCKETS:,} idle sockets, resident", "unit": "MB",
                   "value": resident, "most": IDLE_MOST_MB}

    def messages(self):
        for kind in ("sqlite", "postgres"):
            if self.wants(f"{kind} messages"):
                echo = self.compare(kind, SOCKETS, ["echo", "stored", "outlog"])
                yield self.bench.compared(f"sessions, {kind}: messages accepted, beside an echo", echo["outlog"], echo["echo"],
                                          MESSAGES_LEAST)
                yield self.bench.compared(f"sessions, {kind}: messages accepted, beside an echo that stores the row",
                                          echo["outlog"], echo["stored"], None)
                echo = self.compare(kind, MANY_SOCKETS, ["echo", "outlog"])
                yield self.bench.compared(f"sessions, {kind}: messages accepted, {MANY_SOCKETS:,} sockets, beside an echo",
                                          echo["outlog"], echo["echo"], MESSAGES_LEAST)

    def compare(self, kind, sockets, whom):
        """The rates of each, in turns."""
        rates = {name: [] for name in whom}
        for _ in range(self.args.rounds):
            with self.bench.store(kind) as url:
                for name in whom:
                    with self.started(name, url) as port:
                        rates[name].append(self.say(port, sockets))
        return rates

    def tokens(self):
        if not self.wants("tokens"):
            return
        rates = {"outlog": [], "echo": []}
        for _ in range(self.args.rounds):
            with self.echo() as port:
                rates["echo"].append(self.hear(port, f"fan {TOKENS}"))
            with self.bench.store("sqlite") as url, self.served(url, AGENT) as (port, _):
                rates["outlog"].append(self.hear(port, json.dumps(
                    {"type": "user_message", "requestId": "r-1", "text": "talk"})))
        yield self.bench.compared(f"sessions: tokens to {LISTENERS} sockets", rates["outlog"], rates["echo"], None)

    # What is run.

    @contextlib.contextmanager
    def started(self, name, url):
        with self.served(url) if name == "outlog" else self.echo(*([url] if name == "stored" else [])) as there:
            yield there[0] if name == "outlog" else there

    def say(self, port, sockets):
        done = self.bench.run(self.programs / "bench_talk", "say", port, sockets, WINDOW, int(self.args.seconds * 1000))
        if done["errors"]:
            sys.exit(f"bench: {done}")
        return done["per_second"]

    def hear(self, port, text):
        return self.bench.run(self.programs / "bench_talk", "hear", port, LISTENERS, TOKENS, text)["per_second"]

    @contextlib.contextmanager
    def echo(self, *store):
        with subprocess.Popen([self.programs / "bench_echo", *store], text=True, stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            yield json.loads(process.stdout.readline())["port"]
            process.stdin.close()

    @contextlib.contextmanager
    def served(self, url, program=None):
        """`outlog serve`: its port and process. Its agent is a program, or somebody who never answers."""
        with silence() as mute, tempfile.TemporaryDirectory() as folder:
            agent = {"type": "exec", "command": [sys.executable, "-c", program]} if program else {
                "type": "http", "url": mute, "timeout": "1h"}
            config = pathlib.Path(folder) / "outlog.json"
            config.write_text(json.dumps({"agents": {"helper": agent}}))
            process = subprocess.Popen(
                [self.bench.build / "outlog", "serve", "--dev", "--no-relay", "--store", url, "--config", config,
                 "--listen", "127.0.0.1:0"], text=True, stdout=subprocess.PIPE)
            try:
                line = ""
                while "http://" not in line:
                    line = process.stdout.readline()
                yield int(line.split("127.0.0.1:")[1].split("/")[0]), process.pid
            finally:
                process.terminate()
                process.wait(60)
                process.stdout.close()


@contextlib.contextmanager
def silence():
    """The URL of somebody who takes questions and never answers."""
    listener, taken = socket.create_server(("127.0.0.1", 0), backlog=64), []

    def take():
        with contextlib.suppress(OSError):
            while True:
                taken.append(listener.accept())
    threading.Thread(target=take, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    for one, _ in taken:
        one.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def resident_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)
