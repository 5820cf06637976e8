"""The console in a real browser, on a real server with a receiver that fails.

What people do stands in test/console/flows.mjs. Pictures of every page stay in console/ of the build
folder: look at them.
"""
import contextlib
import json
import pathlib
import re
import shutil
import signal
import subprocess
import urllib.request

import pytest

from lib.brokers import Nats
from lib.browser import why_not
from lib.outbox import wait_for
from lib.postgres import free_port

PAGES = {
    "overview": "",
    "log": "log",
    "traces": "traces",
    "outbox": "outbox",
    "dead": "dead",
    "retrying": "dead?tab=retrying",
    "destinations": "destinations",
    "destination": "destinations/partner-api",
    "consumers": "consumers",
    "views": "views",
    "runs": "runs",
    "sessions": "sessions",
    "notices": "notices",
    "tokens": "tokens",
    "find": "find?q=nothing",
    "no-page": "nowhere",
}

pytestmark = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


class Server:
    """`outlog serve` on a free port, with the destinations of outlog.yaml."""

    def __init__(self, outlog, folder, *args):
        self.outlog, self.folder, self.args = outlog, folder, args
        self.port = free_port()
        self.start()

    def start(self):
        self._log = open(self.folder / "serve.log", "w+")
        self.process = self.outlog.start(
            "serve",
            "--listen",
            f"127.0.0.1:{self.port}",
            "--config",
            "outlog.yaml",
            *self.args,
            stdout=self._log,
            stderr=self._log,
        )
        wait_for(self._is_up, what=lambda: (self.folder / "serve.log").read_text())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(20) == 0, (self.folder / "serve.log").read_text()
        self._log.close()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def get(self, path):
        with urllib.request.urlopen(self.url + path) as answer:
            return json.load(answer)

    def _is_up(self):
        assert self.process.poll() is None, (self.folder / "serve.log").read_text()
        said = (self.folder / "serve.log").read_text()
        if "http://127.0.0.1:" not in said:
            return False
        self.port = int(said.split("http://127.0.0.1:")[1].split("/")[0])
        with contextlib.suppress(OSError):
            urllib.request.urlopen(self.url + "/healthz").close()
            return True
        return False


CONFIG = """
destinations:
  billing: {{type: webhook, url: "{billing}", allow_private: true}}
  partner-api:
    type: webhook
    url: "{partner}"
    allow_private: true
    retry: {{policy: exponential, base: 20ms, factor: 1, max: 20ms, jitter: 0, max_attempts: 2}}
  slow-api:
    type: webhook
    url: "{slow}"
    allow_private: true
    retry: {{policy: exponential, base: 1h, factor: 1, max: 1h, jitter: 0, max_attempts: 5}}
  ledger:
    type: webhook
    url: "{ledger}"
    allow_private: true
    on_dead: hold
    retry: {{policy: exponential, base: 20ms, factor: 1, max: 20ms, jitter: 0, max_attempts: 1}}
routes:
  - {{on: "order.booked", to: ledger}}
  - {{on: "order.created", to: billing}}
  - {{on: "order.shipped", to: partner-api}}
  - {{on: "order.late", to: slow-api}}
agents:
  helper: {{type: exec, command: [python3, "{agent}"]}}
projections:
  totals:
    version: 1
    tables: [totals]
    create: "create table if not exists totals (id text not null, total integer not null)"
    on: {{order.paid: "insert into totals values (:aggregate_id, :payload.total)"}}
"""


AGENT = """
import json, sys
asked = json.loads(sys.stdin.readline())
print(json.dumps({"token": "You said: " + asked["text"]}))
"""


@pytest.fixture
def start(outlog, receiver, tmp_path):
    """Starts the server; the partner answers 503 until heal()."""
    (tmp_path / "outlog.yaml").write_text(
        CONFIG.format(
            billing=receiver.url("billing"),
            partner=receiver.url("partner-api"),
            slow=receiver.url("slow-api"),
            ledger=receiver.url("ledger"),
            agent=tmp_path / "agent.py",
        )
    )
    (tmp_path / "agent.py").write_text(AGENT)
    receiver.rule(503, destination="partner-api", body=b"upstream is down")
    receiver.rule(503, destination="slow-api", body=b"not now")
    servers = []

    def start(*args):
        servers.append(Server(outlog, tmp_path, *args))
        return servers[-1]

    yield start
    for server in servers:
        if server.process.poll() is None:
            server.stop()


@pytest.fixture
def answers(outlog, receiver):
    """What a flow may ask of us."""
    return {
        "heal": lambda: receiver.forget(),
        "append": lambda type, aggregate: append(outlog, type, aggregate)["event_id"],
    }


def append(outlog, type, aggregate="order/o-1", data='{"n":1}', *more):
    return outlog.run(
        "append", "--org", "acme", "--aggregate", aggregate, "--type", type, "--data", data, "--json", *more
    ).json()[0]


def append_many(outlog, type, count, more=None):
    """One of each of as many aggregates."""
    outlog.run(
        "append",
        "--ndjson",
        "-",
        input="".join(
            json.dumps(
                {
                    "org_id": "acme",
                    "aggregate_type": type.split(".")[0],
                    "aggregate_id": f"a-{n}",
                    "event_type": type,
                    "payload": {"n": n, **(more or {})},
                }
            )
            + "\n"
            for n in range(count)
        ),
    )


def tell_story(outlog):
    """An order that was created, paid and shipped, the last of which the partner refuses."""
    created = append(outlog, "order.created")
    paid = append(outlog, "order.paid", "order/o-1", '{"total":12}', "--causation", created["id"])
    append(
        outlog,
        "order.shipped",
        "order/o-1",
        '{"parcel":"P-1", "weight":12345678901234567890.10,"how":"tracked"}',
        "--causation",
        paid["id"],
    )


def tell_run(outlog):
    """A run with a tool, an effect that is delivered, and a step that failed; its id."""

    def do(*words):
        return outlog.run(*words, "--json").json()[0]

    run = do("run", "start", "--org", "acme", "--type", "triage", "--version", "1")["run_id"]
    step = do("run", "step", run, "--type", "classify")["step_id"]
    call = do("tool", "call", step, "--name", "search", "--data", '{"q":"invoice"}')["tool_call_id"]
    do("tool", "complete", call, "--data", '{"hits":3}')
    do("run", "effect", run, "--type", "SEND_EMAIL", "--to", "billing", "--data", '{"to":"x"}', "--step", step)
    do("step", "complete", step, "--data", '{"label":"invoice"}')
    do("run", "checkpoint", run, "--data", '{"done":1}')
    step = do("run", "step", run, "--type", "file")["step_id"]
    do("step", "fail", step, "--code", "no_match", "--message", "no folder fits")
    return run


def wait_dead(server, count=1):
    return wait_for(
        lambda: len(server.get("/v1/messages?state=DEAD")["messages"]) == count
        and server.get("/v1/messages?state=DEAD")["messages"],
        "dead letters",
    )


def test_m5_r3_a_dead_letter_is_found_requeued_and_seen_delivered(
    store, outlog, receiver, start, browser, answers, shots
):
    server = start("--dev")
    tell_story(outlog)
    message = wait_dead(server)[0]["event_id"]
    browser.flow("dead", server, shots, answers, message=message)
    assert [one.answer for one in receiver.of(id=message)] == [503, 503, 200]
    audit = outlog.run("events", "--json").json()
    assert "outlog.message.requeued" in [one["event_type"] for one in audit]


def test_m5_r3_many_are_requeued_and_killed_with_a_preview(store, outlog, receiver, start, browser, answers, shots):
    server = start("--dev")
    for n in range(3):
        append(outlog, "order.shipped", f"order/o-{n}")
    for n in range(2):
        append(outlog, "order.late", f"order/o-{n}")
    wait_dead(server, 3)
    wait_for(lambda: len(server.get("/v1/messages?retrying=true")["messages"]) == 2, "two retries")
    browser.flow("group", server, shots, {"heal": lambda: receiver.rule(200, destination="partner-api") and None})
    dead = server.get("/v1/messages?state=DEAD")["messages"]
    assert [one["destination"] for one in dead] == ["slow-api", "slow-api"]
    assert receiver.count(destination="slow-api") == 2, "a killed message is not tried again"
    lines = (server.folder / "serve.log").read_text().splitlines()
    calls = [line for line in lines if "/v1/messages/" in line and "kill" in line]
    assert calls and all("/v1/messages/kill" in line for line in calls), "one call for all of them, with its dry run"


def test_m5_r3_a_held_key_is_seen_and_released(store, outlog, receiver, start, browser, shots):
    server = start("--dev")
    receiver.rule(422, destination="ledger", times=1, body=b"no such account")
    for n in range(3):
        append(outlog, "order.booked", "order/o-1", json.dumps({"n": n}))
    wait_dead(server)
    browser.flow("held", server, shots)
    wait_for(
        lambda: [json.loads(one.body)["n"] for one in receiver.of(destination="ledger")] == [0, 1, 2],
        "those behind it, in their order",
    )


def test_m5_t3_from_a_filter_to_the_trace_to_the_cause(store, outlog, start, browser, answers, shots):
    server = start("--dev")
    tell_story(outlog)
    wait_dead(server)
    browser.flow("trace", server, shots, answers)


def test_m5_a_destination_is_paused_resumed_tested(store, outlog, receiver, start, browser, answers, shots):
    server = start("--dev")
    browser.flow("pause", server, shots, answers)
    sent = len(outlog.run("events", "--type", "order.created", "--json").json())
    wait_for(lambda: receiver.count(destination="billing", type="order.created") == sent, "the deliveries")


def test_m5_x1_a_token_is_made_used_and_revoked(store, outlog, start, browser, shots):
    server = start()
    append(outlog, "order.created")
    admin = outlog.run("token", "create", "--scope", "admin", "--json").json()[0]["token"]
    browser.flow("tokens", server, shots, admin=admin)


def test_m5_the_log_is_followed_and_only_what_is_seen_is_drawn(store, outlog, start, browser, answers, shots):
    server = start("--dev")
    append_many(outlog, "page.viewed", 2500)
    count = server.get("/v1/events?limit=1")["settled"]
    browser.flow("tail", server, shots, answers, count=count)


def test_m5_p6_c4_a_view_is_unstuck_and_a_consumer_reset(store, outlog, start, browser, shots):
    server = start("--dev")
    append(outlog, "order.paid", "order/o-1", '{"total":7}')
    append(outlog, "order.paid", "order/o-2", '{"total":null}')
    append(outlog, "order.paid", "order/o-3", '{"total":9}')
    outlog.run("consumers", "create", "search")
    wait_for(lambda: server.get("/v1/projections")["projections"][0]["status"] == "stopped", "the view to stop")
    browser.flow("readers", server, shots)


def test_m5_p3_a_rebuild_shows_how_far_it_is(store, outlog, start, browser, tmp_path, shots):
    append_many(outlog, "order.paid", 32000, {"total": 7})
    with open(tmp_path / "outlog.yaml", "a") as config:  # nobody takes over from the worker that is lost
        config.write("relay: {takeover: lease}\n")
    outlog.run("apply", "-f", tmp_path / "outlog.yaml")
    outlog.run("projections", "run", "--until-idle")
    outlog.run("projections", "rebuild", "totals", "--aside", "--no-wait")
    # Between the second batch and the last: the live view may have had one of its own.
    lost = outlog.start("projections", "run", "--lease", "1h", env={"OUTLOG_FAULT": "projection.applied:3:kill"})
    lost.communicate(timeout=30)
    assert lost.returncode == -signal.SIGKILL
    server = start("--dev")
    rebuild = server.get("/v1/projections")["projections"][0]["rebuild"]
    assert 0 < rebuild["event_id"] < rebuild["upto"]
    browser.flow("rebuilding", server, shots, done=rebuild["event_id"], upto=rebuild["upto"])


def test_m5_d4_a_broker_that_is_down_is_seen(store, outlog, start, browser, tmp_path, shots):
    with Nats(tmp_path / "nats") as broker:
        broker.prepare("orders")
        config = (
            (tmp_path / "outlog.yaml")
            .read_text()
            .replace("destinations:\n", f"destinations:\n  stream: {json.dumps(broker.settings())}\n", 1)
        )
        (tmp_path / "outlog.yaml").write_text(
            config.replace("routes:\n", 'routes:\n  - {on: "order.streamed", to: stream}\n', 1)
            + "sinks:\n  copy: {to: stream}\n"
        )
        server = start("--dev")

        def shown():
            return next(one for one in server.get("/v1/stats")["destinations"] if one["name"] == "stream")

        wait_for(lambda: shown()["ok_per_min"] is not None, "a first sample")
        append(outlog, "order.streamed")
        wait_for(lambda: shown()["last_ok_at"], "the first one to arrive")
    append_many(outlog, "order.streamed", 25)
    wait_for(lambda: shown()["breaker"] != "closed", "the breaker to open")
    stream = next(line for line in outlog.run("destinations").lines() if line.startswith("stream "))
    assert re.match(r"stream +nats +(open|half_open) +[12]\d +0 .* nats localhost:\d+: ", stream), stream
    browser.flow("broker", server, shots)


def test_m5_u3_a_run_is_looked_at_and_verified(store, outlog, outbox, start, browser, shots):
    server = start("--dev")
    run = tell_run(outlog)
    wait_for(
        lambda: server.get("/v1/messages?destination=billing&state=PUBLISHED")["messages"], "the effect's delivery"
    )
    browser.flow("run", server, shots, {"tamper": lambda: outbox.run("update {}runs set total_steps = 5")}, run=run)


def test_m5_u3_many_runs_are_listed_to_their_end(store, outlog, start, browser, shots):
    server = start("--dev")

    def post(path, **body):
        request = urllib.request.Request(
            f"{server.url}/v1/{path}", json.dumps(body).encode(), {"content-type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    count, completed = 330, 110
    runs = [post("runs", org_id="acme", run_type="triage", orchestrator_version="1")["run_id"] for _ in range(count)]
    for run in runs[::3]:
        post(f"runs/{run}/complete")
    browser.flow("longRuns", server, shots, count=count, completed=completed)


def test_m5_s5_a_session_shows_what_was_said_and_is_owed(store, outlog, start, browser, shots):
    browser.flow("session", start("--dev"), shots)


def test_m5_s5_a_long_session_is_shown_to_its_end(store, outlog, outbox, tmp_path, start, browser, shots):
    key, count = "u-long:nobody:t", 1100  # more than the console reads at a time
    (tmp_path / "outlog.yaml").write_text(
        json.dumps(
            {
                "agents": {"nobody": {"type": "exec", "command": ["true"], "tries": 1}},
                "notifications": {
                    "rules": [
                        {
                            "on": "user_message",
                            "aggregate_type": "session",
                            "org_id": "acme",
                            "recipients": {"path": "/user"},
                            "channels": ["in_app"],
                            "template": "t",
                            "once": "event",
                        }
                    ],
                    "templates": {"t": {"subject": "{{text}}", "text": "It says what was said."}},
                },
            }
        )
    )
    server = start("--dev")

    def say(session, text, **more):
        return json.dumps(
            {
                "org_id": "acme",
                "aggregate_type": "session",
                "aggregate_id": session,
                "event_type": "user_message",
                "payload": {"text": text, "requestId": text, **more},
            }
        )

    outlog.run(
        "append",
        "--ndjson",
        "-",
        input="\n".join(
            [say(f"u-{n}:nobody:t", f"word {n}", user="u") for n in range(110)]
            + [say(key, f"word {n}", user=[]) for n in range(count)]
        )
        + "\n",
    )
    owed = lambda: server.get(f"/v1/sessions/{key}/effects?org_id=acme&limit=10000")["effects"]  # noqa: E731
    wait_for(
        lambda: len(owed()) == count and len(server.get("/v1/notifications?limit=1000")["notifications"]) == 110,
        "the answers and the notices",
        120,
    )

    def acknowledge(number):
        outbox.run(
            "update {}effects set status = 'COMPLETED', attempts = 1 where effect_id = %s", owed()[number]["effect_id"]
        )

    browser.flow(
        "longSession",
        server,
        shots,
        key=key,
        count=count,
        answers={
            "acknowledge": acknowledge,
            "say": lambda text: outlog.run("append", "--ndjson", "-", input=say(key, text, user=[])).returncode,
        },
    )


def test_m5_by_keyboard_alone(sqlite_store, outlog, start, browser, answers, shots):
    server = start("--dev")
    tell_story(outlog)
    wait_dead(server)
    browser.flow("keyboard", server, shots, answers)


def test_m5_dark_as_the_system_says_or_the_person(sqlite_store, outlog, start, browser, shots):
    browser.flow("dark", start("--dev"), shots)


def test_m5_an_empty_store_says_what_to_do(sqlite_store, outlog, tmp_path, start, browser, shots):
    (tmp_path / "outlog.yaml").write_text("destinations: {}\n")
    pages = {name: hash for name, hash in PAGES.items() if name != "destination"}
    browser.flow("empty", start("--dev"), shots, pages=pages)


def test_m5_a_server_that_went_away_is_said_so(sqlite_store, outlog, start, browser, shots):
    server = start("--dev")
    browser.flow("away", server, shots, {"stop": server.stop, "start": server.start})


def pages_of(server):
    """Every page, the ones of a single thing too."""
    message = server.get("/v1/messages?state=DEAD")["messages"][0]["event_id"]
    event = server.get("/v1/events?event_type=order.shipped&limit=1")["events"][0]
    return {
        **PAGES,
        "message": f"messages/{message}",
        "event": f"events/{event['event_id']}",
        "log-event": f"log?event={event['event_id']}",
        "trace": f"traces/{event['correlation_id']}",
        "run": f"runs/{server.get('/v1/runs')['runs'][0]['run_id']}",
    }


def test_m5_every_page_in_both_colours(sqlite_store, outlog, start, browser, shots):
    """No error in the browser, a name for all that can be used, AA contrast, nobody else is asked."""
    server = start("--dev")
    tell_story(outlog)
    tell_run(outlog)
    outlog.run("consumers", "create", "search")
    wait_dead(server)
    browser.flow("every", server, shots, pages=pages_of(server))


def test_m5_every_page_at_360_pixels(sqlite_store, outlog, start, browser, shots):
    server = start("--dev")
    tell_story(outlog)
    tell_run(outlog)
    outlog.run("consumers", "create", "search")
    wait_dead(server)
    browser.flow("narrow", server, shots, pages=pages_of(server))


def test_m5_the_main_pages_at_200_percent(sqlite_store, outlog, start, browser, shots):
    server = start("--dev")
    tell_story(outlog)
    wait_dead(server)
    message = server.get("/v1/messages?state=DEAD")["messages"][0]["event_id"]
    browser.flow(
        "zoomed",
        server,
        shots,
        pages={
            **{name: PAGES[name] for name in ("overview", "log", "outbox", "dead", "destinations")},
            "message": f"messages/{message}",
        },
    )


def test_x3_nobody_else_can_script_or_frame_the_console(sqlite_store, serve):
    server = serve("--no-relay")
    for path in ("/", "/app.js", "/app.css", "/favicon.svg"):
        answer = server.get(path)
        policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
        assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
        assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
        assert policy["base-uri"] == policy["form-action"] == "'none'"
        assert (
            answer.headers["referrer-policy"] == "no-referrer" and answer.headers["x-content-type-options"] == "nosniff"
        )
    page = server.get("/").body.decode()
    assert "<script>" not in page and " onclick=" not in page and "<style" not in page, "the policy would stop it"
    for origin in ("https://evil.example", "null", f"http://localhost.evil.example:{server.port}"):
        for method, path in (("PUT", "/v1/destinations/d"), ("POST", "/v1/messages"), ("DELETE", "/v1/destinations/d")):
            assert (
                server.call(
                    method, path, {"type": "null"} if method != "DELETE" else None, headers={"origin": origin}
                ).status
                == 403
            )
    assert server.get("/v1/destinations").json["destinations"] == []
    own = {"origin": f"http://127.0.0.1:{server.port}"}
    assert server.put("/v1/destinations/d", {"type": "null"}, headers=own).status == 201


def test_the_parts_that_need_no_browser(root, build):
    """Built, so console/node_modules is there."""
    done = subprocess.run(["node", "--test", root / "test" / "console" / "units.mjs"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_without_npm_a_plain_page_is_built_in(root, tmp_path):
    """The page says so itself, and how to get the whole console."""
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "realpath", "dirname", "mkdir", "cp"):
        (tools / tool).symlink_to(shutil.which(tool))
    done = subprocess.run(
        [root / "scripts" / "console", tmp_path / "out"], env={"PATH": str(tools)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "node or npm is missing" in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "app.css",
        "app.js",
        "favicon.svg",
        "index.html",
    ]
    assert "npm" in (tmp_path / "out" / "index.html").read_text()


def test_the_bundle_is_small_and_whole(build):
    """Under 100 KB as it is sent, and no address of anybody else in it to load from."""
    folder = next(path.parent for path in pathlib.Path(build).rglob("console_stamp.h"))
    sent = sum((folder / name).stat().st_size for name in ("index.html.gz", "app.js.gz", "app.css.gz", "favicon.svg"))
    assert sent < 100_000, sent
    page = (folder / "index.html").read_text()
    assert "//" not in page.replace("<!doctype html>", ""), page
