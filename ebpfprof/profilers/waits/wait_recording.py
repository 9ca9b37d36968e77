"""The waits of one process, recorded by probes in it: all of them, or what a bound allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Cost
from ebpfprof.profile.losses import Loss, losses_of, losses_since
from ebpfprof.profilers.recording import OpenedProcess
from ebpfprof.profilers.waits.collector import WaitsCollector
from ebpfprof.profilers.waits.kinds import BLOCK, MUTEX, OPEN, RUN_QUEUE, WAKERS
from ebpfprof.profilers.waits.rows import WaitsConfig
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:  # importing them takes time: we do it while BCC compiles
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.report_builder import ReportBuilder, WholeSums
    from ebpfprof.profilers.waits.budgeted_waits import BudgetedWaits
    from ebpfprof.profilers.waits.idle_stacks import IdleStacks
    from ebpfprof.profilers.waits.long_waits import LongWaits
    from ebpfprof.profilers.waits.open_recorder import OpenWaitsRecorder
    from ebpfprof.profilers.waits.rows import Hold, LastWait, StackTotal
    from ebpfprof.profilers.waits.wait_profiles import ReadWaits
    from ebpfprof.profilers.waits.wait_stacks import StackTranslator

_TICK_S: Final = 0.1
_TICK_EACH_S: Final = 0.002
_TURN_EACH_NS: Final = 50_000_000
"""With so many processes in windows, twenty windows a second: each takes us some milliseconds."""


@dataclass(frozen=True, slots=True)
class _FinalSums:
    """What the maps held of one process at the end."""

    totals: Sequence[StackTotal]
    holds: Mapping[int, Hold]
    last_waits: Mapping[int, LastWait]


class WaitsRecording:
    """Records the block, mutex and wakers profiles of one process, and open waits at the end."""

    has_probes = True  # at park, wake and so on

    def __init__(self, profiler: WaitsProfiler, opened: OpenedProcess, slot: int) -> None:
        """The process is a Go program; `slot` is its number in the maps of the program."""
        from ebpfprof.profilers.waits.growing import GrowingTotals
        from ebpfprof.profilers.waits.idle_stacks import IdleStacks
        from ebpfprof.profilers.waits.open_recorder import OpenWaitsRecorder
        from ebpfprof.profilers.waits.wait_stacks import StackTranslator

        assert opened.go
        assert opened.sampler
        options = profiler.options
        self.slot = slot
        self._profiler, self._options, self._waits = profiler, options, profiler.collector
        self._go: GoTarget = opened.go
        self._sampler = opened.sampler
        self._lease = opened.budget.lease(self.cost)
        self._translator: StackTranslator = StackTranslator(opened.go)
        self._is_started = False
        self._idle: IdleStacks | None = None
        if {BLOCK, WAKERS, RUN_QUEUE} & set(options.recorded_kinds):
            self._idle = IdleStacks(opened.sampler)
        self._budgeted: BudgetedWaits | None = None  # if not every wait is recorded, once started
        self._long: LongWaits | None = None  # as budgeted
        self._growing = GrowingTotals()
        self._final: _FinalSums | None = None
        self._open: OpenWaitsRecorder | None = None
        if options["open_waits"]:
            self._open = OpenWaitsRecorder(opened.go, has_labels=options.labels != ())
        self._runs_before = self._waits.runs(slot)
        self._losses_before = losses_of(self._waits.losses(), slot)

    def start(self) -> int:
        """Attach the probes. Returns when that was (CLOCK_MONOTONIC, ns).

        Raises as Recording.start.
        """
        self._is_started = True
        return self._start_budgeted() if self._options.samples_waits else self._start_every()

    def _start_every(self) -> int:
        if self._options["earlier_waits"]:
            from ebpfprof.profilers.waits.earlier_waits import attach_with_earlier_waits

            began_ns = attach_with_earlier_waits(self._waits, self.slot, self._go)
        else:
            began_ns = self._waits.attach(self.slot, self._go)
        if self._idle:
            self._idle.start()
        return began_ns

    def _start_budgeted(self) -> int:
        from ebpfprof.profilers.waits.budgeted_waits import BudgetedWaits
        from ebpfprof.profilers.waits.long_waits import LongWaits

        if self._long is None or self._budgeted is None:
            self._long = LongWaits(self._sampler)
            self._budgeted = BudgetedWaits(
                *(self._waits, self.slot, self._go, self._lease),
                only_one_in_eight=bool(self._options["one_in_eight"]),
                begin_sampling=self._begin_sampling,
                least_turn_ns=self._profiler.least_turn_ns,
            )
        self._long.start()
        try:
            return self._budgeted.start()
        except BaseException:  # Ctrl-C too: the caller will not call stop()
            self._long.stop()
            raise

    def _begin_sampling(self) -> None:
        assert self._long
        self._long.begin(partial(self._waits.note_sample, self.slot))

    def note_end(self) -> None:
        """With --open, read which goroutines wait now."""
        if self._open:
            self._open.note_end(self._sampler if self._budgeted else None)

    def end(self, at_ns: int) -> None:
        """Record no events after `at_ns`."""
        if self._budgeted:
            self._budgeted.end(at_ns)
        else:
            self._waits.record_until(self.slot, at_ns)

    def stop(self) -> None:
        """Detach the probes; the sums stay."""
        self.stop_budgeted()
        self.stop_samples()
        if self._idle:
            self._idle.stop()
        self._waits.detach_target(self.slot)

    def stop_budgeted(self) -> None:
        """End the recording, if the budget decides what is recorded."""
        if self._budgeted:
            self._budgeted.stop()

    def stop_samples(self) -> None:
        """Take no more goroutine samples for long waits, after one at once."""
        if self._long:
            self._long.stop()

    def finish(self, final: _FinalSums) -> None:
        """The probes are detached, and this is what the maps held at the end."""
        if self._idle:
            self._idle.stop()
        self._final = final

    def poll(self) -> None:
        """Begin to take goroutine samples if that is due."""
        if self._idle:
            self._idle.poll()

    @property
    def takes_turns(self) -> bool:
        """Whether its probes come and go for windows."""
        return self._budgeted is not None and self._budgeted.takes_turns

    def sums(self) -> WholeSums[ReadWaits] | None:
        """The sums of the process since its first start; None before it."""
        from ebpfprof.profilers.report_builder import WholeSums
        from ebpfprof.profilers.waits.wait_profiles import ReadWaits

        if not self._is_started:
            return None
        # Open waits exist only at the end.
        ours = (BLOCK, MUTEX, WAKERS, RUN_QUEUE)
        chosen = [kind for kind in self._options.recorded_kinds if kind in ours]
        waits = ReadWaits(
            kinds=(*chosen, OPEN) if self._open and self._final else tuple(chosen),
            last_waits=self._final.last_waits if self._final else {},
            idle=self._idle.found() if self._idle else {},
        )
        if self._open:
            waits.parked, waits.unread = self._open.parked, self._open.unread
            is_partial = self._final and self._budgeted and not self._budgeted.is_whole
            waits.standing = self._open.standing if is_partial else None
        if self._budgeted and self._long:
            self._add_estimates(waits, self._budgeted, self._long)
        else:
            final = self._final
            tables = self._waits.tables
            waits.totals = final.totals if final else tables.snapshot().get(self.slot, [])
            waits.holds = final.holds if final else tables.holds().get(self.slot, {})
        return WholeSums(waits)

    def _add_estimates(
        self, waits: ReadWaits, budgeted: BudgetedWaits, long_waits: LongWaits
    ) -> None:
        from ebpfprof.profilers.waits.estimates import estimates, facts_of_stacks

        sums, coverage = budgeted.sums()
        pcs = (stack.return_pcs for stack in {**sums.every, **sums.eighth, **sums.windowed})
        with suppress(SymbolizerError):  # of names that can't be read, each stack reports that
            self._translator.look_up(set[int]().union(*pcs))
        estimated = estimates(
            sums,
            {} if budgeted.is_whole else long_waits.found(),
            facts_of_stacks(self._go, self._translator),
            hit_ns=self._waits.hit_ns or 0.0,
        )
        waits.hanging = long_waits.hanging()
        waits.holds = budgeted.holds()
        waits.totals = self._growing.grown(estimated.rows)
        waits.coverage = replace(
            coverage, deviations=estimated.deviations, uncharged_ns=estimated.uncharged_ns
        )

    def report(
        self,
        sums: WholeSums[ReadWaits],
        since: WholeSums[ReadWaits] | None,
        builder: ReportBuilder,
    ) -> None:
        """Add the block and mutex profiles, the locks and the open waits."""
        builder.add_since(self._report_whole, sums, since)

    def _report_whole(self, read: ReadWaits, builder: ReportBuilder) -> None:
        from ebpfprof.profilers.waits.wait_profiles import report

        wanted = builder.recording.kinds
        read.kinds = tuple(k for k in read.kinds if k.name in wanted or k.enabled_by)
        report(read, self._go, self._translator, builder)
        if read.hanging:
            from ebpfprof.profilers.waits import hanging

            with suppress(SymbolizerError):  # a hint without names would say nothing
                builder.report.hints += hanging.sentences(
                    read.hanging, self._sampler, self._translator, self._go.target.pid
                )

    def cost(self) -> Cost:
        """The runs at probes."""
        return Cost(self._waits.runs(self.slot) - self._runs_before, hit_ns=self._waits.hit_ns)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far."""
        losses = losses_since(losses_of(self._waits.losses(), self.slot), self._losses_before)
        parked = self._open.parked if self._open else None
        samples = self._sampler.losses() if self._budgeted else ()
        return [*losses, *(parked.losses if parked else ()), *samples]

    def failures(self) -> Sequence[Exception]:
        """The errors because of which data is missing."""
        failures = (
            self._open.unread if self._open else None,
            self._budgeted.failure if self._budgeted else None,
            self._sampler.failure if self._budgeted else None,
        )
        return [failure for failure in failures if failure]

    def close(self) -> None:
        """Delete its data in the maps of the program."""
        self._waits.forget(self.slot)


class WaitsProfiler:
    """The loaded program, for any number of processes. See profilers.recording.LoadedProfiler."""

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile; load() waits for the result. Raises what WaitsCollector raises."""
        self.collector = WaitsCollector(targets, WaitsConfig.of(options))
        self.options = options
        self._recordings: list[WaitsRecording] = []

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds: with many processes it takes long."""
        return max(_TICK_S, _TICK_EACH_S * len(self._recordings))

    def load(self, goroutines: int) -> None:
        """Make the maps and load the program. Raises what WaitsCollector.load raises."""
        self.collector.load(goroutines)

    def record(self, opened: OpenedProcess, slot: int) -> WaitsRecording:
        """The recording of a Go process, not started yet."""
        recording = WaitsRecording(self, opened, slot)
        self._recordings.append(recording)
        opened.held.callback(self._recordings.remove, recording)
        return recording

    def poll(self) -> None:
        """Read missing label pages, and begin to take goroutine samples that are due."""
        self.collector.poll()
        for recording in self._recordings:
            recording.poll()

    def detach(self) -> None:
        """Detach all probes, and read the final sums of all processes."""
        for recording in self._recordings:
            recording.stop_samples()
        for recording in self._recordings:
            recording.stop_budgeted()
        self.collector.stop()
        self.collector.detach()
        tables = self.collector.tables
        totals, holds = tables.snapshot(), tables.holds()
        last_waits = tables.last_waits() if self.options["open_waits"] else {}
        for recording in self._recordings:
            slot = recording.slot
            recording.finish(
                _FinalSums(totals.get(slot, []), holds.get(slot, {}), last_waits.get(slot, {}))
            )

    def losses(self) -> Sequence[Loss]:
        """Each recording has its own."""
        return ()

    def failures(self) -> Sequence[Exception]:
        """Why probes were removed early, or could not be removed."""
        return [self.collector.failure] if self.collector.failure else []

    def least_turn_ns(self) -> float:
        """How long a pause and its window last at least, in ns."""
        return _TURN_EACH_NS * sum(recording.takes_turns for recording in [*self._recordings])

    def close(self) -> None:
        """Detach the probes and free the maps."""
        for recording in self._recordings:
            recording.end(kernel_now_ns())
            recording.stop_samples()  # which are announced to the program
        for recording in self._recordings:
            recording.stop_budgeted()
        self.collector.close()
