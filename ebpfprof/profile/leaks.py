"""Groups of goroutines that become more and more, found by looking again and again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from ebpfprof.profile.asleep import IO_WAIT
from ebpfprof.profile.goroutines import (
    DumpedGoroutine,
    GoroutineDump,
    GoroutineGroup,
    group_key,
    groups,
)
from ebpfprof.profile.model import Frame

if TYPE_CHECKING:
    import numpy.typing as npt

_MIN_GROWTHS: Final = 2
_PATIENCE: Final = 2  # times the longest wait of the group that ended
_MAX_GROUPS: Final = 1 << 12
_LEAST_ALIVE: Final = 10
_MINUTE_NS: Final = 60_000_000_000
_ALL_BITS: Final = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Suspects:
    """Goroutines with the same stack, created by the same line, that may have leaked.

    `only_grows`: at two samples or more there were more of them than before, by `per_minute` on the
    average, and none of them has moved since. The oldest waits at least `oldest_ns`. `others` are
    in the same place, and wait no longer than goroutines did there that continued. `came` is how
    many came after the first sample. With `is_alive` they have only their creator in common: they
    move, but do not end.
    """

    group: GoroutineGroup
    only_grows: bool
    per_minute: float
    oldest_ns: int
    others: int = 0
    newest_ns: int = 0
    came: int = 0
    is_alive: bool = False

    @property
    def is_certain(self) -> bool:
        """Whether they can never continue, whatever other goroutines do."""
        return self.group.first.can_never_go_on or self.group.first.is_leaked


class _Members:
    """The members that the last sample saw, by their numbers, and when each was seen first.

    16 bytes for each.
    """

    def __init__(self) -> None:
        self.numbers: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)
        """Sorted."""
        self.since_ns: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    def add(self, numbers: npt.NDArray[np.uint64], now_ns: int) -> int | None:
        """Add a sample: sorted, each number once.

        Returns since when that one was there that had been longest of those that are gone; None if
        all are still there.
        """
        since_ns = np.full(len(numbers), now_ns, np.int64)
        _, now, before = np.intersect1d(
            numbers, self.numbers, assume_unique=True, return_indices=True
        )
        since_ns[now] = self.since_ns[before]
        is_gone = np.ones(len(self.numbers), np.bool_)
        is_gone[before] = False
        ended_ns = int(self.since_ns[is_gone].min()) if is_gone.any() else None
        self.numbers, self.since_ns = numbers, since_ns
        return ended_ns


class _History:
    """A group since the sample at `first_ns`: its members, and since which sample each of them
    waits.

    `known_ns` is `first_ns` if there were members already; then nothing shows when they came.
    """

    def __init__(
        self, first_ns: int, known_ns: int | None, number: Callable[[DumpedGoroutine], int]
    ) -> None:
        self._number = number
        self._first_ns, self._known_ns = first_ns, known_ns
        self._moved_after_ns = 0
        self._members = _Members()

    def add(self, group: GoroutineGroup | None, now_ns: int) -> None:
        """What one more sample found: None if there are no members any more."""
        members = group.goroutines if group else ()
        # Not np.unique: it imports numpy.ma, which takes longer than all of this.
        waits = np.array(sorted({self._number(member) for member in members}), np.uint64)
        ended_ns = self._members.add(waits, now_ns)
        if ended_ns is not None:
            self._moved_after_ns = max(self._moved_after_ns, now_ns - ended_ns)

    def suspects(self, group: GoroutineGroup, now_ns: int) -> Suspects | None:
        """The members that wait longer than any that continued; None without one."""
        patience_ns = _PATIENCE * self._moved_after_ns
        # As long as none continued, all may be stuck, those that came just now with them.
        stuck = now_ns - self._members.since_ns > (patience_ns or -1)
        if not stuck.any():
            return None
        waits = set(self._members.numbers[stuck].tolist())
        members = tuple(
            goroutine for goroutine in group.goroutines if self._number(goroutine) in waits
        )
        since_ns = self._members.since_ns[stuck]
        came = since_ns if self._known_ns is None else since_ns[since_ns != self._known_ns]
        only_grows = len(set(came.tolist())) >= _MIN_GROWTHS
        length_ns = now_ns - self._first_ns - patience_ns
        suspected = GoroutineGroup(members)
        return Suspects(
            suspected,
            only_grows,
            len(came) * _MINUTE_NS / length_ns if only_grows and length_ns > 0 else 0.0,
            max(suspected.longest_ns, now_ns - int(since_ns.min())),
            len(group.goroutines) - len(members),
            now_ns - int(since_ns.max()),
            len(came),
        )


def _wait(goroutine: DumpedGoroutine) -> int:
    return goroutine.wait or 0


def _life(goroutine: DumpedGoroutine) -> int:
    return goroutine.goid & _ALL_BITS


class LeakWatch:
    """Compares the samples of one process. It takes about 16 bytes for each goroutine.

    Goroutines that leak may share their stack with others that continue. How long those wait is
    what tells them apart: members of a group that wait twice as long as any that continued are
    counted. Leaked goroutines that move are found by their creator: they live twice as long as any
    that it created and that ended.
    """

    def __init__(self, *, most_groups: int = _MAX_GROUPS) -> None:
        """Watch so many groups at most: the largest ones."""
        self._most_groups = most_groups
        self._histories: dict[tuple[object, ...], _History] = {}
        self._lives: dict[tuple[object, ...], _History] = {}
        self._last_ns = 0

    def add(self, dump: GoroutineDump) -> list[Suspects]:
        """With one more sample: certain leaks, and groups that only grow, the fastest first."""
        now_ns, leaks = dump.read_ns, []
        waiting = [group for group in groups(dump.goroutines) if group.first.wait is not None]
        present = {group_key(group.first): group for group in waiting[: self._most_groups]}
        self._add(self._histories, present, now_ns, _wait)
        for key, group in present.items():
            suspects = self._histories[key].suspects(group, now_ns)
            if group.first.can_never_go_on or group.first.is_leaked:
                suspects = suspects or Suspects(group, False, 0.0, group.longest_ns)
            if suspects and (suspects.only_grows or suspects.is_certain):
                leaks.append(suspects)
        leaks += self._alive(dump, {leak.group.first.created_by for leak in leaks})
        self._last_ns = now_ns
        return sorted(leaks, key=lambda leak: (-leak.per_minute, -len(leak.group.goroutines)))

    def _alive(self, dump: GoroutineDump, known: AbstractSet[Frame | None]) -> list[Suspects]:
        """Goroutines that move and don't end, of creators that are not `known` to leak.

        As many goroutines serve connections as there are connections: those are left out.
        """
        now_ns, alive = dump.read_ns, []
        members = defaultdict[Frame, list[DumpedGoroutine]](list)
        for goroutine in dump.goroutines:
            if goroutine.created_by is not None:
                members[goroutine.created_by].append(goroutine)
        largest = sorted(members.values(), key=len, reverse=True)[: self._most_groups]
        present: dict[tuple[object, ...], GoroutineGroup] = {
            (goroutines[0].created_by,): GoroutineGroup(tuple(goroutines)) for goroutines in largest
        }
        self._add(self._lives, present, now_ns, _life)
        for key, group in present.items():
            if group.first.created_by in known or any(
                goroutine.state == IO_WAIT for goroutine in group.goroutines
            ):
                continue
            suspects = self._lives[key].suspects(group, now_ns)
            if suspects and suspects.only_grows and suspects.came >= _LEAST_ALIVE:
                alive.append(replace(suspects, is_alive=True))
        return alive

    def _add(
        self,
        histories: dict[tuple[object, ...], _History],
        present: Mapping[tuple[object, ...], GoroutineGroup],
        now_ns: int,
        number: Callable[[DumpedGoroutine], int],
    ) -> None:
        for key, group in present.items():
            history = histories.pop(key, None)
            if history is None:
                first_ns = self._last_ns or now_ns
                history = _History(first_ns, None if self._last_ns else now_ns, number)
            history.add(group, now_ns)
            histories[key] = history  # those that were seen last are last
        for key in [key for key in histories if key not in present]:
            histories[key].add(None, now_ns)
        for key in list(histories)[: max(0, len(histories) - self._most_groups)]:
            del histories[key]
