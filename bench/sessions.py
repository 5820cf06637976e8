"""Live sessions compared with a bare echo server on the same libraries (libuv, wslay); scripts/bench runs it.

Row names begin with `sessions`. Messages are measured from `user_message` to `accepted`, which is sent when they are
durable: compared with a server that only echoes, and with one that first inserts each message into the bare table, with the
columns and indexes of events and nothing else, all waiting messages in one transaction. The agent never answers.
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
IDLE_SOCKETS, IDLE_MAX_MB = 2000, 64
MESSAGES_MIN = 0.5
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
                [self.programs / "bench_session_messages", "hold", str(port), str(IDLE_SOCKETS)],
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            ) as clients:
                assert json.loads(clients.stdout.readline())["open"] == IDLE_SOCKETS
                resident = resident_mb(pid)
                clients.stdin.close()
            yield {
                "name": f"sessions, {kind}: serve with {IDLE_SOCKETS:,} idle sockets, resident",
                "unit": "MB",
                "value": resident,
                "max": IDLE_MAX_MB,
            }

    def messages(self):
        for kind in ("sqlite", "postgres"):
            if self.wants(f"{kind} messages"):
                echo = self.compare(kind, SOCKETS, ["echo", "stored", "outlog"])
                yield self.bench.compared(
                    f"sessions, {kind}: messages accepted, beside an echo", echo["outlog"], echo["echo"], MESSAGES_MIN
                )
                yield self.bench.compared(
                    f"sessions, {kind}: messages accepted, beside an echo that stores the row",
                    echo["outlog"],
                    echo["stored"],
                    None,
                )
                echo = self.compare(kind, MANY_SOCKETS, ["echo", "outlog"])
                yield self.bench.compared(
                    f"sessions, {kind}: messages accepted, {MANY_SOCKETS:,} sockets, beside an echo",
                    echo["outlog"],
                    echo["echo"],
                    MESSAGES_MIN,
                )

    def compare(self, kind, sockets, subjects):
        """The rates of each subject, measured in turns."""
        rates = {name: [] for name in subjects}
        for _ in range(self.args.rounds):
            with self.bench.store(kind) as url:
                for name in subjects:
                    with self.started(name, url) as port:
                        rates[name].append(self.send(port, sockets))
        return rates

    def tokens(self):
        if not self.wants("tokens"):
            return
        rates = {"outlog": [], "echo": []}
        for _ in range(self.args.rounds):
            with self.echo() as port:
                rates["echo"].append(self.receive(port, f"fan {TOKENS}"))
            with self.bench.store("sqlite") as url, self.served(url, AGENT) as (port, _):
                rates["outlog"].append(
                    self.receive(port, json.dumps({"type": "user_message", "requestId": "r-1", "text": "talk"}))
                )
        yield self.bench.compared(f"sessions: tokens to {LISTENERS} sockets", rates["outlog"], rates["echo"], None)

    # Servers and clients.

    @contextlib.contextmanager
    def started(self, name, url):
        with self.served(url) if name == "outlog" else self.echo(*([url] if name == "stored" else [])) as there:
            yield there[0] if name == "outlog" else there

    def send(self, port, sockets):
        done = self.bench.run(
            self.programs / "bench_session_messages", "send", port, sockets, WINDOW, int(self.args.seconds * 1000)
        )
        if done["errors"]:
            sys.exit(f"bench: {done}")
        return done["per_second"]

    def receive(self, port, text):
        return self.bench.run(self.programs / "bench_session_messages", "receive", port, LISTENERS, TOKENS, text)[
            "per_second"
        ]

    @contextlib.contextmanager
    def echo(self, *store):
        with subprocess.Popen(
            [self.programs / "bench_echo_server", *store], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            yield json.loads(process.stdout.readline())["port"]
            process.stdin.close()

    @contextlib.contextmanager
    def served(self, url, program=None):
        """`outlog serve`: its port and process. Its agent is a program, or a server that never answers."""
        with silent_agent() as mute, tempfile.TemporaryDirectory() as folder:
            agent = (
                {"type": "exec", "command": [sys.executable, "-c", program]}
                if program
                else {"type": "http", "url": mute, "timeout": "1h"}
            )
            config = pathlib.Path(folder) / "outlog.json"
            config.write_text(json.dumps({"agents": {"helper": agent}}))
            process = subprocess.Popen(
                [
                    self.bench.build / "outlog",
                    "serve",
                    "--dev",
                    "--no-relay",
                    "--store",
                    url,
                    "--config",
                    config,
                    "--listen",
                    "127.0.0.1:0",
                ],
                text=True,
                stdout=subprocess.PIPE,
            )
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
def silent_agent():
    """The URL of an agent that accepts requests and never answers."""
    listener, accepted = socket.create_server(("127.0.0.1", 0), backlog=64), []

    def accept_requests():
        with contextlib.suppress(OSError):
            while True:
                accepted.append(listener.accept())

    threading.Thread(target=accept_requests, daemon=True).start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    for one, _ in accepted:
        one.close()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def resident_mb(pid):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ValueError(pid)
