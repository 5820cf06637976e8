#!/usr/bin/python3
"""An event and an ordinary row in one transaction, with Python's own sqlite3.

    python_sqlite.py [DATABASE [EXTENSION]]      app.db, /usr/local/lib/outlog/outlog

The functions of the extension work on your connection: they commit and roll back with it.
"""
import json
import sqlite3
import sys

path = sys.argv[1] if len(sys.argv) > 1 else "app.db"
extension = sys.argv[2] if len(sys.argv) > 2 else "/usr/local/lib/outlog/outlog"

db = sqlite3.connect(path)
db.enable_load_extension(True)
db.load_extension(extension)
db.execute("select outlog_init()")  # creates outlog's tables; safe to repeat
db.execute("create table if not exists orders (id text primary key, total int)")


def append(**event):
    """Append one event in the open transaction; returns its event_id, id and aggregate_seq."""
    return json.loads(db.execute("select outlog_append(?)", [json.dumps(event)]).fetchone()[0])


def place_order(order_id, total, in_stock=True):
    with db:  # commits at the end, rolls back on an exception
        db.execute("begin immediate")  # Python begins a transaction for an INSERT, but not for a SELECT
        db.execute("insert into orders values (?, ?)", (order_id, total))
        done = append(
            org_id="acme",
            aggregate_type="order",
            aggregate_id=order_id,
            event_type="order.created",
            payload={"total": total},
            expected_seq=0,
        )
        if not in_stock:
            raise ValueError("out of stock")
    return done


print("order o-1 is event", place_order("o-1", 12)["event_id"])
try:
    place_order("o-2", 5, in_stock=False)
except ValueError as error:
    print("order o-2:", error)
try:
    append(
        org_id="acme",
        aggregate_type="order",
        aggregate_id="o-1",
        event_type="order.created",
        payload={},
        expected_seq=0,
    )
except sqlite3.OperationalError as error:
    print("refused:", error)

orders = db.execute("select count(*) from orders").fetchone()[0]
events = db.execute("select count(*) from outlog_events").fetchone()[0]
print(f"{orders} order, {events} event")
