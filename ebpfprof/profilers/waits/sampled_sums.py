"""The sums of one target of which not every wait is recorded: what each stack stands for.

There are up to three parts, one after the other, and their sums add up:

- every wait was recorded;
- one wait in eight was, all the time: each counts eight times;
- one wait in eight was, in windows. Go's scheduler counts itself how often goroutines ran, in
  windows and between them. If that was X times in all and x times in windows, what windows have
  stands for X / x times as much. So has a time without pauses that came before or after: then
  there is more of which pauses are known. Nothing depends on time, so bursts between windows count,
  and it does not matter how much probes slow a program down.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from ebpfprof.overhead.estimator import student
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.waits.rows import KnownStack, StackSums, StackTotal
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

_NONE: Final = StackSums()
_OTHERS: Final = TRACKING_PERIOD * (TRACKING_PERIOD - 1)
_PRIOR: Final = 2  # differences between windows that the next two numbers count as
_USUAL: Final = 0.115
"""By how much a count of a single window is usually wrong for a pause, as a part of it. In 195
recordings of 15 programs, 95 % of counts were within a half, 1.96 * student(_PRIOR) times this."""
_USUAL_OF_DELAYS: Final = 0.25
_RARE: Final = 2  # more parks: half of 1.96 squared
_UNSURE: Final = 0.2
"""That a park will be repeated is wrong for so many, where it may go either way: semacquire1 looks
for a permit once more when it has the lock of its queue (Go 1.27, runtime/sema.go). RWMutex
readers: in 25 recordings 16 % of the parks seemed to be repeated, 3 % of the events too many."""
_CHANGED: Final = 0.03
"""By such a part, or so, probes where goroutines begin to run change how often they wait then: one
that comes later finds more often that it need not wait."""
_LONG_NS: Final = 60_000_000  # goroutine samples see longer waits
Sums = dict[KnownStack, StackSums]


@dataclass(slots=True)
class _Moments:
    """Of one stack in windows: y is its count or delay in a window, x the times goroutines ran."""

    count: float = 0.0
    count_squares: float = 0.0
    count_runs: float = 0.0
    delay: float = 0.0
    delay_squares: float = 0.0
    delay_runs: float = 0.0

    def add(self, count: float, delay: float, runs: float) -> None:
        self.count += count
        self.count_squares += count * count
        self.count_runs += count * runs
        self.delay += delay
        self.delay_squares += delay * delay
        self.delay_runs += delay * runs


class StackEstimate(NamedTuple):
    """What one stack adds up to.

    `every` are the sums while every wait was recorded. `sampled` are those of one wait in eight,
    for all of its time: what windows have is scaled. `count_variance` and `delay_variance` (ns²)
    are those of the sum of both.
    """

    every: StackSums
    sampled: StackSums
    count_variance: float
    delay_variance: float


class BlockEstimate(NamedTuple):
    """A row of the block profile, and its part from the time when every wait was recorded.

    `seen` has the waits as they were recorded. In windows, there were `correction` times as many as
    the runs of goroutines make expect. `long` has those that only goroutine samples recorded.
    """

    row: StackTotal
    every: StackSums
    seen: StackSums
    correction: float = 1.0
    long: WaitHistogram = NO_LENGTHS


@dataclass(slots=True)
class SampledSums:
    """The sums of one target."""

    every: Sums = field(default_factory=dict)
    eighth: Sums = field(default_factory=dict)
    windowed: Sums = field(default_factory=dict)
    windows: int = 0
    windows_ns: float = 0.0
    runs_in_windows: float = 0.0
    runs: float = 0.0
    """How often goroutines ran in the windows and between them."""
    runs_at_first: float = 0.0
    """How often they ran while every wait was recorded."""
    runs_in_eighth: float = 0.0
    """How often they ran while one wait in eight was recorded, besides windows."""
    at_first_ns: float = 0.0
    """For how long every wait was recorded; 0: not known."""
    pauses_ns: float = 0.0
    """How long the time between windows was."""
    uncharged: dict[int, float] = field(default_factory=dict)
    """By semaphore, the waiting for locks in windows whose release none of them recorded, in ns."""
    _run_squares: float = 0.0
    _moments: dict[KnownStack | str, _Moments] = field(
        default_factory=lambda: defaultdict(_Moments)
    )

    def copied(self) -> SampledSums:
        """The same sums, which later additions don't change."""
        copied = copy.copy(self)
        copied.every, copied.eighth = dict(self.every), dict(self.eighth)
        copied.windowed, copied.uncharged = dict(self.windowed), dict(self.uncharged)
        moments = {of: copy.copy(sums_of_stack) for of, sums_of_stack in self._moments.items()}
        copied._moments = defaultdict(_Moments, moments)
        return copied

    def add_every(self, more: Mapping[KnownStack, StackSums]) -> None:
        """Add the sums of a time in which every wait was recorded."""
        _add(self.every, more)

    def add_eighth(self, more: Mapping[KnownStack, StackSums]) -> None:
        """Add the sums of a time in which one wait in eight was recorded."""
        _add(self.eighth, more)

    @property
    def is_sampled(self) -> bool:
        """Whether there are sums of one wait in eight."""
        return bool(self.eighth or self.windows)

    def add_window(
        self, more: Mapping[KnownStack, StackSums], length_ns: float, runs: float
    ) -> None:
        """Add a window in which goroutines ran so often."""
        self.windows_ns += length_ns
        self.runs += runs
        self.runs_in_windows += runs
        self._run_squares += runs * runs
        self.windows += 1
        _add(self.windowed, more)
        by_kind = defaultdict[str, list[float]](lambda: [0.0, 0.0])
        for stack, sums in more.items():
            count = sums.count + TRACKING_PERIOD * sums.unknown
            self._moments[stack].add(count, sums.delay_ns, runs)
            by_kind[stack.kind][0] += count
            by_kind[stack.kind][1] += sums.delay_ns
        for kind, (count, delay_ns) in by_kind.items():
            self._moments[kind].add(count, delay_ns, runs)

    def add_uncharged(self, waited_ns: Mapping[int, float]) -> None:
        """Add waiting for locks in a window whose release it did not record, by semaphore."""
        for sema, ns in waited_ns.items():
            self.uncharged[sema] = self.uncharged.get(sema, 0.0) + ns

    def add_pause(self, runs: float) -> None:
        """Add a time between windows, in which goroutines ran so often."""
        self.runs += runs

    @property
    def _runs_in_pauses(self) -> float:
        return self.runs - self.runs_in_windows

    @property
    def scale(self) -> float:
        """What a tracked wait stands for, besides the seven others: for those in pauses, too."""
        sampled = self.runs_in_windows + self.runs_in_eighth
        return 1 + self._runs_in_pauses / sampled if sampled > 0 else 0.0

    @property
    def slowdown(self) -> float:
        """How many times as often goroutines ran between windows as in them; at least 1.

        A program that does little but wait is slower with probes, and all of its waits are longer.
        """
        if not (self.pauses_ns and self.windows_ns and self.runs_in_windows):
            return 1.0
        between = self._runs_in_pauses / self.pauses_ns
        return max(1.0, between * self.windows_ns / self.runs_in_windows)

    @property
    def has_pauses(self) -> bool:
        """Whether there were times without any probe."""
        return self.windows > 0 or self.runs > 0

    @property
    def waits_per_run(self) -> float:
        """The part of the runs of goroutines in windows that followed a recorded wait, 0 to 1."""
        if self.runs_in_windows <= 0:
            return 1.0
        waits = sum(
            sums.parks + sums.unknown
            for stack, sums in self.windowed.items()
            if stack.kind == "block"
        )
        return min(1.0, waits / self.runs_in_windows)

    @property
    def _scale_of_first(self) -> float:
        """What a wait of the time at first would stand for in pauses, besides itself."""
        recorded = self.runs_at_first + self.runs_in_eighth
        return self._runs_in_pauses / recorded if recorded > 0 else 0.0

    def _first_in_pauses(self, every: StackSums) -> StackSums:
        """What a stack adds up to in pauses, if it went on as at first.

        Goroutines that ran a thousand times as often, since probes don't delay them any more, did
        not wait for a thousand times as long: they have no more time for it than before.
        """
        more = every.times(self._scale_of_first)
        if not self.at_first_ns:
            return more
        longest_ns = every.delay_ns * self.pauses_ns / self.at_first_ns
        return replace(more, delay_ns=min(more.delay_ns, longest_ns))

    def stacks(
        self,
        kinds: Iterable[str],
        is_untracked: Callable[[KnownStack], bool] = lambda _: False,
    ) -> dict[KnownStack, StackEstimate]:
        """What the stacks of these kinds add up to.

        Of those that are `is_untracked`, not one event in eight was recorded, but every one.
        """
        wanted = set(kinds)
        names = {**self.every, **self.eighth, **self.windowed}  # in an order that repeats
        return {
            stack: self._stack(stack, is_untracked(stack))
            for stack in names
            if stack.kind in wanted
        }

    def seen(self, stack: KnownStack) -> StackSums:
        """The sums of a stack as they were recorded, in all parts."""
        parts = (self.every, self.eighth, self.windowed)
        return sum((part.get(stack, _NONE) for part in parts), _NONE)

    def _stack(self, stack: KnownStack, is_untracked: bool) -> StackEstimate:
        eighth, windowed = self.eighth.get(stack, _NONE), self.windowed.get(stack, _NONE)
        every = self.every.get(stack, _NONE)
        counts, delays = self.window_variances(stack)
        scale = max(1.0, self.scale)
        if is_untracked:
            # For pauses they stand as rare events do, with delays that vary as much as they are.
            counts += scale * (scale - 1) * eighth.count
            delays += scale * (scale - 1) * 2 * eighth.delay_ns**2 / max(1.0, eighth.count)
        else:
            parks = max(eighth.parks, eighth.count / TRACKING_PERIOD)
            more_counts, more_delays = _by_chance(parks, eighth.squares)
            counts += scale**2 * more_counts
            delays += scale**2 * more_delays
        whole, seen = eighth.times(scale) + windowed.times(self.scale), eighth + windowed
        sampled = whole.as_events(seen)
        if seen.again and seen.runs:
            counts, delays = _of_events(counts, delays, whole.parks, seen)
        changed = _CHANGED * min(1.0, seen.runs / max(1.0, seen.parks))
        counts += (changed * sampled.count) ** 2
        delays += (changed * sampled.delay_ns) ** 2
        more = self._first_in_pauses(every)
        if not self.windows and not self.runs_in_eighth:
            sampled += more
        if stack not in self.windowed and stack not in self.eighth:
            # There may have been as many in pauses, or none; or they were not among one in eight.
            counts += more.count**2
            delays += more.delay_ns**2
            if every.count and self.runs_in_eighth and every.delay_ns < _LONG_NS * every.count:
                unseen = scale**2 * _OTHERS * _RARE
                counts += unseen
                delays += unseen * (every.delay_ns / every.count) ** 2
        return StackEstimate(every, sampled, counts, delays)

    def window_variances(self, of: KnownStack | str) -> tuple[float, float]:
        """The variances of the count and of the delay (ns²) because of what was in pauses.

        That of a ratio: how much each window differs from what its runs make expect. The time in
        which one wait in eight was recorded is a window, too. A few windows may be alike by chance,
        and a single one shows nothing. So what is usual is pooled with that.
        """
        recorded, pauses = self.runs_in_windows + self.runs_in_eighth, self._runs_in_pauses
        if recorded <= 0 or not self.has_pauses:
            return 0.0, 0.0
        eighth, windowed = _total(self.eighth, of), _total(self.windowed, of)
        moments = copy.copy(self._moments[of]) if of in self._moments else _Moments()
        moments.add(eighth.count, eighth.delay_ns, self.runs_in_eighth)
        run_squares = self._run_squares + self.runs_in_eighth**2
        worth = recorded**2 / run_squares  # so many of the same size say as much
        left = 1 - self.runs_in_windows / (recorded + pauses) / TRACKING_PERIOD
        parks = windowed.count / TRACKING_PERIOD + windowed.unknown
        freedom = _PRIOR + worth - 1
        variances = []
        of_counts, of_delays = _by_chance(parks, windowed.squares)
        for total, squares, with_runs, by_chance, part in (
            (moments.count, moments.count_squares, moments.count_runs, of_counts, _USUAL),
            (moments.delay, moments.delay_squares, moments.delay_runs, of_delays, _USUAL_OF_DELAYS),
        ):
            rate = total / recorded
            rest = squares - 2 * rate * with_runs + rate * rate * run_squares
            observed = worth * self.scale**2 * max(0.0, rest) * left
            usual = (part * pauses * rate) ** 2 / worth + self.scale**2 * by_chance
            variances.append((_PRIOR * usual + observed) / freedom * student(freedom) ** 2)
        return variances[0], variances[1]


def _total(sums: Sums, of: KnownStack | str) -> StackSums:
    """The sums of a stack; of a kind, those that its variance takes."""
    if not isinstance(of, str):
        return sums.get(of, _NONE)
    of_kind = [sums_of_stack for stack, sums_of_stack in sums.items() if stack.kind == of]
    return StackSums(
        sum(total.count for total in of_kind),
        sum(total.delay_ns for total in of_kind),
        unknown=sum(total.unknown for total in of_kind),
        squares=sum(total.squares for total in of_kind),
    )


def _by_chance(parks: float, squares: float) -> tuple[float, float]:
    """The variances of a count and a delay because one in eight was recorded, in any order.

    `squares` is the sum of the squares of the delays of these `parks`. Two more of them make the
    interval of 95 % that of a few rare events (Agresti and Coull's).
    """
    whole = 1 + _RARE / max(1.0, parks)
    return _OTHERS * parks * whole, _OTHERS * squares * whole


def _of_events(counts: float, delays: float, parks: float, seen: StackSums) -> tuple[float, float]:
    """The variances of the count and the delay of events, from those of their parks.

    What part of the parks another one followed is known of seen.runs of them, and so is the time
    until that. These times are taken to vary as exponential ones do. Of what was taken for a park
    that another one followed, some were not.
    """
    again_ns = seen.again_ns / seen.runs
    share = (seen.again + 1) / (seen.runs + 2)  # of a few, all or none says little
    weight = TRACKING_PERIOD * parks / seen.runs  # what each that was seen stands for
    others = seen.runs * weight * max(0.0, weight - 1)
    wrong = _UNSURE * share * (1 - share) * TRACKING_PERIOD * parks
    return (
        (1 - share) ** 2 * counts + others * share * (1 - share) + wrong**2,
        (math.sqrt(delays) + again_ns * math.sqrt(counts)) ** 2
        + others * again_ns**2 * (2 / share - 1) * (1 + _RARE / max(1.0, seen.again))
        + (again_ns / share * wrong) ** 2,
    )


def row_of(stack: KnownStack, estimate: StackEstimate) -> StackTotal:
    """The row of a profile for a stack."""
    every, sampled, count_variance, delay_variance = estimate
    return StackTotal(
        stack.kind,
        stack.sema,
        stack.return_pcs,
        every.count + sampled.count,
        round(every.delay_ns + sampled.delay_ns),
        stack.labels,
        delay_variance,
        stack.waker,
        count_variance,
        every.lengths + sampled.lengths,
    )


def _add(sums: Sums, more: Mapping[KnownStack, StackSums]) -> None:
    for stack, sums_of_stack in more.items():
        sums[stack] = sums.get(stack, _NONE) + sums_of_stack
