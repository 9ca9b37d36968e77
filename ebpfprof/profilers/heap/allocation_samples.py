"""Samples of what was counted at the gates: objects and bytes, allocated and still in use."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.console.text import counted, percent, quantity
from ebpfprof.profile.completeness import ALARMING_SHARE
from ebpfprof.profile.model import Frame, Label, Location, Sample
from ebpfprof.profilers.heap.allocation_sums import Estimated

if TYPE_CHECKING:
    from ebpfprof.profilers.heap.allocation_counts import AllocationCounts
    from ebpfprof.profilers.heap.gate_tables import AllocatingStack
    from ebpfprof.profilers.heap.heap_stacks import HeapStacks

OTHERS: Final = "[other objects in use]"
"""In place of a stack: objects with no recorded allocation, or not yet seen by a collection."""
_NOWHERE: Final = 1  # no code has that address; readers distinguish locations by it
_BYTES: Final = "bytes"
_LARGEST: Final = 10
_LEAST_SHARE: Final = 0.01  # of all bytes: of a small program, the ten largest are nearly all
_WHOLE: Final = 0.999  # of the time: probes take a moment to be attached and detached
_MOST: Final = (1 << 63) - 1  # of a value in a file; sizes are what the target says
_Key = tuple[tuple[Location, ...], int]


@dataclass(slots=True)
class _Sum:
    allocated: float = 0.0
    variance: float = 0.0
    in_use: float = 0.0
    in_use_variance: float = 0.0


def samples(counts: AllocationCounts, stacks: HeapStacks, *, of_use: bool) -> list[Sample]:
    """A sample for each stack and size, with the four values of Go's heap profile.

    The variance is that of the bytes in use if `of_use`, else of the allocated bytes: of what
    tables show. Raises GoTableError.
    """
    sums: dict[_Key, _Sum] = defaultdict(_Sum)
    both = (*counts.allocated, *counts.in_use)
    stacks.look_up(stack.return_pcs for stack in both)
    for stack, estimate in counts.allocated.items():
        sums_of_stack = sums[stacks.of(stack.return_pcs), stack.size_bytes]
        sums_of_stack.allocated += estimate.objects
        sums_of_stack.variance += estimate.variance
    for stack, estimate in counts.in_use.items():
        sums_of_stack = sums[stacks.of(stack.return_pcs), stack.size_bytes]
        sums_of_stack.in_use += estimate.objects
        sums_of_stack.in_use_variance += estimate.variance
    made = []
    for (shown, size), sums_of_stack in sums.items():
        variance = sums_of_stack.in_use_variance if of_use else sums_of_stack.variance
        amounts = (
            sums_of_stack.allocated,
            sums_of_stack.allocated * size,
            sums_of_stack.in_use,
            sums_of_stack.in_use * size,
        )
        values = tuple(min(round(amount), _MOST) for amount in amounts)
        # An unknown error counts as one of all of it.
        known = (
            variance
            if math.isfinite(variance)
            else max(sums_of_stack.allocated, sums_of_stack.in_use) ** 2
        )
        made.append(Sample(shown, values, (Label(_BYTES, size),), known * size * size))
    return [*made, *_remainder(counts)]


def _remainder(counts: AllocationCounts) -> Iterable[Sample]:
    stack = (Location(_NOWHERE, None, (Frame(OTHERS, "", 0, 0),)),)
    for remainder in counts.remainder or ():
        values = (0, 0, round(remainder.objects), round(remainder.used_bytes))
        labels = (Label(_BYTES, remainder.size_bytes),) if remainder.size_bytes else ()
        yield Sample(stack, values, labels)


def remarks(counts: AllocationCounts) -> list[str]:
    """What the numbers are, and what they are not, a sentence each."""
    lines = [
        "the program keeps no memory profile: probes counted its allocations from the beginning of "
        "the recording on"
    ]
    if counts.unseen_bytes >= 1:
        lines.append(
            f"not included: {_unseen(counts)}, in objects of sizes that no window recorded"
        )
    following = counts.following
    if following is None:
        return [*lines, "memory in use is not known: this program was compiled in an unknown way"]
    if following.reported_rate > counts.rate_bytes:
        lines.append(f"memory in use: of one object in {following.reported_rate} bytes, on average")
    if following.collections:
        lines.append(
            "memory in use as of the latest garbage collection; other objects were allocated "
            "before the recording or after that collection, or are not swept yet"
        )
    else:
        lines.append("no garbage collection during the recording: all of it counts as in use")
    if following.missed:
        lines.append(
            f"{counted(following.missed, 'collection')} came too fast to look after each: of "
            f"{counted(following.followed, 'followed object')} "
            f"{following.unsure} may be gone, and others in their place"
        )
    return lines


def warning(counts: AllocationCounts) -> str:
    """That much is in no stack, a sentence; "" if it is not."""
    if counts.unseen_bytes < ALARMING_SHARE * _allocated(counts):
        return ""
    return (
        f"{_unseen(counts)} that it had allocated when its counters were last read have no stack: "
        f"--max-overhead allowed probes for {percent(counts.share)} of the time. Record for "
        "longer, or with a higher --max-overhead."
    )


def _unseen(counts: AllocationCounts) -> str:
    unseen, all_of = (quantity(n, _BYTES) for n in (counts.unseen_bytes, _allocated(counts)))
    return f"{unseen} of {all_of}"


def _allocated(counts: AllocationCounts) -> float:
    """In bytes."""
    seen = sum(estimate.objects * stack.size_bytes for stack, estimate in counts.allocated.items())
    return seen + counts.unseen_bytes


@dataclass(frozen=True, slots=True)
class AllocationCoverage:
    """The errors of an estimate: see profilers.account.Coverage.

    `errors` has, by the name of a kind, the standard error of all its bytes and the largest of the
    ten largest stacks, as parts of them.
    """

    share: float
    windows: int
    rate_bytes: int
    errors: dict[str, tuple[float, float]]

    def __sub__(self, earlier: AllocationCoverage) -> AllocationCoverage:
        return self  # of this moment

    def __add__(self, later: AllocationCoverage) -> AllocationCoverage:
        return later

    def __str__(self) -> str:
        return "; ".join(filter(None, (self._sampled, self._recorded)))

    @property
    def _sampled(self) -> str:
        if self.rate_bytes <= 1:
            return ""
        return f"one object in {self.rate_bytes} bytes was sampled, on average"

    @property
    def _recorded(self) -> str:
        share = f"sampled {percent(self.share)} of the time"
        if self.windows:
            windows = counted(self.windows, "window")
            return (
                f"{share}, in {windows} at random times, and scaled to the program's own counters"
            )
        if self.is_cut_short:
            return f"{share}, from the start until the budget was used up"
        return ""

    def sampling(self, whole: str) -> str:
        """Which allocations were recorded; `whole` says which ones without windows."""
        return f"{whole} in windows" if self.windows else whole

    @property
    def is_scaled(self) -> bool:
        """Whether sums are scaled, or should be."""
        return self.windows > 0 or self.rate_bytes > 1 or self.is_cut_short

    @property
    def is_cut_short(self) -> bool:
        """Whether it was not recorded to its end, and not in windows either."""
        return not self.windows and self.share < _WHOLE

    @property
    def knows_errors(self) -> bool:
        """False: error() also reports those of the largest stacks."""
        return False

    def error(self, kind: str) -> str:
        """In words, the standard errors of a kind's bytes."""
        if kind not in self.errors:
            return ""
        if self.is_cut_short:
            return "standard error not known"
        of_all, of_largest = self.errors[kind]
        if not math.isfinite(of_all):
            return "standard error not known, from a single window"
        return (
            f"+-{percent(of_all)} on all bytes, at most +-{percent(of_largest)} on the ten largest "
            "stacks (one standard error)"
        )

    def missing(self, _kind: str) -> list[str]:
        """Nothing: remarks() say it."""
        return []


def coverage(counts: AllocationCounts, heap: str, allocs: str) -> AllocationCoverage:
    """How much was recorded, and the errors; by the names of both kinds."""
    of = {heap: counts.in_use, allocs: counts.allocated}
    errors = {name: _errors(estimates) for name, estimates in of.items() if estimates}
    return AllocationCoverage(counts.share, counts.windows, counts.rate_bytes, errors)


def _errors(estimates: dict[AllocatingStack, Estimated]) -> tuple[float, float]:
    """The standard errors of all bytes, and the largest of the largest stacks."""
    sizes = [
        (estimate.objects * stack.size_bytes, estimate.variance * stack.size_bytes**2)
        for stack, estimate in estimates.items()
    ]
    total = sum(used for used, _ in sizes)
    first, *others = sorted(sizes, reverse=True)[:_LARGEST]
    largest = [first, *(other for other in others if other[0] >= _LEAST_SHARE * total)]
    return (
        math.sqrt(sum(variance for _, variance in sizes)) / max(total, 1.0),
        max(math.sqrt(variance) / max(used, 1.0) for used, variance in largest),
    )
