"""Records as many waits of one process as its budget allows: `--max-overhead`.

Every wait as long as the budget lasts. Then one wait in eight, all the time. If that costs too
much, too, one wait in eight in windows between pauses of random length, until the budget allows a
window without an end. sampled_sums adds up what was recorded.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from ebpfprof.errors import TargetGone
from ebpfprof.goruntime.goroutines.times_run import TimesRun
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.process_budget import Lease
from ebpfprof.profilers.recording_end import RecordingEnd
from ebpfprof.profilers.spending import SHORTEST_TICK_S, Spending
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.coverage import WaitsCoverage
from ebpfprof.profilers.waits.rows import Hold
from ebpfprof.profilers.waits.sampled_sums import SampledSums
from ebpfprof.profilers.waits.tracking import FOREVER_NS
from ebpfprof.system.priority import run_as_others, run_promptly
from symbolizer.codeanalysis.tracked_waits import TRACKING_PERIOD

# For so long at least the probes where goroutines begin to run stay as they are; while nothing
# changes, for twice as long each time.
_RUNS_NS: Final = 100_000_000
_LONGEST_RUNS_NS: Final = 8_000_000_000
LEAST_WINDOW_NS: Final = 1_000_000
"""A shorter one, which the end of the recording cut off, has next to nothing."""
_BURST: Final = 10  # times its usual price a window may cost
_MOST_MORE_NS: Final = 50_000_000
_PAUSES: Final = (0.5, 1.5)  # times the mean pause


class _Part(Enum):
    """What is recorded now."""

    NOTHING = auto()
    EVERY_WAIT = auto()
    ONE_IN_EIGHT = auto()
    WINDOW = auto()


class BudgetedWaits:
    """The recording of one process. Any thread may use it."""

    def __init__(
        self,
        waits: WaitsCollector,
        index: int,
        go: GoTarget,
        lease: Lease,
        *,
        only_one_in_eight: bool = False,
        begin_sampling: Callable[[], None] = lambda: None,
        least_turn_ns: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """The `lease` says how much of the target's CPU time the probes may take; 0: no bound.

        `index` is its number in `waits`. `only_one_in_eight`: it does not begin with every wait.
        `begin_sampling` is called when not every wait is recorded any more, and may be called
        twice: the last time counts. `least_turn_ns` returns how long a pause and its window last at
        least.
        """
        self.failure: Exception | None = None
        """The error that ended the recording early; None without one."""
        self._waits, self._index, self._go = waits, index, go
        self._lease, self._only_one_in_eight = lease, only_one_in_eight
        self._begin_sampling, self._least_turn_ns = begin_sampling, least_turn_ns
        self._times_run = TimesRun(go)
        self._lock = threading.Lock()  # of the sums
        self._sums = SampledSums()
        self._past_holds = dict[int, Hold]()  # of ended parts, by semaphore
        self._ending = RecordingEnd()
        self._thread: threading.Thread | None = None
        self._part, self._part_since_ns = _Part.NOTHING, 0
        self._recorded_ns = dict.fromkeys(_Part, 0)  # until the present part
        self._started_ns = 0
        self._past_ns = 0  # the length of earlier recordings
        self._stopped_ns = FOREVER_NS  # the end of the recording, once that is known
        self._ran = 0.0  # what _times_run() returned at the last end of a window or pause
        self._part_begun_ns = 0
        self._spent_before_ns = 0.0  # before the present part
        self._watches_runs = True  # while one in eight is recorded
        self._runs_turn_ns, self._runs_due_ns = _RUNS_NS, 0
        self.has_paused = False
        """Whether the probes were detached at some time of this recording."""

    @property
    def is_whole(self) -> bool:
        """Whether every wait was recorded until now."""
        is_sampled = self._sums.is_sampled or self._sums.has_pauses
        return not (is_sampled or self.has_paused or self._part is _Part.ONE_IN_EIGHT)

    @property
    def takes_turns(self) -> bool:
        """Whether its probes come and go for windows."""
        return self.has_paused and self._part in (_Part.WINDOW, _Part.NOTHING)

    def start(self) -> int:
        """Attach the probes and start to record. Returns the start time (CLOCK_MONOTONIC, ns).

        Earlier sums go on. Raises AttachFailed, PermissionDenied, or TargetGone if the target has
        ended.
        """
        self._spending = Spending(self._waits, self._index, self._go, self._lease)
        self._ending.put_off()
        self.failure, self.has_paused = None, False
        self._stopped_ns = FOREVER_NS
        if self._only_one_in_eight:
            self._started_ns = self._waits.attach_one_in_eight(self._index, self._go)
            self._begin_sampling()
            self._part = _Part.ONE_IN_EIGHT
            self._runs_begin(self._started_ns)
        else:
            self._started_ns = self._waits.attach(self._index, self._go)
            self._part = _Part.EVERY_WAIT
        self._part_since_ns = self._part_begun_ns = self._started_ns
        self._spending.started_ns = self._started_ns
        self._ran_since()
        if self._lease.share or self._only_one_in_eight:
            self._thread = threading.Thread(target=self._run, name="ebpfprof-budget", daemon=True)
            self._thread.start()
        return self._started_ns

    def end(self, at_ns: int) -> None:
        """End the recording at `at_ns`, without waiting for the thread: stop() does that."""
        with self._lock:
            if not self._ending.has_come:
                self._stopped_ns = min(at_ns, self._stopped_ns)  # the process may have ended
                self._waits.record_until(self._index, at_ns)
                self._ending.come()

    def stop(self) -> None:
        """End the recording, if it is not over, and detach the probes."""
        self.end(kernel_now_ns())
        if self._thread:
            self._thread.join()
            self._thread = None
        else:
            self._finish()

    def sums(self) -> tuple[SampledSums, WaitsCoverage]:
        """The sums until now, and of which time they are."""
        with self._lock:
            until_ns = min(kernel_now_ns(), self._stopped_ns)
            self._add_part(until_ns)
            length_ns = self._past_ns + (until_ns - self._started_ns if self._started_ns else 0)
            sums = self._sums.copied()
            sums.at_first_ns = self._recorded_ns[_Part.EVERY_WAIT]
            sums.pauses_ns = max(0, length_ns - sum(self._recorded_ns.values()))
            return sums, WaitsCoverage(
                length_ns,
                self._recorded_ns[_Part.EVERY_WAIT],
                self._recorded_ns[_Part.ONE_IN_EIGHT],
                self._recorded_ns[_Part.WINDOW],
                self._sums.windows,
            )

    def holds(self) -> dict[int, Hold]:
        """How long locks were held, as far as that was recorded, by semaphore."""
        with self._lock:
            return self._holds() if self._part is not _Part.NOTHING else dict(self._past_holds)

    def _holds(self) -> dict[int, Hold]:
        """The holds, including those of the present part."""
        holds = dict(self._past_holds)
        for sema, more in self._waits.tables.holds().get(self._index, {}).items():
            holds[sema] = holds.get(sema, Hold()).plus(more)
        return holds

    def _add_part(self, now_ns: int) -> None:
        """Add what was recorded until now; what a window holds only counts once it has ended."""
        if self._part is _Part.NOTHING:
            if self._thread and not self._ending.has_come:  # else _finish() adds it
                self._sums.add_pause(self._ran_since())
            return
        if self._part is not _Part.WINDOW:
            more, ran = self._waits.tables.take(self._index), self._ran_since()
            if self._part is _Part.EVERY_WAIT:
                self._sums.add_every(more)
                self._sums.runs_at_first += ran
            else:
                self._sums.add_eighth(more)
                self._sums.runs_in_eighth += ran
            self._recorded_ns[self._part] += max(0, now_ns - self._part_since_ns)
            self._part_since_ns = now_ns

    def _ran_since(self) -> float:
        """How often goroutines ran since the last call; without Go's counters, the time in us."""
        before = self._ran
        if not self._times_run.is_known:
            self._ran = kernel_now_ns() / 1e3
        elif (count := self._times_run.count()) is not None:  # else it has ended
            self._ran = count
        return max(0.0, self._ran - before)

    def _run(self) -> None:
        run_promptly()  # while probes are attached: they cost something all the time
        try:
            self._record()
        except Exception as error:  # any error: `failure` reports it
            if not isinstance(error, TargetGone) and not self._go.target.ending():
                self.failure = error
        finally:
            self._finish()

    def _record(self) -> None:
        """Record what the budget allows, until the end."""
        if not self._lease.share:
            while not self._ending.wait(self._turn_of_runs_s()):
                pass
            return
        if self._part is _Part.EVERY_WAIT and not self._wait_until_overdrawn():
            if self._is_eighth_affordable():
                self._thin()
            else:
                self._close(self._begin_sampling)
                self._record_windows()
        run_as_others()
        while not self._ending.has_come:
            if not self._wait_until_overdrawn():
                self._close()
                self._record_windows()

    def _wait_until_overdrawn(self) -> bool:
        """Wait until the budget is overdrawn, or for the end; returns whether it is the end."""
        tick_s = SHORTEST_TICK_S
        while not self._spending.wait(self._ending, min(tick_s, self._turn_of_runs_s())):
            self._spending.update()
            if self._spending.budget.is_overdrawn:
                return False
            tick_s = self._spending.tick_s(self._part_begun_ns, self._spent_before_ns)
        return True

    def _runs_begin(self, begun_ns: int) -> None:
        """The probes of runs were attached with those of one wait in eight."""
        self._watches_runs, self._runs_turn_ns = True, _RUNS_NS
        self._runs_due_ns = begun_ns + _RUNS_NS

    def _turn_of_runs_s(self) -> float:
        """Attach or detach the probes of runs if that is due; the time until it is again, in s."""
        if self._part is not _Part.ONE_IN_EIGHT:
            return math.inf
        if (left_ns := self._runs_due_ns - kernel_now_ns()) > 0:
            return left_ns / 1e9
        self._runs_turn_ns = min(2 * self._runs_turn_ns, _LONGEST_RUNS_NS)
        if (needs_runs := self._waits.needs_runs(self._index)) != self._watches_runs:
            self._watches_runs, self._runs_turn_ns = needs_runs, _RUNS_NS
            if needs_runs:
                self._waits.watch_runs(self._index)
            else:
                self._waits.unwatch_runs(self._index)
        self._runs_due_ns = kernel_now_ns() + self._runs_turn_ns
        return self._runs_turn_ns / 1e9

    def _is_eighth_affordable(self) -> bool:
        """Whether the budget allows to record one wait in eight all the time, by what all cost.

        Until now on average, and in the next moment: in a burst, the probes must go at once.
        """
        budget = self._spending.budget
        before_ns, since_ns = budget.spent_ns, kernel_now_ns()
        self._ending.sleep(SHORTEST_TICK_S)
        self._spending.update()
        now_ns = kernel_now_ns()
        at_last = (budget.spent_ns - before_ns) / max(1, now_ns - since_ns)
        on_average = (budget.spent_ns - self._spent_before_ns) / max(
            1, now_ns - self._part_begun_ns
        )
        return max(at_last, on_average) / TRACKING_PERIOD < budget.allowance_rate

    def _thin(self) -> None:
        """From now on record one wait in eight."""
        self._begin_sampling()  # these probes have to know of samples from the first wait on
        with self._lock:
            if self._ending.has_come:  # it may have since the budget was overdrawn
                return
            begun_ns = self._waits.attach_one_in_eight(self._index, self._go, self._started_ns)
            self._begin_sampling()  # again: what ended until now was recorded wait by wait
            self._add_part(min(begun_ns, self._stopped_ns))
            self._part, self._part_begun_ns = _Part.ONE_IN_EIGHT, begun_ns
            self._runs_begin(begun_ns)
        self._waits.detach_every_wait(self._index)
        self._note_spending()

    def _record_windows(self) -> None:
        """Record in windows until the budget allows one without an end, or until the end."""
        self.has_paused = True
        while True:
            following = self._spending.budget.next_window(self._least_turn_ns())
            if self._ending.sleep(following.pause_ns * random.uniform(*_PAUSES) / 1e9):
                return
            self._spending.update()
            run_promptly()
            with self._lock:
                if self._ending.has_come:  # it may have since the pause
                    return
                begun_ns = self._waits.attach_one_in_eight(
                    *(self._index, self._go, self._started_ns),
                    is_window=following.window_ns is not None,
                )
                self._sums.add_pause(self._ran_since())
                self._part_since_ns = self._part_begun_ns = begun_ns
                self._runs_begin(begun_ns)
                self._part = _Part.ONE_IN_EIGHT if following.window_ns is None else _Part.WINDOW
            self._note_spending()
            if (window_ns := following.window_ns) is None:
                return
            more_ns = min(_MOST_MORE_NS, _BURST * self._spending.budget.price_ns(window_ns))
            self._spending.wait_for_end(self._ending, begun_ns + window_ns, more_ns=more_ns)
            self._close()

    def _close(self, then: Callable[[], None] = lambda: None) -> None:
        """End the present part, and note what it cost; `then` is called once nothing is recorded.

        To detach the probes may take long.
        """
        was, end_ns = self._end_part(then)
        self._spending.update()
        spent_ns = self._spending.budget.spent_ns - self._spent_before_ns
        if was is _Part.EVERY_WAIT:
            spent_ns /= TRACKING_PERIOD
        self._spending.budget.note_window(spent_ns, max(1, end_ns - self._part_begun_ns), 0)

    def _end_part(self, then: Callable[[], None] = lambda: None) -> tuple[_Part, int]:
        """End the present part, add what it held, and detach the probes.

        Returns which it was, and when it ended.
        """
        with self._lock:
            self._waits.stop_recording(self._index)
            end_ns = min(kernel_now_ns(), self._stopped_ns)
            then()
            if self._part is _Part.WINDOW:
                self._add_window(end_ns, self._ran_since())
            else:
                self._add_part(end_ns)
            self._past_holds = self._holds()
            was, self._part = self._part, _Part.NOTHING
        self._waits.pause(self._index)
        run_as_others()
        return was, end_ns

    def _add_window(self, end_ns: int, ran: float) -> None:
        more, length_ns = self._waits.tables.take(self._index), end_ns - self._part_begun_ns
        if length_ns < LEAST_WINDOW_NS:  # the recording ended while the probes were attached
            self._sums.add_pause(ran)
            return
        self._sums.add_window(more, length_ns, ran)
        self._sums.add_uncharged(self._waits.tables.uncharged(self._index, end_ns))
        self._recorded_ns[_Part.WINDOW] += length_ns

    def _finish(self) -> None:
        """Add what is recorded now, and detach the probes."""
        self._stopped_ns = min(kernel_now_ns(), self._stopped_ns)
        if self._part is not _Part.NOTHING:
            self._end_part()
        elif self.has_paused:
            with self._lock:
                self._sums.add_pause(self._ran_since())
        if self._started_ns:
            self._past_ns += self._stopped_ns - self._started_ns
            self._started_ns = 0

    def _note_spending(self) -> None:
        self._spending.update()
        self._spent_before_ns = self._spending.budget.spent_ns
