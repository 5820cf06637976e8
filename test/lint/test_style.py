"""What `make lint` finds in seconds; clang-tidy, which takes minutes, is run by `make lint` alone."""
import subprocess

import pytest


@pytest.fixture(scope="module")
def lint(root):
    return subprocess.run([root / "scripts" / "lint", "--quick"], capture_output=True, text=True)


def test_the_source_is_as_lint_wants_it(lint):
    assert lint.returncode == 0, lint.stdout + lint.stderr


def test_every_step_was_run(lint):
    steps = ["white space", "order, names and text", "subjects of commits", "Python", "JavaScript", "cppcheck"]
    for step in steps:
        assert f"lint: {step}" in lint.stdout
    assert lint.stdout.count(": fine") == len(steps), lint.stdout
