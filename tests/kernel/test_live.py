"""Targets whose recording is started and stopped, by one loaded program."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from ebpfprof.console.text import percent
from ebpfprof.errors import NoSuchProcess, NotGoProgram, TargetGone
from ebpfprof.profile.delta import difference
from ebpfprof.profile.losses import Loss
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.recording.live import LiveSession
from tests.builds import versions
from tests.kernel.inside import collector_of_waits
from tests.kernel.kernel_state import has_probes
from tests.kernel.live_counts import HANDS, count_in, counts
from tests.kernel.programs import program
from tests.targets_run import DEADLINE_S, Target


@pytest.fixture(scope="module")
def live() -> Iterator[LiveSession]:
    with LiveSession(Options(kinds=("block", "mutex", "cpu")), capacity=16) as session:
        yield session


@pytest.mark.parametrize("minor", versions("1.19", "1.27"))
def test_events_while_recording_is_stopped_are_not_counted(live: LiveSession, minor: str) -> None:
    with Target.start(program("steps", minor)) as steps:
        target = live.add(steps.pid)
        assert not has_probes(steps.pid)
        seen = []
        for _ in range(3):
            live.start(target)
            steps.ask("hand", "done")
            live.stop(target)
            assert not has_probes(steps.pid)
            steps.ask("hand", "done")
            seen.append(counts(live, target, "main.hand")["block"])
        live.remove(target)
    assert seen == [HANDS, 2 * HANDS, 3 * HANDS]


@pytest.mark.full
def test_cpu_time_is_sampled_only_between_start_and_stop(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        samples, seen = None, []
        for _ in range(2):
            start = live.start(target)
            samples = samples or start
            steps.ask("burn", "done")
            live.stop(target)
            steps.ask("burn", "done")
            steps.ask("burn", "done")
            seen.append(counts(live, target, "main.burn", samples)["cpu"])
        live.remove(target)
    first, both = seen
    assert 25 < first < 75
    assert 25 < both - first < 75


@pytest.mark.full
def test_cpu_readings_begin_when_they_are_requested(live: LiveSession) -> None:
    """Each reading has the samples since its begin."""
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        since, seen = [], []
        for _ in range(3):
            since.append(live.sums(target, ("cpu",)))
            steps.ask("burn", "done")
            now = live.sums(target, ("cpu",))
            reports = [live.report(now, each).profiles for each in since]
            seen.append([count_in(profile, "main.burn") for (profile,) in reports])
        (whole,) = live.report(now, since[0]).profiles
        since[0] = now
        steps.ask("burn", "done")
        now = live.sums(target, ("cpu",))
        profiles = [live.report(now, each).profiles[0] for each in since]
        after = [count_in(profile, "main.burn") for profile in profiles]
        live.remove(target)
    burns = [
        seen[0][0],
        seen[1][0] - seen[0][0],
        seen[2][0] - seen[1][0],
    ]
    assert all(25 < count < 75 for count in burns)
    assert seen[1][1] == burns[1]
    assert seen[2][1:] == [burns[1] + burns[2], burns[2]]
    assert count_in(whole, "main.burn") == sum(burns)
    assert [later - after[0] for later in after[1:]] == seen[2][1:]
    lengths = [profile.duration_ns for profile in profiles]
    assert lengths[0] < lengths[2] < lengths[1]


def test_a_wait_that_ends_while_stopped_is_dropped(live: LiveSession) -> None:
    """Otherwise the next wake of the goroutine would count as its end."""
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        steps.ask("park", "done")
        live.stop(target)
        steps.ask("wake", "done")
        live.start(target)
        steps.ask("nap", "done")
        live.stop(target)
        assert counts(live, target, "main.park")["block"] == 0
        live.start(target)
        for step in ("park", "wake", "nap"):
            steps.ask(step, "done")
        assert counts(live, target, "main.park")["block"] == 1
        live.remove(target)
        assert not has_probes(steps.pid)


def test_each_start_needs_its_stop(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        live.start(target)
        live.stop(target)
        steps.ask("hand", "done")
        recorded = [target.is_recording]
        live.stop(target)
        recorded.append(target.is_recording)
        assert recorded == [True, False]
        recorded_ns = target.recorded_ns
        live.stop(target)
        assert counts(live, target, "main.hand")["block"] == HANDS
        report = live.report(live.sums(target, ["block"]))
        assert [(p.kind, p.duration_ns) for p in report.profiles] == [("block", recorded_ns)]
        live.remove(target)


def test_targets_have_separate_sums(live: LiveSession) -> None:
    with Target.start(program("steps")) as one, Target.start(program("steps", "1.22")) as other:
        first, second = live.add(one.pid), live.add(other.pid)
        assert (first.go_version or "").startswith("go1.27")
        assert (second.go_version or "").startswith("go1.22")
        live.start(first)
        live.start(second)
        one.ask("hand", "done")
        live.remove(first)
        other.ask("hand", "done")
        other.ask("hand", "done")
        assert counts(live, second, "main.hand")["block"] == 2 * HANDS
        assert not has_probes(one.pid)
        live.remove(second)


def test_a_target_that_ends_keeps_its_sums(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        steps.ask("hand", "done")
        steps.close_input()
        steps.wait()
    with pytest.raises(TargetGone, match="ended"):
        live.start(target)
    assert not target.is_recording
    assert target.ending is not None
    assert counts(live, target, "main.hand")["block"] == HANDS
    live.stop(target)
    live.remove(target)
    with pytest.raises(TargetGone):
        live.start(target)


@pytest.mark.full
def test_locations_are_the_same_objects_in_later_snapshots(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        steps.ask("hand", "done")
        samples = live.sums(target)
        steps.ask("burn", "done")
        before, after = (
            live.report(live.sums(target)).profiles
            + live.report(live.sums(target, ("cpu",)), samples).profiles
            for _ in range(2)
        )
        for earlier, later in zip(before, after, strict=True):
            known = {id(at) for sample in earlier.samples for at in sample.locations}
            stacks = {sample.locations for sample in earlier.samples}
            again = [s for s in later.samples if s.locations in stacks]
            assert {id(at) for sample in again for at in sample.locations} <= known
        live.remove(target)


def test_several_threads_use_a_live_session_at_once(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)

        def use(_: int) -> None:
            live.start(target)
            since = live.sums(target)
            live.report(since)
            live.report(live.sums(target), since)
            live.stop(target)

        with ThreadPoolExecutor(max_workers=8) as pool:
            list(pool.map(use, range(24)))
        assert not target.is_recording
        assert not has_probes(steps.pid)
        live.remove(target)


def test_a_missing_process_is_refused(live: LiveSession) -> None:
    with pytest.raises(NoSuchProcess):
        live.add((1 << 22) - 1)


HITS = re.compile(r"overhead of all profiles: .*?([0-9,]+) probe hits?")
LENGTH = re.compile(r", ([0-9.]+) s, every event")


def said(pattern: re.Pattern[str], profile: Profile) -> str:
    """What the one comment says that the pattern is about."""
    (found,) = [match[1] for comment in profile.comments if (match := pattern.search(comment))]
    return found


def test_comments_describe_the_time_between_two_snapshots(live: LiveSession) -> None:
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        for _ in range(5):
            steps.ask("hand", "done")
        samples = live.sums(target, ("cpu",))
        before, *_ = live.report(live.sums(target, ("block",))).profiles
        steps.ask("hand", "done")
        after, *_ = live.report(live.sums(target, ("block",))).profiles
        (cpu,) = live.report(live.sums(target, ("cpu",)), samples).profiles
        live.remove(target)
    part = difference(after, before)
    hits = [int(said(HITS, each).replace(",", "")) for each in (before, part, after, cpu)]
    assert hits[0] + hits[1] == hits[2]
    assert 5 * hits[1] <= hits[2] < 20 * hits[1]
    assert hits[1] <= hits[3] < hits[2]  # from a moment before until one after
    assert float(said(LENGTH, part)) == pytest.approx(part.duration_ns / 1e9, abs=0.001)
    assert part.duration_ns == after.duration_ns - before.duration_ns


def test_earlier_losses_are_not_part_of_a_difference(
    live: LiveSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor what was lost before a process was opened."""
    with Target.start(program("steps")) as steps:
        target = live.add(steps.pid)
        live.start(target)
        steps.ask("hand", "done")
        # Of all numbers, for which the kernel counts.
        lost = [Loss("labels_unreadable", "events without labels", 7, target=n) for n in range(64)]
        monkeypatch.setattr(collector_of_waits(live), "losses", lambda: lost)
        before, *_ = live.report(live.sums(target, ("block",))).profiles
        assert any(comment.startswith("incomplete: 7 ") for comment in before.comments)
        samples = live.sums(target, ("cpu",))
        other = live.add(steps.pid)
        live.start(other)
        after, *_ = live.report(live.sums(target, ("block",))).profiles
        (cpu,) = live.report(live.sums(target, ("cpu",)), samples).profiles
        (of_other,) = live.report(live.sums(other, ("block",))).profiles
        live.remove(target)
        live.remove(other)
    for profile in (difference(after, before), cpu, of_other):
        assert not any(each.startswith("incomplete: 7 ") for each in profile.comments)


SHARE = re.compile(r"one wait in eight, (\S+ %) of the time")


@pytest.mark.full
def test_comments_describe_the_windows_between_two_snapshots() -> None:
    """Of a target that is recorded in windows, since one wait in eight would cost too much."""
    options = Options(kinds=("block", "mutex"), max_overhead=0.5)

    def read(at_least: int) -> tuple[Profile, WaitsCoverage]:
        until_s = time.monotonic() + DEADLINE_S
        while True:
            report = live.report(live.sums(target, ("block",)))
            assert isinstance(report.coverage, WaitsCoverage)
            if report.coverage.windows >= at_least:
                return report.profiles[0], report.coverage
            assert time.monotonic() < until_s, report.coverage
            time.sleep(0.05)

    with (
        Target.start(program("load"), f"-length={DEADLINE_S:.0f}s") as load,
        LiveSession(options, capacity=1) as live,
    ):
        target = live.add(load.pid)
        live.start(target)
        load.say("go")
        before, first = read(2)
        after, second = read(first.windows + 3)
        live.remove(target)
        load.kill()
    part, coverage = difference(after, before), second - first
    assert coverage.windows >= 3
    assert said(SHARE, part) == percent(coverage.recorded_share)
    (error,) = [each for each in part.comments if each.endswith(" on delays (one standard error)")]
    assert error not in (*before.comments, *after.comments)
    assert f"{part.duration_ns / 1e9:.3f} s, one wait in eight" in part.comments[0]


@pytest.mark.full
def test_a_program_that_is_not_go_has_a_cpu_profile_only(live: LiveSession) -> None:
    with pytest.raises(NotGoProgram):
        live.add(os.getpid())
    options = Options(kinds=("block", "cpu"), kinds_given=False)
    with LiveSession(options, capacity=1) as of_any:
        target = of_any.add(os.getpid())
        assert (target.kinds, target.go_version) == (("cpu",), None)
        start = of_any.start(target)
        burn_until = time.process_time() + 0.3
        while time.process_time() < burn_until:
            pass
        assert of_any.report(of_any.sums(target)).profiles == []
        (profile,) = of_any.report(of_any.sums(target), start).profiles
        assert profile.kind == "cpu"
        assert sum(sample.values[0] for sample in profile.samples) > 10
