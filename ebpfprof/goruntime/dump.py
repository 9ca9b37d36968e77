"""A dump of a target's goroutines, from three looks at them."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.frames import StackFrames
from ebpfprof.goruntime.waits_for import WaitReader
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
from ebpfprof.profile.waiting_for import NOTHING

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget

_SECOND_LOOK: Final = (0.3, 0.7)  # of the time between the first look and the last


def dump(go: GoTarget, *, apart_s: float) -> GoroutineDump:
    """Look at all goroutines at the beginning, the end, and at some time within `apart_s` seconds.

    The last look is shown. A goroutine has not moved if all find it parked at the same place and in
    the same wait: g.trackingSeq counts modulo 256 how often it stopped running, so one that moves
    all the time passes once in 65,536 times. Of system calls nothing tells whether one is the same.
    Raises TargetGone, PermissionDenied, UnreadableMemory or GoTableError.
    """
    with GoroutineScanner(go) as scanner:
        first = scanner.parked()
        looked_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        pause_s = apart_s * random.uniform(*_SECOND_LOOK)
        time.sleep(pause_s)  # what moves shall have the time to
        second = scanner.parked()
        time.sleep(apart_s - pause_s)
        last = scanner.scan()
        frames = StackFrames(go)
        frames.look_up(
            pc
            for each in last.goroutines
            for pc in (*each.pcs, each.start_pc, each.created_pc)
            if pc
        )
        waits = WaitReader(go, scanner.memory, frames).read(last)
    apart_ns = last.read_ns - looked_ns
    shown, system = [], 0
    for each in last.goroutines:
        if frames.is_system(each.start_pc):
            system += 1
            continue
        wait = (each.sequence, each.pcs[0]) if each.is_parked and each.pcs else None
        has_stood = wait is not None and first.get(each.goid) == second.get(each.goid) == wait
        stood_ns = apart_ns if has_stood else 0
        shown.append(
            DumpedGoroutine(
                each.goid,
                each.state,
                frames.of(each.pcs),
                each.is_whole,
                stood_ns,
                max(stood_ns, each.waited_ns),
                each.is_locked,
                frames.creator(each.created_pc),
                each.parent,
                each.labels or (),
                each.channels,
                waits.get(each.goid, NOTHING),
                each.is_leaked,
            )
        )
    return GoroutineDump(
        go.target.pid,
        go.target.name,
        go.binary.version.text,
        apart_ns,
        tuple(shown),
        system,
        last.moved,
        last.beyond,
        sum(each.labels is None for each in last.goroutines),
    )
