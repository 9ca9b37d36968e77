"""Samplers on real processors, and the maps and ring buffers beside them."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from threading import get_native_id
from time import monotonic, sleep, thread_time
from typing import Any

import numpy as np
import pytest

from ebpfprof import cpus, loader, perf
from ebpfprof.cpus import Samplers, online_cpus
from ebpfprof.errors import AttachFailed, KernelUnsupported, PermissionDenied
from ebpfprof.loader import Program
from tests.kernel.kernel_state import perf_events

HZ = 500
# On a busy machine the thread's turns fall on the timers by chance: a second of work has 500
# samples with a standard deviation of 30 or so.
RUNS = 3
SECOND_NS = 1_000_000_000
COOKIE = 0x1234_5678_9ABC_DEF0
DEADLINE_S = 60.0
ROWS = 64
COUNTER_PERIOD = 1_000_000
OPEN_SAMPLER = perf.open_cpu_sampler

PROGRAM = """
#define PAGE_SIZE 4096

struct bpf_perf_event_data {
    struct pt_regs regs;
    u64 sample_period;
    u64 addr;
};

struct place {
    u32 thread;
    u32 cpu;
};

struct seen {
    u64 samples;
    u64 period_ns;
    u64 cookie;
};

struct record {
    u64 number;
    u32 thread;
    u32 cpu;
};

struct row {
    u64 number;
    u32 halves[2];
};

BPF_HASH(seen, struct place, struct seen, 10000);
BPF_HASH(rows, struct place, struct row, ROWS);
BPF_STACK_TRACE(stacks, ROWS);
BPF_RINGBUF_OUTPUT(records, 2);

int on_sample(struct bpf_perf_event_data *ctx) {
    struct place place = {.thread = bpf_get_current_pid_tgid(), .cpu = bpf_get_smp_processor_id()};
    struct seen zero = {};
    struct seen *seen_here = seen.lookup_or_try_init(&place, &zero);

    if (!seen_here)
        return 0;
    seen_here->samples++;
    seen_here->period_ns = ctx->sample_period;
    seen_here->cookie = bpf_get_attach_cookie(ctx);
    struct record record = {
        .number = seen_here->samples, .thread = place.thread, .cpu = place.cpu};
    if (place.thread == THREAD)
        records.ringbuf_output(&record, sizeof(record), 0);
    return 0;
}
"""


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    monkeypatch.setattr(loader, "program_text", lambda name: {"test.bpf.c": PROGRAM}[name])
    constants = {"ROWS": ROWS, "THREAD": get_native_id()}
    with Program("test.bpf.c", constants, (), perf_functions=("on_sample",)) as loaded:
        yield loaded


@contextmanager
def only_on(cpu: int) -> Iterator[None]:
    """Run this thread on one processor."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cpu})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def work_until(done: Callable[[], object]) -> None:
    """Keep a processor busy."""
    end = thread_time() + DEADLINE_S
    while not done():
        assert thread_time() < end


def work(time_s: float) -> None:
    """Keep a processor busy for some time, without system calls.

    While a thread reads a map the kernel runs no samplers on its processor.
    """
    end = thread_time() + time_s
    while thread_time() < end:
        pass


def seen_of(program: Program, **fields: int) -> np.ndarray[Any, np.dtype[Any]]:
    """The map's values whose keys have these fields."""
    keys, values = program.read_hash("seen")
    chosen = np.ones(len(keys), bool)
    for name, value in fields.items():
        chosen &= keys[name] == value
    return values[chosen]


def samples_of(program: Program, **fields: int) -> int:
    return int(seen_of(program, **fields)["samples"].sum())


def mine(program: Program, **fields: int) -> int:
    """Samples of this thread."""
    return samples_of(program, thread=get_native_id(), **fields)


def idle_ticks() -> int:
    """What all processors together have idled; proc(5), /proc/stat."""
    return int(Path("/proc/stat").read_text().split(None, 5)[4])


def test_samples_stand_for_equal_times_of_work(program: Program) -> None:
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


def test_idle_is_not_sampled(program: Program) -> None:
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.enable()
        before = idle_ticks()
        end = monotonic() + DEADLINE_S
        while idle_ticks() < before + 20:
            assert monotonic() < end
            sleep(0.01)
        work_until(lambda: mine(program) >= 5)
    assert samples_of(program, thread=0) == 0


def test_a_sampler_is_on_one_processor_and_passes_its_cookie(program: Program) -> None:
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


def test_closing_leaves_no_event(program: Program) -> None:
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


def test_a_failing_attach_closes_the_event(program: Program) -> None:
    before = perf_events(os.getpid())
    with open("/dev/null") as null:
        fd = os.dup(null.fileno())
        with pytest.raises(AttachFailed):
            program.attach_sampler("on_sample", fd, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert perf_events(os.getpid()) == before


def test_without_all_processors_none_is_sampled(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = perf_events(os.getpid())
    refused(monkeypatch, online_now()[-1])
    with pytest.raises(AttachFailed, match="refused"):
        Samplers(program, "on_sample", HZ)
    assert perf_events(os.getpid()) == before


def refused(monkeypatch: pytest.MonkeyPatch, refused_cpu: int) -> None:
    """Let the kernel refuse to sample one processor."""

    def open_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
        if cpu == refused_cpu:
            raise AttachFailed("refused")
        return OPEN_SAMPLER(cpu, hz, hardware=hardware)

    monkeypatch.setattr(perf, "open_cpu_sampler", open_sampler)


def test_what_an_event_has_counted() -> None:
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


def test_a_processor_that_is_not_there(program: Program) -> None:
    with pytest.raises(AttachFailed, match=r"processor 99999: .*errno"):
        perf.open_cpu_sampler(99999, HZ, hardware=False)


def test_processors_that_come_and_go(
    program: Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The list is ours; what happens to the samplers of a real one: the tests below."""
    online = tmp_path / "online"
    monkeypatch.setattr(cpus, "_ONLINE", online)
    first, second = online_now()[:2]

    online.write_text(f"{first}\n")
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.refresh()
        assert list(samplers.cpus) == [first]

        online.write_text(f"{first},{second}\n")
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        with only_on(second):
            work(5 / HZ)
        assert samples_of(program) == 0

        samplers.enable()
        samplers.refresh()
        online.write_text(f"{second}\n")
        samplers.refresh()
        assert list(samplers.cpus) == [second]
        count = samples_of(program, cpu=first)
        with only_on(first):
            work(10 / HZ)
        assert samples_of(program, cpu=first) == count

        online.write_text(f"{first}-{second}\n")
        samplers.refresh()
        with only_on(first):
            work_until(lambda: mine(program, cpu=first) >= 5)
        assert list(samplers.cpus) == [first, second]
        assert samplers.unsampled == {}

        online.write_text(f"{first}-{second},99999\n")
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        assert set(samplers.unsampled) == {99999}
        assert "processor 99999" in samplers.unsampled[99999]

        online.unlink()
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]

        with monkeypatch.context() as patched:
            refused(patched, first)
            for text in (f"{second}", f"{first}-{second}"):
                online.write_text(text)
                samplers.refresh()
        assert list(samplers.cpus) == [second]
        assert samplers.unsampled[first] == "refused"
        samplers.disable()
        samplers.refresh()
        assert list(samplers.cpus) == [first, second]
        assert first not in samplers.unsampled
        count = mine(program, cpu=first)
        with only_on(first):
            work(5 / HZ)
        assert mine(program, cpu=first) == count  # it came while they were disabled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n", (0,)),
        ("0-3\n", (0, 1, 2, 3)),
        ("0-1,4,6-7\n", (0, 1, 4, 6, 7)),
        ("1,130-131", (1, 130, 131)),
    ],
)
def test_lists_of_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expected: tuple[int, ...]
) -> None:
    monkeypatch.setattr(cpus, "_ONLINE", tmp_path / "online")
    (tmp_path / "online").write_text(text)
    assert online_cpus() == expected


@pytest.mark.parametrize("text", [None, "", "\n", "x", "0-", "-1", "0,,1", "0-1-2", "1:2", "٣"])
def test_what_is_no_list_of_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str | None
) -> None:
    monkeypatch.setattr(cpus, "_ONLINE", tmp_path / "online")
    if text is not None:
        (tmp_path / "online").write_text(text)
    with pytest.raises(KernelUnsupported, match="does not tell which processors it has"):
        online_cpus()


def test_a_processor_that_goes_before_it_is_sampled_is_left_out(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, gone, *_ = online_now()

    def open_cpu_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
        if cpu == gone:
            raise perf.CpuOffline("Processor is not online.")
        return OPEN_SAMPLER(cpu, hz, hardware=hardware)

    monkeypatch.setattr(perf, "open_cpu_sampler", open_cpu_sampler)
    with Samplers(program, "on_sample", HZ) as samplers:
        assert gone not in samplers.cpus
        assert first in samplers.cpus
        samplers.refresh()
        assert gone not in samplers.cpus
        monkeypatch.undo()
        samplers.refresh()
        assert gone in samplers.cpus
        assert samplers.unsampled == {}


@contextmanager
def switched_off(cpu: int) -> Iterator[None]:
    """Take a processor offline; it is back behind the block."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/online")
    path.write_text("0")
    try:
        yield
    finally:
        path.write_text("1")


@pytest.mark.parametrize("is_noticed", [True, False])
def test_a_processor_that_is_switched_off_and_on(program: Program, *, is_noticed: bool) -> None:
    *others, cpu = online_now()
    with Samplers(program, "on_sample", HZ) as samplers:
        samplers.enable()
        with only_on(cpu):
            work_until(lambda: mine(program, cpu=cpu) >= 5)
        with switched_off(cpu):
            with pytest.raises(perf.CpuOffline, match=f"Processor {cpu} is not online"):
                perf.open_cpu_sampler(cpu, HZ, hardware=False)
            if is_noticed:
                samplers.refresh()
                assert samplers.cpus == tuple(others)
        count = mine(program, cpu=cpu)
        with only_on(cpu):
            work(5 / HZ)
            assert mine(program, cpu=cpu) == count  # the event died

            def is_sampled() -> bool:
                samplers.refresh()
                return mine(program, cpu=cpu) >= count + 5

            work_until(is_sampled)
        assert samplers.cpus == online_now()
        assert samplers.unsampled == {}


def test_without_counters_on_all_processors_all_have_timers(
    program: Program, monkeypatch: pytest.MonkeyPatch
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
    program: Program, monkeypatch: pytest.MonkeyPatch
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


def periods(program: Program, cpu: int) -> set[int]:
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


def online_now() -> tuple[int, ...]:
    """The processors that are really online. Two are needed."""
    online = os.sched_getaffinity(0)
    assert len(online) >= 2
    return tuple(sorted(online))


def test_rows_go_into_a_hash_map_until_it_is_full(program: Program) -> None:
    key_type, value_type = program.hash_types("rows")
    keys, values = np.zeros(2 * ROWS, key_type), np.zeros(2 * ROWS, value_type)
    keys["thread"] = range(2 * ROWS)
    keys["cpu"] = 7
    values["number"] = np.arange(2 * ROWS) * 1000 + (1 << 40)
    values["halves"][:, 1] = range(2 * ROWS)

    assert program.update_hash("rows", keys[:0], values[:0]) == 0
    assert rows_of(program) == {}
    assert program.update_hash("rows", keys[:10:2], values[:10:2]) == 5
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 0, n) for n in range(0, 10, 2)}
    values["halves"][:, 0] = 3
    assert program.update_hash("rows", keys[:10], values[:10]) == 10
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 3, n) for n in range(10)}
    assert program.update_hash("rows", keys, values) == ROWS
    assert rows_of(program) == {n: (1000 * n + (1 << 40), 3, n) for n in range(ROWS)}


def rows_of(program: Program) -> dict[int, tuple[int, ...]]:
    keys, values = program.read_hash("rows")
    assert set(keys["cpu"]) <= {7}
    return {
        int(key): (int(value["number"]), *map(int, value["halves"]))
        for key, value in zip(keys["thread"], values, strict=True)
    }


def test_rows_of_another_type_do_not_go_into_a_hash_map(program: Program) -> None:
    key_type, value_type = program.hash_types("rows")
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.update_hash("rows", np.zeros(3, np.uint64), np.zeros(3, value_type))
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.update_hash("rows", np.zeros(3, key_type), np.zeros(3, key_type))
    with pytest.raises(ValueError, match="no rows of the map rows"):
        program.update_hash("rows", np.zeros(3, key_type), np.zeros(2, value_type))
    assert rows_of(program) == {}


def test_what_a_map_refuses_is_an_error(program: Program) -> None:
    """A map that has no batched updates, standing for a kernel that has none."""
    key_type, value_type = program.hash_types("stacks")
    with pytest.raises(KernelUnsupported, match="stacks can't be written"):
        program.update_hash("stacks", np.zeros(3, key_type), np.zeros(3, value_type))


def test_records_of_a_ring_come_once_and_in_order(program: Program) -> None:
    reader = program.ring_buffer("records")
    assert reader.consume() == []
    *_, cpu = online_now()
    record = np.dtype([("number", "<u8"), ("thread", "<u4"), ("cpu", "<u4")])
    with Samplers(program, "on_sample", HZ) as samplers, only_on(cpu):
        samplers.enable()
        work_until(lambda: mine(program) >= 10)
        read = reader.consume(4)
        assert len(read) == 4
        read += reader.consume(1)
        assert len(read) == 5
        work_until(lambda: mine(program) >= 20)
        samplers.disable()
        read += reader.consume()
    assert reader.consume() == []
    assert {len(each) for each in read} == {record.itemsize}
    rows = np.frombuffer(b"".join(read), record)
    assert list(rows["number"]) == list(range(1, mine(program) + 1))
    assert set(rows["thread"]) == {get_native_id()}
    assert set(rows["cpu"]) == {cpu}


def test_a_ring_that_is_no_ring(program: Program) -> None:
    with pytest.raises(KernelUnsupported, match="ring buffer can't be read"):
        program.ring_buffer("rows")


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
def test_period_in_cycles(hz: int, time_shift: int, time_mult: int, cycles: int) -> None:
    assert perf.period_cycles(hz, time_shift, time_mult) == cycles


def test_a_counter_is_pinned_and_of_fixed_period(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, ...]] = []
    opened = perf._open
    monkeypatch.setattr(perf, "_tsc_clock", lambda: (31, 1 << 30))

    def open_event(attr: perf._PerfEventAttr, pid: int, cpu: int) -> int:
        asked.append((attr.type, attr.config, attr.sample_period, attr.flags, pid, cpu))
        attr.type, attr.config, attr.sample_period = 1, 0, COUNTER_PERIOD
        return opened(attr, pid, cpu)

    monkeypatch.setattr(perf, "_open", open_event)
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


def test_a_counter_that_does_not_count_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = perf._open
    monkeypatch.setattr(perf, "_tsc_clock", lambda: (31, 1 << 30))

    def open_event(attr: perf._PerfEventAttr, pid: int, cpu: int) -> int:
        attr.type, attr.config = 1, 7  # PERF_COUNT_SW_ALIGNMENT_FAULTS: x86 has none
        return opened(attr, pid, cpu)

    monkeypatch.setattr(perf, "_open", open_event)
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
def test_each_refusal_has_its_error(
    monkeypatch: pytest.MonkeyPatch, code: int, *, hardware: bool, error: type[Exception]
) -> None:
    monkeypatch.setattr(perf, "_tsc_clock", lambda: (31, 1 << 30))

    def open_event(attr: perf._PerfEventAttr, pid: int, cpu: int) -> int:
        ctypes.set_errno(code)
        return -1

    monkeypatch.setattr(perf, "_open", open_event)
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
    page = bytearray(b"\xff" * mmap.PAGESIZE)
    struct.pack_into("<QHHI", page, 40, capabilities, 48, 31, time_mult)
    monkeypatch.setattr(mmap, "mmap", lambda *_: nullcontext(page))
    if clock is None:
        with pytest.raises(perf.NoHardwareCounter, match="rate of the TSC"):
            perf._tsc_clock()
    else:
        assert perf._tsc_clock() == clock
