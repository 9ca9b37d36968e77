"""Finds the goroutines that wait when a window begins, and those that wait when it ends."""

from __future__ import annotations

from contextlib import suppress

from ebpfprof.errors import AttachFailed, TargetGone
from ebpfprof.goruntime.goroutines.parked import ParkedGoroutine, ParkedScanner, Wait
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.window_sums import OngoingWait, waits_by_goroutine
from symbolizer import GoTableError


class WindowSeeds:
    """Scans the waiting goroutines of one process, and seeds the kernel's tables with them."""

    def __init__(self, waits: WaitsCollector, index: int, go: GoTarget) -> None:
        """`index` is the number of the process in `waits`. Raises AttachFailed."""
        try:
            self.scanner = ParkedScanner(go, has_labels=waits.has_labels)
        except GoTableError as error:
            raise AttachFailed(
                f"Process {go.target.pid} can't be recorded in windows: {error}. Record every "
                "wait at any cost: --max-overhead 0."
            ) from error
        self._waits, self._index = waits, index
        self._parked = dict[Wait, ParkedGoroutine]()
        self._seeded = dict[int, tuple[Wait, ParkedGoroutine]]()  # by runtime.g
        self.old = frozenset[Wait]()
        """Waits that began before the recording."""
        self.failure: Exception | None = None
        """Why the last scan failed; None if it did not."""

    def begin(self) -> None:
        """Note the waits that began before the recording."""
        with suppress(UnreadableMemory):
            self.old = self.scanner.scan()

    def look(self) -> bool:
        """Read which goroutines are parked; return False if that fails."""
        try:
            self._parked, self.failure = self.scanner.parked(), None
        except UnreadableMemory as error:
            self._parked, self.failure = {}, error
        return self.failure is None

    def seed(self) -> bool:
        """Seed the kernel's tables with parked goroutines; return False if the scan fails."""
        self._seeded.clear()
        is_known = self.look()
        for wait, parked in self._parked.items():
            if wait not in self.old:
                self._waits.seed(self._index, parked)
                self._seeded[wait.address] = wait, parked
        return is_known

    def ongoing(self, begin_ns: int, end_ns: int) -> list[OngoingWait]:
        """The waits that went on when a window ended, with their time in the window."""
        try:
            self.look()  # if it fails, the last scan stays
            return self._ongoing(begin_ns, end_ns)
        except TargetGone:  # these waits will never end
            return []

    def _ongoing(self, begin_ns: int, end_ns: int) -> list[OngoingWait]:
        now = waits_by_goroutine(self.scanner.waiting)
        found = []
        for row in self._waits.tables.waiting(self._index):
            wait, stack = now.get(row.g), row.stack
            if row.is_again and not (wait and self.scanner.waits_for_semaphore(wait)):
                continue  # woken, and not parked again
            if stack is None:
                if row.g not in self._seeded:
                    continue  # its stack is among the losses
                before, parked = self._seeded[row.g]
                stack = self._waits.stack_of(self._index, parked)
                wait = wait if wait == before else None
            found.append(OngoingWait(wait, stack, end_ns - max(row.since_ns, begin_ns)))
        return found

    def times_run(self) -> int:
        """How often goroutines left the run queue so far; 0 if unknown: ParkedScanner."""
        with suppress(TargetGone, UnreadableMemory):
            return self.scanner.times_run()
        return 0
