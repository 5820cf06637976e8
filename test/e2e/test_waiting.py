"""Nothing waits in silence (L7): what is due and not sent has a reason that every interface shows."""
import json
import re

from interfaces import connect, is_postgres
from lib.outbox import keys_in_lane, wait_for


def waiting(outlog):
    """{destination: reason}"""
    return {one["destination"]: one["reason"] for one in outlog.run("stats", "--json").json()[0]["waiting"]}


def wait_reason(outlog, destination, reason):
    wait_for(lambda: waiting(outlog).get(destination) == reason, lambda: f"{reason}: {waiting(outlog)}", pause=0.1)


def test_p6_an_undeclared_destination_is_named_everywhere(store, outlog, outbox, relays, serve):
    said = outlog.run("send", "--to", "bilking", "--type", "t", "--data", "{}")
    assert "no destination bilking" in said.stderr and "[unknown_destination]" in said.stderr
    relay = relays()
    wait_for(lambda: "bilking" in relay.said(), "the relay's word")
    wait_reason(outlog, "bilking", "unknown_destination")
    assert "unknown_destination" in outlog.run("doctor", check=False).stdout
    assert "nobody declared" in outlog.run("stats").stdout
    server = serve("--no-relay")
    (row,) = server.get("/v1/stats").json["waiting"]
    assert (row["destination"], row["reason"], row["count"]) == ("bilking", "unknown_destination", 1)
    metrics = server.get("/metrics").body.decode()
    assert re.search(
        r'outlog_oldest_due_seconds\{destination="bilking",lane="\d+",reason="unknown_destination"\}', metrics
    )
    assert relay.said().count("what=waiting") == 1, relay.said()
    outbox.destination("bilking", type="null")
    wait_for(lambda: waiting(outlog) == {}, lambda: waiting(outlog), pause=0.1)
    wait_for(lambda: "what=changed" in relay.said(), "the end of it in the log")


def test_p6_http_and_sql_warn_of_an_undeclared_destination(store, outlog, serve):
    server = serve("--no-relay")
    answer = server.post("/v1/messages", {"destination": "nowhere", "event_type": "t", "payload": {}})
    (warning,) = answer.json["warnings"]
    assert (warning["code"], warning["pointer"]) == ("unknown_destination", "/destination")
    assert answer.status == 201
    if is_postgres(store):
        connection = connect(store)
        with connection.cursor() as cursor:
            cursor.execute("select outlog.enqueue(destination => 'nowhere', event_type => 't', payload => '{}')")
        assert "unknown_destination" in connection.notices[-1]
        connection.close()


def test_p6_a_missing_name_of_the_environment_is_said(store, outlog, outbox, relays):
    outbox.destination("hook", type="webhook", url="https://a.example/${NOT_SET_HERE}")
    outbox.put("hook", {})
    relay = relays()
    wait_for(lambda: "NOT_SET_HERE" in relay.said(), lambda: relay.said())
    wait_reason(outlog, "hook", "unusable_destination")
    (row,) = outlog.run("stats", "--json").json()[0]["waiting"]
    assert "NOT_SET_HERE" in row["detail"]


def test_p6_until_idle_says_what_it_leaves(store, outlog, outbox):
    outbox.put("bilking", {})
    said = outlog.run("relay", "--until-idle").stderr
    assert re.search(r"1 wait for bilking: .*declared", said), said


def test_l7_each_reason_has_its_word(store, outlog, outbox, receiver, relays):
    outbox.destination("still", type="null")
    outbox.put("still", {})
    wait_reason(outlog, "still", "no_relay")
    outlog.run("destinations", "pause", "still")
    outbox.destination("broken", receiver, breaker={"failures": 1, "open": "1h"}, retry={"base": "1ms", "max": "1ms"})
    outbox.destination("keyed", receiver, retry={"base": "1h", "max": "1h"})
    receiver.rule(500)
    key = next(keys_in_lane(0, ["keyed"]))[1]
    outbox.put("keyed", {"n": 1}, key=key)
    outbox.put("keyed", {"n": 2}, key=key)
    outbox.put("broken", {})
    relays()
    wait_reason(outlog, "still", "paused")
    wait_reason(outlog, "keyed", "behind_key")
    wait_reason(outlog, "broken", "breaker_open")


def test_p12_a_lane_that_stands_still_is_seen(store, outlog, outbox, receiver, relays):
    outbox.destination("one", receiver, retry={"max_attempts": 1})
    receiver.rule(500, times=1)
    if outbox.is_sqlite:
        outbox.run("create trigger mine before insert on outlog_parked begin select raise(abort, 'no room'); end")
    else:
        outbox.run("create function mine() returns trigger language plpgsql as $$begin raise 'no room'; end$$")
        outbox.run("create trigger mine before insert on outlog.parked for each row execute function mine()")
    key = next(keys_in_lane(0, ["one"]))[1]
    outbox.put("one", {"n": 1}, key=key)
    relay = relays()
    wait_for(lambda: "stuck" in relay.said(), lambda: relay.said()[-2000:])
    outbox.put("one", {"n": 2}, key=key)
    wait_reason(outlog, "one", "lane_stuck")
    assert "no room" in json.dumps(outlog.run("stats", "--json").json()[0]["waiting"])
    outbox.run("drop trigger mine" if outbox.is_sqlite else "drop trigger mine on outlog.parked")
    wait_for(lambda: "moves again" in relay.said(), lambda: relay.said()[-2000:])
    wait_for(lambda: waiting(outlog) == {}, lambda: waiting(outlog), pause=0.1)


def test_l7_a_store_in_which_nothing_waits_says_nothing(store, outlog):
    assert outlog.run("stats", "--json").json()[0]["waiting"] == []
    assert "waiting" not in outlog.run("doctor", check=False).stdout
