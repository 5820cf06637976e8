#!/usr/bin/python3
"""Check what the compiler does not: the order of folders, names, and where things are written.

    check_source.py [ROOT]

Prints one line per violation, `file:line: what is wrong`, and exits with 1 if there is any.

Order
  * A file of src/ includes its own folder and the folders upstream of it, named with the folder.
  * A foreign library is known in its one place only.
  * A folder has at most 20 modules (the folder of the commands may have more: one per verb).
  * A public header needs nothing but the standard library, from C and from C++.
Names
  * A struct, union or enum tag, a typedef and an enumerator exist once in the program.
  * A function that crosses files begins with `ol_` and the name of its module, of the folder that the
    module is in, or of a type that the module's header declares; no such prefix means two modules.
  * A static function has a verb and a noun (two words at least), and never the name of a function of libc
    or POSIX.
Text
  * SQL lives in sql/, not in C strings. `// lint: sql` at the end of a line lets one through.
  * A line of C and a comment in SQL have at most 100 columns, other lines of SQL 120. A string in C, a
    text of RAISE in SQLite and the header of a query, which cannot be broken, may be longer.
  * A file does not open with "see x.h": it says what is in it, or nothing.
"""
import collections
import json
import pathlib
import re
import shutil
import subprocess
import sys

# Each folder may include those before it.
ORDER = [
    "base",
    "store",
    "log",
    "outbox",
    "runs",
    "net",
    "telemetry",
    "destinations",
    "publish",
    "sessions",
    "notify",
    "projections",
    "config",
    "relay",
    "export",
    "auth",
    "server",
    "cli",
]
UPSTREAM = {folder: set(ORDER[: at + 1]) for at, folder in enumerate(ORDER)}
# The SQLite extension is a product of its own, and nobody includes it.
UPSTREAM["ext"] = {"base", "store", "log", "outbox", "runs", "projections", "ext"}

GENERATED = {
    "queries.h": "store",
    "fields.h": "store",
    "secret_rules.h": "log",
    "run_transitions.h": "runs",
    "own_tokens.h": "base",
    "reserved_types.h": "log",
    "console_stamp.h": "server",
}

FOREIGN = [
    (r"libpq|postgres_ext\.h", {"store", "ext"}),
    (r"sqlite3(ext)?\.h", {"store", "ext"}),
    (r"curl/", {"net", "sessions"}),
    (r"(nats/)?nats\.h|librdkafka/|amqp|rabbitmq-c/|hiredis/|mosquitto\.h", {"publish"}),
    (r"uv\.h|wslay/", {"server"}),
    (r"llhttp", {"server", "net"}),
    (r"cyaml/|yaml\.h", {"cli"}),
]

MODULES_MAX = 20
COLUMNS_MAX = 100
SQL_COLUMNS_MAX = 120  # where the line is not a comment

# Used in nearly every file; their module is base/err.
EVERYWHERE = {"ol_fail", "ol_fail_at", "ol_no_memory"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
SQL = re.compile(
    r'"\s*(select\s+\S|insert\s+(or\s+\w+\s+)?into\s|update\s+\S+\s+set\s|delete\s+from\s'
    r"|create\s+((or\s+replace|temp|temporary|unique|virtual)\s+)?"
    r"(table|index|view|trigger|function|schema|role|database|extension)\s)",
    re.IGNORECASE,
)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    found = check_tree(root)
    for line in found:
        print(line)
    return 1 if found else 0


def check_tree(root):
    """Every violation of the tree below `root`, as lines of text."""
    public = {path.name for path in (root / "include").glob("*.h")}
    found = []
    for path in sorted((root / "src").rglob("*.[ch]")):
        found += check_file(path, root, public)
    for path in sorted((root / "include").glob("*.h")):
        found += check_public(path, root, public) + check_lines(path, root)
    for path in sorted((root / "sql").rglob("*.sql")):
        found += check_lines(path, root)
    return found + check_folders(root) + check_names(root)


# Order


def check_file(path, root, public):
    name = path.relative_to(root)
    folder = path.relative_to(root / "src").parts[0]
    if folder not in UPSTREAM:
        return [f"{name}:1: {folder} has no place in the order of folders (check_source.py)"]
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        problem = check_include(line, folder, public) or check_sql(line) or check_opening(number, line)
        if problem:
            found.append(f"{name}:{number}: {problem}")
    return found + check_lines(path, root)


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
        return f'"{target}": {first} is downstream of {folder}'
    return None


def check_folders(root):
    modules = collections.defaultdict(set)
    for path in (root / "src").rglob("*.[ch]"):
        modules[path.parent.relative_to(root)].add(path.stem)
    return [
        f"{folder}:1: {len(names)} modules in one folder, {MODULES_MAX} at most"
        for folder, names in sorted(modules.items())
        if len(names) > MODULES_MAX and folder.name != "cli"
    ]


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
            [compiler, *args, "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", f"-I{path.parent}", "-"],
            input=f'#include "{path.name}"\n',
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            errors = [text for text in done.stderr.splitlines() if "error" in text]
            found.append(f"{name}:1: does not compile alone with {compiler}: {errors[0].strip()}")
    return found


# Names


class Name:
    def __init__(self, tag, root):
        self.name, self.kind, self.line = tag["name"], tag["kind"], tag["line"]
        self.path = pathlib.Path(tag["path"]).relative_to(root)
        self.is_static = tag.get("file", False)

    def says(self, problem):
        return f"{self.path}:{self.line}: {problem}"


def read_names(root):
    """What ctags knows of the source: functions, prototypes, tags, enumerators, typedefs."""
    files = [path for folder in ("src", "include") for path in sorted((root / folder).rglob("*.[ch]"))]
    done = subprocess.run(
        [
            "ctags",
            "--languages=C",
            "--langmap=C:.c.h",
            "--kinds-C=fpsgute",
            "--fields=+nKzF",
            "--output-format=json",
            "-I",
            "OUTLOG_API",
            "-f",
            "-",
            *map(str, files),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [Name(json.loads(line), root) for line in done.stdout.splitlines()]
    return [name for name in names if not name.name.startswith("__anon")]


def check_names(root):
    if not (root / "src").is_dir():
        return []
    names = read_names(root)
    return check_unique(names) + check_prefixes(names) + check_statics(names)


def check_unique(names):
    """A tag, typedef or enumerator is defined once in the program."""
    found, first = [], {}
    for name in names:
        if name.kind not in ("struct", "union", "enum", "enumerator", "typedef"):
            continue
        kind = "tag" if name.kind in ("struct", "union", "enum") else name.kind
        other = first.setdefault((kind, name.name), name)
        if other is not name:
            found.append(name.says(f"{kind} {name.name} exists already at {other.path}:{other.line}"))
    return found


def modules_of(names):
    """The header of each function that crosses files, the types of each header, the modules of each folder."""
    headers, types, modules = collections.defaultdict(set), collections.defaultdict(set), collections.defaultdict(set)
    for name in names:
        module = name.path.with_suffix("")
        modules[module.parent].add(module.name)
        if name.path.suffix != ".h":
            continue
        if name.kind == "prototype":
            headers[name.name].add(module)
        elif name.kind in ("struct", "union", "enum", "typedef") and name.name.startswith("ol_"):
            types[module].add(name.name[3:])
    return headers, types, modules


def prefixes_of(module, types, modules):
    """What the functions of a module may begin with: its own name, that of the module it belongs to (`json` for
    json_text), that of its folder, and the types that it declares."""
    folder = module.parent.name
    family = {other for other in modules[module.parent] if module.name.startswith(other + "_")}
    return {module.name, folder, folder.removesuffix("s")} | family | types[module]


def check_prefixes(names):
    headers, types, modules = modules_of(names)
    found, owner = [], {}
    for name in names:
        if name.kind != "function" or name.is_static or name.path.parts[0] != "src":
            continue
        if name.name.startswith("outlog_") or name.name in EVERYWHERE | {"main", "sqlite3_outlog_init"}:
            continue
        homes = {name.path.with_suffix("")} | headers[name.name]
        allowed = set().union(*(prefixes_of(home, types, modules) for home in homes))
        if not any(name.name == "ol_" + one or name.name.startswith(f"ol_{one}_") for one in allowed):
            found.append(name.says(f"{name.name}() crosses files: call it ol_{name.path.stem}_…"))
    for folder, stems in sorted(modules.items()):
        for stem in sorted(stems - {"internal"}):
            module = folder / stem
            for name in names:
                if (
                    name.path.with_suffix("") == module
                    and name.kind == "prototype"
                    and (name.name.startswith(f"ol_{stem}_"))
                ):
                    other = owner.setdefault(stem, module)
                    if other != module:
                        found.append(name.says(f"ol_{stem}_ is already the prefix of {other}"))
                    break
    return found


def libc_names():
    """Functions that libc and POSIX have, from the C library itself."""
    for pattern in ("/lib/*/libc.so.6", "/lib/libc.so.6", "/usr/lib/libc.so.6", "/usr/lib64/libc.so.6"):
        for path in pathlib.Path("/").glob(pattern.lstrip("/")):
            done = subprocess.run(["nm", "-D", "--defined-only", path], capture_output=True, text=True)
            return {
                line.split()[-1].partition("@")[0]
                for line in done.stdout.splitlines()
                if " T " in line or " W " in line or " i " in line
            }
    return set()


def check_statics(names):
    found, libc = [], libc_names()
    for name in names:
        if name.kind != "function" or not name.is_static:
            continue
        if name.name in libc:
            found.append(name.says(f"static {name.name}() hides a function of the C library"))
        elif "_" not in name.name:
            found.append(name.says(f"static {name.name}(): a verb and a noun, such as read_{name.name}"))
    return found


# Text


def check_opening(number, line):
    if number == 1 and re.match(r"/\* \S+: see \S+\.h\.? \*/", line):
        return "say what is in the file, or leave the line out"
    return None


def check_sql(line):
    if SQL.search(line) and not line.rstrip().endswith("// lint: sql"):
        return "SQL in a C string; give it a name in sql/"
    return None


def check_lines(path, root):
    found, name = [], path.relative_to(root)
    for number, line in enumerate(path.read_text().splitlines(), 1):
        most = COLUMNS_MAX
        if path.suffix == ".sql":
            most = COLUMNS_MAX if re.match(r"\s*--(?!=)", line) else SQL_COLUMNS_MAX  # --= is code
            can_break = not line.startswith(("-- name:", "-- part:")) and not re.search(r"raise\(\w+, '[^']*'\)", line)
        else:
            can_break = not re.search(r'".{40,}"', line)
        if can_break and len(line) > most:
            found.append(f"{name}:{number}: {len(line)} columns, {most} at most")
    return found


if __name__ == "__main__":
    sys.exit(main())
