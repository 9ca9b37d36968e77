"""The agent's HTTP endpoints: /metrics, /healthz and /readyz, for any client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from ebpfprof.agent.metrics import AgentMetrics
from ebpfprof.server.connections import Admitted
from ebpfprof.server.health import READY, Alive

if TYPE_CHECKING:
    from ebpfprof.agent.service import Agent

_HEADERS: Final = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}


def application(agent: Agent) -> ASGIApp:
    """The handlers. They name no process, so they need no token."""

    async def ready(_: Request) -> Response:
        """200 once the first survey is done and until the agent ends."""
        rounds = agent.rounds
        words = f"{rounds.recorded} processes recorded, {len(rounds.waiting)} waiting"
        if agent.is_ready:
            return PlainTextResponse(f"ready: {words}\n", headers=_HEADERS)
        return PlainTextResponse(f"not ready: {words}\n", 503, headers=_HEADERS)

    routes = [Route("/metrics", AgentMetrics(agent).__call__), Route(READY, ready)]
    return Alive(Admitted(Starlette(routes=routes)))
