"""Catching up with a log: a projection compared with the same upserts as one statement written by hand.

The view has one row per event, keyed by event_id, with a name and a number from the payload, so that one
statement can do all of it; `on conflict` makes each an upsert. Both start with an empty table.
"""
import contextlib
import re
import sqlite3
import subprocess
import time

EVENTS = 100_000
RATIO_MIN = 0.5
SQL = "insert into {table} (id, aggregate_id, n) {values} on conflict (id) do update set aggregate_id = excluded.aggregate_id, n = excluded.n"
CREATE = "create table if not exists {table} (id bigint primary key, aggregate_id text not null, n integer)"
YAML = f"""\
projections:
  latest:
    tables: [latest]
    create: {CREATE.format(table="latest")}
    on:
      order.created: >
        {SQL.format(table="latest", values="values (:event_id, :aggregate_id, :payload.total_cents)")}
"""
BY_HAND = {
    "postgres": "select event_id, aggregate_id, (payload->>'total_cents')::integer from outlog.events order by event_id",
    "sqlite": "select event_id, aggregate_id, json_extract(payload, '$.total_cents') from outlog_events where true order by event_id",
}


def rates(kind, url, outlog, fill, rounds):
    """Events per second: (projection, by hand), one of each per round."""
    fill(EVENTS)
    ours, by_hand = [], []
    for number in range(rounds):
        by_hand.append(EVENTS / hand(kind, url, f"by_hand_{number}"))
        subprocess.run(
            [outlog, "apply", "-f", "-", "--store", url], input=YAML, text=True, check=True, stdout=subprocess.DEVNULL
        )
        done = subprocess.run(
            [outlog, "projections", "run", "--until-idle", "--store", url], check=True, capture_output=True, text=True
        )
        seconds = float(re.search(r"in ([\d.]+) s", done.stderr).group(1))
        ours.append(EVENTS / seconds)
        subprocess.run(
            [outlog, "apply", "-f", "-", "--prune", "--store", url],
            input="destinations: {}",
            text=True,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        statement(kind, url, "drop table latest")
    return ours, by_hand


def hand(kind, url, table):
    statement(kind, url, CREATE.format(table=table))
    begun = time.monotonic()
    statement(kind, url, SQL.format(table=table, values=BY_HAND[kind]))
    seconds = time.monotonic() - begun
    statement(kind, url, f"drop table {table}")
    return seconds


def statement(kind, url, sql):
    if kind == "postgres":
        import psycopg2

        with contextlib.closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(sql)
        return
    with contextlib.closing(sqlite3.connect(url.removeprefix("sqlite:"), isolation_level=None)) as db:
        db.execute("pragma synchronous = full")
        db.execute(sql)
