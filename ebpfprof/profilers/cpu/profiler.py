"""The profiler of CPU time: samplers on all processors, for any number of processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.overhead.cost import Runs
from ebpfprof.privileges.capabilities import set_aside
from ebpfprof.profilers.profiler import Rights

if TYPE_CHECKING:  # they take time to import, and not every recording needs them
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
    """Begin to compile, for up to so many processes. Raises what CpuCollector does."""
    return CpuProfiler(targets, options)


def rights(_options: Options) -> Rights:
    """CAP_SYS_ADMIN opens perf events where the kernel is set to refuse them to others."""
    from ebpfprof.kernel import perf_events

    # Processors may come while it is recorded, and each has an event of its own.
    with set_aside("CAP_SYS_ADMIN"):
        is_needed = not perf_events.may_open_events()
    return Rights(to_attach=is_needed, to_record=is_needed)


class CpuProfiler:
    """Records the CPU profile."""

    hit_ns = None

    def __init__(self, targets: int, options: Options) -> None:
        """Begin to compile; load() ends that."""
        from ebpfprof.profilers.cpu.collector import CpuCollector, CpuConfig

        self.collector: CpuCollector = CpuCollector(targets, CpuConfig.of(options))
        self._opened: dict[int, tuple[OpenedProcess, MappedObjects]] = {}
        self._sampled: set[int] = set()
        self._translators: dict[int, CpuTranslator] = {}

    @property
    def tick_s(self) -> float:
        """How soon it is to be polled again, in seconds."""
        return self.collector.tick_s if self._sampled else _IDLE_TICK_S

    def load(self, _goroutines: int) -> None:
        """Make the maps and load the program. Raises what CpuCollector.load does."""
        self.collector.load()

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Make a process number `number`."""
        from ebpfprof.process.mappings import MappedObjects

        self._opened[number] = opened, opened.held.enter_context(MappedObjects(opened.process))

    def start(self, number: int) -> int:
        """Sample a process from now on: when that was. Raises as Profiler.start."""
        opened, objects = self._opened[number]
        self.collector.attach(number, opened.process, objects, opened.go)
        self._sampled.add(number)
        if len(self._sampled) == 1:
            self.collector.start()
        return kernel_now_ns()

    def stop(self, number: int) -> None:
        """Sample a process no more; the samplers go when no process is sampled."""
        if number in self._sampled:
            self._sampled.remove(number)
            self.collector.pause(number)
            if not self._sampled:
                self.collector.halt()

    def note_end(self, number: int) -> None:
        """Nothing must be read of the process."""

    def end(self) -> None:
        """End the recording of all processes at once."""
        self.collector.stop()

    def detach(self) -> None:
        """Close the samplers; sums stay readable."""
        self._sampled.clear()
        self.collector.detach()

    def forget(self, number: int) -> None:
        """Forget all of a process that is not sampled."""
        self.collector.forget(number)
        self._opened.pop(number, None)
        self._translators.pop(number, None)

    def poll(self) -> None:
        """Finish samples and teach the kernel how to unwind, while anything is sampled."""
        if self._sampled:
            self.collector.poll()

    def runs(self, number: int) -> tuple[Runs, Runs]:
        """How often a sample was taken, and what our program took."""
        return Runs(), self.collector.runs(number)

    def losses(self) -> Sequence[Loss]:
        """What was lost so far, all processes together."""
        return self.collector.losses()

    def failures(self) -> Sequence[Exception]:
        """Why callers are missing in stacks."""
        return [self.collector.failure] if self.collector.failure else []

    def snapshot(self, _number: int, *, settled: bool) -> RecordedData | None:
        """None: samples are added up for those only that ask for them."""

    def begin(self, number: int) -> SampleSums:
        """Add up the samples of a process from now on."""
        self.poll()
        return self.collector.samples.begin(number)

    def read(self, number: int, mark: SampleSums, *, restart: bool) -> RecordedSamples:
        """The samples that have come since; counting restarts at zero now if `restart`."""
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
