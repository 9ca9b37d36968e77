"""Who woke whom, while not every wait is recorded: all pairs of a stack make up its row.

The row of a stack in the block profile is partly from goroutine samples, which don't know what
woke a goroutine. So what it has beyond the time in which every wait was recorded is split as the
recorded waits are: counts by their counts, delays by their delays. Where none was recorded, the
waker is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import NO_LENGTHS
from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, StackTotal
from ebpfprof.profilers.waits.sampled_sums import BlockEstimate, StackEstimate, row_of

_Key = tuple[int, tuple[int, ...], tuple[Label, ...]]
_Pairs = dict[KnownStack, StackEstimate]


def pairs_of(
    block: Sequence[BlockEstimate], pairs: Mapping[KnownStack, StackEstimate]
) -> list[StackTotal]:
    """The pairs of the rows of the block profile; none if no pairs were recorded."""
    if not pairs:
        return []
    by_stack = defaultdict[_Key, _Pairs](dict)
    for pair, estimate in pairs.items():
        by_stack[pair.sema, pair.return_pcs, pair.labels][pair] = estimate
    rows = []
    for waits in block:
        key = (waits.row.sema, waits.row.return_pcs, waits.row.labels)
        rows += _split(waits, by_stack[key])
    return rows


def _split(stack: BlockEstimate, pairs: Mapping[KnownStack, StackEstimate]) -> list[StackTotal]:
    row, every = stack.row, stack.every
    rest = max(0.0, row.count - every.count)
    rest_ns = max(0.0, row.delay_ns - every.delay_ns)
    seen = sum(pair.sampled.count for pair in pairs.values())
    seen_ns = sum(pair.sampled.delay_ns for pair in pairs.values())
    others = row.lengths - every.lengths
    short = max(0.0, others.total - stack.long.total)
    relative = row.delay_variance / rest_ns**2 if rest_ns else 0.0
    rows = []
    for stack_and_waker, estimate in pairs.items():
        pair, sampled = row_of(stack_and_waker, estimate), estimate.sampled
        part_ns = rest_ns * sampled.delay_ns / seen_ns if seen_ns else 0.0
        own = estimate.delay_variance / sampled.delay_ns**2 if sampled.delay_ns > 0 else 0.0
        pair.count = estimate.every.count + (rest * sampled.count / seen if seen else 0.0)
        pair.delay_ns = round(estimate.every.delay_ns + part_ns)
        pair.delay_variance = part_ns**2 * (relative + own)
        pair.lengths = estimate.every.lengths
        if seen:
            part = sampled.count / seen
            pair.lengths += sampled.lengths.scaled_to(part * short) + part * stack.long
        rows.append(pair)
    unknown, unknown_ns = (0.0 if seen else rest), (0.0 if seen_ns else rest_ns)
    if unknown >= 1 or unknown_ns >= 1:
        variance = row.delay_variance if unknown_ns else 0.0
        pair = replace(row, kind="wakers", waker=NO_WAKER, delay_variance=variance)
        unknown_ns = round(unknown_ns)
        lengths = others if unknown else NO_LENGTHS
        rows.append(replace(pair, count=unknown, delay_ns=unknown_ns, lengths=lengths))
    return rows
