"""How `ebpfprof dump` reads processes, once or again and again, and shows what it finds."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ebpfprof.commands.watching import look_again
from ebpfprof.console.terminal import has_color, say, width
from ebpfprof.console.text import printable
from ebpfprof.errors import CorruptBinary, EbpfprofError, OutputError
from ebpfprof.export.tables import goroutines, leaks
from ebpfprof.goruntime.dump import GoroutineDumper
from ebpfprof.goruntime.process import for_user, inspect
from ebpfprof.process.process import Target
from ebpfprof.profile.leaks import LeakWatch
from ebpfprof.system.signals import Signals, interruptible
from symbolizer import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from ebpfprof.process.file_opener import FileOpener


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
        self._files, self._options = files, options
        self.failures: list[EbpfprofError] = []
        """In their order."""

    def dump(self, pids: Sequence[int], show: Callable[[str], None]) -> None:
        """Dump the processes one after the other. Raises OutputError."""
        options = self._options
        for number, pid in enumerate(pids):
            text = ""
            with self._told(pid), ExitStack() as held:
                _, dumper = self._open(pid, held)
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
                text = _failed(pid, self.failures[-1])
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
            with self._told(pid):
                found.append(_Watched(*self._open(pid, held)))
        return found

    def _look(self, each: _Watched) -> bool:
        """Look at a process and show what is found; False if it can't be looked at any more."""
        failed_before = len(self.failures)
        with self._told(each.target.pid):
            found = each.dumper.look()
            each.looks += 1
            each.first_ns = each.first_ns or found.read_ns
            suspects, gone_ns = each.leaks.add(found), found.read_ns - each.first_ns
            if self._options.as_json:
                say(leaks.encode(found, suspects, each.looks, gone_ns))
            else:
                columns = width(sys.stdout)
                say(leaks.render(found, suspects, each.looks, gone_ns, columns))
        return len(self.failures) == failed_before

    def _open(self, pid: int, held: ExitStack) -> tuple[Target, GoroutineDumper]:
        """The process, open until `held` is closed."""
        target = held.enter_context(Target(pid, self._files))
        go = inspect(target, allow_unknown_go=self._options.allow_unknown_go)
        held.callback(go.binary.elf.close)
        try:
            return target, held.enter_context(GoroutineDumper(go))
        except SymbolizerError as error:
            raise for_user(target, error) from error

    @contextmanager
    def _told(self, pid: int) -> Iterator[None]:
        """Errors that are for the user are printed and kept; the block ends there."""
        try:
            yield
        except OutputError:
            raise
        except SymbolizerError as error:
            self._fail(CorruptBinary(f"The tables of process {pid} make no sense: {error}."))
        except EbpfprofError as error:
            self._fail(error)

    def _fail(self, error: EbpfprofError) -> None:
        self.failures.append(error)
        say("ebpfprof: " + "\n".join(map(printable, str(error).splitlines())), err=True)


def _failed(pid: int, error: EbpfprofError) -> str:
    return json.dumps({"pid": pid, "error": str(error), "exit_code": int(error.exit_code)}) + "\n"
