"""`ebpfprof memory --watch`: which stacks hold more and more memory."""

from __future__ import annotations

import struct
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from ebpfprof.commands.watching import look_again
from ebpfprof.console.terminal import say, width
from ebpfprof.console.text import printable
from ebpfprof.errors import EbpfprofError
from ebpfprof.export.tables import heap_growth
from ebpfprof.goruntime.heap_buckets import HeapBuckets, require_profile
from ebpfprof.goruntime.process import for_user
from ebpfprof.kernel.clock import kernel_now_ns
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target
from ebpfprof.profile.heap_growth import HeapGrowth
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.kind import HEAP
from ebpfprof.profilers.heap.stacks import HeapStacks
from ebpfprof.system.signals import Signals, interruptible
from symbolizer import ElfFile, GoBinary, SymbolizerError
from symbolizer.codeanalysis.heap_globals import heap_globals

if TYPE_CHECKING:
    from ebpfprof.process.file_opener import FileOpener
    from ebpfprof.profile.heap_growth import GrowingStack


@dataclass
class _Watched:
    """A process that is looked at again and again."""

    target: Target
    buckets: HeapBuckets
    stacks: HeapStacks
    growth: HeapGrowth = field(default_factory=HeapGrowth)
    first_ns: int = 0
    cycle: int = -1
    found: list[GrowingStack] = field(default_factory=list)
    in_use: int = 0


class MemoryWatch:
    """Watches processes. One that fails is told of, and does not end the work on the others."""

    def __init__(self, files: FileOpener, *, as_json: bool, allow_unknown_go: bool) -> None:
        self._files, self._as_json, self._allow_unknown_go = files, as_json, allow_unknown_go
        self.failures: list[EbpfprofError] = []
        """In their order."""

    def watch(self, pids: Sequence[int], *, every_s: float, duration_s: float | None) -> None:
        """Look at the processes every `every_s` seconds until a signal, or for `duration_s`.

        It also ends when all of them have ended. Raises OutputError or KeyboardInterrupt.
        """
        with ExitStack() as held:
            signals = held.enter_context(Signals())
            watched: list[_Watched] = []
            for pid in pids:
                self._told(partial(self._open_into, watched, pid, held))
            signals.end_recording_only()
            look_again(watched, self._look, signals, every_s=every_s, duration_s=duration_s)

    def _open_into(self, watched: list[_Watched], pid: int, held: ExitStack) -> None:
        watched.append(interruptible(lambda: self._opened(pid, held)))

    def _opened(self, pid: int, held: ExitStack) -> _Watched:
        target = held.enter_context(Target(pid, self._files))
        try:
            elf = held.enter_context(ElfFile.open(target.exe_fd, target.allowance))
            binary = GoBinary.open(elf, allow_unknown_version=self._allow_unknown_go)
            found, bias = heap_globals(binary), target.load_bias(elf.entry)
        except (SymbolizerError, struct.error) as error:
            raise for_user(target, error) from error
        memory = held.enter_context(Memory(target))
        reader = HeapBuckets(memory, binary.layout, found, bias)
        require_profile(target, reader)
        mappings = target.executable_mappings(elf.build_id)
        return _Watched(target, reader, HeapStacks(binary, bias, mappings))

    def _look(self, each: _Watched) -> bool:
        """Look at a process and show what is found; False if it can't be looked at any more."""
        return self._told(lambda: self._show(each))

    def _show(self, each: _Watched) -> None:
        counts, now_ns = each.buckets.read(), kernel_now_ns()
        each.first_ns = each.first_ns or now_ns
        if counts.cycle != each.cycle and counts.is_collected:
            each.cycle = counts.cycle
            try:
                samples = list(buckets.samples(counts, each.stacks, fresh=False))
            except SymbolizerError as error:
                raise for_user(each.target, error) from error
            profile = HEAP.make_profile(
                samples, (), period=counts.rate, time_ns=time.time_ns(), duration_ns=0
            )
            each.in_use = sum(sample.values[-1] for sample in samples)
            each.found = each.growth.add(profile, now_ns)
        seen = heap_growth.Seen(
            each.target.pid,
            each.target.name,
            (now_ns - each.first_ns) / 1e9,
            each.growth.looks,
            each.in_use,
            each.found,
        )
        say(seen.encode() if self._as_json else seen.render(width(sys.stdout)))

    def _told(self, work: Callable[[], None]) -> bool:
        """Whether it went well; an error that is for the user is printed and kept."""
        try:
            work()
        except EbpfprofError as error:
            self.failures.append(error)
            said = "\n".join(map(printable, str(error).splitlines()))
            say(f"ebpfprof: {said}", err=True)
            return False
        return True
