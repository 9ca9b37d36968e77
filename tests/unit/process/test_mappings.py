"""The mappings of a target: objects, their addresses and their bias."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ebpfprof.process import mappings
from ebpfprof.process.mappings import (
    MappedObjects,
    ObjectKind,
)
from ebpfprof.process.process import MapsLine, TargetEnd
from ebpfprof.profile.model import Mapping
from symbolizer import ElfError
from tests.unit.process.scripted_target import BUILD_ID, CODE, Clock, ScriptedTarget, image, line
from tests.unit.symbolizer.elf.elf_writer import ElfWriter, Load
from tests.unit.symbolizer.unwind.eh_writer import PT_GNU_EH_FRAME

TEXT_AT = 64 + 2 * 56  # where ElfWriter puts the first segment's bytes


@pytest.fixture
def target(tmp_path: Path) -> Iterator[ScriptedTarget]:
    exe = tmp_path / "exe"
    exe.write_bytes(image())
    files = len(os.listdir("/proc/self/fd"))
    with ScriptedTarget(exe) as made:
        yield made
    assert len(os.listdir("/proc/self/fd")) == files


def test_files_and_their_build_ids_the_main_binary_first(
    target: ScriptedTarget, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(image(b"\xab" * 20))
    exe = Path(target.exe_name)
    target.lines = [line(0x10000, 0x11000, library), line(0x50000, 0x51000, exe)]
    with MappedObjects(target) as found:
        assert found.mappings == (
            Mapping(0x50000, 0x51000, 0, target.exe_name, BUILD_ID.hex()),
            Mapping(0x10000, 0x11000, 0, str(library), "ab" * 20),
        )
        main, other = found.at(0x50000), found.at(0x10FFF)
        assert main is not None
        assert other is not None
        assert (main.kind, other.kind) == (ObjectKind.FILE, ObjectKind.FILE)
        assert main.elf is not other.elf
        assert other.bias == 0x10000 + TEXT_AT - CODE.vaddr
        assert found.warnings == ()


def test_a_file_mapped_several_times_is_opened_once(target: ScriptedTarget, tmp_path: Path) -> None:
    library, copy = tmp_path / "library.so", tmp_path / "copy.so"
    library.write_bytes(image())
    shutil.copy(library, copy)
    target.lines = [
        line(0x10000, 0x11000, library),
        line(0x20000, 0x21000, library),
        line(0x30000, 0x31000, copy),
    ]
    with MappedObjects(target) as found:
        one, two, three = (found.at(at) for at in (0x10000, 0x20000, 0x30000))
        assert one is not None
        assert two is not None
        assert three is not None
        assert one.elf is two.elf is not None
        assert three.elf is not one.elf


def test_a_rewritten_file_is_read_again(target: ScriptedTarget, tmp_path: Path) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(image())
    target.lines = [line(0x10000, 0x11000, library)]
    with MappedObjects(target) as found:
        library.write_bytes(image(b"\xcd" * 20))
        os.utime(library, ns=(0, 0))
        target.lines = [line(0x20000, 0x21000, library)]
        found.refresh()
        later = found.at(0x20000)
        assert later is not None
        assert later.mapping.build_id == "cd" * 20


def test_mappings_without_a_file_have_their_own_names(target: ScriptedTarget) -> None:
    names = ["", "[anon:code cache]", "[heap]", "[uprobes]", "[vsyscall]"]
    target.lines = [line(0x1000 * n, 0x1000 * n + 1, name=name) for n, name in enumerate(names, 1)]
    with MappedObjects(target) as found:
        assert [mapping.filename for mapping in found.mappings] == ["[jit]", *names[1:]]
        kinds = [each.kind for n in range(1, 6) if (each := found.at(0x1000 * n))]
        assert kinds == [ObjectKind.ANONYMOUS] * 4 + [ObjectKind.VSYSCALL]
        page = found.at(0x1000)
        assert page is not None
        assert (page.elf, page.native(), page.unwind_table(), page.bias) == (None, None, None, 0)


def test_a_file_of_equal_name_but_another_inode_is_not_used(
    target: ScriptedTarget, tmp_path: Path
) -> None:
    library = tmp_path / "library.so"
    library.write_bytes(image())
    target.lines = [replace(line(0x10000, 0x11000, library), inode=1)]
    target.lines += [replace(line(0x20000, 0x21000, library), device=1)]
    with MappedObjects(target) as found:
        for address in (0x10000, 0x20000):
            mapped = found.at(address)
            assert mapped is not None
            assert (mapped.kind, mapped.elf) == (ObjectKind.UNREADABLE, None)
            assert mapped.mapping.filename == str(library)
        assert found.warnings == (
            f"{library} can't be opened: what has its name now is another file",
        )


@pytest.mark.parametrize("what", ["fifo", "text", "empty", "nothing"])
def test_a_file_that_is_not_elf_is_unreadable(
    what: str, target: ScriptedTarget, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    if what == "fifo":
        os.mkfifo(file)
    else:
        file.write_bytes(b"" if what == "empty" else b"#!/bin/sh\n" * 20)
    target.lines = [line(0x10000, 0x11000, file)]
    if what == "nothing":
        file.unlink()
    with MappedObjects(target) as found:
        mapped = found.at(0x10000)
        assert mapped is not None
        assert (mapped.kind, mapped.elf) == (ObjectKind.UNREADABLE, None)
        assert len(found.warnings) == 1


def test_the_main_binary_needs_no_name(target: ScriptedTarget) -> None:
    exe = Path(target.exe_name)
    target.lines = [line(0x10000, 0x11000, exe)]
    exe.unlink()
    with MappedObjects(target) as found:
        main = found.at(0x10000)
        assert main is not None
        assert main.mapping.build_id == BUILD_ID.hex()


def test_unknown_addresses_cause_a_few_refreshes_a_second(target: ScriptedTarget) -> None:
    clock = Clock()
    with MappedObjects(target, clock) as found:
        target.lines = [line(0x10000, 0x11000)]
        assert target.reads == 1
        for _ in range(100):
            assert found.at(0x10000) is None
        assert target.reads == 1
        clock.now_s += 0.3
        assert found.at(0x10000) is not None
        reads = target.reads
        clock.now_s += 0.3
        assert found.at(0x10000) is not None
        assert target.reads == reads
        for _ in range(100):
            assert found.at(0x20000) is None
        assert target.reads == reads + 1


def test_refreshes_take_a_bounded_share_of_the_time(target: ScriptedTarget) -> None:
    clock = Clock()
    with MappedObjects(target, clock) as found:

        def slow() -> tuple[MapsLine, ...]:
            target.reads += 1
            clock.now_s += 2
            return ()

        target.executable_lines = slow  # type: ignore[method-assign]  # a slow kernel
        clock.now_s += 1
        found.at(0x10000)
        reads = target.reads
        clock.now_s += 19
        found.at(0x10000)
        assert target.reads == reads
        clock.now_s += 2
        found.at(0x10000)
        assert target.reads == reads + 1


def test_an_unmapped_object_stays_until_it_is_overwritten(target: ScriptedTarget) -> None:
    target.lines = [line(0x10000, 0x14000)]
    with MappedObjects(target) as found:
        old = found.at(0x10000)
        assert old is not None
        target.lines = []
        found.refresh()
        assert found.at(0x10000) is old
        target.lines = [line(0x12000, 0x15000, name="[anon:new]")]
        found.refresh()
        new = found.at(0x12000)
        assert new is not None
        assert new.mapping.filename == "[anon:new]"
        assert found.at(0x11FFF) is old
        target.lines = [line(0x10000, 0x14000)]
        found.refresh()
        again = found.at(0x13000)
        assert again is not None
        assert again.mapping == old.mapping
        assert found.mappings == (old.mapping, new.mapping)


def test_returned_mappings_stay_in_the_table(target: ScriptedTarget) -> None:
    target.lines = [line(0x10000, 0x11000), line(0x20000, 0x21000)]
    with MappedObjects(target) as found:
        given = found.at(0x10000)
        assert given is not None
        target.lines = [line(0x10000, 0x12000), line(0x20000, 0x22000)]
        found.refresh()
        assert {(mapping.start, mapping.limit) for mapping in found.mappings} == {
            (0x10000, 0x11000),
            (0x10000, 0x12000),
            (0x20000, 0x22000),
        }


def test_a_mapping_that_vanishes_during_a_refresh_is_skipped(target: ScriptedTarget) -> None:
    target.lines = [line(0x10000, 0x11000), line(0x20000, 0x21000)]
    target.later = [[line(0x20000, 0x21000)]]
    with MappedObjects(target) as found:
        assert [mapping.start for mapping in found.mappings] == [0x20000]


def test_mappings_after_an_exec_are_ignored(target: ScriptedTarget) -> None:
    target.lines = [line(0x10000, 0x11000)]
    with MappedObjects(target) as found:
        target.ended = TargetEnd("exec")
        target.lines = [line(0x10000, 0x18000), line(0x20000, 0x21000)]
        found.refresh()
        assert [(mapping.start, mapping.limit) for mapping in found.mappings] == [
            (0x10000, 0x11000)
        ]


def test_the_numbers_of_mappings_and_files_are_limited(
    target: ScriptedTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mappings, "MAX_OBJECTS", 5)
    monkeypatch.setattr(mappings, "MAX_FILES", 3)
    files = [tmp_path / f"{n}.so" for n in range(10)]
    for file in files:
        file.write_bytes(image())
    target.lines = [
        line(0x10000 * n, 0x10000 * n + 0x1000, file) for n, file in enumerate(files, 1)
    ]
    with MappedObjects(target) as found:
        assert len(found.mappings) == 5
        read = [file for n, file in enumerate(files, 1) if (f := found.at(0x10000 * n)) and f.elf]
        assert read == files[:2]  # and the main binary
        assert "more than 5 executable mappings exist; the rest is unknown" in found.warnings
        assert "more than 3 files are mapped; the rest have no names" in found.warnings
        found.refresh()
        assert len(found.mappings) == 5


def test_the_number_of_warnings_is_limited(target: ScriptedTarget, tmp_path: Path) -> None:
    for n in range(40):
        (tmp_path / f"{n}").touch()
    target.lines = [line(0x1000 * n, 0x1000 * n + 1, tmp_path / f"{n}") for n in range(1, 40)]
    with MappedObjects(target) as found:
        assert len(found.warnings) == 16


def test_symbols_are_read_once_per_file_and_failures_reported(
    target: ScriptedTarget, tmp_path: Path
) -> None:
    library, broken = tmp_path / "library.so", tmp_path / "broken.so"
    library.write_bytes(image())
    broken.write_bytes(image(b"\xee" * 20))
    target.lines = [
        line(0x10000, 0x11000, library),
        line(0x20000, 0x21000, library),
        line(0x30000, 0x31000, broken),
    ]
    with MappedObjects(target) as found:
        one, two, three = (found.at(at) for at in (0x10000, 0x20000, 0x30000))
        assert one is not None
        assert two is not None
        assert three is not None
        assert one.native() is one.native() is two.native() is not None
        native = three.native()
        assert native is not None
        assert list(found.warnings) == []
        native.failure = ElfError("of the test")
        assert three.native() is native
        assert found.warnings == (f"{broken} lacks names or lines: of the test",)


def test_an_unwind_table_that_can_not_be_read_is_reported(
    target: ScriptedTarget, tmp_path: Path
) -> None:
    header = Load(0x600000, b"\xee" * 16, kind=PT_GNU_EH_FRAME)
    library = tmp_path / "library.so"
    library.write_bytes(ElfWriter([CODE, header]).build())
    target.lines = [line(0x10000, 0x11000, library), line(0x20000, 0x21000, library)]
    with MappedObjects(target) as found:
        one, two = found.at(0x10000), found.at(0x20000)
        assert one is not None
        assert two is not None
        assert [one.unwind_table(), two.unwind_table(), one.unwind_table()] == [None] * 3
        (warning,) = found.warnings
        assert warning.startswith(f"{library} has an .eh_frame that can't be read: ")


def test_closing_closes_every_file(target: ScriptedTarget, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    library = tmp_path / "library.so"
    library.write_bytes(image())
    target.lines = [line(0x10000, 0x11000, library)]
    found = MappedObjects(target)
    mapped = found.at(0x10000)
    assert mapped is not None
    assert mapped.elf is not None
    assert len(os.listdir("/proc/self/fd")) > before
    found.close()
    found.close()
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ElfError):
        mapped.elf.read_offset(0, 4)
