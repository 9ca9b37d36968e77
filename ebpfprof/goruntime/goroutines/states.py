"""What goroutines do: the statuses and wait reasons of runtime.g, and Go's words for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from symbolizer.go.runtime_layout import RuntimeLayout

# runtime/runtime2.go: _Gidle and so on; those from _Gleaked on came with Go 1.26.
SCAN: Final = 0x1000
"""The bit of g.atomicstatus that says that the garbage collector scans the stack."""
IDLE, RUNNABLE, RUNNING, SYSCALL, WAITING = 0, 1, 2, 3, 4
DEAD, COPYSTACK, PREEMPTED, LEAKED, DEADEXTRA = 6, 8, 9, 10, 11
GONE: Final = (IDLE, DEAD, DEADEXTRA)
"""The statuses of a runtime.g without a goroutine."""
PARKED: Final = (WAITING, LEAKED)
STATUS_WORDS: Final = {
    IDLE: "idle",
    RUNNABLE: "runnable",
    RUNNING: "running",
    SYSCALL: "syscall",
    WAITING: "waiting",
    DEAD: "dead",
    COPYSTACK: "copystack",
    PREEMPTED: "preempted",
    LEAKED: "leaked",
}
"""The words of Go's own tracebacks for statuses."""
STATES: Final = {
    status: word for status, word in STATUS_WORDS.items() if status not in (*GONE, *PARKED)
}
"""The same of goroutines that don't wait: for those that do, the word is the wait reason's."""
LOCK_WORDS: Final = frozenset(
    {"semacquire", "sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock"}
)
"""The states of goroutines that wait for a lock. Go 1.19 has one word for all semaphores."""
UNKNOWN_REASON: Final = "unknown wait reason"
_UNCOUNTED: Final = ("Coroutine",)


def uncounted_reasons(layout: RuntimeLayout) -> frozenset[int]:
    """The wait reasons (g.waitreason) of which g.trackingSeq does not count the waits.

    It counts how often casgstatus took a goroutine from running. A switch between coroutines
    changes the status itself (runtime/coro.go, coroswitch_m, Go 1.23 to 1.27), and leaves
    g.waitsince as it was. So of such waits nothing shows whether two samples saw the same one.
    """
    known = layout.wait_reasons
    return frozenset(known[name] for name in _UNCOUNTED if name in known)


def are_there(records: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which records of runtime.g are goroutines; the others are dead, or have not begun."""
    gone = np.isin(records["status"] & ~np.uint32(SCAN), GONE)
    there: npt.NDArray[np.bool_] = ~gone & (records["goid"] != 0)
    return there


class CountedWaits:
    """Which goroutines are in a wait that g.trackingSeq tells from the next one."""

    def __init__(self, layout: RuntimeLayout) -> None:
        self._is_parked = np.isin(np.arange(1 << 8), PARKED)
        self._is_counted = ~np.isin(np.arange(1 << 8), list(uncounted_reasons(layout)))

    def of(
        self, statuses: npt.NDArray[np.unsignedinteger], reasons: npt.NDArray[np.unsignedinteger]
    ) -> npt.NDArray[np.bool_]:
        """By g.atomicstatus (with or without _Gscan) and g.waitreason; larger ones are cut off."""
        counted: npt.NDArray[np.bool_] = (
            self._is_parked[statuses & 0xFF] & self._is_counted[reasons & 0xFF]
        )
        return counted

    def has(self, status: int, reason: int) -> bool:
        """The same of one goroutine."""
        return bool(self._is_parked[status & 0xFF] and self._is_counted[reason & 0xFF])


class StateNames:
    """The words for what goroutines of a program do."""

    def __init__(self, layout: RuntimeLayout) -> None:
        texts = layout.wait_reason_texts
        self._reasons = {number: texts[name] for name, number in layout.wait_reasons.items()}

    def of(self, status: int, reason: int) -> str:
        """The word for g.atomicstatus (without _Gscan) and g.waitreason."""
        return STATES.get(status) or self._reasons.get(reason, UNKNOWN_REASON)
