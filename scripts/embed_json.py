#!/usr/bin/env python3
"""A JSON file as bytes in C: embed_json.py FILE SYMBOL OUTPUT."""
import json
import pathlib
import sys

source, symbol, output = sys.argv[1:]
text = json.dumps(json.loads(pathlib.Path(source).read_text()), separators=(",", ":"))
rows = [", ".join(map(str, text[i:i + 20].encode())) for i in range(0, len(text), 20)]
pathlib.Path(output).write_text(
    f"/* Made of {pathlib.Path(source).name}; change that. */\n"
    f"extern const char {symbol}[];\nconst char {symbol}[] = {{\n" + ",\n".join(rows) + ", 0};\n")
