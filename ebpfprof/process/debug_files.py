"""Finds separate debug files in the target's own root, and checks that they belong to the file.

It searches where gdb does (gdb manual, "Debugging Information in Separate Files"): by build id, and
by the name in .gnu_debuglink. No path leads out of the target's root, and only regular files are
opened: opening a FIFO or a device could block, or have effects.
"""

import errno
import os
import posixpath
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from ebpfprof.console.text import printable
from ebpfprof.process.file_opener import FileOpener
from symbolizer.elf.file import ElfFile
from symbolizer.elf.source import FileSource
from symbolizer.errors import ElfError

DEBUG_FOLDER: Final = "/usr/lib/debug"

_MIN_BUILD_ID_DIGITS = 4
_MAX_LINK_BYTES = 4096
_MAX_NAME_BYTES = 255
MAX_CRC_BYTES = 512 << 20
_CHUNK_BYTES = 1 << 20

_PROGRAM_HEADERS_AT = 32  # e_phoff
_PROGRAM_HEADER_SIZE_AT = 54  # e_phentsize, e_phnum
_FILE_SIZE_AT = 32  # p_filesz
_MAX_PROGRAM_HEADERS = 512


@dataclass(frozen=True, slots=True)
class Found:
    """A debug file, opened, and its path in the root that has it; None and "" without one.

    `refused` has a sentence for each file that was there but is not used.
    """

    elf: ElfFile | None
    path: str
    refused: tuple[str, ...]


class DebugFiles:
    """Finds the debug files of one process's files. It computes each CRC once."""

    def __init__(self, files: FileOpener) -> None:
        """`files` opens the candidates."""
        self._files = files
        self._crcs: dict[tuple[int, ...], int] = {}

    def find(self, elf: ElfFile, path: str, root_fd: int) -> Found:
        """The separate debug file of `elf`, whose path in the root `root_fd` is `path`.

        Looks in that root by build id and by .gnu_debuglink, then in our own root by build id.
        There is none for a file with DWARF of its own. Of errors in files it raises only
        TooMuchToRead.
        """
        if {".debug_info", ".zdebug_info"} & elf.sections.keys():
            return Found(None, "", ())
        with elf.allowance:
            return self._find(elf, path, root_fd)

    def _find(self, elf: ElfFile, path: str, root_fd: int) -> Found:
        refused: list[str] = []
        for candidate in _candidates(elf, path, root_fd):
            try:
                fd = candidate.open(self._files)
            except OSError as error:
                if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                    refused.append(_refusal(candidate.path, path, error.strerror or str(error)))
                continue
            try:
                fitting = self._fitting(elf, fd, candidate.crc)
                return Found(fitting, candidate.path, tuple(refused))
            except (ElfError, DoesNotFitError, OSError) as error:
                refused.append(_refusal(candidate.path, path, str(error)))
            finally:
                os.close(fd)
        return Found(None, "", tuple(refused))

    def _fitting(self, elf: ElfFile, fd: int, crc: int | None) -> ElfFile:
        """The debug file, if it is that of `elf`. Raises DoesNotFitError, ElfError or OSError.

        Equal build ids are enough; the CRC, for which all of the file is read, is for the others.
        """
        debug = ElfFile(_DebugSource(fd), elf.allowance)
        try:
            own, other = elf.build_id, debug.build_id
            if own != other and (crc is None or (own and other)):
                raise DoesNotFitError(f"its build id is {other or 'missing'}, not {own}")
            if crc is not None and not own:
                actual = self._crc32(fd, debug)
                if actual != crc:
                    raise DoesNotFitError(f"its CRC is {actual:08x}, not {crc:08x}")
        except BaseException:  # Ctrl-C too: nobody else closes it
            debug.close()
            raise
        return debug

    def _crc32(self, fd: int, debug: ElfFile) -> int:
        file = os.fstat(fd)
        identity = file.st_dev, file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns
        if identity not in self._crcs:
            self._crcs[identity] = _crc32(fd, debug)
        return self._crcs[identity]


class DoesNotFitError(Exception):
    """The file belongs to another one."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Where a debug file may be, and its `crc`; None for one that is found by build id."""

    path: str
    crc: int | None
    open: Callable[[FileOpener], int]


def _candidates(elf: ElfFile, path: str, root_fd: int) -> Iterator[_Candidate]:
    build_id = elf.build_id
    by_id = f"{DEBUG_FOLDER}/.build-id/{build_id[:2]}/{build_id[2:]}.debug"
    has_id = len(build_id) >= _MIN_BUILD_ID_DIGITS
    if has_id:
        yield _Candidate(by_id, None, _opening(root_fd, by_id))
    name, crc = _debug_link(elf)
    if name and path.startswith("/"):
        folder = posixpath.dirname(path)
        for place in (folder, posixpath.join(folder, ".debug"), DEBUG_FOLDER + folder):
            linked = posixpath.join(place, name)
            if linked != path:  # a file may name itself
                yield _Candidate(linked, crc, _opening(root_fd, linked))
    if has_id:
        yield _Candidate(by_id, None, partial(_open_in_own_root, root_fd, by_id))


def _opening(root_fd: int, path: str) -> Callable[[FileOpener], int]:
    return lambda files: files.open_in_root(root_fd, path)


def _open_in_own_root(other_root_fd: int, path: str, files: FileOpener) -> int:
    own_fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if os.path.sameopenfile(own_fd, other_root_fd):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return files.open_in_root(own_fd, path)
    finally:
        os.close(own_fd)


def _debug_link(elf: ElfFile) -> tuple[str, int]:
    """Name and CRC-32 in .gnu_debuglink; ("", 0) if there is none, or it is no plain file name."""
    section = elf.sections.get(".gnu_debuglink")
    if section is None or section.nobits or section.size > _MAX_LINK_BYTES:
        return "", 0
    try:
        data = elf.read_offset(section.offset, section.size)
    except ElfError:
        return "", 0
    name, end, _ = data.partition(b"\0")
    crc_at = (len(name) + 1 + 3) & ~3
    is_plain = name not in (b"", b".", b"..") and b"/" not in name and len(name) <= _MAX_NAME_BYTES
    if not (end and is_plain and crc_at + 4 <= len(data)):
        return "", 0
    return os.fsdecode(name), int.from_bytes(data[crc_at : crc_at + 4], "little")


def _crc32(fd: int, debug: ElfFile) -> int:
    size = debug.size
    if size > MAX_CRC_BYTES:
        raise DoesNotFitError(f"it has {size} bytes, too many to check its CRC")
    crc = position = 0
    while position < size:
        debug.allowance.check()
        chunk = os.pread(fd, min(_CHUNK_BYTES, size - position), position)
        if not chunk:
            raise DoesNotFitError("it was truncated while it was read")
        crc = zlib.crc32(chunk, crc)
        position += len(chunk)
    return crc


class _DebugSource(FileSource):
    """A debug file whose segments read as empty, whatever its program headers say.

    Their bytes are in the stripped file. binutils sets the sizes in the headers to 0; elfutils
    leaves them, so that segments run past the end of the file, or have other bytes.
    """

    def __init__(self, fd: int) -> None:
        super().__init__(fd)
        self._sizes_at: tuple[int, ...] = ()
        try:
            header = super().read(0, min(self.size, 64)).ljust(64, b"\0")
        except ElfError:
            self.close()
            raise
        (first,) = struct.unpack_from("<Q", header, _PROGRAM_HEADERS_AT)
        size, count = struct.unpack_from("<HH", header, _PROGRAM_HEADER_SIZE_AT)
        # ElfFile refuses files with more.
        count = min(count, _MAX_PROGRAM_HEADERS)
        self._sizes_at = tuple(first + index * size + _FILE_SIZE_AT for index in range(count))

    def read(self, offset: int, size: int) -> bytes:
        """Return exactly `size` bytes from `offset`; raise ElfError if they are not all there."""
        data = super().read(offset, size)
        for at in self._sizes_at:
            start, end = max(at, offset), min(at + 8, offset + size)
            if start < end:
                data = data[: start - offset] + bytes(end - start) + data[end - offset :]
        return data


def _refusal(path: str, of: str, why: str) -> str:
    return f"{printable(path)} is not used as the debug file of {printable(of)}: {why}"
