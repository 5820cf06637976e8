"""Row-level security (X2): even a query that forgot its filter shows one org."""
import json

import psycopg2
import pytest


@pytest.fixture
def rows(postgres_store, outlog):
    for org in ("acme", "other"):
        outlog.run("append", "--org", org, "--aggregate", "thing/1", "--type", "t", "--data", "{}")
    outlog.run("append", "--infra", "--aggregate", "thing/1", "--type", "t", "--data", "{}")

    def select(org=None, role="outlog_tenant"):
        with psycopg2.connect(postgres_store) as connection, connection.cursor() as cursor:
            cursor.execute(f"set role {role}")
            if org is not None:
                cursor.execute("select set_config('outlog.org_id', %s, false)", [org])
            cursor.execute("select org_id from outlog.events order by event_id")
            return [org_id for org_id, in cursor.fetchall()]

    return select


def test_x2_a_tenant_sees_its_org_and_nothing_else(rows):
    assert rows("acme") == ["acme"]
    assert rows("other") == ["other"]
    assert rows("") == [] and rows() == [] and rows("nobody") == []


def test_x2_a_tenants_reads_over_http_are_confined_by_the_database_too(postgres, postgres_store, outlog, serve):
    """Without that role's right to read, its token reads nothing, and everybody else all: so it is that role that reads."""
    server = serve("--no-relay", dev=False)
    acme, admin = (
        outlog.run("token", "create", "--json", "--scope", "read", *org).json()[0]["token"]
        for org in (["--org", "acme"], [])
    )
    (event,) = outlog.run(
        "append", "--org", "acme", "--aggregate", "thing/1", "--type", "t", "--data", "{}", "--json"
    ).json()
    paths = ("/v1/events", "/v1/events?before=end", f"/v1/events/{event['id']}")
    assert [server.get(path, token=acme).status for path in paths] == [200] * 3
    with psycopg2.connect(postgres_store) as connection, connection.cursor() as cursor:
        cursor.execute("revoke select on outlog.events from outlog_tenant")
    assert all(server.get(path, token=acme).status >= 500 for path in paths)
    assert [server.get(path, token=admin).status for path in paths] == [200] * 3


def test_x2_the_other_roles_see_all(rows):
    for role in ("outlog_append", "outlog_read", "outlog_relay", "outlog_admin"):
        assert rows(role=role) == ["acme", "other", None]


def test_x2_a_tenant_changes_nothing(postgres_store, rows):
    with psycopg2.connect(postgres_store) as connection:
        for statement in (
            "insert into outlog.events default values",
            "delete from outlog.events",
            "select * from outlog.outbox",
            "select * from outlog.tokens",
            "select * from outlog.append(org_id => 'acme', aggregate_type => 'a', aggregate_id => '1', "
            "event_type => 't', payload => '{}')",
        ):
            with connection.cursor() as cursor, pytest.raises(psycopg2.errors.InsufficientPrivilege):
                cursor.execute("set role outlog_tenant")
                cursor.execute(statement)
            connection.rollback()


def test_x2_the_api_reads_as_the_tenant(postgres_store, rows, outlog, serve):
    """The filter of the handlers is one guard, the role another: without the role's rights nothing comes."""
    server = serve(dev=False)
    token = outlog.run("token", "create", "--scope", "read", "--org", "acme", "--json").stdout
    token = json.loads(token)["token"]
    assert [e["org_id"] for e in server.get("/v1/events", token=token).json["events"]] == ["acme"]
    with psycopg2.connect(postgres_store) as connection, connection.cursor() as cursor:
        cursor.execute("revoke select on outlog.events from outlog_tenant")
    connection.close()
    assert server.get("/v1/events", token=token).status >= 500
