"""Estimated sums that never fall, as readers of differences expect."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ebpfprof.profile.wait_histogram import NO_LENGTHS, WaitHistogram
from ebpfprof.profilers.waits.rows import KnownStack, StackTotal


@dataclass(slots=True)
class GrowingTotals:
    """What was returned of the sums of one target: an estimate may turn out to be too large."""

    _returned: dict[KnownStack, tuple[float, int, WaitHistogram]] = field(default_factory=dict)

    def grown(self, totals: Sequence[StackTotal]) -> list[StackTotal]:
        """The totals, none below what was returned for it before."""
        grown = []
        for total in totals:
            key = KnownStack(0, total.kind, total.sema, total.return_pcs, total.labels, total.waker)
            count, delay_ns, lengths = self._returned.get(key, (0.0, 0, NO_LENGTHS))
            count, delay_ns = max(count, total.count), max(delay_ns, total.delay_ns)
            lengths = lengths.at_least(total.lengths)
            self._returned[key] = count, delay_ns, lengths
            grown.append(replace(total, count=count, delay_ns=delay_ns, lengths=lengths))
        return grown
