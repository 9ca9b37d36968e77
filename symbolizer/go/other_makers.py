"""Programs that are written in Go, or may be, but not as Go's own linker leaves them.

Asked only of files without a pclntab: to say in words what they are.
"""

from typing import Final

from symbolizer.elf.file import ElfFile
from symbolizer.errors import ElfError

GCCGO: Final = "gccgo"
TINYGO: Final = "TinyGo"
_PACKED: Final = b"UPX!"
_HEADER_BYTES: Final = 1 << 12
_MAX_NAMES_BYTES: Final = 64 << 20
_CHUNK_BYTES: Final = 1 << 20
_MARKS: Final = {
    # The library of gccgo's runtime; its symbol where that is linked in (go/go-backend.cc in GCC).
    b"\0libgo.so.": GCCGO,
    b"\0__go_init_main\0": GCCGO,
    # Assembly and C of TinyGo's runtime (src/runtime/asm_amd64.S, src/internal/task in TinyGo).
    b"\0tinygo_": TINYGO,
}
_LONGEST: Final = max(map(len, _MARKS))


def is_packed(elf: ElfFile) -> bool:
    """Whether UPX packed the file: it marks its own header, right behind the program headers."""
    try:
        return _PACKED in elf.read_offset(0, min(_HEADER_BYTES, elf.size))
    except ElfError:
        return False


def other_compiler(elf: ElfFile) -> str:
    """The compiler of a Go program that is not Go's own, by names in its tables; "" if unknown."""
    for table in (".dynstr", ".strtab"):
        section = elf.sections.get(table)
        if section is None or section.nobits or section.size > _MAX_NAMES_BYTES:
            continue
        tail = b""
        for at in range(0, section.size, _CHUNK_BYTES):
            size = min(_CHUNK_BYTES, section.size - at)
            try:
                data = tail + elf.read_offset(section.offset + at, size)
            except ElfError:
                break
            for mark, compiler in _MARKS.items():
                if mark in data:
                    return compiler
            tail = data[-_LONGEST:]
    return ""
