"""The client of backends: authentication, TLS, and answers that no server should give."""

from __future__ import annotations

import os
import ssl
import time
from base64 import b64encode
from dataclasses import replace
from email.utils import formatdate
from pathlib import Path

import pytest

from ebpfprof.agent.sinks.http_client import MAX_ANSWER, HttpClient
from ebpfprof.agent.sinks.secrets import read_secret
from ebpfprof.agent.sinks.sink import RetryLater
from tests.backends.certificates import certificate
from tests.backends.ports import free_port
from tests.backends.scripted_server import (
    BROKEN,
    ScriptedServer,
    Step,
    answer,
)
from tests.backends.windows import sink

PATH = "/in"


def client(url: str, **settings: object) -> HttpClient:
    return HttpClient(sink("otlp", url, **settings), PATH)


def test_a_connection_is_kept_and_headers_are_sent() -> None:
    with ScriptedServer(answer(200, b"yes"), answer(400, b"no", retry_after="7")) as server:
        ours = client(server.url, tenant="shop")
        first = ours.post(b"body", {"Content-Type": "text/x"})
        second = ours.post(b"", {})
        ours.close()
        assert (first.status, first.body, first.text) == (200, b"yes", "yes")
        assert (second.status, second.text, second.after_s) == (400, "no", 7.0)
        one, two = server.received
        assert (one.method, one.path, one.body) == ("POST", PATH, b"body")
        assert one.headers["x-scope-orgid"] == "shop"
        assert one.headers["content-type"] == "text/x"
        assert one.headers["user-agent"].startswith("ebpfprof/")
        assert "authorization" not in one.headers
        assert two.connection == one.connection


def test_secrets_are_read_again_and_never_reported(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("first-secret\n")

    def echo(request: object) -> bytes:
        return answer(400, str(request).encode())

    with ScriptedServer(then=echo) as server:
        bearer = client(server.url, bearer_token_file=str(secret))
        output = bearer.post(b"", {})
        secret.write_text("second-secret")
        said_then = bearer.post(b"", {})
        assert bearer._secrets == ["second-secret"]  # none is kept for ever
        basic = client(server.url, username="till", password_file=str(secret)).post(b"", {})
        secret.unlink()
        with pytest.raises(RetryLater) as caught:
            bearer.post(b"", {})
        sent = [each.headers["authorization"] for each in server.received]
    pair = b64encode(b"till:second-secret").decode()
    assert sent == ["Bearer first-secret", "Bearer second-secret", f"Basic {pair}"]
    assert str(caught.value) == f"{secret} can't be read: No such file or directory"
    texts = output.text + said_then.text + basic.text
    assert "***" in output.text
    assert not [each for each in ("first-secret", "second-secret", pair) if each in texts]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        *BROKEN,
        (b"HTTP/1.1 200 Said\r\n" + b"X: y\r\n" * 200 + b"\r\n", "the connection broke: "),
        (b"HTTP/1.1 200 Said\r\nContent-Length: x\r\n\r\n", "it did not respond within 0.5 s"),
        (b"HTTP/1.1 two Said\r\n\r\n", "the connection broke: "),
    ],
)
def test_no_answer_is_tried_again_on_another_connection(step: Step, why: str) -> None:
    with ScriptedServer(step) as server:
        ours = client(server.url, timeout=0.5 if "did not respond" in why else 30.0)
        with pytest.raises(RetryLater) as caught:
            ours.post(b"x" * 100_000, {})
        assert str(caught.value).startswith(why)
        ours.settings = replace(ours.settings, timeout=30.0)
        assert ours.post(b"", {}).status == 200
        assert [each.connection for each in server.received] == [0, 1]


def test_a_server_that_is_not_there_is_reported() -> None:
    with pytest.raises(RetryLater, match=r"^cannot connect: Connection refused$"):
        client(f"http://127.0.0.1:{free_port()}").post(b"", {})


def test_an_answer_that_never_ends_is_not_read_for_ever() -> None:
    long = answer(200, b"x" * (3 * MAX_ANSWER))[: -2 * MAX_ANSWER]
    with ScriptedServer(long, answer(200, b"ok")) as server:
        ours = client(server.url)
        assert ours.post(b"", {}).body == b"x" * MAX_ANSWER
        assert ours.post(b"", {}).body == b"ok"


def test_a_redirect_is_not_followed() -> None:
    moved = answer(307, location="http://other/x")
    with ScriptedServer(moved) as server:
        output = client(server.url).post(b"", {})
        assert (output.status, output.location) == (307, "http://other/x")
        assert len(server.received) == 1


@pytest.mark.parametrize(
    ("text", "least_s", "most_s"),
    [
        ("120", 120, 120),
        pytest.param(formatdate(time.time() + 100_000, usegmt=True), 3600, 3600, id="tomorrow"),
        pytest.param(formatdate(time.time() - 100, usegmt=True), 0, 0, id="just now"),
        ("99999999999999999999999", 3600, 3600),
        ("-5", 0, 0),
        ("soon", 0, 0),
        ("Mon, 99 Foo 2026 99:99:99 GMT", 0, 0),
    ],
)
def test_how_long_to_wait_is_understood_and_bounded(
    text: str, least_s: float, most_s: float
) -> None:
    with ScriptedServer(answer(503, retry_after=text)) as server:
        assert least_s <= client(server.url).post(b"", {}).after_s <= most_s


def test_tls_needs_the_authority_and_the_address(tmp_path: Path) -> None:
    made, key = certificate(tmp_path, "right")
    other, other_key = certificate(tmp_path, "other", "127.0.0.2")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made, key)
    ca = tmp_path / "ca.pem"
    ca.write_bytes(other.read_bytes())
    with ScriptedServer(tls=context) as server:
        ours = client(server.url, ca_file=str(ca))
        with pytest.raises(RetryLater, match=r"^TLS failed: .*certificate verify failed"):
            ours.post(b"", {})
        ca.write_bytes(made.read_bytes())  # the file is read again
        assert ours.post(b"", {}).status == 200
        with pytest.raises(RetryLater, match="certificate verify failed"):
            client(server.url).post(b"", {})  # the system's authorities don't know it
        # One that asks for a certificate, and one for another address.
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(other)
        with pytest.raises(RetryLater):
            client(server.url, ca_file=str(made)).post(b"", {})
        named = {"certificate_file": str(other), "key_file": str(other_key)}
        assert client(server.url, ca_file=str(made), **named).post(b"", {}).status == 200
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other, other_key)
    with (
        ScriptedServer(tls=context) as server,
        pytest.raises(RetryLater, match=r"IP address mismatch"),
    ):
        client(server.url, ca_file=str(other)).post(b"", {})


def test_a_folder_in_place_of_a_secret_costs_no_descriptor(tmp_path: Path) -> None:
    """Where a file is missing that a container mounts, there is an empty folder."""
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(ValueError, match=r"^can't be read: Is a directory$"):
            read_secret(str(tmp_path))
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b"a\nb", "has more than one line, or control characters"),
        (b"a\x1bb", "has more than one line, or control characters"),
        (b"s3cret\xff", "is not UTF-8"),
        (b"x" * (17 << 10), "is longer than 16 KiB"),
    ],
)
def test_a_secret_that_is_none_is_reported_without_it(
    tmp_path: Path, data: bytes, why: str
) -> None:
    path = tmp_path / "secret"
    path.write_bytes(data)
    with pytest.raises(ValueError, match=f"^{why}$") as caught:
        read_secret(str(path))
    assert caught.value.__cause__ is None


def test_garbage_that_repeats_a_secret_is_reported_without_it_and_cut(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    garbage = b"s3cret " + b"x" * 1000 + b"\r\n\r\n"
    with ScriptedServer(garbage, answer(400, b"s3cret " + b"y" * 1000)) as server:
        ours = client(server.url, bearer_token_file=str(secret))
        with pytest.raises(RetryLater) as caught:
            ours.post(b"", {})
        output = ours.post(b"", {}).text
    for text in (str(caught.value), output):
        assert "s3cret" not in text
        assert "***" in text
        assert len(text) == 300


def test_a_pipe_in_place_of_a_secret_holds_up_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="is not a regular file"):
        read_secret(str(tmp_path / "pipe"))
