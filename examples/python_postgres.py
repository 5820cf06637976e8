#!/usr/bin/python3
"""An event and an ordinary row in one transaction, with psycopg2.

    outlog init --store postgres://localhost/app
    python_postgres.py postgres://localhost/app

outlog.append() is a function in your database: it commits and rolls back with your own writes.
"""
import json
import sys

import psycopg2

db = psycopg2.connect(sys.argv[1])
with db, db.cursor() as sql:
    sql.execute("create table if not exists orders (id text primary key, total int)")


def append(sql, payload, **event):
    """Append one event in the open transaction; returns its event_id."""
    names = ", ".join(f"{name} => %({name})s" for name in event)
    sql.execute(
        f"select event_id from outlog.append({names}, payload => %(payload)s)",
        {**event, "payload": json.dumps(payload)},
    )
    return sql.fetchone()[0]


def place_order(order_id, total, in_stock=True):
    with db, db.cursor() as sql:  # commits at the end, rolls back on an exception
        sql.execute("insert into orders values (%s, %s)", (order_id, total))
        event_id = append(
            sql,
            {"total": total},
            org_id="acme",
            aggregate_type="order",
            aggregate_id=order_id,
            event_type="order.created",
            expected_seq=0,
        )
        if not in_stock:
            raise ValueError("out of stock")
    return event_id


print("order o-1 is event", place_order("o-1", 12))
try:
    place_order("o-2", 5, in_stock=False)
except ValueError as error:
    print("order o-2:", error)
try:
    with db, db.cursor() as sql:
        append(
            sql,
            {},
            org_id="acme",
            aggregate_type="order",
            aggregate_id="o-1",
            event_type="order.created",
            expected_seq=0,
        )
except psycopg2.Error as error:
    refusal = json.loads(error.diag.message_detail)
    print("refused:", error.pgcode, refusal["code"], "actual", refusal["actual"])

with db, db.cursor() as sql:
    sql.execute("select (select count(*) from orders), (select count(*) from outlog.events)")
    print("%d order, %d event" % sql.fetchone())
