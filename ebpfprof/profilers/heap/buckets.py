"""Samples of what a program's own memory profile has: scaled as Go does."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.model import Label, Location, Sample

if TYPE_CHECKING:
    from ebpfprof.goruntime.heap.heap_buckets import HeapCounts
    from ebpfprof.profilers.heap.heap_stacks import HeapStacks

_BYTES: Final = "bytes"
NOTHING_COLLECTED: Final = "no garbage collection yet: all sampled allocations until now"


def scaled(count: int, size_bytes: int, rate_bytes: int) -> tuple[int, int]:
    """How many objects of `size_bytes` there are if `count` were sampled, and their bytes.

    On average one allocation in `rate_bytes` bytes is sampled, as a Poisson process
    (runtime/pprof/protomem.go, scaleHeapSample).
    """
    if count == 0 or size_bytes == 0:
        return 0, 0
    if rate_bytes <= 1:
        return count, count * size_bytes
    scale = 1 / (1 - math.exp(-size_bytes / rate_bytes))
    return int(count * scale), int(count * size_bytes * scale)


def samples(counts: HeapCounts, stacks: HeapStacks, *, fresh: bool) -> Iterator[Sample]:
    """A sample for each stack and size: allocated objects and bytes, and those in use.

    `fresh` takes the sums that Go does not publish yet, as far as they are known. The label says
    the size of the objects, as in Go's own. Raises GoTableError.
    """
    # Stacks that differ in the runtime's innermost calls look the same without them.
    sums: dict[tuple[tuple[Location, ...], tuple[Label, ...]], list[int]] = {}
    stacks.look_up(counts.stacks)
    allocs, kept, freed = counts.allocs, counts.allocs, counts.frees
    if fresh:
        allocs = counts.new_allocs
        if counts.swept_allocs is not None and counts.swept_frees is not None:
            kept, freed = counts.swept_allocs, counts.swept_frees
    rows = zip(
        *(counts.stacks, counts.sizes.tolist(), allocs.tolist(), (kept - freed).tolist()),
        strict=True,
    )
    for stack, size, allocated, in_use in rows:
        values = (*scaled(allocated, size, counts.rate), *scaled(in_use, size, counts.rate))
        labels: tuple[Label, ...] = (Label(_BYTES, size),) if size and allocated else ()
        if not any(values):  # all that Go will publish of it lies ahead
            continue
        total = sums.setdefault((stacks.of(stack), labels), [0, 0, 0, 0])
        for index, value in enumerate(values):
            total[index] += value
    for (shown, labels), total in sums.items():
        yield Sample(shown, tuple(total), labels)


def remarks(counts: HeapCounts, *, fresh: bool) -> list[str]:
    """Of which moment the samples are, and how they were sampled, a sentence each."""
    lines = [f"sampled by the program itself: one allocation per {counts.rate} bytes on average"]
    if not counts.is_collected:
        return [*lines, NOTHING_COLLECTED]
    if fresh:
        until = "the latest collection"
        if counts.swept_allocs is None:
            until = "the one before the latest collection, which is not swept yet"
        lines.append(f"allocations until now; memory in use as of {until}")
    else:
        lines.append(f"as Go publishes it after {counts.cycle} garbage collections")
    if counts.is_torn:
        lines.append("some counts changed at each attempt to read them: they may be wrong")
    if counts.first_cycle != counts.cycle:
        lines.append(
            "collections came too fast to read everything within one: values are as of collection "
            f"{counts.first_cycle} to {counts.cycle}"
        )
    return lines
