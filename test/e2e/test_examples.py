"""Every example does what its first lines say; so does the demonstrations of `make run` and `make tour`."""
import importlib.util
import json
import os
import re
import shutil
import subprocess
import time
import urllib.request

import pytest

from lib.cli import Outlog
from lib.docs import compile_c
from lib.install import install, user_env
from lib.outbox import Outbox
from lib.postgres import free_port

STORY = ["order o-1 is event 1", "order o-2: out of stock"]


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    return install(build, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def run(root, prefix, extension_env, tmp_path):
    """Run a program the way a user does; the lines of both its streams."""

    def call(*command, env=None, loads_extension=False, **options):
        base = extension_env if loads_extension else os.environ
        done = subprocess.run(
            [str(word) for word in command],
            cwd=tmp_path,
            env={**user_env(prefix, base), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
            **options,
        )
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()

    return call


def test_a2_the_c_example_joins_the_callers_transaction(root, prefix, run, store, outlog, tmp_path, extension_env):
    program = tmp_path / "append"
    compile_c(root / "examples" / "append.c", program, user_env(prefix, extension_env))
    lines = run(program, store)
    assert lines[0] == "own transaction: event 1, seq 1"
    assert re.fullmatch(r"rollback: event \d+, seq 2", lines[1])
    assert re.fullmatch(r"commit: event \d+, seq 2", lines[2])
    assert [event["aggregate_seq"] for event in outlog.run("events", "--json").json()] == [1, 2]


def test_a1_python_appends_in_its_own_sqlite_transaction(root, run, prefix, tmp_path):
    lines = run(root / "examples" / "python_sqlite.py", "app.db", prefix / "lib/outlog/outlog", loads_extension=True)
    assert lines[:2] == STORY
    assert lines[2].startswith("refused: sequence_conflict: order/o-1: expected sequence 0, actual 1")
    assert lines[3] == "1 order, 1 event"
    assert "order.created" in run("outlog", "events", "--store", f"sqlite:{tmp_path}/app.db")[0]


def test_a1_python_appends_in_its_own_postgres_transaction(root, run, postgres_store):
    assert run(root / "examples" / "python_postgres.py", postgres_store) == [
        *STORY,
        "refused: OL000 sequence_conflict actual 1",
        "1 order, 1 event",
    ]


def test_a1_node_appends_in_its_own_postgres_transaction(root, run, postgres_store, tmp_path):
    modules = root / "test" / "node_modules"
    if not shutil.which("node") or not (modules / "pg").exists():
        pytest.skip("node or its package pg is missing; run scripts/setup test")
    (tmp_path / "node_modules").symlink_to(modules)
    shutil.copy(root / "examples" / "node_postgres.mjs", tmp_path)
    assert run("node", "node_postgres.mjs", postgres_store) == [
        *STORY,
        "refused: OL000 sequence_conflict actual 1",
        "1 order, 1 event",
    ]


def test_a1_psql_appends_beside_an_ordinary_row(root, run, postgres_store):
    lines = run("psql", "-X", "-tA", postgres_store, "-f", root / "examples" / "psql.sql")
    text = "\n".join(lines)
    assert "\n1|1\n" in text and "\n2|2\n" in text
    assert "ERROR:  sequence_conflict: order/o-1: expected sequence 1, actual 2" in text
    assert lines[-2:] == ['1|order.created|o-1|1|{"total":12}', '2|order.paid|o-1|2|{"amount":12}']


def test_c1_the_shell_consumer_goes_on_where_it_stopped(root, run, outlog, store):
    for n in (1, 2, 3):
        outlog.run(
            "append",
            "--org",
            "acme",
            "--aggregate",
            f"order/o-{n}",
            "--type",
            "order.created",
            "--data",
            f'{{"total":{n}0}}',
        )
    outlog.run("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.paid", "--data", "{}")
    follow, env = root / "examples" / "follow.sh", {"OUTLOG_STORE": store}
    assert run(follow, 2, env=env) == ["mail for o-1: thank you, 10 EUR", "mail for o-2: thank you, 20 EUR"]
    assert run(follow, 1, env=env) == ["mail for o-3: thank you, 30 EUR"]


# make run


@pytest.fixture(params=["sqlite", "postgres"])
def stores(request):
    """What `make run` is told: nothing, or a PostgreSQL, which must outlive the shop."""
    return [request.getfixturevalue("postgres_store")] if request.param == "postgres" else []


@pytest.fixture
def shop(stores, root, build, tmp_path):
    """`make run` on the store given; what it says of itself."""
    started = []

    def start(*args):
        process = subprocess.Popen(
            [root / "scripts" / "run", *args],
            cwd=tmp_path,
            encoding="utf-8",
            start_new_session=True,
            env={
                **os.environ,
                "OUTLOG_BUILD": str(build),
                "OUTLOG_DEMO": str(tmp_path / "demo"),
                "OUTLOG_DEMO_PORTS": f"{free_port()} {free_port()} {free_port()}",
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        told = ""
        while "  Ctrl-C ends it; what happened stays in the store.\n" not in told:
            line = process.stdout.readline()
            assert line, f"it ended: {told}"
            told += line
        return process, *re.findall(r"http://[0-9.]+:[0-9]+", told)

    yield start
    for process in started:
        process.terminate()
        assert process.wait(30) == 0


def http_call(method, url, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=30) as answer:
        return json.loads(answer.read() or "null") if "json" in answer.headers["content-type"] else None


def shop_module(root):
    spec = importlib.util.spec_from_file_location("shop", root / "examples" / "shop.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def until(what, is_true, seconds=60):
    end = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < end, f"{what}: not in {seconds} s"
        time.sleep(0.1)


def test_make_run_shows_a_dead_letter_that_can_be_repaired(shop, stores, root):
    """What issue after issue leads up to: see it fail, repair it, requeue it, see it delivered."""
    _, console, chat, world = shop(*stores)
    with urllib.request.urlopen(console) as page:
        assert b"outlog" in page.read()
    dead = f"{console}/v1/messages?state=DEAD"
    until("a dead letter", lambda: http_call("GET", dead)["messages"])
    letter = http_call("GET", dead)["messages"][0]
    assert (letter["destination"], letter["attempts"]) == ("partner-api", 4)
    urllib.request.urlopen(f"{world}/repair", b"")
    answer = http_call("POST", f"{console}/v1/messages/{letter['event_id']}/requeue", {})
    assert answer["requeued"] == 1
    message = f"{console}/v1/messages/{letter['event_id']}"
    until("the delivery", lambda: http_call("GET", message)["state"] == "PUBLISHED")
    # N2: the twelve events of the example rules, as notices and as mails
    kinds = {event_type for _, event_type, _ in shop_module(root).PRACTICE}
    seen = lambda: {
        one["event_type"]
        for path in ("notifications?limit=1000", "messages?destination=email&limit=1000")  # noqa: E731
        for one in next(iter(http_call("GET", f"{console}/v1/{path}").values()))
    }
    assert len(kinds) == 12
    until("all twelve to be told of", lambda: seen() >= kinds)
    until(
        "a view", lambda: http_call("GET", f"{console}/v1/projections")["projections"][0]["last_applied_event_id"] > 0
    )
    # S-4: a customer was answered, and a visitor's page gets the ticket that opens the socket
    until("an answer", lambda: any(one["done_seq"] for one in http_call("GET", f"{console}/v1/sessions")["sessions"]))
    assert http_call("POST", f"{chat}/ticket?thread=t-1", {})["url"].startswith(
        f"ws{console[4:]}/v1/sessions/you:helper:t-1/"
    )


def test_u3_p3_the_shop_is_proven_and_its_view_rebuilt_while_it_sells(shop, stores, tmp_path):
    store = stores[0] if stores else f"sqlite:{tmp_path}/demo/outlog.db"
    _, console, *_ = shop(*stores)
    outlog, sold = Outlog(store), []
    until("some runs", lambda: len(http_call("GET", f"{console}/v1/runs?status=COMPLETED")["runs"]) > 2)
    assert re.search(
        r"^Every row matches its events: \d+ runs, \d+ signals, \d+ steps, \d+ effects, \d+ checkpoints?\.$",
        outlog.run("verify", "--all").stdout,
        re.M,
    )

    with Outbox(store) as eyes:
        until("a view", lambda: eyes.run("select 1 from sales"))
        end = time.monotonic() + 60
        count = eyes.one("select sum(orders) as sum from sales")["sum"]
        rebuild = outlog.start("projections", "rebuild", "sales", "--aside")
        while rebuild.poll() is None or sold[-1] < count + 2:  # it is swapped, and sales go on
            sold.append(eyes.one("select coalesce(sum(orders), 0) as sum from sales")["sum"])
            assert time.monotonic() < end, (sold[-5:], count)
        assert rebuild.communicate()[0].split()[2] == "running" and rebuild.returncode == 0
        assert sold == sorted(sold) and sold[0] >= count, "nobody saw a gap"

        run = http_call("GET", f"{console}/v1/runs?status=COMPLETED")["runs"][0]["run_id"]
        eyes.run(f"update {{}}runs set total_steps = 99 where run_id = '{run}'")
        lies = outlog.run("verify", "--all", check=False)
        assert lies.returncode == 1 and re.search(
            rf"^runs {run}  total_steps  stored 99  replayed \d$", lies.stdout, re.M
        )


# make tour


def demo(root, build, folder, *args):
    return subprocess.run(
        [root / "scripts" / "tour", *args],
        cwd=folder,
        encoding="utf-8",
        timeout=120,
        env={**os.environ, "OUTLOG_BUILD": str(build), "OUTLOG_DEMO": str(folder / "demo")},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def told(done, folder):
    """What the demonstration must have shown, whatever the store."""
    assert done.returncode == 0, done.stdout
    assert "\033[" not in done.stdout  # no terminal, no colours
    for word in ("sequence_conflict", "(was there already)", "secret_material", "└─ ", "lag"):
        assert word in done.stdout, f"{word} is missing:\n{done.stdout}"
    live = re.findall(r"^ *live │ +(\d+)  .*$", done.stdout, re.M)
    assert len(live) >= 5 and live == sorted(live, key=int), done.stdout
    tries = re.findall(r"^  (\S*outlog .*)$", done.stdout.split("Try", 1)[1], re.M)
    assert len(tries) == 3, done.stdout
    for line in tries:
        if "--follow" not in line:
            subprocess.run(line, shell=True, check=True, cwd=folder, stdout=subprocess.DEVNULL)


def test_the_demonstration_runs_on_sqlite_twice(root, build, tmp_path):
    for _ in range(2):
        told(demo(root, build, tmp_path), tmp_path)


def test_the_demonstration_runs_on_a_given_store_twice(root, build, tmp_path, postgres_store):
    for _ in range(2):
        told(demo(root, build, tmp_path, postgres_store), tmp_path)
    assert not (tmp_path / "demo" / "outlog.db").exists()
