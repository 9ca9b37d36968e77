"""Go build information: the version and the settings that a program was built with.

The linker writes it into every program, and strip keeps it (debug/buildinfo, Go 1.27). Both forms
are read: strings in place (Go 1.18 and later), and pointers to strings (Go 1.13 to 1.17), so that
the error for a program that is too old names its version.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from symbolizer.elf.file import ElfFile
from symbolizer.errors import ElfError, GoTableError

_SECTION = ".go.buildinfo"
_MAGIC: Final = b"\xff Go buildinf:"
_ALIGN = 16
_HEADER_BYTES = 32
_FLAG_BIG_ENDIAN = 1
_FLAG_INLINE = 2
_MAX_VERSION_BYTES = 256
_MAX_MODULE_BYTES = 4 << 20
_FRAME_BYTES = 16
"""The module text is between two sentinels of 16 bytes (cmd/go/internal/modload)."""

_SCAN_CHUNK_BYTES = 1 << 20
_ESCAPE = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}|.)", re.DOTALL)
_CONTROL = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True, slots=True)
class BuildInfo:
    """The version and the build settings that `go version -m` prints.

    `module` is the path of the main module, "" for a program without modules. `module_version` is
    its version, "(devel)" for what Go did not build from a tagged commit.
    """

    version: str
    settings: Mapping[str, str]
    module: str = ""
    module_version: str = ""


def read_build_info(elf: ElfFile) -> BuildInfo | None:
    """Read the build information; None if the file has none.

    Raises GoTableError if it is cut off or contradicts itself.
    """
    vaddr = _find(elf)
    if vaddr is None:
        return None
    try:
        header = elf.read(vaddr, _HEADER_BYTES)
        if header[15] & _FLAG_INLINE:
            version, after = _inline_string(elf, vaddr + _HEADER_BYTES, _MAX_VERSION_BYTES)
            modules, _ = _inline_string(elf, after, _MAX_MODULE_BYTES)
        else:
            if header[14] != 8 or header[15] & _FLAG_BIG_ENDIAN:
                raise GoTableError("the Go build information is of another architecture")
            version = _string_at(elf, header[16:24], _MAX_VERSION_BYTES)
            modules = _string_at(elf, header[24:32], _MAX_MODULE_BYTES)
    except ElfError as error:
        raise GoTableError(f"the Go build information is cut off: {error}") from error
    lines = _lines(modules)
    main = next((words for words in lines if words[0] == "mod" and len(words) > 1), ["", "", ""])
    module_version = main[2] if len(main) > 2 else ""
    text = version.decode("utf-8", "replace")
    return BuildInfo(text, _settings(lines), main[1], module_version)


def _find(elf: ElfFile) -> int | None:
    """Return the address of the magic: in its section, else in any writable segment."""
    section = elf.sections.get(_SECTION)
    if section is not None:
        try:
            if elf.read(section.vaddr, len(_MAGIC)) == _MAGIC:
                return section.vaddr
        except ElfError:
            pass  # No segment has the section's address.
    for segment in elf.segments:
        if not segment.writable:
            continue
        for base, data in elf.scan(segment, _SCAN_CHUNK_BYTES, overlap=len(_MAGIC)):
            at = data.find(_MAGIC)
            while at >= 0:
                if (base + at) % _ALIGN == 0:
                    return base + at
                at = data.find(_MAGIC, at + 1)
    return None


def _inline_string(elf: ElfFile, vaddr: int, limit: int) -> tuple[bytes, int]:
    """Return a string that follows its length, a varint, and the address behind it."""
    length = 0
    for index, byte in enumerate(elf.read(vaddr, min(5, elf.file_bytes_after(vaddr)))):
        length |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return _limited(elf, vaddr + index + 1, length, limit), vaddr + index + 1 + length
    raise GoTableError("a string of the Go build information has no length")


def _string_at(elf: ElfFile, pointer: bytes, limit: int) -> bytes:
    """Return the Go string (pointer and length) that `pointer` points to; b"" for nil."""
    vaddr = int.from_bytes(pointer, "little")
    if not vaddr:
        return b""
    header = elf.read(vaddr, 16)
    length = int.from_bytes(header[8:], "little")
    return _limited(elf, int.from_bytes(header[:8], "little"), length, limit)


def _limited(elf: ElfFile, vaddr: int, length: int, limit: int) -> bytes:
    if length > limit:
        raise GoTableError(f"a string of the Go build information claims {length} bytes")
    return elf.read(vaddr, length) if length else b""


def _lines(modules: bytes) -> list[list[str]]:
    """The module text: lines of words with tabs between them."""
    text = modules[_FRAME_BYTES:-_FRAME_BYTES] if len(modules) > 2 * _FRAME_BYTES else b""
    return [line.split("\t") for line in text.decode("utf-8", "replace").split("\n")]


def _settings(lines: list[list[str]]) -> dict[str, str]:
    """The settings: lines of "build", a tab, and key=value."""
    return dict(_setting(words[1]) for words in lines if words[0] == "build" and len(words) > 1)


def _setting(text: str) -> tuple[str, str]:
    """Split key=value; each of them may be quoted as Go quotes strings."""
    if text.startswith(('"', "`")):
        end = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`').match(text)
        key = text[: end.end()] if end else text
        return _unquote(key), _unquote(text[len(key) + 1 :])
    key, _, value = text.partition("=")
    return key, _unquote(value)


def _unquote(text: str) -> str:
    if len(text) < 2 or text[0] != text[-1] or text[0] not in '"`':
        return text
    return text[1:-1] if text[0] == "`" else _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(match: re.Match[str]) -> str:
    escape = match[1]
    if len(escape) == 1:
        return _CONTROL.get(escape, escape)
    code = int(escape[1:], 16)
    return chr(code) if code <= 0x10FFFF else "\N{REPLACEMENT CHARACTER}"
