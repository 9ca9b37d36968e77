"""The rows of the profiles of waits, from one wait in eight and from goroutine samples.

Counts are those of one wait in eight, and those of the waits that two goroutine samples saw, which
it leaves out. So are delays, with three exceptions, for which all of the delay comes from samples:

- Short waits. A trap where a wait begins and one where it ends make it longer. Half of what a trap
  costs lies between the two clock readings; we subtract it. That is a constant, and what is left is
  an error: below 20 us it may be more than the wait.
- Waits of a recording with pauses: probes slow down the program between them, and of a wait that
  began before a window only the end is seen.
- Waits of which the probes recorded none: after a burst there may be no window for seconds. Then
  the count is that of the waits in samples, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.waits.alternation import alternation_variances
from ebpfprof.profilers.waits.coverage import Deviation
from ebpfprof.profilers.waits.locks import lock_use
from ebpfprof.profilers.waits.long_waits import SampledStack, StackKey
from ebpfprof.profilers.waits.pairs import pairs_of
from ebpfprof.profilers.waits.releases import releases
from ebpfprof.profilers.waits.rows import KnownStack, StackSums, StackTotal
from ebpfprof.profilers.waits.sampled_sums import (
    BlockEstimate,
    SampledSums,
    StackEstimate,
    row_of,
)
from ebpfprof.profilers.waits.stack_table import OTHER_LOCKS
from ebpfprof.profilers.waits.tracking import PART_WITHIN
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.waits.wait_stacks import StackTranslator

StackTest = Callable[[tuple[int, ...]], bool]
"""Tests a stack, by its return addresses."""
_SHORT_NS: Final = 20_000
_LONGER_NS: Final = 2000  # by so much, or so, probes make a wait longer on a busy machine
_LATE_NS: Final = 1_000_000  # samples of a busy machine are that late, or a fifth of it
_DOUBT: Final = 0.5
_ENOUGH_HITS: Final = 25  # for a standard error of a fifth
_FEW_HITS: Final = 4
_SURE: Final = 2  # standard errors
_UNEVEN: Final = (
    4.0  # the mean of squares, by the square of the mean: twice that of exponential waits
)
_LATE_WAKE_NS: Final = 500  # by so much, or so, the trap at the wake makes waits for locks longer
_MUCH_LESS: Final = 0.7  # of the time: on a busy machine samples see a fifth too little
_CUT_OFF: Final = 0.1  # of the waits of a stack that end in windows
_END: Final = "runtime.goexit"
_NO_WAITS: Final = SampledStack()


@dataclass(slots=True)
class WaitEstimates:
    """The estimated sums of one target.

    `rows` are those of stacks; `deviations` those of each kind. `uncharged_ns` is the waiting for
    locks whose release is not known.
    """

    rows: list[StackTotal]
    deviations: dict[str, Deviation]
    uncharged_ns: float


def estimates(
    sums: SampledSums,
    waits: Mapping[StackKey, SampledStack],
    is_lock: StackTest,
    is_runtime_lock: StackTest,
    group_of: Callable[[tuple[int, ...]], int],
    *,
    hit_ns: float,
) -> WaitEstimates:
    """The rows of one target.

    `waits` are what samples saw, `hit_ns` is what a probe hit costs. `is_lock` tells whether a
    stack waits for a lock whose release the mutex profile shows, `is_runtime_lock` whether it
    releases one of the runtime's own, `group_of` is that of alternation_variances().
    """
    block = _block(sums, waits, alternation_variances(sums, group_of), hit_ns)
    mutex = releases(
        sums, [estimate for estimate in block if is_lock(estimate.row.return_pcs)], is_runtime_lock
    )
    rows = {
        "block": [estimate.row for estimate in block],
        "mutex": mutex,
        "wakers": pairs_of(block, sums.stacks(["wakers"])),
        "runqueue": [row for estimate in block if (row := _runnable(estimate))],
    }
    return WaitEstimates(
        [row for found in rows.values() for row in found],
        {kind: _deviation(sums, kind, found) for kind, found in rows.items() if found},
        sum(row.delay_ns for row in mutex if not row.return_pcs),
    )


def _deviation(sums: SampledSums, kind: str, rows: Sequence[StackTotal]) -> Deviation:
    # What windows have of all stacks together varies less than that of each. That does not hold for
    # stacks whose count comes from samples.
    of_rows = {
        (row.sema, row.return_pcs, row.labels, row.waker): row.count_variance for row in rows
    }
    of_stacks = [
        variance
        for stack in {**sums.eighth, **sums.windowed}
        if stack.kind == kind
        for variance in [sums.window_variances(stack)[0]]
        if variance <= of_rows.get((stack.sema, stack.return_pcs, stack.labels, stack.waker), -1.0)
    ]
    variance = sum(of_rows.values())
    if of_stacks:
        variance += sums.window_variances(kind)[0] - sum(of_stacks)
    return Deviation(
        sum(row.count for row in rows),
        sum(row.delay_ns for row in rows),
        max(0.0, variance),
        sum(row.delay_variance for row in rows),
    )


def _block(
    sums: SampledSums,
    waits: Mapping[StackKey, SampledStack],
    alternation: Mapping[KnownStack, float],
    hit_ns: float,
) -> list[BlockEstimate]:
    stacks = sums.stacks(["block"])
    left = _by_known_locks(waits, stacks)
    found = []
    for stack, estimate in stacks.items():
        seen = left.pop((stack.sema, stack.return_pcs, stack.labels), _NO_WAITS).as_uncertain()
        turns = _bounded_by_samples(alternation.get(stack, 0.0), estimate, seen)
        if not sums.windows:  # else _correction() does it
            turns += _tracked_too_often(estimate, seen)
        estimate = _with_alternation(estimate, turns)
        correction, variance = _correction(sums, stack, estimate, seen)
        mean_ns = estimate.sampled.delay_ns / max(1.0, estimate.sampled.count)
        estimate = estimate._replace(
            sampled=replace(estimate.sampled, count=correction * estimate.sampled.count),
            count_variance=variance,
        )
        row = _block_row(sums, stack, estimate, seen, mean_ns, hit_ns)
        seen_sums = sums.seen(stack)
        found.append(BlockEstimate(row, estimate.every, seen_sums, correction, seen.lengths))
    for (sema, return_pcs, labels), sampled in left.items():
        seen = sampled.as_uncertain()
        if seen.long or seen.hits >= _ENOUGH_HITS:
            stack = KnownStack(0, "block", sema, return_pcs, labels)
            estimate = StackEstimate(StackSums(), StackSums(), 0.0, 0.0)
            row = _unprobed_row(stack, estimate, seen)
            found.append(BlockEstimate(row, StackSums(), StackSums(), long=seen.lengths))
    return [estimate for estimate in found if estimate.row.count > 0 or estimate.row.delay_ns > 0]


def _bounded_by_samples(variance: float, estimate: StackEstimate, seen: SampledStack) -> float:
    """The variance of a count by alternation, if samples don't show that it is less.

    Turns look like phases: a goroutine that waits at one stack first, and later at another one. But
    where a stack was tracked too often, its delay is longer than the time that samples saw.
    """
    short = estimate.sampled
    is_short = short.delay_ns < _SHORT_NS * short.count
    if is_short or seen.hits < _ENOUGH_HITS or min(short.delay_ns, seen.ns) <= 0:
        return variance
    waited_ns = seen.ns - seen.long_ns
    apart = (waited_ns / short.delay_ns - 1) ** 2 + seen.variance / seen.ns**2
    return min(variance, short.count**2 * apart)


def _tracked_too_often(estimate: StackEstimate, seen: SampledStack) -> float:
    """The variance of a count of waits in turns with others that were never tracked.

    Nothing else shows these: a goroutine that waits at A, B, A, B and is tracked at A alone. But
    then samples saw it wait at A for half of the time only.
    """
    short = estimate.sampled
    is_short = short.delay_ns < _SHORT_NS * short.count
    if is_short or seen.ended - seen.long < _FEW_HITS or seen.hits <= 0:
        return 0.0
    waited_ns, each_ns = seen.ns - seen.long_ns, seen.ns / seen.hits
    error_ns = math.sqrt(seen.variance + each_ns**2 + estimate.delay_variance)
    if waited_ns + _SURE * error_ns > short.delay_ns or waited_ns > _MUCH_LESS * short.delay_ns:
        return 0.0
    return (short.count * (1 - waited_ns / short.delay_ns)) ** 2


def _with_alternation(estimate: StackEstimate, variance: float) -> StackEstimate:
    """The estimate with a larger variance of the count, which is one of the delay, too."""
    sampled = estimate.sampled
    mean_ns = sampled.delay_ns / sampled.count if sampled.count > 0 else 0.0
    return estimate._replace(
        count_variance=estimate.count_variance + variance,
        delay_variance=estimate.delay_variance + mean_ns**2 * variance,
    )


def _correction(
    sums: SampledSums, stack: KnownStack, estimate: StackEstimate, seen: SampledStack
) -> tuple[float, float]:
    """How many waits there were for one that the runs of goroutines make expect; the variance.

    Goroutines run for other reasons, too: the network, preemption. With probes a server may have
    fewer of these runs for a wait. So what windows have is too much by as much as most of the runs
    are not after waits. Samples know the time of all waits, and probes that of one, if it is not
    short. If that has the smaller error, it is the middle of both, with half of their difference as
    an error: the waits of a few windows may be longer than others, and samples of a busy machine
    come late.
    """
    short, by_runs = estimate.sampled, estimate.count_variance
    if not sums.windows or short.count <= 0:
        return 1.0, by_runs
    by_runs += (_DOUBT * (1 - sums.waits_per_run) * short.count) ** 2
    waited_ns, mean_ns = seen.ns - seen.long_ns, short.delay_ns / short.count
    if seen.hits >= _ENOUGH_HITS and waited_ns > 0 and mean_ns >= _SHORT_NS / 2:
        count = waited_ns / mean_ns
        of_mean = (_LONGER_NS / mean_ns) ** 2 + 2 / max(1.0, sums.seen(stack).parks)
        relative = seen.variance / waited_ns**2 + of_mean
        if relative < by_runs / short.count**2:
            variance = relative * count**2
            count, apart = _middle(count, short.count)
            return count / short.count, variance + apart
    return 1.0, by_runs


def _middle(one: float, other: float) -> tuple[float, float]:
    """The middle of two estimates, and the variance by which they are apart."""
    return (one + other) / 2, ((one - other) / 2) ** 2


def _block_row(
    sums: SampledSums,
    stack: KnownStack,
    estimate: StackEstimate,
    seen: SampledStack,
    mean_ns: float,
    hit_ns: float,
) -> StackTotal:
    row = row_of(stack, estimate)
    short = estimate.sampled
    if not short.parks and not short.unknown:
        return _unprobed_row(stack, estimate, seen)
    row.lengths = _lengths(estimate, sums.seen(stack), seen)
    cut_off = _cut_off(sums, short, seen)
    count = short.count + cut_off
    row.count += cut_off + seen.long
    within_ns = min(PART_WITHIN * hit_ns * TRACKING_PERIOD * short.probed, short.delay_ns / 2)
    stamped = TRACKING_PERIOD * (short.parks - short.probed)
    row.delay_variance += within_ns**2 + (_LATE_WAKE_NS * stamped) ** 2 + seen.long_variance
    is_short = short.probed > 0 and short.delay_ns < _SHORT_NS * short.count
    is_cut_off = cut_off > _CUT_OFF * count
    is_known = seen.hits >= _ENOUGH_HITS
    is_better = sums.has_pauses and _is_smaller(
        (seen.ns, seen.variance), (row.delay_ns, row.delay_variance)
    )
    if is_cut_off or is_better or (is_known and (is_short or sums.has_pauses)):
        row.delay_ns = round(estimate.every.delay_ns + seen.ns)
        row.delay_variance = seen.variance
        if not is_cut_off and _SHORT_NS < mean_ns < _LATE_NS:  # as in _correction()
            delay_ns, apart = _middle(seen.ns, count * mean_ns + seen.long_ns)
            row.delay_ns = round(estimate.every.delay_ns + delay_ns)
            row.delay_variance += apart
    else:
        whole = count / short.count if short.count > 0 else 1.0
        delay_ns = whole * (short.delay_ns - within_ns)
        if _is_tail_missing(delay_ns, seen):
            delay_ns = seen.ns - seen.long_ns
            row.delay_variance += seen.variance
        elif _is_uneven(short) and not is_known:
            row.delay_variance += max(0.0, seen.ns - seen.long_ns - delay_ns) ** 2
        row.delay_ns = round(estimate.every.delay_ns + delay_ns + seen.long_ns)
    return row


def _is_smaller(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Whether the error of a value is the smaller part of it; they are pairs of value and variance.

    The smaller error in ns would be that of the smaller value, which may be too small.
    """
    return one[0] > 0 and one[1] * other[0] ** 2 < other[1] * one[0] ** 2


def _lengths(estimate: StackEstimate, parks: StackSums, seen: SampledStack) -> WaitHistogram:
    """How long the waits of a stack were; those of unknown length are left out.

    A window cut these off, or they are events of several parks: each park is only a part of such a
    wait. `parks` are those that were recorded.
    """
    whole = 1.0
    if parks.again and parks.runs:
        part = parks.again / parks.runs
        whole = max(0.0, 1 - 2 * part) / (1 - part) if part < 1 else 0.0
    short = estimate.sampled.lengths.scaled_to(whole * estimate.sampled.count)
    return estimate.every.lengths + short + seen.lengths


def _is_uneven(short: StackSums) -> bool:
    """Whether waits differ so much that a few long ones may have much of the delay."""
    tracked_ns = short.delay_ns / TRACKING_PERIOD
    return short.squares * short.parks > _UNEVEN * tracked_ns**2


def _is_tail_missing(delay_ns: float, seen: SampledStack) -> bool:
    """Whether samples saw so many more waits than their delay makes expect that it is not chance.

    Some waits of milliseconds among many of microseconds have much of the delay. If none of these
    was tracked, the tracked ones look alike, and their variance is too small. Samples see them.
    Samples that see less say nothing: on a busy machine they come late.
    """
    if seen.ns <= 0:
        return False
    expected = seen.hits * delay_ns / seen.ns
    return seen.ended - seen.long > expected + _SURE * math.sqrt(expected) + 1


def _runnable(block: BlockEstimate) -> StackTotal | None:
    """How long goroutines were in the run queue after the waits of a stack, if some were seen."""
    row, seen = block.row, block.seen
    if not seen.runs:
        return None
    repeated = seen.runs / max(1.0, seen.runs - seen.again)  # a wake for each park
    wakes, variance = row.count * repeated, row.count_variance * repeated**2
    delay_ns = wakes * seen.runnable_ns / seen.runs
    # Times in a queue vary as much as they are, or so.
    relative = 2 / seen.runs + variance / max(wakes, 1.0) ** 2
    return replace(
        row,
        kind="runqueue",
        count=wakes,
        delay_ns=round(delay_ns),
        delay_variance=delay_ns**2 * relative,
        count_variance=variance,
        lengths=seen.runnable_lengths.standing_for(wakes),
    )


def _unprobed_row(stack: KnownStack, estimate: StackEstimate, seen: SampledStack) -> StackTotal:
    """The row of waits of which the probes recorded none, but perhaps before the first pause.

    How many of the short ones no sample saw is not known.
    """
    row, every, before = row_of(stack, estimate), estimate.every, estimate.sampled
    row.lengths = _lengths(estimate, StackSums(), seen)
    count = max(before.count, seen.ended, seen.long)
    row.count = every.count + count
    short = count - seen.long
    row.count_variance = max((count if short >= seen.long else short) ** 2, estimate.count_variance)
    if every.delay_ns > 0:  # as many as fit into the time that samples saw
        fit = (seen.ns - seen.long_ns) * every.count / every.delay_ns
        row.count_variance += max(0.0, fit - count) ** 2
    of_samples, is_known = seen.variance, seen.hits >= _ENOUGH_HITS
    if not is_known:  # of few, the variance is not known either: one hit more or less
        of_samples += (seen.ns / max(1, seen.hits)) ** 2
    is_better = not estimate.delay_variance or _is_smaller(
        (seen.ns, of_samples), (before.delay_ns, estimate.delay_variance)
    )
    if is_known or (seen.ns > 0 and is_better):
        row.delay_ns, row.delay_variance = round(every.delay_ns + seen.ns), of_samples
    else:
        row.delay_ns = round(every.delay_ns + max(before.delay_ns, seen.long_ns))
        row.delay_variance += seen.long_variance
    return row


def _cut_off(sums: SampledSums, short: StackSums, seen: SampledStack) -> float:
    """The number of waits that began before a window and ended in it, without the long ones.

    Long ones are counted by samples. Others can't be more than there is time for: each lasted for
    half a window, on average.
    """
    if not sums.windows:
        return 0.0
    most = max(0.0, seen.ns - seen.long_ns) / (sums.windows_ns / sums.windows / 2)
    return min(most, max(0.0, TRACKING_PERIOD * short.unknown - seen.long))


def _by_known_locks(
    waits: Mapping[StackKey, SampledStack], stacks: Mapping[KnownStack, StackEstimate]
) -> dict[StackKey, SampledStack]:
    """What samples saw, with those locks as OTHER_LOCKS that the kernel adds up."""
    known = {(stack.sema, stack.return_pcs, stack.labels) for stack in stacks}
    found: dict[StackKey, SampledStack] = {}
    for key, estimate in waits.items():
        others = (OTHER_LOCKS, *key[1:])
        place = others if key not in known and others in known else key
        found.setdefault(place, SampledStack()).add(estimate)
    return found


def facts_of_stacks(
    go: GoTarget, translator: StackTranslator
) -> tuple[StackTest, StackTest, Callable[[tuple[int, ...]], int]]:
    """What estimates() must know of the stacks of a target: is_lock, is_runtime_lock, group_of."""

    def is_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):
            return lock_use(translator, return_pcs) is not None
        return False

    def is_runtime_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):
            has_leaf = go.runtime_locks and bool(return_pcs)
            leaf = translator.frames(return_pcs)[0].function if has_leaf else ""
            return leaf.startswith("runtime.unlock")
        return False

    def group_of(return_pcs: tuple[int, ...]) -> int:
        for return_pc in return_pcs[::-1]:
            function = go.binary.function_at(return_pc - 1 - go.load_bias)
            if function is not None and function.name != _END:
                return function.entry
        return 0

    return is_lock, is_runtime_lock, group_of
