"""Fixtures every test can ask for. CONTRIBUTING.md tells how to write a test with them."""
import atexit
import itertools
import json
import os
import pathlib
import shutil
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from lib.browser import Browser  # noqa: E402
from lib.chat import Agent, Chat  # noqa: E402
from lib.cli import ROOT, Outlog, build_dir  # noqa: E402
from lib.outbox import History, Outbox, Relays  # noqa: E402
from lib.postgres import Postgres  # noqa: E402
from lib.receiver import Receiver  # noqa: E402
from lib.server import Server  # noqa: E402

STORES = ("sqlite", "postgres")
TEMPLATE = "outlog_template"

# Under a sanitizer scripts/test preloads its runtime into this Python and its workers, so that they can load
# the extension. Other programs must not inherit that; those that load it too ask `extension_env`.
PRELOAD = os.environ.get("LD_PRELOAD", "")

_numbers = itertools.count(1)


def pytest_configure(config):
    # Where relays on PostgreSQL put their run files: the tests of one session are one machine.
    runs = tempfile.mkdtemp(prefix="outlog-runs-")
    os.environ["RUNTIME_DIRECTORY"] = runs
    atexit.register(shutil.rmtree, runs, ignore_errors=True)
    if not config.getoption("numprocesses", None):  # else it is for the workers
        os.environ.pop("LD_PRELOAD", None)


def pytest_report_header():
    return f"outlog: {build_dir()}"


@pytest.fixture(scope="session")
def build():
    """The folder with what was built: outlog, liboutlog.so, src/ext/outlog.so."""
    return build_dir()


@pytest.fixture(scope="session")
def root():
    """The top of the source tree."""
    return ROOT


@pytest.fixture(scope="session")
def extension(build):
    """The SQLite extension, as load_extension() wants it."""
    return str(build / "src" / "ext" / "outlog")


@pytest.fixture(scope="session")
def extension_env():
    """The environment for another program that loads the extension."""
    env = dict(os.environ)
    if PRELOAD:
        env["LD_PRELOAD"] = PRELOAD
        env["ASAN_OPTIONS"] = "detect_leaks=0"
    return env


@pytest.fixture(scope="session")
def postgres():
    """The session's server, shared: make databases, never stop it."""
    with Postgres() as server:
        yield server


@pytest.fixture
def own_postgres():
    """A server of the test's own, to stop, kill and restart."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def template(postgres):
    """A database on which `outlog init` was run, to be copied."""
    Outlog(postgres.create(TEMPLATE)).run("init")
    return TEMPLATE


@pytest.fixture(params=STORES)
def store(tmp_path, request):
    """The URL of a fresh store with its schema; the test runs once for each kind of store."""
    if request.param == "sqlite":
        url = f"sqlite:{tmp_path}/outlog.db"
        Outlog(url).run("init")
        yield url
    else:
        request.getfixturevalue("template")
        yield from _database(request.getfixturevalue("postgres"), TEMPLATE)


@pytest.fixture(params=STORES)
def empty_store(tmp_path, request):
    """The same without the schema."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path}/outlog.db"
    else:
        yield from _database(request.getfixturevalue("postgres"), None)


@pytest.fixture
def sqlite_store(tmp_path):
    """A fresh SQLite store, for what exists only there."""
    url = f"sqlite:{tmp_path}/outlog.db"
    Outlog(url).run("init")
    return url


@pytest.fixture
def postgres_store(postgres, template):
    """A fresh PostgreSQL store, for what exists only there."""
    yield from _database(postgres, template)


@pytest.fixture
def outlog(request, tmp_path):
    """The binary, bound to the test's store if it has one."""
    store = next(
        (
            request.getfixturevalue(name)
            for name in ("store", "empty_store", "sqlite_store", "postgres_store")
            if name in request.fixturenames
        ),
        None,
    )
    binary = Outlog(store, cwd=tmp_path)
    yield binary
    binary.close()


def _database(server, template):
    name = f"t{next(_numbers)}"
    yield server.create(name, template)
    server.drop(name)


@pytest.fixture
def outbox(request):
    """The test's store, asked by plain SQL."""
    store = next(
        request.getfixturevalue(name)
        for name in ("store", "sqlite_store", "postgres_store")
        if name in request.fixturenames
    )
    with Outbox(store) as outbox:
        yield outbox


@pytest.fixture
def receiver():
    """A webhook receiver that remembers, and misbehaves on demand."""
    with Receiver() as receiver:
        yield receiver


@pytest.fixture
def relays(outbox, tmp_path):
    """Starts `outlog relay` on the test's store: relays("a", lease="2s", fault="publish.sent:1:kill")."""
    relays = Relays(outbox.url, tmp_path)
    yield relays
    relays.close()


@pytest.fixture
def serve(outlog, tmp_path):
    """Starts `outlog serve` on the test's store: serve(), serve("--no-relay", dev=False)."""
    servers = []

    def start(*args, **how):
        servers.append(Server(outlog, tmp_path / f"serve-{len(servers)}.log", args, **how))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None or server.process.returncode != -9:
            server.stop()


@pytest.fixture
def agent():
    """Starts agents that answer by HTTP: agent(), agent(words, style="openai")."""
    made = []

    def make(words=Agent.echo, **how):
        made.append(Agent(words, **how))
        return made[-1]

    yield make
    for one in made:
        one.shutdown()
        one.server_close()


@pytest.fixture
def configure(outlog, tmp_path):
    """Names agents: configure(helper={"type": "http", "url": agent().url})."""

    def apply(serve=None, **agents):
        path = tmp_path / "agents.json"
        path.write_text(json.dumps({"agents": agents, "relay": {"lease": "3s"}, "serve": serve or {}}))  # JSON is YAML
        outlog.run("apply", "-f", path)

    return apply


@pytest.fixture
def chat():
    """Opens sockets of sessions: chat(server, "u-1:helper:t-1")."""
    made = []

    def make(*args, **how):
        made.append(Chat(*args, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def history():
    """What everybody saw, for the checker."""
    return History()


@pytest.fixture(scope="session")
def browser():
    """test/console/run.mjs: a Chromium; a test that asks for it skips itself when lib.browser.why_not()."""
    browser = Browser()
    yield browser
    browser.close()


@pytest.fixture
def shots(request):
    """Where pictures are put: look at them."""
    kind = "postgres" if "postgres" in request.node.name else "sqlite"
    folder = build_dir() / "console-shots" / kind
    folder.mkdir(parents=True, exist_ok=True)
    return folder
