"""/openapi.json is true: every route is in it, every answer is as it says, and nothing made from it breaks us."""
import json
import os
import re
import threading

import jsonschema
import pytest

from lib.cli import ROOT
from lib.openapi import Maker

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
            conform(document, {"oneOf": [content["application/json"]["schema"], {"$ref": "#/components/schemas/Problem"}]},
                    json.loads(line), name)
    elif media.endswith("json"):
        conform(document, content[media]["schema"], answer.json, name)


def conform(document, schema, value, name):
    schema = {**schema, "components": document["components"]}
    wrong = [f"{error.json_path}: {error.message[:300]}" for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]
    assert not wrong, (name, wrong, value)


def test_it_is_valid_and_names_every_route(server):
    document = server.document
    assert document["openapi"].startswith("3.1")
    for name, schema in document["components"]["schemas"].items():
        jsonschema.Draft202012Validator.check_schema(schema)
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    described = {(method, path) for method, path, _ in operations(document)}
    written = set()
    for file in (ROOT / "src" / "api").glob("*.c"):
        written |= set(re.findall(r'\{"(GET|POST|PUT|DELETE)",\s*"(/[^"]*)"', file.read_text()))
        written |= {("POST", path) for path in re.findall(r'COMMAND\("(/[^"]*)"', file.read_text())}
    assert written and described == written
    text = json.dumps(document)
    for used in set(re.findall(r'"#/components/(\w+)/([\w-]+)"', text)):
        assert used[1] in document["components"][used[0]], used
    for name in document["components"]["schemas"]:
        assert f"#/components/schemas/{name}\"" in text, f"{name} is used nowhere"


BODIES = {
    "appendEvents": {"org_id": "acme", "events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}],
                     "messages": [{"destination": "d", "event_type": "t", "payload": 1}]},
    "enqueueMessage": {"destination": "d", "event_type": "t", "payload": {"n": 1}},
    "putDestination": {"type": "null"}, "commitConsumer": {"event_id": 0}, "resetConsumer": {"to": 0},
    "createToken": {"scope": "read"}, "requeueMessages": {"state": "DEAD", "dry_run": True},
    "killMessages": {"state": "PENDING", "dry_run": True},
}


def test_every_call_answers_as_described_when_all_is_well(server):
    """The things the paths name exist; deleting comes last."""
    event = server.append("acme", correlation_id=ID)[0]["id"]
    waiting, dead = ([server.post("/v1/messages", BODIES["enqueueMessage"] | {"correlation_id": ID}).json["event_id"]
                      for _ in range(2)])
    server.post(f"/v1/messages/{dead}/kill")
    server.put("/v1/destinations/d", {"type": "null"})
    server.put("/v1/consumers/d", {"filters": {"org_id": "acme", "event_type": "t"}})
    token = server.post("/v1/tokens", {"scope": "read"}).json["id"]
    last = []
    for method, path, operation in sorted(operations(server.document), key=lambda one: one[0] == "DELETE"):
        name = operation["operationId"]
        if name in ENDLESS:
            continue
        of = {"/v1/events/": event, "/v1/tokens/": token, "/v1/traces/": ID, "/v1/messages/": dead}
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


def test_every_call_answers_as_described_when_nothing_is_there(server):
    for method, path, operation in operations(server.document):
        if operation["operationId"] in ENDLESS:
            continue
        body = {} if "requestBody" in operation else None
        check(server.document, operation, server.call(method, re.sub(r"\{[^}]*\}", ID, path), body))
        wrong = server.call(method, re.sub(r"\{[^}]*\}", "%20", path) + "?surprise=1", body)
        check(server.document, operation, wrong)
        assert wrong.status in (400, 404), (path, wrong)


def test_other_methods_are_told_which_are_possible(server):
    for path in server.document["paths"]:
        known = {method.upper() for method in server.document["paths"][path]}
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} - known:
            if path in ("/v1/messages/requeue", "/v1/messages/kill") and method == "GET":
                continue  # also the path of a message
            answer = server.call(method, re.sub(r"\{[^}]*\}", ID, path))
            assert answer.status in (405, 501), (method, path, answer)
            if answer.status == 405:
                assert known <= set(answer.headers["allow"].split(", ")), (method, path, answer)


class Wanderer:
    """One client that asks at random, and looks whether each answer is as described."""

    def __init__(self, server, document, seed, tokens):
        self.server, self.document, self.seed, self.tokens = server, document, seed, tokens
        self.maker = Maker(document, seed)
        self.calls = [one for one in operations(document) if one[2]["operationId"] not in ENDLESS]
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
            assert answer.status < 500, answer
            check(self.document, operation, answer)
        except Exception as error:
            raise AssertionError(f"seed {self.seed}, request {i}: {request}, token {token}: {error!r}") from error
        self.seen.add((operation["operationId"], answer.status))
        if answer.body and answer.headers["content-type"] == "application/json":
            self.maker.learn(answer.json)


def wander(server, document, number, tokens, clients):
    """OUTLOG_SEED repeats what failed, though with several clients not in the same order."""
    seed = int(os.environ.get("OUTLOG_SEED", os.getpid()))
    wanderers = [Wanderer(server, document, seed + n, tokens) for n in range(clients)]
    threads = [threading.Thread(target=one.walk, args=[number // clients]) for one in wanderers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one in wanderers:
        if one.trouble:
            raise one.trouble
    assert server.process.poll() is None and server.get("/healthz", token=None).status == 200
    return set.union(*(one.seen for one in wanderers))


def test_random_requests_break_nothing(server):
    seen = wander(server, server.document, 1500, [None], clients=1)
    assert len(seen) > 30


@pytest.mark.torture
def test_random_requests_of_every_kind_of_caller_at_a_time(store, serve, outlog):
    """With a relay beside them, and tokens that may much or little. `make torture` sends 20,000 to each store."""
    number = int(os.environ.get("OUTLOG_TORTURE_ROWS", 7500)) // 5
    server = serve(dev=False)
    made = [outlog.run("token", "create", "--scope", scope, *org, "--json").json()[0]["token"]
            for scope in ("read", "append", "admin") for org in ((), ("--org", "acme"))]
    document = server.get("/openapi.json", token=None).json
    seen = wander(server, document, number, [*made, made[-2], made[-2], None, "nonsense"], clients=3)
    assert {401, 403, 404, 400, 200} <= {status for _, status in seen}
