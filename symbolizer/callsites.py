"""Find the call instructions that call one function directly.

`e8 rel32` is looked for at every byte of the text with numpy: for a call at address a the four
bytes after the opcode, read as a little-endian integer, are target - a - 5 modulo 2**32. What is
found so may still be the middle of another instruction; the caller checks.
"""

from collections.abc import Iterator
from typing import Final

import capstone
import numpy as np

from symbolizer.elf import ElfFile

CALL_BYTES: Final = 5
_OPCODE = 0xE8
_CHUNK_BYTES = 1 << 18
_MASK = 0xFFFFFFFF


def candidate_calls(elf: ElfFile, start: int, end: int, target: int) -> Iterator[int]:
    """Yield, in ascending order, each address in [start, end) whose bytes read `call target`.

    Raises ElfError if the text is not in the file.
    """
    words = _CHUNK_BYTES // 4
    counts = 4 * np.arange(words, dtype=np.uint32)
    sums = np.empty(words, dtype=np.uint32)
    equal = np.empty(words, dtype=np.bool_)
    for base in range(start, end - CALL_BYTES + 1, _CHUNK_BYTES):
        data = elf.read(base, min(_CHUNK_BYTES + CALL_BYTES - 1, end - base))
        hits: list[int] = []
        for phase in range(4):
            # Every fourth address from base + phase; the displacement stands one byte further.
            count = min(words, (len(data) - 1 - phase) // 4)
            rel = np.frombuffer(data, "<u4", count, offset=1 + phase)
            wanted = np.uint32((target - (base + phase) - CALL_BYTES) & _MASK)
            np.add(rel, counts[:count], out=sums[:count])
            np.equal(sums[:count], wanted, out=equal[:count])
            hits += (4 * int(i) + phase for i in np.flatnonzero(equal[:count]))
        yield from (base + at for at in sorted(hits) if data[at] == _OPCODE)


class InstructionStarts:
    """Tells where instructions begin, by decoding functions from their first byte."""

    def __init__(self) -> None:
        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)

    def among(self, code: bytes, entry: int, addresses: list[int]) -> list[int]:
        """Return those of the ascending `addresses` that begin an instruction.

        `code` is the function's text from `entry` on. Decoding ends at the last address, and at
        bytes that are no instruction.
        """
        wanted = set(addresses)
        last = addresses[-1]
        found = []
        for address, _, _, _ in self._decoder.disasm_lite(code, entry):
            if address in wanted:
                found.append(address)
            if address >= last:
                break
        return found
