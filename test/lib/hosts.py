"""Hosts of a small network: a namespace each, all on one bridge, and wires that can be cut.

    with Network() as network:
        db, relay = network.host("db"), network.host("relay")
        process = subprocess.Popen([*relay.prefix, "outlog", "relay"], …)
        relay.cut("out", 5432)  # what it says to that port is lost; "in": what it hears; "both"
        relay.heal()

This process is on the bridge as well, so a server that it started itself is reached at `network.here`. Needs
root and `ip netns`; why not is said by impossible().
"""
import contextlib
import itertools
import os
import shutil
import subprocess

_numbers = itertools.count(1)


def _run(*words):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True)


def impossible():
    """Why there can be no namespaces here, or None."""
    if os.getuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "nft"):
        if not shutil.which(program, path="/usr/sbin:/sbin:/usr/bin:/bin"):
            return f"{program} is not installed: scripts/setup test"
    name = f"olprobe{os.getpid()}"
    try:
        _run("ip", "netns", "add", name)
    except subprocess.CalledProcessError as error:
        return f"`ip netns add` is impossible: {error.stderr.strip()}"
    _run("ip", "netns", "del", name)
    return None


class Host:
    def __init__(self, network, name, number):
        self.name = f"ol{os.getpid()}n{number}"
        self.address = f"{network.prefix}.{number + 1}"
        self.wire = f"olw{os.getpid() % 100000}n{number}"
        self.prefix = ["ip", "netns", "exec", self.name]
        _run("ip", "netns", "add", self.name)
        _run("ip", "link", "add", self.wire, "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _run("ip", "link", "set", self.wire, "master", network.bridge, "up")
        for words in (
            ("addr", "add", f"{self.address}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
            ("link", "set", "lo", "up"),
        ):
            _run("ip", "-n", self.name, *words)

    def cut(self, direction, port):
        """What goes to or comes from this port of others is lost without a word: no reset, no answer."""
        hooks = {"out": ["output"], "in": ["input"], "both": ["input", "output"]}[direction]
        for hook in hooks:
            for words in (
                ("add", "table", "inet", "cut"),
                ("add", "chain", "inet", "cut", hook, f"{{ type filter hook {hook} priority 0 ; }}"),
                ("add", "rule", "inet", "cut", hook, "tcp", "dport" if hook == "output" else "sport", port, "drop"),
            ):
                _run(*self.prefix, "nft", *words)

    def heal(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            _run(*self.prefix, "nft", "delete", "table", "inet", "cut")

    def remove(self):
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "netns", "del", self.name)
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self.wire)


class Network:
    def __init__(self):
        number = next(_numbers)
        place = (os.getpid() * 4 + number) % (50 * 250)  # of its own, also beside other tests
        self.prefix = f"10.{200 + place // 250}.{place % 250}"
        self.bridge = f"olb{os.getpid() % 100000}n{number}"
        self.here = f"{self.prefix}.1"
        self.hosts = []

    def __enter__(self):
        _run("ip", "link", "add", self.bridge, "type", "bridge")
        try:
            _run("ip", "addr", "add", f"{self.here}/24", "dev", self.bridge)
            _run("ip", "link", "set", self.bridge, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for host in self.hosts:
            host.remove()
        with contextlib.suppress(subprocess.CalledProcessError):
            _run("ip", "link", "del", self.bridge)

    def host(self, name):
        made = Host(self, name, len(self.hosts) + 1)
        self.hosts.append(made)
        return made
