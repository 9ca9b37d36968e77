"""Waits by the time of their end and by their length: the columns and cells of a heatmap.

Two readings of a recording's sums make a slice: what was added to the sums between them. Few slices
are kept, whatever the length of the recording: when there are too many, neighbours become one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram

if TYPE_CHECKING:
    from ebpfprof.profile.model import Label, Location, Profile, Sample

MOST_SLICES: Final = 120
"""With more, each two neighbours become one slice."""
_MOST_CELLS: Final = 200_000  # 5 MB, and as much in a file
_MOST_OFF: Final = 2.0
_BUCKETS: Final = 1 << 10
_UNKNOWN: Final = _BUCKETS - 1
_Stack = tuple[tuple["Location", ...], tuple["Label", ...]]
_Sums = dict[int, tuple[int, int]]

assert SCALE.bucket_of((1 << 63) - 1) < _UNKNOWN


@dataclass(slots=True)
class _Slice:
    """The cells of a time: how many events, and their value, by ascending keys."""

    start_s: float
    end_s: float
    keys: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    values: array[int] = field(default_factory=lambda: array("q"))

    @classmethod
    def of(cls, start_s: float, end_s: float, sums: _Sums) -> _Slice:
        """The slice with these sums by key, without those that are zero."""
        made = cls(start_s, end_s)
        for key in sorted(key for key, both in sums.items() if any(both)):
            count, value = sums[key]
            made.keys.append(key)
            made.counts.append(count)
            made.values.append(value)
        return made

    def sums(self) -> _Sums:
        """The sums by key."""
        return dict(zip(self.keys, zip(self.counts, self.values, strict=True), strict=True))

    def get(self, key: int) -> tuple[int, int]:
        """The sums of a cell; zeros if it is empty."""
        index = bisect_left(self.keys, key)
        if index < len(self.keys) and self.keys[index] == key:
            return self.counts[index], self.values[index]
        return 0, 0

    def take(self, key: int, most: int) -> tuple[int, int]:
        """Take up to `most` events out of a cell, with their part of its value."""
        count, value = self.get(key)
        taken = min(count, most)
        if taken <= 0:
            return 0, 0
        part = value if taken == count else value * taken // count
        index = bisect_left(self.keys, key)
        self.counts[index] -= taken
        self.values[index] -= part
        return taken, part

    def with_next(self, following: _Slice) -> _Slice:
        """This slice and the one after it as one."""
        sums = self.sums()
        for key, more in following.sums().items():
            known = sums.get(key, (0, 0))
            sums[key] = known[0] + more[0], known[1] + more[1]
        return _Slice.of(self.start_s, following.end_s, sums)


class WaitSlices:
    """The slices of a profile, oldest first. See profile.model.Slices.

    Samples are the same stack if their locations and labels are equal; the label of a handler may
    be missing in slices, because it is added to whole profiles.
    """

    def __init__(self, *, most_slices: int = MOST_SLICES, most_cells: int = _MOST_CELLS) -> None:
        """Keep no more slices than that, and no more cells, but for those of a single slice."""
        self._most_slices, self._most_cells = most_slices, most_cells
        self._numbers: dict[_Stack, int] = {}
        self._slices: list[_Slice] = []

    @property
    def times(self) -> list[tuple[float, float]]:
        """When each slice began and ended, Unix time in seconds."""
        return [(one.start_s, one.end_s) for one in self._slices]

    def add(self, profile: Profile, start_s: float, end_s: float) -> None:
        """Add what was recorded from `start_s` to `end_s` (Unix time), after all other slices.

        A wait that went on, and counts as a longer one now, moves here from its slice before: each
        wait is in the slice in which it ended, or was seen last.
        """
        sums = self._sums_of(profile)
        self._append(_Slice.of(start_s, end_s, sums))

    def add_file(self, profile: Profile) -> None:
        """Add a profile at the time of its recording, after those that began before it.

        Most of it may be the time of the slice before, as of another process: then both are one.
        """
        start_s = profile.time_ns / 1e9
        end_s = start_s + profile.duration_ns / 1e9
        sums = self._sums_of(profile)
        last_s = self._slices[-1].end_s if self._slices else start_s
        if last_s - start_s > (end_s - start_s) / 2:
            start_s = self._slices[-1].start_s
            together = self._slices.pop().with_next(_Slice.of(start_s, max(end_s, last_s), sums))
            self._append(together)
        else:
            self._append(_Slice.of(max(start_s, last_s), end_s, sums))

    def _sums_of(self, profile: Profile) -> _Sums:
        sums: _Sums = {}
        for sample in profile.samples:
            number = self._numbers.setdefault(_stack(sample), len(self._numbers))
            count, value = sample.values
            for bucket, change in sample.lengths.rows():
                if change < 0:
                    taken = self._taken_back(number * _BUCKETS + bucket, round(-change))
                    count, value = count + taken[0], value + taken[1]
            for place, part, part_value in _parts(sample.lengths, count, value):
                key = number * _BUCKETS + (_UNKNOWN if place is None else place)
                known = sums.get(key, (0, 0))
                sums[key] = known[0] + part, known[1] + part_value
        return sums

    def _append(self, last: _Slice) -> None:
        self._slices.append(last)
        while len(self._slices) > 1 and self._is_too_much():
            pairs = [self._slices[index : index + 2] for index in range(0, len(self._slices), 2)]
            self._slices = [pair[0].with_next(pair[1]) if pair[1:] else pair[0] for pair in pairs]

    def cells(self, sample: Sample) -> Iterator[tuple[int, int | None, int, int]]:
        """See Slices."""
        number = self._number(sample)
        if number is None:
            return
        first, last = number * _BUCKETS, (number + 1) * _BUCKETS
        for index, one in enumerate(self._slices):
            for place in range(bisect_left(one.keys, first), bisect_left(one.keys, last)):
                bucket = one.keys[place] - first
                if one.counts[place] or one.values[place]:
                    known = None if bucket == _UNKNOWN else bucket
                    yield index, known, one.counts[place], one.values[place]

    def _number(self, sample: Sample) -> int | None:
        locations, labels = _stack(sample)
        number = self._numbers.get((locations, labels))
        if number is None:
            without = tuple([label for label in labels if label.key != HANDLER])
            number = self._numbers.get((locations, without))
        return number

    def _taken_back(self, key: int, count: int) -> tuple[int, int]:
        """Take up to `count` events out of the latest slices that have them; their value, too."""
        taken = value = 0
        for one in reversed(self._slices):
            if taken == count:
                break
            more, part = one.take(key, count - taken)
            taken, value = taken + more, value + part
        return taken, value

    def _is_too_much(self) -> bool:
        cells = sum(len(one.keys) for one in self._slices)
        return len(self._slices) > self._most_slices or cells > self._most_cells


def _parts(lengths: WaitHistogram, count: int, value: int) -> Sequence[tuple[int | None, int, int]]:
    """As WaitHistogram.divided(), if the time of these waits fits their lengths.

    Of estimates it may not: these divide all waits so far as the recorded ones are, and from one
    reading to the next that changes. Then their length is not known.
    """
    parts = list(lengths.divided(count, value))
    known = [(part * SCALE.middle_ns(place), ns) for place, part, ns in parts if place is not None]
    expected, actual = sum(ns for ns, _ in known), sum(ns for _, ns in known)
    fits = expected <= _MOST_OFF * actual and actual <= _MOST_OFF * expected
    return parts if fits else ((None, count, value),)


def _stack(sample: Sample) -> _Stack:
    return sample.locations, sample.labels
