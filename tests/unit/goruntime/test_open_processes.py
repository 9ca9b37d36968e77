"""A process is open once, whatever uses it, and closed by its last user."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from ebpfprof.errors import CorruptBinary, NoSuchProcess, NotGoProgram, TargetGone
from ebpfprof.goruntime.open_processes import OpenProcesses
from symbolizer import ElfFile, GoBinary
from symbolizer.dwarf.sections import dwarf_section
from symbolizer.elf.table import FileTable, StringTable
from symbolizer.errors import GoTableError
from tests.descriptors import Held, held_of
from tests.images.image import image
from tests.images.readers import traceback
from tests.toolchains import MINORS
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load
from tests.unit.symbolizer.go_programs import program

THREADS = 8
ROUNDS = 60


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of a program that is not Go's."""
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def switching_often() -> Iterator[None]:
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval_s)


def mapped(pid: int) -> int:
    """An address that the process has mapped."""
    return int(Path(f"/proc/{pid}/maps").read_text().split("-")[0], 16)


def together(work: Callable[[int], object]) -> None:
    """Have threads do it at the same time, each with its number. Raises what one of them raises."""
    starting = threading.Barrier(THREADS)

    def one(number: int) -> None:
        starting.wait()
        work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(one, range(THREADS)))


def test_all_users_have_the_same_process(child: subprocess.Popen[bytes]) -> None:
    processes, address = OpenProcesses(), mapped(child.pid)
    assert held_of(child.pid) == Held()
    with processes.open(child.pid) as first:
        with processes.open(child.pid) as second:
            assert first is second
            assert second.target.memory is first.target.memory
            assert held_of(child.pid) == Held(pidfds=1, memories=1)
        assert first.target.memory.read(address, 8)
        with pytest.raises(NotGoProgram):
            first.binary()
    assert held_of(child.pid) == Held()


@pytest.mark.usefixtures("switching_often")
def test_threads_that_come_and_go_share_it(child: subprocess.Popen[bytes]) -> None:
    processes, address = OpenProcesses(), mapped(child.pid)
    expected = Path(f"/proc/{child.pid}/exe").readlink()

    def use(number: int) -> None:
        chance = random.Random(number)
        for _ in range(ROUNDS):
            with ExitStack() as held:
                for _ in range(chance.randrange(1, 4)):
                    process = held.enter_context(processes.open(child.pid))
                    assert process.target.exe_name == str(expected)
                    assert len(process.target.memory.read(address, 8)) == 8

    with processes.open(child.pid) as process:
        together(use)
        assert process.target.memory.read(address, 8)
        assert held_of(child.pid) == Held(pidfds=1, memories=1)
    together(use)  # now each may be the last user
    assert held_of(child.pid) == Held()


def test_an_ended_process_is_noticed_by_its_users_and_not_given_to_others() -> None:
    processes = OpenProcesses()
    child = subprocess.Popen(["sleep", "3600"])
    address = mapped(child.pid)
    with processes.open(child.pid) as process:
        assert process.target.memory.read(address, 8)
        child.kill()
        child.wait()
        with pytest.raises(TargetGone):
            process.target.memory.read(address, 8)
        with pytest.raises(TargetGone):
            process.target.require_running()
        with pytest.raises(NoSuchProcess), processes.open(child.pid):
            pass
    assert held_of(child.pid) == Held()


def test_after_an_exec_the_pid_stands_for_another_program() -> None:
    """As after its reuse: the earlier users keep what they have, the next get what runs now."""
    processes = OpenProcesses()
    script = "read line; exec sleep 3600"
    with subprocess.Popen(["/bin/sh", "-c", script], stdin=subprocess.PIPE) as child:
        assert child.stdin
        with processes.open(child.pid) as before:
            child.stdin.write(b"go\n")
            child.stdin.flush()
            while before.target.ending() is None:
                os.sched_yield()
            with processes.open(child.pid) as after, processes.open(child.pid) as again:
                assert after is again is not before
                assert after.target.exe_name != before.target.exe_name
                after.target.require_running()
                with pytest.raises(TargetGone):
                    before.target.require_running()
            with processes.open(child.pid) as later:
                assert later is not before
        assert held_of(child.pid) == Held()
        child.kill()


@pytest.mark.parametrize("error", [GoTableError("its tables contradict"), struct.error("short")])
def test_errors_of_its_file_become_sentences(
    child: subprocess.Popen[bytes], error: Exception
) -> None:
    with (
        pytest.raises(CorruptBinary, match=rf"sleep \(process {child.pid}\): .* build it again"),
        OpenProcesses().open(child.pid),
    ):
        raise error
    assert held_of(child.pid) == Held()


@pytest.mark.usefixtures("switching_often")
def test_threads_get_the_same_strings_of_a_table() -> None:
    """The ledger of a table that overlaps nowhere has nothing to object to."""
    strings = [f"function{number:05}" for number in range(2000)]
    data = b"".join(string.encode() + b"\0" for string in strings)
    elf = ElfFile.from_bytes(ElfWriter([Load(0x1000, data)]).build())
    offset = elf.vaddr_to_offset(0x1000)
    for _ in range(5):
        table = StringTable(FileTable(elf, offset, len(data), "names"), 100)
        found: list[list[str]] = [[] for _ in range(THREADS)]

        def read(number: int, table: StringTable = table, found: list[list[str]] = found) -> None:
            found[number] = [table.at(14 * index) for index in range(len(strings))]

        together(read)
        assert all(each == strings for each in found)
        assert all(
            one is other for each in found for one, other in zip(each, found[0], strict=True)
        )


@pytest.mark.machine
@pytest.mark.usefixtures("switching_often")
def test_threads_share_what_is_kept_of_a_file() -> None:
    """Its memory is counted once, and given back as a whole."""
    data = program()
    with ElfFile.from_bytes(data) as alone:
        whole = GoBinary.open(alone)
        pcs = [function.entry for function in whole.functions()][::7]
        expected = whole.frames_many(pcs)
        dwarf_section(alone, "debug_info")
        kept = alone.allowance._kept_bytes
    assert kept
    for _ in range(3):
        with ElfFile.from_bytes(data) as elf:
            binary = GoBinary.open(elf)

            def read(number: int, binary: GoBinary = binary) -> None:
                assert binary.frames_many(pcs[number:] + pcs[:number]) == expected
                dwarf_section(binary.elf, "debug_info")

            together(read)
            assert elf.allowance._kept_bytes == kept
        assert elf.allowance._kept_bytes == 0


@pytest.mark.usefixtures("switching_often")
def test_threads_read_the_goroutines_of_one_process() -> None:
    with image(MINORS[-1]).opened() as go:
        expected = traceback(go)
        found = [""] * THREADS

        def read(number: int) -> None:
            found[number] = traceback(go)

        together(read)
        assert found == [expected] * THREADS
