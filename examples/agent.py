#!/usr/bin/env python3
"""An agent for live sessions: it reads one JSON line and answers word by word.

    agents: {helper: {type: exec, command: [python3, examples/agent.py]}}

Its checkpoint counts the messages of the session; a real agent would call a model and keep its history there.
"""
import json
import sys
import time

question = json.loads(sys.stdin.readline())
asked = (question["checkpoint"] or {}).get("asked", 0) + 1
pace = float(sys.argv[1]) if len(sys.argv) > 1 else 0.05

for word in f"You said: {question['text']} (this was your message number {asked})".split(" "):
    print(json.dumps({"token": word + " "}), flush=True)
    time.sleep(pace)
print(json.dumps({"checkpoint": {"asked": asked}}), flush=True)
