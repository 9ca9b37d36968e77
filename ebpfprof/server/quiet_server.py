"""uvicorn as we use it: no signal handlers, no log, connections with places and deadlines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import uvicorn
from starlette.types import ASGIApp

from ebpfprof.server.connections import Connection, Waiting
from ebpfprof.server.listener import BACKLOG

_LAST_ANSWERS_S: Final = 10  # how long clients may take, at the end, to read their answers


class QuietServer(uvicorn.Server):
    """Serves an application (ASGI) on sockets that listen."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=partial(Connection, Waiting()),  # type: ignore[arg-type]  # it calls it
                loop="asyncio",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                # The kernel says which user a client is, not a header.
                proxy_headers=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_graceful_shutdown=_LAST_ANSWERS_S,
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the command."""
        yield
