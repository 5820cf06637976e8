"""The documentation is true: what it shows runs, what it lists is complete, what it names exists."""
import contextlib
import os
import re
import subprocess

import pytest

from lib import brokers
from lib.cli import ROOT
from lib.docs import Page
from lib.install import install, user_env

PAGES = [ROOT / name for name in ("README.md", "ARCHITECTURE.md")] + sorted((ROOT / "docs").rglob("*.md"))
TEXTS = {page: page.read_text() for page in PAGES}

NUMBERED = {
    "E": 16,
    "A": 4,
    "I": 5,
    "T": 4,
    "O": 10,
    "L": 9,
    "R": 4,
    "D": 8,
    "C": 4,
    "P": 6,
    "U": 5,
    "S-": 7,
    "N": 4,
    "X": 5,
    "M": 5,
    "OO-": 120,
    "OO-C": 10,
}
REQUIRED = [f"{letter}{n}" for letter, count in NUMBERED.items() for n in range(1, count + 1)]
NAMED_TEST = re.compile(r"`(test/[\w./]+)::(\w+)`")


def name(path):
    return str(path.relative_to(ROOT))


def rows(page):
    """The cells of every table row of a page."""
    for line in page.read_text().splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            yield [cell.strip() for cell in line.strip("|").split(" | ")]


# What is shown runs


@pytest.fixture(scope="module")
def prefix(build, tmp_path_factory):
    return install(build, tmp_path_factory.mktemp("installed"))


@pytest.fixture
def database(postgres):
    yield postgres.create("pages")
    postgres.drop("pages")


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_a_page_runs_from_top_to_bottom(path, prefix, database, extension_env, tmp_path, tmp_path_factory):
    with contextlib.ExitStack() as stack:
        where = brokers.start_all(stack, tmp_path_factory.mktemp("brokers")) if "KAFKA_BROKERS" in TEXTS[path] else {}
        env, loader_env = (
            {**user_env(prefix, base), "DATABASE_URL": database, **where} for base in (os.environ, extension_env)
        )
        Page(path, tmp_path, prefix, env, loader_env).run()


# What is named exists


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", TEXTS[path]):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target


def test_named_tests_exist():
    sources = {}
    for path, text in TEXTS.items():
        for file, test in NAMED_TEST.findall(text):
            if file not in sources:
                assert (ROOT / file).exists(), f"{name(path)} names {file}"
                sources[file] = (ROOT / file).read_text()
            assert re.search(rf"\b{test}\b\s*\(", sources[file]), f"{name(path)}: {file}::{test}"


# What is listed is complete


def test_conformance_lists_every_requirement_once():
    listed = [row[0] for row in rows(ROOT / "docs" / "conformance.md") if row[0] in set(REQUIRED)]
    assert listed == REQUIRED


def test_conformance_proves_what_it_calls_done():
    for row in rows(ROOT / "docs" / "conformance.md"):
        if row[0] not in REQUIRED:
            continue
        assert len(row) == 4, row
        is_proved, status = bool(NAMED_TEST.search(row[3])), row[2]
        assert status in ("done", "partly", "not yet"), row
        if status == "not yet":
            assert row[3] == "not yet", row
        elif status in ("done", "partly"):
            assert is_proved, f"{row[0]} is {status}, but no test is named"


def test_errors_are_those_of_the_table_in_err_c(root):
    source = (root / "src" / "base" / "err.c").read_text()
    codes = re.findall(r'\[OUTLOG_(?!OK)\w+\] = \{"(\w+)", (\d+), (true|false)\}', source)
    listed = [
        (row[0].strip("`"), row[3], {"yes": "true", "no": "false"}[row[4]])
        for row in rows(root / "docs" / "errors.md")
        if row[0].startswith("`")
    ]
    assert listed == codes


def test_the_cli_page_names_every_command_and_option(root, build):
    text = (root / "docs" / "cli.md").read_text()
    usage = subprocess.run([build / "outlog", "--help"], capture_output=True, text=True).stdout
    commands = re.findall(r"^  (\w+) +\S", usage.split("Every command")[0], re.M)
    assert commands
    unfinished = re.findall(r"`(\w+)`", text.split("## Not yet")[1])
    for command in commands:
        if command in unfinished:
            continue
        assert re.search(rf"^## (\w+ and )?{command}( and \w+)?$", text, re.M), command
        source = root / "src" / "cli" / f"{command}.c"
        if source.exists():
            for option in re.findall(r'\{"([a-z-]+)", OL_OPTION_(?:FLAG|STRING|NUMBER)', source.read_text()):
                assert f"`--{option}" in text, f"{command} --{option}"


def contracts(text):
    """Every function of a public header, and whether a comment stands above it or its neighbours."""
    for paragraph in re.split(r"\n\s*\n", text):
        for name in re.findall(r"^(?:OUTLOG_API )?[a-z][\w *]*?\b(outlog_\w+)\(", paragraph, re.M):
            yield name, "/*" in paragraph[: paragraph.index(name)]


def test_every_public_function_has_its_contract():
    found = {name: has for path in (ROOT / "include").glob("*.h") for name, has in contracts(path.read_text())}
    assert len(found) > 50 and [name for name, has in found.items() if not has] == []


def test_the_sql_page_names_every_argument_and_function(root, postgres_store, postgres):
    text = (root / "docs" / "sql.md").read_text()
    functions = dict(
        postgres.sql(
            """select proname, array_agg(pronargdefaults > 0) from pg_proc
            where pronamespace = 'outlog'::regnamespace group by proname""",
            database=postgres_store.rsplit("/", 1)[1],
        )
    )
    for function, has_defaults in functions.items():
        if any(has_defaults):  # it is meant to be called by people
            assert f"`outlog.{function}" in text, function
    for function in set(re.findall(r"`outlog\.(\w+)\(", text)):
        assert function in functions, f"{function} does not exist"
    (arguments,) = postgres.sql(
        "select proargnames from pg_proc where pronamespace = 'outlog'::regnamespace and proname = 'append' and prosecdef",
        database=postgres_store.rsplit("/", 1)[1],
    )
    for argument in arguments[0]:
        assert f"| `{argument}`" in text, argument
    ours = re.findall(r'\{"(outlog_\w+)", \d', (root / "src" / "ext" / "ext.c").read_text())
    assert ours
    for function in ours:
        assert f"`{function}(" in text, function


def test_the_config_page_names_every_key(root):
    text = (root / "docs" / "config.md").read_text()
    source = "".join(
        path.read_text()
        for folder in ("destinations", "publish")
        for path in sorted((root / "src" / folder).rglob("*.c"))
    )
    tables = re.findall(r"struct ol_setting_key \w+_keys\[\] = \{\n(.*?)\n\};", source, re.S)
    keys = set(re.findall(r'\{\.name = "(\w+)",\s+\.read = ', "".join(tables)))
    types = re.findall(r'struct ol_publisher_type ol_publisher_type_\w+ = \{\s+\.name = "(\w+)"', source)
    registered = re.findall(r"^    X\((\w+)\)", (root / "src" / "publish" / "registry.c").read_text(), re.M)
    assert {"timeout", "url", "subject", "dedupe", "command", "path"} <= keys and len(keys) >= 47
    assert "webhook" in types and sorted(types) == sorted(registered)
    for key in keys:
        assert f"`{key}`" in text, key
    for name in types:
        assert f"`{name}`" in text, name
    for section, key in re.findall(
        r'^    \{"(\w+)", "(\w+)", [A-Z]', (root / "src" / "config" / "section.c").read_text(), re.M
    ):
        assert f"`{section}`" in text and f"`{key}`" in text, f"{section}.{key}"


def test_the_errors_page_names_the_codes_of_the_api(root, build):
    source = "".join(path.read_text() for path in (root / "src" / "server").rglob("*.c"))
    said = (
        set(re.findall(r'ol_problem_say\(\s*\w+,\s*\d+,\s*"(\w+)"', source))
        | set(re.findall(r'\{\d{3}, "(\w+)"\}', source))
        | {"invalid_request"}
    )
    text = (root / "docs" / "errors.md").read_text()
    assert {"unauthorized", "forbidden", "rate_limited", "timeout"} <= said
    for code in said:
        assert f"`{code}`" in text, code


def test_the_metrics_page_names_every_metric_and_no_other(root, sqlite_store, serve):
    answer = serve("--no-relay").get("/metrics").body.decode()
    given = dict(re.findall(r"^# TYPE (\w+) (\w+)$", answer, re.M))
    listed = {row[0].strip("`"): row[1] for row in rows(root / "docs" / "metrics.md") if row[0].startswith("`")}
    assert given and listed == given


def test_the_http_page_shows_every_call(root, sqlite_store, serve):
    text = (
        (root / "docs" / "http.md")
        .read_text()
        .replace("/$RUN/$end ", "/$RUN/fail http://127.0.0.1:7400/v1/runs/$RUN/cancel ")
    )
    console = {"/", "/app.js", "/app.css", "/favicon.svg"}
    for path, methods in serve("--no-relay").get("/openapi.json").json["paths"].items():
        url = "127.0.0.1:7400" + re.sub(r"\{[^}]*\}", "{}", path)
        pattern = re.escape(url).replace(r"\{\}", r"[^/ '\"|]+") + r"[ '\"?\n]"
        for method in methods if path not in console else ():
            before = f"-X {method.upper()} http://" if method in ("put", "delete") else ""
            is_listed = f"`{method.upper()} {path}`" in text
            assert is_listed or re.search(before + pattern, text), (method, path)
