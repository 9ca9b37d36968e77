"""Find functions by name in a pclntab, without a copy of its names."""

import numpy as np

from symbolizer.errors import GoTableError
from symbolizer.pclntab import FuncOffsets, PclnTable

_CHUNK_BYTES = 1 << 20
_NAME_FIELD_OFFSET = 4
_MAX_HITS = 1024


class NameIndex:
    """Which functions bear a name. Keeps four bytes per function, read on the first search."""

    def __init__(self, table: PclnTable) -> None:
        self._table = table
        self._name_offsets: FuncOffsets | None = None

    def indices(self, name: str) -> list[int]:
        """Return the functions called `name`, by their place in the function table.

        Raises GoTableError if a record or the names cannot be read.
        """
        if self._name_offsets is None:
            self._name_offsets = self._read_name_offsets()
        found = np.isin(self._name_offsets, self._positions(name.encode()))
        return [int(index) for index in np.flatnonzero(found)]

    def _positions(self, name: bytes) -> list[int]:
        """Return where in funcnametab the whole name stands: as a rule once or never."""
        table = self._table.names
        pattern = b"\0" + name + b"\0"
        positions = [0] if table.window(0, len(pattern))[0].startswith(pattern[1:]) else []
        for base in range(0, table.size, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES + len(pattern) - 1, table.size - base)
            data = table.read_uncached(base, size)
            at = data.find(pattern)
            while at >= 0 and len(positions) < _MAX_HITS:
                positions.append(base + at + 1)
                at = data.find(pattern, at + 1)
        return positions

    def _read_name_offsets(self) -> FuncOffsets:
        """Gather runtime._func.nameOff of all functions, in the order of the function table."""
        offsets = self._table.offsets
        if np.any(offsets & 3):
            raise GoTableError("a function record in pclntab is not aligned")
        order = np.argsort(offsets, kind="stable")
        ascending = offsets[order]
        result = np.zeros(len(offsets), dtype=np.uint32)
        records = self._table.functions
        for base in range(0, records.size, _CHUNK_BYTES):
            first, last = np.searchsorted(ascending, [base, base + _CHUNK_BYTES])
            if first == last:
                continue
            size = min(_CHUNK_BYTES + _NAME_FIELD_OFFSET, records.size - base) & ~3
            words = np.frombuffer(records.read_uncached(base, size), dtype="<u4")
            at = (ascending[first:last] - base + _NAME_FIELD_OFFSET) // 4
            result[order[first:last]] = words[at]
        return result
