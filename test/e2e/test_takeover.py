"""Takeover before the lease ends (L9; rules 23 to 31 of docs/lanes.md).

Leases are long here, minutes: whatever is taken over within a test's deadline was taken because its
owner's end was known. What must wait for the lease is asked after the candidate has looked several times.
"""
import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

from lib.outbox import DEADLINE, keys_in_lane, wait_for

LANE = 0
LEASE = "10m"


@pytest.fixture
def one(outbox, receiver):
    """A webhook `one` that was there for long, and fresh keys of one lane: one()."""
    keys = keys_in_lane(LANE, ["one"])
    age(outbox, "one", receiver)
    return lambda: next(keys)[1]


def age(outbox, name, receiver=None, timeout="2s", **settings):
    """A destination that was not changed lately."""
    if receiver or "command" in settings:
        settings["timeout"] = timeout
    outbox.destination(name, receiver, **settings)
    outbox.run(f"update {{}}destinations set updated_at = {outbox.now(-86400_000_000)} where name = %s", name)


def owner_of(outbox, lane=LANE):
    return outbox.lane(lane)["owner_name"]


def run_of(outbox, name):
    """The id of a relay's run; the others of the process have another kind."""
    rows = outbox.run("select run from {}owners where kind = 'relay' and name = %s", name)
    return rows[0]["run"] if rows else None


def wait_owned(outbox, name, lane=LANE, seconds=DEADLINE):
    wait_for(lambda: owner_of(outbox, lane) == name, lambda: f"{name} to own the lane: {outbox.lane(lane)}", seconds)


def wait_looked(outbox, name, beats=4):
    """Until a relay was seen to work for a few heartbeats: it has looked at the others."""
    seen = set()

    def has_looked():
        rows = outbox.run("select heartbeat_at from {}relays where name = %s", name)
        seen.update(str(row["heartbeat_at"]) for row in rows)
        return len(seen) > beats

    wait_for(has_looked, lambda: f"heartbeats of {name}: {seen}")


def run_file(outbox, run):
    folder = outbox.url[len("sqlite:") :] + "-runs" if outbox.is_sqlite else os.environ["RUNTIME_DIRECTORY"]
    return pathlib.Path(folder) / run


def send_now(outbox, receiver, key, to="one"):
    """A message of a fresh key must be delivered."""
    id = outbox.put(to, {"fresh": True}, key=key)
    wait_for(
        lambda: receiver.count(id=id) > 0, lambda: f"{id}: {outbox.state(id)} {outbox.run('select * from {}lanes')}"
    )
    outbox.wait(id, "PUBLISHED")


# 23: a known death


def test_l9_a_killed_relay_is_replaced_before_its_lease_ends(store, outbox, receiver, relays, one):
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    first.kill()
    relays("b", lease=LEASE)
    send_now(outbox, receiver, one())
    assert owner_of(outbox) == "b"


def test_l9_a_relay_beside_takes_all_lanes_of_a_killed_one(store, outbox, receiver, relays, one):
    first, second = relays("a", lease=LEASE), None
    send_now(outbox, receiver, one())
    second = relays("b", lease=LEASE)
    wait_looked(outbox, "b")
    first.kill()

    def names():
        return {row["owner_name"] for row in outbox.run("select owner_name from {}lanes")}

    wait_for(lambda: names() == {"b"}, lambda: f"b to own every lane: {outbox.run('select * from {}lanes')}")
    send_now(outbox, receiver, one())
    assert second.is_running()


def test_l9_an_unreaped_zombie_is_dead(store, outbox, receiver, relays, one):
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    os.kill(first.pid, signal.SIGKILL)
    wait_for(lambda: first.status() == "Z", "the zombie")
    relays("b", lease=LEASE)
    send_now(outbox, receiver, one())
    assert first.status() == "Z"


def test_l9_a_stopped_relay_keeps_its_lane_and_sends_when_it_goes_on(store, outbox, receiver, relays, one):
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    first.freeze()
    id = outbox.put("one", {"n": 1}, key=one())
    relays("b", lease=LEASE)
    wait_looked(outbox, "b")
    assert owner_of(outbox) == "a" and receiver.count(id=id) == 0
    first.thaw()
    outbox.wait(id, "PUBLISHED", attempts=1)
    assert owner_of(outbox) == "a" and receiver.count(id=id) == 1


def missing(outbox, run):
    run_file(outbox, run).unlink()


def another(outbox, run):
    path = run_file(outbox, run)
    path.rename(path.with_suffix(".old"))
    path.touch(mode=0o600)


def another_boot(outbox, run):
    outbox.run("update {}owners set boot_id = %s where run = %s", "00000000-0000-4000-8000-000000000000", run)


def older_binary(outbox, run):
    outbox.run("delete from {}owners where run = %s", run)


@pytest.mark.parametrize("change", [missing, another, another_boot, older_binary])
def test_l9_without_the_very_file_only_the_lease_counts(store, outbox, receiver, relays, one, change):
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    change(outbox, run_of(outbox, "a"))
    outbox.run("update {}owners set lock_key = null")  # nor does its session tell
    first.kill()
    id = outbox.put("one", {"n": 1}, key=one())
    relays("b", lease=LEASE)
    wait_looked(outbox, "b")
    assert owner_of(outbox) == "a" and receiver.count(id=id) == 0
    outbox.bury(first)
    outbox.wait(id, "PUBLISHED")


def test_l9_no_run_files_where_others_may_write_or_off_local_disks(store, outbox, receiver, relays, one, tmp_path):
    if outbox.is_sqlite:
        folder = pathlib.Path(outbox.url[len("sqlite:") :] + "-runs")
    else:
        folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    relays("a", lease=LEASE, env={"RUNTIME_DIRECTORY": str(folder)})
    send_now(outbox, receiver, one())
    assert [row["inode"] for row in outbox.run("select inode from {}owners")] == [None] * 2  # the relay, the sinks
    assert list(folder.iterdir()) == []


def test_l9_takeover_lease_waits_for_the_lease(store, outlog, outbox, receiver, relays, one):
    outlog.run("apply", "-f", "-", input=json.dumps({"relay": {"takeover": "lease"}}))
    age(outbox, "one", receiver)
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    assert outbox.run("select * from {}owners") == []
    first.kill()
    relays("b", lease=LEASE)
    wait_looked(outbox, "b")
    assert owner_of(outbox) == "a"


def test_l9_a_relay_that_stops_cleanly_leaves_neither_row_nor_file(store, outbox, receiver, relays, one):
    relay = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    files = [run_file(outbox, row["run"]) for row in outbox.run("select run from {}owners")]
    assert len(files) == 2 and all(file.exists() for file in files)
    relay.term()
    assert relay.wait() == 0
    assert outbox.run("select * from {}owners") == [] and not any(file.exists() for file in files)


def test_l9_who_notes_a_death_removes_the_file(store, outbox, receiver, relays, one):
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    file = run_file(outbox, run_of(outbox, "a"))
    first.kill()
    assert file.exists()
    relays("b", lease=LEASE)
    send_now(outbox, receiver, one())
    wait_for(lambda: not file.exists(), "the file to be removed")


# 24, 25: what the dead one had sent


def hang_and_kill(outbox, receiver, relays, key, lease="60s", **how):
    """A message that its receiver holds when its relay is killed; (id, relay, time)."""
    receiver.rule("hang", key=key, times=1)
    first = relays("a", lease=lease, **how)
    id = outbox.put("one", {"n": 1}, key=key)
    wait_for(lambda: receiver.count(id=id) == 1, lambda: f"the request of {id}: {outbox.state(id)}")
    run = run_of(outbox, "a")
    killed = time.monotonic()
    first.kill()
    return id, run, killed


def test_24_what_may_be_on_its_way_waits_and_others_go_at_once(store, outbox, receiver, relays, one):
    key = one()
    id, run, killed = hang_and_kill(outbox, receiver, relays, key, patience="60s")
    behind = outbox.put("one", {"n": 2}, key=key)
    relays("b", lease="60s")
    send_now(outbox, receiver, one())  # another key of the same lane
    row = outbox.parked(id)
    if receiver.count(id=id) == 1:  # unless this machine was slower than the timeout
        assert (row["state"], row["attempts"], row["claimed_by"]) == ("CLAIMED", 1, run)
        assert receiver.count(id=behind) == 0
    outbox.wait(id, "PUBLISHED", attempts=2)
    outbox.wait(behind, "PUBLISHED")
    again = receiver.of(id=id)[1]
    assert again.at - killed >= 2 + 60 / 15  # its timeout and the margin: never two copies on the wire
    assert receiver.of(id=behind)[0].at >= again.at


def test_24_a_destination_that_was_just_changed_is_waited_for_by_the_lease(store, outbox, receiver, relays, one):
    id, run, _ = hang_and_kill(outbox, receiver, relays, one(), lease="10m", patience="60s")
    outbox.run(f"update {{}}destinations set updated_at = {outbox.now()}")
    relays("b", lease="10m")
    send_now(outbox, receiver, one())
    left = outbox.one(
        "select (julianday(lease_until) - julianday('now')) * 86400 as s from {}parked where state = 'CLAIMED'"
        if outbox.is_sqlite
        else "select extract(epoch from lease_until - now()) as s from {}parked where state = 'CLAIMED'"
    )["s"]
    assert left > 300


def test_24_at_most_once_is_claimed_until_it_is_surely_over_and_then_dead(store, outlog, outbox, receiver, relays, one):
    age(outbox, "one", receiver, guarantee="at_most_once")
    key = one()
    id, run, killed = hang_and_kill(outbox, receiver, relays, key, lease="2m", patience="60s")
    relays("b", lease="2m")
    send_now(outbox, receiver, one())
    row = outbox.parked(id)
    assert (row["state"], row["claimed_by"], row["unsent"]) == ("CLAIMED", run, 0)
    refused = outlog.run("requeue", id, check=False)
    assert refused.returncode != 0 and outbox.state(id)["state"] == "CLAIMED", refused
    outbox.wait(id, "DEAD", attempts=1)
    assert time.monotonic() - killed >= 2 + 120 / 15 and receiver.count(id=id) == 1


def test_24_a_crash_does_not_use_the_budget(store, outbox, receiver, relays, one):
    age(outbox, "one", receiver, retry={"base": "10ms", "max": "10ms", "jitter": 0, "max_attempts": 2})
    key = one()
    id, *_ = hang_and_kill(outbox, receiver, relays, key, lease="30s", patience="60s")
    receiver.rule(500, key=key, times=1)
    relays("b", lease="30s")
    outbox.wait(id, "PUBLISHED", attempts=3)


def test_25_a_retry_on_the_wire_waits_for_its_timeout_only(store, outbox, receiver, relays, one):
    key = one()
    receiver.rule("hang", key=key, attempt=2, times=1)
    receiver.rule(500, key=key, attempt=1, times=1)
    first = relays("a", lease="10m")
    id = outbox.put("one", {"n": 1}, key=key)
    wait_for(lambda: receiver.count(id=id) == 2, "the retry")
    first.kill()
    relays("b", lease="10m")
    wait_owned(outbox, "b")
    left = outbox.one(
        "select (julianday(lease_until) - julianday('now')) * 86400 as s from {}parked"
        if outbox.is_sqlite
        else "select extract(epoch from lease_until - now()) as s from {}parked"
    )["s"]
    assert left < 2 + 600 / 15 + 1
    receiver.release()
    outbox.bury(first)


# 23: the other owners

SESSION = "u-1:helper:t-1"


def configured(outlog, **config):
    outlog.run("apply", "-f", "-", input=json.dumps({"relay": {"lease": LEASE}, **config}))


def ask_of_a_killed_daemon(serve, chat, agents):
    """A question whose answer has begun when its daemon is killed."""
    first = serve()
    asked = chat(first, SESSION)
    asked.say("r-1", "hello")
    wait_for(agents.is_asked, "the agent to be asked")
    first.kill()


class Held:
    """An HTTP agent that never ends its first answer."""

    def __init__(self, agent):
        self.questions, self.listener = [], agent(self.words)
        self.settings = {"type": "http", "url": self.listener.url}

    def words(self, question):
        self.questions.append(question)
        yield f"answer {len(self.questions)}"
        if len(self.questions) == 1:
            yield 60

    def is_asked(self):
        return len(self.questions) > 0


class Program:
    """The same as a program; the file of its process."""

    def __init__(self, folder):
        self.pids = folder / "pids"
        script = (
            f'read q; echo $$ >>{self.pids}; [ $(wc -l <{self.pids}) = 1 ] && sleep 600; echo \'{{"token":"done"}}\''
        )
        self.settings = {"type": "exec", "command": ["/bin/sh", "-c", script], "timeout": "15m"}

    def is_asked(self):
        return self.pids.exists() and self.pids.read_text().count("\n") > 0

    def processes(self):
        return [int(line) for line in self.pids.read_text().split()]


@pytest.mark.parametrize("kind", ["http", "exec"])
def test_l9_a_chat_answer_goes_on_after_its_daemon_was_killed(store, outlog, serve, chat, agent, tmp_path, kind):
    agents = Held(agent) if kind == "http" else Program(tmp_path)
    configured(outlog, agents={"helper": agents.settings})
    ask_of_a_killed_daemon(serve, chat, agents)
    again = chat(serve(), SESSION)
    assert again.next("send_message")["content"] in ("answer 2", "done")


def test_l9_a_program_ends_with_its_daemon(store, outlog, serve, chat, tmp_path):
    agents = Program(tmp_path)
    configured(outlog, agents={"helper": agents.settings})
    ask_of_a_killed_daemon(serve, chat, agents)
    [pid] = agents.processes()
    wait_for(lambda: not pathlib.Path(f"/proc/{pid}").exists(), "the agent to end")


def test_l9_an_exec_child_ends_with_its_relay(store, outbox, relays, tmp_path):
    pids = tmp_path / "pids"
    age(outbox, "run", type="exec", command=["/bin/sh", "-c", f"echo $$ >>{pids}; exec sleep 600"], timeout="15m")
    relay = relays("a", lease="30m")
    outbox.put("run", {"n": 1})
    wait_for(lambda: pids.exists() and pids.read_text().endswith("\n"), "the program")
    relay.kill()
    wait_for(lambda: not pathlib.Path(f"/proc/{pids.read_text().strip()}").exists(), "the program to end")


PROJECTION = {
    "seen": {
        "version": 1,
        "tables": ["seen"],
        "create": "create table if not exists seen (id bigint primary key)",
        "on": {"order.created": ["insert into seen (id) values (:event_id)"]},
    }
}


def append(outlog):
    done = outlog.run(
        *("append", "--org", "acme", "--aggregate", "order/o-1", "--type", "order.created", "--data", "{}", "--json")
    )
    return done.json()[0]["event_id"]


def is_applied(outbox, event_id):
    return outbox.run("select last_applied_event_id as at from {}projection_checkpoints")[0]["at"] >= event_id


def test_l9_a_projection_is_taken_from_a_killed_projector(store, outlog, outbox):
    configured(outlog, projections=PROJECTION)
    run = ("projections", "run", "--lease", LEASE)
    first = outlog.start(*run)
    at = append(outlog)
    wait_for(lambda: is_applied(outbox, at), "the first event to be applied")
    first.kill()
    first.wait()
    outlog.start(*run)
    at = append(outlog)
    wait_for(lambda: is_applied(outbox, at), "an event after the kill to be applied")


def test_l9_a_stopped_projector_keeps_its_projection(store, outlog, outbox):
    configured(outlog, projections=PROJECTION)
    run = ("projections", "run", "--lease", LEASE)
    first = outlog.start(*run)
    at = append(outlog)
    wait_for(lambda: is_applied(outbox, at), "the first event to be applied")
    owner = outbox.one("select owner from {}projection_checkpoints")["owner"]
    first.send_signal(signal.SIGSTOP)
    second = outlog.start(*run, "--until-idle")
    at = append(outlog)
    with contextlib.suppress(subprocess.TimeoutExpired):  # it waits for what it may not take
        second.wait(3)
    assert outbox.one("select owner from {}projection_checkpoints")["owner"] == owner and not is_applied(outbox, at)
    first.send_signal(signal.SIGCONT)
    wait_for(lambda: is_applied(outbox, at), "the stopped one to go on")


def sinks_to(outbox, outlog, receiver):
    outlog.run(
        "apply",
        "-f",
        "-",
        input=json.dumps(
            {
                "relay": {"lease": "60s"},
                "destinations": {
                    "log": {"type": "webhook", "url": receiver.url("log"), "allow_private": True, "timeout": "2s"}
                },
                "sinks": {"copy": {"to": "log"}},
            }
        ),
    )
    for table in ("destinations", "settings"):
        outbox.run(f"update {{}}{table} set updated_at = {outbox.now(-86400_000_000)}")


def test_l9_a_sink_is_taken_from_a_killed_relay_and_waits_for_the_wire(store, outlog, outbox, receiver, relays):
    sinks_to(outbox, outlog, receiver)
    first = relays("a", lease="60s")
    append(outlog)
    wait_for(lambda: receiver.count() == 1, "the first event")
    wait_for(lambda: outbox.one("select owner_name as o from {}sinks")["o"] == "a", "the sink's owner")
    receiver.rule("hang", times=1)
    append(outlog)
    wait_for(lambda: receiver.count() == 2, "the second event")
    killed = time.monotonic()
    first.kill()
    relays("b", lease="60s")
    wait_for(lambda: receiver.count() == 3, lambda: f"the event again: {outbox.run('select * from {}sinks')}")
    hung, again = receiver.of()[1:3]
    assert hung.id == again.id and again.at - killed >= 2 + 60 / 15
    assert outbox.one("select owner_name as o from {}sinks")["o"] == "b"


# 26 to 29: the session's lock (PostgreSQL)


def apart(tmp_path, name):
    """The environment of a relay on another machine: it has run files of its own."""
    (tmp_path / name).mkdir()
    return {"RUNTIME_DIRECTORY": str(tmp_path / name)}


def backend_of(outbox, name):
    """The server process that holds the lock of a relay."""
    rows = outbox.run(
        "select l.pid from outlog.owners o join pg_locks l on l.locktype = 'advisory' and l.objsubid = 1 and l.granted"
        " and (l.classid::bigint << 32 | l.objid::bigint) = o.lock_key where o.kind = 'relay' and o.name = %s",
        name,
    )
    return rows[0]["pid"] if rows else None


def key_of(outbox, name):
    return outbox.one("select lock_key from {}owners where kind = 'relay' and name = %s", name)["lock_key"]


def test_26_a_relay_killed_on_another_machine_is_replaced_before_its_lease_ends(
    postgres_store, outbox, receiver, relays, one, tmp_path
):
    first = relays("a", lease=LEASE, env=apart(tmp_path, "a"))
    send_now(outbox, receiver, one())
    relays("b", lease=LEASE, env=apart(tmp_path, "b"))
    first.kill()
    send_now(outbox, receiver, one())
    wait_owned(outbox, "b")


def test_26_27_an_owner_whose_session_was_ended_takes_another_key_and_keeps_its_lanes(
    postgres_store, outbox, receiver, relays, one, tmp_path
):
    relays("a", lease=LEASE, env=apart(tmp_path, "a"))
    send_now(outbox, receiver, one())
    relays("b", lease=LEASE, env=apart(tmp_path, "b"))
    wait_looked(outbox, "b")
    for _ in range(5):
        key, epoch = key_of(outbox, "a"), outbox.lane(LANE)["epoch"]
        outbox.run("select pg_terminate_backend(%s)", wait_for(lambda: backend_of(outbox, "a"), "its lock"))
        wait_for(lambda: key_of(outbox, "a") != key and backend_of(outbox, "a"), "a new key")
        send_now(outbox, receiver, one())
    requests = receiver.of()
    assert len({one.id for one in requests}) == len(requests) and epoch == outbox.lane(LANE)["epoch"]


def test_26_28_a_stopped_owner_whose_session_ends_is_replaced_and_sends_nothing_more(
    postgres_store, outbox, receiver, relays, one, tmp_path
):
    first = relays("a", lease=LEASE, env=apart(tmp_path, "a"))
    send_now(outbox, receiver, one())
    relays("b", lease=LEASE, env=apart(tmp_path, "b"))
    wait_looked(outbox, "b")
    pid = backend_of(outbox, "a")
    first.freeze()
    outbox.run("select pg_terminate_backend(%s)", pid)
    wait_owned(outbox, "b")
    ids = [outbox.put("one", {"n": n}, key=one()) for n in range(20)]
    first.thaw()
    for id in ids:
        outbox.wait(id, "PUBLISHED", attempts=1)
    wait_for(lambda: backend_of(outbox, "a"), "the former owner to have a session again")
    assert [receiver.count(id=id) for id in ids] == [1] * 20


def test_26_a_pooled_connection_holds_no_lock(postgres_store, outbox, receiver, relays, one):
    """Without a key in its row nobody takes from it before its lease (test_pgbouncer.py has the pooler)."""
    first = relays("a", lease=LEASE)
    send_now(outbox, receiver, one())
    assert key_of(outbox, "a") >> 48 == 28493 and backend_of(outbox, "a")
    assert first.is_running()
