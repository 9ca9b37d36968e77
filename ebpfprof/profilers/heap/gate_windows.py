"""Counts the allocations of one process, for as much of the time as its budget allows.

As profilers.waits.windows does for waits, but simpler: an allocation begins and ends at one moment,
so a window needs to know nothing of what was before it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.errors import TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.heap.allocation_sums import AllocationSums, merged, window_weight
from ebpfprof.profilers.recording_end import RecordingEnd
from ebpfprof.profilers.spending import SHORTEST_TICK_S, Spending
from ebpfprof.system.priority import run_as_others, run_promptly

if TYPE_CHECKING:
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.overhead.process_budget import Lease
    from ebpfprof.profilers.heap.gate_program import GateProgram
    from ebpfprof.profilers.heap.gate_tables import AllocatingStack

_PAUSES: Final = (0.5, 1.5)  # times the mean pause
ClassBytes = dict[int, float]
"""How many bytes a program has allocated, by size class: see allocation_sums.size_class()."""


@dataclass(slots=True)
class _Open:
    """The window that is open, or a time without pauses. Times are CLOCK_MONOTONIC, in ns."""

    begin_ns: int
    attached_ns: int
    spent_before_ns: float
    stands_since_ns: int


class _Piece(NamedTuple):
    """What was counted in a time, and for which time (ns) it stands; None: from the start on."""

    counts: Counter[AllocatingStack]
    length_ns: int
    stands_for_ns: int | None

    @property
    def weight(self) -> float:
        """The time that it stands for, over its own."""
        if self.stands_for_ns is None:
            return 1.0
        return window_weight(self.length_ns, self.stands_for_ns)

    def add_to(
        self, sums: AllocationSums, shown: Callable[[AllocatingStack], AllocatingStack]
    ) -> None:
        """Add it, with stacks as they are shown."""
        counts = merged(self.counts, shown)
        if self.stands_for_ns is None:
            sums.add_whole(counts, self.length_ns)
        else:
            sums.add_window(counts, self.length_ns, self.stands_for_ns)


class GateWindows:
    """The recording of one process. Any thread may use it."""

    def __init__(
        self,
        program: GateProgram,
        index: int,
        go: GoTarget,
        *,
        rate_bytes: int,
        lease: Lease,
        allocated: Callable[[], ClassBytes],
        note_window: Callable[[float], None],
        clock_ns: Callable[[], int] = kernel_now_ns,
    ) -> None:
        """The `lease` says how much of the target's CPU time probes may take.

        `index` is its number in `program`. `allocated` returns what the program has allocated until
        now. `note_window` is called with the weight of each window when it has ended. `clock_ns`
        gives CLOCK_MONOTONIC.
        """
        self.failure: Exception | None = None
        """The error that ended the recording early; None without one."""
        self._sums = AllocationSums(rate_bytes)
        self._ended: list[_Piece] = []  # not in the sums yet
        self._paused_ns = 0  # in pauses that no window stands for
        self._program, self._index, self._go = program, index, go
        self._lease, self._clock_ns = lease, clock_ns
        self._allocated, self._note_window = allocated, note_window
        self._lock = threading.Lock()  # of the sums
        self._before: Counter[AllocatingStack] = Counter()  # what the kernel had counted
        self._paused_at: ClassBytes | None = None
        self._until: ClassBytes = {}
        self._ending = RecordingEnd()
        self._thread: threading.Thread | None = None
        self._open: _Open | None = None
        self._closed_ns = 0  # the end of the last window
        self._stopped_ns = 0  # the end of the recording, once that has come

    def start(self) -> int:
        """Attach the probes and count. Returns the start time (CLOCK_MONOTONIC, ns).

        Earlier sums continue. Raises AttachFailed, PermissionDenied or TargetGone.
        """
        self._ending.put_off()
        self.failure = None
        spending = Spending(self._program, self._index, self._go, self._lease)
        if self._paused_at is not None:  # what was allocated since stop() does not count
            before = self._until
            self._read_counters()
            self._paused_at = {
                kind: self._paused_at.get(kind, 0.0) + used - before.get(kind, 0.0)
                for kind, used in self._until.items()
            }
        begin_ns = self._begin(None, spending)
        spending.started_ns = begin_ns
        if self._lease.share:
            self._thread = threading.Thread(
                target=self._run, args=(spending,), name="ebpfprof-gates", daemon=True
            )
            self._thread.start()
        return begin_ns

    def end(self, at_ns: int) -> None:
        """End the recording at `at_ns`, without waiting for the thread: stop() does that."""
        if not self._ending.has_come:
            if self._open:
                self._program.record(self._index, is_on=False)
            self._stopped_ns = at_ns
            self._read_counters()
            self._ending.come()

    def stop(self) -> None:
        """End the recording, if it is not over, and detach the probes."""
        self.end(self._clock_ns())
        if self._thread:
            self._thread.join()
            self._thread = None
        with self._lock:
            self._add(self._stopped_ns)
            self._paused_ns += self._pause_ns(self._stopped_ns)
            self._closed_ns = self._stopped_ns
        self._program.detach_target(self._index)

    def found(
        self, shown: Callable[[AllocatingStack], AllocatingStack]
    ) -> tuple[AllocationSums, ClassBytes]:
        """The sums until now, and what was allocated since the first pause.

        Stacks for which `shown` returns the same are one. One thread at a time may call it.
        """
        with self._lock:
            ended, self._ended = self._ended, []
            until_ns = self._stopped_ns if self._ending.has_come else self._clock_ns()
            now = self._piece(until_ns) if self._open else None
            paused_ns = self._paused_ns + self._pause_ns(until_ns)
            if not self._ending.has_come:
                self._read_counters()
            since = self._paused_at
            until = self._until
        for piece in ended:
            piece.add_to(self._sums, shown)
        sums = self._sums.copy()
        if now:
            now.add_to(sums, shown)
        sums.stood_for_ns += paused_ns
        if since is None:
            return sums, {}
        return sums, {kind: used - since.get(kind, 0.0) for kind, used in until.items()}

    def _pause_ns(self, until_ns: int) -> int:
        """The pause since the last window, in ns: the program's counters report it, too."""
        if self._paused_at is None or self._open is not None:
            return 0
        return max(0, until_ns - self._closed_ns)

    def _begin(self, stands_since_ns: int | None, spending: Spending) -> int:
        """Attach the probes and begin to count; returns when.

        What comes stands for the time since `stands_since_ns`, too; None: for itself.
        """
        before = self._program.tables.counts(self._index)  # nothing changes it until record()
        spent_ns, attached_ns = spending.budget.spent_ns, self._clock_ns()
        self._program.attach(self._index)
        with self._lock:
            self._before = before
            begin_ns = self._clock_ns()
            self._program.record(self._index, is_on=True)
            self._open = _Open(begin_ns, attached_ns, spent_ns, stands_since_ns or begin_ns)
        return begin_ns

    def _new_counts(self) -> Counter[AllocatingStack]:
        return self._program.tables.counts(self._index) - self._before

    def _add(self, end_ns: int) -> None:
        """Add the open window, which has ended."""
        if self._open is None or end_ns <= self._open.begin_ns:  # it had not begun
            self._open = None
            return
        piece = self._piece(end_ns)
        self._ended.append(piece)
        self._open, self._closed_ns = None, end_ns
        self._note_window(piece.weight)

    def _piece(self, end_ns: int) -> _Piece:
        """What the open window has counted until then."""
        assert self._open
        length_ns = max(1, end_ns - self._open.begin_ns)
        if self._paused_at is None:
            return _Piece(self._new_counts(), length_ns, None)
        stands_for_ns = max(length_ns, end_ns - self._open.stands_since_ns)
        return _Piece(self._new_counts(), length_ns, stands_for_ns)

    def _run(self, spending: Spending) -> None:
        run_promptly()  # while probes are attached: they cost something all the time
        try:
            self._record(spending)
        except Exception as error:  # any error: `failure` reports it
            if not isinstance(error, TargetGone) and not self._go.target.ending():
                self.failure = error

    def _record(self, spending: Spending) -> None:
        """Count without a pause while the budget lasts, else in windows, until the end."""
        tick_s = SHORTEST_TICK_S
        while not spending.wait(self._ending, tick_s):
            spending.update()
            if spending.budget.is_overdrawn:
                self._close(spending)
                if not self._record_windows(spending):
                    return
            window = self._open
            assert window
            tick_s = spending.tick_s(window.begin_ns, window.spent_before_ns)

    def _record_windows(self, spending: Spending) -> bool:
        """Count in windows until the budget allows one without an end; False at the end of all."""
        while True:
            following = spending.budget.next_window()
            since_ns = self._closed_ns
            if self._ending.sleep(following.pause_ns * random.uniform(*_PAUSES) / 1e9):
                return False
            spending.update()
            run_promptly()
            begin_ns = self._begin(since_ns, spending)
            if following.window_ns is None:
                return True
            spending.wait_for_end(self._ending, begin_ns + following.window_ns)
            if self._ending.has_come:
                return False
            self._close(spending)

    def _close(self, spending: Spending) -> None:
        """End the window, detach the probes, and add what it counted to the sums."""
        window = self._open
        assert window
        self._program.record(self._index, is_on=False)
        end_ns = self._clock_ns()
        # Before probes are detached: the program allocates meanwhile.
        paused_at = self._now_allocated() if self._paused_at is None else self._paused_at
        self._program.detach_target(self._index, for_a_while=True)
        run_as_others()
        with self._lock:
            self._add(end_ns)
            self._paused_at = paused_at
            self._read_counters()
        spending.update()
        spending.budget.note_window(
            spending.budget.spent_ns - window.spent_before_ns,
            end_ns - window.begin_ns,
            window.begin_ns - window.attached_ns,
        )

    def _read_counters(self) -> None:
        self._until = self._now_allocated()

    def _now_allocated(self) -> ClassBytes:
        with suppress(TargetGone, UnreadableMemory):  # it has ended
            return self._allocated()
        return self._until  # as of the last sample
