"""One run of the server over a fake, with real connections."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from time import sleep

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from ebpfprof.discovery.processes import ProcessTable
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.server import connections, service
from ebpfprof.server.access import Policy
from ebpfprof.server.connections import Admitted
from ebpfprof.server.service import Service
from tests.continuous.fakes import ALL_KINDS, PID, FakeLive, FakeTarget
from tests.server.serving import DEADLINE_S, ask

WHOLE = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n"


@contextmanager
def served(target: FakeTarget) -> Iterator[str]:
    """Serve a target while the block runs; the address, HOST:PORT."""
    ready, over = threading.Event(), threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener, ProcessTable() as table:
        thread = threading.Thread(
            target=service.run,
            args=(
                Service(ALL_KINDS),
                FakeLive({PID: target}),
                [target],
                Policy(is_unix=True),
                listener,
                table,
                OpenProcesses(),
            ),
            kwargs={"on_ready": lambda _: ready.set(), "should_end": over.is_set},
        )
        thread.start()
        try:
            assert ready.wait(DEADLINE_S)
            host, port = listener.getsockname()
            yield f"{host}:{port}"
        finally:
            over.set()
            thread.join(DEADLINE_S)
        assert not thread.is_alive()


def connected(address: str, said: bytes = b"") -> socket.socket:
    """A connection on which something was said."""
    host, port = address.split(":")
    made = socket.create_connection((host, int(port)), DEADLINE_S)
    made.sendall(said)
    return made


def all_said(connection: socket.socket) -> bytes:
    """All bytes until the connection is closed."""
    found = b""
    while more := connection.recv(1 << 16):
        found += more
    return found


def test_silent_connections_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or they could keep all other clients out."""
    monkeypatch.setattr(connections, "SILENCE_S", 0.3)
    target = FakeTarget(PID)
    with served(target) as address:
        for output in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with closing(connected(address, output)) as silent:
                assert silent.recv(1) == b""
        # A client that waits for an answer is not silent.
        assert ask(address, "/debug/pprof/block?seconds=1").status == 200
    assert target.users == 0


def test_a_second_request_must_come_in_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 0.3)
    with served(FakeTarget(PID)) as address:
        for more in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with closing(connected(address, WHOLE)) as slow:
                assert slow.recv(1 << 16).startswith(b"HTTP/1.1 404 ")
                slow.sendall(more)
                all_said(slow)


def test_silent_connections_keep_no_client_out() -> None:
    """Long before their time is over."""
    with served(FakeTarget(PID)) as address, ExitStack() as stack:
        for _ in range(150):
            for output in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
                stack.enter_context(closing(connected(address, output)))
        assert ask(address, "/debug/pprof/").status == 200


def test_a_long_answer_may_be_read_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SILENCE_S", 0.01)
    name = "x" * (16 << 20)  # more than the kernel keeps for both ends
    request = b"GET /debug/pprof/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with (
        served(FakeTarget(PID, name=name)) as address,
        closing(connected(address, request)) as slow,
    ):
        assert select.select([slow], [], [], DEADLINE_S)[0]
        sleep(0.2)  # long enough to be hung up on, were it silent
        assert len(all_said(slow)) > len(name)


def test_places_are_counted_by_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_REQUESTS", 2)

    async def work() -> None:
        over = asyncio.Event()
        statuses: list[int] = []

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await over.wait()
            await PlainTextResponse("answered")(scope, receive, send)

        async def send(message: Message) -> None:
            statuses.extend([message["status"]] if "status" in message else [])

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        app = Admitted(answer)

        def asked(uid: int) -> asyncio.Task[None]:
            scope = {"type": "http", "path": "/", "headers": [], "state": {"uid": uid}}
            return asyncio.ensure_future(app(scope, receive, send))

        of_user = [asked(1000) for _ in range(3)]
        await of_user[2]
        assert statuses == [503]
        of_root = asked(0)
        over.set()
        await asyncio.gather(*of_user, of_root)
        await asked(1000)
        assert statuses == [503, 200, 200, 200, 200]

    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def test_the_end_leaves_probes_to_the_live_session() -> None:
    """To close it detaches those of all processes together; nobody can ask for more windows."""
    target = FakeTarget(PID)
    with served(target) as address:
        assert ask(address, f"/api/targets/{PID}/timeline").status == 200
        while not target.users:
            assert ask(address, f"/api/targets/{PID}/timeline").status == 200
    assert target.users == 1
