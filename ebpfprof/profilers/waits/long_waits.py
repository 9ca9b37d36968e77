"""Waits that goroutine samples see: how long, and each of those that two samples saw.

Samples at random times need no probe and find all goroutines. Of waits of a second, one in eight
are few; samples see all of them, one by one. So once not every wait is recorded, waits that two
samples saw are counted here, and the probes leave them out (bpf/waits/one_in_eight.h). Of shorter
ones samples tell how long all together took, whatever the length of one.

Go's delay of a wait ends when the goroutine is woken (runtime/chan.go, sema.go: sudog.releasetime),
so the time until it runs again is not in it. As in Go's own profile a wait counts when it ends.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.goroutines.states import STATES
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from ebpfprof.goruntime.samples.shared_sampler import SharedSampler
    from ebpfprof.goruntime.samples.state_sums import GoroutineState, StateTotal, StateTotals

_NOT_WAITING: Final = frozenset(STATES.values())
_NONE: Final = 0, 0, 0, 0, 0, 0.0
_OF_95: Final = 1.96  # standard errors of an interval of 95 %

StackKey = tuple[int, tuple[int, ...], tuple[Label, ...]]
"""The semaphore (0: none), the return addresses from the park on, the labels."""


@dataclass(slots=True)
class SampledStack:
    """What samples saw of one stack.

    `hits` of goroutines in samples; the waits that have `ended`, and their time; `long` are those
    that two samples saw, `lengths` how long these were. `variance` is that of `ns`, in ns².
    """

    ns: float = 0.0
    hits: int = 0
    ended: int = 0
    long_ns: float = 0.0
    long: int = 0
    variance: float = 0.0
    lengths: WaitHistogram = NO_LENGTHS

    def add(self, more: SampledStack) -> None:
        """Add those of another stack or time."""
        self.ns += more.ns
        self.hits += more.hits
        self.ended += more.ended
        self.long_ns += more.long_ns
        self.long += more.long
        self.variance += more.variance
        self.lengths += more.lengths

    def as_uncertain(self) -> SampledStack:
        """The same, with a variance that allows for few hits.

        As many hits as `ns` and its variance correspond to are a count of rare events. Such a count
        has an interval of 95 % that is wider than its own root shows (Wilson's).
        """
        if self.ns <= 0:
            return self
        variance = max(self.variance, (self.ns / max(1, self.hits)) ** 2)
        unit = variance / self.ns
        count = self.ns / unit
        deviation = _OF_95 / 2 + math.sqrt(count + (_OF_95 / 2) ** 2)
        return replace(self, variance=(unit * deviation) ** 2)

    @property
    def long_variance(self) -> float:
        """The part of the variance that is of long waits."""
        return self.variance * self.long / self.ended if self.ended else 0.0


@dataclass(slots=True)
class LongWaits:
    """The waits of one target since not every one is recorded."""

    samples: SharedSampler
    _is_sampling: bool = False
    _hanging: dict[GoroutineState, tuple[int, int, int]] = field(default_factory=dict)
    _base: StateTotals | None = None
    _past: dict[StackKey, SampledStack] = field(default_factory=dict)

    def start(self) -> None:
        """Begin to sample. Raises what SharedSampler.start raises."""
        self.samples.start()
        self._is_sampling = True

    def stop(self) -> None:
        """End the samples, if they have begun; after a later start, begin() has to be called."""
        if self._is_sampling:
            self._hanging = self.hanging()
            self._is_sampling = False
            self.samples.stop()
            self.samples.sampler.announce = lambda _before_ns: None
            if self._base is not None:
                self._past = self.found()
                self._base = None

    def begin(self, announce: Callable[[int], None]) -> None:
        """Count waits that end from now on.

        `announce` is called when a sample begins, with the time of the one before (CLOCK_MONOTONIC,
        ns), 0 if there is none. A sample is taken at once: it has what ended before.
        """
        self.samples.sampler.announce = announce
        with suppress(EbpfprofError):  # the next sample fails, too, and ends the samples
            self.samples.sampler.sample()
        self._base = self.samples.totals()  # not counted(), which may begin to leave out time

    def hanging(self) -> dict[GoroutineState, tuple[int, int, int]]:
        """What goroutines do that have not moved for long, how many, and for how long at least.

        Of the end of the samples, if they have ended.
        """
        if not self._is_sampling:
            return self._hanging
        return self.samples.sampler.standing_states(HANGING)

    def found(self) -> dict[StackKey, SampledStack]:
        """The waits by stack, since begin()."""
        by_key = {key: replace(sampled) for key, sampled in self._past.items()}
        if self._base is None:
            return by_key
        sampler, totals, base = self.samples.sampler, self.samples.totals(), self._base
        for state, total in totals.states.items():
            place = None if state.word in _NOT_WAITING else sampler.park_at(state.pcs)
            if place is not None:
                key = state.sema, state.pcs[place:][:MAX_DEPTH], state.labels or ()
                waits = _since(total, base.states.get(state))
                before = base.lengths.get(state, NO_LENGTHS)
                waits.lengths = totals.lengths.get(state, NO_LENGTHS) - before
                by_key.setdefault(key, SampledStack()).add(waits)
        return by_key


def _since(total: StateTotal, earlier: StateTotal | None) -> SampledStack:
    """What was added to the sums of a state."""
    values = zip(_values(total), _values(earlier) if earlier else _NONE, strict=True)
    ns, hits, ended, long_ns, long, variance = (now - before for now, before in values)
    return SampledStack(ns, int(hits), int(ended), long_ns, int(long), variance)


def _values(total: StateTotal) -> tuple[float, ...]:
    of_ended = total.ended_ns, total.hits, total.ended
    return *of_ended, total.twice_ns, total.twice, total.variance
