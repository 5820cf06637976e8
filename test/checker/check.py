#!/usr/bin/python3
"""The history checker: was every promise of the outbox kept?

    check.py [--drained] < history.jsonl        prints a report as JSON; exit 1 if a promise was broken

It knows nothing of outlog but what docs/guarantees.md promises, and shares no code with it: it reads
what the people around the outbox saw, one JSON object a line, in any order of the lines. `t` is the
time of one clock for all of them.

    {"from":"appender","what":"invoke","t":…,"id":…,"destination":…,"key":…,"body":SHA-256}
    {"from":"appender","what":"ok"|"failed"|"rolled_back"|"unknown","t":…,"id":…}
    {"from":"receiver","serves":DESTINATION}     everything sent there is seen by a receiver
    {"from":"receiver","t":…,"n":…,"id":…,"destination":…,"attempt":…,"body":SHA-256,
     "answer":STATUS|"reset"|null,"ended":T|null,"replay":false}
    {"from":"fault","what":"kill"|"stop"|"cut"|…,"t":…}
    {"from":"operator","what":"requeue"|"kill"|"replay","t":…,"id":…}
    {"from":"store","table":"outbox_state"|"parked"|"attempts"|"batches"|"lanes"|"destinations",…}

With --drained the history is said to have come to rest: nothing may be CLAIMED, and what is PENDING
needs a reason. What is checked has a name; a broken promise is reported with the name and the ids:

    lost         a committed message is in the store, and delivered, or DEAD or PENDING with a reason
    phantom      nothing that was rolled back, refused or never appended is stored or delivered
    order        a message is first delivered after all of its key that were committed before it was
                 begun; a predecessor that died under `skip` is no hindrance, and flagged
    wire         one message of a key at a time is on the wire (without a fault nearby)
    attempts     no attempt number comes twice, none is above the store's count, kept rows are 1..n
    state        the fields of S1 agree with the state, with the parked row and with the batches
    bytes        what arrives is what was appended
    duplicate    a second delivery happens only after a crash, a cut, an unknown answer or an operator
    once         at_most_once: never a second delivery, unless an operator asked
"""
import argparse
import collections
import json
import sys

STATES = ("PENDING", "CLAIMED", "PUBLISHED", "DEAD")
NEAR = 3.0  # seconds before a delivery in which a fault explains what became of it


def is_own_failure(answer):
    """The receiver's own word that it did nothing: not a gateway's, which does not know."""
    return answer == 429 or isinstance(answer, int) and answer >= 500 and answer not in (502, 504)


class Message:
    def __init__(self, id):
        self.id = id
        self.invoked = self.told = self.outcome = None
        self.destination = self.key = self.body = None
        self.row = None  # of outbox_state
        self.parked = None
        self.rows = []  # of attempts
        self.arrivals = []
        self.orders = []  # of operators

    def is_accepted(self, arrival):
        return isinstance(arrival["answer"], int) and 200 <= arrival["answer"] < 300

    def first(self):
        return self.arrivals[0]["t"] if self.arrivals else None

    def first_success(self):
        return next((one["t"] for one in self.arrivals if self.is_accepted(one)), None)


class Checker:
    def __init__(self, lines, is_drained):
        self.is_drained = is_drained
        self.messages = collections.OrderedDict()
        self.places = {}  # (lane, seq) -> Message
        self.broken, self.flags = [], []
        self.served, self.faults, self.batches, self.lanes = set(), [], [], {}
        self.destinations = {}
        parked, attempts = [], []
        for line in lines:
            self.read(line, parked, attempts)
        for message in self.messages.values():
            message.arrivals.sort(key=lambda one: (one["t"], one["n"]))
        for row in parked:
            self.belongs(row, "parked", lambda message: setattr(message, "parked", row))
        for row in attempts:
            self.belongs(row, "attempts", lambda message: message.rows.append(row))

    # Reading

    def message(self, id):
        return self.messages.setdefault(id, Message(id))

    def read(self, line, parked, attempts):
        who = line["from"]
        if who == "appender":
            self.read_appender(line)
        elif who == "receiver" and "serves" in line:
            self.served.add(line["serves"])
        elif who == "receiver":
            self.message(line["id"]).arrivals.append(line)
        elif who == "fault":
            self.faults.append(line["t"])
        elif who == "operator":
            self.message(line["id"]).orders.append(line)
        elif line["table"] == "outbox_state":
            message = self.message(line["event_id"])
            if message.row:
                self.fail("state", "one message has two rows", message)
            message.row = line
            self.places[line["lane"], line["seq"]] = message
        else:
            {"parked": parked, "attempts": attempts, "batches": self.batches}.get(line["table"], []).append(line)
            if line["table"] == "lanes":
                self.lanes[line["lane"]] = line
            if line["table"] == "destinations":
                self.destinations[line["name"]] = line

    def read_appender(self, line):
        message = self.message(line["id"])
        if line["what"] == "invoke":
            message.invoked = line["t"]
            message.destination, message.key = line["destination"], line.get("key")
            message.body = line["body"]
        else:
            message.told, message.outcome = line["t"], line["what"]

    def belongs(self, row, table, take):
        message = self.places.get((row["lane"], row["seq"]))
        if message:
            take(message)
        else:
            self.broken.append(
                {"promise": "state", "why": f"a row of {table} has no message: " f"{row['lane']}/{row['seq']}"}
            )

    def fail(self, promise, why, *messages):
        self.broken.append(
            {
                "promise": promise,
                "why": why,
                "ids": [one.id for one in messages],
                "key": messages[0].key if messages else None,
            }
        )

    def flag(self, why, *messages):
        self.flags.append({"why": why, "ids": [one.id for one in messages]})

    def fault_between(self, start, end):
        return any(start - NEAR <= at <= end for at in self.faults)

    # Checking

    def check(self):
        for message in self.messages.values():
            self.check_phantom(message)
            self.check_lost(message)
            self.check_state(message)
            self.check_attempts(message)
            self.check_bytes(message)
            self.check_duplicates(message)
        by_key = collections.defaultdict(list)
        for message in self.messages.values():
            if message.key is not None:
                by_key[message.destination, message.key].append(message)
        for messages in by_key.values():
            self.check_order(messages)
            self.check_wire(messages)
        self.check_batches()
        return not self.broken

    def check_phantom(self, message):
        if message.invoked is None:
            if message.row or message.arrivals:
                self.fail("phantom", "nobody appended it", message)
        elif message.outcome in ("rolled_back", "failed"):
            if message.row:
                self.fail("phantom", f"it was {message.outcome}, and is stored", message)
            if message.arrivals:
                self.fail("phantom", f"it was {message.outcome}, and was delivered", message)
        elif message.arrivals and not message.row:
            self.fail("phantom", "it was delivered and is not stored", message)

    def check_lost(self, message):
        row = message.row
        if message.outcome == "ok" and not row:
            self.fail("lost", "it was committed and is not stored", message)
        if not row:
            return
        if row["state"] == "PUBLISHED" and row["destination"] in self.served:
            if not any(map(message.is_accepted, message.arrivals)):
                self.fail("lost", "it is PUBLISHED, and no receiver accepted it", message)
        if row["state"] == "DEAD" and not row["last_error"]:
            self.fail("lost", "it is DEAD without a reason", message)
        if self.is_drained and row["state"] == "CLAIMED":
            self.fail("lost", "it is still CLAIMED", message)
        if self.is_drained and row["state"] == "PENDING" and not self.may_wait(message):
            self.fail("lost", "it is still PENDING, and nothing says why", message)

    def may_wait(self, message):
        """A failure that is told, or a predecessor that is held or waits itself."""
        if message.row["last_error"]:
            return True
        return any(
            one.row
            and one.row["seq"] < message.row["seq"]
            and one.key is not None
            and (one.destination, one.key) == (message.destination, message.key)
            and (one.row.get("held") or one.row["state"] == "PENDING" and one.row["last_error"])
            for one in self.messages.values()
        )

    def check_state(self, message):
        row, parked = message.row, message.parked
        if not row:
            return
        state = row["state"]
        if state not in STATES:
            self.fail("state", f"there is no state {state}", message)
        for field, of in (("claimed_at", "CLAIMED"), ("claimed_by", "CLAIMED"), ("published_at", "PUBLISHED")):
            if (row[field] is not None) != (state == of):
                self.fail("state", f"{field} is {row[field]} while it is {state}", message)
        if state in ("CLAIMED", "PUBLISHED") and row["attempts"] < 1:
            self.fail("state", f"it is {state} without an attempt", message)
        if state == "PENDING" and not parked and row["attempts"] != 0:
            self.fail("state", "attempts without a parked row while PENDING", message)
        if parked and (parked["state"], parked["attempts"]) != (state, row["attempts"]):
            self.fail("state", "the parked row says something else", message)
        if row["attempts"] == 0 and message.arrivals:
            self.fail("attempts", "it was sent before an attempt was counted", message)
        if message.body is not None and row.get("body") not in (None, message.body):
            self.fail("bytes", "the store has other bytes than were appended", message)

    def check_attempts(self, message):
        row = message.row
        if not row:
            return
        seen = [one["attempt"] for one in message.arrivals]
        for number, times in collections.Counter(seen).items():
            if times > 1:
                self.fail("attempts", f"attempt {number} arrived {times} times", message)
        if seen and max(seen) > row["attempts"]:
            self.fail("attempts", f"attempt {max(seen)} arrived, the store counts {row['attempts']}", message)
        if seen != sorted(seen):
            self.flag("an older attempt arrived after a younger one", message)
        kept = sorted(one["attempt"] for one in message.rows)
        if len(set(kept)) != len(kept) or any(not 1 <= one <= row["attempts"] for one in kept):
            self.fail("attempts", f"kept rows {kept} of {row['attempts']} attempts", message)
        missing = set(range(1, row["attempts"] + 1)) - set(kept)
        unsent = (message.parked or {}).get("unsent", 0)
        if message.rows and len(missing) > unsent and not self.faults:
            self.fail("attempts", f"rows of attempts {sorted(missing)} are missing", message)
        fine = [one for one in message.rows if one["outcome"] == "ok"]
        if fine and row["state"] != "PUBLISHED" and not message.orders:
            self.fail("state", f"an attempt was ok, and it is {row['state']}", message)
        if len(fine) > 1 and not message.orders:
            self.fail("attempts", "two attempts were recorded as ok", message)

    def check_bytes(self, message):
        for arrival in message.arrivals:
            if message.body is not None and arrival["body"] != message.body:
                self.fail("bytes", f"attempt {arrival['attempt']} carried other bytes", message)
            if message.destination not in (None, arrival["destination"]):
                self.fail("bytes", f"it arrived at {arrival['destination']}", message)

    def check_duplicates(self, message):
        """A delivery after one that was accepted, and could be recorded, needs an explanation."""
        for before, after in zip(message.arrivals, message.arrivals[1:]):
            if not message.is_accepted(before):
                if before["answer"] in (None, "reset"):
                    continue  # nobody could know
                if message.row and message.row.get("at_most_once") and not is_own_failure(before["answer"]):
                    self.fail("once", "at_most_once was sent again", message)
                continue
            asked = any(before["t"] <= one["t"] <= after["t"] for one in message.orders)
            if not asked and not self.fault_between(before["t"], after["t"]):
                self.fail(
                    "duplicate",
                    f"attempt {before['attempt']} was accepted, and attempt "
                    f"{after['attempt']} followed without a fault",
                    message,
                )
        guarantee = self.destinations.get(message.destination, {}).get("guarantee")
        maybe = [one for one in message.arrivals if not is_own_failure(one["answer"])]
        if guarantee == "at_most_once" and len(maybe) > 1 + len(message.orders):
            self.fail("once", f"at_most_once arrived {len(maybe)} times", message)

    def check_order(self, messages):
        """Of two messages of a key, where the first was committed before the second was begun."""
        for when in (Message.first, Message.first_success):
            events = []
            for one in messages:
                if one.row and one.invoked is not None:
                    events.append((one.invoked, 1, one))
                    if one.outcome == "ok":
                        events.append((one.told, 0, one))
            events.sort(key=lambda event: event[:2])
            last, last_at = None, None  # the committed one that was delivered latest
            for _, is_begun, one in events:
                at = when(one)
                if not is_begun:
                    if at is None or one.orders:
                        self.note_undelivered(one, messages)
                    elif last_at is None or at > last_at:
                        last, last_at = one, at
                elif at is not None and last_at is not None and at < last_at:
                    if last.row["state"] == "DEAD" or one.orders:
                        self.flag("delivered before one that died", last, one)
                    else:
                        self.fail("order", "delivered before an older one of its key", last, one)

    def note_undelivered(self, dead, messages):
        """Nothing may pass a message that still waits; what passes a dead one is flagged."""
        for one in messages:
            if one.invoked is None or not one.arrivals or one.invoked < dead.told or one is dead:
                continue
            if dead.row["state"] == "DEAD" or dead.orders:
                self.flag("delivered although an older one of its key died", dead, one)
            elif dead.destination in self.served and not dead.arrivals:
                self.fail(
                    "order",
                    f"delivered although an older one of its key is " f"{dead.row['state']} and was never sent",
                    dead,
                    one,
                )

    def check_wire(self, messages):
        flights = sorted(
            ((one, arrival) for one in messages for arrival in one.arrivals),
            key=lambda pair: (pair[1]["t"], pair[1]["n"]),
        )
        for (one, before), (other, after) in zip(flights, flights[1:]):
            if before["ended"] is not None and before["ended"] > after["t"] + 0.001:
                if not self.fault_between(before["t"], after["t"]) and isinstance(before["answer"], int):
                    self.fail("wire", "two of a key on the wire at a time", one, other)

    def check_batches(self):
        """What is PUBLISHED on the plain path stands in a batch, and batches are recorded once."""
        ranges = collections.defaultdict(list)
        for batch in self.batches:
            place = batch["lane"], batch["from_seq"], batch["to_seq"]
            of = batch.get("destination", ""), batch.get("org_key", "")  # of a side cursor, or of the lane itself
            ranges[batch["lane"]].append((*place[1:], *of))
            if batch["from_seq"] > batch["to_seq"]:
                self.broken.append({"promise": "state", "why": f"an empty batch {place}"})
        for lane, found in ranges.items():
            if len(set(found)) != len(found):
                self.broken.append({"promise": "state", "why": f"lane {lane}: a batch twice"})
        for (lane, seq), message in self.places.items():
            row = message.row
            inside = [one for one in ranges[lane] if one[0] <= seq <= one[1] and one[2] in ("", row["destination"])]
            if row["state"] == "PUBLISHED" and not message.parked and not inside:
                self.fail("state", "it is PUBLISHED, and no batch holds it", message)
            alone = [one[2:] for one in inside if one[0] == one[1] == seq]
            if len(alone) > len(set(alone)):
                self.fail("state", "two batches hold it alone", message)
            head = self.lanes.get(lane, {}).get("head")
            if head is not None and seq > head and row["state"] != "PENDING":
                self.fail("state", f"it is {row['state']} above the lane's head", message)

    def report(self):
        copies = [len(one.arrivals) for one in self.messages.values() if one.arrivals]
        accepted = [sum(map(one.is_accepted, one.arrivals)) for one in self.messages.values()]
        outcomes = collections.Counter(one.outcome for one in self.messages.values())
        states = collections.Counter(one.row["state"] for one in self.messages.values() if one.row)
        return {
            "kept": not self.broken,
            "counts": {
                "appended": dict((str(k), v) for k, v in outcomes.items()),
                "states": dict(states),
                "arrivals": sum(copies),
                "delivered": sum(one > 0 for one in accepted),
                "duplicates": sum(one - 1 for one in accepted if one > 1),
                "faults": len(self.faults),
                "flags": len(self.flags),
            },
            "broken": self.broken[:50],
            "broken_count": len(self.broken),
            "flags": self.flags[:20],
        }


def check(lines, is_drained=False):
    checker = Checker(lines, is_drained)
    checker.check()
    return checker.report()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drained", action="store_true", help="the history has come to rest")
    args = parser.parse_args()
    report = check((json.loads(line) for line in sys.stdin if line.strip()), args.drained)
    print(json.dumps(report, indent=1))
    return 0 if report["kept"] else 1


if __name__ == "__main__":
    sys.exit(main())
