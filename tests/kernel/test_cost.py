"""What recording costs the target: counted and timed, calibrated, reported."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate
from pathlib import Path
from statistics import median

import pytest

from ebpfprof.errors import TargetGone
from ebpfprof.export import pprof
from ebpfprof.kernel import probe_cost
from ebpfprof.kernel.probe_cost import PASSES
from ebpfprof.overhead.cost import Overhead
from ebpfprof.profilers.options import Options
from ebpfprof.recording.live import LiveSession
from ebpfprof.recording.session import Session
from tests.bench.bpfstats import counting_runs, runs_of
from tests.kernel.kernel_state import leaked_probes, perf_events
from tests.kernel.programs import program
from tests.recorder import recording, run
from tests.targets_run import Target

SENDS = 50_000
# The kernel's own clock runs when it enters a program, ours within it.
AGREEMENT = 2.0
ROUNDS = 3
# In a loop that does little else, caches are warm: a trap takes half of what is tried out.
TOLD = 4.0
FEW = 8.0


@pytest.mark.alone
def test_runs_are_counted_and_timed_as_by_the_kernel() -> None:
    quickest = []
    with Target.start(program("pingpong"), f"-sends={SENDS}") as target:
        for _ in range(ROUNDS):
            with counting_runs(), Session([target.pid], Options(kinds=("block",))) as session:
                session.start()
                before = runs_of(os.getpid())
                target.ask("round", "ns")
                kernels = runs_of(os.getpid()) - before
                session.finish()
                (cost,) = session.overheads()
            # Between our readings of the kernel's counters the target does nothing; later it may.
            assert kernels.count <= cost.hits.count <= kernels.count + 100
            assert kernels.count > SENDS
            quickest.append((kernels.time_ns / kernels.count, cost.hits.ns / cost.hits.count))
            assert cost.hit_ns is not None
            assert cost.ns == cost.hits.ns + cost.hits.count * cost.hit_ns
    # What comes between is in the kernel's figures, and in ours only if it is short.
    kernel_ns, our_ns = min(quickest)
    assert kernel_ns / AGREEMENT < our_ns < kernel_ns * AGREEMENT


def test_each_sample_is_counted() -> None:
    with (
        Target.start(program("cpuops")) as target,
        Session([target.pid], Options(kinds=("cpu",), hz=499)) as session,
    ):
        session.start()
        target.ask("work all 200", "{")
        (report,) = session.finish()
        (cost,) = session.overheads()
        lost = sum(loss.count for loss in session.losses())
    (profile,) = report.profiles
    taken = sum(sample.values[0] for sample in profile.samples)
    assert 0 < taken <= cost.samples.count <= taken + lost
    assert cost.samples.ns > 0
    assert cost.hits.count == 0
    # Its own clock agrees with what the samples stand for.
    assert cost.cpu_ns > 0


def test_two_targets_have_their_own_costs() -> None:
    arguments = ("-sends=1000",)
    with (
        Target.start(program("pingpong"), *arguments) as busy,
        Target.start(program("pingpong"), *arguments) as idle,
        Session([busy.pid, idle.pid], Options(kinds=("block",))) as session,
    ):
        session.start()
        busy.ask("round", "ns")
        session.finish()
        of_busy, of_idle = session.overheads()
    assert of_busy.hits.count > 1000
    assert of_idle.hits.count < 10
    assert of_busy.cpu_ns > of_idle.cpu_ns


def test_targets_have_the_costs_of_their_recorded_time() -> None:
    options = Options(kinds=("block",))
    with (
        Target.start(program("pingpong"), "-sends=1000") as first,
        Target.start(program("pingpong"), "-sends=100") as second,
        LiveSession(options, capacity=1) as session,
    ):
        watched = session.add(first.pid)
        session.start(watched)
        first.ask("round", "ns")
        session.stop(watched)
        found = session.overhead(watched)
        assert found.hits.count > 1000
        assert found.cpu_ns > 0
        first.ask("round", "ns")  # while it is not recorded
        assert session.overhead(watched) == found
        session.start(watched)
        first.ask("round", "ns")
        more = session.overhead(watched)
        assert more.hits.count > found.hits.count + 1000
        assert more.cpu_ns > found.cpu_ns
        session.remove(watched)
        with pytest.raises(TargetGone):
            session.overhead(watched)
        # It has the number that the first one had.
        other = session.add(second.pid)
        assert session.overhead(other).hits.count == session.overhead(other).cpu_ns == 0
        session.start(other)
        second.ask("round", "ns")
        assert 100 < session.overhead(other).hits.count < 1000


def test_the_cost_is_printed_and_stands_in_each_profile(tmp_path: Path) -> None:
    with (
        Target.start(program("pingpong"), "-sends=1000") as target,
        recording(target.pid, tmp_path, "--profile", "block,mutex", "--long") as recorder,
    ):
        target.ask("round", "ns")
        recorder.interrupt()
        finished = recorder.finish()
    said = finished.stdout.decode()
    cost = (
        r"[\d.]+ [mun]?s, (?:less than )?[\d.]+ % of the process's CPU time "
        r"\([\d,]+ probe hits of [\d.]+ [nu]s\)"
    )
    own = r"[\d.]+ m?s of CPU time and [\d.]+ MiB of memory"
    assert re.search(rf"^Overhead: {cost}\.$", said, re.MULTILINE), said
    assert re.search(rf"^ebpfprof used {own}\.$", said, re.MULTILINE), said
    for kind in ("block", "mutex"):
        (path,) = tmp_path.glob(f"*.{kind}.pb.gz")
        comments = pprof.decode(path.read_bytes(), kind=kind).comments
        assert any(re.fullmatch(rf"overhead of all profiles: {cost}", c) for c in comments)
        assert any(re.fullmatch(rf"ebpfprof used until then: {own}", c) for c in comments)


def reported(target: Target, rounds: int = 1) -> tuple[Overhead, float]:
    """The estimated cost of an exact recording of some rounds, and the CPU time they took."""
    with Session([target.pid], Options(kinds=("block",))) as session:
        session.start()
        before_ns = cpu_ns(target.pid)
        for _ in range(rounds):
            target.ask("round", "ns")
        used_ns = cpu_ns(target.pid) - before_ns
        (cost,) = session.overheads()
        session.finish()
    return cost, used_ns


def cpu_ns(pid: int) -> int:
    """What the threads of a process used themselves (proc(5), schedstat)."""
    return sum(
        int(each.read_text().split()[0]) for each in Path(f"/proc/{pid}/task").glob("*/schedstat")
    )


@contextmanager
def busy_machine(programs: int) -> Iterator[None]:
    """So many more programs that do nothing but compute."""
    with ExitStack() as held:
        for _ in range(programs):
            process = held.enter_context(subprocess.Popen(["sh", "-c", "while :; do :; done"]))
            held.callback(process.kill)
        yield


@pytest.mark.alone
@pytest.mark.parametrize("others_a_processor", [0, 5])
def test_the_estimated_cost_equals_the_lost_cpu_time(others_a_processor: int) -> None:
    """Also if the target has to wait for a processor, perhaps in the middle of a probe."""
    processors = len(os.sched_getaffinity(0))
    with Target.start(program("pingpong"), f"-sends={SENDS // 10}") as target:
        target.ask("round", "ns")
        with busy_machine(others_a_processor * processors):
            before_ns = cpu_ns(target.pid)
            target.ask("round", "ns")
            bare_ns = cpu_ns(target.pid) - before_ns
            cost, used_ns = reported(target)
    lost_ns = used_ns - bare_ns
    assert lost_ns / TOLD < cost.ns < lost_ns * TOLD, cost
    assert cost.hits.timed > 100


@pytest.mark.alone
@pytest.mark.full
def test_few_hits_have_the_same_cost_each_as_many() -> None:
    """The first hits find cold caches, so they say little about later ones."""
    with Target.start(program("pingpong"), f"-sends={SENDS}") as busy:
        of_many, _ = reported(busy)
    with Target.start(program("pingpong"), "-sends=25") as calm:
        of_few = [reported(calm)[0] for _ in range(ROUNDS)]
    for cost in of_few:
        assert cost.hits.count < 100
        assert cost.hits.timed > 3
    each_ns = median(cost.hits.each_ns for cost in of_few)
    assert of_many.hits.each_ns / FEW < each_ns < of_many.hits.each_ns * FEW


def test_the_cost_goes_to_stderr_beside_a_profile_on_stdout(tmp_path: Path) -> None:
    with (
        Target.start(program("pingpong")) as target,
        recording(target.pid, tmp_path, "--output", "-") as recorder,
    ):
        recorder.interrupt()
        finished = recorder.finish()
    assert pprof.decode(finished.stdout, kind="block").comments
    assert "\nOverhead: " in finished.stderr


@pytest.mark.alone
def test_calibration_measures_a_hit_and_leaves_nothing() -> None:
    files, leaked = len(os.listdir("/proc/self/fd")), leaked_probes()
    found = [probe_cost.hit_ns() for _ in range(3)]
    # A trap takes longer than a call, and less than a hundred of them would.
    assert all(each is not None and 20 < each < 1e6 for each in found)
    assert len(os.listdir("/proc/self/fd")) == files
    assert perf_events(os.getpid()) == 0
    assert leaked_probes() == leaked
    assert "calibration" not in Path("/proc/self/maps").read_text()


def test_a_failed_calibration_gives_no_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as where memory files can't be executed."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert probe_cost.hit_ns() is None


def test_a_negative_trap_time_is_discarded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    took_ns = iter((*[800] * PASSES, *[790] * PASSES))  # with a probe less than without
    times_ns = accumulate(took for each in took_ns for took in (0, each))
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(times_ns))
    assert probe_cost.hit_ns() is None


@pytest.mark.alone
@pytest.mark.full
def test_on_busy_processors_our_own_time_is_part_of_the_cost(tmp_path: Path) -> None:
    with ExitStack() as held:
        for _ in range(2 * (os.cpu_count() or 1)):
            other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            held.callback(other.wait)
            held.callback(other.kill)
        target = held.enter_context(Target.start(program("ticker")))
        finished = run("--pid", str(target.pid), "--duration", "0.5", "--long", folder=tmp_path)
    said = finished.stdout.decode()
    busy = r"^All processors were busy: ebpfprof itself used [\d.]+ % of their time\.$"
    assert re.search(busy, said, re.MULTILINE), said
