"""Which requests are answered: host names (DNS rebinding), tokens, users of connections."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Mapping
from contextlib import closing

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from ebpfprof.server.access import COOKIE, Access, Policy, is_own_name, peer_uid
from ebpfprof.server.health import Alive
from tests.kernel.users import ANYBODYS_PYTHON, NOBODY
from tests.server.fakes import Answer, Client

TOKEN = "0123456789abcdef-Secret"


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await PlainTextResponse("let in")(scope, receive, send)


def ask(
    policy: Policy,
    url: str = "/debug/pprof/block",
    headers: Mapping[str, str] | None = None,
    peer: tuple[str, int] | None = None,
) -> Answer:
    return asyncio.run(Client(Access(answer, policy)).ask(url, headers=headers, peer=peer))


WITH_TOKEN = Policy(token=TOKEN)


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:6060", "LOCALHOST.", "a.localhost:1", "127.0.0.1:6060", "[::1]:6060"],
)
def test_names_of_the_server_are_recognised(host: str) -> None:
    assert is_own_name(host)
    assert ask(WITH_TOKEN, f"/x?token={TOKEN}", {"host": host}).body == b"let in"


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        "evil.example:6060",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.1@evil.example",
        "localhost:6060:7",
        "[::1",
        "localhost:evil",
    ],
)
def test_foreign_host_names_are_refused_on_loopback(host: str) -> None:
    assert not is_own_name(host)
    refusal = ask(WITH_TOKEN, f"/x?token={TOKEN}", {"host": host})
    assert (refusal.status, refusal.headers["x-go-pprof"]) == (403, "1")
    assert b"localhost" in refusal.body


def test_beyond_loopback_the_token_decides_and_not_the_host() -> None:
    policy = Policy(token=TOKEN, is_loopback=False)
    assert ask(policy, f"/x?token={TOKEN}", {"host": "profiler.example"}).status == 200
    assert ask(policy, "/x", {"host": "profiler.example"}).status == 401


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        (f"/x?token={TOKEN}", {}),
        (f"/x?seconds=5&token={TOKEN}", {}),
        ("/x", {"authorization": f"Bearer {TOKEN}"}),
        ("/x", {"authorization": f"bearer  {TOKEN}"}),
        ("/x", {"cookie": f"other=1; {COOKIE}={TOKEN}"}),
    ],
)
def test_every_way_to_pass_the_token_is_accepted(url: str, headers: Mapping[str, str]) -> None:
    assert ask(WITH_TOKEN, url, headers).body == b"let in"


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("/x", {}),
        ("/x?token=", {}),
        ("/x?token=wrong", {}),
        (f"/x?token={TOKEN}x", {}),
        (f"/x?Token={TOKEN}", {}),
        (f"/x?token=wrong&token={TOKEN}", {}),
        ("/x?token=wrong", {"cookie": f"{COOKIE}={TOKEN}"}),
        ("/x?token=%ff%00", {}),
        ("/x", {"authorization": f"Basic {TOKEN}"}),
        ("/x", {"authorization": TOKEN}),
        ("/x", {"authorization": "Bearer"}),
        ("/x", {"cookie": f"{COOKIE}=wrong"}),
        ("/x", {"cookie": f"{COOKIE}"}),
        ("/x", {"cookie": f'"{COOKIE}={TOKEN}'}),
    ],
)
def test_a_wrong_or_missing_token_is_refused(url: str, headers: Mapping[str, str]) -> None:
    refusal = ask(WITH_TOKEN, url, headers)
    assert (refusal.status, refusal.headers["www-authenticate"]) == (401, "Bearer")
    assert refusal.headers["x-go-pprof"] == "1"
    assert b"token" in refusal.body


def test_the_page_is_refused_in_json() -> None:
    refusal = ask(WITH_TOKEN, "/api/targets")
    assert refusal.status == 401
    assert "token" in refusal.json["error"]


def test_on_the_page_the_token_moves_into_a_cookie() -> None:
    moved = ask(WITH_TOKEN, f"/?view=a%26b&token={TOKEN}")

    assert (moved.status, moved.headers["location"]) == (303, "/?view=a%26b")
    cookie = moved.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}={TOKEN};")
    assert {"httponly", "samesite=strict"} <= {part.strip().lower() for part in cookie.split(";")}
    assert ask(WITH_TOKEN, "/", {"cookie": cookie.split(";")[0]}).body == b"let in"


def test_pages_of_other_sites_start_no_recording() -> None:
    token = {"authorization": f"Bearer {TOKEN}"}
    picture = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", **token}
    followed = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", **token}
    assert ask(WITH_TOKEN, headers=picture).status == 403
    assert ask(WITH_TOKEN, headers=followed).status == 200


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_health_is_reported_without_a_token_and_readiness_is_not(method: str) -> None:
    client = Client(Alive(Access(answer, WITH_TOKEN)))
    health = asyncio.run(client.ask("/healthz", method=method))
    assert (health.status, health.body) == (200, b"ok\n")
    assert asyncio.run(client.ask("/readyz", method=method)).status == 401
    assert asyncio.run(client.ask("/healthz", method="POST")).status == 401


def test_clients_of_a_unix_socket_need_no_token() -> None:
    assert ask(Policy(is_unix=True), headers={"host": "anything"}).body == b"let in"


def test_a_client_whose_user_is_unknown_is_refused() -> None:
    refusal = ask(Policy(uids=[0]), peer=("127.0.0.1", 1))
    assert refusal.status == 403
    assert b"--token-file" in refusal.body
    assert ask(Policy(uids=[0]), peer=None).status == 403


# Connects, and says so; then waits for the end of its input.
CONNECT = """
import socket, sys
made = socket.create_connection((sys.argv[1], int(sys.argv[2])))
print(*made.getsockname()[:2], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
@pytest.mark.parametrize("uid", [0, NOBODY])
def test_the_kernel_knows_the_user_of_a_connection(address: str, uid: int) -> None:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with closing(socket.create_server((address, 0), family=family)) as server:
        own = server.getsockname()[:2]
        with subprocess.Popen(
            [*ANYBODYS_PYTHON, "-c", CONNECT, address, str(own[1])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            user=uid,
        ) as child:
            assert child.stdout is not None
            host, port = child.stdout.readline().split()
            accepted, _ = server.accept()
            with closing(accepted):
                assert peer_uid((host, int(port)), own) == uid
                # The other end is not meant, nor another connection.
                assert peer_uid(own, own) is None
                assert peer_uid((host, int(port) ^ 1), own) is None
            child.communicate()


def test_a_closed_connection_has_no_user() -> None:
    """The kernel shows such a socket as root's."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        own = server.getsockname()
        client = socket.create_connection(own)
        peer = client.getsockname()
        accepted, _ = server.accept()
        with closing(accepted):
            assert peer_uid(peer, own) == 0
            client.close()
            assert peer_uid(peer, own) is None


@pytest.mark.parametrize(
    ("client", "server"),
    [
        (None, ("127.0.0.1", 1)),
        (("127.0.0.1", 1), None),
        (("127.0.0.1", 1), ("/run/x.sock", None)),
        (("no address", 1), ("127.0.0.1", 1)),
    ],
)
def test_an_address_without_a_connection_has_no_user(
    client: tuple[str, int] | None, server: tuple[str, int | None] | None
) -> None:
    assert peer_uid(client, server) is None
