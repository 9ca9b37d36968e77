"""Adds up samples of goroutines: how long they were in which state, with which stack.

A sample stands for the time from the middle between it and the one before to the middle between it
and the next. What a goroutine does in two samples that follow each other it is taken to do between
them, too, unless g.trackingSeq shows that it ran.

The variance comes from how much each sample differs from the one before. Samples at random times
see a number of goroutines n(i) in a state. Where the numbers don't depend on each other, the
differences have twice their variance; where a state lasts for many samples, only its ends are
uncertain. The variances of states that differ in their labels alone add up to that of the stack.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from ebpfprof.profile.model import Label
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram

if TYPE_CHECKING:
    import numpy.typing as npt

MAX_STATES: Final = 1 << 16
_HITS_OF_LONG: Final = 2
ENDED: Final = -1
"""The number of no state: the goroutine has ended."""


class GoroutineState(NamedTuple):
    """What a goroutine does: see goruntime.goroutines.all_goroutines.Goroutine for the fields.

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
    """How long goroutines were in a state, all together, in how many samples of one.

    `ended_ns` and `ended` are the time and the number of those that began and ended between
    samples; a wait that no sample hit is not among them. `twice_ns` and `twice` are those of them
    that two samples or more hit. `variance` is that of `ns`, in ns².
    """

    ns: int
    hits: int
    ended_ns: int
    ended: int
    twice_ns: int
    twice: int
    variance: float


@dataclass(frozen=True, slots=True)
class StateTotals:
    """The sums of all samples so far. `mean_ns` is the mean time between samples.

    `lengths` has those that StateTotal.twice counts, by how long they were; of totals() only.
    """

    states: dict[GoroutineState, StateTotal]
    samples: int
    length_ns: int
    lengths: Mapping[GoroutineState, WaitHistogram] = field(default_factory=dict)

    @property
    def mean_ns(self) -> float:
        """The mean time between two samples; 0 before there were two."""
        return self.length_ns / (self.samples - 1) if self.samples > 1 else 0.0


# The columns of the sums. Of what is in progress, those from _OPEN on have sums of the begins.
_NS, _HITS, _ENDED_NS, _ENDED, _TWICE_NS, _TWICE = range(6)
_OPEN, _OPEN_SINCE_NS, _OPEN_SINCE_SAMPLE, _VARIANCE = range(6, 10)
_COLUMNS: Final = 10
_VALUES: Final = 7  # those of StateTotal
# The columns of a goroutine. Where _IS_NEW is 0, its state may have begun before any sample.
_SINCE_NS, _SINCE_SAMPLE, _IS_NEW, _APART_NS = range(4)  # the last: of the samples at its begin


class _Moment(NamedTuple):
    """The sums at a moment. `values` has the columns of StateTotal as rows, a column each state."""

    values: npt.NDArray[np.float64]
    samples: int
    length_ns: int

    def plus(self, other: _Moment) -> _Moment:
        """The sums of both; states are only ever added."""
        return self._with(other, 1)

    def minus(self, earlier: _Moment) -> _Moment:
        """What was added since an earlier moment."""
        return self._with(earlier, -1)

    def _with(self, other: _Moment, sign: int) -> _Moment:
        values = np.zeros((_VALUES, max(self.values.shape[1], other.values.shape[1])))
        values[:, : self.values.shape[1]] = self.values
        values[:, : other.values.shape[1]] += sign * other.values
        return _Moment(
            values, self.samples + sign * other.samples, self.length_ns + sign * other.length_ns
        )


class StateSums:
    """The sums of one target."""

    def __init__(self, most: int = MAX_STATES) -> None:
        """Keep `most` states at most, and no more than MAX_STATES."""
        self._most = min(most, MAX_STATES)
        self._numbers: dict[GoroutineState, int] = {}
        self._states: list[GoroutineState] = []
        self._sums = np.zeros((64, _COLUMNS))  # the last row, of ENDED, means nothing
        self._stack_numbers: dict[tuple[str, tuple[int, ...]], int] = {}
        self._stacks = np.zeros(64, np.int64)  # of each row of the sums: the number of its stack
        self._numbers_now = np.zeros(0, np.int64)
        self._spans = np.zeros((0, 4))
        self._samples, self._length_ns, self._last_ns = 0, 0, 0
        self._goes_on = False
        self._until_ns: int | None = None
        self._twice = defaultdict[int, Counter[int]](Counter)  # by state: lengths, by bucket
        self._apart_ns = defaultdict[int, float](float)  # by state: the error of a length
        self._at_pause = _Moment(np.zeros((_VALUES, 0)), 0, 0)
        self._uncounted = self._at_pause

    def number_of(self, state: GoroutineState) -> int:
        """The number of a state. Beyond a bound, states without their stack have one together."""
        number = self._numbers.get(state)
        if number is None and len(self._states) >= self._most:
            state = GoroutineState(state.word, (), 0, ())
            number = self._numbers.get(state)
        if number is None:
            number = self._numbers[state] = len(self._states)
            self._states.append(state)
            if number == len(self._sums) - 1:
                self._sums[number] = 0
                self._sums = np.concatenate((self._sums, np.zeros_like(self._sums)))
                self._stacks = np.concatenate((self._stacks, np.zeros_like(self._stacks)))
            stack = state.word, state.pcs
            self._stacks[number] = self._stack_numbers.setdefault(
                stack, len(self._stack_numbers) + 1
            )
        return number

    def add(
        self, now_ns: int, goroutines: npt.NDArray[np.int64], states: npt.NDArray[np.int64]
    ) -> None:
        """Add a sample at `now_ns` (CLOCK_MONOTONIC): what the goroutines do that moved since.

        Goroutines have numbers from 0 on, each at most once in a sample; states those of number_of,
        or ENDED. A sample after the time of end_at() counts as one at that time, later ones not at
        all.
        """
        if self.has_reached_end:
            return
        if self._until_ns is not None:
            now_ns = min(now_ns, self._until_ns)
        apart_ns = now_ns - self._last_ns if self._goes_on else 0
        if len(goroutines):
            self._change(now_ns - apart_ns / 2, apart_ns, goroutines, states)
        self._length_ns += apart_ns
        self._samples += 1
        self._last_ns, self._goes_on = now_ns, True

    def count_from(self, at_ns: int) -> None:
        """Leave out of counted() the time from the last pause, or from the beginning, to `at_ns`.

        What the last sample found holds until then, and counts as a sample at that time.
        """
        self._hold_until(at_ns)
        early_ns = max(0, self._last_ns - at_ns)  # the last sample may have come before this call
        going_on = self._sums[: len(self._states), _OPEN]
        values, samples, length_ns = self._moment()
        values[_NS] -= early_ns * going_on
        values[_HITS] -= going_on
        before = _Moment(values, max(0, samples - 1), length_ns - early_ns)
        self._uncounted = self._uncounted.plus(before).minus(self._at_pause)

    def end_at(self, at_ns: int) -> None:
        """Count no time after `at_ns` (CLOCK_MONOTONIC), until the next pause()."""
        self._until_ns = at_ns

    @property
    def has_reached_end(self) -> bool:
        """Whether there was a sample at the time of end_at() or later."""
        return self._goes_on and self._until_ns is not None and self._last_ns >= self._until_ns

    def pause(self) -> None:
        """End everything in progress at the last sample: the next sample begins again.

        After end_at(), what the last sample found holds until that time.
        """
        if self._until_ns is not None:
            self._hold_until(self._until_ns)
            self._until_ns = None
        open_now = np.flatnonzero(self._numbers_now >= 0)
        if len(open_now):
            self._spans[open_now, _IS_NEW] = 0  # what is in progress has not ended
            self._change(self._last_ns, 0, open_now, np.full(len(open_now), ENDED))
        self._goes_on = False
        self._at_pause = self._moment()

    def state_of(self, goroutine: int) -> GoroutineState | None:
        """What a goroutine did at the last sample; None if it was not there."""
        now = self._numbers_now
        return self.state(int(now[goroutine]) if goroutine < len(now) else ENDED)

    def state(self, number: int) -> GoroutineState | None:
        """The state with a number; None for ENDED."""
        return self._states[number] if number >= 0 else None

    def numbers_now(self, goroutines: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The numbers of what goroutines did at the last sample; each has been in a sample."""
        numbers: npt.NDArray[np.int64] = self._numbers_now[goroutines]
        return numbers

    def totals(self) -> StateTotals:
        """The sums until the last sample."""
        totals = self._named(self._moment())
        lengths = {
            self._states[number]: WaitHistogram.counted(numbers, self._apart_ns[number])
            for number, numbers in self._twice.items()
            if number != ENDED
        }
        return replace(totals, lengths=lengths)

    def counted(self) -> StateTotals:
        """The same without what count_from() leaves out."""
        return self._named(self._moment().minus(self._uncounted))

    def _moment(self) -> _Moment:
        sums = self._sums[: len(self._states)].T
        ns = sums[_NS] + (sums[_OPEN] * self._last_ns - sums[_OPEN_SINCE_NS])
        hits = sums[_HITS] + sums[_OPEN] * self._samples - sums[_OPEN_SINCE_SAMPLE]
        values = np.array((ns, hits, *sums[_ENDED_NS:_OPEN], sums[_VARIANCE]))
        return _Moment(values, self._samples, self._length_ns)

    def _named(self, moment: _Moment) -> StateTotals:
        *times, variances = moment.values
        whole = np.rint(times).astype(np.int64).tolist()
        totals = map(StateTotal, *whole, variances.tolist())
        states = dict(zip(self._states, totals, strict=True))
        return StateTotals(states, moment.samples, moment.length_ns)

    def _hold_until(self, at_ns: int) -> None:
        """Let what the last sample found hold until `at_ns`."""
        if self._goes_on and at_ns > self._last_ns:
            self._length_ns += at_ns - self._last_ns
            self._last_ns = at_ns

    def _change(
        self,
        since_ns: float,
        apart_ns: int,
        goroutines: npt.NDArray[np.int64],
        states: npt.NDArray[np.int64],
    ) -> None:
        """End the states of these goroutines, and begin others; the last sample was `apart_ns` ago.

        Few calls of numpy, since after a pause each takes a few microseconds.
        """
        if (most := int(goroutines.max()) + 1) > len(self._spans):
            more = most - len(self._spans)
            self._numbers_now = np.concatenate((self._numbers_now, np.full(more, ENDED)))
            self._spans = np.concatenate((self._spans, np.zeros((more, 4))))
        count, spans = len(goroutines), self._spans[goroutines]
        begins = since_ns, self._samples, float(apart_ns > 0), apart_ns
        lengths = since_ns - spans[:, _SINCE_NS]
        changes = np.zeros((2 * count, _COLUMNS))
        ends = changes[:count]
        ends[:, _NS] = lengths
        ends[:, _HITS] = self._samples - spans[:, _SINCE_SAMPLE]
        ends[:, _ENDED_NS] = lengths * spans[:, _IS_NEW]
        ends[:, _ENDED] = spans[:, _IS_NEW]
        is_twice = ends[:, _HITS] >= _HITS_OF_LONG
        ends[:, _TWICE_NS] = ends[:, _ENDED_NS] * is_twice
        ends[:, _TWICE] = ends[:, _ENDED] * is_twice
        for at in np.flatnonzero(ends[:, _TWICE]).tolist():
            length = SCALE.bucket_of(int(lengths[at]))
            number = int(self._numbers_now[goroutines[at]])
            self._twice[number][length] += 1
            between_ns = (float(spans[at, _APART_NS]) + apart_ns) / 2
            self._apart_ns[number] = max(self._apart_ns[number], between_ns)
        ends[:, _OPEN] = -1
        ends[:, _OPEN_SINCE_NS : _OPEN_SINCE_SAMPLE + 1] = -spans[:, : _SINCE_SAMPLE + 1]
        changes[count:, _OPEN : _OPEN_SINCE_SAMPLE + 1] = 1, *begins[:2]
        were_open = self._sums[:, _OPEN].copy()
        numbers = np.concatenate((self._numbers_now[goroutines], states))
        np.add.at(self._sums, numbers, changes)
        self._vary(self._sums[:, _OPEN] - were_open, apart_ns)
        self._numbers_now[goroutines] = states
        self._spans[goroutines] = begins

    def _vary(self, change: npt.NDArray[np.float64], apart_ns: int) -> None:
        """Add the variance of a sample that found that many more goroutines in each state.

        Goroutines with the same stack may have begun together: then their errors are the same, and
        the variance of their sum is that of one number, whatever their labels.
        """
        squares = change * change
        squares[ENDED] = 0
        of_stack = np.bincount(self._stacks, weights=change) ** 2
        of_states = np.bincount(self._stacks, weights=squares)
        together = np.maximum(1, of_stack / np.maximum(1, of_states))
        self._sums[:, _VARIANCE] += squares * together[self._stacks] * (apart_ns**2 / 2)
