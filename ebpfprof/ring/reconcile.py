"""Makes the index agree with the files, which are what counts."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from ebpfprof.errors import InvalidProfile
from ebpfprof.ring.contents import MAX_HEADER, facts
from ebpfprof.ring.folder import RingFolder
from ebpfprof.ring.index import IndexChanges
from ebpfprof.ring.intervals import Interval, union

_GZIP = b"\x1f\x8b"


def add_files(folder: RingFolder, changes: IndexChanges, files: Iterable[tuple[str, int]]) -> int:
    """Add files, by path and the bytes they take; the number of those that can't be read.

    Raises what IndexChanges raises.
    """
    unreadable = 0
    for path, taken in files:
        try:
            changes.add_file(path, facts(folder.read(path, MAX_HEADER)), taken)
        except FileNotFoundError:
            continue
        except (OSError, InvalidProfile):
            unreadable += 1
    return unreadable


def remove_torn(folder: RingFolder, files: Iterable[tuple[str, int]]) -> None:
    """Remove files that never were complete: without gzip's first bytes, after a loss of power."""
    for path, _ in files:
        with suppress(OSError, InvalidProfile):  # who indexes the files counts it as unreadable
            if not folder.read(path, len(_GZIP)).startswith(_GZIP):
                folder.remove(path)


def runs_of(files: Iterable[tuple[int, int]], apart_ns: int) -> list[Interval]:
    """When the agent must have run, by the times of its files: gaps of `apart_ns` are none."""
    return [(begin, end - apart_ns) for begin, end in union((b, e + apart_ns) for b, e in files)]
