"""The threads of one process.

While it records, it counts them ten times a second, which is one system call. When there are more,
it reads them all: the new ones are charged to those that are held then.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Final

from ebpfprof.errors import EbpfprofError
from ebpfprof.profilers.memory_reading import MemoryRecording

if TYPE_CHECKING:  # importing them takes time, and not every recording needs them
    from ebpfprof.goruntime.goroutines.threads import AllThreads
    from ebpfprof.profilers.goroutines.thread_profile import ReadThreads
    from ebpfprof.profilers.goroutines.thread_stacks import Key
    from ebpfprof.profilers.recording import OpenedProcess
    from ebpfprof.profilers.report_builder import ReportBuilder

_BESIDES_THREADS: Final = 2  # links of a folder: in its parent, and its own


class ThreadRecording(MemoryRecording["AllThreads"]):
    """Reads all threads of one process, and counts new ones."""

    def __init__(self, opened: OpenedProcess, _slot: int) -> None:
        """Open the memory of a Go process.

        Raises TargetGone or PermissionDenied, and CorruptBinary without a list of threads.
        """
        from ebpfprof.goruntime.goroutines.threads import ThreadScanner
        from ebpfprof.goruntime.process import for_user
        from ebpfprof.profilers.goroutines.goroutine_stacks import GoroutineStacks
        from ebpfprof.profilers.goroutines.thread_stacks import ThreadStacks
        from symbolizer.errors import SymbolizerError

        super().__init__()
        assert opened.go
        try:
            self._scanner = ThreadScanner(opened.go)
        except SymbolizerError as error:
            raise for_user(opened.process, error) from error
        self._process = opened.process
        self._stacks = ThreadStacks(GoroutineStacks(opened.go))
        self._threads: int | None = None  # while it records
        self._charged = Counter["Key"]()

    def start(self) -> int:
        """Count the threads from now on. Returns now (CLOCK_MONOTONIC, ns)."""
        self._threads = self._count()
        return super().start()

    def stop(self) -> None:
        """Count no longer."""
        self._notice()
        self._threads = None
        super().stop()

    def poll(self) -> None:
        """Notice new threads."""
        self._notice()

    def note_end(self) -> None:
        """Notice new threads and read all."""
        self._notice()
        super().note_end()

    def read(self) -> AllThreads:
        """The threads now."""
        return self._scanner.scan()

    def last_read(self) -> ReadThreads:
        """The threads that were read last."""
        from ebpfprof.profilers.goroutines.thread_profile import ReadThreads

        return ReadThreads(threads=self.last, charged=Counter(self._charged))

    def report_whole(self, read: ReadThreads, builder: ReportBuilder) -> None:
        """Add the profiles of the chosen kinds."""
        from ebpfprof.profilers.goroutines.thread_profile import report

        report(read, self._stacks, builder)

    def _notice(self) -> None:
        """Charge new threads to those that hold threads now."""
        before, now = self._threads, self._count()
        if before is None or not now:
            return
        self._threads = now
        if now <= before:
            return
        from symbolizer.errors import SymbolizerError

        try:
            self._charged += self._stacks.charged(self._scanner.scan(), now - before)
        except (EbpfprofError, SymbolizerError) as error:
            self.problem = error

    def _count(self) -> int:
        """How many threads the process has, 0 if it ended (Linux fs/proc/base.c)."""
        try:
            links = os.stat(f"/proc/{self._process.pid}/task").st_nlink
        except OSError:
            return 0
        return max(0, links - _BESIDES_THREADS)
