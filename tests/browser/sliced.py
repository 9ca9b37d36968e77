"""A made-up profile of waits that was kept apart by time: short waits, then long ones."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from ebpfprof.profile.delta import merged
from ebpfprof.profile.model import Location, Profile, Sample
from ebpfprof.profile.wait_histogram import WaitHistogram
from ebpfprof.profile.wait_slices import WaitSlices
from tests.browser.pageserver import START_S, block_profile, stack

SLICES = 40
"""One a second."""
LONG_FROM = 20
"""The first slice with long waits."""
LONG_NS = 40_000_000
_LOCK = stack("sync.(*Mutex).Lock", "main.(*Cache).Get", "main.serve", line=79)
_CHANNEL = stack("runtime.chanrecv1", "main.answer", "main.serve")
_WORKER = stack("runtime.chanrecv2", "main.worker")


def sliced_profile(*, unknown: int = 0) -> Profile:
    """Waits for a channel all the time; for a lock LONG_NS and longer, in the second half.

    In each slice, `unknown` waits for the lock have no known length. Workers wait a second each,
    which is idle.
    """
    numbers = random.Random(46)
    slices, parts = WaitSlices(), []
    for index in range(SLICES):
        short = [int(10 ** numbers.gauss(5.3, 0.35)) for _ in range(60)]
        samples = [_waits(_CHANNEL, short), _waits(_WORKER, [1_000_000_000])]
        if index >= LONG_FROM:
            burst = 1 + math.sin((index - LONG_FROM) / 6) ** 2
            long = [round(burst * LONG_NS * numbers.uniform(1, 1.3)) for _ in range(8)]
            samples.append(_waits(_LOCK, long, unknown=unknown))
        part = replace(block_profile(), samples=tuple(samples))
        slices.add(part, START_S + index, START_S + index + 1)
        parts.append(part)
    whole = replace(merged(parts), duration_ns=SLICES * 1_000_000_000)
    return replace(whole, slices=slices)


def _waits(locations: tuple[Location, ...], lengths_ns: list[int], unknown: int = 0) -> Sample:
    count = len(lengths_ns) + unknown
    mean_ns = sum(lengths_ns) // len(lengths_ns)
    values = count, sum(lengths_ns) + unknown * mean_ns
    return Sample(locations, values, lengths=WaitHistogram.of(lengths_ns))
