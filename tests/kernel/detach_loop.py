"""Put probes that do nothing into a Go program, and detach them, in a process that may be killed.

    python -m tests.kernel.detach_loop PID

For each line that it reads, one of WAYS, it starts a process that puts probes where a recording
has them and prints `in PID ADDRESS...`: its pid, and where they are. After one more line that
process detaches them in that way, and waits to be killed. `gone` is printed once it is. For the
line ATTACH the process puts the probes in only after that one more line.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Final

from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel import syscalls, uprobe_links, uprobes
from ebpfprof.kernel.uprobe_helper import Uprobe, UprobeHelper
from ebpfprof.process.process import Target
from tests.go_target import inspect

WAYS: Final[dict[str, Callable[[UprobeHelper], None]]] = {
    "a recording's end": lambda helper: helper.detach(),
    "a window's close": lambda helper: helper.detach([0], for_a_while=True),
    "a target's removal": lambda helper: helper.detach([0]),
    "the profiler's end": lambda helper: helper.close(),
}
ATTACH: Final = "attach"


def main(pid: int) -> None:
    with Target(pid) as target:
        go = inspect(target)
        for way in sys.stdin:
            child = os.fork()
            if not child:
                _hold(go, WAYS.get(way.strip()))
            os.waitpid(child, 0)
            print("gone", flush=True)


def _hold(go: GoTarget, detach: Callable[[UprobeHelper], None] | None) -> None:
    uses_links = uprobe_links.is_offered()
    helper = UprobeHelper(uses_links=uses_links)
    probes = _probes(go)
    functions = {probe.function for probe in probes}
    attach_type = uprobes.attach_type(uses_links=uses_links)
    programs = {name: syscalls.load_noop("kprobe", attach_type) for name in functions}
    anchor_pc = go.sites.anchor_pc
    anchor = go.file_offset(anchor_pc), anchor_pc + go.load_bias
    attach = partial(helper.attach, 0, go.target.exe_fd, go.target.pid, probes, programs)
    if detach:
        attach(anchor=anchor, uses_links=uses_links)
    print("in", os.getpid(), *(probe.address for probe in probes), flush=True)
    sys.stdin.readline()
    if detach:
        detach(helper)
    else:
        attach(anchor=anchor, uses_links=uses_links)
    sys.stdin.read()  # until it is killed, or what started us is gone
    os._exit(0)


def _probes(go: GoTarget) -> list[Uprobe]:
    """Where a recording of blocks and locks has them: three programs."""
    assert go.sites.semaphores
    points = [("on_wait", park.start_pc) for park in go.sites.parks]
    points += [("on_wake", go.sites.wake_pc), ("on_settled", go.sites.semaphores.settled_pc)]
    return [
        Uprobe(function, go.file_offset(pc), pc + go.load_bias, cookie=0) for function, pc in points
    ]


if __name__ == "__main__":
    main(int(sys.argv[1]))
