"""Goroutines that hang: they wait for long for what others should do, in a lock or a send."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from ebpfprof.profile.goroutines import DumpedGoroutine
from ebpfprof.profile.model import Frame
from ebpfprof.profile.operations import caller, operation

HANGS_NS: Final = 5_000_000_000
"""For how long a goroutine has not moved that hangs."""
NEVER_IDLE: Final = ("chan send", "Mutex.Lock", "RWMutex.Lock", "RWMutex.RLock")
"""A goroutine that waits for these waits for another to do its work: it is never idle."""
_LOCKS: Final = NEVER_IDLE[1:]


@dataclass(frozen=True, slots=True)
class Hanging:
    """Goroutines that hang in an operation that is called from one line, `place`."""

    operation: str
    place: Frame
    goroutines: tuple[DumpedGoroutine, ...]

    @property
    def is_lock(self) -> bool:
        """Whether they wait for a lock."""
        return self.operation in _LOCKS


def hanging(goroutines: Iterable[DumpedGoroutine]) -> list[Hanging]:
    """Those that have not moved for HANGS_NS or longer, by place, the most goroutines first."""
    found = defaultdict[tuple[str, Frame], list[DumpedGoroutine]](list)
    for goroutine in goroutines:
        if goroutine.waited_ns >= HANGS_NS and goroutine.wait is not None and goroutine.frames:
            name = operation(goroutine.frames)
            if name in NEVER_IDLE:
                found[name, caller(goroutine.frames)].append(goroutine)
    made = [Hanging(*key, tuple(members)) for key, members in found.items()]
    return sorted(
        made, key=lambda group: (-len(group.goroutines), group.operation, group.place.line)
    )
