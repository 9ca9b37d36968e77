"""The goroutines of one process, read from its memory when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.losses import Loss
from ebpfprof.profilers.memory_reading import MemoryRecording

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.goroutines.all_goroutines import AllGoroutines
    from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks, ReadGoroutines
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_MOVED: Final = "goroutines without a stack: they moved at each attempt"
_UNLABELLED: Final = "goroutines without labels: they could not be read"
_BEYOND: Final = "goroutines that were not read: there are too many"


class GoroutineRecording(MemoryRecording["AllGoroutines"]):
    """Reads all goroutines of one process."""

    def __init__(self, opened: OpenedProcess, _slot: int, *, has_labels: bool) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a list of goroutines.
        """
        from ebpfprof.goruntime.goroutines.all_goroutines import GoroutineScanner
        from ebpfprof.goruntime.process import for_user
        from symbolizer.errors import SymbolizerError

        super().__init__()
        assert opened.go
        try:
            self._scanner = GoroutineScanner(opened.go, has_labels=has_labels)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        self._go = opened.go
        self._stacks: GoroutineStacks | None = None

    def losses(self) -> Sequence[Loss]:
        """Goroutines without a stack, and those that were not read, the last time."""
        if self.last is None:
            return ()
        unlabelled = sum(goroutine.labels is None for goroutine in self.last.goroutines)
        counts = (
            ("goroutines_moving", _MOVED, self.last.moved),
            ("labels_unread", _UNLABELLED, unlabelled),
            ("goroutines_beyond", _BEYOND, self.last.beyond),
        )
        return [Loss(*count) for count in counts if count[2]]

    def read(self) -> AllGoroutines:
        """The goroutines now."""
        return self._scanner.scan()

    def last_read(self) -> ReadGoroutines:
        """The goroutines that were read last."""
        from ebpfprof.profilers.goroutines.goroutine_stacks import ReadGoroutines

        return ReadGoroutines(goroutines=self.last)

    def report_whole(self, read: ReadGoroutines, builder: ReportBuilder) -> None:
        """Add the goroutine profile."""
        from ebpfprof.profilers.goroutines.goroutine_stacks import (
            GoroutineStacks,
            report,
        )

        if self._stacks is None:
            self._stacks = GoroutineStacks(self._go)
        report(read, self._stacks, builder)
