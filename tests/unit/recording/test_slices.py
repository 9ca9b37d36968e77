"""A recording is read while it goes on, as often as that is cheap."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.profile.delta import difference
from ebpfprof.profile.model import Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import RecordingFacts
from ebpfprof.profilers.waits.kinds import BLOCK
from ebpfprof.recording.reports import ProcessSums
from ebpfprof.recording.slices import SliceReader
from symbolizer.allowance import Allowance
from tests.unit.export.small_profile import LOCK, SMALL, WORK

STARTED_S = 1_000.0
SECOND = 1_000_000_000


class Waiting:
    """Stands for a live session, its target and its recording: a wait of 1 ms each 100 ms."""

    kinds = ("block", "cpu")
    started_unix_ns = int(STARTED_S * SECOND)

    def __init__(self, reading_s: float = 0.0) -> None:
        self.recordings, self.target = self, self
        self.allowance = Allowance()
        self.reading_s = reading_s
        self.now_s = 0.0
        self.fails_from_s = math.inf
        self.error: Exception = TargetGone("It has ended.")
        self.has_no_report = False

    def of_kinds(self, kinds: Collection[str]) -> list[Waiting]:
        assert list(kinds) == ["block"]
        return [self]

    def sums(self, _: object, kinds: Collection[str] = ("block",)) -> ProcessSums:
        self.of_kinds(kinds)
        if self.now_s > self.fails_from_s:
            raise self.error
        self.now_s += self.reading_s if self.now_s else 0.0
        facts: Any = RecordingFacts(
            self,  # type: ignore[arg-type]  # of which only the allowance is read
            None,
            ("block",),
            started_ns=0,
            started_unix_ns=self.started_unix_ns,
            ended_ns=round(self.now_s * SECOND),
        )
        return ProcessSums(self, facts, {self: self.profile()})  # type: ignore[arg-type,dict-item]  # it stands for them

    def profile(self) -> Profile:
        count = round(self.now_s * 10)
        lengths = WaitHistogram.of([1_000_000] * count)
        sample = Sample((LOCK, WORK), (count, count * 1_000_000), lengths=lengths)
        return replace(SMALL, kind="block", samples=(sample,) if count else ())

    def report(self, sums: Profile, since: Profile | None, builder: Any) -> None:  # noqa: ANN401 - as Recording has it
        if self.has_no_report:
            raise self.error
        builder.report.profiles.append(difference(sums, since) if since else sums)


def reader_of(waiting: Waiting, duration_s: float) -> SliceReader:
    stand_in: Any = waiting  # for a session and its target
    options = Options(kinds=("block", "cpu"))
    since = waiting.sums(None)
    return SliceReader(stand_in, stand_in, since, options, duration_s, lambda: waiting.now_s)


def record(reader: SliceReader, waiting: Waiting, until_s: float) -> None:
    while waiting.now_s < until_s:
        waiting.now_s = round(waiting.now_s + 0.1, 6)
        reader.poll()


def times_of(reader: SliceReader, waiting: Waiting) -> list[tuple[float, float]]:
    """The slices of the whole recording, in seconds from its start; their cells add up."""
    waiting.fails_from_s = math.inf
    sums = waiting.sums(None)
    (whole, other) = reader.finish(sums, [waiting.profile(), replace(SMALL, kind="cpu")])
    assert other.slices is None
    assert whole.slices
    (sample,) = whole.samples
    cells = list(whole.slices.cells(sample))
    assert sum(cell[2] for cell in cells) == sample.values[0]
    assert sum(cell[3] for cell in cells) == sample.values[1]
    return [(start - STARTED_S, end - STARTED_S) for start, end in whole.slices.times]


def read(waiting: Waiting, duration_s: float, until_s: float) -> list[tuple[float, float]]:
    reader = reader_of(waiting, duration_s)
    record(reader, waiting, until_s)
    return times_of(reader, waiting)


def test_a_slice_is_a_sixtieth_of_the_duration() -> None:
    assert BLOCK.has_lengths
    times = read(Waiting(), 60.0, 60.0)
    assert times[:2] == [(0.0, 1.0), (1.0, 2.0)]
    assert times[-1][1] == 60.0
    assert len(times) in (60, 61)


def test_without_a_duration_slices_grow_with_the_recording() -> None:
    assert read(Waiting(), math.inf, 3.0)[:2] == [(0.0, 1.0), (1.0, 2.0)]
    times = read(Waiting(), math.inf, 1_000.0)
    assert len(times) <= 120
    assert max(end - start for start, end in times) > 8


def test_reading_takes_a_fiftieth_of_the_time() -> None:
    times = read(Waiting(reading_s=0.2), 60.0, 60.0)
    assert 5 <= len(times) <= 7


@pytest.mark.parametrize("at_s", [0.0, 2.0])
@pytest.mark.parametrize("is_gone", [True, False])
def test_after_an_error_the_rest_is_one_slice(at_s: float, is_gone: bool) -> None:
    """That the process has ended is none: what was recorded is there."""
    waiting = Waiting()
    waiting.fails_from_s = at_s
    if not is_gone:
        waiting.error = AttachFailed("A map can't be read.")
    reader = reader_of(waiting, 60.0)
    record(reader, waiting, 10.0)
    times = times_of(reader, waiting)
    assert times[-1] == (at_s, 10.0)
    assert len(times) == at_s + 1
    assert reader.failures == ([] if is_gone else [waiting.error])


def test_if_the_last_slice_fails_there_are_none_and_the_profiles_stay() -> None:
    waiting = Waiting()
    reader = reader_of(waiting, 60.0)
    record(reader, waiting, 10.0)
    waiting.error, waiting.has_no_report = ValueError("A row can't be read."), True
    profiles = [waiting.profile()]
    assert reader.finish(waiting.sums(None), profiles) == profiles
    assert reader.failures == [waiting.error]
