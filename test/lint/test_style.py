"""What `make lint` finds in seconds; clang-tidy, which takes minutes, is its own."""
import subprocess


def test_the_source_is_as_lint_wants_it(root):
    done = subprocess.run([root / "scripts" / "lint", "--quick"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(": fine") == 3
