"""Corrupt DWARF of native code: an answer or a typed error, soon, and in little memory."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from symbolizer import ElfFile, SymbolizerError
from symbolizer.native.lines import NativeFrame, NativeLines
from tests.fuzz.test_symbolizer_fuzz import EXTREME, HUGE, SMALL, limits
from tests.unit.symbolizer.native.native_programs import native_program

pytestmark = pytest.mark.full

SECTIONS: Final = ("info", "abbrev", "line", "str", "line_str", "aranges", "ranges", "rnglists")
Change = tuple[str, int, int, int]
CHANGES: Final = st.tuples(
    st.sampled_from(SECTIONS),
    st.integers(0, 1 << 16) | st.integers(0, 200),
    st.sampled_from((1, 1, 2, 4, 8)),
    st.sampled_from((*SMALL, *EXTREME, *HUGE)) | st.integers(0, 255),
)


@cache
def sound(version: int) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return native_program(Path(folder), "c++", f"-gdwarf-{version}").read_bytes()


def ask(version: int, changes: list[Change]) -> None:
    data = bytearray(sound(version))
    with ElfFile.from_bytes(bytes(data)) as elf:
        text = elf.sections[".text"]
        for section, position, size, value in changes:
            place = elf.sections.get(f".debug_{section}")
            if place is not None:
                at = place.offset + position % (place.size - size)
                data[at : at + size] = (value & (1 << 8 * size) - 1).to_bytes(size, "little")
    wanted = range(text.vaddr, text.vaddr + text.size, 13)
    with (
        limits(),
        ElfFile.from_bytes(bytes(data)) as elf,
        suppress(SymbolizerError),
    ):  # a typed error is an answer, too
        lines = NativeLines.open(elf)
        assert lines is not None
        found = lines.frames(wanted)
        assert found.keys() == set(wanted)
        assert changes or any(found.values())
        assert all(isinstance(frame, NativeFrame) for frames in found.values() for frame in frames)


@pytest.mark.parametrize("version", [4, 5])
@settings(
    max_examples=200,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes=st.lists(CHANGES, min_size=1, max_size=6))
@example(changes=[])
def test_corrupt_dwarf(version: int, changes: list[Change]) -> None:
    ask(version, changes)


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("section", ["abbrev", "aranges", "line", "info"])
@pytest.mark.parametrize("value", [0, 0x7F, 0xFF])
def test_bytes_at_the_start_set_to_an_extreme(version: int, section: str, value: int) -> None:
    for position in range(0, 80, 2):
        ask(version, [(section, position, 1, value)])
