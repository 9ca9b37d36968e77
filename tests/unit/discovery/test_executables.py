"""Inspecting executables: Go or not, the version, the build mode."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ebpfprof.discovery.executables import NOT_GO, Executable, Executables
from tests.builds import builds
from tests.kernel.programs import changed, section, with_version, without_build_info
from tests.toolchains import toolchain
from tests.unit.symbolizer.elf.elf_writer import without_sections
from tests.unit.symbolizer.go_programs import FRAMES, program

pytestmark = pytest.mark.machine

MODES = {
    "stripped": "exe stripped",
    "pie": "pie",
    "cgo": "exe cgo",
    "cgopie": "pie cgo",
}
NEWEST = "1.27"


def taken_for(path: Path) -> Executable:
    table = Executables()
    table.begin_survey()
    fd = os.open(path, os.O_RDONLY)
    try:
        return table.of_file(fd)
    finally:
        os.close(fd)


def built(minor: str = NEWEST, mode: str = "plain") -> Path:
    return toolchain(minor).build(FRAMES, mode)


def written(data: bytes, folder: Path) -> Path:
    path = folder / "program"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("minor", "mode"), builds())
def test_every_version_and_mode_is_recognised(minor: str, mode: str) -> None:
    version = f"go{toolchain(minor).version}"
    found = taken_for(built(minor, mode))
    assert found == Executable(True, version, MODES.get(mode, "exe"), module="ebpfprof.test")


def test_go_is_recognised_without_build_information(tmp_path: Path) -> None:
    found = taken_for(without_build_info(built(mode="stripped"), tmp_path))
    assert found == Executable(True, f"go{toolchain(NEWEST).version}", "exe stripped")


def test_go_is_recognised_without_sections(tmp_path: Path) -> None:
    found = taken_for(written(without_sections(program()), tmp_path))
    assert found == Executable(
        True, f"go{toolchain(NEWEST).version}", "exe stripped", module="ebpfprof.test"
    )


@pytest.mark.parametrize("version", ["go1.99.1", "devel go1.28-abcdef"])
def test_an_unknown_version_is_named_and_refused(version: str, tmp_path: Path) -> None:
    found = taken_for(with_version(built(NEWEST), tmp_path, version))
    assert (found.is_go, found.go_version, found.build_mode) == (True, version, "exe")
    assert version in found.why_not
    assert "go1.17 to go1.27" in found.why_not


def test_a_corrupt_go_program_is_refused_with_the_reason(tmp_path: Path) -> None:
    at, _ = section(built(), ".gopclntab")
    found = taken_for(changed(built(), tmp_path, (at + 8, b"\xff" * 8)))  # the function count
    assert (found.is_go, found.go_version) == (True, f"go{toolchain(NEWEST).version}")
    assert "cannot hold" in found.why_not


def test_internally_linked_cgo_is_recognised(tmp_path: Path) -> None:
    """As it does where only the standard library uses cgo: net, os/user."""
    path, source = tmp_path / "workloads", FRAMES.parent / "workloads"
    for enabled, mode in (("1", "exe cgo"), ("0", "exe")):
        flags = ("-ldflags=-linkmode=internal", "-o", path, ".")
        toolchain(NEWEST).go("build", *flags, cwd=source, env={"CGO_ENABLED": enabled})
        assert taken_for(path).build_mode == mode


def test_statically_linked_cgo_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    flags = ("-tags=withcgo", "-ldflags=-linkmode=external -extldflags=-static")
    env = {"CGO_ENABLED": "1"}
    toolchain(NEWEST).go("build", *flags, "-o", path, ".", cwd=FRAMES, env=env)
    assert taken_for(path).build_mode == "exe cgo"


def test_a_race_detecting_build_is_recognised(tmp_path: Path) -> None:
    old, new = b"build\tCGO_LDFLAGS=\n", b'build\t-race="true"\n'
    data = built(mode="cgo").read_bytes()
    assert old in data
    path = written(data.replace(old, new), tmp_path)
    assert taken_for(path).build_mode == "exe cgo race"


@pytest.mark.full
def test_a_go_program_of_another_architecture_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "frames"
    for machine, words in (("386", "32-bit"), ("arm64", "AArch64")):
        toolchain(NEWEST).go(
            *("build", "-o", path, "."),
            cwd=FRAMES.parent / "sleeper",
            env={"GOARCH": machine, "CGO_ENABLED": "0"},
        )
        found = taken_for(path)
        assert found.is_go
        assert words in found.why_not


def test_other_programs_are_not_go(tmp_path: Path) -> None:
    foreign = Executable(False, why_not=NOT_GO)
    assert taken_for(Path("/bin/sh")) == foreign
    assert taken_for(written(b"#!/bin/sh\n", tmp_path)) == foreign
    assert taken_for(written(b"", tmp_path)) == foreign
    assert taken_for(written(b"\x7fELF" + bytes(200), tmp_path)) == foreign
    bare = without_sections(Path("/bin/sh").read_bytes())
    assert taken_for(written(bare, tmp_path)) == foreign
    i386 = bytearray(Path("/bin/sh").read_bytes())
    i386[18:20] = b"\x03\x00"  # e_machine
    assert taken_for(written(bytes(i386), tmp_path)) == foreign
    assert taken_for(Path("/dev/null")) == foreign


def test_a_program_with_other_sections_is_not_searched() -> None:
    """Or it would be too large."""
    table = Executables(max_searched_bytes=0)
    table.begin_survey()
    assert table.of(os.getpid()) == Executable(False, why_not=NOT_GO)


def test_a_survey_searches_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    path = written(without_sections(program()), tmp_path)
    table = Executables(max_searched_bytes=2 * path.stat().st_size)
    fd = os.open(path, os.O_RDONLY)
    for _ in range(2):
        table.begin_survey()
        assert [table.of_file(fd).is_go for _ in range(3)] == [True, True, False]
    assert "too large" in table.of_file(fd).why_not
    os.close(fd)


def test_a_file_is_inspected_once() -> None:
    table = Executables()
    table.begin_survey()
    first = table.of(os.getpid())
    assert table.of(os.getpid()) is first
    with pytest.raises(OSError, match="No such file"):
        table.of(1 << 30)


def test_an_exec_during_the_lookup_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The process calls exec after its file was looked up, and before it is opened."""
    table = Executables()
    table.begin_survey()
    really_open = os.open
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda _, flags: really_open(built(), flags))
        assert table.of(os.getpid()).is_go
    assert not table.of(os.getpid()).is_go
