"""The memory profile of a process in the forms of net/http/pprof.

The process keeps running meanwhile, and needs no recording. Functions raise as
server.read_endpoint.Reader; UnsupportedTarget if the program keeps no memory profile.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import NamedTuple

from ebpfprof.goruntime.heap.heap_buckets import HeapBuckets, HeapCounts, require_profile
from ebpfprof.goruntime.heap.memory_stats import MemoryStatisticsReader
from ebpfprof.goruntime.open_processes import OpenProcess
from ebpfprof.process.memory import Memory
from ebpfprof.process.process import Target
from ebpfprof.profile.kind import ProfileKind
from ebpfprof.profile.model import Profile
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.heap_stacks import HeapStacks
from ebpfprof.server import heap_text, memstats_text
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


def profile(process: OpenProcess, kind: ProfileKind) -> Profile:
    """The profile that Go would write now, of this kind."""
    counts, _, _, binary, bias = _read(process)
    mappings = process.mappings(any_version=True)
    stacks = HeapStacks(binary, bias, mappings)
    return kind.make_profile(
        buckets.samples(counts, stacks, fresh=False),
        mappings,
        period=counts.rate,
        time_ns=time.time_ns(),
        duration_ns=0,
        comments=buckets.remarks(counts, fresh=False),
    )


def written(process: OpenProcess, _kind: ProfileKind, _debug: int) -> bytes:
    """The text of ?debug=1 and higher."""
    counts, target, memory, binary, bias = _read(process)
    text = heap_text.text(counts, binary, bias)
    with suppress(GoTableError):  # of a program whose variables we don't find: without them
        reader = MemoryStatisticsReader(memory, binary, memory_globals(binary), bias)
        text += memstats_text.text(reader.read(), reader.pauses(), target.peak_rss_bytes())
    return text.encode("utf-8", "backslashreplace")


def count(process: OpenProcess) -> int:
    """How many buckets there are."""
    return len(_read(process).counts.stacks)


def _read(process: OpenProcess) -> _Read:
    binary, bias = process.binary(any_version=True), process.load_bias(any_version=True)
    memory = process.target.memory
    buckets = HeapBuckets(memory, binary.layout, heap_globals(binary), bias)
    require_profile(process.target, buckets)
    return _Read(buckets.read(), process.target, memory, binary, bias)
