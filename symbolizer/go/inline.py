"""Inline trees: which functions the compiler inlined into another one (runtime/symtabinl.go)."""

import struct
from typing import Final, NamedTuple

from symbolizer.elf.file import ElfFile
from symbolizer.elf.table import FileTable, StringTable
from symbolizer.errors import ElfError, GoTableError
from symbolizer.frames import FuncRole
from symbolizer.go.pclntab import GO_1_16, GO_1_18, MAX_NAME_BYTES, PclnTable
from symbolizer.go.runtime_layout import RuntimeLayout

UNKNOWN_FILE: Final = "?"

# parent, funcID, file, line, func_, parentPc; and funcID, nameOff, parentPc, startLine.
_NODE_1_18 = struct.Struct("<hBx4xiii")
_NODE_1_20 = struct.Struct("<B3xiii")
_MAX_NODES = 1 << 20


class Callee(NamedTuple):
    """An inlined function, or the physical one, and the offset in the code of the call."""

    name: str
    start_line: int
    role: FuncRole
    parent_pc: int


class InlineTables:
    """Tables that all functions of a program share: strings, inline trees, the layout."""

    def __init__(
        self, elf: ElfFile, table: PclnTable, layout: RuntimeLayout, gofunc: int | None
    ) -> None:
        """`gofunc` is the address that offsets of inline trees count from.

        None: they are offsets in the file.
        """
        self.table: Final = table
        self.layout: Final = layout
        offset, size = 0, elf.size
        try:
            if gofunc is not None:
                offset, size = elf.vaddr_to_offset(gofunc), elf.file_bytes_after(gofunc)
        except ElfError as error:
            raise GoTableError(f"moduledata.gofunc points outside the file: {error}") from error
        self._trees = FileTable(elf, offset, size, "go:func.*")
        self._node = _NODE_1_18 if table.header.magic in (GO_1_16, GO_1_18) else _NODE_1_20
        self._names = StringTable(table.names, MAX_NAME_BYTES)
        self._paths = StringTable(table.files, MAX_NAME_BYTES)

    def name(self, name_offset: int) -> str:
        """Return a function's name. Raises GoTableError."""
        return self._names.at(name_offset)

    def path(self, cu_offset: int, file_number: int) -> str:
        """Return the path of a file of a compilation unit, "?" where Go has none."""
        offset = self.table.file_offset(cu_offset, file_number)
        return UNKNOWN_FILE if offset is None else self._paths.at(offset)

    def funcdata(self, offset: int, size: int) -> bytes:
        """Return up to `size` bytes at an offset from moduledata.gofunc. Raises GoTableError."""
        data, start = self._trees.window(offset, size)
        return data[start : start + size]

    def callee(self, tree: int, index: int) -> Callee:
        """Return node `index` of the inline tree at `tree`. Raises GoTableError."""
        if index >= _MAX_NODES:
            raise GoTableError(f"a function claims {index} inlined calls")
        data = self._trees.read(tree + index * self._node.size, self._node.size)
        if self._node is _NODE_1_18:
            _, func_id, _line, name_offset, parent_pc = self._node.unpack(data)
            start_line = 0
        else:
            func_id, name_offset, parent_pc, start_line = self._node.unpack(data)
        return Callee(self.name(name_offset), start_line, self.layout.role(func_id), parent_pc)
