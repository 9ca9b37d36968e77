"""One run of the server over a fake, with real connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from ebpfprof.server import running
from ebpfprof.server.access import Policy
from ebpfprof.server.running import Service
from tests.server.fakes import ALL_KINDS, PID, FakeLive, FakeTarget
from tests.server.serving import DEADLINE_S, ask


@contextmanager
def served(target: FakeTarget) -> Iterator[str]:
    """Where it is served, HOST:PORT."""
    ready, over = threading.Event(), threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        thread = threading.Thread(
            target=running.run,
            args=(
                FakeLive({PID: target}),
                [target],
                Service(ALL_KINDS),
                Policy(is_unix=True),
                listener,
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


def test_who_asks_for_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else those who only hold connections could keep everybody else out."""
    monkeypatch.setattr(running, "_SILENCE_S", 0.05)
    target = FakeTarget(PID)
    with served(target) as address:
        host, port = address.split(":")
        for said in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with closing(socket.create_connection((host, int(port)), DEADLINE_S)) as silent:
                silent.sendall(said)
                assert silent.recv(1) == b""
        # Whoever waits for an answer is waited for.
        assert ask(address, "/debug/pprof/block?seconds=1").status == 200
    assert target.users == 0
