"""Routes: an event becomes messages in its own transaction, whichever interface it came through."""
import contextlib
import json
import sqlite3
import uuid

import pytest

from interfaces import CALLERS, DOORS, TRANSACTING, Refused, connect, execute, open_interface

ORG = "acme"


def apply(outlog, config, *args, **options):
    return outlog.run("apply", "-f", "-", *args, input=json.dumps(config), **options)


def routes(outlog, *some, destinations=("one", "two")):
    """These routes and no others."""
    apply(outlog, {"destinations": {name: {"type": "null"} for name in destinations}, "routes": list(some)}, "--prune")


def fields(**more):
    return {
        "org_id": ORG,
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "event_type": "order.created",
        "payload": '{"total":12}',
        **more,
    }


def messages(store):
    names = (
        "event_id",
        "org_id",
        "destination",
        "event_type",
        "payload",
        "idempotency_key",
        "ordering_key",
        "correlation_id",
        "causation_id",
        "aggregate_type",
        "aggregate_id",
        "content_type",
        "metadata",
    )
    with_names = execute(
        connect(store), f"select {', '.join(names)} from outlog_outbox order by destination, lane, seq"
    )
    return [dict(zip(names, row)) for row in with_names]


def send(outlog, type="order.created", payload='{"total":12}', **more):
    args = ["--org", more.pop("org", ORG)] if more.get("org", ORG) else ["--infra"]
    more.pop("org", None)
    args += ["--aggregate", more.pop("aggregate", "order/o-1"), "--type", type, "--data", payload, "--json"]
    return outlog.run("append", *args).json()[0]


def types(store, destination="one"):
    return {row["event_type"] for row in messages(store) if row["destination"] == destination}


# --- every interface ---


@pytest.mark.parametrize("name", DOORS)
def test_o8_a_routed_message_carries_what_the_event_says(store, outlog, name):
    routes(outlog, {"on": "order.*", "to": "one"})
    payload = '{ "total" : 12.50,\t"name":"\\u00e4ä\\\\", "z":1, "a":[1, 2] }'
    interface = open_interface(name, store)
    event = interface.append(
        **fields(payload=payload, correlation_id="c-1", metadata='{"traceparent":"00-1-2-01","x":1}')
    )
    interface.close()
    (one,) = messages(store)
    assert one["payload"] == payload, "the bytes are the event's"
    assert str(one["causation_id"]) == event["id"]
    assert one["idempotency_key"] == f"{event['id']}:one"
    assert (one["org_id"], one["aggregate_type"], one["aggregate_id"]) == (ORG, "order", "o-1")
    assert (one["event_type"], one["correlation_id"]) == ("order.created", "c-1")
    assert one["ordering_key"] == "acme/order/o-1"
    assert one["content_type"] == "application/json"
    metadata = one["metadata"] if isinstance(one["metadata"], dict) else json.loads(one["metadata"])
    assert metadata == {"traceparent": "00-1-2-01"}, "T4, and nothing internal leaves by this way"


@pytest.mark.parametrize("name", TRANSACTING)
def test_e5_a_rollback_leaves_neither_event_nor_message(store, outlog, name):
    routes(outlog, {"on": "order.*", "to": "one"})
    interface = open_interface(name, store)
    interface.begin()
    interface.append(**fields())
    interface.rollback()
    interface.close()
    assert messages(store) == []
    assert outlog.run("events", "--org", ORG, "--json").json() == []


@pytest.mark.parametrize("name", CALLERS)
def test_a1_message_event_and_the_callers_own_row_commit_together(store, outlog, name):
    routes(outlog, {"on": "*", "to": "one"})
    connection = connect(store)
    execute(connection, "create table if not exists mine (id text)")
    interface = open_interface(name, store)
    interface.begin()
    interface.append(**fields())
    interface.append(**fields(event_type="order.paid"))
    assert messages(store) == [], "nobody sees them yet"
    interface.commit()
    interface.close()
    assert types(store) == {"order.created", "order.paid"}


@pytest.mark.parametrize("name", ("c", "sql"))
def test_i2_an_event_that_is_repeated_makes_no_second_message(store, outlog, name):
    routes(outlog, {"on": "*", "to": "one"})
    interface, id = open_interface(name, store), str(uuid.uuid4())
    first, second = interface.append(**fields(id=id)), interface.append(**fields(id=id))
    interface.close()
    assert second["duplicate"] and first["event_id"] == second["event_id"]
    assert len(messages(store)) == 1


def test_a_refused_event_makes_no_message(store, outlog):
    routes(outlog, {"on": "*", "to": "one"})
    interface = open_interface("c", store)
    with pytest.raises(Refused):
        interface.append(**fields(expected_seq=7))
    interface.close()
    assert messages(store) == []


# --- patterns ---


@pytest.mark.parametrize(
    "on, hits, misses",
    [
        ("order.created", ["order.created"], ["order.create", "order.createdx", "xorder.created"]),
        ("order.*", ["order.created", "order.a.b"], ["orders.created", "order"]),
        ("*.created", ["order.created", "a.b.created"], ["order.createdx"]),
        ("o*r.*d", ["order.created", "or.d"], ["order.create"]),
        ("*", ["order.created", "x"], []),
        ("a%b", ["a%b"], ["axb", "ab", "axxb"]),
        ("a_b", ["a_b"], ["axb"]),
        ("a?b", ["a?b"], ["axb"]),
        ("a[bc]d", ["a[bc]d"], ["abd", "acd"]),
        ("a]b", ["a]b"], ["ab"]),
        ("a\\b", ["a\\b"], ["ab", "a\\\\b"]),
        ("a\\%*", ["a\\%x"], ["a%x", "ax"]),
        ("Order.*", ["Order.created"], ["order.created"]),
        ("ä.*", ["ä.b"], ["a.b"]),
    ],
)
def test_d_a_star_is_anything_and_all_else_is_itself(store, outlog, on, hits, misses):
    routes(outlog, {"on": on, "to": "one"})
    for type in hits + misses:
        send(outlog, type)
    assert types(store) == set(hits)


def test_x4_audit_events_are_routed_only_when_they_are_named(store, outlog):
    routes(outlog, {"on": "*", "to": "one"}, {"on": "outlog.destination.*", "to": "two"})
    assert messages(store) == [], "destinations come before routes, so this apply did not route itself"
    outlog.run("destinations", "pause", "one")
    outlog.run("destinations", "resume", "one")
    assert types(store, "one") == set()
    assert types(store, "two") == {"outlog.destination.paused", "outlog.destination.resumed"}
    assert {row["org_id"] for row in messages(store)} == {None}
    assert {row["ordering_key"] for row in messages(store)} == {"/outlog.destination/one"}


def test_d_infrastructure_events_are_routed_only_when_they_are_named(store, outlog):
    routes(
        outlog,
        {"on": "*", "to": "one"},
        {"on": "disk.*", "to": "two"},
        {"on": "disk.full", "to": "three"},
        {"on": "*", "to": "four", "aggregate_type": "host"},
        destinations=("one", "two", "three", "four"),
    )
    send(outlog, "disk.full", org=None, aggregate="host/h-1")
    send(outlog, "disk.worn", org=None, aggregate="disk/d-1")
    assert {name: types(store, name) for name in ("one", "two", "three", "four")} == {
        "one": set(),
        "two": set(),
        "three": {"disk.full"},
        "four": {"disk.full"},
    }
    send(outlog, "disk.worn", aggregate="disk/d-1")
    assert types(store, "one") == types(store, "two") == {"disk.worn"}, "that of an org is like any other"


def test_x4_a_type_that_only_looks_like_ours_is_an_ordinary_one(store, outlog):
    routes(outlog, {"on": "*", "to": "one"})
    for type in ("Outlog.x", "outlogx", "xoutlog.y"):
        send(outlog, type)
    assert types(store) == {"Outlog.x", "outlogx", "xoutlog.y"}


# --- what else a route asks for ---


def test_d_org_and_aggregate_type_narrow_a_route(store, outlog):
    routes(outlog, {"on": "*", "to": "one", "org_id": "acme"}, {"on": "*", "to": "two", "aggregate_type": "invoice"})
    send(outlog, "a", org="acme", aggregate="order/1")
    send(outlog, "b", org="other", aggregate="invoice/1")
    send(outlog, "c", org=None, aggregate="invoice/1")
    assert types(store, "one") == {"a"}
    assert types(store, "two") == {"b", "c"}


PAYLOADS = {
    "text": '{"v":"12"}',
    "number": '{"v":12}',
    "real": '{"v":12.0}',
    "other": '{"v":13}',
    "yes": '{"v":true}',
    "no": '{"v":false}',
    "null": '{"v":null}',
    "none": '{"w":1}',
    "deep": '{"v":{"a":{"b c":"x"}}}',
    "list": '{"v":["x","y"]}',
    "one": '{"v":1}',
    "empty": '{"v":""}',
    "slash": '{"v":{"a/b":1,"a~b":2}}',
}


@pytest.mark.parametrize(
    "when, hits",
    [
        ({"/v": "12"}, {"text"}),
        ({"/v": 12}, {"number", "real"}),
        ({"/v": 12.0}, {"number", "real"}),
        ({"/v": 1}, {"one"}),
        ({"/v": True}, {"yes"}),
        ({"/v": False}, {"no"}),
        ({"/v": None}, {"null"}),
        ({"/v": ""}, {"empty"}),
        ({"/v/a/b c": "x"}, {"deep"}),
        ({"/v/1": "y"}, {"list"}),
        ({"/v/a~1b": 1, "/v/a~0b": 2}, {"slash"}),
        ({"/v": 12, "/w": 1}, set()),
        ({"/w": 1}, {"none"}),
        ({"/v'); drop table x; --": 1}, set()),
    ],
)
def test_d_when_compares_values_as_json_does(store, outlog, when, hits):
    routes(outlog, {"on": "*", "to": "one", "when": when})
    for type, payload in PAYLOADS.items():
        send(outlog, type, payload)
    assert types(store) == hits


def test_d_an_ordering_key_of_the_route_replaces_the_aggregates(store, outlog):
    routes(outlog, {"on": "*", "to": "one", "ordering_key": "all"})
    send(outlog, "a", aggregate="order/1")
    send(outlog, "b", aggregate="order/2")
    assert {row["ordering_key"] for row in messages(store)} == {"all"}


def test_i2_two_routes_to_one_destination_are_one_message_to_two_are_two(store, outlog):
    routes(
        outlog,
        {"on": "order.*", "to": "one"},
        {"on": "*.created", "to": "one"},
        {"on": "*", "to": "one", "ordering_key": "z"},
        {"on": "*", "to": "two"},
    )
    event = send(outlog)
    assert [row["idempotency_key"] for row in messages(store)] == [f"{event['id']}:one", f"{event['id']}:two"]
    # "* -> one …" comes first by its name, on both stores
    assert messages(store)[0]["ordering_key"] == "z"


def test_e5_many_events_at_once_are_routed_one_by_one_in_order(store, outlog):
    routes(outlog, {"on": "*", "to": "one"})
    lines = "\n".join(
        json.dumps(
            {
                "org_id": ORG,
                "aggregate_type": "order",
                "aggregate_id": "o-1",
                "event_type": f"n.{i}",
                "payload": {"n": i},
            }
        )
        for i in range(50)
    )
    outlog.run("append", "--ndjson", "-", input=lines)
    rows = messages(store)
    assert [row["event_type"] for row in rows] == [f"n.{i}" for i in range(50)]
    assert len({row["causation_id"] for row in rows}) == 50


# --- plain SQL in SQLite ---

REFUSED_MESSAGES = {
    "too long": {"payload": json.dumps({"x": "y" * 300_000})},
    "no uuid": {"id": "X" * 36},
    "not text": {"aggregate_id": b"o-1"},
}


@pytest.mark.parametrize("what", REFUSED_MESSAGES)
@pytest.mark.parametrize("makes", ["by route", "by rule", "by sql"])
def test_e5_sqlite_an_event_whose_message_is_refused_stays_out_whatever_the_insert_says(
    sqlite_store, outlog, makes, what
):
    """Also under OR IGNORE and OR FAIL, which triggers follow: an event without its message would be half of it."""
    if makes == "by route":
        routes(outlog, {"on": "*", "to": "one"})
    else:
        who = {"path": "/x"} if makes == "by rule" else {"sql": "select 'u-1'"}
        apply(
            outlog,
            {
                "notifications": {
                    "templates": {"t": {"subject": "s", "text": "x"}},
                    "rules": [{"on": "*", "recipients": who, "channels": ["in_app"], "template": "t"}],
                }
            },
        )
    row = {
        "id": str(uuid.uuid4()),
        "occurred_at": "t",
        "org_id": ORG,
        "aggregate_type": "order",
        "aggregate_id": "o-1",
        "aggregate_seq": 1,
        "event_type": "e",
        "actor_type": "system",
        "actor_id": "s",
        "request_id": "r",
        "correlation_id": "c",
        "payload": '{"x":"u-1"}',
    }
    with contextlib.closing(sqlite3.connect(sqlite_store[len("sqlite:") :], isolation_level=None)) as db:

        def insert(verb, **fields):
            db.execute(f"{verb} into outlog_events ({', '.join(row)}) values (:{', :'.join(row)})", row | fields)

        def count():
            return [
                db.execute(f"select count(*) from {table}").fetchone()[0]
                for table in ("outlog_events", "outlog_outbox")
            ]

        before = count()
        if makes == "by route" or what != "too long":  # of a long one a notification says less
            for verb in ("insert", "insert or abort", "insert or fail", "insert or ignore", "insert or replace"):
                with pytest.raises(
                    sqlite3.DatabaseError, match="CHECK constraint failed: outbox_|JSON cannot hold BLOB"
                ):
                    insert(verb, **REFUSED_MESSAGES[what])
                assert count() == before, verb
        insert("insert or ignore")
        assert count() == [before[0] + 1, before[1] + 1]
        for table in ("outlog_routing", "outlog_notified"):
            with pytest.raises(sqlite3.IntegrityError, match="read_only"):
                db.execute(f"delete from {table}")


def test_i2_an_event_is_stored_beside_a_message_that_has_the_key_of_its_route(store, outlog):
    """Nothing is told twice, and nothing is refused for it, on either store."""
    routes(outlog, {"on": "*", "to": "one"})
    id = str(uuid.uuid4())
    outlog.run("send", "--to", "one", "--org", ORG, "--type", "t", "--data", "{}", "--key", f"{id}:one")
    outlog.run("append", "--ndjson", "-", input=json.dumps(fields(id=id, payload={})) + "\n")
    assert [row["event_type"] for row in messages(store)] == ["t"]
