"""All that goruntime reads of a process: what an image must have, and what tests ask of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from ebpfprof.export import traceback_text
from ebpfprof.goruntime.godebug import shows_labels
from ebpfprof.goruntime.goroutines.frames import StackFrames
from ebpfprof.goruntime.goroutines.parked import ParkedScanner, parked_goroutines
from ebpfprof.goruntime.goroutines.state_counts import StateCounter
from ebpfprof.goruntime.goroutines.threads import AllThreads, ThreadScanner
from ebpfprof.goruntime.goroutines.times_run import TimesRun
from ebpfprof.goruntime.goroutines.tracebacks import TracebackReader
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts, keeps_profile
from ebpfprof.goruntime.heap.heap_locks import HeapLocks
from ebpfprof.goruntime.heap.live_memory import LiveMemory, LiveMemoryReader
from ebpfprof.goruntime.heap.memory_reader import read_memory
from ebpfprof.goruntime.process import GoTarget, go_target, open_program
from ebpfprof.goruntime.samples.sampler import GoroutineSampler
from ebpfprof.goruntime.samples.state_sums import StateTotals
from ebpfprof.goruntime.waits.dump import dump
from ebpfprof.goruntime.waits.timers import TimerReader
from ebpfprof.goruntime.waits.wait_causes import CauseReader, WaitCause
from ebpfprof.goruntime.waits.watch import GoroutineWatch, WatchedGoroutines
from ebpfprof.process.process import Target
from ebpfprof.profile.goroutines import GoroutineDump
from ebpfprof.profile.memory import MemoryParts
from ebpfprof.profile.tracebacks import TracebackStyle
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals

LOOKS: Final = 3


def traceback(go: GoTarget) -> str:
    """Go's own traceback of all goroutines, as ?debug=2 writes it."""
    layout = go.binary.layout
    has_labels = shows_labels(go.binary, go.target)
    style = TracebackStyle(layout.tracebacks, has_labels, layout.profile_stacks.max_depth)
    reader = TracebackReader(
        go.target, go.binary, go.load_bias, has_arguments=True, has_labels=has_labels
    )
    return traceback_text.text(reader.read(), style).decode()


def goroutines(go: GoTarget) -> GoroutineDump:
    """A dump: stacks, labels, locks and their holders, channels, files, system calls, timers."""
    return dump(go, apart_s=0)


def sampled(go: GoTarget) -> StateTotals:
    """What goroutines do, at some samples."""
    sampler = GoroutineSampler(go, has_labels=True, has_semaphores=True)
    for _ in range(LOOKS):
        sampler.sample()
    sampler.idle()
    return sampler.totals()


def state_counts(go: GoTarget) -> Mapping[str, int]:
    """How many goroutines do what, by groups of states."""
    counter = StateCounter(go)
    return counter.read()


def waits(go: GoTarget) -> list[Any]:
    """The goroutines in waits that the block profile has."""
    scanner = ParkedScanner(go, has_labels=True)
    found = list(scanner.parked().values())
    parked_goroutines(go, has_labels=True)
    return found


def times_run(go: GoTarget) -> int | None:
    """How often goroutines ran, divided by eight."""
    return TimesRun(go).count()


def watched(go: GoTarget) -> WatchedGoroutines:
    """What GoroutineWatch makes of it."""
    watch = GoroutineWatch(go)
    watch.sample(interval_s=0, full_every_s=0)
    watch.sample(interval_s=0, full_every_s=0)
    return watch.found


def memory(go: GoTarget) -> MemoryParts:
    """What memory consists of."""
    return read_memory(go.target, go.binary, go.load_bias)


def live_memory(go: GoTarget) -> LiveMemory:
    """What survived the latest collection."""
    opened = go.target.memory
    found = memory_globals(go.binary)
    return LiveMemoryReader(opened, go.binary, found, go.load_bias).read()


def allocations(go: GoTarget) -> HeapCounts:
    """The memory profile."""
    opened = go.target.memory
    place = heap_globals(go.binary)
    buckets = HeapBuckets(opened, go.binary.layout, place, go.load_bias)
    keeps_profile(buckets, go.binary, go.target)
    found = buckets.read()
    frames = StackFrames(go)
    for stack in found.stacks:
        frames.of(stack)
    return found


def threads(go: GoTarget) -> AllThreads:
    """The threads, and what each does."""
    scanner = ThreadScanner(go)
    return scanner.scan()


def timers(go: GoTarget) -> int | None:
    """How many timers are set."""
    opened = go.target.memory
    reader = TimerReader(go, opened)
    reader.by_channel()
    return reader.pending()


def causes(go: GoTarget) -> dict[int, WaitCause]:
    """What can wake each goroutine, by its id."""
    opened = go.target.memory
    addresses = {
        goroutine.address: goroutine.goid
        for goroutine in parked_goroutines(go).goroutines
        if goroutine.address
    }
    found = CauseReader(go, opened).read(addresses)
    return {addresses[address]: cause for address, cause in found.items()}


def lock_names(go: GoTarget) -> None:
    """The names of locks that goroutines wait for, of those on the heap."""
    names = HeapLocks(go)
    for goroutine in goroutines(go).goroutines:
        if goroutine.waits_for.lock:
            names.name(goroutine.waits_for.lock.address, (), goroutine.waits_for.lock.type)


READERS: Final[dict[str, Callable[[GoTarget], object]]] = {
    each.__name__: each
    for each in (
        *(traceback, goroutines, sampled, waits, times_run, watched, memory, live_memory),
        *(allocations, threads, timers, causes, lock_names, state_counts),
    )
}


@contextmanager
def opened(target: Target) -> Iterator[GoTarget]:
    """A target as a Go program."""
    with target:
        program = open_program(target)
        try:
            yield go_target(target, program)
        finally:
            program.close()
