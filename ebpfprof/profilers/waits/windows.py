"""Records one process for as much of the time as its budget allows: `--max-overhead`.

As long as the budget lasts, the probes stay attached and record every event. When it is overdrawn,
we detach them, and attach them for windows between pauses of random length. Before a window begins,
we seed the kernel's tables with the goroutines that wait already (bpf/waits/window.h). window_sums
adds up the windows.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.process_budget import Lease
from ebpfprof.overhead.slowdown import ActivityCounters, ActivityEstimator
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profilers.recording_end import RecordingEnd
from ebpfprof.profilers.spending import SHORTEST_TICK_S, Spending
from ebpfprof.profilers.waits.collector import FOREVER_NS, WaitsCollector
from ebpfprof.profilers.waits.exact_sums import ExactSums, Sums
from ebpfprof.profilers.waits.rows import Hold, StackTotal
from ebpfprof.profilers.waits.window_seeds import WindowSeeds
from ebpfprof.profilers.waits.window_sums import WindowCoverage, WindowSums
from ebpfprof.system.priority import run_as_others, run_promptly

_PAUSES: Final = (0.5, 1.5)  # times the mean pause
_ENDS_IN_NS: Final = 500_000  # the kernel must know the end of a window before it comes
_LEAST_LEAD_NS: Final = 500_000
_FIRST_LEAD_NS: Final = 3_000_000
_MAX_LEAD_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class _Window:
    """Times are CLOCK_MONOTONIC. Before it, the probes were attached for `around_ns`."""

    begin_ns: int
    end_ns: int
    around_ns: int
    spent_before_ns: float
    counters: ActivityCounters


class Windows:
    """The windows of one process. Any thread may use it."""

    def __init__(
        self,
        waits: WaitsCollector,
        index: int,
        go: GoTarget,
        lease: Lease,
        begin_estimates: Callable[[], None] = lambda: None,
        least_turn_ns: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """The `lease` says how much of the target's CPU time the probes may take.

        `index` is its number in `waits`. `begin_estimates` is called when not every event is
        recorded any more. `least_turn_ns` returns how long a pause and its window last at least.
        """
        self.failure: Exception | None = None
        """The error that ended the recording early; None without one."""
        self._waits, self._index, self._go = waits, index, go
        self._lease = lease
        self._lock = threading.Lock()  # of the sums
        self._sums = WindowSums()
        self._ending = RecordingEnd()
        self._thread: threading.Thread | None = None
        self._lead_ns = _FIRST_LEAD_NS
        self._past_holds = dict[int, Hold]()  # of ended windows, by semaphore
        self._stopped_ns = FOREVER_NS  # the end of the recording, once that is known
        self.is_open = False
        """Whether there is a window without an end: probes do not come and go."""
        self._begin_estimates, self._least_turn_ns = begin_estimates, least_turn_ns
        self._exact = ExactSums(self._sums)
        self.has_paused = False
        """Whether the probes were detached at some time of this recording."""

    def start(self) -> int:
        """Attach the probes and start to record. Returns the start time (CLOCK_MONOTONIC, ns).

        Earlier sums go on. Raises AttachFailed, PermissionDenied, or TargetGone if the target has
        ended.
        """
        self._seeds = WindowSeeds(self._waits, self._index, self._go)
        self._seeds.begin()
        self._spending = Spending(self._waits, self._index, self._go, self._lease)
        self._started_ns = self._waits.attach(self._index, self._go)
        self._spending.started_ns = self._started_ns
        self._sums.begin(self._started_ns)
        self._counters = self._read_counters()
        self._activity = ActivityEstimator()
        self._exact.begin()
        self.is_open, self.has_paused = True, False
        self._window = _Window(self._started_ns, FOREVER_NS, 0, 0.0, self._counters)
        self._ending.put_off()
        self.failure = None
        self._stopped_ns = FOREVER_NS
        self._thread = threading.Thread(target=self._run, name="ebpfprof-windows", daemon=True)
        self._thread.start()
        return self._started_ns

    def end(self, at_ns: int) -> None:
        """End the recording at `at_ns`, without waiting for the thread: stop() does that."""
        if not self._ending.has_come:
            self._stopped_ns = at_ns
            with self._lock:
                if self.is_open and self._window.end_ns == FOREVER_NS:
                    self._waits.end_window(self._index, at_ns)
                    self._window = replace(self._window, end_ns=at_ns)
            self._ending.come()

    def stop(self) -> None:
        """End the recording, if it is not over, and detach the probes."""
        self.end(kernel_now_ns())
        if self._thread:
            self._thread.join()
            self._thread = None

    def totals(self) -> list[StackTotal]:
        """The estimated sums of the recording so far, with extrapolation. They never decrease."""
        with self._lock:
            self._add_open_window()
            return self._sums.totals(
                self._until_ns(), self._activity.outside(kernel_now_ns(), self._spending.used_ns())
            )

    def exact(self) -> Sums:
        """The sums of the times from a start on in which every event was recorded."""
        with self._lock:
            return self._exact.so_far()

    def holds(self) -> dict[int, Hold]:
        """How long locks were held in windows, by semaphore."""
        with self._lock:
            return self._holds() if self.is_open else dict(self._past_holds)

    def _holds(self) -> dict[int, Hold]:
        """The holds, including those of the present window."""
        found = dict(self._past_holds)
        for sema, more in self._waits.tables.holds().get(self._index, {}).items():
            hold = found.get(sema, Hold())
            found[sema] = Hold(hold.count + more.count, hold.held_ns + more.held_ns)
        return found

    def coverage(self) -> WindowCoverage:
        """How much was recorded so far."""
        with self._lock:
            return self._sums.coverage(self._until_ns())

    def uncharged(self) -> dict[int, float]:
        """By semaphore, waiting time (ns, scaled) whose release no window recorded."""
        with self._lock:
            return self._sums.uncharged()

    def _until_ns(self) -> int | None:
        """Now, while the recording goes on; None once its last window stands for the rest."""
        goes_on = self._thread is not None and self._thread.is_alive()
        return kernel_now_ns() if goes_on else None

    def _add_open_window(self) -> None:
        """Add what a window without an end holds until now."""
        if self.is_open:
            found = self._waits.tables.take(self._index)
            self._sums.add(found, self._window.begin_ns, kernel_now_ns())

    def _run(self) -> None:
        run_promptly()  # while probes are attached: they cost something all the time
        try:
            self._record()
        except Exception as error:
            if not isinstance(error, TargetGone) and not self._go.target.ending():
                self.failure = error
        finally:
            self._finish()

    def _record(self) -> None:
        """Record every event while the budget lasts, else in windows, until the end."""
        is_on, tick_s = True, SHORTEST_TICK_S
        while is_on:
            is_stopped = self._spending.wait(self._ending, tick_s)
            self._spending.update()
            if is_stopped or self._spending.budget.is_overdrawn:
                self._close(ends_exact=not is_stopped and not self.has_paused)
                is_on = not is_stopped and self._record_windows()
            tick_s = self._spending.tick_s(self._window.begin_ns, self._window.spent_before_ns)

    def _record_windows(self) -> bool:
        """Record in windows until the budget allows one without an end; False at the end of all."""
        self.has_paused = True
        while True:
            following = self._spending.budget.next_window(self._least_turn_ns())
            if self._ending.sleep(following.pause_ns * random.uniform(*_PAUSES) / 1e9):
                return False
            self._spending.update()
            if not self._prepare(following.window_ns):
                self._spending.update()  # the attempt cost something
                continue
            if following.window_ns is None:
                with self._lock:
                    self._sums.stretch(
                        self._window.begin_ns,
                        self._activity.outside(kernel_now_ns(), self._spending.used_ns()),
                    )
                return True
            self._spending.wait_for_end(self._ending, self._window.end_ns)
            self._close()

    def _prepare(self, window_ns: int | None) -> bool:
        """Attach the probes and begin a window; return False if that failed or took too long."""
        is_known = self._seeds.look()  # makes seed() faster, which runs with attached probes
        self.failure = self._seeds.failure
        if not is_known:
            return False
        run_promptly()
        self._waits.attach_probes(self._index, self._go)
        attached_ns = kernel_now_ns()
        begin_ns = attached_ns + self._lead_ns
        end_ns = FOREVER_NS if window_ns is None else begin_ns + window_ns
        self._waits.open_window(self._index, begin_ns, end_ns)
        is_known = self._seeds.seed()
        self.failure = self._seeds.failure
        ready_ns = kernel_now_ns()
        self._lead_ns = min(_MAX_LEAD_NS, 2 * (ready_ns - attached_ns) + _LEAST_LEAD_NS)
        if ready_ns >= begin_ns or not is_known:
            self._discard()  # seeds are missing
            return False
        around_ns, spent_ns = begin_ns - attached_ns, self._spending.budget.spent_ns
        self._window = _Window(begin_ns, end_ns, around_ns, spent_ns, self._read_counters())
        self.is_open = window_ns is None
        return True

    def _close(self, *, ends_exact: bool = False) -> None:
        """End the window, detach the probes, and add what it held to the sums.

        `ends_exact` tells that from its end on, for the first time, not every event is recorded:
        estimates begin there, and not when the probes are detached, which may take long.
        """
        begin_ns, planned_ns = self._window.begin_ns, 0
        with self._lock:
            end_ns = self._window.end_ns
            is_set = end_ns < FOREVER_NS and end_ns == self._stopped_ns  # by end()
            if kernel_now_ns() < end_ns and not is_set:
                # Of a window that a burst cut short, activity tells what it stands for.
                is_cut = self._ending.has_come and end_ns < FOREVER_NS
                planned_ns = end_ns - begin_ns if is_cut else 0
                end_ns = kernel_now_ns() + _ENDS_IN_NS
                if end_ns > begin_ns:
                    self._waits.end_window(self._index, end_ns)
                    self._window = replace(self._window, end_ns=end_ns)
        if end_ns <= begin_ns:
            self._discard()
            return
        # Wait for its last nanosecond: only then do the tables hold the waits at its end.
        time.sleep(max(0.0, (end_ns - kernel_now_ns()) / 1e9))
        before, self._counters = self._counters, self._read_counters()
        if ends_exact:
            self._begin_estimates()
        slowdown = self._activity.add(before, self._window.counters, self._counters)
        detaching = self._waits.begin_closing(self._index)
        try:
            ongoing = self._seeds.ongoing(begin_ns, end_ns)
            self.failure = self._seeds.failure
            queues = self._waits.tables.queues(self._index, end_ns)
        finally:
            detaching.result()  # also if the target has gone: its number will be that of another
        run_as_others()
        with self._lock:
            found = self._waits.tables.take(self._index)
            self._exact.end(found)
            self._sums.add(found, begin_ns, end_ns, ongoing, queues, planned_ns, slowdown)
            self._sums.settle(self._seeds.scanner.waiting)
            self._past_holds = self._holds()
            self.is_open = False
        self._spending.update()
        spent_ns = self._spending.budget.spent_ns - self._window.spent_before_ns
        self._spending.budget.note_window(spent_ns, end_ns - begin_ns, self._window.around_ns)

    def _discard(self) -> None:
        """Detach the probes, and drop what a window without a begin or seeds counted."""
        self._waits.close_window(self._index)
        run_as_others()
        self._waits.tables.take(self._index)
        self.is_open = False

    def _read_counters(self) -> ActivityCounters:
        times_run, spending = self._seeds.times_run(), self._spending
        return ActivityCounters(kernel_now_ns(), times_run, spending.used_ns(), spending.spent_ns())

    def _finish(self) -> None:
        """Add the rest of the time to the sums, and the waits that have ended meanwhile."""
        with self._lock, suppress(TargetGone, UnreadableMemory):
            if self.has_paused:
                self._sums.stretch(
                    min(self._stopped_ns, kernel_now_ns()),
                    self._activity.outside(kernel_now_ns(), self._spending.used_ns()),
                )
            self._sums.settle(self._seeds.scanner.scan())
