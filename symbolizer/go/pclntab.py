"""pclntab: the table that maps Go code to functions, files and lines. strip keeps it.

Formats read: Go 1.16 and 1.17, Go 1.18 and 1.19, and Go 1.20 and later (internal/abi/symtab.go,
runtime/symtab.go and cmd/link/internal/ld/pcln.go). Older ones are recognised, so that
the error names their Go version. Garble, an obfuscator, replaces the magic number by a random one,
and encrypts the entry in each function's record, which is not read here (garble 0.18,
internal/linker/patches): such a table is known by the structure of its header.
Virtual addresses are as linked.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from symbolizer.elf.file import ElfFile, Segment
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.elf.table import FileTable
from symbolizer.errors import ElfError, GoTableError, NotGoError, UnsupportedGoVersion

GO_1_16: Final = 0xFFFFFFFA
GO_1_18: Final = 0xFFFFFFF0
GO_1_20: Final = 0xFFFFFFF1
_GO_1_2: Final = 0xFFFFFFFB
_KNOWN: Final = (GO_1_16, GO_1_18, GO_1_20)

_SECTIONS = (".gopclntab", ".data.rel.ro.gopclntab")
_AFTER_MAGIC = b"\0\0\1\x08"
"""Two bytes of zero, the smallest instruction (1 byte on amd64) and the size of a pointer."""

_HEADER = struct.Struct("<IHBB8Q")
_HEADER_1_16 = struct.Struct("<IHBB7Q")
_NAMES_AT = 32
"""Where the header has the offset of the names, which begin right behind the header."""

# entryOff, nameOff, args, deferreturn, pcsp, pcfile, pcln, npcdata, cuOffset, [startLine,] funcID,
# flag, nfuncdata; then npcdata offsets into pctab and nfuncdata offsets from moduledata.gofunc.
# In Go 1.16 and 1.17 the first field is an address, and so are funcdata, aligned to 8 bytes.
_FUNC_1_16 = struct.Struct("<QiiIIIIIIBBxB")
_FUNC_1_18 = struct.Struct("<IiiIIIIIIBBxB")
_FUNC_1_20 = struct.Struct("<IiiIIIIIIiBBxB")
_FORMATS: Final = {GO_1_16: _FUNC_1_16, GO_1_18: _FUNC_1_18}
_WORD = struct.Struct("<I")
_PCDATA_INL_TREE_INDEX = 2
_PCDATA_ARG_LIVE_INDEX = 3
_FUNCDATA_INL_TREE = 3
_FUNCDATA_ARG_INFO = 5  # behind it: FUNCDATA_ArgLiveInfo
_FUNCDATA_WRAP_INFO = 7
_NO_FUNCDATA = 0xFFFFFFFF
_NO_FILE = 0xFFFFFFFF
_RECORD_WINDOW_BYTES = 44 + 4 * (16 + 16)
"""A record with more pcdata and funcdata than any version of Go writes."""
_FUNCTAB_ENTRY_BYTES = 8
_FUNCTAB_ENTRY_BYTES_1_16 = 16
_MIN_FUNC_BYTES = 40
_MAX_FUNCTIONS = 1 << 22
_MAX_CANDIDATES = 64
_SCAN_CHUNK_BYTES = 1 << 20
_MAX_OFFSET = 0xFFFFFFFF
MAX_NAME_BYTES: Final = 1 << 15

FuncOffsets = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class PclnHeader:
    """The pcHeader at the start of pclntab. Offsets in bytes from `vaddr`.

    `text_start` is 0 from Go 1.26 on, and wherever a linker left it to a relocation. In Go 1.16 and
    1.17, whose tables have addresses, it is the address of the first function.
    """

    vaddr: int
    size: int
    magic: int
    function_count: int
    text_start: int
    name_offset: int
    cu_offset: int
    file_offset: int
    pctab_offset: int
    pcln_offset: int

    @property
    def is_obfuscated(self) -> bool:
        """Whether the magic number is that of no Go version, so an obfuscator changed it."""
        return self.magic not in _KNOWN

    @property
    def has_addresses(self) -> bool:
        """Whether functions and funcdata are named by address, not by offset: Go 1.16 and 1.17."""
        return self.magic == GO_1_16


class FuncRecord(NamedTuple):
    """The fields of a runtime._func that the symbolizer uses.

    `pcsp`, `pcfile`, `pcln` and `inline_index` are positions of pc-value tables in pctab, 0 for
    none. `inline_tree` counts from moduledata.gofunc, None if nothing was inlined; it is an offset
    in the file if the table's header `has_addresses`. `start_line` is 0 before Go 1.20.
    `argument_bytes` is the room for arguments and results that the caller leaves above the return
    address, also for those in registers; negative if unknown.
    """

    name_offset: int
    pcsp: int
    pcfile: int
    pcln: int
    cu_offset: int
    start_line: int
    func_id: int
    flags: int
    inline_index: int
    inline_tree: int | None
    argument_bytes: int


class ArgumentTables(NamedTuple):
    """Where the tables of a function's arguments lie, for tracebacks (runtime/traceback.go).

    `info` and `live_info` count as FuncRecord.inline_tree, None if there are none.
    `live_index` is the position of a pc-value table in pctab, 0 for none.
    """

    info: int | None
    live_info: int | None
    live_index: int


class PclnTable:
    """A pclntab with a checked header and function table.

    `entries[i]` is where function i begins, in bytes from the text start, in ascending order;
    one more entry is the end of the last function. `offsets[i]` is where its record lies in
    `functions`.
    """

    def __init__(self, elf: ElfFile, header: PclnHeader) -> None:
        """Read the function table. Raises GoTableError if it contradicts itself."""
        self.header: Final = header
        start = elf.vaddr_to_offset(header.vaddr)

        def part(name: str, begin: int, end: int) -> FileTable:
            return FileTable(elf, start + begin, end - begin, name)

        self.names: Final = part("funcnametab", header.name_offset, header.cu_offset)
        self.units: Final = part("cutab", header.cu_offset, header.file_offset)
        self.files: Final = part("filetab", header.file_offset, header.pctab_offset)
        self.pctab: Final = part("pctab", header.pctab_offset, header.pcln_offset)
        self.functions: Final = part("pclntable", header.pcln_offset, header.size)
        self._record: Final = _FORMATS.get(header.magic, _FUNC_1_20)
        self._elf: Final = elf
        self._words: Final = RelocatedWords(elf)
        self.name_field_offset: Final = 8 if header.has_addresses else 4
        """Where a record has the offset of the function's name, in bytes."""
        if header.has_addresses:
            self.entries, self.offsets = self._read_addresses()
        else:
            self.entries, self.offsets = self._read_functab(elf, start + header.pcln_offset)

    def function(self, index: int) -> FuncRecord:
        """Return the record of function `index`. Raises GoTableError if it is cut off."""
        data, start = self.functions.window(int(self.offsets[index]), _RECORD_WINDOW_BYTES)
        try:
            fields = self._record.unpack_from(data, start)
            _, name, arguments, _, pcsp, pcfile, pcln, pcdata_count, unit = fields[:9]
            func_id, flags, _ = fields[-3:]
            inline_index, inline_tree = 0, None
            if pcdata_count > _PCDATA_INL_TREE_INDEX:
                inline_tree = self._funcdata(index, data, start, _FUNCDATA_INL_TREE)
            if inline_tree is not None:
                pcdata = start + self._record.size
                (inline_index,) = _WORD.unpack_from(data, pcdata + 4 * _PCDATA_INL_TREE_INDEX)
        except struct.error as error:
            raise GoTableError("a function record of pclntab is cut off") from error
        start_line = fields[9] if self._record is _FUNC_1_20 else 0
        return FuncRecord(
            *(name, pcsp, pcfile, pcln, unit, start_line, func_id, flags),
            *(inline_index, inline_tree, arguments),
        )

    def argument_tables(self, index: int) -> ArgumentTables:
        """Return the tables of the arguments of function `index`. Raises GoTableError."""
        data, start = self.functions.window(int(self.offsets[index]), _RECORD_WINDOW_BYTES)
        try:
            info = self._funcdata(index, data, start, _FUNCDATA_ARG_INFO)
            live = self._funcdata(index, data, start, _FUNCDATA_ARG_INFO + 1)
            live_index = 0
            if self._record.unpack_from(data, start)[7] > _PCDATA_ARG_LIVE_INDEX:
                pcdata = start + self._record.size
                (live_index,) = _WORD.unpack_from(data, pcdata + 4 * _PCDATA_ARG_LIVE_INDEX)
        except struct.error as error:
            raise GoTableError("a function record of pclntab is cut off") from error
        return ArgumentTables(info, live, live_index)

    def wrap_info(self, index: int) -> int | None:
        """Where the funcdata of a wrapper of a `go` or `defer` statement names what it calls.

        None for other functions (internal/abi/symtab.go, FUNCDATA_WrapInfo). Raises GoTableError.
        """
        data, start = self.functions.window(int(self.offsets[index]), _RECORD_WINDOW_BYTES)
        try:
            return self._funcdata(index, data, start, _FUNCDATA_WRAP_INFO)
        except struct.error as error:
            raise GoTableError("a function record of pclntab is cut off") from error

    def _funcdata(self, index: int, data: bytes, start: int, number: int) -> int | None:
        """Return where a table of function `index` is, whose record is at `start` of `data`.

        It counts from moduledata.gofunc, or is an offset in the file if the header `has_addresses`;
        None if the function has no such table.
        """
        fields = self._record.unpack_from(data, start)
        pcdata_count, funcdata_count = fields[7], fields[-1]
        if funcdata_count <= number:
            return None
        behind = self._record.size + 4 * pcdata_count
        if not self.header.has_addresses:
            (offset,) = _WORD.unpack_from(data, start + behind + 4 * number)
            return None if offset == _NO_FUNCDATA else int(offset)
        record = self.header.vaddr + self.header.pcln_offset + int(self.offsets[index])
        aligned = (record + behind + 7) & ~7
        try:
            (address,) = self._words.read(aligned + 8 * number, 1)
            return self._elf.vaddr_to_offset(address) if address else None
        except ElfError as error:
            raise GoTableError(
                "a function record of pclntab is cut off, or points outside the file"
            ) from error

    def function_name(self, name_offset: int) -> str:
        """Return a function's name as the linker wrote it.

        Offset 0 is the first function's name, although runtime.moduledata.funcName takes it for
        no name, and Go's own profiles show that function without one.
        """
        return self.names.string(name_offset, MAX_NAME_BYTES)

    def file_offset(self, cu_offset: int, file_number: int) -> int | None:
        """Return the offset in `files` of the path of a unit's file, None if it has no path."""
        (offset,) = _WORD.unpack(self.units.read(4 * (cu_offset + file_number), 4))
        return offset if offset != _NO_FILE else None

    def _read_functab(self, elf: ElfFile, file_offset: int) -> tuple[FuncOffsets, FuncOffsets]:
        count = self.header.function_count
        # The last entry has no record: its second half need not be there.
        size = count * _FUNCTAB_ENTRY_BYTES + 4
        raw = np.frombuffer(elf.read_offset(file_offset, size), dtype="<u4")
        return self._checked(raw[0::2].copy(), raw[1::2].copy(), size)

    def _read_addresses(self) -> tuple[FuncOffsets, FuncOffsets]:
        """The function table of Go 1.16 and 1.17: the address of each function and its record."""
        header = self.header
        count = 2 * header.function_count + 1
        try:
            words = self._words.read(header.vaddr + header.pcln_offset, count)
        except ElfError as error:
            raise GoTableError(f"the function table of pclntab is cut off: {error}") from error
        raw = np.array(words, np.uint64)
        entries, offsets = raw[0::2] - np.uint64(header.text_start), raw[1::2]
        if np.any(entries > _MAX_OFFSET) or np.any(offsets > _MAX_OFFSET):
            raise GoTableError("pclntab lists a function that is too far from the first one")
        return self._checked(entries.astype(np.uint32), offsets.astype(np.uint32), 8 * count)

    def _checked(
        self, entries: FuncOffsets, offsets: FuncOffsets, size: int
    ) -> tuple[FuncOffsets, FuncOffsets]:
        """The same, of a function table of `size` bytes, which lies in front of all records."""
        if np.any(entries[1:] < entries[:-1]):
            raise GoTableError("the functions in pclntab are not in ascending order")
        if int(offsets.min()) < size or int(offsets.max()) > self.functions.size - _MIN_FUNC_BYTES:
            raise GoTableError("pclntab lists a function whose record lies outside of it")
        return entries, offsets


def find_pclntab(elf: ElfFile) -> PclnTable:
    """Find the pclntab by its section, else by its signature in the loaded segments.

    Raises NotGoError if there is none, UnsupportedGoVersion for one of Go 1.15 or older, and
    GoTableError if all that are found contradict themselves.
    """
    problem: GoTableError | None = None
    for vaddr, size in _candidates(elf):
        try:
            return PclnTable(elf, _read_header(elf, vaddr, size))
        except GoTableError as error:
            problem = problem or error
        except ElfError as error:
            problem = problem or GoTableError(f"pclntab is cut off: {error}")
    if problem is not None:
        raise problem
    raise NotGoError("the file is not a Go program: it has no pclntab")


def _candidates(elf: ElfFile) -> Iterator[tuple[int, int]]:
    """Yield (vaddr, maximum size) of what may be a pclntab, the most likely first."""
    for name in _SECTIONS:
        section = elf.sections.get(name)
        if section is not None and not section.nobits:
            try:
                yield section.vaddr, min(section.size, elf.file_bytes_after(section.vaddr))
            except ElfError:
                continue  # No segment has the section's address.
    candidates = 0
    for segment in sorted(elf.segments, key=lambda segment: segment.executable):
        for vaddr in _signatures(elf, segment):
            yield vaddr, segment.vaddr + segment.filesz - vaddr
            candidates += 1
            if candidates == _MAX_CANDIDATES:
                return


def _signatures(elf: ElfFile, segment: Segment) -> Iterator[int]:
    """Yield each 8-aligned address in the segment where a pclntab may begin."""
    for base, data in elf.scan(segment, _SCAN_CHUNK_BYTES, overlap=_NAMES_AT + 7):
        at = data.find(_AFTER_MAGIC)
        while at >= 0:
            if at >= 4 and (base + at - 4) % 8 == 0:
                magic = int.from_bytes(data[at - 4 : at], "little")
                names_at = at - 4 + _NAMES_AT
                names = int.from_bytes(data[names_at : names_at + 8], "little")
                known = magic in _KNOWN or magic == _GO_1_2
                if known or names == _HEADER.size:
                    yield base + at - 4
            at = data.find(_AFTER_MAGIC, at + 1)


def _read_header(elf: ElfFile, vaddr: int, size: int) -> PclnHeader:
    if size < _HEADER.size:
        raise GoTableError(f"pclntab at {vaddr:#x} has {size} bytes, too few for its header")
    data = elf.read(vaddr, _HEADER.size)
    magic, pad, quantum, pointer_size, *words = _HEADER.unpack(data)
    if magic == _GO_1_2 and (pad, quantum, pointer_size) == (0, 1, 8):
        raise UnsupportedGoVersion(
            "the program was built with Go 1.2 to 1.15; Go 1.17 or newer is needed"
        )
    header_size, entry_size = _HEADER.size, _FUNCTAB_ENTRY_BYTES
    if magic == GO_1_16:
        header_size, entry_size = _HEADER_1_16.size, _FUNCTAB_ENTRY_BYTES_1_16
        words = [*words[:2], 0, *words[2:-1]]
    count, _files, text_start, *offsets = words
    is_known = magic in _KNOWN or offsets[0] == _HEADER.size
    if not is_known or (pad, quantum, pointer_size) != (0, 1, 8):
        raise GoTableError(f"pclntab at {vaddr:#x} begins with an unknown header")
    if [header_size, *offsets, size] != sorted([header_size, *offsets, size]):
        raise GoTableError(f"the parts of pclntab at {vaddr:#x} overlap or lie outside of it")
    if not 1 <= count <= min(_MAX_FUNCTIONS, (size - offsets[-1]) // entry_size):
        raise GoTableError(f"pclntab at {vaddr:#x} cannot hold {count} functions")
    if magic == GO_1_16:
        (text_start,) = RelocatedWords(elf).read(vaddr + offsets[-1], 1)
    return PclnHeader(vaddr, size, magic, count, text_start, *offsets)
