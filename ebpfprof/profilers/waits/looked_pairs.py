"""Who woke whom, while probes are not attached all the time: looks tell how long, windows who.

Looks know how long goroutines waited with a stack (looked_delays), but not what woke them. So what
the block profile has of a stack beyond the times in which every event was recorded is split as
windows have seen it: counts by their counts, delays by their delays. All pairs of a stack make up
what the block profile says of it. Where no window saw a wake of the stack, its waker is not known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ebpfprof.profile.model import Label
from ebpfprof.profilers.waits.rows import NO_WAKER, KnownStack, StackTotal, Waker

_Key = tuple[int, tuple[int, ...], tuple[Label, ...]]
_NONE: Final = 0.0, 0.0


@dataclass(slots=True)
class _Pairs:
    """The pairs of one stack that waited, with their exact counts and delays (ns)."""

    totals: list[StackTotal] = field(default_factory=list)
    exact: list[tuple[float, float]] = field(default_factory=list)


def pairs_of(
    block: Sequence[StackTotal],
    totals: Sequence[StackTotal],
    exact: Mapping[KnownStack, tuple[float, float]],
    factor: float,
) -> list[StackTotal]:
    """The pairs of the stacks of the estimated block profile `block`.

    `totals` are the sums of windows, those of pairs among them; `exact` those of the times in which
    every event was recorded. `factor` is that of the variances of windows (Coverage.factor).
    """
    known: dict[tuple[_Key, Waker | None], tuple[float, float]] = {
        (_key_of(stack), stack.waker): sums
        for stack, sums in exact.items()
        if stack.kind == "wakers"
    }
    by_stack = defaultdict[_Key, _Pairs](_Pairs)
    for total in totals:
        if total.kind == "wakers":
            pairs = by_stack[_key_of(total)]
            pairs.totals.append(total)
            pairs.exact.append(known.get((_key_of(total), total.waker), _NONE))
    found = []
    for stack in block:
        found += _split(stack, by_stack.get(_key_of(stack), _Pairs()), factor)
    return found


def _split(stack: StackTotal, pairs: _Pairs, factor: float) -> list[StackTotal]:
    """The pairs of one stack."""
    more = [
        (max(0.0, total.count - count), max(0.0, total.delay_ns - ns))
        for total, (count, ns) in zip(pairs.totals, pairs.exact, strict=True)
    ]
    rest = max(0.0, stack.count - sum(count for count, _ in pairs.exact))
    rest_ns = max(0.0, stack.delay_ns - sum(ns for _, ns in pairs.exact))
    seen, seen_ns = sum(count for count, _ in more), sum(ns for _, ns in more)
    found = []
    rows = zip(pairs.totals, pairs.exact, more, strict=True)
    for total, (count, ns), (more_count, more_ns) in rows:
        part_ns = rest_ns * more_ns / seen_ns if seen_ns else 0.0
        count += rest * more_count / seen if seen else 0.0
        relative = stack.delay_variance / rest_ns**2 if rest_ns else 0.0
        own = factor * total.delay_variance / more_ns**2 if more_ns else 0.0
        delay_ns, variance = round(ns + part_ns), part_ns**2 * (relative + own)
        found.append(replace(total, count=count, delay_ns=delay_ns, delay_variance=variance))
    unknown, unknown_ns = (0.0 if seen else rest), (0.0 if seen_ns else rest_ns)
    if unknown >= 1 or unknown_ns >= 1:
        variance = stack.delay_variance if unknown_ns else 0.0
        pair = replace(stack, kind="wakers", waker=NO_WAKER, delay_variance=variance)
        found.append(replace(pair, count=unknown, delay_ns=round(unknown_ns)))
    return found


def _key_of(stack: KnownStack | StackTotal) -> _Key:
    return stack.sema, stack.return_pcs, stack.labels
