"""The variables that a function's code names: operands relative to the instruction pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from capstone import x86_const

from symbolizer.errors import ElfError, GoTableError
from symbolizer.x86.disasm import detailed_decoder

if TYPE_CHECKING:
    from symbolizer.elf.file import ElfFile
    from symbolizer.go.binary import Function

_MAX_CODE_BYTES: Final = 8192


class Operand(NamedTuple):
    """A variable that an instruction names, by its linked address.

    `loads` if a mov reads `size` bytes of it into a register; `is_address` if a lea takes its
    address, which has no size.
    """

    address: int
    size: int
    loads: bool
    is_address: bool


def operands(elf: ElfFile, function: Function) -> list[Operand]:
    """All operands relative to RIP in the function's first 8 KiB, in the order of the code.

    Raises GoTableError if the code is not in the file.
    """
    try:
        code = elf.read(function.entry, min(function.end - function.entry, _MAX_CODE_BYTES))
    except ElfError as error:
        raise GoTableError(f"the program's text is not in the file: {error}") from error
    used = []
    for instruction in detailed_decoder().disasm(code, function.entry):
        for number, operand in enumerate(instruction.operands):
            if operand.type != x86_const.X86_OP_MEM or operand.mem.base != x86_const.X86_REG_RIP:
                continue
            is_address = instruction.id == x86_const.X86_INS_LEA
            loads = instruction.id == x86_const.X86_INS_MOV and number == 1
            address = instruction.address + instruction.size + operand.mem.disp
            used.append(Operand(address, 0 if is_address else operand.size, loads, is_address))
    return used


def is_variable(elf: ElfFile, vaddr: int, size: int, alignment: int = 8) -> bool:
    """Whether those bytes are aligned and in writable memory."""
    return vaddr % alignment == 0 and any(
        segment.writable and segment.vaddr <= vaddr <= segment.vaddr + segment.memsz - size
        for segment in elf.segments
    )
