"""How `ebpfprof dump` reads processes, once or repeatedly, and shows the result."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.commands.reachable_leaks import with_leaks
from ebpfprof.commands.readable_targets import ReadableTargets, failure_as_json
from ebpfprof.commands.watching import sample_repeatedly
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.export.tables import goroutines, leaks
from ebpfprof.profile.leaks import LeakWatch
from ebpfprof.system.signals import Signals, interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.errors import EbpfprofError
    from ebpfprof.goruntime.open_processes import OpenOptions
    from ebpfprof.goruntime.waits.dump import GoroutineDumper
    from ebpfprof.process.file_opener import FileOpener
    from ebpfprof.process.process import Target


@dataclass(frozen=True)
class DumpOptions:
    """Options of the command line."""

    as_json: bool
    show_all: bool
    finds_leaks: bool
    apart_s: float
    opening: OpenOptions


@dataclass
class _Watched:
    """A process that is sampled repeatedly."""

    target: Target
    dumper: GoroutineDumper
    leaks: LeakWatch = field(default_factory=LeakWatch)
    first_ns: int = 0
    samples: int = 0


class Dumping:
    """Dumps processes. A failure is reported, and does not affect others."""

    def __init__(self, files: FileOpener, options: DumpOptions) -> None:
        self._options = options
        self._targets = ReadableTargets(files, options.opening)

    @property
    def failures(self) -> list[EbpfprofError]:
        """In the order of the processes."""
        return self._targets.failures

    def dump(self, pids: Sequence[int], show: Callable[[str], None]) -> None:
        """Dump the processes one after the other. Raises OutputError."""
        options = self._options
        for number, pid in enumerate(pids):
            text = ""
            with self._targets.reported(pid), ExitStack() as held:
                go, dumper = self._targets.open(pid, held)
                dump = dumper.dump(apart_s=options.apart_s)
                if options.finds_leaks:
                    dump = with_leaks(dump, go)
                if options.as_json:
                    text = goroutines.encode(dump) + "\n"
                else:
                    text = ("\n" if number else "") + goroutines.render(
                        dump,
                        each_alone=options.show_all,
                        width=width(sys.stdout),
                        color=has_color(sys.stdout),
                    )
            if not text and options.as_json and len(pids) > 1:
                text = json.dumps(failure_as_json(pid, self.failures[-1])) + "\n"
            show(text)

    def watch(self, pids: Sequence[int], *, every_s: float, duration_s: float | None) -> None:
        """Sample the processes every `every_s` seconds until a signal, or for `duration_s`.

        It also ends when all processes have ended. Raises OutputError or KeyboardInterrupt.
        """
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            watched = interruptible(lambda: self._watched(pids, held))
            signals.end_recording_only()
            sample_repeatedly(
                watched, self._sample, signals, every_s=every_s, duration_s=duration_s
            )

    def _watched(self, pids: Sequence[int], held: ExitStack) -> list[_Watched]:
        watched = []
        for pid in pids:
            with self._targets.reported(pid):
                go, dumper = self._targets.open(pid, held)
                watched.append(_Watched(go.target, dumper))
        return watched

    def _sample(self, watched: _Watched) -> bool:
        """Take a sample of a process and show the result; False if it can't be read any more."""
        failed_before = len(self.failures)
        with self._targets.reported(watched.target.pid):
            dump = watched.dumper.dump_once()
            watched.samples += 1
            watched.first_ns = watched.first_ns or dump.read_ns
            suspects = watched.leaks.add(dump)
            passed_ns = dump.read_ns - watched.first_ns
            if self._options.as_json:
                say(leaks.encode(dump, suspects, watched.samples, passed_ns))
            else:
                columns = width(sys.stdout)
                say(leaks.render(dump, suspects, watched.samples, passed_ns, columns))
        return len(self.failures) == failed_before
