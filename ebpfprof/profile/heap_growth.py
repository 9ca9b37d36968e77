"""The memory in use by stack, of a heap profile, with the variance of its sampling."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ebpfprof.profile.model import Location, Profile

_BYTES: Final = "bytes"


def in_use(profile: Profile) -> dict[tuple[Location, ...], tuple[int, float]]:
    """The bytes in use of each stack, of objects of all sizes, and the variance of that estimate.

    Of objects of s bytes a part p = 1 - exp(-s/period) is sampled, each on its own, and counts 1/p
    times: n estimated ones have a variance of n (1 - p) / p. What is in use is the last value.
    """
    sums: dict[tuple[Location, ...], tuple[int, float]] = {}
    for sample in profile.samples:
        objects, used = sample.values[-2], sample.values[-1]
        size = next((int(e.value) for e in sample.labels if e.key == _BYTES), 0)
        missed = math.exp(-size / profile.period) if profile.period > 1 else 0.0
        if not sample.values[0]:  # no event showed its allocation: no stack
            continue
        variance = (
            sample.variance or max(0, objects) * size * size * missed / (1 - missed)
            if missed < 1
            else 0.0
        )
        before, variance_before = sums.get(sample.locations, (0, 0.0))
        sums[sample.locations] = before + used, variance_before + variance
    return sums
