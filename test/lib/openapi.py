"""Requests made from an OpenAPI description, right and wrong ones."""
import json
import random
import re
import string
import urllib.parse
import uuid

STRANGE = [
    "",
    " ",
    "x",
    "é",
    "😀",
    "\u0001",
    "'",
    '"',
    "%",
    "../..",
    "a" * 300,
    "-1",
    "0",
    "null",
    "true",
    "[]",
    "1e999",
    "99999999999999999999",
    "2026-01-01T00:00:00Z",
    "1h",
    "end",
    "DEAD",
    "PENDING",
    "acme",
    "d",
    "none",
]
VALUES = [None, True, False, 0, -1, 1.5, 10**30, "", "x", [], {}, [[]], {"a": {"b": [1]}}]


# What a header may hold: the usual, and what nobody sends.
HEADERS = {
    "x-request-id": ["r-1", "a" * 500, "\t", "r;1", "\u00e9"],
    "traceparent": ["00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-0-0-0", "-" * 80],
    "content-type": ["application/json", "application/json; charset=utf-8", "text/plain", "application/x-ndjson", "/"],
    "accept": ["*/*", "text/html", "application/problem+json;q=0", ","],
    "accept-encoding": ["gzip", "br;q=1", "gzip;q=0"],
    "last-event-id": ["1", "-1", "99999999999999999999", "x"],
    "if-none-match": ["*", '"x"'],
}


# Where the description says "string" and few are right.
GOOD = {
    "type": ["null", "null", "webhook"],
    "org_id": ["acme"],
    "destination": ["d", "none"],
    "payload": [{}, {"n": 1}, {"user": "u"}],
    "event_type": ["t", "order.made"],
    "since": ["1h"],
    "delay": ["1h"],
    "available_at": ["2026-01-01T00:00:00Z"],
}


class Maker:
    """Remembers the ids and names it saw in answers: what it asks for is often there."""

    def __init__(self, document, seed):
        self.document, self.random = document, random.Random(seed)
        self.known = {
            "": ["0190a7c3-0000-7000-8000-000000000001", "d", "none", "acme"],
            "session_key": ["u:helper:t", "u-2:nobody:t"],
            "user_id": ["u"],
        }

    def learn(self, path, value, key=""):
        """Take names and ids out of the answer to a call of `path`."""
        if isinstance(value, dict):
            for name, member in value.items():
                self.learn(path, member, name)
        elif isinstance(value, list):
            for member in value[:5]:
                self.learn(path, member, key)
        elif (
            isinstance(value, (str, int))
            and (key == "name" or key.endswith(("id", "ids", "key")))
            and 0 < len(str(value)) < 200
        ):
            for place in ("", key, (path.split("/")[2:3], key)):
                known = self.known.setdefault(str(place), [])
                if len(known) > 100:
                    known[self.random.randrange(len(known))] = str(value)
                else:
                    known.append(str(value))

    def recall(self, path, argument):
        """Something that was there under that name, if anything was."""
        tag = path.split("/")[2:3]
        own = f"{tag[0][:-1]}_id" if tag and argument == "id" else argument  # runs/{id} is a run_id
        for place in ((tag, argument), own, argument, ""):
            if self.known.get(str(place)):
                return self.random.choice(self.known[str(place)])

    def request(self, method, path, operation):
        """(method, path with query, body or None, headers) for one operation of the description."""
        for argument in re.findall(r"\{[^}]*\}", path):
            text = self.recall(path, argument[1:-1]) if self.random.random() < 0.85 else self.text({}) or "d"
            path = path.replace(argument, urllib.parse.quote(text, safe=""), 1)
        query = [
            (name, "0" if name == "wait" else value) for name, value in self.question(operation) if name != "timeout"
        ]
        if any(self.resolve(one)["name"] == "timeout" for one in operation.get("parameters", [])):
            query.append(("timeout", "0"))  # nobody waits here
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {name: self.random.choice(values) for name, values in HEADERS.items() if self.random.random() < 0.05}
        body = None
        if "requestBody" in operation:
            schema = operation["requestBody"]["content"]["application/json"]["schema"]
            body = json.dumps(self.value(schema), ensure_ascii=self.random.random() < 0.5)
            if self.random.random() < 0.03:
                body = body[: self.random.randrange(len(body) + 1)]
        if method == "POST" and self.random.random() < 0.2:
            headers["idempotency-key"] = urllib.parse.quote(self.text({}) or "k")
        return method, path, body, {name: value.encode() for name, value in headers.items()}

    def resolve(self, schema):
        while "$ref" in schema:
            node = self.document
            for part in schema["$ref"].lstrip("#/").split("/"):
                node = node[part]
            schema = node
        return schema

    def text(self, schema):
        chance = self.random.random()
        if chance < 0.3:
            return self.random.choice(STRANGE)
        if chance < 0.45:
            return self.random.choice(self.known[""])
        if schema.get("format") == "uuid":
            return str(uuid.UUID(int=self.random.getrandbits(128)))
        if schema.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        return "".join(
            self.random.choice(string.ascii_letters + string.digits + "._-") for _ in range(self.random.randint(1, 12))
        )

    def value(self, schema, depth=0):
        """Mostly what the schema says, sometimes anything."""
        schema = self.resolve(schema)
        if self.random.random() < 0.02:
            return self.random.choice(VALUES)
        if "oneOf" in schema:
            return self.value(self.random.choice(schema["oneOf"]), depth)
        if "enum" in schema:
            return self.random.choice(schema["enum"])
        kind = schema.get("type", self.random.choice(["object", "string", "integer", "boolean", "null"]))
        kind = self.random.choice(kind) if isinstance(kind, list) else kind
        if kind == "object":
            return self.object(schema, depth)
        if kind == "array":
            return [
                self.value(schema.get("items", {}), depth + 1)
                for _ in range(self.random.randint(0, 2 if depth < 3 else 0))
            ]
        if kind in ("integer", "number"):
            return self.random.choice([schema.get("minimum", 0), 1, 2, 7, 1000, 2**53, -5])
        return {"boolean": self.random.random() < 0.5, "null": None}.get(kind, self.text(schema))

    def object(self, schema, depth):
        needed, often = schema.get("required", []), self.random.choice([0, 0.05, 0.3])
        out = {}
        for name, member in schema.get("properties", {}).items():
            if name in needed and self.random.random() < 0.98 or self.random.random() < often:
                if name in GOOD and self.random.random() < 0.6:
                    out[name] = self.random.choice(GOOD[name])
                elif name.endswith("_id") and self.random.random() < 0.4:
                    out[name] = self.recall("", name)
                else:
                    out[name] = self.value(member, depth + 1)
        if self.random.random() < 0.05:
            out["surprise"] = 1
        return out

    def question(self, operation):
        """name=value pairs of the query."""
        pairs = []
        for parameter in operation.get("parameters", []):
            parameter = self.resolve(parameter)
            if parameter["in"] == "query" and self.random.random() < 0.3:
                value = self.value(parameter["schema"])
                pairs.append((parameter["name"], value if isinstance(value, str) else json.dumps(value)))
        if self.random.random() < 0.05:
            pairs.append(("surprise", "1"))
        return pairs
