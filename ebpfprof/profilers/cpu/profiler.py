"""The profiler of CPU time: samplers on all processors, for any number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Runs
from ebpfprof.privileges.capabilities import set_aside
from ebpfprof.profilers.profiler import Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.kernel.losses import Loss
    from ebpfprof.process.mappings import MappedObjects
    from ebpfprof.profilers.cpu.collector import CpuCollector
    from ebpfprof.profilers.cpu.report import RecordedSamples
    from ebpfprof.profilers.cpu.sample_table import SampleSums
    from ebpfprof.profilers.cpu.stacks import CpuTranslator
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess, RecordedData
    from ebpfprof.profilers.report_builder import ReportBuilder

_IDLE_TICK_S: Final = 0.1


def open_profiler(targets: int, options: Options) -> CpuProfiler:
    """Start to compile, for up to `targets` processes. Raises what CpuCollector raises."""
    return CpuProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """The kernel may be set to require CAP_SYS_ADMIN for perf events (perf_event_paranoid)."""
    from ebpfprof.kernel import perf_events

    # A processor that comes online during the recording needs an event, too.
    with set_aside("CAP_SYS_ADMIN"):
        is_needed = not perf_events.may_open_events()
    return Rights(to_attach=is_needed, to_record=is_needed)


class CpuProfiler:
    """Records the CPU profile."""

    hit_ns = None

    def __init__(self, targets: int, options: Options) -> None:
        """Start to compile; load() waits for the result."""
        from ebpfprof.profilers.cpu.collector import CpuCollector, CpuConfig

        self.collector: CpuCollector = CpuCollector(targets, CpuConfig.of(options))
        self._opened: dict[int, tuple[OpenedProcess, MappedObjects]] = {}
        self._sampled: set[int] = set()
        self._translators: dict[int, CpuTranslator] = {}

    @property
    def tick_s(self) -> float:
        """The time until the next poll(), in seconds."""
        return self.collector.tick_s if self._sampled else _IDLE_TICK_S

    def load(self, _goroutines: int) -> None:
        """Make the maps and load the program. Raises what CpuCollector.load raises."""
        self.collector.load()

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Give an open process this number."""
        from ebpfprof.process.mappings import MappedObjects

        self._opened[number] = opened, opened.held.enter_context(MappedObjects(opened.process))

    def start(self, number: int) -> int:
        """Start to sample a process. Returns when that was. Raises as Profiler.start."""
        opened, objects = self._opened[number]
        self.collector.attach(number, opened.process, objects, opened.go)
        self._sampled.add(number)
        if len(self._sampled) == 1:
            self.collector.start()
        return kernel_now_ns()

    def stop(self, number: int) -> None:
        """Stop sampling a process; after the last one, close the samplers."""
        if number in self._sampled:
            self._sampled.remove(number)
            self.collector.pause(number)
            if not self._sampled:
                self.collector.halt()

    def note_end(self, number: int) -> None:
        """Nothing to read."""

    def end(self, number: int, at_ns: int) -> None:
        """Take no more samples of a process."""
        if number in self._sampled:
            self.collector.end(number)

    def detach(self) -> None:
        """Close the samplers; sums stay readable."""
        self._sampled.clear()
        self.collector.detach()

    def forget(self, number: int) -> None:
        """Delete all data of a process that is not sampled."""
        self.collector.forget(number)
        self._opened.pop(number, None)
        self._translators.pop(number, None)

    def poll(self) -> None:
        """Unwind samples and give the kernel rules, while a process is sampled."""
        if self._sampled:
            self.collector.poll()

    def has_probes(self, _number: int) -> bool:
        """Timers interrupt it."""
        return False

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """No runs at probes; the runs at CPU samples."""
        return Runs(), self.collector.runs(number)

    def losses(self) -> Sequence[Loss]:
        """What it lost so far, of all processes together."""
        return self.collector.losses()

    def failures(self) -> Sequence[Exception]:
        """The error because of which callers are missing in stacks."""
        return [self.collector.failure] if self.collector.failure else []

    def snapshot(self, _number: int, *, settled: bool) -> RecordedData | None:
        """None: begin() and read() add up samples on request."""

    def begin(self, number: int) -> SampleSums:
        """Start to add up the samples of a process."""
        self.poll()
        return self.collector.samples.begin(number)

    def read(self, number: int, mark: SampleSums, *, restart: bool) -> RecordedSamples:
        """The samples since begin() returned `mark`; with `restart`, the sums restart at 0."""
        from ebpfprof.profilers.cpu.report import RecordedSamples

        self.poll()
        stacks = self.collector.samples.read(mark, restart=restart)
        return RecordedSamples(stacks=stacks, sampler=self.collector.sampler(number))

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the CPU profile."""
        from ebpfprof.profilers.cpu.report import RecordedSamples, report
        from ebpfprof.profilers.cpu.stacks import CpuTranslator

        assert isinstance(found, RecordedSamples)
        opened, objects = self._opened[number]
        if number not in self._translators:
            self._translators[number] = CpuTranslator(objects, opened.go)
        report(found, objects, self._translators[number], builder)

    def close(self) -> None:
        """Close the samplers and free the maps."""
        self.collector.close()
