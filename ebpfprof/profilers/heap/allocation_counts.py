"""What the gates and the followed objects say of one process at a moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from ebpfprof.profilers.heap.allocation_sums import AllocationSums, Estimated, size_class
from ebpfprof.profilers.heap.followed import FollowedObjects
from ebpfprof.profilers.heap.gate_program import chance
from ebpfprof.profilers.heap.gate_tables import AllocatingStack


@dataclass(frozen=True, slots=True)
class Remainder:
    """Objects of one size class that nobody followed; large ones have the size 0."""

    size_bytes: int
    objects: float
    used_bytes: float


@dataclass(frozen=True, slots=True)
class AllocationCounts:
    """Allocations since the recording began, and what is left of them.

    `allocated` and `in_use` have objects by stack and size. `unseen_bytes` were allocated in
    objects of sizes that no window saw. `remainder` is what else the program has in use, which was
    allocated before; None if its own counters can't be read. `following` is None if nothing was
    followed. `share` is the part of the time that was recorded (0 to 1), in `windows` windows.
    """

    allocated: dict[AllocatingStack, Estimated]
    in_use: dict[AllocatingStack, Estimated]
    remainder: tuple[Remainder, ...] | None
    unseen_bytes: float
    following: FollowedObjects | None
    rate_bytes: int
    share: float
    windows: int

    @property
    def is_exact(self) -> bool:
        """Whether each allocation was counted."""
        return self.rate_bytes <= 1 and not self.windows


def allocation_counts(
    sums: AllocationSums,
    missed: dict[int, float],
    following: FollowedObjects | None,
    in_use_bytes: dict[int, tuple[int, int]] | None,
) -> AllocationCounts:
    """Put it together.

    `missed` and `in_use_bytes` are what the program's own counters say, by size class: bytes
    allocated since the first pause, and objects and bytes in use.
    """
    in_use = _in_use(following, sums.scales(missed)) if following else {}
    return AllocationCounts(
        allocated=sums.estimates(missed),
        in_use=in_use,
        remainder=None if in_use_bytes is None else _remainder(in_use_bytes, in_use.items()),
        unseen_bytes=sums.unseen(missed),
        following=following,
        rate_bytes=sums.rate_bytes,
        share=sums.share,
        windows=sums.windows,
    )


def _in_use(
    following: FollowedObjects, scales: dict[int, float]
) -> dict[AllocatingStack, Estimated]:
    in_use: dict[AllocatingStack, Estimated] = {}
    for stack, weighted in following.weighted.items():
        squares = following.squares[stack]
        part = chance(stack.size_bytes, following.reported_rate)
        scale = scales.get(size_class(stack.size_bytes), 1.0) if squares else 1.0
        variance = weighted * (1 - part) / part**2 + squares / part**2
        in_use[stack] = Estimated(weighted * scale / part, variance * scale**2)
    return in_use


def _remainder(
    in_use: dict[int, tuple[int, int]], known: Iterable[tuple[AllocatingStack, Estimated]]
) -> tuple[Remainder, ...]:
    """What is in use beyond what is known; estimates that are too high leave nothing."""
    objects: dict[int, float] = defaultdict(float)
    used: dict[int, float] = defaultdict(float)
    for stack, estimate in known:
        kind = size_class(stack.size_bytes)
        objects[kind] += estimate.objects
        used[kind] += estimate.objects * stack.size_bytes
    rest = (
        Remainder(kind, count - objects[kind], in_bytes - used[kind])
        for kind, (count, in_bytes) in sorted(in_use.items())
    )
    return tuple(
        remainder for remainder in rest if remainder.objects >= 1 and remainder.used_bytes >= 1
    )
