"""The include checker is itself checked: each rule is broken once and must be seen."""
import subprocess

import pytest

BROKEN = {
    "downstream": ("src/base/a.c", '#include "log/event.h"', "log lies downstream of base"),
    "generated": ("src/base/a.c", '#include "queries.h"', "store lies downstream of base"),
    "from_ext": ("src/cli/a.c", '#include "ext/ext.h"', "ext lies downstream of cli"),
    "no_folder": ("src/log/a.c", '#include "event.h"', 'write it as "folder/file.h"'),
    "dots": ("src/log/a.c", '#include "../base/err.h"', 'write it as "folder/file.h"'),
    "libpq": ("src/log/a.c", "#include <libpq-fe.h>", "belongs to src/ext and src/store"),
    "sqlite": ("src/cli/a.c", "#include <sqlite3.h>", "belongs to src/ext and src/store"),
    "curl": ("src/server/a.c", "#include <curl/curl.h>", "belongs to src/net and src/sessions"),
    "unknown": ("src/misc/a.c", "", "misc has no place in the order of folders"),
    "select": ("src/log/a.c", 'const char *q = "select 1";', "SQL in a C string"),
    "insert": ("src/log/a.c", 'const char *q = " INSERT INTO t values (1)";', "SQL in a C string"),
    "update": ("src/log/a.c", 'const char *q = "update t set a = 1";', "SQL in a C string"),
    "create": ("src/log/a.c", 'const char *q = "create table t (a)";', "SQL in a C string"),
    "private": ("include/outlog.h", '#include "base/err.h"', 'a public header includes "base/err'),
    "alone": ("include/outlog.h", "size_t count(void);", "does not stand alone for cc"),
}

FINE = {
    "upstream": ("src/log/a.c", '#include "base/err.h"\n#include "log/event.h"'),
    "public": ("src/base/a.c", '#include "outlog.h"\n#include <stdio.h>'),
    "generated": ("src/log/a.c", '#include "queries.h"'),
    "libpq": ("src/store/a.c", "#include <libpq-fe.h>"),
    "sqlite": ("src/ext/a.c", "#include <sqlite3ext.h>"),
    "help": ("src/cli/a.c", 'const char *h = "create or upgrade the schema";'),
    "allowed": ("src/store/a.c", 'const char *q = "select 1"; // lint: sql'),
}


@pytest.fixture
def check(root, tmp_path):
    def run(path, text):
        for name, content in (("include/outlog.h", "#include <stddef.h>\n"), (path, text + "\n")):
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
        return subprocess.run(
            [root / "scripts" / "check_includes.py", tmp_path], capture_output=True, text=True)

    return run


@pytest.mark.parametrize("path, text, complaint", BROKEN.values(), ids=BROKEN.keys())
def test_a_violation_is_named(check, path, text, complaint):
    done = check(path, text)
    assert done.returncode == 1, done
    assert complaint in done.stdout
    assert done.stdout.startswith(f"{path}:1: ")


@pytest.mark.parametrize("path, text", FINE.values(), ids=FINE.keys())
def test_what_is_allowed_passes(check, path, text):
    done = check(path, text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_source_points_one_way(root):
    done = subprocess.run([root / "scripts" / "check_includes.py"], capture_output=True, text=True)
    assert done.stdout == ""
