#!/usr/bin/env python3
"""schemas.json as bytes in C: embed_json.py FILE SCHEMADIR SYMBOL OUTPUT. fields.py explains `$fields`."""
import json
import pathlib
import sys

import fields

source, schema, symbol, output = sys.argv[1:]
whole = fields.expand_schemas(fields.Schema(schema), json.loads(pathlib.Path(source).read_text()))
text = json.dumps(whole, separators=(",", ":"))
rows = [", ".join(map(str, text[i : i + 20].encode())) for i in range(0, len(text), 20)]
pathlib.Path(output).write_text(
    f"/* Made of {pathlib.Path(source).name}; change that. */\n"
    f"extern const char {symbol}[];\nconst char {symbol}[] = {{\n" + ",\n".join(rows) + ", 0};\n"
)
