"""The walk along frame pointers in C (bpf/waits) beside the one in Python, on random stacks."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ebpfprof.goruntime.goroutines.parked import park_at
from ebpfprof.goruntime.goroutines.stack_walk import StackWalker
from ebpfprof.goruntime.limits import MAX_DEPTH
from ebpfprof.kernel import c_facts
from symbolizer.codeanalysis.cgo_callback import CgoCallback
from tests.unit.bpf.native import Native, PiecesMemory, build

pytestmark = pytest.mark.machine

PROGRAM = """
#include "probes/fp_unwind.h"
u64 walk(const struct target *target, const struct start *start, u64 *pcs, u64 *is_whole) {
    struct group group = {};
    struct walker *walker = take_walker(&group);
    walker->start = *start;
    walk_stack(walker, target);
    u64 depth = walker->stack.depth;
    __builtin_memcpy(pcs, walker->stack.pcs, sizeof(walker->stack.pcs));
    *is_whole = walker->loss < 0;
    give_walker(walker);
    return depth;
}
u64 walk_here(const struct target *target, u64 g, u64 bp, struct site *site, u64 *pcs, u64 *loss) {
    struct group group = {};
    struct walker *walker = take_walker(&group);
    struct pt_regs registers = {.bp = bp};
    start_unbounded(walker, g, &registers, target, site);
    walk_stack(walker, target);
    learn_depth(walker, bp, site);
    u64 depth = walker->stack.depth;
    __builtin_memcpy(pcs, walker->stack.pcs, sizeof(walker->stack.pcs));
    *loss = walker->loss;
    give_walker(walker);
    return depth;
}
u64 find_start(const struct target *target, u64 g, u64 return_pc, struct start *start) {
    return start_parked(g, target, return_pc, start);
}
"""
MACROS = {
    "BY_LOCK": 0,
    "WITH_LABELS": 0,
    "MAX_TARGETS": 1,
    "MAX_SITES": 1,
    "MAX_DEPTH": MAX_DEPTH,
    "LOCK_CALLERS": 1,
}
MOST = MACROS["MAX_DEPTH"]
TARGET = c_facts.struct("probes/target.h", "target", MACROS)
SITE = c_facts.struct("probes/target.h", "site", MACROS)
START = c_facts.struct("probes/goroutine_stack.h", "start", MACROS)
G_SCHED_PC = c_facts.number("probes/goroutine_stack.h", "G_SCHED_PC")

LO, G = 0xC000_0100_00, 0xC000_0001_00
CALLBACK_PC, SWITCH_PC, PARK_PC = 0x40_1000, 0x40_2000, 0x40_3000
WORDS = 3000  # more than both read at once
FILLER = LO + 8 * WORDS - 24

callbacks = st.builds(
    lambda switch, caller, frame: CgoCallback(
        CALLBACK_PC,
        SWITCH_PC,
        8 * switch,
        8 * (switch + caller) if caller else 0,
        8 * (switch + caller + frame),
    ),
    st.integers(3, 6),
    st.sampled_from([0, 2, 3]),
    st.integers(1, 5),
)
plain_pc = st.integers(0x41_0000, 0x42_0000)
pc = st.sampled_from([CALLBACK_PC, SWITCH_PC, 0x41_0001, 0x41_0002, 0x41_0003])
garbage = st.one_of(
    st.integers(-1, 12).map(lambda index: LO + 8 * index),
    st.integers(0, 8 * WORDS).map(lambda distance: LO + distance),
    st.sampled_from([0, 1, LO + 8 * WORDS - 8, LO + 8 * WORDS]),
    st.integers(0, (1 << 64) - 1),
)


class Made:
    """A stack that is laid out frame by frame, upwards from its stack pointer, which is LO."""

    def __init__(self, callback: CgoCallback | None) -> None:
        self._callback = callback
        self.words = [FILLER] * WORDS
        self.next = LO
        self.frames: list[int] = []
        """Where in the words frames are."""

    def frame(self, at: int, bp: int, return_pc: int) -> None:
        index = (at - LO) // 8
        if index + 1 < WORDS:
            self.words[index : index + 2] = [bp, return_pc]
            self.frames.append(index)

    def push(self, gap_words: int, return_pc: int) -> None:
        """A frame whose caller has its own that many words further up."""
        at, callback = self.next, self._callback
        self.next = at + 8 * gap_words
        if callback and return_pc == CALLBACK_PC:
            self.next = at + callback.frame_offset
            self.frame(at + callback.switch_offset - 8, 1, SWITCH_PC)
            if callback.caller_offset:
                self.frame(at + callback.caller_offset - 8, 1, 0x41_0004)
        self.frame(at, self.next, return_pc)

    def data(self) -> bytes:
        return struct.pack(f"<{WORDS}Q", *self.words)


@st.composite
def stacks(draw: st.DrawFn) -> tuple[CgoCallback | None, bytes]:
    """A callback's distances, and a stack, which begins with a frame."""
    made = Made(draw(st.none() | callbacks))
    callback = made._callback
    few = draw(st.lists(st.tuples(st.sampled_from([2, 3, 8, 40, 300]), pc), min_size=1, max_size=8))
    for number in draw(st.binary(max_size=2 * MAX_DEPTH)):
        made.push(*few[number % len(few)])
    made.frame(made.next, 0, 0x41_0005)
    wrong = st.tuples(st.integers(0, 300), st.sampled_from([0, 0, 1]), garbage)
    for number, word, value in draw(st.lists(wrong, max_size=2)):
        made.words[made.frames[number % len(made.frames)] + word] = value
    for number in draw(st.lists(st.integers(0, 300), max_size=1)):
        made.words[made.frames[number % len(made.frames)]] |= 4  # frames lie at multiples of 8
    return callback, made.data()


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("fp"), PROGRAM, MACROS))


def target_of(callback: CgoCallback | None) -> Any:  # noqa: ANN401 - a record of numpy
    target: Any = np.zeros(1, TARGET)
    target["sched_bp_offset"] = G_SCHED_PC + 8
    if callback:
        for name in CgoCallback.__slots__:
            target["callback"][name] = getattr(callback, name)
    return target


def walked(
    data: bytes, pc: int, bp: int, callback: CgoCallback | None = None, most: int = MOST
) -> tuple[tuple[int, ...], bool]:
    """The addresses from `pc` on; and whether these are all, or as many as the C keeps."""
    walker = StackWalker(PiecesMemory([(LO, data)]), callback, 0, most=most)
    walk = walker.in_memory(LO + 8 * WORDS, pc, LO, bp)
    return walk.pcs, walk.is_whole or len(walk.pcs) == most


@given(made=stacks(), first_pc=plain_pc, is_inlined=st.booleans())
def test_both_walks_find_the_same_return_addresses(
    made: tuple[CgoCallback | None, bytes], first_pc: int, is_inlined: bool, native: Native
) -> None:
    callback, data = made
    pcs, is_whole = walked(data, first_pc, LO, callback, MOST + (not is_inlined))
    bp, frame = (0, (LO, first_pc)) if is_inlined else (LO, struct.unpack_from("<QQ", data))
    pcs = pcs if is_inlined else pcs[1:]
    # In a target without callbacks, to the C, a return address of 0 would be that of one.
    assume(callback or 0 not in pcs)

    start: Any = np.zeros(1, START)
    start["bounds"]["lo"], start["bounds"]["hi"], start["bp"] = LO, LO + len(data), bp
    start["frame"]["bp"], start["frame"]["return_pc"] = frame
    found, whole = np.zeros(MACROS["MAX_DEPTH"], np.uint64), np.zeros(1, np.uint64)
    native.set_memory([(LO, data)])
    depth = native.call("walk", target_of(callback), start, found, whole)
    assert tuple(found[:depth].tolist()) == pcs
    assert depth == MOST or bool(whole[0]) == is_whole


@given(made=stacks(), first_pc=plain_pc, deeper_bytes=st.sampled_from([0, 256, 1792, 3840]))
def test_a_walk_without_bounds_finds_the_same_return_addresses(
    made: tuple[CgoCallback | None, bytes], first_pc: int, deeper_bytes: int, native: Native
) -> None:
    """It asks for the bounds of the stack once it leads further than what was read at first."""
    callback, data = made
    pcs, is_whole = walked(data, first_pc, LO, callback)
    assume(callback or 0 not in pcs)

    found, loss = np.zeros(MACROS["MAX_DEPTH"], np.uint64), np.zeros(1, np.int64)
    native.set_memory([(LO, data), (G, struct.pack("<QQ", LO, LO + len(data)))])
    site = site_of(first_pc, deeper_bytes)
    depth = native.call("walk_here", target_of(callback), G, LO, site, found, loss)
    assert tuple(found[:depth].tolist()) == pcs
    assert depth == MOST or bool(loss[0] < 0) == is_whole


def site_of(return_pc: int, deeper_bytes: int = 0) -> Any:  # noqa: ANN401 - a record of numpy
    site: Any = np.zeros(1, SITE)
    site["return_pc"], site["deeper_bytes"] = return_pc, deeper_bytes
    return site


def test_the_next_walk_reads_as_deep_as_the_last_one_went(native: Native) -> None:
    made = Made(None)
    for _ in range(20):
        made.push(8, 0x41_0001)
    made.frame(made.next, 0, 0x41_0005)
    site, found, loss = site_of(PARK_PC), np.zeros(MACROS["MAX_DEPTH"], np.uint64), np.zeros(1)
    pieces = [(LO, made.data()), (G, struct.pack("<QQ", LO, LO + 8 * WORDS))]
    native.set_memory(pieces)
    depths = [
        (native.call("walk_here", target_of(None), G, LO, site, found, loss), int(deeper))
        for _ in range(4)
        for deeper in site["deeper_bytes"].copy()
    ]
    assert depths == [(22, 0), (22, 256), (22, 768), (22, 1792)]
    native.set_memory(pieces[:1])  # the bounds are not asked for any more
    assert native.call("walk_here", target_of(None), G, LO, site, found, loss) == 22


def test_a_stack_that_ends_within_the_first_piece_is_read_by_its_bounds(native: Native) -> None:
    data = struct.pack("<6Q", LO + 32, 0x41_0001, 0, 0, 0, 0x41_0005)
    found, loss = np.zeros(MACROS["MAX_DEPTH"], np.uint64), np.zeros(1, np.int64)
    native.set_memory([(LO, data), (G, struct.pack("<QQ", LO, LO + len(data)))])
    depth = native.call("walk_here", target_of(None), G, LO, site_of(PARK_PC), found, loss)
    assert found[:depth].tolist() == [PARK_PC, 0x41_0001, 0x41_0005]
    native.set_memory([(LO, data)])
    depth = native.call("walk_here", target_of(None), G, LO, site_of(PARK_PC), found, loss)
    assert found[:depth].tolist() == [PARK_PC]
    assert loss[0] >= 0


@given(
    saved_pc=st.sampled_from([PARK_PC, 0x41_0000]),
    bp=st.one_of(garbage, st.just(LO)),
    words=st.lists(st.one_of(garbage, st.just(PARK_PC)), min_size=8, max_size=8),
)
def test_both_walks_find_the_same_frame_of_the_operation(
    saved_pc: int, bp: int, words: list[int], native: Native
) -> None:
    data = struct.pack(f"<{WORDS}Q", *words, *[FILLER] * (WORDS - len(words)))
    first_bp = data[bp - LO : bp - LO + 8] if LO <= bp < LO + 8 * WORDS else b""
    assume(int.from_bytes(first_bp, "little") == 0 or int.from_bytes(first_bp, "little") > bp)
    pcs, _ = walked(data, saved_pc, bp, most=3)
    expected = park_at(pcs, {PARK_PC}) if len(pcs) > 1 else None
    record = bytearray(G_SCHED_PC + 16)
    struct.pack_into("<QQ", record, 0, LO, LO + 8 * WORDS)
    struct.pack_into("<QQ", record, G_SCHED_PC, saved_pc, bp)
    native.set_memory([(LO, data), (G, bytes(record))])
    start: Any = np.zeros(1, START)
    found = None
    if native.call("find_start", target_of(None), G, PARK_PC, start):
        assert start["frame"]["return_pc"][0] == PARK_PC
        found = {0: 0, bp: 1}.get(int(start["bp"][0]), 2)
    assert found == expected
