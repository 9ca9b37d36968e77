"""What only grows in the histories of processes: memory of a stack, perhaps a leak."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.delta import totals
from ebpfprof.profile.growth import Growing, Growth
from ebpfprof.profile.model import Location
from ebpfprof.profilers.registry import kinds

if TYPE_CHECKING:
    from ebpfprof.continuous.process import RecordedProcess
    from ebpfprof.profile.kind import ProfileKind

_LEAST_SAMPLES: Final = 6
_LEAST_SHARE: Final = 0.01
_MOST: Final = 3
GrowingStack = Growing[tuple[Location, ...]]


@dataclass(slots=True)
class _Seen:
    """A kind's profiles of one process until the window that ended at `end_s` (Unix time)."""

    growth: Growth[tuple[Location, ...]] = field(default_factory=Growth)
    end_s: float = 0.0
    totals: list[int] = field(default_factory=list)
    growing: list[GrowingStack] = field(default_factory=list)
    whole: int = 0


class Growths:
    """Compares the windows of each process; each window once."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[RecordedProcess, dict[str, _Seen]]] = {}  # by pid

    def of(self, process: RecordedProcess) -> list[GrowingStack]:
        """What only grows since the process was first recorded, the fastest first; a few."""
        known, seen = self._seen.get(process.pid, (process, {}))
        if known is not process:  # the pid is another's now
            seen = {}
        self._seen[process.pid] = process, seen
        growings: list[GrowingStack] = []
        for kind in kinds():
            if kind.growth and kind.name in process.kinds:
                growings += _of_kind(process, kind, seen.setdefault(kind.name, _Seen()))
        return growings[:_MOST]


def _of_kind(process: RecordedProcess, kind: ProfileKind, seen: _Seen) -> list[GrowingStack]:
    for window in list(process.history.windows):
        profile = window.profiles.get(kind.name)
        if profile is None or window.end_s <= seen.end_s or kind.growth is None:
            continue
        seen.end_s = window.end_s
        sums = totals(profile)
        if sums == seen.totals:  # nothing new was published
            continue
        seen.totals, numbers = sums, kind.growth(profile)
        seen.whole = sum(number for number, _ in numbers.values())
        seen.growing = seen.growth.add(numbers, round(window.end_s * 1e9))
    if seen.growth.samples < _LEAST_SAMPLES:
        return []
    return [growing for growing in seen.growing if growing.grown >= _LEAST_SHARE * seen.whole]
