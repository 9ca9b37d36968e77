"""Samplers on real processors: what they count, and what they leave."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import perf_events as perf
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profilers.cpu.samplers import Samplers, online_cpus
from tests.kernel.kernel_state import perf_events
from tests.kernel.samplerprogram import (
    DEADLINE_S,
    HZ,
    SECOND_NS,
    counting_program,
    mine,
    online_now,
    only_on,
    refused,
    samples_of,
    seen_of,
    work,
    work_until,
)

pytestmark = pytest.mark.alone

# On a busy machine the thread's turns fall on the timers by chance: a second of work has 500
# samples with a standard deviation of 30 or so.
RUNS = 3
COOKIE = 0x1234_5678_9ABC_DEF0


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[BpfProgram]:
    with counting_program(monkeypatch) as loaded:
        yield loaded


def idle_ticks() -> int:
    """What all processors together have idled; proc(5), /proc/stat."""
    return int(Path("/proc/stat").read_text().split(None, 5)[4])


def test_samples_stand_for_equal_times_of_work(program: BpfProgram) -> None:
    with Samplers(program, "on_sample", HZ) as samplers:
        assert samplers.kind in ("cpu-clock", "ref-cycles")
        assert samplers.cpus == online_cpus()
        work(5 / HZ)
        assert samples_of(program) == 0

        expected = pytest.approx(HZ, rel=0.15)
        for _ in range(RUNS):
            before = mine(program)
            samplers.enable()
            work(1.0)
            samplers.disable()
            count = mine(program) - before
            if count == expected:
                break
        assert count == expected
        if samplers.kind == "cpu-clock":
            assert set(seen_of(program)["period_ns"]) == {SECOND_NS // HZ}

        before = samples_of(program)
        work(20 / HZ)
        assert samples_of(program) == before

        count = mine(program)
        samplers.enable()
        work_until(lambda: mine(program) > count)


def test_idle_is_not_sampled(program: BpfProgram) -> None:
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.enable()
        before = idle_ticks()
        end = monotonic() + DEADLINE_S
        while idle_ticks() < before + 20:
            assert monotonic() < end
            sleep(0.01)
        work_until(lambda: mine(program) >= 5)
    assert samples_of(program, thread=0) == 0


def test_a_sampler_is_on_one_processor_and_passes_its_cookie(program: BpfProgram) -> None:
    *_, cpu = online_cpus()
    fd = perf.open_cpu_sampler(cpu, HZ, hardware=False)
    program.attach_sampler("on_sample", fd, COOKIE)
    assert perf.count(fd) == 0
    perf.enable(fd)
    with only_on(cpu):
        work_until(lambda: mine(program) >= 5)
    assert samples_of(program) == samples_of(program, cpu=cpu)
    assert set(seen_of(program)["cookie"]) == {COOKIE}

    program.detach_sampler(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        perf.enable(fd)
    program.detach_sampler(fd)


def test_closed_samplers_leave_no_perf_event(program: BpfProgram) -> None:
    before = perf_events(os.getpid())
    samplers = Samplers(program, "on_sample", HZ)
    assert perf_events(os.getpid()) == before + len(online_cpus())
    samplers.close()
    assert perf_events(os.getpid()) == before
    samplers.close()

    samplers = Samplers(program, "on_sample", HZ)
    program.detach()
    assert perf_events(os.getpid()) == before
    samplers.close()


def test_a_failing_attach_closes_the_event(program: BpfProgram) -> None:
    before = perf_events(os.getpid())
    with open("/dev/null") as null:
        fd = os.dup(null.fileno())
        with pytest.raises(AttachFailed):
            program.attach_sampler("on_sample", fd, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert perf_events(os.getpid()) == before


def test_if_a_processor_fails_none_is_sampled(
    program: BpfProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = perf_events(os.getpid())
    refused(monkeypatch, online_now()[-1])
    with pytest.raises(AttachFailed, match="refused"):
        Samplers(program, "on_sample", HZ)
    assert perf_events(os.getpid()) == before


def test_a_perf_event_counts_the_time_of_work() -> None:
    cpu = online_now()[0]
    fd = perf.open_cpu_sampler(cpu, HZ, hardware=False)
    try:
        assert perf.count(fd) == 0
        perf.enable(fd)
        with only_on(cpu):
            work(0.05)
        perf.disable(fd)
        counted = perf.count(fd)
        assert counted is not None
        assert counted >= SECOND_NS // 20
        assert perf.count(fd) == counted
    finally:
        os.close(fd)
    with open("/dev/null", "rb") as nothing:  # nothing to read: so is an event that failed
        assert perf.count(nothing.fileno()) is None
