"""What findings about goroutines have in common: lines, locks, channels, functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ebpfprof.findings.finding import MORE_GOROUTINES
from ebpfprof.profile.operations import caller

if TYPE_CHECKING:
    from ebpfprof.findings.finding import Subject
    from ebpfprof.profile.goroutines import DumpedGoroutine


def subjects(goroutines: Iterable[DumpedGoroutine]) -> frozenset[Subject]:
    """Where they wait, and for which locks and channels."""
    shared: set[Subject] = set()
    for goroutine in goroutines:
        if goroutine.frames:
            shared.add(caller(goroutine.frames))
        if goroutine.waits_for.lock:
            shared.add(goroutine.waits_for.lock.address)
        shared.update(channel.address for channel in goroutine.channels)
    return frozenset(shared)


def growing(goroutines: Iterable[DumpedGoroutine]) -> frozenset[Subject]:
    """The same of goroutines of which there are more and more: memory grows in their functions."""
    functions: set[Subject] = set()
    members = tuple(goroutines)
    for goroutine in members:
        functions.update(frame.function for frame in goroutine.frames)
        if goroutine.created_by:
            functions.add(goroutine.created_by.function)
    return subjects(members) | functions | {MORE_GOROUTINES}
