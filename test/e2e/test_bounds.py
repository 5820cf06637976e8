"""How much a page holds: rows may be of 256 KiB, so a list ends after some MiB, and whoever goes on misses nothing."""
import json
import pathlib
import re
import threading
import urllib.parse
import uuid

import pytest

from lib.cli import Outlog, build_dir
from lib.outbox import Outbox
from lib.websocket import WebSocket

ORG = "acme"
KEY = "u-1:helper:t-1"
MOST = 10 << 20  # of an answer: what a page may hold, one row more, and what rows have beside
LARGE = {"large": "x" * 200_000}
COUNT = 200  # of them: 40 MB


def most_resident(server):
    """Megabytes, the most there ever were."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def fill(store, number=COUNT, small=0, between=0):
    """Events of one session, large ones after small ones; those of another org lie between. The event_ids."""

    def lines():
        for n in range(small + number):
            payload = LARGE if n >= small else {}
            yield {
                "org_id": ORG,
                "aggregate_type": "session",
                "aggregate_id": KEY,
                "event_type": "note",
                "payload": payload,
            }
            for _ in range(between):
                yield {
                    "org_id": "other",
                    "aggregate_type": "session",
                    "aggregate_id": "x",
                    "event_type": "note",
                    "payload": {},
                }

    done = Outlog(store).run(
        "append", "--ndjson", "-", "--json", input="".join(json.dumps(line) + "\n" for line in lines())
    )
    return [one["event_id"] for one in done.json()][:: between + 1]


def walk(server, path, plural, start=None, name="after", limit=10000):
    """All pages of a list, until it says that there is no more."""
    pages, at = [], start
    while True:
        more = "" if at is None else f"&{name}={urllib.parse.quote(str(at))}"
        answer = server.get(f"{path}{'&' if '?' in path else '?'}limit={limit}{more}")
        assert answer.status == 200 and len(answer.body) < MOST, f"{answer.status}, {len(answer.body)} bytes"
        page = answer.json
        pages.append(page[plural])
        last, at = at, page[f"next_{name}"]
        if at is None or (plural == "events" and name == "after" and at >= page.get("settled", at) and at == last):
            return pages
        assert page[plural] or plural == "events"


def ids(pages, name="event_id"):
    return [one[name] for page in pages for one in page]


@pytest.mark.parametrize("small, between", [(0, 0), (150, 0), (30, 3)], ids=["large", "small first", "others between"])
def test_c2_pages_of_large_events_are_short_and_hold_each_once(store, serve, small, between):
    made, server = fill(store, small=small, between=between), serve("--no-relay")
    pages = walk(server, f"/v1/events?org_id={ORG}", "events", start=0)
    assert ids(pages) == made and 5 <= len([page for page in pages if page]) <= 10
    back = walk(server, f"/v1/events?org_id={ORG}", "events", start="end", name="before")
    assert ids(back) == made[::-1] and 5 <= len([page for page in back if page]) <= 10
    assert ids(walk(server, f"/v1/events?org_id={ORG}", "events", start=0, limit=7)) == made
    since = walk(server, f"/v1/events?org_id={ORG}&since=1h", "events", start="end", name="before")
    assert ids(since) == made[::-1]
    said = walk(server, f"/v1/sessions/{KEY}/events?org_id={ORG}", "events", start=0)
    assert ids(said) == made


def test_c2_a_page_of_small_events_is_as_long_as_was_asked_for(store, serve):
    made, server = fill(store, number=0, small=2500), serve("--no-relay")
    page = server.get("/v1/events?limit=2400").json
    assert [one["event_id"] for one in page["events"]] == made[:2400] and page["next_after"] == made[2399]
    page = server.get(f"/v1/events?org_id={ORG}&limit=10000&after={made[0]}").json
    assert [one["event_id"] for one in page["events"]] == made[1:] and page["next_after"] == page["settled"]
    page = server.get("/v1/events?limit=10000&before=end").json
    assert [one["event_id"] for one in page["events"]] == made[::-1] and page["next_before"] is None


def test_c1_a_consumer_reads_large_events_in_short_pages(store, serve):
    made, server = fill(store, small=20), serve("--no-relay")
    assert server.call("PUT", "/v1/consumers/c", {"filters": {"org_id": ORG}}).status == 201
    seen, pages = [], 0
    while len(seen) < len(made):
        answer = server.get("/v1/consumers/c/events?limit=10000")
        assert len(answer.body) < MOST
        page = answer.json
        seen += [one["event_id"] for one in page["events"]]
        assert server.post("/v1/consumers/c/commit", {"event_id": page["next_after"]}).json["moved"]
        pages += 1
    assert seen == made and pages >= 5
    outlog = Outlog(store)
    outlog.run("consumers", "create", "d")
    seen = []
    while len(seen) < len(made):
        got = outlog.run("consumers", "read", "d", "--limit", "10000", "--json").json()
        assert 0 < sum(len(one["payload"].get("large", "")) for one in got) < MOST
        seen += [one["event_id"] for one in got]
        outlog.run("consumers", "commit", "d", seen[-1])
    assert seen == made


def test_c2_eight_who_read_large_events_at_once_cost_little(store, serve):
    """Unbounded, each of them would have 40 MB in the store's answer, in the page and in the answer."""
    made, server = fill(store), serve("--no-relay")
    server.get("/v1/events?limit=1")
    before, seen = most_resident(server), {}

    def read(number):
        path, name, start = (("/v1/events", "after", 0), ("/v1/events", "before", "end"))[number % 2]
        seen[number] = ids(walk(server, path, "events", start=start, name=name))

    readers = [threading.Thread(target=read, args=(number,)) for number in range(8)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert all(seen[number] == (made[::-1] if number % 2 else made) for number in range(8))
    grown = most_resident(server) - before
    assert "san" in build_dir().name or grown < 320, f"{grown} MB"


def test_messages_are_listed_without_their_payloads_in_short_pages(store, serve):
    with Outbox(store) as outbox:
        outbox.begin()
        made = [
            outbox.put("nowhere", LARGE, metadata=json.dumps(LARGE), headers=json.dumps({"x-n": str(n)}))
            for n in range(120)
        ]
        outbox.commit()
    server = serve("--no-relay")
    before = most_resident(server)
    for query in ("", "?state=PENDING", "?destination=nowhere"):
        pages = walk(server, f"/v1/messages{query}", "messages")
        assert sorted(ids(pages)) == sorted(made) and len(pages) >= 2
    small = walk(server, "/v1/messages", "messages", limit=7)
    assert sorted(ids(small)) == sorted(made)
    grown = most_resident(server) - before
    assert "san" in build_dir().name or grown < 128, f"{grown} MB"


def test_effects_are_listed_in_short_pages(store, serve):
    made = [str(uuid.uuid4()) for _ in range(COUNT)]
    with Outbox(store) as db:
        db.begin()
        for n, id in enumerate(made):
            db.run(
                "insert into {}effects (effect_id, org_id, session_key, effect_type, effect_spec, destination, status, "
                "idempotency_key, message_id, event_id, last_event_id, correlation_id, created_at, updated_at) "
                f"values (%s, %s, %s, 'send_message', %s, 'session', %s, %s, %s, %s, %s, 'c', {db.now()}, {db.now()})",
                id,
                ORG,
                KEY,
                json.dumps({"content": "x" * 200_000}),
                "COMPLETED" if n % 2 else "FAILED",
                id,
                id,
                n + 1,
                id,
            )
        db.commit()
    server = serve("--no-relay")
    path = f"/v1/sessions/{KEY}/effects?org_id={ORG}"
    pages = walk(server, path, "effects")
    assert 5 <= len(pages) <= 10 and ids(pages, "effect_id") == made
    assert len(ids(walk(server, f"{path}&status=FAILED", "effects", limit=10), "effect_id")) == COUNT // 2
    for after in ("x", "7", "2026-01-01T00:00:00Z", f"x {made[0]}"):
        assert server.get(f"{path}&after={urllib.parse.quote(after)}").code == "invalid_field"


def put_notices(db, number, user="u-1", ago_s=0):
    """Notices as the relay makes them, an instant apart; their ids, the oldest first."""
    made = [str(uuid.uuid4()) for _ in range(number)]
    db.begin()
    for n, id in enumerate(made):
        db.run(
            "insert into {}notices (id, org_id, user_id, category, template, template_version, event_type, subject, "
            f"body_text, body_html, created_at) values (%s, %s, %s, 'c', 't', 1, 'e', %s, %s, %s, {db.now((n - number) * 2000 - ago_s * 1000000)})",
            id,
            ORG,
            user,
            str(n),
            "t" * 100_000,
            "h" * 100_000,
        )
    db.commit()
    return made


def test_n3_notices_are_listed_in_short_pages(store, serve):
    with Outbox(store) as db:
        made = put_notices(db, 120)
    server = serve("--no-relay")
    pages = walk(server, f"/v1/users/u-1/notifications?org_id={ORG}", "notifications")
    assert 3 <= len(pages) <= 6 and ids(pages, "id") == made[::-1]
    assert ids(walk(server, "/v1/notifications", "notifications", limit=9), "id") == made[::-1]


def test_n3_a_feed_of_large_notices_is_sent_page_by_page(store, serve):
    """The newest hundred of what is unread, and what comes while they are sent: in order, each once, to each socket."""
    with Outbox(store) as db:
        old = put_notices(db, 130, ago_s=60)
        server = serve("--no-relay")
        base, path = f"http://127.0.0.1:{server.port}", f"/v1/users/u-1/socket?org_id={ORG}"
        before = most_resident(server)
        with WebSocket(base, path) as one, WebSocket(base, path, room=4096) as two:
            assert [one.receive()["id"] for _ in range(50)] == old[30:80]
            new = put_notices(db, 60)
            assert [one.receive()["id"] for _ in range(110)] == old[80:] + new
            assert [two.receive()["id"] for _ in range(160)] == old[30:] + new
            last = put_notices(db, 1)
            assert one.receive()["id"] == two.receive()["id"] == last[0], "and nothing came twice before it"
        grown = most_resident(server) - before
    assert "san" in build_dir().name or grown < 96, f"{grown} MB"
