"""Adds up what the gates counted to an estimate of all allocations, with its error.

Two errors add up. Of the objects of s bytes that passed a gate, a part p was sampled, each on its
own: n sampled ones stand for n/p, with a variance of n (1 - p) / p^2. And while the probes were
detached, nothing was counted. How many bytes the program allocated then in objects of each size
class its own counters tell exactly. So windows tell only which part of a class each stack has: the
ratio of two sums over windows, each of which stands for the pause before it, too. The variance of
such a ratio comes from how far each window is from it (W. G. Cochran, Sampling Techniques, 6.4).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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

    The variance is infinite if windows can't tell it, and 0 if every object was counted.
    """

    objects: float
    variance: float


@dataclass(slots=True)
class _Window:
    """What a window counted, and the time (ns) that it stands for, over its own."""

    weight: float
    counts: Counter[AllocatingStack]


@dataclass(slots=True)
class AllocationSums:
    """The counts of one target, sampled with one object in `rate_bytes` bytes on average."""

    rate_bytes: int
    whole: Counter[AllocatingStack] = field(default_factory=Counter)
    """From times in which the probes were never detached."""
    windows: list[_Window] = field(default_factory=list)
    recorded_ns: int = 0
    stood_for_ns: int = 0

    def add_whole(self, counts: Counter[AllocatingStack], length_ns: int) -> None:
        """Add what was counted from the start on."""
        self.whole.update(counts)
        self.recorded_ns += length_ns
        self.stood_for_ns += length_ns

    def add_window(
        self, counts: Counter[AllocatingStack], length_ns: int, stands_for_ns: int
    ) -> float:
        """Add a window, which stands for the pause before it, too; returns its weight."""
        weight = stands_for_ns / max(length_ns, 1)
        self.windows.append(_Window(weight, counts))
        self.recorded_ns += length_ns
        self.stood_for_ns += stands_for_ns
        return weight

    @property
    def share(self) -> float:
        """The part of the time that was recorded, 0 to 1."""
        return self.recorded_ns / self.stood_for_ns if self.stood_for_ns else 1.0

    def merged(self, shown: Callable[[AllocatingStack], AllocatingStack]) -> AllocationSums:
        """The same with one count for all stacks for which `shown` returns the same."""
        windows = [_Window(each.weight, _merged(each.counts, shown)) for each in self.windows]
        whole = _merged(self.whole, shown)
        return AllocationSums(self.rate_bytes, whole, windows, self.recorded_ns, self.stood_for_ns)

    def estimates(self, missed: Mapping[int, float]) -> dict[AllocatingStack, Estimated]:
        """All stacks.

        `missed` has how many bytes were allocated since the probes were first detached, by size
        class: also those that windows counted.
        """
        found = {stack: self._of_whole(stack, n, missed) for stack, n in self.whole.items()}
        scales = self.scales(missed)
        of_stack: dict[AllocatingStack, list[tuple[float, int]]] = defaultdict(list)
        of_class: dict[int, list[float]] = defaultdict(lambda: [0.0] * len(self.windows))
        for number, window in enumerate(self.windows):
            for stack, count in window.counts.items():
                part = self._sampled(stack, count).objects * window.weight
                of_stack[stack].append((part, number))
                of_class[size_class(stack.size_bytes)][number] += part * stack.size_bytes
        for stack, parts in of_stack.items():
            kind = size_class(stack.size_bytes)
            objects = sum(part for part, _ in parts)
            more = Estimated(
                objects * scales[kind],
                self._variance(stack, parts, of_class[kind]) * scales[kind] ** 2,
            )
            before = found.get(stack, Estimated(0.0, 0.0))
            found[stack] = Estimated(*(a + b for a, b in zip(before, more, strict=True)))
        return found

    def scales(self, missed: Mapping[int, float]) -> dict[int, float]:
        """By which factor the sums of windows differ from the program's own counters, by class."""
        counted: dict[int, float] = defaultdict(float)
        for window in self.windows:
            for stack, count in window.counts.items():
                used = self._sampled(stack, count).objects * stack.size_bytes * window.weight
                counted[size_class(stack.size_bytes)] += used
        return {
            kind: missed[kind] / used if missed.get(kind, 0.0) > 0 else 1.0
            for kind, used in counted.items()
        }

    def unseen(self, missed: Mapping[int, float]) -> float:
        """How many bytes were allocated in objects of classes that no window saw."""
        seen = {size_class(s.size_bytes) for window in self.windows for s in window.counts}
        return sum(used for kind, used in missed.items() if kind not in seen and used > 0)

    def _of_whole(
        self, stack: AllocatingStack, count: int, missed: Mapping[int, float]
    ) -> Estimated:
        """Until probes were detached. All that no window saw of its class may be of this stack."""
        objects, variance = self._sampled(stack, count)
        kind = size_class(stack.size_bytes)
        if any(size_class(s.size_bytes) == kind for each in self.windows for s in each.counts):
            return Estimated(objects, variance)
        unseen = max(0.0, missed.get(kind, 0.0)) / stack.size_bytes
        return Estimated(objects, variance + unseen**2)

    def _sampled(self, stack: AllocatingStack, count: int) -> Estimated:
        part = chance(stack.size_bytes, self.rate_bytes)
        return Estimated(count / part, count * (1 - part) / part**2)

    def _variance(
        self, stack: AllocatingStack, parts: list[tuple[float, int]], of_class: list[float]
    ) -> float:
        """Of what windows tell of a stack, before scaling."""
        number = len(self.windows)
        if number < 2:
            return math.inf
        total = sum(of_class)
        share = sum(part for part, _ in parts) * stack.size_bytes / total if total else 0.0
        by_window = [0.0] * number
        for part, at in parts:
            by_window[at] = part * stack.size_bytes
        between = sum(
            (own - share * all_) ** 2 for own, all_ in zip(by_window, of_class, strict=True)
        )
        between *= of_differences(number) / stack.size_bytes**2
        within = sum(
            window.weight**2 * self._sampled(stack, window.counts[stack]).variance
            for window in self.windows
            if stack in window.counts
        )
        # What was recorded of the time has no error but that of sampling.
        recorded = 1 / (sum(window.weight for window in self.windows) / number)
        return (1 - recorded) * between + recorded * within


def _merged(
    counts: Counter[AllocatingStack], shown: Callable[[AllocatingStack], AllocatingStack]
) -> Counter[AllocatingStack]:
    found = Counter[AllocatingStack]()
    for stack, count in counts.items():
        found[shown(stack)] += count
    return found
