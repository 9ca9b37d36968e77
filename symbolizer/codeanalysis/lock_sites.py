"""Where functions lock and unlock sync's locks, and which locks they may hold at a call.

Go's compiler inlines the fast paths of Mutex.Lock, Mutex.Unlock, RWMutex.RLock and RUnlock, which
change a word of the lock by one atomic instruction and then, perhaps, call the slow path
(sync/mutex.go, internal/sync/mutex.go, sync/rwmutex.go, Go 1.19 to 1.27). Elsewhere functions call
Lock and the others as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import capstone
from capstone import x86_const

from symbolizer.errors import ElfError, SymbolizerError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.disasm import detailed_decoder

_READER_COUNT: Final = 16  # offset of RWMutex.readerCount, which RLock and RUnlock change
_LOCKS: Final = {
    "sync.(*Mutex).Lock": False,
    "internal/sync.(*Mutex).Lock": False,
    "sync.(*RWMutex).Lock": False,
    "sync.(*RWMutex).RLock": True,
}
_UNLOCKS: Final = (
    "sync.(*Mutex).Unlock",
    "internal/sync.(*Mutex).Unlock",
    "sync.(*RWMutex).Unlock",
    "sync.(*RWMutex).RUnlock",
)
# Slow paths, with the offset in the lock of the word that the fast path changes.
_SLOW_LOCKS: Final = {
    "sync.(*Mutex).lockSlow": 0,
    "internal/sync.(*Mutex).lockSlow": 0,
    "sync.runtime_SemacquireRWMutexR": _READER_COUNT,
    "sync.runtime_SemacquireMutex": _READER_COUNT,  # RLock of Go 1.19
}
_SLOW_UNLOCKS: Final = {
    "sync.(*Mutex).unlockSlow": 0,
    "internal/sync.(*Mutex).unlockSlow": 0,
    "sync.(*RWMutex).rUnlockSlow": _READER_COUNT,
}
_OWN: Final = ("sync.(*", "internal/sync.(*")  # methods of the locks themselves
_ARGUMENT: Final = x86_const.X86_REG_RAX
_CALL_BYTES: Final = 5
_MAX_FUNCTION_BYTES: Final = 1 << 15
_MAX_BYTES: Final = 1 << 19  # of code that we decode for one program: a few seconds
_MAX_BACK: Final = 24  # instructions from a call back to what prepares it


@dataclass(frozen=True, slots=True)
class LockPlace:
    """Where a function finds a lock that it locks.

    With `variable` 0, at `offset` bytes from a pointer that the function has. Else the linked
    address `variable` is that of the lock (`offset` is None), or of a package variable that points
    to where the lock is `offset` bytes further. `is_read`: it locks it for reading. `is_sure`: on
    each way to the call, not only on some.
    """

    variable: int
    offset: int | None
    is_read: bool = False
    is_sure: bool = field(default=False, compare=False)


@dataclass(frozen=True, slots=True)
class _Where:
    """The lock of an instruction, as LockPlace has it; both None if it is not known."""

    variable: int | None
    offset: int | None

    def may_be(self, other: _Where) -> bool:
        """Whether both may be one lock: the compiler keeps pointers to structs and to fields."""
        if self == other or _UNKNOWN in (self, other):
            return True
        if self.variable and other.variable:
            return False
        offsets = self.offset, other.offset
        return None in offsets or 0 in offsets or self.offset == other.offset


_UNKNOWN: Final = _Where(None, None)


@dataclass(slots=True)
class _Code:
    """A function that locks: how control flows, where locks are taken and released."""

    entry: int
    flow: dict[int, tuple[int, ...]]
    locked: list[tuple[int, _Where, bool]]  # the address at which it is locked, and for reading
    unlocked: dict[int, _Where]
    taking: dict[int, tuple[int, _Where]]  # by the call: the instruction that takes it at best

    @property
    def is_clear(self) -> bool:
        """Whether it is known where each jump leads."""
        return not any(0 in leads for leads in self.flow.values())


class LockSites:
    """Finds the locks that functions of a program may hold. Decodes each function once."""

    def __init__(self, binary: GoBinary) -> None:
        """Raises GoTableError if the table of names is corrupt."""
        self._binary = binary
        names = (*_LOCKS, *_UNLOCKS, *_SLOW_LOCKS, *_SLOW_UNLOCKS)
        functions = binary.functions_by_name(names)
        self._names = {function.entry: name for name in names for function in functions[name]}
        self._left = _MAX_BYTES
        self._codes: dict[int, _Code | None] = {}
        self._held: dict[int, tuple[LockPlace, ...]] = {}
        self._released: dict[int, tuple[LockPlace, ...] | None] = {}

    def held(self, return_pc: int) -> tuple[LockPlace, ...]:
        """The locks that a function may hold while it makes the call that returns to `return_pc`.

        Those that it locks, if control can come from there to the call without an unlock. The
        address is as linked. () where nothing is known.
        """
        places = self._held.get(return_pc)
        if places is None:
            try:
                places = self._find(return_pc)
            except SymbolizerError:
                places = ()
            self._held[return_pc] = places
        return places

    def released(self, return_pc: int) -> tuple[LockPlace, ...] | None:
        """The locks of callers that a function may have unlocked before it called.

        The call returns to `return_pc`. A lock is a caller's if control can come to its unlock
        without a lock before. None if any may be. Methods of the locks themselves are left out.
        """
        if return_pc not in self._released:
            try:
                self._released[return_pc] = self._find_released(return_pc)
            except SymbolizerError:
                self._released[return_pc] = None
        return self._released[return_pc]

    def _find(self, return_pc: int) -> tuple[LockPlace, ...]:
        code = self._code(return_pc)
        if code is None:
            return ()
        call = _call(code, return_pc)
        places: dict[LockPlace, None] = {}
        for start, where, is_read in code.locked:
            if where == _UNKNOWN or call not in _reachable(code, start, where):
                continue
            is_sure = code.is_clear and not _may_lack(code, call, where)
            places[LockPlace(where.variable or 0, where.offset, is_read, is_sure)] = None
        return tuple(places)

    def _find_released(self, return_pc: int) -> tuple[LockPlace, ...] | None:
        code = self._code(return_pc)
        if code is None:
            return ()
        call = _call(code, return_pc)
        places: dict[LockPlace, None] = {}
        for address, where in code.unlocked.items():
            taken = {at for at, instruction in code.taking.values() if instruction == where}
            is_own = address not in _after(code, (code.entry,), taken)
            if code.is_clear and (is_own or call not in _after(code, code.flow[address])):
                continue
            if where == _UNKNOWN:
                return None
            places[LockPlace(where.variable or 0, where.offset)] = None
        return tuple(places)

    def argument_bytes(self, return_pc: int) -> int | None:
        """The room for the arguments of the function with a call; None if it is not known."""
        with suppress(SymbolizerError):  # then it is not known
            function = self._binary.function_at(return_pc - 1)
            if function is not None and function.argument_bytes >= 0:
                return function.argument_bytes
        return None

    def _code(self, return_pc: int) -> _Code | None:
        """The code of the function that makes a call, if it locks or unlocks."""
        function = self._binary.function_at(return_pc - 1)
        if function is None or function.name.startswith(_OWN):
            return None
        if function.entry not in self._codes:
            self._codes[function.entry] = self._read(function)
        return self._codes[function.entry]

    def _read(self, function: Function) -> _Code | None:
        size = function.end - function.entry
        if size > min(_MAX_FUNCTION_BYTES, self._left):
            return None
        try:
            text = self._binary.elf.read(function.entry, size)
        except ElfError:
            return None
        if not self._calls_any(text, function.entry):
            return None
        self._left -= size
        code = list(detailed_decoder().disasm(text, function.entry))
        uses = _Code(function.entry, _flow(code), [], {}, {})
        for index, instruction in enumerate(code):
            name = (
                self._names.get(_target(instruction))
                if instruction.group(x86_const.X86_GRP_CALL)
                else None
            )
            if name in _LOCKS:
                where = _argument(code, index, _ARGUMENT)
                uses.locked.append((instruction.address + instruction.size, where, _LOCKS[name]))
                uses.taking[instruction.address] = instruction.address, where
            elif name in _UNLOCKS:
                uses.unlocked[instruction.address] = _argument(code, index, _ARGUMENT)
            elif name in _SLOW_LOCKS:
                address, where = _changed(code, index, _SLOW_LOCKS[name])
                is_read = _SLOW_LOCKS[name] == _READER_COUNT
                uses.locked.append((instruction.address + instruction.size, where, is_read))
                uses.taking[instruction.address] = address, where
            elif name in _SLOW_UNLOCKS:
                address, where = _changed(code, index, _SLOW_UNLOCKS[name])
                uses.unlocked[address] = where
        return uses if uses.locked or uses.unlocked else None

    def _calls_any(self, text: bytes, entry: int) -> bool:
        offset = text.find(b"\xe8")
        while offset >= 0:
            displacement = int.from_bytes(
                text[offset + 1 : offset + _CALL_BYTES], "little", signed=True
            )
            if entry + offset + _CALL_BYTES + displacement in self._names:
                return True
            offset = text.find(b"\xe8", offset + 1)
        return False


def _call(code: _Code, return_pc: int) -> int:
    """The address of the call that returns there; 0 if there is none."""
    return next((at for at in range(return_pc - 2, return_pc - 9, -1) if at in code.flow), 0)


def _reachable(code: _Code, start: int, where: _Where) -> set[int]:
    """The instructions that can follow `start` before that lock is released."""
    ends = {at for at, released in code.unlocked.items() if released.may_be(where)}
    return _after(code, (start,), ends)


def _may_lack(code: _Code, call: int, where: _Where) -> bool:
    """Whether control can come to the call with that lock not taken, or released again.

    The call that takes a lock is on a way on which that lock is not taken yet.
    """
    taken = {at for by, (at, taken) in code.taking.items() if taken == where and by != call}
    without = [code.entry]
    for address, released in code.unlocked.items():
        if released.may_be(where):
            without += code.flow[address]
    return call in _after(code, without, taken)


def _after(code: _Code, starts: Iterable[int], ends: AbstractSet[int] = frozenset()) -> set[int]:
    """The instructions to which control can come from some, to the first of `ends`."""
    pending = list(starts)
    seen = set(pending)
    while pending:
        address = pending.pop()
        if address in ends:
            continue
        for to in code.flow.get(address, ()):
            if to not in seen:
                seen.add(to)
                pending.append(to)
    return seen


def _flow(code: Iterable[capstone.CsInsn]) -> dict[int, tuple[int, ...]]:
    flow = {}
    for instruction in code:
        leads = []
        if not (
            instruction.group(x86_const.X86_GRP_RET)
            or instruction.id
            in (x86_const.X86_INS_JMP, x86_const.X86_INS_UD2, x86_const.X86_INS_INT3)
        ):
            leads.append(instruction.address + instruction.size)
        if instruction.group(x86_const.X86_GRP_JUMP):
            leads.append(_target(instruction))
        flow[instruction.address] = tuple(leads)
    return flow


def _target(instruction: capstone.CsInsn) -> int:
    operands = instruction.operands
    is_direct = len(operands) == 1 and operands[0].type == x86_const.X86_OP_IMM
    return int(operands[0].imm) if is_direct else 0


def _changed(code: list[capstone.CsInsn], at: int, offset: int) -> tuple[int, _Where]:
    """The atomic instruction before a slow path's call, and the lock in which it changes a word."""
    for index in range(at - 1, max(-1, at - _MAX_BACK), -1):
        instruction = code[index]
        if instruction.id not in (x86_const.X86_INS_CMPXCHG, x86_const.X86_INS_XADD):
            continue
        if instruction.operands[0].type != x86_const.X86_OP_MEM:
            break
        memory = instruction.operands[0].mem
        if memory.index != x86_const.X86_REG_INVALID:
            return instruction.address, _UNKNOWN
        if memory.base == x86_const.X86_REG_RIP:
            return instruction.address, _Where(_next(instruction) + memory.disp - offset, None)
        base = _argument(code, index, memory.base)
        return instruction.address, _further(base, memory.disp - offset)
    return code[at].address, _UNKNOWN


def _argument(
    code: list[capstone.CsInsn], at: int, register: int, first: int | None = None
) -> _Where:
    """What a register has at an instruction: a variable's address, or one beside a pointer.

    Examines the instructions from number `first` on, or at that many before.
    """
    first = max(0, at - _MAX_BACK) if first is None else first
    added = 0
    for index in range(at - 1, first - 1, -1):
        instruction = code[index]
        if instruction.group(x86_const.X86_GRP_CALL):
            return _UNKNOWN
        if not _writes(instruction, register):
            continue
        source = instruction.operands[1] if len(instruction.operands) == 2 else None
        if (
            instruction.id == x86_const.X86_INS_ADD
            and source
            and source.type == x86_const.X86_OP_IMM
        ):
            added += source.imm
        elif instruction.id == x86_const.X86_INS_LEA and source:
            return _computed(code, index, source.mem, added, first)
        elif (
            instruction.id == x86_const.X86_INS_MOV
            and source
            and source.type == x86_const.X86_OP_REG
        ):
            return _further(_argument(code, index, source.reg, first), added)
        elif (
            instruction.id == x86_const.X86_INS_MOV
            and source
            and source.type == x86_const.X86_OP_MEM
        ):
            is_variable = source.mem.base == x86_const.X86_REG_RIP
            return _Where(_next(instruction) + source.mem.disp if is_variable else 0, added)
        else:
            return _UNKNOWN
    return _Where(0, added)


def _computed(
    code: list[capstone.CsInsn], at: int, memory: capstone.x86.X86OpMem, added: int, first: int
) -> _Where:
    """The address that a `lea` computes."""
    if memory.index != x86_const.X86_REG_INVALID or memory.base == x86_const.X86_REG_RSP:
        return _UNKNOWN
    if memory.base == x86_const.X86_REG_RIP:
        return _Where(_next(code[at]) + memory.disp + added, None)
    return _further(_argument(code, at, memory.base, first), memory.disp + added)


def _next(instruction: capstone.CsInsn) -> int:
    return int(instruction.address + instruction.size)


def _further(where: _Where, distance: int) -> _Where:
    if where == _UNKNOWN:
        return _Where(0, distance)
    if where.offset is None:
        assert where.variable is not None
        return _Where(where.variable + distance, None)
    return _Where(where.variable, where.offset + distance)


def _writes(instruction: capstone.CsInsn, register: int) -> bool:
    return register in instruction.regs_access()[1]
