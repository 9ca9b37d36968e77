"""The address of runtime.allm, in every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis.thread_globals import allm_address
from tests.builds import BUILDS, pairs
from tests.unit.symbolizer.codeanalysis.test_globals import symbol
from tests.unit.symbolizer.elf.elf_writer import without_sections
from tests.unit.symbolizer.go_programs import binary, only, program

WITH_SYMBOLS = [build for build in BUILDS if build[1] != "stripped"]


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_address_equals_its_symbol(build: tuple[str, str]) -> None:
    data = program(*build)
    expected = symbol(data, "runtime.allm")
    for each in (data, without_sections(data)):
        assert allm_address(GoBinary.open(ElfFile.from_bytes(each))) == expected


def test_code_that_adds_to_no_list_is_refused() -> None:
    data = bytearray(program())
    function = only(binary(), "runtime.mcommoninit")
    at = binary().elf.vaddr_to_offset(function.entry)
    data[at : at + function.end - function.entry] = b"\x90" * (function.end - function.entry)
    with pytest.raises(GoTableError, match=r"does not add to the list of threads"):
        allm_address(GoBinary.open(ElfFile.from_bytes(bytes(data))))
