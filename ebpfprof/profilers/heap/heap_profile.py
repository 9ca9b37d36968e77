"""Makes the heap and allocs profiles of what was read."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ebpfprof.console.text import in_one_line, printable
from ebpfprof.goruntime.other_code import missing_allocations
from ebpfprof.profilers.heap import allocation_samples, buckets
from ebpfprof.profilers.heap.allocation_counts import AllocationCounts
from ebpfprof.profilers.heap.kind import ALLOCS, HEAP

if TYPE_CHECKING:
    from ebpfprof.goruntime.heap.heap_buckets import HeapCounts
    from ebpfprof.profile.kind import ProfileKind
    from ebpfprof.profile.model import Sample
    from ebpfprof.profilers.heap.heap_stacks import HeapStacks
    from ebpfprof.profilers.report_builder import ReportBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadHeap:
    """The buckets of a process at a moment, or what probes have counted; None without both."""

    counts: HeapCounts | AllocationCounts | None


def report(
    counts: HeapCounts | AllocationCounts | None,
    stacks: HeapStacks,
    builder: ReportBuilder,
    *,
    fresh: bool,
    why_not: Exception | None,
) -> None:
    """Add a profile of each chosen kind; without `counts` it has no samples, and says why not."""
    for kind in (HEAP, ALLOCS):
        if kind.name not in builder.recording.kinds:
            continue
        samples: list[Sample] = []
        remarks = [printable(in_one_line(str(why_not)))] if why_not else []
        try:
            if isinstance(counts, AllocationCounts):
                samples = allocation_samples.samples(counts, stacks, of_use=kind is HEAP)
                remarks = allocation_samples.remarks(counts)
                if builder.recording.go:
                    remarks += missing_allocations(builder.recording.go)
                if warning := allocation_samples.warning(counts):
                    target = builder.recording.target
                    builder.report.hints.append(f"Process {target.pid}: {warning}")
            elif counts is not None:
                remarks = buckets.remarks(counts, fresh=fresh)
                samples = list(buckets.samples(counts, stacks, fresh=fresh))
        except Exception as error:  # any error: the other profiles matter more
            builder.fail(error)
        _add(kind, samples, counts, remarks, builder)


def _add(
    kind: ProfileKind,
    samples: list[Sample],
    counts: HeapCounts | AllocationCounts | None,
    remarks: list[str],
    builder: ReportBuilder,
) -> None:
    recording = builder.recording
    account = builder.account(kind, f"{kind.title} profile", remarks)
    rate = 0
    if isinstance(counts, AllocationCounts):
        rate = counts.rate_bytes
        account = replace(
            account,
            sampling="allocations while it was recorded",
            coverage=allocation_samples.coverage(counts, HEAP.name, ALLOCS.name),
        )
    elif counts is not None:
        rate = counts.rate
    profile = kind.make_profile(
        samples,
        recording.go.mappings if recording.go else (),
        period=rate,
        time_ns=recording.started_unix_ns,
        duration_ns=account.length_ns,
    )
    builder.add(profile, account)
