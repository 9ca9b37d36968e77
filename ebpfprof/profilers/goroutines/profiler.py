"""The profiler of goroutines: reads them from the target's memory when it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.kernel.losses import Loss
from ebpfprof.profilers.profiler import RecordedData, Rights
from ebpfprof.profilers.reading_profiler import ReadingProfiler

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.goroutines.all_goroutines import AllGoroutines, GoroutineScanner
    from ebpfprof.profilers.goroutines.stacks import GoroutineStacks
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_MOVED: Final = "goroutines without a stack: they moved at each attempt"
_UNLABELLED: Final = "goroutines without labels: they could not be read"
_BEYOND: Final = "goroutines that were not read: there are too many"


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


class GoroutineProfiler(ReadingProfiler["AllGoroutines"]):
    """Reads all goroutines of processes."""

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._has_labels = options.labels != ()
        self._scanners: dict[int, GoroutineScanner] = {}
        self._stacks: dict[int, GoroutineStacks] = {}
        self._losses: dict[int, list[Loss]] = {}  # of the last look at each

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a list of goroutines.
        """
        from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
        from ebpfprof.goruntime.process import for_user
        from symbolizer.errors import SymbolizerError

        if opened.go is None:
            return
        try:
            scanner = GoroutineScanner(opened.go, has_labels=self._has_labels)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        self._scanners[number] = opened.held.enter_context(scanner)
        self.targets[number] = opened.go

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        super().forget(number)
        self._scanners.pop(number, None)
        self._stacks.pop(number, None)
        self._losses.pop(number, None)

    def losses(self) -> Sequence[Loss]:
        """Goroutines without a stack, and those that were not read."""
        return [loss for found in self._losses.values() for loss in found]

    def look(self, number: int) -> AllGoroutines:
        """The goroutines now."""
        found = self._scanners[number].scan()
        unlabelled = sum(goroutine.labels is None for goroutine in found.goroutines)
        counts = (
            ("goroutines_moving", _MOVED, found.moved),
            ("labels_unread", _UNLABELLED, unlabelled),
            ("goroutines_beyond", _BEYOND, found.beyond),
        )
        self._losses[number] = [Loss(*each, target=number) for each in counts if each[2]]
        return found

    def recorded(self, number: int) -> RecordedData:
        """The goroutines of the last look."""
        return RecordedGoroutines(found=self.last.get(number))

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the goroutine profile."""
        from ebpfprof.profilers.goroutines.stacks import GoroutineStacks, report

        assert isinstance(found, RecordedGoroutines)
        if number not in self._stacks:
            self._stacks[number] = GoroutineStacks(self.targets[number])
        report(found.found, self._stacks[number], builder)
