#!/usr/bin/env python3
"""A small shop that uses outlog: it receives orders, processes them in runs and requests effects.

    python3 examples/shop.py --api http://127.0.0.1:7400 [--listen 127.0.0.1:7401] [--orders N] [--pace S]

It plays both sides: it calls outlog's HTTP API like a shop would, and it receives the messages of the
shop. `billing` answers; `partner-api` fails, so that you can see retries and dead letters, until you
repair it:

    curl -X POST http://127.0.0.1:7401/repair        and /break to break it again

Only Python's own library is used.
"""
import argparse
import http.client
import http.server
import itertools
import json
import random
import signal
import sys
import threading
import time
import urllib.parse

ORG = "acme"
GOODS = {"tea": 4, "cup": 9, "kettle": 29, "teapot": 24}

# Events of the shop's law firm. With the rules of notifications.yaml each of them notifies somebody.
PRACTICE = [
    ("matter", "matter.created", {"title": "Kettle v. Pot"}),
    ("matter", "matter.updated", {"title": "Kettle v. Pot", "watchers": ["u-mia", "u-max"], "changes": ["court"]}),
    ("task", "task.created", {"title": "Draft the reply", "assignee": "u-max"}),
    ("task", "task.assigned", {"title": "Draft the reply", "assignee": "u-mia", "due": "Friday"}),
    ("task", "task.completed", {"title": "Draft the reply", "created_by": "u-max"}),
    ("document", "document.uploaded", {"name": "reply.pdf", "watchers": ["u-mia"]}),
    ("invoice", "invoice.created", {"total": "120 EUR"}),
    ("invoice", "invoice.sent", {"total": "120 EUR", "customer": {"name": "Ms Pot", "email": "pot@customers.example"}}),
    ("payment", "payment.received", {"amount": "120 EUR", "invoice": "i-1"}),
    ("payment", "payment.failed", {"amount": "80 EUR", "invoice": "i-2", "reason": "the bank said no"}),
    ("user", "user.invited", {"email": "new@customers.example", "link": "https://practice.example/join"}),
    ("user", "user.joined", {"name": "Noa"}),
]

QUESTIONS = ["Where is my parcel?", "Does the kettle whistle?", "May I send back a teapot that drips?"]


def main():
    args = arguments()
    receivers = Receivers(args.listen)
    threading.Thread(target=receivers.serve_forever, daemon=True).start()
    shop = Shop(Api(args.api), receivers)
    shop.set_up()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    numbers = itertools.count(1) if args.orders is None else range(1, args.orders + 1)
    for number in numbers:
        shop.order()
        shop.practise(number)
        if number % 20 == 1:
            shop.ask(number)
        time.sleep(random.uniform(0.3, 1.2) * args.pace)
    return 0


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--api", required=True)
    parser.add_argument("--listen", default="127.0.0.1:7401")
    parser.add_argument("--orders", type=int, help="stop after this many")
    parser.add_argument("--pace", type=float, default=1.0, help="2 is half as fast")
    return parser.parse_args()


class Api:
    """outlog's HTTP API, one call at a time."""

    def __init__(self, url):
        self.host = urllib.parse.urlparse(url).netloc

    def call(self, method, path, body=None):
        for pause in (0.2, 0.5, 1, 2, 5, None):
            try:
                connection = http.client.HTTPConnection(self.host, timeout=10)
                connection.request(method, path, None if body is None else json.dumps(body))
                answer = connection.getresponse()
                text = answer.read()
                if answer.status < 500:
                    return answer.status, json.loads(text or "null")
            except OSError:
                if pause is None:
                    raise
            time.sleep(pause or 0)
        raise SystemExit(f"shop: {method} {path} failed: {text.decode()}")

    def post(self, path, **body):
        status, answer = self.call("POST", path, body)
        if status >= 400:
            raise SystemExit(f"shop: POST {path}: {answer.get('detail')}")
        return answer


class Shop:
    def __init__(self, api, receivers):
        self.api, self.receivers = api, receivers

    def set_up(self):
        at = f"http://{self.receivers.address}"
        quick = {"policy": "exponential", "base": "500ms", "factor": 2, "max": "5s", "max_attempts": 4}
        for name, settings in {
            "billing": {"type": "webhook", "url": f"{at}/billing", "allow_private": True},
            "partner-api": {
                "type": "webhook",
                "url": f"{at}/partner",
                "allow_private": True,
                "retry": quick,
                "breaker": {"failures": 1000},
            },
            "mail": {"type": "webhook", "url": f"{at}/mail", "allow_private": True},
        }.items():
            status, answer = self.api.call("PUT", f"/v1/destinations/{name}", settings)
            if status >= 400:
                raise SystemExit(f"shop: {name}: {answer.get('detail')}")
        for name in ("mia", "max", "ana"):
            self.api.call("PUT", f"/v1/users/u-{name}/preferences?org_id={ORG}", {"email": f"{name}@practice.example"})
        self.api.call("PUT", "/v1/consumers/bookkeeping", {"filters": {"event_type": "order.paid"}})

    def order(self):
        """One order from checkout to parcel: a run, in which each step appends an event."""
        basket = random.sample(sorted(GOODS), random.randint(1, 2))
        total = sum(GOODS[name] for name in basket)
        api = self.api
        order = f"o-{int(time.time() * 1000) % 10_000_000}"
        signal_row = api.post(
            "/v1/signals",
            org_id=ORG,
            signal_type="checkout",
            payload={"order_id": order, "basket": basket, "total": total},
        )
        cause = {"org_id": ORG, "correlation_id": signal_row["correlation_id"]}
        api.post(
            "/v1/events",
            **cause,
            actor={"type": "user", "id": f"u-{random.randint(1, 9)}"},
            events=[self.event(order, "order.created", {"basket": basket, "total": total})],
        )
        run = api.post(
            "/v1/runs",
            org_id=ORG,
            signal_id=signal_row["signal_id"],
            run_type="process-order",
            orchestrator_version="shop 1",
        )["run_id"]

        charge = api.post(f"/v1/runs/{run}/steps", step_type="charge")["step_id"]
        tool = api.post(f"/v1/steps/{charge}/tools", tool_name="bank", input={"amount": total})
        if random.random() < 0.1:
            api.post(
                f"/v1/tools/{tool['tool_call_id']}/fail", error_code="card_declined", error_message="the bank said no"
            )
            api.post(f"/v1/steps/{charge}/fail", error_code="card_declined", error_message="the bank said no")
            api.post(f"/v1/runs/{run}/fail", error_code="card_declined", error_message="the bank said no")
            api.post("/v1/events", **cause, events=[self.event(order, "order.cancelled", {"why": "card"})])
            return
        api.post(f"/v1/tools/{tool['tool_call_id']}/complete", result={"approved": True})
        api.post(f"/v1/steps/{charge}/complete", output_result={"charged": total})
        paid = self.event(order, "order.paid", {"total": total})
        api.post(
            "/v1/events",
            **cause,
            events=[paid],
            messages=[
                {
                    "destination": "billing",
                    "event_type": "invoice.wanted",
                    "ordering_key": order,
                    "payload": {"order_id": order, "total": total},
                }
            ],
        )
        api.post(f"/v1/runs/{run}/checkpoint", checkpoint_data={"charged": True})

        ship = api.post(f"/v1/runs/{run}/steps", step_type="ship")["step_id"]
        api.post(
            f"/v1/runs/{run}/effects",
            effect_type="API_CALL",
            destination="mail",
            step_id=ship,
            effect_spec={"to": f"{order}@customers.example", "subject": "On its way"},
        )
        if "kettle" in basket and random.random() < 0.5:  # kettles are ordered from a partner, whose API is down
            api.post(
                "/v1/messages",
                org_id=ORG,
                destination="partner-api",
                event_type="kettle.ordered",
                ordering_key=order,
                correlation_id=signal_row["correlation_id"],
                payload={"order_id": order, "pieces": 1},
            )
        api.post(f"/v1/steps/{ship}/complete", output_result={"parcel": f"p-{order}"})
        api.post(f"/v1/runs/{run}/complete")
        api.post("/v1/events", **cause, events=[self.event(order, "order.shipped", {"parcel": f"p-{order}"})])

    def practise(self, number):
        kind, event_type, payload = PRACTICE[number % len(PRACTICE)]
        self.api.post(
            "/v1/events",
            org_id=ORG,
            actor={"type": "user", "id": "u-mia"},
            events=[
                {
                    "aggregate_type": kind,
                    "aggregate_id": f"{kind[0]}-{number}-{random.randint(1, 10 ** 6)}",
                    "event_type": event_type,
                    "payload": payload,
                }
            ],
        )

    def ask(self, number):
        """A customer asks the assistant. The answer waits until the customer opens a page."""
        self.api.post(
            "/v1/events",
            org_id=ORG,
            actor={"type": "user", "id": "ms-pot"},
            events=[
                {
                    "aggregate_type": "session",
                    "aggregate_id": f"ms-pot:helper:{time.strftime('%H%M%S')}",
                    "event_type": "user_message",
                    "payload": {"requestId": f"shop-{number}", "text": random.choice(QUESTIONS)},
                }
            ],
        )

    @staticmethod
    def event(order, event_type, payload):
        return {"aggregate_type": "order", "aggregate_id": order, "event_type": event_type, "payload": payload}


class Receivers(http.server.ThreadingHTTPServer):
    """The receivers of the shop's messages."""

    daemon_threads = True

    def __init__(self, listen):
        host, _, port = listen.rpartition(":")
        super().__init__((host, int(port)), ReceiverHandler)
        self.address = f"{host}:{self.server_address[1]}"
        self.is_broken = True


class ReceiverHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path in ("/break", "/repair"):
            self.server.is_broken = self.path == "/break"
            self.answer(200, f"partner-api is {'broken' if self.server.is_broken else 'repaired'}\n")
        elif self.path == "/partner" and self.server.is_broken:
            self.answer(503, "the warehouse is closed\n")
        else:
            time.sleep(random.uniform(0.005, 0.04))
            self.answer(200, "thank you\n")

    def answer(self, status, text):
        self.send_response(status)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, BrokenPipeError):
        sys.exit(0)
