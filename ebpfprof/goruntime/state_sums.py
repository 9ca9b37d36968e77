"""Adds up looks at goroutines: how long they were in which state, with which stack.

A look stands for the time from the middle between it and the look before to the middle between it
and the next. What a goroutine does in two looks that follow each other it is taken to do between
them, too, unless g.trackingSeq shows that it ran.

The variance comes from how much each look differs from the one before. Looks at random times find a
number of goroutines n(i) in a state. Where the numbers don't depend on each other, the differences
have twice their variance; where a state lasts for many looks, only its ends are uncertain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ebpfprof.profile.model import Label

_MAX_STATES: Final = 1 << 16


class GoroutineState(NamedTuple):
    """What a goroutine does: see goruntime.all_goroutines.Goroutine for the fields.

    `pcs` is () where the stack is not known. `sema` is the address of the semaphore for which it
    waits, 0 if that was not asked for. `labels` is None if they could not be read.
    """

    word: str
    pcs: tuple[int, ...]
    start_pc: int
    labels: tuple[Label, ...] | None
    sema: int = 0


@dataclass(frozen=True, slots=True)
class StateTotal:
    """How long goroutines were in a state, all together, in how many looks at one.

    `ended_ns` and `ended` are the time and the number of those that began and ended while we
    looked; a wait that no look hit is not among them. `variance` is that of `ns`, in ns².
    """

    ns: int
    hits: int
    ended_ns: int
    ended: int
    variance: float


@dataclass(frozen=True, slots=True)
class StateTotals:
    """The sums of all looks so far. `mean_ns` is the mean time between looks."""

    states: dict[GoroutineState, StateTotal]
    looks: int
    length_ns: int

    @property
    def mean_ns(self) -> float:
        """The mean time between two looks; 0 before there were two."""
        return self.length_ns / (self.looks - 1) if self.looks > 1 else 0.0


@dataclass(slots=True)
class _Sum:
    state: GoroutineState
    closed_ns: float = 0.0
    closed_hits: int = 0
    open: int = 0
    open_since_ns: float = 0.0  # the sum of the begins of open spans
    open_since_look: int = 0
    ended_ns: float = 0.0
    ended: int = 0
    variance: float = 0.0
    change: int = 0  # of the number of goroutines since the last look


@dataclass(slots=True)
class _Span:
    sum: _Sum
    since_ns: float
    since_look: int
    is_first: bool  # it may have begun before there was a look


@dataclass(slots=True)
class StateSums:
    """The sums of one target."""

    _sums: dict[GoroutineState, _Sum] = field(default_factory=dict)
    _spans: dict[int, _Span] = field(default_factory=dict)
    _looks: int = 0
    _length_ns: int = 0
    _last_ns: int = 0
    _goes_on: bool = False

    def add(self, now_ns: int, changes: Iterable[tuple[int, GoroutineState | None]]) -> None:
        """Add a look at `now_ns` (CLOCK_MONOTONIC): what the goroutines do that moved since.

        Goroutines have numbers; None for one that has ended.
        """
        is_first = not self._goes_on
        since_ns = now_ns if is_first else (self._last_ns + now_ns) / 2
        changed: list[_Sum] = []
        for number, state in changes:
            if span := self._spans.pop(number, None):
                self._close(span, since_ns, has_ended=True)
                changed.append(span.sum)
                span.sum.change -= 1
            if state is not None:
                found = self._sum_of(state)
                self._spans[number] = _Span(found, since_ns, self._looks, is_first)
                found.open += 1
                found.open_since_ns += since_ns
                found.open_since_look += self._looks
                changed.append(found)
                found.change += 1
        if not is_first:
            self._vary(changed, now_ns - self._last_ns)
            self._length_ns += now_ns - self._last_ns
        for each in changed:
            each.change = 0
        self._looks += 1
        self._last_ns, self._goes_on = now_ns, True

    def pause(self) -> None:
        """End all that goes on at the last look: the next look begins again."""
        for span in self._spans.values():
            self._close(span, self._last_ns, has_ended=False)
        self._spans.clear()
        self._goes_on = False

    def state_of(self, number: int) -> GoroutineState | None:
        """What a goroutine did at the last look; None if it was not there."""
        span = self._spans.get(number)
        return span.sum.state if span else None

    def totals(self) -> StateTotals:
        """The sums until the last look."""
        states = {}
        for state, each in self._sums.items():
            ns = each.closed_ns + each.open * self._last_ns - each.open_since_ns
            hits = each.closed_hits + each.open * self._looks - each.open_since_look
            states[state] = StateTotal(
                round(ns), hits, round(each.ended_ns), each.ended, each.variance
            )
        return StateTotals(states, self._looks, self._length_ns)

    def _sum_of(self, state: GoroutineState) -> _Sum:
        found = self._sums.get(state)
        if found is None:
            if len(self._sums) >= _MAX_STATES:
                state = GoroutineState(state.word, (), 0, ())
                found = self._sums.get(state)
            if found is None:
                found = self._sums[state] = _Sum(state)
        return found

    def _close(self, span: _Span, until_ns: float, *, has_ended: bool) -> None:
        found = span.sum
        found.open -= 1
        found.open_since_ns -= span.since_ns
        found.open_since_look -= span.since_look
        length_ns = until_ns - span.since_ns
        found.closed_ns += length_ns
        found.closed_hits += self._looks - span.since_look
        if has_ended and not span.is_first:
            found.ended_ns += length_ns
            found.ended += 1

    def _vary(self, changed: Iterable[_Sum], apart_ns: int) -> None:
        half_squared = apart_ns**2 / 2
        for each in {id(each): each for each in changed}.values():
            each.variance += each.change**2 * half_squared
