"""The fields of events and messages: sql/schema/event.json and message.json, and what is made of them.

embed_sql.py and embed_json.py use this module. A field is written once, as an object with the keys

    name          the column, the C member, the JSON member and the SQL argument
    kind          text, uuid, number, version, count, time, json, flag, bytes, …
    max_bytes     the limit of a text (at least 1 byte), or of a document
    min, values   the limit of a number; the only values of a text
    set_by        caller, log or database
    required      the caller must give it
    not_null      the column is never null; default: its default in SQL
    shown_not_null  JSON always shows a value, though the column may be null
    is_column     false: only an argument (expected_seq), or only shown (state)
    postgres, sqlite   the column's type in that dialect, where the kind does not say it
    argument      type and default of the argument of outlog.append() or outlog.enqueue()
    filter        events can be filtered by it; the text describes the HTTP parameter
    hashed        false: not part of the request that an idempotency key stands for
    flag, metavar the option of the command line, and its value's name in --help
    always_read   read also where only some fields are wanted
    since         the migration that added the column; without it the column is in the first one
    about         what it is, for the docs; comment: a remark beside the column

In a migration or a query, a line

    --= event filters: and {name} = :{name}   --? {name}

stands for one line per field of the set `event filters`. `--=,` puts commas between the fields. A line
`--=| name: text` below it gives one field a text of its own, and `--=| name:` leaves it out. A line
`--=+ text` goes on with the text above it. Variables: {name}, {max}, {type} (of a
value in PostgreSQL), {cast} (`::uuid`, empty for text), {column} (type and constraints in this
dialect), {argument}, {note} (the comment). The sets are listed in SETS below; `event sizes` are the
limits of the texts of events, in {max}, one domain each (`text_domain`); `message shown` is what
JSON shows of a message. A migration sees the fields that existed when it was written (`since`).

In the header of a query, `event.filters` stands for the names of the set, `event.filters?` for
optional parameters. A line `--< 0001_log/7_append.sql` in a migration stands for that file: this is
how a later migration makes functions again, with the fields of its own time.

A new optional text field of an event needs an entry in event.json, a member in the structs of
include/outlog.h, a migration per store that adds the column, and the docs. One of a message also
needs a member in struct outlog_delivery of include/outlog_publisher.h, for publishers.
"""
import json
import pathlib
import re
import textwrap

REPEAT = re.compile(r"^(\s*)--=(,?) (\w+) (\w+): (.*)$")
MORE = re.compile(r"^\s*--=\+ (.*)$")
OWN = re.compile(r"^\s*--=\| (\w+): ?(.*)$")
INCLUDE = re.compile(r"^--< (\S+)\s*$")
NAMES = re.compile(r"^(event|message)\.(\w+)(\??)$")

POSTGRES_TYPES = {
    "text": "text",
    "uuid": "uuid",
    "number": "bigint",
    "version": "integer",
    "count": "integer",
    "sequence": "bigint",
    "time": "timestamptz",
    "json": "json",
    "flag": "boolean",
    "bytes": "text",
}
SQLITE_TYPES = {"number": "integer", "version": "integer", "count": "integer", "flag": "integer"}

SETS = {
    "columns": lambda f: f.is_column,
    "inserted": lambda f: f.is_column and f.set_by != "database",  # all that an INSERT names
    "given": lambda f: f.is_column and f.set_by == "caller",
    "arguments": lambda f: f.argument is not None,  # of outlog.append(), outlog.enqueue()
    "required": lambda f: f.is_required,
    "texts": lambda f: f.is_column and bool(f.max_bytes) and f.kind == "text",
    "limited": lambda f: f.is_column and bool(f.max_bytes) and f.kind in ("text", "uuid"),
    "filters": lambda f: f.filter is not None,
    "hashed": lambda f: f.is_hashed,
    "always": lambda f: f.is_column and f.always_read,
    "delivered": lambda f: f.is_column and f.kind in ("text", "uuid"),  # to a publisher, as they are
    "some": lambda f: f.is_column and not f.always_read,
}


class Field:
    def __init__(self, entry, text_domain):
        get = entry.get
        self.text_domain = text_domain
        self.name, self.kind, self.set_by = entry["name"], entry["kind"], entry["set_by"]
        self.max_bytes, self.min, self.values = get("max_bytes", 0), get("min"), get("values")
        self.is_required, self.not_null = get("required", False), get("not_null", False)
        self.default, self.is_always_shown = get("default"), get("shown_not_null", False)
        self.is_column, self.is_member = get("is_column", True), get("is_member", True)
        self.is_given = self.set_by == "caller"
        self.is_hashed = self.is_given and self.kind not in ("json", "bytes") and get("hashed", True)
        self.types = {"postgres": get("postgres"), "sqlite": get("sqlite")}
        self.argument = get("argument", "text default null") if self.is_given else None
        self.filter, self.flag, self.metavar = get("filter"), get("flag"), get("metavar")
        self.always_read, self.since = get("always_read", False), get("since", 1)
        self.about, self.comment = get("about", ""), get("comment")
        self.member = get("member", self.name)

    def postgres_type(self):
        if self.types["postgres"]:
            return self.types["postgres"]
        kind = POSTGRES_TYPES.get(self.kind, "text")
        if self.values or self.min is not None:
            kind = "outlog." + self.name  # a domain of its own
        elif self.kind == "text" and self.max_bytes:
            kind = f"{self.text_domain}_{self.max_bytes}"
        elif self.kind == "json":
            kind = "outlog.object"
        return kind + self.constraints()

    def constraints(self):
        return (" not null" if self.not_null else "") + (f" default {self.default}" if self.default else "")

    def variables(self, dialect):
        value = POSTGRES_TYPES.get(self.kind, "text")
        sqlite = self.types["sqlite"] or SQLITE_TYPES.get(self.kind, "text") + self.constraints()
        return {
            "name": self.name,
            "max": self.max_bytes,
            "type": value,
            "cast": "" if value == "text" else "::" + value,
            "column": sqlite if dialect == "sqlite" else self.postgres_type(),
            "argument": self.argument,
            "note": f"  -- {self.comment}" if self.comment else "",
        }


class Schema:
    """The fields of events and messages, as they were at a migration."""

    def __init__(self, folder):
        files = {what: json.loads((pathlib.Path(folder) / f"{what}.json").read_text()) for what in ("event", "message")}
        self.fields = {
            what: [Field(entry, file["text_domain"]) for entry in file["fields"]] for what, file in files.items()
        }
        self.order = {"event": files["event"]["append_arguments"], "message": files["message"]["enqueue_arguments"]}
        self.shown = {
            "event": [f.name for f in self.fields["event"] if f.is_column],
            "message": files["message"]["shown"],
        }

    def named(self, what, name):
        return next(field for field in self.fields[what] if field.name == name)

    def set(self, what, name, at=None):
        if name == "shown":  # as JSON shows it, in that order
            fields = [self.named(what, name) for name in self.shown[what]]
            return [f for f in fields if at is None or f.since <= at]
        fields = [f for f in self.fields[what] if SETS[name](f) and (at is None or f.since <= at)]
        if name == "arguments":  # by position, as callers know them; new ones follow
            known = self.order[what]
            fields.sort(key=lambda f: known.index(f.name) if f.name in known else len(known))
        return fields

    def rows(self, what, name, dialect, at):
        if name == "sizes":
            sizes = {f.max_bytes for f in self.set(what, "texts", at) if not f.types["postgres"]}
            return [{"name": "", "max": size} for size in sorted(sizes)]
        return [field.variables(dialect) for field in self.set(what, name, at)]

    def repeat(self, lines, dialect, at=None):
        """The lines that a line with --=, and those that belong to it, stand for."""
        indent, comma, what, name, first = REPEAT.match(lines[0]).groups()
        template, own = [first], {}
        text = template
        for line in lines[1:]:
            if OWN.match(line):
                of, start = OWN.match(line).groups()
                text = own[of] = [start]
            else:
                text.append(MORE.match(line)[1])
        if name not in (*SETS, "sizes", "shown"):
            raise SystemExit(f"fields: {what} {name}: there is no such set")
        out = []
        for row in self.rows(what, name, dialect, at):
            text = own.get(row["name"], template)
            if text == [""]:
                continue
            out.append("\n".join(indent + re.sub(r"\{(\w+)\}", lambda m: str(row[m[1]]), line) for line in text))
        return (",\n" if comma else "\n").join(out).split("\n")

    def expand(self, text, dialect, at=None, folder=None):
        """A migration or a file of queries, with its repeated lines written out."""
        out, lines, i = [], text.splitlines(), 0
        while i < len(lines):
            first, i = i, i + 1
            if INCLUDE.match(lines[first]):
                path = folder / INCLUDE.match(lines[first])[1]
                out += self.expand(path.read_text(), dialect, at, folder).splitlines()
            elif REPEAT.match(lines[first]):
                while i < len(lines) and (MORE.match(lines[i]) or OWN.match(lines[i])):
                    i += 1
                out += self.repeat(lines[first:i], dialect, at)
            else:
                out.append(lines[first])
        return "\n".join(out) + "\n"

    def signature(self, text):
        """The parameters of a query, with `event.filters?` written out."""
        words = []
        for word in filter(None, (part.strip() for part in text.split(","))):
            names = NAMES.match(word)
            words += [f.name + names[3] for f in self.set(names[1], names[2])] if names else [word]
        return ", ".join(words)


# --- C ---

EXPORT_NAMES = {"payload_bytes": "payload_hex"}  # JSON has no bytes
EXPORT_KINDS = {"time": "T", "count": "i", "flag": "i"}


def c_text(text):
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def c_offset(struct, member, is_there):
    return f"offsetof(struct {struct}, {member})" if is_there else "OL_FIELD_NONE"


def c_row(field, stored, given, chosen):
    """One initializer of struct ol_field."""
    member = f',"{field.name}":'
    least = -1 if field.min is None else field.min
    return (
        "    {"
        + ", ".join(
            [
                c_text(field.name),
                c_text(member),
                str(len(member)),
                c_text(field.flag),
                c_text(" ".join(field.values) if field.values else None),
                f"OL_FIELD_{field.kind.upper()}",
                str(field.max_bytes),
                str(least),
                stored,
                given,
                chosen,
                str(field.is_required).lower(),
                str(field.is_hashed).lower(),
                str(field.always_read).lower(),
            ]
        )
        + "}, \\"
    )


def option_lines(fields):
    options = [f"[--{f.flag}~{f.metavar}]" for f in fields if f.flag and f.metavar and not f.is_required]
    return textwrap.fill(" ".join(options), 95, initial_indent=" " * 19, subsequent_indent=" " * 19).replace("~", " ")


def c_header(schema):
    """fields.h: the numbers of the fields, and their rows for the tables of log/ and outbox/."""
    out = [
        "/* Made from sql/schema/ by scripts/embed_sql.py; edit the .json files instead. */",
        "#ifndef OL_FIELDS_H",
        "#define OL_FIELDS_H",
        "",
    ]
    for what, fields in schema.fields.items():
        prefix = "OL_" + what.upper()
        columns = [f for f in fields if f.is_column]
        others = [f for f in fields if not f.is_column]
        out.append(f"enum ol_{what}_field_id {{")
        out += [f"    {prefix}_{f.name.upper()}," for f in columns]
        out.append(f"    {prefix}_FIELD_COUNT, /* those above are columns */")
        out += [
            f"    {prefix}_{f.name.upper()}" + (f" = {prefix}_FIELD_COUNT," if f is others[0] else ",") for f in others
        ]
        out += [f"    {prefix}_FIELD_ALL", "};", ""]
        out.append(f"#define {prefix}_FIELD_ROWS \\")
        for f in columns + others:
            shown = f.is_column if what == "event" else f.name in schema.shown[what]
            out.append(
                c_row(
                    f,
                    c_offset(f"outlog_{what}", f.name, shown),
                    c_offset(f"outlog_new_{what}", f.member, f.is_given and f.is_member and f.kind != "base64"),
                    c_offset("outlog_filter", f.name, f.filter is not None),
                )
            )
        out.append("")
    events = schema.fields["event"]
    names = " ".join(f.name for f in events if f.filter is not None)
    labels = " ".join(f"[--{f.flag} {f.metavar}]" for f in events if f.metavar)
    out += [
        "/* The parameters of HTTP and the options of the command line that choose events. */",
        f"#define OL_EVENT_FILTER_NAMES {c_text(names)}",
        f"#define OL_EVENT_LABEL_OPTIONS {c_text(labels)}",
        f"enum {{ OL_EVENT_FILTER_COUNT = {len(names.split())}, "
        f"OL_EVENT_GIVEN_COUNT = {len(schema.set('event', 'given'))}, "
        f"OL_MESSAGE_GIVEN_COUNT = {len(schema.set('message', 'given'))} }};",
        "",
        "/* The fields of a message as it is shown, in order. */",
        "#define OL_MESSAGE_SHOWN_IDS " + ", ".join(f"OL_MESSAGE_{name.upper()}" for name in schema.shown["message"]),
        f"enum {{ OL_MESSAGE_SHOWN_COUNT = {len(schema.shown['message'])} }};",
        "",
        "/* The texts of a message that publishers get, and where. */",
        "#define OL_MESSAGE_DELIVERED "
        + ", ".join(
            f"{{OL_MESSAGE_{f.name.upper()}, offsetof(struct outlog_delivery, {f.name})}}"
            for f in schema.set("message", "delivered")
        ),
        "",
        "/* The options of the command line that describe a message, as lines of --help. */",
        f"#define OL_MESSAGE_OPTIONS {c_text(option_lines(schema.fields['message']))}",
        "",
        "/* The columns of a message in an export: t: text, i: number, T: time. */",
        "#define OL_MESSAGE_EXPORT_COLUMNS "
        + ", ".join(
            f'{{"{EXPORT_NAMES.get(f.name, f.name)}", \'{EXPORT_KINDS.get(f.kind, "t")}\'}}'
            for f in schema.set("message", "columns")
        ),
        "",
        "#endif",
        "",
    ]
    return "\n".join(out)


# --- JSON schema ---


def json_type(field, is_shown):
    """The schema of one member: as outlog shows it, or as a caller may give it."""
    kinds = {
        "number": {"type": "integer"},
        "version": {"type": "integer"},
        "count": {"type": "integer"},
        "sequence": {"type": "integer"},
        "uuid": {"type": "string", "format": "uuid"},
        "text": {"type": "string"},
        "time": {"type": "string", "format": "date-time"},
        "json": {"type": "object"},
        "bytes": {},
        "base64": {"type": "string"},
        "span": {"type": "string"},
        "state": {"$ref": "#/components/schemas/State"},
    }
    out = dict(kinds[field.kind])
    if is_shown:
        if field.name == "payload":
            return {}
        if field.kind == "uuid" and not field.not_null:
            out = {"type": "string"}
        if "type" in out and not (field.not_null or field.is_always_shown):
            out["type"] = [out["type"], "null"]
        return out
    if field.kind == "text" and field.max_bytes:
        out |= {"minLength": 1, "maxLength": field.max_bytes}
    if field.values:
        out["enum"] = field.values
    if field.min is not None:
        out["minimum"] = field.min
    if field.kind == "bytes":
        out["description"] = "Any JSON; its bytes are kept as sent."
    if field.kind == "span":
        out["description"] = "A span such as 5s or 1h."
    if field.name == "causation_id":
        out["description"] = "the id of the cause; its event_id does too"
    return out


def json_object(schema, what, form):
    """(properties, required) of an object of this form: shown, draft or filter."""
    if form == "shown":
        fields = [schema.named(what, name) for name in schema.shown[what]]
        return {f.name: json_type(f, True) for f in fields}, [f.name for f in fields]
    if form == "filter":
        fields = schema.set(what, "filters")
        return {f.name: {"type": ["string", "null"] if f.name == "org_id" else "string"} for f in fields}, []
    fields = [f for f in schema.fields[what] if f.is_given and f.is_member]
    properties = {f.name: json_type(f, False) for f in fields}
    if what == "event":
        properties["org_id"]["type"] = ["string", "null"]
    return properties, [f.name for f in fields if f.is_required]


def expand_schemas(schema, node):
    """In schemas.json {"$fields": "event shown", …} stands for an object with these fields and the others given."""
    if isinstance(node, list):
        return [expand_schemas(schema, item) for item in node]
    if not isinstance(node, dict):
        return node
    if "$fields" in node:
        properties, required = json_object(schema, *node["$fields"].split())
        properties |= expand_schemas(schema, node.get("properties", {}))
        required = required + node.get("required", [])
        return {
            "type": "object",
            "properties": properties,
            **({"required": required} if required else {}),
            "additionalProperties": False,
        }
    if "$filters" in node:
        node = {
            **{
                f.name: {"name": f.name, "in": "query", "schema": {"type": "string"}, "description": f.filter}
                for f in schema.set("event", "filters")
            },
            **{k: v for k, v in node.items() if k != "$filters"},
        }
    return {key: expand_schemas(schema, value) for key, value in node.items()}
