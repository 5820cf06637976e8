"""What is built shows no more than it should, and is hardened."""
import re
import subprocess

import pytest


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def exported(path):
    return {line.split()[-1] for line in output("nm", "-D", "--defined-only", path).splitlines()}


def needed(path):
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-d", path))


@pytest.fixture
def extension_file(extension):
    return f"{extension}.so"


def test_the_library_exports_only_the_public_names(build):
    names = exported(build / "liboutlog.so")
    assert names and all(name.startswith("outlog_") for name in names), names


def test_the_extension_exports_only_its_entry_point(extension_file):
    assert exported(extension_file) == {"sqlite3_outlog_init"}


def test_the_extension_uses_the_sqlite_of_its_host(extension_file):
    libraries = needed(extension_file)
    assert not [name for name in libraries if name.startswith(("libsqlite3", "libpq"))], libraries


def test_the_binary_is_hardened(build):
    header = output("readelf", "-hlW", "-d", build / "outlog")
    assert re.search(r"Type:\s+DYN \(Position-Independent Executable", header)
    assert "GNU_RELRO" in header
    assert re.search(r"FLAGS_1.*\bNOW\b", header)
    assert re.search(r"GNU_STACK.* RW ", header)
