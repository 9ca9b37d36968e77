"""The goroutine profile."""

from __future__ import annotations

from ebpfprof.profile.kind import Endpoint, ProfileKind, Table
from ebpfprof.profile.model import ValueType

GOROUTINE = ProfileKind(
    name="goroutine",
    title="goroutine",
    subject="Goroutines",
    summary="where all goroutines are, also those that run or wait for the network",
    heading="Goroutines of {process} after {length}",
    events="goroutines",
    nothing="no goroutine could be read",
    headline="of all goroutines:",
    sample_types=(ValueType("goroutine", "count"),),
    table=Table("operations", "Goroutines", "Goroutines", ("Called from", "From")),
    profiler="ebpfprof.profilers.goroutines.loader",
    key="o",
    endpoint=Endpoint(
        "goroutine",
        "Stack traces of all current goroutines. Use debug=2 as a query parameter to export in the "
        "same format as an unrecovered panic.",
        reader="ebpfprof.server.goroutines",
    ),
    sampling=lambda _: "every goroutine",
    is_moment=True,
    needs_bpf=False,
    is_default=False,
)
