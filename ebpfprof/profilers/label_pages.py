"""Labels that are not in the target's memory when an event wants them: brings them for the next.

A program that passes a string on need never have looked at it: the page of its file that has it is
not mapped then, or memory was paged out. A BPF program can't wait until it is there, and the event
goes without its labels, which is counted. Reading it from outside is what a look by the program
itself would be (Memory.bring: the page is mapped, nothing is changed in it).

A page may come from a slow disk, or from a file system that never answers (FUSE): a thread of its
own reads, for which nobody waits.
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
from ebpfprof.process.memory import Memory

if TYPE_CHECKING:
    from ebpfprof.kernel.program import BpfProgram
    from ebpfprof.process.process import Target

_ADDRESS_BITS: Final = c_facts.number("common/keys.h", "TARGET_SHIFT")
_MAX_WANTED: Final = 64
_LOOK_S: Final = 0.19  # it is asked for each 0.2 s or oftener


class AbsentLabels:
    """Those that one program could not read."""

    def __init__(self, program: BpfProgram) -> None:
        self._program = program
        self._wanted: SimpleQueue[tuple[Target, int, int] | None] = SimpleQueue()
        self._reader: threading.Thread | None = None
        self._looked_s = 0.0

    def bring(self, targets: Mapping[int, Target]) -> None:
        """See to it that what the kernel could not read since the last time is there soon.

        `targets` are the program's, by number. To be called some times a second while it records;
        it looks five times a second at most. What can't be read by us either stays lost: it is no
        label, or the target has gone.
        """
        if time.monotonic() < self._looked_s + _LOOK_S:
            return
        self._looked_s = time.monotonic()
        keys, sizes_bytes = self._program.maps["absent_labels"].rows()
        for key, size_bytes in zip(keys.tolist(), sizes_bytes.tolist(), strict=True):
            index, address = divmod(key, 1 << _ADDRESS_BITS)
            # What finds no room will be wanted again.
            if index in targets and self._wanted.qsize() < _MAX_WANTED:
                self._wanted.put((targets[index], address, size_bytes))
        self._program.maps["absent_labels"].delete(keys)
        if len(keys) and not self._reader:
            self._reader = threading.Thread(target=self._read, name="ebpfprof-labels", daemon=True)
            self._reader.start()

    def close(self) -> None:
        """Bring nothing more."""
        self._wanted.put(None)

    def _read(self) -> None:
        while wanted := self._wanted.get():
            target, address, size_bytes = wanted
            # It may have gone, and be closed meanwhile by who opened it (an AttributeError).
            with suppress(EbpfprofError, OSError, AttributeError), Memory(target) as memory:
                memory.bring(address, size_bytes)
