"""Reads label pages that are not in memory, so that the next event can read its labels.

A program may pass a string on without reading it: then the page of its file is not mapped yet. Or
the kernel has paged it out. A BPF program can't wait for a page: it records the event without its
labels, and counts the loss. Our read from outside maps the page as a read by the program itself
would (Memory.bring), and changes nothing in it.

A page may come from a slow disk, or from a file system that never answers (FUSE). So a separate
thread reads, and nothing waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.kernel import c_facts

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.process.process import Target

_ADDRESS_BITS: Final = c_facts.number("common/keys.h", "TARGET_SHIFT")
_MAX_WANTED: Final = 64
_CHECK_S: Final = 0.19  # profilers call bring() at least every 0.2 s


class AbsentLabels:
    """The labels that one BPF program could not read."""

    def __init__(self, program: BpfProgram) -> None:
        self._program = program
        self._wanted: SimpleQueue[tuple[Target, int, int] | None] = SimpleQueue()
        self._reader: threading.Thread | None = None
        self._checked_s = 0.0

    def bring(self, targets: Mapping[int, Target]) -> None:
        """Let the thread read the pages that the program could not read since the last call.

        `targets` are the program's targets, by number. Call it some times a second while the
        program records; it reads the map five times a second at most. It ignores what we can't
        read either: that is no label, or the target has ended.
        """
        if time.monotonic() < self._checked_s + _CHECK_S:
            return
        self._checked_s = time.monotonic()
        keys, sizes_bytes = self._program.maps["absent_labels"].rows()
        for key, size_bytes in zip(keys.tolist(), sizes_bytes.tolist(), strict=True):
            index, address = divmod(key, 1 << _ADDRESS_BITS)
            # A page beyond the limit comes again with the next event that needs it.
            if index in targets and self._wanted.qsize() < _MAX_WANTED:
                self._wanted.put((targets[index], address, size_bytes))
        self._program.maps["absent_labels"].delete(keys)
        if len(keys) and not self._reader:
            self._reader = threading.Thread(target=self._read, name="ebpfprof-labels", daemon=True)
            self._reader.start()

    def close(self) -> None:
        """End the thread."""
        self._wanted.put(None)

    def _read(self) -> None:
        while wanted := self._wanted.get():
            target, address, size_bytes = wanted
            # The target may have ended, or been closed by its owner (an AttributeError).
            with suppress(EbpfprofError, OSError, AttributeError):
                target.require_running()  # it is read by its pid, which may be another's by now
                target.memory.bring(address, size_bytes)
