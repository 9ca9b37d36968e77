"""x86-64 machine code as a list of instructions with their successors, decoded by capstone."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import capstone
from capstone import x86_const

from symbolizer.errors import GoTableError

_MAX_FUNCTION_BYTES = 1 << 16
_ADDRESS_MASK = (1 << 64) - 1

# Opcodes that the kernel's uprobes emulate instead of single-stepping them out of line
# (arch/x86/kernel/uprobes.c, branch_setup_xol_ops and push_setup_xol_ops; Linux 4.17 on).
_JCC_SHORT = range(0x70, 0x80)
_JCC_NEAR = range(0x80, 0x90)
_PUSH = range(0x50, 0x58)
_NOP = 0x90
_CALL_REL32 = 0xE8
_JMP_REL32 = 0xE9
_JMP_REL8 = 0xEB


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its address, where control goes next, how a uprobe treats it.

    `target` is the address that a direct jump or call goes to, else None. `falls_through` says
    whether control can reach the next instruction (true for calls). `refers_to` is the address
    that a `lea` relative to RIP computes, else None. `saves` is the register and the distance
    from RSP in bytes of a `mov` that puts a whole register on the stack, else None. `adds_to` is
    the register and the displacement of the memory that an `xadd` changes, else None. `emulated`
    instructions cost a uprobe about 0.2 µs instead of about 2.5; a bit less if they are `is_cheap`.
    """

    address: int
    size: int
    target: int | None
    is_jump: bool
    is_call: bool
    falls_through: bool
    refers_to: int | None
    saves: tuple[str, int] | None
    adds_to: tuple[str, int] | None
    emulated: bool
    is_cheap: bool
    written: frozenset[str]

    @property
    def end(self) -> int:
        """Address of the byte behind the instruction."""
        return self.address + self.size


def is_emulated(code: bytes) -> bool:
    """Whether the kernel emulates the instruction with these bytes under a uprobe."""
    opcode = code[0]
    if opcode == 0x0F:
        return len(code) == 6 and code[1] in _JCC_NEAR
    if opcode == 0x41:
        return len(code) == 2 and code[1] in _PUSH
    return (
        opcode in _JCC_SHORT
        or opcode in _PUSH
        or opcode in (_NOP, _CALL_REL32, _JMP_REL32, _JMP_REL8)
    )


def is_cheap(code: bytes) -> bool:
    """Whether the kernel emulates it without a write to the stack: a jump or a nop."""
    opcode = code[1] if code[0] == 0x41 else code[0]
    return is_emulated(code) and opcode != _CALL_REL32 and opcode not in _PUSH


class BareInstruction(NamedTuple):
    """What is known of an instruction without its operands, which take 25 times as long to decode.

    `target` is where a direct jump goes, else None.
    """

    address: int
    mnemonic: str
    operands: str
    is_jump: bool
    target: int | None
    is_cheap: bool


def bare_instructions(code: bytes, address: int) -> Iterator[BareInstruction]:
    """Decode `code`, which is at `address`, up to the first byte that is not an instruction."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    for at, size, mnemonic, operands in decoder.disasm_lite(code, address):
        is_jump = mnemonic.startswith("j")
        target = int(operands, 16) if is_jump and operands.startswith("0x") else None
        own = code[at - address : at - address + size]
        yield BareInstruction(at, mnemonic, operands, is_jump, target, is_cheap(own))


def detailed_decoder() -> capstone.Cs:
    """Return capstone's decoder of 64-bit code, with operands."""
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    return decoder


def decode(code: bytes, address: int) -> tuple[Instruction, ...]:
    """Decode `code`, which is at `address`, from its first byte to its last.

    Stops at the first byte that is not an instruction. Raises GoTableError for code longer than
    64 KiB: the runtime's functions are far shorter, so a table must be wrong.
    """
    if len(code) > _MAX_FUNCTION_BYTES:
        raise GoTableError(
            f"the function at {address:#x} claims {len(code)} bytes of code: its table is corrupt"
        )
    return tuple(_instruction(raw) for raw in detailed_decoder().disasm(code, address))


def _instruction(raw: capstone.CsInsn) -> Instruction:
    is_call = raw.group(x86_const.X86_GRP_CALL)
    is_jump = raw.group(x86_const.X86_GRP_JUMP)
    target = None
    if (is_call or is_jump) and raw.operands[0].type == x86_const.X86_OP_IMM:
        target = raw.operands[0].imm & _ADDRESS_MASK
    ends = raw.group(x86_const.X86_GRP_RET) or raw.id in (
        x86_const.X86_INS_JMP,
        x86_const.X86_INS_UD2,
        x86_const.X86_INS_INT3,
    )
    return Instruction(
        address=raw.address,
        size=raw.size,
        target=target,
        is_jump=is_jump,
        is_call=is_call,
        falls_through=not ends,
        refers_to=_lea_target(raw),
        saves=_saved(raw),
        adds_to=_added_to(raw),
        emulated=is_emulated(bytes(raw.bytes)),
        is_cheap=is_cheap(bytes(raw.bytes)),
        written=_written(raw),
    )


def _lea_target(raw: capstone.CsInsn) -> int | None:
    if raw.id != x86_const.X86_INS_LEA:
        return None
    memory = raw.operands[1].mem
    if memory.base != x86_const.X86_REG_RIP or memory.index != x86_const.X86_REG_INVALID:
        return None
    return int(raw.address + raw.size + memory.disp) & _ADDRESS_MASK


def _saved(raw: capstone.CsInsn) -> tuple[str, int] | None:
    if raw.id != x86_const.X86_INS_MOV:
        return None
    to, value = raw.operands
    if to.type != x86_const.X86_OP_MEM or value.type != x86_const.X86_OP_REG or value.size != 8:
        return None
    if to.mem.base != x86_const.X86_REG_RSP or to.mem.index != x86_const.X86_REG_INVALID:
        return None
    return raw.reg_name(value.reg), int(to.mem.disp)


def _added_to(raw: capstone.CsInsn) -> tuple[str, int] | None:
    if raw.id != x86_const.X86_INS_XADD or raw.operands[0].type != x86_const.X86_OP_MEM:
        return None
    memory = raw.operands[0].mem
    if memory.base == x86_const.X86_REG_INVALID or memory.index != x86_const.X86_REG_INVALID:
        return None
    return raw.reg_name(memory.base), int(memory.disp)


def _written(raw: capstone.CsInsn) -> frozenset[str]:
    """Names of the 64-bit registers that the instruction changes, wholly or in part."""
    _, written = raw.regs_access()
    return frozenset(WIDE_REGISTERS.get(name, name) for name in map(raw.reg_name, written))


WIDE_REGISTERS = {
    **{f"{letter}{end}": f"r{letter}x" for letter in "abcd" for end in "lhx"},
    **{f"e{letter}x": f"r{letter}x" for letter in "abcd"},
    **{f"{start}{name}": f"r{name}" for name in ("si", "di", "bp", "sp") for start in ("e", "")},
    **{f"{name}l": f"r{name}" for name in ("si", "di", "bp", "sp")},
    **{f"r{number}{end}": f"r{number}" for number in range(8, 16) for end in "dwb"},
}


def successors(function: Iterable[Instruction]) -> dict[int, tuple[int, ...]]:
    """Control flow inside one function: address of an instruction → addresses it may lead to.

    Calls lead to the instruction behind them; jumps out of the function and indirect jumps
    lead nowhere.
    """
    instructions = {instruction.address: instruction for instruction in function}
    flow: dict[int, tuple[int, ...]] = {}
    for address, decoded in instructions.items():
        leads = [decoded.end] if decoded.falls_through else []
        if decoded.is_jump and decoded.target is not None:
            leads.append(decoded.target)
        flow[address] = tuple(to for to in leads if to in instructions)
    return flow


def on_every_path(flow: dict[int, tuple[int, ...]], start: int, to: int) -> set[int]:
    """Return the addresses on every path from `start` to `to`, with both; none without a path.

    One walk along a shortest path: an address on it is on every path unless one before it leads,
    directly or by a detour, to one behind it.
    """
    path = _shortest_path(flow, start, to)
    place = {address: index for index, address in enumerate(path)}
    passed, seen, furthest = set(path[:1]), set[int](), 0
    for index, address in enumerate(path[:-1]):
        pending = [address]
        while pending:
            for following in flow[pending.pop()]:
                if following in place:
                    furthest = max(furthest, place[following])
                elif following not in seen:
                    seen.add(following)
                    pending.append(following)
        if furthest == index + 1:
            passed.add(path[furthest])
    return passed


def _shortest_path(flow: dict[int, tuple[int, ...]], start: int, to: int) -> list[int]:
    origins = {start: start}
    layer = [start] if start in flow else []
    while layer and to not in origins:
        following = []
        for address in layer:
            for successor in flow[address]:
                if successor not in origins:
                    origins[successor] = address
                    following.append(successor)
        layer = following
    if to not in origins:
        return []
    path = [to]
    while path[-1] != start:
        path.append(origins[path[-1]])
    return path[::-1]


def reachable(
    flow: dict[int, tuple[int, ...]], start: Iterable[int], without: int = -1
) -> set[int]:
    """Return the addresses that control reaches from `start` (included) around `without`."""
    seen = set(start) - {without}
    pending = list(seen)
    while pending:
        for to in flow[pending.pop()]:
            if to not in seen and to != without:
                seen.add(to)
                pending.append(to)
    return seen
