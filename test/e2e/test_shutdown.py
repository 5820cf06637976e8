"""Stopping a daemon (L3): running work is finished, but the daemon does not wait for a store that does not answer.

A stopped server closes its connections at once; a frozen one sends nothing, which a proxy that falls mute simulates.
The deadlines are short: without the code under test the daemon would take twenty seconds in the one case and forever in
the other.
"""
import contextlib
import http.client
import json
import select
import signal
import socket
import sqlite3
import time

import psycopg2
import pytest

from lib.cut_proxy import CutProxy
from lib.cli import Outlog
from lib.outbox import Outbox, wait_for
from lib.proxy import Proxy
from lib.server import Answer, Server

SOON = 10
EVENT = {"aggregate_type": "thing", "aggregate_id": "1", "event_type": "t", "payload": {}}


def stops_soon(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(SOON) == 0


class Request:
    """A request that the server has read, and whose answer is read later."""

    def __init__(self, server, method, path, body=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        self.connection.request(method, path, json.dumps(body) if body else None, {"content-type": "application/json"})
        ours = self.connection.sock.getsockname()[1]
        ends = f"0100007F:{server.port:04X} 0100007F:{ours:04X} 01 00000000:00000000 "  # nothing left to read

        def is_read():
            with open("/proc/net/tcp", encoding="ascii") as table:
                return ends in table.read()

        wait_for(is_read, "the request to be read")

    def is_answered(self):
        return bool(select.select([self.connection.sock], [], [], 0)[0])

    def answer(self):
        answer = self.connection.getresponse()
        answer = Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        self.connection.close()
        return answer


@contextlib.contextmanager
def proxied(postgres, store):
    with Proxy(postgres.port) as proxy:
        yield proxy, proxy.url(store)


@contextlib.contextmanager
def serving(store, tmp_path, *args):
    server = Server(Outlog(store, cwd=tmp_path), tmp_path / "serve.log", args)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.kill()


def test_l3_serve_ends_soon_when_postgres_is_stopped(own_postgres, tmp_path):
    store = own_postgres.create("orders")
    with serving(store, tmp_path) as server:
        server.append("acme")
        wait_for(
            lambda: own_postgres.sql("select count(*) from outlog.lanes where owner is null", database="orders")
            == [(0,)],
            "the relay to have its lanes",
        )
        own_postgres.stop()
        assert server.get("/v1/events").code == "unavailable"
        stops_soon(server.process)


def test_l3_serve_ends_soon_when_postgres_is_silent(postgres, postgres_store, tmp_path):
    """Requests that wait for the store are answered first."""
    with proxied(postgres, postgres_store) as (proxy, store), serving(store, tmp_path) as server:
        server.append("acme")
        proxy.mute()
        read = Request(server, "GET", "/v1/events")
        write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
        stops_soon(server.process)
        assert read.answer().code == "unavailable"
        assert write.answer().code in ("unavailable", "outcome_unknown")


def test_l3_a_write_to_a_silent_postgres_has_an_unknown_outcome(postgres, postgres_store, tmp_path):
    with proxied(postgres, postgres_store) as (proxy, store), serving(store, tmp_path, "--no-relay") as server:
        server.append("acme")
        proxy.cut_at(r"outlog\.append_(one|batch)", "mute")
        write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
        assert proxy.happened.wait(30)
        stops_soon(server.process)
        assert write.answer().code == "outcome_unknown"
    events = Outlog(postgres_store).run("events", "--json").json()
    assert len(events) == 2, "the server had stored it"


@contextlib.contextmanager
def held(store):
    """Locks the aggregate (thing, 1), or the whole store on SQLite."""
    if store.startswith("sqlite:"):
        with contextlib.closing(sqlite3.connect(store[len("sqlite:") :], isolation_level=None)) as db:
            db.execute("begin immediate")
            yield
            db.execute("rollback")
    else:
        with contextlib.closing(psycopg2.connect(store)) as db, db.cursor() as cursor:
            cursor.execute("select from outlog.heads where aggregate_id = '1' for update")
            assert cursor.rowcount == 1
            yield
            db.rollback()


def test_l3_running_requests_are_finished_while_the_store_answers(store, serve):
    """Also when they take longer than the daemon would wait for a silent store."""
    server = serve("--no-relay")
    server.append("acme")
    with held(store):
        write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
        server.process.send_signal(signal.SIGTERM)
        time.sleep(3)  # the store answers all the while
        assert not write.is_answered() and server.process.poll() is None
    assert write.answer().status == 201
    assert server.process.wait(30) == 0


@pytest.mark.parametrize("where", ["deaf", "lost"])
def test_l3_a_dead_connection_is_cut_while_the_store_answers(postgres, postgres_store, tmp_path, where):
    """Only this one of many, whether the server has stored the event or not."""
    with proxied(postgres, postgres_store) as (proxy, store), serving(store, tmp_path) as server:
        server.append("acme")
        proxy.cut_at(r"outlog\.append_(one|batch)", where)
        write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
        assert proxy.happened.wait(30)
        stops_soon(server.process)
        assert write.answer().code == "outcome_unknown"
    events = Outlog(postgres_store).run("events", "--json").json()
    assert len(events) == (2 if where == "deaf" else 1)


def test_l3_requests_on_other_connections_are_finished_beside_a_dead_one(postgres, postgres_store, tmp_path):
    """Also those that take longer than it takes to detect the dead one."""
    with proxied(postgres, postgres_store) as (proxy, store), serving(store, tmp_path, "--no-relay") as server:
        server.append("acme")
        proxy.cut_at(r"where event_id > ", "lost")
        read = Request(server, "GET", "/v1/events")
        assert proxy.happened.wait(30)
        with held(postgres_store):
            write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
            server.process.send_signal(signal.SIGTERM)
            wait_for(read.is_answered, "the dead connection to be detected", SOON)
            time.sleep(1)
            assert not write.is_answered() and server.process.poll() is None
        assert write.answer().status == 201
        assert server.process.wait(SOON) == 0


@pytest.mark.parametrize(
    "sql", [r"^\s*begin", r"with recursive ", r"outlog\.lanes"], ids=["before", "inside", "anywhere"]
)
def test_l3_a_relay_with_a_dead_connection_hands_its_lanes_back_soon(postgres, postgres_store, relays, sql):
    """Also when its server keeps the locks of the transaction that the connection died in."""
    with proxied(postgres, postgres_store) as (proxy, store), Outbox(postgres_store) as outbox:
        relay = relays("a", lease="60s", store=store)
        wait_for(lambda: outbox.run("select * from {}lanes where owner is null") == [], "it to have all lanes")
        proxy.cut_at(sql, "lost")
        assert proxy.happened.wait(30)
        stops_soon(relay.process)
        assert outbox.run("select * from {}lanes where owner is not null") == []


@contextlib.contextmanager
def silent_first(postgres, store):
    """The store's URL with another host before it that accepts connections and sends nothing."""
    with contextlib.closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as listener:
        port = listener.getsockname()[1]
        yield store.replace(
            f"127.0.0.1:{postgres.port}/", f"127.0.0.1:{port},127.0.0.1:{postgres.port}/"
        ) + "?connect_timeout=2"


def test_l3_running_requests_are_finished_though_the_first_host_is_silent(postgres, postgres_store, tmp_path):
    with silent_first(postgres, postgres_store) as store, serving(
        store, tmp_path, "--no-relay", "--threads", "1"
    ) as server:
        server.append("acme")
        with held(postgres_store):
            write = Request(server, "POST", "/v1/events", {"org_id": "acme", "events": [EVENT]})
            server.process.send_signal(signal.SIGTERM)
            time.sleep(6)  # longer than the daemon would wait for all hosts
            assert not write.is_answered() and server.process.poll() is None
        assert write.answer().status == 201
        assert server.process.wait(SOON) == 0


def test_l3_serve_ends_soon_when_its_host_falls_silent_and_another_answers(postgres, postgres_store, tmp_path):
    with proxied(postgres, postgres_store) as (proxy, first), serving(
        first.replace(f":{proxy.port}/", f":{proxy.port},127.0.0.1:{postgres.port}/"), tmp_path
    ) as server:
        server.append("acme")
        proxy.mute()
        read = Request(server, "GET", "/v1/events")
        stops_soon(server.process)
        assert read.answer().status in (200, 503)


OWNED = "select count(*) = 0 as runs from outlog.lanes where owner is null"
POLLED = (
    "select count(*) > 0 as runs from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() "
    "and query like '%from outlog.projection_checkpoints%'"
)


@pytest.mark.parametrize(
    "command, is_running", [("relay", OWNED), ("projections run", POLLED)], ids=["relay", "projections"]
)
def test_l3_other_daemons_end_soon_too_when_postgres_is_silent(postgres, postgres_store, tmp_path, command, is_running):
    with proxied(postgres, postgres_store) as (proxy, store), Outbox(postgres_store) as outbox:
        outlog = Outlog(store, cwd=tmp_path)
        daemon = outlog.start(*command.split(), stdout=None, stderr=None)
        wait_for(lambda: outbox.run(is_running)[0]["runs"], "it to run")
        proxy.mute()
        try:
            stops_soon(daemon)
        finally:
            outlog.close()


def test_l3_a_relay_that_lost_its_connection_hands_its_lanes_back(postgres, postgres_store, relays):
    """The store answers: the relay makes another connection for it."""
    link = CutProxy(postgres.port)
    with Outbox(postgres_store) as outbox:
        relay = relays("a", lease="60s", store=postgres_store.replace(f":{postgres.port}/", f":{link.port}/"))
        wait_for(lambda: outbox.run("select * from {}lanes where owner is null") == [], "it to have all lanes")
        relay.process.send_signal(signal.SIGSTOP)
        link.cut()
        link.mend()
        relay.process.send_signal(signal.SIGTERM)
        relay.process.send_signal(signal.SIGCONT)
        assert relay.process.wait(SOON) == 0
        assert outbox.run("select * from {}lanes where owner is not null") == []
    link.close()
