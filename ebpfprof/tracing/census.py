"""Samples of all goroutines of a traced process: what those do that have no event."""

from __future__ import annotations

import struct
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.timeline.events import NO_P, Known
from ebpfprof.tracing.wait_objects import SampledWaits
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ebpfprof.goruntime.goroutines.all_goroutines import Goroutine
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profile.waiting_for import FileWait

_NOT_WAITING: Final = ("runnable", "running", "syscall")
_ON_THREADS: Final = ("running", "syscall")
_WORD: Final = struct.Struct("<Q")
_ID: Final = struct.Struct("<i")


class Census:
    """Samples the goroutines of one process, any number of times. Any thread may use it."""

    def __init__(self, go: GoTarget) -> None:
        """Open the process's memory. Raises TargetGone, PermissionDenied or GoTableError."""
        self.stacks: dict[int, tuple[int, ...]] = {}
        """The stacks of all samples, by Known.stack: runtime addresses, innermost first."""
        self._layout = go.binary.layout
        self._scanner = GoroutineScanner(go)
        self._waits = SampledWaits(go, self._scanner.memory, StackFrames(go))
        self._lock = threading.Lock()

    def sample(self) -> Mapping[int, Known]:
        """All goroutines now, by goid; none if they can't be read, or the process has ended."""
        with self._lock:
            try:
                scan = self._scanner.scan()
            except (TargetGone, UnreadableMemory, SymbolizerError):
                return {}
            keys: Mapping[int, int] = {}
            # Without them, which goroutines wait together is unknown.
            with suppress(TargetGone, UnreadableMemory, SymbolizerError):
                keys = self._waits.keys(scan.goroutines)
            return {
                goroutine.goid: self._known(goroutine, scan.read_ns, keys.get(goroutine.goid, 0))
                for goroutine in scan.goroutines
            }

    def files(self) -> Mapping[int, FileWait]:
        """The files that goroutines waited for, by Known.on."""
        with self._lock:
            return dict(self._waits.files)

    def forget_stacks(self, samples: Iterable[Mapping[int, Known]]) -> None:
        """Keep the stacks of these samples only."""
        with self._lock:
            wanted = {known.stack for sample in samples for known in sample.values()}
            self.stacks = {key: pcs for key, pcs in self.stacks.items() if key in wanted}

    def _known(self, goroutine: Goroutine, at_ns: int, on: int) -> Known:
        is_waiting = goroutine.state not in _NOT_WAITING
        key = hash(goroutine.pcs) & (1 << 63) - 1 if goroutine.pcs else 0
        if key:
            self.stacks[key] = goroutine.pcs
        tid, p = self._thread(goroutine) if goroutine.state in _ON_THREADS else (0, NO_P)
        return Known(
            goroutine.goid,
            at_ns,
            "waiting" if is_waiting else goroutine.state,
            goroutine.state if is_waiting else "",
            key,
            goroutine.sequence,
            goroutine.start_pc,
            goroutine.created_pc,
            goroutine.parent,
            tid,
            p,
            goroutine.labels or (),
            on,
        )

    def _thread(self, goroutine: Goroutine) -> tuple[int, int]:
        """The id of its thread and of that one's P; 0 and NO_P if it moved on meanwhile."""
        memory, layout, m = self._scanner.memory, self._layout, goroutine.words.thread
        try:
            (tid,) = _WORD.unpack(memory.read(m + layout.offset("m", "procid"), _WORD.size))
            (p,) = _WORD.unpack(memory.read(m + layout.offset("m", "p"), _WORD.size))
            if not p:
                return tid, NO_P
            return tid, _ID.unpack(memory.read(p + layout.offset("p", "id"), _ID.size))[0]
        except (TargetGone, UnreadableMemory):
            return 0, NO_P
