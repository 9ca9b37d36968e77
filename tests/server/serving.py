"""Run `ebpfprof serve` as a user would, ask it, end it; and the program it is compared with."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import monotonic, sleep, time
from typing import Self

from ebpfprof.export import pprof
from ebpfprof.profile.model import Kind, Profile
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.profilerules import alloy, violations
from tests.targets_run import Target

DEADLINE_S = 60
# What is compared with Go must be exact; tests/kernel/test_max_overhead.py has the rest.
COMMAND = (sys.executable, "-m", "ebpfprof", "serve", "--max-overhead", "0")


@dataclass(frozen=True)
class Answer:
    """What a server of either kind said. Names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def profile(self, kind: Kind) -> Profile:
        """The profile, which must be one that all known readers take. Raises AssertionError."""
        assert self.status == 200, self.body
        assert alloy(self.body, content_type=self.headers["content-type"]) == []
        name = {"cpu": "process_cpu"}.get(kind, kind)
        assert violations(self.body, name=name, now_s=time()) == []
        return pprof.decode(self.body, kind=kind)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=DEADLINE_S)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(DEADLINE_S)
        self.sock.connect(self._path)


def ask(
    address: str | Path,
    path: str,
    *,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """Ask a server at HOST:PORT or at the path of a unix socket."""
    connection = (
        UnixConnection(address)
        if isinstance(address, Path)
        else http.client.HTTPConnection(address, timeout=DEADLINE_S)
    )
    try:
        connection.request(method, path, body=body, headers=dict(headers or {}))
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


class Server:
    """A running `ebpfprof serve`. A context manager: no process outlives the block."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        listen: str = "127.0.0.1:0",
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [*command, "--listen", listen, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            env={**os.environ, **(env or {})},
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def said(self) -> str:
        """What it has written to stderr so far."""
        return os.pread(self._stderr.fileno(), 1 << 20, 0).decode()

    @cached_property
    def ready(self) -> str:
        """The line that says that it serves, once it is there."""
        return self.await_line("serving ")

    def await_line(self, prefix: str) -> str:
        """Wait for a line on stderr; fails if the command ends before."""
        until = monotonic() + DEADLINE_S
        while True:
            over = self._process.poll() is not None
            for line in self.said.splitlines():
                if line.startswith(prefix):
                    return line
            assert not over, f"it ended, status {self._process.returncode}:\n{self.said}"
            assert monotonic() < until, self.said
            sleep(0.01)

    @property
    def address(self) -> str:
        """HOST:PORT where it listens."""
        match = re.search(r"http://([^/]+)/", self.ready)
        assert match is not None, self.ready
        return match[1]

    def get(self, path: str, **options: str) -> Answer:
        return ask(self.address, path, method=options.get("method", "GET"))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def finish(self) -> int:
        """The exit status, once it has ended."""
        return self._process.wait(DEADLINE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._stderr.close()


@contextmanager
def httppprof(minor: str) -> Iterator[tuple[Target, str]]:
    """The program with a net/http/pprof of its own, and where that listens."""
    with Target.start(program("httppprof", minor)) as target:
        yield target, target.expect("address ").split()[1]


def await_probes(pid: int, expected: bool) -> None:
    """Wait until there are probes in a process, or none any more."""
    until = monotonic() + DEADLINE_S
    while has_probes(pid) != expected:
        assert monotonic() < until, f"probes in process {pid}: {not expected}"
        sleep(0.01)
