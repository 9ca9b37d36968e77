"""runtime.firstmoduledata: the addresses of a Go program's text and tables.

Its first fields have the same offsets in Go 1.17 to 1.27; the offset of `gofunc` depends on the
version and comes from `symbolizer.go.runtime_layout`. From Go 1.26 on it has its own section;
before, it is in the writable data, where it is found by its first word, the pointer to pclntab.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from symbolizer.elf.file import ElfFile, Segment
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.errors import ElfError, GoTableError
from symbolizer.go.pclntab import PclnTable

_SECTION = ".go.module"
_SCAN_CHUNK_BYTES = 1 << 20
_MAX_CANDIDATES = 1024

# pcHeader; funcnametab, cutab, filetab, pctab, pclntable and ftab as {pointer, length, capacity};
# findfunctab, minpc, maxpc, text, etext.
_HEAD_WORDS = 24

_ADDRESS_END = 1 << 63
"""The end of user space; lower addresses fit a signed integer."""


@dataclass(frozen=True, slots=True)
class ModuleData:
    """The first fields of moduledata. Virtual addresses as linked.

    `text_start` is what the entries of the function table count from.
    """

    vaddr: int
    text_start: int
    text_end: int

    def pointer(self, words: RelocatedWords, offset: int) -> int:
        """Return the 8-byte word `offset` bytes into moduledata; GoTableError if there is none."""
        try:
            return words.read(self.vaddr + offset, 1)[0]
        except ElfError as error:
            raise GoTableError(f"moduledata is cut off: {error}") from error


def find_moduledata(elf: ElfFile, table: PclnTable, words: RelocatedWords) -> ModuleData:
    """Find the moduledata that belongs to a pclntab. Raises GoTableError if there is none."""
    for vaddr in _candidates(elf, table.header.vaddr, words):
        try:
            head = words.read(vaddr, _HEAD_WORDS)
        except ElfError:
            continue
        module = _checked(vaddr, head, table)
        if module is not None and _in_text(elf, module):
            return module
    raise GoTableError(
        "the program has a pclntab but no moduledata that points to it; "
        "it may have been changed after it was linked"
    )


def _candidates(elf: ElfFile, pclntab: int, words: RelocatedWords) -> Iterator[int]:
    section = elf.sections.get(_SECTION)
    if section is not None:
        yield section.vaddr
    candidates = 0
    for segment in elf.segments:
        if segment.writable:
            for vaddr in _pointers_to(elf, segment, pclntab):
                yield vaddr
                candidates += 1
                if candidates == _MAX_CANDIDATES:
                    return
    yield from words.addresses_of(pclntab, _MAX_CANDIDATES)


def _pointers_to(elf: ElfFile, segment: Segment, target: int) -> Iterator[int]:
    """Yield each 8-aligned address in the segment that holds the pointer."""
    pattern = target.to_bytes(8, "little")
    for base, data in elf.scan(segment, _SCAN_CHUNK_BYTES, overlap=7):
        at = data.find(pattern)
        while at >= 0:
            if (base + at) % 8 == 0:
                yield base + at
            at = data.find(pattern, at + 1)


def _checked(vaddr: int, words: tuple[int, ...], table: PclnTable) -> ModuleData | None:
    """Return the moduledata if all its fields match the table, as Go itself demands."""
    header = table.header
    first_entry, end_entry = int(table.entries[0]), int(table.entries[-1])
    minpc, maxpc, text, text_end = words[20:24]
    text_start = header.text_start if header.has_addresses else text
    agrees = (
        words[0] == header.vaddr
        and words[1] == header.vaddr + header.name_offset
        and words[4] == header.vaddr + header.cu_offset
        and words[7] == header.vaddr + header.file_offset
        and words[10] == header.vaddr + header.pctab_offset
        and words[13] == header.vaddr + header.pcln_offset
        and words[16] == header.vaddr + header.pcln_offset
        and words[17] == header.function_count + 1
        and header.text_start in (0, text_start)
        and minpc == text_start + first_entry
        and maxpc == text_start + end_entry
        and text <= text_start <= minpc <= maxpc <= text_end
    )
    return ModuleData(vaddr, text_start, text_end) if agrees else None


def _in_text(elf: ElfFile, module: ModuleData) -> bool:
    """Whether one executable segment has all of moduledata's text."""
    return module.text_end < _ADDRESS_END and any(
        segment.executable
        and segment.vaddr <= module.text_start
        and module.text_end <= segment.vaddr + segment.filesz
        for segment in elf.segments
    )
