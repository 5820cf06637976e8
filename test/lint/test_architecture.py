"""The journeys of ARCHITECTURE.md lead through functions that exist, and are as short as the page says.

A journey is a block of steps `file.c:function` below src/, or `sql:name`, joined by `->`. `^` behind a step: it is reached through
a function pointer. `|T`: another thread runs it.
"""
import re
import subprocess

import pytest

from lib.cli import ROOT

STEP = re.compile(r"([\w/]+\.c|sql):(\w[\w.]*)((?: \^| \|T)*)")
# The longest that each may become: steps, function pointers, thread changes.
MOST = {"a": (61, 7, 2), "b": (85, 5, 3), "c": (60, 8, 6), "d": (32, 3, 0)}


def journeys():
    """The steps of each journey by its letter; the other block of its section is its picture."""
    text = (ROOT / "ARCHITECTURE.md").read_text().split("## Four journeys")[1].split("\n## ")[0]
    sections = dict(re.findall(r"^### \(([a-d])\)(.*?)(?=^### |\Z)", text, re.M | re.S))
    return {
        name: [block for block in re.findall(r"^```text\n(.*?)^```$", section, re.M | re.S) if " -> " in block][0]
        for name, section in sections.items()
    }


def functions():
    done = subprocess.run(
        ["ctags", "-R", "--languages=C", "--langmap=C:.c.h", "--kinds-C=f", "-x", "--_xformat=%F:%N", "src"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {line.removeprefix("src/") for line in done.stdout.split()}


@pytest.mark.parametrize("name", MOST)
def test_every_step_exists(name):
    steps = STEP.findall(journeys()[name])
    assert len(steps) > 10
    known = functions()
    assert [f"{file}:{step}" for file, step, _ in steps if file != "sql" and f"{file}:{step}" not in known] == []


@pytest.mark.parametrize("name", MOST)
def test_the_way_is_no_longer_than_it_may_be(name):
    block = journeys()[name]
    steps = STEP.findall(block)
    assert len(steps) == block.count("->") + 1, "every step is one that the expression reads"
    counted = (len(steps), sum("^" in marks for *_, marks in steps), sum("|T" in marks for *_, marks in steps))
    assert all(one <= most for one, most in zip(counted, MOST[name])), counted
    said = re.search(
        rf"^### \({name}\).*?(\d+) steps, (\d+) through function pointers, (\d+) thread changes",
        (ROOT / "ARCHITECTURE.md").read_text(),
        re.M | re.S,
    )
    assert tuple(map(int, said.groups())) == counted
