"""Which requests are answered: those with the token, or on loopback those of certain users.

Without a token, the server listens on loopback or on a unix socket only. A unix socket has the
permissions of its file. On loopback every process on the machine can connect: there the kernel
reports which user owns the connecting socket, and only root and the user who started the server are
answered. There a request must also name this machine, since a hostile page could send it.
"""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ebpfprof.server.refusals import own_path, refused, wants_page

COOKIE = "ebpfprof-token"
_NAME_AND_PORT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]*)?")
# What /proc/net/tcp and tcp6 show of a socket (net/ipv4/tcp_ipv4.c, get_tcp4_sock).
_SOCKET = re.compile(
    rb" *\d+: (?P<local>[0-9A-F]+:[0-9A-F]{4}) (?P<remote>[0-9A-F]+:[0-9A-F]{4}) "
    rb"[0-9A-F]{2} \S+ \S+ \S+ +(?P<uid>\d+) +\d+ (?P<inode>\d+) "
)
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Policy:
    """Requests must have the `token`, if there is one; else, on loopback, come from one of `uids`.

    `is_unix`: the permissions of the socket's file have decided already.
    """

    token: str | None = None
    uids: Collection[int] = (0,)
    is_loopback: bool = True
    is_unix: bool = False


class Access:
    """Middleware (ASGI) that passes requests on as the policy says, and refuses all others.

    On loopback without a token, it puts the user's `uid` into the request's state.
    """

    def __init__(self, app: ASGIApp, policy: Policy) -> None:
        self._app = app
        self._policy = policy
        # Not one of the threads that make answers: these may all be busy for a while.
        self._uid_reader = ThreadPoolExecutor(1, "ebpfprof-access")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with a refusal, or pass the request on."""
        if scope["type"] != "http":
            return
        await (await self._refusal(scope) or self._app)(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Response | None:
        policy, headers = self._policy, Headers(scope=scope)
        if policy.is_loopback and not policy.is_unix and not is_own_name(headers.get("host", "")):
            return refused(
                scope,
                403,
                "The request names a host other than this server, as requests of a hostile page "
                "do: use localhost or the server's address.",
            )
        if headers.get("sec-fetch-site") == "cross-site" and (
            headers.get("sec-fetch-mode") != "navigate"
        ):
            return refused(scope, 403, "Requests from pages of other sites are refused.")
        if policy.token is not None:
            return self._token_refusal(scope, headers, policy.token)
        if policy.is_unix:
            return None
        loop = asyncio.get_running_loop()
        uid = await loop.run_in_executor(
            self._uid_reader, peer_uid, scope.get("client"), scope.get("server")
        )
        if uid in policy.uids:
            scope.setdefault("state", {})["uid"] = uid
            return None
        return refused(
            scope,
            403,
            "This server answers only root and the user who started it. Others need a token: "
            "start it with --token-file FILE.",
        )

    def _token_refusal(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        in_query = [value for name, value in query if name == "token"]
        if in_query and _same(in_query[0], token):
            # A browser removes it from the address, which is shared and remembered.
            is_shown = scope["path"] == "/" or wants_page(scope)
            return _remembered(scope, token, query) if is_shown else None
        cookie = cookie_parser(headers.get("cookie", "")).get(COOKIE)
        # A wrong one in the query is refused, also if the cookie has the right one.
        given = [_bearer(headers)] if in_query else [_bearer(headers), cookie]
        if any(value is not None and _same(value, token) for value in given):
            return None
        return refused(
            scope,
            401,
            "This server needs a token, or the one that was sent is wrong: add ?token=TOKEN to the "
            "address, or send the header Authorization: Bearer TOKEN.",
            {"WWW-Authenticate": "Bearer"},
        )


def is_own_name(host: str) -> bool:
    """Whether a Host header names this machine without the DNS: localhost, or an address.

    A hostile page whose name resolves to 127.0.0.1 (DNS rebinding) sends its own name.
    """
    match = _NAME_AND_PORT.fullmatch(host)
    if match is None:
        return False
    name = match[1].strip("[]").lower().rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def peer_uid(client: tuple[str, int] | None, server: tuple[str, int | None] | None) -> int | None:
    """The uid that owns the client's socket of a connection on loopback; None if it is unknown.

    Both ends are (address, port). Read from /proc/net/tcp, where each end has a line of its own.
    """
    if not client or not server or server[1] is None:
        return None
    try:
        version = ipaddress.ip_address(client[0]).version
        local, remote = _endpoint(client[0], client[1]), _endpoint(server[0], server[1])
    except ValueError:
        return None
    path = "/proc/net/tcp" if version == 4 else "/proc/net/tcp6"
    # While it is read, sockets come and go, and the kernel may skip one.
    for _ in range(_TRIES):
        uid = _uid_of(path, local, remote)
        if uid is not None:
            return uid
    return None


def _uid_of(path: str, local: bytes, remote: bytes) -> int | None:
    with open(path, "rb") as lines:
        for line in lines:
            if local not in line:
                continue
            match = _SOCKET.match(line)
            # The kernel shows a socket that no process has open as root's, without an inode.
            if (
                match
                and (match["local"], match["remote"]) == (local, remote)
                and match["inode"] != b"0"
            ):
                return int(match["uid"])
    return None


def _endpoint(address: str, port: int) -> bytes:
    """An end as the kernel writes it: 32-bit words in the machine's byte order, in hex."""
    packed = ipaddress.ip_address(address).packed
    words = (packed[at : at + 4][::-1] for at in range(0, len(packed), 4))
    return b"".join(words).hex().upper().encode() + b":%04X" % port


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _bearer(headers: Headers) -> str | None:
    scheme, _, value = headers.get("authorization", "").partition(" ")
    return value.strip() if scheme.lower() == "bearer" else None


def _remembered(scope: Scope, token: str, query: list[tuple[str, str]]) -> Response:
    """A redirect to the same path, with the token in a cookie and no longer in the address."""
    rest = urlencode([(name, value) for name, value in query if name != "token"])
    response = RedirectResponse(own_path(scope) + ("?" + rest if rest else ""), 303)
    response.headers["Cache-Control"] = "no-store"
    response.set_cookie(COOKIE, token, path="/", httponly=True, samesite="strict")
    return response
