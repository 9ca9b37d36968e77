"""Checks what seems stuck: locks that are free and have waiters, and a program asleep.

A dump says which goroutines have not moved. If some of these seem to be in a deadlock, some more
samples follow, at random distances. Each has the words of their locks, all goroutines, the words
again, and what could wake a goroutine from outside: timers, and threads that are not Go's.

A wake is lost if a lock is free for a waiter (lock_words) in all samples, its words and waiters are
the same, and no goroutine can be about to wake them. Such a goroutine is inside a function of
package sync, and does not wait there; so it runs, and has no stack in memory, or its stack shows
that. It must be there in all samples: if it continues between two of them, it completes the wake,
or changes the words. (A lock that is taken and released between each two of our samples, always by
goroutines that come a few instructions before the wake, would seem the same.)
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from ebpfprof.goruntime.goroutines.thread_list import ThreadList
from ebpfprof.goruntime.waits.lock_waits import LockWait, types_of
from ebpfprof.goruntime.waits.lock_words import LockWords, is_free, lock_words, stays_held
from ebpfprof.goruntime.waits.standing import CONFIRMED, StandingJudge
from ebpfprof.goruntime.waits.timers import TimerReader
from ebpfprof.goruntime.waits.wait_causes import CauseReader
from ebpfprof.process.memory import UnreadableMemory
from ebpfprof.profile.asleep import IO_WAIT, WAITS, is_signal_receiver, may_be_asleep
from ebpfprof.profile.deadlocks import circles
from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump, Outside
from ebpfprof.profile.waiting_for import Sureness
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ebpfprof.goruntime.goroutines.all_goroutines import (
        AllGoroutines,
        Goroutine,
        GoroutineScanner,
    )
    from ebpfprof.goruntime.goroutines.frames import StackFrames
    from ebpfprof.goruntime.process import GoTarget

APART_S: Final = (0.02, 0.08)
"""Between two samples: at random between these."""
_MAX_WAITS: Final = 4096  # whose locks we read
_SYNC: Final = ("sync.", "internal/sync.")
_RUNTIME: Final = ("runtime.", "internal/runtime/", "runtime/internal/")


class Awake(NamedTuple):
    """A goroutine that does not wait: it may be inside of package sync, or takes signals."""

    sequence: int
    in_sync: bool
    has_stack: bool
    takes_signals: bool


class StuckSample(NamedTuple):
    """A sample of the goroutines of the program, not the runtime's own.

    `words` are those of the locks that did not change meanwhile. `parked` are goroutines that wait,
    with the numbers of their waits. `timers` are those that are set,
    `others` the threads that are not Go's; None if that is not known.
    """

    words: dict[int, LockWords]
    parked: dict[int, int]
    awake: dict[int, Awake]
    timers: int | None
    others: int | None


class _Suspects(NamedTuple):
    """Waits for locks that have not moved, by goid, the locks' types and words, by address."""

    waits: dict[int, LockWait]
    types: dict[int, str]
    words: dict[int, LockWords]

    @property
    def free(self) -> set[int]:
        """The goroutines for which their lock is free."""
        return {
            goid
            for goid, wait in self.waits.items()
            if (words := self.words.get(wait.address))
            and is_free(self.types[wait.address], words, wait.sema_offset)
        }


class StuckCheck:
    """Checks one target through a scanner of its goroutines."""

    def __init__(self, go: GoTarget, scanner: GoroutineScanner, frames: StackFrames) -> None:
        self._scanner, self._frames, self._layout = scanner, frames, go.binary.layout
        self._memory = scanner.memory
        self._timers = TimerReader(go, self._memory)
        self._causes = CauseReader(go, self._memory)
        self._threads = go.target.threads()
        self._machines: ThreadList | None = None
        with suppress(SymbolizerError):  # then others are unknown
            self._machines = ThreadList(go.binary, go.load_bias, go.target.pid)

    def confirm(
        self, dump: GoroutineDump, goroutines: AllGoroutines, waits: Mapping[int, LockWait]
    ) -> GoroutineDump:
        """The dump with what more samples show, if any are due; `waits` by address of runtime.g.

        Goroutines that moved meanwhile have not stood. Raises TargetGone, UnreadableMemory or
        GoTableError.
        """
        stood = {goroutine.goid for goroutine in dump.goroutines if goroutine.stood_ns}
        standing = [goroutine for goroutine in goroutines.goroutines if goroutine.goid in stood]
        suspects = self._suspects(standing, waits)
        free = suspects.free
        asleep = may_be_asleep(dump) and not any(
            goroutine.words.bubble for goroutine in goroutines.goroutines
        )
        if not (free or asleep or circles(dump.goroutines)):
            return dump
        samples = []
        judge = StandingJudge(self._scanner.counted)
        judge.add(goroutines.waits, goroutines.read_ns, goroutines.read_ns)
        for _ in range(CONFIRMED.samples - judge.samples):
            # Apart, by chance: what moves in step with samples would seem to stand still.
            time.sleep(random.uniform(*APART_S))
            sample, again = self.sample_again(suspects.types)
            samples.append(sample)
            judge.add(again.waits, again.read_ns, again.read_ns)
        waits_still = judge.standing(CONFIRMED).by_wait()
        still = {goroutine.goid for goroutine in standing if goroutine.wait in waits_still}
        same = {
            address
            for address, words in suspects.words.items()
            if all(sample.words.get(address) == words for sample in samples)
        }
        steady = {
            address
            for address, words in suspects.words.items()
            if all(address in sample.words for sample in samples)
            and stays_held(
                suspects.types[address], [words, *(sample.words[address] for sample in samples)]
            )
        }
        how_sure = sureness(samples, beyond=dump.beyond) if free else None
        signals = self._for_signals(standing) if asleep else frozenset[int]()

        def confirmed(goroutine: DumpedGoroutine) -> DumpedGoroutine:
            if goroutine.goid not in still:
                return replace(goroutine, stood_ns=0)
            wait = suspects.waits.get(goroutine.goid)
            is_steady = wait is not None and wait.address in steady
            about = replace(
                goroutine.waits_for,
                is_steady=is_steady,
                lost_wake=how_sure
                if wait and wait.address in same and goroutine.goid in free
                else None,
                for_signal=goroutine.goid in signals,
            )
            return replace(goroutine, waits_for=about)

        outside = _outside(samples, dump) if asleep else None
        return replace(dump, goroutines=tuple(map(confirmed, dump.goroutines)), outside=outside)

    def _suspects(self, standing: Sequence[Goroutine], waits: Mapping[int, LockWait]) -> _Suspects:
        chosen = [goroutine for goroutine in standing if goroutine.address in waits][:_MAX_WAITS]
        types = types_of({goroutine.address: waits[goroutine.address] for goroutine in chosen})
        words = lock_words(self._memory, self._layout, types)
        return _Suspects(
            {goroutine.goid: waits[goroutine.address] for goroutine in chosen}, types, words
        )

    def sample_again(self, types: Mapping[int, str]) -> tuple[StuckSample, AllGoroutines]:
        """Another sample of locks of these types, by address, and of all goroutines.

        Raises TargetGone, UnreadableMemory or GoTableError.
        """
        before = lock_words(self._memory, self._layout, types)
        goroutines = self._scanner.scan()
        self._frames.look_up(
            pc
            for goroutine in goroutines.goroutines
            for pc in (*goroutine.pcs, goroutine.start_pc)
            if pc
        )
        own = [
            goroutine
            for goroutine in goroutines.goroutines
            if not self._frames.is_system(goroutine.start_pc, goroutine.pcs, goroutine.state)
        ]
        after = lock_words(self._memory, self._layout, types)
        sample = StuckSample(
            {
                address: words
                for address, words in after.items()
                if stays_held(types[address], (before[address], words))
            },
            {goroutine.goid: goroutine.wait for goroutine in own if goroutine.is_parked},
            {
                goroutine.goid: self._awake(goroutine)
                for goroutine in own
                if not self._waits(goroutine)
            },
            self._timers.pending(),
            self._others(),
        )
        return sample, goroutines

    def _waits(self, goroutine: Goroutine) -> bool:
        """Whether it waits for others. Waits for the collector may end at once: not counted."""
        return goroutine.is_parked and (goroutine.state in WAITS or goroutine.state == IO_WAIT)

    def _awake(self, goroutine: Goroutine) -> Awake:
        names = (
            [frame.function for frame in self._frames.of(goroutine.pcs)] if goroutine.pcs else []
        )
        inner = next((name for name in names if not name.startswith(_RUNTIME)), "")
        takes_signals = is_signal_receiver(goroutine.state, names)
        return Awake(goroutine.sequence, inner.startswith(_SYNC), bool(names), takes_signals)

    def _others(self) -> int | None:
        if self._machines is None:
            return None
        with suppress(UnreadableMemory):  # then others are unknown
            own = {machine.thread for machine in self._machines.read(self._memory)}
            return len(self._threads.numbers().keys() - own)
        return None

    def _for_signals(self, standing: Sequence[Goroutine]) -> frozenset[int]:
        """Those that wait for a channel of signals."""
        waiting = {
            goroutine.address: goroutine.goid for goroutine in standing if goroutine.words.waiting
        }
        causes = self._causes.read(waiting)
        return frozenset(waiting[row] for row, cause in causes.items() if cause.signals)


def sureness(samples: Sequence[StuckSample], *, beyond: int) -> Sureness | None:
    """How sure it is that nothing is about to wake waiters of a free lock; None if it is not.

    A goroutine that ran at all samples may be about to, unless it stopped running between them.
    `beyond` goroutines were not read.
    """
    doubtful = set(samples[0].awake)
    for sample in samples:
        doubtful &= {
            goid for goid, place in sample.awake.items() if place.in_sync or not place.has_stack
        }
    for goid in doubtful:
        seen = [sample.awake[goid] for sample in samples]
        if any(sample.in_sync for sample in seen) or len({sample.sequence for sample in seen}) == 1:
            return None
    return Sureness.LIKELY if doubtful or beyond else Sureness.CERTAIN


def _outside(samples: Sequence[StuckSample], dump: GoroutineDump) -> Outside | None:
    """What could wake goroutines from outside; None if one of the program's was awake."""
    known_ids = {goroutine.goid for goroutine in dump.goroutines}
    for sample in samples:
        is_same = sample.parked == samples[0].parked and sample.parked.keys() <= known_ids
        if not is_same or not all(words.takes_signals for words in sample.awake.values()):
            return None
    timers = [sample.timers for sample in samples]
    others = [sample.others for sample in samples]
    if None in timers or any(timers):
        return None
    known = [other for other in others if other is not None]
    return Outside(max(known) if len(known) == len(others) else None)
