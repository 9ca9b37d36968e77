"""How long waits were: of programs that log the length of each of their waits."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from ebpfprof.profile.model import Profile
from ebpfprof.profile.wait_histogram import NO_LENGTHS, SCALE, WaitHistogram
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.recording.session import Session
from tests.builds import in_full, versions
from tests.kernel.programs import program
from tests.kernel.windowed_runs import is_below, reports_of_work
from tests.recorder import only_profile, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

_NOT_PARKED = 20  # waits that were over before the goroutine parked
EXACT = Options(kinds=("block",))
EIGHTH = Options(kinds=("block",), one_in_eight=True)
LOCKS = Options(kinds=("mutex",), by_lock=True)
WINDOWS = Options(kinds=("block",), max_overhead=1)
PARTS = (0.5, 0.8, 0.95, 0.99, 1.0)
WAITERS = 2  # for the lock that a goroutine releases
SHAPES = ["bimodal", *in_full("tail", "rare")]


def recorded(
    options: Options, shape: str, version: str, *more: str, waits: int = 20_000
) -> tuple[Report, list[int]]:
    """What was recorded, and the lengths that the program logged, in order."""
    arguments = f"-shape={shape}", f"-waits={waits}", *more
    with Target.start(program("lengths", version), *arguments) as target:
        with Session([target.pid], options) as session:
            session.start()
            (report,) = reports_of_work(session, target)
        logged = json.loads(target.ask("log", "["))
    return report, sorted(ns for ns in logged if ns > 0)  # others began after they could end


def lengths_of(profile: Profile, function: str = "wait") -> tuple[WaitHistogram, int, float]:
    """How long the waits of a function were, how many there were, and the variance of that."""
    samples = [sample for sample in profile.samples if is_below(sample, function)]
    return (
        sum((sample.lengths for sample in samples), NO_LENGTHS),
        sum(sample.values[0] for sample in samples),
        sum(sample.count_variance for sample in samples),
    )


def quantile(lengths_ns: Sequence[int], part: float) -> int:
    return lengths_ns[max(0, math.ceil(part * len(lengths_ns)) - 1)]


@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("shape", SHAPES)
def test_with_every_wait_recorded_quantiles_are_within_a_bucket(shape: str, version: str) -> None:
    report, logged = recorded(EXACT, shape, version)
    lengths, count, variance = lengths_of(report.profiles[0])
    assert lengths.total == count
    assert count == pytest.approx(len(logged), abs=_NOT_PARKED)
    assert variance == 0
    for part in (0.5, 0.9, 0.99, 0.999, 1.0):
        found = lengths.quantile(part, waits=count)
        assert found
        bucket = SCALE.bucket_of(quantile(logged, part))
        assert abs(SCALE.bucket_of(int(found.ns)) - bucket) <= 1, (part, shape)


@pytest.mark.alone
@pytest.mark.full
def test_in_windows_quantiles_lie_within_their_limits() -> None:
    """Those of waits that windows cut off are not known, so these have wide limits."""
    report, logged = recorded(WINDOWS, "bimodal", "1.27", waits=60_000)
    lengths, count, variance = lengths_of(report.profiles[0])
    assert variance > 0
    known = {part: lengths.quantile(part, waits=count, variance=variance) for part in PARTS}
    for part, found in known.items():
        exact_ns = quantile(logged, part)
        assert not found or found.least_ns / 1.13 < exact_ns < found.most_ns * 1.13, (part, found)
    assert all((found := known[part]) and found.is_known for part in (0.5, 0.8))


def test_files_have_lengths_as_labels_for_go_tool_pprof(tmp_path: Path) -> None:
    arguments = "-shape=bimodal", "-waits=2000"
    with Target.start(program("lengths"), *arguments) as target:
        with recording(target.pid, tmp_path, "--max-overhead=0", "--lengths") as recorder:
            target.ask("go", "done")
            recorder.interrupt()
            finished = recorder.finish()
        logged = json.loads(target.ask("log", "["))
    assert finished.code == 0, finished.stderr
    (path,) = tmp_path.rglob("*.block.pb.gz")
    long = "-sample_index=contentions", "-tagfocus=wait=10ms:", "-focus=main.wait"
    text = toolchain("1.27").go("tool", "pprof", *long, "-top", path)
    found = re.search(r"Showing nodes accounting for (\d+)", text)
    assert found, text
    assert int(found[1]) == pytest.approx(sum(ns >= 10_000_000 for ns in logged), abs=_NOT_PARKED)
    read = lengths_of(only_profile(tmp_path))[0]
    assert read.total == pytest.approx(len(logged), abs=_NOT_PARKED)


@pytest.mark.parametrize("version", versions())
def test_of_locks_delays_and_holds_are_within_a_bucket(version: str) -> None:
    """Two goroutines wait for each hold."""
    report, logged = recorded(LOCKS, "fair", version, "-locked", waits=2000)
    delays, count, _ = lengths_of(report.profiles[0], "release")
    assert delays.total == count
    holds = WaitHistogram.together(lock.hold_lengths for lock in report.locks)
    assert holds.total == sum(lock.holds for lock in report.locks)
    assert count > holds.total > 0.8 * len(logged)
    for part in (0.5, 0.8, 0.95, 0.99):
        hold_ns = quantile(logged, part)
        for lengths, ns in ((holds, hold_ns), (delays, WAITERS * hold_ns)):
            found = lengths.quantile(part)
            assert found
            assert abs(SCALE.bucket_of(int(found.ns)) - SCALE.bucket_of(ns)) <= 1, part


@pytest.mark.full
@pytest.mark.parametrize("version", versions())
@pytest.mark.parametrize("shape", SHAPES)
def test_of_one_wait_in_eight_quantiles_are_within_the_reported_error(
    shape: str, version: str
) -> None:
    report, logged = recorded(EIGHTH, shape, version)
    lengths, count, variance = lengths_of(report.profiles[0])
    assert lengths.total == pytest.approx(count, rel=0.01)
    for part in (0.5, 0.9, 0.99):
        found = lengths.quantile(part, waits=count, variance=4 * variance)  # two standard errors
        assert found
        actual = quantile(logged, part)
        bucket_ns = 0.12 * actual  # the program's clock and ours are read at different moments
        assert found.least_ns - bucket_ns <= actual <= found.most_ns + bucket_ns, (part, shape)
