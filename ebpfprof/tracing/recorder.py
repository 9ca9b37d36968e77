"""Records what the scheduler of one process does, whole or the last seconds of it."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.errors import EbpfprofError
from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.remapped_text import require_probes
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Overhead, Runs
from ebpfprof.system.closing import Closing
from ebpfprof.tracing.census import Census
from ebpfprof.tracing.heap_counters import HeapCounters
from ebpfprof.tracing.program import TraceProgram
from ebpfprof.tracing.recorded import RecordedTrace
from ebpfprof.tracing.rings import EVENT
from ebpfprof.tracing.slices import Slice, SliceBudget
from symbolizer.codeanalysis.annotation_sites import UNSEEN, annotation_sites
from symbolizer.codeanalysis.schedule_sites import schedule_sites
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.process.process import TargetEnd
    from ebpfprof.timeline.events import Known
    from ebpfprof.tracing.c_stacks import CStacks

_TICK_S: Final = 0.01
_SLOT_BYTES: Final = 64
_LEAST_SLOTS: Final = 1 << 10
_USUAL_BYTES: Final = 32 << 20
_MOST_STACKS: Final = 1 << 16  # of samples
MOST_EVENTS: Final = 1 << 21
"""More are not kept: while they are replayed and encoded, each takes about 300 bytes."""


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How to record.

    `exact_starts`: probe the moment when a goroutine begins to run, too. `max_overhead` is how much
    of its CPU time the program may lose, in percent; 0: no bound. `free_ns` of CPU time it may lose
    once, before the bound counts. `last_s`: keep only that many seconds before the end, in
    `buffer_bytes` of memory; None: all.
    """

    exact_starts: bool = False
    max_overhead: float = 0.0
    free_ns: float = 0.0
    last_s: float | None = None
    buffer_bytes: int = _USUAL_BYTES
    has_labels: bool = True


class TraceRecorder(Closing):
    """One recording of one process. A context manager: leaving it detaches all probes.

    One thread records; any other may call recorded() meanwhile.
    """

    def __init__(self, go: GoTarget, options: TraceOptions) -> None:
        """Find the places to probe, and start to compile.

        Raises UnsupportedTarget if its code can't be probed, CorruptBinary and the like,
        TargetGone, or what the program raises.
        """
        require_probes(go)
        self.go, self.options = go, options
        self.slices: list[Slice] = []
        self.begin_ns = self.end_ns = 0
        """When the recording began, and its last slice ended."""
        self.ending: TargetEnd | None = None
        self.failure: Exception | None = None
        """Why it could not continue; what was recorded before is there."""
        self.is_full = False
        """Whether it ended because there were more events than we hold."""
        self.c_stacks: CStacks | None = None
        """Those of a program that can call C, once it is loaded."""
        self._last_ns = int((options.last_s or 0.0) * 1e9)
        self._begin_unix_ns = self._stopped_ns = self._slice_ns = 0
        self._events = 0
        self._parts: list[npt.NDArray[Any]] = []
        self._lock = threading.Lock()  # held while a slice begins or ends, or events are read
        with ExitStack() as opened:  # at Ctrl-C, too, the process's memory must not stay open
            self.census = Census(go)
            self.heap = HeapCounters(go, options.last_s)
            try:
                sites, annotations = schedule_sites(go.binary), annotation_sites(go.binary)
                self._unseen = tuple(name for name in UNSEEN if go.binary.has_function(name))
                self.program = opened.enter_context(
                    TraceProgram(
                        *(go, sites, annotations),
                        runs=options.exact_starts,
                        has_labels=options.has_labels,
                    )
                )
            except SymbolizerError as error:
                raise for_user(go.target, error, go.path) from error
            self._opened = opened.pop_all()
        self._missing = (*sites.missing, *annotations.missing)
        self._cpu_before_ns = self._cpu_now_ns = 0
        self._budget = SliceBudget(
            options.max_overhead / 100,
            self.lost_ns,
            self._used_ns,
            options.free_ns,
        )

    def load(self) -> None:
        """Load the program.

        Raises KernelUnsupported, PermissionDenied, AttachFailed or TargetGone.
        """
        rings = os.cpu_count() or 1
        slots = _LEAST_SLOTS
        while 2 * slots * rings * _SLOT_BYTES <= self.options.buffer_bytes:
            slots *= 2
        self.program.load(rings, slots)
        if self.program.has_c:
            self.c_stacks = self._opened.enter_context(self.program.c_stacks())

    def start(self) -> None:
        """Attach the probes and record. Raises AttachFailed or TargetGone."""
        self._cpu_before_ns = self.go.target.cpu_ns() or 0
        self.heap.sample()
        self._begin_slice()
        self.begin_ns, self._begin_unix_ns = self._slice_ns, time.time_ns()

    def record(self, duration_s: float, should_stop: Callable[[float], bool]) -> None:
        """Record until the duration is over, the process ends, or should_stop() is true.

        It is called with the seconds since the start about a hundred times a second.
        """
        resumes_ns = 0
        while not self.is_full:
            now_ns = kernel_now_ns()
            gone_s = (now_ns - self.begin_ns) / 1e9
            self.heap.sample()
            self.ending = self.go.target.ending()
            if gone_s >= duration_s or self.ending:
                break
            self.failure = self.program.failure
            if self.failure or should_stop(gone_s):
                break
            if resumes_ns:
                if now_ns >= resumes_ns:
                    resumes_ns = 0
                    try:
                        self._begin_slice()
                    except EbpfprofError as error:
                        self.ending = self.go.target.ending()
                        self.failure = None if self.ending else error
                        break
            else:
                with self._lock:
                    self._poll()
                if self._budget.is_over(now_ns):
                    self._end_slice(for_a_while=True)
                    resumes_ns = kernel_now_ns() + self._budget.end(kernel_now_ns())
            # The rings are in memory: no file shows when there is something in them.
            time.sleep(min(_TICK_S, max(0.0, duration_s - gone_s)))

    def stop(self) -> None:
        """Detach the probes; what was recorded stays."""
        self._stopped_ns = kernel_now_ns()
        if self._is_recording:
            self._end_slice(for_a_while=False)
        self.program.detach()
        self.failure = self.failure or self.program.failure
        self.end_ns = self.slices[-1].end_ns if self.slices else self._stopped_ns

    def recorded(self, last_s: float | None = None) -> RecordedTrace:
        """What was recorded so far; with TraceOptions.last_s the last seconds of it.

        `last_s`: that many of these, if that is less. While the recording continues, or after
        stop(). Any thread may call it.
        """
        known: Mapping[int, Known] = {}
        if self._is_recording:
            if self._keeps_last:
                known = self.census.sample()  # what there was at first may be overwritten
            else:
                self._sampling.join()
        with self._lock:
            slices, end_ns = list(self.slices), self.end_ns
            if self._is_recording:
                end_ns = kernel_now_ns()
                slices.append(Slice(self._slice_ns, end_ns, known or self._known))
            if not self._stopped_ns and slices:
                end_ns = slices[-1].end_ns
            begin_ns, rows = self._taken(end_ns, last_s)
            if self._is_recording:
                rows = rows[rows["at_ns"] <= end_ns]
            stacks = self.program.stacks()
            if self.c_stacks:
                stacks = self.c_stacks.completed(stacks)
            stacks |= self.census.stacks
            label_sets = self.program.label_sets()
        return RecordedTrace(
            self.go,
            self.options.exact_starts,
            begin_ns,
            self._begin_unix_ns + begin_ns - self.begin_ns,
            end_ns,
            self._stopped_ns or kernel_now_ns(),
            _within(slices, begin_ns),
            rows[np.argsort(rows["at_ns"], kind="stable")],
            stacks,
            label_sets,
            self.program.files(),
            self.census.files(),
            self.heap.between(begin_ns, end_ns),
            self.c_stacks.objects if self.c_stacks else None,
            self.ending,
            0 if self._keeps_last else self.program.rings.overwritten,
            self.is_full,
            self.program.losses(),
            self.c_stacks.failure if self.c_stacks else None,
            self._missing,
            self._unseen,
            self._budget.share_of_slices,
        )

    def overhead(self) -> Overhead:
        """What the probes have cost the process so far, estimated, but for those of threads."""
        return Overhead(self.program.runs(0), Runs(), self.program.hit_ns, int(self._used_ns()))

    def lost_ns(self) -> float:
        """The CPU time that the process has spent on it so far, estimated."""
        return self.overhead().ns + self.switches().ns + self.program.wake_runs().ns

    def switches(self) -> Runs:
        """What recording its threads' context switches has cost so far."""
        return self.program.switch_runs()

    def close(self) -> None:
        """Detach all probes and free the memory."""
        self._opened.close()

    @property
    def _is_recording(self) -> bool:
        return bool(self._slice_ns)

    @property
    def _keeps_last(self) -> bool:
        return self.options.last_s is not None

    def _begin_slice(self) -> None:
        with self._lock:
            self.program.attach()
            self.program.record(is_on=True)
            self._slice_ns = kernel_now_ns()
            self._budget.begin(self._slice_ns)
            self._known: Mapping[int, Known] = {}
            # In a thread: of many goroutines it takes long, and the rings fill meanwhile.
            self._sampling = threading.Thread(
                target=self._sample, name="ebpfprof-sample", daemon=True
            )
            self._sampling.start()

    def _end_slice(self, *, for_a_while: bool) -> None:
        with self._lock:
            self.program.record(is_on=False)
            end_ns = kernel_now_ns()
            if self._keeps_last and not for_a_while:
                self._sampling.join()
                self._sample()  # what was there at first may be overwritten
            self.program.detach(for_a_while=for_a_while)
            self._sampling.join()
            self.slices.append(Slice(self._slice_ns, end_ns, self._known))
            self._slice_ns = 0
            if self._keeps_last:
                self._forget(end_ns - self._last_ns)
            self._poll()

    def _poll(self) -> None:
        if self.c_stacks:
            self.c_stacks.unwind()
        if self._keeps_last:
            return  # the rings keep them
        part = self.program.rings.read()
        if len(part):
            self._parts.append(part)
            self._events += len(part)
            self.is_full = self._events > MOST_EVENTS

    def _taken(self, end_ns: int, last_s: float | None) -> tuple[int, npt.NDArray[Any]]:
        """Since when all is there, and the events since then."""
        if not self._keeps_last:
            self._poll()
            return self.begin_ns, np.concatenate([np.zeros(0, EVENT), *self._parts])
        rings = self.program.rings
        rings.forget_overwritten()
        rows = rings.read()
        kept_ns = self._last_ns if last_s is None else min(int(last_s * 1e9), self._last_ns)
        begin_ns = max(end_ns - kept_ns, self.begin_ns, rings.whole_since_ns)
        return begin_ns, rows[rows["at_ns"] >= begin_ns]

    def _forget(self, before_ns: int) -> None:
        """Forget slices, and stacks of samples, that are too old by now."""
        self.slices = [part for part in self.slices if part.end_ns > before_ns]
        if len(self.census.stacks) > _MOST_STACKS:
            self.census.forget_stacks(part.known for part in self.slices)

    def _used_ns(self) -> float:
        now_ns = self.go.target.cpu_ns()
        if now_ns is not None:
            self._cpu_now_ns = now_ns
        return max(0.0, self._cpu_now_ns - self._cpu_before_ns)

    def _sample(self) -> None:
        self._known = self.census.sample()


def _within(slices: Sequence[Slice], begin_ns: int) -> list[Slice]:
    """The slices since a time, cut off there."""
    return [
        part._replace(begin_ns=max(begin_ns, part.begin_ns))
        for part in slices
        if part.end_ns > begin_ns
    ]
