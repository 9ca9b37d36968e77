"""Remembered code equals the output of the decoder."""

from __future__ import annotations

import pytest

from symbolizer import GoTableError
from symbolizer.x86 import disasm
from symbolizer.x86.call_sites import InstructionStarts
from tests.fuzz import knowncode
from tests.fuzz.parsers import PARSERS

(MACHINE_CODE,) = (each for each in PARSERS if each.name == "machine-code")
INPUTS = [*MACHINE_CODE.seeds(), *(MACHINE_CODE.input(0, number) for number in range(300))]


def test_instructions_are_those_of_the_decoder() -> None:
    stops = 0
    for code in INPUTS:
        expected = disasm.decode(code, 0x401000)
        assert knowncode.decode(code, 0x401000) == expected
        stops += sum(each.size for each in expected) < len(code)
    assert stops  # at bytes that are no instruction


def test_the_same_bytes_elsewhere_are_other_instructions() -> None:
    call = b"\xe8\1\0\0\0"
    first, second = (knowncode.decode(call, at)[0].target for at in (0x1000, 0x2000))
    assert (first, second) == (0x1006, 0x2006)


def test_starts_are_those_of_the_decoder() -> None:
    starts = InstructionStarts()
    entry = 0x401000
    for code in INPUTS:
        for addresses in ([entry], [entry + 7, entry + 31], [entry + len(code) + 9]):
            expected = starts.among(code, entry, addresses)
            assert knowncode.among(starts, code, entry, addresses) == expected


def test_code_of_more_than_a_megabyte_is_refused_as_there() -> None:
    with pytest.raises(GoTableError, match="claims 1048577 bytes"):
        knowncode.decode(bytes((1 << 20) + 1), 0x401000)
