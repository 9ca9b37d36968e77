"""Debug files: a file's debug file is found, in the target's root only."""

from __future__ import annotations

import gc
import os
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from ebpfprof.process import debug_files as debugfiles
from ebpfprof.process.debug_files import DebugFiles, Found
from ebpfprof.process.file_opener import FileOpener
from symbolizer import ElfFile
from symbolizer.allowance import Allowance
from symbolizer.errors import TooMuchToRead

pytestmark = pytest.mark.machine

LIBRARY = "/opt/app/lib.so"
SOURCE = "int answer(int x) { return x + %d; }\n"


def run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


@dataclass(frozen=True)
class Built:
    """A stripped library that links to `lib.debug`, and that file."""

    stripped: Path
    debug: Path

    @property
    def build_id(self) -> str:
        with ElfFile.open(self.stripped) as elf:
            return elf.build_id

    @property
    def by_id(self) -> str:
        return f"/usr/lib/debug/.build-id/{self.build_id[:2]}/{self.build_id[2:]}.debug"


def build(folder: Path, number: int, *flags: str) -> Built:
    folder.mkdir()
    source, whole = folder / "lib.c", folder / "whole.so"
    built = Built(folder / "lib.so", folder / "lib.debug")
    source.write_text(SOURCE % number)
    run("gcc", "-g", "-shared", "-fPIC", *flags, "-o", whole, source)
    run("objcopy", "--only-keep-debug", whole, built.debug)
    run("objcopy", "--strip-all", f"--add-gnu-debuglink={built.debug}", whole, built.stripped)
    return built


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built") / "lib", 1)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("other") / "lib", 2)


@pytest.fixture(scope="module")
def without_id(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("without") / "lib", 1, "-Wl,--build-id=none")


class Root:
    """A root folder of a target."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.folder.mkdir()
        self.fd = os.open(folder, os.O_PATH | os.O_DIRECTORY)

    def at(self, path: str) -> Path:
        """Where `path` of the target is for us; its folder is made."""
        place = self.folder / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        return place

    def put(self, file: Path, path: str) -> None:
        shutil.copy(file, self.at(path))

    def find(self, stripped: Path, path: str = LIBRARY) -> Found:
        with ElfFile.open(stripped) as elf:
            found = DebugFiles(FileOpener()).find(elf, path, self.fd)
        if found.elf:
            found.elf.close()
        return found


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Root]:
    gc.collect()  # files that other tests left open are closed now, not during this test
    files = len(os.listdir("/proc/self/fd"))
    made = Root(tmp_path / "root")
    yield made
    os.close(made.fd)
    assert len(os.listdir("/proc/self/fd")) == files


PLACES = (
    "/opt/app/lib.debug",
    "/opt/app/.debug/lib.debug",
    "/usr/lib/debug/opt/app/lib.debug",
)


def test_a_debug_file_is_found_by_build_id(built: Built, root: Root) -> None:
    root.put(built.debug, built.by_id)
    with ElfFile.open(built.stripped) as elf:
        found = DebugFiles(FileOpener()).find(elf, LIBRARY, root.fd)
    assert (found.path, found.refused) == (built.by_id, ())
    assert found.elf is not None
    with found.elf as debug:
        assert debug.build_id == built.build_id
        assert ".debug_info" in debug.sections
        assert debug.sections[".text"].nobits


@pytest.mark.parametrize("place", PLACES)
def test_a_debug_file_is_found_by_link(place: str, built: Built, root: Root) -> None:
    root.put(built.debug, place)
    found = root.find(built.stripped)
    assert found.elf is not None
    assert (found.path, found.refused) == (place, ())


def test_a_debug_file_is_found_by_link_without_build_ids(without_id: Built, root: Root) -> None:
    assert without_id.build_id == ""
    root.put(without_id.debug, PLACES[0])
    assert root.find(without_id.stripped).path == PLACES[0]


def test_a_missing_debug_file_is_not_an_error(built: Built, root: Root) -> None:
    assert root.find(built.stripped) == Found(None, "", ())


def test_another_build_id_is_refused_and_the_search_continues(
    built: Built, other: Built, root: Root
) -> None:
    root.put(other.debug, built.by_id)
    found = root.find(built.stripped)
    assert found.elf is None
    (reason,) = found.refused
    assert built.by_id in reason
    assert LIBRARY in reason
    assert f"its build id is {other.build_id}, not {built.build_id}" in reason
    root.put(built.debug, PLACES[2])
    found = root.find(built.stripped)
    assert (found.path, found.refused) == (PLACES[2], (reason,))


def test_a_debug_file_without_the_build_id_is_refused(
    built: Built, without_id: Built, root: Root
) -> None:
    root.put(without_id.debug, built.by_id)
    found = root.find(built.stripped)
    assert found.elf is None
    assert "its build id is missing" in found.refused[0]


def test_another_crc_is_refused_without_build_ids(without_id: Built, root: Root) -> None:
    root.at(PLACES[0]).write_bytes(without_id.debug.read_bytes() + b"\0")
    found = root.find(without_id.stripped)
    assert found.elf is None
    (reason,) = found.refused
    wanted = zlib.crc32(without_id.debug.read_bytes())
    assert f"not {wanted:08x}" in reason


def test_with_equal_build_ids_no_crc_is_computed(
    built: Built, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debugfiles, "MAX_CRC_BYTES", 0)
    root.put(built.debug, PLACES[0])
    assert root.find(built.stripped).path == PLACES[0]


def test_a_crc_is_computed_once_for_all_files_that_name_it(
    without_id: Built, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.at(PLACES[1]).write_bytes(without_id.debug.read_bytes() + b"\0")
    computed = []

    def crc32(chunk: bytes, before: int) -> int:
        computed.append(len(chunk))
        return 1

    monkeypatch.setattr(zlib, "crc32", crc32)
    debug_files = DebugFiles(FileOpener())
    for _ in range(3):
        with ElfFile.open(without_id.stripped) as elf:
            assert debug_files.find(elf, LIBRARY, root.fd).elf is None
    assert computed == [without_id.debug.stat().st_size + 1]


def test_crcs_are_charged_to_the_allowance_of_the_process(without_id: Built, root: Root) -> None:
    large = without_id.debug.read_bytes() + bytes(50 << 20)
    root.at(PLACES[0]).write_bytes(large)
    seconds = count()
    allowance = Allowance(max_cpu_s=40, cpu_clock=lambda: next(seconds), clock=lambda: 0.0)
    with (
        ElfFile.open(without_id.stripped, allowance) as elf,
        pytest.raises(TooMuchToRead, match="40 s of CPU time"),
    ):
        DebugFiles(FileOpener()).find(elf, LIBRARY, root.fd)


def test_the_right_crc_with_another_build_id_is_refused(
    built: Built, other: Built, root: Root, tmp_path: Path
) -> None:
    astray = tmp_path / "astray.so"
    run("objcopy", "--remove-section=.gnu_debuglink", built.stripped, astray)
    run("objcopy", f"--add-gnu-debuglink={other.debug}", astray)
    root.put(other.debug, PLACES[0])
    found = root.find(astray)
    assert found.elf is None
    assert f"its build id is {other.build_id}, not {built.build_id}" in found.refused[0]


def test_no_crc_of_an_endless_file_is_computed(
    without_id: Built, root: Root, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debugfiles, "MAX_CRC_BYTES", without_id.debug.stat().st_size - 1)
    root.put(without_id.debug, PLACES[0])
    found = root.find(without_id.stripped)
    assert found.elf is None
    assert "too many to check its CRC" in found.refused[0]


def test_a_file_with_its_own_dwarf_needs_no_debug_file(built: Built, root: Root) -> None:
    root.put(built.debug, built.by_id)
    assert root.find(built.stripped.with_name("whole.so")) == Found(None, "", ())


@pytest.mark.parametrize("name", [b"../app/lib.debug", b"..", b"", b"/opt/app/lib.debug"])
def test_a_link_names_a_file_in_the_folder(
    name: bytes, built: Built, root: Root, tmp_path: Path
) -> None:
    crc = zlib.crc32(built.debug.read_bytes()).to_bytes(4, "little")
    link, astray = tmp_path / "link", tmp_path / "astray.so"
    link.write_bytes(name.ljust(len(name) // 4 * 4 + 4, b"\0") + crc)
    run("objcopy", "--remove-section=.gnu_debuglink", built.stripped, astray)
    run("objcopy", f"--add-section=.gnu_debuglink={link}", astray)
    root.put(built.debug, "/opt/app/lib.debug")
    root.at("/opt/app/.debug/x")
    assert root.find(astray) == Found(None, "", ())


def test_a_file_that_names_itself_is_not_its_debug_file(built: Built, root: Root) -> None:
    root.put(built.stripped, PLACES[0])
    assert root.find(built.stripped, PLACES[0]) == Found(None, "", ())


@pytest.mark.parametrize("up", ["", "../../../../../../../../../../../../../../.."])
def test_links_do_not_leave_the_root(up: str, built: Built, root: Root, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy(built.debug, outside / "lib.debug")
    link = root.at(built.by_id)
    link.symlink_to(f"{up}{outside}/lib.debug")
    assert link.read_bytes() == built.debug.read_bytes()
    root.at("/opt/app/x").parent.joinpath(".debug").symlink_to(f"{up}{outside}")
    assert root.find(built.stripped) == Found(None, "", ())
    # The same links are good once what they name is in the root.
    root.put(built.debug, f"{outside}/lib.debug")
    assert root.find(built.stripped).path == built.by_id
    link.unlink()
    assert root.find(built.stripped).path == PLACES[1]


def test_a_link_out_by_proc_is_not_followed(root: Root) -> None:
    root.at("/self").symlink_to(f"/proc/self/fd/{root.fd}")
    own = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError, match="symbolic links"):
            FileOpener().open_in_root(own, f"/proc/self/fd/{root.fd}/self")
    finally:
        os.close(own)


@pytest.mark.parametrize("kind", ["fifo", "folder", "socket"])
def test_only_regular_files_are_opened(kind: str, built: Built, root: Root) -> None:
    place = root.at(built.by_id)
    if kind == "fifo":
        os.mkfifo(place)  # to open it would wait for a writer
    elif kind == "folder":
        place.mkdir()
    else:
        os.mknod(place, 0o140600)
    found = root.find(built.stripped)
    assert found.elf is None
    (reason,) = found.refused
    assert reason.endswith("not a regular file")


def test_a_link_in_a_circle_is_refused(built: Built, root: Root) -> None:
    root.at(built.by_id).symlink_to(built.by_id)
    assert "symbolic links" in root.find(built.stripped).refused[0]


@pytest.mark.parametrize("size", [0, 3, 40, 64, 200])
def test_a_truncated_file_is_refused(size: int, built: Built, root: Root) -> None:
    root.at(built.by_id).write_bytes(built.debug.read_bytes()[:size])
    found = root.find(built.stripped)
    assert found.elf is None
    assert len(found.refused) == 1


def test_debug_files_of_elfutils_are_accepted(built: Built, root: Root) -> None:
    data = bytearray(built.debug.read_bytes())
    (first,) = struct.unpack_from("<Q", data, 32)
    (count,) = struct.unpack_from("<H", data, 56)
    for at in range(first, first + count * 56, 56):
        (memory_bytes,) = struct.unpack_from("<Q", data, at + 40)
        struct.pack_into("<QQ", data, at + 32, memory_bytes + (1 << 30), memory_bytes + (1 << 30))
    root.at(built.by_id).write_bytes(data)
    with ElfFile.open(built.stripped) as elf:
        found = DebugFiles(FileOpener()).find(elf, LIBRARY, root.fd)
    assert found.refused == ()
    assert found.elf is not None
    with found.elf as debug:
        assert debug.build_id == built.build_id
        assert debug.segments
        assert {segment.filesz for segment in debug.segments} == {0}


def test_the_root_of_ebpfprof_is_searched_by_build_id_only(
    built: Built, root: Root, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    monkeypatch.setattr(debugfiles, "DEBUG_FOLDER", str(own))
    for place in (own / "opt/app/lib.debug", own / built.by_id.removeprefix("/usr/lib/debug/")):
        assert root.find(built.stripped) == Found(None, "", ())
        place.parent.mkdir(parents=True)
        shutil.copy(built.debug, place)
    assert root.find(built.stripped).path == str(place)


def test_the_root_of_ebpfprof_is_not_searched_twice(
    built: Built, other: Built, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(debugfiles, "DEBUG_FOLDER", str(tmp_path))
    place = tmp_path / built.by_id.removeprefix("/usr/lib/debug/")
    place.parent.mkdir(parents=True)
    shutil.copy(other.debug, place)
    own = os.open("/", os.O_PATH | os.O_DIRECTORY)
    try:
        with ElfFile.open(built.stripped) as elf:
            assert len(DebugFiles(FileOpener()).find(elf, LIBRARY, own).refused) == 1
    finally:
        os.close(own)
