"""A process as a Go program, where a test has opened it itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.process import GoTarget, go_target, open_program
from ebpfprof.process.process import Target

T = TypeVar("T")


def inspect(
    target: Target, *, allow_unknown_go: bool = False, runtime_locks: bool = False
) -> GoTarget:
    """As OpenProcess.go(). Its file stays open."""
    program = open_program(target, allow_unknown_go=allow_unknown_go, runtime_locks=runtime_locks)
    return go_target(target, program)


def read(pid: int, reader: Callable[..., T], *asked: object) -> T:
    """What a reader of an endpoint (server.read_endpoint.Reader) returns for a process."""
    with OpenProcesses().open(pid) as process:
        return reader(process, *asked)
