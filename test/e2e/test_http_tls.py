"""`outlog serve` with a certificate of its own CA: which clients are served, which are refused, and how it ends."""
import contextlib
import json
import os
import socket
import ssl
import subprocess
import threading

import pytest

from lib.outbox import wait_for


def openssl(*args, cwd):
    subprocess.run(["openssl", *args], cwd=cwd, check=True, capture_output=True)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    """ca.pem, another CA's other.pem, and cert.pem with key.pem for 127.0.0.1 and localhost."""
    folder = tmp_path_factory.mktemp("tls")
    for name in ("ca", "other"):
        openssl(
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
            "-days",
            "2",
            "-subj",
            f"/CN=test {name}",
            "-keyout",
            f"{name}.key",
            "-out",
            f"{name}.pem",
            cwd=folder,
        )
    openssl(
        "req",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-keyout",
        "key.pem",
        "-out",
        "cert.csr",
        cwd=folder,
    )
    (folder / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    openssl(
        "x509",
        "-req",
        "-in",
        "cert.csr",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-days",
        "2",
        "-extfile",
        "names",
        "-out",
        "cert.pem",
        cwd=folder,
    )
    return folder


@pytest.fixture
def server(sqlite_store, serve, certificates):
    return serve("--no-relay", "--tls-cert", certificates / "cert.pem", "--tls-key", certificates / "key.pem")


def trusting(certificates, ca="ca.pem"):
    return ssl.create_default_context(cafile=str(certificates / ca))


def dial(server, context, name="localhost", timeout=20):
    link = socket.create_connection(("127.0.0.1", server.port), timeout)
    try:
        return context.wrap_socket(link, server_hostname=name)
    except BaseException:
        link.close()
        raise


def ask(link, method="GET", path="/healthz", body=b""):
    link.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    data = b""
    while b"\r\n\r\n" not in data:
        data += link.recv(65536)
    head, _, rest = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    while len(rest) < length:
        rest += link.recv(65536)
    return int(head.split()[1]), rest


def test_tls_serves_clients_that_trust_its_ca(server, certificates):
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = trusting(certificates)
        context.minimum_version = context.maximum_version = version
        for name in ("localhost", "127.0.0.1"):
            with dial(server, context, name) as link:
                assert ask(link)[0] == 200 and ask(link)[0] == 200, "kept alive"
    event = {"aggregate_type": "t", "aggregate_id": "1", "event_type": "t", "payload": {"text": "x" * 200_000}}
    with dial(server, trusting(certificates)) as link:  # larger than a record, both ways
        assert ask(link, "POST", "/v1/events", json.dumps({"org_id": "acme", "events": [event]}).encode())[0] == 201
        status, body = ask(link, path="/v1/events")
        assert status == 200 and json.loads(body)["events"][0]["payload"] == event["payload"]


def test_a_client_rejects_an_untrusted_certificate_and_others_continue(server, certificates):
    with pytest.raises(ssl.SSLCertVerificationError):
        dial(server, trusting(certificates, "other.pem"))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch|not valid for"):
        dial(server, trusting(certificates), "outlog.example")
    with dial(server, trusting(certificates)) as link:
        assert ask(link)[0] == 200


def test_older_tls_is_refused(server, certificates):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(str(certificates / "ca.pem"))
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        dial(server, context)


def test_plain_http_on_a_tls_port_is_closed_and_disturbs_nobody(server, certificates):
    """One thread serves all of them: what OpenSSL says of one connection is not another's."""
    with dial(server, trusting(certificates)) as steady:
        assert ask(steady)[0] == 200
        for noise in (
            b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
            bytes(range(256)),
            b"\x16\x03\x01\x00\x02\x01\x00",
        ):
            answer = server.raw(noise, timeout=10)
            assert b"HTTP/1.1 200" not in answer
            assert ask(steady)[0] == 200
        with dial(server, trusting(certificates)) as fresh:
            assert ask(fresh)[0] == 200


def test_garbage_behind_unread_answers_is_discarded(server, certificates):
    """The connection ends when the answers are read, or after a timeout; input that arrives until then is discarded."""

    def resident():
        with open(f"/proc/{server.process.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    with dial(server, trusting(certificates)) as link:
        link.sendall(b"GET /app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100)
        wait_for(lambda: ask_once(server, certificates), "the others")
        before = resident()
        with socket.socket(fileno=os.dup(link.fileno())) as raw:
            raw.settimeout(20)
            with contextlib.suppress(OSError):
                for _ in range(200):
                    raw.sendall(b"noise!!!" * (1 << 17))
        assert resident() - before < 50e6, "of 200 MB"
    assert ask_once(server, certificates)


def ask_once(server, certificates):
    with dial(server, trusting(certificates)) as link:
        return ask(link)[0] == 200


def test_streams_over_tls_get_what_is_appended(server, certificates):
    seen = []

    def follow():
        with dial(server, trusting(certificates)) as link:
            link.sendall(b"GET /v1/events/stream?after=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            data = b""
            while data.count(b"\ndata: ") < 50:
                data += link.recv(65536)
            seen.extend(int(line[4:]) for line in data.split(b"\n") if line.startswith(b"id: "))

    thread = threading.Thread(target=follow)
    thread.start()
    body = json.dumps(
        {
            "org_id": "a",
            "events": [{"aggregate_type": "t", "aggregate_id": "1", "event_type": "t", "payload": {"t": "y" * 2000}}]
            * 10,
        }
    ).encode()
    with dial(server, trusting(certificates)) as link:
        for _ in range(5):
            assert ask(link, "POST", "/v1/events", body)[0] == 201
    wait_for(lambda: not thread.is_alive(), "the follower")
    assert seen == list(range(1, 51))


def test_a_certificate_that_does_not_match_its_key_is_reported(sqlite_store, outlog, certificates):
    done = outlog.run(
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--dev",
        "--tls-cert",
        certificates / "cert.pem",
        "--tls-key",
        certificates / "ca.key",
        check=False,
    )
    assert done.returncode == 1 and "cert.pem" in done.stderr
    done = outlog.run("serve", "--listen", "127.0.0.1:0", "--dev", "--tls-cert", certificates / "cert.pem", check=False)
    assert done.returncode == 1 and "--tls-key" in done.stderr


@pytest.mark.parametrize("port", ["65536", "70000", "99999999999999", "x", "-1", ""])
def test_a_port_that_does_not_exist_is_refused(store, outlog, port):
    """The resolver would listen on another one: 70000 is 4464 to it."""
    done = outlog.run("serve", "--dev", "--no-relay", "--listen", f"127.0.0.1:{port}", check=False)
    assert done.returncode == 1 and done.stderr.endswith(" [invalid_field]\n"), done


def test_a_daemon_that_cannot_listen_delivers_nothing(store, outlog, outbox, tmp_path):
    """Somebody else has the port: what waits is not touched."""
    outbox.destination("d", type="null")
    ids = [outbox.put("d", {"n": n}) for n in range(3)]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        for _ in range(3):
            done = outlog.run("serve", "--dev", "--listen", f"127.0.0.1:{taken.getsockname()[1]}", check=False)
            assert done.returncode == 1 and "cannot listen" in done.stderr
    assert [outbox.state(id)["state"] for id in ids] == ["PENDING"] * 3
