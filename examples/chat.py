#!/usr/bin/env python3
"""The server of a chat page: it knows the user, keeps the token, and gives the page tickets.

    outlog serve --dev --config examples/chat.yaml &
    python3 examples/chat.py                       # then open http://127.0.0.1:7480/

Messages go from the browser to outlog over a WebSocket; this program only authorises it. Send something, kill
`outlog serve` during the answer, and start it again: the page shows the complete answer, once.

    --outlog URL        URL of outlog, http://127.0.0.1:7400 by default
    --listen HOST:PORT  address of the page, 127.0.0.1:7480 by default; outlog's serve.origins must name it
    --user, --agent     the user and the agent of the session; a real server knows the user from its sign-in
    OUTLOG_TOKEN        a token of scope admin bound to one org; `outlog serve --dev` needs none
"""
import argparse
import http.server
import json
import os
import pathlib
import urllib.error
import urllib.parse
import urllib.request

PAGE = pathlib.Path(__file__).with_name("chat.html")


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--outlog", default="http://127.0.0.1:7400")
    parser.add_argument("--listen", default="127.0.0.1:7480")
    parser.add_argument("--user", default="you")
    parser.add_argument("--agent", default="helper")
    return parser.parse_args()


def call(method, path):
    headers = {"content-type": "application/json"}
    if os.environ.get("OUTLOG_TOKEN"):
        headers["authorization"] = f"Bearer {os.environ['OUTLOG_TOKEN']}"
    request = urllib.request.Request(
        f"{OPTIONS.outlog}{path}", method=method, headers=headers, data=b"{}" if method == "POST" else None
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def ticket(session):
    made = call("POST", f"/v1/sessions/{session}/ticket")
    socket = OPTIONS.outlog.replace("http", "ws", 1)
    return {"url": f"{socket}/v1/sessions/{session}/socket?ticket={made['ticket']}"}


def read_all(session, what):
    """All pages: a page may end before its limit, after some MiB."""
    path, found, after = f"/v1/sessions/{session}/{what}?limit=1000", [], None
    while True:
        page = call("GET", path + (f"&after={urllib.parse.quote(str(after))}" if after else ""))
        if not page[what]:
            return found
        found, after = found + page[what], page["next_after"]
        if not after:
            return found


def history(session):
    """Each message with its answer: the page shows them after a reload, on any device."""
    events, effects = read_all(session, "events"), read_all(session, "effects")
    answers = {
        one["checkpoint_id"]: one["effect_spec"]["content"] for one in effects if one["effect_type"] == "send_message"
    }
    return {
        "turns": [
            {
                "requestId": one["payload"].get("requestId") or f"no-{one['aggregate_seq']}",
                "text": one["payload"].get("text"),
                "seq": one["aggregate_seq"],
                "answer": answers.get(f"{one['aggregate_id']}#{one['aggregate_seq']}"),
            }
            for one in events
            if one["event_type"] == "user_message"
        ]
    }


class ChatHandler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/":
            self.answer(200, PAGE.read_bytes(), "text/html; charset=utf-8")
        elif self.path.startswith("/history?"):
            self.forward(history)
        else:
            self.answer(404, b"not found", "text/plain")

    def do_POST(self):
        if self.path.startswith("/ticket?"):
            self.forward(ticket)
        else:
            self.answer(404, b"not found", "text/plain")

    def forward(self, what):
        thread = urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("thread", [""])[0]
        session = urllib.parse.quote(f"{OPTIONS.user}:{OPTIONS.agent}:{thread}", safe=":")
        try:
            self.answer(200, json.dumps(what(session)).encode())
        except urllib.error.HTTPError as error:
            self.answer(error.code, error.read(), "application/problem+json")
        except OSError as error:  # outlog is not reachable; the page tries again
            self.answer(503, json.dumps({"detail": str(error)}).encode(), "application/problem+json")

    def answer(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("cache-control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    OPTIONS = options()
    host, _, port = OPTIONS.listen.rpartition(":")
    server = http.server.ThreadingHTTPServer((host, int(port)), ChatHandler)
    print(f"chat: http://{host}:{server.server_address[1]}/", flush=True)
    server.serve_forever()
