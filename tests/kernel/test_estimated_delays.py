"""A recording with a bound, in which bursts and long waits fall between windows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from math import sqrt
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.export import pprof
from ebpfprof.profile.evidence import is_ranked
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.options import Options
from ebpfprof.profilers.report_builder import Report
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.long_waits import LongWaits
from ebpfprof.recording.session import Session
from tests.bench.workloads import WORKLOADS, Running
from tests.builds import in_full
from tests.differential.stacks import by_stack
from tests.kernel.kernel_state import has_probes
from tests.kernel.programs import program
from tests.kernel.windowed_runs import error_below, values_below
from tests.targets_run import Target

BLOCK = Options(kinds=("block",), max_overhead=1)
CROWD = 1500
SECONDS = 4.0
LATE_S = 0.6
SIGMAS = 6
FEW_WINDOWS = 4
SLOW, SLOW_S = 5, 0.7
# A wait begins and ends between two samples; these come after about 30 ms.
SAMPLE_NS = 100_000_000


def wait(seconds: float) -> None:
    """Let that much time pass."""
    until = monotonic() + seconds
    while monotonic() < until:
        sleep(0.05)


@contextmanager
def recorded(pid: int, options: Options = BLOCK) -> Iterator[list[Report]]:
    """Record during the block; the list then has the report."""
    found: list[Report] = []
    with Session([pid], options) as session:
        session.start()
        yield found
        found += session.finish()
        assert session.failures() == []
    assert not has_probes(pid)
    assert found[0].coverage is not None
    assert found[0].coverage.is_scaled


def block_of(reports: list[Report]) -> Profile:
    (report,) = reports
    return next(each for each in report.profiles if each.kind == "block")


def assert_crowd_waited(profile: Profile) -> None:
    """All the time but at the ends, and until a goroutine that was woken runs again."""
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    error_ns = SIGMAS * sqrt(sum(sample.variance for sample in profile.samples))
    whole_ns = CROWD * profile.duration_ns
    ends_ns = SAMPLE_NS * CROWD
    assert 0.9 * whole_ns - 4 * ends_ns - error_ns < waited_ns < whole_ns + ends_ns / 2 + error_ns
    assert all(count > 0 and ns > 0 for count, ns in (s.values for s in profile.samples))


@pytest.mark.parametrize("seconds", [1.0, SECONDS], ids=["without a window", "with windows"])
def test_a_crowd_has_waited_as_long_as_it_was_watched(seconds: float) -> None:
    with Target.start(program("crowd"), f"-goroutines={CROWD}") as target:
        with recorded(target.pid) as reports:
            wait(seconds)
        target.kill()
    assert_crowd_waited(block_of(reports))


def test_waits_are_not_counted_twice_though_samples_begin_long_before_the_next_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As on a busy machine, where the thread of the budget may have to wait for a processor."""
    begin = LongWaits.begin

    def begin_slowly(long_waits: LongWaits, announce: Callable[[int], None]) -> None:
        begin(long_waits, announce)
        sleep(LATE_S)

    monkeypatch.setattr(LongWaits, "begin", begin_slowly)
    with Target.start(program("crowd"), f"-goroutines={CROWD}") as target:
        with recorded(target.pid) as reports:
            wait(1.0)
        target.kill()
    profile = block_of(reports)
    waited_ns = sum(sample.values[1] for sample in profile.samples)
    assert waited_ns < 1.1 * CROWD * profile.duration_ns


@pytest.mark.alone
@pytest.mark.parametrize(("name", "bound"), [("mutex", 1), *in_full(("pool", 2), ("pingpong", 5))])
def test_bursts_between_windows_have_gos_own_counts_and_delays(
    name: str, bound: float, tmp_path: Path
) -> None:
    """Nothing depends on which of them a window meets, nor on how busy it was in between."""
    (workload,) = [each for each in WORKLOADS if each.name == name]
    own = tmp_path / "go"
    with ExitStack() as held:
        running = Running(workload, held)
        units = running.units_in(0.2)
        running.target.ask("own block=1", "own")
        options = Options(kinds=("block",), max_overhead=bound)
        with recorded(running.target.pid, options) as reports:
            until = monotonic() + 1.5 * SECONDS
            while monotonic() < until:
                running.round(units)
                wait(0.3)
        running.target.ask(f"write {own}", "written")
    theirs = by_stack(pprof.decode(own.read_bytes(), kind="block"))
    profile = block_of(reports)
    ours = by_stack(profile)
    often = max(value.count for value in theirs.values()) / 2
    counted = {stack: value.count for stack, value in theirs.items() if value.count > often}
    count = sum(ours[stack].count for stack in counted)
    assert reports[0].coverage is not None
    if is_ranked(count, sum(sample.count_variance for sample in profile.samples)):
        assert count == pytest.approx(sum(counted.values()), rel=0.25)
    else:  # on a busy machine there are few windows, and perhaps all of them lie between bursts
        assert reports[0].coverage.windows <= FEW_WINDOWS
    waited_ns = sum(value.delay_ns for value in ours.values())
    error_ns = SIGMAS * sqrt(sum(sample.variance for sample in profile.samples))
    gos_ns = sum(value.delay_ns for value in theirs.values())
    assert abs(waited_ns - gos_ns) < 0.2 * gos_ns + error_ns


@pytest.mark.alone
def test_waits_of_a_part_of_a_second_are_counted_one_by_one() -> None:
    """Beside a loop that leaves no budget for them."""
    crowd = f"-goroutines={SLOW}", f"-each={SLOW_S}s"
    with Target.start(program("crowd"), *crowd, "-busy=2") as target:
        with recorded(target.pid) as reports:
            wait(SECONDS)
        target.kill()
    profile = block_of(reports)
    count, waited_ns = values_below(profile, "wait")
    rounds = profile.duration_ns / 1e9 / SLOW_S
    # That which was going on when it began, and that at its end.
    assert SLOW * (rounds - 2.2) < count < SLOW * (rounds + 0.2)
    error_ns = SIGMAS * error_below(profile, "wait") + count * SAMPLE_NS
    assert abs(waited_ns - count * SLOW_S * 1e9) < error_ns


def test_waits_that_end_while_probes_are_being_detached_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a busy machine that takes a part of a second."""
    detach = WaitsCollector.pause
    times = 0

    def slowly(collector: WaitsCollector, index: int) -> None:
        nonlocal times
        times += 1
        if times == 1:
            wait(SECONDS / 2)
        detach(collector, index)

    monkeypatch.setattr(WaitsCollector, "pause", slowly)
    with Target.start(program("crowd"), f"-goroutines={CROWD}") as target:
        with recorded(target.pid) as reports:
            wait(SECONDS)
        target.kill()
    assert times > 0
    assert_crowd_waited(block_of(reports))
