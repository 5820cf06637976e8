"""`outlog serve` under load: appends and reads compared with the library, memory of followers, start-up time.

The load comes from bench_http_requests, one thread with 64 keep-alive connections; server, client and database share
the machine. Both sides of a comparison are durable and write the same events.
"""
import contextlib
import re
import signal
import statistics
import subprocess
import time
import urllib.request

CLIENTS, FOLLOWERS, FEED_EVENTS = 64, 1000, 100_000
RATIO_SINGLE_MIN, RATIO_BATCH_MIN, RATIO_PAGES_MIN, MAX_MB, MAX_MS = 2, 0.5, 0.5, 64, 200


class Http:
    def __init__(self, bench):
        self.bench, self.build = bench, bench.build

    def steps(self):
        return self.appends, self.pages, self.followers, self.ready

    @contextlib.contextmanager
    def serving(self, url, *args):
        with subprocess.Popen(
            [self.build / "outlog", "serve", "--dev", "--no-relay", "--listen", "127.0.0.1:0", "--store", url, *args],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield int(re.search(r":(\d+)/", process.stdout.readline()).group(1)), process
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait(30)

    def load(self, *args):
        return self.bench.run(self.build / "bench" / "bench_http_requests", *args)["per_second"]

    def kinds(self, name):
        return [kind for kind in ("postgres", "sqlite") if self.bench.wants(f"{kind}: {name}")]

    # --- appends

    def append_http(self, kind, ms):
        with self.bench.store(kind) as url, self.serving(url) as (port, _):
            return self.load("append", port, CLIENTS, ms)

    def append_library(self, kind, subject, writers, batch, ms):
        with self.bench.store(kind) as url:
            return self.bench.run(self.build / "bench" / "bench_append", subject, url, writers, batch, ms)["per_second"]

    def appends(self):
        name = f"http append, {CLIENTS} clients, one event a request"
        ms = int(self.bench.args.seconds * 1000)
        for kind in self.kinds(name):
            ours, single, batch = [], [], []
            for _ in range(self.bench.args.rounds):
                ours.append(self.append_http(kind, ms))
                # One transaction each: as many writers as there are clients where the store takes them
                single.append(self.append_library(kind, "each", CLIENTS if kind == "postgres" else 1, 1, ms))
                batch.append(self.append_library(kind, "outlog", 1, 100, ms))
            yield self.bench.compared(f"{kind}: {name}, beside one transaction each", ours, single, RATIO_SINGLE_MIN)
            yield self.bench.compared(
                f"{kind}: {name}, beside batches of 100 by the library", ours, batch, RATIO_BATCH_MIN
            )

    # --- pages

    def pages(self):
        """One reader waits for each page; several keep the server busy."""
        name = "http pages of 1,000 events"
        for kind in self.kinds(name):
            with self.bench.store(kind) as url:
                feed = self.build / "bench" / "bench_feed"
                self.bench.run(feed, "fill", url, FEED_EVENTS)
                one, four, library = [], [], []
                with self.serving(url) as (port, _):
                    for _ in range(self.bench.args.rounds):
                        one.append(self.load("read", port, 1, FEED_EVENTS))
                        four.append(self.load("read", port, 4, FEED_EVENTS))
                        library.append(self.bench.run(feed, "outlog", url)["per_second"])
            yield self.bench.compared(f"{kind}: {name}, 4 readers", four, library, RATIO_PAGES_MIN)
            yield self.bench.compared(f"{kind}: {name}, 1 reader", one, library, RATIO_PAGES_MIN)

    # --- memory, and the start

    def followers(self):
        name = f"http, {FOLLOWERS} idle followers"
        for kind in self.kinds(name):
            with self.bench.store(kind) as url, self.serving(url) as (port, process):
                with subprocess.Popen(
                    [self.build / "bench" / "bench_http_requests", "follow", str(port), str(FOLLOWERS)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                ) as client:
                    assert client.stdout.readline()
                    time.sleep(1)
                    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
                        resident = int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) / 1024
                    client.stdin.close()
            yield {"name": f"{kind}: {name}, resident", "unit": "MB", "value": resident, "max": MAX_MB}

    def ready(self):
        name = "http, from the start to ready"
        for kind in self.kinds(name):
            with self.bench.store(kind) as url:
                self.bench.run(self.build / "bench" / "bench_feed", "fill", url, 1000)
                took = [self.time_to_ready(url) for _ in range(max(5, self.bench.args.rounds))]
            yield {
                "name": f"{kind}: {name}",
                "unit": "ms",
                "value": statistics.median(took),
                "p99": max(took),
                "max": MAX_MS,
            }

    def time_to_ready(self, url):
        begun = time.monotonic()
        with subprocess.Popen(
            [self.build / "outlog", "serve", "--dev", "--listen", "127.0.0.1:0", "--store", url],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            port = int(re.search(r":(\d+)/", process.stdout.readline()).group(1))
            while True:
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=1).close()
                    break
            took = (time.monotonic() - begun) * 1000
            process.send_signal(signal.SIGTERM)
            process.wait(30)
        return took
