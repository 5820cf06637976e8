"""What a relay does beside the rules of its lanes: clocks, settings, limits, sweeping, resizing.

The rules themselves are in test_lanes.py, crashes in test_relay_crash.py.
"""
import datetime
import json
import re
import subprocess
import time

import pytest

from lib.cli import Outlog
from lib.outbox import LANES, Writer, keys_in_lane, known, wait_for
from lib.proxy import Proxy

HOUR = 3600
HOUR_US = HOUR * 1_000_000


def apply(outlog, text):
    return outlog.run("apply", "-f", "-", input=text)


def setting(outbox, key, value):
    outbox.run("delete from {}settings where key = %s", key)
    outbox.run(
        f"insert into {{}}settings (key, value, updated_at) values (%s, %s, {outbox.now()})", key, json.dumps(value)
    )


def is_alive(outbox, relay):
    """Wait until the relay is seen to work after now: its heartbeat moves."""

    def beats():
        return [
            row["heartbeat_at"] for row in outbox.run("select heartbeat_at from {}relays where name = %s", relay.name)
        ]

    before = beats()
    wait_for(lambda: beats() and beats() != before, f"a heartbeat of {relay.name}")


# Clocks and doubts


@pytest.mark.parametrize("skew", [-2 * HOUR, 2 * HOUR])
def test_o5_a_delay_ends_by_the_database_clock(postgres_store, outbox, receiver, relays, skew):
    """The relay's own clock is two hours off: neither too early nor too late."""
    outbox.destination("d", receiver)
    later = outbox.put("d", {"n": 1}, due_us=HOUR_US)
    past = outbox.put("d", {"n": 2}, due_us=-HOUR_US)
    soon = outbox.put("d", {"n": 3}, due_us=300_000)
    relays("a", skew=skew)
    outbox.wait(past, "PUBLISHED", attempts=1)
    outbox.wait(soon, "PUBLISHED", attempts=1)
    assert outbox.wait(later, "PENDING", attempts=0)["available_at"] is not None
    assert receiver.count(id=later) == 0


def test_6_a_turn_given_up_for_lost_that_happened_after_all_ends_the_ownership(store, outbox, receiver, relays):
    """The same epoch with another claim_no: what is claimed is not known, so as after a crash."""
    outbox.destination("d", receiver)
    receiver.rule("hang", attempt=1)
    relay = relays("a", patience="60s")
    id = outbox.put("d", {"n": 1}, key="k")
    wait_for(lambda: receiver.count(id=id) == 1, "the request")
    before = outbox.lane(outbox.lane_for(id))
    outbox.run("update {}lanes set claim_no = claim_no + 1 where lane = %s", before["lane"])
    receiver.release()
    row = outbox.wait(id, "PUBLISHED", attempts=2)
    assert receiver.count(id=id) == 2 and row["last_error"] is None
    after = outbox.lane(before["lane"])
    assert after["epoch"] == before["epoch"] + 1 and after["owner"] == before["owner"]
    assert relay.is_running()


def test_5_a_connection_revived_within_a_lost_commit_keeps_its_time_limits(
    postgres, postgres_store, outbox, receiver, relays
):
    """A lock on the lane's row is not waited for beyond a third of the lease (the session's own is 10 s)."""
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1)  # a turn that is a transaction: it ends in COMMIT
    with Proxy(postgres.port) as proxy, outbox.session() as other:
        relay = relays("a", lease="3s", store=proxy.url(postgres_store))
        wait_for(lambda: not outbox.run("select 1 from {}lanes where owner is null"), "the lanes")
        proxy.cut_at("^commit$", "reply")
        id = outbox.put("d", {"n": 1}, key="k")
        assert proxy.happened.wait(30)
        outbox.wait(id, "PUBLISHED")
        other.begin()
        other.run("select 1 from {}lanes for update")
        outbox.put("d", {"n": 2}, key="k")
        wait_for(lambda: re.search(r"lock timeout|statement timeout", relay.said()), relay.said, seconds=9)
        other.rollback()
        outbox.wait_drained()


# Settings


def seconds_between(later, earlier):
    times = [datetime.datetime.fromisoformat(str(one).replace("Z", "+00:00")) for one in (later, earlier)]
    return (times[0] - times[1]).total_seconds()


def lease_of(outbox):
    """How long the lease is, by what a heartbeat left: within its renewals."""
    row = outbox.one("select max(l.lease_until) as lease_until, max(r.heartbeat_at) as beat from {}lanes l, {}relays r")
    return seconds_between(row["lease_until"], row["beat"]) if row["lease_until"] and row["beat"] else 0


def keys_of_every_lane(destination):
    return [next(keys_in_lane(lane, [destination]))[1] for lane in range(LANES)]


def test_l5_what_is_sent_after_a_pause_waits(store, outlog, outbox, relays, receiver):
    """From the commit of a pause on nothing is claimed: a relay need not have heard of it by itself."""
    outbox.destination("d", receiver)
    outbox.destination("other", receiver)
    relays("a")
    for n in range(5):
        outbox.wait(outbox.put("d", {"n": n}), "PUBLISHED")  # the relay is awake
        outlog.run("destinations", "pause", "d")
        waits = [outbox.put("d", {"n": n}, key=key) for key in (None, "k")]
        for key in keys_of_every_lane("other"):
            outbox.wait(outbox.put("other", {"n": n}, key=key), "PUBLISHED")  # all lanes were read since
        for event_id in waits:
            shown = outlog.run("outbox", "show", event_id, "--json").json()[0]
            assert (shown["state"], shown["attempts"]) == ("PENDING", 0)
        outlog.run("destinations", "resume", "d")
        for event_id in waits:
            outbox.wait(event_id, "PUBLISHED")


def test_what_is_sent_after_an_apply_goes_where_it_says(store, outlog, outbox, relays, receiver):
    file = "destinations: {{d: {{type: webhook, url: '{}', allow_private: true}}}}"
    apply(outlog, file.format(receiver.url("first")))
    relays("a")
    for n in range(5):
        outbox.wait(outbox.put("d", {"n": n}), "PUBLISHED")
        where = f"place-{n}"
        apply(outlog, file.format(receiver.url(where)))
        event_id = outbox.put("d", {"n": n})
        outbox.wait(event_id, "PUBLISHED")
        assert [r.destination for r in receiver.requests if r.id == event_id] == [where]


def test_the_relay_applies_its_config_first(store, outlog, outbox, tmp_path):
    outbox.put("d", {"n": 1})
    file = tmp_path / "relay.yaml"
    file.write_text("destinations: {d: {type: null}}\n")
    done = outlog.run("relay", "--config", str(file), "--id", "a", "--until-idle")
    assert "1 published" in done.stderr
    assert outlog.run("outbox", "--json").json()[0]["state"] == "PUBLISHED"
    file.write_text("destinations: {d: {type: nul}}\n")
    refused = outlog.run("relay", "--config", str(file), check=False)
    assert refused.returncode == 1 and "relay.yaml: line 1: destination d: type" in refused.stderr
    assert outlog.run("relay", "--config", str(tmp_path / "none.yaml"), check=False).returncode == 1


def test_the_relays_config_may_name_the_store(store, outlog, tmp_path):
    file = tmp_path / "relay.yaml"
    file.write_text(f"store: {json.dumps(store)}\ndestinations: {{d: {{type: null}}}}\n")
    Outlog(cwd=tmp_path).run("relay", "--config", str(file), "--until-idle")
    assert outlog.run("destinations", "--json").json()[0]["type"] == "null"


def test_settings_of_the_relay_are_read_from_the_store_and_flags_come_first(store, outlog, outbox, relays):
    apply(
        outlog,
        "relay: {lease: 500s, poll: 10ms, patience: 20ms, batch: 7, threads: 3}\n" "destinations: {d: {type: null}}",
    )
    shown = {line["key"]: (line["value"], line["from"]) for line in outlog.run("config", "--json").json()}
    assert shown["relay.lease"] == ("500s", "store") and shown["relay.threads"] == ("3", "store")
    for n in range(50):
        outbox.put("d", {"n": n}, key="k")
    relay = relays("a", lease=None, poll=None, patience=None)
    outbox.wait_drained()
    wait_for(lambda: outbox.one("select count(*) as n from {}relays")["n"] == 3, "three threads")
    assert 300 < lease_of(outbox) <= 501
    assert len(outbox.run("select 1 from {}batches")) >= 8  # at most 7 messages a claim
    relay.term()
    assert relay.wait() == 0
    relays("b", lease="60s", threads=1)
    wait_for(lambda: outbox.run("select 1 from {}lanes where owner is not null"), "a lane")
    assert 30 < lease_of(outbox) <= 61
    assert outbox.one("select count(*) as n from {}relays")["n"] == 1


def test_wrong_flags_are_told_before_the_store_is_asked(outlog):
    for flags in (["--threads", "0"], ["--threads", "33"], ["--batch", "1001"], ["--lease", "10ms"], ["--poll", "x"]):
        done = outlog.run("relay", "--store", "sqlite:/nowhere/at/all.db", *flags, check=False)
        assert done.returncode == 2, done


# --- P10: how long a message is tried ---


def waits_of(outlog, until):
    """Attempt after attempt, each made due at once; the waits that the relay decided on, in seconds."""
    waits = []
    while True:
        outlog.run("relay", "--until-idle", "--quiet")
        (message,) = outlog.run("outbox", "--json").json()
        if message["state"] != "PENDING" or until(sum(waits)):
            return waits, message
        due, now = (datetime.datetime.fromisoformat(message[name]) for name in ("available_at", "updated_at"))
        waits.append((due - now).total_seconds())
        outlog.run("destinations", "deliver", message["destination"])


DOWN = ["webhook", "exec", "sor"]


def declare_down(outlog, receiver, tmp_path, type):
    """A destination whose receiver fails; returns what brings it back."""
    flag = tmp_path / "up"
    settings = {"type": type, "url": receiver.url("d"), "allow_private": True}
    if type == "exec":
        settings = {"type": "exec", "command": ["test", "-e", str(flag)]}
    apply(outlog, json.dumps({"destinations": {"d": settings}}))
    receiver.rule(503)
    return lambda: (flag.touch(), receiver.rule(200))


@pytest.mark.parametrize("type", DOWN)
def test_p10_a_receiver_that_is_down_for_an_hour_makes_no_dead_letter(store, outlog, receiver, tmp_path, type):
    bring_back = declare_down(outlog, receiver, tmp_path, type)
    payload = {"entity_type": "o", "entity_id": "1", "change": {}, "evidence_pack": {}}
    outlog.run("send", "--to", "d", "--type", "order.created", "--data", json.dumps(payload))
    waits, message = waits_of(outlog, until=lambda waited: waited > HOUR)
    assert message["state"] == "PENDING" and sum(waits) > HOUR, (waits, message)
    bring_back()
    outlog.run("destinations", "deliver", "d")
    outlog.run("relay", "--until-idle", "--quiet")
    (message,) = outlog.run("outbox", "--json").json()
    assert message["state"] == "PUBLISHED"


def test_p10_a_message_is_tried_for_a_day_then_dead(store, outlog, receiver, tmp_path):
    declare_down(outlog, receiver, tmp_path, "webhook")
    outlog.run("send", "--to", "d", "--type", "SEND_EMAIL", "--data", "{}")  # no effect, whatever its name
    waits, message = waits_of(outlog, until=lambda waited: False)
    table = [5, 30, 120, 600, 1800, 3600, 7200, 14400, 28800, 28800]
    assert (message["state"], message["attempts"], len(waits)) == ("DEAD", 11, 10)
    for waited, wanted in zip(waits, table):
        assert wanted * 0.99 - 5 <= waited <= wanted * 1.21, (waits, table)


def test_p10_an_effect_is_tried_by_the_table_of_its_type(store, outlog, receiver, tmp_path):
    declare_down(outlog, receiver, tmp_path, "webhook")
    run = outlog.run("run", "start", "--org", "acme", "--type", "t", "--version", "1", "--json").json()[0]
    spec = ("--type", "API_CALL", "--to", "d", "--data", "{}")
    outlog.run("run", "effect", run["run_id"], *spec)
    waits, message = waits_of(outlog, until=lambda waited: False)
    assert (message["state"], message["attempts"], len(waits)) == ("DEAD", 6, 5)


@pytest.mark.parametrize("status, state", [(500, "PENDING"), (503, "PENDING"), (502, "DEAD"), (504, "DEAD")])
def test_p10_at_most_once_a_complete_5xx_is_tried_again_and_a_gateways_is_not(
    sqlite_store, outlog, receiver, status, state
):
    settings = {"type": "webhook", "url": receiver.url("d"), "allow_private": True, "preset": "notification"}
    apply(outlog, json.dumps({"destinations": {"d": settings}}))
    receiver.rule(status)
    outlog.run("send", "--to", "d", "--type", "t", "--data", "{}")
    outlog.run("relay", "--until-idle", "--quiet")
    (message,) = outlog.run("outbox", "--json").json()
    assert (message["state"], message["attempts"], message["max_attempts"]) == (state, 1, 5)


def test_r1_the_retry_of_a_type_comes_before_the_destinations(store, outlog, outbox, receiver, relays):
    outbox.destination("d", receiver, retry={"base": "10ms", "jitter": 0, "max_attempts": 50})
    apply(outlog, "types: {order.paid: {retry: {max_attempts: 2}}, order.sent: {retry: {base: 1h}}}")
    receiver.rule(500)
    relays("a")
    paid = outbox.put("d", {"n": 1}, type="order.paid")
    sent = outbox.put("d", {"n": 2}, type="order.sent")
    outbox.wait(paid, "DEAD", attempts=2)
    row = outbox.wait(sent, "PENDING", attempts=1)
    assert seconds_between(row["available_at"], row["updated_at"]) > 299  # an hour, up to the default max
    setting(outbox, "types.order.held", {"retry": {"max_attempts": 1}})

    def is_seen():  # what was tried before it is seen dies later, of attempts that are used up
        row = outbox.wait(outbox.put("d", {"n": 3}, type="order.held"), "DEAD")
        return row["attempts"] == 1

    wait_for(is_seen, "the new setting to be seen by the running relay")


def test_x2_a_relay_needs_no_more_than_its_role(postgres, postgres_store, outlog, outbox, receiver, relays):
    """Also for waking, sweeping, resizing and takeover."""
    outbox.run(
        "do $$ begin create role relay_login login password 'relay' in role outlog_relay; "
        "exception when duplicate_object then null; end $$"
    )
    apply(outlog, "relay: {wakeup: notify, lanes: 3}\nretention: {messages: 1s}")
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1)
    url = re.sub(r"//[^@/]*@?(?=[^@/]+/)", "//relay_login:relay@", postgres_store, count=1)
    id = outbox.put("d", {"n": 1}, key="k", idempotency_key="key-1")
    dead = outbox.put("d", {"n": 2}, max_attempts=1)
    relay = relays("a", store=url)
    wait_for(lambda: outbox.states() == {dead: "DEAD"}, lambda: f"all but the dead one to go: {outbox.states()}")
    assert receiver.count(id=id) == 2 and "permission" not in relay.said(), relay.said()
    assert outbox.run("select 1 from pg_stat_activity where usename = 'relay_login' and datname = current_database()")


# Waking up


def listening(outbox):
    """How many relays ask writers to notify them."""
    return outbox.one(
        "select count(*) as n from pg_locks where locktype = 'advisory' and classid = 28492 "
        "and objid = 2 and objsubid = 2 and mode = 'ShareLock'"
    )["n"]


def count_notifies(session):
    session.db.poll()
    count = len(session.db.notifies)
    session.db.notifies.clear()
    return count


def test_wakeup_notify_an_idle_relay_is_woken_and_nobody_else_is_notified(postgres_store, outbox, receiver, relays):
    """It polls every ten minutes: only a writer can have woken it."""
    outbox.destination("d", receiver)
    setting(outbox, "relay.wakeup", "notify")
    with outbox.session() as listener:
        listener.run("listen outlog")
        outbox.wait(outbox.put("d", {"n": 0}), "PENDING")
        assert count_notifies(listener) == 0, "nobody listens, nobody is notified"
        relays("a", poll="10m", lease="60s", threads=2)
        outbox.wait_drained()
        for n in range(1, 4):
            wait_for(lambda: listening(outbox) == 2, "the relay's threads to listen")
            outbox.wait(outbox.put("d", {"n": n}, key="k"), "PUBLISHED")
        assert 3 <= count_notifies(listener) <= 6


def test_wakeup_notify_a_writer_from_before_it_listened_is_waited_for(postgres_store, outbox, receiver, relays):
    """It polls until the last writer has ended that could not know that somebody listens."""
    outbox.destination("d", receiver)
    setting(outbox, "relay.wakeup", "notify")
    with outbox.session() as writer, outbox.session() as listener:
        listener.run("listen outlog")
        writer.begin()
        id = writer.put("d", {"n": 1})
        relays("a", poll="10m", lease="60s")
        wait_for(lambda: listening(outbox) == 1, "the relay to listen")
        writer.commit()
        outbox.wait(id, "PUBLISHED")
        assert count_notifies(listener) == 0


def test_wakeup_notify_a_retry_comes_in_its_time(postgres_store, outbox, receiver, relays):
    outbox.destination("d", receiver, retry={"base": "300ms", "jitter": 0, "max_attempts": 9})
    setting(outbox, "relay.wakeup", "notify")
    receiver.rule(500, attempt=1)
    relays("a", poll="10m", lease="60s")
    wait_for(lambda: listening(outbox) == 1, "the relay to listen")
    outbox.wait(outbox.put("d", {"n": 1}), "PUBLISHED", attempts=2)


def test_wakeup_a_commit_in_another_process_is_seen_between_polls(sqlite_store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    setting(outbox, "relay.wakeup", "notify")  # SQLite watches its file for any setting
    relays("a", poll="10m", lease="60s")
    for n in range(3):
        outbox.wait(outbox.put("d", {"n": n}), "PUBLISHED")


def test_l1_a_lease_is_renewed_also_between_rare_polls(store, outbox, receiver, relays):
    outbox.destination("d", receiver)
    relays("a", poll="30s", lease="2s")
    wait_for(lambda: not outbox.run("select 1 from {}lanes where owner is null"), "the lanes")
    epochs = outbox.run("select lane, epoch from {}lanes order by lane")
    beat = outbox.one("select heartbeat_at from {}relays")["heartbeat_at"]
    wait_for(
        lambda: seconds_between(outbox.one("select heartbeat_at from {}relays")["heartbeat_at"], beat) > 2.5,
        "a lease and a half",
    )
    assert outbox.run("select lane, epoch from {}lanes order by lane") == epochs
    assert lease_of(outbox) > 0


# Retention


@pytest.fixture
def kept(outbox, receiver, relays):
    """One message of each fate: a plain one, one that was retried, a dead one, one that waits."""
    outbox.destination("d", receiver, retry={"base": "10ms", "jitter": 0, "max_attempts": 2})
    outbox.destination("closed", receiver)
    outbox.run("update {}destinations set paused = true where name = 'closed'")
    receiver.rule(500, type="dies")
    receiver.rule(500, type="retried", attempt=1)
    ids = {
        type: outbox.put("d", {"n": 1}, key="k", type=type, idempotency_key=f"key-{type}", org_id=org)
        for type, org in (("plain", None), ("retried", "acme"), ("dies", None), ("second", None))
    }
    ids["waits"] = outbox.put("closed", {"n": 1}, idempotency_key="key-waits")
    ids["later"] = outbox.put("d", {"n": 1}, due_us=HOUR_US)
    relays("a")
    for type, state in (("plain", "PUBLISHED"), ("retried", "PUBLISHED"), ("dies", "DEAD"), ("second", "PUBLISHED")):
        outbox.wait(ids[type], state)
    return ids


def test_o10_published_messages_go_after_a_time_and_nothing_else(store, outlog, outbox, receiver, relays, kept):
    setting(outbox, "retention.messages", "1h")
    assert set(outbox.states()) == set(kept.values())
    setting(outbox, "retention.messages", "1s")
    left = {kept["dies"]: "DEAD", kept["waits"]: "PENDING", kept["later"]: "PENDING"}
    wait_for(lambda: outbox.states() == left, lambda: f"the old ones to go: {outbox.states()}")
    assert [
        str(row["event_id"])
        for row in outbox.run(
            "select o.event_id from {}parked p join {}outbox o on o.lane = p.lane and o.seq = p.seq "
            "where p.state = 'DEAD'"
        )
    ] == [kept["dies"]]
    assert outbox.one("select count(*) as n from {}parked where state = 'PUBLISHED'")["n"] == 0
    assert len(outbox.attempts(kept["dies"])) == 2
    assert outbox.one("select count(*) as n from {}attempts")["n"] == 2
    gone = outlog.run("outbox", "show", kept["plain"], check=False)
    assert gone.returncode == 1 and "not_found" in gone.stderr
    # The lane goes on above, the dead one can be brought back, and goes in its turn.
    receiver.forget()
    outlog.run("requeue", kept["dies"])
    wait_for(lambda: receiver.count(id=kept["dies"]) == 3, "the requeued one")
    new = outbox.put("d", {"n": 2}, key="k")
    wait_for(lambda: receiver.count(id=new) == 1, "a new message")
    wait_for(lambda: set(outbox.states()) == {kept["waits"], kept["later"]}, "the rest to go")


def test_i5_the_key_of_a_message_that_is_gone_is_still_taken(store, outlog, outbox, receiver, relays, kept):
    setting(outbox, "retention.messages", "1s")
    wait_for(lambda: kept["plain"] not in outbox.states() and kept["retried"] not in outbox.states(), "the old to go")
    again = outlog.run("send", "--to", "d", "--type", "plain", "--data", "{}", "--key", "key-plain", "--json").json()[0]
    assert again == {"event_id": kept["plain"], "duplicate": True}
    again = outlog.run(
        "send", "--to", "d", "--type", "plain", "--data", "{}", "--key", "key-retried", "--org", "acme", "--json"
    ).json()[0]
    assert again == {"event_id": kept["retried"], "duplicate": True}
    with pytest.raises(Exception, match="(?i)unique|used before"):
        outbox.put("d", {"n": 9}, idempotency_key="key-plain")
    assert receiver.count(id=kept["plain"]) == 1


def test_i1_old_answers_and_keys_are_swept_and_young_ones_stay(store, outlog, outbox, relays):
    """retention.idempotency: 24 h at least, whatever somebody writes into the table."""
    setting(outbox, "retention.idempotency", "72h")
    for hours in (1, 71, 73, 500):
        at = outbox.now(-hours * HOUR_US)
        outbox.run(
            "insert into {}idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, "
            f"response, created_at) values ('acme', 'a', 'append', %s, 'hash', '[]', {at})",
            f"k-{hours}",
        )
        outbox.run(
            "insert into {}outbox_keys (org_key, destination, idempotency_key, event_id, kept_at) "
            f"values ('acme', 'd', %s, '018f0000-0000-7000-8000-000000000000', {at})",
            f"k-{hours}",
        )
    relays("a")
    for table in ("idempotency_records", "outbox_keys"):
        wait_for(
            lambda: {row["idempotency_key"] for row in outbox.run(f"select idempotency_key from {{}}{table}")}
            == {"k-1", "k-71"},
            lambda: outbox.run(f"select * from {{}}{table}"),
        )


def test_o10_removal_keeps_up_with_traffic_and_spares_the_dead(store, outbox, receiver, relays):
    """More than a chunk of everything, under load: it all goes, but for what is DEAD, and nothing is lost."""
    old = outbox.now(-25 * HOUR_US)
    series = (
        "with recursive s(n) as (select 1 union all select n + 1 from s where n < 9000) "
        if outbox.is_sqlite
        else "with s(n) as (select generate_series(1, 9000)) "
    )
    outbox.run(
        f"{series} insert into {{}}idempotency_records (org_key, actor_id, endpoint, idempotency_key, request_hash, "
        f"response, created_at) select 'acme', 'a', 'append', 'k-' || n, 'hash', '[]', {old} from s"
    )
    outbox.destination("d", receiver, concurrency=64)
    outbox.destination("n", type="null")
    receiver.rule(400, type="dies")
    setting(outbox, "retention.messages", "1s")
    outbox.begin()
    for n in range(2500):
        outbox.put("n", {"n": n})
    outbox.commit()
    dead, ids = [outbox.put("d", {"n": n}, type="dies") for n in range(3)], []
    relays("a")

    def left():
        records = outbox.one("select count(*) as n from {}idempotency_records")["n"]
        return records, outbox.one("select count(*) as n from {}outbox where destination = 'n'")["n"]

    deadline = time.monotonic() + 90
    while sum(left()):
        assert time.monotonic() < deadline, f"what is left: {left()}"
        ids.append(outbox.put("d", {"n": len(ids)}, key=f"k-{len(ids) % 7}"))
        time.sleep(0.005)
    wait_for(lambda: set(outbox.states()) == set(dead), lambda: f"only the dead to be left: {len(outbox.states())}")
    assert set(outbox.states().values()) == {"DEAD"}
    assert sorted(receiver.ids(type="test.sent")) == sorted(ids)  # each once
    ranges = "select count(*) as n from {}batches"
    wait_for(lambda: outbox.one(ranges)["n"] <= 8, lambda: f"ranges of what is gone to go: {outbox.one(ranges)}")


def test_o10_nothing_at_or_above_the_cursor_goes(store, outbox, receiver, relays):
    """An open claim and what was parked stay, however old they are."""
    outbox.destination("d", receiver)
    setting(outbox, "retention.messages", "1s")
    receiver.rule("hang", type="hangs")
    first = outbox.put("d", {"n": 0}, key="a")
    hangs = outbox.put("d", {"n": 1}, key="b", type="hangs")
    behind = outbox.put("d", {"n": 2}, key="b")
    relays("a", lease="5s", patience="60s")
    wait_for(lambda: receiver.count(id=hangs) == 1, "the claim")
    wait_for(lambda: outbox.states().get(first) in (None, "CLAIMED"), "the first")
    before = outbox.lane(outbox.lane_for(hangs))
    wait_for(lambda: len(outbox.run("select 1 from {}relays")) == 1, "the relay")
    assert outbox.state(hangs)["state"] == "CLAIMED" and outbox.state(hangs)["attempts"] == 1
    assert outbox.state(behind)["state"] in ("CLAIMED", "PENDING") and before["head"] >= 1
    receiver.release()
    wait_for(lambda: not outbox.states(), lambda: f"all to go: {outbox.states()}")
    assert receiver.ids(key="b") == [hangs, behind]


# Another number of lanes


@pytest.fixture
def resize(outlog):
    return lambda count: apply(outlog, f"relay: {{lanes: {count}}}")


def generation(outbox, id):
    return outbox.one("select first_lane from {}lanes l join {}outbox o on o.lane = l.lane where o.event_id = %s", id)[
        "first_lane"
    ]


def test_resize_keeps_the_order_of_every_key(postgres_store, outbox, receiver, relays, history, resize):
    """Under load, with failures on the way, up and down again; judged by the checker."""
    outbox.destination("d", receiver)
    receiver.rule(500, attempt=1, probability=0.2)
    relays("a", threads=2)
    relays("b")
    writer = Writer(outbox, history)
    for n in range(240):
        if n in (60, 120, 180):
            resize({60: 16, 120: 3, 180: 8}[n])
        writer.send("d", {"n": n}, key=f"k-{n % 11}")
    writer.close()
    outbox.wait_drained()
    history.check(outbox, [receiver])
    assert outbox.one("select count(distinct lane) as n from {}outbox where lane >= 8")["n"] > 8
    assert outbox.one("select count(*) as n from {}lanes")["n"] == 8 + 16 + 3 + 8


def test_resize_a_key_waits_for_its_messages_in_older_lanes(postgres_store, outlog, outbox, receiver, relays, resize):
    outbox.destination("d", receiver, on_dead="hold")
    receiver.rule(404, key="held", times=1)
    relays("a")
    first = outbox.put("d", {"n": 1}, key="held")
    outbox.wait(first, "DEAD")
    resize(5)
    second, other = outbox.put("d", {"n": 2}, key="held"), outbox.put("d", {"n": 3}, key="other")
    third = outbox.put("d", {"n": 4}, key="held")
    outbox.wait(other, "PUBLISHED")
    assert generation(outbox, first) == 0 and generation(outbox, second) == generation(outbox, other) == 8
    wait_for(lambda: outbox.parked(second) and outbox.parked(third), "both to be parked behind the held one")
    assert receiver.ids(key="held") == [first]
    outlog.run("dead", "release", first)
    outbox.wait(third, "PUBLISHED", attempts=1)
    assert receiver.ids(key="held") == [first, second, third]
    assert outbox.state(first)["state"] == "DEAD"


def test_resize_a_replay_in_an_older_lane_is_waited_for_too(postgres_store, outlog, outbox, receiver, relays, resize):
    outbox.destination("d", receiver)
    relays("a")
    first = outbox.put("d", {"n": 1}, key="k")
    outbox.wait(first, "PUBLISHED")
    resize(3)
    outbox.wait(outbox.put("d", {"n": 2}, key="k"), "PUBLISHED")
    receiver.rule("hang", id=first)
    outlog.run("requeue", first)
    wait_for(lambda: receiver.count(id=first) == 2, "the replay")
    late = outbox.put("d", {"n": 3}, key="k")
    outbox.wait(outbox.put("d", {"n": 4}, key="other"), "PUBLISHED")
    wait_for(lambda: outbox.parked(late), "it to be parked")
    assert receiver.count(id=late) == 0
    receiver.release()
    outbox.wait(late, "PUBLISHED")


def test_resize_is_not_held_up_by_a_destination_that_is_down(postgres_store, outlog, outbox, receiver, relays, resize):
    outbox.destination("d", receiver)
    outbox.destination("down", receiver)
    outlog.run("destinations", "pause", "down")
    old = [outbox.put("down", {"n": n}, key=f"k-{n}") for n in range(20)]
    relays("a")
    wait_for(lambda: outbox.run("select 1 from {}lanes where owner is not null"), "the lanes")
    resize(4)
    outbox.wait(outbox.put("d", {"n": 1}), "PUBLISHED")
    new = outbox.put("down", {"n": 2}, key="k-3")
    assert generation(outbox, new) == 8 and {outbox.state(id)["attempts"] for id in old} == {0}
    outlog.run("destinations", "resume", "down")
    outbox.wait_drained()
    assert receiver.ids(key="k-3") == [old[3], new]


def test_resize_waits_for_writers_that_know_the_old_lanes(postgres_store, outlog, outbox, receiver, relays):
    outbox.destination("d", receiver)
    with outbox.session() as writer:
        writer.begin()
        old = writer.put("d", {"n": 1}, key="k")
        apply = outlog.start("apply", "-f", "-", stdin=subprocess.PIPE)
        apply.stdin.write("relay: {lanes: 2}")
        apply.stdin.close()
        apply.stdin = None
        wait_for(
            lambda: outbox.run("select 1 from pg_locks where not granted and relation = 'outlog.outbox'::regclass"),
            "apply to wait",
        )
        writer.commit()
    assert apply.wait(60) == 0
    new = outbox.put("d", {"n": 2}, key="k")
    assert (generation(outbox, old), generation(outbox, new)) == (0, 8)
    relays("a")
    outbox.wait(new, "PUBLISHED")
    assert receiver.ids() == [old, new]


def test_resize_has_its_bounds(store, outlog, outbox, resize):
    count = "select count(*) as n from {}lanes"
    if outbox.is_sqlite:
        resize(16)  # one writer, one lane, for any setting
        assert outbox.one(count)["n"] == 1
        return
    resize(200)
    resize(200)
    assert outbox.one(count)["n"] == 208
    refused = outlog.run("apply", "-f", "-", input="relay: {lanes: 100}", check=False)
    assert refused.returncode == 1 and "256" in refused.stderr
    assert outbox.one(count)["n"] == 208
    outlog.run("apply", "-f", "-", "--prune", input="relay: {}")
    assert outbox.one("select lane_count from {}lane_plan where is_current")["lane_count"] == 8


def test_resize_is_learnt_by_a_session_that_has_inserted_before(postgres_store, outbox, resize):
    """The lanes are constants in its plans; a repeatable read does not hold them either."""
    with outbox.session() as writer:
        old = [writer.put("d", {"n": n}, key=f"k{n}") for n in range(10)]
        writer.run("set default_transaction_isolation = 'repeatable read'")
        writer.begin()
        writer.run("select count(*) from {}lanes")
        resize(3)
        new = [writer.put("d", {"n": n}, key=f"k{n}") for n in range(10)]
        writer.commit()
    assert {generation(outbox, id) for id in old} == {0} and {generation(outbox, id) for id in new} == {8}
    assert {outbox.lane_for(id) for id in new} <= {8, 9, 10}


def test_l7_a_guarantee_is_learnt_by_a_session_that_has_inserted_before(store, outbox, receiver):
    def mode(id):
        return bool(outbox.one("select at_most_once from {}outbox where event_id = %s", id)["at_most_once"])

    outbox.destination("d", receiver)
    with outbox.session() as writer:
        assert [mode(writer.put("d", {"n": n})) for n in range(10)] == [False] * 10
        outbox.run("update {}destinations set guarantee = 'at_most_once' where name = 'd'")
        assert mode(writer.put("d", {"n": 1}))
        assert not mode(writer.put("elsewhere", {"n": 1}))
        outbox.run("update {}destinations set guarantee = 'at_least_once' where name = 'd'")
        assert not mode(writer.put("d", {"n": 1}))


# What a lane may hold, and when it may be taken


@known("one batch may park more than the limit (rule 40 changed who parks)", is_sure=False)
def test_6_6_beyond_so_many_parked_messages_the_lane_waits(store, outlog, outbox, receiver, relays):
    setting(outbox, "relay.parked", 5)
    outbox.destination("d", receiver)
    outbox.destination("down", receiver)
    outlog.run("destinations", "pause", "down")
    make = {name: (key for _, key in keys_in_lane(0, [name])) for name in ("d", "down")}
    key = next(make["down"])
    many = []
    for n in range(12):  # something that can go beside each: so the others are parked
        many.append(outbox.put("down", {"n": n}, key=key if n % 2 else next(make["down"])))
        outbox.put("d", {"n": n}, key=next(make["d"]))
    relay = relays("a")
    parked = "select count(*) as n from {}parked where destination = 'down'"  # others may be stragglers
    wait_for(lambda: outbox.one(parked)["n"] == 5, "five to be parked")
    is_alive(outbox, relay)
    is_alive(outbox, relay)
    assert outbox.one(parked)["n"] == 5
    assert receiver.count(destination="d") < 12
    outlog.run("destinations", "resume", "down")
    outbox.wait_drained()
    assert sorted(receiver.ids(destination="down")) == sorted(many)
    assert receiver.ids(key=key) == many[1::2]


def test_6_14_a_lane_whose_numbers_would_repeat_is_not_taken(store, outlog, outbox, receiver, relays):
    """As after a careless restore: new messages would be below the head and never be seen."""
    outbox.destination("d", receiver)
    key = next(keys_in_lane(0, ["d"]))[1]
    relay = relays("a")
    outbox.wait(outbox.put("d", {"n": 1}, key=key), "PUBLISHED")
    relay.term()
    assert relay.wait() == 0
    outbox.run("update {}lanes set head = 100 where lane = 0")
    relay = relays("b")
    wait_for(lambda: "lane 0: its sequence is behind" in relay.said(), relay.said)
    assert outbox.lane(0)["owner"] is None
    doctor = outlog.run("doctor", check=False)
    assert doctor.returncode == 1 and "lanes" in doctor.stdout and "behind" in doctor.stdout
    if not outbox.is_sqlite:  # the other lanes are well
        outbox.wait(outbox.put("d", {"n": 2}, key=next(keys_in_lane(1, ["d"]))[1]), "PUBLISHED")
    outbox.run(
        "update sqlite_sequence set seq = 100" if outbox.is_sqlite else "select setval('outlog.lane_0_seq', 100)"
    )
    outbox.wait(outbox.put("d", {"n": 3}, key=key), "PUBLISHED")
    assert outlog.run("doctor").returncode == 0


def test_6_13_an_unknown_server_s_clock_ends_no_lease(postgres_store, outbox, receiver, relays):
    """After a failover another clock rules: for a lease nobody takes what an owner may still have."""
    outbox.destination("d", receiver)
    receiver.rule("hang", attempt=1)
    old = relays("a", lease="30s")
    id = outbox.put("d", {"n": 1}, key="k")
    wait_for(lambda: receiver.count(id=id) == 1, "the request")
    old.kill()
    outbox.run("delete from {}relays")
    outbox.run("delete from {}owners")  # and nobody here can know that it is dead (rule 23)
    outbox.run("delete from {}servers")  # as if it had just been promoted
    outbox.run(f"update {{}}lanes set lease_until = {outbox.now(-1_000_000)}")  # by its own clock
    outbox.run("update {}lanes set owner = null, owner_name = null where lane <> %s", outbox.lane_for(id))
    new = relays("b", lease="30s")
    wait_for(lambda: len(outbox.run("select 1 from {}lanes where owner_name = 'b'")) == 7, "the free lanes")
    is_alive(outbox, new)
    is_alive(outbox, new)
    assert outbox.lane(outbox.lane_for(id))["owner_name"] == "a" and receiver.count(id=id) == 1
    outbox.run("update {}servers set met_at = met_at - interval '1 minute'")
    outbox.wait(id, "PUBLISHED", attempts=2)
