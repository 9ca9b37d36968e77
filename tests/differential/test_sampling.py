"""Sampling by Go's rule: what it leaves out must be made up for by what it keeps."""

from __future__ import annotations

from math import sqrt
from pathlib import Path

import pytest

from ebpfprof.profile.model import Profile
from tests.differential.stacks import Value, by_stack
from tests.recorder import only_profile, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

BLOCKOPS = Path(__file__).parent.parent / "targets" / "blockops"
RATE_NS = 10_000
SHORTEST_WAIT_NS = 100
SIGMAS = 6
# Either recorder sees the time that the other one's probe takes, but not its own.
PROBE_NS = 500


def record_both(folder: Path, *arguments: str) -> tuple[Profile, Profile]:
    """One run of blockops under two recorders: every event, and sampled."""
    every, sampled = folder / "every", folder / "sampled"
    every.mkdir()
    sampled.mkdir()
    program = toolchain("1.27").build(BLOCKOPS)
    with (
        Target.start(program, *arguments) as target,
        recording(target.pid, every) as all_of_it,
        recording(target.pid, sampled, "--block-rate", str(RATE_NS)) as part_of_it,
    ):
        target.ask("go", "done")
        for recorder in (all_of_it, part_of_it):
            recorder.interrupt()
            finished = recorder.finish()
            assert finished.code == 0, finished.stderr
        target.ask("write", "written")
    return only_profile(every), only_profile(sampled)


def total(profile: Profile) -> Value:
    values = [sample.values for sample in profile.samples]
    return Value(sum(count for count, _ in values), sum(delay for _, delay in values))


def assert_within_sampling_error(exact: Value, sampled: Value) -> None:
    """A wait of d < rate is kept with probability d/rate, as rate/d waits of rate ns together.

    So the variance of the delay is at most rate * delay, that of the count at most
    rate/shortest * count.
    """
    delay_error_ns = sqrt(RATE_NS * exact.delay_ns)
    count_error = sqrt(RATE_NS / SHORTEST_WAIT_NS * exact.count)
    probes_ns = PROBE_NS * exact.count
    assert abs(sampled.delay_ns - exact.delay_ns) < SIGMAS * delay_error_ns + probes_ns
    assert abs(sampled.count - exact.count) < SIGMAS * count_error


@pytest.mark.full
def test_totals_of_short_and_long_waits_agree(tmp_path: Path) -> None:
    every, sampled = record_both(tmp_path, "-stress=60000")

    exact, estimate = total(every), total(sampled)
    assert exact.count > 50_000
    assert_within_sampling_error(exact, estimate)
    assert "sampled at a rate of 10000 ns" in sampled.comments[0]


def test_each_frequent_stack_agrees(tmp_path: Path) -> None:
    every, sampled = record_both(tmp_path, "-only=^$", "-stress=20000")

    theirs, ours = by_stack(every), by_stack(sampled)
    frequent = {stack: value for stack, value in theirs.items() if value.count > 700}
    assert len(frequent) > 3
    for stack, value in frequent.items():
        assert_within_sampling_error(value, ours[stack])


@pytest.mark.full
def test_every_wait_longer_than_the_rate_is_sampled(tmp_path: Path) -> None:
    """The operations of blockops wait for 60 µs and more each, but for chance."""
    every, sampled = record_both(tmp_path, "-only=^(deep20|chanRecv1|mutexQueue|condSignal)$")

    exact, estimate = by_stack(every), by_stack(sampled)
    long = {s: v for s, v in exact.items() if v.delay_ns > 10 * RATE_NS * v.count}
    assert long
    for stack, value in long.items():
        assert abs(estimate[stack].count - value.count) <= max(1, value.count // 20)
