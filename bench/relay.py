"""Measures the relay and compares it with other queues; scripts/bench runs it. Row names begin with `relay`.

Each subject fills a database of its own once. Each round drains a copy of it, which is read into memory
before, subjects in turns, so that a ratio compares what ran within the same seconds.
"""
import contextlib
import json
import pathlib
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILL = ROOT / "bench" / "fill"
NODE = ROOT / "bench" / "node_modules"

# What is compared with the relay: its label, the minimum ratio, and how many messages: quick, full.
PEERS = {
    "copy": ("COPY of the same rows, binary", 0.35, (200_000, 500_000)),
    "pgq": ("PgQ 3", 1.3, (200_000, 500_000)),
    "graphile": ("graphile-worker, 2 processes", 8, (40_000, 200_000)),
    "rows": ("rows with a state, SKIP LOCKED", 10, (40_000, 200_000)),
    "pgboss": ("pg-boss 10, batches of 1,000", 30, (200_000, 200_000)),
    "pgboss_wide": ("pg-boss 10, batches of 10,000", None, (200_000, 200_000)),
}
JOB_QUEUES = {"graphile": (), "pgboss": (1_000,), "pgboss_wide": (10_000,)}  # and the arguments of their drain
WAL_MAX, PINNED_MIN, FLAT_MIN, RESIDENT_MAX_MB = 5, 0.9, 0.8, 64
P50_MAX_MS, P99_MAX_MS = 2, 10
WEBHOOK_MIN, HANGING_MIN, SQLITE_MIN = 0.5, 0.9, 5
CONNECTIONS, ENDPOINTS = 64, 10


class Relay:
    def __init__(self, bench):
        self.bench, self.server, self.args = bench, bench.server, bench.args
        self.programs = bench.build / "bench"
        self.rounds = min(3, bench.args.rounds)
        self.filled = {}
        self.resident = {}

    def steps(self):
        return (
            self.drains,
            self.backlogs,
            self.pinned,
            self.memory,
            self.publish_latency,
            self.idle,
            self.webhooks,
            self.sqlite,
            self.inserts,
        )

    def wants(self, name):
        return self.bench.wants(f"relay {name}")

    # Databases.

    def template(self, subject, count):
        """The name of a database filled with `count` messages of a subject."""
        subject = subject.removesuffix("_wide")
        name = f"relay_{subject}_{count}"
        if name in self.filled:
            return name
        print_progress(f"filling {count:,} messages for {subject}")
        url = self.server.create(name)
        if subject in JOB_QUEUES:
            self.node(subject, "fill", url, count)
        else:
            if subject == "outlog":
                self.bench.run(self.bench.build / "outlog", "init", "--store", url, parse=False)
            script = FILL / ("pgq.sql" if subject == "pgq" else f"{subject}_postgres.sql")
            for statement in statements(script.read_text().replace(":count", str(count))):
                self.server.sql(statement, database=name)
        self.server.sql("create extension if not exists pg_prewarm", database=name)
        self.server.sql("vacuum analyze", database=name)
        self.filled[name] = True
        return name

    @contextlib.contextmanager
    def copy_of(self, template):
        """The URL of a copy of it, in memory; dropped afterwards."""
        name = "relay_round"
        self.server.drop(name)
        self.server.sql(f"create database {name} template {template} strategy file_copy")
        self.server.sql(
            "select pg_prewarm(c.oid::regclass) from pg_class c join pg_namespace n on n.oid = relnamespace "
            "where relkind in ('r', 'i') and nspname !~ '^pg_' and relpages > 0",
            database=name,
        )
        self.server.sql("checkpoint")
        yield self.server.url(name)
        self.server.drop(name)

    def node(self, *words):
        command = ["node", str(ROOT / "bench" / "job_queues.mjs"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"bench: {' '.join(command[:4])}: {done.stderr}")
        return json.loads(done.stdout) if done.stdout else None

    def has(self, subject):
        if subject == "pgq":
            return bool(self.server.sql("select 1 from pg_available_extensions where name = 'pgq'"))
        return subject not in JOB_QUEUES or (NODE.exists() and shutil.which("node"))

    def drain(self, subject, count, is_pinned=False):
        """Drain a copy: messages per second, and bytes of WAL per message."""
        source = "outlog" if subject == "copy" else subject
        with self.copy_of(self.template(source, count)) as url, open_transaction(url, is_pinned):
            before = self.server.sql("select pg_current_wal_insert_lsn()")[0][0]
            if subject in JOB_QUEUES:
                result = self.node(subject.removesuffix("_wide"), "drain", url, count, *JOB_QUEUES[subject])
            else:
                result = self.bench.run(self.programs / "bench_drain", subject, url)
            if result["messages"] != count:
                sys.exit(f"bench: {subject}: {result['messages']} of {count} messages were drained")
            wal = self.server.sql("select pg_current_wal_insert_lsn() - %s::pg_lsn", before)[0][0]
        if subject == "outlog":
            peak = result["resident_peak"] / 2**20
            self.resident[count] = max(peak, self.resident.get(count, 0))
        print_progress(f"{subject}: {result['per_second']:,.0f}/s")
        return result["per_second"], float(wal) / count

    # Rows.

    def drains(self):
        names = {p: f"relay postgres: drain, beside {PEERS[p][0]}" for p in PEERS}
        peers = [p for p in PEERS if self.wants(names[p]) or self.wants("WAL")]
        for peer in [p for p in peers if not self.has(p)]:
            yield {"name": f"{names[peer]}: not installed", "unit": "", "value": None}
            peers.remove(peer)
        if not peers:
            return
        size = 1 if self.args.full else 0
        count = PEERS["pgq"][2][size]
        rates = {p: ([], []) for p in peers}
        wal = {p: [] for p in ["outlog", *peers]}
        for number in range(self.rounds):
            for peer in peers:  # ours next to each of them: neither has the quieter minute
                if peer.startswith("pgboss") and number == 2:  # twice is enough: it takes a minute
                    continue
                mine, bytes_mine = self.drain("outlog", count)
                other, bytes_other = self.drain(peer, PEERS[peer][2][size])
                rates[peer][0].append(mine)
                rates[peer][1].append(other)
                wal["outlog"].append(bytes_mine)
                wal[peer].append(bytes_other)
        for peer in peers:
            yield self.bench.compared(names[peer], *rates[peer], PEERS[peer][1])
        yield {
            "name": "relay postgres: WAL a delivered message",
            "unit": "bytes",
            "value": statistics.median(wal["outlog"]),
            "max": WAL_MAX,
        }
        for peer in peers:
            if peer not in ("copy", "pgboss_wide"):
                yield {
                    "name": f"relay postgres: WAL a message, {PEERS[peer][0]}",
                    "unit": "bytes",
                    "value": statistics.median(wal[peer]),
                }

    def backlogs(self):
        if not self.wants("postgres: backlog"):
            return
        sizes = [10_000, 1_000_000] + [5_000_000] * self.args.full
        rates = {size: [] for size in sizes}
        for size in sizes:
            self.template("outlog", size)
        for number in range(self.rounds):
            for size in sizes:
                if size == 5_000_000 and number == 2:  # twice is enough: to copy it takes minutes
                    continue
                rates[size].append(self.drain("outlog", size)[0])
        for size in sizes[1:]:
            yield self.bench.compared(
                f"relay postgres: backlog of {size:,}, beside one of 10,000", rates[size], rates[sizes[0]], FLAT_MIN
            )
        if self.args.full:
            self.server.drop(self.template("outlog", sizes[-1]))
            del self.filled[f"relay_outlog_{sizes[-1]}"]
            self.server.sql("checkpoint")

    def pinned(self):
        """Another session keeps a transaction open, so that vacuum removes nothing."""
        name = "relay postgres: drain beside an open transaction"
        if not self.wants(name):
            return
        count = PEERS["pgq"][2][1 if self.args.full else 0]
        rates = {False: [], True: []}
        for _ in range(self.rounds):
            for is_pinned in (False, True):
                rates[is_pinned].append(self.drain("outlog", count, is_pinned)[0])
        yield self.bench.compared(name, rates[True], rates[False], PINNED_MIN)

    def memory(self):
        if self.resident:
            yield {
                "name": f"relay postgres: its memory, backlogs up to {max(self.resident):,}",
                "unit": "MB",
                "value": max(self.resident.values()),
                "by_size": self.resident,
                "max": RESIDENT_MAX_MB,
            }

    def publish_latency(self):
        for kind in ("postgres", "sqlite"):
            for where in ("thread", "process"):
                scope = {"thread": "in one process", "process": "across processes"}[where]
                name = f"relay {kind}: commit to published at 1,000/s, {scope}"
                if not self.wants(name):
                    continue
                rounds = []
                for _ in range(3):
                    with self.bench.store(kind) as url:
                        rounds.append(
                            self.bench.run(
                                self.programs / "bench_publish_latency",
                                where,
                                url,
                                self.programs / "bench_timing_publisher.so",
                                1000,
                                4,
                            )
                        )
                    print_progress(f"{name}: p50 {rounds[-1]['p50_ms']} ms at {rounds[-1]['per_second']}/s")
                has_target = kind == "postgres" and where == "thread"
                yield {
                    "name": name,
                    "unit": "ms",
                    "value": statistics.median(r["p50_ms"] for r in rounds),
                    "p99": statistics.median(r["p99_ms"] for r in rounds),
                    "kept_pace": statistics.median(r["per_second"] for r in rounds),
                    "max": P50_MAX_MS if has_target else None,
                    "max_p99": P99_MAX_MS if has_target else None,
                }

    def idle(self):
        for kind in ("postgres", "sqlite"):
            if not self.wants(f"{kind}: idle relay"):
                continue
            with self.bench.store(kind) as url:
                cpu = self.bench.backends() if kind == "postgres" else None
                mine = self.bench.run(
                    self.programs / "bench_publish_latency",
                    "idle",
                    url,
                    self.programs / "bench_timing_publisher.so",
                    1,
                    6,
                )["cpu_percent"]
                yield {"name": f"relay {kind}: idle relay, its process", "unit": "% of a core", "value": mine}
                if cpu:
                    yield {
                        "name": f"relay {kind}: idle relay, its server process",
                        "unit": "% of a core",
                        "value": cpu.percent(),
                    }

    # Webhooks.

    def webhooks(self):
        if not self.wants("postgres: webhooks") or not shutil.which("wrk"):
            return
        count = 100_000 if self.args.full else 20_000
        receivers = {
            "an application (Node's http server)": (
                ["node", str(ROOT / "bench" / "webhook_receiver.mjs")],
                WEBHOOK_MIN,
            ),
            "a bare loop in C": ([str(self.programs / "bench_webhook_receiver")], None),
        }
        for what, (command, minimum) in receivers.items():
            rates = {"outlog": [], "wrk": [], "ten": [], "hanging": []}
            with receiver(command) as port:
                for _ in range(self.rounds):
                    rates["wrk"].append(self.wrk(port))
                    rates["outlog"].append(self.post(port, count, 1, False))
                    if minimum:
                        rates["ten"].append(self.post(port, count, ENDPOINTS, False))
                        rates["hanging"].append(self.post(port, count, ENDPOINTS, True))
            yield self.bench.compared(
                f"relay postgres: webhooks to {what}, beside wrk", rates["outlog"], rates["wrk"], minimum
            )
            if minimum:
                yield self.bench.compared(
                    "relay postgres: webhooks, one of ten endpoints hangs, beside ten that do not",
                    rates["hanging"],
                    rates["ten"],
                    HANGING_MIN,
                )

    def wrk(self, port):
        script = self.bench.folder / "post.lua"
        script.write_text(
            'wrk.method = "POST"\nwrk.headers["content-type"] = "application/json"\n'
            'wrk.body = \'{"order_id":"ord_0000000001","note":"\' .. string.rep("x", 364) .. \'"}\'\n'
        )
        done = subprocess.run(
            ["wrk", "-t1", f"-c{CONNECTIONS}", "-d3", "-s", str(script), f"http://127.0.0.1:{port}/hook"],
            capture_output=True,
            text=True,
            check=True,
        )
        rate = float(done.stdout.split("Requests/sec:")[1].split()[0])
        if "Non-2xx" in done.stdout:
            sys.exit(f"bench: wrk: {done.stdout}")
        print_progress(f"wrk: {rate:,.0f}/s")
        return rate

    def post(self, port, count, endpoints, hangs):
        """Deliveries per second to `endpoints` destinations; if one hangs, to the others."""
        with self.bench.store("postgres") as url:
            name = url.rsplit("/", 1)[1]
            for i in range(endpoints):
                path = "hang" if hangs and i == 0 else "hook"
                settings = {
                    "type": "webhook",
                    "url": f"http://127.0.0.1:{port}/{path}/{i}",
                    "allow_private": True,
                    "concurrency": CONNECTIONS,
                }
                self.server.sql(
                    "insert into outlog.destinations (name, settings) values (%s, %s)",
                    f"hook{i}",
                    json.dumps(settings),
                    database=name,
                )
            self.server.sql(
                "insert into outlog.outbox (destination, event_type, payload) select 'hook' || i %% %s, "
                '\'order.created\', format(\'{"order_id":"ord_%%s","note":"%%s"}\', lpad(i::text, 10, \'0\'), '
                "repeat('x', 364)) from generate_series(1, %s) i",
                endpoints,
                count,
                database=name,
            )
            self.server.sql("checkpoint")
            wanted = count - count // endpoints if hangs else count
            rate = self.bench.run(self.programs / "bench_drain", "outlog", url, 1, wanted)["per_second"]
        print_progress(f"{endpoints} webhook endpoints{', one hangs' if hangs else ''}: {rate:,.0f}/s")
        return rate

    # SQLite.

    def sqlite(self):
        name = "relay sqlite: drain, beside rows with a state"
        if not self.wants(name):
            return
        count = 300_000 if self.args.full else 100_000
        folder = self.bench.folder / "relay"
        folder.mkdir(exist_ok=True)
        files = {"outlog": folder / "outlog.db", "rows": folder / "rows.db"}
        self.bench.run(self.bench.build / "outlog", "init", "--store", f"sqlite:{files['outlog']}", parse=False)
        for subject, path in files.items():
            print_progress(f"filling {count:,} messages for {subject} on SQLite")
            with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
                db.execute("pragma journal_mode = wal")
                db.executescript(
                    "begin;"
                    + (FILL / f"{subject}_sqlite.sql").read_text().replace(":count", str(count))
                    + "commit; pragma wal_checkpoint(truncate);"
                )
        rates = {"outlog": [], "rows": []}
        for _ in range(self.rounds):
            for subject in ("rows", "outlog"):
                path = folder / "round.db"
                for suffix in ("", "-wal", "-shm"):
                    pathlib.Path(f"{path}{suffix}").unlink(missing_ok=True)
                shutil.copy(files[subject], path)
                result = self.bench.run(self.programs / "bench_drain", subject, f"sqlite:{path}")
                if result["messages"] != count:
                    sys.exit(f"bench: {subject} on SQLite: {result['messages']} of {count}")
                rates[subject].append(result["per_second"])
                print_progress(f"{subject} on SQLite: {result['per_second']:,.0f}/s")
        shutil.rmtree(folder)
        yield self.bench.compared(name, rates["outlog"], rates["rows"], SQLITE_MIN)

    # Enqueueing messages.

    def inserts(self):
        pgbench = self.server._bin / "pgbench"
        if not self.wants("postgres: insert") or not pgbench.exists():
            return
        payload = '{"order_id":"ord_0000000001","note":"' + "x" * 364 + '"}'
        bare = (
            "insert into bench_outbox (destination, event_type, payload, correlation_id) "
            f"select 'bench', 'order.created', '{payload}', '' from generate_series(1, {{n}})"
        )
        plain = (
            "insert into outlog.outbox (destination, event_type, payload) "
            f"select 'bench', 'order.created', '{payload}' from generate_series(1, {{n}})"
        )
        call = f"select outlog.enqueue('bench', 'order.created', '{payload}') from generate_series(1, {{n}})"
        for what, sql in (("plain INSERT", plain), ("outlog.enqueue()", call)):
            for writers, batch in ((16, 1), (1, 100)):
                name = (
                    f"relay postgres: insert by {what}, single, {writers} writers"
                    if batch == 1
                    else f"relay postgres: insert by {what}, {batch} a statement, {writers} writer"
                )
                if not self.wants(name):
                    continue
                rates = {"bare": [], "outlog": []}
                for _ in range(self.rounds):
                    for which, text in (("bare", bare), ("outlog", sql)):
                        with self.bench.store("postgres") as url:
                            self.make_bare(url.rsplit("/", 1)[1])
                            script = self.bench.folder / "insert.sql"
                            script.write_text(text.replace("{n}", str(batch)) + ";\n")
                            rates[which].append(batch * self.pgbench(pgbench, url, script, writers))
                yield self.bench.compared(name + ", beside a bare INSERT", rates["outlog"], rates["bare"], None)

    def make_bare(self, database):
        """The outbox's columns and indexes without limits and triggers."""
        columns = self.server.sql(
            "select string_agg(format('alter %I type %s', attname, format_type(typbasetype, null)), ', ') "
            "from pg_attribute join pg_type t on t.oid = atttypid "
            "where attrelid = 'outlog.outbox'::regclass and attnum > 0 and typtype = 'd'",
            database=database,
        )[0][0]
        self.server.sql(
            "create table bench_outbox (like outlog.outbox including indexes); "
            f"alter table bench_outbox {columns}; "
            "create sequence bench_outbox_seq; "
            "alter table bench_outbox alter lane set default 0, alter seq set default nextval('bench_outbox_seq'), "
            "alter event_id set default gen_random_uuid(), alter created_at set default clock_timestamp(), "
            "alter at_most_once set default false, alter content_type set default 'application/json'",
            database=database,
        )

    def pgbench(self, program, url, script, writers):
        done = subprocess.run(
            [
                str(program),
                "-n",
                "-M",
                "prepared",
                "-c",
                str(writers),
                "-j",
                "1",
                "-T",
                str(max(2, round(self.args.seconds))),
                "-f",
                str(script),
                url,
            ],
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            sys.exit(f"bench: pgbench: {done.stderr}")
        return float(done.stdout.split("tps = ")[1].split()[0])


@contextlib.contextmanager
def open_transaction(url, is_wanted):
    """A transaction with an id and a snapshot that stays open: the horizon of its database."""
    import psycopg2

    connection = psycopg2.connect(url) if is_wanted else None
    if connection:
        connection.set_session("REPEATABLE READ")
        connection.cursor().execute("select pg_current_xact_id()")
    yield
    if connection:
        connection.close()


@contextlib.contextmanager
def receiver(command):
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield json.loads(process.stdout.readline())["port"]
    finally:
        process.terminate()
        process.wait(10)


def statements(script):
    """Statements of a script, one by one: some of them commit by themselves."""
    text = "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("--"))
    part, in_body = "", False
    for line in text.splitlines():
        part += line + "\n"
        in_body ^= line.count("$$") % 2 == 1
        if line.rstrip().endswith(";") and not in_body:
            yield part
            part = ""


def print_progress(text):
    """Progress; the rows go to stdout."""
    print(f"    {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)
