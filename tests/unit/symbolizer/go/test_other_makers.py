"""Files without Go's own tables: which compiler or packer made them."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, NotGoError, OtherCompiler, PackedProgram
from symbolizer.go.other_makers import GCCGO, TINYGO, other_compiler
from tests.fuzz.elfs import PF_R, PF_X, Load, Part, small_elf


def file(strings: bytes, *, section: str = ".strtab", text: bytes = b"\x90" * 64) -> ElfFile:
    return ElfFile.from_bytes(
        small_elf([Load(0x2000, text, PF_R | PF_X)], [Part(section, strings)])
    )


@pytest.mark.parametrize(
    ("section", "strings", "compiler"),
    [
        (".dynstr", b"\0libc.so.6\0libgo.so.21\0", GCCGO),
        (".strtab", b"\0main\0__go_init_main\0", GCCGO),  # -static-libgo
        (".strtab", b"\0main\0tinygo_longjmp\0", TINYGO),
        (".strtab", b"\0" + b"x" * ((1 << 20) - 4) + b"\0tinygo_longjmp\0", TINYGO),
        (".strtab", b"\0main\0not_tinygo_longjmp\0mylibgo.so.1\0", ""),
        (".comment", b"\0libgo.so.21\0", ""),
    ],
)
def test_the_compiler_is_known_by_names_in_tables(
    section: str, strings: bytes, compiler: str
) -> None:
    with file(strings, section=section) as elf:
        assert other_compiler(elf) == compiler
        with pytest.raises(OtherCompiler if compiler else NotGoError) as raised:
            GoBinary.open(elf)
    assert (f"built with {compiler}, whose" in str(raised.value)) == bool(compiler)


def test_a_packed_program_is_known_by_its_header() -> None:
    with file(b"\0", text=b"\0" * 8 + b"UPX!" + b"\0" * 64) as elf, pytest.raises(PackedProgram):
        GoBinary.open(elf)
