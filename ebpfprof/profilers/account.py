"""What the comments of a profile say: quantities that add up and subtract like its samples.

A snapshot has the quantities since the recording began. The comments on the time between two
snapshots come from the difference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import TYPE_CHECKING, Any, Protocol, Self

from ebpfprof.console.text import percent
from ebpfprof.profile.completeness import FOOTNOTE_SHARE, Completeness
from ebpfprof.profile.losses import Loss, losses_since, losses_together

if TYPE_CHECKING:
    from ebpfprof.overhead.cost import Overhead

_LONGEST = 10
_MOST_ERROR = 1.0  # a larger one is not worth its digits


class Coverage(Protocol):
    """How much of the time was recorded, and the errors of the estimate; str() says it in words."""

    def sampling(self, whole: str) -> str:
        """Which events were recorded; `whole` says which ones if nothing is left out."""

    @property
    def windows(self) -> int:
        """How many windows there were, besides times in which every event was recorded."""

    @property
    def share(self) -> float:
        """The part of the time that was recorded, 0 to 1."""

    @property
    def is_scaled(self) -> bool:
        """Whether sums are scaled: some of the time was not recorded."""

    @property
    def knows_errors(self) -> bool:
        """Whether the errors of delays are known."""

    def error(self, kind: str) -> str:
        """In words, the standard errors of the totals of a kind's profile; "" if it has none."""

    def missing(self, kind: str) -> list[str]:
        """In words, what the profile of a kind lacks since no window recorded it."""

    def __sub__(self, earlier: Self) -> Self: ...

    def __add__(self, later: Self) -> Self: ...


Spread = Mapping[Any, tuple[int, float]]
"""By stack and labels, a delay (ns) and its variance (ns²): see Estimate.variances."""


@dataclass(frozen=True, slots=True)
class RecordingAccount:
    """The account of one profile of one target; comments() puts it in words.

    `title` says what was recorded, `sampling` which events, `length_ns` for how long. `remarks` are
    sentences that hold for any part of the time. `own_cost` is what ebpfprof itself used until now,
    in words, "" to leave it out. `losses` are those of this target. `events` is how many
    were recorded, scaled where the `coverage` says so: those of the profile that holds the most of
    those recorded together, since what is lost may be of any of them. `coverage` and `spread`
    describe the estimate of a target that was recorded in windows. `counted` has a number for each
    sentence, in which it replaces {}.
    """

    kind: str
    title: str
    sampling: str
    length_ns: int
    remarks: tuple[str, ...] = ()
    overhead: Overhead | None = None
    own_cost: str = ""
    losses: tuple[Loss, ...] = ()
    coverage: Coverage | None = None
    spread: Spread = field(default_factory=dict)
    counted: Mapping[str, int] = field(default_factory=dict)
    events: int = 0
    idle: tuple[str, ...] = ()
    """Which waits are idle by behaviour, and why: profile.idle_comments."""

    def __sub__(self, earlier: RecordingAccount) -> RecordingAccount:
        return replace(
            self,
            length_ns=max(0, self.length_ns - earlier.length_ns),
            overhead=self.overhead and earlier.overhead and self.overhead - earlier.overhead,
            losses=losses_since(self.losses, earlier.losses),
            coverage=self.coverage and earlier.coverage and self.coverage - earlier.coverage,
            spread=_changed(self.spread, earlier.spread),
            counted=Counter(self.counted) - Counter(earlier.counted),
            events=max(0, self.events - earlier.events),
        )

    def __add__(self, later: RecordingAccount) -> RecordingAccount:
        return replace(
            later,
            length_ns=self.length_ns + later.length_ns,
            remarks=tuple(dict.fromkeys(self.remarks + later.remarks)),
            overhead=self.overhead and later.overhead and self.overhead + later.overhead,
            losses=losses_together(self.losses, later.losses),
            coverage=self.coverage and later.coverage and self.coverage + later.coverage,
            spread=_together(self.spread, later.spread),
            counted=Counter(self.counted) + Counter(later.counted),
            events=self.events + later.events,
        )

    @property
    def completeness(self) -> Completeness:
        """How many of the events in the recorded time were lost."""
        recorded = self.events * (self.coverage.share if self.coverage else 1.0)
        return Completeness(sum(loss.count for loss in self.losses), recorded)

    def comments(self) -> tuple[str, ...]:
        """The comments of the profile, a sentence each."""
        coverage = self.coverage if self.coverage and self.coverage.is_scaled else None
        sampling = coverage.sampling(self.sampling) if coverage else self.sampling
        lines = [f"{self.title}, {self.length_ns / 1e9:.3f} s, {sampling}", *self.remarks]
        if self.overhead:
            lines.append(f"overhead of all profiles: {self.overhead}")
        if self.own_cost:
            lines.append(f"ebpfprof used until then: {self.own_cost}")
        lines += [f"incomplete: {loss}" for loss in self.losses]
        lines.append(in_proportion(self.completeness))
        if coverage:
            lines += [str(coverage), coverage.error(self.kind), *self._error_of_longest(coverage)]
            lines += [
                f"{sentence}{self._exact_rerun(coverage)}"
                for sentence in coverage.missing(self.kind)
            ]
        lines += [sentence.format(n) for sentence, n in self.counted.items() if n > 0]
        lines += self.idle
        return tuple(filter(None, lines))

    def _exact_rerun(self, coverage: Coverage) -> str:
        """How to record every event, and what that would cost.

        Probes cost something only while they are attached, so all the time costs in proportion.
        """
        how = "; --max-overhead 0 records every release"
        overhead = self.overhead
        if overhead is None or not overhead.cpu_ns or not coverage.share:
            return how
        probes_ns = overhead.hits.count * (overhead.hit_ns or 0.0) + overhead.hits.ns
        exact_ns = probes_ns / coverage.share
        share = exact_ns / (max(0.0, overhead.cpu_ns - probes_ns) + exact_ns)
        return f"{how} at about {100 * share:.2g} % of the CPU time of the process"

    def _error_of_longest(self, coverage: Coverage) -> list[str]:
        if not coverage.knows_errors:
            return []
        longest = nlargest(_LONGEST, self.spread.values(), key=lambda pair: pair[0])
        errors = [math.sqrt(variance) / max(delay_ns, 1) for delay_ns, variance in longest]
        known = [error for error in errors if error <= _MOST_ERROR]
        of_ten = "the ten stacks with the longest delays"
        if len(known) == len(errors):
            most = percent(max(known, default=0.0))
            return [f"at most +-{most} on {of_ten} (one standard error)"]
        rare = "the others were recorded too rarely for an estimate"
        if not known:
            return [f"the errors of {of_ten} are above {percent(_MOST_ERROR)}"]
        most = percent(max(known))
        return [f"at most +-{most} on {len(known)} of {of_ten} (one standard error): {rare}"]


def in_proportion(completeness: Completeness) -> str:
    """How much losses matter, a sentence; "" without losses."""
    if not completeness.lost:
        return ""
    so = "" if completeness.is_alarming else ", too little to change what the profile shows"
    share = percent(completeness.lost_share)
    most = share if share.startswith("less") else f"at most {share}"
    return f"incomplete in total: {most} of what happened{so}"


def loss_lines(
    losses: Iterable[Loss], parts: Iterable[Completeness], *, is_long: bool = False
) -> list[str]:
    """What the terminal shows of losses, in proportion to what they mean for a profile.

    Each one if they matter, else a line in all; of the smallest nothing, unless it `is_long`: the
    comments of the profile have them. `parts` has the completeness of each profile.
    """
    worst = max(parts, key=lambda part: part.lost_share, default=Completeness())
    if worst.lost and not worst.is_alarming:
        if worst.lost_share < FOOTNOTE_SHARE and not is_long:
            return []
        return [f"{in_proportion(worst)}; its comments have the details"]
    return [*(f"incomplete: {loss}" for loss in losses), *filter(None, [in_proportion(worst)])]


def _changed(later: Spread, earlier: Spread) -> Spread:
    changes = {}
    for stack, (delay_ns, variance) in later.items():
        before = earlier.get(stack)
        if before != (delay_ns, variance):
            before_ns, variance_before = before or (0, 0.0)
            changes[stack] = delay_ns - before_ns, max(0.0, variance - variance_before)
    return changes


def _together(one: Spread, other: Spread) -> Spread:
    sums = dict(one)
    for stack, (delay_ns, variance) in other.items():
        before_ns, variance_before = sums.get(stack, (0, 0.0))
        sums[stack] = before_ns + delay_ns, variance_before + variance
    return sums
