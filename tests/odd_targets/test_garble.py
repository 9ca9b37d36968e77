"""Programs that an obfuscator changed, as garble 0.18 does (internal/linker/patches in it).

Garble gives pclntab a random magic number, which the runtime's own check knows, and removes the Go
version. The programs here get the same changes. Their magic number fits the short form of the
check's instruction. Garble also encrypts the first word of each function's record, which ebpfprof
does not read.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ebpfprof.errors import ExitCode
from symbolizer import ElfFile, GoBinary, GoTableError
from symbolizer.elf.relocations import RelocatedWords
from symbolizer.go.moduledata import find_moduledata
from symbolizer.go.name_index import NameIndex
from symbolizer.go.pclntab import find_pclntab
from symbolizer.x86.disasm import detailed_decoder
from tests.kernel.programs import TARGETS, changed, pclntab_parts, program, without_build_info
from tests.kernel.refusal import refused
from tests.kernel.verbs import verb
from tests.recorder import only_profile, recording
from tests.targets_run import Target
from tests.toolchains import toolchain

MAGIC = 0xFFFFFFA5
CHECK = "runtime.moduledataverify1"
NAMES_OFFSET_AT = 32
SECTIONS_AT, SECTION_COUNT_AT = 40, 60  # e_shoff, e_shnum


def obfuscated(original: Path, folder: Path) -> Path:
    """A copy in this new folder whose pclntab has another magic number; it runs."""
    folder.mkdir()
    with ElfFile.open(original) as elf:
        table = find_pclntab(elf)
        table_at = elf.vaddr_to_offset(table.header.vaddr)
        (check,) = NameIndex(table).indices([CHECK])[CHECK]
        text = find_moduledata(elf, table, RelocatedWords(elf)).text_start
        begin, end = (elf.vaddr_to_offset(text + int(table.entries[check + i])) for i in (0, 1))
    (compare,) = (
        instruction
        for instruction in detailed_decoder().disasm(original.read_bytes()[begin:end], begin)
        if instruction.mnemonic == "cmp" and instruction.op_str.endswith(", -0xf")
    )
    return changed(
        original,
        folder,
        (table_at, struct.pack("<I", MAGIC)),
        (compare.address + compare.size - 1, bytes([MAGIC & 0xFF])),
    )


@pytest.mark.target("garble, with its version left", "everything, with garbled names")
def test_a_program_with_another_magic_number_is_recorded(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    with (
        Target.start(obfuscated(program("nopprof"), tmp_path / "bin")) as target,
        recording(target.pid, out) as recorder,
    ):
        target.ask("go", "done")
        recorder.interrupt()
        assert recorder.finish().code == ExitCode.OK
    samples = only_profile(out).samples
    frames = [
        frame for sample in samples for location in sample.locations for frame in location.frames
    ]
    assert {frame.function for frame in frames} > {"main.handOver", "main.hold", "main.gather"}


def test_without_sections_its_pclntab_is_found_by_its_structure(tmp_path: Path) -> None:
    copy = obfuscated(program("nopprof"), tmp_path / "bin")
    with ElfFile.open(copy) as elf:
        functions = list(GoBinary.open(elf).functions())
    (tmp_path / "bare").mkdir()
    no_sections = (SECTIONS_AT, bytes(8)), (SECTION_COUNT_AT, bytes(2))
    with ElfFile.open(changed(copy, tmp_path / "bare", *no_sections)) as elf:
        assert not elf.sections
        assert list(GoBinary.open(elf).functions()) == functions


def test_without_the_structure_it_is_damaged(tmp_path: Path) -> None:
    copy = obfuscated(program("nopprof"), tmp_path / "bin")
    (tmp_path / "damaged").mkdir()
    names_offset = (pclntab_parts(copy).at + NAMES_OFFSET_AT, struct.pack("<Q", 80))
    broken = changed(copy, tmp_path / "damaged", names_offset)
    with ElfFile.open(broken) as elf, pytest.raises(GoTableError, match="unknown header"):
        find_pclntab(elf)


@pytest.mark.target("garble, without its version", "CPU profile")
@pytest.mark.full
def test_without_a_version_the_message_names_the_obfuscation(tmp_path: Path) -> None:
    original, out, bare = tmp_path / "nopprof", tmp_path / "out", tmp_path / "bare"
    flags = "-ldflags=-s -w -X=runtime.buildVersion=unknown"
    toolchain("1.27").go("build", flags, "-o", original, ".", cwd=TARGETS / "nopprof")
    out.mkdir()
    bare.mkdir()
    copy = without_build_info(obfuscated(original, tmp_path / "bin"), bare)
    with Target.start(copy) as target:
        output = refused(ExitCode.UNSUPPORTED_GO, "--pid", str(target.pid), folder=out)
        assert (
            "the program is obfuscated, as garble does: it does not name its Go version" in output
        )
        assert "build it without the obfuscator" in output
        assert "attach --profile cpu records a program of any version" in output

        rows = json.loads(verb("list", "--json", "--name", "nopprof").stdout)["processes"]
        (row,) = (row for row in rows if row["pid"] == target.pid)
        assert not row["supported"]
        assert "obfuscated" in row["why_not"]

        with recording(target.pid, out, "--profile", "cpu") as recorder:
            target.ask("go", "done")
            recorder.interrupt()
            finished = recorder.finish()
    assert finished.code == ExitCode.OK
    assert "obfuscated, as garble does" in finished.stderr
    assert any("obfuscated" in comment for comment in only_profile(out).comments)
