"""The layout of a target for the probes of one wait in eight: struct tracking."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from ebpfprof.kernel import c_facts
from ebpfprof.profilers.target_layout import bits_of_reasons

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from symbolizer.codeanalysis.tracked_waits import TrackedWaitSites

FOREVER_NS: Final = (1 << 64) - 1
"""The end of a recording that is not known yet."""
PART_WITHIN: Final = 0.5
"""Of what a trap costs, this part lies between the clock readings of a wait: the end of the trap at
the begin, and the beginning of that at the end. Measured with two probes one behind the other."""
_SEMAPHORE_PARKS: Final = c_facts.number("waits/one_in_eight.h", "SEMAPHORE_PARKS")
# The runtime.waitReason of waits that are events of Go's block profile (runtime/mprof.go).
_REASONS: Final = (
    *("ChanReceive", "ChanSend", "Select", "SyncCondWait", "Semacquire", "SyncMutexLock"),
    *("SyncRWMutexRLock", "SyncRWMutexLock", "SyncWaitGroupWait"),
    *("SynctestChanReceive", "SynctestChanSend", "SynctestSelect", "SynctestWaitGroupWait"),
)
# Those of waitReason.isMutexWait (runtime/runtime2.go).
_STAMPED: Final = ("SyncMutexLock", "SyncRWMutexRLock", "SyncRWMutexLock")


def tracking_fields(
    go: GoTarget, places: TrackedWaitSites, *, hit_ns: float = 0.0, only_runs: bool = False
) -> dict[str, Any]:
    """The fields of struct tracking of a target that is not recorded yet.

    `places` are those of the program itself. A trap costs `hit_ns`. `only_runs`: add up how long
    goroutines are in the run queue, since every wait is recorded otherwise.
    """
    layout = go.binary.layout
    parks = [park.return_pc + go.load_bias for park in go.sites.parks if park.is_semaphore]
    return {
        "reasons": bits_of_reasons(layout, _REASONS),
        "stamped": bits_of_reasons(layout, _STAMPED) if places.stamps_locks else 0,
        "began_ns": FOREVER_NS,
        "attached_ns": FOREVER_NS,
        "within_ns": round(PART_WITHIN * hit_ns),
        # With more of them, all locks are one, and repeated parks count as waits.
        "semaphore_pcs": parks if len(parks) <= _SEMAPHORE_PARKS else [],
        "only_runs": int(only_runs),
        "checks_status": int(not places.stamps_locks),
        "stamp_offset": layout.offset("g", "trackingStamp"),
        "runnable_offset": layout.offset("g", "runnableTime"),
        "sequence_offset": layout.offset("g", "trackingSeq"),
        "sudog_offset": places.sudog_offset or 0,
        "ticket_offset": layout.offset("sudog", "ticket"),
    }
