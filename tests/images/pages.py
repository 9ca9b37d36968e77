"""Memory and files of a process that are saved, or made up: what a Target reads from."""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from ebpfprof.process.proc_files import ProcFiles

Part = tuple[int, bytes]
"""An address, or an offset in a file, and the bytes that begin there."""
Range = tuple[int, int]
"""The address of the first byte, and the one behind the last."""
PAGE_SHIFT: Final = 12


class NotSaved(Exception):  # noqa: N818 (reads better where it is raised)
    """A reader wants bytes that the process had and the image lacks: record it again."""


def joined(parts: Iterable[Part]) -> list[Part]:
    """Ascending parts, those that touch as one."""
    found: list[tuple[int, list[bytes]]] = []
    end = -1
    for start, data in parts:
        if start == end:
            found[-1][1].append(data)
        else:
            found.append((start, [data]))
        end = start + len(data)
    return [(start, pieces[0] if len(pieces) == 1 else b"".join(pieces)) for start, pieces in found]


class SavedBytes:
    """Bytes in parts, which do not overlap.

    `zeros` are ranges (start, limit) of zeros. `gaps` are ranges that were there and are not saved:
    to read there is a fault of the image, and no property of the process.
    """

    def __init__(
        self, parts: Iterable[Part], zeros: Sequence[Range] = (), gaps: Sequence[Range] = ()
    ) -> None:
        ranges: list[tuple[int, int, bytes | None]] = [
            *((start, start + len(data), data) for start, data in joined(sorted(parts))),
            *((start, limit, None) for start, limit in zeros),
        ]
        self._ranges = sorted(ranges, key=lambda each: each[0])
        self._starts = [start for start, _, _ in self._ranges]
        self._gaps = sorted(gaps)

    def up_to(self, address: int, size: int) -> bytes:
        """The bytes from `address` on, fewer than `size` if they end before. May raise NotSaved."""
        found = []
        at, end = address, address + size
        index = max(0, bisect_right(self._starts, address) - 1)
        while at < end and index < len(self._ranges):
            start, limit, data = self._ranges[index]
            if not start <= at < limit:
                break
            stop = min(end, limit)
            found.append(bytes(stop - at) if data is None else data[at - start : stop - start])
            at, index = stop, index + 1
        if at < end and self._gaps:
            self._require_no_gap(at)
        return found[0] if len(found) == 1 else b"".join(found)

    def filled(self, address: int, size: int) -> bytes:
        """That many bytes from `address` on, with zeros for those that are not saved."""
        found = bytearray(size)
        index = max(0, bisect_right(self._starts, address) - 1)
        for start, limit, data in self._ranges[index:]:
            first, last = max(start, address), min(limit, address + size)
            if start >= address + size:
                break
            if first < last and data is not None:
                found[first - address : last - address] = data[first - start : last - start]
        return bytes(found)

    def _require_no_gap(self, address: int) -> None:
        index = bisect_right(self._gaps, (address, 1 << 64)) - 1
        if index >= 0 and address < self._gaps[index][1]:
            raise NotSaved(f"The image lacks the byte at {address:#x}.")


class ChangedBytes(SavedBytes):
    """Other bytes at some places, by their addresses, and pages that are gone, by their numbers."""

    def __init__(
        self, saved: SavedBytes, changes: Mapping[int, bytes], gone: AbstractSet[int]
    ) -> None:
        self._saved, self._changes, self._gone = saved, dict(changes), gone

    def up_to(self, address: int, size: int) -> bytes:
        data = self._saved.up_to(address, size)
        for number in range(address >> PAGE_SHIFT, (address + len(data) - 1 >> PAGE_SHIFT) + 1):
            if number in self._gone:
                data = data[: max(0, (number << PAGE_SHIFT) - address)]
                break
        for start, new in self._changes.items():
            first, limit = max(start, address), min(start + len(new), address + len(data))
            if first < limit:
                part = new[first - start : limit - start]
                data = data[: first - address] + part + data[limit - address :]
        return data


class SavedPages:
    """The memory of a process that is not there: see ebpfprof.process.pages.Pages."""

    def __init__(self, saved: SavedBytes) -> None:
        self._saved = saved

    def read(self, address: int, size: int) -> bytes:
        return self._saved.up_to(address, size) if address >= 0 else b""

    def read_pieces(self, here: int, here_count: int, there: int, there_count: int) -> int:
        """As process_vm_readv(2): it ends at the first piece that can't be read."""
        data = bytearray()
        for address, size in _pairs(there, there_count):
            piece = self.read(address, size)
            data += piece
            if len(piece) < size:
                break
        at = 0
        for address, size in _pairs(here, here_count):
            part = bytes(data[at : at + size])
            ctypes.memmove(address, part, len(part))
            at += size
        return len(data)

    def require(self) -> None:
        pass

    def bring(self, address: int, size: int) -> None:
        pass

    def close(self) -> None:
        self._saved = _NOTHING


def _pairs(address: int, count: int) -> list[list[int]]:
    """Iovecs at an address of this process."""
    words = (ctypes.c_uint64 * (2 * count)).from_address(address)
    pairs: list[list[int]] = np.ctypeslib.as_array(words).reshape(-1, 2).tolist()
    return pairs


_NOTHING: Final = SavedBytes(())


class SavedFiles(ProcFiles):
    """The files of /proc/PID that are saved, by name; those that are not are empty."""

    def __init__(self, files: Mapping[str, bytes], links: Mapping[str, str]) -> None:
        self._files, self._links = files, links

    def read(self, name: str) -> bytes:
        return self._files.get(name, b"")

    def names(self, folder: str) -> list[str]:
        start = f"{folder}/"
        below = (name for name in (*self._files, *self._links) if name.startswith(start))
        return list(dict.fromkeys(name.removeprefix(start).split("/")[0] for name in below))

    def link(self, name: str) -> str:
        return self._links.get(name, "")

    def file_type(self, name: str) -> int:
        return 0  # not saved
