"""Records what the scheduler of one process does, and makes a timeline of it."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from ebpfprof.goruntime.all_goroutines import GoroutineScanner
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.system.closing import Closing
from ebpfprof.timeline.events import Known
from ebpfprof.timeline.model import Timeline
from ebpfprof.timeline.replay import Replay
from ebpfprof.tracing.decode import Decoder
from ebpfprof.tracing.names import TraceNames
from ebpfprof.tracing.program import TraceProgram
from symbolizer.codeanalysis.schedule_sites import schedule_sites
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    import numpy.typing as npt

    from ebpfprof.goruntime.all_goroutines import AllGoroutines
    from ebpfprof.goruntime.process import GoTarget

_SLOTS: Final = 1 << 16
_NOT_WAITING: Final = ("runnable", "running", "syscall")


class TraceRecorder(Closing):
    """One recording of one process."""

    def __init__(self, go: GoTarget, *, exact_starts: bool) -> None:
        self._go = go
        try:
            sites = schedule_sites(go.binary)
            self._program = TraceProgram(go, sites, runs=exact_starts, has_labels=True)
        except SymbolizerError as error:
            raise for_user(go.target, error) from error
        self._parts: list[npt.NDArray[Any]] = []
        self._known: dict[int, Known] = {}
        self._own_stacks: dict[int, tuple[int, ...]] = {}

    def load(self) -> None:
        self._program.load(os.cpu_count() or 1, _SLOTS)

    def start(self) -> None:
        self._program.attach()
        self._program.record(is_on=True)
        self.begin_ns, self.begin_unix_ns = kernel_now_ns(), time.time_ns()
        with GoroutineScanner(self._go) as scanner:
            self._known = self._look(scanner.scan())

    def poll(self) -> None:
        self._parts.append(self._program.rings.read())

    def stop(self) -> None:
        self._program.record(is_on=False)
        self.end_ns = kernel_now_ns()
        self._program.detach()
        self.poll()

    def timeline(self) -> Timeline:
        rows = np.concatenate(self._parts)
        rows = rows[np.argsort(rows["at_ns"], kind="stable")]
        layout = self._go.binary.layout
        decoder = Decoder(layout, self._go.binary.version.minor)
        replay = Replay(self.begin_ns, self._known)
        for event in decoder.events(rows):
            replay.take(event)
        replay.end(self.end_ns)
        steps = replay.taken()
        self.replay = replay
        names = TraceNames(self._go)
        stacks = names.stacks(
            {**self._program.stacks(), **self._own_stacks}, {step.stack for step in steps}
        )
        return Timeline(
            self._go.target.pid,
            self._go.target.name,
            self._go.binary.version.text,
            self.begin_ns,
            self.end_ns,
            self.begin_unix_ns,
            steps,
            stacks,
            names.goroutines(self._known.values(), steps, stacks),
            {},
            self._program.label_sets(),
        )

    def close(self) -> None:
        self._program.close()

    def _look(self, found: AllGoroutines) -> dict[int, Known]:
        known = {}
        for each in found.goroutines:
            state = each.state if each.state in _NOT_WAITING else "waiting"
            key = hash(each.pcs) & 0x7FFFFFFFFFFFFFFF if each.pcs else 0
            if key:
                self._own_stacks[key] = each.pcs
            known[each.goid] = Known(
                each.goid,
                found.read_ns,
                state,
                each.state if state == "waiting" else "",
                key,
                each.sequence,
                each.start_pc,
                each.created_pc,
                each.parent,
                each.labels or (),
            )
        return known
