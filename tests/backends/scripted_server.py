"""An HTTP server that answers as the test says, and also as no server should.

with ScriptedServer(answer(503), HANG) as server:
    ...
    server.received
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Self

from tests.targets_run import DEADLINE_S


@dataclass(frozen=True)
class Received:
    """A request. Names of headers are in lower case; `connection` counts from 0."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: int


Step = bytes | Callable[[Received], bytes]
"""What goes over the wire after a request, to a client that then waits for more, if it is not all
of an answer; or what makes it of the request."""
DROP: Final = b""
"""Close the connection without a word."""


def answer(status: int, body: bytes = b"", **headers: str) -> bytes:
    """A whole answer; `retry_after` becomes Retry-After."""
    lines = [f"HTTP/1.1 {status} Said", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


HANG: Final = b" "  # the white space before a status line, of which there is none
HALF: Final = answer(200, b"half" * 100)[:-200]
GARBAGE: Final = b"\x16\x03\x01 no HTTP\r\n\r\n"
BROKEN: Final = (
    (HANG, "it did not respond within 0.5 s"),
    (HALF, "it did not respond within 0.5 s"),
    (DROP, "the connection broke: "),
    (GARBAGE, "the connection broke: "),
)
"""What is no answer, and what a client says that waits for half a second."""


class ScriptedServer:
    """A context manager. After its steps it answers `then` to each request."""

    def __init__(
        self,
        *steps: Step,
        then: Step = answer(200),  # noqa: B008 - bytes
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self._steps, self._then, self._tls = list(steps), then, tls
        self.received: list[Received] = []
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = int(self._listener.getsockname()[1])
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def await_requests(self, count: int) -> None:
        """Wait until that many requests came."""
        with self._news:
            assert self._news.wait_for(lambda: len(self.received) >= count, DEADLINE_S)

    def close(self) -> None:
        """Close all connections, and take no more."""
        with suppress(OSError):  # it may be closed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for connection in self._connections:
                with suppress(OSError):  # the client may have closed it
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed: the test is over
            while True:
                plain, _ = self._listener.accept()
                plain.settimeout(DEADLINE_S)
                with self._lock:
                    self._connections.append(plain)
                    number = len(self._connections) - 1
                threading.Thread(target=self._serve, args=(plain, number), daemon=True).start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        with suppress(OSError, ValueError):  # the client is gone
            connection = plain
            if self._tls:
                connection = self._tls.wrap_socket(plain, server_side=True)
                with self._lock:
                    self._connections[number] = connection
            with connection.makefile("rb") as stream:
                while request := _request(stream.readline, stream.read, number):
                    with self._news:
                        step = self._steps.pop(0) if self._steps else self._then
                    data = step(request) if callable(step) else step
                    with self._news:
                        self.received.append(request)
                        self._news.notify_all()
                    if data == DROP:
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    connection.sendall(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _request(
    line: Callable[[], bytes], read: Callable[[int], bytes], number: int
) -> Received | None:
    first = line().decode()
    if not first:
        return None
    method, path, _ = first.split(" ", 2)
    headers = {}
    while (text := line().decode().strip()) != "":
        name, _, value = text.partition(":")
        headers[name.lower()] = value.strip()
    body = read(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, number)
