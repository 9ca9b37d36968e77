"""The walk by rules in C (bpf/cpu/table_unwind.h) beside the one in Python, on random stacks.

The kernel hands a walk over where it has no rule; so both must agree from wherever it stops.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ebpfprof.kernel import c_facts
from ebpfprof.profilers.cpu import unwinder
from ebpfprof.profilers.cpu.unwinder import (
    MAX_DEPTH,
    Code,
    CodeLookup,
    Cursor,
    Ending,
    GoState,
    ProcessRules,
    RuleNumbers,
    StackPieces,
    interrupted_at,
)
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule
from tests.unit.bpf.native import Native, Piece, build

pytestmark = pytest.mark.machine

T = TypeVar("T")
PROGRAM = """
#include "cpu/cpu.bpf.c"
struct walk {
    struct cursor at;
    struct go_state go;
    struct pcs pcs;
    u64 ending;
};
void put_rule(u64 number, u64 kind, u64 cfa_offset, u64 bp_offset, u64 exact_caller) {
    rules_rows[number] = (struct rule){cfa_offset, bp_offset, kind, exact_caller};
}
void put_line(u64 number, const struct line *line) {
    lines.update(&number, line);
}
void walk(struct walk *walk) {
    walk->ending = unwind(&walk->at, &walk->go, 0, &walk->pcs);
}
/* Where a thread goes on that entered the kernel with these registers; 0: its rules must tell. */
u64 enter(struct pt_regs *registers) {
    static struct work work;
    work.behind_breakpoint = work.at_breakpoint = 0;
    user_registers(registers, 0, &work);
    return work.behind_breakpoint ? 0 : work.at.pc;
}
"""
MACROS = {
    "WITH_KERNEL": 1,
    "WITH_LABELS": 0,
    **{"MAX_TARGETS": 1, "TARGETS": 1},
    "MAX_DEPTH": MAX_DEPTH,
    "MAX_SAMPLES": 4,
    "MAX_LINES": 256,
    "MAX_RULES": 64,
    "RING_PAGES": 1,
    "FS_BASE_OFFSET": 0,
    "MEMORY_OFFSET": 0,
    "SIGNAL_STACK_OFFSET": 0,
    "SIGNAL_STACK_BYTES_OFFSET": 0,
}
REGISTERS = c_facts.struct("headers/include/linux/types.h", "pt_regs")
BREAKPOINT, USER_MODE = (
    c_facts.number("cpu/cpu.bpf.c", name) for name in ("BREAKPOINT", "USER_MODE")
)
WALK = np.dtype(
    [
        *(
            (field, c_facts.struct("cpu/cpu.bpf.c", name, MACROS))
            for field, name in (("at", "cursor"), ("go", "go_state"), ("pcs", "pcs"))
        ),
        ("ending", "<u8"),
    ]
)

CODE, JIT, NOTHING = 0x40_1000, 0x7FAA_0000_0000, 0x7FBB_0000_0000
THREAD, GOROUTINE = 0x7F00_0000_0000, 0xC000_0000_00
FUNCTIONS, FUNCTION_BYTES = 12, 48
STACK_WORDS = 48


class Made(CodeLookup):
    """Functions in a row, each with a rule for its first half and one for the other."""

    def __init__(self, rules: list[UnwindRule]) -> None:
        half = FUNCTION_BYTES // 2
        self._ranges = [
            RuleRange(CODE + half * index, CODE + half * (index + 1), rule)
            for index, rule in enumerate(rules)
        ]

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        """The rules of the function there."""
        index = (vaddr - CODE) // FUNCTION_BYTES * 2
        return tuple(self._ranges[index : index + 2]) if index >= 0 else ()

    def code_at(self, address: int) -> Code | None:
        return Code(self, 0) if JIT > address >= CODE else None

    def is_code(self, address: int) -> bool:
        return CODE <= address < self._ranges[-1].end or JIT <= address < JIT + 4096


@dataclass(frozen=True)
class Case:
    """A thread that was interrupted: its registers, its memory, and the rules of its code."""

    at: Cursor
    go: GoState
    pieces: list[Piece]
    rules: list[UnwindRule]

    def book(self) -> ProcessRules:
        return ProcessRules(Made(self.rules), RuleNumbers(MACROS["MAX_RULES"]))

    def finish(
        self, book: ProcessRules, at: Cursor, go: GoState, pcs: tuple[int, ...] = ()
    ) -> tuple[list[int], Ending]:
        """The walk in Python, from there on."""
        return unwinder.unwind(replace(at), replace(go), StackPieces(self.pieces), book, pcs)


def mostly(usual: st.SearchStrategy[int], *rare: st.SearchStrategy[int]) -> st.SearchStrategy[int]:
    return st.integers(0, 19).flatmap(lambda n: usual if n else st.one_of(*rare))


@st.composite
def many(draw: st.DrawFn, strategy: st.SearchStrategy[T], count: int) -> list[T]:
    """That many of a few that are drawn one by one, which takes longer."""
    few = draw(st.lists(strategy, min_size=1, max_size=12))
    return [few[number % len(few)] for number in draw(st.binary(min_size=count, max_size=count))]


anything = st.integers(0, (1 << 64) - 1)
inside = st.integers(CODE, CODE + FUNCTIONS * FUNCTION_BYTES - 1)
code = mostly(
    inside,
    st.integers(JIT - 1, JIT + 64),
    st.sampled_from([0, NOTHING, CODE + FUNCTIONS * FUNCTION_BYTES]),
)
stack = mostly(
    st.builds(
        lambda base, index: base + 8 * index,
        st.sampled_from([THREAD, GOROUTINE]),
        st.integers(0, STACK_WORDS // 2),
    ),
    st.sampled_from([THREAD - 8, GOROUTINE - 8, THREAD + 8 * STACK_WORDS - 8, THREAD + 1]),
)
word = st.integers(0, 7).flatmap(lambda n: code if n < 6 else stack if n < 7 else anything)
kind = mostly(
    st.sampled_from([RuleKind.SP] * 6 + [RuleKind.BP, RuleKind.BP_POINTS]),
    st.sampled_from([kind for kind in RuleKind if kind is not RuleKind.UNKNOWN]),
).map(RuleKind)
rule = st.builds(
    UnwindRule,
    kind,
    mostly(
        st.integers(1, 4).map(lambda words: 8 * words),
        st.integers(-3, 8),
        st.integers(-(1 << 31), (1 << 31) - 1),
    ),
    st.sampled_from([None, None, None, -8, -16, -24, 8]),
    st.booleans(),
)


def words(start: int, values: list[int]) -> Piece:
    return start, struct.pack(f"<{len(values)}Q", *values)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    def memory(start: int) -> Piece:
        """Words that are mostly return addresses, so that walks go far."""
        return words(start, draw(many(word, STACK_WORDS)))

    is_go = draw(st.booleans())
    go = GoState(
        curg=1,
        lo=GOROUTINE,
        hi=GOROUTINE + 8 * STACK_WORDS,
        sched_sp=draw(stack),
        sched_pc=draw(code),
        vdso_sp=draw(st.one_of(st.just(0), stack)),
        vdso_pc=draw(code),
        syscall_sp=draw(st.one_of(st.just(0), stack)),
        syscall_pc=draw(code),
    )
    return Case(
        Cursor(
            draw(code), draw(stack), draw(mostly(stack, anything)), draw(st.booleans()), draw(code)
        ),
        go if is_go else GoState(),
        [memory(THREAD), memory(GOROUTINE)],
        draw(many(rule, 2 * FUNCTIONS)),
    )


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Native:
    return Native(build(tmp_path_factory.mktemp("cpu"), PROGRAM, MACROS))


def teach(native: Native, book: ProcessRules, lines: set[int]) -> None:
    """Give the C the rules of these lines, as CpuCollector does."""
    for number, each in enumerate(book.numbers.rules):
        numbers = (each.cfa_offset, each.bp_offset or 0, int(each.exact_caller))
        cfa_offset, bp_offset, exact_caller = (value % (1 << 64) for value in numbers)
        native.call("put_rule", number, each.kind, cfa_offset, bp_offset, exact_caller)
    for key in lines:
        native.call("put_line", key, np.frombuffer(book.lines[key], np.uint16))


def walked(native: Native, case: Case) -> tuple[tuple[int, ...], Ending, Cursor, GoState]:
    """The walk in C: its stack, how it ended, and where it stopped."""
    walk: Any = np.zeros(1, WALK)
    fill(walk["at"], case.at)
    fill(walk["go"], case.go)
    native.set_memory(case.pieces)
    native.call("walk", walk)
    done = walk[0]
    at: Any = done["at"].tolist()
    go: Any = done["go"].tolist()
    pcs = done["pcs"]["pcs"][: done["pcs"]["depth"]].tolist()
    return tuple(pcs), Ending(int(done["ending"])), Cursor(*at), GoState(*go)


def fill(record: Any, values: Cursor | GoState) -> None:  # noqa: ANN401 - a record of numpy
    for name in record.dtype.names:
        record[name] = getattr(values, name)


@settings(max_examples=200)
@given(case=cases(), data=st.data())
def test_both_walks_find_the_same_stack_with_any_learnt_rules(
    case: Case, data: st.DataObject, native: Native
) -> None:
    book = case.book()
    pcs, ending = case.finish(book, case.at, case.go)
    known = data.draw(st.sets(st.sampled_from(sorted(book.lines) or [0])))
    native.call("forget_maps")
    teach(native, book, known & book.lines.keys())
    found, how, at, go = walked(native, case)
    if how is Ending.UNLEARNED:
        rest, how = case.finish(book, at, go, found)
        # Each part counts its own turns, and a jump to the goroutine's stack is a turn without an
        # address: what is too deep may be cut later.
        found = tuple(rest[: len(pcs)] if how is Ending.TOO_DEEP else rest)
    assert (list(found), how) == (pcs, ending)


@given(case=cases())
def test_with_all_rules_the_kernel_stops_only_at_missing_ones(case: Case, native: Native) -> None:
    book = case.book()
    pcs, ending = case.finish(book, case.at, case.go)
    native.call("forget_maps")
    teach(native, book, set(book.lines))
    found, how, at, _ = walked(native, case)
    if how is Ending.UNLEARNED:
        assert book.rule_at(at.pc - 1 + at.is_exact).kind is RuleKind.NONE
        assert list(found) == pcs[: len(found)]
    else:
        assert (list(found), how) == (pcs, ending)


@given(
    pc=st.one_of(inside, st.integers(JIT, JIT + 64), st.sampled_from([JIT - 1, NOTHING])),
    before=st.sampled_from([BREAKPOINT, 0x90]),
    case=cases(),
    has_learnt=st.booleans(),
)
def test_both_walks_find_the_pc_behind_a_breakpoint(
    pc: int, before: int, case: Case, has_learnt: bool, native: Native
) -> None:
    book = case.book()
    expected = interrupted_at(pc, book) if before == BREAKPOINT else pc
    native.call("forget_maps")
    teach(native, book, set(book.lines) if has_learnt else set())
    native.set_memory([(pc - 1, bytes([before]))])
    registers: Any = np.zeros(1, REGISTERS)
    registers["ip"], registers["cs"] = pc, USER_MODE
    assert (native.call("enter", registers) or interrupted_at(pc, book)) == expected
