"""A target that is recorded in windows, to lose no more than was allowed: `--max-overhead`."""

from __future__ import annotations

import itertools
import json
import math
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.export import pprof
from ebpfprof.goruntime.goroutines import ParkedGoroutine
from ebpfprof.goruntime.labels import LabelReader
from ebpfprof.goruntime.parked import ParkedScanner, Wait
from ebpfprof.overhead.cost import Overhead
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.model import Label, Lock, Profile, Sample
from ebpfprof.profilers.account import Coverage
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from symbolizer import ElfFile, GoBinary
from tests.differential.mutexes import losses
from tests.kernel.inside import profiler_of_waits
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.targets_run import DEADLINE_S, Target

pytestmark = pytest.mark.alone

LENGTH_S = 6
# Load of other programs on this machine changes the pace of the target from one window to the next.
MUCH = 0.2
ATTEMPTS = 4
HANDS = 20


@dataclass(frozen=True)
class Run:
    """A run of `load` under both profilers: Go's own profiles and ours, by kind."""

    go: dict[str, Profile]
    ours: dict[str, Profile]
    coverage: Coverage
    overhead: Overhead
    locks: list[Lock]


def record_load(folder: Path, version: str, options: Options, *arguments: str) -> Run:
    own = {kind: folder / kind for kind in ("block", "mutex")}
    writes = [f"-{kind}={path}" for kind, path in own.items()]
    length = f"-length={LENGTH_S}s"
    with Target.start(program("load", version), length, *writes, *arguments) as target:
        with Session([target.pid], options) as session:
            session.start()
            target.ask("go", "done")
            (report,) = session.finish()
            assert session.failures() == []
            (overhead,) = session.overheads()
        assert not has_probes(target.pid)
        target.ask("write", "written")
    assert report.coverage is not None
    go = {
        "block": pprof.decode(own["block"].read_bytes(), kind="block"),
        "mutex": pprof.decode(own["mutex"].read_bytes(), kind="mutex"),
    }
    return Run(
        go, {each.kind: each for each in report.profiles}, report.coverage, overhead, report.locks
    )


def values_below(profile: Profile, function: str) -> tuple[int, int]:
    """Count and delay (ns) of all stacks in which there is a function or method of that name."""
    found = [sample.values for sample in profile.samples if is_below(sample, function)]
    return sum(count for count, _ in found), sum(delay_ns for _, delay_ns in found)


def is_below(sample: Sample, function: str) -> bool:
    name = re.compile(rf"main\.(\(\*?\w+\)\.)?{function}\b")
    return any(name.match(f.function) for at in sample.locations for f in at.frames)


def probes_but_the_anchor(pid: int) -> list[int]:
    """Where there are probes in a process, but for the anchor that stays."""
    with ElfFile.open(f"/proc/{pid}/exe") as elf:
        (never_passed,) = GoBinary.open(elf).functions_named("runtime.throw")
        return [at for at in probed(pid) if at != never_passed.entry]


def record_windows(folder: Path, version: str, options: Options) -> Run:
    """Record until there was time for a few windows: on a busy machine the first costs too much."""
    for attempt in range(ATTEMPTS):
        (folder / str(attempt)).mkdir()
        run = record_load(folder / str(attempt), version, options)
        if run.coverage.windows > 3:
            return run
    raise AssertionError(f"{run.coverage.windows} windows in the last of {ATTEMPTS} recordings")


@pytest.mark.parametrize("version", ["1.19", "1.22", "1.27"])
def test_windows_show_what_go_counts_all_the_time(version: str, tmp_path: Path) -> None:
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
        # Before Go 1.22 it charged a release for one of those who wait, not for all of them.
        kind, judge = "mutex", run.go["block"] if version == "1.19" else run.go["mutex"]
        function = "useLock"
    _, go_ns = values_below(judge, function)
    _, our_ns = values_below(run.ours[kind], function)
    return abs(our_ns - go_ns) < MUCH * go_ns


def test_who_waits_for_ever_or_since_before_is_in_no_profile(tmp_path: Path) -> None:
    """Fifty of them would be as much as all others together."""
    run = record_windows(tmp_path, "1.27", Options(kinds=("block",), max_overhead=2))

    for profile in (run.go["block"], run.ours["block"]):
        assert values_below(profile, "waitForEver") == (0, 0)
        assert values_below(profile, "waitSinceBefore") == (0, 0)


@pytest.mark.parametrize("version", ["1.23", "1.27"])
def test_waits_longer_than_a_window_have_their_labels(version: str, tmp_path: Path) -> None:
    """Also those that began before one and ended after it."""
    run = record_windows(tmp_path, version, Options(kinds=("block",), max_overhead=2))

    long = [s for s in run.ours["block"].samples if is_below(s, "waitLong")]
    assert [s for s in long if not any(each.key == "sleeper" for each in s.labels)] == []
    named = {label.value for sample in long for label in sample.labels if label.key == "sleeper"}
    assert named == {str(number) for number in range(20)}


def test_labels_that_cannot_be_read_in_a_window_are_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of waits that the kernel sees neither begin nor end."""

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
    """What is recorded until the list of goroutines was read so often, and what is said to be
    missing, if it can't be read at these calls.
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


def test_a_list_of_goroutines_that_cannot_be_read_costs_a_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There are two looks at it when a window is prepared, and one when it ends."""
    report, failures = record_while_the_list_fails(monkeypatch, range(1, 4), until=15)
    assert failures == []
    assert report.coverage is not None
    assert report.coverage.windows > 1


def test_a_list_of_goroutines_that_is_lost_is_told_once_all_is_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    report, (failure,) = record_while_the_list_fails(monkeypatch, range(1, 1 << 30), until=3)
    assert isinstance(failure, UnreadableMemory)
    (profile,) = report.profiles
    assert profile.samples


def test_who_still_waits_at_the_end_is_known_and_since_when(tmp_path: Path) -> None:
    options = Options(kinds=("block",), open_waits=True, max_overhead=2)
    run = record_windows(tmp_path, "1.27", options)

    count, delay_ns = values_below(run.ours["open"], "waitForEver")
    assert count == 50
    assert 0.8 * LENGTH_S < delay_ns / 1e9 / count < LENGTH_S + DEADLINE_S
    assert values_below(run.ours["open"], "waitSinceBefore") == (0, 0)
    # It is not told that they waited before.
    assert all(s.labels == () for s in run.ours["open"].samples if is_below(s, "waitForEver"))


def test_locks_have_names_and_times_held(tmp_path: Path) -> None:
    options = Options(kinds=("block", "mutex"), by_lock=True, max_overhead=2)
    run = record_windows(tmp_path, "1.27", options)

    lock = max(run.locks, key=lambda each: each.delay_ns)
    assert lock.type == "sync.Mutex"
    assert lock.holds > 10
    # It sleeps for 50 µs while it has the lock, which is the least that takes.
    assert 50_000 < lock.held_ns / lock.holds < 50_000_000


def test_what_is_spent_is_what_was_allowed(tmp_path: Path) -> None:
    options = Options(kinds=("block", "mutex"), max_overhead=2)
    run = record_load(tmp_path, "1.27", options, "-pace=2us")
    exact = record_load(tmp_path, "1.27", Options(kinds=("block", "mutex"), max_overhead=100))

    # The first window ends as soon as we get a processor, and so does each.
    assert run.overhead.ns < 0.02 * run.overhead.cpu_ns + 0.03 * 1e9 * LENGTH_S
    assert exact.coverage.windows == 0
    assert exact.coverage.share == 1


@pytest.mark.parametrize("kinds", [("block", "mutex"), ("block",), ("mutex",)])
def test_within_the_bound_every_event_is_taken(kinds: tuple[str, ...], tmp_path: Path) -> None:
    own = tmp_path / "go.prof"
    arguments = ("-blockrate=1", f"-profile={own}")
    with (
        Target.start(program("blockops"), *arguments) as target,
        Session([target.pid], Options(kinds=kinds, max_overhead=100)) as session,
    ):
        session.start()
        target.ask("go", "done")
        planned = json.loads(target.expect("{"))
        (report,) = session.finish()
    assert report.coverage is not None
    assert report.coverage.windows == 0
    for profile in report.profiles:
        assert not any("scaled" in comment for comment in profile.comments)
        if profile.kind == "block":
            for operation, count in planned.items():
                assert values_below(profile, operation)[0] == count, operation
        assert profile.samples


@contextmanager
def busy(target: Target) -> Iterator[None]:
    """Let a ping-pong run round after round."""
    ending = threading.Event()

    def rounds() -> None:
        while not ending.is_set():
            target.ask("go", "ns ")

    thread = threading.Thread(target=rounds)
    thread.start()
    try:
        yield
    finally:
        ending.set()
        thread.join()


def await_windows(session: Session, at_least: int) -> None:
    until = monotonic() + DEADLINE_S
    (windows,) = profiler_of_waits(session._live)._windows.values()
    while windows.coverage().windows < at_least:
        assert monotonic() < until, "there are no windows"
        sleep(0.01)


def test_between_windows_there_is_no_probe_but_the_anchor() -> None:
    with Target.start(program("pingpong"), "-sends=100000") as target, busy(target):
        # After the first moments nothing is left to spend.
        with Session([target.pid], Options(max_overhead=0.01)) as session:
            session.start()
            until = monotonic() + DEADLINE_S
            while probes_but_the_anchor(target.pid):
                assert monotonic() < until, "the probes stay"
            assert probed(target.pid)
            (report,) = session.finish()
            assert report.profiles[0].samples
            assert report.coverage is not None
            assert report.coverage.share < 1
        assert not has_probes(target.pid)


def test_a_target_that_ends_between_windows_is_written() -> None:
    with (
        Target.start(program("pingpong"), "-sends=100000") as target,
        Session([target.pid], Options(max_overhead=5)) as session,
    ):
        session.start()
        with busy(target):
            await_windows(session, 2)
        target.kill()
        session.wait(DEADLINE_S, lambda _: False)
        (report,) = session.finish()
        assert session.failures() == []
        assert len(session.endings()) == 1
    for function in ("produce", "consume"):
        assert values_below(report.profiles[0], function)[0] > 1000


def test_all_is_counted_of_a_target_that_ends_within_the_bound() -> None:
    with (
        Target.start(program("steps")) as target,
        Session([target.pid], Options(max_overhead=100)) as session,
    ):
        session.start()
        for _ in range(HANDS):
            target.ask("hand", "done")
        target.kill()
        sleep(0.2)  # from now on it earns nothing
        session.wait(DEADLINE_S, lambda _: False)
        (report,) = session.finish()
        assert session.failures() == []
        assert report.coverage is not None
        assert (report.coverage.windows, report.coverage.share) == (0, 1)
    # Each time ten values and the end.
    assert values_below(report.profiles[0], "hand")[0] == 11 * HANDS


def test_off_and_on_sums_never_decrease() -> None:
    options = Options(kinds=("block", "mutex"), max_overhead=5)
    with (
        Target.start(program("pingpong"), "-sends=100000") as running,
        LiveSession(options) as live,
        busy(running),
    ):
        target = live.add(running.pid)
        before = 0, 0
        for _ in range(2):
            live.start(target)
            until = monotonic() + 2
            while monotonic() < until:
                profile = live.snapshot(target, {"block"}).profiles[0]
                now = values_below(profile, "consume")
                assert now >= before
                assert now[1] >= before[1]
                before = now
            live.stop(target)
            assert not has_probes(running.pid)
            assert values_below(live.snapshot(target, {"block"}).profiles[0], "consume") >= before
        assert before[0] > 0


def test_samples_are_thinned_and_stand_for_more() -> None:
    options = Options(kinds=("cpu",), hz=999, max_overhead=0.1)
    with (
        Target.start(program("pingpong"), "-sends=100000") as target,
        Session([target.pid], options) as session,
        busy(target),
    ):
        session.start()
        session.wait(4, lambda _: False)
        (report,) = session.finish()
        (overhead,) = session.overheads()
    (profile,) = report.profiles
    (thinned,) = (each for each in profile.comments if "one sample in" in each)
    one_in = int(thinned.split("one sample in ")[1].split(",")[0])
    assert one_in > 1
    # Of those that were taken, the last ones stand for so many each.
    samples = sum(sample.values[0] for sample in profile.samples)
    assert overhead.samples.count < samples < overhead.samples.count * one_in
    expected = overhead.cpu_ns / profile.period
    assert abs(samples - expected) < 5 * math.sqrt(expected * one_in) + MUCH * expected
