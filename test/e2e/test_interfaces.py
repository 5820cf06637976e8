"""One suite for every interface and both stores, so that they cannot drift apart.

A test that asks for `interface` runs through each interface of interfaces.py on SQLite and on PostgreSQL. The
stores are shared by all tests of this file; `org` is a name of the test's own, so that it finds
its aggregates empty.
"""
import itertools
import json
import os
import random
import re
import select
import signal
import subprocess
import threading
import time
import uuid

import pytest

from interfaces import (
    CALLERS,
    DOORS,
    RESULT,
    TRANSACTING,
    Program,
    Refused,
    connect,
    execute,
    is_postgres,
    micros,
    open_interface,
)
from lib.cli import Outlog
from lib.secrets import GITHUB, NAMED_SECRETS, SECRETS, SLACK, STRIPE, WHSEC

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
LIMIT = 256 * 1024

_numbers = itertools.count(1)


# --- the stores, and how a test speaks to them ----------------------------------------------------


class World:
    """A store with its interfaces, opened when first used and kept for the tests that follow."""

    def __init__(self, store):
        self.store = store
        self.kind = "postgres" if is_postgres(store) else "sqlite"
        self.connection = connect(store)
        self._interfaces = {}
        self._reader = None

    def sql(self, statement, *args):
        return execute(self.connection, statement, *args)

    def interface(self, name):
        if name not in self._interfaces:
            self._interfaces[name] = open_interface(name, self.store)
        return self._interfaces[name]

    @property
    def reader(self):
        """The C library on a connection that never writes."""
        if not self._reader:
            self._reader = Program(self.store)
        return self._reader

    def get(self, event):
        return self.reader.ask("get", id=str(event))["events"][0]

    def events(self, **filters):
        return self.reader.ask("read", filter=filters, limit=10000)["events"]

    def tidy(self):
        """A test that failed half-way must not spoil the next one."""
        for interface in self._interfaces.values():
            if interface.is_open:
                interface.rollback()

    def close(self):
        for interface in self._interfaces.values():
            interface.close()
        if self._reader:
            self._reader.close()
        self.connection.close()


def make_world(kind, request, tmp_path_factory, prepare):
    """A store that `prepare(world)` has seen before any interface: so nothing is cached yet."""
    name = f"interfaces{next(_numbers)}"
    if kind == "postgres":
        template = request.getfixturevalue("template")
        server = request.getfixturevalue("postgres")
        store = server.create(name, template)
    else:
        store = f"sqlite:{tmp_path_factory.mktemp(name)}/outlog.db"
        Outlog(store).run("init")
    world = World(store)
    world.sql("create table interface_orders (id text primary key)")
    prepare(world)
    yield world
    world.close()
    if kind == "postgres":
        server.drop(name)


def add_type(world, event_type, version, shape=None, upcast=None):
    world.sql(
        "insert into outlog_event_types (event_type, version, shape, upcast) " "values (?, ?, ?, ?)",
        event_type,
        version,
        json.dumps(shape) if shape else None,
        json.dumps(upcast) if upcast else None,
    )


def prepare_usual(world):
    world.sql("insert into outlog_strict_orgs (org_id) values (?)", "strict")
    add_type(
        world, "interface.opened", 1, shape={"width": "number", "label": "string?", "parts": "array?", "more": "any"}
    )
    add_type(
        world, "price.set", 3, upcast={"1": [{"rename": ["/sum", "/total"]}], "2": [{"default": ["/currency", "EUR"]}]}
    )


def prepare_tuned(world):
    """An operator has changed what the secret rules do."""
    for rule, mode in (
        ("named_secret", "reject"),
        ("github_token", "off"),
        ("stripe_live_key", "warn"),
    ):
        world.sql("update outlog_secret_rules set mode = ? where rule = ?", mode, rule)


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def world(request, tmp_path_factory):
    yield from make_world(request.param, request, tmp_path_factory, prepare_usual)


@pytest.fixture(scope="module", params=("sqlite", "postgres"))
def tuned_world(request, tmp_path_factory):
    yield from make_world(request.param, request, tmp_path_factory, prepare_tuned)


@pytest.fixture(autouse=True)
def tidy(request):
    yield
    for name in ("world", "tuned_world"):
        if name in request.fixturenames:
            request.getfixturevalue(name).tidy()


@pytest.fixture(params=DOORS)
def interface(world, request):
    return world.interface(request.param)


@pytest.fixture(params=TRANSACTING)
def transacting(world, request):
    return world.interface(request.param)


@pytest.fixture(params=CALLERS)
def caller(world, request):
    return world.interface(request.param)


@pytest.fixture
def org():
    return f"org-{next(_numbers)}"


def event(org, **fields):
    return {
        "org_id": org,
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "event_type": "order.created",
        "payload": "{}",
        **fields,
    }


def append(interface, org, **fields):
    return interface.append(**event(org, **fields))


def refused(interface, org, **fields):
    """The refusal of an event; it must leave nothing behind."""
    with pytest.raises(Refused) as refusal:
        append(interface, org, **fields)
    return refusal.value


def until(condition, seconds=10):
    """Wait for a condition; its value."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "this did not become true in time"
        time.sleep(0.005)
    return value


# --- E2: what an event is -------------------------------------------------------------------------


def test_e2_result_has_the_fields_of_the_contract(interface, org):
    result = append(interface, org)
    assert set(result) == set(RESULT)
    assert isinstance(result["event_id"], int) and result["event_id"] > 0
    assert UUID7.fullmatch(result["id"])
    assert result["aggregate_seq"] == 1
    assert TIME.fullmatch(result["occurred_at"])
    assert abs(micros(result["occurred_at"]) / 1e6 - time.time()) < 60
    assert UUID.fullmatch(result["correlation_id"])
    assert result["duplicate"] is False


def test_e2_result_is_what_is_stored(world, interface, org):
    result = append(interface, org)
    stored = world.get(result["event_id"])
    assert stored == world.get(result["id"])
    assert stored["occurred_at"] == micros(result["occurred_at"])
    for field in ("event_id", "id", "aggregate_seq", "correlation_id"):
        assert stored[field] == result[field]
    assert uuid.UUID(result["id"]).version == 7, "later ids are greater"


def test_e2_defaults(world, interface, org):
    stored = world.get(append(interface, org)["event_id"])
    assert (stored["actor_type"], stored["actor_id"]) == ("system", "system")
    assert stored["event_version"] == 1
    assert UUID.fullmatch(stored["request_id"]) and UUID.fullmatch(stored["correlation_id"])
    for field in ("causation_id", "idempotency_key", "app_id", "env_id", "visibility", "metadata"):
        assert stored[field] is None


def test_e2_every_field_comes_back_as_given(world, interface, org):
    given = event(
        org,
        aggregate_type="Auftrag",
        aggregate_id="ü/1 2",
        event_type="auftrag.erfaßt",
        event_version=7,
        payload='{"n": 1}',
        metadata='{"trace": "x"}',
        id=str(uuid.uuid4()),
        actor_type="user",
        actor_id="u:7",
        request_id="r-1",
        correlation_id="c/1",
        app_id="shop",
        env_id="prod",
        visibility="internal",
        idempotency_key="k 1",
        expected_seq=0,
    )
    stored = world.get(interface.append(**given)["event_id"])
    del given["expected_seq"]
    assert {name: stored[name] for name in given} == given
    assert stored["aggregate_seq"] == 1 and stored["causation_id"] is None


def test_e2_null_says_the_same_as_absent(world, interface, org):
    nothing = dict.fromkeys(
        (
            "actor_type",
            "actor_id",
            "event_version",
            "request_id",
            "metadata",
            "correlation_id",
            "causation_id",
            "idempotency_key",
            "app_id",
            "env_id",
            "visibility",
            "expected_seq",
            "id",
        )
    )
    if interface.name == "cli":  # a flag has no null
        nothing = {}
    stored = world.get(append(interface, org, **nothing)["event_id"])
    assert (stored["actor_type"], stored["actor_id"]) == ("system", "system")
    assert stored["event_version"] == 1 and stored["metadata"] is None


@pytest.mark.parametrize(
    "field, value",
    [
        ("actor_type", "robot"),
        ("event_version", 0),
        ("event_version", -1),
        ("expected_seq", -1),
        ("id", "42"),
        ("id", "{0}"),
    ],
)
def test_e2_impossible_values_are_refused_by_name(interface, org, field, value):
    more = {"actor_id": "x"} if field == "actor_type" else {}
    if interface.name in ("c", "c-join") and (field, value) == ("event_version", 0):
        pytest.skip("0 is how a zeroed struct says 1")
    refusal = refused(interface, org, **{field: value, **more})
    assert refusal.code == "invalid_field" and field in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == f"/{field}"


def test_e2_user_and_service_principal_are_actors(world, interface, org):
    for actor_type in ("user", "service_principal", "system"):
        result = append(interface, org, actor_type=actor_type, actor_id="a-1")
        assert world.get(result["event_id"])["actor_type"] == actor_type


def test_e2_own_id_is_kept_in_lower_case(world, interface, org):
    own = str(uuid.uuid4())
    result = append(interface, org, id=own.upper())
    assert result["id"] == own
    assert world.get(own)["event_id"] == result["event_id"]


# --- E3, E4: order --------------------------------------------------------------------------------


def test_e3_event_id_rises(interface, org):
    ids = [append(interface, org, aggregate_id=f"o-{n}")["event_id"] for n in range(3)]
    assert ids == sorted(set(ids))


def test_e4_aggregate_seq_has_no_gaps(world, interface, org):
    for seq in (1, 2, 3):
        assert append(interface, org)["aggregate_seq"] == seq
    assert append(interface, org, aggregate_id="o-2")["aggregate_seq"] == 1
    assert append(interface, org, aggregate_type="invoice")["aggregate_seq"] == 1
    seqs = [e["aggregate_seq"] for e in world.events(org_id=org, aggregate_type="order", aggregate_id="o-1")]
    assert seqs == [1, 2, 3]


def test_e4_orgs_have_aggregates_of_the_same_name(interface, org):
    for name in (org, f"{org}-other"):
        for seq in (1, 2):
            assert append(interface, name)["aggregate_seq"] == seq


def test_e4_infrastructure_aggregates_have_no_gaps_either(world, interface, org):
    for seq in (1, 2, 3):
        assert append(interface, None, aggregate_id=org)["aggregate_seq"] == seq
    assert append(interface, org, aggregate_id=org)["aggregate_seq"] == 1  # an org's is another one
    stored = world.events(org_id=None, aggregate_id=org)
    assert [e["aggregate_seq"] for e in stored] == [1, 2, 3]
    assert {e["org_id"] for e in stored} == {None}


@pytest.mark.parametrize("expected, actual", [(0, 1), (2, 1), (9999999999, 1)])
def test_e4_expected_sequence_conflict_names_both_values(world, interface, org, expected, actual):
    for seq in range(actual):
        append(interface, org, expected_seq=seq)
    refusal = refused(interface, org, expected_seq=expected)
    assert refusal.code == "sequence_conflict"
    assert f"expected sequence {expected}, actual {actual}" in refusal.message
    assert "order/o-1" in refusal.message
    if interface.has_pointer:
        assert (refusal.expected, refusal.actual) == (expected, actual)
    assert append(interface, org, expected_seq=actual)["aggregate_seq"] == actual + 1  # no gap


def test_e4_first_event_must_be_expected_as_the_first(interface, org):
    refusal = refused(interface, org, expected_seq=1)
    assert refusal.code == "sequence_conflict" and "expected sequence 1, actual 0" in refusal.message
    assert append(interface, org, expected_seq=0)["aggregate_seq"] == 1


# --- the org --------------------------------------------------------------------------------------


def test_e2_missing_org_is_not_infrastructure(interface):
    fields = event(None)
    del fields["org_id"]
    with pytest.raises(Refused) as refusal:
        interface.append(**fields)
    assert refusal.value.code == "org_required" and "org_id" in refusal.value.message
    if interface.has_pointer:
        assert refusal.value.pointer == "/org_id"


def test_e2_empty_org_is_a_missing_org(interface):
    assert refused(interface, "").code == "org_required"


def test_e2_null_org_is_infrastructure(world, interface, org):
    assert world.get(append(interface, None, aggregate_id=org)["event_id"])["org_id"] is None


# --- E16: limits ----------------------------------------------------------------------------------

LIMITS = {
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


def long_text(size, character):
    """`size` bytes, different each time, of a character that may have several."""
    head = f"{next(_numbers)}-"
    count, rest = divmod(size - len(head), len(character.encode()))
    return head + "x" * rest + character * count


@pytest.mark.parametrize("character", ["x", "é", "€", "😀"])
def test_e16_limits_count_bytes_and_the_limit_itself_is_fine(world, interface, character):
    given = {field: long_text(most, character) for field, most in LIMITS.items()}
    stored = world.get(interface.append(**event(None, actor_type="user", **given))["event_id"])
    assert {field: stored[field] for field in LIMITS} == given
    assert all(len(stored[field].encode()) == most for field, most in LIMITS.items())


@pytest.mark.parametrize("field", LIMITS)
def test_e16_one_byte_more_is_refused_by_name(world, interface, org, field):
    most = LIMITS[field]
    for character in ("x", "é"):
        value = long_text(most + 1, character)
        fields = event(org, **{field: value})
        refusal = refused(interface, **{"org": fields.pop("org_id"), **fields})
        assert refusal.code == "invalid_field"
        assert re.search(rf"\b{field}\b.*\b{most}\b.*\b{most + 1}\b", refusal.message)
        assert value not in refusal.message
        if interface.has_pointer:
            assert refusal.pointer == f"/{field}"
    assert world.events(org_id=org) == []


@pytest.mark.parametrize("field", [field for field in LIMITS if field != "org_id"])
def test_e16_empty_is_not_a_value(interface, org, field):
    if interface.name == "cli" and field.startswith(("aggregate", "actor")):
        pytest.skip("the command line itself is wrong then: exit 2")
    refusal = refused(interface, org, **{field: ""})
    assert refusal.code == "invalid_field" and field in refusal.message


@pytest.mark.parametrize("field", ["aggregate_type", "aggregate_id", "event_type", "payload"])
def test_e2_required_fields_are_asked_for_by_name(interface, org, field):
    if interface.name == "cli":
        pytest.skip("the command line itself is wrong then: exit 2")
    fields = event(org)
    del fields[field]
    with pytest.raises(Refused) as refusal:
        interface.append(**fields)
    assert refusal.value.code == "invalid_field"
    assert f"{field} is required" in refusal.value.message


def sized(size):
    return '{"a":"' + "x" * (size - 8) + '"}'


@pytest.mark.parametrize("field", ["payload", "metadata"])
def test_e16_payload_of_256_kib_is_fine_and_one_byte_more_is_not(world, interface, org, field):
    if interface.name == "cli" and field == "metadata":
        pytest.skip("an argument cannot be that long")
    stored = world.get(append(interface, org, **{field: sized(LIMIT)})["event_id"])
    assert stored[field] == sized(LIMIT)
    refusal = refused(interface, org, **{field: sized(LIMIT + 1)})
    assert refusal.code == "too_large" and field in refusal.message
    assert str(LIMIT) in refusal.message and str(LIMIT + 1) in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == f"/{field}"


def test_e16_payload_counts_bytes_not_characters(interface, org):
    body = '{"a":"' + "€" * ((LIMIT - 8) // 3) + "x" * ((LIMIT - 8) % 3) + '"}'
    assert len(body.encode()) == LIMIT
    append(interface, org, payload=body)
    assert refused(interface, org, payload=body[:-2] + 'x"}').code == "too_large"


# --- JSON -----------------------------------------------------------------------------------------

NOT_JSON = {
    "word": "hello",
    "empty": "",
    "blank": "  ",
    "open": '{"a":1',
    "closed": '{"a":1}}',
    "garbage": '{"a":1} x',
    "two": "{}{}",
    "comma": '{"a":1,}',
    "colon": '{"a" 1}',
    "single quotes": "{'a':1}",
    "bare key": "{a:1}",
    "comment": '{"a":1/**/}',
    "leading zero": '{"a":01}',
    "minus zero": '{"a":-01}',
    "plus": '{"a":+1}',
    "dot": '{"a":.5}',
    "point": '{"a":1.}',
    "exponent": '{"a":1e}',
    "hex": '{"a":0x1}',
    "nan": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "true": '{"a":True}',
    "escape": r'{"a":"\x"}',
    "short escape": r'{"a":"\u12"}',
    "control": '{"a":"\x01"}',
    "tab": '{"a":"\t"}',
    "form feed": '{"a":\f1}',
    "no-break space": '{"a":\u00a01}',
    "duplicate": '{"a":1,"a":2}',
    "duplicate nested": '{"x":[{"y":{"a":1,"b":2,"a":1}}]}',
    "duplicate by escape": r'{"a":1,"\u0061":2}',
    "duplicate by escape, nested": r'{"x":{"\u00e9":1,"é":2}}',
    "duplicate with a huge number": '{"a":1e400000,"a":2}',
    "duplicate empty": '{"":1,"":2}',
    "NUL": r'{"a":"\u0000"}',
    "NUL in a key": r'{"\u0000":1}',
    "NUL beside": r'{"a":"\\\u0000"}',
    "lone high": r'{"a":"\ud800"}',
    "lone low": r'{"a":"\udc00"}',
    "low first": r'{"a":"\udc00\ud800"}',
    "high twice": r'{"a":"\ud800\ud800"}',
    "high in a key": r'{"\ud800x":1}',
    "high beside a huge number": r'{"n":1e400000,"a":"\ud800"}',
    "depth 65": '{"a":' * 65 + "1" + "}" * 65,
    "depth 65 of arrays": '{"a":' + "[" * 64 + "]" * 64 + "}",
    "depth 100000": '{"a":' + "[" * 100000 + "]" * 100000 + "}",
}


def chunks(table, size=7):
    """Names of a table in handfuls, so that an interface is not opened for each of them alone."""
    names = list(table)
    return [names[at : at + size] for at in range(0, len(names), size)]


@pytest.mark.parametrize("names", chunks(NOT_JSON), ids=lambda names: names[0].replace(" ", "-"))
def test_e2_payload_that_is_no_strict_json_is_refused(world, interface, org, names):
    for name in names:
        refusal = refused(interface, org, payload=NOT_JSON[name])
        assert refusal.code == "invalid_json", name
        assert len(refusal.message) < 200, name  # it does not repeat the payload
    assert world.events(org_id=org) == []


def test_e2_metadata_must_be_strict_json_too(interface, org):
    for text in ("{", '{"a":1,"a":2}', r'{"a":"\u0000"}'):
        refusal = refused(interface, org, metadata=text)
        assert refusal.code == "invalid_json"
        if interface.has_pointer:
            assert refusal.pointer.startswith("/metadata")


@pytest.mark.parametrize("text", ["[]", '["a"]', '"text"', "1", "null", "true"])
def test_e2_payload_is_an_object(interface, org, text):
    refusal = refused(interface, org, payload=text)
    assert refusal.code == "invalid_field" and "payload" in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == "/payload"
    if text != "null" and not (interface.name == "cli" and text.startswith('"')):
        assert refused(interface, org, metadata=text).code == "invalid_field"


@pytest.mark.parametrize(
    "raw", [b'{"a":"\xff"}', b'{"a":"\xc3"}', b'{"\xc0\xaf":1}', b'{"a":"\xed\xa0\x80"}', b'{"a":"\xf5\x80\x80\x80"}']
)
def test_e2_payload_that_is_no_utf8_is_refused(interface, org, raw):
    if not interface.carries_bytes:
        pytest.skip("the server refuses the statement itself")
    assert refused(interface, org, payload=raw).code == "invalid_json"


def test_e2_names_that_are_no_utf8_are_refused(world, org):
    for field in LIMITS:
        refusal = refused(world.interface("c"), org, **{field: b"a\xff"})
        assert refusal.code == "invalid_field" and refusal.pointer == f"/{field}"


KEPT = {
    "empty": "{}",
    "spaces": ' { "b" : 1 ,\t"a" : [ 1 , 2 ] } ',
    "order": '{"b":1,"a":2,"B":3}',
    "huge": '{"n":1e400000,"m":-1E+400000,"s":1e-400000}',
    "huge beside an escape": r'{"n":1e400000,"a":"\u00e9"}',
    "digits": '{"n":123456789012345678901234567890,"f":0.10000000000000000000000000001}',
    "zeros": '{"a":1.0,"b":1.00,"c":-0,"d":0e0,"e":-0.0}',
    "escapes": r'{"a":"\u0061\/\b\f\n\r\t\"\\","\u0062":"\ud83d\ude00 \u0001 \u007f"}',
    "raw": '{"a":"é€😀\u007f\u0080\u2028","ü":"ÿ"}',
    "not a NUL": r'{"a":"\\u0000"}',
    "backslashes": r'{"a":"\\\\","b":"C:\\u\\ud800"}',
    "brackets in strings": '{"a":"' + "[{" * 100 + '"}',
    "depth 64": '{"a":' * 64 + "1" + "}" * 64,
    "depth 64 of arrays": '{"a":' + "[" * 63 + "]" * 63 + "}",
    "same key elsewhere": '{"a":{"a":{"a":[{"a":1},{"a":2}]}}}',
    "same key in case": '{"a":1,"A":2}',
    "empty key": '{"":{"":1}}',
    "literals": '{"t":true,"f":false,"n":null,"e":"","l":[],"o":{}}',
}


@pytest.mark.parametrize("names", chunks(KEPT, 6), ids=lambda names: names[0].replace(" ", "-"))
def test_e2_payload_is_kept_byte_for_byte(world, interface, org, names):
    for name in names:
        text = KEPT[name]
        stored = world.get(append(interface, org, payload=text, metadata=text)["event_id"])
        # White space around the value belongs to the line of a JSON interface, not to the payload.
        expected = text.strip() if interface.is_json else text
        assert (stored["payload"], stored["metadata"]) == (expected, expected), name


def test_e2_new_lines_between_tokens_are_kept(world, interface, org):
    if not interface.carries_newlines:
        pytest.skip("a line is an event")
    text = '{\r\n\t"a": [\n1,\n2]\n}'
    stored = world.get(append(interface, org, payload=text)["event_id"])
    assert stored["payload"] == text
    # What prints an event a line must still do so.
    done = Outlog(world.store).run("events", "--org", org, "--json")
    assert [e["payload"] for e in done.json()] == [{"a": [1, 2]}]


def test_e2_unknown_field_is_refused(world, org):
    for interface in (world.interface(name) for name in DOORS):
        if not interface.is_json:
            continue
        for more in ({"colour": "red"}, {"Payload": "{}"}, {"colour": None}, {"aggregate": "a/b"}):
            refusal = refused(interface, org, **more)
            assert refusal.code == "unknown_field" and next(iter(more)) in refusal.message


def test_e2_json_interfaces_take_an_actor_object(world, org):
    for interface in (world.interface(name) for name in DOORS):
        if not interface.is_json:
            continue
        result = append(interface, org, actor={"type": "user", "id": "u-1"})
        stored = world.get(result["event_id"])
        assert (stored["actor_type"], stored["actor_id"]) == ("user", "u-1")
        assert refused(interface, org, actor={"type": "user"}).code == "invalid_field"
        assert refused(interface, org, actor="user:u-1").code == "invalid_field"
        assert refused(interface, org, actor={"type": "user", "id": "u", "x": 1}).code == "unknown_field"


def test_e2_json_interfaces_want_the_right_types(world, org):
    for interface in (world.interface(name) for name in DOORS):
        if not interface.is_json:
            continue
        for field, value in (
            ("event_type", 1),
            ("event_version", "1"),
            ("event_version", 1.5),
            ("expected_seq", "0"),
            ("org_id", 7),
            ("aggregate_id", ["x"]),
            ("idempotency_key", True),
            ("event_version", 2**31),
        ):
            fields = event(org, **{field: value})
            refusal = refused(interface, **{"org": fields.pop("org_id"), **fields})
            assert refusal.code == "invalid_field" and field in refusal.message
        for text in (b"[]", b"1", b'"x"', b"null", b"{", b'{"a":1} 2', b'{"org_id":"a","org_id":"a"}'):
            with pytest.raises(Refused) as refusal:
                interface.append_json(text)
            assert refusal.value.code == "invalid_json"


# --- X1: what only outlog writes ------------------------------------------------------------------


@pytest.mark.parametrize(
    "event_type",
    [
        "RUN_COMPLETED",
        "SIGNAL_PROCESSED",
        "STEP_CORRECTED",
        "TOOL_CALLED",
        "EFFECT_COMPLETED",
        "outlog.message.requeued",
    ],
)
def test_x1_states_and_audit_events_come_from_outlogs_own_commands(world, interface, org, event_type):
    """An application appended RUN_COMPLETED for a run that was RUNNING, and audit events of its own."""
    refusal = refused(interface, org, event_type=event_type)
    assert refusal.code == "invalid_field" and event_type in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == "/event_type"
    assert world.events(org_id=org) == []
    append(interface, org, event_type=event_type.lower().replace("outlog.", "our."))


# --- E13: no secrets ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*SECRETS, *NAMED_SECRETS], ids=lambda name: name.replace(" ", "-"))
def test_e13_secret_is_refused_by_rule_and_pointer(world, interface, org, name):
    rule, document, pointer, secret = {**SECRETS, **NAMED_SECRETS}[name]
    for field in ("payload", "metadata"):
        refusal = refused(interface, org, **{field: json.dumps(document)})
        assert refusal.code == "secret_material"
        assert rule in refusal.message and field in refusal.message
        assert pointer in refusal.message
        for part in (secret, secret[:12], secret[-8:]):
            assert part not in refusal.message and part not in (refusal.pointer or "")
        if interface.has_pointer:
            assert refusal.pointer == f"/{field}{pointer}"
    assert world.events(org_id=org) == []


def test_e13_escapes_do_not_hide_a_secret(interface, org):
    for text in (
        GITHUB.replace("g", r"\u0067"),
        GITHUB.replace("_", r"\u005F"),
        "".join(f"\\u{ord(c):04x}" for c in GITHUB),
    ):
        refusal = refused(interface, org, payload='{"a":"%s"}' % text)
        assert refusal.code == "secret_material" and GITHUB[:12] not in refusal.message
    refusal = refused(interface, org, payload='{"%s":1}' % GITHUB.replace("h", r"\u0068"))
    assert refusal.code == "secret_material"


def test_e13_what_only_looks_alike_passes(interface, org):
    append(
        interface,
        org,
        payload=json.dumps(
            {
                "secret_version_id": "projects/1/secrets/db/versions/7",
                "token_count": 12,
                "prefixes": ["ghp_", "sk_live_", "AKIA", "whsec_", "xoxb-"],
                "note": "task_live_1234567890",
                "example": "AKIAIOSFODNN7EXAMPLE",
                "public": "-----BEGIN PUBLIC KEY-----",
                "id": str(uuid.uuid4()),
            }
        ),
    )


WARNED = {"named_secret": {"access_token": "Xk29-vPq7_mZw41t"}}


def test_e13_warn_rules_do_not_refuse(interface, org):
    for document in WARNED.values():
        append(interface, org, payload=json.dumps(document))


@pytest.mark.parametrize("name", DOORS)
def test_e13_rules_are_a_setting(tuned_world, org, name):
    interface = tuned_world.interface(name)
    append(interface, org, payload=json.dumps({"off": GITHUB, "warn": STRIPE}))
    for rule, document in WARNED.items():
        refusal = refused(interface, org, payload=json.dumps(document))
        assert refusal.code == "secret_material" and rule in refusal.message
        assert next(iter(document)) in refusal.message
    # A rule that is off still shows nothing: the pointer to another secret names an ancestor.
    refusal = refused(interface, org, payload=json.dumps({GITHUB: {"x": SLACK}}))
    assert refusal.code == "secret_material" and GITHUB[:12] not in str(refusal)
    assert GITHUB[:12] not in (refusal.pointer or "")


@pytest.mark.parametrize("name", DOORS)
def test_e13_named_secret_is_the_string_of_its_key(tuned_world, org, name):
    interface = tuned_world.interface(name)
    for document in (
        {"token": "short"},
        {"token": "aaaaaaaaaaaaaaaaaaaa"},
        {"authorization": "granted"},
        {"password": ""},
        {"password": "***"},
        {"password_hint": "Xk29-vPq7_mZw41t"},
        {"password": {"note": "Xk29-vPq7_mZw41t"}},
        {"password": ["Xk29-vPq7_mZw41t"]},
        {"token": 1234567890123456789},
    ):
        append(interface, org, payload=json.dumps(document))
    for key in ("password", "PASSWD", "client_secret", "accessToken", "api-key", "apikey", "private_key"):
        refusal = refused(interface, org, payload=json.dumps({"a": {key: "Xk29-vPq7_mZw41t"}}))
        assert refusal.code == "secret_material" and "Xk29" not in refusal.message


def test_e13_change_of_a_rule_is_honoured_by_an_open_handle(tuned_world, org):
    interface = tuned_world.interface("c")
    payload = json.dumps({"a": WHSEC})
    assert refused(interface, org, payload=payload).code == "secret_material"
    tuned_world.sql("update outlog_secret_rules set mode = 'off' where rule = 'webhook_secret'")

    def is_honoured():
        try:
            return append(interface, org, payload=payload)
        except Refused:
            return None

    until(is_honoured)
    tuned_world.sql("update outlog_secret_rules set mode = 'reject' where rule = 'webhook_secret'")


# --- E10, E11: the registry -----------------------------------------------------------------------


def test_e10_strict_org_refuses_unknown_types(world, interface, org):
    refusal = refused(interface, "strict", aggregate_id=org, event_type="interface.slammed")
    assert refusal.code == "unknown_event_type" and "interface.slammed" in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == "/event_type"
    append(interface, org, event_type="interface.slammed")  # another org does not care
    append(interface, None, aggregate_id=org, event_type="interface.slammed")


@pytest.mark.parametrize(
    "payload, wrong",
    [
        ("{}", "width"),
        ('{"width":"2","more":1}', "width"),
        ('{"width":2}', "more"),
        ('{"width":2,"more":1,"label":7}', "label"),
        ('{"width":2,"more":1,"parts":{}}', "parts"),
        ('{"width":null,"more":1}', "width"),
    ],
)
def test_e10_strict_org_refuses_another_shape(interface, org, payload, wrong):
    refusal = refused(interface, "strict", aggregate_id=org, event_type="interface.opened", payload=payload)
    assert refusal.code == "invalid_field"
    assert wrong in refusal.message and "interface.opened" in refusal.message
    if interface.has_pointer:
        assert refusal.pointer == f"/payload/{wrong}"
    append(interface, org, event_type="interface.opened", payload=payload)  # not in an org that is not strict


def test_e10_strict_org_takes_what_fits(interface, org):
    for payload in (
        '{"width":2,"more":null}',
        '{"width":2.5,"more":[],"label":null,"extra":1}',
        '{"width":0,"more":{},"label":"x","parts":[1]}',
    ):
        append(interface, "strict", aggregate_id=org, event_type="interface.opened", payload=payload)
    append(interface, "strict", aggregate_id=org, event_type="user_message", payload='{"text":"x","requestId":"r"}')


def test_e11_old_versions_are_upcast_on_read_and_raw_shows_them(world, interface, org):
    one = append(interface, org, event_type="price.set", payload='{"sum":12}')["event_id"]
    append(interface, org, event_type="price.set", event_version=2, payload='{"total":1.50}')
    append(interface, org, event_type="price.set", event_version=3, payload='{"total":1,"currency":"USD"}')
    append(interface, org, event_type="price.set", event_version=4, payload='{"future":1}')
    current = [
        (3, {"total": 12, "currency": "EUR"}),
        (3, {"total": 1.5, "currency": "EUR"}),
        (3, {"total": 1, "currency": "USD"}),
        (4, {"future": 1}),
    ]
    stored = [(1, {"sum": 12}), (2, {"total": 1.5}), (3, {"total": 1, "currency": "USD"}), (4, {"future": 1})]

    def seen(events):
        return [
            (e["event_version"], e["payload"] if isinstance(e["payload"], dict) else json.loads(e["payload"]))
            for e in events
        ]

    assert seen(world.events(org_id=org)) == current
    assert seen(world.events(org_id=org, raw=True)) == stored
    assert seen([world.get(one)]) == current[:1]
    cli = Outlog(world.store)
    assert seen(cli.run("events", "--org", org, "--json").json()) == current
    assert seen(cli.run("events", "--org", org, "--json", "--raw").json()) == stored


# --- T1, T2: causes -------------------------------------------------------------------------------


def test_t1_correlation_is_inherited_from_the_cause(world, interface, org):
    root = append(interface, org, correlation_id="flow " + org)
    by_id = append(interface, org, causation_id=root["id"])
    by_event_id = append(interface, org, causation_id=str(root["event_id"]))
    own = append(interface, org, causation_id=root["id"].upper(), correlation_id="own " + org)
    for result in (by_id, by_event_id, own):
        assert world.get(result["event_id"])["causation_id"] == root["id"]
    assert by_id["correlation_id"] == by_event_id["correlation_id"] == "flow " + org
    assert own["correlation_id"] == "own " + org
    infra = append(interface, None, aggregate_id=org)
    assert (
        append(interface, None, aggregate_id=org, causation_id=infra["id"])["correlation_id"] == infra["correlation_id"]
    )


def test_t2_unknown_cause_is_refused(world, interface, org):
    other = append(interface, f"{org}-other")
    infra = append(interface, None, aggregate_id=org)
    own = str(uuid.uuid4())
    for cause in (
        str(uuid.uuid4()),
        "999999999999",
        "0",
        "123456789012345678",
        "nonsense",
        other["id"],
        str(other["event_id"]),
        infra["id"],
    ):
        refusal = refused(interface, org, causation_id=cause)
        assert refusal.code == "unknown_causation" and cause in refusal.message
        if interface.has_pointer:
            assert refusal.pointer == "/causation_id"
    assert refused(interface, org, id=own, causation_id=own).code == "unknown_causation"  # itself
    assert refused(interface, None, aggregate_id=org, causation_id=other["id"]).code == "unknown_causation"
    for cause in ("", "x" * 65):
        assert refused(interface, org, causation_id=cause).code == "invalid_field"
    assert world.events(org_id=org) == []


# --- own ids --------------------------------------------------------------------------------------


def test_e4_own_id_again_gives_the_first_result(world, interface, org):
    own = str(uuid.uuid4())
    first = append(interface, org, id=own, payload='{"a":1,"b":[1,2]}', expected_seq=0, correlation_id="c-" + org)
    append(interface, org)  # the aggregate goes on
    for payload in ('{"a":1,"b":[1,2]}', ' { "b" : [ 1 , 2 ] , "a" : 1 } ', r'{"\u0061":1,"b":[1,2]}'):
        again = append(interface, org, id=own.upper(), payload=payload, expected_seq=0)
        assert again == {**first, "duplicate": True}
    assert len(world.events(org_id=org)) == 2
    assert append(interface, org)["aggregate_seq"] == 3


def test_e4_own_id_with_other_content_is_a_conflict(world, interface, org):
    own = str(uuid.uuid4())
    append(interface, org, id=own, payload='{"a":1}')
    for other in (
        {"payload": '{"a":2}'},
        {"payload": '{"a":1.0}'},
        {"payload": '{"a":1,"b":null}'},
        {"event_type": "order.paid"},
        {"event_version": 2},
        {"aggregate_id": "o-2"},
        {"aggregate_type": "invoice"},
        {"org_id": f"{org}-other"},
        {"org_id": None},
    ):
        fields = event(org, **{"id": own, "payload": '{"a":1}', **other})
        refusal = refused(interface, **{"org": fields.pop("org_id"), **fields})
        assert refusal.code == "id_conflict" and own in refusal.message
        if interface.has_pointer:
            assert refusal.pointer == "/id"
    assert len(world.events(org_id=org)) == 1
    assert append(interface, org)["aggregate_seq"] == 2


# --- I1: idempotency ------------------------------------------------------------------------------


def test_i1_repeated_key_gives_the_first_result(world, interface, org):
    first = append(interface, org, idempotency_key="k", payload='{"a":1,"b":"é"}', expected_seq=0)
    assert first["duplicate"] is False
    for payload in ('{"a":1,"b":"é"}', ' {"b" : "é", "a" : 1} ', r'{"a":1,"b":"\u00e9"}'):
        again = append(interface, org, idempotency_key="k", payload=payload, expected_seq=0)
        assert again == {**first, "duplicate": True}
    assert len(world.events(org_id=org)) == 1
    assert world.events(org_id=org)[0]["idempotency_key"] == "k"


def test_i1_key_with_another_request_is_refused(world, interface, org):
    usual = {"idempotency_key": "k", "payload": '{"a":1}'}
    append(interface, org, **usual)
    for other in (
        {"payload": '{"a":2}'},
        {"payload": '{"a":1.0}'},
        {"payload": '{"a":"1"}'},
        {"event_type": "order.paid"},
        {"aggregate_id": "o-2"},
        {"event_version": 2},
        {"metadata": "{}"},
        {"correlation_id": "c"},
        {"app_id": "x"},
        {"expected_seq": 1},
        {"id": str(uuid.uuid4())},
    ):
        refusal = refused(interface, org, **{**usual, **other})
        assert refusal.code == "idempotency_key_reuse"
    assert len(world.events(org_id=org)) == 1


def test_i1_key_belongs_to_org_and_actor(world, interface, org):
    key = f"k-{org}"
    results = [
        append(interface, org, idempotency_key=key),
        append(interface, f"{org}-other", idempotency_key=key),
        append(interface, None, aggregate_id=org, idempotency_key=key),
        append(interface, org, idempotency_key=key, actor_type="user", actor_id="u-1"),
        append(interface, org, idempotency_key=key, actor_type="user", actor_id="u-2"),
    ]
    assert len({result["id"] for result in results}) == 5
    assert not any(result["duplicate"] for result in results)
    # The type of the actor and the request's id are no part of what was asked.
    again = append(
        interface, org, idempotency_key=key, actor_type="service_principal", actor_id="u-1", request_id="another"
    )
    assert again["id"] == results[3]["id"] and again["duplicate"]


def test_i1_refused_request_leaves_its_key_free(interface, org):
    assert refused(interface, org, idempotency_key="k", expected_seq=5).code == "sequence_conflict"
    assert refused(interface, org, idempotency_key="k", causation_id="0").code == "unknown_causation"
    assert append(interface, org, idempotency_key="k", payload='{"a":1}')["aggregate_seq"] == 1


NASTY = {
    "b": [1, True, None, '\u0001\b\f\n\r\t"\\/\u007f\u0080\u2028é€😀'],
    "": {"z": "", "Z": [], "ä": {}},
    "a": {"y": {"x": -0.5}},
}


def test_i1_one_key_one_event_across_all_interfaces(world, interface, org):
    """Whoever was first: the others give the same answer, however they write the same request."""
    ways = [
        json.dumps(NASTY),
        json.dumps(NASTY, ensure_ascii=False),
        json.dumps(NASTY, indent=1).replace("\n", " "),
        json.dumps(dict(reversed(NASTY.items())), separators=(",", ":")),
    ]
    more = {
        "idempotency_key": "käse \u0001 " + org,
        "metadata": json.dumps(NASTY),
        "event_version": 3,
        "correlation_id": "c é",
        "app_id": "\u007f",
        "id": str(uuid.uuid4()),
        "expected_seq": 0,
    }
    first = append(interface, org, payload=ways[0], **more)
    for name, payload in zip(DOORS, itertools.cycle(ways)):
        again = append(world.interface(name), org, payload=payload, **more)
        assert again == {**first, "duplicate": True}, name
        other = json.dumps({**NASTY, "a": 1})
        assert refused(world.interface(name), org, payload=other, **more).code == "idempotency_key_reuse"
    assert len(world.events(org_id=org)) == 1


def test_i1_one_id_one_event_across_all_interfaces(world, interface, org):
    own = str(uuid.uuid4())
    first = append(interface, org, id=own, payload=json.dumps(NASTY))
    for name in DOORS:
        again = append(world.interface(name), org, id=own, payload=json.dumps(NASTY, ensure_ascii=False))
        assert again == {**first, "duplicate": True}, name
        refusal = refused(world.interface(name), org, id=own, payload='{"a":1}')
        assert refusal.code == "id_conflict", name


def test_i1_key_with_a_payload_as_deep_as_may_be(world, interface, org):
    payload = '{"a":' * 64 + "1" + "}" * 64
    first = append(interface, org, payload=payload, idempotency_key="deep")
    for name in DOORS:
        assert append(world.interface(name), org, payload=payload, idempotency_key="deep")["id"] == first["id"]


def test_i1_request_hash_is_the_same_everywhere(world):
    for text in (*KEPT.values(), json.dumps(NASTY), "[1, 2 ]", '"x"', " 1.0 "):
        expected = world.reader.ask("hash", request=text)["hash"]
        if world.kind == "postgres":
            assert world.sql("select outlog_request_hash(?::json)", text) == [(expected,)], text
        else:
            assert execute(world.interface("sql").connection, "select outlog_request_hash(?)", text) == [
                (expected,)
            ], text
    key = world.reader.ask("key", aggregate_type="a", aggregate_id="b", event_type="c", payload='{ "x": 1 }')["key"]
    assert key == "a:b:c:" + world.reader.ask("hash", request='{"x":1}')["hash"]
    if world.kind == "postgres":
        assert world.sql("select outlog_derived_key('a','b','c',?)", '{"x":  1}') == [(key,)]


def test_i1_own_commands_are_done_once(world, org):
    """outlog_idempotent_begin and _end, as a program of the user calls them."""
    for name in ("c", "c-join"):
        interface, call = world.interface(name), {
            "org_id": org,
            "actor_id": "a",
            "endpoint": f"pay.{name}",
            "key": "k",
            "request": '{"n": 1}',
        }
        ask = interface.program.ask
        interface.begin()
        assert ask("idempotent_begin", **call)["response"] is None
        append(interface, org)
        ask("idempotent_end", response='{"paid":true}', **call)
        interface.commit()
        interface.begin()
        again = {**call, "request": ' {"n":1} '}
        assert ask("idempotent_begin", **again)["response"] == '{"paid":true}'
        interface.rollback()
        interface.begin()
        with pytest.raises(Refused, match="idempotency_key_reuse"):
            ask("idempotent_begin", **{**call, "request": '{"n":2}'})
        interface.rollback()
        interface.begin()
        with pytest.raises(Refused, match="misuse"):
            ask("idempotent_end", response="{}", **{**call, "key": "never begun"})
        interface.rollback()
        for wrong, code in (
            ({"key": "x" * 513}, "invalid_field"),
            ({"key": ""}, "invalid_field"),
            ({"request": "{"}, "invalid_json"),
            ({"endpoint": None}, "misuse"),
        ):
            interface.begin()
            with pytest.raises(Refused, match=code):
                ask("idempotent_begin", **{**call, **wrong})
            interface.rollback()
        interface.begin()  # a rolled back claim leaves the key free
        assert ask("idempotent_begin", **{**call, "key": "k2"})["response"] is None
        interface.rollback()
        interface.begin()
        assert ask("idempotent_begin", **{**call, "key": "k2", "request": "{}"})["response"] is None
        interface.rollback()
    assert len(world.events(org_id=org)) == 2


# --- E5, A1, A2: transactions ---------------------------------------------------------------------


def rows(world, *ids):
    marks = ",".join("?" * len(ids))
    return world.sql(f"select count(*) from interface_orders where id in ({marks})", *ids)[0][0]


def test_e5_rollback_leaves_no_trace_and_no_gap(world, transacting, org):
    interface = transacting
    append(interface, org)
    interface.begin()
    assert append(interface, org)["aggregate_seq"] == 2
    assert append(interface, org, idempotency_key="k", id=str(uuid.uuid4()))["aggregate_seq"] == 3
    assert append(interface, org, aggregate_id="o-2")["aggregate_seq"] == 1
    interface.rollback()
    assert len(world.events(org_id=org)) == 1
    assert append(interface, org, idempotency_key="k", payload='{"other":1}')["aggregate_seq"] == 2
    assert append(interface, org, aggregate_id="o-2", expected_seq=0)["aggregate_seq"] == 1


def test_e5_events_of_a_transaction_appear_together(world, transacting, org):
    interface = transacting
    interface.begin()
    first = append(interface, org)
    second = append(interface, org, causation_id=first["id"])
    assert second["correlation_id"] == first["correlation_id"]
    assert world.events(org_id=org) == []  # nobody sees them yet
    interface.commit()
    until(lambda: len(world.events(org_id=org)) == 2)


def test_a1_row_and_event_commit_together(world, caller, org):
    interface = caller
    interface.begin()
    interface.write_row(org)
    append(interface, org)
    assert rows(world, org) == 0 and world.events(org_id=org) == []
    interface.commit()
    assert rows(world, org) == 1 and len(world.events(org_id=org)) == 1


def test_a1_row_and_event_roll_back_together(world, caller, org):
    interface = caller
    interface.begin()
    append(interface, org)
    interface.write_row(org)
    interface.rollback()
    assert rows(world, org) == 0 and world.events(org_id=org) == []


def test_a2_refusal_leaves_the_callers_transaction_usable(world, caller, org):
    """SQL on PostgreSQL needs a savepoint for that, as any statement there."""
    interface, own = caller, str(uuid.uuid4())
    interface.begin()
    interface.write_row(f"{org}-1")
    append(interface, org, id=own, idempotency_key="k")
    for wrong, code in (
        ({"payload": "{"}, "invalid_json"),
        ({"expected_seq": 7}, "sequence_conflict"),
        ({"id": own, "payload": '{"a":1}'}, "id_conflict"),
        ({"causation_id": "0"}, "unknown_causation"),
        ({"idempotency_key": "k", "payload": '{"a":1}'}, "idempotency_key_reuse"),
        ({"idempotency_key": "k2", "expected_seq": 7}, "sequence_conflict"),
        ({"aggregate_id": "new", "expected_seq": 7}, "sequence_conflict"),
        ({"payload": json.dumps({"a": GITHUB})}, "secret_material"),
    ):
        assert refused(interface, org, **wrong).code == code
    interface.write_row(f"{org}-2")
    assert append(interface, org, expected_seq=1, idempotency_key="k2")["aggregate_seq"] == 2
    assert append(interface, org, aggregate_id="new")["aggregate_seq"] == 1
    interface.commit()
    assert rows(world, f"{org}-1", f"{org}-2") == 2
    assert [e["aggregate_seq"] for e in world.events(org_id=org)] == [1, 2, 1]


def test_a2_library_and_caller_join_the_same_transaction_as_often_as_they_like(world, org):
    interface = world.interface("c-join")
    for n in (1, 2, 3):
        interface.begin()
        assert append(interface, org)["aggregate_seq"] == n
        interface.commit()


def test_a2_joining_outside_a_transaction_is_misuse(world):
    if world.kind == "sqlite":
        pytest.skip("a savepoint begins one")
    with pytest.raises(Refused, match="misuse.*begin"):
        world.interface("c-join").program.ask("join_outside")


def test_a2_connection_of_another_encoding_is_misuse(world, org):
    if world.kind == "sqlite":
        pytest.skip("SQLite's text is UTF-8")
    interface = world.interface("c-join")
    interface.program.ask("sql", sql="set client_encoding = 'LATIN1'")
    with pytest.raises(Refused, match="misuse.*client_encoding"):
        append(interface, org, payload='{"a":"é"}')
    interface.program.ask("sql", sql="set client_encoding = 'UTF8'")
    append(interface, org, payload='{"a":"é"}')


def test_e5_failed_append_spoils_the_librarys_own_transaction(world, org):
    """Half of a command must not be committed by accident: such a transaction only rolls back."""
    interface = world.interface("c")
    for wrong, code in (({"expected_seq": 7}, "sequence_conflict"), ({"causation_id": "0"}, "unknown_causation")):
        interface.begin()
        append(interface, org)
        assert refused(interface, org, payload="{").code == "invalid_json"  # seen before the store is
        append(interface, org)
        assert refused(interface, org, **wrong).code == code
        with pytest.raises(Refused) as refusal:
            append(interface, org)
        assert refusal.value.code == "misuse" and "roll it back" in refusal.value.message
        with pytest.raises(Refused) as refusal:
            interface.commit()
        assert refusal.value.code == "store_error" and "rolled back" in refusal.value.message
    assert world.events(org_id=org) == []
    assert append(interface, org)["aggregate_seq"] == 1


def test_e6_handle_with_an_open_transaction_does_not_read(world, org):
    """On SQLite it would see its own events, whose ids another may get after a rollback."""
    interface = world.interface("c")
    before = world.reader.ask("settled")["settled"]
    interface.begin()
    append(interface, org)
    with pytest.raises(Refused, match="misuse"):
        interface.program.ask("read", filter={"org_id": org})
    interface.rollback()
    assert interface.program.ask("read", filter={"org_id": org})["events"] == []
    if world.kind == "sqlite":
        assert interface.program.ask("settled")["settled"] == before


def test_e5_many_events_are_one_command(world, org):
    for name in ("c", "c-join"):
        program, mine = world.interface(name).program, f"{org}-{name}"
        if name == "c-join":
            world.interface(name).begin()
        own = [str(uuid.uuid4()) for _ in range(4)]
        results = program.append(
            event(mine, id=own[0], correlation_id="x"),
            event(mine, aggregate_id="o-2", causation_id=own[0], id=own[1]),
            event(mine, causation_id=own[1].upper(), expected_seq=1),
            event(None, aggregate_id=mine),
        )
        assert [r["aggregate_seq"] for r in results] == [1, 1, 2, 1]
        assert [r["correlation_id"] for r in results][:3] == ["x", "x", "x"]
        for wrong, code, index in (
            ([event(mine), event(mine, payload="{")], "invalid_json", 1),
            ([event(mine), event(mine), event(mine, expected_seq=2)], "sequence_conflict", 2),
            ([event(mine, id=own[0]), event(mine, id=own[2], expected_seq=0)], "sequence_conflict", 1),
            ([event(mine, id=own[0]), event(mine, id=own[1])], "id_conflict", 1),
            ([event(mine, id=own[2]), event(mine, id=own[2])], "id_conflict", 1),
            ([event(mine, id=own[2], causation_id=own[3]), event(mine, id=own[3])], "unknown_causation", 0),
        ):
            with pytest.raises(Refused) as refusal:
                program.append(*wrong)
            assert (refusal.value.code, refusal.value.index) == (code, index)
        again = program.append(event(mine, id=own[0]), event(mine, id=own[2]), event(mine))
        assert [r["duplicate"] for r in again] == [True, False, False]
        assert [r["aggregate_seq"] for r in again] == [1, 3, 4]
        if name == "c-join":
            world.interface(name).commit()
        assert [e["aggregate_seq"] for e in world.events(org_id=mine)] == [1, 1, 2, 3, 4]


def test_e5_keyed_command_of_many_events_is_done_once(world, org):
    program = world.interface("c").program
    command = [event(org, idempotency_key="k"), event(org, aggregate_id="o-2")]
    first = program.append(*command)
    assert program.append(*command) == [{**r, "duplicate": True} for r in first]
    with pytest.raises(Refused, match="idempotency_key_reuse"):
        program.append(command[0])
    assert len(world.events(org_id=org)) == 2


def test_e5_outcome_is_resolved_by_id(world, interface, org):
    stored = append(interface, org)
    answer = world.reader.ask("resolve", id=stored["id"])
    assert (answer["event_id"], answer["aggregate_seq"]) == (stored["event_id"], 1)
    assert world.reader.ask("resolve", id=str(uuid.uuid4())) == {"stored": 0}
    with pytest.raises(Refused, match="invalid_field"):
        world.reader.ask("resolve", id="42")


# --- concurrency ----------------------------------------------------------------------------------


def side_by_side(world, names, work):
    """Run work(interface) in a thread for each name, all at once, each with an interface of its own."""
    start, trouble = threading.Barrier(len(names)), []

    def run(name):
        try:
            interface = open_interface(name, world.store)
            try:
                start.wait(60)
                work(interface)
            finally:
                interface.close()
        except BaseException as error:
            trouble.append(error)
            start.abort()

    threads = [threading.Thread(target=run, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert trouble == []


@pytest.mark.parametrize(
    "pair", [("c", "c"), ("c-join", "sql"), ("sql", "sql"), ("cli", "c"), ("ndjson", "c-join")], ids="+".join
)
@pytest.mark.parametrize("has_org", [True, False], ids=["org", "infra"])
def test_e4_two_appenders_of_one_new_aggregate_make_no_gap(world, org, pair, has_org):
    each, taken = 12, []

    def work(interface):
        for _ in range(each):
            result = append(interface, org if has_org else None, aggregate_id=org)
            taken.append((result["aggregate_seq"], result["event_id"]))

    side_by_side(world, pair, work)
    assert [seq for seq, _ in sorted(taken)] == list(range(1, 2 * each + 1))
    assert len({event_id for _, event_id in taken}) == 2 * each
    # Within an aggregate both orders agree (E3).
    assert [event_id for _, event_id in sorted(taken)] == sorted(i for _, i in taken)


def test_i1_two_callers_with_one_key_make_one_event(world, org):
    results = []

    def work(interface):
        for n in range(5):
            results.append((n, append(interface, org, idempotency_key=f"k{n}")["id"]))

    side_by_side(world, ("c", "c-join", "sql", "c"), work)
    assert len(results) == 20 and len(set(results)) == 5
    assert len(world.events(org_id=org)) == 5


# --- E7, E8: reading ------------------------------------------------------------------------------


class CReader:
    def __init__(self, world):
        self.world = world

    def ids(self, after=0, limit=100, **filters):
        for bound in ("since", "until"):
            if bound in filters:
                filters[bound] = micros(filters[bound])
        page = self.world.reader.ask("read", after=after, limit=limit, filter=filters)
        return [e["event_id"] for e in page["events"]]


class CliReader:
    FLAGS = {"event_type": "type", "correlation_id": "correlation", "app_id": "app", "env_id": "env"}

    def __init__(self, world):
        self.outlog = Outlog(world.store)

    def ids(self, after=0, limit=100, **filters):
        args = ["events", "--json", f"--after={after}", f"--limit={limit}"]
        if "org_id" in filters:
            org_id = filters.pop("org_id")
            args += ["--infra"] if org_id is None else [f"--org={org_id}"]
        if "aggregate_id" in filters:
            args += [f"--aggregate={filters.pop('aggregate_type')}/{filters.pop('aggregate_id')}"]
        args += [f"--{self.FLAGS.get(name, name)}={value}" for name, value in filters.items()]
        return [e["event_id"] for e in self.outlog.run(*args).json()]


@pytest.fixture(params=[CReader, CliReader], ids=["c", "cli"])
def reading(world, request):
    return request.param(world)


def test_e7_filters_keep_the_order(world, reading, org):
    interface = world.interface("c")
    made = [
        append(
            interface,
            org,
            aggregate_id=f"o-{n % 3}",
            event_type=f"t.{n % 2}",
            app_id=f"a{n % 2}",
            env_id=f"e{n % 4}",
            visibility=f"v{n % 2}",
            correlation_id=f"{org}-{n % 5}",
        )
        for n in range(12)
    ]
    append(interface, f"{org}-other")
    ids = [r["event_id"] for r in made]
    assert reading.ids(org_id=org) == ids
    for filters, step, rest in (
        ({"event_type": "t.1"}, 2, 1),
        ({"app_id": "a0"}, 2, 0),
        ({"env_id": "e3"}, 4, 3),
        ({"visibility": "v1"}, 2, 1),
        ({"correlation_id": f"{org}-2"}, 5, 2),
        ({"aggregate_type": "order", "aggregate_id": "o-1"}, 3, 1),
    ):
        assert reading.ids(org_id=org, **filters) == ids[rest::step]
    assert reading.ids(org_id=org, event_type="t.1", app_id="a0") == []
    assert reading.ids(correlation_id=f"{org}-2") == ids[2::5]


def test_e7_after_and_limit_page_through_the_log(world, reading, org):
    interface = world.interface("c")
    ids = [append(interface, org)["event_id"] for _ in range(7)]
    assert reading.ids(org_id=org, limit=3) == ids[:3]
    assert reading.ids(org_id=org, limit=3, after=ids[2]) == ids[3:6]
    assert reading.ids(org_id=org, limit=3, after=ids[5]) == ids[6:]
    assert reading.ids(org_id=org, after=ids[6]) == []
    assert reading.ids(after=ids[0] - 1, limit=2) == ids[:2]
    assert reading.ids(org_id=f"{org}-nobody") == []


def test_e8_window_of_time_is_half_open(world, reading, org):
    interface = world.interface("c")
    made = []
    for _ in range(4):
        last = made[-1]["occurred_at"] if made else ""
        made.append(until(lambda: (r := append(interface, org))["occurred_at"] > last and r))
    at = [r["occurred_at"] for r in made]
    ids = [r["event_id"] for r in made]
    assert reading.ids(org_id=org, since=at[1]) == ids[1:]
    assert reading.ids(org_id=org, until=at[2]) == ids[:2]
    assert reading.ids(org_id=org, since=at[1], until=at[3]) == ids[1:3]
    assert reading.ids(org_id=org, since=at[2], until=at[2]) == []
    assert reading.ids(org_id=org, since="2000-01-01T00:00:00.000000Z", until="2001-01-01T00:00:00.000000Z") == []
    assert reading.ids(org_id=org, since="2100-01-01T00:00:00.000000Z") == []


def test_e8_window_may_be_a_span_back_from_now(world, org):
    ids = [append(world.interface("c"), org)["event_id"]]
    cli = CliReader(world)
    assert cli.ids(org_id=org, since="1h") == ids
    assert cli.ids(org_id=org, until="1h") == []


def test_e7_infrastructure_is_a_filter(world, reading, org):
    made = append(world.interface("c"), None, aggregate_id=org)["event_id"]
    append(world.interface("c"), org, aggregate_id=org)
    assert reading.ids(org_id=None, aggregate_type="order", aggregate_id=org) == [made]


def test_e7_filtered_cursor_moves_past_what_it_skipped(world, org):
    interface, ask = world.interface("c"), world.reader.ask
    first = append(interface, org)["event_id"]
    last = [append(interface, f"{org}-other")["event_id"] for _ in range(5)][-1]
    page = until(lambda: (p := ask("read", filter={"org_id": org}))["settled"] >= last and p)
    assert [e["event_id"] for e in page["events"]] == [first]
    assert page["next_after"] == page["settled"] >= last
    page = ask("read", filter={"org_id": org}, limit=1)
    assert page["next_after"] == first  # a full page: there may be more
    page = ask("read", filter={"org_id": org}, after=first, limit=1)
    assert page["events"] == [] and page["next_after"] >= last
    end = page["next_after"]
    page = ask("read", filter={"org_id": org}, after=end)
    assert page["events"] == [] and page["next_after"] == end  # never goes back


def test_e7_limits_of_a_read(world):
    for limit in (0, 10001):
        with pytest.raises(Refused, match="invalid_field"):
            world.reader.ask("read", limit=limit)
    assert len(world.reader.ask("read", limit=1)["events"]) <= 1
    with pytest.raises(Refused, match="not_found"):
        world.get("999999999999")
    with pytest.raises(Refused, match="not_found"):
        world.get(uuid.uuid4())
    with pytest.raises(Refused, match="invalid_field"):
        world.get("nonsense")


def test_e6_reader_waits_for_an_open_transaction(world, org):
    """An event that could still get a lower position holds the reader back (PostgreSQL)."""
    if world.kind == "sqlite":
        pytest.skip("SQLite has one writer: nothing can appear below what is committed")
    early, late = world.interface("c-join"), world.interface("sql")
    early.begin()
    first = append(early, org, aggregate_id="early")["event_id"]
    second = append(late, org, aggregate_id="late")["event_id"]
    assert first < second
    assert world.events(org_id=org) == [] and world.reader.ask("settled")["settled"] < first
    early.commit()
    until(lambda: world.reader.ask("settled")["settled"] >= second)
    assert [e["event_id"] for e in world.events(org_id=org)] == [first, second]
    rows_seen = world.sql("select event_id from outlog_read(?, 10)", first - 1)
    assert rows_seen[:2] == [(first,), (second,)]


@pytest.mark.parametrize("name", DOORS)
def test_c2_follower_sees_a_commit_of_another_process(world, org, name):
    follower = Program(world.store)
    answer = []
    try:
        after = follower.ask("settled")["settled"]
        waiting = threading.Thread(
            target=lambda: answer.append(follower.ask("follow", after=after, filter={"org_id": org}, timeout_ms=30000))
        )
        waiting.start()
        made = append(world.interface(name), org)
        waiting.join(40)
        assert [e["event_id"] for e in answer[0]["events"]] == [made["event_id"]]
        page = follower.ask("follow", after=answer[0]["next_after"], filter={"org_id": org}, timeout_ms=20)
        assert page["events"] == []  # the end of the time is no error
    finally:
        follower.close()


# --- C1, C3, C4: consumers ------------------------------------------------------------------------


def test_c1_consumer_by_c(world, org):
    ask, interface = world.reader.ask, world.interface("c")
    name = f"c-{org}"
    ids = [append(interface, org)["event_id"] for _ in range(3)]
    append(interface, f"{org}-other")
    until(lambda: ask("settled")["settled"] > ids[-1])
    assert ask("consumer_create", name=name, filter={"org_id": org})["created"] == 1
    assert ask("consumer_create", name=name, filter={"org_id": "x"}, to=1)["created"] == 0
    consumer = ask("consumer_get", name=name)
    assert consumer["cursor_event_id"] == 0 and json.loads(consumer["filters"]) == {"org_id": org}
    assert consumer["lag"] == ask("settled")["settled"]
    for _ in range(2):  # reading moves nothing
        page = ask("consumer_read", name=name, limit=2)
        assert [e["event_id"] for e in page["events"]] == ids[:2]
    assert ask("consumer_commit", name=name, to=page["next_after"])["moved"] == 1
    assert ask("consumer_commit", name=name, to=ids[0])["moved"] == 0  # forward only
    assert ask("consumer_commit", name=name, to=ids[1])["moved"] == 0
    assert ask("consumer_get", name=name)["cursor_event_id"] == ids[1]
    page = ask("consumer_read", name=name)
    assert [e["event_id"] for e in page["events"]] == ids[2:]
    assert page["next_after"] == page["settled"]  # past the other org's event
    with pytest.raises(Refused, match="beyond_settled"):
        ask("consumer_commit", name=name, to=ask("settled")["settled"] + 1)
    assert name in [c["name"] for c in ask("consumer_list")["consumers"]]
    ask("consumer_delete", name=name)
    for verb in ("consumer_get", "consumer_delete", "consumer_read", "consumer_commit", "consumer_reset"):
        with pytest.raises(Refused, match="not_found"):
            ask(verb, name=name)


def test_c4_cursor_is_reset_explicitly(world, org):
    ask, interface, name = world.reader.ask, world.interface("c"), f"r-{org}"
    made = []
    for _ in range(3):
        last = made[-1]["occurred_at"] if made else ""
        made.append(until(lambda: (r := append(interface, org))["occurred_at"] > last and r))
    settled = ask("settled")["settled"]
    ask("consumer_create", name=name, end=True)

    def cursor():
        return ask("consumer_get", name=name)["cursor_event_id"]

    assert cursor() == settled
    ask("consumer_reset", name=name, to=0)
    assert cursor() == 0
    ask("consumer_reset", name=name, to=made[1]["event_id"])
    assert cursor() == made[1]["event_id"]
    ask("consumer_reset", name=name, end=True)
    assert cursor() == ask("settled")["settled"] > settled, "each reset is an event (X4)"
    assert ask("consumer_get", name=name)["lag"] == 0
    ask("consumer_reset_to_time", name=name, to=micros(made[1]["occurred_at"]))
    assert cursor() == made[1]["event_id"] - 1
    page = ask("consumer_read", name=name)
    assert [e["event_id"] for e in page["events"] if e["org_id"]] == [r["event_id"] for r in made[1:]]
    settled = ask("settled")["settled"]
    ask("consumer_reset_to_time", name=name, to=micros("2100-01-01T00:00:00.000000Z"))
    assert cursor() == settled
    ask("consumer_reset_to_time", name=name, to=1)
    settled = ask("settled")["settled"]
    assert ask("consumer_read", name=name, limit=1)["events"][0]["event_id"] == world.events()[0]["event_id"]
    for wrong, code in ((-1, "invalid_field"), (settled + 1, "beyond_settled")):
        with pytest.raises(Refused, match=code):
            ask("consumer_reset", name=name, to=wrong)
    with pytest.raises(Refused, match="beyond_settled"):
        ask("consumer_create", name=f"{name}-2", to=settled + 1)
    for wrong in ("", "x" * 101):
        with pytest.raises(Refused, match="invalid_field"):
            ask("consumer_create", name=wrong)


def test_c1_consumer_by_cli(world, org):
    outlog, name = Outlog(world.store), f"cli-{org}"
    ids = [append(world.interface("c"), org, visibility="v")["event_id"] for _ in range(3)]

    def consumers(*args, code=None):
        done = outlog.run("consumers", *args, "--json", check=code is None)
        if code:
            assert done.returncode == 1 and f"[{code}]" in done.stderr
            return None
        return done.json()

    made = consumers("create", name, "--org", org, "--visibility", "v")[0]
    assert made["name"] == name and made["cursor_event_id"] == 0
    assert made["filters"] == {"org_id": org, "visibility": "v"}
    assert TIME.fullmatch(made["updated_at"]) and made["lag"] >= 3
    assert set(made) == {"name", "cursor_event_id", "lag", "filters", "updated_at"}
    assert consumers("create", name)[0]["filters"] == made["filters"]
    assert [e["event_id"] for e in consumers("read", name, "--limit", "2")] == ids[:2]
    assert consumers("commit", name, ids[1])[0]["cursor_event_id"] == ids[1]
    assert consumers("commit", name, ids[0])[0]["cursor_event_id"] == ids[1]
    assert [e["event_id"] for e in consumers("read", name)] == ids[2:]
    assert name in [c["name"] for c in consumers()]
    assert consumers("reset", name, "--to", "0")[0]["cursor_event_id"] == 0
    assert consumers("reset", name, "--to", ids[0])[0]["cursor_event_id"] == ids[0]
    assert consumers("reset", name, "--to", "end")[0]["lag"] == 0
    assert consumers("reset", name, "--to", "2000-01-01T00:00:00Z")[0]["cursor_event_id"] < ids[0]
    assert consumers("reset", name, "--to", "1h")[0]["cursor_event_id"] < ids[0]
    consumers("commit", name, "999999999999", code="beyond_settled")
    consumers("reset", name, "--to", "999999999999", code="beyond_settled")
    assert consumers("read", name, "--wait", "0") != []
    consumers("delete", name)
    for args in (("delete", name), ("read", name), ("commit", name, "1"), ("reset", name, "--to", "0")):
        consumers(*args, code="not_found")


# --- T3: traces -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def story(world):
    """a -> b -> c, a -> d, and another story beside it; d is caused across aggregates."""
    org, interface = f"story-{next(_numbers)}", world.interface("c")
    a = append(interface, org, event_type="a.done", aggregate_id="1", correlation_id=f"flow-{org}")
    b = append(interface, org, event_type="b.done", aggregate_id="2", causation_id=a["id"])
    c = append(interface, org, event_type="c.done", aggregate_id="1", causation_id=b["id"])
    d = append(interface, org, event_type="d.done", aggregate_id="3", causation_id=str(a["event_id"]))
    append(interface, org, event_type="x.done", aggregate_id="4")
    until(lambda: len(world.events(org_id=org)) == 5)
    return org, a, b, c, d


def test_t3_trace_and_causality_by_c(world, story):
    org, a, b, c, d = story
    ask = world.reader.ask
    page = ask("trace", id=f"flow-{org}")
    assert [e["event_type"] for e in page["events"]] == ["a.done", "b.done", "c.done", "d.done"]
    assert ask("trace", id=f"flow-{org}", filter={"org_id": "nobody"})["events"] == []
    page = ask("causality", id=c["id"])
    assert [(e["event_type"], e["depth"]) for e in page["events"]] == [("c.done", 0), ("b.done", 1), ("a.done", 2)]
    page = ask("causality", id=str(a["event_id"]), down=True)
    assert [(e["event_type"], e["depth"]) for e in page["events"]] == [
        ("a.done", 0),
        ("b.done", 1),
        ("c.done", 2),
        ("d.done", 1),
    ]
    page = ask("causality", id=d["id"], down=True)
    assert [(e["event_type"], e["depth"]) for e in page["events"]] == [("d.done", 0)]
    with pytest.raises(Refused, match="not_found"):
        ask("causality", id=str(uuid.uuid4()))


def test_t3_trace_and_causality_by_cli(world, story):
    org, a, b, c, d = story
    outlog = Outlog(world.store)
    lines = outlog.run("trace", f"flow-{org}").lines()
    assert [re.split(r"(?<=done)  ", line)[0] for line in lines] == ["a.done", "├─ b.done", "│  └─ c.done", "└─ d.done"]
    assert [e["event_type"] for e in outlog.run("trace", f"flow-{org}", "--json").json()] == [
        "a.done",
        "b.done",
        "c.done",
        "d.done",
    ]
    done = outlog.run("causality", a["id"], "--down", "--json").json()
    assert [(e["event_id"], e["depth"]) for e in done] == [
        (a["event_id"], 0),
        (b["event_id"], 1),
        (c["event_id"], 2),
        (d["event_id"], 1),
    ]
    done = outlog.run("causality", c["event_id"], "--json").json()
    assert [(e["event_id"], e["depth"]) for e in done] == [(c["event_id"], 0), (b["event_id"], 1), (a["event_id"], 2)]
    lines = outlog.run("causality", c["event_id"]).lines()  # for people the root is on top
    assert [re.sub(r"^[ │└├─]*", "", line).split("  ")[0] for line in lines] == ["a.done", "b.done", "c.done"]
    for args in (("trace", "nothing"), ("causality", "999999999999"), ("causality", str(uuid.uuid4()))):
        done = outlog.run(*args, check=False)
        assert done.returncode == 1 and "[not_found]" in done.stderr


@pytest.fixture(scope="module")
def chain(world):
    """10,000 events, each the cause of the next."""
    org, count, batch = f"chain-{next(_numbers)}", 10000, 1000
    program = world.interface("c").program
    ids = [str(uuid.UUID(int=random.getrandbits(128), version=4)) for _ in range(count)]
    for at in range(0, count, batch):
        program.append(
            *[
                event(org, id=ids[n], correlation_id=org, **({"causation_id": ids[n - 1]} if n else {}))
                for n in range(at, at + batch)
            ]
        )
    until(lambda: world.reader.ask("read", filter={"org_id": org}, limit=10000)["events"][-1]["id"] == ids[-1])
    return org, ids


def test_t3_chain_of_ten_thousand_by_c(world, chain):
    org, ids = chain
    up = world.reader.ask("causality", id=ids[-1])["events"]
    assert [e["id"] for e in up] == ids[::-1] and [e["depth"] for e in up] == list(range(10000))
    down = world.reader.ask("causality", id=ids[0], down=True)["events"]
    assert [e["id"] for e in down] == ids and [e["depth"] for e in down] == list(range(10000))
    assert [e["id"] for e in world.reader.ask("trace", id=org)["events"]] == ids


def test_t3_chain_of_ten_thousand_by_cli(world, chain):
    org, ids = chain
    outlog = Outlog(world.store)
    for args in (("trace", org), ("causality", ids[-1]), ("causality", ids[0], "--down")):
        done = outlog.run(*args)
        assert len(done.lines()) == 10000
        assert max(map(len, done.lines())) < 400  # a person can still look at it
        assert len(outlog.run(*args, "--json").lines()) == 10000


# --- A4 and the manners of the command line -------------------------------------------------------


def line(org, **fields):
    fields = event(org, **fields)
    payload = fields.pop("payload")
    return json.dumps(fields)[:-1] + ', "payload": ' + payload + "}\n"


def test_a4_ndjson_appends_in_order(world, org):
    outlog = Outlog(world.store)
    done = outlog.run(
        "append",
        "--ndjson",
        "-",
        "--json",
        input="\n".join(line(org, aggregate_id=f"o-{n % 7}", payload=f'{{"n":{n}}}') for n in range(250)) + "\n\n",
    )
    results = done.json()
    assert len(results) == 250 and all(set(r) == set(RESULT) for r in results)
    assert [json.loads(e["payload"])["n"] for e in world.events(org_id=org)] == list(range(250))
    assert [r["event_id"] for r in results] == [e["event_id"] for e in world.events(org_id=org)]
    assert "250 events appended" in done.stderr  # not among the results


def test_a4_ndjson_takes_defaults_from_the_options(world, org, tmp_path):
    outlog = Outlog(world.store, cwd=tmp_path)
    fields = event(org)
    del fields["org_id"], fields["payload"]
    (tmp_path / "in.ndjson").write_text(
        json.dumps({**fields, "payload": {}})
        + "\r\n"
        + json.dumps({**fields, "payload": {}, "org_id": f"{org}-2", "actor_type": "user", "actor_id": "u"})
        + "\n"
        + json.dumps({**fields, "payload": {}, "org_id": None, "aggregate_id": org})
    )  # no new line at the end
    done = outlog.run("append", "--ndjson", "in.ndjson", "--org", org, "--actor", "service_principal:load")
    assert "3 events appended" in done.stdout
    assert world.events(org_id=org)[0]["actor_id"] == "load"
    assert world.events(org_id=f"{org}-2")[0]["actor_id"] == "u"
    assert len(world.events(org_id=None, aggregate_id=org)) == 1


@pytest.mark.parametrize(
    "bad, code",
    [
        ("{", "invalid_json"),
        ('{"colour":1}', "unknown_field"),
        ("[]", "invalid_json"),
        ("SEQ", "sequence_conflict"),
        ("CAUSE", "unknown_causation"),
        ("NOORG", "org_required"),
    ],
)
@pytest.mark.parametrize("before", [0, 1, 150])
def test_a4_ndjson_error_names_the_line_and_keeps_those_before(world, org, bad, code, before):
    wrong = {
        "SEQ": line(org, expected_seq=99999),
        "CAUSE": line(org, causation_id="0"),
        "NOORG": line(org).replace(f'"org_id": "{org}", ', ""),
    }.get(bad, bad + "\n")
    text = "".join(line(org) for _ in range(before)) + "\n" + wrong + line(org, aggregate_id="late")
    done = Outlog(world.store).run("append", "--ndjson", "-", "--json", input=text, check=False)
    assert done.returncode == 1
    error = done.stderr.splitlines()[-1]
    assert re.fullmatch(rf"outlog: line {before + 2}: .* \[{code}\]", error)
    assert "lines before" in error
    assert len(done.lines()) == before
    assert [e["aggregate_seq"] for e in world.events(org_id=org)] == list(range(1, before + 1))


def test_a4_ndjson_line_may_follow_from_one_before(world, org):
    own = [str(uuid.uuid4()) for _ in range(2)]
    text = (
        line(org, id=own[0], expected_seq=0)
        + line(org, id=own[1], causation_id=own[0])
        + line(org, causation_id=own[1], idempotency_key="k")
        + line(org, expected_seq=3)
    )
    outlog = Outlog(world.store)
    results = outlog.run("append", "--ndjson", "-", "--json", input=text).json()
    assert [r["aggregate_seq"] for r in results] == [1, 2, 3, 4]
    assert len({r["correlation_id"] for r in results[:3]}) == 1
    done = outlog.run("append", "--ndjson", "-", "--json", input=text, check=False)
    assert [r["duplicate"] for r in done.json()] == [True, True, True]  # the last has no id, no key
    assert done.returncode == 1 and "line 4: " in done.stderr and "[sequence_conflict]" in done.stderr


def test_a4_ndjson_line_with_the_same_id_is_the_same_event(world, org):
    own = str(uuid.uuid4())
    text = line(org, id=own, payload='{"a":1,"b":2}') + line(org) + line(org, id=own, payload='{"b":2,"a":1}')
    results = Outlog(world.store).run("append", "--ndjson", "-", "--json", input=text).json()
    assert results[2] == {**results[0], "duplicate": True}
    assert len(world.events(org_id=org)) == 2


def test_a4_ndjson_shows_its_progress_to_a_person(world, org, tmp_path):
    (tmp_path / "events.ndjson").write_text("".join(line(org, aggregate_id=f"o-{n}") for n in range(3000)))
    person = Outlog(world.store).at_terminal("append", "--ndjson", tmp_path / "events.ndjson")
    person.see(r"\r\x1b\[K[\d,]+ bytes  \[#* *\] +\d+ % .*/s")
    assert person.end().startswith("3,000 events appended")


def test_e12_backfill_may_be_repeated(world, org):
    outlog = Outlog(world.store)
    text = "".join(
        line(org, aggregate_id=f"o-{n}", payload=f'{{"n": {n}}}', **({"metadata": {"src": "old"}} if n == 2 else {}))
        for n in range(120)
    )
    first = outlog.run("append", "--ndjson", "-", "--backfill", "import-1", "--json", input=text)
    assert not any(r["duplicate"] for r in first.json())
    reordered = text.replace('{"n": 5}', '{ "n" :5}')
    again = outlog.run("append", "--ndjson", "-", "--backfill", "import-1", "--json", input=reordered)
    assert [r["id"] for r in again.json()] == [r["id"] for r in first.json()]
    assert all(r["duplicate"] for r in again.json()) and "0 events appended" in again.stderr
    stored = world.events(org_id=org)
    assert len(stored) == 120
    assert all(json.loads(e["metadata"])["backfill"] == "import-1" for e in stored)
    assert json.loads(stored[2]["metadata"]) == {"backfill": "import-1", "src": "old"}
    assert UUID.fullmatch(stored[0]["id"])
    other = outlog.run("append", "--ndjson", "-", "--backfill", "import-2", "--json", input=line(org))
    assert other.json()[0]["duplicate"] is False  # another backfill is another event
    wrong = outlog.run(
        "append", "--ndjson", "-", "--backfill", "x", check=False, input=line(org, metadata={"backfill": "mine"})
    )
    assert wrong.returncode == 1 and "[invalid_field]" in wrong.stderr


def test_cli_plain_output_of_append(world, org):
    outlog = Outlog(world.store)
    args = ("append", "--org", org, "--aggregate", "order/o-1", "--type", "t.done", "--data", "{}", "--key", "k")
    assert re.fullmatch(r"event \d+  seq 1  id [0-9a-f-]{36}  correlation [0-9a-f-]{36}\n", outlog.run(*args).stdout)
    assert outlog.run(*args).stdout.endswith("(was there already)\n")


def test_cli_data_may_come_from_a_file(world, org, tmp_path):
    outlog = Outlog(world.store, cwd=tmp_path)
    args = ("append", "--org", org, "--aggregate", "order/o-1", "--type", "t.done", "--json", "--data")
    (tmp_path / "in.json").write_text('{"from":\n"file"}\n')
    outlog.run(*args, "@in.json")
    outlog.run(*args, "@-", input='{"from":"stdin"}')
    assert [e["payload"] for e in world.events(org_id=org)] == ['{"from":\n"file"}\n', '{"from":"stdin"}']
    (tmp_path / "nul.json").write_bytes(b'{"a":"\0"}')
    for name, code in (("@missing.json", "not_found"), ("@nul.json", "invalid_json")):
        done = outlog.run(*args, name, check=False)
        assert done.returncode == 1 and re.fullmatch(rf"outlog: .*{name[1:]}.* \[{code}\]\n", done.stderr)
    done = outlog.run("append", "--ndjson", ".", check=False)  # a folder can be opened, not read
    assert done.returncode == 1 and done.stderr.endswith("[invalid_field]\n")
    done = outlog.run("append", "--ndjson", "missing.ndjson", check=False)
    assert done.returncode == 1 and re.fullmatch(r"outlog: .*missing.ndjson.* \[not_found\]\n", done.stderr)


ONE = ("--aggregate", "a/1", "--type", "t.done", "--data", "{}")


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("nonsense",),
        ("append",),
        ("append", "--org", "o"),
        ("append", "--org", "o", *ONE, "more"),
        ("append", "--org", "o", *ONE, "--colour"),
        ("append", "--org", "o", *ONE, "-x"),
        ("append", "--org"),
        ("append", "--org", "o", *ONE, "--expect", "x"),
        ("append", "--org", "o", *ONE, "--json=yes"),
        ("append", "--org", "o", "--infra", *ONE),
        ("append", "--org", "o", "--aggregate", "a", "--type", "t", "--data", "{}"),
        ("append", "--org", "o", *ONE, "--actor", "joe"),
        ("append", "--backfill", "x", "--org", "o", *ONE),
        ("append", "--ndjson", "-", "--data", "{}"),
        ("append", "--ndjson", "-", "--key", "k"),
        ("events", "word"),
        ("events", "--limit", "0"),
        ("events", "--limit", "x"),
        ("events", "--after", "-1"),
        ("events", "--since", "yesterday"),
        ("events", "--until", "later"),
        ("events", "--aggregate", "order"),
        ("events", "--nonsense"),
        ("trace",),
        ("trace", "a", "b"),
        ("causality",),
        ("causality", "1", "2"),
        ("causality", "1", "--up"),
        ("consumers", "nonsense"),
        ("consumers", "create"),
        ("consumers", "commit", "x"),
        ("consumers", "reset", "x"),
        ("consumers", "read", "x", "--limit", "0"),
        ("init", "word"),
        ("doctor", "word"),
        ("version", "word"),
        ("bench", "nonsense"),
        ("outbox", "--state", "dead"),
        ("runs", "--status", "x"),
        ("token", "create", "--scope", "root"),
        ("token", "create"),
    ],
    ids=" ".join,
)
def test_cli_wrong_usage_exits_with_2(args):
    done = Outlog("sqlite:/no/such/folder/x.db").run(*args, check=False, input="")
    assert done.returncode == 2, repr(done)
    assert done.stdout == "" and done.stderr.startswith("outlog: ")
    if args:
        assert len(done.stderr.splitlines()) == 1 and done.stderr.endswith(" [usage]\n")


COMMANDS = ("init", "append", "events", "trace", "causality", "consumers", "doctor", "bench", "version")


def test_cli_help_of_every_command_teaches_by_example():
    outlog = Outlog()
    overview = outlog.run("--help").stdout
    assert outlog.run("-h").stdout == overview
    names = re.findall(r"^  ([a-z]+)  +\S", overview, re.M)
    assert set(COMMANDS) <= set(names)
    for name in names:
        text = outlog.run(name, "--help").stdout
        assert text.startswith(f"usage: outlog {name}") and f"\n  outlog {name}" in text
        assert outlog.run("--help", name).stdout == text
        assert max(map(len, text.splitlines())) <= 110
    assert outlog.run("--version").stdout == outlog.run("version").stdout


def test_cli_global_flags_stand_before_or_after_the_command(world, org, tmp_path):
    append(world.interface("c"), org)
    outlog = Outlog(cwd=tmp_path)
    outs = {
        outlog.run(*args).stdout
        for args in (
            ("--store", world.store, "--json", "events", "--org", org),
            (f"--store={world.store}", "events", "--json", "--org", org),
            ("events", "--org", org, "--json", "--store", world.store),
            ("--json", "events", f"--org={org}", f"--store={world.store}"),
        )
    }
    assert len(outs) == 1 and json.loads(outs.pop())["org_id"] == org
    # The flag wins against the environment.
    done = outlog.run(
        "events", "--store", world.store, "--org", org, "--json", env={"OUTLOG_STORE": "sqlite:/nowhere/x.db"}
    )
    assert len(done.lines()) == 1


EVENT = (
    "event_id id occurred_at org_id aggregate_type aggregate_id aggregate_seq event_type "
    "event_version actor_type actor_id request_id idempotency_key correlation_id causation_id "
    "app_id env_id visibility metadata payload"
).split()


def test_e2_events_as_json_have_the_fields_of_the_contract(world, org):
    append(world.interface("c"), org, metadata='{"m":1}', payload='{"p":[1.50]}', app_id="a")
    done = Outlog(world.store).run("events", "--org", org, "--json")
    shown = done.json()[0]
    assert sorted(shown) == sorted(EVENT)
    assert shown["metadata"] == {"m": 1} and '"payload":{"p":[1.50]}' in done.stdout
    assert TIME.fullmatch(shown["occurred_at"]) and shown["env_id"] is None
    assert shown["idempotency_key"] is None and shown["causation_id"] is None


def test_cli_json_works_wherever_something_is_printed(world, org):
    outlog = Outlog(world.store)
    made = append(world.interface("c"), org)
    for args in (
        ("init",),
        ("version",),
        ("doctor",),
        ("events", "--org", org),
        ("consumers",),
        ("trace", made["correlation_id"]),
        ("causality", made["id"]),
    ):
        done = outlog.run(*args, "--json", check=args != ("doctor",))
        assert all(isinstance(value, dict) for value in done.json()), args
        if args != ("consumers",):
            assert done.json()


def test_cli_a_store_that_is_not_there_is_not_made_by_looking(tmp_path):
    outlog = Outlog(f"sqlite:{tmp_path}/new.db")
    for args in (
        ("events",),
        ("stats",),
        ("doctor",),
        ("relay", "--until-idle"),
        ("append", "--org", "o", *ONE),
        ("export",),
    ):
        done = outlog.run(*args, check=False)
        assert done.returncode == 1 and done.stderr.endswith("[no_schema]\n") and "`outlog init`" in done.stderr, done
        assert list(tmp_path.iterdir()) == []
    away = Outlog(f"sqlite:{tmp_path}/folder/new.db").run("events", check=False)
    assert away.stderr.endswith("[unavailable]\n") and "folder" in away.stderr
    outlog.run("init")
    assert outlog.run("events").stdout == ""


def test_cli_help_is_found_in_every_form():
    outlog = Outlog()
    assert outlog.run("help").stdout == outlog.run("--help").stdout == outlog.run("-h").stdout
    assert outlog.run("help", "events").stdout == outlog.run("events", "--help").stdout
    for args in (("--nonsense",), ("help", "nonsense"), ("nonsense",), ("--store", "sqlite:x.db")):
        done = outlog.run(*args, check=False)
        assert done.returncode == 2 and re.fullmatch(r"outlog: .*`outlog --help`.* \[usage\]\n", done.stderr), done


def test_cli_what_cannot_be_meant_is_refused(world, org):
    outlog = Outlog(world.store)
    send = ("send", "--to", f"d-{org}", "--type", "t", "--data")
    for args, code in (
        ((*send, "{}", "--max-attempts", "0"), "usage"),
        ((*send, "{n:1}"), "invalid_json"),
        (("import", "/nowhere"), "illegal_transition"),
        (("consumers", "delete", org), "not_found"),
        (("sinks", "frob"), "usage"),
        (("sinks", "reset", "x"), "usage"),
        (("export", "--output", "/nowhere/x"), "store_error"),
    ):
        append(world.interface("c"), org)
        done = outlog.run(*args, check=False)
        assert done.returncode == (2 if code == "usage" else 1) and done.stderr.endswith(f" [{code}]\n"), done
    assert outlog.run("outbox", "--to", f"d-{org}", "--json").json() == []
    outlog.run(*send, "as it is", "--content-type", "text/plain")
    assert [m["content_type"] for m in outlog.run("outbox", "--to", f"d-{org}", "--json").json()] == ["text/plain"]


def test_c1_a_consumer_has_a_name_and_filters_that_can_be_shown(world, org):
    """SQLite keeps any bytes: such a consumer made the list no JSON, and could not be deleted."""
    outlog, bad = Outlog(world.store), f"{org}\udcff"  # the byte 0xff
    for args in (("create", bad), ("create", org, "--type", bad), ("read", bad), ("commit", bad, "0"), ("delete", bad)):
        done = outlog.run("consumers", *args, check=False)
        assert done.returncode == 1 and done.stderr.endswith(" [invalid_field]\n"), done
    assert not [one for one in outlog.run("consumers", "--json").json() if one["name"].startswith(org)]


def test_cli_limit_is_capped(world, org):
    append(world.interface("c"), org)
    done = Outlog(world.store).run("events", "--org", org, "--limit", "1000000", "--json")
    assert len(done.lines()) == 1


def test_cli_events_show_a_hundred_unless_told(world, chain):
    org, _ = chain
    outlog = Outlog(world.store)
    assert len(outlog.run("events", "--org", org).lines()) == 100
    assert len(outlog.run("events", "--org", org, "--limit", "2345").lines()) == 2345
    assert len(outlog.run("events", "--org", org, "--limit", "999999").lines()) == 10000


def next_line(process, seconds=20):
    """A line of a running process: it must come although the process goes on."""
    ready, _, _ = select.select([process.stdout], [], [], seconds)
    assert ready, "no line in time"
    return process.stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["TERM", "INT"])
def test_c2_follow_flushes_each_line_and_ends_with_0(world, org, number):
    outlog = Outlog(world.store)
    try:
        after = world.reader.ask("settled")["settled"]
        process = outlog.start("events", "--follow", "--json", "--org", org, "--after", after)
        for name in DOORS:
            made = append(world.interface(name), org)
            assert json.loads(next_line(process))["event_id"] == made["event_id"]
        process.send_signal(number)
        assert process.wait(20) == 0
        assert process.stderr.read() == ""
    finally:
        outlog.close()


def test_c2_follow_with_a_limit_ends_by_itself(world, org):
    outlog = Outlog(world.store)
    try:
        after = world.reader.ask("settled")["settled"]
        process = outlog.start("events", "--follow", "--org", org, "--after", after, "--limit", "2")
        append(world.interface("c"), org)
        append(world.interface("c"), org)
        assert process.wait(20) == 0 and len(process.stdout.readlines()) == 2
    finally:
        outlog.close()


def test_c2_follow_begins_at_the_end(world, org):
    append(world.interface("c"), org, aggregate_id="before")
    outlog = Outlog(world.store)
    try:
        process = outlog.start("events", "--follow", "--json", "--org", org)

        def appended():  # until it has begun, what is appended lies before its end
            append(world.interface("c"), org, aggregate_id="after")
            return select.select([process.stdout], [], [], 0.05)[0]

        until(appended)
        assert json.loads(process.stdout.readline())["aggregate_id"] == "after"
    finally:
        outlog.close()


@pytest.mark.parametrize(
    "args",
    [
        ("events", "--limit", "10000"),
        ("events", "--limit", "10000", "--json"),
        ("trace", "ORG"),
        ("causality", "LAST", "--json"),
    ],
    ids=" ".join,
)
def test_cli_closed_pipe_is_no_crash(world, chain, args):
    org, ids = chain
    outlog = Outlog(world.store)
    args = [{"ORG": org, "LAST": ids[-1]}.get(arg, arg) for arg in args]
    try:
        process = outlog.start(*args)
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) in (0, 1, -signal.SIGPIPE)
        assert process.stderr.read() == ""
    finally:
        process.stdout = subprocess.DEVNULL  # closed already
        process.kill()
        process.wait()
        process.stderr.close()


def test_cli_full_disk_is_no_success(world, chain):
    for args in (
        ("events",),
        ("events", "--json", "--limit", "10000"),
        ("version",),
        ("trace", chain[0]),
        ("consumers", "--json"),
        ("init",),
    ):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [Outlog().path, *args],
                stdout=full,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                env={**os.environ, "OUTLOG_STORE": world.store},
            )
        if args == ("consumers", "--json") and done.returncode == 0:
            continue  # there may be none to print
        assert done.returncode == 1 and "[output_failed]" in done.stderr, args


def is_clean(text):
    """No control character but the ends of lines, and none that is invisible or turns the direction of writing."""
    return not re.search(
        r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufffd\U000e0000-\U000e007f]",
        text,
    )


@pytest.mark.parametrize("evil", ["\x1b[2J\x07\r\n\t\x7f\x9b31m", "\u202e\u2066\u200f\u061c\u2028\ufeff\U000e0041"])
def test_r9_cli_control_characters_never_reach_the_terminal(world, org, evil):
    name = f"{org}{evil}"
    fields = event(
        name,
        aggregate_type=f"a{evil}",
        aggregate_id=f"i{evil}",
        event_type=f"t{evil}",
        correlation_id=f"c{name}",
        actor_type="user",
        actor_id=f"u{evil}",
        payload=json.dumps({"k": "\x1b[2J", "raw": f"\x7f\x9b31m{evil}"}, ensure_ascii=False),
    )
    made = world.interface("c").append(**fields)
    outlog = Outlog(world.store)
    outlog.run("consumers", "create", name[:90], "--org", name)
    for args in (
        ("events", "--org", name),
        ("trace", f"c{name}"),
        ("causality", made["id"]),
        ("consumers",),
        ("consumers", "read", name[:90]),
        ("append", "--org", org, "--aggregate", "a/1", "--type", "t", "--data", "{}", "--correlation", f"c{name}"),
        ("trace", f"x{evil}"),
        ("consumers", "read", f"x{evil}"),
        ("consumers", f"x{evil}"),
        ("append", "--org", org, "--aggregate", "a/1", "--type", "t", "--data", "{}", "--expect", "77"),
        ("append", f"--x{evil}"),
        (f"x{evil}",),
        ("events", "--since", evil),
        ("append", "--org", org, "--aggregate", f"a{evil}"),
    ):
        done = outlog.run(*args, check=False)
        assert is_clean(done.stdout) and is_clean(done.stderr), args
        assert done.stdout or done.stderr
    for args in (("events", "--org", name), ("trace", f"c{name}"), ("consumers",)):
        done = outlog.run(*args, "--json")
        assert not re.search(r"[\x00-\x09\x0b-\x1f]", done.stdout), args
        assert done.json()
    shown = outlog.run("events", "--org", name, "--json").json()[0]
    assert shown["org_id"] == name and shown["payload"] == {"k": "\x1b[2J", "raw": f"\x7f\x9b31m{evil}"}


def test_cli_store_without_schema_names_init(empty_store):
    outlog = Outlog(empty_store)
    for args in (
        ("events",),
        ("append", "--org", "o", *ONE),
        ("append", "--ndjson", "-"),
        ("trace", "x"),
        ("causality", "1"),
        ("consumers",),
        ("events", "--follow"),
    ):
        done = outlog.run(*args, check=False, input="")
        assert done.returncode == 1 and done.stdout == ""
        assert re.fullmatch(r"outlog: .*`outlog init`.* \[no_schema\]\n", done.stderr)
    for _ in range(2):
        outlog.run("init")
    assert outlog.run("events").stdout == ""  # init appends nothing


def test_cli_store_that_cannot_be_reached(tmp_path):
    for store, code in (
        ("postgres://127.0.0.1:1/x", "unavailable"),
        ("mysql://x/y", "invalid_field"),
        ("sqlite:", "invalid_field"),
        (f"sqlite:{tmp_path}/no/such/folder.db", "unavailable"),
    ):
        done = Outlog(store).run("events", check=False)
        assert done.returncode == 1
        assert re.fullmatch(rf"outlog: .* \[{code}\]\n", done.stderr), done.stderr


def test_a1_extension_says_what_it_is(world):
    if world.kind == "postgres":
        pytest.skip("SQLite's")
    connection = world.interface("sql").connection
    assert execute(connection, "select outlog_version()") == [(Outlog().run("version").stdout.split()[1],)]
    assert execute(connection, "select outlog_settled()") == [(world.reader.ask("settled")["settled"],)]
    for text in (b"", b"x"):
        with pytest.raises(Refused, match="invalid_json"):
            world.interface("sql").append_json(text)


def test_a1_extension_inside_an_ordinary_statement(world, org):
    """One event for each row of a query, in the statement's own transaction."""
    if world.kind == "postgres":
        pytest.skip("SQLite's")
    connection = world.interface("sql").connection
    made = execute(
        connection,
        """
        with recursive n(i) as (select 1 union all select i + 1 from n where i < 5)
        select outlog_append(json_object('org_id', ?, 'aggregate_type', 'a', 'aggregate_id', '1',
            'event_type', 't.done', 'payload', json_object('i', i))) from n""",
        org,
    )
    assert [json.loads(text)["aggregate_seq"] for text, in made] == [1, 2, 3, 4, 5]
    assert len(world.events(org_id=org)) == 5


def test_a1_positional_and_untyped_literals_work_in_psql(world, org):
    """What a person types: JSON as an untyped literal, with backslashes, by position."""
    if world.kind == "sqlite":
        pytest.skip("PostgreSQL's")
    world.sql(
        f"select * from outlog_append('{org}', 'order', 'o-1', 'order.created', "
        r"""'{"path": "C:\\temp", "e": "\u00e9"}')"""
    )
    assert world.events(org_id=org)[0]["payload"] == r'{"path": "C:\\temp", "e": "\u00e9"}'
