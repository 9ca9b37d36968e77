"""The memory profile of a process in the forms of net/http/pprof.

The process runs on meanwhile, and needs no recording: each call opens it. Functions raise
NoSuchProcess, TargetGone, PermissionDenied, UnreadableMemory, CorruptBinary or UnsupportedTarget,
the last if the program keeps no memory profile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts, require_profile
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from ebpfprof.server import heap_text, memstats_text
from ebpfprof.server.opened import opened
from symbolizer import GoBinary
from symbolizer.codeanalysis.heap_globals import heap_globals
from symbolizer.codeanalysis.memory_globals import memory_globals
from symbolizer.errors import GoTableError


class _Read(NamedTuple):
    counts: HeapCounts
    target: Target
    memory: Memory
    binary: GoBinary
    load_bias: int


def profile(pid: int, kind: ProfileKind) -> Profile:
    """The profile that Go would write now, of this kind."""
    with _read(pid) as (counts, target, _, binary, bias):
        mappings = target.executable_mappings(binary.elf.build_id)
        stacks = HeapStacks(binary, bias, mappings)
        return kind.make_profile(
            buckets.samples(counts, stacks, fresh=False),
            mappings,
            period=counts.rate,
            time_ns=time.time_ns(),
            duration_ns=0,
            comments=buckets.remarks(counts, fresh=False),
        )


def written(pid: int, _kind: ProfileKind, _debug: int) -> bytes:
    """The text of ?debug=1 and higher."""
    with _read(pid) as (counts, target, memory, binary, bias):
        text = heap_text.text(counts, binary, bias)
        with suppress(GoTableError):  # of a program whose variables we don't find: without them
            reader = MemoryStatisticsReader(memory, binary, memory_globals(binary), bias)
            text += memstats_text.text(reader.read(), reader.pauses(), target.peak_rss_bytes())
        return text.encode("utf-8", "backslashreplace")


def count(pid: int) -> int:
    """How many buckets there are."""
    with _read(pid) as read:
        return len(read.counts.stacks)


@contextmanager
def _read(pid: int) -> Iterator[_Read]:
    with opened(pid) as (target, binary), Memory(target) as memory:
        bias = target.load_bias(binary.elf.entry)
        found = HeapBuckets(memory, binary.layout, heap_globals(binary), bias)
        require_profile(target, found)
        yield _Read(found.read(), target, memory, binary, bias)
