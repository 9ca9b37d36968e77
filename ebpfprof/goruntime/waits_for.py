"""What goroutines wait for beyond their stacks: files, the end of a sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.goruntime.file_waits import file_waits
from ebpfprof.goruntime.sleeps import ends_of_sleeps
from ebpfprof.process.descriptors import Descriptors
from ebpfprof.profile.waiting_for import NOTHING, WaitsFor

if TYPE_CHECKING:
    from ebpfprof.goruntime.all_goroutines import AllGoroutines
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.memory import Memory

_IO_WAIT: Final = "IO wait"
_SLEEP: Final = "sleep"


def waits_for(go: GoTarget, memory: Memory, found: AllGoroutines) -> dict[int, WaitsFor]:
    """What each goroutine waits for, by its id; those of which nothing is known are missing.

    Raises TargetGone.
    """
    layout = go.binary.layout
    sleeping = {each.address: each.words for each in found.goroutines if each.state == _SLEEP}
    ends = ends_of_sleeps(memory, layout, sleeping)
    polling = [each.address for each in found.goroutines if each.state == _IO_WAIT]
    files = file_waits(memory, layout, Descriptors(go.target.pid), polling)
    known = {}
    for each in found.goroutines:
        end_ns = ends.get(each.address)
        waits = WaitsFor(
            file_wait=files.get(each.address),
            wakes_in_ns=None if end_ns is None else end_ns - found.read_ns,
        )
        if waits != NOTHING:
            known[each.goid] = waits
    return known
