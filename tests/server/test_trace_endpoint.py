"""/debug/pprof/trace of a real server: a file for Go's tool, and nothing left behind."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request

from ebpfprof.server.trace_endpoint import seconds_of
from tests.kernel.kernel_state import await_no_probes, has_probes
from tests.kernel.programs import program
from tests.server.serving import Server, await_probes
from tests.targets_run import Target
from tests.toolchains import toolchain

URL = "/debug/pprof/trace"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Server]]:
    with Target.start(program("traced")) as target:
        target.ask(f"trace {tmp_path_factory.mktemp('traced') / 'unused'} sleeps", "begun")
        target.ask("end", "ended")
        with Server("--pid", str(target.pid), "--profile", "goroutine") as server:
            assert server.ready
            yield target, server
        target.kill()


def test_it_is_a_trace_for_gos_tool(served: tuple[Target, Server], tmp_path: Path) -> None:
    target, server = served
    answer = server.get(f"{URL}?seconds=0.5")
    assert answer.status == 200
    assert answer.headers["content-disposition"] == 'attachment; filename="trace"'
    path = tmp_path / "trace"
    path.write_bytes(answer.body)
    text = toolchain("1.27").go("tool", "trace", "-d=parsed", path)
    assert len(re.findall(r"GoID=\d+ Running->Waiting Reason=\"sleep\"", text)) > 50
    assert not has_probes(target.pid)


def test_head_records_nothing(served: tuple[Target, Server]) -> None:
    target, server = served
    answer = server.get(f"{URL}?seconds=600", method="HEAD")
    assert (answer.status, answer.body) == (200, b"")
    assert not has_probes(target.pid)


@pytest.mark.full
def test_a_client_that_hangs_up_ends_it(served: tuple[Target, Server]) -> None:
    target, server = served
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"GET {URL}?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        await_probes(target.pid, expected=True)
    await_no_probes(target.pid)
    assert server.get("/debug/pprof/cmdline").status == 200


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("", 1),
        ("x", 1),
        ("-1", 1),
        ("0", 1),
        ("nan", 1),
        ("2.5", 2.5),
        ("inf", 3600),
        ("1e9", 3600),
    ],
)
def test_seconds_are_as_in_go(text: str, seconds: float) -> None:
    """What is no positive number is one second; what is too long is an hour."""
    request = Request({"type": "http", "query_string": f"seconds={text}".encode(), "headers": []})
    assert seconds_of(request) == seconds
