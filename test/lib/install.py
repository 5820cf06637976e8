"""What `make install` puts somewhere, for tests that look at outlog as a user does."""
import os
import pathlib
import subprocess


def install(build, folder):
    """Install the build below `folder`; the prefix, with a pkg-config file that says so."""
    subprocess.run(
        ["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir", folder],
        check=True,
        capture_output=True,
    )
    file = next(pathlib.Path(folder).rglob("outlog.pc"))
    prefix = file.parents[2]
    lines = file.read_text().splitlines()
    file.write_text("\n".join(f"prefix={prefix}" if line.startswith("prefix=") else line for line in lines) + "\n")
    return prefix


def user_env(prefix, env=os.environ):
    """The environment of somebody who has installed outlog into `prefix`."""
    env = {name: value for name, value in env.items() if not name.startswith(("OUTLOG_", "PG"))}
    return {
        **env,
        "PATH": f"{prefix}/bin:{env['PATH']}",
        "LD_LIBRARY_PATH": f"{prefix}/lib",
        "PKG_CONFIG_PATH": f"{prefix}/lib/pkgconfig",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
    }
