"""The Go version of a program whose build information was removed.

runtime.schedinit sets runtime.buildVersion to "unknown" if it is empty, so schedinit's code has the
address of that string, as an operand relative to the instruction pointer.
"""

from collections.abc import Iterator

from capstone import x86

from symbolizer.elf.file import ElfFile
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.errors import ElfError
from symbolizer.x86.disasm import detailed_decoder

_MAX_VERSION_BYTES = 256
_PREFIXES = (b"go1.", b"devel go1.")


def find_build_version(elf: ElfFile, words: RelocatedWords, schedinit: int, code: bytes) -> str:
    """Return runtime.buildVersion, "" if it cannot be found.

    `code` is the text of runtime.schedinit, which begins at the address `schedinit`.
    """
    for address in _operand_addresses(code, schedinit):
        # The operand is the string's length or its pointer.
        for header in (address - 8, address):
            text = _string_at(elf, words, header)
            if text.startswith(_PREFIXES):
                return text.decode("utf-8", "replace")
    return ""


def _operand_addresses(code: bytes, entry: int) -> Iterator[int]:
    """Yield the target of each operand that is relative to the instruction pointer."""
    for instruction in detailed_decoder().disasm(code, entry):
        for operand in instruction.operands:
            if operand.type == x86.X86_OP_MEM and operand.mem.base == x86.X86_REG_RIP:
                yield instruction.address + instruction.size + operand.mem.disp


def _string_at(elf: ElfFile, words: RelocatedWords, header: int) -> bytes:
    """Return the Go string with its header at the address; b"" if there is none."""
    try:
        pointer, length = words.read(header, 2)
        return elf.read(pointer, length) if length <= _MAX_VERSION_BYTES else b""
    except ElfError:
        return b""
