"""The fields of runtime.g that we read, by our names, and the number of a wait made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.records import record

if TYPE_CHECKING:
    import numpy.typing as npt

    from symbolizer.go.runtime_layout import RuntimeLayout

FIELDS: Final = {
    "hi": ("stack.hi", "<u8"),
    "sp": ("sched.sp", "<u8"),
    "pc": ("sched.pc", "<u8"),
    "bp": ("sched.bp", "<u8"),
    "syscall_sp": ("syscallsp", "<u8"),
    "syscall_pc": ("syscallpc", "<u8"),
    "syscall_bp": ("syscallbp", "<u8"),
    "status": ("atomicstatus", "<u4"),
    "goid": ("goid", "<u8"),
    "sequence": ("trackingSeq", "u1"),
    "wait_since": ("waitsince", "<i8"),
    "reason": ("waitreason", "u1"),
    "locked": ("lockedm", "<u8"),
    "parent": ("parentGoid", "<u8"),
    "created_pc": ("gopc", "<u8"),
    "start_pc": ("startpc", "<u8"),
    "labels": ("labels", "<u8"),
    "waiting": ("waiting", "<u8"),
    "thread": ("m", "<u8"),
    "timer": ("timer", "<u8"),
    "sleep_when": ("sleepWhen", "<i8"),
    "bubble": ("bubble", "<u8"),
    "group": ("syncGroup", "<u8"),
}
"""The name in Go, and numpy's format. Some versions of Go lack syscall_bp, parent, sleep_when,
bubble or group."""
IDENTITY: Final = ("status", "goid", "reason", "sequence")
"""What the number of a wait is made of."""
GOID_SHIFT: Final = 24
"""Where in the number of a wait the goid begins."""
SEQUENCE_SHIFT: Final = 16
REASON_SHIFT: Final = 8
_BYTE: Final = np.uint64(0xFF)
_ALL_BITS: Final = (1 << 64) - 1


def g_record(layout: RuntimeLayout, *names: str) -> np.dtype[Any]:
    """runtime.g with these of the fields, all if none is named, as a record of its size."""
    return record(layout, "g", [(name, *FIELDS[name]) for name in names or FIELDS])


def wait_of(status: int, reason: int, sequence: int, goid: int) -> int:
    """The number of what a goroutine does: an equal number in a later sample is the same wait.

    It has the goid, g.trackingSeq, g.waitreason, and g.atomicstatus without the bit _Gscan.
    g.trackingSeq counts modulo 256 how often the goroutine stopped running (runtime/proc.go,
    casgstatus, Go 1.19 to 1.27): waits.standing says how many samples that takes.
    """
    above = goid << GOID_SHIFT | (sequence & 0xFF) << SEQUENCE_SHIFT | (reason & 0xFF) << 8
    return (above | status & 0xFF) & _ALL_BITS


def waits_of(
    status: npt.NDArray[np.uint64],
    reason: npt.NDArray[np.uint64],
    sequence: npt.NDArray[np.uint64],
    goid: npt.NDArray[np.uint64],
) -> npt.NDArray[np.uint64]:
    """The same of many goroutines; what lies above the fields in their words is left out."""
    waits = goid << np.uint64(GOID_SHIFT)
    waits |= status & _BYTE
    waits |= (reason & _BYTE) << np.uint64(REASON_SHIFT)
    waits |= (sequence & _BYTE) << np.uint64(SEQUENCE_SHIFT)
    return waits


def waits_in(records: npt.NDArray[Any]) -> npt.NDArray[np.uint64]:
    """The same of records of g_record, which have the fields of IDENTITY."""
    return waits_of(
        *(records[name].astype(np.uint64) for name in ("status", "reason", "sequence", "goid"))
    )
