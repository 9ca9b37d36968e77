"""Waits by time and by length."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.profile.handlers import HANDLER
from ebpfprof.profile.model import Label, Profile, Sample
from ebpfprof.profile.wait_histogram import SCALE, WaitHistogram
from ebpfprof.profile.wait_slices import MOST_SLICES, WaitSlices
from tests.unit.export.small_profile import LOCK, RECEIVE, SMALL, WORK

MS = 1_000_000
STACKS = ((RECEIVE, WORK), (LOCK, WORK))


def bucket(ms: int) -> int:
    return SCALE.bucket_of(ms * MS)


def waits(*lengths_ms: int, stack: int = 0) -> Sample:
    """Waits of a stack, of these lengths."""
    lengths_ns = [ms * MS for ms in lengths_ms]
    return Sample(
        STACKS[stack],
        (len(lengths_ns), sum(lengths_ns)),
        lengths=WaitHistogram.of(lengths_ns),
    )


def profile_of(*samples: Sample) -> Profile:
    return replace(SMALL, samples=samples)


def sliced(*parts: Sequence[Sample], **bounds: int) -> WaitSlices:
    """One slice a second."""
    slices = WaitSlices(**bounds)
    for index, samples in enumerate(parts):
        slices.add(profile_of(*samples), index, index + 1)
    return slices


def cells(slices: WaitSlices, stack: int = 0) -> list[tuple[int, int | None, int, int]]:
    return list(slices.cells(Sample(STACKS[stack], (0, 0))))


def test_waits_are_where_they_ended_and_how_long_they_were() -> None:
    slices = sliced([waits(1, 1)], [waits(40), waits(1, stack=1)])
    assert slices.times == [(0, 1), (1, 2)]
    assert cells(slices) == [(0, bucket(1), 2, 2 * MS), (1, bucket(40), 1, 40 * MS)]
    assert cells(slices, 1) == [(1, bucket(1), 1, MS)]


def test_a_stack_of_none_has_no_cells() -> None:
    assert not list(sliced([waits(1)]).cells(Sample((WORK,), (0, 0))))


def test_waits_of_unknown_length_have_a_place_of_their_own() -> None:
    cut_off = Sample(STACKS[0], (3, 90 * MS), lengths=WaitHistogram.of([30 * MS]))
    (known, rest) = cells(sliced([cut_off]))
    assert known[:3] == (0, bucket(30), 1)
    assert rest[:3] == (0, None, 2)
    assert known[3] + rest[3] == 90 * MS


def test_a_wait_that_went_on_is_only_in_its_last_slice() -> None:
    begun = waits(30, 5)
    longer = replace(
        waits(70),
        values=(0, 40 * MS),
        lengths=WaitHistogram.of([70 * MS]) - WaitHistogram.of([30 * MS]),
    )
    found = cells(sliced([begun], [], [longer]))
    assert [cell[:3] for cell in found] == [(0, bucket(5), 1), (2, bucket(70), 1)]
    assert sum(cell[3] for cell in found) == 75 * MS


def test_waits_that_went_on_leave_the_latest_slices() -> None:
    """There are three of 5 ms in each of three slices, and four of all went on."""
    begun = waits(5, 5, 5)
    longer = replace(
        waits(70, 70, 70, 70),
        values=(0, 4 * 65 * MS),
        lengths=WaitHistogram.of([70 * MS] * 4) - WaitHistogram.of([5 * MS] * 4),
    )
    found = cells(sliced([begun], [begun], [begun], [longer]))
    assert [cell[:3] for cell in found] == [
        (0, bucket(5), 3),
        (1, bucket(5), 2),
        (3, bucket(70), 4),
    ]
    assert sum(cell[3] for cell in found) == (9 * 5 + 4 * 65) * MS


def test_too_many_slices_become_half_as_many() -> None:
    parts = [[waits(1)] for _ in range(MOST_SLICES + 1)]
    slices = sliced(*parts)
    pairs = [(start, start + 2) for start in range(0, MOST_SLICES, 2)]
    assert slices.times == [*pairs, (MOST_SLICES, MOST_SLICES + 1)]
    assert sum(cell[2] for cell in cells(slices)) == MOST_SLICES + 1


def test_cells_are_bounded() -> None:
    parts = [[waits(1, 10), waits(1, stack=1)] for _ in range(8)]
    assert len(sliced(*parts, most_cells=12).times) == 4
    assert len(sliced(*parts, most_cells=1).times) == 1


def test_the_label_of_a_handler_is_added_later() -> None:
    slices = sliced([waits(1)])
    labelled = replace(waits(1), labels=(Label(HANDLER, "main.checkout"),))
    assert list(slices.cells(labelled)) == cells(slices)
    other = replace(waits(1), labels=(Label("tenant", "blue"),))
    assert list(slices.cells(other)) == []


@st.composite
def recordings(draw: st.DrawFn) -> list[list[Sample]]:
    """What each slice adds: waits that end, and waits in progress that go on."""
    parts, running = [], [0, 0]
    for _ in range(draw(st.integers(1, 12))):
        samples = []
        for stack in (0, 1):
            ended = draw(st.lists(st.integers(1, 5_000), max_size=4))
            sample = waits(*ended, stack=stack)
            more = draw(st.integers(0, 900))
            if more:
                before = [running[stack] * MS] if running[stack] else []
                running[stack] += more
                now = WaitHistogram.of([running[stack] * MS])
                count, delay_ns = sample.values
                sample = replace(
                    sample,
                    values=(count + (not before), delay_ns + more * MS),
                    lengths=sample.lengths + (now - WaitHistogram.of(before)),
                )
            samples.append(sample)
        parts.append(samples)
    return parts


@given(recordings(), st.integers(1, 20), st.integers(1, 40))
def test_the_cells_add_up_to_the_profile(
    parts: list[list[Sample]], most_slices: int, most_cells: int
) -> None:
    slices = sliced(*parts, most_slices=most_slices, most_cells=most_cells)
    for stack in (0, 1):
        samples = [samples[stack] for samples in parts]
        found = cells(slices, stack)
        assert sum(cell[2] for cell in found) == sum(one.values[0] for one in samples)
        assert sum(cell[3] for cell in found) == sum(one.values[1] for one in samples)
        assert all(cell[2] >= 0 and cell[3] >= 0 for cell in found)
        lengths = WaitHistogram.together(one.lengths for one in samples)
        by_bucket = Counter[int]()
        for _, place, count, _ in found:
            if place is not None:
                by_bucket[place] += count
        # A wait that goes on adds time, so the lengths of others may not fit: then not known.
        unknown = lengths - WaitHistogram.counted(by_bucket)
        assert all(count > 0 for _, count in unknown.rows())
        assert unknown.total == sum(cell[2] for cell in found if cell[1] is None)


def test_where_time_and_lengths_disagree_the_length_is_not_known() -> None:
    estimated = replace(waits(100, 200), values=(2, 10 * MS))
    assert cells(sliced([estimated])) == [(0, None, 2, 10 * MS)]
    rough = replace(waits(100, 200), values=(2, 200 * MS))
    assert [cell[1] for cell in cells(sliced([rough]))] == [bucket(100), bucket(200)]


def test_files_of_the_same_time_are_one_slice() -> None:
    """Windows of two processes end about together; those that follow have slices of their own."""
    slices = WaitSlices()
    recorded = ((0, 16, 1), (1, 17, 40), (16, 32, 1), (17, 33, 1), (64, 80, 40))
    for start_s, end_s, ms in recorded:
        profile = profile_of(waits(ms))
        duration_ns = (end_s - start_s) * 1_000_000_000
        slices.add_file(replace(profile, time_ns=start_s * 1_000_000_000, duration_ns=duration_ns))
    assert slices.times == [(0, 17), (17, 33), (64, 80)]
    assert cells(slices) == [
        (0, bucket(1), 1, MS),
        (0, bucket(40), 1, 40 * MS),
        (1, bucket(1), 2, 2 * MS),
        (2, bucket(40), 1, 40 * MS),
    ]
