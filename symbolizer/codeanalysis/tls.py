"""Where a thread keeps its runtime.g, found in the code that loads it."""

from collections.abc import Callable, Sequence
from typing import Final

import capstone
from capstone import x86_const

from symbolizer.codeanalysis.runtime_functions import unknown_code
from symbolizer.elf.file import ElfFile
from symbolizer.errors import ElfError
from symbolizer.go.binary import Function, GoBinary
from symbolizer.x86.disasm import detailed_decoder

_READERS: Final = ("runtime.systemstack", "runtime.mcall")
_MAX_CODE_BYTES = 512
_WORD_BYTES = 8


_Words = Callable[[int], int]
"""Reads a word by its address as linked."""


def g_offset(
    binary: GoBinary, loaded: _Words | None = None, *, readers: Sequence[str] = _READERS
) -> int:
    """Return the offset of the word that points to the running g, in bytes from the FS base.

    The functions `readers` load it. It is -8 in programs that Go's own linker linked; chosen by the
    system's linker in others, and by the loader for a library, which has it in its GOT
    (runtime/asm_amd64.s, get_tls; ELF's initial-exec model). `loaded` reads a word of the process,
    for a library. Raises GoTableError if the code differs from all known, and what `loaded` raises.
    """

    def in_file(address: int) -> int:
        return int.from_bytes(binary.elf.read(address, _WORD_BYTES), "little")

    for words in (in_file, loaded) if loaded else (in_file,):
        for name in readers:
            for function in binary.functions_named(name):
                found = _fs_offset(binary.elf, function, words)
                if found is not None and -(1 << 31) <= found < 0:
                    return found
    raise unknown_code("the word that points to the running goroutine cannot be found")


def _fs_offset(elf: ElfFile, function: Function, words: _Words) -> int | None:
    """The offset of the first access relative to FS, direct or through a register."""
    try:
        code = elf.read(function.entry, min(function.end - function.entry, _MAX_CODE_BYTES))
    except ElfError:
        return None
    loaded: dict[int, int] = {}
    for instruction in detailed_decoder().disasm(code, function.entry):
        for operand in instruction.operands:
            if operand.type == x86_const.X86_OP_MEM and operand.mem.segment == x86_const.X86_REG_FS:
                base = operand.mem.base
                if base == x86_const.X86_REG_INVALID:
                    return _signed(operand.mem.disp)
                if base in loaded:
                    return _signed(loaded[base] + operand.mem.disp)
        if instruction.id == x86_const.X86_INS_MOV:
            target, source = instruction.operands
            if target.type == x86_const.X86_OP_REG:
                loaded.pop(target.reg, None)
                value = _value(words, instruction, source)
                if value is not None:
                    loaded[target.reg] = value
    return None


def _value(words: _Words, instruction: capstone.CsInsn, source: capstone.x86.X86Op) -> int | None:
    """The value that a mov loads, if it is a constant or a word at a fixed address."""
    if source.type == x86_const.X86_OP_IMM:
        return int(source.imm)
    if source.type == x86_const.X86_OP_MEM and source.mem.base == x86_const.X86_REG_RIP:
        address = instruction.address + instruction.size + source.mem.disp
        try:
            return words(address)
        except ElfError:
            return None
    return None


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value
