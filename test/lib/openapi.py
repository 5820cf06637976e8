"""Bodies and questions made from an OpenAPI description, right and wrong ones."""
import json
import random
import string
import uuid

STRANGE = ["", " ", "x", "é", "😀", "\u0001", "'", '"', "%", "../..", "a" * 300, "-1", "0", "null", "true", "[]", "1e999",
           "99999999999999999999", "2026-01-01T00:00:00Z", "1h", "end", "DEAD", "PENDING", "acme", "d", "none"]
VALUES = [None, True, False, 0, -1, 1.5, 10**30, "", "x", [], {}, [[]], {"a": {"b": [1]}}]


class Maker:
    def __init__(self, document, seed):
        self.document, self.random = document, random.Random(seed)

    def resolve(self, schema):
        while "$ref" in schema:
            node = self.document
            for part in schema["$ref"].lstrip("#/").split("/"):
                node = node[part]
            schema = node
        return schema

    def text(self, schema):
        if self.random.random() < 0.3:
            return self.random.choice(STRANGE)
        if schema.get("format") == "uuid":
            return str(uuid.UUID(int=self.random.getrandbits(128)))
        if schema.get("format") == "date-time":
            return "2026-01-01T00:00:00Z"
        return "".join(self.random.choice(string.ascii_letters + string.digits + "._-")
                       for _ in range(self.random.randint(1, 12)))

    def value(self, schema, depth=0):
        """Mostly what the schema says, sometimes anything."""
        schema = self.resolve(schema)
        if self.random.random() < 0.05:
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
            return [self.value(schema.get("items", {}), depth + 1) for _ in range(self.random.randint(0, 2 if depth < 3 else 0))]
        if kind in ("integer", "number"):
            return self.random.choice([schema.get("minimum", 0), 1, 2, 7, 1000, 2**53, -5])
        return {"boolean": self.random.random() < 0.5, "null": None}.get(kind, self.text(schema))

    def object(self, schema, depth):
        needed = schema.get("required", [])
        out = {}
        for name, member in schema.get("properties", {}).items():
            if name in needed and self.random.random() < 0.95 or self.random.random() < 0.25:
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
