"""An image: what the kernel showed of a process that stood still, in a file of about 300 KiB.

The file is compressed by LZMA. It begins with a line of JSON; the bytes of all parts follow, in the
order in which the line lists them. Pages of zeros are not saved, nor what no reader wants of the
program's file.
"""

from __future__ import annotations

import json
import lzma
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Self

from ebpfprof.goruntime.process import GoProgram, GoTarget, go_target, open_program
from tests.images.pages import PAGE_SHIFT, Part, Range, SavedBytes, SavedFiles, joined
from tests.images.target import SavedTarget, Shown

FOLDER: Final = Path(__file__).parent / "data"
PAGE_BYTES: Final = 1 << PAGE_SHIFT
_FILTERS: Final = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME}]
_MAPS_LINE: Final = re.compile(
    r"([0-9a-f]+)-([0-9a-f]+) (r)([w-])[x-]p ([0-9a-f]+) [0-9a-f:]+ \d+ *(.*)"
)


@dataclass(frozen=True)
class Line:
    """A readable line of /proc/PID/maps."""

    start: int
    limit: int
    is_writable: bool
    offset: int
    name: str

    @property
    def is_saved(self) -> bool:
        """Whether its pages are saved; the others are parts of files."""
        return self.is_writable or self.name == "[vdso]"


def lines_of(maps: bytes) -> list[Line]:
    """The lines of /proc/PID/maps that can be read, without what the kernel itself maps."""
    found = []
    for text in maps.decode().splitlines():
        match = _MAPS_LINE.fullmatch(text)
        if match and not match[6].startswith(("[vvar", "[vsyscall", "[uprobes")):
            start, limit, offset = (int(match[at], 16) for at in (1, 2, 5))
            found.append(Line(start, limit, match[4] == "w", offset, match[6]))
    return found


@dataclass(frozen=True)
class Image:
    """What was saved of a process.

    `pages` are those of writable memory that are not zero, `parts` those of the executable file of
    `file_size` bytes; both are (address or offset, bytes). `said` is what the program said of
    itself at that moment.
    """

    version: str
    name: str
    moment_ns: int
    said: str
    files: dict[str, bytes]
    links: dict[str, str]
    file_size: int
    pages: Sequence[Part]
    parts: Sequence[Part]

    def save(self, path: Path) -> None:
        """Write the file."""
        head = {
            **{"version": self.version, "name": self.name, "moment_ns": self.moment_ns},
            **{"file_size": self.file_size, "links": self.links, "said": self.said},
            "files": {name: data.decode("latin-1") for name, data in self.files.items()},
            **{
                kind: [(start, len(data)) for start, data in getattr(self, kind)] for kind in _KINDS
            },
        }
        data = json.dumps(head).encode() + b"\n"
        data += b"".join(data for kind in _KINDS for _, data in getattr(self, kind))
        path.write_bytes(lzma.compress(data, format=lzma.FORMAT_XZ, filters=_FILTERS))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file."""
        line, _, data = lzma.decompress(path.read_bytes()).partition(b"\n")
        head: dict[str, Any] = json.loads(line)
        at = 0
        for kind in _KINDS:
            parts = []
            for start, size in head[kind]:
                parts.append((start, data[at : at + size]))
                at += size
            head[kind] = parts
        files = {name: text.encode("latin-1") for name, text in head.pop("files").items()}
        return cls(files=files, **head)

    @cached_property
    def file(self) -> SavedBytes:
        """The executable; what was not saved of it is a gap."""
        return SavedBytes(self.parts, gaps=_between(self.parts, 0, self.file_size))

    @cached_property
    def memory(self) -> SavedBytes:
        """All memory: what was saved, zeros where writable memory was not, and mapped code."""
        parts, zeros, gaps = list(self.pages), [], []
        for line in lines_of(self.files["maps"]):
            if line.is_saved:
                zeros += _between(self.pages, line.start, line.limit)
                continue
            shift = line.start - line.offset
            mapped = [
                (first + shift, data[first - start : last - start])
                for start, data in (self.parts if line.name == self.name else ())
                if (first := max(start, line.offset))
                < (last := min(start + len(data), line.limit - shift))
            ]
            parts += mapped
            gaps += _between(mapped, line.start, line.limit)
        return SavedBytes(parts, zeros, gaps)

    def shown(self, memory: SavedBytes | None = None) -> Shown:
        """What a SavedTarget reads from: with its own memory unless other is given."""
        files = SavedFiles(self.files, self.links)
        memory = memory or self.memory
        return Shown(self.name, memory, files, self.file, self.file_size, self.moment_ns)

    @cached_property
    def program(self) -> GoProgram:
        """The program; nothing closes it, as it is in memory."""
        return open_program(SavedTarget(self.shown()))

    @contextmanager
    def opened(self, memory: SavedBytes | None = None) -> Iterator[GoTarget]:
        """The process as a Go program, with its own memory unless other is given."""
        with SavedTarget(self.shown(memory)) as target:
            yield go_target(target, self.program)


_KINDS: Final = ("pages", "parts")


def _between(parts: Iterable[Part], start: int, limit: int) -> list[Range]:
    """The ranges from `start` to `limit` that no part has; the parts ascend."""
    found: list[Range] = []
    at = start
    for first, data in parts:
        if first + len(data) <= at:
            continue
        if first >= limit:
            break
        if first > at:
            found.append((at, first))
        at = first + len(data)
    if at < limit:
        found.append((at, limit))
    return found


def not_zero(start: int, data: bytes) -> list[Part]:
    """The runs of pages that are not all zeros."""
    pages = ((start + at, data[at : at + PAGE_BYTES]) for at in range(0, len(data), PAGE_BYTES))
    return joined((address, page) for address, page in pages if any(page))


@cache
def image(version: str) -> Image:
    """The image of a minor version of Go."""
    return Image.load(FOLDER / f"{version}.xz")


VERSIONS: Final = tuple(
    sorted((path.stem for path in FOLDER.glob("*.xz")), key=lambda name: int(name.split(".")[1]))
)
