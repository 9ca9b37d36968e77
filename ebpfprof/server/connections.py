"""Connections: those without an admitted request are few and short, so that others get through.

Every process on the machine may connect, also those whose requests are always refused. So a place
is for a request that was admitted. Connections without one, be they silent, half a request long or
refused, share places of their own: the oldest is closed for the next one, and each has a deadline.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from ebpfprof.server.refusals import refused

MAX_WAITING: Final = 128
"""How many connections there may be on which no admitted request is answered."""
MAX_REQUESTS: Final = 256
"""How many requests of one user are answered at the same time."""
SILENCE_S: Final = 10.0
"""How long clients may take to send a request, and to read the end of an answer, in seconds."""

_CONNECTION = "ebpfprof.connection"


class Waiting:
    """The connections without an admitted request, oldest first."""

    def __init__(self) -> None:
        self._connections: dict[Connection, None] = {}

    def add(self, connection: Connection) -> None:
        """Add one; the oldest one is aborted if there are too many."""
        self._connections[connection] = None
        if len(self._connections) > MAX_WAITING:
            oldest = next(iter(self._connections))
            self.discard(oldest)
            oldest.abort()

    def discard(self, connection: Connection) -> None:
        """Remove one, if it is there."""
        self._connections.pop(connection, None)


class Connection(H11Protocol):
    """The connection of a client, from when it is accepted until it is closed."""

    def __init__(self, waiting: Waiting, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - of uvicorn
        """It is in `waiting` while it has no admitted request; all else is uvicorn's."""
        super().__init__(*arguments, **named)
        self.app_state = {**self.app_state, _CONNECTION: self}  # each request has a copy of it
        self._waiting = waiting
        self._admitted = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # asyncio's type is wider
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Free its place."""
        self._wait_no_more()
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close it at once, without sending what is still to be sent."""
        self.transport.abort()

    @asynccontextmanager
    async def admitted(self) -> AsyncIterator[None]:
        """It has a request's place while the block runs, and until the answer is nearly read."""
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
        # The client may read what was sent for as long again.
        self.transport.close()
        self._deadline = self.loop.call_later(SILENCE_S, self.abort)


class Admitted:
    """Middleware (ASGI) behind Access: gives requests a place, if their user has one left."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._running: Counter[int | None] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer that there are too many."""
        state = scope.get("state", {})
        user = state.get("uid")
        connection: Connection | None = state.get(_CONNECTION)
        if self._running[user] >= MAX_REQUESTS:
            sentence = f"{MAX_REQUESTS} requests are being answered: try again when some are done."
            await refused(scope, 503, sentence)(scope, receive, send)
            return
        self._running[user] += 1
        try:
            async with connection.admitted() if connection else nullcontext():
                await self._app(scope, receive, send)
        finally:
            self._running[user] -= 1
