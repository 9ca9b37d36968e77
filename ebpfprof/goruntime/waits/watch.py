"""Watches the goroutines of a target from outside: which hang, which leak.

Quick samples, of the table of goroutines, show which have not moved (standing). Full samples, of
stacks, are rare: to find leaks, and to see which goroutines stand still now.
"""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.goruntime.process import for_user
from ebpfprof.goruntime.waits.dump import GoroutineDumper
from ebpfprof.goruntime.waits.standing import HANGING
from ebpfprof.profile.asleep import takes_signals
from ebpfprof.profile.goroutines import GoroutineGroup
from ebpfprof.profile.hanging import hanging
from ebpfprof.profile.leaks import LeakWatch, Suspects
from ebpfprof.profile.stuck import Stuck, stuck
from symbolizer.errors import SymbolizerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy.typing as npt

    from ebpfprof.goruntime.process import GoTarget
    from ebpfprof.goruntime.waits.standing import Standing
    from ebpfprof.profile.goroutines import DumpedGoroutine, GoroutineDump
    from ebpfprof.profile.hanging import Hanging

_SPREAD: Final = (0.7, 1.3)  # times the interval: a program may do something regularly
QUICK_SHARE: Final = 0.005  # of a processor; twice that for full samples
FULL_SHARE: Final = 0.01
SOON_S: Final = 5.0
_MOST: Final = 16
MOST_READ: Final = 50_000  # a sample of all their stacks takes about 200 MB for a second or two


@dataclass(frozen=True, slots=True)
class HangingGroup:
    """Goroutines that hang at one place, as of the last sample.

    `count` are still there, of which the first has not moved for `at_least_ns`, the last for
    `newest_ns`. `first` has their stack.
    """

    operation: str
    first: DumpedGoroutine
    count: int
    at_least_ns: int
    newest_ns: int


@dataclass(frozen=True, slots=True)
class WatchedGoroutines:
    """What is known of a target, of its `goroutines` at the last full sample; `samples` were full.

    The groups of `leaks` have one goroutine each, as an example; `leaking` are how many there are.
    At most 16 of each are listed, the largest first; `beyond` goroutines were not read.
    """

    goroutines: int
    samples: int
    hanging: tuple[HangingGroup, ...]
    stuck: tuple[Stuck, ...]
    leaks: tuple[tuple[Suspects, int], ...]
    beyond: int = 0


@dataclass(slots=True)
class _Hang:
    """Goroutines that hung in a full sample: numbers of their waits, and since when they wait."""

    operation: str
    first: DumpedGoroutine
    waits: npt.NDArray[np.uint64]
    since_ns: npt.NDArray[np.int64]


class GoroutineWatch:
    """The samples of one target. Closes the target's memory. For one thread at a time."""

    def __init__(self, go: GoTarget) -> None:
        """Open the target's memory. Raises TargetGone, PermissionDenied or CorruptBinary."""
        self._go = go
        with _for_user(go):
            self._dumper = GoroutineDumper(go, most=MOST_READ)
        self._judge = self._dumper.judge()
        self._leaks = LeakWatch()
        self._seen: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        self._full_due_ns = self._soonest_ns = 0
        self._hangs: list[_Hang] = []
        self._stuck: list[Stuck] = []
        self._found = WatchedGoroutines(0, 0, (), (), ())

    @property
    def found(self) -> WatchedGoroutines:
        """What is known as of the last sample."""
        return self._found

    def sample(self, *, interval_s: float, full_every_s: float) -> float:
        """Take a sample; returns the seconds to the next one, so that it costs little.

        `interval_s` is the mean time between samples, `full_every_s` between those of all stacks.
        Raises TargetGone, UnreadableMemory or CorruptBinary.
        """
        began_s = time.thread_time()
        with _for_user(self._go):
            self._dumper.sample(self._judge)
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        standing = self._judge.standing(HANGING)
        cost_s = time.thread_time() - began_s
        is_new = not np.isin(standing.waits, self._seen).all()
        if now_ns >= self._full_due_ns or (is_new and now_ns >= self._soonest_ns):
            with _for_user(self._go):
                self._sample_stacks(standing, now_ns, full_every_s)
            self._seen = standing.waits
        self._update(now_ns)
        return max(interval_s * random.uniform(*_SPREAD), cost_s / QUICK_SHARE)

    def _sample_stacks(self, standing: Standing, now_ns: int, full_every_s: float) -> None:
        began_s = time.thread_time()
        since_ns = standing.by_wait()
        dump = self._dumper.dump_once(since_ns)
        groups = hanging(dump.goroutines)
        self._stuck = []
        if any(group.is_lock for group in groups) or _none_runs(dump):
            self._stuck = stuck(self._dumper.dump_once(since_ns, has_waits=True))[:_MOST]
        self._hangs = [_hang(group, dump.read_ns) for group in groups[:_MOST]]
        leaks, is_due = self._found.leaks, now_ns >= self._full_due_ns
        if is_due:
            leaks = tuple(map(_example, self._leaks.add(dump)[:_MOST]))
        self._soonest_ns = now_ns + round(
            1e9 * max(SOON_S, (time.thread_time() - began_s) / FULL_SHARE)
        )
        if is_due:
            self._full_due_ns = max(self._soonest_ns, now_ns + round(1e9 * full_every_s))
        self._found = replace(
            self._found,
            goroutines=len(dump.goroutines),
            samples=self._found.samples + is_due,
            leaks=leaks,
            beyond=dump.beyond,
        )

    def _update(self, now_ns: int) -> None:
        """Leave out what continued since the last full sample."""
        waits = self._judge.waits
        groups = [_still_there(hang, waits, now_ns) for hang in self._hangs]
        still = [stuck for stuck in self._stuck if np.isin(_numbers(stuck.goroutines), waits).all()]
        self._found = replace(
            self._found,
            hanging=tuple(group for group in groups if group),
            stuck=tuple(still),
        )


@contextmanager
def _for_user(go: GoTarget) -> Iterator[None]:
    """Translates errors of the target's tables."""
    try:
        yield
    except SymbolizerError as error:
        raise for_user(go.target, error, go.path) from error


def _none_runs(dump: GoroutineDump) -> bool:
    """Whether no goroutine has moved, but one that takes signals."""
    return bool(dump.goroutines) and all(
        goroutine.stood_ns or takes_signals(goroutine) for goroutine in dump.goroutines
    )


def _numbers(members: Sequence[DumpedGoroutine]) -> npt.NDArray[np.uint64]:
    return np.array([member.wait or 0 for member in members], np.uint64)


def _hang(hanging: Hanging, read_ns: int) -> _Hang:
    members = hanging.goroutines
    since_ns = np.array([read_ns - member.waited_ns for member in members], np.int64)
    return _Hang(hanging.operation, members[0], _numbers(members), since_ns)


def _still_there(hang: _Hang, waits: npt.NDArray[np.uint64], now_ns: int) -> HangingGroup | None:
    is_there = np.isin(hang.waits, waits)
    if not is_there.any():
        return None
    since_ns = hang.since_ns[is_there]
    longest_ns = max(0, now_ns - int(since_ns.min()))
    newest_ns = max(0, now_ns - int(since_ns.max()))
    return HangingGroup(hang.operation, hang.first, len(since_ns), longest_ns, newest_ns)


def _example(suspects: Suspects) -> tuple[Suspects, int]:
    """The same with one goroutine of the group, and how many there are."""
    group = GoroutineGroup((suspects.group.first,))
    return replace(suspects, group=group), len(suspects.group.goroutines)
