"""Go executables of running processes: their version and build mode."""

from __future__ import annotations

import os
import re
import struct
from dataclasses import dataclass, replace

from ebpfprof.console.text import listed, printable
from ebpfprof.system.first_thread import reading_pid
from symbolizer import (
    BuildInfo,
    ElfError,
    ElfFile,
    GoBinary,
    NotGoError,
    OtherCompiler,
    SymbolizerError,
    UnsupportedElf,
    UnsupportedGoVersion,
    other_compiler,
    read_build_info,
)
from symbolizer.allowance import Allowance

_GO_SECTIONS = frozenset(
    (".gopclntab", ".data.rel.ro.gopclntab", ".go.buildinfo", ".note.go.buildid")
)
_PARTS = ("plugin", "shared")
"""The values of -buildmode of files that use the runtime of another file."""
_LIBRARIES = ("c-shared", *_PARTS)
_BUILD_INFO_MAGIC = b"\xff Go buildinf:"
_CHUNK_BYTES = 1 << 20
_MAX_SEARCHED_BYTES = 1 << 29
_DT_NEEDED = 1
_MAX_DYNAMIC_BYTES = 1 << 16
_MAX_KEPT = 4096
_MAX_KEPT_BYTES = 64 << 20
_MAX_CPU_S = 10.0
_DEVELOPMENT = "(devel)"
_MAX_MODULE = 1024
_MAX_MAPPED = 256
_MAX_MAPS_BYTES = 1 << 20
_MAPPED_CODE = re.compile(
    rb"^0*([0-9a-f]+)-0*([0-9a-f]+) ..x. \S+ \S+ [1-9]\d* +(/.*)$", re.MULTILINE
)
"""Start and end (as in the names of map_files) and name of a mapped file with code."""

NOT_GO = "not a Go program"


@dataclass(frozen=True, slots=True)
class Executable:
    """An executable file.

    `go_version` is None if the file hides it. `build_mode` is "exe", "pie" or that of a library,
    followed by "cgo", "race" and "stripped" (without a symbol table) where they apply. `why_not` is
    "" if ebpfprof supports it. With `is_unknown_version` it can have the profiles that any program
    can have.
    `module` is the path of the main module, `module_version` its version; "" if unknown.
    """

    is_go: bool
    go_version: str | None = None
    build_mode: str = ""
    why_not: str = ""
    is_unknown_version: bool = False
    module: str = ""
    module_version: str = ""


_NO_PROGRAM = Executable(is_go=False, why_not=NOT_GO)
_TOO_MUCH = Executable(
    is_go=False, why_not="not read: too large for a file without a section table"
)


class Executables:
    """Reads each file once, for all processes that run it.

    It recognises Go programs as `attach` does, but at limited cost: a file that has sections, but
    none of Go's linker, is not a Go program; and one survey searches at most 512 MiB of files
    without a section table.
    """

    def __init__(self, max_searched_bytes: int = _MAX_SEARCHED_BYTES) -> None:
        self._known: dict[tuple[int, ...], Executable] = {}
        self._max_searched_bytes = max_searched_bytes
        self._to_search_bytes = 0

    def begin_survey(self) -> None:
        """Reset the number of bytes that one survey may search."""
        self._to_search_bytes = self._max_searched_bytes

    def of(self, pid: int) -> Executable:
        """The executable of process `pid`; if it is not Go, the mapped file with a Go runtime.

        Raises OSError if it can't be opened.
        """
        executable = self._of_path(f"/proc/{reading_pid(pid)}/exe")
        return (self._mapped(pid) or executable) if executable is _NO_PROGRAM else executable

    def _mapped(self, pid: int) -> Executable | None:
        """A mapped file with a Go runtime, such as a library; of several one that says so."""
        folder = f"/proc/{reading_pid(pid)}/map_files/"
        try:
            with open(f"/proc/{reading_pid(pid)}/maps", "rb") as file:
                lines = _MAPPED_CODE.findall(file.read(_MAX_MAPS_BYTES))
        except OSError:
            return None
        found: dict[str, Executable] = {}
        for start, limit, name in lines[:_MAX_MAPPED]:
            try:
                mapped = self._of_path(f"{folder}{start.decode()}-{limit.decode()}")
            except OSError:
                continue
            if mapped.is_go and not mapped.build_mode.startswith(_PARTS):
                found.setdefault(os.fsdecode(name), mapped)
        if len(found) > 1:
            files = listed(sorted(printable(os.path.basename(path)) for path in found))
            why_not = f"several Go runtimes, in {files}: choose one with --runtime"
            return replace(next(iter(found.values())), why_not=why_not, is_unknown_version=True)
        return next(iter(found.values()), None)

    def _of_path(self, path: str) -> Executable:
        known = self._known.get(_identity(os.stat(path)))
        if known is not None:
            return known
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            executable = self.of_file(fd)
            if executable is not _TOO_MUCH:
                if len(self._known) >= _MAX_KEPT:
                    self._known.clear()
                self._known[_identity(os.fstat(fd))] = executable  # it may have called exec since
        finally:
            os.close(fd)
        return executable

    def of_file(self, fd: int) -> Executable:
        """The executable in an open file, without caching. Never fails."""
        try:
            allowance = Allowance(max_bytes=_MAX_KEPT_BYTES, max_cpu_s=_MAX_CPU_S)
            with ElfFile.open(fd, allowance) as elf, allowance:
                return self._elf(elf)
        except UnsupportedElf as error:
            if not self._take(os.fstat(fd).st_size):
                return _TOO_MUCH
            if _holds_build_info(fd):
                return Executable(is_go=True, why_not=str(error))
        except (SymbolizerError, struct.error):
            pass
        return _NO_PROGRAM

    def _elf(self, elf: ElfFile) -> Executable:
        if not _GO_SECTIONS & elf.sections.keys():
            if elf.sections:
                return _of_other_compiler(elf)
            if not self._take(elf.size):
                return _TOO_MUCH
        try:
            binary = GoBinary.open(elf)
        except NotGoError:
            return _NO_PROGRAM
        except (SymbolizerError, struct.error) as error:
            info = _build_info(elf)
            version = info.version if info and info.version else None
            is_unknown = isinstance(error, UnsupportedGoVersion)
            mode = _mode(elf, info)
            return Executable(True, version, mode, str(error), is_unknown, *_module(info))
        info = binary.build_info
        mode = _mode(elf, info, binary)
        return Executable(True, str(binary.version), mode, "", False, *_module(info))

    def _take(self, size_bytes: int) -> bool:
        if size_bytes > self._to_search_bytes:
            return False
        self._to_search_bytes -= size_bytes
        return True


def _of_other_compiler(elf: ElfFile) -> Executable:
    compiler = other_compiler(elf)
    if not compiler:
        return _NO_PROGRAM
    return Executable(True, None, _mode(elf, None), str(OtherCompiler(compiler)), True)


def _identity(file: os.stat_result) -> tuple[int, ...]:
    return (file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)


def _build_info(elf: ElfFile) -> BuildInfo | None:
    try:
        return read_build_info(elf)
    except (SymbolizerError, struct.error):
        return None


def _module(info: BuildInfo | None) -> tuple[str, str]:
    """The main module and its version, both cut to the maximum length of a name."""
    if info is None:
        return "", ""
    version = "" if info.module_version == _DEVELOPMENT else info.module_version
    return info.module[:_MAX_MODULE], version[:_MAX_MODULE]


def _mode(elf: ElfFile, info: BuildInfo | None, binary: GoBinary | None = None) -> str:
    words = ["pie" if elf.is_pie else "exe"]
    if info is not None and info.settings.get("-buildmode") in _LIBRARIES:
        words = [info.settings["-buildmode"]]
    # A cgo program linked by C's linker starts in C's runtime; one linked by Go's own linker needs
    # shared libraries.
    starts_in_c = binary is not None and not binary.text_start <= elf.entry < binary.text_end
    if starts_in_c or _needs_libraries(elf):
        words.append("cgo")
    if info is not None and info.settings.get("-race") == "true":
        words.append("race")
    if ".symtab" not in elf.sections:
        words.append("stripped")
    return " ".join(words)


def _needs_libraries(elf: ElfFile) -> bool:
    if elf.dynamic is None:
        return False
    offset, size = elf.dynamic
    try:
        data = elf.read_offset(offset, min(size, _MAX_DYNAMIC_BYTES) // 16 * 16)
    except ElfError:
        return False
    return any(tag == _DT_NEEDED for tag, _ in struct.iter_unpack("<QQ", data))


def _holds_build_info(fd: int) -> bool:
    """Whether a file of another architecture has Go's build info."""
    offset, tail = 0, b""
    while data := os.pread(fd, _CHUNK_BYTES, offset):
        if _BUILD_INFO_MAGIC in tail + data:
            return True
        offset, tail = offset + len(data), data[-len(_BUILD_INFO_MAGIC) :]
    return False
