"""The log fanned out by a cluster: three NATS nodes, a stream with three replicas, one node killed under load (D4)."""
import itertools
import json
import threading

import pytest

from lib.brokers import NatsCluster
from lib.outbox import wait_for
from test_sinks import append, sink

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with NatsCluster(tmp_path_factory.mktemp("nats")) as cluster:
        yield cluster


@pytest.fixture
def stream(cluster):
    """A new stream, replicated three times, with its leader chosen."""
    name = f"LOG{next(_numbers)}"

    def make():
        return "config" in cluster.ask(
            f"$JS.API.STREAM.CREATE.{name}",
            {"name": name, "subjects": [f"{name}.>"], "storage": "file", "num_replicas": 3},
        )

    for node in cluster.nodes:
        if not node.process:
            node.start()
    wait_for(make, "a stream of three replicas")
    wait_for(lambda: cluster.leader(name), "its leader")
    return name


class Appender(threading.Thread):
    """Appends until there are so many, or it is told to end."""

    def __init__(self, outlog, most):
        super().__init__(daemon=True)
        self.most = most
        self.outlog, self.ids, self.error, self.is_over = outlog, [], None, threading.Event()
        self.start()

    def run(self):
        try:
            while not self.is_over.is_set():
                if len(self.ids) < self.most:
                    self.ids += append(self.outlog, 100, first=len(self.ids))
                self.is_over.wait(0.05)
        except Exception as error:  # told by end()
            self.error = error

    def end(self):
        self.is_over.set()
        self.join(30)
        assert not self.error and not self.is_alive(), self.error


@pytest.mark.parametrize("victim", ["leader", pytest.param("other", marks=pytest.mark.torture)])
def test_d4_every_event_arrives_once_per_consumer_though_a_node_is_killed(outlog, store, cluster, stream, victim):
    outlog.run(
        "apply",
        "-f",
        "-",
        input=json.dumps(
            {
                "destinations": {
                    "nats": {"type": "nats", "url": cluster.url(), "subject": stream + ".{event_type}", "timeout": "3s"}
                },
                "sinks": {"copy": {"to": "nats"}},
            }
        ),
    )
    relay = outlog.start("relay", "--id", "r", "--lease", "5s", stderr=None)
    load = Appender(outlog, 1000)
    wait_for(lambda: sink(outlog)["cursor_event_id"] > 200, lambda: f"the sink to run: {sink(outlog)}")
    leader = cluster.leader(stream)
    killed = leader if victim == "leader" else next(node for node in cluster.nodes if node is not leader)
    before = sink(outlog)["cursor_event_id"]
    killed.kill()
    load.most = before + 2000
    wait_for(lambda: sink(outlog)["cursor_event_id"] > before + 500, lambda: f"it to go on: {sink(outlog)}", 180)
    load.end()
    wait_for(lambda: sink(outlog)["lag"] == 0, lambda: f"the end: {sink(outlog)}", 180)
    assert relay.poll() is None
    for consumer in ("billing", "search"):
        got = wait_for(lambda: cluster.consume(stream, consumer), "a consumer")
        assert len(got) == len(set(got)), "an event arrived twice"
        assert set(got) == set(load.ids), "an event is missing"
        for k in range(5):  # and those of an aggregate in their order
            mine = load.ids[k::5]
            assert [id for id in got if id in set(mine)] == mine
    relay.terminate()
    assert relay.wait(30) == 0
