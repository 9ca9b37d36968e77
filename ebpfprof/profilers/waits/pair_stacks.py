"""The stack of a pair: that of a goroutine that waited, and that of its waker, as profiles show it.

A waker's stack begins with the operation that woke: chan send, close, Unlock, Signal. Timers wake
while a thread looks for a goroutine to run; of that stack the timer's function is kept (for
channels it is time.sendTime, Go 1.19 to 1.27), and not the scheduler's way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ebpfprof.profile.evidence import UNKNOWN_RELEASE
from ebpfprof.profile.model import Location
from ebpfprof.profile.wakers import NO_GOROUTINE, UNKNOWN_WAKER, WOKEN_BY
from ebpfprof.profilers.waits.wait_stacks import WaitStack

if TYPE_CHECKING:
    from ebpfprof.profilers.waits.rows import StackTotal, Waker
    from ebpfprof.profilers.waits.wait_stacks import StackTranslator

_UNKNOWN: Final = WaitStack((UNKNOWN_WAKER,), is_cut=False, key=0)
UNKNOWN: Final = WaitStack((UNKNOWN_RELEASE,), is_cut=False, key=1)
"""The stack of releases that were not recorded, which have no return addresses."""


def stack_of(translator: StackTranslator, total: StackTotal) -> WaitStack | None:
    """The stack of a sum, of a pair or not; None if Go's profiler has no such event.

    Raises GoTableError if the binary's tables contradict themselves.
    """
    if not total.return_pcs:
        return UNKNOWN
    if total.waker is None:
        kind = "block" if total.kind == "runqueue" else total.kind
        return translator.stack(kind, total.return_pcs)
    waiter = translator.stack("block", total.return_pcs)
    return waiter and joined(waiter, _waker(translator, total.waker))


def bare_stack_of(translator: StackTranslator, total: StackTotal) -> WaitStack:
    """The stack of a sum without names."""
    stack = translator.bare_stack(total.return_pcs)
    if total.waker is None:
        return stack
    pcs = total.waker.return_pcs
    return joined(stack, translator.bare_stack(pcs) if pcs else _UNKNOWN)


def joined(waiter: WaitStack, waker: WaitStack) -> WaitStack:
    """The stack of a pair, the waiter's leaf first."""
    locations = (*waiter.locations, WOKEN_BY, *waker.locations)
    is_cut = waiter.is_cut or waker.is_cut
    return WaitStack(locations, is_cut, key=hash((waiter.key, waker.key)))


def _waker(translator: StackTranslator, waker: Waker) -> WaitStack:
    if not waker.return_pcs:
        return _UNKNOWN
    stack = translator.stack(waker.kind, waker.return_pcs)
    assert stack  # each one that wakes has a stack
    if waker.kind != "thread":
        return stack
    kept = (*_to_first_function(stack.locations), NO_GOROUTINE)
    return WaitStack(kept, is_cut=False, key=hash(kept))


def _to_first_function(locations: Sequence[Location]) -> Sequence[Location]:
    """The locations from the leaf to the first one outside of the runtime; all if there is none."""
    for at, location in enumerate(locations):
        if any(not frame.function.startswith("runtime.") for frame in location.frames):
            return locations[: at + 1]
    return locations
