"""Samplers by hardware counters where the processors have some, by timers where not."""

from __future__ import annotations

import errno
import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from threading import get_native_id

import pytest

from ebpfprof.errors import AttachFailed, PermissionDenied
from ebpfprof.kernel import perf_events as perf
from ebpfprof.kernel import syscalls
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.profilers.cpu.samplers import Samplers
from tests.kernel.kernel_state import perf_events
from tests.kernel.samplerprogram import (
    HZ,
    OPEN_SAMPLER,
    SECOND_NS,
    counting_program,
    mine,
    online_now,
    only_on,
    seen_of,
    work,
    work_until,
)

pytestmark = pytest.mark.alone

COUNTER_PERIOD = 1_000_000


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[BpfProgram]:
    with counting_program(monkeypatch) as loaded:
        yield loaded


def test_without_counters_on_all_processors_all_have_timers(
    program: BpfProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = online_now()[:2]
    events = perf_events(os.getpid())
    with_counters(monkeypatch, first)
    with Samplers(program, "on_sample", HZ) as samplers:
        assert samplers.kind == "cpu-clock"
        assert samplers.cpus == online_now()
        assert perf_events(os.getpid()) == events + len(online_now())
        samplers.enable()
        for cpu in (first, second):
            with only_on(cpu):
                work_until(partial(periods, program, cpu))
        assert set(seen_of(program)["period_ns"]) == {SECOND_NS // HZ}


def test_a_counter_that_fails_is_replaced(
    program: BpfProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = online_now()[:2]
    with_counters(monkeypatch, *online_now())
    with Samplers(program, "on_sample", HZ) as samplers:
        assert samplers.kind == "ref-cycles"
        samplers.enable()
        with only_on(second):
            work_until(lambda: mine(program) >= 5)
        assert set(seen_of(program, thread=get_native_id())["period_ns"]) == {COUNTER_PERIOD}

        for _ in online_now():
            samplers.refresh()
        assert periods(program, second) == {COUNTER_PERIOD}
        with_counters(monkeypatch, first)
        with monkeypatch.context() as patched:
            patched.setattr(perf, "count", lambda fd: None)  # as of a pinned event that failed
            for _ in online_now():
                samplers.refresh()
        assert samplers.cpus == online_now()
        assert samplers.unsampled == {}
        with only_on(second):
            work_until(lambda: periods(program, second) == {SECOND_NS // HZ})
        with only_on(first):
            work_until(lambda: periods(program, first) == {COUNTER_PERIOD})


def periods(program: BpfProgram, cpu: int) -> set[int]:
    """What this thread's latest sample on a processor stands for."""
    return set(seen_of(program, thread=get_native_id(), cpu=cpu)["period_ns"])


def with_counters(monkeypatch: pytest.MonkeyPatch, *those: int) -> None:
    """Let only those processors have counters: timers of another period, since few have any."""

    def open_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
        if hardware and cpu not in those:
            raise perf.NoHardwareCounter("none")
        period = COUNTER_PERIOD if hardware else SECOND_NS // hz
        return OPEN_SAMPLER(cpu, SECOND_NS // period, hardware=False)

    monkeypatch.setattr(perf, "open_cpu_sampler", open_sampler)


# Rates of real processors, as Linux tells them.
@pytest.mark.parametrize(
    ("hz", "time_shift", "time_mult", "cycles"),
    [
        (100, 31, 1 << 31, 10_000_000),  # 1 GHz
        (100, 0, 1, 10_000_000),
        (100, 31, 715_827_883, 29_999_999),  # 3 GHz
        (99, 31, 1_022_611_261, 21_212_121),  # 2.1 GHz
        (1000, 63, 0xFFFF_FFFF, 2_147_483_648_500_000),
    ],
)
def test_the_period_is_in_cycles(hz: int, time_shift: int, time_mult: int, cycles: int) -> None:
    assert perf.period_cycles(hz, time_shift, time_mult) == cycles


def clock_page(time_shift: int, time_mult: int, capabilities: int = 0b11110) -> bytearray:
    """What the kernel shows of the TSC with each perf event: struct perf_event_mmap_page."""
    page = bytearray(b"\xff" * mmap.PAGESIZE)
    struct.pack_into("<QHHI", page, 40, capabilities, 48, time_shift, time_mult)
    return page


def test_a_counter_is_pinned_and_of_fixed_period(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    opened = syscalls.perf_event_open
    monkeypatch.setattr(mmap, "mmap", lambda *_: nullcontext(clock_page(31, 1 << 30)))

    def open_event(attr: syscalls.PerfEventAttr, pid: int, cpu: int) -> int:
        if pid != -1:  # for the rate of the TSC
            return opened(attr, pid, cpu)
        asked.append((attr.type, attr.config, attr.sample_period, attr.flags, pid, cpu))
        attr.type, attr.config, attr.sample_period = 1, 0, COUNTER_PERIOD
        return opened(attr, pid, cpu)

    monkeypatch.setattr(syscalls, "perf_event_open", open_event)
    cpu = online_now()[-1]
    fd = perf.open_cpu_sampler(cpu, 100, hardware=True)
    try:
        disabled, pinned = 1 << 0, 1 << 2
        assert asked == [(0, 9, 20_000_000, disabled | pinned, -1, cpu)]
        before = perf.count(fd)
        work(0.01)
        assert perf.count(fd) == before  # not enabled
        assert not os.get_inheritable(fd)
    finally:
        os.close(fd)


def test_a_counter_that_does_not_count_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = syscalls.perf_event_open
    monkeypatch.setattr(mmap, "mmap", lambda *_: nullcontext(clock_page(31, 1 << 30)))

    def open_event(attr: syscalls.PerfEventAttr, pid: int, cpu: int) -> int:
        if pid != -1:  # for the rate of the TSC
            return opened(attr, pid, cpu)
        attr.type, attr.config = 1, 7  # PERF_COUNT_SW_ALIGNMENT_FAULTS: x86 has none
        return opened(attr, pid, cpu)

    monkeypatch.setattr(syscalls, "perf_event_open", open_event)
    events = perf_events(os.getpid())
    with pytest.raises(perf.NoHardwareCounter, match="not counted"):
        perf.open_cpu_sampler(online_now()[0], 100, hardware=True)
    assert perf_events(os.getpid()) == events


@pytest.mark.parametrize(
    ("code", "hardware", "error"),
    [
        (errno.ENODEV, False, perf.CpuOffline),
        (errno.ENODEV, True, perf.CpuOffline),
        (errno.ENOENT, True, perf.NoHardwareCounter),
        (errno.EOPNOTSUPP, True, perf.NoHardwareCounter),
        (errno.EINVAL, True, perf.NoHardwareCounter),
        (errno.EINVAL, False, AttachFailed),
        (errno.EMFILE, True, AttachFailed),
        (errno.EACCES, True, PermissionDenied),
        (errno.EPERM, False, PermissionDenied),
    ],
)
def test_each_refusal_of_a_perf_event_has_its_error(
    monkeypatch: pytest.MonkeyPatch, code: int, *, hardware: bool, error: type[Exception]
) -> None:
    monkeypatch.setattr(mmap, "mmap", lambda *_: nullcontext(clock_page(31, 1 << 30)))

    opened = syscalls.perf_event_open

    def open_event(attr: syscalls.PerfEventAttr, pid: int, cpu: int) -> int:
        if pid != -1:  # for the rate of the TSC
            return opened(attr, pid, cpu)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(syscalls, "perf_event_open", open_event)
    with pytest.raises(error) as raised:
        perf.open_cpu_sampler(0, 100, hardware=hardware)
    assert raised.type is error


@pytest.mark.parametrize(
    ("capabilities", "time_mult", "clock"),
    [(0b11110, 5, (31, 5)), (0b1000, 5, (31, 5)), (0b10110, 5, None), (0b11110, 0, None)],
)
def test_the_rate_of_the_tsc_is_the_kernel_s(
    monkeypatch: pytest.MonkeyPatch,
    capabilities: int,
    time_mult: int,
    clock: tuple[int, int] | None,
) -> None:
    page = clock_page(31, time_mult, capabilities)
    monkeypatch.setattr(mmap, "mmap", lambda *_: nullcontext(page))
    if clock is None:
        with pytest.raises(perf.NoHardwareCounter, match="rate of the TSC"):
            perf._tsc_clock()
    else:
        assert perf._tsc_clock() == clock
