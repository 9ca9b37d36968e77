"""The targets of these tests: real programs, and copies of them that were tampered with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from symbolizer import ElfFile, GoBinary
from symbolizer.go.pclntab import find_pclntab
from tests.toolchains import toolchain

TARGETS = Path(__file__).parent.parent / "targets"
NEWEST = "1.27"


def program(name: str, minor: str = NEWEST, mode: str = "plain") -> Path:
    """One of tests/targets, built."""
    return toolchain(minor).build(TARGETS / name, mode)


def changed(original: Path, folder: Path, *changes: tuple[int, bytes], size: int = -1) -> Path:
    """A copy with other bytes at some file offsets; of `size` bytes only if that is given."""
    data = bytearray(original.read_bytes())
    for offset, content in changes:
        assert offset + len(content) <= len(data)
        data[offset : offset + len(content)] = content
    copy = folder / original.name
    copy.write_bytes(data if size < 0 else data[:size])
    copy.chmod(0o755)
    return copy


def section(original: Path, name: str) -> tuple[int, int]:
    """File offset and size of a section."""
    with ElfFile.open(original) as elf:
        return elf.sections[name].offset, elf.sections[name].size


@dataclass(frozen=True)
class PclntabParts:
    """Where the parts of a program's pclntab lie: file offsets."""

    at: int
    names: tuple[int, int]
    units: tuple[int, int]
    units_by_function: Mapping[str, int]
    """Where the record of a function tells its compilation unit."""


def pclntab_parts(original: Path) -> PclntabParts:
    with ElfFile.open(original) as elf:
        table = find_pclntab(elf)
        header, binary = table.header, GoBinary.open(elf)
        at = elf.vaddr_to_offset(header.vaddr)
        units = {
            # cuOffset is the ninth word of runtime._func.
            function.name: at + header.pcln_offset + int(table.offsets[function.index]) + 32
            for function in binary.functions()
        }
        return PclntabParts(
            at,
            (at + header.name_offset, at + header.cu_offset),
            (at + header.cu_offset, at + header.file_offset),
            units,
        )


def with_version(original: Path, folder: Path, version: str) -> Path:
    """A copy whose build information tells another version of Go."""
    at, _ = section(original, ".go.buildinfo")
    data = original.read_bytes()
    # Behind 32 bytes: the version and the modules, each behind its length (debug/buildinfo).
    old_version, modules_at = _string(data, at + 32)
    modules, end = _string(data, modules_at)
    assert old_version.startswith(b"go1.")
    lost = len(version) - len(old_version)
    fresh = _with_length(version.encode()) + _with_length(modules[max(lost, 0) :])
    assert len(fresh) <= end - at - 32
    return changed(original, folder, (at + 32, fresh))


def without_build_info(original: Path, folder: Path) -> Path:
    """A copy whose build information was overwritten."""
    at, size = section(original, ".go.buildinfo")
    return changed(original, folder, (at, bytes(size)))


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    """A string behind its length, a varint of one or two bytes, and where it ends."""
    length, at = data[at], at + 1
    if length & 0x80:
        length, at = length & 0x7F | data[at] << 7, at + 1
    return data[at : at + length], at + length


def _with_length(text: bytes) -> bytes:
    length = len(text)
    head = bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])
    return head + text
