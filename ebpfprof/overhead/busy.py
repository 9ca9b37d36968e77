"""Whether the processors were busy: then what we used ourselves was missing elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from ebpfprof.console.text import percent

_STAT: Final = Path("/proc/stat")
_MOST_IDLE: Final = 0.05  # of the processors' time
_IDLE_FIELDS: Final = (3, 4)  # idle, iowait
_FIELDS: Final = 8  # user to steal; guests' time is in user and nice (proc_stat(5))
_TICKS_A_SECOND: Final = 100  # USER_HZ on x86


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """The time of all processors since boot, in seconds, and how much of it they were idle."""

    all_s: float = 0.0
    idle_s: float = 0.0

    @classmethod
    def now(cls, path: Path = _STAT) -> Self:
        """Until now; 0 if the kernel does not report it."""
        try:
            ticks = [int(word) for word in path.read_text().split("\n")[0].split()[1 : 1 + _FIELDS]]
            idle = sum(ticks[field] for field in _IDLE_FIELDS)
        except (OSError, ValueError, IndexError):
            return cls()
        return cls(sum(ticks) / _TICKS_A_SECOND, idle / _TICKS_A_SECOND)

    def __sub__(self, earlier: ProcessorTime) -> ProcessorTime:
        return ProcessorTime(self.all_s - earlier.all_s, self.idle_s - earlier.idle_s)

    def taken(self, used_s: float) -> float | None:
        """The part of this time that `used_s` seconds are; None if processors were idle meanwhile.

        Then others did not lose it.
        """
        if self.all_s <= 0 or self.idle_s > _MOST_IDLE * self.all_s:
            return None
        return min(1.0, used_s / self.all_s)


def on_busy_processors(taken: float) -> str:
    """That our own part of the processors' time was missing elsewhere, a sentence."""
    return f"All processors were busy: ebpfprof itself used {percent(taken)} of their time."
