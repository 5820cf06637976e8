"""Notifications: rules make messages in the event's transaction, the relay gives them words (N1 … N4)."""
import email
import email.policy
import json
import pathlib
import re
import sqlite3
import urllib.error
import urllib.parse
import urllib.request
import uuid
from datetime import datetime, timedelta

import psycopg2
import pytest

from interfaces import CALLERS, DOORS, Refused, connect, execute, open_interface
from lib.cli import Outlog
from lib.mail import MailServer
from lib.outbox import Outbox, wait_for
from lib.websocket import WebSocket
from run_interfaces import DOORS as RUN_DOORS
from run_interfaces import HttpRuns, open_runs

ORG = "acme"
CONTENT_TYPE = "application/vnd.outlog.notification+json"
EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "notifications.yaml"

# One event of each of the twelve types, with what the shipped rules make of it: (recipient, channel).
TWELVE = {
    "matter.created": ({"title": "A"}, {("u-mia", "in_app"), ("u-max", "in_app")}),
    "matter.updated": ({"title": "A", "watchers": ["u-1", "u-2"]}, {("u-1", "in_app"), ("u-2", "in_app")}),
    "task.created": ({"title": "T", "assignee": "u-1"}, {("u-1", "in_app")}),
    "task.assigned": (
        {"title": "T", "assignee": "u-1@x.example"},
        {("u-1@x.example", "in_app"), ("u-1@x.example", "email")},
    ),
    "task.completed": ({"title": "T", "created_by": "u-2"}, {("u-2", "in_app")}),
    "document.uploaded": ({"name": "D", "watchers": "u-3"}, {("u-3", "in_app")}),
    "invoice.created": ({"total": 12}, {("u-ana", "in_app")}),
    "invoice.sent": ({"total": 12, "customer": {"name": "C", "email": "c@x.example"}}, {("c@x.example", "email")}),
    "payment.received": ({"amount": 12, "invoice": "i-1"}, {("u-ana", "in_app"), ("u-ana", "email")}),
    "payment.failed": ({"amount": 12, "invoice": "i-1", "reason": "no"}, {("u-ana", "in_app"), ("u-ana", "email")}),
    "user.invited": ({"email": "new@x.example", "link": "https://x"}, {("new@x.example", "email")}),
    "user.joined": ({"name": "New"}, {("u-mia", "in_app"), ("u-max", "in_app")}),
}
RECURRING = {"matter.updated", "task.assigned", "payment.failed"}


@pytest.fixture
def mails():
    server = MailServer()
    yield server
    server.end()


def config(rules, templates=None, port=9, **more):
    return {
        "destinations": {
            "email": {
                "type": "smtp",
                "url": f"smtp://127.0.0.1:{port}",
                "tls": "none",
                "from": "a@b.example",
                "preset": "notification",
            }
        },
        "notifications": {
            "rules": rules,
            "templates": templates or {"t": {"subject": "{{title}}", "text": "{{x}}"}},
            **more,
        },
    }


def apply(outlog, value, *args, **options):
    return outlog.run("apply", "-f", "-", *args, input=json.dumps(value), **options)


def append(outlog, type, payload, entity="e-1", org=ORG):
    kind = type.split(".")[0]
    return outlog.run(
        "append",
        "--org",
        org,
        "--aggregate",
        f"{kind}/{entity}",
        "--type",
        type,
        "--data",
        json.dumps(payload),
        "--json",
    ).json()[0]


def messages(store):
    names = (
        "event_id",
        "org_id",
        "destination",
        "event_type",
        "payload",
        "content_type",
        "idempotency_key",
        "causation_id",
        "metadata",
    )
    rows = execute(
        connect(store), f"select {', '.join(names)} from outlog_outbox where content_type = '{CONTENT_TYPE}'"
    )
    rows = [dict(zip(names, row)) for row in rows]
    for row in rows:
        row["payload"] = json.loads(row["payload"])
        if isinstance(row["metadata"], str):
            row["metadata"] = json.loads(row["metadata"])
    return rows


def who(rows):
    return sorted((row["payload"]["recipient"], row["payload"]["channel"]) for row in rows)


RULE = {"on": "task.assigned", "recipients": {"path": "/assignee"}, "channels": ["in_app"], "template": "t"}


# --- rules make messages ---


@pytest.mark.parametrize("name", (*DOORS, "http"))
def test_n1_every_interface_notifies_in_the_events_transaction(store, outlog, name):
    apply(outlog, config([{**RULE, "channels": ["email", "in_app"], "once": "event"}]))
    fields = {
        "org_id": ORG,
        "aggregate_type": "task",
        "aggregate_id": "t:1%",
        "event_type": "task.assigned",
        "payload": '{"assignee":"u:1","title":"x"}',
    }
    if name == "http":
        interface = HttpRuns(store)
        body = {"org_id": ORG, "events": [{**fields, "payload": json.loads(fields["payload"])}]}
        del body["events"][0]["org_id"]
        event = interface.call("POST", "events", body)[0]["events"][0]
    else:
        interface = open_interface(name, store)
        event = interface.append(**fields)
    interface.close()
    rows = messages(store)
    assert who(rows) == [("u:1", "email"), ("u:1", "in_app")]
    for row in rows:
        channel = row["payload"]["channel"]
        assert row["destination"] == channel
        assert row["idempotency_key"] == f"notification_dispatch:acme:task.assigned:task:t%3A1%25:u%3A1:{channel}:t:1"
        assert str(row["causation_id"]) == event["id"]
        assert row["payload"]["event"]["payload"] == {"assignee": "u:1", "title": "x"}
        assert row["payload"]["event"]["id"] == event["id"]
        assert row["metadata"]["template"] == "t" and row["metadata"]["template_version"] == 1


def everything(**more):
    """A rule that tells u-1 of each event there is."""
    return config(
        [{"on": "*", "recipients": {"role": "all"}, "channels": ["email", "in_app"], "template": "t", "once": "event"}],
        roles={"all": {"*": ["u-1"]}},
        **more,
    )


@pytest.mark.parametrize("name", (*DOORS, "http"))
def test_n1_a_repeated_command_tells_nobody_twice(store, outlog, name):
    """Known by its key, or by the event's own id."""
    apply(outlog, everything())
    fields = {
        "org_id": ORG,
        "aggregate_type": "task",
        "aggregate_id": "t",
        "event_type": "task.assigned",
        "payload": "{}",
    }
    interface = HttpRuns(store) if name == "http" else open_interface(name, store)

    def repeat(key=None, **more):
        if name != "http":
            return interface.append(**fields, **more, **({"idempotency_key": key} if key else {}))
        event = {field: value for field, value in fields.items() if field != "org_id"}
        return interface.call(
            "POST",
            "events",
            {"org_id": ORG, "events": [{**event, "payload": {}, **more}]},
            {"idempotency-key": key} if key else {},
        )[0]["events"][0]

    for count, how in enumerate(
        ({"key": "k-1"}, {"id": str(uuid.uuid4())}, {"key": "k-2", "id": str(uuid.uuid4())}), 1
    ):
        first = repeat(**how)
        for _ in range(2):
            assert repeat(**how)["id"] == first["id"]
        assert who(messages(store)) == sorted([("u-1", "email"), ("u-1", "in_app")] * count), how
    interface.close()


@pytest.mark.parametrize("name", RUN_DOORS)
def test_n1_a_repeated_command_of_a_run_tells_nobody_twice(store, outlog, name):
    apply(outlog, {**everything(), "destinations": {"email": {"type": "null"}, "hook": {"type": "null"}}})
    interface = open_runs(name, store)
    told = []

    def twice(verb, id=None, **body):
        first = interface.do(verb, id, key=f"k-{verb}", **body)
        now = who(messages(store))
        assert len(now) > len(told), f"{verb} makes an event"
        interface.do(verb, id, key=f"k-{verb}", **body)
        assert who(messages(store)) == now, verb
        told[:] = now
        return first

    signal = twice("receive_signal", org_id=ORG, signal_type="S", payload={})["signal_id"]
    run = twice("start_run", org_id=ORG, signal_id=signal, run_type="R", orchestrator_version="1")["run_id"]
    step = twice("start_step", run, step_type="T")["step_id"]
    twice("call_tool", step, tool_name="t", input={})
    twice("request_effect", run, effect_type="API_CALL", destination="hook", effect_spec={})
    twice("fail_step", step, error_code="E", error_message="e")
    twice("retry_step", step)
    twice("complete_step", step, output_result={})
    twice("checkpoint_run", run, checkpoint_data={})
    twice("complete_run", run)
    interface.close()


def test_n1_a_message_said_again_in_a_session_tells_nobody_twice(store, outlog, serve, chat):
    apply(outlog, everything())
    one = chat(serve("--no-relay"), "u-1:nobody:t")
    for _ in range(3):
        one.say("r-1", "hello")
        assert one.next("accepted")["seq"] == 1
    assert who(row for row in messages(store) if row["event_type"] == "user_message") == [
        ("u-1", "email"),
        ("u-1", "in_app"),
    ]


@pytest.mark.parametrize("name", CALLERS)
def test_n1_a_rollback_leaves_no_notification(store, outlog, name):
    apply(outlog, config([RULE]))
    interface = open_interface(name, store)
    interface.begin()
    interface.append(
        org_id=ORG, aggregate_type="task", aggregate_id="t", event_type="task.assigned", payload='{"assignee":"u"}'
    )
    interface.rollback()
    interface.close()
    assert messages(store) == []


def test_n1_once_for_the_entity_or_for_each_event(store, outlog):
    apply(outlog, config([RULE, {**RULE, "on": "task.updated", "once": "event"}]))
    for _ in range(2):
        append(outlog, "task.assigned", {"assignee": "u-1"})
        append(outlog, "task.updated", {"assignee": "u-1"})
    append(outlog, "task.assigned", {"assignee": "u-1"}, entity="e-2")
    append(outlog, "task.assigned", {"assignee": "u-1"}, org="other")
    keys = sorted(row["idempotency_key"] for row in messages(store))
    assert keys == sorted(
        [
            "notification_dispatch:acme:task.assigned:task:e-1:u-1:in_app:t",
            "notification_dispatch:acme:task.assigned:task:e-2:u-1:in_app:t",
            "notification_dispatch:acme:task.updated:task:e-1:u-1:in_app:t:2",
            "notification_dispatch:acme:task.updated:task:e-1:u-1:in_app:t:4",
            "notification_dispatch:other:task.assigned:task:e-1:u-1:in_app:t",
        ]
    )


def test_n1_keys_with_a_colon_in_a_part_cannot_collide(store, outlog):
    apply(outlog, config([{**RULE, "on": "*"}]))
    append(outlog, "a", {"assignee": "c"}, entity="x:b")  # …:a:a:x:b:c:… if nothing were escaped
    append(outlog, "a", {"assignee": "b:c"}, entity="x")
    append(outlog, "a", {"assignee": "b%3Ac"}, entity="x")
    keys = [row["idempotency_key"] for row in messages(store)]
    assert len(keys) == len(set(keys)) == 3
    assert all(key.count(":") == 7 for key in keys)


def test_n1_short_keys_with_a_colon_in_a_part_cannot_collide(store, outlog):
    """Where the eight parts are too long for a key: by event, recipient, channel and template."""
    rules = [
        {**RULE, "recipients": {"path": path}, "template": template}
        for path, template in (("/a", "y"), ("/b", "x:in_app:y"), ("/c", ":" * 100), ("/d", "%" * 100))
    ]
    apply(outlog, config(rules, {rule["template"]: {"subject": "s", "text": "t"} for rule in rules}))
    payload = {"a": "u:in_app:x", "b": "u", "c": ":" * 320, "d": "%" * 320}
    for _ in range(2):  # each event is told of
        append(outlog, "task.assigned", payload, entity=":" * 200)
    rows = messages(store)
    assert sorted(row["payload"]["template"] for row in rows) == sorted([rule["template"] for rule in rules] * 2)
    assert (
        all(len(row["idempotency_key"]) <= 512 for row in rows) and len({row["idempotency_key"] for row in rows}) == 8
    )


def test_n1_a_path_leads_to_a_text_or_a_list(store, outlog):
    apply(outlog, config([RULE]))
    cases = [
        ({"assignee": "u"}, ["u"]),
        ({"assignee": 7}, ["7"]),
        ({"assignee": ["a", "b", "a"]}, ["a", "b"]),
        ({"assignee": []}, []),
        ({}, [""]),
        ({"assignee": None}, [""]),
        ({"assignee": {"id": 1}}, [""]),
        ({"assignee": True}, [""]),
        ({"assignee": "u" * 400}, [""]),
        ({"assignee": ["a", None]}, ["", "a"]),
    ]
    interface = open_interface("sql", store)
    for number, (payload, _) in enumerate(cases):
        interface.append(
            org_id=ORG,
            aggregate_type="task",
            aggregate_id=str(number),
            event_type="task.assigned",
            payload=json.dumps(payload),
        )
    interface.close()
    found = {}
    for row in messages(store):
        found.setdefault(row["payload"]["event"]["aggregate_id"], []).append(row["payload"]["recipient"])
    for number, (payload, expected) in enumerate(cases):
        assert sorted(found.get(str(number), [])) == expected, payload


def test_n1_a_role_is_a_list_by_org(store, outlog):
    rule = {**RULE, "recipients": {"role": "managers"}}
    apply(
        outlog,
        config(
            [rule, {**rule, "on": "x.y", "recipients": {"role": "nobody"}}],
            roles={"managers": {"acme": ["u-1", "u-2"], "*": ["u-9"], "void": []}},
        ),
    )
    append(outlog, "task.assigned", {})
    append(outlog, "task.assigned", {}, org="void")
    assert [recipient for recipient, _ in who(messages(store))] == ["u-1", "u-2"]
    append(outlog, "task.assigned", {}, org="other")
    append(outlog, "x.y", {})
    assert [recipient for recipient, _ in who(messages(store))] == ["", "u-1", "u-2", "u-9"]


def test_n1_recipients_come_from_a_query(store, outlog):
    connection = connect(store)
    execute(connection, "create table members (team text, member text)")
    execute(connection, "insert into members values ('red', 'u-1'), ('red', 'u-2'), ('blue', 'u-3')")
    rule = {
        **RULE,
        "once": "event",
        "recipients": {"sql": "select member from members where team = :payload.team or member = :aggregate_id"},
    }
    apply(outlog, config([rule]))
    append(outlog, "task.assigned", {"team": "red"}, entity="u-3")
    append(outlog, "task.other", {"team": "red"})
    assert [recipient for recipient, _ in who(messages(store))] == ["u-1", "u-2", "u-3"]
    append(outlog, "task.assigned", {"team": "none"})
    assert len(messages(store)) == 3
    apply(outlog, config([RULE]), "--prune")
    append(outlog, "task.assigned", {"team": "red"})
    assert who(messages(store)).count(("u-1", "in_app")) == 1, "a rule that was taken out asks nobody"


def test_n1_a_rule_whose_table_is_gone_refuses_events_and_can_be_taken_out(store, outlog):
    execute(connect(store), "create table members (member text)")
    apply(outlog, config([{**RULE, "recipients": {"sql": "select member from members"}}]))
    execute(connect(store), "drop table members")
    args = ("append", "--org", ORG, "--aggregate", "task/t", "--type", "task.assigned", "--data", '{"assignee":"u-1"}')
    refused = outlog.run(*args, check=False)
    assert refused.returncode == 1 and "members" in refused.stderr
    assert refused.stderr.endswith("; the query of a notification rule, or a trigger, needs it [store_error]\n")
    changed = apply(outlog, config([RULE], {"t": {"subject": "new", "text": "x"}}), "--prune")
    assert "1 added, 1 changed, 1 removed" in changed.stdout
    outlog.run(*args)
    assert who(messages(store)) == [("u-1", "in_app")]


@pytest.mark.parametrize(
    "change, words",
    [
        ({"recipients": {"sql": "select x from nowhere_at_all"}}, "nowhere_at_all"),
        ({"recipients": {"sql": "delete from x"}}, "select"),
        ({"recipients": {}}, "one of path, role and sql"),
        ({"recipients": {"path": "assignee"}}, "a path is like"),
        ({"channels": ["fax"]}, "only email and in_app"),
        ({"channels": []}, "empty"),
        ({"template": "none"}, "there is no template none"),
        ({"once": "never"}, "entity or event"),
        ({"hm": 1}, "unknown key hm"),
        ({"destinations": {"in_app": "x"}}, "there is no destination x"),
    ],
)
def test_n1_a_wrong_rule_is_refused_and_named(store, outlog, change, words):
    result = apply(outlog, config([{**RULE, **change}]), check=False)
    assert result.returncode == 1 and words in result.stderr, result
    assert execute(connect(store), "select count(*) from outlog_notification_rules")[0][0] == 0


@pytest.mark.parametrize(
    "template, words",
    [
        ({"subject": "{{x", "text": "a"}, "a tag without its end"),
        ({"subject": "x"}, "text or html"),
        ({"text": "x"}, "subject"),
        ({"subject": "x", "text": "{{#a}}"}, "without its end"),
        ({"subject": "x", "text": "x", "body": "y"}, "unknown key body"),
    ],
)
def test_n1_a_wrong_template_is_refused(store, outlog, template, words):
    result = apply(outlog, config([RULE], {"t": template}), check=False)
    assert result.returncode == 1 and words in result.stderr, result


def test_n1_conditions_are_those_of_routes(store, outlog):
    apply(
        outlog, config([{**RULE, "on": "task.*", "when": {"/urgent": True}, "org_id": ORG, "aggregate_type": "task"}])
    )
    append(outlog, "task.assigned", {"assignee": "no", "urgent": False})
    append(outlog, "task.assigned", {"assignee": "no", "urgent": True}, org="other")
    append(outlog, "matter.assigned", {"assignee": "no", "urgent": True})
    append(outlog, "task.assigned", {"assignee": "yes", "urgent": True})
    assert who(messages(store)) == [("yes", "in_app")]


def test_n1_a_large_or_long_event_is_still_appended(store, outlog):
    apply(outlog, config([{**RULE, "once": "event"}]))
    interface = open_interface("sql", store)
    for entity, payload in (("e", {"assignee": "u", "x": "y" * 201000}), ("%" * 200, {"assignee": ":" * 300})):
        interface.append(
            org_id=ORG,
            aggregate_type="task",
            aggregate_id=entity,
            event_type="task.assigned",
            payload=json.dumps(payload),
        )
    interface.close()
    assert [row["payload"]["event"]["payload"] is None for row in messages(store)].count(True) == 1
    assert all(len(row["idempotency_key"]) <= 512 for row in messages(store))
    assert len(messages(store)) == 2


# --- the twelve ---


def test_n2_the_twelve_events_make_what_the_shipped_rules_say(store, outlog):
    outlog.run("apply", "-f", EXAMPLE)
    events = {}
    for type, (payload, _) in TWELVE.items():
        events[type] = str(uuid.uuid4())
        outlog.run(
            "append",
            "--org",
            ORG,
            "--aggregate",
            f"{type.split('.')[0]}/e-1",
            "--type",
            type,
            "--data",
            json.dumps(payload),
            "--id",
            events[type],
            "--key",
            f"k-{type}",
        )
    rows = messages(store)
    for type, (_, expected) in TWELVE.items():
        assert who(row for row in rows if row["event_type"] == type) == sorted(expected), type
    for type, (payload, _) in TWELVE.items():  # the same commands again
        outlog.run(
            "append",
            "--org",
            ORG,
            "--aggregate",
            f"{type.split('.')[0]}/e-1",
            "--type",
            type,
            "--data",
            json.dumps(payload),
            "--id",
            events[type],
            "--key",
            f"k-{type}",
        )
    assert len(messages(store)) == len(rows)
    for type, (payload, expected) in TWELVE.items():  # the same happens again to the same entity
        append(outlog, type, payload)
        rows = [row for row in messages(store) if row["event_type"] == type]
        assert len(rows) == len(expected) * (2 if type in RECURRING else 1), type
    assert "nothing to change" in outlog.run("apply", "-f", EXAMPLE).stdout


# --- words, and delivery ---


def notices(store):
    names = ("id", "org_id", "user_id", "category", "template", "template_version", "subject", "body_text", "body_html")
    rows = execute(connect(store), f"select {', '.join(names)} from outlog_notices order by created_at, id")
    return [dict(zip(names, row)) for row in rows]


def states(outlog):
    return {(row["destination"], row["metadata"]["recipient"]): row for row in outlog.run("outbox", "--json").json()}


def test_n3_a_notice_is_rendered_into_the_feed_and_a_mail_is_sent(store, outlog, relays, mails):
    template = {
        "subject": "Yours: {{title}}\n",
        "text": "{{title}} by {{actor_id}}{{#due}}, due {{due}}{{/due}}",
        "html": "<b>{{title}}</b>",
    }
    apply(outlog, config([{**RULE, "channels": ["email", "in_app"]}], {"t": template}, mails.port))
    append(outlog, "task.assigned", {"assignee": "u@x.example", "title": "<Read> this", "due": "today"})
    relay = relays()
    wait_for(lambda: notices(store) and mails.mails, "the notice and the mail")
    (notice,) = notices(store)
    row = next(row for row in messages(store) if row["destination"] == "in_app")
    assert str(notice["id"]) == str(row["event_id"])
    assert (notice["user_id"], notice["org_id"], notice["category"]) == ("u@x.example", ORG, "task")
    assert notice["subject"] == "Yours: <Read> this" and notice["template_version"] == 1
    assert notice["body_text"] == "<Read> this by system, due today"
    assert notice["body_html"] == "<b>&lt;Read&gt; this</b>"
    mail = email.message_from_bytes(mails.mails[0].content, policy=email.policy.default)
    assert mails.mails[0].rcpt_tos == ["u@x.example"] and mail["Subject"] == "Yours: <Read> this"
    assert "<Read> this by system, due today" in mail.get_body(("plain",)).get_content()
    assert "<b>&lt;Read&gt; this</b>" in mail.get_body(("html",)).get_content()
    wait_for(lambda: all(row["state"] == "PUBLISHED" for row in states(outlog).values()), "both published")
    # N4, M2: event, message and transition.
    for row in messages(store):

        def said():
            return [line for line in relay.said().splitlines() if f'message_id="{row["event_id"]}"' in line]

        wait_for(lambda: any("from=CLAIMED to=PUBLISHED" in line for line in said()), "the last line")
        assert all(f'event_id="{row["causation_id"]}"' in line for line in said())
        assert any("from=PENDING to=CLAIMED" in line for line in said())


def test_n1_a_message_keeps_the_version_of_its_event(store, outlog, relays):
    apply(outlog, config([{**RULE, "once": "event"}], {"t": {"subject": "one", "text": "x"}}))
    append(outlog, "task.assigned", {"assignee": "u"})
    apply(outlog, config([{**RULE, "once": "event"}], {"t": {"subject": "two", "text": "x"}}))
    append(outlog, "task.assigned", {"assignee": "u"})
    relays()
    wait_for(lambda: len(notices(store)) == 2, "two notices")
    assert sorted((row["subject"], row["template_version"]) for row in notices(store)) == [("one", 1), ("two", 2)]


def test_n1_what_cannot_be_told_is_a_dead_letter_that_says_why(store, outlog, relays, mails):
    apply(
        outlog,
        config(
            [{**RULE, "channels": ["email"], "once": "event"}, {**RULE, "on": "task.grown", "template": "grow"}],
            {
                "t": {"subject": "s", "text": "x"},
                "grow": {"subject": "s", "text": "{{#a}}{{#a}}{{#a}}{{b}}{{/a}}{{/a}}{{/a}}"},
            },
            mails.port,
        ),
    )
    append(outlog, "task.assigned", {})
    append(outlog, "task.assigned", {"assignee": "u-1"})
    append(outlog, "task.grown", {"assignee": "u-2", "a": [0] * 60, "b": "12345"})
    append(outlog, "task.assigned", {"assignee": "550@x.example"})
    relays()
    wait_for(lambda: len(outlog.run("dead", "--json").json()) == 4, "four dead letters")
    why = {recipient: row["last_error"] for (_, recipient), row in states(outlog).items()}
    assert "no recipient: rule task.assigned" in why[""]
    assert "no e-mail address is known for user u-1" in why["u-1"]
    assert "template grow version 1: text: over" in why["u-2"]
    assert "550" in why["550@x.example"]
    assert mails.mails == [] and notices(store) == []
    # An address that was refused for good is not tried again.
    connections = mails.connections
    append(outlog, "task.assigned", {"assignee": ["550@X.example", "A Name <550@x.example>"]}, entity="e-2")
    wait_for(lambda: len(outlog.run("dead", "--json").json()) == 6, "two more")
    why = {recipient: row["last_error"] for (_, recipient), row in states(outlog).items()}
    assert "is suppressed" in why["550@X.example"] and "is suppressed" in why["A Name <550@x.example>"]
    assert mails.connections == connections


def test_n3_a_crash_neither_loses_nor_doubles_a_notice(store, outlog, relays):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for _ in range(5):
        append(outlog, "task.assigned", {"assignee": "u"})
    relays("first", fault="publish.sent:3:kill").wait()
    relays("second")
    wait_for(lambda: len(notices(store)) == 5, "five notices", seconds=60)
    assert len({str(row["id"]) for row in notices(store)}) == 5


def test_n4_the_preset_is_at_most_once_with_five_attempts(store, outlog):
    apply(outlog, config([{**RULE, "channels": ["email"]}]))
    append(outlog, "task.assigned", {"assignee": "u@x.example"})
    (row,) = execute(connect(store), "select at_most_once from outlog_outbox where destination = 'email'")
    assert row[0]


def test_n4_five_attempts_after_1_5_15_and_60_minutes_then_dead(store, outlog, mails):
    """Refused for now each time: known not to be sent, so it is tried again; each wait is as S2 says."""
    apply(outlog, config([{**RULE, "channels": ["email"]}], port=mails.port))
    append(outlog, "task.assigned", {"assignee": "450@x.example", "title": "x"})
    for attempt, minutes in enumerate((1, 5, 15, 60), 1):
        outlog.run("relay", "--until-idle")
        (message,) = outlog.run("outbox", "--json").json()
        assert (message["state"], message["attempts"]) == ("PENDING", attempt) and "450" in message["last_error"]
        waits = datetime.fromisoformat(message["available_at"]) - datetime.fromisoformat(message["updated_at"])
        assert abs(waits - timedelta(minutes=minutes)) < timedelta(seconds=5)
        outlog.run("destinations", "deliver", "email")
    outlog.run("relay", "--until-idle")
    (message,) = outlog.run("outbox", "--json").json()
    assert (message["state"], message["attempts"], mails.connections) == ("DEAD", 5, 5)


def test_n4_a_notification_without_the_preset_has_its_retries_too(store, outlog, mails):
    settings = config([{**RULE, "channels": ["email"]}], port=mails.port)
    del settings["destinations"]["email"]["preset"]
    apply(outlog, settings)
    append(outlog, "task.assigned", {"assignee": "450@x.example", "title": "x"})
    outlog.run("relay", "--until-idle")
    (message,) = outlog.run("outbox", "--json").json()
    waits = datetime.fromisoformat(message["available_at"]) - datetime.fromisoformat(message["updated_at"])
    assert (message["state"], message["attempts"], message["max_attempts"]) == ("PENDING", 1, 5)
    assert abs(waits - timedelta(minutes=1)) < timedelta(seconds=5)


def test_n4_what_may_have_been_sent_is_not_sent_again(store, outlog, mails):
    """The server goes after it has heard the mail and before it said yes."""
    apply(outlog, config([{**RULE, "channels": ["email"]}], port=mails.port))
    append(outlog, "task.assigned", {"assignee": "cut@x.example", "title": "x"})
    outlog.run("relay", "--until-idle")
    (message,) = outlog.run("outbox", "--json").json()
    assert (message["state"], message["attempts"], len(mails.mails)) == ("DEAD", 1, 1)


def test_n1_somebody_elses_message_cannot_pass_as_a_notice(store, outlog, relays):
    apply(outlog, config([RULE]))
    outlog.run("send", "--to", "in_app", "--type", "x", "--data", "{}")
    outlog.run("send", "--to", "in_app", "--type", "x", "--data", '{"recipient":"u"}', "--content-type", CONTENT_TYPE)
    relays()
    wait_for(lambda: len(outlog.run("dead", "--json").json()) == 2, "two dead letters")
    assert notices(store) == []


# --- HTTP: the feed, preferences, sockets ---


class Daemon(HttpRuns):
    """`outlog serve --dev`, which delivers too."""

    def __init__(self, store, *flags):
        self.outlog = Outlog(store)
        self.process = self.outlog.start("serve", "--dev", "--listen", "127.0.0.1:0", *flags)
        self.base = re.search(r"http://127\.0\.0\.1:\d+", self.process.stdout.readline())[0]

    def feed(self, user, query=""):
        return self.call("GET", f"users/{user}/notifications?org_id={ORG}{query}")[0]

    def whole_feed(self, user):
        """Also where it is longer than a page may be."""
        page = self.feed(user)
        all = page["notifications"]
        while page["next_after"]:
            page = self.feed(user, f"&after={urllib.parse.quote(page['next_after'])}")
            all += page["notifications"]
        return all

    def append(self, type, payload, entity="e-1", org=ORG):
        return self.call(
            "POST",
            "events",
            {
                "org_id": org,
                "events": [{"aggregate_type": "task", "aggregate_id": entity, "event_type": type, "payload": payload}],
            },
        )[0]

    def close(self):
        self.process.terminate()
        assert self.process.wait(30) == 0
        self.outlog.close()


@pytest.fixture
def daemon(store):
    it = Daemon(store)
    yield it
    it.close()


def test_n3_the_feed_is_read_by_http(store, outlog, daemon):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for number in range(3):
        daemon.append("task.assigned", {"assignee": "u/1", "title": f"t{number}", "x": "ä"})
    daemon.append("task.assigned", {"assignee": "u-2", "title": "other"})
    daemon.append("task.assigned", {"assignee": "u/1", "title": "elsewhere"}, org="other")
    user = "u%2F1"
    wait_for(lambda: len(daemon.feed(user)["notifications"]) == 3 and daemon.feed("u-2")["notifications"], "the feed")
    all = daemon.feed(user)["notifications"]
    assert sorted(one["subject"] for one in all) == ["t0", "t1", "t2"]
    assert all[0]["body_text"] == "ä" and all[0]["read_at"] is None and all[0]["category"] == "task"
    # pages
    first = daemon.feed(user, "&limit=2")
    rest = daemon.feed(user, "&limit=2&after=" + urllib.parse.quote(first["next_after"]))
    assert [one["id"] for one in first["notifications"] + rest["notifications"]] == [one["id"] for one in all]
    assert rest["next_after"] is None
    # read
    one = daemon.call("POST", f"notifications/{all[0]['id']}/read", {})[0]
    assert one["read_at"] and one["id"] == all[0]["id"]
    assert daemon.call("POST", f"notifications/{all[0]['id']}/read", {})[0]["read_at"] == one["read_at"]
    assert len(daemon.feed(user, "&unread=true")["notifications"]) == 2
    assert [n["id"] for n in daemon.feed(user, "&unread=false")["notifications"]] == [one["id"]]
    for path, code in ((f"notifications/{uuid.uuid4()}/read", "not_found"), ("notifications/x/read", "not_found")):
        with pytest.raises(Refused) as refused:
            daemon.call("POST", path, {})
        assert refused.value.code == code
    for query in ("&unread=maybe", "&after=x", "&limit=0"):
        with pytest.raises(Refused):
            daemon.feed(user, query)
    assert daemon.call("GET", f"users/{user}/notifications")[0] == {"notifications": [], "next_after": None}
    # everybody's
    every = daemon.call("GET", "notifications")[0]["notifications"]
    assert sorted(one["subject"] for one in every) == ["elsewhere", "other", "t0", "t1", "t2"]
    mine = daemon.call("GET", f"notifications?org_id={ORG}&user_id={user}&unread=true&limit=1")[0]
    assert mine["next_after"] and mine["notifications"][0]["user_id"] == "u/1"


def test_n3_preferences_keep_channels_silent_by_category(store, outlog, daemon):
    apply(
        outlog,
        config(
            [
                {**RULE, "channels": ["email", "in_app"], "once": "event"},
                {**RULE, "on": "task.updated", "category": "noise", "once": "event"},
            ]
        ),
    )
    path = f"users/u-1/preferences?org_id={ORG}"
    assert daemon.call("GET", path)[0] == {"org_id": ORG, "user_id": "u-1", "email": None, "channels": {}}
    wanted = {"*": {"email": False}, "noise": {"in_app": False}}
    assert daemon.call("PUT", path, {"email": "u-1@x.example", "channels": wanted})[0] == {
        "org_id": ORG,
        "user_id": "u-1",
        "email": "u-1@x.example",
        "channels": wanted,
    }
    daemon.append("task.assigned", {"assignee": ["u-1", "u-2"]})
    daemon.append("task.updated", {"assignee": ["u-1", "u-2"]})
    assert who(messages(store)) == sorted([("u-1", "in_app"), ("u-2", "in_app"), ("u-2", "email"), ("u-2", "in_app")])
    # A category beats "*"; what a body does not name stays.
    daemon.call("PUT", path, {"channels": {"*": {"email": False, "in_app": False}, "task": {"email": True}}})
    assert daemon.call("GET", path)[0]["email"] == "u-1@x.example"
    daemon.append("task.assigned", {"assignee": "u-1"})
    assert who(messages(store)).count(("u-1", "email")) == 1
    assert who(messages(store)).count(("u-1", "in_app")) == 1
    # What somebody wants in one org is not said in another.
    daemon.append("task.assigned", {"assignee": "u-1"}, org="other")
    assert who(row for row in messages(store) if row["org_id"] == "other") == [("u-1", "email"), ("u-1", "in_app")]
    daemon.call("PUT", path, {"email": None, "channels": {}})
    assert daemon.call("GET", path)[0] == {"org_id": ORG, "user_id": "u-1", "email": None, "channels": {}}
    for body in (
        {"email": "nobody"},
        {"channels": {"a": {"fax": True}}},
        {"channels": {"a": True}},
        {"x": 1},
        {"channels": {"a": {"email": 1}}},
    ):
        with pytest.raises(Refused):
            daemon.call("PUT", path, body)


@pytest.mark.parametrize("user", ["u" * 321, "é" * 161], ids=["ascii", "utf8"])
def test_n3_no_interface_takes_a_users_id_that_no_recipient_can_have(store, outlog, daemon, user):
    quoted = urllib.parse.quote(user)
    for method, path, body in (
        ("PUT", f"users/{quoted}/preferences", {"email": "u@x.example"}),
        ("PUT", f"users/{quoted}/preferences", {"channels": {"*": {"email": False}}}),
        ("GET", f"users/{quoted}/preferences", None),
        ("GET", f"users/{quoted}/notifications", None),
        ("GET", f"notifications?user_id={quoted}", None),
        ("POST", f"users/{quoted}/ticket", {}),
    ):
        with pytest.raises(Refused) as refused:
            daemon.call(method, path, body)
        assert (refused.value.code, refused.value.message) == ("invalid_field", "user_id has 1 to 320 bytes"), path
    with pytest.raises(AssertionError, match="400"):
        WebSocket(daemon.base, f"/v1/users/{quoted}/socket?org_id={ORG}")
    listed = outlog.run("notices", "--user", user, check=False)
    assert listed.returncode == 1 and "user_id has 1 to 320 bytes [invalid_field]" in listed.stderr
    for table, columns, values in (
        ("preferences", "category, channel, enabled", "'*', 'email', '0'"),
        ("contacts", "email", "'u@x.example'"),
    ):
        for id in (user, ""):
            with pytest.raises(
                (sqlite3.IntegrityError, psycopg2.IntegrityError), match=f"{table}_user_id_has_1_to_320_bytes"
            ):
                execute(
                    connect(store),
                    f"insert into outlog_{table} (org_id, user_id, {columns}) values ('{ORG}', '{id}', {values})",
                )
    longest = urllib.parse.quote(user[: 320 * len(user) // len(user.encode())])
    assert daemon.call("PUT", f"users/{longest}/preferences", {"email": "u@x.example"})[0]["email"] == "u@x.example"
    assert daemon.call("GET", f"users/{longest}/notifications")[0]["notifications"] == []


def test_n3_a_user_gets_mail_where_preferences_say(store, outlog, daemon, mails):
    apply(outlog, config([{**RULE, "channels": ["email"], "once": "event"}], port=mails.port))
    daemon.call("PUT", f"users/u-1/preferences?org_id={ORG}", {"email": "one@x.example"})
    daemon.append("task.assigned", {"assignee": "u-1", "title": "x", "x": "y"})
    wait_for(lambda: mails.mails, "the mail")
    assert mails.mails[0].rcpt_tos == ["one@x.example"]
    # Bounced for good, then let in again by hand. Refused for now is no bounce.
    daemon.append("task.assigned", {"assignee": "450@x.example"})
    wait_for(
        lambda: [row for row in outlog.run("outbox", "--json").json() if "450" in (row["last_error"] or "")],
        "the refusal",
    )
    daemon.append("task.assigned", {"assignee": "550@x.example"})
    wait_for(lambda: daemon.call("GET", "notifications/suppressions")[0]["suppressions"], "the suppression")
    (one,) = daemon.call("GET", "notifications/suppressions")[0]["suppressions"]
    assert one["address"] == "550@x.example" and "550" in one["reason"]
    request = urllib.request.Request(f"{daemon.base}/v1/notifications/suppressions/550@x.example", method="DELETE")
    with urllib.request.urlopen(request, timeout=30) as done:
        assert done.status == 204
    assert daemon.call("GET", "notifications/suppressions")[0]["suppressions"] == []
    (event,) = outlog.run("events", "--infra", "--type", "outlog.suppression.deleted", "--json").json()
    assert event["aggregate_id"] == "550@x.example"
    connections = mails.connections
    daemon.append("task.assigned", {"assignee": "550@x.example"}, entity="e-2")
    wait_for(
        lambda: daemon.call("GET", "notifications/suppressions")[0]["suppressions"],
        "it to be tried again, and to bounce",
    )
    assert mails.connections > connections


def test_n3_suppressions_are_read_page_by_page(store, outlog, daemon):
    addresses = sorted(f"{name}@x.example" for name in ("a-b", "ab", "a_b", "a.b", "zoë", "é", "a+b"))  # by their bytes
    execute(
        connect(store),
        "insert into outlog_suppressions (address, reason) values "
        + ", ".join(f"('{address}', '550 no such user')" for address in addresses),
    )

    def page(limit, after=None):
        return daemon.call(
            "GET",
            f"notifications/suppressions?limit={limit}" + (f"&after={urllib.parse.quote(after)}" if after else ""),
        )[0]

    assert [one["address"] for one in page(10)["suppressions"]] == addresses and page(10)["next_after"] is None
    found, after = [], None
    while True:
        one = page(3, after)
        found += one["suppressions"]
        after = one["next_after"]
        if after is None:
            break
        assert len(one["suppressions"]) == 3
        request = urllib.request.Request(
            f"{daemon.base}/v1/notifications/suppressions/{urllib.parse.quote(after)}", method="DELETE"
        )
        urllib.request.urlopen(request, timeout=30).close()  # where a page ended need not be there any more
    assert [one["address"] for one in found] == addresses


def test_n3_a_socket_gets_what_is_unread_and_then_each_notice_once(store, outlog, daemon):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for number in range(3):
        daemon.append("task.assigned", {"assignee": "u-1", "title": f"old{number}", "x": "y"})
    wait_for(lambda: len(daemon.feed("u-1")["notifications"]) == 3, "the feed")
    old = daemon.feed("u-1")["notifications"]
    daemon.call("POST", f"notifications/{old[0]['id']}/read", {})
    with WebSocket(daemon.base, f"/v1/users/u-1/socket?org_id={ORG}") as socket:
        got = [socket.receive() for _ in range(2)]
        assert {one["type"] for one in got} == {"notification"}
        assert [one["id"] for one in got] == [one["id"] for one in reversed(old[1:])]
        daemon.append("task.assigned", {"assignee": "u-2", "title": "not yours"})
        daemon.append("task.assigned", {"assignee": "u-1", "title": "new", "x": "y"})
        new = socket.receive()
        assert new["subject"] == "new" and new["read_at"] is None
        socket.send({"type": "read", "id": new["id"]})
        wait_for(
            lambda: new["id"] in [one["id"] for one in daemon.feed("u-1", "&unread=false")["notifications"]], "read"
        )
        socket.send({"type": "hm"})
        assert socket.receive()["type"] == "error", "and nothing came twice before it"
    # A ticket opens one socket of one user, once.
    ticket = daemon.call("POST", f"users/u-2/ticket?org_id={ORG}", {})[0]["ticket"]
    with pytest.raises(AssertionError, match="401"):
        WebSocket(daemon.base, f"/v1/users/u-1/socket?ticket={ticket}")
    ticket = daemon.call("POST", f"users/u-2/ticket?org_id={ORG}", {})[0]["ticket"]
    with WebSocket(daemon.base, f"/v1/users/u-2/socket?ticket={ticket}") as socket:
        assert socket.receive()["subject"] == "not yours"
    with pytest.raises(AssertionError, match="401"):
        WebSocket(daemon.base, f"/v1/users/u-2/socket?ticket={ticket}")
    with WebSocket(daemon.base, f"/v1/users/u-2/socket?org_id={ORG}") as socket:
        socket.receive()
        daemon.process.terminate()
        with pytest.raises(AssertionError, match="the server is stopping"):
            socket.receive()


def test_x1_a_socket_marks_its_own_users_notices_alone(store, outlog, daemon):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for user in ("u-1", "u-2"):
        daemon.append("task.assigned", {"assignee": user, "title": "x"})
    wait_for(lambda: daemon.feed("u-1")["notifications"] and daemon.feed("u-2")["notifications"], "the feeds")
    (other,) = daemon.feed("u-1")["notifications"]
    ticket = daemon.call("POST", f"users/u-2/ticket?org_id={ORG}", {})[0]["ticket"]
    with WebSocket(daemon.base, f"/v1/users/u-2/socket?ticket={ticket}") as socket:
        own = socket.receive()
        for id in (other["id"], "nonsense", own["id"]):  # one after the other
            socket.send({"type": "read", "id": id})
        wait_for(lambda: daemon.feed("u-2", "&unread=false")["notifications"], "its own to be read")
        assert len(daemon.feed("u-1", "&unread=true")["notifications"]) == 1
        with pytest.raises((AssertionError, ConnectionError)):  # closed, in the end
            for _ in range(40):
                socket.send({"type": "hm"})
                assert socket.receive()["type"] == "error"
            raise TimeoutError("never closed")
    daemon.call("POST", f"notifications/{other['id']}/read", {})


def test_n3_a_slow_reader_gets_all_of_its_feed_in_order(store, outlog, daemon):
    """More than the kernel and the daemon hold for one socket: it comes at the pace it is read."""
    apply(outlog, config([{**RULE, "once": "event"}]))

    def notify(numbers):
        for number in numbers:
            daemon.append("task.assigned", {"assignee": "u-1", "title": str(number), "x": "y" * 190_000})

    notify(range(40))
    wait_for(lambda: len(daemon.whole_feed("u-1")) == 40, "the feed")
    told = [one["subject"] for one in reversed(daemon.whole_feed("u-1"))]
    with WebSocket(daemon.base, f"/v1/users/u-1/socket?org_id={ORG}", room=4096) as socket:
        assert socket.receive()["subject"] == told[0]
        notify(range(40, 60))
        wait_for(lambda: len(daemon.whole_feed("u-1")) == 60, "the rest")
        rest = [socket.receive()["subject"] for _ in range(59)]
        assert rest[:39] == told[1:] and sorted(rest[39:], key=int) == [str(n) for n in range(40, 60)]
        daemon.append("task.assigned", {"assignee": "u-1", "title": "last", "x": ""})
        assert socket.receive()["subject"] == "last", "and nothing came twice before it"


def test_x2_a_token_of_an_org_sees_its_own_users_alone(store, outlog):
    apply(outlog, config([RULE]))
    append(outlog, "task.assigned", {"assignee": "u-1", "title": "x"})
    own, other = (
        outlog.run("token", "create", "--scope", "admin", "--org", org, "--json").json()[0]["token"]
        for org in (ORG, "other")
    )
    process = outlog.start("serve", "--listen", "127.0.0.1:0")
    base = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())[0]

    def call(token, method, path, body=None):
        request = urllib.request.Request(
            f"{base}/v1/{path}", method=method, headers={"authorization": f"Bearer {token}"}
        )
        if body is not None:
            request.data, request.headers["Content-type"] = json.dumps(body).encode(), "application/json"
        try:
            with urllib.request.urlopen(request, timeout=30) as done:
                return done.status, json.load(done)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)

    wait_for(lambda: call(own, "GET", "users/u-1/notifications")[1]["notifications"], "the notice")
    (one,) = call(own, "GET", "users/u-1/notifications")[1]["notifications"]
    assert call(other, "GET", "users/u-1/notifications")[1]["notifications"] == []
    assert call(other, "GET", f"users/u-1/notifications?org_id={ORG}")[0] == 403
    assert call(other, "GET", "notifications")[1]["notifications"] == []
    assert call(other, "GET", f"notifications?org_id={ORG}")[0] == 403
    assert [each["id"] for each in call(own, "GET", "notifications")[1]["notifications"]] == [one["id"]]
    assert call(other, "POST", f"notifications/{one['id']}/read", {})[0] == 404
    assert call(other, "PUT", f"users/u-1/preferences?org_id={ORG}", {"email": "e@x.example"})[0] == 403
    assert call(other, "GET", "notifications/suppressions")[0] == 403
    assert call(own, "POST", f"notifications/{one['id']}/read", {})[0] == 200
    assert call("", "GET", "users/u-1/notifications")[0] == 401


def test_n3_notices_are_listed_and_read_from_the_command_line(store, outlog):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for user in ("u-1", "u-1", "u-2"):
        append(outlog, "task.assigned", {"assignee": user, "title": "Tidy\x1b[31m up"})
    append(outlog, "task.assigned", {"assignee": "u-1", "title": "x"}, org="other")
    outlog.run("relay", "--until-idle")
    assert len(outlog.run("notices", "--json").json()) == 4
    mine = outlog.run("notices", "--org", ORG, "--user", "u-1", "--unread", "--json").json()
    assert [(one["org_id"], one["user_id"], one["read_at"]) for one in mine] == [(ORG, "u-1", None)] * 2
    text = outlog.run("notices", "--org", ORG, "--user", "u-2").stdout
    assert "unread" in text and "Tidy" in text and "\x1b" not in text
    unknown = outlog.run("notices", "read", mine[0]["id"], str(uuid.uuid4()), check=False)
    assert unknown.returncode == 1 and "not_found" in unknown.stderr
    assert len(outlog.run("notices", "--user", "u-1", "--org", ORG, "--unread", "--json").json()) == 2  # all or none
    read = outlog.run("notices", "read", mine[0]["id"], mine[1]["id"], "--json").json()
    assert [one["id"] for one in read] == [one["id"] for one in mine] and all(one["read_at"] for one in read)
    assert outlog.run("notices", "--user", "u-1", "--org", ORG, "--unread", "--json").stdout == ""
    assert outlog.run("notices", "read", check=False).returncode == 2
    assert outlog.run("notices", "--limit", "0", check=False).returncode == 2


def test_n3_notices_leave_the_feed_when_retention_says_so(store, outlog, relays):
    apply(outlog, config([{**RULE, "once": "event"}]))
    for user in ("old", "new"):
        append(outlog, "task.assigned", {"assignee": user, "title": user})
    outlog.run("relay", "--until-idle")
    with Outbox(store) as session:
        hours = 2 * 3600 * 1000000
        session.run(
            "update {}notices set created_at = created_at - "
            + (str(hours) if store.startswith("sqlite") else "interval '2 hours'")
            + " where user_id = 'old'"
        )
    users = lambda: sorted(one["user_id"] for one in outlog.run("notices", "--json").json())  # noqa: E731
    apply(outlog, {"retention": {"notices": "1h"}})
    relays("a")
    wait_for(lambda: users() == ["new"], "the old one to go")
    assert "retention.notices" in apply(outlog, {"retention": {"notices": "0s"}}, check=False).stderr


def test_i5_the_key_of_a_notification_that_is_gone_is_still_taken(store, outlog):
    apply(outlog, config([RULE]))
    execute(
        connect(store),
        "insert into outlog_outbox_keys (org_key, destination, idempotency_key, event_id, kept_at) "
        f"values ('acme', 'in_app', 'notification_dispatch:acme:task.assigned:task:e-1:u-1:in_app:t', '{uuid.uuid4()}', "
        "'2026-01-01T00:00:00.000000Z')",
    )
    append(outlog, "task.assigned", {"assignee": ["u-1", "u-2"]})
    assert who(messages(store)) == [("u-2", "in_app")]


def test_x2_rules_hold_for_a_role_that_may_only_append(postgres_store, outlog):
    execute(connect(postgres_store), "create table members (member text)")
    execute(connect(postgres_store), "insert into members values ('u-9')")
    apply(outlog, config([RULE, {**RULE, "recipients": {"sql": "select member from members"}}]))
    connection = connect(postgres_store)
    with connection.cursor() as cursor:
        cursor.execute("set role outlog_append")
    execute(
        connection,
        "select id from outlog_append(org_id => 'acme', aggregate_type => 'task', aggregate_id => 't', "
        "event_type => 'task.assigned', payload => '{\"assignee\":\"u-1\"}')",
    )
    assert who(messages(postgres_store)) == [("u-1", "in_app"), ("u-9", "in_app")]
