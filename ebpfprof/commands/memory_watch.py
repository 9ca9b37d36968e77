"""`ebpfprof memory --watch`: stacks or types that hold more and more memory."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from ebpfprof.commands.growth_readers import ReferenceGrowth, StackGrowth, TypeGrowth
from ebpfprof.commands.watching import sample_repeatedly
from ebpfprof.console.terminal import say, width
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError, UnsupportedTarget, to_type
from ebpfprof.export.tables import heap_growth
from ebpfprof.goruntime.open_processes import OpenProcesses
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.system.signals import Signals, interruptible
from symbolizer import SymbolizerError

if TYPE_CHECKING:
    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.process.file_opener import FileOpener
    from ebpfprof.process.process import Target


@dataclass
class _Watched:
    """A process that is sampled repeatedly."""

    target: Target
    reader: StackGrowth | TypeGrowth | ReferenceGrowth
    first_ns: int = 0


class MemoryWatch:
    """Watches processes. A failure is reported, and does not affect others."""

    def __init__(
        self, files: FileOpener, *, as_json: bool, references: bool, opening: OpenOptions
    ) -> None:
        """With `references`, it shows paths to objects instead of stacks."""
        self._processes = OpenProcesses(files, opening)
        self._as_json, self._references = as_json, references
        self.failures: list[EbpfprofError] = []
        """In the order of the processes."""

    def watch(self, pids: Sequence[int], *, every_s: float, duration_s: float | None) -> None:
        """Sample the processes every `every_s` seconds until a signal, or for `duration_s`.

        It also ends when all processes have ended. Raises OutputError or KeyboardInterrupt.
        """
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            watched: list[_Watched] = []
            for pid in pids:
                self._reported(partial(self._open_into, watched, pid, held))
            signals.end_recording_only()
            sample_repeatedly(
                watched, self._sample, signals, every_s=every_s, duration_s=duration_s
            )

    def _open_into(self, watched: list[_Watched], pid: int, held: ExitStack) -> None:
        watched.append(interruptible(lambda: self._opened(pid, held)))

    def _opened(self, pid: int, held: ExitStack) -> _Watched:
        process = held.enter_context(self._processes.open(pid))
        target = process.target
        try:
            if self._references:
                return _Watched(target, ReferenceGrowth(process.go()))
            try:
                return _Watched(target, StackGrowth(process))
            except UnsupportedTarget:  # without a memory profile: types and sizes remain
                say(
                    f"ebpfprof: Process {pid} ({printable(target.name)}) keeps no memory profile, "
                    "so types and sizes of objects are shown instead of stacks. To find the stacks "
                    "with probes:"
                    + to_type(f"ebpfprof serve --pid {pid} --continuous --profile heap"),
                    err=True,
                )
                return _Watched(target, TypeGrowth(process))
        except SymbolizerError as error:
            raise for_user(target, error) from error

    def _sample(self, watched: _Watched) -> bool:
        """Take a sample of a process and show the result; False if it can't be read any more."""
        return self._reported(lambda: self._show(watched))

    def _show(self, watched: _Watched) -> None:
        now_ns = kernel_now_ns()
        watched.first_ns = watched.first_ns or now_ns
        try:
            watched.reader.sample(now_ns)
        except SymbolizerError as error:
            raise for_user(watched.target, error) from error
        seen = heap_growth.Seen(
            watched.target.pid,
            watched.target.name,
            (now_ns - watched.first_ns) / 1e9,
            watched.reader.samples,
            watched.reader.in_use,
            watched.reader.growing,
        )
        say(seen.encode() if self._as_json else seen.render(width(sys.stdout)))

    def _reported(self, work: Callable[[], None]) -> bool:
        """Do the work; print and keep errors for the user. Returns whether it succeeded."""
        try:
            work()
        except EbpfprofError as error:
            self.failures.append(error)
            said = "\n".join(map(printable, str(error).splitlines()))
            say(f"ebpfprof: {said}", err=True)
            return False
        return True
