"""What `make install` puts where, and what `scripts/setup` says where it cannot install anything."""
import configparser
import importlib.machinery
import importlib.util
import os
import shutil
import subprocess
import xml.etree.ElementTree as xml

import pytest

PROGRAMS_OF_DEBIAN = ("apt-get", "dpkg-query", "apt-cache", "meson")


def test_install_honours_destdir_and_pkg_config_finds_the_library(build, root, tmp_path, sqlite_store):
    if build.name in ("build-san", "build-tsan"):
        pytest.skip("a library that wants a sanitizer's runtime is not installed")
    stage = tmp_path / "stage"
    subprocess.run(
        ["meson", "install", "-C", build, "--no-rebuild", "--quiet"],
        check=True,
        env={**os.environ, "DESTDIR": str(stage)},
        capture_output=True,
    )
    assert not [path for path in stage.rglob("*") if path.is_symlink() and not path.exists()]
    prefix = next(stage.rglob("bin/outlog")).parents[1]
    pc = next(prefix.rglob("outlog.pc"))
    env = {**os.environ, "PKG_CONFIG_PATH": str(pc.parent), "PKG_CONFIG_SYSROOT_DIR": str(stage)}
    flags = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "outlog"], env=env, check=True, capture_output=True, text=True
    ).stdout.split()
    library = next(prefix.rglob("liboutlog.so")).parent
    program = tmp_path / "program.c"
    program.write_text(
        "#include <outlog.h>\n#include <stdio.h>\nint main(int c, char **v)\n{\n    outlog *log;\n"
        "    outlog_err err;\n    (void)c;\n    if (outlog_open(v[1], &log, &err) < 0)\n"
        "        return puts(err.message), 1;\n    outlog_close(log);\n    return 0;\n}\n"
    )
    subprocess.run(["cc", program, "-o", tmp_path / "program", *flags], check=True)
    subprocess.run(
        [tmp_path / "program", sqlite_store], check=True, env={**os.environ, "LD_LIBRARY_PATH": str(library)}
    )
    version = subprocess.run(
        [prefix / "bin" / "outlog", "version"],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "LD_LIBRARY_PATH": str(library)},
    ).stdout
    assert version.startswith("outlog ")


def test_the_closing_line_of_the_tests_can_be_read_by_a_machine(root):
    loader = importlib.machinery.SourceFileLoader("scripts_test", str(root / "scripts" / "test"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    count = module.Count()
    cases = "<testcase/><testcase><failure/></testcase><testcase><error/></testcase><testcase/>"
    assert count.add_suite(xml.fromstring(f"<testsuite>{cases}</testsuite>")) == 2
    assert str(count) == "2 passed, 2 failed"
    count.add_suite(xml.fromstring("<testsuite><testcase><skipped/></testcase></testsuite>"))
    assert str(count) == "2 passed, 2 failed, 1 skipped"


def test_the_unit_file_starts_what_there_is(root, build):
    """Its commands and their options are known, its stopping time is longer than ours."""
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str
    unit.read(root / "packaging" / "outlog.service")
    service = unit["Service"]
    for key in ("ExecStartPre", "ExecStart"):
        program, command, *options = service[key].split()
        assert program == "/usr/local/bin/outlog"
        said = subprocess.run([build / "outlog", command, "--help"], capture_output=True, text=True)
        assert said.returncode == 0
        assert all(option in said.stdout for option in options if option.startswith("--")), (key, said.stdout)
    assert (
        int(service["TimeoutStopSec"]) > 30 and service["Restart"] == "always" and service["NoNewPrivileges"] == "yes"
    )
    if shutil.which("systemd-analyze"):
        checked = subprocess.run(
            ["systemd-analyze", "verify", root / "packaging" / "outlog.service"], capture_output=True, text=True
        )
        assert "Unknown" not in checked.stderr, checked.stderr


def test_setup_elsewhere_says_what_is_missing_and_installs_nothing(root, tmp_path):
    for folder in ("/bin", "/usr/bin"):
        for name in os.listdir(folder):
            if name not in PROGRAMS_OF_DEBIAN and not (tmp_path / name).is_symlink():
                (tmp_path / name).symlink_to(f"{folder}/{name}")
    done = subprocess.run(
        ["/bin/bash", root / "scripts" / "setup", "build"],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path), "HOME": str(tmp_path)},
    )
    assert done.returncode == 1 and not done.stdout
    assert "not Debian" in done.stderr and "command meson" in done.stderr
