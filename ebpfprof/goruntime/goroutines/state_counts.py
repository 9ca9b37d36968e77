"""How many goroutines of a target do what, by groups of states: a read of the table, no stacks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.call_sites import CallSites
from ebpfprof.goruntime.goroutines.fields import REASON_SHIFT
from ebpfprof.goruntime.goroutines.states import (
    LOCK_WORDS,
    PARKED,
    PREEMPTED,
    RUNNABLE,
    RUNNING,
    SYSCALL,
)
from ebpfprof.goruntime.goroutines.table import MAX_GOROUTINES, GoroutineTable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.runtime_layout import RuntimeLayout

GROUPS: Final = ("running", "runnable", "syscall", "lock", "channel", "network", "other")
"""The groups, in order: on a processor, waiting for one, in a system call; waiting for a lock, a
channel (select included), the network; and for anything else, such as a time."""
_OF_STATUS: Final = {
    RUNNING: "running",
    RUNNABLE: "runnable",
    PREEMPTED: "runnable",
    SYSCALL: "syscall",
}
_CHANNELS: Final = ("chan receive", "chan send", "select")
_NETWORK: Final = "IO wait"
_BYTE: Final = np.uint64(0xFF)
_REASON_SHIFT: Final = np.uint64(REASON_SHIFT)


class StateCounter:
    """Counts the goroutines of one target, any number of times. Closes the target's memory."""

    def __init__(self, go: GoTarget, *, most: int = MAX_GOROUTINES) -> None:
        """Read at most that many goroutines. Raises GoTableError if there is no list of them."""
        binary, bias = go.binary, go.load_bias
        self._table = GoroutineTable(go.target.memory, binary, bias, "start_pc", most=most)
        self._sites = CallSites(binary, bias, has_arguments=False)
        self._groups = _groups(binary.layout)

    def read(self) -> Mapping[str, int]:
        """How many there are now in each of GROUPS, without the runtime's own.

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        heads = self._table.read()
        is_there = heads.is_there
        starts, places = np.unique(heads["start_pc"][is_there], return_inverse=True)
        of_program = np.array([not self._sites.is_system(pc) for pc in starts.tolist()], bool)
        waits = heads.waits[is_there][of_program[places]]
        numbers = self._groups[waits & _BYTE, waits >> _REASON_SHIFT & _BYTE]
        counts = np.bincount(numbers, minlength=len(GROUPS)).tolist()
        return dict(zip(GROUPS, counts, strict=True))


def _groups(layout: RuntimeLayout) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The index of the group in GROUPS by g.atomicstatus and g.waitreason."""
    groups = np.full((1 << 8, 1 << 8), GROUPS.index("other"), np.int64)
    for status, group in _OF_STATUS.items():
        groups[status] = GROUPS.index(group)
    for name, reason in layout.wait_reasons.items():
        group = _group_of(layout.wait_reason_texts[name])
        groups[list(PARKED), reason & 0xFF] = GROUPS.index(group)
    return groups


def _group_of(text: str) -> str:
    if text in LOCK_WORDS:
        return "lock"
    if text.startswith(_CHANNELS):
        return "channel"
    return "network" if text == _NETWORK else "other"
