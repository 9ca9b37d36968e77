"""Samples that the kernel hands over (bpf/cpu/partial_samples.h), read in Python."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebpfprof.kernel import c_facts
from ebpfprof.profilers.cpu.partial_samples import LARGE_BYTES, Unfinished
from ebpfprof.profilers.cpu.unwinder import MAX_DEPTH, Cursor, GoState
from tests.unit.bpf.native import Native, Piece, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "cpu/partial_samples.h"
static struct signal_stack signals;
/* Hands over what the head of a record says. */
u64 give(const struct unfinished *head) {
    static struct work work;
    work.sample = head->sample;
    work.at = head->at;
    work.go = head->go;
    work.behind_breakpoint = head->behind_breakpoint;
    work.at_breakpoint = head->at_breakpoint;
    work.signals = signals;
    return hand_over(&work);
}
void has_signal_stack(u64 start, u64 bytes) {
    signals = (struct signal_stack){start, bytes};
}
"""
MACROS = {"MAX_DEPTH": MAX_DEPTH, "MAX_LINES": 4, "MAX_RULES": 4, "RING_PAGES": 1}
UNFINISHED = c_facts.struct("cpu/partial_samples.h", "unfinished", MACROS)
COPY_BYTES, COPIES, FEW_COPIES, HUGE_COPY_BYTES, HUGE_COPIES = (
    c_facts.number("cpu/partial_samples.h", name)
    for name in ("COPY_BYTES", "COPIES", "FEW_COPIES", "HUGE_COPY_BYTES", "HUGE_COPIES")
)
PAGE_BYTES = 4096
MOST_PAGES = HUGE_COPIES * HUGE_COPY_BYTES // PAGE_BYTES
CODE, THREAD, GOROUTINE = 0x40_1000, 0x7F00_0000_0000, 0xC000_0000_00
SIGNALS, SIGNALS_BYTES = 0x7F10_0000_0000, 0x8000
CONTEXT_ALIGN, CONTEXT_STACK, CONTEXT_SP = (
    c_facts.number("cpu/table_unwind.h", f"UCONTEXT_{name}") for name in ("ALIGN", "STACK", "SP")
)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("partial"), PROGRAM, MACROS))


def fill(record: Any, values: Cursor | GoState) -> None:  # noqa: ANN401 - a record of numpy
    for name, value in zip(record.dtype.names, astuple(values), strict=True):
        record[name] = value


def pages(start: int, present: list[bool]) -> list[Piece]:
    """Pages of memory, of which some can't be read; each word is its address."""
    return [
        (at, np.array(range(at, at + PAGE_BYTES, 8), np.uint64).tobytes())
        for at, there in zip(range(start, 1 << 48, PAGE_BYTES), present, strict=False)
        if there
    ]


def copied(packed: bytes) -> list[tuple[int, int]]:
    """Where the copies in a record begin, and their size in bytes."""
    reported: Any = np.frombuffer(packed, UNFINISHED, 1)["copies"][0]
    sizes = (reported["parts"] * reported["part_bytes"]).tolist()
    assert UNFINISHED.itemsize + sum(sizes) <= len(packed)
    return [
        (start, size) for start, size in zip(reported["start"].tolist(), sizes, strict=True) if size
    ]


present = st.one_of(
    st.lists(st.booleans(), min_size=1, max_size=12),
    st.lists(st.booleans(), min_size=MOST_PAGES, max_size=MOST_PAGES + 2),
)


@given(
    present=present,
    other_present=present,
    sp_words=st.integers(0, 300),
    sched_words=st.integers(0, 300),
    is_on_thread=st.booleans(),
    numbers=st.lists(st.integers(1, (1 << 64) - 1), min_size=8, max_size=8),
    pcs=st.lists(st.integers(1, 1 << 47), max_size=MAX_DEPTH),
    kernel_pcs=st.lists(st.integers(1 << 63, (1 << 64) - 1), max_size=64),
)
def test_records_of_partial_stacks_are_decoded(
    present: list[bool],
    other_present: list[bool],
    sp_words: int,
    sched_words: int,
    is_on_thread: bool,
    numbers: list[int],
    pcs: list[int],
    kernel_pcs: list[int],
    native: Native,
) -> None:
    here, there = (THREAD, GOROUTINE) if is_on_thread else (GOROUTINE, THREAD)
    known = {here: present, there: other_present}
    ends = {stack: stack + PAGE_BYTES * len(each) for stack, each in known.items()}
    pointers = {here: here + 8 * sp_words}
    if is_on_thread:
        pointers[GOROUTINE] = GOROUTINE + 8 * sched_words
    at = Cursor(numbers[0], pointers[here], numbers[1], bool(numbers[2] & 1))
    go = GoState(
        curg=1,
        lo=GOROUTINE,
        hi=ends[GOROUTINE],
        sched_sp=GOROUTINE + 8 * sched_words,
        sched_pc=numbers[3],
        syscall_pc=numbers[4],
        thread_hi=ends[THREAD],
    )
    head: Any = np.zeros(1, UNFINISHED)
    sample, process = head["sample"], numbers[5] % (1 << 32)
    sample["count"], sample["labels"], sample["process"] = numbers[6], numbers[7], process
    sample["kernel_depth"], sample["user"]["depth"] = len(kernel_pcs), len(pcs)
    sample["kernel_pcs"][0][: len(kernel_pcs)] = kernel_pcs
    sample["user"]["pcs"][0][: len(pcs)] = pcs
    fill(head["at"], at)
    fill(head["go"], go)
    head["behind_breakpoint"], head["at_breakpoint"] = is_on_thread, not is_on_thread
    native.set_memory([page for stack, each in known.items() for page in pages(stack, each)])
    assert native.call("give", head)
    packed = native.last_record()
    arrived = Unfinished.parse(packed)
    assert (arrived.process, arrived.labels, arrived.count) == (process, numbers[7], numbers[6])
    assert (arrived.pcs, arrived.kernel_pcs) == (tuple(pcs), tuple(kernel_pcs))
    assert (arrived.at, arrived.go) == (at, go)
    assert (arrived.behind_breakpoint, arrived.at_breakpoint) == (is_on_thread, not is_on_thread)
    copies = copied(packed)
    assert len(copies) == len(pointers)
    for start, size_bytes in copies:
        (stack,) = (pointer for pointer in pointers if pointer <= start < ends[pointer])
        assert pointers[stack] - HUGE_COPY_BYTES < start <= pointers[stack]
        most_bytes = HUGE_COPIES * HUGE_COPY_BYTES if stack == GOROUTINE else COPIES * COPY_BYTES
        assert start + size_bytes >= ends[stack] or size_bytes == most_bytes
        for address in range(start, start + size_bytes, COPY_BYTES):
            page = (address - stack) // PAGE_BYTES
            is_there = page < len(known[stack]) and known[stack][page]
            assert arrived.copies.word(address) == (address if is_there else None)


@given(
    saved_bytes=st.integers(9, 180).map(lambda steps: steps * CONTEXT_ALIGN),
    deeper_words=st.integers(0, 256),
    is_nested=st.booleans(),
    is_on_thread=st.booleans(),
)
def test_samples_in_signal_handlers_have_what_they_interrupted(
    saved_bytes: int, deeper_words: int, is_nested: bool, is_on_thread: bool, native: Native
) -> None:
    here, there = (THREAD, GOROUTINE) if is_on_thread else (GOROUTINE, THREAD)
    everywhere = [True] * 4
    stack = np.zeros(SIGNALS_BYTES // 8, np.uint64)
    context = SIGNALS_BYTES - saved_bytes

    def put_context(at: int, sp: int) -> None:
        word = (at + CONTEXT_STACK) // 8
        stack[word], stack[word + 2] = SIGNALS, SIGNALS_BYTES
        stack[(at + CONTEXT_SP) // 8] = sp

    put_context(context, here + PAGE_BYTES)
    sp = context
    if is_nested:
        sp -= 1 << 12
        put_context(sp, SIGNALS + context)
    sp -= 8 * deeper_words
    go = GoState(curg=1, lo=GOROUTINE, hi=GOROUTINE + 4 * PAGE_BYTES, sched_sp=GOROUTINE)
    head: Any = np.zeros(1, UNFINISHED)
    fill(head["at"], Cursor(CODE, SIGNALS + sp, 0, True))
    fill(head["go"], go)
    pieces = [(SIGNALS, stack.tobytes()), *pages(here, everywhere)]
    native.set_memory([*pieces, *(pages(there, everywhere) if is_on_thread else ())])
    native.call("has_signal_stack", SIGNALS, SIGNALS_BYTES)
    try:
        assert native.call("give", head)
    finally:
        native.call("has_signal_stack", 0, 0)
    copies = Unfinished.parse(native.last_record()).copies
    wanted = here + PAGE_BYTES
    assert copies.word(SIGNALS + context + CONTEXT_SP) == wanted
    assert copies.word(SIGNALS + sp) == stack[sp // 8]
    assert copies.word(wanted) == wanted
    assert copies.word(here + 3 * PAGE_BYTES) == here + 3 * PAGE_BYTES
    if is_on_thread:
        assert copies.word(GOROUTINE) == GOROUTINE


def test_a_signal_stack_without_a_frame_leads_nowhere(native: Native) -> None:
    head: Any = np.zeros(1, UNFINISHED)
    fill(head["at"], Cursor(CODE, SIGNALS, 0, True))
    native.set_memory([(SIGNALS, bytes(SIGNALS_BYTES))])
    native.call("has_signal_stack", SIGNALS, SIGNALS_BYTES)
    try:
        assert native.call("give", head)
    finally:
        native.call("has_signal_stack", 0, 0)
    assert len(copied(native.last_record())) == 1


def test_the_ring_buffer_is_sized_for_the_largest_record(native: Native) -> None:
    head: Any = np.zeros(1, UNFINISHED)
    native.set_memory([])
    fill(head["at"], Cursor(0, THREAD, 0, False))
    fill(head["go"], GoState(thread_hi=THREAD + 2 * COPIES * COPY_BYTES))
    assert native.call("give", head)
    taken = len(native.last_record()) + 8  # BPF_RINGBUF_HDR_SZ
    assert taken <= LARGE_BYTES < 1.1 * taken
    fill(head["go"], GoState(thread_hi=THREAD + COPY_BYTES))
    assert native.call("give", head)
    assert len(native.last_record()) < LARGE_BYTES / 6
