"""Opens uprobes of either kind: links of their own where the kernel has them, else perf events."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from ebpfprof.kernel import perf_events, syscalls, uprobe_links
from ebpfprof.system.first_thread import reading_pid

NO_PROGRAM: Final = -1


@dataclass(frozen=True, slots=True)
class ProbePoint:
    """Where a probe is: bytes into the executable file, and the runtime address of that.

    There the BPF program with the file descriptor `program` runs with an attach cookie. A perf
    event may have no program (NO_PROGRAM).
    """

    offset: int
    address: int
    program: int
    cookie: int = 0


def attach_type(*, uses_links: bool) -> int:
    """The attach type for which programs for uprobes must be loaded."""
    return syscalls.TRACE_UPROBE_MULTI if uses_links else 0


def open_probes(
    path: str, pid: int, points: Sequence[ProbePoint], *, uses_links: bool
) -> Iterator[int]:
    """Put probes into process `pid`, which runs the file `path`; yields file descriptors.

    They stay as long as those are open. Raises KernelUnsupported, PermissionDenied or AttachFailed.
    """
    if uses_links:
        for program in dict.fromkeys(point.program for point in points):
            own = [(point.offset, point.cookie) for point in points if point.program == program]
            yield uprobe_links.link(program, path, own, pid)
        return
    for point in points:
        event = perf_events.open_uprobe(path, point.offset, reading_pid(pid))
        yield event
        if point.program != NO_PROGRAM:
            yield perf_events.link_program(point.program, event, point.cookie)


@contextlib.contextmanager
def own_probe(path: str, offset: int, *, runs_program: bool) -> Iterator[None]:
    """A probe in this process at `offset` (bytes into the file `path`), of the kind of targets'.

    Without `runs_program` a perf event has no program; else the program does nothing. Raises
    OSError if that can't be loaded, and what open_probes() does.
    """
    uses_links = uprobe_links.is_offered()
    with contextlib.ExitStack() as held:
        program = NO_PROGRAM
        if uses_links or runs_program:
            program = syscalls.load_noop("kprobe", attach_type(uses_links=uses_links))
            held.callback(os.close, program)
        point = ProbePoint(offset, 0, program)
        for fd in open_probes(path, os.getpid(), [point], uses_links=uses_links):
            held.callback(os.close, fd)
        yield
