"""The heap and allocs profiles, which have the same samples."""

from __future__ import annotations

from typing import Final

from ebpfprof.profile.heap_growth import in_use
from ebpfprof.profile.kind import Endpoint, ProfileKind, Table, Values
from ebpfprof.profile.model import ValueType
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue, SwitchValue

_TYPES: Final = (
    ValueType("alloc_objects", "count"),
    ValueType("alloc_space", "bytes"),
    ValueType("inuse_objects", "count"),
    ValueType("inuse_space", "bytes"),
)
_SPACE: Final = ValueType("space", "bytes")
_READER: Final = "ebpfprof.server.heap"
_PROFILER: Final = "ebpfprof.profilers.heap.loader"


def _sampling(values: Values) -> str:
    until = "now" if values["fresh_heap"] else "the latest garbage collection"
    return f"allocations that the program sampled itself, until {until}"


HEAP = ProfileKind(
    name="heap",
    title="heap",
    subject="Memory in use",
    summary="which allocations hold the memory that is in use",
    heading="Memory in use by {process} after {length}",
    events="objects",
    nothing="the program has sampled no allocation",
    headline="of the memory in use:",
    # As in Go's own heap profile (runtime/pprof/protomem.go).
    sample_types=_TYPES,
    shown=(2, 3),
    of_moment=(2, 3),  # as godeltaprof's heap profile
    period_type=_SPACE,
    growth=in_use,
    table=Table("functions", "In use", "", ("Function",)),
    profiler=_PROFILER,
    key="e",
    endpoint=Endpoint(
        "heap",
        "A sampling of memory allocations of live objects. You can specify the gc GET parameter to "
        "run GC before taking the heap sample.",
        delta="delta_heap",
        reader=_READER,
    ),
    options=(
        Setting(
            "fresh_heap",
            SwitchValue(),
            False,
            "In heap and allocs, count allocations until now and frees until the latest garbage "
            "collection. Go shows allocations only after the next collection.",
            flags="--fresh-heap/--no-fresh-heap",
        ),
        Setting(
            "alloc_rate",
            NumberValue(1),
            1,
            "In heap and allocs of a program without Go's memory profiler, count one object per "
            "BYTES, on average: 524288 as Go does; 1: each object, while probes are attached.",
            flags="--alloc-rate",
            metavar="BYTES",
        ),
    ),
    sampling=_sampling,
    is_moment=True,
    series="memory",
    needs_bpf=False,
    is_default=False,
    coverage="ebpfprof.profilers.heap.allocation_samples:AllocationCoverage",
)
ALLOCS = ProfileKind(
    name="allocs",
    title="allocs",
    subject="Allocated memory",
    summary="what has allocated memory since the program started, in use or not",
    heading="Memory that {process} has allocated, after {length}",
    events="objects",
    nothing="the program has sampled no allocation",
    headline="of the allocated memory:",
    sample_types=_TYPES,
    shown=(0, 1),
    default_sample_type="alloc_space",
    period_type=_SPACE,
    table=Table("functions", "Allocated", "", ("Function",)),
    profiler=_PROFILER,
    key="a",
    endpoint=Endpoint("allocs", "A sampling of all past memory allocations", reader=_READER),
    sampling=_sampling,
    is_moment=True,
    is_total=True,
    series="memory",
    needs_bpf=False,
    is_default=False,
    coverage="ebpfprof.profilers.heap.allocation_samples:AllocationCoverage",
)
