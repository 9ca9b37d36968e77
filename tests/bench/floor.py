"""The floor: BPF programs that do nothing, at the places that our block profile probes.

What any exact profile with the same events costs at least: the traps, and entering a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel import syscalls, uprobe_links, uprobes
from ebpfprof.process.process import Target as Process
from tests.go_target import inspect


def places(go: GoTarget) -> tuple[int, ...]:
    """The probed addresses of the block profile, as linked."""
    settled = (go.sites.semaphores.settled_pc,) if go.sites.semaphores else ()
    return (go.sites.wake_pc, *settled, *(park.start_pc for park in go.sites.parks))


@contextmanager
def attached(pid: int) -> Iterator[None]:
    """Such probes in process `pid`, of the kind that ours are of on this kernel."""
    uses_links = uprobe_links.is_offered()
    with ExitStack() as held:
        target = held.enter_context(Process(pid))
        go = inspect(target)
        held.callback(go.binary.elf.close)
        program = syscalls.load_noop("kprobe", uprobes.attach_type(uses_links=uses_links))
        held.callback(os.close, program)
        points = [
            uprobes.ProbePoint(go.file_offset(pc), pc + go.load_bias, program) for pc in places(go)
        ]
        path = f"/proc/self/fd/{go.target.exe_fd}"
        for fd in uprobes.open_probes(path, pid, points, uses_links=uses_links):
            held.callback(os.close, fd)
        yield
