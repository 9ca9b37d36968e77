"""The executable mappings of a target, past and present: files, the vDSO, JIT pages."""

import contextlib
import os
import struct
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError
from ebpfprof.process.debug_files import DebugFiles
from ebpfprof.process.process import MapsLine, Target
from ebpfprof.profile.model import Mapping
from ebpfprof.system.closing import Closing
from symbolizer.elf.file import ElfFile, Segment
from symbolizer.errors import ElfError, SymbolizerError, TooMuchToRead

if TYPE_CHECKING:
    from symbolizer.native.binary import NativeBinary
    from symbolizer.unwind.eh_frame import EhFrame

_MAX_VDSO_BYTES = 64 << 10
MAX_FILES = 512
MAX_OBJECTS = 1 << 15
_MAX_WARNINGS = 16
_LOOK_INTERVAL_S = 0.25
_MAX_LOOK_SHARE = 0.1


class ObjectKind(Enum):
    """What is mapped."""

    FILE = "file"
    VDSO = "vdso"
    VSYSCALL = "vsyscall"
    ANONYMOUS = "anonymous"
    """Pages without a file, for example of a JIT compiler."""
    UNREADABLE = "unreadable"
    """A file that can't be opened, or is no ELF file for this machine."""


@dataclass(slots=True)
class Image:
    """An ELF file, or the vDSO, with its names and its unwind table, each made at its first use.

    `path` is its name in the target's root folder `root_fd`; -1 if there is no debug file to find.
    """

    elf: ElfFile
    path: str
    root_fd: int
    warn: Callable[[str], None]
    debug_files: DebugFiles
    _debug: ElfFile | None = field(default=None, init=False)
    _native: "NativeBinary | None" = field(default=None, init=False)
    _table: "EhFrame | None" = field(default=None, init=False)
    _table_was_opened: bool = field(default=False, init=False)

    def native(self) -> "NativeBinary":
        """Names for its addresses. Raises TooMuchToRead."""
        if self._native is None:
            from symbolizer.native.binary import NativeBinary

            if self.root_fd >= 0:
                search = self.debug_files.find(self.elf, self.path, self.root_fd)
                self._debug = search.elf
                for refusal in search.refused:
                    self.warn(refusal)
            self._native = NativeBinary(self.elf, self._debug)
        return self._native

    def unwind_table(self) -> "EhFrame | None":
        """Its .eh_frame; None without one, or if it can't be read."""
        if not self._table_was_opened:
            self._table_was_opened = True
            from symbolizer.unwind.eh_frame import EhFrame

            try:
                self._table = EhFrame.open(self.elf)
            except TooMuchToRead:
                pass  # there is one warning for all files
            except (SymbolizerError, struct.error) as error:
                self.warn(f"{printable(self.path)} has an .eh_frame that can't be read: {error}")
        return self._table

    @property
    def failure(self) -> str:
        """Why some names are missing; "" if none are."""
        if self._native is None or self._native.failure is None:
            return ""
        return f"{printable(self.path)} lacks names or lines: {self._native.failure}"

    def close(self) -> None:
        """Close the file and its debug file."""
        self.elf.close()
        if self._debug:
            self._debug.close()


@dataclass(frozen=True, slots=True, eq=False)
class MappedObject:
    """One executable mapping. `bias` is runtime address minus linked address, 0 without an ELF."""

    mapping: Mapping
    kind: ObjectKind
    bias: int = 0
    image: Image | None = None

    @property
    def elf(self) -> ElfFile | None:
        """The mapped file; None without one, or if it can't be read."""
        return self.image.elf if self.image else None

    def native(self) -> "NativeBinary | None":
        """Names for the file's linked addresses, also from its debug file; None without a file.

        Raises TooMuchToRead.
        """
        return self.image.native() if self.image else None

    def unwind_table(self) -> "EhFrame | None":
        """The file's .eh_frame, by linked addresses; None without one."""
        return self.image.unwind_table() if self.image else None


class MappedObjects(Closing):
    """All executable mappings ever seen in a target; where they overlap, the newest.

    Each file is opened once and stays open, so that it can be read after the target has unmapped or
    deleted it, and after it has ended. Files that can't be read have no names; nothing that a
    target does raises here. Any thread may call at() and refresh().
    """

    def __init__(self, target: Target, clock: Callable[[], float] = time.monotonic) -> None:
        """Look at the target's mappings. `clock` gives seconds."""
        self._target = target
        self._clock = clock
        self._lock = threading.RLock()
        self._next_look_s = 0.0
        self._ranges = AddressRanges()
        self._now: dict[MapsLine, MappedObject] = {}
        self._given: dict[Mapping, None] = {}
        self._images: dict[_FileId, Image | None] = {}
        self._vdso: Image | None = None
        self._left = MAX_OBJECTS
        self._debug_files = DebugFiles(target.files)
        self._warnings: dict[str, None] = {}
        self._root_fd = _open_root(target)
        self._main_id = _FileId.of(target.exe_fd)
        with contextlib.suppress(ElfError):  # where it is mapped, it is read again, with a warning
            main = target.open_elf()
            self._images[self._main_id] = self._image(main, target.exe_name)
        self.refresh()

    def at(self, address: int) -> MappedObject | None:
        """The mapping that has, or had, the runtime address; None if none is known.

        For an unknown address it reads the mappings again, a few times a second at most.
        """
        with self._lock:
            mapped = self._ranges.at(address)
            if mapped is None and self._clock() >= self._next_look_s:
                self.refresh()
                mapped = self._ranges.at(address)
            if mapped is not None:
                self._given[mapped.mapping] = None
        return mapped

    def known(self) -> list[MappedObject]:
        """All that are known, by address."""
        with self._lock:
            return self._ranges.objects()

    def refresh(self) -> None:
        """Read the current mappings. Earlier ones stay known where no new one is."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        began_s = self._clock()
        lines = self._target.executable_lines()
        came = self._look_at([line for line in lines if line not in self._now])
        # A file opened by its addresses in /proc/PID/map_files belongs to the line if the line is
        # there before and after; and to the target if that has not ended or called exec.
        after = set(self._target.executable_lines()) if came else set(lines)
        if self._target.ending() is None:
            came = {line: mapping for line, mapping in came.items() if line in after}
            self._now = {line: self._now[line] for line in lines if line in self._now} | came
            for mapping in came.values():
                self._ranges.put(mapping)
        ended_s = self._clock()
        took_s = ended_s - began_s
        self._next_look_s = ended_s + max(_LOOK_INTERVAL_S, took_s / _MAX_LOOK_SHARE)

    @property
    def mappings(self) -> tuple[Mapping, ...]:
        """All that are known, and all that at() returned; the main binary's first, by address."""
        known = {file.mapping: None for file in self._ranges.objects()} | self._given
        main = self._target.exe_name
        return tuple(sorted(known, key=lambda row: (row.filename != main, row.start)))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why names may be missing: files that could not be opened or read, or did not fit."""
        for image in self._all_images():
            if image.failure:
                self._warn(image.failure)
        return tuple(self._warnings)

    def close(self) -> None:
        """Close all files. Objects that at() returned can't be read afterwards."""
        for image in self._all_images():
            image.close()
        self._images, self._vdso = {}, None
        fd, self._root_fd = self._root_fd, -1
        if fd >= 0:
            os.close(fd)

    def _warn(self, text: str) -> None:
        if len(self._warnings) < _MAX_WARNINGS:
            self._warnings[text] = None

    def _all_images(self) -> list[Image]:
        return [image for image in (*self._images.values(), self._vdso) if image]

    def _image(self, elf: ElfFile, path: str) -> Image:
        return Image(elf, path, self._root_fd, self._warn, self._debug_files)

    def _look_at(self, lines: list[MapsLine]) -> dict[MapsLine, MappedObject]:
        if len(lines) > self._left:
            self._warn(f"more than {MAX_OBJECTS} executable mappings exist; the rest is unknown")
        taken = lines[: self._left]
        self._left -= len(taken)
        return {line: self._object(line) for line in taken}

    def _object(self, line: MapsLine) -> MappedObject:
        kind, image = self._kind(line)
        bias = bias_of(line, image.elf) if image else None
        if image is None or bias is None:
            kind = ObjectKind.UNREADABLE if kind is ObjectKind.FILE else kind
            return MappedObject(_mapping(line, ""), kind)
        return MappedObject(_mapping(line, image.elf.build_id), kind, bias, image)

    def _kind(self, line: MapsLine) -> tuple[ObjectKind, Image | None]:
        if line.inode:
            return ObjectKind.FILE, self._file(line)
        match line.name:
            case "[vdso]":
                return ObjectKind.VDSO, self._vdso_image(line)
            case "[vsyscall]":
                return ObjectKind.VSYSCALL, None
        return ObjectKind.ANONYMOUS, None

    def _file(self, line: MapsLine) -> Image | None:
        try:
            fd = self._open(line)
        except OSError as error:
            if line.path == self._target.exe_name:
                return self._images.get(self._main_id)
            self._warn(f"{printable(line.path)} can't be opened: {error.strerror}")
            return None
        try:
            file_id = _FileId.of(fd)
            if file_id not in self._images:
                self._images[file_id] = self._read(fd, line.path)
            return self._images[file_id]
        finally:
            os.close(fd)

    def _read(self, fd: int, path: str) -> Image | None:
        if len(self._images) >= MAX_FILES:
            self._warn(f"more than {MAX_FILES} files are mapped; the rest have no names")
            return None
        try:
            return self._image(ElfFile.open(fd, self._target.allowance), path)
        except ElfError as error:
            self._warn(f"{printable(path)} can't be read: {error}")
            return None

    def _open(self, line: MapsLine) -> int:
        """Open the very file that is mapped. Raises OSError."""
        link = f"/proc/{self._target.reading_pid}/map_files/{line.start:x}-{line.limit:x}"
        try:
            return self._target.files.open(link)
        except TimeoutError:
            raise
        except OSError:  # map_files takes CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE
            return self._open_by_name(line)

    def _open_by_name(self, line: MapsLine) -> int:
        fd = self._target.files.open_in_root(self._root_fd, line.path)
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (line.device, line.inode):
            os.close(fd)
            raise FileNotFoundError(0, "what has its name now is another file")
        return fd

    def _vdso_image(self, line: MapsLine) -> Image | None:
        if self._vdso is None and 0 < line.limit - line.start <= _MAX_VDSO_BYTES:
            try:
                memory = self._target.memory
                data = memory.read(line.start, line.limit - line.start)
                elf = ElfFile.from_bytes(data, self._target.allowance)
                self._vdso = Image(elf, line.name, -1, self._warn, self._debug_files)
            except (EbpfprofError, ElfError) as error:
                self._warn(f"the vDSO can't be read: {error}")
        return self._vdso


class _FileId(NamedTuple):
    """A file as it was when it was opened: a file that was written since counts as another one."""

    device: int
    inode: int
    size: int
    changed_ns: int

    @classmethod
    def of(cls, fd: int) -> "_FileId":
        status = os.fstat(fd)
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


class _Range(NamedTuple):
    start: int
    limit: int
    object: MappedObject


class AddressRanges:
    """Which object has which addresses: sorted ranges that don't overlap."""

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def put(self, new: MappedObject) -> None:
        """Add an object; it replaces others at its addresses."""
        start, limit = new.mapping.start, new.mapping.limit
        first = bisect_right(self._ranges, start, key=lambda row: row.limit)
        end = bisect_left(self._ranges, limit, key=lambda row: row.start)
        covered = self._ranges[first:end]
        before = [p._replace(limit=start) for p in covered[:1] if p.start < start]
        behind = [p._replace(start=limit) for p in covered[-1:] if p.limit > limit]
        self._ranges[first:end] = [*before, _Range(start, limit, new), *behind]

    def at(self, address: int) -> MappedObject | None:
        """The object at the address."""
        index = bisect_right(self._ranges, address, key=lambda row: row.start) - 1
        if index >= 0 and address < self._ranges[index].limit:
            return self._ranges[index].object
        return None

    def objects(self) -> list[MappedObject]:
        """All objects that still have addresses, by address."""
        return list(dict.fromkeys(row.object for row in self._ranges))


def bias_of(line: MapsLine, elf: ElfFile) -> int | None:
    """Runtime address minus linked address; None if no segment of the file is mapped there.

    The kernel maps whole pages, so the first and last page of a segment may have bytes of its
    neighbours, too: this takes the executable segment, and of several the one with most bytes in
    the mapping.
    """

    def shared_bytes(segment: Segment) -> tuple[bool, int]:
        end = min(segment.offset + segment.filesz, line.offset + line.limit - line.start)
        return segment.executable, end - max(segment.offset, line.offset)

    mapped = [segment for segment in elf.segments if shared_bytes(segment)[1] > 0]
    if not mapped:
        return None
    segment = max(mapped, key=shared_bytes)
    return line.start - line.offset + segment.offset - segment.vaddr


def _mapping(line: MapsLine, build_id: str) -> Mapping:
    name = line.path if line.inode else line.name or "[jit]"
    return Mapping(line.start, line.limit, line.offset, name, build_id)


def _open_root(target: Target) -> int:
    """The target's root folder, opened; -1 if it can't be."""
    try:
        fd = os.open(f"/proc/{target.reading_pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return -1
    if target.ending() is None:
        return fd
    os.close(fd)
    return -1
