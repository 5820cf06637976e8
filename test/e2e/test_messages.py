"""Messages asked for through every interface: SQL, the command line, HTTP alone and beside events."""
import base64
import datetime
import json
import re
import sqlite3
import uuid

import psycopg2
import pytest

from interfaces import Refused, as_json, connect, execute, is_postgres, open_interface
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
    FLAGS = {
        "destination": "to",
        "event_type": "type",
        "payload": "data",
        "idempotency_key": "key",
        "org_id": "org",
        "correlation_id": "correlation",
        "causation_id": "causation",
    }

    def __init__(self, store, outlog, serve):
        self.outlog = outlog

    def send(self, **fields):
        flags = [
            text
            for name, value in fields.items()
            if value is not None
            for text in (f"--{self.FLAGS.get(name) or name.replace('_', '-')}", value)
        ]
        done = self.outlog.run("send", *flags, "--json", check=False)
        if done.returncode:
            found = re.fullmatch(r"outlog: (.*) \[(\w+)\]\n", done.stderr)
            assert found and done.returncode == 1, done
            raise Refused(found[2], found[1])
        (answer,) = done.json()
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
def interface(request, store, outlog, serve):
    return request.param(store, outlog, serve)


@pytest.fixture
def log(store):
    log = open_interface("sql", store)
    yield log
    log.close()


def send(interface, **fields):
    return interface.send(**{"destination": "d", "event_type": "t.sent", "payload": '{"n": 1}', **fields})


def refused(interface, **fields):
    with pytest.raises(Refused) as refusal:
        send(interface, **fields)
    return refusal.value


def happen(log, org="acme", **fields):
    return log.append(
        org_id=org,
        aggregate_type="order",
        aggregate_id=str(uuid.uuid4()),
        event_type="order.made",
        payload="{}",
        **fields,
    )


def shown(outlog, event_id):
    return outlog.run("outbox", "show", event_id, "--json").json()[0]


def test_i2_a_repeat_is_answered_with_the_first(interface, outlog):
    first = send(interface, org_id="acme", idempotency_key="k")
    assert first[1] is False and send(interface, org_id="acme", idempotency_key="k") == (first[0], True)
    others = [
        send(interface, org_id="beta", idempotency_key="k"),
        send(interface, idempotency_key="k"),
        send(interface, org_id="acme", idempotency_key="k", destination="e"),
        send(interface),
        send(interface),
    ]
    assert not any(duplicate for _, duplicate in others)
    assert len({event_id for event_id, _ in [first, *others]}) == 6 == len(outlog.run("outbox", "--json").json())


NESTED = [{"x-a": "b", "x-list": ["c"]}, {"x-list": []}, {"x-list": {"d": 1}}, {"x-flat": "[{", "x-list": {}}]


@pytest.mark.parametrize("headers", NESTED)
def test_o1_headers_are_flat(interface, outlog, headers):
    """A receiver could not tell a nested value from a text that looks like JSON. --header takes texts only."""
    if isinstance(interface, Cli):
        pytest.skip("its headers are texts")
    is_sql = isinstance(interface, Sql) and interface.is_postgres
    refusal = refused(interface, headers=json.dumps(headers) if is_sql else headers)
    assert (refusal.code, refusal.message) == ("invalid_field", "header x-list must be a string, a number or a boolean")
    assert outlog.run("outbox", "--json").json() == []


@pytest.mark.parametrize("headers", NESTED)
def test_o1_headers_of_a_plain_insert_are_flat(store, outlog, headers):
    insert = "insert into outlog_outbox (destination, event_type, payload, headers) values ('d', 't', '1', ?)"
    with pytest.raises((psycopg2.Error, sqlite3.Error), match="invalid_field: .*header.* must be a string"):
        execute(connect(store), insert, json.dumps(headers))
    flat = {"x-a": "[{", "x-b": 1, "x-c": True, "x-d": '{"e": []}'}
    execute(connect(store), insert, json.dumps(flat))
    assert [one["headers"] for one in outlog.run("outbox", "--json").json()] == [flat]


def test_o1_a_plain_insert_cannot_choose_its_time(store, outlog):
    """created_at is the database's: the value of an INSERT is ignored."""
    began = datetime.datetime.now(datetime.timezone.utc)
    execute(
        connect(store),
        "insert into outlog_outbox (destination, event_type, payload, created_at) "
        "values ('d', 't', '1', '2001-01-01T00:00:00.000000Z')",
    )
    made = datetime.datetime.fromisoformat(outlog.run("outbox", "--json").json()[0]["created_at"])
    assert abs((made - began).total_seconds()) < 60


EVENT_LIMITS = {
    "org_id": 100,
    "aggregate_type": 50,
    "aggregate_id": 255,
    "event_type": 100,
    "actor_id": 100,
    "request_id": 255,
    "correlation_id": 255,
    "idempotency_key": 512,
    "app_id": 100,
    "env_id": 100,
    "visibility": 100,
}


@pytest.mark.parametrize("column, limit", EVENT_LIMITS.items())
def test_e16_a_plain_insert_of_an_event_has_the_same_limits(store, column, limit):
    """A second line of defence: nobody should, and the stores refuse the same."""

    def insert(value):
        values = {
            "id": str(uuid.uuid4()),
            "occurred_at": "2026-01-31T12:00:00.000000Z",
            "aggregate_type": "a",
            "aggregate_id": str(uuid.uuid4()),
            "aggregate_seq": 1,
            "event_type": "t",
            "actor_type": "system",
            "actor_id": "s",
            "request_id": "r",
            "correlation_id": "c",
            "payload": "{}",
            column: value,
        }
        execute(
            connect(store),
            f"insert into outlog_events ({', '.join(values)}) values " f"({', '.join('?' * len(values))})",
            *values.values(),
        )

    insert("é" * (limit // 2) + "x" * (limit % 2))
    for value in ("", "x" * (limit + 1), "x" * 5000):
        with pytest.raises((psycopg2.IntegrityError, sqlite3.IntegrityError)):
            insert(value)


LIMITS = {
    "destination": 100,
    "event_type": 100,
    "content_type": 200,
    "org_id": 100,
    "idempotency_key": 512,
    "ordering_key": 512,
    "partition_key": 512,
    "correlation_id": 255,
    "aggregate_type": 50,
    "aggregate_id": 255,
}


@pytest.mark.parametrize("column, limit", LIMITS.items())
def test_e16_a_plain_insert_of_a_message_has_the_same_limits(store, column, limit):
    def insert(value):
        values = {"destination": "d", "event_type": "t", "payload": "1", column: value}
        execute(
            connect(store),
            f"insert into outlog_outbox ({', '.join(values)}) values " f"({', '.join('?' * len(values))})",
            *values.values(),
        )

    insert("é" * (limit // 2) + "x" * (limit % 2))
    for value in ("", "x" * (limit + 1), "x" * 5000):
        with pytest.raises((psycopg2.IntegrityError, sqlite3.IntegrityError)):
            insert(value)


def test_r1_a_message_shows_the_max_attempts_that_applies(interface, outlog, tmp_path):
    """Its own, else its type's, else its destination's, else the default: as the relay decides."""
    (tmp_path / "outlog.yaml").write_text(
        """
destinations:
  d: {type: stdout}
  set: {type: stdout, retry: {max_attempts: 7}}
  scheduled: {type: stdout, retry: {delays: [1s, 2s]}}
  preset: {type: stdout, preset: notification}
types:
  t.typed: {retry: {max_attempts: 3}}
"""
    )
    outlog.run("apply", "-f", tmp_path / "outlog.yaml")
    cases = [
        ({}, 11),
        ({"event_type": "API_CALL"}, 11),
        ({"destination": "set"}, 7),
        ({"destination": "scheduled"}, 3),
        ({"destination": "preset"}, 5),
        ({"event_type": "t.typed"}, 3),
        ({"destination": "set", "event_type": "t.typed"}, 3),
        ({"destination": "nowhere"}, 11),
        ({"destination": "set", "max_attempts": 2}, 2),
    ]
    for fields, wanted in cases:
        if isinstance(interface, Cli):
            fields = {name: str(value) for name, value in fields.items()}
        assert shown(outlog, send(interface, **fields)[0])["max_attempts"] == wanted, fields


def test_o8_a_cause_may_be_named_by_id_or_event_id(interface, log, outlog):
    cause = happen(log, correlation_id="story")
    for said in (cause["id"], cause["id"].upper(), str(cause["event_id"])):
        for org in ("acme", None):
            message = shown(outlog, send(interface, org_id=org, causation_id=said)[0])
            assert (message["causation_id"], message["correlation_id"]) == (cause["id"], "story")
    own = shown(outlog, send(interface, org_id="acme", causation_id=cause["id"], correlation_id="own")[0])
    assert (own["causation_id"], own["correlation_id"]) == (cause["id"], "own")


def test_t2_a_message_without_its_cause_is_refused(interface, log, outlog):
    other, infrastructure = happen(log, "beta"), happen(log, None)
    for said in (str(uuid.uuid4()), "999999", "nonsense", other["id"], str(other["event_id"]), infrastructure["id"]):
        refusal = refused(interface, org_id="acme", causation_id=said)
        assert refusal.code == "unknown_causation" and said in refusal.message
    assert outlog.run("outbox", "--json").json() == []


def test_o8_without_a_cause_the_correlation_is_the_messages_own_id(interface, outlog):
    event_id, _ = send(interface)
    message = shown(outlog, event_id)
    assert message["correlation_id"] == event_id and message["causation_id"] is None


def test_e16_limits_are_refused_by_name(interface):
    for name in ("destination", "event_type"):
        refusal = refused(interface, **{name: "x" * 101})
        assert refusal.code == "invalid_field" and name in refusal.message
    refusal = refused(interface, idempotency_key="x" * 513)
    assert refusal.code == "invalid_field" and "idempotency_key" in refusal.message


def test_o1_bytes_of_a_file_are_kept_as_they_are(store, outlog, tmp_path):
    for name, payload in (("bytes", bytes(range(256)) * 3), ("nul", b"a\0b")):
        (tmp_path / name).write_bytes(payload)
        event_id = outlog.run(
            "send",
            "--to",
            "d",
            "--type",
            "t",
            "--data",
            f"@{name}",
            "--content-type",
            "application/octet-stream",
            "--json",
        ).json()[0]["event_id"]
        assert base64.b64decode(shown(outlog, event_id)["payload_base64"]) == payload


def test_t1_what_one_command_does_has_one_correlation(store, serve, log):
    server = serve("--no-relay")

    def correlations(**command):
        def event(n, **more):
            return {
                "aggregate_type": "order",
                "aggregate_id": str(n),
                "event_type": "order.made",
                "payload": {},
                **more,
            }

        body = {
            "org_id": "acme",
            "events": [event(n, **more) for n, more in enumerate(command.pop("events"))],
            "messages": [{"destination": "d", "event_type": "t", "payload": {}}],
            **command,
        }
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
    lines = "\n".join(
        json.dumps(
            {
                "org_id": "acme",
                "events": [{"aggregate_type": "order", "aggregate_id": "x", "event_type": "order.made", "payload": {}}],
            }
        )
        for _ in range(5)
    )
    answer = server.call("POST", "/v1/events", lines.encode(), headers={"content-type": "application/x-ndjson"})
    ids = {json.loads(line)["events"][0]["correlation_id"] for line in answer.body.decode().splitlines()}
    assert len(ids) == 5, "each line is a command of its own"


def test_a1_ids_go_from_one_sql_call_into_the_next(postgres_store, outlog):
    connection = connect(postgres_store)
    event = (
        "org_id => 'acme', aggregate_type => 'order', aggregate_id => '1', event_type => 'order.made', payload => '{}'"
    )
    for cause in ("e.id", "e.event_id", "e.id::text", "e.event_id::int"):
        rows = execute(
            connection,
            f"""
            with e as (select * from outlog.append({event})),
                 f as (select f.* from e, lateral outlog.append({event}, causation_id => {cause}) f)
            select m.event_id from f, e, lateral outlog.enqueue(destination => 'd', event_type => 't', payload => '1',
                                                                causation_id => {cause}) m""",
        )
        assert shown(outlog, str(rows[0][0]))["causation_id"]
    (own,) = execute(connection, f"select id from outlog.append({event}, id => gen_random_uuid())")
    assert execute(connection, f"select duplicate from outlog.append({event}, id => %s::uuid)", str(own[0])) == [
        (True,)
    ]
    assert execute(
        connection,
        """select effect_id from outlog.request_effect(effect_type => 'API_CALL', destination => 'd',
        effect_spec => '{}', org_id => 'acme', causation_id => %s::uuid)""",
        str(own[0]),
    )
