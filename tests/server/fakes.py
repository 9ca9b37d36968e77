"""Requests to the application without a network, over a live session without a kernel."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from starlette.types import ASGIApp, Message

from ebpfprof.continuous.manager import Manager
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.process.source_files import SourceFiles
from ebpfprof.server.access import Policy
from ebpfprof.server.app import application
from tests.continuous.fakes import ALL_KINDS, PID, FakeFollower, FakeLive, FakeTarget, go_process


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:  # noqa: ANN401 - JSON
        return json.loads(self.body)


class Client:
    """Sends requests to an application as a connection on loopback would."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def ask(
        self,
        url: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        body: bytes | None = b"",
        hang_up: asyncio.Event | None = None,
        peer: tuple[str, int] | None = ("127.0.0.1", 1),
    ) -> Answer:
        """The answer. `hang_up` is set when the client goes.

        A `body` of None never comes.
        """
        path, _, query = url.partition("?")
        given = {"host": "localhost:6060", **(headers or {})}
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": peer,
            "server": ("127.0.0.1", 6060),
        }
        sent: list[Message] = []
        requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        requests = requests if body is not None else []

        async def receive() -> Message:
            if requests:
                return requests.pop()
            await (hang_up or asyncio.Event()).wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, send)
        start = next(each for each in sent if each["type"] == "http.response.start")
        found = {name.decode().lower(): value.decode() for name, value in start["headers"]}
        content = b"".join(each.get("body", b"") for each in sent)
        return Answer(start["status"], found, content)


@dataclass
class Service:
    """An application over the fake, with the processes that it serves."""

    live: FakeLive
    manager: Manager
    follower: FakeFollower
    client: Client

    @classmethod
    async def of(
        cls,
        *targets: FakeTarget,
        sources: SourceFiles | None = None,
        lock_labels: bool = False,
        **options: Any,  # noqa: ANN401 - the manager's
    ) -> Self:
        """Serves `targets`, with lines of `sources`; `options` are the manager's."""
        live = FakeLive({target.pid: target for target in targets})
        manager = Manager(live, kinds=ALL_KINDS, **options)
        follower = FakeFollower(manager, *(go_process(each.pid) for each in targets))
        for each in targets:
            manager.add_opened(each)
        await follower.survey()
        app = application(
            *(manager, follower, Policy(is_unix=True), OpenProcesses()),
            sources=sources,
            lock_labels=lock_labels,
        )
        return cls(live, manager, follower, Client(app))


async def recorded(*steps: int, has_lengths: bool = False) -> tuple[Service, FakeTarget]:
    """A process that was recorded for one window for each of the steps."""
    target = FakeTarget(PID, has_lengths=has_lengths)
    service = await Service.of(target)
    (process,) = service.manager.processes
    async with service.manager.leases.recording(process):
        for step in steps[:-1]:
            target.work(step)
            await service.manager.readings.end_window(process)
        target.work(steps[-1])
    return service, target
