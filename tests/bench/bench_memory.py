"""What it takes to read a program's memory profile, its statistics of memory, and its threads.

    python -m tests.bench.bench_memory

As root, on a quiet machine. Each number is the median of some reads. Fails if the statistics, which
each scrape of /metrics reads, or a profile of a usual size take more than ten milliseconds.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from statistics import median
from typing import Final

from ebpfprof.goruntime.goroutines.threads import ThreadScanner
from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets
from ebpfprof.goruntime.heap.live_memory import LiveMemoryReader
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.process import GoTarget
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target as Process
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals
from tests.go_target import inspect
from tests.kernel.programs import program
from tests.targets_run import Target

MOST_MS: Final = 10.0
_READS: Final = 10


def timed_ms(read: Callable[[], object], reads: int = _READS) -> float:
    """The median of some reads."""
    found = []
    for _ in range(reads):
        began = time.perf_counter()
        read()
        found.append(1e3 * (time.perf_counter() - began))
    return median(found)


def opened(target: Target, held: ExitStack) -> tuple[GoTarget, Memory]:
    process = held.enter_context(Process(target.pid))
    go = inspect(process)
    held.callback(go.binary.elf.close)
    return go, process.memory


def buckets_ms(number: int) -> float:
    """To read that many buckets and some more again."""
    with ExitStack() as held:
        target = held.enter_context(
            Target.start(program("heap"), "1", env={"GOGC": "off"})  # every allocation is sampled
        )
        for command in ("make 20", f"buckets {number}", "gc"):
            target.ask(command, "done")
        go, memory = opened(target, held)
        reader = HeapBuckets(memory, go.binary.layout, heap_globals(go.binary), go.load_bias)
        first = timed_ms(reader.read, 1)
        later = timed_ms(reader.read)
        print(f"{number + 58:9,} buckets        {later:8.2f} ms, at first {first:.1f} ms")
        return later


def memory_ms(kept: int) -> float:
    """To read the statistics; prints what the survivors of a collection take, too."""
    with ExitStack() as held:
        target = held.enter_context(Target.start(program("memory")))
        for command in (f"keep {kept}", "gc"):
            target.ask(command, "done")
        go, memory = opened(target, held)
        found = memory_globals(go.binary)
        statistics = MemoryStatisticsReader(memory, go.binary, found, go.load_bias)
        live = LiveMemoryReader(memory, go.binary, found, go.load_bias)
        mib = statistics.read().allocated >> 20
        took = timed_ms(statistics.read)
        print(f"          statistics     {took:8.2f} ms")
        print(f"{mib:9,} MiB of objects {timed_ms(live.read, 5):8.2f} ms, by size and type")
        return took


def threads_ms(number: int) -> float:
    """To read that many threads, and all goroutines."""
    with ExitStack() as held:
        target = held.enter_context(Target.start(program("threads")))
        target.ask(f"read {number}", "done")
        go, _ = opened(target, held)
        scanner = ThreadScanner(go)
        took = timed_ms(scanner.scan, 5)
        print(f"{number:9,} threads        {took:8.2f} ms")
        return took


def main() -> int:
    usual = [buckets_ms(0), memory_ms(100_000)]
    buckets_ms(100_000)
    threads_ms(1_000)
    return 0 if max(usual) <= MOST_MS else 1


if __name__ == "__main__":
    sys.exit(main())
