"""Contention for the runtime's own locks: from outside, and as Go's own mutex profile has it.

Go keeps one stack for each thread until the thread holds no lock any more, and throws the others
together as runtime._LostContendedRuntimeLock. The operations of the target never need a second
one; what the scheduler contends for meanwhile may.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.model import Profile, Sample
from tests.builds import builds, in_full, versions
from tests.differential.mutexes import RUNTIME_LOCKS, agree_once, below, leaf, losses
from tests.differential.stacks import delay_differences, differences
from tests.recorder import only_profile, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

TARGET = Path(__file__).parent.parent / "targets" / "runtimelocks"
VERSIONS = ("1.25", "1.26", "1.27")
MODES = ("plain", "stripped", "pie", "pgo", "pgopark", "debug", "cgo", "cgopie")
BUILDS = (*((version, "plain") for version in VERSIONS), *(("1.27", mode) for mode in MODES[1:]))
DEEP = {"deep126", "deep127", "deep128", "deep140"}
ON_BOTH_STACKS = {"onSystemStack", "deepSystemStack", "alreadyOnSystemStack"}
# Between the target's clock and the moment that a thread sleeps lies the time for which it spins.
CLOCK_NS = 50_000
SIGMAS = 6
# Of Go's own profiler, which most programs have off: unlock2 takes another path with it.
FRACTIONS = (0, *in_full(1))


@dataclass(frozen=True)
class Run:
    """Both profiles, but only stacks with a frame of the target, and what was planned."""

    go: Profile
    ours: Profile
    planned: dict[str, int]
    truth: dict[str, int]
    contended: dict[str, int]
    waited_ns: int


def build(version: str, mode: str = "plain") -> Path:
    return toolchain(version).build(TARGET, mode, checks_linkname=False)


def record(
    program: Path,
    folder: Path,
    *arguments: str,
    fraction: int = 1,
    options: tuple[str, ...] = ("--runtime-locks",),
) -> Run:
    """Run the target under both profilers, Go's own with `fraction` and ours with `options`."""
    own = folder / "go.prof"
    go_options = (f"-mutexfraction={fraction}", f"-profile={own}")
    with Target.start(program, *go_options, *arguments) as target:
        with recording(target.pid, folder, "--profile", "mutex", *options) as recorder:
            target.ask("go", "done")
            said = json.loads(target.expect("{"))
            # Where the kernel would put instructions that it can't emulate.
            assert "[uprobes]" not in Path(f"/proc/{target.pid}/maps").read_text()
            recorder.interrupt()
            finished = recorder.finish()
        assert finished.code == 0, finished.stderr
        target.ask("write", "written")
    return Run(
        go=of_the_target(pprof.decode(own.read_bytes(), kind="mutex")),
        ours=of_the_target(only_profile(folder)),
        planned=said["planned"],
        truth=said["truth"],
        contended=said["contended"],
        waited_ns=said["waited_ns"],
    )


def of_the_target(profile: Profile) -> Profile:
    """Without what the scheduler contends for: which stack Go keeps of that is chance."""
    kept = tuple(sample for sample in profile.samples if is_planned(sample))
    return replace(profile, samples=kept)


def is_planned(sample: Sample) -> bool:
    """Whether the target itself released the lock, or a stack of it that grew."""
    names = [frame.function for location in sample.locations for frame in location.frames]
    return names[0] == "runtime.unlock" and (
        names[1].startswith("main.")
        or (names[1] == "runtime.stackalloc" and names[-1].startswith("main."))
    )


def assert_counts_agree(run: Run) -> None:
    assert losses(run.ours) == []
    assert differences(run.go, run.ours) == []
    assert_counts_are_planned(run)


def assert_counts_are_planned(run: Run) -> None:
    for function, count in run.planned.items():
        assert below(run.ours, function).count == count, function


def wrong_delays(run: Run) -> dict[str, str]:
    """Functions whose releases are charged with something else than the truth, and by how much."""
    charged = {function: below(run.ours, function).delay_ns for function in run.truth}
    return {
        function: f"in truth {known_ns} ns, we {charged[function]} ns"
        for function, known_ns in run.truth.items()
        if abs(charged[function] - known_ns) > max(known_ns // 50, run.planned[function] * CLOCK_NS)
    }


@pytest.mark.alone
@pytest.mark.parametrize(("version", "mode"), builds(*BUILDS))
def test_contended_releases_are_counted_as_by_go(version: str, mode: str, tmp_path: Path) -> None:
    program = build(version, mode)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, "-rounds=25")
        assert set(run.planned) > {"plainUnlock", "throughMethod", *DEEP, *ON_BOTH_STACKS}
        assert ("calledFromC" in run.planned) == mode.startswith("cgo")
        assert_counts_agree(run)
        return delay_differences(run.go, run.ours)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_releases_while_a_stack_grows_have_its_frames(version: str, tmp_path: Path) -> None:
    """From runtime.newstack it is the goroutine's stack, at a function that has no frame yet."""

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(build(version), folder, "-growths=40")
        assert losses(run.ours) == []
        assert below(run.ours, "grow").count > 0
        # A stack is taken so quickly that the release before may be still under way.
        assert 30 <= below(run.ours, "grow").count + below(run.ours, "lockStacks").count <= 40
        # Where the scheduler releases another lock meanwhile, Go keeps one of the two stacks.
        return {each.partition(": ")[2]: each for each in differences(run.go, run.ours)}

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_releases_are_charged_with_the_waits_of_all_threads(
    version: str, fraction: int, tmp_path: Path
) -> None:
    """Go charges a thread's wait twice if two were asleep on either side of it (nextOf5)."""
    program = build(version)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, "-crowds=20", fraction=fraction)
        assert set(run.truth) == {"firstOf2", "nextOf2", "firstOf5", "nextOf5"}
        assert_counts_are_planned(run)
        return wrong_delays(run)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.alone
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_a_thread_woken_as_it_falls_asleep_waits_no_longer(
    version: str, fraction: int, tmp_path: Path
) -> None:
    """Also if it is the first thread that sleeps for the lock."""
    run = record(build(version), tmp_path, "-firsts=500", fraction=fraction)
    assert losses(run.ours) == []
    assert below(run.ours, "afterFirst").delay_ns < run.truth["afterFirst"]


@pytest.mark.alone
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_an_overtaken_thread_continues_waiting(version: str, fraction: int, tmp_path: Path) -> None:
    """It sleeps several times in one call of lock2: the time awake is part of the wait."""
    program = build(version)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, "-barging=20", fraction=fraction)
        assert_counts_are_planned(run)
        if run.planned["barge"] <= 100:
            return {"barge": f"only {run.planned['barge']} releases overtook"}
        known_ns, charged_ns = run.truth["barge"], below(run.ours, "barge").delay_ns
        is_right = abs(charged_ns - known_ns) < known_ns // 50
        return {} if is_right else {"barge": f"in truth {known_ns} ns, we {charged_ns} ns"}

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_releases_are_counted_without_gos_profiler(version: str, tmp_path: Path) -> None:
    """unlock2 takes another path then."""
    run = record(build(version), tmp_path, "-rounds=25", fraction=0)
    assert run.go.samples == ()
    assert losses(run.ours) == []
    assert_counts_are_planned(run)
    everything = sum(count for count, _ in (sample.values for sample in run.ours.samples))
    assert everything == sum(run.planned.values())


@pytest.mark.alone
@pytest.mark.parametrize("fraction", FRACTIONS)
@pytest.mark.parametrize("version", versions(*VERSIONS))
def test_contention_by_chance_is_charged_to_releases(
    version: str, fraction: int, tmp_path: Path
) -> None:
    """We count all that Go counts, and charge only time that threads waited.

    Where Go's profiler is off, the runtime does not see every release: if a thread is still on its
    way to the lock, the release wakes no thread.
    """
    run = record(build(version), tmp_path, "-stress=40000", fraction=fraction)
    assert losses(run.ours) == []
    assert run.contended["holdLong"] >= 400
    ours = {function: below(run.ours, function) for function in run.contended}
    for function, contended in run.contended.items():
        assert below(run.go, function).count <= ours[function].count, function
        assert ours[function].count <= 20 + contended * 1.2, function
    assert sum(each.count for each in ours.values()) > 0
    assert 0 < sum(each.delay_ns for each in ours.values()) < run.waited_ns * 1.01


@pytest.mark.alone
@pytest.mark.full
def test_a_sampled_release_stands_for_n_releases(tmp_path: Path) -> None:
    options = ("--runtime-locks", "--mutex-fraction", "5")
    run = record(build("1.27"), tmp_path, "-rounds=200", options=options)
    for function, count in run.planned.items():
        estimate = below(run.ours, function).count
        assert estimate % 5 == 0
        assert abs(estimate - count) < SIGMAS * sqrt(4 * count), function


def test_runtime_locks_need_the_option(tmp_path: Path) -> None:
    run = record(build("1.27"), tmp_path, "-rounds=5", options=())
    assert run.planned
    assert run.go.samples
    assert not any(leaf(sample) in RUNTIME_LOCKS for sample in only_profile(tmp_path).samples)
