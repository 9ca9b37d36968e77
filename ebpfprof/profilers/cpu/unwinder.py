"""Unwinds copies of stacks outside of the kernel, as bpf/cpu/table_unwind.h does in it.

We compute rules when a walk first needs them. If the kernel meets code without rules, it sends the
sample here; we unwind the rest, and the rules that we used go to the kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, unique
from typing import Final

from ebpfprof.kernel import c_facts
from symbolizer.errors import SymbolizerError
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule, UnwindTable

LINE_SHIFT: Final = c_facts.number("cpu/table_unwind.h", "LINE_SHIFT")
MAX_DEPTH: Final = 128
_LINE_BYTES = 1 << LINE_SHIFT
_MAX_CFA_BYTES = c_facts.number("cpu/table_unwind.h", "MAX_CFA_BYTES")
_WINDOW_BYTES = 2048  # of a large function, on both sides of the address on the stack
_MAX_LINES = 1 << 20  # of one process
_MAX_KEPT = 1 << 14
_NO_RULES = bytes(2 * _LINE_BYTES)
_UCONTEXT_BP, _UCONTEXT_SP, _UCONTEXT_PC = (
    c_facts.number("cpu/table_unwind.h", f"UCONTEXT_{name}") for name in ("BP", "SP", "PC")
)
_ADDRESS_END = 1 << 47

# Unknown code most likely keeps a frame pointer, as JIT compilers do.
_BY_FRAME_POINTER = UnwindRule(RuleKind.GUESS, 16, -16)
_NOWHERE = UnwindRule(RuleKind.NONE)


@unique
class Ending(IntEnum):
    """How a walk ended; the numbers are those of bpf/cpu/table_unwind.h."""

    WHOLE = 0
    UNLEARNED = 1
    TOO_DEEP = 2
    NO_RULE = 3
    UNREADABLE = 4
    ASTRAY = 5


CUT_TEXTS: Final = {
    Ending.UNLEARNED: "its unwind rules were not known yet",
    Ending.TOO_DEEP: f"it is deeper than {MAX_DEPTH} frames",
    Ending.NO_RULE: "no unwind table covers a function",
    Ending.UNREADABLE: "a part of it could not be read",
    Ending.ASTRAY: "the caller is not where the table points",
}
"""Why a stack is incomplete, in words."""


@dataclass(slots=True)
class Cursor:
    """The position of a walk. `is_exact`: `pc` was interrupted, and is no return address."""

    pc: int
    sp: int
    bp: int
    is_exact: bool
    r12: int = 0
    """Of interrupted code at the start of the walk; unknown further out."""


@dataclass(slots=True)
class GoState:
    """What the Go runtime stores about a thread: struct go_state of table_unwind.h."""

    curg: int = 0
    lo: int = 0
    hi: int = 0
    sched_sp: int = 0
    sched_pc: int = 0
    vdso_sp: int = 0
    vdso_pc: int = 0
    syscall_sp: int = 0
    syscall_pc: int = 0
    thread_hi: int = 0

    def is_other_stack(self, sp: int) -> bool:
        """Whether an address is outside of the running goroutine's stack."""
        return self.curg != 0 and not self.lo <= sp < self.hi


@dataclass(frozen=True, slots=True)
class StackPieces:
    """Pieces of a target's stacks: (address, bytes) each."""

    pieces: list[tuple[int, bytes]]

    def add(self, start: int, data: bytes, missing: int, part_bytes: int) -> None:
        """Add a copy from `start` on, in parts; `missing` has a bit for each, the lowest first."""
        parts = len(data) // part_bytes if part_bytes else 0
        low = 0
        for index in range(parts + 1):
            if index == parts or missing >> index & 1:
                piece = data[low * part_bytes : index * part_bytes]
                if piece:
                    self.pieces.append((start + low * part_bytes, piece))
                low = index + 1

    def word(self, address: int) -> int | None:
        """The 8 bytes at an address; None if the copies don't have them."""
        for start, data in self.pieces:
            offset = address - start
            if 0 <= offset <= len(data) - 8:
                return int.from_bytes(data[offset : offset + 8], "little")
        return None


class RuleNumbers:
    """Numbers rules from 1 on, for all processes together."""

    def __init__(self, limit: int) -> None:
        self.rules: list[UnwindRule] = [UnwindRule(RuleKind.UNKNOWN)]
        self._numbers: dict[UnwindRule, int] = {}
        self._limit = limit
        self._lines: dict[bytes, bytes] = {}

    def kept(self, line: bytes) -> bytes:
        """The same line for all that are alike: most processes of a program have the same ones."""
        if len(self._lines) >= _MAX_KEPT:
            self._lines.clear()
        return self._lines.setdefault(line, line)

    def of(self, rule: UnwindRule) -> int:
        """The number of a rule; 0 if there are `limit` rules already."""
        number = self._numbers.get(rule)
        if number is None:
            if len(self.rules) >= self._limit:
                return 0
            number = self._numbers[rule] = len(self.rules)
            self.rules.append(rule)
        return number


@dataclass(frozen=True, slots=True)
class Code:
    """A table with the rules of some code, and the bias to add to its addresses."""

    table: UnwindTable
    bias: int


class CodeLookup:
    """Finds the code at an address of a process: partial_samples.MappedCode for a real one."""

    def code_at(self, address: int) -> Code | None:
        """The table for an address; None for code without one (JIT code, or a file without)."""
        raise NotImplementedError

    def is_code(self, address: int) -> bool:
        """Whether there is code at an address."""
        raise NotImplementedError


@dataclass(slots=True)
class ProcessRules:
    """The known rules of one process.

    `lines` has the numbers of the rules for 64 bytes of code, 16 bits each. `new_lines` are the
    keys of the lines that the kernel lacks. `is_full`: some rules did not fit.
    """

    lookup: CodeLookup
    numbers: RuleNumbers
    lines: dict[int, bytes] = field(default_factory=dict)
    new_lines: set[int] = field(default_factory=set)
    is_full: bool = False
    has_met_unmapped: bool = False
    """Whether a walk met an address without a mapping; the caller resets it."""

    def rule_at(self, address: int) -> UnwindRule:
        """The rule for the code at an address."""
        number = self._number(address)
        if not number:
            self._learn(address)
            number = self._number(address)
        return self.numbers.rules[number] if number else _NOWHERE

    def _number(self, address: int) -> int:
        line = self.lines.get(address >> LINE_SHIFT)
        if line is None:
            return 0
        offset = 2 * (address & (_LINE_BYTES - 1))
        return line[offset] | line[offset + 1] << 8

    def _learn(self, address: int) -> None:
        code = self.lookup.code_at(address) if address < _ADDRESS_END else None
        ranges: tuple[RuleRange, ...] = ()
        bias = 0
        if code is not None:
            bias = code.bias
            try:
                ranges = code.table.ranges(address - bias)
            except SymbolizerError:
                ranges = ()  # a corrupt table has nothing
        low, high = address - _WINDOW_BYTES, address + _WINDOW_BYTES
        for rule_range in ranges:
            start, end = max(rule_range.start + bias, low), min(rule_range.end + bias, high)
            if start < end:
                self._put(start, end, rule_range.rule)
        # Store nothing for unmapped addresses: the target may map a library there.
        if self._number(address) or address >= _ADDRESS_END:
            return
        if self.lookup.is_code(address):
            self._put(address, address + 1, _BY_FRAME_POINTER)
        else:
            self.has_met_unmapped = True

    def _put(self, start: int, end: int, rule: UnwindRule) -> None:
        number = self.numbers.of(rule)
        if not number:
            self.is_full = True
        word = number.to_bytes(2, "little")
        for key in range(start >> LINE_SHIFT, ((end - 1) >> LINE_SHIFT) + 1):
            line = self.lines.get(key)
            if line is None:
                if len(self.lines) >= _MAX_LINES:
                    self.is_full = True
                    return
                line = _NO_RULES
            base = key << LINE_SHIFT
            low, high = max(start - base, 0), min(end - base, _LINE_BYTES)
            line = line[: 2 * low] + word * (high - low) + line[2 * high :]
            self.lines[key] = self.numbers.kept(line)
            self.new_lines.add(key)


def interrupted_at(pc: int, rules: ProcessRules) -> int:
    """Where a thread continues that entered the kernel at `pc`, one byte after a breakpoint.

    At the breakpoint, if that is a probe on an instruction of a function, which has not run yet; at
    `pc`, if the breakpoint is padding before a function.
    """
    kind = rules.rule_at(pc - 1).kind
    return pc if kind in (RuleKind.NONE, RuleKind.GUESS) else pc - 1


def is_push(address: int, rules: ProcessRules) -> bool:
    """Whether there is a push of one byte: behind it, the caller's frame is 8 bytes further."""
    rule, behind = rules.rule_at(address), rules.rule_at(address + 1)
    return (
        rule.kind is RuleKind.SP
        and behind.kind is RuleKind.SP
        and behind.cfa_offset == rule.cfa_offset + 8
    )


def unwind(
    cursor: Cursor, go: GoState, copies: StackPieces, rules: ProcessRules, pcs: Sequence[int]
) -> tuple[list[int], Ending]:
    """Continue a walk from the cursor; `pcs` are the addresses so far, innermost first.

    Returns all addresses and how the walk ended. They are return addresses; for interrupted code,
    its address plus 1, as in Go. The walk changes `cursor` and `go`.
    """
    unwound = list(pcs)
    for _ in range(MAX_DEPTH):
        rule = rules.rule_at(cursor.pc - 1 + cursor.is_exact)
        if rule.kind is RuleKind.MORE_STACK and go.is_other_stack(cursor.sp):
            cursor.pc, cursor.sp, cursor.is_exact = go.sched_pc, go.sched_sp, False
            continue
        if len(unwound) >= MAX_DEPTH:
            break
        unwound.append(cursor.pc + cursor.is_exact)
        match rule.kind:
            case RuleKind.END | RuleKind.MORE_STACK:
                return unwound, Ending.WHOLE
            case RuleKind.SWITCH:
                if not _go_on(cursor, go):
                    return unwound, Ending.WHOLE
                continue
            case RuleKind.NONE:
                ending = Ending.NO_RULE
            case RuleKind.IN_R12:
                ending = _from_r12(cursor)
            case RuleKind.SIGNAL:
                ending = _interrupted(cursor, copies)
            case _:
                ending = _caller(cursor, rule, go, copies)
        if ending is not Ending.WHOLE:
            if not _go_on(cursor, go):
                return unwound, ending
        elif cursor.pc == 0:
            return unwound, Ending.WHOLE
    return unwound, Ending.TOO_DEEP


def _go_on(cursor: Cursor, go: GoState) -> bool:
    """Continue where Go code left its stack, if the runtime stored that. Uses each record once."""
    if go.vdso_sp:
        cursor.pc, cursor.sp, cursor.is_exact = go.vdso_pc, go.vdso_sp, False
        go.vdso_sp = 0
    elif go.syscall_sp:
        cursor.pc, cursor.sp, cursor.is_exact = go.syscall_pc, go.syscall_sp, False
        go.syscall_sp = 0
    else:
        return False
    return True


def _interrupted(cursor: Cursor, copies: StackPieces) -> Ending:
    pc, sp = (copies.word(cursor.sp + offset) for offset in (_UCONTEXT_PC, _UCONTEXT_SP))
    if pc is None or sp is None or not _load_bp(cursor, copies, cursor.sp + _UCONTEXT_BP):
        return Ending.UNREADABLE
    cursor.pc, cursor.sp, cursor.is_exact, cursor.r12 = pc, sp, True, 0
    return Ending.WHOLE


def _from_r12(cursor: Cursor) -> Ending:
    if not cursor.is_exact or not cursor.r12:
        return Ending.NO_RULE
    cursor.pc, cursor.r12, cursor.is_exact = cursor.r12, 0, False
    return Ending.WHOLE


def _caller(cursor: Cursor, rule: UnwindRule, go: GoState, copies: StackPieces) -> Ending:
    sp = cursor.sp
    if rule.kind is RuleKind.SYSTEM_STACK:
        cursor.pc = 0
        if not go.is_other_stack(sp):
            return Ending.WHOLE
        sp = go.sched_sp
    if rule.kind is RuleKind.GUESS and cursor.bp == 0:
        cursor.pc = 0
        return Ending.WHOLE
    by_bp = rule.kind in (RuleKind.BP, RuleKind.BP_POINTS, RuleKind.GUESS)
    cfa = (cursor.bp if by_bp else sp) + rule.cfa_offset
    if rule.kind is RuleKind.BP_POINTS:
        pointed = copies.word(cfa)
        if pointed is None or not _load_bp(cursor, copies, cursor.bp):
            return Ending.UNREADABLE
        cfa = pointed
    if not 0 < cfa - sp <= _MAX_CFA_BYTES:
        return Ending.ASTRAY
    if rule.bp_offset is not None and not _load_bp(cursor, copies, cfa + rule.bp_offset):
        return Ending.UNREADABLE
    pc = copies.word(cfa - 8)
    if pc is None:
        return Ending.UNREADABLE
    cursor.pc, cursor.sp, cursor.is_exact = pc, cfa, rule.exact_caller
    return Ending.WHOLE


def _load_bp(cursor: Cursor, copies: StackPieces, address: int) -> bool:
    """Load the frame pointer; as in the kernel, it is 0 after a failed load."""
    bp = copies.word(address)
    cursor.bp = bp or 0
    return bp is not None
