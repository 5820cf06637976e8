#!/usr/bin/python3
"""Check the first lines of commit messages.

    check_commits.py [ROOT]

A subject is `area: what changes`, has at most 72 characters and no full stop at its end. All commits since this
file was added are checked. Prints one line per violation and exits with 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

SUBJECT_MAX = 72
SELF = "scripts/check_commits.py"


def git(root, *args):
    return subprocess.run(["git", "-C", root, *args], capture_output=True, text=True)


def problem_of(subject):
    if len(subject) > SUBJECT_MAX:
        return f"{len(subject)} characters, {SUBJECT_MAX} at most"
    if subject.startswith(("Merge ", "Revert ")):
        return None
    if not re.match(r"[a-z0-9_, /-]+: \S", subject):
        return "write it as `area: what changes`"
    if subject.endswith("."):
        return "leave out the full stop"
    return None


def check(root):
    """Every violation, as lines of text. A tree without history has none."""
    added = git(root, "log", "--diff-filter=A", "--format=%H", "--", SELF).stdout.split()
    if not added:
        return []
    found = []
    for line in git(root, "log", "--no-merges", "--format=%h %s", f"{added[-1]}..HEAD").stdout.splitlines():
        commit, _, subject = line.partition(" ")
        problem = problem_of(subject)
        if problem:
            found.append(f"{commit} {subject}: {problem}")
    return found


def main():
    found = check(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1]))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
