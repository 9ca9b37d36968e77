"""Addresses of the memory profile's variables, in every Go version and build mode."""

from __future__ import annotations

import pytest

from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.codeanalysis.heap_globals import heap_globals
from tests.builds import BUILDS, pairs
from tests.unit.symbolizer.codeanalysis.test_globals import symbol
from tests.unit.symbolizer.elf.elf_writer import without_sections
from tests.unit.symbolizer.go_programs import binary, only, program

WITH_SYMBOLS = [build for build in BUILDS if build[1] != "stripped"]
# Where sweepdata has active.state (runtime/mgcsweep.go).
SWEEP_STATE = {"1.18": 28, "1.19": 28, "1.20": 28, "1.21": 28}
WITH_ONE_LOCK = ("1.17", "1.18")
FUNCTIONS = [
    "runtime.sweepone",
    "runtime.mProf_FlushLocked",
    "runtime.mProf_Flush",
    "runtime.mProf_Free",
    "runtime.allocmcache",
]


@pytest.mark.parametrize("build", pairs(*WITH_SYMBOLS))
def test_the_addresses_equal_the_symbols(build: tuple[str, str]) -> None:
    data = program(*build)
    for each in (data, without_sections(data)):
        opened = GoBinary.open(ElfFile.from_bytes(each))
        found = heap_globals(opened)
        is_old = build[0] in WITH_ONE_LOCK
        assert found.buckets == symbol(data, "runtime.mbuckets")
        assert found.rate == symbol(data, "runtime.MemProfileRate")
        assert found.cycle == symbol(data, "runtime.mProf" if is_old else "runtime.mProfCycle")
        assert found.cycle_shift == (0 if is_old else 1)
        lock = "runtime.proflock" if is_old else "runtime.profMemActiveLock"
        assert found.active_lock == symbol(data, lock)
        if build[0] == "1.17":
            flag = opened.layout.offset("mheap", "sweepDrained")
            assert found.sweep == symbol(data, "runtime.mheap_") + flag
        else:
            assert found.sweep == symbol(data, "runtime.sweep") + SWEEP_STATE.get(build[0], 20)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_code_that_names_no_variable_is_refused(name: str) -> None:
    data = bytearray(program())
    function = only(binary(), name)
    at = binary().elf.vaddr_to_offset(function.entry)
    data[at : at + function.end - function.entry] = b"\x90" * (function.end - function.entry)
    with pytest.raises(GoTableError, match=r"does not use the variables of the memory profile"):
        heap_globals(GoBinary.open(ElfFile.from_bytes(bytes(data))))
