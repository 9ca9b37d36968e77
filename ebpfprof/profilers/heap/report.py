"""Makes the heap and allocs profiles of what was read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebpfprof.console.text import printable
from ebpfprof.profilers.heap import buckets
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP

if TYPE_CHECKING:
    from ebpfprof.goruntime.heap_buckets import HeapCounts
    from ebpfprof.profile.model import Sample
    from ebpfprof.profilers.heap.stacks import HeapStacks
    from ebpfprof.profilers.report_builder import ReportBuilder


def report(
    counts: HeapCounts | None,
    stacks: HeapStacks,
    builder: ReportBuilder,
    *,
    fresh: bool,
    why_not: Exception | None,
) -> None:
    """Add a profile of each chosen kind; without `counts` it has no samples, and says why not."""
    found: list[Sample] = []
    remarks = [printable(str(why_not))] if why_not else []
    rate = 0
    if counts is not None:
        remarks, rate = buckets.remarks(counts, fresh=fresh), counts.rate
        try:
            found = list(buckets.samples(counts, stacks, fresh=fresh))
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
    recording = builder.recording
    for kind in (HEAP, ALLOCS):
        if kind.name not in recording.kinds:
            continue
        account = builder.account(kind, f"{kind.title} profile", remarks)
        profile = kind.make_profile(
            found,
            recording.go.mappings if recording.go else (),
            period=rate,
            time_ns=recording.started_unix_ns,
            duration_ns=account.length_ns,
        )
        builder.add(profile, account)
