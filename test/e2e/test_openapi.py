"""/openapi.json is true: every route is in it, every answer is as it says, and nothing made from it breaks us."""
import itertools
import json
import os
import re
import threading

import jsonschema
import pytest

from lib.cli import ROOT
from lib.openapi import Maker
from lib.outbox import wait_for

ID = "0190a7c3-0000-7000-8000-000000000001"
ENDLESS = {"streamEvents", "openSessionSocket"}  # an answer without end


@pytest.fixture
def server(store, serve):
    server = serve("--no-relay")
    server.document = server.get("/openapi.json").json
    return server


def operations(document):
    for path, methods in sorted(document["paths"].items()):
        for method, operation in methods.items():
            yield method.upper(), path, operation


def check(document, operation, answer):
    """The status is documented, and the body is what the schema of that status says."""
    name = operation["operationId"]
    assert str(answer.status) in operation["responses"], (name, answer)
    response = operation["responses"][str(answer.status)]
    if "$ref" in response:
        response = document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
    content = response.get("content")
    if not content:
        assert answer.body == b"", (name, answer)
        return
    media = answer.headers["content-type"].split(";")[0]
    assert media in content, (name, answer)
    if media == "application/x-ndjson":
        for line in answer.body.splitlines():
            conform(
                document,
                {"oneOf": [content["application/json"]["schema"], {"$ref": "#/components/schemas/Problem"}]},
                json.loads(line),
                name,
            )
    elif media.endswith("json"):
        conform(document, content[media]["schema"], answer.json, name)


def conform(document, schema, value, name):
    schema = {**schema, "components": document["components"]}
    wrong = [
        f"{error.json_path}: {error.message[:300]}"
        for error in jsonschema.Draft202012Validator(schema).iter_errors(value)
    ]
    assert not wrong, (name, wrong, value)


def test_the_description_is_valid_and_has_every_route(server):
    document = server.document
    assert document["openapi"].startswith("3.1")
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    described = {(method, path) for method, path, _ in operations(document)}
    written = set()
    for file in (ROOT / "src" / "server").rglob("*.c"):
        written |= set(re.findall(r'\{"(GET|POST|PUT|DELETE)",\s*"(/[^"]*)"', file.read_text()))
        written |= {("POST", path) for path in re.findall(r'COMMAND\("(/[^"]*)"', file.read_text())}
    assert written and described == written
    text = json.dumps(document)
    for used in set(re.findall(r'"#/components/(\w+)/([\w-]+)"', text)):
        assert used[1] in document["components"][used[0]], used
    for name in document["components"]["schemas"]:
        assert f'#/components/schemas/{name}"' in text, f"{name} is used nowhere"


BODIES = {
    "appendEvents": {
        "org_id": "acme",
        "events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}],
        "messages": [{"destination": "d", "event_type": "t", "payload": 1}],
    },
    "enqueueMessage": {"destination": "d", "event_type": "t", "payload": {"n": 1}},
    "putDestination": {"type": "null"},
    "commitConsumer": {"event_id": 0},
    "resetConsumer": {"to": 0},
    "createToken": {"scope": "read"},
    "requeueMessages": {"state": "DEAD", "dry_run": True},
    "killMessages": {"state": "PENDING", "dry_run": True},
}
CHAT = {
    "org_id": "acme",
    "destination": "chat",
    "event_type": "send_notification",
    "payload": {"session_key": "u:a:t", "text": "hi"},
}


def find_effect(server):
    """A message to a session became an effect of it."""
    return wait_for(lambda: server.get("/v1/effects?session_key=u:a:t").json["effects"], "the effect")[0]["effect_id"]


def test_every_call_answers_as_described_on_success(server, outlog):
    """The things the paths name exist; deleting comes last."""
    server.put("/v1/destinations/chat", {"type": "websocket"})
    server.post("/v1/messages", CHAT)
    outlog.run("relay", "--until-idle", "--quiet")
    effect = find_effect(server)
    event = server.append("acme", correlation_id=ID)[0]["id"]
    waiting, dead = [
        server.post("/v1/messages", BODIES["enqueueMessage"] | {"correlation_id": ID}).json["event_id"]
        for _ in range(2)
    ]
    server.post(f"/v1/messages/{dead}/kill")
    server.put("/v1/destinations/d", {"type": "null"})
    server.put("/v1/consumers/d", {"filters": {"org_id": "acme", "event_type": "t"}})
    token = server.post("/v1/tokens", {"scope": "read"}).json["id"]
    last = []
    for method, path, operation in sorted(operations(server.document), key=lambda one: one[0] == "DELETE"):
        name = operation["operationId"]
        if name in ENDLESS:
            continue
        of = {
            "/v1/events/": event,
            "/v1/tokens/": token,
            "/v1/traces/": ID,
            "/v1/messages/": dead,
            "/v1/effects/": effect,
        }
        id = next((id for prefix, id in of.items() if path.startswith(prefix)), "d")
        if name == "killMessage":
            id = waiting
        path = re.sub(r"\{[^}]*\}", id, path)
        body = BODIES.get(name, {}) if "requestBody" in operation else None
        answer = server.call(method, path, body)
        check(server.document, operation, answer)
        if re.match("/v1/(signals|runs|steps|tools|projections|sessions|users|notifications)", path):
            continue  # theirs are tests of their own
        if name == "releaseMessage":
            assert answer.status == 409, "it holds no key"
        else:
            assert answer.status < 300, (name, answer)
        last.append(name)
    assert last[-1].startswith(("delete", "revoke"))


def test_every_call_answers_as_described_when_nothing_exists(server):
    for method, path, operation in operations(server.document):
        if operation["operationId"] in ENDLESS:
            continue
        body = {} if "requestBody" in operation else None
        check(server.document, operation, server.call(method, re.sub(r"\{[^}]*\}", ID, path), body))
        wrong = server.call(method, re.sub(r"\{[^}]*\}", "%20", path) + "?surprise=1", body)
        check(server.document, operation, wrong)
        assert wrong.status in (400, 404), (path, wrong)


def test_u1_rows_without_org_match_their_schema(server):
    at = {operation["operationId"]: operation for _, _, operation in operations(server.document)}

    def call(name, method, path, body=None):
        answer = server.call(method, path, body)
        assert answer.status < 300, answer
        check(server.document, at[name], answer)
        return answer.json

    signal = call("receiveSignal", "POST", "/v1/signals", {"org_id": None, "signal_type": "s", "payload": {}})
    run = call(
        "startRun",
        "POST",
        "/v1/runs",
        {"org_id": None, "signal_id": signal["signal_id"], "run_type": "r", "orchestrator_version": "1"},
    )["run_id"]
    for name, path in (
        ("getSignal", f"/v1/signals/{signal['signal_id']}"),
        ("listRuns", "/v1/runs"),
        ("getRun", f"/v1/runs/{run}"),
        ("replayRun", f"/v1/runs/{run}/replay"),
    ):
        call(name, "GET", path)


def test_other_methods_get_405_with_the_allowed_ones(server):
    for path in server.document["paths"]:
        known = {method.upper() for method in server.document["paths"][path]}
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - known:
            if path in ("/v1/messages/requeue", "/v1/messages/kill") and method == "GET":
                continue  # also the path of a message
            answer = server.call(method, re.sub(r"\{[^}]*\}", ID, path))
            assert answer.status in (405, 501), (method, path, answer)
            if answer.status == 405:
                assert known <= set(answer.headers["allow"].split(", ")), (method, path, answer)


# --- every change ---

STUCK = """
destinations:
  d: {type: "null"}
  chat: {type: websocket}
  held: {type: exec, command: ["false"], on_dead: hold, retry: {max_attempts: 1}}
projections:
  totals:
    version: 1
    tables: [totals]
    create: "create table if not exists totals (id text not null, total integer not null)"
    on: {order.made: "insert into totals values (:aggregate_id, :payload.total)"}
notifications:
  rules: [{on: order.told, recipients: {path: /user}, channels: [in_app], template: told, once: event}]
  templates: {told: {subject: "{{aggregate_id}}", text: "x"}}
"""


class Scenario:
    """Does every change of the description once, each with what it needs; `done` has what came of it."""

    def __init__(self, server, send):
        self.server, self._send, self.done = server, send, {}
        self.at = {(method, path): operation for method, path, operation in operations(server.document)}

    def do(self, method, path, body=None, *args):
        operation = self.at[method, path]
        answer = self._send(method, re.sub(r"\{[^}]*\}", "%s", path) % args, body, operation)
        assert answer.status < 300, (operation["operationId"], answer)
        self.done[operation["operationId"]] = answer
        return answer.json if answer.body else None

    def post(self, path, body=None, *args):
        return self.do("POST", path, {} if body is None else body, *args)

    def run(self):
        self.log_and_outbox()
        self.runs()
        self.views()
        self.people()
        self.others()

    def log_and_outbox(self):
        self.post(
            "/v1/events",
            {
                "org_id": "acme",
                "events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}],
            },
        )
        message = {"destination": "later", "event_type": "t", "payload": 1}
        one = self.post("/v1/messages", message)["event_id"]
        two = self.server.post("/v1/messages", message).json["event_id"]
        self.post("/v1/messages/{event_id}/kill", None, one)
        self.post("/v1/messages/{event_id}/requeue", None, one)
        assert self.post("/v1/messages/kill", {"destination": "later"})["killed"] == 2
        assert set(self.post("/v1/messages/requeue", {"state": "DEAD", "destination": "later"})["event_ids"]) == {
            one,
            two,
        }
        held = self.server.post("/v1/messages", {**message, "destination": "held", "ordering_key": "k"}).json[
            "event_id"
        ]
        self.server.wait_message(held, "DEAD")
        self.post("/v1/messages/{event_id}/release", None, held)
        self.do("PUT", "/v1/destinations/{name}", {"type": "null"}, "new")
        for verb in ("pause", "resume", "test"):
            self.post("/v1/destinations/{name}/" + verb, None, "new")
        self.server.post("/v1/messages", {**message, "destination": "new", "available_at": "2099-01-01T00:00:00Z"})
        wait_for(
            lambda: self.post("/v1/destinations/{name}/deliver", None, "new")["hurried"],
            "the relay to have looked at it",
        )

    def runs(self):
        signal = self.post("/v1/signals", {"org_id": "acme", "signal_type": "s", "payload": {}})["signal_id"]
        draft = {"org_id": "acme", "run_type": "r", "orchestrator_version": "1", "signal_id": signal}
        run = self.post("/v1/runs", draft)["run_id"]
        others = [self.server.post("/v1/runs", {**draft, "signal_id": None}).json["run_id"] for _ in range(2)]
        failure = {"error_code": "e", "error_message": "m"}

        def step(post=self.server.post):
            made = post(f"/v1/runs/{run}/steps", {"step_type": "s"})
            return made.json["step_id"]

        first = self.post("/v1/runs/{id}/steps", {"step_type": "s"}, run)["step_id"]
        tool = self.post("/v1/steps/{id}/tools", {"tool_name": "t", "input": {}}, first)["tool_call_id"]
        self.post("/v1/tools/{id}/complete", {"result": {}}, tool)
        tool = self.server.post(f"/v1/steps/{first}/tools", {"tool_name": "t", "input": {}}).json["tool_call_id"]
        self.post("/v1/tools/{id}/fail", failure, tool)
        self.post("/v1/steps/{id}/fail", failure, first)
        self.post("/v1/steps/{id}/retry", None, first)
        self.post("/v1/steps/{id}/complete", {"output_result": {}}, first)
        self.post("/v1/steps/{id}/correct", {"output_result": {"n": 2}}, first)
        self.post("/v1/steps/{id}/skip", {}, step())
        self.post("/v1/runs/{id}/checkpoint", {"checkpoint_data": {}}, run)
        self.post("/v1/runs/{id}/effects", {"effect_type": "e", "destination": "d", "effect_spec": {}}, run)
        self.post("/v1/runs/{id}/resume", None, run)
        self.post("/v1/runs/{id}/complete", None, run)
        self.post("/v1/runs/{id}/fail", failure, others[0])
        self.post("/v1/runs/{id}/cancel", {}, others[1])

    def stuck(self):
        view = self.server.get("/v1/projections").json["projections"][0]
        return view["status"] == "stopped" and view

    def views(self):
        event = self.server.append("acme", event_type="order.made")[0]["event_id"]
        wait_for(self.stuck, "the view to be stuck")
        self.post("/v1/projections/{name}/retry", None, "totals")
        wait_for(self.stuck, "it to be stuck again")
        self.post("/v1/projections/{name}/skip", {"event_id": event}, "totals")
        self.post("/v1/projections/{name}/rebuild", {"aside": True}, "totals")
        self.post("/v1/projections/{name}/cancel", None, "totals")

    def people(self):
        self.server.append("acme", event_type="order.told", payload={"user": "u"})
        notices = wait_for(
            lambda: self.server.get("/v1/users/u/notifications?org_id=acme").json["notifications"], "the notice"
        )
        self.post("/v1/notifications/{id}/read", None, notices[0]["id"])
        self.do("PUT", "/v1/users/{user_id}/preferences", {"channels": {"order": {"email": False}}}, "u")
        self.post("/v1/users/{user_id}/ticket", None, "u")
        self.post("/v1/sessions/{session_key}/ticket", None, "u:a:t")
        self.post("/v1/sessions/{session_key}/deliver", None, "u:a:t")
        self.server.post("/v1/messages", CHAT)
        effect = find_effect(self.server)
        self.post("/v1/effects/{effect_id}/end", None, effect)
        self.post("/v1/effects/{effect_id}/resend", None, effect)

    def others(self):
        self.do("PUT", "/v1/consumers/{name}", {}, "c")
        self.post("/v1/consumers/{name}/commit", {"event_id": 1}, "c")
        self.post("/v1/consumers/{name}/reset", {"to": 0}, "c")
        self.do("DELETE", "/v1/consumers/{name}", None, "c")
        token = self.post("/v1/tokens", {"scope": "read"})["id"]
        self.do("DELETE", "/v1/tokens/{id}", None, token)
        self.do("PUT", "/v1/destinations/{name}", {"type": "null"}, "gone")
        self.do("DELETE", "/v1/destinations/{name}", None, "gone")


@pytest.fixture
def shop(store, serve, outlog, tmp_path):
    (tmp_path / "outlog.yaml").write_text(STUCK)
    outlog.run("apply", "-f", "outlog.yaml")
    server = serve()
    server.document = server.get("/openapi.json").json
    return server


NOT_HERE = {"removeSuppression"}  # needs a mail that bounced: see test_notifications.py


def test_i1_every_post_is_done_once_per_key(shop):
    """The repeat is answered word for word, whatever the first one changed; another body is refused."""
    count = itertools.count()

    def send(method, path, body, operation):
        key = {"idempotency-key": f"k-{next(count)}"} if method == "POST" else {}
        first = shop.call(method, path, body, headers=key)
        if method != "POST" or first.status >= 300 or operation["operationId"] == "resumeRun":
            return first  # a resume reads
        again = shop.call(method, path, body, headers=key)
        name = operation["operationId"]
        assert again.status == first.status, (name, first, again)
        assert again.headers.get("idempotency-replayed") == "true", (name, again)
        secret = {"token", "ticket"} & set(first.json)
        assert again.body == first.body or secret and not secret & {k for k, v in again.json.items() if v}, (
            name,
            first,
            again,
        )
        if body:
            other = shop.call(method, path, {**body, "surprise": 1}, headers=key)
            assert other.status in (400, 409), (name, other)
        return first

    scenario = Scenario(shop, send)
    scenario.run()
    posts = {op["operationId"] for method, _, op in operations(shop.document) if method == "POST"}
    assert posts <= set(scenario.done), posts - set(scenario.done)


def test_x4_every_change_by_an_admin_leaves_an_event_without_org(shop):
    """By request_id: the event is in the change's own transaction."""
    count = itertools.count()
    asked = {}

    def send(method, path, body, operation):
        asked[operation["operationId"]] = f"x4-{next(count)}"
        return shop.call(method, path, body, headers={"x-request-id": asked[operation["operationId"]]})

    scenario = Scenario(shop, send)
    scenario.run()
    changes = {
        op["operationId"]
        for method, _, op in operations(shop.document)
        if method != "GET" and op.get("x-scope") == "admin"
    }
    assert changes - NOT_HERE <= set(scenario.done)
    audited = {
        event["request_id"]: event
        for event in shop.get("/v1/events?limit=10000").json["events"]
        if event["org_id"] is None
    }
    silent = {name for name in changes & set(scenario.done) if asked[name] not in audited}
    assert silent == {"testDestination", "deliverSession", "putConsumer"}, "these change nothing that is there"
    assert all(
        audited[asked[name]]["event_type"].startswith("outlog.") for name in changes & set(scenario.done) - silent
    )


OFTEN = {"appendEvents", "enqueueMessage", "startStep", "callTool"}  # the rest lives on what they made


class RandomClient:
    """One client that asks at random, and looks whether each answer is as described."""

    def __init__(self, server, document, seed, tokens):
        self.server, self.document, self.seed, self.tokens = server, document, seed, tokens
        self.maker = Maker(document, seed)
        self.calls = [one for one in operations(document) if one[2]["operationId"] not in ENDLESS]
        self.calls += [one for one in self.calls if one[2]["operationId"] in OFTEN] * 4
        self.seen, self.trouble = set(), None

    def walk(self, number):
        try:
            for i in range(number):
                self.step(i)
        except Exception as error:
            self.trouble = error

    def step(self, i):
        method, path, operation = self.maker.random.choice(self.calls)
        if operation["operationId"] == "revokeToken" and self.maker.random.random() < 0.9:
            return  # else there would soon be none
        request = self.maker.request(method, path, operation)
        token = self.maker.random.choice(self.tokens)
        try:
            answer = self.server.call(*request[:3], token=token, headers=request[3])
            is_late = operation["operationId"] == "waitForProjection" and answer.status == 504  # that is its answer
            assert answer.status < 500 or is_late, answer
            check(self.document, operation, answer)
        except Exception as error:
            raise AssertionError(f"seed {self.seed}, request {i}: {request}, token {token}: {error!r}") from error
        self.seen.add((operation["operationId"], answer.status))
        if answer.body and answer.headers["content-type"] == "application/json":
            self.maker.learn(path, answer.json)


def run_random_clients(server, document, number, tokens, clients):
    """The same requests each time, but for `make torture`. OUTLOG_SEED repeats what failed, though with several
    clients not in the same order."""
    seed = int(os.environ.get("OUTLOG_SEED", os.getpid() if "OUTLOG_TORTURE_ROWS" in os.environ else 27192))
    random_clients = [RandomClient(server, document, seed + n, tokens) for n in range(clients)]
    threads = [threading.Thread(target=one.walk, args=[number // clients]) for one in random_clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in random_clients:
        if one.trouble:
            raise one.trouble
    assert server.process.poll() is None and server.get("/healthz", token=None).status == 200
    return set.union(*(one.seen for one in random_clients))


def test_random_requests_break_nothing(server):
    seen = run_random_clients(server, server.document, 1500, [None], clients=1)
    assert len(seen) > 30


CONFIG = """
destinations: {d: {type: "null"}}
routes: [{on: "order.*", to: d}]
projections:
  totals:
    version: 1
    tables: [totals]
    create: "create table if not exists totals (id text not null)"
    on: {order.made: "insert into totals values (:aggregate_id)"}
notifications:
  rules: [{on: order.made, recipients: {path: /user}, channels: [in_app], template: made}]
  templates: {made: {subject: "{{aggregate_id}}", text: "{{n}}"}}
"""


@pytest.mark.torture
def test_random_requests_of_every_kind_of_token_at_once(store, serve, outlog, tmp_path):
    """With a relay beside them, and tokens that may much or little. `make torture` sends 20,000 to each store."""
    number = int(os.environ.get("OUTLOG_TORTURE_ROWS", 7500)) // 5
    (tmp_path / "outlog.yaml").write_text(CONFIG)
    outlog.run("apply", "-f", "outlog.yaml")
    server = serve(dev=False)
    made = [
        outlog.run("token", "create", "--scope", scope, *org, "--json").json()[0]["token"]
        for scope in ("read", "append", "admin")
        for org in ((), ("--org", "acme"))
    ]
    document = server.get("/openapi.json", token=None).json
    seen = run_random_clients(server, document, number, [*made, *[made[-2]] * 6, None, "nonsense"], clients=3)
    assert {401, 403, 404, 400, 200} <= {status for _, status in seen}
    done = {name for name, status in seen if status < 300}
    assert len(done) > 35 and {"appendEvents", "enqueueMessage", "startRun"} & done, "not only refusals"
