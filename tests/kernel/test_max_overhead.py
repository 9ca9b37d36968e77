"""A target that is recorded in windows, to lose no more than the bound: `--max-overhead`."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.overhead.budget import IDLE_SHARE, MOST_CREDIT_NS
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from symbolizer import ElfFile, GoBinary
from tests.builds import in_full
from tests.kernel.inside import profiler_of_waits
from tests.kernel.kernel_state import has_probes, probed
from tests.kernel.programs import program
from tests.kernel.windowed_runs import LENGTH_S, MUCH, error_below, record_load, values_below
from tests.targets_run import DEADLINE_S, Target

HANDS = 20
SENDS, ROUNDS = 6_000_000, 3
BOUND, MANY = 1, 6
# A hit in whose middle the kernel takes the processor costs a hundred times the usual.
BOUNDLESS = 100_000
SIGMAS = 6


def probes_but_the_anchor(pid: int) -> list[int]:
    """Where there are probes in a process, but for the anchor that stays."""
    with ElfFile.open(f"/proc/{pid}/exe") as elf:
        (never_passed,) = GoBinary.open(elf).functions_named("runtime.throw")
        return [at for at in probed(pid) if at != never_passed.entry]


@pytest.mark.full
@pytest.mark.alone
def test_windows_spend_the_overhead_bound(tmp_path: Path) -> None:
    options = Options(kinds=("block", "mutex"), max_overhead=2)
    run = record_load(tmp_path, "1.27", options, "-pace=2us")

    # The first window ends as soon as we get a processor, and so does each.
    assert run.overhead.ns < 0.02 * run.overhead.cpu_ns + 0.03 * 1e9 * LENGTH_S


@pytest.mark.parametrize("kinds", [("block", "mutex"), *in_full((("block",),), (("mutex",),))])
def test_within_the_bound_every_event_is_recorded(kinds: tuple[str, ...], tmp_path: Path) -> None:
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
    (recording,) = profiler_of_waits(session._live)._recordings
    budgeted = recording._budgeted
    assert budgeted
    while budgeted.sums()[1].windows < at_least:
        assert monotonic() < until, "there are no windows"
        sleep(0.01)


def test_between_windows_only_the_anchor_is_attached() -> None:
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


def test_all_waits_of_a_target_that_ends_early_are_counted() -> None:
    with (
        Target.start(program("steps")) as target,
        Session([target.pid], Options(max_overhead=BOUNDLESS)) as session,
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


@pytest.mark.alone
@pytest.mark.full
def test_sums_never_decrease_across_stops_and_starts() -> None:
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
            until = monotonic() + 1
            while monotonic() < until:
                profile = live.report(live.sums(target, {"block"})).profiles[0]
                now = values_below(profile, "consume")
                assert now >= before
                assert now[1] >= before[1]
                before = now
            live.stop(target)
            assert not has_probes(running.pid)
            (profile,) = live.report(live.sums(target, {"block"})).profiles
            assert values_below(profile, "consume") >= before
        assert before[0] > 0


@pytest.mark.alone
@pytest.mark.full
def test_differences_of_sums_are_those_of_the_time_between_also_after_a_pause() -> None:
    """As serve and top read them: the same work has the same waits each time."""
    options = Options(kinds=("block",), max_overhead=2)
    with (
        Target.start(program("pingpong"), f"-sends={SENDS}") as running,
        LiveSession(options) as live,
    ):
        target = live.add(running.pid)

        def waits() -> int:
            return values_below(live.report(live.sums(target)).profiles[0], "consume")[0]

        live.start(target)
        running.ask("go", "ns ")
        counts = [waits()]
        for _ in range(ROUNDS):
            running.ask("go", "ns ")
            counts.append(waits())
            live.stop(target)
            running.ask("go", "ns ")  # counts for nothing
            assert waits() >= counts[-1]
            live.start(target)
    differences = [later - earlier for earlier, later in pairwise(counts)]
    assert min(differences) > 0
    # Two goroutines that take turns: every second value is waited for.
    assert sum(differences) == pytest.approx(ROUNDS * SENDS / 2, rel=MUCH)


@pytest.mark.alone
def test_each_of_many_processes_has_its_own_bound_and_profile() -> None:
    options = Options(kinds=("block", "mutex"), max_overhead=BOUND)
    load = ("-length=60s", "-calm", "-sleepers=0", "-hold=500us")
    with ExitStack() as held:
        targets = [held.enter_context(Target.start(program("load"), *load)) for _ in range(MANY)]
        pids = [target.pid for target in targets]
        with Session(pids, options) as session:
            session.start()
            for target in targets:
                target.say("go")
            session.wait(LENGTH_S, lambda _: False)
            reports = session.finish()
            overheads = session.overheads()
            assert session.failures() == []
        assert not any(has_probes(pid) for pid in pids)
        for target in targets:
            target.kill()
    assert len(reports) == len(overheads) == MANY
    for report, overhead in zip(reports, overheads, strict=True):
        profile = report.profiles[0]
        # Three goroutines have the lock in turns, so that two wait at any time.
        _, waited_ns = values_below(profile, "useLock")
        expected_ns = 2 * profile.duration_ns
        error_ns = SIGMAS * error_below(profile, "useLock")
        assert abs(waited_ns - expected_ns) < MUCH * expected_ns + error_ns
        least_ns = max(overhead.cpu_ns, IDLE_SHARE * profile.duration_ns)
        assert overhead.ns < BOUND / 100 * least_ns + 2 * MOST_CREDIT_NS


@pytest.mark.alone
def test_thinned_samples_stand_for_more() -> None:
    options = Options(kinds=("cpu",), hz=999, max_overhead=0.1)
    with (
        Target.start(program("pingpong"), "-sends=100000") as target,
        Session([target.pid], options) as session,
        busy(target),
    ):
        session.start()
        session.wait(2, lambda _: False)
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
