"""The cost of recording: its sum and its text."""

from __future__ import annotations

import mmap
import re
import subprocess
import sys

import pytest

from ebpfprof.overhead.cost import Cost, Overhead, Runs, runs


def test_untimed_runs_count_as_long_as_timed_ones() -> None:
    assert runs(610, 10, 2_000) == Runs(610, 122_000.0, 10)
    assert runs(610, 10, 2_000).each_ns == 200
    assert runs(0, 0, 0) == Runs(0, 0.0)
    assert runs(0, 0, 0).each_ns == 0


def test_the_cost_is_the_sum_of_traps_programs_and_samples() -> None:
    cost = Overhead(Runs(1_000, 200_000.0, 17), Runs(10, 30_000.0, 1), 500.0, cpu_ns=1_000_000_000)
    assert cost.ns == 1_000 * 500 + 200_000 + 30_000
    assert cost.share == pytest.approx(0.00073)
    assert str(cost) == (
        "730 us, 0.073 % of the process's CPU time (1,000 probe hits of 700 ns, "
        "10 CPU samples of 3.0 us)"
    )
    assert cost.summary == "730 us, 0.073 % of the process's CPU time"


def test_unknown_parts_of_the_cost_are_named() -> None:
    cost = Overhead(Runs(1, 250.0, 1), Runs(), None, cpu_ns=1_000)
    assert str(cost).endswith("(1 probe hit of 250 ns, without the traps, whose cost is not known)")
    cost = Overhead(Runs(2), Runs(), 500.0, cpu_ns=10_000)
    assert str(cost).endswith("(2 probe hits of 500 ns, our programs not timed)")


def test_without_cpu_time_no_share_is_shown() -> None:
    cost = Overhead(Runs(), Runs(), 500.0, cpu_ns=0)
    assert (cost.ns, cost.share) == (0.0, 0.0)
    assert str(cost) == "0 ns"
    assert str(Overhead(Runs(2), Runs(), 500.0, cpu_ns=0)).startswith("1.0 us (2 probe hits")


def test_the_share_is_at_most_100_percent() -> None:
    """The cost is an estimate, and the target's CPU time is known only until the last reading."""
    cost = Overhead(Runs(1, 5_000.0), Runs(), None, cpu_ns=1_000)
    assert cost.share == 1.0
    assert " 100 % of the process's CPU time" in str(cost)


S = 1_000_000_000


def test_a_large_cost_is_at_most_the_time_in_the_kernel() -> None:
    hits = Runs(4_000_000, 1.2 * S, 60_000)
    cost = Overhead(hits, Runs(), 1_500.0, cpu_ns=6 * S, kernel_ns=4 * S)
    assert cost.ns == 4 * S
    assert cost.share == pytest.approx(2 / 3)
    assert str(cost) == (
        "4.0 s, 67 % of the process's CPU time (4,000,000 probe hits of 1.8 us, "
        "limited to the CPU time in the kernel)"
    )


@pytest.mark.parametrize(
    ("cpu_ns", "kernel_ns"),
    [
        pytest.param(6 * S, None, id="not known"),
        pytest.param(6 * S, 5 * S, id="more than the cost"),
        pytest.param(S // 2, S // 10, id="too few ticks"),
        pytest.param(30 * S, S // 10, id="a small cost"),
    ],
)
def test_else_it_is_what_was_estimated(cpu_ns: int, kernel_ns: int | None) -> None:
    cost = Overhead(Runs(2_000_000), Runs(), 2_250.0, cpu_ns=cpu_ns, kernel_ns=kernel_ns)
    assert cost.ns == 4.5 * S
    assert "in the kernel" not in str(cost)


def test_hits_samples_and_cpu_times_add_up() -> None:
    earlier = Overhead(Runs(2, 300.0, 1), Runs(5, 50.0, 2), 400.0, cpu_ns=S)
    later = Overhead(Runs(10, 900.0, 4), Runs(7, 80.0, 3), 500.0, cpu_ns=3 * S)
    both = Overhead(Runs(12, 1200.0, 5), Runs(12, 130.0, 5), 500.0, cpu_ns=4 * S)
    assert earlier + later == both
    assert both - earlier == later


def test_costs_of_two_recordings_add_up() -> None:
    one = Cost(Runs(2, 20.0, 1), Runs(3, 30.0, 2))
    other = Cost(Runs(5, 50.0, 4), Runs(7, 70.0, 6), 500.0)
    assert one + other == Cost(Runs(7, 70.0, 5), Runs(10, 100.0, 8), 500.0)


@pytest.mark.parametrize(("traps", "bounded"), [(2_400_000, True), (1_900_000, False)])
def test_a_cost_of_half_of_the_cpu_time_is_large(traps: int, bounded: bool) -> None:
    """2.4 s of 4 s are, and 1.9 s are not: then the ticks of the kernel are not exact enough."""
    cost = Overhead(Runs(traps), Runs(), 1_000.0, cpu_ns=4 * S, kernel_ns=S)
    assert cost.ns == (S if bounded else traps * 1_000)


def test_a_cost_between_two_moments_is_their_difference() -> None:
    earlier = Cost(Runs(2, 300.0, 1), Runs(5, 50.0, 2), 400.0)
    later = Cost(Runs(10, 900.0, 4), Runs(7, 80.0, 3), 500.0)
    assert later - earlier == Cost(Runs(8, 600.0, 3), Runs(2, 30.0, 1), 500.0)


def test_estimates_that_fall_cost_nothing() -> None:
    """Later timings may show that earlier runs took less."""
    assert Runs(10, 900.0, 4) - Runs(2, 1000.0, 1) == Runs(8, 0.0, 3)


def test_times_in_the_kernel_add_up() -> None:
    earlier = Overhead(Runs(), Runs(), None, cpu_ns=S, kernel_ns=S // 2)
    later = Overhead(Runs(), Runs(), None, cpu_ns=4 * S, kernel_ns=2 * S)
    assert (later - earlier).kernel_ns == 1.5 * S
    assert (later + earlier).kernel_ns == 2.5 * S
    unknown = Overhead(Runs(), Runs(), None, cpu_ns=S)
    assert (later - unknown).kernel_ns is (unknown + later).kernel_ns is None


@pytest.mark.parametrize(
    ("cpu_ns", "words"),
    [(10**9, "less than 0.01 %"), (10**7, "0.01 %"), (12_345, "8.1 %"), (4_321, "23 %")],
)
def test_shares_are_written_for_people(cpu_ns: int, words: str) -> None:
    assert f", {words} of the process's CPU time" in str(
        Overhead(Runs(1, 1000.0), Runs(), None, cpu_ns)
    )


SPENDING = """
import time
from ebpfprof.overhead.cost import own_cost

print(own_cost())
until = time.process_time() + 0.3
while time.process_time() < until:
    pass
print(own_cost())
"""


def test_our_own_cost_grows() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SPENDING], capture_output=True, text=True, check=True
    )
    costs = [
        re.fullmatch(r"([\d.]+) m?s of CPU time and [\d.]+ MiB of memory", line)
        for line in done.stdout.splitlines()
    ]
    assert len(costs) == 2
    assert all(costs)
    assert done.stdout.splitlines()[0] != done.stdout.splitlines()[1]


def test_own_memory_does_not_include_the_parents() -> None:
    ballast_bytes = 400 << 20
    ballast = mmap.mmap(-1, ballast_bytes)
    for at in range(0, ballast_bytes, mmap.PAGESIZE):
        ballast[at] = 1
    code = "from ebpfprof.overhead.cost import own_cost; print(own_cost())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ballast.close()
    found = re.search(r" and ([\d.]+) MiB of memory", done.stdout)
    assert found
    assert float(found[1]) < 100
