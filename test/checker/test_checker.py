"""The checker catches what it is there for: one lie in a true history, and each lie is found."""
import copy
import json
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import check  # noqa: E402

ROW = {
    "from": "store",
    "table": "outbox_state",
    "destination": "d",
    "state": "PUBLISHED",
    "attempts": 1,
    "claimed_at": None,
    "claimed_by": None,
    "published_at": "2026-01-01",
    "last_error": None,
    "available_at": None,
    "held": False,
    "lane": 0,
}


def true_history():
    """Four messages of one key and one of none; the second was refused once; one was rolled back."""
    lines = [
        {"from": "receiver", "serves": "d"},
        {"from": "store", "table": "destinations", "name": "d", "guarantee": "at_least_once"},
        {"from": "store", "table": "lanes", "lane": 0, "head": 5},
    ]
    for n, id in enumerate("abcde", 1):
        key = "k" if id != "e" else None
        lines += [
            {
                "from": "appender",
                "what": "invoke",
                "t": n,
                "id": id,
                "destination": "d",
                "key": key,
                "body": f"body-{id}",
            },
            {"from": "appender", "what": "ok", "t": n + 0.5, "id": id},
            {**ROW, "event_id": id, "seq": n, "ordering_key": key, "body": f"body-{id}"},
        ]
    lines += [
        {"from": "appender", "what": "invoke", "t": 6, "id": "r", "destination": "d", "key": "k", "body": "body-r"},
        {"from": "appender", "what": "rolled_back", "t": 6.5, "id": "r"},
    ]
    row(lines, "b").update(attempts=2)
    lines.append(
        {"from": "store", "table": "parked", "lane": 0, "seq": 2, "state": "PUBLISHED", "attempts": 2, "unsent": 0}
    )
    for seq, attempt, outcome in (
        (1, 1, "ok"),
        (2, 1, "failed"),
        (2, 2, "ok"),
        (3, 1, "ok"),
        (4, 1, "ok"),
        (5, 1, "ok"),
    ):
        lines.append(
            {"from": "store", "table": "attempts", "lane": 0, "seq": seq, "attempt": attempt, "outcome": outcome}
        )
    for n, (id, attempt, answer) in enumerate(
        (("a", 1, 200), ("b", 1, 500), ("b", 2, 200), ("c", 1, 200), ("d", 1, 204), ("e", 1, 200)), 1
    ):
        lines.append(
            {
                "from": "receiver",
                "t": 10.0 + n,
                "n": n,
                "id": id,
                "destination": "d",
                "attempt": attempt,
                "body": f"body-{id}",
                "answer": answer,
                "ended": 10.5 + n,
                "replay": False,
            }
        )
    lines += [
        {"from": "store", "table": "batches", "lane": 0, "from_seq": 1, "to_seq": 3},
        {"from": "store", "table": "batches", "lane": 0, "from_seq": 4, "to_seq": 5},
    ]
    return lines


def row(lines, id, table="outbox_state"):
    if table == "outbox_state":
        return next(one for one in lines if one.get("table") == table and one["event_id"] == id)
    seq = row(lines, id)["seq"]
    return next(one for one in lines if one.get("table") == table and one["seq"] == seq)


def arrivals(lines, id):
    return [one for one in lines if one["from"] == "receiver" and one.get("id") == id]


def fault(t):
    return {"from": "fault", "what": "kill", "t": t}


def verdict(lines):
    """The promises that were broken."""
    report = check.check(copy.deepcopy(lines), True)
    assert report["kept"] == (not report["broken"])
    return {one["promise"] for one in report["broken"]}


# One function for each lie: it changes a true history and names the promise that it breaks.

LIES = []


def lie(promise):
    def add(function):
        LIES.append(pytest.param(function, promise, id=function.__name__))
        return function

    return add


@lie("lost")
def a_delivery_is_dropped(lines):
    lines.remove(arrivals(lines, "c")[0])


@lie("lost")
def a_committed_message_is_gone(lines):
    lines.remove(row(lines, "e"))


@lie("lost")
def published_without_delivery(lines):
    arrivals(lines, "e")[0]["answer"] = 500


@lie("lost")
def dead_without_a_reason(lines):
    row(lines, "e").update(state="DEAD", published_at=None)


@lie("lost")
def claimed_for_ever(lines):
    row(lines, "e").update(state="CLAIMED", published_at=None, claimed_at="x", claimed_by="y")


@lie("lost")
def pending_without_a_reason(lines):
    row(lines, "e").update(state="PENDING", published_at=None, attempts=0)
    lines.remove(arrivals(lines, "e")[0])
    lines.remove(row(lines, "e", "attempts"))


@lie("order")
def two_are_swapped(lines):
    one, other = arrivals(lines, "c")[0], arrivals(lines, "d")[0]
    one["t"], other["t"] = other["t"], one["t"]
    one["ended"], other["ended"] = other["ended"], one["ended"]


@lie("order")
def one_passes_a_retry(lines):
    """c arrives between the two attempts of b."""
    arrivals(lines, "c")[0].update(t=12.6, ended=12.7)


@lie("order")
def one_passes_a_message_that_waits(lines):
    row(lines, "c").update(state="PENDING", published_at=None, attempts=0, last_error="no luck")
    lines.remove(arrivals(lines, "c")[0])
    lines.remove(row(lines, "c", "attempts"))


@lie("phantom")
def a_delivery_is_forged(lines):
    lines.append({**arrivals(lines, "e")[0], "id": "x", "n": 99, "t": 30})


@lie("phantom")
def a_rolled_back_one_is_delivered(lines):
    lines.append({**arrivals(lines, "e")[0], "id": "r", "n": 99, "t": 30, "body": "body-r"})


@lie("phantom")
def a_rolled_back_one_is_stored(lines):
    lines.append(
        {
            **row(lines, "e"),
            "event_id": "r",
            "seq": 6,
            "body": "body-r",
            "state": "PENDING",
            "attempts": 0,
            "published_at": None,
            "last_error": "waits",
        }
    )


@lie("attempts")
def an_attempt_is_repeated(lines):
    arrivals(lines, "b")[1]["attempt"] = 1


@lie("attempts")
def an_attempt_is_not_counted(lines):
    arrivals(lines, "e")[0]["attempt"] = 2


@lie("attempts")
def an_attempt_row_is_missing(lines):
    lines.remove(row(lines, "b", "attempts"))


@lie("attempts")
def an_attempt_row_is_beyond(lines):
    lines.append({**row(lines, "e", "attempts"), "attempt": 2, "outcome": "failed"})


@lie("attempts")
def sent_before_it_was_counted(lines):
    row(lines, "e").update(attempts=0)


@lie("bytes")
def wrong_bytes_arrive(lines):
    arrivals(lines, "e")[0]["body"] = "other"


@lie("bytes")
def wrong_bytes_are_stored(lines):
    row(lines, "e")["body"] = "other"


@lie("bytes")
def it_arrives_elsewhere(lines):
    arrivals(lines, "e")[0]["destination"] = "elsewhere"


@lie("duplicate")
def delivered_twice_without_a_fault(lines):
    row(lines, "e").update(attempts=2)
    lines.append({**arrivals(lines, "e")[0], "attempt": 2, "n": 99, "t": 30, "ended": 31})


@lie("once")
def at_most_once_twice(lines):
    next(one for one in lines if one.get("table") == "destinations")["guarantee"] = "at_most_once"
    lines.append(fault(17))
    row(lines, "e").update(attempts=2)
    lines.append({**arrivals(lines, "e")[0], "attempt": 2, "n": 99, "t": 18, "ended": 19})


@lie("wire")
def two_of_a_key_at_once(lines):
    arrivals(lines, "c")[0]["ended"] = 15.4


@lie("state")
def claimed_at_while_published(lines):
    row(lines, "e")["claimed_at"] = "2026-01-01"


@lie("state")
def published_at_while_dead(lines):
    row(lines, "e").update(state="DEAD", last_error="why")


@lie("state")
def no_published_at(lines):
    row(lines, "e")["published_at"] = None


@lie("state")
def an_unknown_state(lines):
    row(lines, "e")["state"] = "SENT"


@lie("state")
def the_parked_row_disagrees(lines):
    row(lines, "b", "parked")["attempts"] = 1


@lie("state")
def no_batch_holds_it(lines):
    lines.remove(lines[-1])


@lie("state")
def a_batch_is_recorded_twice(lines):
    lines.append(dict(lines[-1]))


@lie("state")
def published_above_the_head(lines):
    next(one for one in lines if one.get("table") == "lanes")["head"] = 4


@lie("state")
def parked_without_a_message(lines):
    lines.append({**row(lines, "b", "parked"), "seq": 77})


@lie("state")
def ok_and_dead(lines):
    row(lines, "e").update(state="DEAD", published_at=None, last_error="why")


def test_a_true_history_is_kept():
    report = check.check(true_history(), True)
    assert report["kept"], report["broken"]
    assert report["counts"] == {
        "appended": {"ok": 5, "rolled_back": 1},
        "states": {"PUBLISHED": 5},
        "arrivals": 6,
        "delivered": 5,
        "duplicates": 0,
        "faults": 0,
        "flags": 0,
    }


@pytest.mark.parametrize("tell, promise", LIES)
def test_a_lie_is_caught(tell, promise):
    lines = true_history()
    tell(lines)
    assert promise in verdict(lines)


def test_a_duplicate_after_a_crash_is_counted_not_blamed():
    lines = true_history()
    row(lines, "e").update(attempts=2)
    lines += [fault(16.2), {**arrivals(lines, "e")[0], "attempt": 2, "n": 99, "t": 18, "ended": 19}]
    lines.append(
        {"from": "store", "table": "parked", "lane": 0, "seq": 5, "state": "PUBLISHED", "attempts": 2, "unsent": 0}
    )
    report = check.check(lines, True)
    assert report["kept"] and report["counts"]["duplicates"] == 1, report["broken"]


def test_an_unknown_answer_may_be_repeated():
    lines = true_history()
    arrivals(lines, "b")[0]["answer"] = "reset"
    assert verdict(lines) == set()


def test_a_dead_one_may_be_passed_and_is_flagged():
    lines = true_history()
    row(lines, "c").update(state="DEAD", published_at=None, last_error="HTTP 404")
    row(lines, "c", "attempts")["outcome"] = "failed"
    arrivals(lines, "c")[0]["answer"] = 404
    report = check.check(lines, True)
    assert report["kept"] and report["counts"]["flags"], report["broken"]


def test_concurrent_writers_of_a_key_get_either_order():
    lines = true_history()
    next(one for one in lines if one.get("id") == "c" and one.get("what") == "ok")["t"] = 4.9
    two_are_swapped(lines)
    assert verdict(lines) == set()


def test_an_unknown_append_may_be_there_or_not():
    lines = true_history()
    next(one for one in lines if one.get("id") == "r" and one["what"] == "rolled_back")["what"] = "unknown"
    assert verdict(lines) == set()
    next(one for one in lines if one.get("id") == "e" and one.get("what") == "ok")["what"] = "unknown"
    assert verdict(lines) == set()


def test_the_program_says_it_by_its_exit_code():
    def run(lines):
        text = "\n".join(map(json.dumps, lines))
        return subprocess.run([sys.executable, check.__file__, "--drained"], input=text, text=True, capture_output=True)

    assert run(true_history()).returncode == 0
    broken = true_history()
    a_delivery_is_dropped(broken)
    done = run(broken)
    assert done.returncode == 1 and json.loads(done.stdout)["broken"][0]["promise"] == "lost"
