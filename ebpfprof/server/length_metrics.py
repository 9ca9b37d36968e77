"""Lengths of waits as a Prometheus histogram, with the same buckets for all processes.

The buckets are classic ones. Those of native histograms grow exponentially: ours, which are linear
within a power of two, would have to be divided. And only the protobuf format has native ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client.core import HistogramMetricFamily

from ebpfprof.profile.length_counts import BOUNDS_NS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ebpfprof.profile.length_counts import LengthCounts

_BOUNDS: Final = (*(repr(ns / 1e9) for ns in BOUNDS_NS), "+Inf")


def length_family(labels: Sequence[str]) -> HistogramMetricFamily:
    """The histogram, with these labels."""
    return HistogramMetricFamily(
        "ebpfprof_wait_seconds",
        "Waits by length, by kind of profile, without idle waits and those of unknown length.",
        labels=labels,
        unit="seconds",
    )


def add_lengths(family: HistogramMetricFamily, labels: Sequence[str], waits: LengthCounts) -> None:
    """Add the waits with these values of labels."""
    family.add_metric(labels, list(zip(_BOUNDS, waits.counts, strict=True)), waits.ns / 1e9)
