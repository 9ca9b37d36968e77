"""The profiler of threads.

While it records, it looks ten times a second how many threads there are, which is one system call.
When there are more, it reads them all: those that are held then are why.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.kernel.losses import Loss
from ebpfprof.profilers.profiler import RecordedData, Rights
from ebpfprof.profilers.reading_profiler import ReadingProfiler

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.goroutines.threads import AllThreads, ThreadScanner
    from ebpfprof.profilers.options import Options
    from ebpfprof.profilers.profiler import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder
    from ebpfprof.profilers.threads.samples import Key, ThreadStacks

_BESIDES_THREADS: Final = 2  # links of a folder: in its parent, and its own


def open_profiler(_targets: int, _options: Options) -> ThreadProfiler:
    """A profiler for any number of processes."""
    return ThreadProfiler()


def rights(_options: Options) -> Rights:
    """Reading memory needs no CAP_SYS_ADMIN."""
    return Rights()


@dataclass(slots=True, kw_only=True)
class RecordedThreads(RecordedData):
    """The threads of a process at a moment, None if they could not be read; and new threads."""

    found: AllThreads | None
    charged: Counter[Key]


class ThreadProfiler(ReadingProfiler["AllThreads"]):
    """Reads all threads of processes, and counts new ones."""

    def __init__(self) -> None:
        super().__init__()
        self._scanners: dict[int, ThreadScanner] = {}
        self._stacks: dict[int, ThreadStacks] = {}
        self._numbers: dict[int, int] = {}
        self._charged: dict[int, Counter[Key]] = {}

    def open(self, number: int, opened: OpenedProcess) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a list of threads.
        """
        from ebpfprof.goruntime.goroutines.threads import ThreadScanner
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.profilers.goroutines.stacks import GoroutineStacks
        from ebpfprof.profilers.threads.samples import ThreadStacks
        from symbolizer.errors import SymbolizerError

        if opened.go is None:
            return
        try:
            scanner = ThreadScanner(opened.go)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        self._scanners[number] = opened.held.enter_context(scanner)
        self._stacks[number] = ThreadStacks(GoroutineStacks(opened.go))
        self._charged[number] = Counter()
        self.targets[number] = opened.go

    def start(self, number: int) -> int:
        """Count the threads from now on. Returns now (CLOCK_MONOTONIC, ns)."""
        if number in self.targets:
            self._numbers[number] = self._count(number)
        return super().start(number)

    def stop(self, number: int) -> None:
        """Count no longer."""
        self._notice(number)
        self._numbers.pop(number, None)
        super().stop(number)

    def poll(self) -> None:
        """Notice new threads."""
        for number in list(self._numbers):
            self._notice(number)

    def note_end(self, number: int) -> None:
        """Notice new threads and read all."""
        self._notice(number)
        super().note_end(number)

    def forget(self, number: int) -> None:
        """Delete all data of a process."""
        super().forget(number)
        for kept in (self._scanners, self._stacks, self._numbers, self._charged):
            kept.pop(number, None)

    def losses(self) -> Sequence[Loss]:
        """None: threads that change are samples."""
        return ()

    def look(self, number: int) -> AllThreads:
        """The threads now."""
        return self._scanners[number].scan()

    def recorded(self, number: int) -> RecordedData:
        """The threads of the last look."""
        return RecordedThreads(found=self.last.get(number), charged=Counter(self._charged[number]))

    def report(self, number: int, found: RecordedData, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds."""
        from ebpfprof.profilers.threads.report import report

        assert isinstance(found, RecordedThreads)
        report(found.found, found.charged, self._stacks[number], builder)

    def _notice(self, number: int) -> None:
        """Charge new threads to those that hold threads now."""
        before = self._numbers.get(number)
        now = self._count(number)
        if before is None or not now:
            return
        self._numbers[number] = now
        if now <= before:
            return
        from symbolizer.errors import SymbolizerError

        try:
            found = self._scanners[number].scan()
            self._charged[number] += self._stacks[number].charged(found, now - before)
        except (EbpfprofError, SymbolizerError) as error:
            self.problems[number] = error

    def _count(self, number: int) -> int:
        """How many threads the process has, 0 if it ended (Linux fs/proc/base.c)."""
        try:
            links = os.stat(f"/proc/{self.targets[number].target.pid}/task").st_nlink
        except OSError:
            return 0
        return max(0, links - _BESIDES_THREADS)
