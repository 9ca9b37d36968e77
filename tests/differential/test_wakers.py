"""Who woke whom against the block profile that Go itself writes of the same run."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebpfprof.profile.wakers import NO_GOROUTINE, waker_of
from ebpfprof.profilers.options import Options
from tests.builds import versions
from tests.differential.stacks import by_stack, differences
from tests.differential.test_block import of_the_program
from tests.kernel.woken_runs import KINDS, counts_by_pair, record

NO_ONE = NO_GOROUTINE.frames[0]
# Some of each kind of operation, and those where a goroutine is woken several times in one wait.
CHOSEN = (
    "-only=^(chanRecv1|chanSend|chanRecvCrowdClosed|timerRecv|selectRecv|mutexLock|mutexQueue|"
    "rwWriterBehindReader|rwReadersBehindWriter|condSignal|condBroadcast|waitGroup|semaphoreBarged|"
    "contextDone)$"
)
PAIRS = {
    ("main.chanRecv1.func1", "main.chanRecv1.func2"): "chanRecv1",
    ("main.chanSend.func1", "main.chanSend.func2"): "chanSend",
    ("main.selectRecv.func1", "main.selectRecv.func2"): "selectRecv",
    ("main.mutexLock.func1", "main.mutexLock"): "mutexLock",
    ("main.condSignal.func1", "main.condSignal"): "condSignal",
    ("main.timerRecv.func1", ""): "timerRecv",
}


@pytest.mark.parametrize("version", versions("1.19", "1.27"))
def test_all_wakers_of_a_stack_make_up_what_go_says_of_it(version: str, tmp_path: Path) -> None:
    run = record(tmp_path, "-stress=1000", CHOSEN, version=version)
    assert run.lost == {}
    assert differences(of_the_program(run.go), of_the_program(run.waiters)) == []
    # What a wake adds to a stack it adds to a pair: delays are the same to the nanosecond.
    assert by_stack(run.waiters) == by_stack(run.ours["block"])
    # Planned by the target, which shakes hands: that many waits, each ended by that function.
    counts = counts_by_pair(run.ours["wakers"])
    for pair, operation in PAIRS.items():
        assert counts[pair] == run.planned[operation], pair
    # A timer's function runs on a thread that looks for work, without a goroutine.
    names = (each.frames for each in map(waker_of, run.ours["wakers"].samples) if each)
    timers = {tuple(f.function for f in frames) for frames in names if frames[-1] == NO_ONE}
    assert timers == {("runtime.selectnbsend", "time.sendTime", NO_ONE.function)}


def test_what_wakes_waits_for_locks_is_in_the_mutex_profile(tmp_path: Path) -> None:
    run = record(tmp_path, "-stress=1000", CHOSEN)
    releases = by_stack(run.ours["mutex"])
    assert set(releases) <= set(run.wakers)
    # A release may wake in vain: then the wait was counted with the one before.
    assert all(run.wakers[stack].count <= releases[stack].count for stack in releases)
    shared = sum(run.wakers[stack].count for stack in releases)
    assert shared > sum(value.count for value in releases.values()) / 2


@pytest.mark.full
def test_sampling_keeps_the_sums_of_wakers_equal(tmp_path: Path) -> None:
    """A rate so low that each wait counts, but a wait's weight may change with a second wake."""
    run = record(
        tmp_path, "-stress=1000", CHOSEN, options=Options(kinds=KINDS, block_rate_ns=20_000)
    )
    pairs, block = by_stack(run.waiters), by_stack(run.ours["block"])
    assert set(pairs) == set(block)
    assert all(pairs[stack].delay_ns == block[stack].delay_ns for stack in block)
    # Each pair's count is rounded down by itself.
    most = max(len(run.ours["wakers"].samples), 1)
    assert all(0 <= block[stack].count - pairs[stack].count <= most for stack in block)
