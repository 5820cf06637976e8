"""scripts/setup names all that is used here: what this machine happens to have more of hides nothing.

Every header the build read, every library its products load, every Python module and every program that the
tests, the scripts and the pages name must belong to a package that setup's packages bring along, or that every
Debian has. Only what is installed can be judged, and only what is written down can be found: `make fresh` tries
the rest on an empty Debian.
"""
import ast
import functools
import os
import pathlib
import re
import shutil
import subprocess

import pytest

from lib.cli import ROOT

pytestmark = pytest.mark.skipif(not shutil.which("dpkg-query"), reason="not Debian")

# What a person has who came here: Debian's own, and what `git clone` and `make` took.
FIRST = {"apt", "git", "make", "ca-certificates"}
# Tried where it is there, done without where it is not.
OPTIONAL = {"clang", "gcov", "sudo", "docker", "systemctl", "systemd-analyze", "gdb", "valgrind", "llvm-symbolizer"}
# Words of ours that somewhere are also programs.
WORDS = {"duplicates", "file", "import", "look", "red", "stream", "time", "view"}
SCRIPT_GROUPS = {"lint": "lint", "fuzz": "fuzz", "bench": "bench", "bench-brokers": "bench", "fresh": "fresh"}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def output(*command):
    return subprocess.run(list(map(str, command)), check=True, capture_output=True, text=True).stdout


# Packages


def installed():
    """Package: (must every Debian have it, what it depends on as lists of alternatives, what it provides)."""
    form = "${Package}\t${Essential}\t${Priority}\t${Pre-Depends}, ${Depends}\t${Provides}\t${db:Status-Status}\n"
    known = {}
    for row in output("dpkg-query", "-W", "-f", form).splitlines():
        name, essential, priority, depends, provides, status = row.split("\t")
        if status == "installed":
            known[name] = (
                essential == "yes" or priority == "required",
                [
                    [re.split(r"[ :(]", one.strip())[0] for one in clause.split("|")]
                    for clause in depends.split(",")
                    if clause.strip()
                ],
                [re.split(r"[ (]", one.strip())[0] for one in provides.split(",") if one.strip()],
            )
    return known


@functools.cache
def wishes(*groups):
    """What scripts/setup says of these groups: {"package": {…}, "command": …, "library": …, "module": …}"""
    said = {"package": set(), "command": set(), "library": set(), "module": set()}
    for row in output(ROOT / "scripts" / "setup", "--list", *groups).splitlines():
        kind, name = row.split()
        said[kind].add(name)
    return said


@functools.cache
def brought(*groups):
    """The packages that are there once `scripts/setup GROUP…` was run on a Debian with nothing else.

    Of alternatives the first is taken, as apt does; where it is not here, those that are."""
    known = installed()
    providers = {}
    for name, (_, _, provides) in known.items():
        for virtual in provides:
            providers.setdefault(virtual, set()).add(name)
    wanted = FIRST | wishes(*groups)["package"]
    wanted |= {name for name, (is_base, _, _) in known.items() if is_base}
    found = set()
    while wanted:
        name = wanted.pop()
        if name in found:
            continue
        found.add(name)
        for alternatives in known.get(name, (0, [], 0))[1]:
            here = [{one} if one in known else providers.get(one, set()) for one in alternatives]
            wanted |= here[0] or set().union(*here)
    return found


@functools.cache
def owners():
    """Path: package, from the lists that dpkg keeps."""
    found = {}
    for listing in pathlib.Path("/var/lib/dpkg/info").glob("*.list"):
        package = listing.name[: -len(".list")].split(":")[0]
        for path in listing.read_text(errors="replace").splitlines():
            found[path] = package
    return found


def owner(path):
    """The package of a file; of what a link stands for, where the link is nobody's."""
    path = os.path.abspath(path)
    for one in (path, os.path.realpath(path)):
        for form in (one, one.removeprefix("/usr"), "/usr" + one):  # /lib is /usr/lib by now
            if form in owners():
                return owners()[form]
    return None


def missing(files, *groups):
    """What of {file: who uses it} no package of setup brings."""
    there = brought(*groups)
    return sorted(f"{file} ({user}): package {owner(file)}" for file, user in files.items() if owner(file) not in there)


# What is used


def test_headers_and_libraries_come_with_setup(build):
    deps = output("ninja", "-C", build, "-t", "deps")
    headers = {path: "the build" for path in re.findall(r"^    (/\S+)$", deps, re.M) if not path.startswith(str(ROOT))}
    assert len(headers) > 300, "what the compiler read is known"
    products = [build / "outlog", build / "liboutlog.so", *(build / "test" / "unit").glob("*/test_*")]
    libraries = {
        path: file.name
        for file in products
        if file.is_file() and os.access(file, os.X_OK)
        for path in re.findall(r"=> (/\S+)", output("ldd", file))
        if not path.startswith(str(ROOT))
    }
    assert len(libraries) > 20
    wrong = missing({**headers, **libraries}, "build", "test")
    assert not wrong, "\n".join(wrong[:20])


DIST = pathlib.Path("/usr/lib/python3/dist-packages")


def module_file(module):
    place = DIST / module.split(".")[0]
    return next((str(one) for one in (place / "__init__.py", place.with_suffix(".py")) if one.exists()), None)


def test_what_setup_says_it_is_for_comes_with_it():
    """Its lists for a machine without apt, which name things and not packages."""
    wanted = wishes("build", "test", "lint", "fuzz")
    pc = output("pkg-config", "--variable", "pc_path", "pkg-config").strip().split(":")
    files = {module_file(name): name for name in wanted["module"]}
    files |= {shutil.which(name, path=PATH): name for name in wanted["command"]}
    files |= {
        next((f"{folder}/{name}.pc" for folder in pc if os.path.exists(f"{folder}/{name}.pc")), None): name
        for name in wanted["library"]
    }
    files.pop(None, None)
    wrong = missing(files, "build", "test", "lint", "fuzz")
    assert not wrong, "\n".join(wrong)


def python_files():
    scripts = [
        path
        for path in (ROOT / "scripts").iterdir()
        if path.is_file() and path.read_text(errors="replace").startswith("#!/usr/bin/python3")
    ]
    tests = [path for path in (ROOT / "test").glob("*/*.py") if path.parent.name != "lint"]
    return [*tests, ROOT / "test" / "conftest.py", *(ROOT / "examples").glob("**/*.py"), *scripts]


def modules_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module


def test_python_modules_come_with_setup():
    """Of Debian's own Python, which the scripts name."""
    files = {
        module_file(module): path.name for path in python_files() for module in modules_of(ast.parse(path.read_text()))
    }
    files.pop(None, None)
    assert len(files) >= 6
    assert not missing(files, "build", "test")


def programs_of_python(tree):
    """Whatever text is also the name, or the path, of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value.rpartition("/")[2] if node.value.startswith("/usr/") else node.value


def programs_of_shell(text):
    """Words where a command begins."""
    text = re.sub(r"<<-?'?(\w+)'?.*?^\1$|^\s*#.*?$|'[^'\n]*'", " ", text, flags=re.M | re.S)
    text = re.sub(r'"[^"\n]*"', lambda quoted: quoted[0] if "$(" in quoted[0] else " ", text)
    text = re.sub(r"\b(then|do|else|if|elif|while|until|exec|quietly|nice)\b|!", ";", text)
    yield from re.findall(r"(?:^|[|&;(`])[ \t@]*([a-z][\w.+-]*)(?=[\s)]|$)", text, re.M)


def programs():
    """{(program, group): a file that names it} of all programs that are here."""
    found = {}
    words = [(path, programs_of_python(ast.parse(path.read_text()))) for path in python_files()]
    for path in [*(ROOT / "scripts").iterdir(), ROOT / "Makefile"]:
        if (
            path.is_file()
            and path.name != "setup"
            and (path.name == "Makefile" or path.read_text(errors="replace").startswith("#!/bin/"))
        ):
            words.append((path, programs_of_shell(path.read_text())))
    for path in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for kind, block in re.findall(
            r"^```(console|sh)\n(.*?)^```", path.read_text(), re.M | re.S
        ):  # those that are run
            typed = block if kind == "sh" else "\n".join(re.findall(r"^[$>] (.*)$", block, re.M))
            words.append((path, programs_of_shell(typed)))
    for path, names in words:
        group = SCRIPT_GROUPS.get(path.name, "test")
        for name in names:
            if re.fullmatch(r"[\w.+-]+", name) and name not in OPTIONAL | WORDS:
                for place in (
                    shutil.which(name, path=PATH),
                    *pathlib.Path("/usr/lib/postgresql").glob(f"*/bin/{name}"),
                ):
                    if place:
                        found.setdefault((str(place), group), f"{path.name}: {name}")
    return found


def test_programs_come_with_setup():
    found = programs()
    names = {os.path.basename(path) for path, _ in found}
    expected = {
        "strace",
        "node",
        "npm",
        "meson",
        "ninja",
        "openssl",
        "nats-server",
        "redis-server",
        "mosquitto",
        "pgbouncer",
        "promtool",
        "sqlite3",
        "postgres",
        "initdb",
        "unshare",
        "curl",
        "chromium",
    }
    assert not {one for one in expected - names if shutil.which(one, path=PATH)}, "they are found where they are named"
    wrong = []
    for group in {group for _, group in found}:
        groups = ("build", "test") if group == "test" else ("build", "test", group)
        wrong += missing({path: user for (path, of), user in found.items() if of == group}, *groups)
    assert not wrong, "\n".join(wrong)
