"""What goroutine samples add to a replay: goroutines without events, and pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ebpfprof.timeline.events import NO_P, Known
from ebpfprof.timeline.replayed import ReplayedGoroutine, ReplayedState, ReplayedThread

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ebpfprof.timeline.scheduler import Scheduler

NOT_RECORDED: Final = "not recorded"
"""The reason of a wait in place of what a goroutine did while nothing was recorded."""


class SampledGoroutines:
    """Puts goroutines into the state in which a sample found them."""

    def __init__(self, scheduler: Scheduler, known: Mapping[int, Known]) -> None:
        self._scheduler = scheduler
        self.known = known
        """What the last sample found, by goid."""

    def hide(
        self, g: ReplayedGoroutine, thread: ReplayedThread, at_ns: int, known: Mapping[int, Known]
    ) -> None:
        """Have a goroutine wait for what was not recorded, or end: by a thread with a free P."""
        if g.state is ReplayedState.GONE or g.word == NOT_RECORDED:
            return
        after = known.get(g.goid)
        is_same = after and after.state == ReplayedState.WAITING.value and after.word == g.word
        if g.state is ReplayedState.WAITING and (is_same or not known):
            return
        self._scheduler.make_runnable(g, thread, at_ns)
        self._scheduler.start(g, thread, thread.p, at_ns, inferred=True)
        if after or not known:
            self._scheduler.block(thread, at_ns, NOT_RECORDED, 0, inferred=True)
        else:
            self._scheduler.destroy(thread, at_ns)

    def untold(self, known: Known) -> None:
        """A goroutine without events did the same all the time."""
        g = self._as_known(known)
        thread = self._scheduler.threads.get(known.tid)
        is_free = thread is None or (
            thread.g is None and thread.last_ns <= self._scheduler.begin_ns
        )
        runs = known.state == ReplayedState.RUNNING.value and known.p != NO_P and known.tid
        if runs and is_free and not self._scheduler.holder(known.p):
            thread = self._scheduler.thread(known.tid)
            self._scheduler.start(g, thread, known.p, thread.last_ns, inferred=True)

    def first(self, goid: int, at_ns: int) -> ReplayedGoroutine:
        """A goroutine with its first event at this time."""
        known = self.known.get(goid)
        if known is None or known.at_ns > at_ns:  # the sample came later
            return self._scheduler.begin_with(goid, ReplayedState.RUNNABLE)
        return self._as_known(known)

    def _as_known(self, known: Known) -> ReplayedGoroutine:
        """A goroutine as the sample of all of them found it."""
        scheduler = self._scheduler
        if known.state == ReplayedState.WAITING.value:
            return scheduler.begin_with(
                *(known.goid, ReplayedState.WAITING, known.word, known.stack), on=known.on
            )
        thread = scheduler.thread(known.tid) if known.tid else None
        is_free = thread and thread.g is None
        if thread and is_free and known.state == ReplayedState.SYSCALL.value and thread.p == NO_P:
            return scheduler.begin_in_call(known.goid, thread, known.stack)
        return scheduler.begin_with(known.goid, ReplayedState.RUNNABLE)
