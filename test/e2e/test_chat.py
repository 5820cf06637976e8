"""The chat of examples/ in a real browser: the whole answer is shown once, whatever connection is cut or process
is killed while it streams. Screenshots are kept in console-shots/ of the build folder."""
import json
import re
import signal
import subprocess
import sys

import pytest

from lib.browser import why_not
from lib.cut_proxy import CutProxy
from lib.outbox import wait_for
from lib.postgres import die_with_parent

pytestmark = [pytest.mark.usefixtures("store"), pytest.mark.skipif(why_not() is not None, reason=why_not() or "")]


class Page:
    """examples/chat.py; its page reaches the daemon through a proxy."""

    def __init__(self, root, server):
        self.proxy = CutProxy(server.port)
        self.process = subprocess.Popen(
            [sys.executable, root / "examples" / "chat.py", "--listen", "127.0.0.1:0", "--outlog", self.proxy.url],
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent(signal.SIGTERM),
        )
        self.url = re.search(r"http://\S+(?=/)", self.process.stdout.readline()).group()

    def close(self):
        self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()
        self.proxy.close()


@pytest.fixture
def open_chat(serve, outlog, root, tmp_path):
    """A daemon with the example's agent, and its page; `named`: the daemon allows the page's origin."""
    pages = []

    def name(page):
        (tmp_path / "chat.json").write_text(
            json.dumps(
                {
                    "agents": {
                        "helper": {
                            "type": "exec",
                            "command": [sys.executable, str(root / "examples" / "agent.py"), "0.12"],
                        }
                    },
                    "relay": {"lease": "2s"},
                    "serve": {"origins": [page.url]},
                }
            )
        )
        outlog.run("apply", "-f", tmp_path / "chat.json")

    def make(named=True):
        server = serve()
        pages.append(Page(root, server))
        if named:
            name(pages[-1])
            server.stop()
            server.start(server.port)  # leases are read when it starts
        return server, pages[-1], lambda: name(pages[-1])

    yield make
    for page in pages:
        page.close()


def settled(server, thread):
    """Wait until there is one answer for each message, and all are acknowledged."""

    def look(count):
        def is_so():
            effects = server.get(f"/v1/sessions/you:helper:{thread}/effects").json["effects"]
            return [one["status"] for one in effects] == ["COMPLETED"] * count

        wait_for(is_so, f"{count} answers to be acknowledged")
        events = server.get(f"/v1/sessions/you:helper:{thread}/events").json["events"]
        assert len(events) == count
        return True

    return look


def test_s5_a_connection_cut_in_mid_answer_costs_nothing(open_chat, browser, shots):
    server, page, _ = open_chat()
    browser.flow(
        "chatCut",
        page,
        shots,
        answers={"cut": page.proxy.cut, "mend": page.proxy.mend, "settled": settled(server, "cut")},
    )


def test_s4_the_daemon_is_killed_in_mid_answer_and_the_page_shows_it_whole_once(open_chat, browser, shots):
    server, page, _ = open_chat()
    browser.flow(
        "chatKill",
        page,
        shots,
        answers={"kill": server.kill, "start": lambda: server.start(server.port), "settled": settled(server, "kill")},
    )


def test_s7_two_windows_and_other_interfaces_see_the_same_conversation(open_chat, browser, shots, outlog):
    server, page, _ = open_chat()
    key = "you:helper:two"

    def elsewhere():
        outlog.run(
            "append",
            "--org",
            "default",
            "--aggregate",
            f"session/{key}",
            "--type",
            "user_message",
            "--data",
            '{"text":"from the shell"}',
        )
        outlog.run("apply", "-f", "-", input='{"destinations": {"chat": {"type": "websocket"}}}')
        outlog.run(
            "send",
            "--to",
            "chat",
            "--org",
            "default",
            "--type",
            "update_ui",
            "--data",
            json.dumps({"session_key": key, "badge": 1}),
        )
        wait_for(
            lambda: len(server.get(f"/v1/sessions/{key}/effects").json["effects"]) == 3, "the answer and the badge"
        )

    browser.flow("chatTwo", page, shots, answers={"elsewhere": elsewhere})


def test_s2_what_is_said_while_the_store_is_away_is_said_again(open_chat, browser, shots):
    server, page, _ = open_chat()
    browser.flow("chatAway", page, shots, answers={"settled": settled(server, "away")})


def test_x1_a_page_opens_sockets_when_its_origin_is_named(open_chat, browser, shots):
    _, page, name = open_chat(named=False)
    browser.flow("chatForeign", page, shots, answers={"name": name})


def test_an_address_that_names_no_session_is_said_so_and_asked_of_once(open_chat, browser, shots):
    _, page, _ = open_chat()
    browser.flow("chatRefused", page, shots)
