"""Messages asked for through every door: SQL, the command line, HTTP alone and beside events."""
import base64
import json
import re
import uuid

import psycopg2
import pytest

from doors import Refused, as_json, connect, execute, is_postgres, open_door
from lib.cli import build_dir


class Sql:
    def __init__(self, store, *_):
        self.is_postgres, self.connection = is_postgres(store), connect(store)
        if not self.is_postgres:
            self.connection.enable_load_extension(True)
            self.connection.load_extension(str(build_dir() / "src" / "ext" / "outlog"))

    def send(self, **fields):
        try:
            if self.is_postgres:
                names = ", ".join(f"{name} => %s" for name in fields)
                with self.connection.cursor() as cursor:
                    cursor.execute(f"select event_id, duplicate from outlog.enqueue({names})", list(fields.values()))
                    event_id, duplicate = cursor.fetchone()
                return str(event_id), duplicate
            answer = json.loads(execute(self.connection, "select outlog_enqueue(?)", as_json(fields))[0][0])
            return answer["event_id"], answer["duplicate"]
        except Exception as error:
            text = error.diag.message_primary if isinstance(error, psycopg2.Error) else str(error)
            code, _, message = text.partition(": ")
            raise Refused(code, message) from None


class Cli:
    FLAGS = {"destination": "to", "event_type": "type", "payload": "data", "idempotency_key": "key", "org_id": "org",
             "correlation_id": "correlation", "causation_id": "causation"}

    def __init__(self, store, outlog, serve):
        self.outlog = outlog

    def send(self, **fields):
        flags = [text for name, value in fields.items() if value is not None
                 for text in (f"--{self.FLAGS.get(name) or name.replace('_', '-')}", value)]
        done = self.outlog.run("send", *flags, "--json", check=False)
        if done.returncode:
            found = re.fullmatch(r"outlog: (.*) \[(\w+)\]\n", done.stderr)
            assert found and done.returncode == 1, done
            raise Refused(found[2], found[1])
        answer, = done.json()
        return answer["event_id"], answer["duplicate"]


class Http:
    def __init__(self, store, outlog, serve):
        self.server = serve("--no-relay")

    def _post(self, path, body):
        answer = self.server.post(path, body)
        if answer.status not in (200, 201):
            raise Refused(answer.code, answer.json["detail"])
        return answer

    def send(self, **fields):
        fields["payload"] = json.loads(fields["payload"])
        answer = self._post("/v1/messages", fields)
        assert answer.status == (200 if answer.json["duplicate"] else 201)
        return answer.json["event_id"], answer.json["duplicate"]


class Command(Http):
    """As one of the messages of a command."""

    def send(self, **fields):
        fields["payload"] = json.loads(fields["payload"])
        org = fields.pop("org_id", None)
        answer = self._post("/v1/events", {"org_id": org, "messages": [fields]}).json["messages"][0]
        return answer["event_id"], answer["duplicate"]


@pytest.fixture(params=[Sql, Cli, Http, Command])
def door(request, store, outlog, serve):
    return request.param(store, outlog, serve)


@pytest.fixture
def log(store):
    log = open_door("sql", store)
    yield log
    log.close()


def send(door, **fields):
    return door.send(**{"destination": "d", "event_type": "t.sent", "payload": '{"n": 1}', **fields})


def refused(door, **fields):
    with pytest.raises(Refused) as refusal:
        send(door, **fields)
    return refusal.value


def happen(log, org="acme", **fields):
    return log.append(org_id=org, aggregate_type="order", aggregate_id=str(uuid.uuid4()), event_type="order.made",
                      payload="{}", **fields)


def shown(outlog, event_id):
    return outlog.run("outbox", "show", event_id, "--json").json()[0]


def test_i2_a_repeat_is_answered_with_the_first(door, outlog):
    first = send(door, org_id="acme", idempotency_key="k")
    assert first[1] is False and send(door, org_id="acme", idempotency_key="k") == (first[0], True)
    others = [send(door, org_id="beta", idempotency_key="k"), send(door, idempotency_key="k"),
              send(door, org_id="acme", idempotency_key="k", destination="e"), send(door), send(door)]
    assert not any(duplicate for _, duplicate in others)
    assert len({event_id for event_id, _ in [first, *others]}) == 6 == len(outlog.run("outbox", "--json").json())


def test_o8_a_cause_may_be_named_by_id_or_event_id(door, log, outlog):
    cause = happen(log, correlation_id="story")
    for said in (cause["id"], cause["id"].upper(), str(cause["event_id"])):
        for org in ("acme", None):
            message = shown(outlog, send(door, org_id=org, causation_id=said)[0])
            assert (message["causation_id"], message["correlation_id"]) == (cause["id"], "story")
    own = shown(outlog, send(door, org_id="acme", causation_id=cause["id"], correlation_id="own")[0])
    assert (own["causation_id"], own["correlation_id"]) == (cause["id"], "own")


def test_t2_a_message_without_its_cause_is_refused(door, log, outlog):
    other, infrastructure = happen(log, "beta"), happen(log, None)
    for said in (str(uuid.uuid4()), "999999", "nonsense", other["id"], str(other["event_id"]), infrastructure["id"]):
        refusal = refused(door, org_id="acme", causation_id=said)
        assert refusal.code == "unknown_causation" and said in refusal.message
    assert outlog.run("outbox", "--json").json() == []


def test_o8_without_a_cause_the_correlation_is_the_messages_own_id(door, outlog):
    event_id, _ = send(door)
    message = shown(outlog, event_id)
    assert message["correlation_id"] == event_id and message["causation_id"] is None


def test_e16_limits_are_refused_by_name(door):
    for name in ("destination", "event_type"):
        refusal = refused(door, **{name: "x" * 101})
        assert refusal.code == "invalid_field" and name in refusal.message
    refusal = refused(door, idempotency_key="x" * 513)
    assert refusal.code == "invalid_field" and "idempotency_key" in refusal.message


def test_o1_bytes_of_a_file_are_kept_as_they_are(store, outlog, tmp_path):
    for name, payload in (("bytes", bytes(range(256)) * 3), ("nul", b"a\0b")):
        (tmp_path / name).write_bytes(payload)
        event_id = outlog.run("send", "--to", "d", "--type", "t", "--data", f"@{name}", "--content-type",
                              "application/octet-stream", "--json").json()[0]["event_id"]
        assert base64.b64decode(shown(outlog, event_id)["payload_base64"]) == payload


def test_t1_what_one_command_does_has_one_correlation(store, serve, log):
    server = serve("--no-relay")

    def correlations(**command):
        def event(n, **more):
            return {"aggregate_type": "order", "aggregate_id": str(n), "event_type": "order.made", "payload": {}, **more}
        body = {"org_id": "acme", "events": [event(n, **more) for n, more in enumerate(command.pop("events"))],
                "messages": [{"destination": "d", "event_type": "t", "payload": {}}], **command}
        for headers in ({}, {"idempotency-key": str(uuid.uuid4())}):
            answer = server.call("POST", "/v1/events", body, headers=headers)
            assert answer.status == 201, answer
            if headers:
                again = server.call("POST", "/v1/events", body, headers=headers)
                assert again.body == answer.body and again.headers["idempotency-replayed"] == "true"
            message = server.get(f"/v1/messages/{answer.json['messages'][0]['event_id']}").json
            yield {event["correlation_id"] for event in answer.json["events"]}, message["correlation_id"]

    seen = set()
    for events, message in correlations(events=[{}, {}, {}]):
        assert events == {message} and not events & seen
        seen |= events
    for events, message in correlations(events=[{}, {}], correlation_id="said"):
        assert events == {message} == {"said"}
    cause = happen(log, correlation_id="story")
    for events, message in correlations(events=[{"causation_id": cause["id"]}]):
        assert events == {message} == {"story"}
    for events, message in correlations(events=[{"causation_id": cause["id"]}, {}]):
        assert message == "story" and len(events) == 2, "a cause goes before the command"
    lines = "\n".join(json.dumps({"org_id": "acme", "events": [{
        "aggregate_type": "order", "aggregate_id": "x", "event_type": "order.made", "payload": {}}]}) for _ in range(5))
    answer = server.call("POST", "/v1/events", lines.encode(), headers={"content-type": "application/x-ndjson"})
    ids = {json.loads(line)["events"][0]["correlation_id"] for line in answer.body.decode().splitlines()}
    assert len(ids) == 5, "each line is a command of its own"


def test_a1_ids_go_from_one_sql_call_into_the_next(postgres_store, outlog):
    connection = connect(postgres_store)
    event = "org_id => 'acme', aggregate_type => 'order', aggregate_id => '1', event_type => 'order.made', payload => '{}'"
    for cause in ("e.id", "e.event_id", "e.id::text", "e.event_id::int"):
        rows = execute(connection, f"""
            with e as (select * from outlog.append({event})),
                 f as (select f.* from e, lateral outlog.append({event}, causation_id => {cause}) f)
            select m.event_id from f, e, lateral outlog.enqueue(destination => 'd', event_type => 't', payload => '1',
                                                                causation_id => {cause}) m""")
        assert shown(outlog, str(rows[0][0]))["causation_id"]
    own, = execute(connection, f"select id from outlog.append({event}, id => gen_random_uuid())")
    assert execute(connection, f"select duplicate from outlog.append({event}, id => %s::uuid)", str(own[0])) == [(True,)]
    assert execute(connection, f"""select effect_id from outlog.request_effect(effect_type => 'API_CALL', destination => 'd',
        effect_spec => '{{}}', org_id => 'acme', causation_id => %s::uuid)""", str(own[0]))
