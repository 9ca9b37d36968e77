"""Which goroutines stay in one state, as looks find them, and for how long at least."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.goroutines.stack_starts import RUNNABLE, SYSCALL, CountedWaits
from ebpfprof.goruntime.memory.records import record

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.goroutines.heads import Heads
    from ebpfprof.process.memory import Memory
    from symbolizer.go.runtime_layout import RuntimeLayout

LEAST_LOOKS: Final = 5
"""What fewer looks saw may be several waits: g.trackingSeq counts them modulo 256."""
# The number of a call takes the place of g.trackingSeq and g.waitreason in Heads.waits.
_CALL_BITS: Final = 16
_CALL_SHIFT: Final = np.uint64(8)
_REASON_SHIFT: Final = np.uint64(8)
_NO_CALL: Final = np.uint64(0xFFFF_FFFF_FF00_00FF)


class SteadyStates:
    """The states that the last look found, and since when each has not changed.

    A state is a number: Heads.waits of a goroutine that waits or is runnable; of one in a system
    call, with the number of that call (m.syscalltick) in it: Go 1.26 and later count calls in no
    field of runtime.g (runtime/proc.go, casgstatus).
    """

    def __init__(self) -> None:
        self.states: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        """Sorted."""
        self._since_ns: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._looks: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, states: npt.NDArray[np.uint64], ended_ns: int) -> None:
        """What one more look found, which ended at this time."""
        states = np.unique(states)
        since_ns = np.full(len(states), ended_ns, np.int64)
        looks = np.ones(len(states), np.int64)
        _, now, before = np.intersect1d(
            states, self.states, assume_unique=True, return_indices=True
        )
        since_ns[now] = self._since_ns[before]
        looks[now] += self._looks[before]
        self.states, self._since_ns, self._looks = states, since_ns, looks

    def lasting(self, began_ns: int, least_ns: int) -> npt.NDArray[np.uint64]:
        """The states that the last look, which began at `began_ns`, found, and that lasted so long.

        At least: they may have begun before the first look that found them.
        """
        is_old = (began_ns - self._since_ns >= least_ns) & (self._looks >= LEAST_LOOKS)
        found: npt.NDArray[np.uint64] = self.states[is_old]
        return found

    def lasted_ns(self, state: int, began_ns: int) -> int:
        """For how long a state of lasting() has lasted, at least."""
        return began_ns - int(self._since_ns[self.states.searchsorted(np.uint64(state))])


class StateNumbers:
    """Numbers the states of goroutines."""

    def __init__(self, memory: Memory, layout: RuntimeLayout) -> None:
        self._memory = memory
        self._counted = CountedWaits(layout)
        self._g = record(layout, "g", (("m", "m", "<u8"),))
        self._m = record(layout, "m", (("tick", "syscalltick", "<u4"),))

    def of(self, heads: Heads) -> npt.NDArray[np.uint64]:
        """The states of all that wait, are runnable or in a system call. Raises TargetGone.

        Not of goroutines of which g.trackingSeq does not count the waits.
        """
        statuses = heads.statuses
        is_counted = self._counted.of(statuses, heads.waits >> _REASON_SHIFT)
        waits = heads.waits[is_counted | (statuses == RUNNABLE)]
        in_call = statuses == SYSCALL
        return np.concatenate([waits, self._calls(heads.addresses[in_call], heads.waits[in_call])])

    def _calls(
        self, addresses: npt.NDArray[np.uint64], waits: npt.NDArray[np.uint64]
    ) -> npt.NDArray[np.uint64]:
        if not len(addresses):
            return waits
        threads = self._memory.read_records(addresses, self._g)["m"]
        ticks: npt.NDArray[np.uint64] = self._memory.read_records(threads, self._m)["tick"]
        numbers = (ticks.astype(np.uint64) & np.uint64((1 << _CALL_BITS) - 1)) << _CALL_SHIFT
        found: npt.NDArray[np.uint64] = (waits & _NO_CALL | numbers)[threads != 0]
        return found
