"""The releases of locks, which make up what goroutines waited for each lock.

The kernel charges a release with an eighth of what it made others wait, on average
(bpf/waits/one_in_eight.h). That gives the proportions. How much there is to charge the block
profile knows better, which has each long wait.

Of windows, two parts are charged to none. A window does not know which release ended the waits that
went on at its end, nor what made those wait before that were there at its begin. And where samples
saw much more waiting than windows stand for, releases of another kind were between them.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.rows import KnownStack, StackTotal
from ebpfprof.profilers.waits.sampled_sums import (
    BlockEstimate,
    SampledSums,
    StackEstimate,
    row_of,
)
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

# Of n releases one in eight is recorded, and what they are charged varies as much as it is.
_RELATIVE: Final = 2 * (TRACKING_PERIOD - 1)
_SURE: Final = 2  # standard errors
_WITH_OTHERS: Final = 2  # releases with other waiters, by the part of the delay without a length

_Releases = dict[KnownStack, StackEstimate]


def releases(
    sums: SampledSums,
    locks: Sequence[BlockEstimate],
    is_runtime_lock: Callable[[tuple[int, ...]], bool],
) -> list[StackTotal]:
    """The rows of the mutex profile; `locks` are those of waits for locks.

    What no recorded release accounts for has no return addresses. `is_runtime_lock` tells whether a
    stack releases one of the runtime's own locks: nothing else is known of the waits for these.
    """

    def is_untracked(stack: KnownStack) -> bool:
        return is_runtime_lock(stack.return_pcs)

    rows, by_lock = [], defaultdict[int, _Releases](dict)
    for stack, estimate in sums.stacks(["mutex"], is_untracked).items():
        if is_untracked(stack):
            rows.append(_of_runtime(row_of(stack, estimate), sums))
        else:
            by_lock[stack.sema][stack] = estimate
    waited = defaultdict[int, list[BlockEstimate]](list)
    for lock in locks:
        waited[lock.row.sema].append(lock)
    uncharged = _uncharged(sums, by_lock.keys() | waited.keys())
    for sema in {**by_lock, **waited}:
        known = by_lock[sema]
        if waited[sema]:
            rows += _of_lock(sema, known, waited[sema], uncharged.get(sema, 0.0), sums.windows)
        else:  # waits are not recorded
            for stack, estimate in known.items():
                row = row_of(stack, estimate)
                row.lengths = _lengths(estimate, estimate.sampled.count)
                rows.append(row)
    return rows


def _of_runtime(row: StackTotal, sums: SampledSums) -> StackTotal:
    """The release of one of the runtime's own locks; how often there was one in pauses is unknown.

    Probes slow a program down, and then threads meet less often at a lock. In one that did little
    but contend for a lock, windows had a ninth of these releases.
    """
    if sums.has_pauses:
        row.count_variance = max(row.count_variance, row.count**2)
        row.delay_variance = max(row.delay_variance, float(row.delay_ns) ** 2)
    return row


def _uncharged(sums: SampledSums, semas: set[int]) -> Mapping[int, float]:
    """By lock, the waiting whose release no window recorded; without --by-lock, of all locks."""
    unknown_ns = defaultdict[int, float](float)
    for sema, ns in sums.uncharged.items():
        others = OTHER_LOCKS if OTHER_LOCKS in semas else 0
        unknown_ns[sema if sema in semas else others] += sums.scale * ns
    return unknown_ns


def _of_lock(
    sema: int,
    known: Mapping[KnownStack, StackEstimate],
    waits: Sequence[BlockEstimate],
    uncharged_ns: float,
    windows: int,
) -> list[StackTotal]:
    charged_ns = sum(release.sampled.delay_ns for release in known.values())
    waited_ns = sum(wait.row.delay_ns - wait.every.delay_ns for wait in waits)
    variance = sum(wait.row.delay_variance for wait in waits)
    seen_ns = waited_ns
    if windows:
        of_windows = variance + sum(release.delay_variance for release in known.values())
        most_ns = charged_ns + uncharged_ns + _SURE * math.sqrt(of_windows)
        seen_ns = min(waited_ns, most_ns)
    known_ns = seen_ns * charged_ns / (charged_ns + uncharged_ns) if charged_ns > 0 else 0.0
    relative = variance / waited_ns**2 if waited_ns > 0 else 0.0
    of_count = _relative_variance_of_count(waits)
    parks = sum(wait.seen.parks for wait in waits)
    correction = sum(wait.correction * wait.seen.parks for wait in waits) / parks if parks else 1.0
    rows = []
    for stack, estimate in known.items():
        row, sampled = row_of(stack, estimate), estimate.sampled
        part_ns = known_ns * sampled.delay_ns / charged_ns if charged_ns > 0 else 0.0
        own = estimate.delay_variance / sampled.delay_ns**2 if sampled.delay_ns > 0 else 0.0
        own += _RELATIVE / max(sampled.count, 1.0)
        row.count += (correction - 1) * sampled.count
        # What makes the counts of waits uncertain does so with those of releases.
        of_sampled = (correction * sampled.count) ** 2 * of_count
        row.count_variance = max(correction**2 * row.count_variance, of_sampled)
        row.delay_ns = round(estimate.every.delay_ns + part_ns)
        row.delay_variance = part_ns**2 * (relative + own)
        row.lengths = _lengths(estimate, correction * sampled.count)
        if charged_ns <= 0:
            row.count, row.lengths = estimate.every.count, estimate.every.lengths
        if row.count > 0 or row.delay_ns > 0:
            rows.append(row)
    if (unknown_ns := round(waited_ns - known_ns)) > 0:
        of_unknown = unknown_ns**2 * relative
        rows.append(StackTotal("mutex", sema, (), 0.0, unknown_ns, (), of_unknown))
    return rows


def _lengths(estimate: StackEstimate, count: float) -> WaitHistogram:
    """How long the delays were that releases of a stack are charged; `count` were sampled.

    Only tracked waiters are in the queue. If there are others, the charge of a release is not
    known, but a part of their delay is charged to releases of untracked waiters, which have no
    length. So the part of the delay without a length shows how often there are others: if there is
    always one, it is nearly a half; with more it is larger. So many releases have no length.
    """
    sampled = estimate.sampled
    if sampled.count <= 0 or sampled.delay_ns <= 0:
        return estimate.every.lengths
    without = max(0.0, 1 - sampled.lengths.time_ns / sampled.delay_ns)
    alone = max(0.0, 1 - _WITH_OTHERS * without)
    known = alone * sampled.lengths.total / sampled.count
    return estimate.every.lengths + sampled.lengths.scaled_to(known * count)


def _relative_variance_of_count(waits: Sequence[BlockEstimate]) -> float:
    """The variance of the number of all sampled waits for a lock, as a part of its square."""
    count = sum(wait.row.count - wait.every.count for wait in waits)
    variance = sum(wait.row.count_variance for wait in waits)
    return variance / count**2 if count > 0 else 0.0
