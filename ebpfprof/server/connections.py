"""Connections: those on which nothing is answered hold no place for long, and keep nobody else out.

Anybody on the machine may connect, also those who are refused whatever they ask. So a place is for
a request that was admitted. Connections without one, be they silent, half a request long or
refused, share places of their own: the oldest makes room for the next one, and each has a deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ebpfprof.server.access import refused

MAX_WAITING: Final = 128
"""How many connections there may be on which no admitted request is answered."""
MAX_REQUESTS: Final = 256
"""How many requests of one user are answered at the same time."""
SILENCE_S: Final = 10.0
"""How long clients may take to say what they want, and to read the last of what they are told."""

_CONNECTION = "ebpfprof.connection"


class Waiting:
    """The connections on which no admitted request is answered, those that came first in front."""

    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Take one more; the oldest one is hung up on if there are too many."""
        self._connections[connection] = None
        if len(self._connections) > MAX_WAITING:
            oldest = next(iter(self._connections))
            self.discard(oldest)
            oldest.abort()

    def discard(self, connection: Connection) -> None:
        """Leave one out, if it is there."""
        self._connections.pop(connection, None)


class Connection(H11Protocol):
    """One client's, from when it is accepted until it is closed."""

    def __init__(self, waiting: Waiting, *arguments: Any, **named: Any) -> None:  # noqa: ANN401
        """Count it in `waiting` while that is so; all else is uvicorn's."""
        super().__init__(*arguments, **named)
        self.app_state = {**self.app_state, _CONNECTION: self}  # of which each request has a copy
        self._waiting = waiting
        self._admitted = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give its place back."""
        self._wait_no_more()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Hang up, whatever it was about to be told."""
        self.transport.abort()

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """While the block runs, and until the answer is nearly read, it has a request's place."""
        self._admitted += 1
        self._wait_no_more()
        try:
            yield
            await self.flow.drain()
        finally:
            self._admitted -= 1
            if self._admitted == 0 and self in self.connections:
                self._wait()

    def _wait(self) -> None:
        self._waiting.add(self)
        self._deadline = self.loop.call_later(SILENCE_S, self._hang_up)

    def _wait_no_more(self) -> None:
        self._waiting.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def _hang_up(self) -> None:
        # What is written still may be read for as long again.
        self.transport.close()
        self._deadline = self.loop.call_later(SILENCE_S, self.abort)


class Admitted:
    """Middleware (ASGI) behind Access: what comes here gets a place, if its user has one left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running: Counter[int | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or say that there are too many."""
        state = scope.get("state", {})
        user = state.get("uid")
        connection: Connection | None = state.get(_CONNECTION)
        if self._running[user] >= MAX_REQUESTS:
            sentence = f"{MAX_REQUESTS} requests are being answered: ask again when some are done."
            await refused(scope, 503, sentence)(scope, receive, send)
            return
        self._running[user] += 1
        try:
            async with connection.admitted() if connection else nullcontext():
                await self._app(scope, receive, send)
        finally:
            self._running[user] -= 1
