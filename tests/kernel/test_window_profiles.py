"""Profiles of a target that is recorded in windows: like Go's own, and complete."""

from __future__ import annotations

import itertools
import re
import threading
from pathlib import Path

import pytest

from ebpfprof.goruntime.goroutines.labels import LabelReader
from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine, ParkedScanner, Wait
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.model import Label
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.recording.session import Session
from tests.builds import versions
from tests.differential.mutexes import losses
from tests.kernel.kernel_state import probed
from tests.kernel.programs import program
from tests.kernel.windowed_runs import (
    ATTEMPTS,
    LENGTH_S,
    MUCH,
    Run,
    is_below,
    record_windows,
    values_below,
)
from tests.targets_run import DEADLINE_S, Target

MOST = 0.65


@pytest.mark.alone
@pytest.mark.parametrize("version", versions("1.19", "1.22", "1.27"))
def test_estimates_from_windows_equal_gos_own_profile(version: str, tmp_path: Path) -> None:
    options = Options(kinds=("block", "mutex"), max_overhead=2)
    wrong = {"waitLong", "takeJobs", "useLock", "consume", "released"}
    for attempt in range(ATTEMPTS):  # each must be right once: chance hits another one each time
        (tmp_path / f"run{attempt}").mkdir()
        run = record_windows(tmp_path / f"run{attempt}", version, options)
        assert run.coverage.share < 0.9
        for profile in run.ours.values():
            assert any("standard error" in comment for comment in profile.comments)
            assert any(f"in {run.coverage.windows} windows" in each for each in profile.comments)
        wrong = {function for function in wrong if not is_like_go(run, function, version)}
        if not wrong:
            return
    raise AssertionError(f"the delays of {wrong} were wrong in {ATTEMPTS} runs")


def is_like_go(run: Run, function: str, version: str) -> bool:
    """Whether the delay below a function is what Go says, but for chance."""
    kind, judge = "block", run.go["block"]
    if function == "released":
        # Before Go 1.22 it charged a release for one waiter, not for all of them.
        kind, judge = "mutex", run.go["block"] if version == "1.19" else run.go["mutex"]
        function = "useLock"
    _, go_ns = values_below(judge, function)
    _, our_ns = values_below(run.ours[kind], function)
    # Its waits take less than a microsecond, of which samples find a part only (docs/costs.md).
    much = MOST if function == "consume" else MUCH
    return abs(our_ns - go_ns) < much * go_ns


@pytest.mark.full
def test_waits_that_begin_before_or_never_end_are_in_no_profile(tmp_path: Path) -> None:
    """Fifty of them would wait as long as all others together."""
    run = record_windows(tmp_path, "1.27", Options(kinds=("block",), max_overhead=2))

    for profile in (run.go["block"], run.ours["block"]):
        assert values_below(profile, "waitForEver") == (0, 0)
        assert values_below(profile, "waitSinceBefore") == (0, 0)


@pytest.mark.full
@pytest.mark.parametrize("version", versions("1.23", "1.27"))
def test_waits_longer_than_a_window_have_their_labels(version: str, tmp_path: Path) -> None:
    """Also those that began before one and ended after it."""
    run = record_windows(tmp_path, version, Options(kinds=("block",), max_overhead=2))

    long = [s for s in run.ours["block"].samples if is_below(s, "waitLong")]
    assert [s for s in long if not any(each.key == "sleeper" for each in s.labels)] == []
    named = {label.value for sample in long for label in sample.labels if label.key == "sleeper"}
    assert named == {str(number) for number in range(20)}


@pytest.mark.full
def test_unreadable_labels_in_a_window_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of waits that begin before the window and end after it."""

    def read(_reader: LabelReader, _address: int) -> tuple[Label, ...]:
        raise UnreadableMemory("Nothing is mapped there.")

    monkeypatch.setattr(LabelReader, "read", read)
    run = record_windows(tmp_path, "1.27", Options(kinds=("block",), max_overhead=2))

    (lost,) = losses(run.ours["block"])
    found = re.fullmatch(r"incomplete: (\d+) .*\(labels_unreadable\)", lost)
    assert found, lost
    assert int(found[1]) >= 50  # wait for ever


def record_while_the_list_fails(
    monkeypatch: pytest.MonkeyPatch, calls: range, until: int
) -> tuple[Report, list[Exception]]:
    """The recording until the list of goroutines was read so often, and its failures, if the
    list can't be read at these calls.
    """
    asked, enough = itertools.count(), threading.Event()
    original = ParkedScanner.parked

    def parked(scanner: ParkedScanner) -> dict[Wait, ParkedGoroutine]:
        call = next(asked)
        if call >= until:
            enough.set()
        if call in calls:
            raise UnreadableMemory("The list makes no sense.")
        return original(scanner)

    monkeypatch.setattr(ParkedScanner, "parked", parked)
    options = Options(kinds=("block",), max_overhead=10)
    with (
        Target.start(program("load", "1.27"), "-length=100s") as target,
        Session([target.pid], options) as session,
    ):
        session.start()
        target.say("go")
        assert enough.wait(DEADLINE_S)
        (report,) = session.finish()
        assert probed(target.pid) == {}
        target.kill()
        return report, session.failures()


@pytest.mark.full
def test_an_unreadable_goroutine_list_costs_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The list is read twice when a window is prepared, and once when it ends."""
    report, failures = record_while_the_list_fails(monkeypatch, range(1, 4), until=15)
    assert failures == []
    assert report.coverage is not None
    assert report.coverage.windows > 1


def test_a_lost_goroutine_list_fails_after_profiles_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, (failure,) = record_while_the_list_fails(monkeypatch, range(1, 1 << 30), until=3)
    assert isinstance(failure, UnreadableMemory)
    (profile,) = report.profiles
    assert profile.samples


@pytest.mark.full
def test_open_waits_have_their_start_times(tmp_path: Path) -> None:
    options = Options(kinds=("block",), open_waits=True, max_overhead=2)
    run = record_windows(tmp_path, "1.27", options)

    count, delay_ns = values_below(run.ours["open"], "waitForEver")
    assert count == 50
    assert 0.8 * LENGTH_S < delay_ns / 1e9 / count < LENGTH_S + DEADLINE_S
    assert values_below(run.ours["open"], "waitSinceBefore") == (0, 0)
    # No label says that they waited before.
    assert all(s.labels == () for s in run.ours["open"].samples if is_below(s, "waitForEver"))


@pytest.mark.full
def test_locks_have_names_and_times_held(tmp_path: Path) -> None:
    options = Options(kinds=("block", "mutex"), by_lock=True, max_overhead=2)
    run = record_windows(tmp_path, "1.27", options)

    lock = max(run.locks, key=lambda each: each.delay_ns)
    assert lock.type == "sync.Mutex"
    assert lock.holds > 10
    # It sleeps for 50 µs while it has the lock, which is the least that takes.
    assert 50_000 < lock.held_ns / lock.holds < 50_000_000
