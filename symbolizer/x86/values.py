"""What registers hold at an instruction, derived from registers and stack at an earlier one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import capstone
from capstone import x86_const

from symbolizer.x86.disasm import WIDE_REGISTERS

if TYPE_CHECKING:
    from capstone import CsInsn
    from capstone.x86 import X86Op

_MOST_STEPS: Final = 64  # of one path
_MOST_PATHS: Final = 64
_WORD_BYTES: Final = 8
_STACK: Final = "rsp"


@dataclass(frozen=True, slots=True)
class Source:
    """A value: `offset`, plus a 64-bit register unless that is ""; what is there if it `reads`.

    Eight bytes are read.
    """

    register: str
    offset: int
    reads: bool = False


@dataclass(slots=True)
class _State:
    """What is known at an instruction; a value is None if it is not known."""

    registers: dict[str, Source | None] = field(default_factory=dict)
    stack: dict[int, Source | None] = field(default_factory=dict)
    """Words that were written since, by their distance from RSP."""

    def of(self, register: str) -> Source | None:
        return self.registers.get(register, Source(register, 0))

    def copy(self) -> _State:
        return _State(dict(self.registers), dict(self.stack))


def derived(
    code: Mapping[int, CsInsn],
    flow: Mapping[int, tuple[int, ...]],
    start: int,
    to: int,
    wanted: tuple[str, ...],
) -> tuple[Source, ...] | None:
    """What the `wanted` registers hold at `to`, by what is held at `start`, before it.

    `code` has the function's instructions with operands, `flow` where each leads (x86.disasm,
    successors). None if paths differ, if there are calls between, or other code than moves.
    """
    backwards = _leading_to(flow, to)
    results: set[tuple[Source | None, ...]] = set()
    pending = [(start, _State(), 0)]
    paths = 0
    while pending:
        at, state, steps = pending.pop()
        if at == to:
            results.add(tuple(state.of(name) for name in wanted))
            paths += 1
            continue
        if steps == _MOST_STEPS or paths == _MOST_PATHS or not _run(code[at], state):
            return None
        pending += [
            (successor, state.copy(), steps + 1) for successor in flow[at] if successor in backwards
        ]
    values = results.pop() if len(results) == 1 else (None,)
    known = tuple(source for source in values if source is not None)
    return known if len(known) == len(values) else None


def _leading_to(flow: Mapping[int, tuple[int, ...]], to: int) -> set[int]:
    """All instructions from which control may reach `to`, and `to`."""
    before: dict[int, list[int]] = {}
    for at, leads in flow.items():
        for lead in leads:
            before.setdefault(lead, []).append(at)
    seen, pending = {to}, [to]
    while pending:
        for lead in before.get(pending.pop(), ()):
            if lead not in seen:
                seen.add(lead)
                pending.append(lead)
    return seen


def _run(instruction: CsInsn, state: _State) -> bool:
    """Change the state as the instruction does; False for a call."""
    if instruction.group(x86_const.X86_GRP_CALL):
        return False
    if instruction.id == x86_const.X86_INS_NOP or instruction.bytes == b"\x66\x90":
        return True
    value = None
    if instruction.id in (x86_const.X86_INS_MOV, x86_const.X86_INS_MOVABS, x86_const.X86_INS_LEA):
        value = _value(instruction, state)
        if instruction.operands[0].type == x86_const.X86_OP_MEM:
            _store(instruction, instruction.operands[0], state, value)
            return True
    _, written = instruction.regs_access()
    for register in map(instruction.reg_name, written):
        state.registers[WIDE_REGISTERS.get(register, register)] = value
    for operand in instruction.operands:
        if operand.type == x86_const.X86_OP_MEM and operand.access & capstone.CS_AC_WRITE:
            _store(instruction, operand, state, None)
    return "rsp" not in state.registers


def _value(instruction: CsInsn, state: _State) -> Source | None:
    """What a mov or lea puts into its first operand, if it is 64 bits wide."""
    to, of = instruction.operands
    if of.type == x86_const.X86_OP_IMM:  # also of 32 bits: the other half becomes 0
        return Source("", int(of.imm)) if to.size >= _WORD_BYTES // 2 else None
    if to.size != _WORD_BYTES or of.size != _WORD_BYTES:
        return None
    if of.type == x86_const.X86_OP_REG:
        return state.of(instruction.reg_name(of.reg))
    if instruction.id == x86_const.X86_INS_LEA:
        return _address(instruction, of, state)
    at = _address(instruction, of, state)
    if at is not None and at.register == _STACK and at.offset in state.stack:
        return state.stack[at.offset]
    return at and Source(at.register, at.offset, reads=True)


def _address(instruction: CsInsn, operand: X86Op, state: _State) -> Source | None:
    """The address of an operand in memory, if it is a known register and a distance."""
    memory = operand.mem
    if memory.index != x86_const.X86_REG_INVALID or memory.segment != x86_const.X86_REG_INVALID:
        return None
    base = state.of(instruction.reg_name(memory.base)) if memory.base else None
    if base is None or base.reads or base.register in ("", "rip"):
        return None
    return Source(base.register, base.offset + int(memory.disp))


def _store(instruction: CsInsn, operand: X86Op, state: _State, value: Source | None) -> None:
    """Write a value to memory. Go's code writes to its frame by way of RSP alone."""
    at = _address(instruction, operand, state)
    if at is not None and at.register == _STACK:
        first = at.offset - at.offset % _WORD_BYTES
        state.stack[first] = value if at.offset == first and operand.size == _WORD_BYTES else None
