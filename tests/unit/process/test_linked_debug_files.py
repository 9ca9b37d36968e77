"""Debug files that were made in memory: which one is taken, and how its segments read."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ebpfprof.process.debug_files import DebugFiles, Found
from ebpfprof.process.file_opener import FileOpener
from symbolizer import ElfFile
from tests.unit.symbolizer.elf.elf_writer import SHT_NOTE, ElfWriter, Load, Part, note

ID = bytes.fromhex("c0ffee0123456789")
BY_ID = "usr/lib/debug/.build-id/c0/ffee0123456789.debug"
PROGRAM = "/opt/app/server"
DEBUG_INFO = Part(".debug_info", data=b"what the debugger reads")


def build_id(number: bytes = ID) -> Part:
    return Part(".note.gnu.build-id", data=note(b"GNU\0", 3, number), kind=SHT_NOTE)


def debug_file(*sections: Part) -> bytes:
    """As elfutils makes it: the sizes of its segments are those of the program."""
    code = Load(0x1000, b"\xcc" * 64)
    return ElfWriter(segments=[code], sections=[*sections, DEBUG_INFO]).build()


def link(name: str, to: bytes) -> Part:
    text = name.encode() + b"\0"
    text += bytes(-len(text) % 4)
    return Part(".gnu_debuglink", data=text + struct.pack("<I", zlib.crc32(to)))


@dataclass
class Root:
    """The root folder of a target, and its program."""

    folder: Path
    fd: int

    def put(self, path: str, data: bytes) -> None:
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)

    def found(self, *sections: Part, path: str = PROGRAM) -> tuple[Found, bytes]:
        """What is found for a program with these sections; and its debug information."""
        file = self.folder.with_name("program")
        file.write_bytes(
            ElfWriter(segments=[Load(0x1000, b"\x90" * 64)], sections=[*sections]).build()
        )
        with ElfFile.open(file) as elf:
            found = DebugFiles(FileOpener()).find(elf, path, self.fd)
        if not found.elf:
            return found, b""
        with found.elf as debug:
            section = debug.sections[".debug_info"]
            return found, debug.read_offset(section.offset, section.size)


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    folder = tmp_path / "root"
    folder.mkdir()
    made = Root(folder, os.open(folder, os.O_PATH | os.O_DIRECTORY))
    yield made
    os.close(made.fd)


def test_a_debug_file_is_found_by_build_id(root: Root) -> None:
    root.put(BY_ID, debug_file(build_id()))
    found, data = root.found(build_id())
    assert (found.path, data, found.refused) == (f"/{BY_ID}", DEBUG_INFO.data, ())


@pytest.mark.parametrize("folder", ["/opt/app", "/opt/app/.debug", "/usr/lib/debug/opt/app"])
def test_a_debug_file_is_found_by_its_link(root: Root, folder: str) -> None:
    debug = debug_file()
    root.put(f"{folder}/server.debug", debug)
    found, data = root.found(link("server.debug", debug))
    assert (found.path, data) == (f"{folder}/server.debug", DEBUG_INFO.data)


def test_with_a_build_id_the_crc_need_not_be_right(root: Root) -> None:
    root.put("/opt/app/server.debug", debug_file(build_id()))
    found, data = root.found(build_id(), link("server.debug", b"another file"))
    assert (found.path, data) == ("/opt/app/server.debug", DEBUG_INFO.data)


@pytest.mark.parametrize(
    ("sections", "debug", "why"),
    [
        (
            [build_id()],
            [build_id(ID[::-1])],
            "its build id is 8967452301eeffc0, not c0ffee0123456789",
        ),
        ([], [], "its CRC is"),
    ],
)
def test_another_file_is_refused(
    root: Root, sections: list[Part], debug: list[Part], why: str
) -> None:
    root.put("/opt/app/server.debug", debug_file(*debug))
    found, _ = root.found(*sections, link("server.debug", b"another file"))
    assert found.elf is None
    (refused,) = found.refused
    assert refused.startswith(f"/opt/app/server.debug is not used as the debug file of {PROGRAM}: ")
    assert why in refused


@pytest.mark.parametrize("name", ["", ".", "..", "../server.debug", "server"])
def test_a_link_to_elsewhere_or_to_itself_leads_nowhere(root: Root, name: str) -> None:
    debug = debug_file()
    root.put("/opt/server.debug", debug)
    root.put(PROGRAM, debug)
    assert root.found(link(name, debug))[0] == Found(None, "", ())


def test_segments_of_a_debug_file_read_as_empty(root: Root) -> None:
    debug = debug_file(build_id())
    root.put(BY_ID, debug)
    file = root.folder.with_name("program")
    file.write_bytes(
        ElfWriter(segments=[Load(0x1000, b"\x90" * 64)], sections=[build_id()]).build()
    )
    size_at, end = 64 + 32, len(debug)  # p_filesz of the first program header (elf(5))
    expected = debug[:size_at] + bytes(8) + debug[size_at + 8 :]
    assert debug[size_at] == 64
    with ElfFile.open(file) as elf:
        found = DebugFiles(FileOpener()).find(elf, PROGRAM, root.fd)
    assert found.elf
    with found.elf as opened:
        for start in (0, 60, size_at, size_at + 3, size_at + 8):
            for limit in (size_at + 5, size_at + 8, size_at + 20, end):
                if start < limit:
                    assert opened.read_offset(start, limit - start) == expected[start:limit]
