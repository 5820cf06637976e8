"""Rules that several languages need: sql/schema/{secret_rules,message_transitions,run_transitions}.json, and the SQL
and C that is made of them. embed_sql.py calls this.

In a migration a line of its own, `--= name(argument)`, stands for generated lines, with the indentation of that line.
PARTS below lists the names for each dialect. C gets three files: secret_rules.h for log/secrets.c, own_tokens.h for those
who make tokens, run_transitions.h for runs/command.c and runs/transition.c.
"""
import json
import re

USE = re.compile(r"^( *)--= (\w+)\(([^)]*)\)$")


def load(sqldir, name):
    return json.loads((sqldir / "schema" / name).read_text())


def expand_migrations(migrations, dialect, sqldir):
    """(number, name, text) of each, with `--= name(argument)` replaced."""
    return [(number, name, expand(text, dialect, sqldir)) for number, name, text in migrations]


def expand(text, dialect, sqldir):
    out = []
    for line in text.split("\n"):
        use = USE.match(line)
        if use:
            make = PARTS[dialect].get(use[2])
            if not make:
                raise SystemExit(f"embed_sql: {dialect} has no generated part {use[2]}")
            out += [use[1] + made for made in make(sqldir, use[3])]
        elif line.lstrip().startswith("--="):
            raise SystemExit(f"embed_sql: cannot read {line.strip()}")
        else:
            out.append(line)
    return "\n".join(out)


def check_migrations(sqldir):
    """Fails where a number of a migration is missing, or means one part in one dialect and another in the other."""
    parts = {}
    for folder in (sqldir / dialect / "migrations" for dialect in PARTS):
        for at, path in enumerate(sorted(folder.iterdir()), 1):
            if int(path.name.partition("_")[0]) != at:
                raise SystemExit(f"embed_sql: {path}: migration {at} is missing")
        for path in sorted(folder.glob("*/*.sql")):
            place = (path.parent.name, path.name.partition("_")[0])
            if parts.setdefault(place, path.name) != path.name:
                raise SystemExit(f"embed_sql: {path}: this number is {parts[place]} in the other dialect")


def listed(items, glue=","):
    """The items, with the glue after each but the last."""
    return [item + (glue if at < len(items) - 1 else "") for at, item in enumerate(items)]


# Secrets: a rule has matches, a match is a list of steps (set of bytes or None, text, min, max)


def secret_rules(sqldir):
    """The rules. The one about our own tokens has a match for each way they begin."""
    schema = load(sqldir, "secret_rules.json")
    for rule in schema["rules"]:
        if "own_tokens" in rule:
            rule["match"] = [[prefix, rule["own_tokens"]] for prefix in schema["own_tokens"].values()]
    return schema["rules"]


def own_tokens_c(sqldir):
    """How the secrets that outlog makes begin: OL_API_TOKEN_PREFIX, OL_TICKET_PREFIX."""
    tokens = load(sqldir, "secret_rules.json")["own_tokens"]
    out = ["/* Made from sql/schema/secret_rules.json by scripts/rules.py; edit that instead. */"]
    out += [f"#define OL_{name.upper()}_PREFIX {c_text(prefix)}" for name, prefix in tokens.items()]
    return "\n".join(out) + "\n"


class Step:
    """One byte of a text, or a run. `of` is the inside of a [set], `is_not` negates it."""

    def __init__(self, of, minimum, maximum, is_not=False):
        self.of, self.min, self.max, self.is_not = of, minimum, maximum, is_not

    def is_text(self):
        return self.min == self.max == 1

    def bytes(self):
        """The bytes it takes. A NUL stands for an escaped quote, which is in no set."""
        inside = set()
        at = 0
        while at < len(self.of):
            last = self.of[at + 2] if self.of[at + 1 : at + 2] == "-" and at + 2 < len(self.of) else self.of[at]
            inside |= set(range(ord(self.of[at]), ord(last) + 1))
            at += 3 if last != self.of[at] else 1
        return set(range(1, 256)) - inside if self.is_not else inside

    def bracket(self):
        return f"[{'^' if self.is_not else ''}{self.of}]"


def steps_of(parts):
    out = []
    for part in parts:
        if isinstance(part, str):
            out += [Step(of or byte, 1, 1) for of, byte in re.findall(r"\[(.*?)\]|(.)", part)]
        else:
            count = part.get("count")
            out.append(
                Step(
                    part.get("of") or part["not_of"],
                    count if count else part.get("min", 0),
                    count if count else part.get("max"),
                    "not_of" in part,
                )
            )
    return out


def for_regex(step):
    """One step as a regular expression of PostgreSQL."""
    if len(step.of) == 1 and not step.is_not:
        one = re.sub(r"([.?*+^$|(){}\[\]\\])", r"\\\1", step.of)
    else:
        one = "".join(f"\\u{ord(c):04x}" if ord(c) <= 32 and step.is_not else c for c in step.bracket())
    if step.is_text():
        return one
    if step.max is None:
        return one + {0: "*", 1: "+"}.get(step.min, f"{{{step.min},}}")
    return one + (f"{{{step.min}}}" if step.min == step.max else f"{{{step.min},{step.max}}}")


def secret_pattern(rule):
    """The rule as a regular expression of PostgreSQL; its group is the secret, or the end of the key."""
    if "key_ends" in rule:
        return "(?i)(" + "|".join(name.replace("_", "[_-]?") for name in rule["key_ends"]) + ")$"
    before = f"(?:^|[^{rule['not_after']}])" if "not_after" in rule else ""
    before = f"[{rule['after']}]" if "after" in rule else before
    return f"{before}({'|'.join(''.join(map(for_regex, steps_of(match))) for match in rule['match'])})"


def secret_hints_regex(sqldir, _):
    """A regular expression, without regard to case, that every document with a secret matches. It has no backslash:
    a body is read by the settings of the session that calls it."""
    hints = []
    for rule in secret_rules(sqldir):
        for match in rule.get("match", []):
            steps = steps_of(match[:1] if re.search("[A-Za-z]", match[0]) and len(match[0]) > 2 else match)
            hints.append("".join(map(for_hint, steps)))
        hints += [name.replace("_", "[_-]?") for name in rule.get("key_ends", {})]
    return [f"'{hint}'" for hint in listed(list(dict.fromkeys(hints)), "|")]


def for_hint(step):
    if step.is_not:  # without its control characters it takes a little more
        step = Step("".join(c for c in step.of.replace("\x01- ", "") if c > " "), step.min, step.max, True)
    return for_regex(step).replace("\\.", "[.]")


def is_for_glob(rule):
    """GLOB counts no runs and measures nothing: the guesses (jwt, url_password, named_secret) are beyond it."""
    return "match" in rule and all(
        step.is_text() or step.min == step.max or (step.max and at + 1 < len(steps))
        for steps in map(steps_of, rule["match"])
        for at, step in enumerate(steps)
    )


def sql_text(text):
    return "'" + text.replace("'", "''") + "'"


def without(of, byte):
    """The inside of a set of upper-case letters and digits, without one of them."""
    left = sorted(Step(of, 1, 1).bytes() - {ord(byte)})
    runs = []
    for code in left:
        if runs and runs[-1][1] == code - 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return "".join(chr(a) if a == b else f"{chr(a)}-{chr(b)}" for a, b in runs)


def glob_tails(run, except_suffix):
    """(count of the run's set, what follows), so that all but the suffix is taken: it differs first at some byte."""
    if not except_suffix:
        return [(run.min, "")]
    count = run.min - len(except_suffix)
    return [
        (count, except_suffix[:at] + f"[{without(run.of, byte)}]" + f"[{run.of}]" * (len(except_suffix) - at - 1))
        for at, byte in enumerate(except_suffix)
    ]


def secret_shapes(sqldir, _):
    """Rows (rule, before, text, count, set, after, label, label_max, label_end) of outlog_secret_shapes."""
    rows = []
    for rule in filter(is_for_glob, secret_rules(sqldir)):
        before = f"[^{rule['not_after']}]" if "not_after" in rule else ""
        for match in rule["match"]:
            run = steps_of(match[1:2])[0]
            if len(match) == 3:
                cells = [rule["name"], before, match[0], 0, "", f"*{match[2]}", run.of, run.max, match[2]]
                rows.append(cells)
                continue
            for count, after in glob_tails(run, rule.get("except_suffix")):
                rows.append([rule["name"], before, match[0], count, f"[{run.of}]", after, None, None, None])
    return listed(
        [
            "("
            + ", ".join(
                "null" if cell is None else str(cell) if isinstance(cell, int) else sql_text(cell) for cell in row
            )
            + ")"
            for row in rows
        ]
    )


def secret_hints_glob(sqldir, column):
    """A condition that holds for every document with a secret that GLOB can find, and for few others."""
    texts = [match[0] for rule in filter(is_for_glob, secret_rules(sqldir)) for match in rule["match"]]
    shapes = ["[_\\]"] + [text for text in dict.fromkeys(texts) if "_" not in text]  # \: escapes may hide any
    return listed([f"{column} glob '*{shape}*'" for shape in shapes], " or")


def secret_refusals(sqldir, field):
    """RAISE takes a literal alone in SQLite before 3.47: one for each rule."""
    return (
        ["case r.rule"]
        + [
            line
            for rule in filter(is_for_glob, secret_rules(sqldir))
            for line in (
                f"when '{rule['name']}' then",
                f"    raise(abort, 'secret_material: {field} looks like a secret (rule {rule['name']}); "
                "store a reference to it instead')",
            )
        ]
        + ["end"]
    )


# The same rules for log/secrets.c


def c_text(text):
    """A literal; what is no printable ASCII becomes octal."""
    return (
        '"'
        + "".join({'"': '\\"', "\\": "\\\\"}.get(c, c if " " <= c < "\x7f" else f"\\{ord(c):03o}") for c in text)
        + '"'
    )


def c_byte(code):
    return f"'{chr(code)}'" if chr(code).isalnum() or chr(code) in " -_.:/@+" else str(code)


class Sets:
    """Sets of bytes as bitmaps, each once. 0 is no set."""

    def __init__(self):
        self.bitmaps = [()]

    def index(self, of):
        bitmap = tuple(sum(1 << (code & 31) for code in of if code >> 5 == word) for word in range(8))
        if bitmap not in self.bitmaps:
            self.bitmaps.append(bitmap)
        return self.bitmaps.index(bitmap)


class Matcher:
    """One way to match a rule: where its anchor is, what stands before it, and its steps."""

    def __init__(self, rule, steps, anchor):
        self.rule, self.steps = rule, steps
        texts = [step.bytes() if step.is_text() else None for step in steps]
        self.skip = 0
        if anchor:
            wanted = [{ord(c), ord(c.upper())} if "key_ends" in rule else {ord(c)} for c in anchor]
            self.skip = next(
                (at for at in range(len(texts) - len(anchor) + 1) if texts[at : at + len(anchor)] == wanted), None
            )
            if self.skip is None:
                raise SystemExit(f"embed_sql: {rule['name']}: its match has no anchor {anchor}")
        self.anchor = [steps[self.skip + at].bytes() for at in range(3)]
        runs = [at for at in range(self.skip) if not steps[at].is_text()]
        self.back = steps[runs[0]] if runs else None  # the run before the anchor: its start is looked for


def matchers_of(rule):
    for match in rule.get("match", []):
        yield Matcher(rule, steps_of(match), rule.get("anchor"))
    for name, anchor in rule.get("key_ends", {}).items():
        steps = [Step("_-", 0, 1) if c == "_" else Step(c + c.upper(), 1, 1) for c in name]
        yield Matcher(rule, steps, anchor)


def secret_rules_c(sqldir):
    rules = secret_rules(sqldir)
    sets, matchers = Sets(), [matcher for rule in rules for matcher in matchers_of(rule)]
    if len(matchers) > 32:
        raise SystemExit("embed_sql: secret_rules.json: at most 32 matches and names fit the bit masks")
    out = [
        "/* Made from sql/schema/secret_rules.json by scripts/rules.py; edit that instead. */",
        "const struct ol_secret_rule ol_secret_rules[] = {",
    ]
    for rule in rules:
        out.append(
            f"    {{{c_text(rule['name'])}, OL_SECRET_{rule['mode'].upper()}, "
            f"{str('key_ends' in rule).lower()}, {c_text(secret_pattern(rule))}, "
            f"{rule.get('entropy_min', 0.0)}, {rule.get('bytes_min', 0)}, "
            f"{c_text(rule['except_suffix']) if 'except_suffix' in rule else 'NULL'}}},"
        )
    out += ["};", f"const size_t ol_secret_rule_count = {len(rules)};", ""]
    for at, matcher in enumerate(matchers):
        out.append(f"static const struct secret_step secret_steps_{at}[] = {{")
        for step in matcher.steps:
            only = step.bytes()
            byte, which = (c_byte(next(iter(only))), 0) if len(only) == 1 else (0, sets.index(only))
            out.append(f"    {{{byte}, {which}, {step.min}, {'UINT16_MAX' if step.max is None else step.max}}},")
        out.append("    {0, 0, 0, 0}};")
    rows = []
    for at, matcher in enumerate(matchers):
        rule = matcher.rule
        before = rule.get("not_after") or rule.get("after")
        before = sets.index(Step(before, 1, 1).bytes()) if before else 0
        back = sets.index(matcher.back.bytes()) if matcher.back else 0
        rows.append(
            f"    {{{rules.index(rule)}, {0 if back else matcher.skip}, {back}, {before}, "
            f"{str('after' in rule).lower()}, secret_steps_{at}}},"
        )
    out += ["static const struct secret_matcher secret_matchers[] = {"] + rows + ["};"]
    out.append(f"enum {{ SECRET_MATCHER_COUNT = {len(matchers)} }};")
    out.append("static const uint32_t secret_sets[][8] = {")
    out += ["    {" + ", ".join(f"{word:#x}u" for word in bitmap or (0,)) + "}," for bitmap in sets.bitmaps] + ["};"]
    for place, name in enumerate(("first", "second", "third")):
        masks = [
            sum(1 << at for at, matcher in enumerate(matchers) if code in matcher.anchor[place]) for code in range(256)
        ]
        out.append(f"static const uint32_t secret_{name}[256] = {{")
        out += [f"    [{c_byte(code)}] = {mask:#x}u," for code, mask in enumerate(masks) if mask] + ["};"]
    return "\n".join(out) + "\n"


# Messages


def message_transitions(sqldir):
    return [(move["from"], move["to"]) for move in load(sqldir, "message_transitions.json")["transitions"]]


def message_pairs_postgres(sqldir, _):
    return listed([f"('{old}', '{new}')" for old, new in message_transitions(sqldir)])


def message_pairs_sqlite(sqldir, _):
    return listed([f"'{old}>{new}'" for old, new in message_transitions(sqldir)])


# Runs


def run_verbs(sqldir):
    return load(sqldir, "run_transitions.json")["verbs"]


def run_members(verb):
    """(name, kind, maximum or None, is it required), expected_seq not among them."""
    for name, what in verb["members"].items():
        kind, _, maximum = what.partition(" ")
        yield name.rstrip("?"), kind, int(maximum) if maximum else None, not name.endswith("?")


def any_of(states):
    return " or ".join(states)


def run_transitions_sql(sqldir, _):
    """The branches of a CASE that turns a verb into outlog.run_transition."""

    def text(value):
        return "null" if value is None else sql_text(value)

    out = []
    for verb in run_verbs(sqldir):
        signal = verb.get("signal", {})
        states = [verb.get("target"), any_of(verb["from"]) if "from" in verb else None, verb.get("to"), verb["event"]]
        others = [
            any_of(verb["steps"]) if "steps" in verb else None,
            any_of(signal["from"]) if "from" in signal else None,
            signal.get("to"),
            signal.get("event"),
        ]
        needs_running = "target" in verb and not verb.get("any_run")
        out += [
            f"when '{verb['verb']}' then row({', '.join(map(text, states))},",
            f"    {str(needs_running).lower()}, {', '.join(map(text, others))})::outlog.run_transition",
        ]
    return out


def run_members_sql(sqldir, _):
    """The branches of a CASE that checks the body of a verb's call."""
    out = []
    for verb in run_verbs(sqldir):
        checks = []
        for name, kind, maximum, is_required in run_members(verb):
            value, max_bytes = f"body ->> '{name}'", maximum or 262144
            refuse = f"    perform outlog.refuse_field('{name}', {value}, {max_bytes}, {str(is_required).lower()});"
            if kind == "text":
                checks += [
                    f"if (octet_length({value}) between 1 and {max_bytes}) is "
                    f"{'not true' if is_required else 'false'} then",
                    refuse,
                    "end if;",
                ]
            elif kind in ("count", "number"):
                checks += [
                    f"if {value} is not null then",
                    f"    perform outlog.run_refuse_number('{name}', "
                    f"({value})::numeric, {int(kind == 'number')}, {maximum or 'null'});",
                    "end if;",
                ]
            elif is_required:
                checks += [f"if body -> '{name}' is null then", refuse, "end if;"]
        out += [f"when '{verb['verb']}' then"] + [f"    {check}" for check in checks or ["null;"]]
    return out


RESERVED = ("SIGNAL", "RUN", "STEP", "EFFECT")  # the aggregates whose states are events


def reserved_types(sqldir):
    """The types that only commands of outlog write, beside outlog.*: those of the states of runs and their parts."""
    types = json.loads((sqldir / "event_types.json").read_text())
    return [name for name, type_ in types.items() if type_.get("aggregate_type") in RESERVED]


def reserved_types_sql(sqldir, _):
    return listed([sql_text(name) for name in reserved_types(sqldir)])


def reserved_types_c(sqldir):
    return (
        "/* Made from sql/event_types.json by scripts/rules.py; edit that instead. */\n"
        f"#define OL_RESERVED_TYPES {', '.join(map(c_text, reserved_types(sqldir)))}\n"
    )


def run_transitions_c(sqldir):
    """Initializers by verb: OL_RUN_VERBS for runs/command.c, OL_RUN_TRANSITIONS for runs/transition.c."""
    kinds = {
        "text": "BODY_TEXT",
        "count": "BODY_COUNT",
        "number": "BODY_FROM_1",
        "any": "BODY_ANY",
        "object": "BODY_OBJECT",
    }

    def text(value):
        return "NULL" if value is None else c_text(value)

    verbs, moves = [], []
    for verb in run_verbs(sqldir):
        signal, at = verb.get("signal", {}), f"[OL_{verb['verb'].upper()}]"
        members = [
            f"{{{c_text(name)}, {kinds[kind]}, {str(is_required).lower()}, {maximum or 0}}}"
            for name, kind, maximum, is_required in run_members(verb)
        ]
        members.append('{"expected_seq", BODY_COUNT, false, 0}')
        verbs.append(f"{at} = {{{c_text(verb['verb'])}, {text(verb.get('target'))}, {{{', '.join(members)}}}}},")
        moves.append(
            f"{at} = {{{text(any_of(verb['from']) if 'from' in verb else None)}, {text(verb.get('to'))}, "
            f"{c_text(verb['event'])}, {str(bool(verb.get('any_run'))).lower()}, "
            f"{text(any_of(verb['steps']) if 'steps' in verb else None)}, "
            f"{text(any_of(signal['from']) if 'from' in signal else None)}, {text(signal.get('to'))}, "
            f"{text(signal.get('event'))}}},"
        )
    out = ["/* Made from sql/schema/run_transitions.json by scripts/rules.py; edit that instead. */"]
    for name, rows in (("OL_RUN_VERBS", verbs), ("OL_RUN_TRANSITIONS", moves)):
        out += [f"#define {name} \\"] + [f"    {row} \\" for row in rows[:-1]] + [f"    {rows[-1]}"]
    return "\n".join(out) + "\n"


PARTS = {
    "postgres": {
        "secret_hints": secret_hints_regex,
        "message_transitions": message_pairs_postgres,
        "run_transitions": run_transitions_sql,
        "run_members": run_members_sql,
        "reserved_types": reserved_types_sql,
    },
    "sqlite": {
        "secret_shapes": secret_shapes,
        "secret_hints": secret_hints_glob,
        "secret_refusals": secret_refusals,
        "message_transitions": message_pairs_sqlite,
    },
}


def write_tables(sqldir, folder):
    (folder / "secret_rules.h").write_text(secret_rules_c(sqldir))
    (folder / "own_tokens.h").write_text(own_tokens_c(sqldir))
    (folder / "reserved_types.h").write_text(reserved_types_c(sqldir))
    (folder / "run_transitions.h").write_text(run_transitions_c(sqldir))
