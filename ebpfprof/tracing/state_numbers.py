"""Numbers for what goroutines do that lasts: waits, being runnable, system calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.fields import REASON_SHIFT
from ebpfprof.goruntime.goroutines.states import RUNNABLE, SYSCALL, CountedWaits
from ebpfprof.goruntime.records import record

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.table import Heads
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

# The number of a call takes the place of g.trackingSeq and g.waitreason in the number of a wait.
_CALL_BITS: Final = 16
_CALL_SHIFT: Final = np.uint64(8)
_REASON_SHIFT: Final = np.uint64(REASON_SHIFT)
_NO_CALL: Final = np.uint64(0xFFFF_FFFF_FF00_00FF)


class StateNumbers:
    """Numbers the states of one target's goroutines.

    A state is the number of a wait (fields.wait_of), also of a goroutine that is runnable; of one
    in a system call, with the number of that call (m.syscalltick) in it: Go 1.26 and later count
    calls in no field of runtime.g (runtime/proc.go, casgstatus).
    """

    def __init__(self, memory: Memory, layout: RuntimeLayout) -> None:
        self._memory = memory
        self._counted = CountedWaits(layout)
        self._m = record(layout, "m", (("tick", "syscalltick", "<u4"),))

    def of(self, heads: Heads) -> npt.NDArray[np.uint64]:
        """The states by slot of a table with the column "thread"; 0 for those that have none.

        Those that run have none, nor those of which g.trackingSeq does not count the waits. Raises
        TargetGone.
        """
        statuses, waits = heads.statuses, heads.waits
        has_one = self._counted.of(statuses, waits >> _REASON_SHIFT) | (statuses == RUNNABLE)
        states = np.where(has_one, waits, np.uint64(0))
        calling = np.flatnonzero((statuses == SYSCALL) & (heads["thread"] != 0))
        if len(calling):
            ticks = self._memory.read_records(heads["thread"][calling], self._m)["tick"]
            numbers = ticks.astype(np.uint64) & np.uint64((1 << _CALL_BITS) - 1)
            states[calling] = waits[calling] & _NO_CALL | numbers << _CALL_SHIFT
        return states
