"""What Python repeats of include/outlog.h is what stands there: a missing member would be read past the end."""
import re

import pytest

from lib import liboutlog
from lib.cli import ROOT

STRUCTS = {
    "err": liboutlog.Err,
    "new_event": liboutlog.NewEvent,
    "appended": liboutlog.Appended,
    "event": liboutlog.Event,
    "page": liboutlog.Page,
    "idempotency": liboutlog.Idempotency,
}


def members(name):
    """The names of a struct's members, in order."""
    header = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / "outlog.h").read_text(), flags=re.S)
    body = re.search(rf"struct outlog_{name} {{(.*?)\n}}", header, re.S)[1]
    return [
        re.search(r"(\w+)(\[\d+\])?$", one.strip())[1]
        for line in body.split(";")
        if line.strip()
        for one in line.split(",")
    ]


@pytest.mark.parametrize("name", STRUCTS)
def test_structs_of_the_tests_are_those_of_the_header(name):
    repeated = [field.removeprefix("raw_") for field, _ in STRUCTS[name]._fields_]
    assert repeated == members(name)
