"""The mutex profile from outside against the one that Go writes itself, in the same run.

Where several goroutines wait for one lock, Go's counts are right and its delays are not (Go 1.19
and 1.21 charge a release with one waiter only; see golang.org/issue/73760 for the others): there
arithmetic on the target's own clock is the judge.
"""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest

from ebpfprof.profile.model import Profile, Sample
from tests.builds import NEWEST, VERSIONS, builds, in_full, versions
from tests.differential.mutexes import (
    MUTEXOPS,
    Run,
    Truth,
    agree_once,
    below,
    leaf,
    losses,
    record,
    total,
)
from tests.differential.stacks import delay_differences, differences
from tests.toolchains import toolchain

LOCK_WAITS = {"sync.(*Mutex).Lock", "sync.(*RWMutex).Lock", "sync.(*RWMutex).RLock"}
NO_OPERATION = "-only=^$"
# Between the target's clock and the runtime's lies what Lock and Unlock do before they queue up
# or wake, which is spinning in part.
CLOCK_NS = 50_000
SIGMAS = 6


def assert_counts_agree(run: Run) -> None:
    """Stacks and counts are Go's, and those that were planned; what waits for no lock is not."""
    assert losses(run.mutex) == []
    assert differences(run.go, run.mutex) == []
    for operation, count in run.planned.items():
        assert below(run.mutex, operation).count == count, operation
    for function, truth in run.truth.items():
        assert below(run.mutex, function).count == truth.count, function


def wrong_delays(ours: Profile, truth: dict[str, Truth]) -> dict[str, str]:
    """Functions whose releases are charged with something else than the truth, and by how much."""
    charged = {function: below(ours, function).delay_ns for function in truth}
    return {
        function: f"in truth {known.delay_ns} ns, we {charged[function]} ns"
        for function, known in truth.items()
        if abs(charged[function] - known.delay_ns)
        > max(known.delay_ns // 50, known.count * CLOCK_NS)
    }


@pytest.mark.parametrize(("version", "mode"), builds())
def test_every_release_is_counted_as_by_go(version: str, mode: str, tmp_path: Path) -> None:
    program = toolchain(version).build(MUTEXOPS, mode)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder)
        assert set(run.planned) > {"mutexUnlock", "rwRelay", "throughRLocker", "waitGroup"}
        assert_counts_agree(run)
        return delay_differences(run.go, run.mutex)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
    ("version", "mode"),
    builds(
        ("1.19", "cgo"), ("1.22", "plain"), ("1.24", "plain"), (NEWEST, "cgo"), (NEWEST, "pgopark")
    ),
)
def test_releases_are_also_counted_beside_the_block_profile(
    version: str, mode: str, tmp_path: Path
) -> None:
    """With both kinds the probe of the wake sees the releases, too, from the thread's g0."""
    program = toolchain(version).build(MUTEXOPS, mode)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, kinds=("block", "mutex"))
        assert_counts_agree(run)
        waits = filter(is_for_a_lock, run.ours["block"].samples)
        assert total(waits).count == sum(run.planned.values())
        return delay_differences(run.go, run.mutex)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions())
def test_releases_of_locks_that_are_used_once(version: str, tmp_path: Path) -> None:
    """Later locks lie where earlier ones did, and their goroutines are reused, too."""
    program = toolchain(version).build(MUTEXOPS)

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, NO_OPERATION, "-churn=1500")
        assert run.planned == {"churnMutexes": 1500, "churnWriters": 1500, "churnReaders": 1500}
        assert_counts_agree(run)
        return delay_differences(run.go, run.mutex)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.parametrize(
    ("version", "mode"),
    builds(*((version, "plain") for version in VERSIONS), ("1.22", "pgopark"), (NEWEST, "pgopark")),
)
def test_releases_are_charged_with_the_waits_of_all_waiters(
    version: str, mode: str, tmp_path: Path
) -> None:
    program = toolchain(version).build(MUTEXOPS, mode)
    crowds = "-crowds=Of|Behind|interleaved|barged"

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, NO_OPERATION, crowds)
        assert set(run.truth) > {"firstOf2", "nextOf20", "readersOf30", "bargedRelease"}
        assert_counts_agree(run)
        return wrong_delays(run.mutex, run.truth)

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions())
def test_a_hundred_waiters_as_in_gos_own_test(version: str, tmp_path: Path) -> None:
    """TestMutexProfile of runtime/pprof: a hundred waiters, a lock held for 100 ms."""
    program = toolchain(version).build(MUTEXOPS)
    expected_ns = 100 * 100_000_000

    def wrong_in_a_run(folder: Path) -> dict[str, str]:
        run = record(program, folder, NO_OPERATION, "-crowds=hundred")
        assert_counts_agree(run)
        everything = total(run.mutex.samples)
        assert everything.count == 100
        ratio = everything.delay_ns / expected_ns
        return {} if 0.9 <= ratio <= 1.1 else {"total": f"{ratio:.3f} of what is expected"}

    agree_once(wrong_in_a_run, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("version", versions())
def test_contended_releases_are_counted_as_by_go(version: str, tmp_path: Path) -> None:
    program = toolchain(version).build(MUTEXOPS)
    run = record(program, tmp_path, NO_OPERATION, "-stress=40000")

    assert_counts_agree(run)
    assert total(run.mutex.samples).count > 5000


@pytest.mark.parametrize("version", versions())
def test_block_and_mutex_profile_agree(version: str, tmp_path: Path) -> None:
    """All waits begin and end in the recording, so the waits' delay equals the releases' charge."""
    program = toolchain(version).build(MUTEXOPS)
    arguments = (NO_OPERATION, "-crowds=Of|Behind|interleaved", "-churn=200", "-stress=20000")
    run = record(program, tmp_path, *arguments, kinds=("block", "mutex"))

    assert_counts_agree(run)
    block = run.ours["block"]
    assert losses(block) == []
    waited_ns = total(filter(is_for_a_lock, block.samples)).delay_ns
    charged_ns = total(run.mutex.samples).delay_ns
    assert waited_ns > 5_000_000_000
    assert abs(waited_ns - charged_ns) < waited_ns / 100


def is_for_a_lock(wait: Sample) -> bool:
    return leaf(wait) in LOCK_WAITS


@pytest.mark.parametrize("fraction", [*in_full(5), 50])
@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_a_sampled_release_stands_for_n_releases(
    version: str, fraction: int, tmp_path: Path
) -> None:
    """A release that lasts d is kept with probability 1/n, as n of them.

    So the variance of the count is (n - 1) * count, that of the delay (n - 1) * sum of d².
    """
    program = toolchain(version).build(MUTEXOPS)
    options = ("--mutex-fraction", str(fraction))
    arguments = (NO_OPERATION, "-crowds=manyRounds", "-stress=20000")
    run = record(program, tmp_path, *arguments, options=options)

    assert losses(run.mutex) == []
    exact, estimate = total(run.go.samples), total(run.mutex.samples)
    assert estimate.count % fraction == 0
    assert abs(estimate.count - exact.count) < SIGMAS * sqrt((fraction - 1) * exact.count)
    truth, rounds = run.truth["oneOfMany"], below(run.mutex, "oneOfMany")
    assert rounds.count % fraction == 0
    assert abs(rounds.count - truth.count) < SIGMAS * sqrt((fraction - 1) * truth.count)
    delay_error_ns = SIGMAS * sqrt((fraction - 1) * truth.square_ns2)
    assert abs(rounds.delay_ns - truth.delay_ns) < delay_error_ns + truth.delay_ns // 20
    assert f"one release in {fraction}" in run.mutex.comments[0]
