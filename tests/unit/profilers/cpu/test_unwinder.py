"""The walk outside of the kernel, on stacks made by hand."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest

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
    unwind,
)
from symbolizer.errors import ElfError
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule

STACK = 0x7F00_0000_0000
OTHER = 0xC000_0000_00
RETURN = 0x40_1000


class Table:
    """Rules by hand; counts how often it was asked."""

    def __init__(self, *ranges: RuleRange) -> None:
        self._ranges = ranges
        self.asked: list[int] = []

    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        self.asked.append(vaddr)
        return tuple(each for each in self._ranges if each.start <= vaddr < each.end)


class Broken(Table):
    def ranges(self, vaddr: int) -> tuple[RuleRange, ...]:
        raise ElfError("broken")


class OneTable(CodeLookup):
    def __init__(self, table: Table, bias: int = 0, code: range = range(0)) -> None:
        self._table, self._bias, self._code = table, bias, code

    def code_at(self, address: int) -> Code | None:
        return Code(self._table, self._bias)

    def is_code(self, address: int) -> bool:
        return address in self._code


def book(*ranges: RuleRange, bias: int = 0) -> ProcessRules:
    return ProcessRules(OneTable(Table(*ranges), bias), RuleNumbers(100))


def words(start: int, *values: int) -> tuple[int, bytes]:
    return start, struct.pack(f"<{len(values)}Q", *values)


def function(number: int, rule: UnwindRule) -> RuleRange:
    """The rule for the function number so and so, 256 bytes of code each."""
    return RuleRange(RETURN + 256 * number, RETURN + 256 * (number + 1), rule)


def at(number: int, offset: int = 16) -> int:
    """A return address in that function."""
    return RETURN + 256 * number + offset


FRAMELESS = UnwindRule(RuleKind.SP, 8)
END = UnwindRule(RuleKind.END)


def walked(
    rules: ProcessRules,
    pieces: list[tuple[int, bytes]],
    *,
    pc: int = at(0),
    sp: int = STACK,
    bp: int = 0,
    go: GoState | None = None,
    pcs: Sequence[int] = (),
) -> tuple[list[int], Ending]:
    return unwind(Cursor(pc, sp, bp, True), go or GoState(), StackPieces(pieces), rules, pcs)


def test_a_leaf_without_a_frame_has_its_caller() -> None:
    rules = book(
        function(0, FRAMELESS),
        function(1, UnwindRule(RuleKind.SP, 32, -16)),
        function(2, END),
    )
    pieces = [words(STACK, at(1), 7, 8, 9, at(2))]
    assert walked(rules, pieces) == ([at(0) + 1, at(1), at(2)], Ending.WHOLE)


def test_saved_frame_pointers_are_restored_for_later_frames() -> None:
    rules = book(
        function(0, UnwindRule(RuleKind.SP, 24, -16)),
        function(1, UnwindRule(RuleKind.BP, 16, -16)),
        function(2, UnwindRule(RuleKind.BP_POINTS, -8)),
        function(3, UnwindRule(RuleKind.BP, 16, -16)),
        function(4, END),
    )
    pieces = [
        words(STACK, 0, STACK + 64, at(1)),
        # The frame of 1, the pointer of 2 and below it the word it finds its caller by, of 3.
        words(STACK + 64, STACK + 96, at(2)),
        words(STACK + 88, STACK + 128, STACK + 160, 0, 0, at(3)),
        words(STACK + 160, 0, at(4)),
    ]
    assert walked(rules, pieces) == ([at(0) + 1, at(1), at(2), at(3), at(4)], Ending.WHOLE)


def test_a_return_address_belongs_to_the_call_before_it() -> None:
    rules = book(function(0, FRAMELESS), function(1, UnwindRule(RuleKind.SP, 16)), function(2, END))
    # The call is the last instruction of function 1: it does not return.
    pieces = [words(STACK, at(2, 0), 0, at(2, 8))]
    assert walked(rules, pieces) == ([at(0) + 1, at(2, 0), at(2, 8)], Ending.WHOLE)


def test_an_interrupted_function_keeps_its_exact_pc() -> None:
    rules = book(
        function(0, UnwindRule(RuleKind.SP, 8, exact_caller=True)),
        function(1, FRAMELESS),
        function(2, END),
    )
    pieces = [words(STACK, at(1, 0), at(2))]
    assert walked(rules, pieces) == ([at(0) + 1, at(1, 0) + 1, at(2)], Ending.WHOLE)


def test_a_signal_frame_restores_the_saved_registers() -> None:
    rules = book(function(0, UnwindRule(RuleKind.SIGNAL)), function(1, FRAMELESS), function(2, END))
    context = [0] * 22
    context[15], context[20], context[21] = 99, OTHER, at(1, 0)
    pieces = [words(STACK, *context), words(OTHER, at(2))]
    assert walked(rules, pieces) == ([at(0) + 1, at(1, 0) + 1, at(2)], Ending.WHOLE)


def on_system_stack() -> GoState:
    return GoState(curg=1, lo=OTHER, hi=OTHER + 4096, sched_sp=OTHER + 64, sched_pc=at(3))


def test_systemstack_is_crossed_to_the_goroutine() -> None:
    rules = book(
        function(0, FRAMELESS),
        function(1, UnwindRule(RuleKind.SYSTEM_STACK, 24, -16)),
        function(2, END),
    )
    pieces = [words(STACK, at(1)), words(OTHER + 64, 0, 0, at(2))]
    assert walked(rules, pieces, go=on_system_stack()) == (
        [at(0) + 1, at(1), at(2)],
        Ending.WHOLE,
    )
    assert walked(rules, pieces) == ([at(0) + 1, at(1)], Ending.WHOLE)


def test_morestack_is_left_out_of_goroutine_stacks() -> None:
    rules = book(
        function(0, FRAMELESS),
        function(1, UnwindRule(RuleKind.MORE_STACK)),
        function(3, FRAMELESS),
        function(2, END),
    )
    pieces = [words(STACK, at(1)), words(OTHER + 64, at(2))]
    assert walked(rules, pieces, go=on_system_stack()) == (
        [at(0) + 1, at(3), at(2)],
        Ending.WHOLE,
    )


def test_switched_stacks_continue_at_the_saved_registers() -> None:
    rules = book(
        function(0, FRAMELESS),
        function(1, UnwindRule(RuleKind.SWITCH)),
        function(2, FRAMELESS),
        function(3, END),
    )
    pieces = [words(STACK, at(1)), words(OTHER, at(3))]
    for go in (
        GoState(curg=1, vdso_sp=OTHER, vdso_pc=at(2)),
        GoState(curg=1, syscall_sp=OTHER, syscall_pc=at(2)),
    ):
        assert walked(rules, pieces, go=go) == ([at(0) + 1, at(1), at(2), at(3)], Ending.WHOLE)
    assert walked(rules, pieces, go=GoState(curg=1)) == ([at(0) + 1, at(1)], Ending.WHOLE)


def test_a_return_address_in_a_register_is_that_of_interrupted_code_only() -> None:
    in_r12 = UnwindRule(RuleKind.IN_R12)
    rules = book(function(0, in_r12), function(1, FRAMELESS), function(2, END), function(3, in_r12))
    go = GoState()

    def found(pc: int, r12: int, *stack: int) -> tuple[list[int], Ending]:
        start = Cursor(pc, STACK, 0, True, r12)
        return unwind(start, go, StackPieces([words(STACK, *stack)]), rules, [])

    assert found(at(0), at(1), at(2)) == ([at(0) + 1, at(1), at(2)], Ending.WHOLE)
    assert found(at(0), at(3), at(2)) == ([at(0) + 1, at(3)], Ending.NO_RULE)
    assert found(at(1), at(2), at(3)) == ([at(1) + 1, at(3)], Ending.NO_RULE)
    assert found(at(0), 0, at(2)) == ([at(0) + 1], Ending.NO_RULE)


def test_go_frames_below_c_are_found_without_rules_for_c() -> None:
    rules = book(function(0, UnwindRule(RuleKind.NONE)), function(2, FRAMELESS), function(3, END))
    go = GoState(curg=1, syscall_sp=OTHER, syscall_pc=at(2))
    pieces = [words(OTHER, at(3))]
    assert walked(rules, pieces, go=go) == ([at(0) + 1, at(2), at(3)], Ending.WHOLE)
    assert walked(rules, pieces) == ([at(0) + 1], Ending.NO_RULE)


@pytest.mark.parametrize(
    ("rule", "ending"),
    [
        (UnwindRule(RuleKind.SP, 8000), Ending.UNREADABLE),
        (UnwindRule(RuleKind.SP, 16, 8000), Ending.UNREADABLE),
        (UnwindRule(RuleKind.BP_POINTS, 8000), Ending.UNREADABLE),
        (UnwindRule(RuleKind.SIGNAL), Ending.UNREADABLE),
        (UnwindRule(RuleKind.SP, 0), Ending.ASTRAY),
        (UnwindRule(RuleKind.BP, -1 << 31), Ending.ASTRAY),
        (UnwindRule(RuleKind.NONE), Ending.NO_RULE),
    ],
)
def test_a_corrupt_stack_is_cut_with_the_reason(rule: UnwindRule, ending: Ending) -> None:
    rules = book(function(0, rule))
    assert walked(rules, [words(STACK, 1, 2)], bp=STACK) == ([at(0) + 1], ending)


def test_a_deep_stack_is_cut() -> None:
    rules = book(function(0, FRAMELESS))
    pieces = [words(STACK, *[at(0)] * 300)]
    pcs, ending = walked(rules, pieces)
    assert (len(pcs), ending) == (MAX_DEPTH, Ending.TOO_DEEP)
    pcs, ending = walked(rules, pieces, pcs=[1] * 100)
    assert (len(pcs), ending) == (MAX_DEPTH, Ending.TOO_DEEP)


def test_code_in_no_table_with_a_frame_pointer_of_zero_is_the_outermost() -> None:
    """As _start of the dynamic linker is (System V ABI: %rbp is 0 in the deepest frame)."""
    rules = book(function(0, FRAMELESS), function(1, UnwindRule(RuleKind.GUESS, 16, -16)))
    pieces = [words(STACK, at(1), 0, 0)]
    assert walked(rules, pieces) == ([at(0) + 1, at(1)], Ending.WHOLE)
    assert walked(rules, pieces, bp=1) == ([at(0) + 1, at(1)], Ending.ASTRAY)


def test_a_return_address_of_zero_ends_the_stack() -> None:
    assert walked(book(function(0, FRAMELESS)), [words(STACK, 0)]) == ([at(0) + 1], Ending.WHOLE)


def numbers_in(line: bytes) -> list[int]:
    """The numbers of the rules in a line, one for each byte of code."""
    return list(struct.unpack("<64H", line))


def test_rules_are_found_once_and_wait_for_the_kernel() -> None:
    table = Table(RuleRange(0x1000, 0x1030, FRAMELESS), RuleRange(0x1030, 0x1100, END))
    rules = ProcessRules(OneTable(table, bias=0x5000), RuleNumbers(100))
    assert [rules.rule_at(address) for address in (0x6000, 0x602F, 0x6010)] == [FRAMELESS] * 3
    assert table.asked == [0x1000]
    assert rules.new_lines == {0x6000 >> 6}
    assert numbers_in(rules.lines[0x6000 >> 6]) == [1] * 48 + [0] * 16


def test_only_nearby_rules_of_a_large_function_are_learnt() -> None:
    table = Table(RuleRange(0, 1 << 30, FRAMELESS))
    rules = ProcessRules(OneTable(table), RuleNumbers(100))
    assert rules.rule_at(1 << 20) == FRAMELESS
    assert len(rules.lines) == 64
    assert all(set(numbers_in(line)) == {1} for line in rules.lines.values())
    assert len({id(line) for line in rules.lines.values()}) == 1  # of alike ones there is one


def test_only_code_without_a_table_is_walked_by_frame_pointers() -> None:
    rules = ProcessRules(OneTable(Broken(), code=range(0x1000, 0x2000)), RuleNumbers(100))
    assert rules.rule_at(0x1234) == UnwindRule(RuleKind.GUESS, 16, -16)
    assert rules.rule_at(0x2234) == UnwindRule(RuleKind.NONE)
    assert rules.rule_at(1 << 63) == UnwindRule(RuleKind.NONE)
    assert set(rules.lines) == {0x1234 >> 6}  # what is not mapped may be the next moment


@pytest.mark.parametrize(
    ("address", "is_unmapped"), [(0x1234, False), (0x2234, True), (1 << 63, False)]
)
def test_unmapped_code_addresses_are_noted(address: int, is_unmapped: bool) -> None:
    rules = ProcessRules(OneTable(Broken(), code=range(0x1000, 0x2000)), RuleNumbers(100))
    rules.rule_at(address)
    assert rules.has_met_unmapped == is_unmapped


def test_rules_beyond_the_limit_are_reported() -> None:
    ranges = [RuleRange(64 * i, 64 * (i + 1), UnwindRule(RuleKind.SP, 8 * i)) for i in range(9)]
    rules = ProcessRules(OneTable(Table(*ranges)), RuleNumbers(4))
    assert [rules.rule_at(64 * i).cfa_offset for i in range(3)] == [0, 8, 16]
    assert not rules.is_full
    assert rules.rule_at(64 * 5).kind is RuleKind.NONE
    assert rules.is_full


def test_breakpoints_in_functions_are_probes_and_between_them_padding() -> None:
    padding = UnwindRule(RuleKind.NONE)
    rules = book(function(1, FRAMELESS), function(2, padding), function(3, FRAMELESS))
    assert interrupted_at(at(1, 17), rules) == at(1, 16)
    assert interrupted_at(at(3, 0), rules) == at(3, 0)
    without_table = ProcessRules(OneTable(Table(), code=range(0x1000, 0x2000)), RuleNumbers(100))
    assert interrupted_at(0x1234, without_table) == 0x1234


def test_stack_copies_may_have_holes() -> None:
    copies = StackPieces([])
    copies.add(STACK, bytes(range(1, 9)) * 512, 0b0101, 1024)
    copies.add(STACK + (1 << 20), bytes(1024), 1, 1024)
    assert [(start, len(data)) for start, data in copies.pieces] == [
        (STACK + 1024, 1024),
        (STACK + 3072, 1024),
    ]
    copies = StackPieces([])
    copies.add(STACK, bytes(range(1, 9)) * 512, 0b0001, 1024)
    assert copies.word(STACK + 1016) is None
    assert copies.word(STACK + 1024) == 0x0807060504030201
    assert copies.word(STACK + 2044) == 0x0403020108070605  # across two parts
    assert copies.word(STACK + 4092) is None
