"""The limit of memory and CPU time for all files of one process together."""

from __future__ import annotations

import struct
import subprocess
import threading
import zlib
from pathlib import Path

import pytest

from symbolizer import ElfFile
from symbolizer.allowance import Allowance
from symbolizer.errors import TooMuchToRead
from symbolizer.native.binary import NativeBinary

MIB = 1 << 20


class Clocks:
    """Two clocks that stand still unless they are set."""

    def __init__(self) -> None:
        self.cpu_s = self.now_s = 100.0

    def allowance(self, max_cpu_s: float) -> Allowance:
        return Allowance(
            max_cpu_s=max_cpu_s, cpu_clock=lambda: self.cpu_s, clock=lambda: self.now_s
        )


def test_released_memory_can_be_used_again() -> None:
    allowance = Allowance(max_bytes=3 * MIB)
    allowance.keep(2 * MIB)
    with pytest.raises(TooMuchToRead, match="more than 3 MiB of memory"):
        allowance.keep(2 * MIB)
    assert allowance.exceeded == "more than 3 MiB of memory"
    allowance.keep(MIB)
    allowance.release(2 * MIB)
    allowance.keep(2 * MIB)


def test_only_time_inside_counts_and_nested_time_counts_once() -> None:
    clocks = Clocks()
    allowance = clocks.allowance(10)
    for _ in range(2):
        with allowance:
            clocks.cpu_s += 1
            with allowance:
                clocks.cpu_s += 3
        clocks.cpu_s += 100  # for something else
        allowance.check()
    with allowance:
        clocks.cpu_s += 2
        allowance.check()
        clocks.cpu_s += 0.5
        with pytest.raises(TooMuchToRead, match="10 s of CPU time"):
            allowance.check()
    with pytest.raises(TooMuchToRead), allowance:
        pytest.fail("it was entered")
    assert allowance.exceeded == "more than 10 s of CPU time"


def test_a_tenth_of_the_elapsed_time_is_allowed_on_top() -> None:
    clocks = Clocks()
    allowance = clocks.allowance(10)
    with allowance:
        clocks.cpu_s += 14
    with pytest.raises(TooMuchToRead), allowance:
        pytest.fail("it was entered")
    clocks.now_s += 41
    with allowance:
        allowance.check()


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Libraries of about 20 KB each, with DWARF of 40 MiB."""
    folder = tmp_path_factory.mktemp("bombs")
    source, plain = folder / "lib.c", folder / "plain.so"
    source.write_text("int answer(int x) { return x + 1; }\n")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", plain, source], check=True)
    # Units of version 2 without an entry, one after the other.
    unit = struct.pack("<IHIB", 1 << 20, 2, 0, 8).ljust((1 << 20) + 4, b"\0")
    info = unit * 40
    section = folder / "info"
    section.write_bytes(b"ZLIB" + len(info).to_bytes(8, "big") + zlib.compress(info))
    made = [folder / f"lib{number}.so" for number in range(4)]
    for path in made:
        add = f"--add-section=.zdebug_info={section}"
        subprocess.run(["objcopy", add, plain, path], check=True)
    return made


@pytest.mark.machine
def test_compressed_sections_of_many_files_share_one_allowance(bombs: list[Path]) -> None:
    allowance = Allowance(max_bytes=100 * MIB)
    gave_up = []
    for path in bombs:
        elf = ElfFile.open(path, allowance)
        answer = next(
            struct.unpack_from("<Q", elf.read_offset(table.offset + at, 24), 8)[0]
            for table in [elf.sections[".symtab"]]
            for at in range(0, table.size, 24)
            if name_of(elf, table.offset + at) == b"answer"
        )
        native = NativeBinary(elf)
        frames = native.frames_many([answer])[answer]
        assert [frame.function for frame in frames] == ["answer"], "symbols need little"
        gave_up.append(native.gave_up)
    assert gave_up == [False, False, True, True]
    assert allowance.exceeded == "more than 100 MiB of memory"


def name_of(elf: ElfFile, symbol: int) -> bytes:
    (at,) = struct.unpack("<I", elf.read_offset(symbol, 4))
    strings = elf.sections[".strtab"]
    return elf.read_offset(strings.offset + at, min(32, strings.size - at)).split(b"\0")[0]


@pytest.mark.machine
def test_closing_a_file_releases_its_memory(bombs: list[Path]) -> None:
    allowance = Allowance(max_bytes=50 * MIB)
    for path in bombs:
        with ElfFile.open(path, allowance) as elf:
            native = NativeBinary(elf)
            native.frames_many([0x1000])
            assert not native.gave_up
    assert not allowance.exceeded


@pytest.mark.machine
def test_no_more_names_once_the_time_is_used_up(bombs: list[Path]) -> None:
    clocks = Clocks()
    allowance = clocks.allowance(5)
    with ElfFile.open(bombs[0], allowance) as elf:
        with allowance:
            clocks.cpu_s += 6
        with pytest.raises(TooMuchToRead):
            NativeBinary(elf).frames_many([0x1000])


def test_each_thread_is_charged_its_own_time() -> None:
    """Threads of different ages at the same time, as where processes share a program."""
    clock = threading.local()
    clock.cpu_s = 0.0
    allowance = Allowance(max_cpu_s=10, cpu_clock=lambda: clock.cpu_s, clock=lambda: 0.0)

    def work() -> None:
        clock.cpu_s = 1000.0
        with allowance:
            clock.cpu_s += 4
            allowance.check()

    with allowance:
        other = threading.Thread(target=work)
        other.start()
        other.join()
        clock.cpu_s += 5
        allowance.check()
    with allowance:
        clock.cpu_s += 2
        with pytest.raises(TooMuchToRead):
            allowance.check()
    assert allowance.exceeded
