#!/usr/bin/python3
"""Check that the source points one way.

    check_includes.py [ROOT]

Prints one line a violation, `file:line: what is wrong`, and exits with 1 if there is any.

  * A file of src/ includes its own folder and the folders upstream of it, named with the folder.
  * A foreign library is known in its one place only.
  * SQL lives in sql/, not in C strings. `// lint: sql` at the end of a line lets one through.
  * A public header needs nothing but the standard library, from C and from C++.
"""
import pathlib
import re
import shutil
import subprocess
import sys

# Each folder may include those before it.
ORDER = ["base", "store", "log", "outbox", "runs", "net", "telemetry", "destinations", "publish", "sessions",
         "notify", "projections", "config", "relay", "export", "auth", "server", "cli"]
UPSTREAM = {folder: set(ORDER[:at + 1]) for at, folder in enumerate(ORDER)}
UPSTREAM["ext"] = {"base", "store", "log", "outbox", "runs", "projections", "ext"}  # a door of its own; nobody includes it

GENERATED = {"queries.h": "store", "fields.h": "store", "secret_rules.h": "log", "run_transitions.h": "runs",
             "console_stamp.h": "server"}

FOREIGN = [
    (r"libpq|postgres_ext\.h", {"store", "ext"}),
    (r"sqlite3(ext)?\.h", {"store", "ext"}),
    (r"curl/", {"net", "sessions"}),
    (r"(nats/)?nats\.h|librdkafka/|amqp|rabbitmq-c/|hiredis/|mosquitto\.h", {"publish"}),
    (r"uv\.h|wslay/", {"server"}),
    (r"llhttp", {"server", "net"}),
    (r"cyaml/|yaml\.h", {"cli"}),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SQL = re.compile(
    r'"\s*(select\s+\S|insert\s+(or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s'
    r"|create\s+((or\s+replace|temp|temporary|unique|virtual)\s+)?"
    r"(table|index|view|trigger|function|schema|role|database|extension)\s)", re.IGNORECASE)


def check_tree(root):
    """Every violation of the tree below `root`, as lines of text."""
    public = {path.name for path in (root / "include").glob("*.h")}
    found = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        found += check_file(path, root, public)
    for path in sorted((root / "include").glob("*.h")):
        found += check_public(path, root, public)
    return found


def check_file(path, root, public):
    name = path.relative_to(root)
    folder = path.relative_to(root / "src").parts[0]
    if folder not in UPSTREAM:
        return [f"{name}:1: {folder} has no place in the order of folders (check_includes.py)"]
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        problem = check_include(line, folder, public) or check_sql(line)
        if problem:
            found.append(f"{name}:{number}: {problem}")
    return found


def check_include(line, folder, public):
    match = INCLUDE.match(line)
    if not match:
        return None
    quote, target = match.groups()
    for pattern, folders in FOREIGN:
        if re.match(pattern, target) and folder not in folders:
            return f"<{target}> belongs to src/{' and src/'.join(sorted(folders))}"
    if quote == "<" or target in public:
        return None
    first, _, rest = target.partition("/")
    if target in GENERATED:
        first = GENERATED[target]
    elif not rest or first not in UPSTREAM:
        return f'"{target}": write it as "folder/file.h"'
    if first not in UPSTREAM[folder]:
        return f'"{target}": {first} lies downstream of {folder}'
    return None


def check_sql(line):
    if SQL.search(line) and not line.rstrip().endswith("// lint: sql"):
        return "SQL in a C string; give it a name in sql/"
    return None


def check_public(path, root, public):
    name = path.relative_to(root)
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        match = INCLUDE.match(line)
        if match and match.group(1) == '"' and match.group(2) not in public:
            found.append(f'{name}:{number}: a public header includes "{match.group(2)}"')
    for compiler, args in (("cc", ["-std=c11", "-x", "c"]), ("c++", ["-std=c++11", "-x", "c++"])):
        if not shutil.which(compiler):
            continue
        done = subprocess.run(
            [compiler, *args, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
             f"-I{path.parent}", "-"],
            input=f'#include "{path.name}"\n', capture_output=True, text=True)
        if done.returncode != 0:
            errors = [text for text in done.stderr.splitlines() if "error" in text]
            found.append(f"{name}:1: does not stand alone for {compiler}: {errors[0].strip()}")
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    found = check_tree(root)
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
