"""Pairs of stacks: a sample of a wakers profile is a goroutine that waited and what woke it.

Its stack is that of the goroutine that waited, as in a block profile; then a frame of its own, then
the stack of the waker. So the leaf functions are those of the block profile, and the root is the
waker's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from ebpfprof.profile.model import Frame, Location, Sample

# Addresses where no program has code: viewers distinguish stacks by addresses.
WOKEN_BY: Final = Location(0x10, None, (Frame("[woken by]", "", 0),))
UNKNOWN_WAKER: Final = Location(0x20, None, (Frame("[not known]", "", 0),))
"""In place of a waker's stack: it could not be read, or no window saw the wake."""
NO_GOROUTINE: Final = Location(0x30, None, (Frame("[runtime: no goroutine]", "", 0),))
"""The root of a waker that is no goroutine: the runtime woke, on a thread's own stack."""


def waiter_of(sample: Sample) -> Sample:
    """The sample with the stack that waited only; the sample itself if it is no pair."""
    at = _separator(sample.locations)
    return sample if at is None else replace(sample, locations=sample.locations[:at])


def waker_of(sample: Sample) -> Sample | None:
    """The sample with the stack of its waker only; None if it is no pair."""
    at = _separator(sample.locations)
    return None if at is None else replace(sample, locations=sample.locations[at + 1 :])


def are_pairs(samples: Sequence[Sample]) -> bool:
    """Whether each sample is one that waited and what woke it."""
    return all(_separator(sample.locations) is not None for sample in samples)


def _separator(locations: Sequence[Location]) -> int | None:
    # In front of the root: a program's own functions are not called like that.
    name = WOKEN_BY.frames[0].function
    for at, location in enumerate(locations):
        if location.frames and location.frames[0].function == name:
            return at
    return None
