"""Find the call instructions that call given functions directly.

numpy searches every byte of the text for `e8 rel32`: for a call at address a the four bytes after
the opcode, read as a little-endian integer, are target - a - 5 modulo 2**32. A match may still be
in the middle of another instruction; the caller checks that.
"""

import ctypes
from collections.abc import Callable, Collection
from typing import Any, Final

import numpy as np

from symbolizer.errors import GoTableError

CALL_BYTES: Final = 5
_OPCODE = 0xE8
_CHUNK_BYTES = 1 << 18
_MAX_CALLS = 1 << 20
"""Of all targets together; real programs have far fewer."""


def candidate_calls(
    read: Callable[[int, int], bytes], start: int, end: int, targets: Collection[int]
) -> dict[int, list[int]]:
    """Return, by target, the addresses in [start, end) whose bytes read `call target`, ascending.

    `read` takes an address and a size in bytes and returns the bytes there; its exceptions pass
    through. One pass over the text for all targets. Raises GoTableError if there are more calls
    than in any real program.
    """
    calls: dict[int, list[int]] = {target: [] for target in targets}
    wanted = np.array(sorted(calls), dtype=np.int64)
    count = 0
    for base in range(start, end - CALL_BYTES + 1, _CHUNK_BYTES):
        data = read(base, min(_CHUNK_BYTES + CALL_BYTES - 1, end - base))
        code = np.frombuffer(data, np.uint8)
        at = np.flatnonzero(code[: -CALL_BYTES + 1] == _OPCODE)
        displacements = _unaligned_int32(data)[at + 1]
        called = at + displacements + (base + CALL_BYTES)
        hits = np.flatnonzero(np.isin(called, wanted))
        count += len(hits)
        if count > _MAX_CALLS:
            raise GoTableError("functions are called from more places than in any real program")
        for index in hits:
            calls[int(called[index])].append(base + int(at[index]))
    return calls


def _unaligned_int32(data: bytes) -> "np.ndarray[tuple[int], np.dtype[np.int32]]":
    """View the four bytes at each offset of `data` as a little-endian integer."""
    return np.ndarray(len(data) - 3, "<i4", data, strides=(1,))


class InstructionStarts:
    """Finds where instructions begin, by decoding functions from their first byte."""

    def __init__(self) -> None:
        import capstone  # 5 MB, which a process that only describes programs does not need

        self._decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
        # Its methods make Python's objects of each instruction, which takes five times as long.
        self._library: Any = capstone._cs
        self._kind: Any = capstone._cs_insn

    def among(self, code: bytes, entry: int, addresses: list[int]) -> list[int]:
        """Return those of the ascending `addresses` at which an instruction begins.

        `code` is the function's text from `entry` on. Decoding stops at bytes that are not an
        instruction.
        """
        decoded = ctypes.POINTER(self._kind)()
        count = self._library.cs_disasm(
            self._decoder.csh, code, len(code), entry, 0, ctypes.byref(decoded)
        )
        if not count:
            return []
        try:
            at = ctypes.addressof(decoded.contents) + self._kind.address.offset
            size = (count - 1) * ctypes.sizeof(self._kind) + ctypes.sizeof(ctypes.c_uint64)
            data = (ctypes.c_char * size).from_address(at)
            starts = np.ndarray(count, "<u8", data, strides=(ctypes.sizeof(self._kind),))
            is_start = np.isin(np.array(addresses, np.uint64), starts)
        finally:
            self._library.cs_free(decoded, count)
        return [address for address, begins in zip(addresses, is_start, strict=True) if begins]
