"""Real brokers for tests, each on a free loopback port with a folder of its own, ended with the test.

    with Redis(folder) as broker:
        broker.settings(stream="orders")      # a destination that publishes there
        broker.received("orders")             # what lies there now, as [{"id", "payload", "headers", …}]

Kafka is not packaged for Debian: KafkaMock is librdkafka's own mock cluster in a process of its own.
"""
import base64
import contextlib
import copy
import json
import os
import pathlib
import secrets
import signal
import socket
import subprocess

from lib.cli import build_dir
from lib.outbox import wait_for, wait_frozen
from lib.postgres import die_with_parent, free_port

PASSWORD = "open-sesame-42"
LIMIT = 64 * 1024  # what a broker with a limit takes at most


class Broker:
    """What all of them can do. `tls` is a folder with localhost.pem and localhost.key."""

    START_SECONDS = 180
    DOT = "."  # between the parts of a name
    CE_PREFIX = None  # binary CloudEvents: before the attributes
    UNROUTABLE = True  # a name may lead nowhere
    DEDUPE = {}  # settings that make the broker drop repeats
    DROPS_REPEATS = False
    TLS = True
    KEEPS = True  # what it has survives kill -9
    HANGS_UP = False  # after it refused one message, with others on their way
    IS_SLOW = False  # to start: one for all tests, with a login, a limit and TLS

    @staticmethod
    def holder(name, made):
        """Where messages lie whose name was made of `name`."""
        return made

    def __init__(self, folder, password=None, tls=None, limit=None):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.password, self.tls, self.limit = free_port(), password, tls, limit
        self.process = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_):
        self.thaw()
        self.kill()

    def start(self):
        log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(
            [str(word) for word in self.command()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=self.folder,
            env={**os.environ, **self.env()},
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        log.close()
        wait_for(self._is_up, lambda: f"{self}: {self.said()}", seconds=self.START_SECONDS)

    def _is_up(self):
        assert self.process.poll() is None, f"{self} ended: {self.said()}"
        return self.is_up()

    def is_up(self):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
            return True
        return False

    def said(self):
        return (self.folder / "log").read_text(errors="replace")[-2000:]

    def env(self):
        return {}

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None

    def down(self):
        self.kill()

    def up(self):
        self.start()

    def restart(self):
        self.down()
        self.up()

    def freeze(self):
        os.kill(self.process.pid, signal.SIGSTOP)
        wait_frozen(self.process.pid)

    def thaw(self):
        if self.process:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGCONT)

    def nowhere(self, name):
        """A name like this one, which nobody takes messages for."""
        return name + ".nowhere"

    def login(self):
        return {"user": self.user, "password": self.password} if self.password else {}

    def trust(self):
        return {"ca_file": str(self.tls / "localhost.pem")} if self.tls else {}

    def url(self, scheme, tls_scheme, path=""):
        return f"{tls_scheme if self.tls else scheme}://localhost:{self.port}{path}"


# --- Redis --------------------------------------------------------------------------------------------


class Redis(Broker):
    name, user = "redis", "writer"
    UNROUTABLE = False
    DEDUPE, DROPS_REPEATS = {"dedupe": "1h"}, True

    def command(self):
        line = [
            "redis-server",
            "--bind",
            "127.0.0.1",
            "--dir",
            self.folder,
            "--save",
            "",
            "--appendonly",
            "yes",
            "--appendfsync",
            "always",
            "--daemonize",
            "no",
        ]
        if self.password:
            line += ["--user", "default", "off", "--user", self.user, "on", f">{self.password}", "~*", "&*", "+@all"]
        if self.limit:
            line += ["--proto-max-bulk-len", "1mb"]  # it takes no less
        if self.tls:
            line += [
                "--port",
                "0",
                "--tls-port",
                self.port,
                "--tls-auth-clients",
                "no",
                "--tls-cert-file",
                self.tls / "localhost.pem",
                "--tls-key-file",
                self.tls / "localhost.key",
            ]
        else:
            line += ["--port", self.port]
        return line

    TOO_LARGE = 1 << 20

    def settings(self, name="orders", **more):
        return {
            "type": "redis",
            "url": self.url("redis", "rediss"),
            "stream": name,
            **self.login(),
            **self.trust(),
            **more,
        }

    def prepare(self, name):
        """Streams come by themselves."""

    def spoil(self, name):
        """A name like this one, to which the broker refuses what is sent."""
        assert self.ask("SET", name, "no stream") == "OK"
        return name

    def ask(self, *words):
        with socket.create_connection(("127.0.0.1", self.port), 30) as link:
            if self.tls:
                link = client_context(self.tls).wrap_socket(link, server_hostname="localhost")
            stream = link.makefile("rwb")
            if self.password:
                self._say(stream, "AUTH", self.user, self.password)
            return self._say(stream, *words)

    def _say(self, stream, *words):
        stream.write(b"*%d\r\n" % len(words))
        for word in words:
            word = str(word).encode()
            stream.write(b"$%d\r\n%s\r\n" % (len(word), word))
        stream.flush()
        return self._read(stream)

    def _read(self, stream):
        line = stream.readline().decode().rstrip("\r\n")
        kind, rest = line[:1], line[1:]
        if kind == "$":
            return None if rest == "-1" else stream.read(int(rest) + 2)[:-2].decode()
        if kind == "*":
            return None if rest == "-1" else [self._read(stream) for _ in range(int(rest))]
        return rest

    def is_up(self):
        try:
            return self.ask("PING") == "PONG"
        except (OSError, ValueError):
            return False

    def received(self, name):
        out = []
        for number, pairs in self.ask("XRANGE", name, "-", "+"):
            fields = dict(zip(pairs[::2], pairs[1::2]))
            out.append(
                {
                    "id": fields.pop("outlog-event-id"),
                    "payload": fields.pop("payload"),
                    "content_type": fields.pop("content-type"),
                    "headers": fields,
                    "number": number,
                }
            )
        return out


def client_context(folder):
    import ssl

    return ssl.create_default_context(cafile=folder / "localhost.pem")


# --- NATS ---------------------------------------------------------------------------------------------


class Nats(Broker):
    name, user = "nats", "writer"
    TOO_LARGE, CE_PREFIX, DROPS_REPEATS = LIMIT, "ce-", True
    PATIENCE = 30  # seconds for an answer

    @staticmethod
    def holder(name, made):
        return name  # the stream listens to everything below

    def command(self):
        config = [
            f"listen: 127.0.0.1:{self.port}",
            f'jetstream: {{store_dir: "{self.folder}", max_mem: 100000000, max_file: 1000000000}}',
        ]
        if self.password:
            config.append(f"authorization: {{user: {self.user}, password: {self.password}}}")
        if self.limit:
            config.append(f"max_payload: {self.limit}")
        if self.tls:
            config.append(f'tls: {{cert_file: "{self.tls}/localhost.pem", ' f'key_file: "{self.tls}/localhost.key"}}')
        (self.folder / "nats.conf").write_text("\n".join(config))
        return ["/usr/sbin/nats-server", "-c", self.folder / "nats.conf"]

    def settings(self, name="orders", **more):
        return {"type": "nats", "url": self.url("nats", "tls"), "subject": name, **self.login(), **self.trust(), **more}

    def prepare(self, name, **more):
        stream = name.replace(".", "_").upper()
        answer = self.ask(
            f"$JS.API.STREAM.CREATE.{stream}",
            {"name": stream, "subjects": [name, f"{name}.>"], "storage": "file", **more},
        )
        assert "error" not in answer, answer

    def spoil(self, name):
        self.prepare(name, max_msgs=1, discard="new")
        self.ask(name, "full")
        return name

    @contextlib.contextmanager
    def _session(self):
        with socket.create_connection(("127.0.0.1", self.port), self.PATIENCE) as link:
            info = link.makefile("rb").readline()
            assert info.startswith(b"INFO"), info
            if self.tls:
                link = client_context(self.tls).wrap_socket(link, server_hostname="localhost")
            login = {"user": self.user, "pass": self.password} if self.password else {}
            hello = {"verbose": False, "headers": True, "no_responders": True, **login}
            self.inbox = f"in.{secrets.token_hex(6)}"  # a late answer to another session is not ours
            link.sendall(f"CONNECT {json.dumps(hello)}\r\nSUB {self.inbox} 1\r\n".encode())
            yield link, link.makefile("rb")

    def _call(self, link, stream, subject, body):
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        link.sendall(f"PUB {subject} {self.inbox} {len(data)}\r\n".encode() + data + b"\r\n")
        while True:
            words = stream.readline().decode().split()
            if not words or words[0] == "-ERR":
                raise OSError(f"nats: {words}")
            if words[0] == "MSG":
                return json.loads(stream.read(int(words[-1]) + 2) or "null")
            if words[0] == "HMSG":
                stream.read(int(words[-1]) + 2)
                return {"error": {"description": "no responders"}}

    def ask(self, subject, body):
        with self._session() as (link, stream):
            return self._call(link, stream, subject, body)

    def is_up(self):
        try:
            return "error" not in self.ask("$JS.API.INFO", "")
        except (OSError, ValueError, AssertionError):
            return False

    def consume(self, stream_name, consumer):
        """Everything a durable consumer has not had yet, acknowledged one by one; ids in order of arrival."""
        made = self.ask(
            f"$JS.API.CONSUMER.DURABLE.CREATE.{stream_name}.{consumer}",
            {"stream_name": stream_name, "config": {"durable_name": consumer, "ack_policy": "explicit"}},
        )
        assert "error" not in made, made
        ids = []
        with self._session() as (link, stream):
            while True:
                ask = b'{"batch":200,"no_wait":true}'
                link.sendall(
                    f"PUB $JS.API.CONSUMER.MSG.NEXT.{stream_name}.{consumer} {self.inbox} {len(ask)}\r\n".encode()
                    + ask
                    + b"\r\n"
                )
                got = 0
                while True:
                    words = stream.readline().decode().split()
                    if words == ["PING"]:
                        link.sendall(b"PONG\r\n")
                        continue
                    assert words and words[0] == "HMSG", words
                    body = stream.read(int(words[-1]) + 2)
                    head = body[: int(words[-2])].decode().split("\r\n")
                    if len(words) < 6:  # no reply to acknowledge to: a status
                        break
                    ids.append(
                        next(line.split(":", 1)[1].strip() for line in head if line.startswith("outlog-event-id:"))
                    )
                    link.sendall(f"PUB {words[3]} 4\r\n+ACK\r\n".encode())
                    got += 1
                    if got == 200:
                        break
                if got < 200:
                    return ids

    def received(self, name):
        stream_name, out = name.replace(".", "_").upper(), []
        with self._session() as (link, stream):
            state = self._call(link, stream, f"$JS.API.STREAM.INFO.{stream_name}", "")["state"]
            for number in range(state["first_seq"], state["first_seq"] + state["messages"]):
                got = self._call(link, stream, f"$JS.API.STREAM.MSG.GET.{stream_name}", {"seq": number})
                message = got["message"]
                lines = base64.b64decode(message.get("hdrs", "")).decode().split("\r\n")[1:]
                headers = dict(line.split(":", 1) for line in lines if line)
                headers = {key: value.strip() for key, value in headers.items()}
                out.append(
                    {
                        "id": headers.pop("outlog-event-id", None),
                        "number": number,
                        "payload": base64.b64decode(message.get("data", "")).decode(),
                        "content_type": headers.pop("content-type", None),
                        "subject": message["subject"],
                        "headers": headers,
                    }
                )
        return out


class NatsNode(Nats):
    """One of a cluster: nodes know each other by the ports of their routes. While they choose a leader
    nobody answers, and one asks again."""

    PATIENCE = 2

    def __init__(self, folder, number, routes):
        super().__init__(folder)
        self.number, self.routes = number, routes

    def command(self):
        others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in self.routes)
        (self.folder / "nats.conf").write_text(
            "\n".join(
                [
                    f"listen: 127.0.0.1:{self.port}",
                    f"server_name: n{self.number}",
                    f'jetstream: {{store_dir: "{self.folder}", max_mem: 100000000, max_file: 1000000000}}',
                    f"cluster: {{name: c, listen: 127.0.0.1:{self.routes[self.number]}, routes: [{others}]}}",
                ]
            )
        )
        return ["/usr/sbin/nats-server", "-c", self.folder / "nats.conf"]

    def start(self):
        """It runs; the cluster has a leader when more than half of them do."""
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [str(word) for word in self.command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=die_with_parent(signal.SIGKILL),
            )


class NatsCluster:
    """Three nodes; `at(n)` is one of them, to kill and to ask."""

    def __init__(self, folder, count=3):
        routes = [free_port() for _ in range(count)]
        self.nodes = [NatsNode(pathlib.Path(folder) / f"n{n}", n, routes) for n in range(count)]

    def __enter__(self):
        try:
            for node in self.nodes:
                node.start()
            wait_for(
                lambda: all(node.is_up() for node in self.nodes),
                lambda: "\n".join(node.said() for node in self.nodes),
                seconds=90,
            )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for node in self.nodes:
            node.kill()

    def url(self):
        return ",".join(f"nats://127.0.0.1:{node.port}" for node in self.nodes)

    def alive(self):
        return next(node for node in self.nodes if node.process)

    def ask(self, subject, body=""):
        """The answer, or nothing."""
        with contextlib.suppress(OSError, ValueError, AssertionError):
            return self.alive().ask(subject, body)
        return {}

    def leader(self, stream):
        """The node that leads the stream's replicas, or None while they choose."""
        name = self.ask(f"$JS.API.STREAM.INFO.{stream}").get("cluster", {}).get("leader")
        return next((node for node in self.nodes if name == f"n{node.number}" and node.process), None)

    def consume(self, stream, consumer):
        """The same as a node's, or nothing yet."""
        with contextlib.suppress(OSError):
            return self.alive().consume(stream, consumer)
        return None


# --- RabbitMQ -----------------------------------------------------------------------------------------


class Rabbit(Broker):
    """It takes seconds to start, so it listens with and without TLS: over_tls() is the same broker."""

    name, user = "rabbitmq", "writer"
    TOO_LARGE, IS_SLOW = LIMIT, True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.certificates, self.tls = self.tls, None
        self.tls_port, self.dist_port, self.epmd_port = free_port(), free_port(), free_port()

    def over_tls(self):
        other = copy.copy(self)
        other.port, other.tls = self.tls_port, self.certificates
        return other

    def command(self):
        config = [
            "log.file = false",
            "log.console = true",
            "log.console.level = error",
            "vm_memory_high_watermark.absolute = 500MB",
            "disk_free_limit.absolute = 1MB",
        ]
        if self.certificates:
            config += [
                f"listeners.ssl.1 = 127.0.0.1:{self.tls_port}",
                f"ssl_options.cacertfile = {self.certificates}/localhost.pem",
                f"ssl_options.certfile = {self.certificates}/localhost.pem",
                f"ssl_options.keyfile = {self.certificates}/localhost.key",
                "ssl_options.verify = verify_none",
            ]
        if self.limit:
            config.append(f"max_message_size = {self.limit}")
        if self.password:
            config += [f"default_user = {self.user}", f"default_pass = {self.password}"]
        (self.folder / "rabbitmq.conf").write_text("\n".join(config) + "\n")
        (self.folder / "plugins").write_text("[].\n")
        return ["/usr/lib/rabbitmq/bin/rabbitmq-server"]

    def env(self):
        folder = str(self.folder)
        return {
            "HOME": folder,
            "RABBITMQ_NODENAME": f"t{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "RABBITMQ_MNESIA_BASE": folder,
            "RABBITMQ_LOG_BASE": folder,
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1} +S 1:1 +sbwt none",
        }

    def beam(self):
        """The process that is the broker: the last of the scripts' children."""
        pid = self.process.pid
        while pid:
            if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == "beam.smp":
                return pid
            pid = next(iter(children(pid)), None)
        raise AssertionError("no beam.smp below the script")

    def freeze(self):
        os.kill(self.beam(), signal.SIGSTOP)
        wait_frozen(self.beam())

    def thaw(self):
        with contextlib.suppress(AssertionError, ProcessLookupError, FileNotFoundError, AttributeError):
            os.kill(self.beam(), signal.SIGCONT)

    def kill(self):
        if self.process:
            for pid in descendants(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        super().kill()
        for pid in epmd_on(self.epmd_port):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def settings(self, name="orders", **more):
        return {
            "type": "rabbitmq",
            "url": self.url("amqp", "amqps"),
            "routing_key": name,
            **self.login(),
            **self.trust(),
            **more,
        }

    @contextlib.contextmanager
    def channel(self):
        import pika

        login = pika.PlainCredentials(*((self.user, self.password) if self.password else ("guest", "guest")))
        tls = pika.SSLOptions(client_context(self.tls), "localhost") if self.tls else None
        link = pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", self.port, credentials=login, ssl_options=tls)
        )
        try:
            yield link.channel()
        finally:
            with contextlib.suppress(pika.exceptions.AMQPError):
                link.close()

    def is_up(self):
        import pika

        if not super().is_up():
            return False
        try:
            with self.channel():
                return True
        except (pika.exceptions.AMQPError, OSError):
            return False

    def prepare(self, name, **more):
        with self.channel() as channel:
            channel.queue_declare(name, durable=True, arguments=more)

    def spoil(self, name):
        """A queue that refuses what does not fit: the broker nacks."""
        self.prepare(name, **{"x-max-length": 0, "x-overflow": "reject-publish"})
        return name

    def received(self, name):
        out = []
        with self.channel() as channel:
            while True:
                how, properties, body = channel.basic_get(name)  # not acknowledged: they stay
                if how is None:
                    return out
                assert properties.delivery_mode == 2
                headers = dict(properties.headers)
                assert headers.pop("outlog-event-id") == properties.message_id
                out.append(
                    {
                        "id": properties.message_id,
                        "payload": body.decode(),
                        "content_type": properties.content_type,
                        "headers": headers,
                    }
                )


def children(pid):
    try:
        return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def descendants(pid):
    return [pid for child in children(pid) for pid in (child, *descendants(child))]


def epmd_on(port):
    """Erlang's name server stays behind; ours is known by the port in its environment."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (path / "comm").read_text().strip() == "epmd" and f"ERL_EPMD_PORT={port}".encode() in (
                path / "environ"
            ).read_bytes().split(b"\0"):
                yield int(path.name)


# --- MQTT ---------------------------------------------------------------------------------------------


class Mosquitto(Broker):
    """Topics keep nothing: prepare() subscribes, received() waits for a mark of its own to come by."""

    name, user, DOT = "mqtt", "writer", "/"
    TOO_LARGE, CE_PREFIX, UNROUTABLE, KEEPS = LIMIT, "", False, False
    HANGS_UP = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.clients, self.messages = {}, {}

    @staticmethod
    def holder(name, made):
        return name

    def command(self):
        (self.folder / "acl").write_text(
            "topic readwrite #\ntopic deny spoiled/#\n" f"user {self.user}\ntopic readwrite #\n"
        )
        config = [
            f"listener {self.port} 127.0.0.1",
            "user root",
            "max_queued_messages 0",
            f"allow_anonymous {'false' if self.password else 'true'}",
            f"acl_file {self.folder}/acl",
        ]
        if self.password:
            subprocess.run(
                ["mosquitto_passwd", "-c", "-b", self.folder / "passwords", self.user, self.password], check=True
            )
            config.append(f"password_file {self.folder}/passwords")
        if self.limit:
            config.append(f"message_size_limit {self.limit}")
        if self.tls:
            config += [f"certfile {self.tls}/localhost.pem", f"keyfile {self.tls}/localhost.key"]
        (self.folder / "mosquitto.conf").write_text("\n".join(config) + "\n")
        return ["/usr/sbin/mosquitto", "-c", self.folder / "mosquitto.conf"]

    def __exit__(self, *args):
        for client in self.clients.values():
            client.loop_stop()
        super().__exit__(*args)

    def settings(self, name="orders", **more):
        return {"type": "mqtt", "url": self.url("mqtt", "mqtts"), "topic": name, **self.login(), **self.trust(), **more}

    def prepare(self, name):
        import paho.mqtt.client as mqtt

        client = self.clients[name] = mqtt.Client(protocol=mqtt.MQTTv5)
        self.messages[name], subscribed = [], []
        if self.password:
            client.username_pw_set(self.user, self.password)
        if self.tls:
            client.tls_set(str(self.tls / "localhost.pem"))
        client.on_message = lambda _, __, message: self.messages[name].append(message)
        client.on_connect = lambda *_: client.subscribe(f"{name}/#", 1)  # and name itself
        client.on_subscribe = lambda *_: subscribed.append(True)
        client.connect("localhost", self.port)
        client.loop_start()
        wait_for(lambda: subscribed, "the subscription")

    def spoil(self, name):
        return f"spoiled/{name}"

    def received(self, name):
        self.clients[name].publish(f"{name}/mark", "mark", qos=1)
        wait_for(lambda: any(message.topic == f"{name}/mark" for message in self.messages[name]), "the mark")
        out = []
        for message in self.messages[name]:
            if message.topic == f"{name}/mark":
                continue
            headers = dict(getattr(message.properties, "UserProperty", []))
            out.append(
                {
                    "id": headers.pop("outlog-event-id", None),
                    "payload": message.payload.decode(),
                    "headers": headers,
                    "content_type": getattr(message.properties, "ContentType", None),
                }
            )
        messages = self.messages[name]  # the client's thread appends to it meanwhile
        for i in reversed(range(len(messages))):
            if messages[i].topic == f"{name}/mark":
                del messages[i]
        return out


# --- Kafka --------------------------------------------------------------------------------------------


class KafkaMock(Broker):
    """Three mock brokers of librdkafka. They keep records in memory, ask for no login, speak no TLS and
    check no sizes: what is too large is refused by the client, by the setting of its own."""

    name, user = "kafka", None
    TOO_LARGE, CE_PREFIX, TLS = LIMIT, "ce_", False

    def start(self):
        self.process = subprocess.Popen(
            [build_dir() / "test" / "kafka_mock"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
        self.brokers = self.process.stdout.readline().strip()
        assert self.brokers, "kafka_mock ended"

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        assert self.process.stdout.readline() == "done\n"

    def settings(self, name="orders", **more):
        limit = {"options": {"message.max.bytes": str(self.limit)}} if self.limit else {}
        brokers = getattr(self, "brokers", f"127.0.0.1:{self.port}")
        return {"type": "kafka", "brokers": brokers, "topic": name, **limit, **more}

    def down(self):
        """The brokers go away; they keep what they have."""
        self.tell("down")

    def up(self):
        self.tell("up")

    def prepare(self, name):
        self.tell(f"topic {name}")

    def spoil(self, name):
        self.tell(f"refuse {name}")
        return name

    nowhere = spoil

    def received(self, name):
        lines = subprocess.run(
            ["kcat", "-C", "-b", self.brokers, "-t", name, "-e", "-q", "-J", "-o", "beginning"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout.splitlines()
        out = []
        for line in lines:
            record = json.loads(line)
            pairs = record.get("headers", [])
            headers = dict(zip(pairs[::2], pairs[1::2]))
            out.append(
                {
                    "id": headers.pop("outlog-event-id"),
                    "payload": record["payload"],
                    "content_type": headers.pop("content-type"),
                    "headers": headers,
                    "key": record["key"],
                }
            )
        return out


def start_all(stack, folder):
    """One of each, for the pages of the documentation: where they are, as environment variables."""
    start = lambda kind: stack.enter_context(kind(folder / kind.name))  # noqa: E731
    return {
        "NATS_URL": start(Nats).url("nats", "tls"),
        "REDIS_URL": start(Redis).url("redis", "rediss"),
        "MQTT_URL": start(Mosquitto).url("mqtt", "mqtts"),
        "KAFKA_BROKERS": start(KafkaMock).brokers,
        "AMQP_URL": start(Rabbit).url("amqp", "amqps"),
    }
