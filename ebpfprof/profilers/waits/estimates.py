"""The rows of the profiles of waits, from one wait in eight and from goroutine samples.

Counts are those of one wait in eight, and those of the waits that two goroutine samples saw, which
it leaves out. Delays of the others are from both, probes and samples, each with the weight of its
precision. There are three exceptions, for which all of the delay comes from samples:

- Of a wait that began before a window only the end is seen, so the delay of a stack with many of
  these is unknown to probes.
- Of many short waits and a few long ones, perhaps no long one was recorded.
- After a burst there may be no window for seconds. Then the count is that of the waits in samples,
  too.

A trap where a wait begins and one where it ends make it longer. Half of what a trap costs lies
between the two clock readings; we subtract it. That is a constant, and what is left is an error:
below some microseconds it may be more than the wait.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

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

_SHORT_NS: Final = 20_000
_LONGER_NS: Final = 2000  # by so much, or so, probes make a wait longer on a busy machine
_DOUBT: Final = 0.5
_ENOUGH_HITS: Final = 25  # for a standard error of a fifth
_FEW_HITS: Final = 4
_SURE: Final = 2  # standard errors
_DELAYED_NS: Final = 1000  # by so much, or so, traps make a wait longer: on a quiet machine half
_LATE: Final = 0.1  # of the time: by so much, or so, samples see too little, if they come late
_LATE_NS: Final = 1_000_000  # as on a busy machine; of waits that are longer it is less
_DISTURBED: Final = 0.5  # of the time, at most
_DISTURBED_NS: Final = 100_000  # a sample takes a processor for about so long
_LATE_WAKE_NS: Final = 700  # by so much, or so, the trap at the wake makes waits for locks longer
_MUCH_LESS: Final = 0.7  # of the time: on a busy machine samples see a fifth too little
_CUT_OFF: Final = 0.1  # of the waits of a stack that end in windows
_PARKING: Final = 4  # functions, at most, between semacquire1 and the park
_END: Final = "runtime.goexit"
_NO_WAITS: Final = SampledStack()


class StackFacts(NamedTuple):
    """What is known of a stack, by its return addresses.

    `is_lock` tells whether it waits for a lock whose release the mutex profile shows,
    `is_semaphore` whether a park may be followed by another one of the same event,
    `is_runtime_lock` whether it releases one of the runtime's own, `group_of` is that of
    alternation_variances().
    """

    is_lock: Callable[[tuple[int, ...]], bool]
    is_semaphore: Callable[[tuple[int, ...]], bool]
    is_runtime_lock: Callable[[tuple[int, ...]], bool]
    group_of: Callable[[tuple[int, ...]], int]


class _Value(NamedTuple):
    """An estimate and its variance."""

    value: float
    variance: float


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
    facts: StackFacts,
    *,
    hit_ns: float,
) -> WaitEstimates:
    """The rows of one target.

    `waits` are what samples saw, `hit_ns` is what a probe hit costs.
    """
    block = _block(sums, waits, facts, hit_ns)
    of_locks = [estimate for estimate in block if facts.is_lock(estimate.row.return_pcs)]
    mutex = releases(sums, of_locks, facts.is_runtime_lock)
    rows = {
        "block": [estimate.row for estimate in block],
        "mutex": mutex,
        "wakers": pairs_of(block, sums.stacks(["wakers"])),
        "runqueue": [row for estimate in block if (row := _runnable(estimate))],
    }
    return WaitEstimates(
        [row for of_kind in rows.values() for row in of_kind],
        {kind: _deviation(sums, kind, of_kind) for kind, of_kind in rows.items() if of_kind},
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
    facts: StackFacts,
    hit_ns: float,
) -> list[BlockEstimate]:
    stacks = sums.stacks(["block"])
    alternation = alternation_variances(sums, facts.group_of)
    left = _by_known_locks(waits, stacks)
    blocks = []
    for stack, estimate in stacks.items():
        seen = left.pop((stack.sema, stack.return_pcs, stack.labels), _NO_WAITS).as_uncertain()
        turns = _bounded_by_samples(alternation.get(stack, 0.0), estimate, seen)
        if not sums.windows:  # else _correction() does it
            turns += _tracked_too_often(estimate, seen)
        if facts.is_semaphore(stack.return_pcs) and not sums.seen(stack).runs:
            # Nothing shows how many of the parks were events.
            turns += estimate.sampled.count**2
        estimate = _with_more_variance(estimate, turns)
        correction, variance = _correction(sums, stack, estimate, seen)
        estimate = estimate._replace(
            sampled=replace(estimate.sampled, count=correction * estimate.sampled.count),
            count_variance=variance,
        )
        row = _block_row(sums, stack, estimate, seen, hit_ns)
        seen_sums = sums.seen(stack)
        blocks.append(BlockEstimate(row, estimate.every, seen_sums, correction, seen.lengths))
    for (sema, return_pcs, labels), sampled in left.items():
        seen = sampled.as_uncertain()
        if seen.long or seen.hits >= _ENOUGH_HITS:
            stack = KnownStack(0, "block", sema, return_pcs, labels)
            estimate = StackEstimate(StackSums(), StackSums(), 0.0, 0.0)
            row = _unprobed_row(stack, estimate, seen)
            blocks.append(BlockEstimate(row, StackSums(), StackSums(), long=seen.lengths))
    return [estimate for estimate in blocks if estimate.row.count > 0 or estimate.row.delay_ns > 0]


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
    if waited_ns + _SURE * error_ns >= short.delay_ns or waited_ns > _MUCH_LESS * short.delay_ns:
        return 0.0
    return (short.count * (1 - waited_ns / short.delay_ns)) ** 2


def _with_more_variance(estimate: StackEstimate, variance: float) -> StackEstimate:
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
    short. Both together count.
    """
    short, by_runs = estimate.sampled, estimate.count_variance
    if not sums.windows or short.count <= 0:
        return 1.0, by_runs
    by_runs += (_DOUBT * (1 - sums.waits_per_run) * short.count) ** 2
    cut_off = _cut_off(sums, short, seen)
    waited_ns, mean = seen.ns - seen.long_ns, _mean_wait(short, sums.seen(stack).parks, cut_off)
    if seen.hits >= _ENOUGH_HITS and waited_ns > 0 and mean.value >= _SHORT_NS / 2:
        count = waited_ns / mean.value * short.count / (short.count + cut_off)
        longer = (_LONGER_NS / mean.value) ** 2 + _disturbance(mean.value) ** 2
        variance = (seen.variance / waited_ns**2 + longer) * count**2
        # A mean that is too long, as one of few waits lasted for long by chance, makes the count
        # too small, but not more precise.
        variance += mean.variance / mean.value**2 * max(count, short.count) ** 2
        of_samples = _Value(count, variance)
        count, by_runs = _combined(_Value(short.count, by_runs), of_samples)
        return count / short.count, by_runs
    return 1.0, by_runs


def _mean_wait(short: StackSums, parks: float, cut_off: float) -> _Value:
    """How long the waits of a stack were, those that a window cut off included, in ns.

    `parks` were recorded. Of those cut off only the end was seen. A wait that a random moment cuts
    is longer than others: by how much, the lengths of the others say. What that adds is taken to be
    wrong by as much.
    """
    delay_ns = short.delay_ns
    of_cut_ns = cut_off * TRACKING_PERIOD * short.squares / delay_ns if delay_ns > 0 else 0.0
    mean_ns = (delay_ns + of_cut_ns) / (short.count + cut_off)
    of_squares = TRACKING_PERIOD * short.squares / max(1.0, short.count)
    varies = max(of_squares - (delay_ns / short.count) ** 2, 2 * mean_ns**2)
    return _Value(mean_ns, varies / max(1.0, parks) + (of_cut_ns / (short.count + cut_off)) ** 2)


def _block_row(
    sums: SampledSums,
    stack: KnownStack,
    estimate: StackEstimate,
    seen: SampledStack,
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
    whole = count / short.count if short.count > 0 else 1.0
    by_probes_ns = whole * (short.delay_ns - within_ns)
    by_probes = _Value(
        by_probes_ns,
        row.delay_variance
        + (_DELAYED_NS * TRACKING_PERIOD * short.probed) ** 2
        + (_LATE_WAKE_NS * stamped) ** 2
        + ((1 - 1 / sums.slowdown) * by_probes_ns) ** 2,
    )
    short_ns = seen.ns - seen.long_ns
    mean_ns = short.delay_ns / max(short.count, 1.0)
    late, disturbed = _LATE / max(1.0, mean_ns / _LATE_NS), _disturbance(mean_ns)
    of_times = (late * short_ns) ** 2 + (disturbed * by_probes.value / sums.slowdown) ** 2
    by_samples = _Value(short_ns, seen.variance - seen.long_variance + of_times)
    is_missing = _is_tail_missing((1 + disturbed) * by_probes.value, seen)
    if cut_off > _CUT_OFF * count or is_missing:
        delay = by_samples
    else:
        delay = _combined(by_probes, by_samples) if seen.ended > seen.long else by_probes
    row.delay_ns = round(estimate.every.delay_ns + delay.value + seen.long_ns)
    row.delay_variance = delay.variance + seen.long_variance
    return row


def _disturbance(mean_ns: float) -> float:
    """By what part of it, or so, samples see too much of the time of waits that are so long.

    While a sample is taken, the threads of the program have a processor less. What a goroutine
    waits for comes later then, so it is seen waiting more often.
    """
    return _DISTURBED * min(1.0, _DISTURBED_NS / max(1.0, mean_ns))


def _combined(one: _Value, other: _Value) -> _Value:
    """Both together, each with the weight of its precision.

    Where they are further apart than their errors explain, something else is wrong with one of
    them, and both errors are widened by as much (DerSimonian and Laird's estimate).
    """
    apart = (one.value - other.value) ** 2
    between = max(0.0, (apart - one.variance - other.variance) / 2)
    weights = [
        estimate.variance + between for estimate in (other, one)
    ]  # the precision is the inverse
    if not (total := sum(weights)):
        return one
    value = (one.value * weights[0] + other.value * weights[1]) / total
    return _Value(value, weights[0] * weights[1] / total)


def _is_better(one: _Value, other: _Value) -> bool:
    """Whether the error is a smaller part of the value.

    The smaller error in ns would be that of the smaller value, which may be too small.
    """
    return one.value > 0 and one.variance * other.value**2 < other.variance * one.value**2


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
    is_better = not estimate.delay_variance or _is_better(
        _Value(seen.ns, of_samples), _Value(before.delay_ns, estimate.delay_variance)
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
    by_place: dict[StackKey, SampledStack] = {}
    for key, estimate in waits.items():
        others = (OTHER_LOCKS, *key[1:])
        place = others if key not in known and others in known else key
        by_place.setdefault(place, SampledStack()).add(estimate)
    return by_place


def facts_of_stacks(go: GoTarget, translator: StackTranslator) -> StackFacts:
    """What estimates() must know of the stacks of a target."""
    parks = {park.return_pc + go.load_bias for park in go.sites.parks if park.is_semaphore}

    def is_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):  # no name, no known lock
            return lock_use(translator, return_pcs) is not None
        return False

    def is_semaphore(return_pcs: tuple[int, ...]) -> bool:
        return not parks.isdisjoint(return_pcs[:_PARKING])

    def is_runtime_lock(return_pcs: tuple[int, ...]) -> bool:
        with suppress(SymbolizerError):  # no name, no known lock
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

    return StackFacts(is_lock, is_semaphore, is_runtime_lock, group_of)
