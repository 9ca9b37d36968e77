"""Records the images of memory again: what the kernel shows of a program that stands still.

    python -m tests.images.record [MINOR...]     all versions of Go unless some are named

As root. The program (tests/images/waits) parks its goroutines, says what it is, and waits for
input: nobody stops it. All of its writable memory is saved, what is in /proc, and of its file what
our readers want. Each image must then give the same to all readers as the whole file did.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final
from unittest import mock

from symbolizer import ElfFile
from symbolizer.elf import table
from symbolizer.go.pclntab import find_pclntab
from tests.images.image import FOLDER, Image, lines_of, not_zero
from tests.images.pages import ChangedBytes, Part, SavedBytes, joined
from tests.images.readers import READERS, opened, traceback
from tests.images.target import SEARCH_BYTES, SavedTarget, Shown
from tests.toolchains import Toolchain, ToolchainError, toolchain, toolchains

_PROGRAM: Final = Path(__file__).parent / "waits"
_PATIENCE_S: Final = 20.0
BLOCK_BYTES: Final = 32
_READER_BLOCK_BYTES: Final = 256  # instead of those of symbolizer.elf.table
_BEFORE_LINKNAME_CHECKS: Final = ("1.17", "1.18", "1.19", "1.20", "1.21", "1.22")
_WITHOUT_CGO: Final = {"CGO_ENABLED": "0"}
_OF_PROCESS: Final = ("auxv", "maps", "environ", "stat")
_OF_THREADS: Final = ("status", "syscall", "comm")


@contextmanager
def _running(program: Path, lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Start the program, and tell it to do what the lines say; its pid, and what it says.

    For it there is no other file than its own: so it knows nothing of this machine.
    """
    process = subprocess.Popen(
        [f"/{program.name}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"GOMAXPROCS": "2", "GOGC": "off"},  # off: no memory goes back meanwhile
        preexec_fn=partial(os.chroot, program.parent),
        text=True,
    )
    assert process.stdin
    assert process.stdout
    try:
        said = ""
        while not (said.rpartition("\n")[0].rpartition("\n")[2].startswith("ready")):
            line = process.stdout.readline()
            if not line:
                raise ToolchainError(f"{program} ended: {said}")
            said += line
        for line in lines:
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
            if not answer.startswith("did "):
                raise ToolchainError(f"{program} did not {line}: {answer}")
        yield process.pid, said.removesuffix("ready\n")
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def _memory(pid: int) -> list[Part]:
    """The writable memory of a process, without pages of zeros."""
    found: list[Part] = []
    maps = Path(f"/proc/{pid}/maps").read_bytes()
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
        for line in lines_of(maps):
            if line.is_saved:
                data = os.pread(file.fileno(), line.limit - line.start, line.start)
                found += not_zero(line.start, data)
    return found


def _files(pid: int) -> dict[str, bytes]:
    """What is saved of /proc/PID."""
    folder = Path(f"/proc/{pid}")
    threads = [path.name for path in (folder / "task").iterdir()]
    names = [*_OF_PROCESS, *(f"task/{each}/{name}" for each in threads for name in _OF_THREADS)]
    names += [f"fdinfo/{path.name}" for path in (folder / "fd").iterdir()]
    return {name: (folder / name).read_bytes() for name in names}


def _steady(pid: int) -> tuple[list[Part], dict[str, bytes]]:
    """Memory and files once nothing moves any more."""
    until_s = time.monotonic() + _PATIENCE_S
    before = _memory(pid), _files(pid)
    while (now := (_memory(pid), _files(pid))) != before:
        if time.monotonic() > until_s:
            raise TimeoutError(f"Process {pid} does not stand still.")
        before = now
        time.sleep(0.05)  # the runtime's own thread slows down while nothing happens
    return now


class _NotedFile(SavedBytes):
    """A whole Go program that notes which of its blocks are needed.

    Long reads of code and of the records of functions are searches: what they find is read again.
    Of long reads of tables of values by address, the first table is needed.
    """

    def __init__(self, data: bytes) -> None:
        super().__init__([(0, data)])
        self._data = data
        self._wanted = bytearray(len(data) // BLOCK_BYTES + 1)
        with ElfFile.from_bytes(data) as elf:
            text, header = elf.sections[".text"], find_pclntab(elf).header
            start = elf.vaddr_to_offset(header.vaddr)
            end = start + header.size
            functions = start + header.pcln_offset + 8 * header.function_count + 8
            self._searched = [(text.offset, text.offset + text.size), (functions, end)]
            self._tables = start + header.pctab_offset, start + header.pcln_offset
            self._zeroed = self._tables[0], end
        self.note(start, self._tables[0])

    def note(self, start: int, limit: int) -> None:
        """Remember that these bytes are needed."""
        if limit - start >= SEARCH_BYTES:
            if any(first <= start < last for first, last in self._searched):
                return
            if self._tables[0] <= start < self._tables[1]:  # symbolizer.go.pcvalue.read_table
                limit = self._data.index(0, start + 1) + 1
        first, behind = start // BLOCK_BYTES, -(-limit // BLOCK_BYTES)
        self._wanted[first:behind] = b"\1" * (behind - first)

    def up_to(self, address: int, size: int) -> bytes:
        self.note(address, min(address + size, len(self._data)))
        return super().up_to(address, size)

    def filled(self, address: int, size: int) -> bytes:
        return self.up_to(address, size)

    def wanted(self) -> list[Part]:
        """What was noted; of tables, zeros in place of the rest, as they are read in blocks."""
        found: list[Part] = []
        for start in range(0, len(self._data), BLOCK_BYTES):
            block = self._data[start : start + BLOCK_BYTES]
            if self._wanted[start // BLOCK_BYTES]:
                found.append((start, block))
            elif self._zeroed[0] <= start < self._zeroed[1]:
                found.append((start, bytes(len(block))))
        return joined(found)


class _NotedMemory(ChangedBytes):
    """The memory of the same program: what is read of mapped parts of the file is noted there."""

    def __init__(self, whole: Image, file: _NotedFile) -> None:
        super().__init__(whole.memory, {}, frozenset())
        self._file = file
        lines = lines_of(whole.files["maps"])
        self._mapped = [each for each in lines if each.name == whole.name and not each.is_writable]

    def up_to(self, address: int, size: int) -> bytes:
        for line in self._mapped:
            first, limit = max(address, line.start), min(address + size, line.limit)
            if first < limit:
                shift = line.offset - line.start
                self._file.note(first + shift, limit + shift)
        return super().up_to(address, size)


def _build(tools: Toolchain, folder: Path) -> Path:
    """Build the program without what debuggers need, and without names of this machine."""
    source = folder / "source"
    shutil.copytree(_PROGRAM, source)
    module = source / "go.mod"
    module.write_text(module.read_text().replace("go 1.19", f"go {tools.minor}"))
    flags = "-w" if tools.minor in _BEFORE_LINKNAME_CHECKS else "-w -checklinkname=0"
    program = folder / "waits"
    options = *tools.without_vcs, *tools.overlay(folder), f"-ldflags={flags}"
    tools.go("build", "-trimpath", *options, "-o", program, ".", cwd=source, env=_WITHOUT_CGO)
    return program


def photographed(program: Path, name: str, version: str, lines: Sequence[str] = ()) -> Image:
    """What the kernel shows of the program once it stands still; all of its file.

    It does what the lines say before. The image calls the file `name`.
    """
    with _running(program, lines) as (pid, said):
        pages, files = _steady(pid)
        moment_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        links = {f"fd/{path.name}": os.readlink(path) for path in Path(f"/proc/{pid}/fd").iterdir()}
    data = program.read_bytes()
    files["maps"] = files["maps"].replace(str(program).encode(), name.encode())
    return Image(version, name, moment_ns, said, files, links, len(data), pages, [(0, data)])


def reduced(wholes: Sequence[Image], read: Callable[[Sequence[Shown]], object]) -> list[Image]:
    """Images of one program, with only what `read` wants of the executable.

    Both give it the same answers.
    """
    file = _NotedFile(wholes[0].parts[0][1])
    shown = [replace(each.shown(_NotedMemory(each, file)), file=file) for each in wholes]
    with mock.patch.object(table, "BLOCK_BYTES", _READER_BLOCK_BYTES):
        answer = read(shown)
    found = [replace(each, parts=file.wanted()) for each in wholes]
    assert read([each.shown() for each in found]) == answer
    return found


def _read(shown: Sequence[Shown]) -> str:
    with opened(SavedTarget(shown[0])) as go:
        for read in READERS.values():
            read(go)
        return traceback(go)


def main(arguments: Sequence[str]) -> int:
    """Record the versions; print the size of each image in bytes."""
    for minor in arguments or toolchains():
        path, tools = FOLDER / f"{minor}.xz", toolchain(minor)
        with tempfile.TemporaryDirectory() as folder:
            program = _build(tools, Path(folder))
            whole = photographed(program, "/usr/bin/waits", tools.version)
        reduced([whole], _read)[0].save(path)
        print(minor, path.stat().st_size)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
