"""The profiler of goroutines: reads them from the target's memory when it is asked.

It loads no BPF program and attaches no probe.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError, TargetGone
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.kernel.losses import Loss
from ebpfprof.overhead.cost import Runs
from ebpfprof.profilers.profiler import RecordedData, Rights

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.all_goroutines import AllGoroutines, GoroutineScanner
    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.profilers.goroutines.stacks import GoroutineStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_TICK_S: Final = 0.1


def open_profiler(_targets: int, options: Options) -> GoroutineProfiler:
    """A profiler for any number of processes."""
    return GoroutineProfiler(options)


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()


@dataclass(slots=True, kw_only=True)
class RecordedGoroutines(RecordedData):
    """The goroutines of a process at a moment; None if they could not be read."""

    found: AllGoroutines | None


class GoroutineProfiler:
    """Reads goroutines at each snapshot, and at the end of a recording."""

    tick_s = _TICK_S
    hit_ns = None

    def __init__(self, options: Options) -> None:
        self._has_labels = options.labels != ()
        self._scanners: dict[int, GoroutineScanner] = {}
        self._targets: dict[int, GoTarget] = {}
        self._stacks: dict[int, GoroutineStacks] = {}
        self._last: dict[int, AllGoroutines] = {}
        self._is_over = False
        self._failures: dict[int, Exception] = {}

    def load(self, goroutines: int) -> None:
        """Nothing to load."""

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a list of goroutines.
        """
        from ebpfprof.goruntime.all_goroutines import GoroutineScanner
        from ebpfprof.goruntime.process import for_user
        from symbolizer.errors import SymbolizerError

        if opened.go is None:
            return
        try:
            scanner = GoroutineScanner(opened.go, has_labels=self._has_labels)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        self._scanners[number] = opened.held.enter_context(scanner)
        self._targets[number] = opened.go

    def start(self, _number: int) -> int:
        """Nothing to start. Returns now (CLOCK_MONOTONIC, ns)."""
        return kernel_now_ns()

    def stop(self, number: int) -> None:
        """Nothing to stop."""

    def note_end(self, number: int) -> None:
        """Read the goroutines before the recording ends."""
        self._scan(number)

    def end(self) -> None:
        """From now on snapshots have what note_end() read."""
        self._is_over = True

    def detach(self) -> None:
        """Nothing to detach."""

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        for kept in (self._scanners, self._targets, self._stacks, self._last, self._failures):
            kept.pop(number, None)

    def poll(self) -> None:
        """Nothing to do."""

    def runs(self, _number: int) -> tuple[Runs, Runs]:
        """No BPF program runs."""
        return Runs(), Runs()

    def losses(self) -> Sequence[Loss]:
        """Goroutines without a stack, and those that were not read."""
        moved = sum(each.moved for each in self._last.values())
        beyond = sum(each.beyond for each in self._last.values())
        everyone = [each for found in self._last.values() for each in found.goroutines]
        unlabelled = sum(each.labels is None for each in everyone)
        counts = (
            ("goroutines_moving", "goroutines without a stack: they moved at each attempt", moved),
            (
                "labels_unread",
                "goroutines without labels: they could not be read",
                unlabelled,
            ),
            ("goroutines_beyond", "goroutines that were not read: there are too many", beyond),
        )
        return [Loss(name, text, count) for name, text, count in counts if count]

    def failures(self) -> Sequence[Exception]:
        """Why goroutines could not be read."""
        return list(self._failures.values())

    def snapshot(self, number: int, *, settled: bool) -> RecordedData | None:
        """The goroutines now, or at the end of the recording."""
        if number not in self._targets:
            return None
        if not self._is_over:
            self._scan(number)
        return RecordedGoroutines(found=self._last.get(number))

    def begin(self, _number: int) -> None:
        """No mark: a snapshot has all there is."""

    def read(self, number: int, _mark: None, *, restart: bool) -> RecordedData:
        """Never called, since begin() returns no mark."""
        raise NotImplementedError

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the goroutine profile."""
        from ebpfprof.profilers.goroutines.stacks import GoroutineStacks, report

        assert isinstance(found, RecordedGoroutines)
        if number not in self._stacks:
            self._stacks[number] = GoroutineStacks(self._targets[number])
        report(found.found, self._stacks[number], builder)

    def close(self) -> None:
        """The processes' own stacks of contexts close their memory."""

    def _scan(self, number: int) -> None:
        if number not in self._scanners:
            return
        try:
            self._last[number] = self._scanners[number].scan()
            self._failures.pop(number, None)
        except TargetGone:
            pass  # it has no goroutines any more
        except EbpfprofError as error:  # go on without them
            self._failures[number] = error
