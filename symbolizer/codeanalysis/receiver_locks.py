"""Which fields of its receiver a method locks: followed through its code from the entry.

Go passes the receiver of a method in RAX (cmd/compile/abi-internal.md, Go 1.17 and later). We
follow RAX and what is computed of it by adding constants, through registers and the frame, on all
ways to the calls that lock and unlock, which have the lock's address in RAX, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import capstone
from capstone import x86_const

from symbolizer.errors import ElfError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.disasm import detailed_decoder

_METHOD: Final = re.compile(r"\.\(\*[^()]+\)\.[^.]+$")
# By kind of lock: the functions that get its address, with the offset in the lock that they get.
_READER_SEM: Final = 12  # sync/rwmutex.go: what an inlined RLock waits for
_CALLED: Final[Mapping[str, Mapping[str, int]]] = {
    "sync.Mutex": {
        f"{package}.(*Mutex).{name}": 0
        for package in ("sync", "internal/sync")
        for name in ("Lock", "Unlock", "lockSlow", "unlockSlow")
    },
    "sync.RWMutex": {
        **{
            f"sync.(*RWMutex).{name}": 0
            for name in ("Lock", "Unlock", "RLock", "RUnlock", "rUnlockSlow")
        },
        "sync.runtime_SemacquireRWMutexR": _READER_SEM,
        "sync.runtime_SemacquireMutex": _READER_SEM,  # in Go 1.19
    },
}
_MAX_FUNCTION_BYTES: Final = 1 << 14
_MAX_BYTES: Final = 1 << 18  # of code that we decode for one program: a few seconds
_MAX_STEPS: Final = 1 << 17
_WORD: Final = 8
_CALL_BYTES: Final = 5
_CALL: Final = re.compile(rb"\xe8(?=(.{4}))", re.DOTALL)
_RAX, _RSP, _RBP = x86_const.X86_REG_RAX, x86_const.X86_REG_RSP, x86_const.X86_REG_RBP
_KEPT: Final = frozenset({_RSP, _RBP})  # by a call


def _whole_registers() -> dict[int, int]:
    """The 64-bit register of each register that is a part of it."""
    names = {
        getattr(x86_const, name): name.removeprefix("X86_REG_")
        for name in dir(x86_const)
        if name.startswith("X86_REG_")
    }
    numbers = {name: number for number, name in names.items()}
    registers = {}
    for letters in ("A", "B", "C", "D"):
        for part in (f"R{letters}X", f"E{letters}X", f"{letters}X", f"{letters}L", f"{letters}H"):
            registers[numbers[part]] = numbers[f"R{letters}X"]
    for letters in ("SI", "DI", "BP", "SP"):
        for part in (f"R{letters}", f"E{letters}", letters, f"{letters}L"):
            registers[numbers[part]] = numbers[f"R{letters}"]
    for number in range(8, 16):
        for part in ("", "D", "W", "B"):
            registers[numbers[f"R{number}{part}"]] = numbers[f"R{number}"]
    return registers


_WHOLE: Final = _whole_registers()


@dataclass(slots=True)
class _State:
    """What is known before an instruction: distances from the receiver, in bytes.

    `slots` are by their distance from RSP at the entry; `sp` is that of RSP.
    """

    sp: int = 0
    registers: dict[int, int] = field(default_factory=dict)
    slots: dict[int, int] = field(default_factory=dict)

    def copy(self) -> _State:
        return _State(self.sp, dict(self.registers), dict(self.slots))

    def keep_common(self, other: _State) -> bool:
        """Forget what the other state contradicts; return whether that is anything."""
        if self.sp != other.sp:
            other = _State(self.sp)
        changed = False
        for mine, theirs in ((self.registers, other.registers), (self.slots, other.slots)):
            for key in [key for key, value in mine.items() if theirs.get(key) != value]:
                del mine[key]
                changed = True
        return changed

    def overwrite(self, start: int, size: int) -> None:
        for at in [at for at in self.slots if start - _WORD < at < start + size]:
            del self.slots[at]


class ReceiverLocks:
    """Finds the locks of receivers. Decodes each method once."""

    def __init__(self, binary: GoBinary, max_bytes: int = _MAX_BYTES) -> None:
        """`max_bytes` of code are decoded. Raises GoTableError if the table of names is corrupt."""
        self._binary = binary
        names = {name for called in _CALLED.values() for name in called}
        functions = binary.functions_by_name(names)
        self._names = {function.entry: name for name in names for function in functions[name]}
        self._known: dict[int, dict[str, set[int | None]]] = {}
        self._left = max_bytes

    def offsets(self, function: str, pc: int, kind: str) -> frozenset[int]:
        """The offsets in its receiver of the locks of a kind that a method locks or unlocks.

        `pc` is an address in its code, as linked. Empty where `function` is no method of a pointer,
        is inlined there, or has a lock of that kind that may not be its receiver's. Raises
        GoTableError.
        """
        method = self._binary.function_at(pc)
        if method is None or method.name != function or not _METHOD.search(function):
            return frozenset()
        if method.entry not in self._known:
            self._known[method.entry] = self._read(method)
        offsets = self._known[method.entry].get(kind, set())
        return frozenset(offset for offset in offsets if offset is not None and None not in offsets)

    def _read(self, function: Function) -> dict[str, set[int | None]]:
        size = function.end - function.entry
        if size > min(_MAX_FUNCTION_BYTES, self._left):
            return {}
        try:
            text = self._binary.elf.read(function.entry, size)
        except ElfError:
            return {}
        if not self._calls_any(text, function.entry):
            return {}
        self._left -= size
        code = {
            instruction.address: instruction
            for instruction in detailed_decoder().disasm(text, function.entry)
        }
        states = _followed(code, function.entry)
        offsets: dict[str, set[int | None]] = {}
        for address, state in states.items():
            pair = code[address]
            name = self._names.get(_target(pair), "")
            for kind, called in _CALLED.items():
                if name in called:
                    at = state.registers.get(_RAX)
                    offset = None if at is None else at - called[name]
                    offsets.setdefault(kind, set()).add(offset)
        return offsets

    def _calls_any(self, text: bytes, entry: int) -> bool:
        for match in _CALL.finditer(text):
            displacement = int.from_bytes(match[1], "little", signed=True)
            if entry + match.start() + _CALL_BYTES + displacement in self._names:
                return True
        return False


def _followed(code: Mapping[int, capstone.CsInsn], entry: int) -> dict[int, _State]:
    """The state before each instruction that can be reached; {} if that takes too long."""
    # The address of such a slot is known elsewhere, so that others may change it.
    taken = {
        instruction.operands[1].mem.disp
        for instruction in code.values()
        if instruction.id == x86_const.X86_INS_LEA and instruction.operands[1].mem.base == _RSP
    }
    states = {entry: _State(registers={_RAX: 0})}
    pending = [entry]
    for _ in range(_MAX_STEPS):
        if not pending:
            return states
        address = pending.pop()
        pair = code.get(address)
        if pair is None:
            del states[address]
            continue
        after = states[address].copy()
        _step(pair, after, taken)
        for to in _successors(pair):
            if to not in code:
                continue
            if to not in states:
                states[to] = after.copy()
                pending.append(to)
            elif states[to].keep_common(after):
                pending.append(to)
    return {}


def _step(instruction: capstone.CsInsn, state: _State, taken: set[int]) -> None:
    """Change the state as the instruction does."""
    if instruction.group(x86_const.X86_GRP_CALL):
        state.registers = {r: v for r, v in state.registers.items() if r in _KEPT}
        return
    operands = instruction.operands
    value = _result(instruction, state)
    stored = None
    for operand in operands:
        if operand.type != x86_const.X86_OP_MEM or not operand.access & capstone.CS_AC_WRITE:
            continue
        if operand.mem.base == _RSP and operand.mem.index == x86_const.X86_REG_INVALID:
            at = state.sp + operand.mem.disp
            state.overwrite(at, operand.size)
            is_whole = instruction.id == x86_const.X86_INS_MOV and operand.size == _WORD
            if is_whole and operand.mem.disp not in taken:
                stored = at
        elif operand.mem.base in (_RSP, _RBP):
            state.slots.clear()
    if stored is not None and operands[1].type == x86_const.X86_OP_REG:
        known = state.registers.get(operands[1].reg)
        if known is not None:
            state.slots[stored] = known
    state_sp = _stack_pointer(instruction, state)
    for register in instruction.regs_access()[1]:
        state.registers.pop(_WHOLE.get(register, register), None)
    if value is not None:
        state.registers[operands[0].reg] = value
    if state_sp is None:
        state.registers.clear()
        state.slots.clear()
    else:
        state.sp = state_sp


def _result(instruction: capstone.CsInsn, state: _State) -> int | None:
    """The distance from the receiver that the instruction leaves in its first operand."""
    operands = instruction.operands
    if len(operands) != 2 or operands[0].type != x86_const.X86_OP_REG or operands[0].size != _WORD:
        return None
    source = operands[1]
    if instruction.id == x86_const.X86_INS_MOV and source.type == x86_const.X86_OP_REG:
        return state.registers.get(source.reg)
    if source.type == x86_const.X86_OP_MEM and source.mem.index == x86_const.X86_REG_INVALID:
        if instruction.id == x86_const.X86_INS_MOV and source.mem.base == _RSP:
            return state.slots.get(state.sp + source.mem.disp)
        base = state.registers.get(source.mem.base)
        if instruction.id == x86_const.X86_INS_LEA and base is not None:
            return int(base + source.mem.disp)
    base = state.registers.get(operands[0].reg)
    if source.type == x86_const.X86_OP_IMM and base is not None:
        if instruction.id == x86_const.X86_INS_ADD:
            return int(base + source.imm)
        if instruction.id == x86_const.X86_INS_SUB:
            return int(base - source.imm)
    return None


def _stack_pointer(instruction: capstone.CsInsn, state: _State) -> int | None:
    """The distance of RSP from that at the entry behind the instruction; None if not known."""
    if instruction.id == x86_const.X86_INS_PUSH:
        state.overwrite(state.sp - _WORD, _WORD)
        return state.sp - _WORD
    if instruction.id == x86_const.X86_INS_POP:
        return state.sp + _WORD
    if _RSP not in {_WHOLE.get(register, register) for register in instruction.regs_access()[1]}:
        return state.sp
    operands = instruction.operands
    if len(operands) == 2 and operands[1].type == x86_const.X86_OP_IMM:
        if instruction.id == x86_const.X86_INS_ADD:
            return int(state.sp + operands[1].imm)
        if instruction.id == x86_const.X86_INS_SUB:
            return int(state.sp - operands[1].imm)
    return None


def _successors(instruction: capstone.CsInsn) -> Iterator[int]:
    ends = instruction.group(x86_const.X86_GRP_RET) or instruction.id in (
        x86_const.X86_INS_JMP,
        x86_const.X86_INS_UD2,
        x86_const.X86_INS_INT3,
    )
    if not ends:
        yield instruction.address + instruction.size
    if instruction.group(x86_const.X86_GRP_JUMP):
        yield _target(instruction)


def _target(instruction: capstone.CsInsn) -> int:
    is_transfer = instruction.group(x86_const.X86_GRP_CALL) or instruction.group(
        x86_const.X86_GRP_JUMP
    )
    if not is_transfer or instruction.operands[0].type != x86_const.X86_OP_IMM:
        return 0
    return int(instruction.operands[0].imm)
