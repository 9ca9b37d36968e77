"""Go versions and Go build information."""

from __future__ import annotations

import struct
from itertools import combinations

import pytest

from symbolizer import (
    BuildInfo,
    ElfFile,
    GoTableError,
    GoVersion,
    UnsupportedGoVersion,
    read_build_info,
)
from tests.unit.symbolizer.elf.elf_writer import PF_R, PF_W, ElfWriter, Load, Part
from tests.unit.varints import varint

DATA = 0x500000
MAGIC = b"\xff Go buildinf:"
MODULES = """path\texample.com/app/cmd/app
mod\texample.com/app\tv1.2.3\th1:abc=
dep\texample.com/one\tv0.1.0\th1:def=
dep\texample.com/two\tv0.2.0
=>\texample.com/fork\tv0.2.1\th1:ghi=
build\t-compiler=gc
build\t-ldflags="-s -w -X \\"main.name=a b\\""
build\tCGO_CFLAGS=
build\t"odd key"=`a "raw" value`
build\tGOARCH=amd64
"""
INFO = BuildInfo(
    version="go1.27.3",
    settings={
        "-compiler": "gc",
        "-ldflags": '-s -w -X "main.name=a b"',
        "CGO_CFLAGS": "",
        "odd key": 'a "raw" value',
        "GOARCH": "amd64",
    },
    module="example.com/app",
    module_version="v1.2.3",
)


def framed(modules: str) -> bytes:
    return bytes(16) + modules.encode() + bytes(16)


def inline(version: bytes = b"go1.27.3", modules: bytes = framed(MODULES)) -> bytes:
    """The form of Go 1.18 and later: the strings follow the header."""
    strings = varint(len(version)) + version + varint(len(modules)) + modules
    return MAGIC + bytes([8, 2]) + bytes(16) + strings


def pointers(version: bytes, modules: bytes, *, size: int = 8, flags: int = 0) -> bytes:
    """The form up to Go 1.17: pointers to string headers, for the segment at DATA."""
    headers = DATA + 32
    strings = headers + 32
    return (
        MAGIC
        + bytes([size, flags])
        + struct.pack("<QQ", headers, headers + 16)
        + struct.pack("<QQQQ", strings, len(version), strings + len(version), len(modules))
        + version
        + modules
    )


def read(data: bytes, *, section: bool = True, before: int = 0) -> BuildInfo | None:
    parts = [Part(".go.buildinfo", DATA + before, len(data))] if section else []
    load = Load(DATA, bytes(before) + data, PF_R | PF_W)
    return read_build_info(ElfFile.from_bytes(ElfWriter([load], parts).build()))


def test_strings_in_place() -> None:
    assert read(inline()) == INFO


def test_pointers_to_strings_name_an_old_version() -> None:
    info = read(
        pointers(b"go1.16.5", framed("path\tcommand-line-arguments\nbuild\tGOARCH=amd64\n"))
    )
    assert info is not None
    assert info.version == "go1.16.5"
    assert info.settings == {"GOARCH": "amd64"}


@pytest.mark.parametrize("before", [16, 4096, (1 << 20) - 16, (1 << 20) + 16])
def test_found_without_a_section(before: int) -> None:
    assert read(inline(), section=False, before=before) == INFO


def test_magic_that_is_not_aligned_is_not_a_build_information() -> None:
    assert read(inline(), section=False, before=8) is None


def test_a_file_without_build_information() -> None:
    assert read(b"no build information here") is None


def test_a_program_without_modules() -> None:
    info = read(inline(modules=b""))
    assert info == BuildInfo("go1.27.3", {})


@pytest.mark.parametrize(
    "data",
    [
        inline()[:-1],
        inline()[:20],
        MAGIC + bytes([8, 2]) + bytes(16) + b"\xff\xff\xff\xff\xff\xff",
        MAGIC + bytes([8, 2]) + bytes(16) + varint(1 << 31),
        inline(version=b"go" * 500),
        pointers(b"go1.16.5", b"", size=4),
        pointers(b"go1.16.5", b"", flags=1),
        MAGIC + bytes([8, 0]) + struct.pack("<QQ", DATA + (1 << 30), 0),
        MAGIC + bytes([8, 0]) + struct.pack("<QQQQ", DATA + 32, 0, DATA, 1 << 60),
    ],
)
def test_corrupt_build_information_is_refused(data: bytes) -> None:
    with pytest.raises(GoTableError):
        read(data)


@pytest.mark.parametrize(
    ("text", "minor", "patch", "stage"),
    [
        ("go1.27.3", 27, 3, ""),
        ("go1.21", 21, 0, ""),
        ("go1.22rc1", 22, 1, "rc"),
        ("go1.20beta2", 20, 2, "beta"),
        ("devel go1.28-abcdef Tue Mar 3", 28, 0, "devel"),
        ("go1.21.5 X:nocoverageredesign", 21, 5, ""),
        ("go1.27.3-custom", 27, 3, ""),
        ("go1", 0, 0, ""),
    ],
)
def test_version_strings(text: str, minor: int, patch: int, stage: str) -> None:
    version = GoVersion.parse(text)
    assert (version.minor, version.patch, version.stage) == (minor, patch, stage)
    assert str(version) == text


@pytest.mark.parametrize("text", ["", "unknown", "go2.1", "devel +a1b2c3", "1.27.3", "go1.99999"])
def test_text_that_is_not_a_version(text: str) -> None:
    with pytest.raises(UnsupportedGoVersion, match="not a version of Go 1"):
        GoVersion.parse(text)


def test_versions_are_ordered() -> None:
    texts = ["go1.9", "go1.21.13", "devel go1.22-abc", "go1.22beta1", "go1.22rc1", "go1.22rc2"]
    texts += ["go1.22.0", "go1.22.1", "go1.22.10", "go1.100"]
    versions = [GoVersion.parse(text) for text in texts]
    assert all(older < newer for older, newer in combinations(versions, 2))
    assert not any(newer < older for older, newer in combinations(versions, 2))
    assert GoVersion.parse("go1.22") == GoVersion.parse("go1.22.0 X:fieldtrack")
    assert hash(GoVersion.parse("go1.22")) == hash(GoVersion.parse("go1.22.0"))
    assert GoVersion.parse("go1.22") != "go1.22"
