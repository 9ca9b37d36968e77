"""Adds up what the gates counted to an estimate of all allocations, with its error.

Two errors add up. Of the objects of s bytes that passed a gate, a part p was sampled, each on its
own: n sampled ones stand for n/p, with a variance of n (1 - p) / p^2. And while the probes were
detached, nothing was counted. How many bytes the program allocated then in objects of each size
class its own counters are exact. So windows only show which part of a class each stack has: the
ratio of two sums over windows, each of which stands for the pause before it, too. The variance of
such a ratio comes from how far each window is from it (W. G. Cochran, Sampling Techniques, 6.4).
"""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ebpfprof.overhead.estimator import of_differences
from ebpfprof.profilers.heap.gate_program import SMALL_BYTES, chance
from ebpfprof.profilers.heap.gate_tables import AllocatingStack

LARGE: Final = 0
"""Stands for the size of all objects with a span of their own."""


def size_class(size_bytes: int) -> int:
    """What the runtime's counters call objects of that slot size: it, or LARGE."""
    return size_bytes if size_bytes <= SMALL_BYTES else LARGE


class Estimated(NamedTuple):
    """How many objects of a stack were allocated, and the variance of that number.

    The variance is infinite if windows can't give it, and 0 if every object was counted.
    """

    objects: float
    variance: float


class _OfStack(NamedTuple):
    """Sums over windows, of what each counted of a stack, with its weight.

    `objects` and `used`, their bytes; `squares` of those, and `products` with the bytes of the
    whole size class; `within` is the variance of `objects` by sampling.
    """

    objects: float = 0.0
    used: float = 0.0
    squares: float = 0.0
    products: float = 0.0
    within: float = 0.0


class _OfClass(NamedTuple):
    """Sums over windows of the bytes of a size class, and of their squares."""

    used: float = 0.0
    squares: float = 0.0


@dataclass(slots=True)
class AllocationSums:
    """The counts of one target, sampled with one object in `rate_bytes` bytes on average.

    It keeps sums, not windows: a recording may have thousands of them.
    """

    rate_bytes: int
    whole: Counter[AllocatingStack] = field(default_factory=Counter)
    """From times in which the probes were never detached."""
    stacks: dict[AllocatingStack, _OfStack] = field(default_factory=dict)
    classes: dict[int, _OfClass] = field(default_factory=dict)
    windows: int = 0
    weights: float = 0.0
    recorded_ns: int = 0
    stood_for_ns: int = 0

    def copy(self) -> AllocationSums:
        """One that can be changed without the other."""
        return replace(
            self,
            whole=Counter(self.whole),
            stacks=dict(self.stacks),
            classes=dict(self.classes),
        )

    def add_whole(self, counts: Counter[AllocatingStack], length_ns: int) -> None:
        """Add what was counted from the start on."""
        self.whole.update(counts)
        self.recorded_ns += length_ns
        self.stood_for_ns += length_ns

    def add_window(
        self, counts: Mapping[AllocatingStack, int], length_ns: int, stands_for_ns: int
    ) -> None:
        """Add a window, which stands for the pause before it, too: see window_weight()."""
        weight = window_weight(length_ns, stands_for_ns)
        of_class: dict[int, float] = defaultdict(float)
        parts = {}
        for stack, count in counts.items():
            objects, variance = self._sampled(stack, count)
            parts[stack] = objects * weight, variance * weight**2
            of_class[size_class(stack.size_bytes)] += objects * weight * stack.size_bytes
        for stack, (objects, variance) in parts.items():
            used = objects * stack.size_bytes
            product = used * of_class[size_class(stack.size_bytes)]
            more = _OfStack(objects, used, used**2, product, variance)
            before = self.stacks.get(stack, _OfStack())
            self.stacks[stack] = _OfStack(*map(operator.add, before, more))
        for kind, used in of_class.items():
            known = self.classes.get(kind, _OfClass())
            self.classes[kind] = _OfClass(known.used + used, known.squares + used**2)
        self.windows += 1
        self.weights += weight
        self.recorded_ns += length_ns
        self.stood_for_ns += stands_for_ns

    @property
    def share(self) -> float:
        """The part of the time that was recorded, 0 to 1."""
        return self.recorded_ns / self.stood_for_ns if self.stood_for_ns else 1.0

    def estimates(self, missed: Mapping[int, float]) -> dict[AllocatingStack, Estimated]:
        """All stacks.

        `missed` has how many bytes were allocated since the probes were first detached, by size
        class: also those that windows counted.
        """
        estimates = {stack: self._of_whole(stack, n, missed) for stack, n in self.whole.items()}
        scales = self.scales(missed)
        for stack, sums in self.stacks.items():
            scale = scales[size_class(stack.size_bytes)]
            before = estimates.get(stack, Estimated(0.0, 0.0))
            estimates[stack] = Estimated(
                before.objects + sums.objects * scale,
                before.variance + self._variance(stack, sums) * scale**2,
            )
        return estimates

    def scales(self, missed: Mapping[int, float]) -> dict[int, float]:
        """By which factor the sums of windows differ from the program's own counters, by class."""
        return {
            kind: missed[kind] / sums.used if missed.get(kind, 0.0) > 0 else 1.0
            for kind, sums in self.classes.items()
        }

    def unseen(self, missed: Mapping[int, float]) -> float:
        """How many bytes were allocated in objects of classes that no window saw."""
        return sum(used for kind, used in missed.items() if kind not in self.classes and used > 0)

    def _of_whole(
        self, stack: AllocatingStack, count: int, missed: Mapping[int, float]
    ) -> Estimated:
        """Until probes were detached. All that no window saw of its class may be of this stack."""
        objects, variance = self._sampled(stack, count)
        kind = size_class(stack.size_bytes)
        if kind in self.classes:
            return Estimated(objects, variance)
        unseen = max(0.0, missed.get(kind, 0.0)) / stack.size_bytes
        return Estimated(objects, variance + unseen**2)

    def _sampled(self, stack: AllocatingStack, count: int) -> Estimated:
        part = chance(stack.size_bytes, self.rate_bytes)
        return Estimated(count / part, count * (1 - part) / part**2)

    def _variance(self, stack: AllocatingStack, sums: _OfStack) -> float:
        """What windows counted of a stack, before scaling."""
        if self.windows < 2:
            return math.inf
        of_class = self.classes[size_class(stack.size_bytes)]
        share = sums.used / of_class.used if of_class.used else 0.0
        # The sum over windows of (own - share * all)^2.
        between = sums.squares - 2 * share * sums.products + share**2 * of_class.squares
        between = max(0.0, between) * of_differences(self.windows) / stack.size_bytes**2
        # What was recorded of the time has no error but that of sampling.
        recorded = self.windows / self.weights
        return (1 - recorded) * between + recorded * sums.within


def window_weight(length_ns: int, stands_for_ns: int) -> float:
    """The time that a window stands for, over its own."""
    return stands_for_ns / max(length_ns, 1)


def merged(
    counts: Mapping[AllocatingStack, int], shown: Callable[[AllocatingStack], AllocatingStack]
) -> Counter[AllocatingStack]:
    """One count for all stacks for which `shown` returns the same."""
    sums = Counter[AllocatingStack]()
    for stack, count in counts.items():
        sums[shown(stack)] += count
    return sums
