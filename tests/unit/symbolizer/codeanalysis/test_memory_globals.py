"""Addresses of the heap, its statistics and its pacer, in every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis.memory_globals import memory_globals
from tests.builds import BUILDS, pairs
from tests.unit.symbolizer.codeanalysis.test_globals import symbol
from tests.unit.symbolizer.elf.elf_writer import without_sections
from tests.unit.symbolizer.go_programs import binary, only, program

WITH_SYMBOLS = [build for build in BUILDS if build[1] != "stripped"]


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_addresses_equal_the_symbols(build: tuple[str, str]) -> None:
    data = program(*build)
    for each in (data, without_sections(data)):
        opened = GoBinary.open(ElfFile.from_bytes(each))
        found = memory_globals(opened)
        assert found.heap == symbol(data, "runtime.mheap_")
        assert found.statistics == symbol(data, "runtime.memstats")
        assert found.controller == symbol(data, "runtime.gcController")


def test_other_code_is_refused() -> None:
    data = bytearray(program())
    function = only(binary(), "runtime.(*mcache).refill")
    at = binary().elf.vaddr_to_offset(function.entry)
    data[at : at + function.end - function.entry] = b"\x90" * (function.end - function.entry)
    with pytest.raises(GoTableError, match=r"does not use the heap as in known versions"):
        memory_globals(GoBinary.open(ElfFile.from_bytes(bytes(data))))
