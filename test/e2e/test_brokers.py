"""One suite over every broker's publisher, against the real server (D4); Kafka against the mock cluster
of its own client library, because there is no Debian package of the server.

What a broker cannot do is data of its class in lib/brokers.py. Nothing here asserts how long something
took: a slow broker is proved harmless by what becomes of the messages.
"""
import contextlib
import itertools
import json
import os
import random
import re
import socket
import threading
import time
import uuid

import pytest

from lib import brokers
from lib.outbox import wait_for
from test_publishers import CAUSE, Driver, TRACE, certificates, driver  # noqa: F401  (fixtures)

ALL = [brokers.Redis, brokers.Nats, brokers.Rabbit, brokers.Mosquitto, brokers.KafkaMock]
NAMES = [broker.name for broker in ALL]
_names = (f"orders{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def running(tmp_path_factory, certificates):  # noqa: F811
    """Brokers that all tests share, by kind; each is started on first use."""
    started = {}
    with contextlib.ExitStack() as stack:

        def get(kind):
            if kind not in started:
                folder = tmp_path_factory.mktemp(kind.name)
                options = {"password": brokers.PASSWORD, "limit": brokers.LIMIT, "tls": certificates}
                broker = kind(folder, **options) if kind.IS_SLOW else kind(folder)
                started[kind] = stack.enter_context(broker)
            return started[kind]

        yield get


@pytest.fixture(params=ALL, ids=NAMES)
def kind(request):
    return request.param


@pytest.fixture
def shared(kind, running):
    """A broker for tests that do not change it."""
    return running(kind)


@pytest.fixture
def own(kind, running, tmp_path):
    """A broker of the test's own, to freeze, restart and configure: own(password=…, tls=…, limit=…)."""

    def start(**options):
        if not kind.IS_SLOW:
            return kind(tmp_path, **options)
        return borrowed(running(kind), options)

    return start


@contextlib.contextmanager
def borrowed(broker, options):
    yield broker.over_tls() if options.get("tls") else broker
    broker.thaw()
    if not broker.process:
        broker.up()


@pytest.fixture
def name():
    return next(_names)


def new_id():
    return str(uuid.uuid4())


def send_many(driver, to, ids, **more):
    return {
        driver.send(to, event_id=id, idempotency_key=None, payload={"n": n}, **more): id for n, id in enumerate(ids)
    }


def kinds(driver, tags):
    return [driver.outcomes[tag]["kind"] for tag in tags]


def test_d4_success_is_what_the_broker_says(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name, headers={"x-fixed": "1"}))
    id = new_id()
    outcome = driver.deliver(
        "it",
        event_id=id,
        payload_text='{ "a":1.0,  "z":0 }',
        org_id="acme",
        idempotency_key="k-1",
        correlation_id="c-1",
        causation_id=CAUSE,
        traceparent=TRACE,
        headers={"x-own": "yes", "outlog-event-id": "forged", "outlog-causation-id": "forged", "x-fixed": "2"},
    )
    assert (outcome["kind"], outcome["error"]) == ("ok", None), outcome
    [message] = shared.received(name)
    assert (message["id"], message["payload"]) == (id, '{ "a":1.0,  "z":0 }')  # byte for byte
    assert message["content_type"] == "application/json"
    headers = message["headers"]
    assert headers["outlog-event-type"] == "order.created" and headers["outlog-org-id"] == "acme"
    assert headers["idempotency-key"] == "k-1" and headers["outlog-attempt"] == "1"
    assert headers["x-own"] == "yes" and headers["x-fixed"] == "1"
    assert headers["traceparent"][:36] == TRACE[:36]
    assert (headers["outlog-correlation-id"], headers["outlog-causation-id"]) == ("c-1", CAUSE)


def test_t1_a_correlation_that_no_header_can_hold_is_escaped(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name))
    assert driver.deliver("it", event_id=new_id(), correlation_id="a\nx: 1 é")["kind"] == "ok"
    [message] = shared.received(name)
    assert message["headers"]["outlog-correlation-id"] == "a%0Ax: 1 é"


def test_d4_a_batch_arrives_whole_and_in_order(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name))
    ids = [new_id() for _ in range(500)]
    tags = send_many(driver, "it", ids)
    driver.wait(len(ids))
    assert set(kinds(driver, tags)) == {"ok"}
    assert [message["id"] for message in shared.received(name)] == ids


def test_d4_names_are_made_of_the_message(shared, driver, name):
    template = name + shared.DOT + "{event_type}" + shared.DOT + "{org_id}"
    made = name + shared.DOT + "order.created" + shared.DOT + "_"
    shared.prepare(shared.holder(name, made))
    driver.must_open("it", **shared.settings(template))
    assert driver.deliver("it")["kind"] == "ok"
    assert len(shared.received(shared.holder(name, made))) == 1
    error = driver.open("bad", **shared.settings("a.{payload}"))["error"]
    assert "{event_type}" in error


def test_d8_cloudevents_structured(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name, envelope="cloudevents-structured"))
    id = new_id()
    assert driver.deliver("it", event_id=id, org_id="acme")["kind"] == "ok"
    [message] = shared.received(name)
    event = json.loads(message["payload"])
    assert (event["specversion"], event["id"], event["type"]) == ("1.0", id, "order.created")
    assert event["source"] == "/outlog/acme" and event["data"] == {"n": 1}
    assert message["content_type"].startswith("application/cloudevents+json")


def test_d8_cloudevents_binary_where_there_are_headers(shared, driver, name):
    shared.prepare(name)
    settings = shared.settings(name, envelope="cloudevents-binary")
    if shared.CE_PREFIX is None:
        assert "cloudevents-structured" in driver.open("it", **settings)["error"]
        return
    driver.must_open("it", **settings)
    id = new_id()
    assert driver.deliver("it", event_id=id, org_id="ä")["kind"] == "ok"
    [message] = shared.received(name)
    attribute = lambda key: message["headers"][shared.CE_PREFIX + key]  # noqa: E731
    assert (attribute("specversion"), attribute("id")) == ("1.0", id)
    assert attribute("type") == "order.created" and attribute("orgid") == "ä"
    assert json.loads(message["payload"]) == {"n": 1}


def test_d4_partial_failure_is_told_apart_message_by_message(shared, driver, name):
    """In one batch: some to a name that is refused, some to one that is accepted. Where the broker closes the
    connection after a refusal, the others are unknown, and are sent one by one."""
    good, bad = name + "-good", shared.spoil(name + "-bad")
    shared.prepare(good)
    driver.must_open("it", **shared.settings("{ordering_key}", timeout="3s"))
    send = lambda n: driver.send("it", event_id=ids[n], ordering_key=good if n % 3 else bad)  # noqa: E731
    ids = [new_id() for _ in range(30)]
    tags = {n: send(n) for n in range(30)}
    driver.wait(30)
    for n, tag in tags.items():
        for _ in range(3):
            if shared.HANGS_UP and driver.outcomes[tag]["kind"] in ("unknown", "released"):
                tag = send(n)
                driver.wait(1)
        outcome = driver.outcomes[tag]
        if n % 3:
            assert outcome["kind"] == "ok", outcome
        else:
            assert outcome["kind"] == "failed" and not outcome["permanent"], outcome
            assert outcome["surely_not_sent"]
    received = {message["id"] for message in shared.received(good)}
    assert received == {id for n, id in enumerate(ids) if n % 3}


def test_d4_unroutable_is_failed(shared, driver, name):
    if not shared.UNROUTABLE:
        pytest.skip(f"with {shared.name} every name leads somewhere")
    driver.must_open("it", **shared.settings(shared.nowhere(name), timeout="2s"))
    outcome = driver.deliver("it")
    assert outcome["kind"] == "failed" and not outcome["permanent"], outcome
    assert outcome["surely_not_sent"] and name in outcome["error"]


def test_d4_a_header_with_a_line_break_is_never_sent(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name))
    for bad in ({"idempotency_key": "a\r\nx: 1"}, {"headers": {"x": "a\nb"}}):
        outcome = driver.deliver("it", **bad)
        assert outcome["kind"] == "failed" and outcome["permanent"] and outcome["surely_not_sent"]
    assert shared.received(name) == []


def test_i4_repeats_are_known_by_their_id(shared, driver, name):
    shared.prepare(name)
    driver.must_open("it", **shared.settings(name, **shared.DEDUPE))
    id = new_id()
    first, again = driver.deliver("it", event_id=id), driver.deliver("it", event_id=id, attempt=2)
    assert first["kind"] == again["kind"] == "ok"
    received = shared.received(name)
    assert {message["id"] for message in received} == {id}
    assert len(received) == (1 if shared.DROPS_REPEATS else 2)


def test_l5_a_broker_that_is_down_costs_no_attempt(kind, driver, tmp_path, name):
    broker = kind(tmp_path)  # never started
    driver.must_open("it", **broker.settings(name, timeout="2s"))
    tags = send_many(driver, "it", [new_id() for _ in range(20)], timeout_ms=10000)
    driver.wait(20)
    for tag in tags:
        outcome = driver.outcomes[tag]
        assert outcome["kind"] == "released" and outcome["unreached"], outcome
        assert outcome["error"]


def test_d4_wrong_credentials_are_the_operators_trouble(kind, own, driver, name):
    if kind.user is None:
        pytest.skip(f"the mock of {kind.name} asks for no login")
    with own(password=brokers.PASSWORD) as broker:
        broker.prepare(name)
        driver.must_open("wrong", **{**broker.settings(name, timeout="5s"), "password": "hunter22"})
        outcome = driver.deliver("wrong")
        assert outcome["kind"] == "released" and outcome["unreached"], outcome
        assert outcome["error"] and "hunter22" not in json.dumps(outcome)
        driver.must_open("right", **broker.settings(name))
        assert driver.deliver("right")["kind"] == "ok"
        url = broker.settings(name)["url"].replace("://", f"://{broker.user}:{broker.password}@")
        plain = {key: value for key, value in broker.settings(name).items() if key not in ("user", "password")}
        driver.must_open("in_url", **{**plain, "url": url})
        assert driver.deliver("in_url", event_id=new_id())["kind"] == "ok"
        assert len(broker.received(name)) == 2


def test_d4_tls_is_verified(kind, own, driver, certificates, name):  # noqa: F811
    if not kind.TLS:
        pytest.skip(f"the mock of {kind.name} speaks no TLS")
    with own(tls=certificates) as broker:
        broker.prepare(name)
        driver.must_open("it", **broker.settings(name))
        assert driver.deliver("it")["kind"] == "ok"
        other = {**broker.settings(name), "ca_file": str(certificates / "wrong.example.pem")}
        driver.must_open("other", **other)
        outcome = driver.deliver("other")
        assert outcome["kind"] == "released" and outcome["unreached"], outcome
        assert len(broker.received(name)) == 1


def test_d4_tls_is_verified_by_what_the_system_trusts(kind, own, certificates, name):  # noqa: F811
    """Without ca_file. SSL_CERT_FILE replaces the certificates that the system trusts."""
    if not kind.TLS:
        pytest.skip(f"the mock of {kind.name} speaks no TLS")
    trust = {"trusted": certificates / "localhost.pem", "not": certificates / "wrong.example.pem"}
    with own(tls=certificates) as broker:
        broker.prepare(name)
        settings = {key: value for key, value in broker.settings(name).items() if key != "ca_file"}
        for word, file in trust.items():
            driver = Driver(env={**os.environ, "SSL_CERT_FILE": str(file)})  # noqa: F811
            driver.must_open("it", **settings)
            outcome = driver.deliver("it", event_id=new_id())
            driver.end()
            assert outcome["kind"] == ("ok" if word == "trusted" else "released"), (word, outcome)


# The server at the port is not a broker, or is hostile.


def say_nothing(peer):
    peer.settimeout(30)
    peer.recv(1 << 20)


def hang_up(peer):
    pass


def talk_nonsense(peer):
    chance = random.Random(7)
    while True:
        peer.sendall(chance.randbytes(4096))


def send_letters(peer):
    while True:
        peer.sendall(b"A" * 65536)


def drip(peer):
    """Sends a little of a reply again and again, and never all of it."""
    for byte in itertools.chain(b"$9999999\r\n", itertools.repeat(0x20)):
        peer.sendall(bytes([byte]))
        time.sleep(0.05)


def promise_much(peer):
    """The first bytes are those of each protocol; the length they announce is endless."""
    asked = peer.recv(65536)
    first = {
        b"A": b"\x01\x00\x00\x7f\xff\xff\xff",
        b"*": b"*2147483647\r\n$536870912\r\n",
        b"\x10": b"\x20\xff\xff\xff\x7f",
    }
    peer.sendall(first.get(asked[:1], b"\x7f\xff\xff\xff\x00\x00\x00\x01"))
    while True:
        peer.sendall(b"x" * 65536)


def greet_oddly(peer):
    """A CONNACK of MQTT with a property that does not exist."""
    peer.recv(65536)
    peer.sendall(b"\x20\x06\x00\x00\x03\x7f\x00\x00")
    peer.recv(65536)


class Impostor:
    def __init__(self, behave):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.behave, self.over = behave, False
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.meet, args=[self.listener.accept()[0]], daemon=True).start()

    def meet(self, peer):
        with contextlib.suppress(OSError), peer:
            self.behave(peer)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.mark.parametrize("behave", [say_nothing, hang_up, talk_nonsense, send_letters, drip, promise_much, greet_oddly])
def test_l5_whoever_is_no_broker_costs_nothing_but_the_attempt(kind, driver, tmp_path, name, behave):  # noqa: F811
    """Nothing was sent, so nothing is unknown; the destination can be closed, and others are not affected."""
    impostor = Impostor(behave)
    settings = kind(tmp_path).settings(name, timeout="2s")
    where = "brokers" if "brokers" in settings else "url"
    settings[where] = re.sub(r":\d+", f":{impostor.port}", settings[where])
    driver.must_open("it", **settings)
    outcomes = [driver.deliver("it", event_id=new_id(), timeout_ms=3000) for _ in range(2)]
    assert {outcome["kind"] for outcome in outcomes} == {"released"} and all(
        outcome["unreached"] for outcome in outcomes
    ), outcomes
    driver.close("it")
    driver.must_open("other", type="null")
    assert driver.deliver("other")["kind"] == "ok"
    impostor.close()


def test_d4_a_message_too_large_fails_alone_and_for_good(own, driver, name):
    with own(limit=brokers.LIMIT) as broker:
        broker.prepare(name)
        driver.must_open("it", **broker.settings(name, timeout="5s"))
        small = [driver.send("it", event_id=new_id(), timeout_ms=5000) for _ in range(5)]
        large = driver.send("it", payload_text="x" * (broker.TOO_LARGE + 1000), timeout_ms=5000)
        driver.wait(6)
        outcome = driver.outcomes[large]
        if name == "redis" and outcome["kind"] == "unknown":  # closed before the reason was read: again, as a relay
            outcome = driver.deliver("it", payload_text="x" * (broker.TOO_LARGE + 1000), timeout_ms=5000)
        assert outcome["kind"] == "failed" and outcome["permanent"], outcome
        again = [tag for tag in small if driver.outcomes[tag]["kind"] != "ok"]
        assert all(driver.outcomes[tag]["kind"] in ("unknown", "released") for tag in again)
        assert driver.deliver("it", event_id=new_id())["kind"] == "ok"  # it still works


def test_d4_a_slow_broker_is_unknown_at_the_deadline(own, driver, name):
    with own() as broker:
        broker.prepare(name)
        driver.must_open("it", **broker.settings(name, timeout="10s"))
        assert driver.deliver("it", event_id=new_id())["kind"] == "ok"  # connected
        broker.freeze()
        ids = [new_id() for _ in range(10)]
        tags = send_many(driver, "it", ids, timeout_ms=700)
        driver.wait(10)
        assert set(kinds(driver, tags)) == {"unknown"}
        broker.thaw()
        wait_for(
            lambda: driver.deliver("it", event_id=new_id(), timeout_ms=5000)["kind"] == "ok", "the broker to be back"
        )


def test_l5_a_restart_in_mid_batch_loses_nothing(own, driver, name):
    """Killed with a batch in flight: each message is ok, unknown or released, and when those that are not ok
    are sent again, every one of them arrives."""
    with own() as broker:
        broker.prepare(name)
        driver.must_open("it", **broker.settings(name, timeout="3s", **broker.DEDUPE))
        assert driver.deliver("it", event_id=new_id())["kind"] == "ok"
        open_ids = {new_id(): None for _ in range(300)}
        sent = list(open_ids)
        tags = send_many(driver, "it", sent[:150], timeout_ms=3000)
        broker.freeze()
        tags |= send_many(driver, "it", sent[150:], timeout_ms=3000)
        broker.thaw()
        broker.restart()
        driver.wait(len(tags))
        assert set(kinds(driver, tags)) <= {"ok", "unknown", "released"}
        deadline = time.monotonic() + 60
        left = [id for tag, id in tags.items() if driver.outcomes[tag]["kind"] != "ok"]
        while left and time.monotonic() < deadline:
            tags = send_many(driver, "it", left, timeout_ms=5000)
            driver.wait(len(tags))
            left = [id for tag, id in tags.items() if driver.outcomes[tag]["kind"] != "ok"]
        assert not left
        if broker.KEEPS:
            received = [message["id"] for message in broker.received(name)]
            assert set(sent) <= set(received)
            if broker.DROPS_REPEATS:
                assert len(received) == 301


def test_d4_closing_ends_every_attempt(own, driver, name):
    with own() as broker:
        broker.prepare(name)
        driver.must_open("it", **broker.settings(name))
        assert driver.deliver("it", event_id=new_id())["kind"] == "ok"
        broker.freeze()
        tags = send_many(driver, "it", [new_id() for _ in range(50)], timeout_ms=60000)
        driver.close("it")
        assert set(kinds(driver, tags)) <= {"unknown", "released"}
        broker.thaw()


# --- through the relay ---------------------------------------------------------------------------------------


def first_of_each(messages):
    """The numbers of each key in the order of their first arrival."""
    out = {}
    for message in messages:
        body = json.loads(message["payload"])
        numbers = out.setdefault(body["key"], [])
        if body["n"] not in numbers:
            numbers.append(body["n"])
    return out


def test_l5_through_the_relay_a_broker_may_go_and_come_back(own, name, store, outbox, outlog, relays):
    """While it is down no message loses an attempt. When it comes back everything arrives, each key in
    order. When it is killed in between, nothing is lost."""
    with own() as broker:
        broker.prepare(name)
        broker.down()
        outbox.destination(
            "it",
            **broker.settings(name),
            timeout="4s",
            retry={"base": "50ms", "max": "100ms", "max_attempts": 50},
            breaker={"failures": 5, "open": "100ms", "open_max": "300ms"},
        )
        put = lambda n: outbox.put("it", {"key": f"k{n % 7}", "n": n}, key=f"k{n % 7}")  # noqa: E731
        ids = [put(n) for n in range(40)]
        relays("a", lease="20s")  # as usual, longer than the timeout
        health = lambda: outlog.run("destinations", "--json").json()[0]  # noqa: E731
        wait_for(lambda: health()["breaker"] != "closed", lambda: f"an open breaker: {health()}")
        states = [outbox.state(id) for id in ids]
        assert {state["state"] for state in states} <= {"PENDING", "CLAIMED"}
        assert any(state["last_error"] for state in states)
        assert all(
            row["attempts"] == row["unsent"] for row in outbox.run("select * from {}parked where state = 'PENDING'")
        )  # none of the budget is used
        assert outbox.run("select * from {}attempts") == []
        broker.up()
        outbox.wait_drained()
        ids += [put(n) for n in range(40, 140)]
        broker.restart()
        ids += [put(n) for n in range(140, 160)]
        outbox.wait_drained()
        assert {outbox.state(id)["state"] for id in ids} == {"PUBLISHED"}
        if broker.KEEPS:
            got = first_of_each(broker.received(name))
            assert got == {f"k{k}": [n for n in range(160) if n % 7 == k] for k in range(7)}


# --- features of a single broker ---------------------------------------------------------------------------


@pytest.fixture
def kafka(running):
    return running(brokers.KafkaMock)


@pytest.mark.parametrize(
    "keys,key", [({"partition_key": "p", "ordering_key": "o"}, "p"), ({"ordering_key": "o"}, "o"), ({}, None)]
)
def test_d4_kafka_keys_are_the_partition_key_or_the_ordering_key(kafka, driver, name, keys, key):
    kafka.prepare(name)
    driver.must_open("it", **kafka.settings(name))
    assert driver.deliver("it", **keys)["kind"] == "ok"
    assert [record["key"] for record in kafka.received(name)] == [key]


def test_d4_kafka_makes_a_new_producer_after_a_fatal_error(kafka, driver, name):
    kafka.prepare(name)
    driver.must_open("it", **kafka.settings(name, timeout="3s"))
    assert driver.deliver("it", event_id=new_id())["kind"] == "ok"
    kafka.tell("fatal")
    outcome = driver.deliver("it", event_id=new_id())
    assert outcome["kind"] in ("unknown", "failed"), outcome
    assert driver.deliver("it", event_id=new_id())["kind"] == "ok"


def test_d4_kafka_options_cannot_weaken_what_success_means(kafka, driver):
    for option in ("acks", "enable.idempotence"):
        error = driver.open("it", **kafka.settings(options={option: "0"}))["error"]
        assert f"{option} cannot be changed" in error
    assert "no.such" in driver.open("it", **kafka.settings(options={"no.such": 1}))["error"]


def test_d4_redis_keeps_about_max_len(running, driver, name):
    redis = running(brokers.Redis)
    driver.must_open("it", **redis.settings(name, max_len=100))
    send_many(driver, "it", [new_id() for _ in range(600)])
    driver.wait(600)
    assert 100 <= len(redis.received(name)) < 400  # whole nodes of the stream are dropped


def test_d4_nats_expects_the_stream_it_was_told(running, driver, name):
    nats = running(brokers.Nats)
    nats.prepare(name)
    driver.must_open("right", **nats.settings(name, stream=name.upper()))
    driver.must_open("wrong", **nats.settings(name, stream="OTHER"))
    assert driver.deliver("right")["kind"] == "ok"
    outcome = driver.deliver("wrong", event_id=new_id())
    assert outcome["kind"] == "failed" and "expected stream" in outcome["error"]


class Silent(threading.Thread):
    """An MQTT broker that takes every message and acknowledges none; `taken` counts them."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listener, self.taken = socket.create_server(("127.0.0.1", 0)), 0
        self.url = f"mqtt://127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        while True:
            self.listen(self.listener.accept()[0])

    def listen(self, link):
        stream = link.makefile("rb")
        while head := stream.read(1):
            size = shift = 0
            while True:
                (byte,) = stream.read(1)
                size, shift = size | (byte & 127) << shift, shift + 7
                if byte < 128:
                    break
            body = stream.read(size)
            self.taken += head[0] >> 4 == 3
            if head[0] >> 4 == 1:  # CONNECT, whose seventh byte is the version
                link.sendall(b"\x20\x03\0\0\0" if body[6] == 5 else b"\x20\x02\0\0")


def test_d4_mqtt_sends_no_more_than_may_be_on_their_way(driver, name):
    broker = Silent()
    driver.must_open("it", type="mqtt", url=broker.url, topic=name, concurrency=5)
    tags = send_many(driver, "it", [new_id() for _ in range(40)], timeout_ms=1500)
    driver.wait(40)
    assert set(kinds(driver, tags)) == {"unknown"} and broker.taken == 5


@pytest.mark.parametrize("protocol", ["3.1.1", "5"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_d4_mqtt_protocols_and_qualities(running, driver, name, protocol, qos):
    broker = running(brokers.Mosquitto)
    broker.prepare(name)
    driver.must_open("it", **broker.settings(name, protocol=protocol, qos=qos))
    tags = send_many(driver, "it", [new_id() for _ in range(50)])
    driver.wait(50)
    assert set(kinds(driver, tags)) == {"ok"}
    came = []  # with QoS 0 success is that the bytes were written
    wait_for(lambda: came.extend(broker.received(name)[len(came) :]) or len(came) >= 50, "the subscriber")
    assert [json.loads(message["payload"])["n"] for message in came] == list(range(50))


def test_d4_rabbitmq_exchange_routes_by_key(running, driver, name):
    rabbit = running(brokers.Rabbit)
    rabbit.prepare(name)
    with rabbit.channel() as channel:
        channel.exchange_declare(name + "-x", "topic", durable=True)
        channel.queue_bind(name, name + "-x", "order.*")
    driver.must_open("it", **rabbit.settings("{event_type}", exchange=name + "-x"))
    assert driver.deliver("it")["kind"] == "ok"
    outcome = driver.deliver("it", event_type="invoice.sent")
    assert outcome["kind"] == "failed" and "no queue" in outcome["error"]
    driver.must_open("gone", **rabbit.settings("a", exchange="no-such"))
    outcome = driver.deliver("gone")
    assert outcome["kind"] == "unknown" and "no-such" in outcome["error"]
    assert len(rabbit.received(name)) == 1
