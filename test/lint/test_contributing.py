"""The C of the worked examples in CONTRIBUTING.md compiles against the headers as they are."""
import re
import subprocess

import pytest

from lib.cli import ROOT

EXAMPLES = re.findall(r"^```c\n(/\* (\w+\.c): .*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.M | re.S)


def test_there_is_an_example_of_a_verb_and_of_a_publisher():
    assert [name for _, name in EXAMPLES] == ["lanes.c", "file.c"]


@pytest.mark.parametrize("code, name", EXAMPLES, ids=[name for _, name in EXAMPLES])
def test_an_example_compiles(build, code, name):
    flags = [
        "-std=gnu11",
        "-D_GNU_SOURCE",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-fsyntax-only",
        "-x",
        "c",
        "-",
    ]
    folders = [f"-I{folder}" for folder in (ROOT / "src", ROOT / "include", build / "src", "/usr/include/postgresql")]
    done = subprocess.run(["cc", *folders, *flags], input=code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("file, line", [("src/cli/commands.h", "X(kill)"), ("src/publish/registry.c", "X(null)")])
def test_the_lists_that_the_examples_name_exist(file, line):
    assert line in (ROOT / file).read_text()
