"""Corrupt Go programs: each one gets a typed error or an answer, soon, and in little memory."""

from __future__ import annotations

import resource
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Final

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from symbolizer import ElfFile, GoBinary, SymbolizerError, read_build_info
from symbolizer.dwarf.constants import TAG_STRUCTURE, TAG_SUBPROGRAM, TAG_VARIABLE
from symbolizer.dwarf.entries import Dwarf
from symbolizer.locks.names import LockNames
from tests.toolchains import MINORS, toolchain
from tests.unit.symbolizer.go_programs import module_vaddr
from tests.unit.symbolizer.locks import locks_program as locksprogram

pytestmark = pytest.mark.full

FRAMES: Final = Path(__file__).resolve().parents[1] / "targets" / "frames"
PROGRAMS: Final = (("1.19", "stripped"), ("1.25", "pie"), (MINORS[-1], "stripped"))

# Far above any lookup, far below a hang or the use of a size from the file.
TIME_LIMIT_S: Final = 60
MEMORY_LIMIT_BYTES: Final = 768 << 20

SMALL: Final = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 1 << 20, 1 << 30)
EXTREME: Final = ((1 << 31) - 1, 1 << 31, (1 << 32) - 2, (1 << 32) - 1, 1 << 32, 1 << 40)
HUGE: Final = ((1 << 63) - 1, 1 << 63, (1 << 64) - 1)


@dataclass(frozen=True)
class Change:
    """Bytes written at a place of a region; `size` 0 cuts the file off there."""

    region: str
    position: int
    size: int
    value: int


@dataclass(frozen=True)
class Program:
    """A sound program, the places of its parts in the file, and addresses to look up closely."""

    data: bytes
    regions: dict[str, tuple[int, int]]
    """Offset and size in bytes."""
    pcs: list[int]


REGIONS: Final = (
    *("elf", "sections", "header", "functab", "record", "tables", "tree", "units", "files"),
    *("names", "moduledata", "buildinfo", "schedinit", "anywhere"),
)
CHANGES: Final = st.builds(
    Change,
    st.sampled_from(REGIONS),
    st.integers(0, 1 << 16) | st.integers(0, 200),
    st.sampled_from((1, 1, 4, 4, 8, 8, 0)),
    st.sampled_from((*SMALL, *EXTREME, *HUGE)) | st.integers(0, 255),
)


@cache
def sound(minor: str, mode: str) -> Program:
    data = toolchain(minor).build(FRAMES, mode).read_bytes()
    elf = ElfFile.from_bytes(data)
    binary = GoBinary.open(elf)
    table = binary._table
    header = table.header
    start = elf.vaddr_to_offset(header.vaddr)
    # The compiler inlines many calls into it, several levels deep.
    (focus,) = binary.functions_named("main.exercise")
    record = table.function(focus.index)
    # A second function of that name is a wrapper for assembly.
    schedinit = max(
        binary.functions_named("runtime.schedinit"), key=lambda each: each.end - each.entry
    )
    positions = [record.pcsp, record.pcfile, record.pcln, record.inline_index]
    pctab = start + header.pctab_offset
    info = data.index(b"\xff Go buildinf:")
    shoff = struct.unpack_from("<Q", data, 40)[0]
    regions = {
        "elf": (0, 64 + 56 * 12),
        "sections": (shoff, len(data) - shoff),
        "header": (start, 72),
        "functab": (start + header.pcln_offset, 8 * (header.function_count + 1)),
        "record": (start + header.pcln_offset + int(table.offsets[focus.index]), 96),
        "tables": (pctab + min(positions), max(positions) - min(positions) + 512),
        "tree": (elf.vaddr_to_offset(gofunc(binary)) + (record.inline_tree or 0), 256),
        "units": (start + header.cu_offset, header.file_offset - header.cu_offset),
        "files": (start + header.file_offset, header.pctab_offset - header.file_offset),
        "names": (start + header.name_offset, header.cu_offset - header.name_offset),
        "moduledata": (
            elf.vaddr_to_offset(module_vaddr(binary.elf)),
            binary.layout.size("moduledata"),
        ),
        "buildinfo": (info, 256),
        "schedinit": (elf.vaddr_to_offset(schedinit.entry), schedinit.end - schedinit.entry),
        "anywhere": (0, len(data)),
    }
    others = [(function.entry + function.end) // 2 for function in binary.functions()]
    return Program(data, regions, [*range(focus.entry, focus.end), *others[::9]])


def gofunc(binary: GoBinary) -> int:
    offset = module_vaddr(binary.elf) + binary.layout.offset("moduledata", "gofunc")
    return int.from_bytes(binary.elf.read(offset, 8), "little")


def changed(program: Program, changes: list[Change]) -> bytes:
    data = bytearray(program.data)
    for change in changes:
        offset, size = program.regions[change.region]
        at = min(offset + change.position % size, len(data))
        if change.size == 0:
            del data[at:]
        else:
            value = change.value & ((1 << 8 * change.size) - 1)
            data[at : at + change.size] = value.to_bytes(change.size, "little")
    return bytes(data)


def ask_everything(data: bytes, pcs: list[int]) -> None:
    """Use the whole interface; all answers must make sense."""
    with ElfFile.from_bytes(data) as elf:
        assert len(elf.build_id) <= 128
        answer_or_error(lambda: read_build_info(elf))
        binary = GoBinary.open(elf, allow_unknown_version=True)
        assert binary.text_start <= binary.text_end
        answer_or_error(lambda: check_frames(binary, pcs))
        answer_or_error(lambda: check_functions(binary))
        answer_or_error(lambda: check_calls(binary))
        for pc in pcs[:20]:
            answer_or_error(partial(binary.sp_delta, pc))


def check_frames(binary: GoBinary, pcs: list[int]) -> None:
    for pc, frames in binary.frames_many(pcs).items():
        function = binary.function_at(pc)
        assert bool(frames) == (function is not None)
        for frame in frames:
            assert isinstance(frame.function, str)
            assert isinstance(frame.file, str)
            assert abs(frame.line) < 1 << 31
        if function is not None:
            assert frames[-1].function == function.name
            assert frames[0].pc == pc


def check_functions(binary: GoBinary) -> None:
    last = binary.text_start
    for function in binary.functions():
        assert last <= function.entry <= function.end <= binary.text_end
        last = function.entry


def check_calls(binary: GoBinary) -> None:
    for park in binary.functions_named("runtime.gopark"):
        for site in binary.call_sites(park)[park.entry]:
            assert binary.function_at(site) is not None


def answer_or_error(ask: Callable[[], object]) -> None:
    """Ask; an error of the symbolizer's own is as good as an answer, any other fails the test."""
    with suppress(SymbolizerError):  # as the docstring says
        ask()


@contextmanager
def limits() -> Iterator[None]:
    """Fail on a hang, and on an allocation by a size from the file."""

    def too_long(_number: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {TIME_LIMIT_S} s")

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    old_memory = resource.getrlimit(resource.RLIMIT_AS)
    old_handler = signal.signal(signal.SIGALRM, too_long)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_LIMIT_BYTES, old_memory[1]))
    signal.alarm(TIME_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, old_memory)


@pytest.mark.parametrize(("minor", "mode"), PROGRAMS)
@settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes=st.lists(CHANGES, min_size=1, max_size=4))
@example(changes=[])
def test_a_corrupt_program_gets_an_error_or_an_answer(
    minor: str, mode: str, changes: list[Change]
) -> None:
    program = sound(minor, mode)
    data = changed(program, changes)
    with limits():
        answer_or_error(lambda: ask_everything(data, program.pcs))


@pytest.mark.parametrize(("minor", "mode"), PROGRAMS)
@pytest.mark.parametrize("value", [0, (1 << 32) - 1, (1 << 63) - 1])
@pytest.mark.parametrize(
    ("region", "step", "size"),
    [
        ("elf", 8, 232),
        ("header", 8, 72),
        ("record", 4, 96),
        ("moduledata", 8, 360),
        ("tree", 4, 80),
    ],
)
def test_every_word_of_the_headers_set_to_an_extreme(
    minor: str, mode: str, value: int, region: str, step: int, size: int
) -> None:
    program = sound(minor, mode)
    pcs = program.pcs[::17]
    with limits():
        for position in range(0, size, step):
            data = changed(program, [Change(region, position, step, value)])
            answer_or_error(partial(ask_everything, data, pcs))


DWARF_REGIONS: Final = (
    *("variables", "functions", "types", "abbrev", "symbols", "strings", "sections", "data"),
)
DWARF_CHANGES: Final = st.builds(
    Change,
    st.sampled_from(DWARF_REGIONS),
    st.integers(0, 1 << 16) | st.integers(0, 400),
    st.sampled_from((1, 1, 1, 2, 4, 4, 8)),
    st.sampled_from((*SMALL, *EXTREME, *HUGE)) | st.integers(0, 255),
)


@cache
def sound_dwarf(minor: str) -> Program:
    """The program `locks`, and the places of the entries from which names come."""
    data = locksprogram.uncompressed(minor)
    elf = ElfFile.from_bytes(data)
    info = elf.sections[".debug_info"].offset
    dwarf = Dwarf(elf)

    def entries(name: str, tag: int, size: int) -> tuple[int, int]:
        return info + dwarf.find(name, (tag,))[0].offset, size

    sections = {
        region: (elf.sections[name].offset, elf.sections[name].size)
        for region, name in (
            ("abbrev", ".debug_abbrev"),
            ("symbols", ".symtab"),
            ("strings", ".strtab"),
            ("data", ".data"),
        )
    }
    regions = {
        **sections,
        "variables": entries("main.global", TAG_VARIABLE, 600),
        "functions": entries("main.(*several).add", TAG_SUBPROGRAM, 1 << 12),
        "types": entries("main.priceCache", TAG_STRUCTURE, 1 << 12),
        "sections": (struct.unpack_from("<Q", data, 40)[0], 64 * len(elf.sections)),
    }
    return Program(data, regions, [])


def ask_names(minor: str, data: bytes) -> None:
    """Ask for the names of all locks: the answer is a name or none, never an error."""
    output = locksprogram.said(minor, "plain")
    with ElfFile.from_bytes(data) as elf:
        names = LockNames(GoBinary.open(elf))
        for address in (*output.variables.values(), *output.elsewhere):
            assert isinstance(names.variable(address), str | None)
        for caller, kind, _ in output.callers:
            assert isinstance(names.field([caller], kind), str | None)


@pytest.mark.parametrize("minor", ["1.19", MINORS[-1]])
@settings(
    max_examples=400,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(changes=st.lists(DWARF_CHANGES, min_size=1, max_size=6))
@example(changes=[])
def test_corrupt_dwarf_costs_nothing_but_names(minor: str, changes: list[Change]) -> None:
    data = changed(sound_dwarf(minor), changes)
    locksprogram.said(minor, "plain")
    with limits():
        ask_names(minor, data)


@pytest.mark.parametrize("minor", ["1.19", MINORS[-1]])
@pytest.mark.parametrize("value", [0, 0x7F, 0xFF])
def test_every_byte_of_the_abbreviations_set_to_an_extreme(minor: str, value: int) -> None:
    program = sound_dwarf(minor)
    locksprogram.said(minor, "plain")
    with limits():
        for position in range(program.regions["abbrev"][1]):
            ask_names(minor, changed(program, [Change("abbrev", position, 1, value)]))
