"""Profile kinds that there are only in tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ebpfprof.profile.kind import Endpoint, Loader, Metric, ProfileKind, Table
from ebpfprof.profile.model import ValueType
from ebpfprof.profilers.registry import registered
from ebpfprof.settings.setting import Setting
from ebpfprof.settings.values import NumberValue, SwitchValue

ALLOCS = ProfileKind(
    name="mallocs",
    title="allocation",
    subject="Allocations",
    summary="where memory was allocated",
    heading="Allocations of {process} in {length}",
    events="allocations",
    nothing="nothing was allocated",
    headline="of memory:",
    sample_types=(ValueType("alloc_objects", "count"), ValueType("alloc_space", "bytes")),
    table=Table("functions", "Memory", "Objects", ("Function",)),
    loader=Loader("tests.nowhere"),
    key="z",
    options=(
        Setting(
            "alloc_bytes",
            NumberValue(1, 1 << 20),
            512,
            "Sample one allocation in BYTES.",
            flags="--alloc-bytes",
            metavar="BYTES",
            excludes="max_overhead",
        ),
        Setting(
            "with_stacks",
            SwitchValue(),
            True,
            "Show stacks.",
            flags="--stacks/--no-stacks",
        ),
    ),
    sampling=lambda values: f"one in {values['alloc_bytes']} bytes",
)
"""Sums of bytes by function, of which options choose the events."""

GOROUTINES = ProfileKind(
    name="crowd",
    title="crowd",
    subject="Goroutines",
    summary="where goroutines are",
    heading="Goroutines of {process} after {length}",
    events="goroutines",
    nothing="there is no goroutine",
    headline="of goroutines:",
    sample_types=(ValueType("crowd", "count"),),
    table=Table("operations", "Goroutines", "Goroutines", ("Called from", "From")),
    loader=Loader("tests.nowhere"),
    key="g",
    is_moment=True,
)
"""A moment, of which samples have one value. Its key is one of those that move."""

NAPS = ProfileKind(
    name="naps",
    title="nap",
    subject="Naps",
    summary="where goroutines took a nap",
    heading="Naps of {process} in {length}",
    events="naps",
    nothing="no goroutine took a nap",
    headline="of all naps:",
    sample_types=(
        ValueType("naps", "count"),
        ValueType("rest", "nanoseconds"),
        ValueType("pillows", "bytes"),
    ),
    table=Table("operations", "Rest", "Naps", ("Where",)),
    loader=Loader("tests.nowhere"),
    endpoint=Endpoint("nap", "Where goroutines <napped>", delta="delta_nap"),
    metric=Metric("ebpfprof_nap_seconds", "Time that goroutines slept."),
)
"""Sums of three values, with an endpoint that is not called as the kind, and a metric."""


@pytest.fixture
def made_up() -> Iterator[None]:
    """The registry has the kinds above, too."""
    with registered(ALLOCS), registered(GOROUTINES):
        yield
