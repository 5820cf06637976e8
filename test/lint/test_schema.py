"""The rules of sql/schema reach C, both dialects and the pages: each is changed once, and every place must show it."""
import json
import re
import shutil
import subprocess
import sys

import pytest

from lib.cli import ROOT

DIALECTS = ("postgres", "sqlite")
HEADERS = ("secret_rules.h", "run_transitions.h")


def schema(name, root=ROOT):
    return json.loads((root / "sql" / "schema" / f"{name}.json").read_text())


@pytest.fixture
def tree(tmp_path):
    """A copy of sql/ to change."""
    shutil.copytree(ROOT / "sql", tmp_path / "sql")
    return tmp_path


def change(tree, name, edit):
    document = schema(name, tree)
    edit(document)
    (tree / "sql" / "schema" / f"{name}.json").write_text(json.dumps(document))


def embed(tree):
    """The build's own command, with its outputs in the tree."""
    command = (ROOT / "src" / "meson.build").read_text().partition("custom_target('queries',")[2]
    outputs = re.findall(r"'([\w.]+)'", re.search(r"output: \[(.*?)\]", command, re.S)[1])
    given = [outputs[int(number)] for number in re.findall(r"@OUTPUT(\d)@", command.partition(")\n")[0])]
    return subprocess.run(
        [sys.executable, ROOT / "scripts" / "embed_sql.py", tree / "sql", *(tree / o for o in given)],
        capture_output=True,
        text=True,
    )


def generated(tree):
    """What the build makes of the tree: the two headers, and the migrations of each dialect."""
    done = embed(tree)
    assert (done.returncode, done.stderr) == (0, "")
    source = (tree / "queries.c").read_text()
    out = {name: (tree / name).read_text() for name in HEADERS}
    for dialect in DIALECTS:
        arrays = re.findall(rf"{dialect}_migration_\d+\[\] = {{(.*?),0}};", source, re.S)
        out[dialect] = "".join(bytes(int(n) % 256 for n in array.split(",")).decode() for array in arrays)
        assert arrays and "--=" not in out[dialect]
    return out


def test_a_rule_against_secrets_reaches_every_store(tree):
    change(
        tree,
        "secret_rules",
        lambda document: document["rules"].insert(
            3,
            {
                "name": "acme_key",
                "mode": "reject",
                "about": "a key of ACME",
                "not_after": "0-9A-Za-z",
                "match": [["acme[kt]-", {"of": "0-9a-f", "count": 12}]],
                "except_suffix": "fff",
            },
        ),
    )
    text = generated(tree)
    assert '{"acme_key", OL_SECRET_REJECT, false, "(?:^|[^0-9A-Za-z])(acme[kt]-[0-9a-f]{12})"' in text["secret_rules.h"]
    assert "'acme[kt]-|'" in text["postgres"]
    assert "new.metadata glob '*acme[kt]-*'" in text["sqlite"]
    assert "('acme_key', '[^0-9A-Za-z]', 'acme[kt]-', 9, '[0-9a-f]', 'ff[0-9a-e]', null, null, null)" in text["sqlite"]
    assert "metadata looks like a secret (rule acme_key)" in text["sqlite"]


def test_a_transition_of_messages_reaches_every_store(tree):
    change(
        tree,
        "message_transitions",
        lambda document: document["transitions"].append(
            {"from": "DEAD", "to": "PUBLISHED", "about": "delivered by hand"}
        ),
    )
    text = generated(tree)
    assert "('DEAD', 'PUBLISHED')" in text["postgres"]
    assert "'DEAD>PUBLISHED'" in text["sqlite"]


def test_a_transition_of_runs_reaches_every_store(tree):
    def edit(document):
        verb = next(verb for verb in document["verbs"] if verb["verb"] == "retry_step")
        verb |= {"from": ["FAILED", "SKIPPED"], "to": "COMPLETED", "event": "STEP_TRIED", "members": {"why": "text 7"}}

    change(tree, "run_transitions", edit)
    text = generated(tree)
    assert "'step_id', 'FAILED or SKIPPED', 'COMPLETED', 'STEP_TRIED'" in text["postgres"]
    assert "perform outlog.refuse_field('why', body ->> 'why', 7, true);" in text["postgres"]
    assert '[OL_RETRY_STEP] = {"FAILED or SKIPPED", "COMPLETED", "STEP_TRIED", ' in text["run_transitions.h"]
    assert '[OL_RETRY_STEP] = {"retry_step", "step_id", {{"why", BODY_TEXT, true, 7}' in text["run_transitions.h"]


def test_migrations_are_numbered_without_a_gap_and_alike(tree):
    folder = tree / "sql" / "sqlite" / "migrations"
    (folder / "0002_outbox" / "4_state.sql").rename(folder / "0002_outbox" / "5_state.sql")
    assert "this number is 5_effects.sql in the other dialect" in embed(tree).stderr
    (folder / "0003_runs").rename(folder / "0009_runs")
    assert "migration 3 is missing" in embed(tree).stderr


def test_an_unknown_part_is_named(tree):
    path = tree / "sql" / "sqlite" / "migrations" / "0003_runs" / "1_tables.sql"
    path.write_text(path.read_text() + "--= run_tables()\n")
    assert "sqlite has no generated part run_tables" in embed(tree).stderr


# The pages


def rows(page, *head):
    """The rows of the table of a page that has these columns."""
    _, _, table = (ROOT / "docs" / page).read_text().partition(f"| {' | '.join(head)} |\n")
    lines = table.split("\n\n")[0].splitlines()[1:]
    assert lines, f"docs/{page} has no table {head}"
    return [[cell.strip() for cell in re.split(r" \||\| ", f" {line.strip('|')} ")] for line in lines]


def test_the_page_of_secrets_lists_every_rule():
    rules = schema("secret_rules")["rules"]
    assert rows("concepts.md", "rule", "mode", "what it finds") == [
        [f"`{rule['name']}`", rule["mode"], rule["about"]] for rule in rules
    ]


def test_the_page_of_the_outbox_lists_every_transition():
    assert rows("outbox.md", "from", "to", "when") == [
        [move["from"], move["to"], move["about"]] for move in schema("message_transitions")["transitions"]
    ]


def verbs():
    return {verb["verb"]: verb for verb in schema("run_transitions")["verbs"]}


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def test_the_page_of_runs_lists_every_verb():
    about = {None: "", "run_id": "run", "step_id": "step", "tool_call_id": "tool call"}
    listed = {}
    for verb, target, body, _, events in rows("runs.md", "verb", "about", "body", "answer", "event"):
        listed[code(verb)[0]] = (target, {name for name in code(body) if name != "org_id"}, code(events))
    assert listed == {
        name: (
            about[verb.get("target")],
            set(verb["members"]) - {"org_id?"},
            sorted(
                filter(None, [verb.get("signal", {}).get("event"), verb["event"]]),
                key=lambda event: event.startswith("SIGNAL_") is (name != "start_run"),
            ),
        )
        for name, verb in verbs().items()
    }


def test_the_page_of_runs_lists_every_transition():
    listed = {}
    for verb, before, after in rows("runs.md", "verb", "from", "to"):
        listed |= dict.fromkeys(code(verb), (before, after))
    wanted = {}
    for name, verb in verbs().items():
        what = (verb.get("target") or "run_id").removesuffix("_id").replace("_", " ")
        signal = verb.get("signal", {})
        before = (
            f"signal {', '.join(signal['from'])}"
            if "from" in signal
            else "tool call that has not ended"
            if what == "tool call"
            else f"{what} {', '.join(verb.get('from', ['RUNNING']))}"
        )
        if "steps" in verb:
            before += ", and no step RUNNING or FAILED"
        after = [f"{what} {verb['to']}"] if "to" in verb and what != "tool call" else []
        after += [f"signal {signal['to']}"] if signal else []
        wanted[name] = (before, ", ".join(reversed(after) if "from" in signal else after))
    del wanted["receive_signal"]  # it makes a signal, whatever there is
    assert listed == wanted
