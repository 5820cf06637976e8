"""The checkers of the source are themselves checked: each rule is broken once, and must be reported."""
import importlib.util
import subprocess

import pytest

BROKEN = {
    # order
    "downstream": ("src/base/a.c", '#include "log/event.h"', "log is downstream of base"),
    "server_in_relay": ("src/relay/a.c", '#include "server/server.h"', "server is downstream of relay"),
    "generated": ("src/base/a.c", '#include "queries.h"', "store is downstream of base"),
    "from_ext": ("src/cli/a.c", '#include "ext/ext.h"', "ext is downstream of cli"),
    "no_folder": ("src/log/a.c", '#include "event.h"', 'write it as "folder/file.h"'),
    "dots": ("src/log/a.c", '#include "../base/err.h"', 'write it as "folder/file.h"'),
    "libpq": ("src/log/a.c", "#include <libpq-fe.h>", "belongs to src/ext and src/store"),
    "sqlite": ("src/cli/a.c", "#include <sqlite3.h>", "belongs to src/ext and src/store"),
    "curl": ("src/server/a.c", "#include <curl/curl.h>", "belongs to src/net and src/sessions"),
    "unknown": ("src/misc/a.c", "", "misc has no place in the order of folders"),
    "private": ("include/outlog.h", '#include "base/err.h"', 'a public header includes "base/err'),
    "alone": ("include/outlog.h", "size_t count(void);", "does not compile alone with cc"),
    # text
    "select": ("src/log/a.c", 'const char *q = "select 1";', "SQL in a C string"),
    "insert": ("src/log/a.c", 'const char *q = " INSERT INTO t values (1)";', "SQL in a C string"),
    "update": ("src/log/a.c", 'const char *q = "update t set a = 1";', "SQL in a C string"),
    "create": ("src/log/a.c", 'const char *q = "create table t (a)";', "SQL in a C string"),
    "see": ("src/log/a.c", "/* a.c: see a.h. */", "say what is in the file"),
    "wide": ("src/log/a.c", "/* " + "word " * 20 + "*/", "105 columns, 100 at most"),
    "wide_comment": ("sql/a.sql", "-- " + "word " * 20, "103 columns, 100 at most"),
    "wide_sql": ("sql/a.sql", "select " + "a, " * 40 + "b", "128 columns, 120 at most"),
    # names
    "prefix": ("src/log/a.c", "void ol_other_do(void)\n{\n}", "ol_other_do() crosses files: call it ol_a_"),
    "bare": ("src/log/a.c", "void count_rows(void)\n{\n}", "count_rows() crosses files"),
    "one_word": ("src/log/a.c", "static void look(void)\n{\n}", "static look(): a verb and a noun"),
    "libc": ("src/log/a.c", "static void listen(void)\n{\n}", "static listen() hides a function of the C library"),
    "posix": ("src/log/a.c", "static void posix_madvise(void)\n{\n}", "static posix_madvise() hides a function"),
}

TWICE = {
    "struct": ("struct ol_place {\n    int a;\n};", "tag ol_place exists already at src/base/a.h:1"),
    "local_struct": ("struct place {\n    int a;\n};", "tag place exists already at src/base/a.h:1"),
    "enum": ("enum ol_kind { OL_ONE };", "tag ol_kind exists already at src/base/a.h:1"),
    "enumerator": ("enum { OL_ONE = 1 };", "enumerator OL_ONE exists already at src/base/a.h:1"),
    "typedef": ("typedef int ol_number;", "typedef ol_number exists already at src/base/a.h:1"),
}

FINE = {
    "upstream": ("src/log/a.c", '#include "base/err.h"\n#include "log/event.h"'),
    "public": ("src/base/a.c", '#include "outlog.h"\n#include <stdio.h>'),
    "generated": ("src/log/a.c", '#include "queries.h"'),
    "libpq": ("src/store/a.c", "#include <libpq-fe.h>"),
    "sqlite": ("src/ext/a.c", "#include <sqlite3ext.h>"),
    "help": ("src/cli/a.c", 'const char *h = "create or upgrade the schema";'),
    "allowed": ("src/store/a.c", 'const char *q = "select 1"; // lint: sql'),
    "module": ("src/log/read.c", "void ol_read_page(void)\n{\n}"),
    "folder": ("src/store/postgres/conn.c", "void ol_postgres_fail(void)\n{\n}"),
    "singular": ("src/sessions/key.c", "void ol_session_check(void)\n{\n}"),
    "static": ("src/log/a.c", "static void poll_lanes(void)\n{\n}"),
    "string": ("src/log/a.c", 'const char *text = "' + "word " * 20 + '";'),
    "query": ("sql/queries/a.sql", "-- name: a(" + "some_parameter, " * 8 + "b)"),
}


@pytest.fixture
def check(root, tmp_path):
    def run(**files):
        for name, content in {"include/outlog.h": "#include <stddef.h>", "src/base/a.h": "", **files}.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content + "\n")
        return subprocess.run([root / "scripts" / "check_source.py", tmp_path], capture_output=True, text=True)

    return run


@pytest.mark.parametrize("path, text, complaint", BROKEN.values(), ids=BROKEN.keys())
def test_a_violation_is_named(check, path, text, complaint):
    done = check(**{path: text})
    assert done.returncode == 1, done
    assert complaint in done.stdout
    assert done.stdout.startswith(f"{path}:1: ")


@pytest.mark.parametrize("text, complaint", TWICE.values(), ids=TWICE.keys())
def test_a_name_exists_once_in_the_program(check, text, complaint):
    done = check(**{"src/base/a.h": text, "src/log/b.c": "\n" + text})
    assert done.returncode == 1, done
    assert f"src/log/b.c:2: {complaint}\n" in done.stdout


def test_a_prefix_belongs_to_one_module(check):
    done = check(
        **{
            "src/log/match.h": "void ol_match_find(void);",
            "src/log/match.c": "void ol_match_find(void)\n{\n}",
            "src/net/match.h": "void ol_match_take(void);",
            "src/net/match.c": "void ol_match_take(void)\n{\n}",
        }
    )
    assert done.returncode == 1
    assert "ol_match_ is already the prefix of src/log/match" in done.stdout


def test_a_type_of_the_header_names_its_functions(check):
    header = "struct ol_rows {\n    int a;\n};\nvoid ol_rows_next(void);"
    assert check(**{"src/store/store.h": header, "src/store/store.c": "void ol_rows_next(void)\n{\n}"}).stdout == ""


def test_a_folder_has_room_for_twenty_modules(check):
    modules = {f"src/net/module_{n}.c": "" for n in range(20)}
    assert check(**modules).stdout == ""
    assert check(**modules, **{"src/net/one_more.c": ""}).stdout == "src/net:1: 21 modules in one folder, 20 at most\n"


@pytest.mark.parametrize("path, text", FINE.values(), ids=FINE.keys())
def test_what_is_allowed_passes(check, path, text):
    done = check(**{path: text})
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_source_keeps_the_rules(root):
    done = subprocess.run([root / "scripts" / "check_source.py"], capture_output=True, text=True)
    assert done.stdout == ""


def load(root, name):
    spec = importlib.util.spec_from_file_location(name, root / "scripts" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "subject, complaint",
    [
        ("relay: a lane is released before the process ends", None),
        ("bench, docs: new figures", None),
        ("relay: " + "word " * 20, "107 characters, 72 at most"),
        ("Fixed the relay", "write it as `area: what changes`"),
        ("relay: a lane is released.", "leave out the full stop"),
    ],
)
def test_subjects_of_commits(root, subject, complaint):
    assert load(root, "check_commits").problem_of(subject) == complaint
