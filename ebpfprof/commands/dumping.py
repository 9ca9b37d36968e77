"""How `ebpfprof dump` reads processes, once or again and again, and shows what it finds."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.commands.readable_targets import ReadableTargets, failure_as_json
from ebpfprof.commands.watching import look_again
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.export.tables import goroutines, leaks
from ebpfprof.profile.leaks import LeakWatch
from ebpfprof.system.signals import Signals, interruptible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ebpfprof.errors import EbpfprofError
    from ebpfprof.goruntime.waits.dump import GoroutineDumper
    from ebpfprof.process.file_opener import FileOpener
    from ebpfprof.process.process import Target


@dataclass(frozen=True)
class DumpOptions:
    """What the options of the command line ask for."""

    as_json: bool
    each_alone: bool
    apart_s: float
    allow_unknown_go: bool


@dataclass
class _Watched:
    """A process that is looked at again and again."""

    target: Target
    dumper: GoroutineDumper
    leaks: LeakWatch = field(default_factory=LeakWatch)
    first_ns: int = 0
    looks: int = 0


class Dumping:
    """Dumps processes. One that fails is told of, and does not end the work on the others."""

    def __init__(self, files: FileOpener, options: DumpOptions) -> None:
        self._options = options
        self._targets = ReadableTargets(files, allow_unknown_go=options.allow_unknown_go)

    @property
    def failures(self) -> list[EbpfprofError]:
        """In their order."""
        return self._targets.failures

    def dump(self, pids: Sequence[int], show: Callable[[str], None]) -> None:
        """Dump the processes one after the other. Raises OutputError."""
        options = self._options
        for number, pid in enumerate(pids):
            text = ""
            with self._targets.told(pid), ExitStack() as held:
                _, dumper = self._targets.open(pid, held)
                found = dumper.dump(apart_s=options.apart_s)
                if options.as_json:
                    text = goroutines.encode(found) + "\n"
                else:
                    text = ("\n" if number else "") + goroutines.render(
                        found,
                        each_alone=options.each_alone,
                        width=width(sys.stdout),
                        color=has_color(sys.stdout),
                    )
            if not text and options.as_json and len(pids) > 1:
                text = json.dumps(failure_as_json(pid, self.failures[-1])) + "\n"
            show(text)

    def watch(self, pids: Sequence[int], *, every_s: float, duration_s: float | None) -> None:
        """Look at the processes every `every_s` seconds until a signal, or for `duration_s`.

        It also ends when all of them have ended. Raises OutputError or KeyboardInterrupt.
        """
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            watched = interruptible(lambda: self._watched(pids, held))
            signals.end_recording_only()
            look_again(watched, self._look, signals, every_s=every_s, duration_s=duration_s)

    def _watched(self, pids: Sequence[int], held: ExitStack) -> list[_Watched]:
        found = []
        for pid in pids:
            with self._targets.told(pid):
                go, dumper = self._targets.open(pid, held)
                found.append(_Watched(go.target, dumper))
        return found

    def _look(self, each: _Watched) -> bool:
        """Look at a process and show what is found; False if it can't be looked at any more."""
        failed_before = len(self.failures)
        with self._targets.told(each.target.pid):
            found = each.dumper.dump_once()
            each.looks += 1
            each.first_ns = each.first_ns or found.read_ns
            suspects, gone_ns = each.leaks.add(found), found.read_ns - each.first_ns
            if self._options.as_json:
                say(leaks.encode(found, suspects, each.looks, gone_ns))
            else:
                columns = width(sys.stdout)
                say(leaks.render(found, suspects, each.looks, gone_ns, columns))
        return len(self.failures) == failed_before
