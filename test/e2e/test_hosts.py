"""Relays and servers on several hosts of one PostgreSQL (L1, L4): network namespaces, and wires that are cut.

A relay is stopped at a point, its wire to the database is cut in one direction or in both, and it goes
on: its claim or its record is on the way, and nobody knows whether it arrived. The other one takes its
lanes; when the wire is whole again the first has nothing stale to record. The checker judges.
"""
import pytest

from lib import hosts
from lib.cli import Outlog
from lib.hosts import Network
from lib.outbox import Load, Outbox, Relays, wait_for
from lib.postgres import Postgres
from lib.receiver import Receiver
from lib.server import Server

WHY_NOT = hosts.impossible()


@pytest.fixture(scope="module")
def network():
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    with Network() as network:
        yield network


@pytest.fixture(scope="module")
def server(network):
    """PostgreSQL that other hosts can reach."""
    with Postgres(settings={"listen_addresses": f"127.0.0.1,{network.here}"}) as server:
        with open(server.data / "pg_hba.conf", "a") as file:
            file.write(f"host all all {network.here}/24 md5\n")
        server.sql("select pg_reload_conf()")
        server.create("template")
        Outlog(server.url("template")).run("init")
        yield server


class World:
    def __init__(self, network, server, name, folder):
        self.network, self.server = network, server
        self.near = server.create(name, "template")
        self.url = self.near.replace("127.0.0.1", network.here)  # as other hosts see it
        self.outbox = Outbox(self.near)
        self.relays = Relays(self.url, folder)


@pytest.fixture
def world(network, server, tmp_path, request):
    name = f"h{abs(hash(request.node.name)) % 10**8}"
    world = World(network, server, name, tmp_path)
    yield world
    world.relays.close()
    world.outbox.close()
    server.drop(name)


@pytest.fixture
def far_receiver(network):
    with Receiver(network.here) as receiver:
        yield receiver


torture = pytest.mark.torture
CUTS = [
    ("claim.sent", "out"),
    ("claim.sent", "both"),
    ("mark.sent", "in"),
    ("mark.sent", "both"),
    pytest.param("claim.sent", "in", marks=torture),
    pytest.param("mark.sent", "out", marks=torture),
    pytest.param("publish.sent", "both", marks=torture),
]


@pytest.mark.parametrize("point, direction", CUTS)
def test_l1_a_relay_that_is_cut_off_is_replaced_and_records_nothing_stale(
    network, server, world, far_receiver, history, point, direction
):
    outbox, relays, receiver = world.outbox, world.relays, far_receiver
    outbox.destination("d", receiver)
    cut, whole = network.host("cut"), network.host("whole")
    load = Load(outbox, history, ["d"], pause=0.01, keys=20)
    try:
        first = relays("cut", host=cut, fault=f"{point}:8:stop", threads=1)
        first.wait_frozen()
        cut.cut(direction, server.port)
        history.fault("cut", direction=direction)
        first.thaw()
        owned = {row["owner"] for row in outbox.run("select owner from {}lanes where owner_name = 'cut'")}
        epochs = {
            row["lane"]: row["epoch"] for row in outbox.run("select lane, epoch from {}lanes where owner_name = 'cut'")
        }
        assert owned
        relays("whole", host=whole)
        wait_for(lambda: not outbox.run("select 1 from {}lanes where owner_name = 'cut'"), "the takeover")
        before = receiver.count()
        wait_for(lambda: receiver.count() > before + 50, "deliveries by the other")
        taken = {row["lane"]: row["epoch"] for row in outbox.run("select lane, epoch from {}lanes")}
        assert all(taken[lane] > epoch for lane, epoch in epochs.items()), "a lane changed hands with its epoch"
        history.fault("healed")
        cut.heal()
        wait_for(
            lambda: {row["owner_name"] for row in outbox.run("select owner_name from {}lanes")} == {"cut", "whole"},
            "both to share the lanes again",
        )
        assert first.is_running()
        load.end()
        outbox.wait_drained()
        counts = history.check(outbox, [receiver])
        assert counts["delivered"] == counts["appended"]["ok"]
    finally:
        load.is_over.set()
        cut.heal()


def test_l1_a_host_that_is_cut_off_again_and_again(network, server, world, far_receiver, history):
    """Three hosts with a relay each; the wires of two of them fail in turn, in every direction, under load."""
    outbox, relays, receiver = world.outbox, world.relays, far_receiver
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1, probability=0.05)
    places = [network.host(name) for name in "abc"]
    for place in places:
        relays(place.name, host=place, threads=2)
    load = Load(outbox, history, ["d"], pause=0.005, keys=40)
    try:
        for n, direction in enumerate(["out", "in", "both", "out"]):
            place = places[n % 2]
            before = receiver.count()
            wait_for(lambda: receiver.count() > before + 50, "deliveries")
            place.cut(direction, server.port)
            history.fault("cut", direction=direction)
            wait_for(
                lambda: not outbox.run(
                    "select 1 from {}lanes where owner_name = %s and lease_until < now()", place.name
                )
                and not outbox.run("select 1 from {}lanes where owner_name = %s", place.name),
                "the takeover",
            )
            history.fault("healed")
            place.heal()
        load.end()
        outbox.wait_drained()
        counts = history.check(outbox, [receiver])
        assert counts["delivered"] == counts["appended"]["ok"]
        assert all(relay.is_running() for relay in relays.all)
    finally:
        load.is_over.set()
        for place in places:
            place.heal()


# Several API and relay processes, on one host


def test_l1_servers_and_relays_share_the_lanes_as_they_come_and_go(
    postgres_store, outbox, receiver, relays, history, tmp_path
):
    outbox.destination("d", receiver)
    outbox.run("insert into outlog.settings (key, value) values ('relay.lease', '\"2s\"')")
    servers = [Server(Outlog(postgres_store), tmp_path / f"serve-{n}.log", []) for n in range(2)]
    load = Load(outbox, history, ["d"], pause=0.01, keys=40)

    def shares():
        rows = outbox.run("select owner, count(*) as n from {}lanes where owner is not null group by 1")
        return sorted(row["n"] for row in rows)

    try:
        wait_for(lambda: shares() == [4, 4], lambda: f"two servers to share: {shares()}")
        relay = relays("relay", threads=2)
        wait_for(lambda: shares() == [2, 2, 2, 2], lambda: f"two servers and two threads to share: {shares()}")
        assert [
            server.append("acme", 1, aggregate_id=f"s-{n}")[0]["aggregate_seq"] for n, server in enumerate(servers)
        ] == [1, 1]
        servers[0].kill()
        history.fault("kill")
        wait_for(lambda: sum(shares()) == 8 and len(shares()) == 3, lambda: f"the three that are left: {shares()}")
        assert servers[1].append("acme", 1, aggregate_id="s-0")[0]["aggregate_seq"] == 2
        relay.term()
        assert relay.wait() == 0
        wait_for(lambda: shares() == [8], lambda: f"the last one to own all: {shares()}")
        load.end()
        outbox.wait_drained()
        history.check(outbox, [receiver])
    finally:
        load.is_over.set()
        servers[1].stop()
