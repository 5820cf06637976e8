"""An OpenTelemetry collector that only remembers: OTLP/HTTP with JSON at /v1/traces.

Debian has no package of the real one; what it would refuse by its protobuf schema is refused here too:
ids of the right length, times as text, no field that OTLP does not have.
"""
import http.server
import json
import re
import threading

SPAN = {
    "traceId",
    "spanId",
    "parentSpanId",
    "name",
    "kind",
    "startTimeUnixNano",
    "endTimeUnixNano",
    "attributes",
    "status",
}


class Collector:
    def __init__(self):
        self.spans, self.headers, self.refused = [], [], []
        self.status = 200
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def named(self, name, **attributes):
        return [
            one
            for one in list(self.spans)
            if one["name"] == name
            and all(one["attributes"].get("outlog." + key) == value for key, value in attributes.items())
        ]

    def _take(self, path, headers, body):
        self.headers.append(headers)
        try:
            assert path == "/v1/traces" and headers["content-type"] == "application/json"
            for resource in json.loads(body)["resourceSpans"]:
                assert {"key": "service.name", "value": {"stringValue": "outlog"}} in resource["resource"]["attributes"]
                for scope in resource["scopeSpans"]:
                    self.spans += [_checked(span) for span in scope["spans"]]
        except (AssertionError, KeyError, ValueError) as error:
            self.refused.append(f"{error!r}: {body[:2000]}")


def _checked(span):
    assert set(span) <= SPAN, set(span) - SPAN
    assert re.fullmatch("[0-9a-f]{32}", span["traceId"]) and re.fullmatch("[0-9a-f]{16}", span["spanId"])
    assert "parentSpanId" not in span or re.fullmatch("[0-9a-f]{16}", span["parentSpanId"])
    assert span["kind"] in (1, 2, 3, 4, 5) and span["status"].get("code", 0) in (0, 1, 2)
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]), span
    assert isinstance(span["startTimeUnixNano"], str)
    attributes = {}
    for one in span["attributes"]:
        ((kind, value),) = one["value"].items()
        assert (kind, type(value)) in (("stringValue", str), ("intValue", str)), one
        attributes[one["key"]] = int(value) if kind == "intValue" else value
    return {**span, "attributes": attributes}


def _handler(collector):
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.may_answer.wait()
            if collector.status == 200:
                collector._take(self.path, self.headers, body)
            self.send_response(collector.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_):
            pass

        def handle(self):
            try:
                super().handle()
            except OSError:
                pass

    return Handler
