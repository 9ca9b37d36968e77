"""Windows add up to what one recording of all the time would have been."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from ebpfprof.errors import InvalidProfile
from ebpfprof.profile.delta import difference, merged
from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profilers.account import RecordingAccount
from ebpfprof.profilers.waits.coverage import Deviation, WaitsCoverage
from ebpfprof.ring.merge import Merged, merged_windows
from ebpfprof.ring.reader import RingArchive
from tests.unit.ring.made_up import (
    NS,
    START_S,
    WINDOW_S,
    Clock,
    goroutines_of,
    profile_of,
    ring,
    window,
)
from tests.unit.ring.test_contents import estimated

ALL = 0, 1 << 62


def snapshot(minutes: int) -> Profile:
    """The sums of an estimate since its begin, after that many minutes; variances grow, too."""
    profile = estimated(profile_of(10 * minutes, minutes * NS, START_S, stacks=3))
    samples = tuple(
        replace(sample, variance=minutes * 1e16, count_variance=9.0 * minutes)
        for sample in profile.samples
    )
    coverage = WaitsCoverage(
        minutes * 60 * NS,
        0,
        0,
        minutes * NS,
        40 * minutes,
        {"block": Deviation(30.0 * minutes, 3e9 * minutes, 9.0 * minutes, 3e16 * minutes)},
    )
    account = replace(
        profile.account,  # type: ignore[type-var]  # mypy can't know that it is a dataclass
        length_ns=minutes * 60 * NS,
        coverage=coverage,
        spread={(e.locations, e.labels): (e.values[1], e.variance) for e in samples},
        losses=(),
        overhead=None,
        events=30 * minutes,
    )
    length_ns = minutes * 60 * NS
    return replace(profile, samples=samples, duration_ns=length_ns).accounted(account)


def merge(folder: Path, kind: str = "block", *, has_slices: bool = False) -> Merged:
    with RingArchive(folder) as archive:
        time = archive.between(*ALL)
        processes = list(time.processes.values())
        found = merged_windows(archive, time, kind, processes, "all of it", has_slices=has_slices)
    assert found is not None
    return found


def write(folder: Path, minutes: Sequence[Sequence[Profile]], pid: int = 42) -> None:
    with ring(folder, Clock()) as writer:
        for number, profiles in enumerate(minutes):
            at = window(START_S + number * WINDOW_S, profiles, pid=pid)
            assert writer.write(at), writer.state()


def test_the_sum_of_exact_windows_is_exact(tmp_path: Path) -> None:
    minutes = [profile_of(3 + n, n * NS, START_S + n * WINDOW_S, stacks=2) for n in range(40)]
    write(tmp_path, [[minute] for minute in minutes])
    found = merge(tmp_path)
    assert {(e.locations, e.labels, e.values) for e in found.profile.samples} == {
        (e.locations, e.labels, e.values) for e in merged(minutes).samples
    }
    assert found.profile.duration_ns == 40 * 60 * NS
    assert found.profile.time_ns == minutes[0].time_ns
    assert found.profile.comments[0] == "all of it, 2400.000 s, every event"


def test_errors_of_estimates_add_up_to_those_of_one_recording(tmp_path: Path) -> None:
    """Variances add up: the error of an hour is smaller, in proportion, than that of a minute."""
    sums = [snapshot(n) for n in range(5)]
    windows = [difference(later, earlier) for earlier, later in pairwise(sums)]
    write(tmp_path, [[each] for each in windows])
    found = merge(tmp_path).profile
    whole = difference(sums[4], sums[0])
    assert found.comments[0] == "all of it, 240.000 s, one wait in eight"
    assert found.comments[1:] == whole.comments[1:]
    assert "+-5 % on counts, +-2.9 % on delays (one standard error)" in found.comments
    for mine, theirs in zip(found.samples, whole.samples, strict=True):
        assert mine.values == theirs.values
        assert mine.variance == pytest.approx(theirs.variance, rel=1e-2)
        assert mine.count_variance == pytest.approx(theirs.count_variance, rel=1e-2)
        assert theirs.count_variance > 0


def test_of_a_moment_it_is_the_last_one_of_each_process(tmp_path: Path) -> None:
    write(tmp_path, [[goroutines_of(n, START_S + n * WINDOW_S)] for n in (10, 20, 30)])
    write(tmp_path, [[goroutines_of(n, START_S + n * WINDOW_S)] for n in (1, 2)], pid=43)
    found = merge(tmp_path, "goroutine")
    assert [sample.values for sample in found.profile.samples] == [(32,)]
    assert len(found.files) == 2


def test_windows_of_several_processes_add_up(tmp_path: Path) -> None:
    for pid in (42, 43, 44):
        write(tmp_path, [[profile_of(3, NS, START_S)]], pid=pid)
    found = merge(tmp_path).profile
    assert [sample.values for sample in found.samples] == [(9, 3 * NS)]
    assert found.comments[0].startswith("all of it, 180.000 s")


def test_a_torn_file_is_left_out_and_reported(tmp_path: Path) -> None:
    write(tmp_path, [[profile_of(3, NS, START_S + n * WINDOW_S)] for n in range(3)])
    first, *_ = sorted(tmp_path.rglob("*.pb.gz"))
    first.write_bytes(first.read_bytes()[:-20])
    found = merge(tmp_path)
    assert [sample.values for sample in found.profile.samples] == [(6, 2 * NS)]
    (fault,) = found.faults
    assert first.name in fault
    assert "damaged" in fault


def test_files_that_are_pruned_meanwhile_are_counted(tmp_path: Path) -> None:
    write(tmp_path, [[profile_of(3, NS, START_S + n * WINDOW_S)] for n in range(3)])
    first, *_ = sorted(tmp_path.rglob("*.pb.gz"))
    first.unlink()
    found = merge(tmp_path)
    assert (found.gone, len(found.files)) == (1, 2)


def test_without_a_file_that_can_be_read_there_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, [[profile_of(3, NS, START_S)]])
    for each in tmp_path.rglob("*.pb.gz"):
        each.write_bytes(b"\x1f\x8b torn")
    with pytest.raises(InvalidProfile, match="No file can be read"):
        merge(tmp_path)


def test_a_file_in_other_units_is_left_out_and_reported(tmp_path: Path) -> None:
    good, bad = (profile_of(3, NS, START_S + n * WINDOW_S) for n in range(2))
    types = (good.sample_types[0], replace(good.sample_types[1], unit="seconds"))
    write(tmp_path, [[good], [replace(bad, sample_types=types)]])
    found = merge(tmp_path)
    assert [sample.values for sample in found.profile.samples] == [(3, NS)]
    assert len(found.faults) == len(found.files) == 1


def test_what_two_processes_say_of_a_moment_has_no_account(tmp_path: Path) -> None:
    account = RecordingAccount("goroutine", "t", "every event", NS)
    one = goroutines_of(3, START_S).accounted(account)
    write(tmp_path, [[one]])
    assert merge(tmp_path, "goroutine").profile.account
    write(tmp_path, [[one]], pid=43)
    assert merge(tmp_path, "goroutine").profile.account is None


def test_windows_are_slices_of_a_heatmap(tmp_path: Path) -> None:
    """Of two processes at about the same time; the cells of a stack add up to its sums."""
    shop, other = [], []
    for number in range(5):
        profile = profile_of(2 + number, (2 + number) * NS, START_S + number * WINDOW_S, stacks=2)
        lengths = WaitHistogram.of([NS] * (2 + number))
        samples = tuple(replace(sample, lengths=lengths) for sample in profile.samples)
        shop.append([replace(profile, samples=samples)])
        other.append([replace(shop[-1][0], time_ns=profile.time_ns + NS)])
    write(tmp_path, shop)
    write(tmp_path, other, pid=43)
    profile = merge(tmp_path, has_slices=True).profile
    assert profile.slices is not None
    assert len(profile.slices.times) == 5
    for sample in profile.samples:
        cells = list(profile.slices.cells(sample))
        assert [index for index, *_ in cells] == [0, 1, 2, 3, 4]
        assert (sum(cell[2] for cell in cells), sum(cell[3] for cell in cells)) == sample.values
    assert merge(tmp_path).profile.slices is None
