"""The cost of an event, and the gain of more processes; scripts/bench runs it. Row names begin with `scale`.

    scripts/bench --only cost            CPU, WAL and bytes per event, the input of docs/scale.md
    scripts/bench --only "scale out"     two relays beside one
    scripts/bench --only retention       removal of old messages, and appends meanwhile

CPU time is that of all processes of the server and of the client, from /proc and getrusage, so it does not
depend on how busy the machine is.
"""
import asyncio
import contextlib
import json
import os
import pathlib
import resource
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
EVENTS, MESSAGES, OLD = (200_000, 1_000_000), (200_000, 1_000_000), (60_000, 500_000)
TICKS = os.sysconf("SC_CLK_TCK")


def print_progress(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


class Meter:
    """Seconds of CPU of a server and of our children, and bytes of WAL, since this object was made."""

    def __init__(self, server):
        self.server = server
        self.before = self._read()

    def _read(self):
        wal = self.server.sql("select pg_current_wal_insert_lsn() - '0/0'")[0][0]
        mine = resource.getrusage(resource.RUSAGE_CHILDREN)
        return server_cpu(self.server.process.pid), mine.ru_utime + mine.ru_stime, float(wal)

    def since(self):
        return [now - before for now, before in zip(self._read(), self.before)]


def server_cpu(pid):
    """CPU time of a server: of its processes, and of those that have ended."""
    total = 0
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):
            fields = path.read_text().rpartition(")")[2].split()
            if int(path.parent.name) == pid:
                total += sum(map(int, fields[11:15]))  # including children that have been waited for
            elif int(fields[1]) == pid:
                total += sum(map(int, fields[11:13]))
    return total / TICKS


class Scale:
    def __init__(self, bench):
        self.bench, self.server, self.args = bench, bench.server, bench.args
        self.outlog = bench.build / "outlog"
        self.programs = bench.build / "bench"

    def steps(self):
        return (self.costs, self.relays, self.retention)

    def wants(self, name):
        return self.bench.wants(f"scale {name}")

    def size(self, sizes):
        return sizes[1] if self.args.full else sizes[0]

    def database(self, url):
        return url.rsplit("/", 1)[1]

    def sql(self, url, statement, *args):
        return self.server.sql(statement, *args, database=self.database(url))

    # The cost of an event.

    def costs(self):
        if not self.wants("cost"):
            return
        with self.bench.store("postgres") as url:
            meter = Meter(self.server)
            self.bench.run(self.programs / "bench_append", "outlog", url, 2, 100, 4000)
            count = self.sql(url, "select count(*) from outlog.events")[0][0]
            yield from self.cost("append, batches of 100, 2 writers", meter, count)
            size = self.sql(
                url, "select pg_total_relation_size('outlog.events') + pg_total_relation_size('outlog.heads')"
            )
            yield number("cost: append, table and indexes", size[0][0] / count, "bytes an event")
        with self.bench.store("postgres") as url:
            meter = Meter(self.server)
            self.bench.run(self.programs / "bench_append", "outlog", url, 16, 1, 4000)
            count = self.sql(url, "select count(*) from outlog.events")[0][0]
            yield from self.cost("append, single, 16 writers", meter, count)
        count = self.size(EVENTS)
        with self.bench.store("postgres") as url:
            self.bench.run(self.programs / "bench_feed", "fill", url, count)
            meter = Meter(self.server)
            self.bench.run(self.programs / "bench_feed", "outlog", url)
            yield from self.cost("read, pages of a cursor", meter, count)
        yield from self.message_cost()

    def message_cost(self):
        count = self.size(MESSAGES)
        with self.bench.store("postgres") as url:
            meter = Meter(self.server)
            self.fill(url, count)
            yield from self.cost("message, INSERT … SELECT", meter, count)
            size = self.sql(url, "select pg_total_relation_size('outlog.outbox')")[0][0]
            yield number("cost: message, table and indexes", size / count, "bytes an event")
            meter = Meter(self.server)
            subprocess.run([self.outlog, "relay", "--until-idle", "--quiet", "--store", url], check=True)
            yield from self.cost("relay, to null", meter, count)

    def cost(self, what, meter, count):
        server, client, wal = meter.since()
        yield number(f"cost: {what}, server", server / count * 1e6, "µs CPU an event")
        yield number(f"cost: {what}, client", client / count * 1e6, "µs CPU an event")
        yield number(f"cost: {what}, WAL", wal / count, "bytes an event")

    def fill(self, url, count, destination="bench", settings='{"type": "null"}'):
        self.sql(
            url,
            "insert into outlog.destinations (name, settings) values (%s, %s) on conflict do nothing",
            destination,
            settings,
        )
        self.sql(
            url,
            "insert into outlog.outbox (destination, event_type, payload) select %s, 'order.created', "
            'format(\'{"order_id":"ord_%%s","note":"%%s"}\', lpad(i::text, 10, \'0\'), repeat(\'x\', 364)) '
            "from generate_series(1, %s) i",
            destination,
            count,
        )

    # Two relays beside one.

    def relays(self):
        """The relays own their lanes before the messages are committed, all at once."""
        with slow_receiver(0.02) as port:
            slow = json.dumps(
                {"type": "webhook", "url": f"http://127.0.0.1:{port}/", "allow_private": True, "concurrency": 8}
            )
            for name, count, settings, minimum in (
                ("out: two relays beside one, webhooks of 20 ms, 8 at a time a process", 1500, slow, 1.0),
                ("out: two relays beside one, to null", self.size(MESSAGES), '{"type": "null"}', 1.0),
            ):
                if not self.wants(name):
                    continue
                rates = {1: [], 2: []}
                for _ in range(3):
                    for processes in (1, 2):
                        rates[processes].append(self.drained(processes, count, settings))
                yield self.bench.compared(f"scale {name}", rates[2], rates[1], minimum)

    def drained(self, processes, count, settings):
        with self.bench.store("postgres") as url:
            running = [
                subprocess.Popen(
                    [
                        self.outlog,
                        "relay",
                        "--threads",
                        "1",
                        "--id",
                        f"r{n}",
                        "--poll",
                        "5ms",
                        "--quiet",
                        "--store",
                        url,
                    ],
                    stderr=subprocess.DEVNULL,
                )
                for n in range(processes)
            ]
            try:
                self.wait(
                    url,
                    "select count(distinct owner) = %s and count(owner) = 8 and max(n) = %s from (select owner, "
                    "count(*) over (partition by owner) as n from outlog.lanes) l",
                    processes,
                    8 // processes,
                )
                self.fill(url, count, settings=settings)
                begun = time.monotonic()
                self.wait(
                    url,
                    "select not exists (select from outlog.lanes l where not isempty(claim) or head < (select "
                    "coalesce(max(seq), 0) from outlog.outbox o where o.lane = l.lane)) and not exists (select "
                    "from outlog.parked where state in ('PENDING', 'CLAIMED'))",
                )
                rate = count / (time.monotonic() - begun)
            finally:
                for one in running:
                    one.send_signal(signal.SIGTERM)
                for one in running:
                    one.wait()
        print_progress(f"{processes} relays: {rate:,.0f}/s")
        return rate

    def wait(self, url, question, *args):
        import psycopg2

        db = psycopg2.connect(url)
        db.autocommit = True
        deadline = time.monotonic() + 120
        with db.cursor() as cursor:
            while True:
                cursor.execute(question, args or None)
                if cursor.fetchone()[0]:
                    break
                if time.monotonic() > deadline:
                    sys.exit(f"bench: waited two minutes for {question[:60]}")
                time.sleep(0.005)
        db.close()

    # Old messages are removed while new events are appended.

    def retention(self):
        if not self.wants("retention"):
            return
        count = self.size(OLD)
        kept, pruned, rates = [], [], []
        for is_pruning in (False, True) * (3 if self.args.full else 1):
            with self.bench.store("postgres") as url:
                self.fill(url, count)
                subprocess.run([self.outlog, "relay", "--until-idle", "--quiet", "--store", url], check=True)
                if is_pruning:
                    self.sql(url, "insert into outlog.settings (key, value) values ('retention.messages', '\"1s\"')")
                relay = subprocess.Popen(
                    [self.outlog, "relay", "--threads", "2", "--quiet", "--store", url], stderr=subprocess.DEVNULL
                )
                try:
                    if is_pruning:
                        self.wait(url, "select count(*) < %s from outlog.outbox", count)
                    left, begun = self.left(url), time.monotonic()
                    appended = self.bench.run(self.programs / "bench_append", "outlog", url, 4, 100, 3000)["per_second"]
                    if is_pruning:
                        rates.append((left - self.left(url)) / (time.monotonic() - begun))
                    (pruned if is_pruning else kept).append(appended)
                finally:
                    relay.send_signal(signal.SIGTERM)
                    relay.wait()
        yield self.bench.compared(
            "scale retention: appends while old messages go, beside none going", pruned, kept, None
        )
        yield number("retention: messages removed beside those appends", statistics.median(rates), "a second")

    def left(self, url):
        return self.sql(url, "select count(*) from outlog.outbox")[0][0]


@contextlib.contextmanager
def slow_receiver(seconds):
    """The port of a receiver that answers each POST after `seconds`."""

    async def serve(reader, writer):
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
                await asyncio.sleep(seconds)
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        writer.close()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(asyncio.start_server(serve, "127.0.0.1", 0), loop).result()
    yield server.sockets[0].getsockname()[1]
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def number(name, value, unit):
    return {"name": f"scale {name}", "unit": unit, "value": value}
