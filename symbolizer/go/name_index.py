"""Find functions by name in a pclntab, without copying its names."""

import re
from collections.abc import Collection

import numpy as np

from symbolizer.errors import GoTableError
from symbolizer.go.pclntab import FuncOffsets, PclnTable

_CHUNK_BYTES = 1 << 20
_MAX_HITS = 1024


class NameIndex:
    """The functions of each name. Keeps four bytes per function, read on the first search."""

    def __init__(self, table: PclnTable) -> None:
        self._table = table
        self._name_offsets: FuncOffsets | None = None

    def indices(self, names: Collection[str]) -> dict[str, list[int]]:
        """Return the functions of each name, as indices in the function table.

        One pass over all names of the program. Raises GoTableError if a record or the names
        cannot be read.
        """
        if self._name_offsets is None:
            self._name_offsets = self._read_name_offsets()
        positions = self._positions({name: name.encode("utf-8", "replace") for name in names})
        return {
            name: np.flatnonzero(np.isin(self._name_offsets, at)).tolist()
            for name, at in positions.items()
        }

    def has(self, name: str) -> bool:
        """Whether a function has that name, also one that was inlined wherever it is called."""
        return bool(self._positions({name: name.encode("utf-8", "replace")})[name])

    def _positions(self, names: dict[str, bytes]) -> dict[str, list[int]]:
        """Return the offsets of each whole name in funcnametab: usually one or none."""
        positions: dict[str, list[int]] = {name: [] for name in names}
        if not names:
            return positions
        by_bytes = {encoded: name for name, encoded in names.items()}
        # The zero behind a name is not consumed: it is also the one in front of the next.
        any_of_them = b"|".join(re.escape(encoded) for encoded in by_bytes)
        pattern = re.compile(b"\0(?=(" + any_of_them + b")\0)")
        longest = max(map(len, by_bytes)) + 2
        table = self._table.names
        first = table.window(0, longest)[0].split(b"\0", 1)[0]
        if first in by_bytes:
            positions[by_bytes[first]].append(0)
        for base in range(0, table.size, _CHUNK_BYTES):
            data = table.read_uncached(base, min(_CHUNK_BYTES + longest, table.size - base))
            for match in pattern.finditer(data, 0, _CHUNK_BYTES + longest):
                at = positions[by_bytes[match[1]]]
                if match.start() < _CHUNK_BYTES and len(at) < _MAX_HITS:
                    at.append(base + match.start() + 1)
        return positions

    def _read_name_offsets(self) -> FuncOffsets:
        """Gather runtime._func.nameOff of all functions, in the order of the function table."""
        offsets = self._table.offsets
        if np.any(offsets & 3):
            raise GoTableError("a function record in pclntab is not aligned")
        order = np.argsort(offsets, kind="stable")
        ascending = offsets[order]
        result = np.zeros(len(offsets), dtype=np.uint32)
        records, name_field = self._table.functions, self._table.name_field_offset
        for base in range(0, records.size, _CHUNK_BYTES):
            first, last = np.searchsorted(ascending, [base, base + _CHUNK_BYTES])
            if first == last:
                continue
            size = min(_CHUNK_BYTES + name_field, records.size - base) & ~3
            words = np.frombuffer(records.read_uncached(base, size), dtype="<u4")
            at = (ascending[first:last] - base + name_field) // 4
            result[order[first:last]] = words[at]
        return result
