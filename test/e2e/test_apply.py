"""outlog apply: what the file says becomes what the store says."""
import json
import textwrap

import pytest

from interfaces import connect, execute

FILE = """\
store: sqlite:elsewhere.db
listen: 127.0.0.1:7400
destinations:
  billing:
    type: webhook
    url: https://billing.example/hooks
    secret: ${BILLING_SECRET}
    timeout: 10s
    on_dead: hold
    guarantee: at_most_once
  ops: {type: stdout}
routes:
  - {on: "order.*", to: billing}
  - {on: invoice.sent, to: ops, org_id: acme, when: {/total: 12}}
event_types:
  strict: [acme, beta]
  order.created: {version: 2, upcast: {1: [{rename: [/sum, /total]}, {default: [/currency, EUR]}]}}
types:
  SEND_EMAIL: {retry: {base: 2s, max_attempts: 4}}
alerts: {to: ops}
retention: {messages: forever, idempotency: 24h}
relay: {lease: 30s, poll: 50ms, lanes: 8, wakeup: poll}
"""


def apply(outlog, text, *args, **options):
    return outlog.run("apply", "-f", "-", *args, input=textwrap.dedent(text), **options)


def rows(store, sql):
    return execute(connect(store), sql)


def audit(outlog):
    return [event["event_type"] for event in outlog.run("events", "--infra", "--json").json()]


def everything(store):
    return {
        table: sorted(map(str, rows(store, f"select * from outlog_{table}")))
        for table in ("destinations", "routes", "settings", "event_types", "strict_orgs")
    }


def test_x4_apply_stores_every_section_and_leaves_audit_events(store, outlog):
    said = apply(outlog, FILE)
    assert "15 added, 0 changed, 0 removed" in said.stdout
    assert "+ destination billing" in said.stdout and "+ route       order.* -> billing" in said.stdout
    found = dict(
        (name, (settings, guarantee, on_dead, bool(alert)))
        for name, settings, guarantee, on_dead, alert in rows(
            store, "select name, settings, guarantee, on_dead, is_alert from outlog_destinations"
        )
    )
    assert found["billing"][1:] == ("at_most_once", "hold", False)
    assert found["ops"][3], "alerts.to"
    settings = found["billing"][0]
    settings = settings if isinstance(settings, dict) else json.loads(settings)
    assert settings["secret"] == "${BILLING_SECRET}", "as written"
    kept = {
        key: value if not isinstance(value, str) or store.startswith("postgres") else json.loads(value)
        for key, value in rows(store, "select key, value from outlog_settings")
    }
    assert kept == {
        "types.SEND_EMAIL": {"retry": {"base": "2s", "max_attempts": 4}},
        "alerts.to": "ops",
        "retention.messages": "forever",
        "retention.idempotency": "24h",
        "relay.lease": "30s",
        "relay.poll": "50ms",
        "relay.lanes": 8,
        "relay.wakeup": "poll",
    }
    events = outlog.run("events", "--infra", "--json").json()
    assert len(events) == 15 and len({event["correlation_id"] for event in events}) == 1
    assert {event["event_type"] for event in events} == {
        "outlog.destination.applied",
        "outlog.route.applied",
        "outlog.event_type.applied",
        "outlog.strict_org.applied",
        "outlog.setting.applied",
    }
    assert "BILLING_SECRET" not in json.dumps(events)


def test_x4_a_second_apply_changes_nothing_and_tells_nothing(store, outlog):
    apply(outlog, FILE)
    before, told = everything(store), audit(outlog)
    again = apply(outlog, FILE)
    assert again.stdout == "= 15 same\nnothing to change\n"
    assert everything(store) == before
    assert audit(outlog) == told


def test_apply_in_other_words_is_still_the_same(store, outlog):
    apply(outlog, "destinations: {a: {type: stdout, timeout: 5s}}")
    assert (
        "nothing to change"
        in apply(
            outlog,
            """
        destinations:
          a:
            # keys in another order, quotes, comments
            timeout: "5s"
            type: 'stdout'
        """,
        ).stdout
    )


def test_apply_shows_which_keys_change(store, outlog):
    apply(outlog, FILE)
    said = apply(
        outlog,
        FILE.replace("timeout: 10s", "timeout: 5s\n    concurrency: 3")
        .replace("    on_dead: hold\n", "")
        .replace("lease: 30s", "lease: 20s"),
    )
    assert "~ destination billing: on_dead, timeout, concurrency" in said.stdout
    assert '~ setting     relay.lease: "30s" -> "20s"' in said.stdout
    assert "0 added, 2 changed, 0 removed" in said.stdout
    event = outlog.run("events", "--infra", "--aggregate", "outlog.destination/billing", "--json").json()[-1]
    assert event["payload"] == {"name": "billing", "change": "changed", "keys": ["on_dead", "timeout", "concurrency"]}
    assert rows(store, "select on_dead from outlog_destinations where name = 'billing'") == [("skip",)]


def test_apply_leaves_alone_what_the_file_does_not_name_and_prune_removes_it(store, outlog):
    apply(outlog, FILE)
    (builtin,) = rows(store, "select count(*) from outlog_event_types where is_builtin")[0]
    said = apply(outlog, "destinations: {third: {type: 'null'}}")
    assert said.stdout.startswith("+ destination third\n= 0 same")
    assert len(rows(store, "select * from outlog_destinations")) == 3
    said = apply(outlog, "destinations: {third: {type: 'null'}}", "--prune")
    assert "0 added, 0 changed, 15 removed" in said.stdout
    assert rows(store, "select name from outlog_destinations") == [("third",)]
    assert rows(store, "select * from outlog_routes") == rows(store, "select * from outlog_settings") == []
    assert rows(store, "select count(*) from outlog_event_types") == [(builtin,)], "what ships with outlog stays"
    assert "outlog.destination.deleted" in audit(outlog) and "outlog.route.deleted" in audit(outlog)
    assert "nothing to change" in apply(outlog, "destinations: {third: {type: 'null'}}", "--prune").stdout


@pytest.mark.parametrize("word", ["null", "'null'", '"null"'])
def test_apply_null_is_the_name_of_a_type(store, outlog, word):
    apply(outlog, f"destinations: {{d: {{type: {word}}}}}")
    assert outlog.run("destinations", "--json").json()[0]["type"] == "null"
    assert "nothing to change" in apply(outlog, "destinations: {d: {type: null}}").stdout
    refused = outlog.run("apply", "-f", "-", input="destinations: {d: {type: ~}}", check=False)
    assert refused.returncode == 1 and "type" in refused.stderr


def test_apply_dry_run_writes_nothing(store, outlog):
    before = everything(store)
    said = apply(outlog, FILE, "--dry-run")
    assert "would be: 15 added" in said.stdout
    assert everything(store) == before and audit(outlog) == []
    assert "15 added" in apply(outlog, FILE).stdout


def test_apply_json_is_a_line_a_change(store, outlog):
    lines = apply(outlog, "destinations: {a: {type: stdout}}", "--json").json()
    assert lines == [{"change": "added", "noun": "destination", "name": "a", "keys": None}]


def test_x4_apply_says_who(store, outlog):
    apply(outlog, "destinations: {a: {type: stdout}}", "--actor", "user:ann")
    (event,) = outlog.run("events", "--infra", "--json").json()
    assert (event["actor_type"], event["actor_id"], event["org_id"]) == ("user", "ann", None)


def test_apply_pause_survives(store, outlog):
    apply(outlog, "destinations: {a: {type: stdout}}")
    outlog.run("destinations", "pause", "a")
    apply(outlog, "destinations: {a: {type: stdout, timeout: 5s}}")
    assert bool(rows(store, "select paused from outlog_destinations")[0][0])


def test_alerts_move_with_the_setting(store, outlog):
    alerts = "select name from outlog_destinations where is_alert"
    both = "destinations: {a: {type: stdout}, b: {type: stdout}}\n"
    apply(outlog, both + "alerts: {to: a}")
    assert rows(store, alerts) == [("a",)]
    apply(outlog, both + "alerts: {to: b}")
    assert rows(store, alerts) == [("b",)]
    apply(outlog, "destinations: {b: {type: stdout, timeout: 5s}}")
    assert rows(store, alerts) == [("b",)], "a later change of the destination keeps it"
    apply(outlog, both, "--prune")
    assert rows(store, alerts) == []


def test_e11_event_types_from_the_file_upcast_and_strict(store, outlog):
    outlog.run("append", "--org", "acme", "--aggregate", "order/1", "--type", "order.created", "--data", '{"sum":3}')
    apply(outlog, FILE)
    (event,) = outlog.run("events", "--org", "acme", "--json").json()
    assert event["payload"] == {"total": 3, "currency": "EUR"} and event["event_version"] == 2
    refused = outlog.run(
        "append", "--org", "acme", "--aggregate", "order/1", "--type", "unheard.of", "--data", "{}", check=False
    )
    assert refused.returncode == 1 and "[unknown_event_type]" in refused.stderr


def test_e10_a_type_that_ships_keeps_what_the_file_does_not_say(store, outlog):
    name, version, about = rows(
        store,
        "select event_type, version, about from outlog_event_types where is_builtin "
        "and shape is not null order by event_type",
    )[0]
    apply(outlog, json.dumps({"event_types": {name: {"version": version + 1}}}))
    (after,) = rows(
        store,
        f"select version, about, shape is not null, is_builtin from outlog_event_types where event_type = '{name}'",
    )
    assert (after[0], after[1], bool(after[2]), bool(after[3])) == (version + 1, about, True, True)


# --- what is refused, by line and key ---


@pytest.mark.parametrize(
    "text, line, words, code",
    [
        ("foo: 1", 1, "unknown key foo", "unknown_field"),
        (
            "\n\ndestinations:\n  x:\n    type: webhook\n    url: https://a.example/\n    colour: red\n",
            7,
            'x: unknown key "colour"',
            "unknown_field",
        ),
        ("destinations:\n  x: {type: stdout}\n  y:\n    type: nothing\n", 4, "type: one of webhook", "invalid_field"),
        ("destinations:\n  x:\n    type: stdout\n    url: http://a/\n", 4, "has no such key", "unknown_field"),
        ("destinations:\n  x:\n    type: stdout\n    timeout: soon\n", 4, "timeout:", "invalid_field"),
        (
            "destinations:\n  x:\n    type: stdout\n    retry:\n      policy: exponential\n      base: x\n",
            6,
            "retry.base",
            "invalid_field",
        ),
        ("destinations:\n  x:\n    type: stdout\n    retry: {bese: 1s}\n", 4, "retry: unknown key", "unknown_field"),
        ("destinations: []", 1, "a map by name", "invalid_field"),
        ("destinations: {x: 1}", 1, "x: a map is wanted", "invalid_field"),
        ("destinations:\n  x: {type: stdout}\n  x: {type: stdout}\n", 3, "is on line 2 already", "invalid_field"),
        ("routes:\n  - {on: a}\n", 2, "to: it is missing", "invalid_field"),
        ("routes:\n  - {on: a, to: nowhere}\n", 2, "there is no destination nowhere", "invalid_field"),
        (
            "destinations: {a: {type: stdout}}\nroutes:\n  - {on: a, to: a}\n  - {on: b,\n     to: a, form: x}\n",
            5,
            "unknown key form",
            "unknown_field",
        ),
        (
            "destinations: {a: {type: stdout}}\nroutes:\n  - {on: a, to: a}\n  - {on: a, to: a}\n",
            4,
            "twice",
            "invalid_field",
        ),
        (
            "destinations: {a: {type: stdout}}\nroutes:\n  - on: a\n    to: a\n    when:\n      total: 3\n",
            6,
            "a path is like",
            "invalid_field",
        ),
        (
            "destinations: {a: {type: stdout}}\nroutes:\n  - on: a\n    to: a\n    when:\n      /total: [3]\n",
            6,
            "a text, a number",
            "invalid_field",
        ),
        ("event_types: {a.b: {version: 0}}", 1, "version", "invalid_field"),
        (
            "event_types:\n  a.b:\n    version: 2\n    upcast:\n      1: [{renaim: [/a, /b]}]\n",
            5,
            "a.b",
            "invalid_field",
        ),
        ("event_types: {strict: acme}", 1, "a list of orgs", "invalid_field"),
        ("types:\n  X:\n    max_attempts: 3\n", 3, "unknown key max_attempts", "unknown_field"),
        ("alerts: {to: nobody}", 1, "there is no destination nobody", "invalid_field"),
        ("retention:\n  idempotency: 1h\n", 2, "24h or more", "invalid_field"),
        ("relay:\n  lease: 1ms\n", 2, "relay.lease: a span", "invalid_field"),
        ("relay:\n  lanes: many\n", 2, "relay.lanes", "invalid_field"),
        ("relay: {wakeup: often}", 1, "poll or notify", "invalid_field"),
        ("relay: {leash: 1s}", 1, "unknown key leash", "unknown_field"),
        ("agents: {a: {type: smoke}}", 1, "http or exec", "invalid_field"),
        ("notifications: {x: 1}", 1, "unknown key x", "unknown_field"),
        ("a: &x 1\nb: *x\n", 1, "anchors", "invalid_field"),
        ("destinations:\n  a: *x\n", 2, "aliases", "invalid_field"),
        ("relay:\n  <<: {lease: 3s}\n", 2, "merge keys", "invalid_field"),
        ("relay: !!map {lease: 3s}\n", 1, "tags", "invalid_field"),
        ("relay: {lease: 30s}\n---\nrelay: {}\n", 2, "one document", "invalid_field"),
        ("relay:\n  lease: [30s\npoll: 3\n", 3, "", "invalid_field"),
        ("- a\n", 1, "a map of sections", "invalid_field"),
        ("relay:\n  lease: 3s\n\tpoll: 3s\n", 3, "a tab character", "invalid_field"),
        (b"relay:\n  lease: 3s\n  wakeup: \xff\n", 3, "UTF-8", "invalid_field"),
        (b"relay:\n  lease: 3s\n  wakeup: p\xc3\n", 3, "UTF-8", "invalid_field"),
        ("relay:\n  lease: 3s\n  wakeup: \x01\n", 3, "control characters", "invalid_field"),
        ('relay:\n  lease: "\\0"\n', 2, "a NUL", "invalid_field"),
        ('relay:\n  lease: "\\ud800"\n', 2, "invalid Unicode", "invalid_field"),
        ("relay:\n  lease: " + "[" * 100_000, 2, "nested too deep", "invalid_field"),
        ("relay:\n  lease: " + "{a: " * 100_000, 2, "nested too deep", "invalid_field"),
        ("relay:\n  &a lease: [*a, *a]\n", 2, "anchors", "invalid_field"),
        ("relay:\n  ? [lease]\n  : 3s\n", 2, "a key is a plain text", "invalid_field"),
        (
            "relay:\n" + "".join(f"  k{n}: 1\n" for n in range(100_000)) + "  k0: 1\n",
            100_002,
            "is on line 2 already",
            "invalid_field",
        ),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_apply_errors_name_line_and_key(sqlite_store, outlog, text, line, words, code):
    said = outlog.run("apply", "-f", "-", input=text, check=False)
    assert said.returncode == 1 and said.stdout == ""
    assert f"line {line}: " in said.stderr and words in said.stderr, said.stderr
    assert said.stderr.count("\n") == 1 and said.stderr.endswith(f"[{code}]\n")
    assert audit(outlog) == []


def test_apply_is_all_or_nothing(store, outlog):
    said = apply(outlog, FILE.replace("to: billing}", "to: nowhere}"), check=False)
    assert said.returncode == 1
    assert rows(store, "select * from outlog_destinations") == [] and audit(outlog) == []


def test_apply_reads_a_file_and_its_store(sqlite_store, outlog, tmp_path):
    (tmp_path / "outlog.yaml").write_text(f"store: {sqlite_store}\ndestinations: {{a: {{type: stdout}}}}\n")
    outlog.store = None
    outlog.run("apply", "-f", "outlog.yaml")
    assert rows(sqlite_store, "select name from outlog_destinations") == [("a",)]
    missing = outlog.run("apply", "-f", "nothing.yaml", check=False)
    assert missing.returncode == 1 and "cannot read nothing.yaml" in missing.stderr
    assert outlog.run("apply", check=False).returncode == 2


@pytest.mark.parametrize(
    "scalar, value",
    [
        ("12", 12),
        ("-1.5e3", -1500.0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("no", "no"),
        ("on", "on"),
        ("007", "007"),
        ("0x1f", "0x1f"),
        (".inf", ".inf"),
        ("1_000", "1_000"),
        ("'12'", "12"),
        ('"true"', "true"),
        ("2026-01-01", "2026-01-01"),
        ("${X}", "${X}"),
    ],
)
def test_yaml_scalars_are_what_json_would_say_and_text_otherwise(sqlite_store, outlog, scalar, value):
    text = f"destinations:\n  a: {{type: stdout}}\nroutes:\n  - on: x\n    to: a\n    when:\n      /v: {scalar}\n"
    apply(outlog, text)
    (source,) = rows(sqlite_store, "select source from outlog_routes")[0]
    assert json.loads(source)["when"] == {"/v": value}


def test_config_tells_where_each_setting_came_from(store, outlog, tmp_path):
    apply(outlog, "relay: {lease: 20s, poll: 10ms}")
    (tmp_path / "outlog.yaml").write_text("relay: {poll: 5ms}\nlisten: 0.0.0.0:80\n")
    found = {
        line["key"]: (line["value"], line["from"])
        for line in outlog.run("config", "-f", "outlog.yaml", "--json").json()
    }
    assert found["relay.lease"] == ("20s", "store")
    assert found["relay.poll"] == ("5ms", "file") and found["listen"] == ("0.0.0.0:80", "file")
    assert found["relay.wakeup"] == ("poll", "default")
    assert found["store"][1] == "environment" and "outlog_test:***" in found["store"][0] or store.startswith("sqlite")
    flagged = {line["key"]: line["from"] for line in outlog.run("config", "--store", store, "--json").json()}
    assert flagged["store"] == "flag"


def test_e13_what_a_rule_against_secrets_does_is_a_setting_and_audited(store, outlog):
    """Changing a rule left no audit event."""

    def append():
        data = '{"db_password": "hunter2"}'
        return outlog.run(
            "append", "--org", "acme", "--aggregate", "a/b", "--type", "t.made", "--data", data, check=False
        ).returncode

    assert append() == 1
    for mode in ("warn", "off"):
        outlog.run("apply", "-f", "-", input=f"secrets: {{password: {mode}}}\n")
        assert append() == 0
        audit = outlog.run("events", "--infra", "--json").json()[-1]
        assert audit["event_type"].startswith("outlog.setting") and audit["aggregate_id"] == "secrets.password"
        assert audit["payload"]["value"] == mode
    outlog.run("apply", "--prune", "-f", "-", input="secrets: {}\n")
    assert append() == 1
    for wrong in ("secrets: {nope: warn}", "secrets: {jwt: maybe}"):
        refused = outlog.run("apply", "-f", "-", input=wrong, check=False)
        assert refused.returncode == 1 and "invalid_field" in refused.stderr, refused
