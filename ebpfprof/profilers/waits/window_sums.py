"""Adds up the windows of one target (see windows) to an estimate of the whole recording.

The probes record waits that end in a window. For a wait that goes on beyond the window, the part in
the window counts, too, but only once the wait has ended: Go's profiles don't have waits that last
until the end of the recording. And the time that goroutines waited for a lock until a window's end
belongs to a later release that no probe saw: we charge it to none. It is most of the time where
locks are held for longer than a window.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from ebpfprof.console.text import duration, percent
from ebpfprof.goruntime.goroutines.parked import Wait
from ebpfprof.overhead.estimator import Estimate, of_differences
from ebpfprof.profile.evidence import FEW_RELEASES, MAX_UNKNOWN
from ebpfprof.profilers.waits.rows import KnownStack, QueueRow, StackTotal

_KINDS: Final = ("block", "mutex", "wakers")
_DOUBT: Final = 0.5  # the standard error of a correction, as a part of it

Found = dict[KnownStack | str, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class OngoingWait:
    """A wait that went on beyond a window; `ns` is its time in the window.

    `wait` is None if the wait has ended since.
    """

    wait: Wait | None
    stack: KnownStack
    ns: int


@dataclass(frozen=True, slots=True)
class Deviation:
    """The totals of a profile, and the variances of both: see Estimate.variances."""

    count: float = 0.0
    delay_ns: float = 0.0
    count_variance: float = 0.0
    delay_variance: float = 0.0

    def __sub__(self, earlier: Deviation) -> Deviation:
        return Deviation(
            self.count - earlier.count,
            self.delay_ns - earlier.delay_ns,
            max(0.0, self.count_variance - earlier.count_variance),
            max(0.0, self.delay_variance - earlier.delay_variance),
        )

    def __add__(self, later: Deviation) -> Deviation:
        return Deviation(
            self.count + later.count,
            self.delay_ns + later.delay_ns,
            self.count_variance + later.count_variance,
            self.delay_variance + later.delay_variance,
        )


@dataclass(frozen=True, slots=True)
class WindowCoverage:
    """How much of the time of one target was recorded: `recorded_ns` of `stood_for_ns`.

    `windows` counts the windows besides times in which every event was recorded. `deviations` has
    a key for each kind. `uncharged_ns` is waiting time for locks whose release no window recorded.
    `has_paused`: the probes were detached at some time, in this time or before.
    """

    recorded_ns: int
    stood_for_ns: int
    windows: int
    deviations: Mapping[str, Deviation]
    uncharged_ns: float
    has_paused: bool
    looks: int = 0
    """How many looks at goroutines the delays come from; 0 if they come from windows."""

    def __sub__(self, earlier: WindowCoverage) -> WindowCoverage:
        none = Deviation()
        return WindowCoverage(
            self.recorded_ns - earlier.recorded_ns,
            self.stood_for_ns - earlier.stood_for_ns,
            self.windows - earlier.windows,
            {k: each - earlier.deviations.get(k, none) for k, each in self.deviations.items()},
            self.uncharged_ns - earlier.uncharged_ns,
            self.has_paused,
            self.looks - earlier.looks,
        )

    def __add__(self, later: WindowCoverage) -> WindowCoverage:
        none, one, other = Deviation(), self.deviations, later.deviations
        return WindowCoverage(
            self.recorded_ns + later.recorded_ns,
            self.stood_for_ns + later.stood_for_ns,
            self.windows + later.windows,
            {kind: one.get(kind, none) + other.get(kind, none) for kind in {**one, **other}},
            self.uncharged_ns + later.uncharged_ns,
            later.has_paused,
            self.looks + later.looks,
        )

    def __str__(self) -> str:
        windows = "1 window" if self.windows == 1 else f"{self.windows} windows"
        when = f"in {windows} at random times"
        if self.recorded_ns and not self.windows:
            when = "all of it at the beginning"
        return f"sampled {percent(self.share)} of the time, {when}, and scaled"

    @property
    def sampling(self) -> str:
        """How it was recorded, as a suffix."""
        return " in windows"

    @property
    def share(self) -> float:
        """The part of the time that was recorded, 0 to 1."""
        if not self.stood_for_ns:
            return 0.0 if self.has_paused else 1.0
        return self.recorded_ns / self.stood_for_ns

    @property
    def is_scaled(self) -> bool:
        """Whether sums are scaled: some of the time was not recorded.

        That needs no window: the budget may not have allowed one until the end. In a time between
        two windows nothing is recorded, and all sums are an extrapolation.
        """
        return self.recorded_ns < self.stood_for_ns or self.windows > 0 or self.share == 0

    @property
    def factor(self) -> float:
        """The factor for variances of windows, of which there are two at least."""
        return of_differences(self.windows)

    @property
    def knows_errors(self) -> bool:
        """Whether the errors of delays are known."""
        return self.windows > 1 or self.looks > 1

    def error(self, kind: str) -> str:
        """In words, the standard errors of the totals of a kind's profile; "" if it has none."""
        deviation = self.deviations.get(kind)
        if deviation is None or not self.is_scaled:
            return ""
        which = "without a window" if not self.windows else "from a single window"
        if self.windows < 2 and not self.looks:
            return f"standard error not known, {which}"
        on_count = ""
        factor = 1.0
        if self.windows > 1:
            error = math.sqrt(self.factor * deviation.count_variance)
            on_count = f"+-{percent(error / max(deviation.count, 1.0))} on counts, "
            factor = 1.0 if self.looks else self.factor
        on_delay = math.sqrt(factor * deviation.delay_variance) / max(deviation.delay_ns, 1.0)
        unknown = "" if on_count else f"; counts: not known, {which}"
        return f"{on_count}+-{percent(on_delay)} on delays (one standard error){unknown}"

    def missing(self, kind: str) -> list[str]:
        """In words, what the mutex profile lacks: waits that no release was charged for."""
        if kind != "mutex" or self.uncharged_ns <= 0:
            return []
        delay_ns = self.deviations.get(kind, Deviation()).delay_ns
        delay_ns += (
            0.0 if self.looks else self.uncharged_ns
        )  # looks charge it to an unknown release
        if self.uncharged_ns <= MAX_UNKNOWN * delay_ns:
            return [f"not recorded: the releases of {duration(self.uncharged_ns)} of waiting"]
        share = percent(min(1.0, self.uncharged_ns / delay_ns)) if delay_ns else "all"
        return [f"{FEW_RELEASES}: those of {share} of the delay are not known"]


class WindowSums:
    """The sums of one target. Times are of CLOCK_MONOTONIC, in ns."""

    def __init__(self) -> None:
        self._until_ns = 0  # the time before is accounted for
        self._estimate = Estimate[KnownStack | str]()
        self._open = dict[Wait, dict[KnownStack, float]]()
        self._uncharged = dict[int, float]()
        self._last: tuple[Found, Sequence[OngoingWait], int] = {}, (), 1
        self._told = dict[KnownStack, tuple[float, float]]()
        self._corrections = dict[str, float]()  # of counts, by kind: by what activity told

    def begin(self, now_ns: int) -> None:
        """Start at `now_ns`: later windows stand for no time before."""
        self._until_ns = now_ns
        self._last = {}, (), 1

    def add(
        self,
        found: Mapping[KnownStack, tuple[float, float]],
        begin_ns: int,
        end_ns: int,
        ongoing: Sequence[OngoingWait] = (),
        queues: Sequence[QueueRow] = (),
        planned_ns: int = 0,
        slowdown: float = 1.0,
    ) -> None:
        """Add a window, or a part of one that goes on, and the time since the last one.

        `found` is what stacks counted and delayed (ns) in it. A window that ended before its
        `planned_ns` stands for less time: the window before it stands for the rest. `slowdown` is
        how much more often goroutines wait outside of windows than in them.
        """
        recorded_ns = end_ns - max(begin_ns, self._until_ns)
        if recorded_ns <= 0:
            return
        if recorded_ns < planned_ns and self._last[0]:
            kept_ns = (end_ns - self._until_ns) * recorded_ns // planned_ns
            self.stretch(end_ns - kept_ns)
        stood_for_ns = end_ns - self._until_ns
        self._until_ns = end_ns
        weight = stood_for_ns / recorded_ns
        often = (recorded_ns + slowdown * (stood_for_ns - recorded_ns)) / stood_for_ns
        self._note_correction(found, weight * (often - 1))
        sums: Found = {stack: (often * count, ns) for stack, (count, ns) in found.items()}
        for queue in queues:
            before_ns = self._uncharged.get(queue.sema, 0.0)
            self._uncharged[queue.sema] = before_ns + weight * queue.left_ns
        for each in ongoing:
            _put(sums, each.stack, each.ns)
        for kind in _KINDS:
            stacks = [k for k in sums if isinstance(k, KnownStack) and k.kind == kind]
            if stacks:
                sums[kind] = sum(sums[k][0] for k in stacks), sum(sums[k][1] for k in stacks)
        self._estimate.add(sums, recorded_ns, stood_for_ns)
        for each in ongoing:
            self._set_aside(each, weight)
        self._last = sums, ongoing, recorded_ns

    def stretch(self, until_ns: int, slowdown: float = 1.0) -> None:
        """Let the last window stand for the time until `until_ns`, too, which had no window.

        `slowdown` is how much more often goroutines wait in that time than in the window.
        """
        sums, ongoing, recorded_ns = self._last
        sums = {stack: (slowdown * count, ns) for stack, (count, ns) in sums.items()}
        more_ns = until_ns - self._until_ns
        if more_ns <= 0:
            return
        self._until_ns = until_ns
        self._note_correction(self._last[0], more_ns / recorded_ns * (slowdown - 1))
        self._estimate.stretch(sums, recorded_ns, more_ns)
        for each in ongoing:
            self._set_aside(each, more_ns / recorded_ns)

    def settle(self, waiting: AbstractSet[Wait]) -> None:
        """Count the parts that were set aside of waits that have ended: all except `waiting`."""
        for wait in [wait for wait in self._open if wait not in waiting]:
            for stack, ns in self._open.pop(wait).items():
                self._adjust(stack, ns)

    def with_more(
        self, more: Mapping[KnownStack, tuple[float, float]]
    ) -> dict[KnownStack, tuple[float, float]]:
        """The counts and delays (ns) by stack so far, and those in `more`."""
        sums = self._estimate.sums.items()
        found = {s: (each.count, each.delay_ns) for s, each in sums if isinstance(s, KnownStack)}
        for stack, (count, ns) in more.items():
            before_count, before_ns = found.get(stack, (0.0, 0.0))
            found[stack] = before_count + count, before_ns + ns
        return found

    def totals(self, until_ns: int | None = None, slowdown: float = 1.0) -> list[StackTotal]:
        """The sums by stack, without waits that may still go on.

        With `until_ns`, they include an extrapolation from the last window to that time, and never
        fall below an earlier result with an `until_ns`. `slowdown` is that of stretch().
        """
        estimate = self._estimate
        likely = self._likely(until_ns, slowdown) if until_ns else {}
        found = []
        for stack, sums in estimate.sums.items():
            if not isinstance(stack, KnownStack):
                continue
            more_count, more_ns = likely.get(stack, (0.0, 0.0))
            count_before, before_ns = self._told.get(stack, (0.0, 0.0))
            count = max(sums.count + more_count, count_before)
            delay_ns = max(sums.delay_ns + more_ns, before_ns)
            if until_ns:
                self._told[stack] = count, delay_ns
            if count > 0 or delay_ns >= 1:
                found.append(self._total(stack, count, delay_ns))
        return found

    def _total(self, stack: KnownStack, count: float, delay_ns: float) -> StackTotal:
        return StackTotal(
            *(stack.kind, stack.sema, stack.return_pcs, count, round(delay_ns), stack.labels),
            delay_variance=self._estimate.variances(stack)[1],
            waker=stack.waker,
        )

    def _likely(self, until_ns: int, slowdown: float) -> dict[KnownStack, tuple[float, float]]:
        """The extrapolated counts and delays since the last window, at its rates."""
        sums, ongoing, recorded_ns = self._last
        part = max(0, until_ns - self._until_ns) / recorded_ns
        found = {
            stack: (slowdown * part * count, part * ns)
            for stack, (count, ns) in sums.items()
            if isinstance(stack, KnownStack)
        }
        for each in ongoing:
            if each.wait:
                count, ns = found[each.stack]
                found[each.stack] = count, max(0.0, ns - part * each.ns)
        return found

    def uncharged(self) -> dict[int, float]:
        """By semaphore, the waiting time (ns, scaled) until the ends of windows."""
        return dict(self._uncharged)

    def coverage(self, until_ns: int | None = None) -> WindowCoverage:
        """How much was recorded; with `until_ns`, of the time that totals(until_ns) covers."""
        estimate = self._estimate
        deviations = {}
        for kind, sums in estimate.sums.items():
            if isinstance(kind, str):
                count_variance, delay_variance = estimate.variances(kind)
                count_variance += (_DOUBT * self._corrections.get(kind, 0.0)) ** 2
                deviations[kind] = Deviation(
                    *(sums.count, sums.delay_ns, count_variance, delay_variance)
                )
        uncharged_ns = sum(self._uncharged.values())
        return WindowCoverage(
            estimate.recorded_ns,
            estimate.stood_for_ns + max(0, (until_ns or 0) - self._until_ns),
            estimate.windows,
            deviations,
            uncharged_ns,
            has_paused=estimate.windows > 0,
        )

    def _note_correction(
        self, found: Mapping[KnownStack, tuple[float, float]] | Found, factor: float
    ) -> None:
        for stack, (count, _) in found.items():
            if isinstance(stack, KnownStack):
                before = self._corrections.get(stack.kind, 0.0)
                self._corrections[stack.kind] = before + factor * count

    def _set_aside(self, ongoing: OngoingWait, weight: float) -> None:
        """Subtract the part of a wait that may never end; settle() adds it again."""
        if ongoing.wait:
            kept = self._open.setdefault(ongoing.wait, {})
            kept[ongoing.stack] = kept.get(ongoing.stack, 0.0) + weight * ongoing.ns
            self._adjust(ongoing.stack, -weight * ongoing.ns)

    def _adjust(self, stack: KnownStack, ns: float) -> None:
        self._estimate.adjust(stack, ns)
        self._estimate.adjust(stack.kind, ns)


def _put(sums: Found, stack: KnownStack, ns: float) -> None:
    count, delay_ns = sums.get(stack, (0.0, 0.0))
    sums[stack] = count, delay_ns + ns


def waits_by_goroutine(waits: Iterable[Wait]) -> dict[int, Wait]:
    """The waits by the address of their runtime.g."""
    return {wait.address: wait for wait in waits}
