"""Sinks: the log itself streamed to a broker, with a cursor and no message for each event (D4)."""
import itertools
import json

import pytest

from lib import brokers
from lib.outbox import wait_for
from test_brokers import running  # noqa: F401  (a fixture)
from test_publishers import certificates  # noqa: F401

_names = (f"log{number}" for number in itertools.count(1))


@pytest.fixture
def name():
    return next(_names)


@pytest.fixture(params=[brokers.Nats, brokers.Redis], ids=["nats", "redis"])
def broker(request, running, name):  # noqa: F811
    broker = running(request.param)
    broker.prepare(name)
    return broker


def declare(outlog, broker, name, **sink):
    settings = broker.settings(name, **broker.DEDUPE)
    config = {"destinations": {"stream": settings}, "sinks": {"copy": {"to": "stream", **sink}}}
    return outlog.run("apply", "-f", "-", input=json.dumps(config))


def append(outlog, count, aggregate="order/o-{}", type="order.created", org="acme", first=0):
    lines = "".join(
        json.dumps(
            {
                **({"org_id": org} if org else {"org_id": None}),
                "aggregate_type": aggregate.split("/")[0],
                "aggregate_id": aggregate.split("/")[1].format(n % 5),
                "event_type": type,
                "payload": {"n": n},
            }
        )
        + "\n"
        for n in range(first, first + count)
    )
    return [event["id"] for event in outlog.run("append", "--ndjson", "-", "--json", input=lines).json()]


def sink(outlog):
    [one] = outlog.run("sinks", "--json").json()
    return one


def ids(broker, name):
    return [message["id"] for message in broker.received(name)]


def assert_copied(broker, name, made):
    """Everything, once, and the events of an aggregate (every fifth) in their order."""
    got = ids(broker, name)
    assert sorted(got) == sorted(made)
    for k in range(5):
        mine = made[k::5]
        assert [id for id in got if id in set(mine)] == mine


def test_d4_the_log_is_streamed_in_order_and_goes_on(outlog, store, broker, name):
    declare(outlog, broker, name)
    first = append(outlog, 1200)
    outlog.run("relay", "--until-idle", "--quiet")
    assert_copied(broker, name, first)
    headers = next(message["headers"] for message in broker.received(name) if message["id"] == first[0])
    assert headers["aggregate-type"] == "order" and headers["aggregate-id"] == "o-0"
    assert headers["aggregate-seq"] == "1" and headers["log-position"]
    second = append(outlog, 10, first=1200)
    assert sink(outlog)["lag"] >= 10
    outlog.run("relay", "--until-idle", "--quiet")
    assert_copied(broker, name, first + second)  # from where it stood
    state = sink(outlog)
    assert (state["to"], state["lag"], state["last_error"], state["claimed_by"]) == ("stream", 0, None, None)
    assert outlog.run("outbox", "--json").lines() == []  # no message was made


def test_t1_an_event_of_a_sink_carries_its_cause_and_trace(outlog, store, broker, name):
    declare(outlog, broker, name)
    (first,) = append(outlog, 1)
    given = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    common = ("append", "--org", "acme", "--aggregate", "order/o-9", "--type", "order.made", "--data", "{}", "--json")
    more = ("--correlation", "c-1", "--causation", first, "--metadata", f'{{"traceparent":"{given}"}}')
    (second,) = outlog.run(*common, *more).json()
    outlog.run("relay", "--until-idle", "--quiet")
    by_id = {message["id"]: message["headers"] for message in broker.received(name)}
    headers = by_id[second["id"]]
    assert (headers["outlog-correlation-id"], headers["outlog-causation-id"]) == ("c-1", first)
    assert headers["traceparent"][:36] == given[:36]
    assert len(by_id[first]["traceparent"]) == 55, "made where none was given"


def test_d4_sinks_skip_audit_and_infrastructure_unless_named(outlog, store, broker, name):
    declare(outlog, broker, name)  # leaves audit events without org
    ordinary = append(outlog, 3)
    append(outlog, 3, type="disk.full", aggregate="host/h-{}", org=None)
    outlog.run("relay", "--until-idle", "--quiet")
    assert ids(broker, name) == ordinary
    assert sink(outlog)["lag"] == 0  # what is not sent is passed by


@pytest.mark.parametrize(
    "sink_settings,wanted",
    [
        ({"event_type": "order.*"}, ["order.created", "order.paid", "order.created@other"]),
        ({"event_type": "order.paid"}, ["order.paid"]),
        ({"org_id": "other"}, ["order.created@other"]),
        ({"infrastructure": True}, ["order.created", "order.paid", "invoice.sent", "order.created@other", "disk.full"]),
    ],
)
def test_d4_sinks_choose_by_type_and_org(outlog, sqlite_store, running, name, sink_settings, wanted):  # noqa: F811
    broker = running(brokers.Redis)
    declare(outlog, broker, name, **sink_settings)
    made = {type: append(outlog, 2, type=type) for type in ("order.created", "order.paid", "invoice.sent")}
    made["order.created@other"] = append(outlog, 2, org="other")
    made["disk.full"] = append(outlog, 2, type="disk.full", aggregate="host/h-{}", org=None)
    outlog.run("relay", "--until-idle", "--quiet")
    assert sorted(ids(broker, name)) == sorted(id for type in wanted for id in made[type])


def test_d4_audit_events_go_where_they_are_named(outlog, store, running, name):  # noqa: F811
    broker = running(brokers.Redis)
    declare(outlog, broker, name, event_type="outlog.*")
    append(outlog, 2)
    outlog.run("relay", "--until-idle", "--quiet")
    types = {message["headers"]["outlog-event-type"] for message in broker.received(name)}
    assert types == {"outlog.destination.applied", "outlog.setting.applied"}


def test_d4_from_end_and_reset(outlog, store, broker, name):
    before = append(outlog, 5)
    declare(outlog, broker, name, **{"from": "end"})  # where the log ends now, not when a relay comes
    after = append(outlog, 5, first=5)
    outlog.run("relay", "--until-idle", "--quiet")
    assert ids(broker, name) == after
    outlog.run("sinks", "reset", "copy", "--to", "beginning", "--actor", "user:ann")
    outlog.run("relay", "--until-idle", "--quiet")
    assert ids(broker, name) == after + before  # the repeats were dropped by their ids
    assert outlog.run("sinks", "reset", "none", "--to", "end", check=False).returncode == 1
    assert outlog.run("sinks", "reset", "copy", "--to", "999999", check=False).returncode == 1
    (audit,) = outlog.run("events", "--infra", "--type", "outlog.sink.reset", "--json").json()  # X4
    assert (audit["actor_id"], audit["aggregate_id"], audit["payload"]) == (
        "ann",
        "copy",
        {"name": "copy", "to_event_id": 0},
    )


def test_m1_how_far_a_sink_is_behind_is_seen_over_http_and_in_metrics(outlog, store, serve):
    outlog.run(
        "apply",
        "-f",
        "-",
        input="destinations:\n  away: {type: redis, url: 'redis://127.0.0.1:1', stream: s}\n"
        "sinks:\n  copy: {to: away}\n",
    )
    append(outlog, 5)
    server = serve("--no-relay")
    (shown,) = server.get("/v1/sinks").json["sinks"]
    assert shown == sink(outlog) and shown["name"] == "copy" and shown["lag"] >= 5
    assert f'outlog_sink_lag{{sink="copy"}} {shown["lag"]}' in server.get("/metrics").body.decode().splitlines()


@pytest.mark.parametrize("fault", ["sink.sent:700:kill", "sink.renew:2:kill"])
def test_s1_a_killed_relay_loses_nothing(outlog, store, broker, name, relays, fault):
    """Killed in the middle of a page, and between acknowledgement and cursor; the next one takes over."""
    declare(outlog, broker, name)
    made = append(outlog, 1500)
    relays("a", fault=fault).wait()
    relays("b")
    wait_for(lambda: sink(outlog)["lag"] == 0, lambda: f"the end: {sink(outlog)}")
    assert_copied(broker, name, made)  # each once: the broker knows ids


def test_s3_one_owner_at_a_time(outlog, store, broker, name, relays):
    declare(outlog, broker, name)
    for number in "abc":
        relays(number)
    made = [id for n in range(10) for id in append(outlog, 60, first=60 * n)]
    wait_for(lambda: sink(outlog)["lag"] == 0 and len(broker.received(name)) >= 600, "the end")
    assert_copied(broker, name, made)
    assert sink(outlog)["claimed_by"] in "abc"


def test_s4_a_broker_that_is_down_is_waited_for(outlog, store, tmp_path, relays, name):
    broker = brokers.Redis(tmp_path / "redis")
    declare(outlog, broker, name)
    made = append(outlog, 50)
    relays("a")
    wait_for(lambda: sink(outlog)["last_error"], "the trouble to be told")
    assert sink(outlog)["lag"] >= 50
    with broker:
        wait_for(lambda: sink(outlog)["lag"] == 0, lambda: f"the end: {sink(outlog)}", seconds=60)
        assert_copied(broker, name, made)
        assert sink(outlog)["last_error"] is None


def test_d4_sinks_are_declared_in_outlog_yaml(outlog, store):
    def apply(text):
        return outlog.run("apply", "-f", "-", input=text, check=False)

    assert "there is no destination nowhere" in apply("sinks: {a: {to: nowhere}}").stderr
    assert "to is missing" in apply("sinks: {a: {event_type: x}}").stderr
    assert "unknown" in apply("destinations: {d: {type: 'null'}}\nsinks: {a: {to: d, what: 1}}").stderr
    assert "beginning or end" in apply("destinations: {d: {type: 'null'}}\nsinks: {a: {to: d, from: 7}}").stderr
    assert apply("destinations: {d: {type: 'null'}}\nsinks: {a: {to: d}}").returncode == 0
    assert [one["name"] for one in outlog.run("sinks", "--json").json()] == ["a"]
    assert apply("destinations: {d: {type: 'null'}}\nsinks: {a: {to: d}}").stdout.endswith("nothing to change\n")
    outlog.run("apply", "--prune", "-f", "-", input="destinations: {d: {type: 'null'}}")
    assert outlog.run("sinks", "--json").lines() == []
