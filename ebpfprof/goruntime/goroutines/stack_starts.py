"""Where the stack of a goroutine begins: by what it does, and by the version of Go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.memory.records import record
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.go.runtime_layout import RuntimeLayout

# runtime/runtime2.go: _Gidle and so on.
SCAN: Final = 0x1000
"""The bit of g.atomicstatus that says that the garbage collector scans the stack."""
RUNNING: Final = 2
_IDLE, _RUNNABLE, SYSCALL, _WAITING = 0, 1, 3, 4
_DEAD, _COPYSTACK, _PREEMPTED, LEAKED, _DEADEXTRA = 6, 8, 9, 10, 11
GONE: Final = (_IDLE, _DEAD, _DEADEXTRA)
"""The statuses of a runtime.g without a goroutine."""
PARKED: Final = (_WAITING, LEAKED)
RUNNABLE: Final = _RUNNABLE
STATES: Final = {
    _RUNNABLE: "runnable",
    RUNNING: "running",
    SYSCALL: "syscall",
    _COPYSTACK: "copystack",
    _PREEMPTED: "preempted",
}
"""The words of Go's own tracebacks, but for goroutines that wait: these have a wait reason."""
_UNKNOWN_REASON: Final = "unknown wait reason"
_UNCOUNTED: Final = ("Coroutine",)
_FIELDS: Final = (
    ("hi", "stack.hi", "<u8"),
    ("sp", "sched.sp", "<u8"),
    ("pc", "sched.pc", "<u8"),
    ("bp", "sched.bp", "<u8"),
    ("syscall_sp", "syscallsp", "<u8"),
    ("syscall_pc", "syscallpc", "<u8"),
    ("syscall_bp", "syscallbp", "<u8"),
    ("status", "atomicstatus", "<u4"),
    ("goid", "goid", "<u8"),
    ("sequence", "trackingSeq", "u1"),
    ("wait_since", "waitsince", "<i8"),
    ("reason", "waitreason", "u1"),
    ("locked", "lockedm", "<u8"),
    ("parent", "parentGoid", "<u8"),
    ("created_pc", "gopc", "<u8"),
    ("start_pc", "startpc", "<u8"),
    ("labels", "labels", "<u8"),
    ("waiting", "waiting", "<u8"),
    ("thread", "m", "<u8"),
    ("timer", "timer", "<u8"),
    ("sleep_when", "sleepWhen", "<i8"),
    ("bubble", "bubble", "<u8"),
    ("group", "syncGroup", "<u8"),
)


def head_of(layout: RuntimeLayout) -> np.dtype[Any]:
    """The fields of a runtime.g that we read, as a record of its size.

    Those that a version of Go lacks are not in it: syscall_bp, parent, sleep_when, bubble, group.
    """
    return record(layout, "g", _FIELDS)


def uncounted_reasons(layout: RuntimeLayout) -> frozenset[int]:
    """The wait reasons (g.waitreason) of which g.trackingSeq does not count the waits.

    It counts how often casgstatus took a goroutine from running. A switch between coroutines
    changes the status itself (runtime/coro.go, coroswitch_m, Go 1.23 to 1.27), and leaves
    g.waitsince as it was. So of such waits nothing tells whether two samples found the same one.
    """
    known = layout.wait_reasons
    return frozenset(known[name] for name in _UNCOUNTED if name in known)


class CountedWaits:
    """Which goroutines are in a wait that g.trackingSeq tells from the next one."""

    def __init__(self, layout: RuntimeLayout) -> None:
        self._is_parked = np.isin(np.arange(1 << 8), PARKED)
        self._is_counted = ~np.isin(np.arange(1 << 8), list(uncounted_reasons(layout)))

    def of(
        self, statuses: npt.NDArray[np.unsignedinteger], reasons: npt.NDArray[np.unsignedinteger]
    ) -> npt.NDArray[np.bool_]:
        """By g.atomicstatus (with or without _Gscan) and g.waitreason; larger ones are cut off."""
        found: npt.NDArray[np.bool_] = (
            self._is_parked[statuses & 0xFF] & self._is_counted[reasons & 0xFF]
        )
        return found

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
        return STATES.get(status) or self._reasons.get(reason, _UNKNOWN_REASON)


class StackStarts:
    """Finds where stacks begin, of the goroutines of one target."""

    def __init__(self, go: GoTarget) -> None:
        self._go = go
        self._deltas: dict[int, int] = {}

    def of(
        self, heads: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Where each stack begins: pc, sp and frame pointer; 0 for goroutines that run.

        `heads` are records of head_of(). The order in which the runtime writes them is in
        runtime/proc.go (save, reentersyscall, gogo), Go 1.19 to 1.27.
        """
        status = heads["status"] & ~np.uint32(SCAN)
        pcs, sps, bps = (heads[name].copy() for name in ("pc", "sp", "bp"))
        in_syscall = (status == SYSCALL) & (heads["syscall_sp"] != 0)
        if in_syscall.any():
            pcs[in_syscall] = heads["syscall_pc"][in_syscall]
            sps[in_syscall] = heads["syscall_sp"][in_syscall]
            if "syscall_bp" in (heads.dtype.names or ()):
                bps[in_syscall] = heads["syscall_bp"][in_syscall]
            else:
                for at in np.flatnonzero(in_syscall).tolist():
                    bps[at] = self.saved_bp(int(pcs[at]), int(sps[at]))
        runs = status == RUNNING
        if runs.any():
            for each in (pcs, sps, bps):
                each[runs] = 0
        return pcs, sps, bps

    def saved_bp(self, pc: int, sp: int) -> int:
        """The address of the saved frame pointer of the function at `pc`; 0 if it has none.

        When a system call begins, Go 1.21 and 1.22 save no frame pointer. Go 1.19 saves one that
        may be of runtime.entersyscall, which has returned (runtime/proc.go, save).
        """
        delta = self._deltas.get(pc)
        if delta is None:
            try:
                delta = self._go.binary.sp_delta(pc - 1 - self._go.load_bias)
            except SymbolizerError:
                delta = -1
            self._deltas[pc] = delta
        return sp + delta - 8 if delta >= 8 else 0
