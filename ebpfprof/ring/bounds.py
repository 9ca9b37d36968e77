"""How much the ring may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ebpfprof.errors import RingError

LEAST_BYTES: Final = 1 << 20
"""A smaller ring would hold nothing but its index."""

KEPT_BYTES: Final = 16 << 20
"""To leave room for others, the ring does not shrink below this."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What bounds a ring: its own size, its age, and what it leaves free in the file system."""

    max_bytes: int
    max_age_s: float
    keep_free_bytes: int

    def __post_init__(self) -> None:
        """Raise RingError for a bound that makes no sense."""
        if self.max_bytes < LEAST_BYTES:
            raise RingError(f"The recorded profiles need {LEAST_BYTES >> 20} MiB of room at least.")
        if self.max_age_s <= 0 or self.keep_free_bytes < 0:
            raise RingError("An age must be more than 0, and the space to keep free at least 0.")

    @property
    def max_age_ns(self) -> int:
        """The age in nanoseconds."""
        return round(self.max_age_s * 1e9)

    def room(self, used: int, free: int) -> int:
        """How many bytes the ring may have, of which it uses `used`, with `free` ones left.

        Where others fill the file system, it shrinks, to KEPT_BYTES at least; below that it keeps
        its size, and the newest replaces the oldest.
        """
        left = used + free - self.keep_free_bytes
        return max(0, min(self.max_bytes, max(left, min(used, KEPT_BYTES))))

    def is_by_space(self, used: int, free: int) -> bool:
        """Whether the file system leaves less than `max_bytes`."""
        return self.room(used, free) < self.max_bytes
