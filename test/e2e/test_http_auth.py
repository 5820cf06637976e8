"""Who may do what: every call with every kind of token, and what tenants never see (X1, X3, X5)."""
import time

import pytest

from lib.outbox import wait_for
from lib.server import Stream

SCOPES = ("read", "append", "admin")
ORGS = (None, "acme", "other")

# Calls that need more than a path: their bodies. The others are sent {}.
BODIES = {
    "appendEvents": {"events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}]},
    "enqueueMessage": {"destination": "d", "event_type": "t", "payload": 1},
    "putDestination": {"type": "null"},
    "commitConsumer": {"event_id": 0},
    "resetConsumer": {"to": 0},
    "createToken": {"scope": "read"},
    "requeueMessages": {"state": "DEAD", "dry_run": True},
}


@pytest.fixture
def server(store, serve):
    return serve("--no-relay", dev=False)


@pytest.fixture
def tokens(outlog):
    """(scope, org) -> the token's text."""

    def make(scope, org, *more):
        return outlog.run(
            "token", "create", "--scope", scope, *(["--org", org] if org else []), *more, "--json"
        ).json()[0]

    return {(scope, org): make(scope, org)["token"] for scope in SCOPES for org in ORGS} | {"make": make}


def operations(server):
    """(method, path with arguments, operation) of everything in /openapi.json."""
    for path, methods in server.get("/openapi.json", token=None).json["paths"].items():
        for method, operation in methods.items():
            for part in ("event_id", "id", "correlation_id"):
                path = path.replace("{%s}" % part, "0190a7c3-0000-7000-8000-000000000001")
            yield method.upper(), path.replace("{name}", "none"), operation


def wanted(operation, scope, org):
    """Is a token of this kind let in?"""
    needs = operation["x-scope"]
    return needs in ("any", scope) or scope == "admin", org is None or operation["x-org-tokens"]


def test_x1_every_call_with_every_kind_of_token(server, tokens):
    revoked = tokens["make"]("admin", None)
    assert server.get("/v1/whoami", token=revoked["token"]).status == 200
    assert server.delete(f"/v1/tokens/{revoked['id']}", token=tokens["admin", None]).status == 204
    wait_for(lambda: server.get("/v1/whoami", token=revoked["token"]).status == 401, "the revoked one to end", 6)
    count = 0
    for number, (method, path, operation) in enumerate(operations(server)):
        body = BODIES.get(operation["operationId"], {}) if method in ("POST", "PUT") else None
        name = operation["operationId"]
        server.come_from(f"127.0.1.{1 + number}")  # many wrong tokens from one address are slowed down
        if name == "streamEvents":
            path += "?after=x"  # refused after it was let in: a stream would not end
        if operation.get("security") == []:
            assert server.call(method, path, body, token=None).status in (200, 304) or "Socket" in name, name
            continue
        for bad in (None, "", "nonsense", "olt_" + "0" * 40, revoked["token"], "ü" * 10):
            headers = {"authorization": b"Bearer " + bad.encode()} if bad else {}
            answer = server.call(method, path, body, token=None, headers=headers)
            assert (answer.status, answer.code) == (401, "unauthorized"), (name, bad)
            assert answer.headers["www-authenticate"] == "Bearer"
        for scope in SCOPES:
            for org in ORGS[:2]:
                may_do, may_here = wanted(operation, scope, org)
                more = {"org_id": "acme"} if name in ("appendEvents",) and not org else {}
                sent = {**body, **more} if body is not None else None
                answer = server.call(method, path, sent, token=tokens[scope, org])
                count += 1
                if may_do and may_here:
                    assert answer.status not in (401, 403), (name, scope, org, answer)
                else:
                    assert (answer.status, answer.code) == (403, "forbidden"), (name, scope, org, answer)
    assert count > 150


def test_x5_scopes_are_those_of_the_contract(server):
    scopes = {op["operationId"]: op.get("x-scope") for _, _, op in operations(server)}
    reads = {name for name, scope in scopes.items() if scope == "read"}
    assert {
        "listEvents",
        "streamEvents",
        "getEvent",
        "getCausality",
        "getTrace",
        "listConsumers",
        "getConsumer",
        "readConsumer",
        "commitConsumer",
        "getMetrics",
    } <= reads
    for name in (
        "listMessages",
        "getMessage",
        "listDestinations",
        "putDestination",
        "listTokens",
        "getStats",
        "getSeries",
        "listDeadGroups",
        "putConsumer",
        "resetConsumer",
        "deleteConsumer",
        "requeueMessages",
        "killMessage",
    ):
        assert scopes[name] == "admin", name
    assert scopes["appendEvents"] == scopes["enqueueMessage"] == "append"


def test_x1_a_tenant_sees_its_org_and_never_infrastructure(server, tokens):
    admin, acme = tokens["admin", None], tokens["read", "acme"]
    server.token = admin
    mine = server.append("acme", correlation_id="same")[0]
    others = server.append("other", correlation_id="same")[0]
    infra = server.append(None, correlation_id="same")[0]
    child = server.append("acme", causation_id=mine["id"])[0]
    server.put("/v1/destinations/d", {"type": "null"})  # leaves an audit event
    server.token = acme
    own = [mine["event_id"], child["event_id"]]
    assert [e["event_id"] for e in server.get("/v1/events").json["events"]] == own
    assert [e["event_id"] for e in server.get("/v1/events?org_id=acme").json["events"]] == own
    assert server.get("/v1/events?org_id=other").code == "forbidden"
    for hidden in (others, infra):
        for key in ("id", "event_id"):
            assert server.get(f"/v1/events/{hidden[key]}").code == "not_found"
            assert server.get(f"/v1/events/{hidden[key]}/causality").code == "not_found"
    trace = server.get("/v1/traces/same").json
    assert [e["event_id"] for e in trace["events"]] == own and trace["messages"] == []
    chain = server.get(f"/v1/events/{mine['id']}/causality?direction=down").json["events"]
    assert [e["event_id"] for e in chain] == own
    for path in (
        "/metrics",
        "/v1/stats",
        "/v1/stats/series",
        "/v1/dead/groups",
        "/v1/messages",
        "/v1/destinations",
        "/v1/tokens",
    ):
        assert server.get(path).code == "forbidden"
        assert server.get(path, token=tokens["admin", "acme"]).code == "forbidden"


def test_x1_a_tenant_writes_only_to_its_org(server, tokens):
    append = tokens["append", "acme"]
    event = {"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}
    assert server.post("/v1/events", {"events": [event]}, token=append).status == 201, "its own without asking"
    for body in (
        {"org_id": "other", "events": [event]},
        {"org_id": None, "events": [event]},
        {"events": [{**event, "org_id": "other"}]},
        {"events": [{**event, "org_id": None}]},
        {"events": [event], "messages": [{"destination": "d", "event_type": "t", "payload": 1, "org_id": "other"}]},
    ):
        assert server.post("/v1/events", body, token=append).code == "forbidden", body
    message = {"destination": "d", "event_type": "t", "payload": 1}
    assert server.post("/v1/messages", {**message, "org_id": "other"}, token=append).code == "forbidden"
    sent = server.post("/v1/messages", message, token=append).json["event_id"]
    assert server.get(f"/v1/messages/{sent}", token=tokens["admin", None]).json["org_id"] == "acme"
    stored = server.get("/v1/events", token=tokens["admin", None]).json["events"]
    assert {e["org_id"] for e in stored if not e["event_type"].startswith("outlog.")} == {"acme"}


def test_the_actor_is_the_token_unless_given(server, tokens):
    made = tokens["make"]("append", "acme")
    server.post(
        "/v1/events",
        {"events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "e", "payload": {}}]},
        token=made["token"],
        headers={"x-request-id": "r-1"},
    )
    event = server.get("/v1/events", token=tokens["read", "acme"]).json["events"][0]
    assert (event["actor_type"], event["actor_id"], event["request_id"]) == ("service_principal", made["id"], "r-1")


def test_x1_consumers_of_an_org_are_its_own(server, tokens):
    acme, other = tokens["admin", "acme"], tokens["admin", "other"]
    assert server.put("/v1/consumers/mine", {}, token=acme).json["filters"] == {"org_id": "acme"}
    assert server.put("/v1/consumers/infra", {"filters": {"org_id": None}}, token=acme).code == "forbidden"
    assert server.put("/v1/consumers/theirs", {"filters": {"org_id": "other"}}, token=acme).code == "forbidden"
    server.put("/v1/consumers/all", {}, token=tokens["admin", None])
    server.token = tokens["admin", None]
    server.append("other"), server.append("acme")
    for token, names in ((acme, ["mine"]), (other, []), (tokens["admin", None], ["all", "mine"])):
        assert [c["name"] for c in server.get("/v1/consumers", token=token).json["consumers"]] == names
    for name in ("mine", "all"):
        assert server.put(f"/v1/consumers/{name}", {}, token=other).code == "id_conflict"
        assert server.get(f"/v1/consumers/{name}", token=other).code == "not_found"
        assert server.get(f"/v1/consumers/{name}/events", token=other).code == "not_found"
        assert server.post(f"/v1/consumers/{name}/commit", {"event_id": 1}, token=other).code == "not_found"
        assert server.post(f"/v1/consumers/{name}/reset", {"to": 0}, token=other).code == "not_found"
        assert server.delete(f"/v1/consumers/{name}", token=other).code == "not_found"
    events = server.get("/v1/consumers/mine/events", token=tokens["read", "acme"]).json["events"]
    assert [e["org_id"] for e in events] == ["acme"]
    assert server.post("/v1/consumers/mine/commit", {"event_id": 1}, token=tokens["read", "acme"]).status == 200


def test_x1_tokens_are_shown_once_and_hashed_at_rest(server, tokens, outbox):
    admin = tokens["admin", None]
    made = server.post("/v1/tokens", {"scope": "append", "org_id": "acme"}, token=admin)
    assert made.status == 201 and made.json["token"]
    secret = made.json["token"]
    assert server.get("/v1/whoami", token=secret).json["org_id"] == "acme", "it works at once"
    listed = server.get("/v1/tokens", token=admin)
    assert secret.encode() not in listed.body and made.json["id"].encode() in listed.body
    with outbox.session() as session:
        rows = session.run("select * from {}tokens")
    assert len(rows) > 9 and secret not in str(rows)
    for body, code in (
        ({}, "invalid_field"),
        ({"scope": "root"}, "invalid_field"),
        ({"scope": "read", "rate": -1}, "invalid_field"),
        ({"scope": "read", "rate": "fast"}, "invalid_field"),
        ({"scope": "read", "org": "x"}, "unknown_field"),
        ({"scope": "read", "org_id": ""}, "invalid_field"),
        ({"scope": "read", "org_id": 7}, "invalid_field"),
    ):
        answer = server.post("/v1/tokens", body, token=admin)
        assert answer.code == code, (body, answer)
    assert server.delete("/v1/tokens/0190a7c3-0000-7000-8000-000000000001", token=admin).code == "not_found"
    assert server.delete("/v1/tokens/x", token=admin).status in (400, 404)


def test_a_token_over_its_rate_gets_429(server, tokens):
    admin = tokens["admin", None]
    slow = server.post("/v1/tokens", {"scope": "read", "rate": 1}, token=admin).json["token"]
    answers = [server.get("/v1/events", token=slow) for _ in range(10)]
    refused = [answer for answer in answers if answer.status == 429]
    assert refused and answers[0].status == 200
    assert refused[0].code == "rate_limited" and int(refused[0].headers["retry-after"]) >= 1
    assert server.get("/v1/events", token=admin).status == 200, "others are not slowed"
    wait_for(lambda: server.get("/v1/events", token=slow).status == 200, "its rate", pause=1.1)


def test_x3_dev_mode_answers_only_to_loopback_names(store, serve):
    server = serve("--no-relay")
    assert server.get("/v1/events", headers={"host": f"localhost:{server.port}"}).status == 200
    for name in ("evil.example", "127.0.0.1.evil.example", f"evil.example:{server.port}", ""):
        assert server.get("/v1/events", headers={"host": name}).status in (400, 403), name
    answer = server.post("/v1/events", {}, headers={"origin": "https://evil.example"})
    assert answer.status == 403, "a page of another origin cannot write"


def test_r9_a_page_of_another_site_cannot_write_without_an_origin(store, serve):
    """Some browsers send no Origin with a form; then Sec-Fetch-Site says where the request comes from."""
    server = serve("--no-relay")
    path, body = "/v1/destinations/d", {"type": "null"}
    for site in ("cross-site", "same-site", "Cross-Site"):
        assert server.put(path, body, headers={"sec-fetch-site": site}).code == "forbidden", site
        assert server.post("/v1/events", {}, headers={"sec-fetch-site": site}).status == 403, site
        assert server.get("/v1/events", headers={"sec-fetch-site": site}).status == 200, "a link may be followed"
    for site in ("same-origin", "none"):
        assert server.put(path, body, headers={"sec-fetch-site": site}).status in (200, 201), site


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0"])
def test_x3_dev_mode_listens_on_loopback_only(store, outlog, address):
    refused = outlog.run("serve", "--dev", "--no-relay", "--listen", address, check=False)
    assert refused.returncode == 1 and "loopback" in refused.stderr and refused.stdout == ""


def test_a_stream_ends_when_its_token_is_revoked(server, tokens):
    made = tokens["make"]("read", None)
    stream = Stream(server, token=made["token"], timeout=15)
    assert stream.status == 200
    server.delete(f"/v1/tokens/{made['id']}", token=tokens["admin", None])
    began = time.monotonic()
    assert [event["event_type"] for _, event in stream] in ([], ["outlog.token.revoked"])
    assert time.monotonic() - began < 10
    stream.close()
