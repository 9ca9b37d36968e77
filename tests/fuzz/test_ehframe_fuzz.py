"""Corrupt unwind tables: each one gets a typed error or rules that make sense, soon."""

from __future__ import annotations

import struct
import subprocess
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from symbolizer.elf.file import ElfFile
from symbolizer.unwind.eh_frame import EhFrame
from tests.fuzz.test_symbolizer_fuzz import (
    EXTREME,
    HUGE,
    SMALL,
    Change,
    Program,
    answer_or_error,
    changed,
    limits,
)
from tests.unit.symbolizer.unwind.eh_writer import CODE_VADDR, INITIAL, Cie, Fde, eh_elf

pytestmark = pytest.mark.full

SOURCE: Final = Path(__file__).parents[1] / "unit/symbolizer/unwind/eh_frames.c"
REGIONS: Final = ("elf", "hdr", "pairs", "frames", "common", "jumps", "sections")
CHANGES: Final = st.builds(
    Change,
    st.sampled_from(REGIONS),
    st.integers(0, 1 << 12) | st.integers(0, 100),
    st.sampled_from((1, 1, 1, 2, 4, 4, 8, 0)),
    st.sampled_from((*SMALL, *EXTREME, *HUGE)) | st.integers(0, 255),
)
ROUNDS: Final = settings(
    max_examples=600,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@cache
def sound() -> Program:
    """A program with a PLT, a realigned stack and a function without callers."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "program"
        subprocess.run(["gcc", "-O2", "-Wl,-z,lazy", "-o", path, SOURCE], check=True)
        data = path.read_bytes()
    elf = ElfFile.from_bytes(data)
    hdr, frames = elf.sections[".eh_frame_hdr"], elf.sections[".eh_frame"]
    shoff = struct.unpack_from("<Q", data, 40)[0]
    (plt_program,) = (
        frames.offset + at
        for at in range(frames.size)
        if data.startswith(b"\x0f\x0b\x77\x08\x80\x00", frames.offset + at)
    )
    regions = {
        "elf": (0, 64 + 56 * 14),
        "hdr": (hdr.offset, 12),
        "pairs": (hdr.offset + 12, hdr.size - 12),
        "frames": (frames.offset, frames.size),
        "common": (frames.offset, 24),
        "jumps": (plt_program - 32, 64),
        "sections": (shoff, len(data) - shoff),
    }
    code = [elf.sections[name] for name in (".plt", ".text")]
    pcs = [vaddr for part in code for vaddr in range(part.vaddr, part.vaddr + part.size, 5)]
    return Program(data, regions, pcs)


def ask(data: bytes, pcs: list[int]) -> None:
    """Ask for the rules of all addresses; the answers must make sense."""
    with ElfFile.from_bytes(data) as elf:
        table = EhFrame.open(elf)
        if table is not None:
            for pc in pcs:
                answer_or_error(partial(check_rules, table, pc))


def check_rules(table: EhFrame, pc: int) -> None:
    found = table.ranges(pc)
    assert len(found) < 1 << 16
    for each in found:
        assert each.start < each.end
        assert abs(each.rule.cfa_offset) < 1 << 31
        assert each.rule.bp_offset is None or 0 < abs(each.rule.bp_offset) < 1 << 31
    for before, after in pairwise(found):
        assert before.end <= after.start


@ROUNDS
@given(changes=st.lists(CHANGES, min_size=1, max_size=4))
@example(changes=[])
def test_corrupt_tables_get_an_error_or_rules(changes: list[Change]) -> None:
    program = sound()
    with limits():
        answer_or_error(partial(ask, changed(program, changes), program.pcs))


@pytest.mark.parametrize("region", ["hdr", "pairs", "common", "jumps"])
@pytest.mark.parametrize("value", [0, 0x7F, 0x80, 0xFF])
def test_every_byte_of_the_tables_set_to_an_extreme(region: str, value: int) -> None:
    program = sound()
    with limits():
        for position in range(program.regions[region][1]):
            data = changed(program, [Change(region, position, 1, value)])
            answer_or_error(partial(ask, data, program.pcs[::7]))


# Valid instructions, with small and with large operands, and any other bytes.
NUMBERS: Final = st.sampled_from((b"\0", b"\1", b"\6", b"\7", b"\x10", b"\x7f")) | st.binary(
    max_size=11
)
INSTRUCTIONS: Final = st.tuples(st.integers(0, 255), st.lists(NUMBERS, max_size=2)).map(
    lambda each: bytes([each[0]]) + b"".join(each[1])
)
PROGRAMS: Final = st.lists(INSTRUCTIONS, max_size=40).map(b"".join)


@ROUNDS
@given(
    program=PROGRAMS,
    initial=st.just(INITIAL) | PROGRAMS,
    data=st.sampled_from((b"\x1b", b"\0", b"\x10", b"\x01")) | st.binary(max_size=4),
    letters=st.sampled_from((b"zR", b"zRS", b"zPLR", b"")) | st.binary(max_size=4),
    has_hdr=st.booleans(),
)
def test_any_bytes_as_instructions(
    program: bytes, initial: bytes, data: bytes, letters: bytes, has_hdr: bool
) -> None:
    cie = Cie(letters.replace(b"\0", b""), data, initial)
    file = eh_elf([Fde(program), Fde(program, CODE_VADDR + 0x80)], cie, has_hdr=has_hdr)
    with limits():
        answer_or_error(partial(ask, file, [CODE_VADDR, CODE_VADDR + 0x81]))


def test_the_longest_programs_are_run_to_their_end() -> None:
    # The longest entry, with other rules at every second byte.
    longest = (b"\x41\x0e\x10\x41\x0e\x18" * (1 << 14))[: (1 << 16) - 64]
    file = eh_elf([Fde(longest, size=1 << 20)])
    with limits():
        ask(file, [CODE_VADDR] * 10)
        table = EhFrame.open(ElfFile.from_bytes(file))
        assert table is not None
        assert len(table.ranges(CODE_VADDR)) > 20000


def test_functions_without_a_table_are_searched_up_to_a_bound() -> None:
    fdes = [Fde(b"", CODE_VADDR + 0x40 * index) for index in range(300_000)]
    file = eh_elf(fdes, has_hdr=False)
    with limits():
        ask(file, [fde.start for fde in fdes[::1000]])
        table = EhFrame.open(ElfFile.from_bytes(file))
        assert table is not None
        assert table.ranges(fdes[200_000].start)
        assert table.ranges(fdes[-1].start) == ()
