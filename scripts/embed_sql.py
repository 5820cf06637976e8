#!/usr/bin/python3
"""Turn sql/ into C: the named queries of both dialects, the migrations, the event type registry.

    embed_sql.py SQLDIR OUT.h OUT.c FIELDS.h          also writes the tables of rules.py, beside OUT.h

A query file holds statements, each under a header:

    -- name: events_read(after, limit literal, org_id?)
    select … where event_id > :after
       and org_id = :org_id    --? org_id
     limit :limit

`:name` is a bound parameter. `name?` may be absent: a line ending in `--? name` is left out then.
`name literal` is a whole number written into the text, so that the planner sees it.

A query in sql/queries serves both stores. It is written for PostgreSQL; for SQLite `outlog.events`
becomes `outlog_events` and casts (`::uuid`) are dropped. Where the stores need different words the
query is in sql/postgres/queries and sql/sqlite/queries, under the same name with the same
parameters: the build fails when they drift. One that only one store needs says so in its header:
`-- name: head_get(…) @sqlite`. `@replan` asks PostgreSQL for a new plan with each set of values when an
optional parameter is given: a plan that is right for one value may be very wrong for the next. `name? steady` is
one that no plan depends on.

Lines that several queries share are a part, for them and for the files that follow:

    -- part: of_one(m)
       and m.org_id = :org_id   --? org_id

`--+ of_one(o)`, alone on its line, stands for these lines, with o for m.

The fields of events and messages are written once, in sql/schema. A line that begins with `--=` stands
for one line per field, in queries and in migrations; `event.filters?` in the header of a query stands
for parameters. fields.py explains both. It also makes fields.h, the tables of the C code.

Migrations are numbered without a gap, and a number means the same in both dialects, also that of a part; a part that
only one store needs is missing in the other. A rule that several languages need is written once, in sql/schema: a line
of a migration such as

    --= message_transitions()

stands for the SQL that rules.py makes of it. rules.py also makes the tables of C of the same data.
"""
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import fields  # noqa: E402
import rules  # noqa: E402

DIALECTS = ("postgres", "sqlite")
WRITING = ("write.sql", "message.sql", "idempotency.sql", "effect.sql", "runs.sql")  # of the interfaces
HEADER = re.compile(r"^-- name: (\w+)\(([^)]*)\)((?: @\w+)*)\s*$")
PART = re.compile(r"^-- part: (\w+)\(([^)]*)\)\s*$")
USE = re.compile(r"^\s*--\+ (\w+)\(([^)]*)\)\s*$")
PARAM = re.compile(r"(?<![:\w]):([a-z_][a-z0-9_]*)")


def fail(message):
    sys.exit(f"embed_sql: {message}")


def c_string(text):
    out = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + re.sub(r"\?(?=\?)", r"?\"\"", out) + '"'


def for_sqlite(line, is_writing):
    """PostgreSQL's words in SQLite's, outside of quotes. What the interfaces write goes to the main file: a temporary table
    of the host with the name of one of ours would take it, and a file that is attached commits by itself."""
    parts = re.split(r"('[^']*')", line)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"::[a-z]+(\[\])?", "", parts[i]).replace("outlog.", "outlog_")
        if is_writing:
            parts[i] = re.sub(r"(?<![\w.:])(outlog_\w+|sqlite_sequence)\b(?!\()", r"main.\1", parts[i])
    return "".join(parts)


class Query:
    def __init__(self, where, name, signature, words):
        self.where, self.name, self.lines = where, name, []
        words = words.replace("@", "").split()
        self.is_replanned = "replan" in words
        self.only = next((word for word in words if word in DIALECTS), None)
        if len(words) != self.is_replanned + bool(self.only):
            fail(f"{where}: {name}: unknown word in {words}")
        self.params, self.optional, self.literal, self.steady = [], set(), set(), set()
        for word in filter(None, (part.strip() for part in signature.split(","))):
            name = word.split()[0].rstrip("?")
            self.params.append(name)
            if word.split()[0].endswith("?"):
                self.optional.add(name)
            if word.endswith(" steady"):
                self.steady.add(name)
            if word.endswith(" literal"):
                self.literal.add(name)
        self.signature = ", ".join(signature.split())

    def pieces(self, dialect):
        """(text, parameter or None, condition or None), in order."""
        out = []
        for line in self.lines:
            if dialect == "sqlite":
                line = for_sqlite(line, self.where in WRITING)
            line, _, when = line.partition("--?")
            when = when.strip() or None
            if when and when not in self.optional:
                fail(f"{self.where}: {self.name}: --? {when} is not an optional parameter")
            line = re.sub(r"--.*", "", line).strip()
            if not line:
                continue
            at = 0
            for match in PARAM.finditer(line):
                param = match.group(1)
                if param not in self.params:
                    fail(f"{self.where}: {self.name}: unknown parameter :{param}")
                if param in self.optional and when != param:
                    fail(f"{self.where}: {self.name}: :{param} needs '--? {param}' on its line")
                out.append((line[at : match.start()], param, when))
                at = match.end()
            out.append((line[at:] + "\n", None, when))
        used = {param for _, param, _ in out if param} | {when for _, _, when in out if when}
        for param in self.params:
            if param not in used:
                fail(f"{self.where}: {self.name}: parameter {param} is never used")
        merged = []  # join neighbours: fewer pieces to walk at run time
        for text, param, when in out:
            if merged and merged[-1][1] is None and merged[-1][2] == when:
                merged[-1] = (merged[-1][0] + text, param, when)
            else:
                merged.append((text, param, when))
        return merged


class Part:
    def __init__(self, signature):
        self.tables, self.lines = signature.split(", "), []

    def of(self, tables):
        """Its lines, about these tables."""
        names = dict(zip(self.tables, tables, strict=True))
        return [re.sub(r"\b(\w+)(?=\.)", lambda m: names.get(m[1], m[1]), line) for line in self.lines]


def read_queries(schema, dialect, *folders):
    queries, parts = {}, {}
    for path in (path for folder in folders for path in sorted(folder.glob("*.sql"))):
        lines = None
        for line in schema.expand(path.read_text(), dialect).splitlines():
            header, part, use = HEADER.match(line), PART.match(line), USE.match(line)
            if header:
                query = Query(path.name, header[1], schema.signature(header[2]), header[3])
                if query.name in queries:
                    fail(f"{path.name}: {query.name} is defined twice")
                queries[query.name], lines = query, query.lines
            elif part:
                parts[part[1]] = Part(part[2])
                lines = parts[part[1]].lines
            elif line.startswith(("-- name:", "-- part:")):
                fail(f"{path.name}: cannot read header: {line}")
            elif use:
                lines += parts[use[1]].of(use[2].split(", "))
            elif lines is not None:
                lines.append(line)
    return queries


def read_migrations(schema, folder):
    """A migration is a file 0001_name.sql, or a folder 0001_name of files taken in name order."""
    out = []
    for path in sorted((folder / "migrations").iterdir()):
        number, _, name = path.stem.partition("_")
        if out and int(number) <= out[-1][0]:
            fail(f"{path}: the number is taken")
        files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
        text = "\n".join(
            schema.expand(file.read_text(), folder.name, int(number), folder / "migrations") for file in files
        )
        out.append((int(number), name, text))
    return out


def bytes_array(data):
    rows = (data[i : i + 20] for i in range(0, len(data), 20))
    return ",\n    ".join(",".join(str(b if b < 128 else b - 256) for b in row) for row in rows)


def main():
    sqldir, out_h, out_c, out_fields = (pathlib.Path(arg) for arg in sys.argv[1:5])
    schema = fields.Schema(sqldir / "schema")
    out_fields.write_text(fields.c_header(schema))
    queries = {d: read_queries(schema, d, sqldir / "queries", sqldir / d / "queries") for d in DIALECTS}
    migrations = {d: read_migrations(schema, sqldir / d) for d in DIALECTS}
    migrations = {d: rules.expand_migrations(migrations[d], d, sqldir) for d in DIALECTS}
    rules.check_migrations(sqldir)
    rules.write_tables(sqldir, out_h.parent)
    first, second = (queries[d] for d in DIALECTS)
    either = {**second, **first}
    names = sorted(either)
    for name in names:
        if either[name].only:
            continue
        if name not in first or name not in second:
            fail(f"{name} exists in one dialect only")
        if (first[name].params, first[name].optional, first[name].literal) != (
            second[name].params,
            second[name].optional,
            second[name].literal,
        ):
            fail(f"{name}: the two dialects take different parameters")
    if [m[:2] for m in migrations["postgres"]] != [m[:2] for m in migrations["sqlite"]]:
        fail("the two dialects have different migrations")

    header = [
        "/* Made from sql/ by scripts/embed_sql.py; edit the .sql files instead. */",
        "#ifndef OL_QUERIES_H",
        "#define OL_QUERIES_H",
        "",
        '#include "store/query.h"',
        "",
        "enum ol_query_id {",
    ]
    for name in names:
        query = either[name]
        params = ", ".join(p + ("?" if p in query.optional else "") for p in query.params)
        header.append(f"    OL_Q_{name.upper()}, /* ({params}) */")
    header += ["    OL_QUERY_COUNT", "};", "", "#endif", ""]
    out_h.write_text("\n".join(header))

    body = ["/* Made from sql/ by scripts/embed_sql.py; edit the .sql files instead. */", '#include "queries.h"', ""]
    for dialect in DIALECTS:
        for name in sorted(queries[dialect]):
            query = queries[dialect][name]
            body.append(f"static const struct ol_query_piece {dialect}_{name}[] = {{")
            for text, param, when in query.pieces(dialect):
                body.append(
                    f"    {{{c_string(text)}, {query.params.index(param) if param else -1}, "
                    f"{query.params.index(when) if when else -1}}},"
                )
            body.append("    {0, -1, -1}};")
        body.append(f"const struct ol_query ol_queries_{dialect}[] = {{")
        for name in names:
            query = queries[dialect].get(name)
            if not query:
                body.append(f"    {{{c_string(name)}, 0, 0, 0, 0, 0}},")
                continue
            literal = sum(1 << query.params.index(p) for p in query.literal)
            replan = query.is_replanned and sum(1 << query.params.index(p) for p in query.optional - query.steady)
            body.append(
                f"    {{{c_string(name)}, {dialect}_{name}, {len(query.params)}, {literal}u, "
                f"{int(replan)}u, {c_string(' '.join(query.params))}}},"
            )
        body += ["};", ""]
        for number, name, text in migrations[dialect]:
            body.append(
                f"static const char {dialect}_migration_{number}[] = {{\n    " f"{bytes_array(text.encode())},0}};"
            )
        body.append(f"const struct ol_migration ol_migrations_{dialect}[] = {{")
        for number, name, _ in migrations[dialect]:
            body.append(f"    {{{number}, {c_string(name)}, {dialect}_migration_{number}}},")
        body += ["    {0, 0, 0}};", ""]
        bootstrap = (sqldir / dialect / "bootstrap.sql").read_bytes()
        body.append(f"const char ol_bootstrap_{dialect}[] = {{\n    {bytes_array(bootstrap)},0}};")
    types = (sqldir / "event_types.json").read_bytes()
    body.append(f"const char ol_event_types_json[] = {{\n    {bytes_array(types)},0}};")
    out_c.write_text("\n".join(body) + "\n")


if __name__ == "__main__":
    main()
