"""A BPF program that counts its samples by thread and processor, and work for it to be sampled."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_native_id
from time import thread_time
from typing import Any

import numpy as np
import pytest

from ebpfprof.errors import AttachFailed
from ebpfprof.kernel import perf_events, program_source
from ebpfprof.kernel.program import BpfProgram
from ebpfprof.kernel.program_source import ProgramSource

HZ = 500
SECOND_NS = 1_000_000_000
DEADLINE_S = 60.0
ROWS = 64
OPEN_SAMPLER = perf_events.open_cpu_sampler

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


@contextmanager
def counting_program(monkeypatch: pytest.MonkeyPatch) -> Iterator[BpfProgram]:
    """Load it. Its ring buffer has what is sampled of this thread."""
    monkeypatch.setattr(program_source, "program_text", {"test.bpf.c": PROGRAM}.__getitem__)
    constants = {"ROWS": ROWS, "THREAD": get_native_id()}
    source = ProgramSource("test.bpf.c", constants, perf_functions=("on_sample",))
    with BpfProgram(source) as loaded:
        loaded.load()
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


def seen_of(program: BpfProgram, **fields: int) -> np.ndarray[Any, np.dtype[Any]]:
    """The map's values whose keys have these fields."""
    keys, values = program.maps["seen"].rows()
    chosen = np.ones(len(keys), bool)
    for name, value in fields.items():
        chosen &= keys[name] == value
    return values[chosen]


def samples_of(program: BpfProgram, **fields: int) -> int:
    return int(seen_of(program, **fields)["samples"].sum())


def mine(program: BpfProgram, **fields: int) -> int:
    """Samples of this thread."""
    return samples_of(program, thread=get_native_id(), **fields)


def online_now() -> tuple[int, ...]:
    """The processors that are really online. Two are needed."""
    online = os.sched_getaffinity(0)
    assert len(online) >= 2
    return tuple(sorted(online))


def refused(monkeypatch: pytest.MonkeyPatch, refused_cpu: int) -> None:
    """Let the kernel refuse to sample one processor."""

    def open_sampler(cpu: int, hz: int, *, hardware: bool) -> int:
        if cpu == refused_cpu:
            raise AttachFailed("refused")
        return OPEN_SAMPLER(cpu, hz, hardware=hardware)

    monkeypatch.setattr(perf_events, "open_cpu_sampler", open_sampler)
