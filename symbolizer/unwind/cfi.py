"""Call frame instructions (CFI): programs that give a frame's caller for each byte of code.

DWARF 5, section 6.4, defines them; the x86-64 ABI numbers the registers.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from symbolizer.dwarf.forms import DwarfError, sleb, take, uleb
from symbolizer.unwind.rules import RuleKind, RuleRange, UnwindRule

_RBP, _RSP, RETURN_ADDRESS = 6, 7, 16
_WORD_BYTES = 8
_MAX_OFFSET_BYTES = (1 << 31) - 1
_FOLLOWED = (_RBP, _RSP, RETURN_ADDRESS)
_MAX_REMEMBERED = 64
_ADDRESS_MASK = (1 << 64) - 1

_BREG_RBP, _DEREF = 0x76, 0x06
_SIGNAL_CFA = bytes([0x77, 0xA0, 0x01, _DEREF])
"""The word at rsp+160: the rsp of the interrupted code, in the struct ucontext at rsp."""
_PLT_CFA = bytes([0x77, 8, 0x80, 0, 0x3F, 0x1A]), bytes([0x2A, 0x33, 0x24, 0x22])
"""rsp + 8 + ((rip & 15 >= N) << 3), with DW_OP_litN between: so linkers describe a PLT, whose
entries of 16 bytes each push a word before their last instruction."""
_LIT0, _LIT31 = 0x30, 0x4F
_PLT_ENTRY_BYTES = 16
_AT_BP = bytes([_BREG_RBP, 0])

PE_OMIT: Final = 0xFF
_PE_PCREL, _PE_FORMAT = 0x10, 0x0F
_POINTERS = {0x00: "<Q", 0x02: "<H", 0x03: "<I", 0x04: "<Q", 0x0A: "<h", 0x0B: "<i", 0x0C: "<q"}


def pointer(data: bytes, position: int, encoding: int, vaddr: int) -> tuple[int, int]:
    """Return an address, encoded as .eh_frame does (DW_EH_PE_*), and the offset behind it.

    `vaddr` is the address of data[0]. Raises DwarfError, also for encodings that need more than
    the file.
    """
    kind = encoding & _PE_FORMAT
    if encoding & ~_PE_FORMAT not in (0, _PE_PCREL):
        raise DwarfError(f"an address has the unknown encoding {encoding:#x}")
    if kind in _POINTERS:
        form = _POINTERS[kind]
        end = position + struct.calcsize(form)
        value = int(struct.unpack(form, take(data, position, end - position))[0])
    elif kind in (0x01, 0x09):
        value, end = uleb(data, position) if kind == 0x01 else sleb(data, position)
    else:
        raise DwarfError(f"an address has the unknown encoding {encoding:#x}")
    return (value + vaddr + position if encoding & _PE_PCREL else value) & _ADDRESS_MASK, end


class _Place(Enum):
    """Where a register of the caller is, if not in memory."""

    SAME = auto()
    UNDEFINED = auto()
    ELSEWHERE = auto()


_Saved = int | bytes | _Place
"""Offset in bytes from the CFA, an expression for the address, or neither."""


@dataclass(slots=True)
class State:
    """The state at one address. The CFA is a register plus an offset, or an expression."""

    register: int = -1
    offset: int = 0
    expression: bytes = b""
    saved: dict[int, _Saved] = field(default_factory=dict)

    def copy(self) -> "State":
        """Return an independent copy."""
        return replace(self, saved=dict(self.saved))


@dataclass(frozen=True, slots=True)
class Machine:
    """Parameters that the programs of one CIE share."""

    code_align: int
    data_align: int
    encoding: int
    is_signal: bool


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions for the code in [start, end).

    `data` begins at `vaddr`, the program at `position` in it.
    """

    data: bytes
    vaddr: int
    position: int
    start: int = 0
    end: int = 0


def initial_state(machine: Machine, program: Program) -> State:
    """Run a CIE's instructions; return the state at a function's entry. Raises DwarfError."""
    *_, (_, _, state) = _run(machine, program, State())
    return state


def rule_ranges(
    machine: Machine, initial: State, program: Program, vaddr: int
) -> tuple[RuleRange, ...]:
    """Return the rules for the code of `program`, ascending.

    In a PLT each entry counts as a function: only rules of the one around `vaddr` are returned.
    Raises DwarfError.
    """
    ranges: list[RuleRange] = []
    for start, end, state in _run(machine, program, initial):
        if start < min(end, program.end):
            for rule_range in _split(start, min(end, program.end), _rules(machine, state), vaddr):
                _append(ranges, rule_range)
        if end >= program.end:
            break
    return tuple(ranges)


def _append(ranges: list[RuleRange], new: RuleRange) -> None:
    """Add a range, or extend the last one if it has the same rule."""
    if ranges and ranges[-1].end == new.start and ranges[-1].rule == new.rule:
        ranges[-1] = RuleRange(ranges[-1].start, new.end, new.rule)
    else:
        ranges.append(new)


@dataclass(frozen=True, slots=True)
class _Plt:
    """The rules in a PLT entry: before, and from its byte `pushed_at` on."""

    before: UnwindRule
    after: UnwindRule
    pushed_at: int


def _split(start: int, end: int, rules: UnwindRule | _Plt, vaddr: int) -> Iterator[RuleRange]:
    if isinstance(rules, UnwindRule):
        yield RuleRange(start, end, rules)
    else:
        entry = vaddr - vaddr % _PLT_ENTRY_BYTES
        start, end = max(start, entry), min(end, entry + _PLT_ENTRY_BYTES)
        middle = min(max(start, entry + rules.pushed_at), end)
        if start < middle:
            yield RuleRange(start, middle, rules.before)
        if middle < end:
            yield RuleRange(middle, end, rules.after)


_NONE = UnwindRule(RuleKind.NONE)


def _rules(machine: Machine, state: State) -> UnwindRule | _Plt:
    """The state as a rule; NONE if no rule can express it."""
    address = state.saved.get(RETURN_ADDRESS)
    if address is _Place.UNDEFINED:
        return UnwindRule(RuleKind.END)
    if machine.is_signal and state.register < 0 and state.expression == _SIGNAL_CFA:
        return UnwindRule(RuleKind.SIGNAL)
    # By default, the caller's stack pointer is the CFA.
    if address != -_WORD_BYTES or _RSP in state.saved:
        return _NONE
    if state.register == _RSP:
        return _by_register(machine, state, RuleKind.SP, state.offset)
    if state.register == _RBP:
        return _by_register(machine, state, RuleKind.BP, state.offset)
    return _by_expression(machine, state) if state.register < 0 else _NONE


def _by_expression(machine: Machine, state: State) -> UnwindRule | _Plt:
    code = state.expression
    before, after = _PLT_CFA
    if (
        len(code) == len(before) + 1 + len(after)
        and (code.startswith(before) and code.endswith(after))
        and _LIT0 <= code[len(before)] <= _LIT31
    ):
        low, high = (_by_register(machine, state, RuleKind.SP, offset) for offset in (8, 16))
        return _Plt(low, high, code[len(before)] - _LIT0)
    if code[:1] == bytes([_BREG_RBP]):
        offset, end = sleb(code, 1)
        # GCC realigns a stack so; it always pushes rbp right before it sets it.
        if code[end:] == bytes([_DEREF]) and state.saved.get(_RBP) == _AT_BP:
            return _checked(UnwindRule(RuleKind.BP_POINTS, offset, None, machine.is_signal))
    return _NONE


def _by_register(machine: Machine, state: State, kind: RuleKind, offset: int) -> UnwindRule:
    bp = state.saved.get(_RBP)
    if bp in (None, _Place.SAME, _Place.UNDEFINED):  # an undefined one is not used
        return _checked(UnwindRule(kind, offset, None, machine.is_signal))
    if bp == _AT_BP and kind is RuleKind.SP:
        # Where GCC realigned a stack, its rules lack that rbp is restored before the return.
        return _checked(UnwindRule(kind, offset, None, machine.is_signal))
    if isinstance(bp, int):
        return _checked(UnwindRule(kind, offset, bp, machine.is_signal))
    return _NONE


def _checked(rule: UnwindRule) -> UnwindRule:
    """Return the rule, or NONE if no frame can have its numbers."""
    is_sound = (
        abs(rule.cfa_offset) <= _MAX_OFFSET_BYTES
        # The return address is never below the stack pointer.
        and (rule.kind is not RuleKind.SP or rule.cfa_offset >= _WORD_BYTES)
        and (rule.bp_offset is None or 0 < abs(rule.bp_offset) <= _MAX_OFFSET_BYTES)
    )
    return rule if is_sound else _NONE


# The operands of each opcode: u, s: LEB128; b: a block; p: an address; a digit: that many bytes.
_OPERANDS: Final = {
    **{0x00: "", 0x01: "p", 0x02: "1", 0x03: "2", 0x04: "4", 0x05: "uu", 0x06: "u", 0x07: "u"},
    **{0x08: "u", 0x09: "uu", 0x0A: "", 0x0B: "", 0x0C: "uu", 0x0D: "u", 0x0E: "u", 0x0F: "b"},
    **{0x10: "ub", 0x11: "us", 0x12: "us", 0x13: "s", 0x14: "uu", 0x15: "us", 0x16: "ub"},
    **{0x1D: "8", 0x2D: "", 0x2E: "u", 0x2F: "uu"},
}
_ADVANCE_LOC, _OFFSET = 0x40, 0x80
_SET_LOC, _REMEMBER, _RESTORE_STATE = 0x01, 0x0A, 0x0B
_ADVANCES = (_SET_LOC, 0x02, 0x03, 0x04, 0x1D, _ADVANCE_LOC)


def _instructions(machine: Machine, program: Program) -> Iterator[tuple[int, int, int | bytes]]:
    """Yield (opcode, first operand, second or block) of each instruction."""
    data, position = program.data, program.position
    while position < len(data):
        opcode, position = data[position], position + 1
        if opcode >= _ADVANCE_LOC:
            operands: list[int | bytes] = [opcode & 0x3F]
            opcode &= 0xC0
            kinds = "u" if opcode == _OFFSET else ""
        elif opcode in _OPERANDS:
            operands = []
            kinds = _OPERANDS[opcode]
        else:
            raise DwarfError(f"there is no call frame instruction {opcode:#x}")
        for kind in kinds:
            operand, position = _operand(kind, data, position, machine.encoding, program.vaddr)
            operands.append(operand)
        operands += 0, 0
        first, second = operands[:2]
        if isinstance(first, bytes):
            first, second = 0, first
        yield opcode, first, second


def _operand(
    kind: str, data: bytes, position: int, encoding: int, vaddr: int
) -> tuple[int | bytes, int]:
    match kind:
        case "u":
            return uleb(data, position)
        case "s":
            return sleb(data, position)
        case "b":
            size, position = uleb(data, position)
            return take(data, position, size), position + size
        case "p":
            return pointer(data, position, encoding, vaddr)
        case _:
            size = int(kind)
            return int.from_bytes(take(data, position, size), "little"), position + size


def _run(machine: Machine, program: Program, initial: State) -> Iterator[tuple[int, int, State]]:
    """Yield (start, end, state), ascending; a state may change when the next one is taken."""
    state = initial.copy()
    location = program.start
    remembered: list[State] = []
    for opcode, first, second in _instructions(machine, program):
        if opcode in _ADVANCES:
            new = first if opcode == _SET_LOC else location + first * machine.code_align
            if new < location:
                raise DwarfError("call frame instructions go back to an earlier address")
            yield location, new, state
            location = new
        elif opcode == _REMEMBER:
            if len(remembered) >= _MAX_REMEMBERED:
                raise DwarfError("call frame instructions remember too many states")
            remembered.append(state.copy())
        elif opcode == _RESTORE_STATE:
            if not remembered:
                raise DwarfError(
                    "call frame instructions restore a state that was never remembered"
                )
            state = remembered.pop()
        elif isinstance(second, bytes):
            _set_expression(state, opcode, first, second)
        else:
            _set_cfa(machine, state, opcode, first, second)
            _set_register(machine, state, initial, opcode, first, second)
    yield location, program.end, state


def _set_expression(state: State, opcode: int, register: int, expression: bytes) -> None:
    if opcode == 0x0F:  # def_cfa_expression
        state.register, state.expression = -1, expression
    elif register in _FOLLOWED:
        is_address = opcode == 0x10  # expression; else val_expression
        state.saved[register] = expression if is_address else _Place.ELSEWHERE


def _set_cfa(machine: Machine, state: State, opcode: int, first: int, second: int) -> None:
    match opcode:
        case 0x0C:  # def_cfa
            state.register, state.offset = first, second
        case 0x12:  # def_cfa_sf
            state.register, state.offset = first, second * machine.data_align
        case 0x0D | 0x0E | 0x13 if state.register < 0:
            raise DwarfError("call frame instructions change the register of a CFA that has none")
        case 0x0D:  # def_cfa_register
            state.register = first
        case 0x0E:  # def_cfa_offset
            state.offset = first
        case 0x13:  # def_cfa_offset_sf
            state.offset = first * machine.data_align


def _set_register(
    machine: Machine, state: State, initial: State, opcode: int, register: int, second: int
) -> None:
    if register not in _FOLLOWED:
        return
    match opcode:
        case 0x80 | 0x05 | 0x11:  # offset, offset_extended, offset_extended_sf
            state.saved[register] = second * machine.data_align
        case 0x2F:  # GNU_negative_offset_extended
            state.saved[register] = -second * machine.data_align
        case 0xC0 | 0x06 if register in initial.saved:  # restore, restore_extended
            state.saved[register] = initial.saved[register]
        case 0xC0 | 0x06:
            state.saved.pop(register, None)
        case 0x07:  # undefined
            state.saved[register] = _Place.UNDEFINED
        case 0x08:  # same_value
            state.saved[register] = _Place.SAME
        case 0x09 | 0x14 | 0x15:  # register, val_offset, val_offset_sf
            state.saved[register] = _Place.ELSEWHERE
