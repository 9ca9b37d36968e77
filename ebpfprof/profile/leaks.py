"""Groups of goroutines that become more and more, found by looking again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from ebpfprof.profile.goroutines import GoroutineDump, GoroutineGroup, groups

_MIN_GROWTHS: Final = 2
_MINUTE_NS: Final = 60_000_000_000


@dataclass(frozen=True, slots=True)
class Suspects:
    """Goroutines with the same stack, created by the same line, that may have leaked.

    `only_grows`: at each look there were as many as before or more, at two looks at least more, and
    none of them had moved: by `per_minute` on the average. The oldest waits at least `oldest_ns`.
    """

    group: GoroutineGroup
    only_grows: bool
    per_minute: float
    oldest_ns: int

    @property
    def is_certain(self) -> bool:
        """Whether they can never go on, whatever other goroutines do."""
        return self.group.first.can_never_go_on or self.group.first.is_leaked


@dataclass(slots=True)
class _History:
    """A group since the look at `first_ns`, before which `first_count` goroutines were in it."""

    first_ns: int
    first_count: int
    count: int
    growths: int = 0
    members: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By goid: the number of the wait, and the time of the first look that saw it."""


class LeakWatch:
    """Compares the looks at one process."""

    def __init__(self) -> None:
        self._histories: dict[object, _History] = {}
        self._last_ns = 0

    def add(self, dump: GoroutineDump) -> list[Suspects]:
        """What one more look tells: certain leaks, and those that only grow, the fastest first.

        A group of which one goroutine moved or ended is watched from then on only.
        """
        before, self._histories = self._histories, {}
        found = []
        for group in groups(dump.goroutines):
            first = group.first
            suspects = None
            if first.sequence is not None:
                key = (first.state, first.frames, first.created_by)
                history = self._next(before.get(key), group, dump.read_ns)
                self._histories[key] = history
                suspects = _suspects(group, history, dump.read_ns)
            if suspects and (suspects.only_grows or suspects.is_certain):
                found.append(suspects)
        self._last_ns = dump.read_ns
        return sorted(found, key=lambda each: (-each.per_minute, -len(each.group.goroutines)))

    def _next(self, history: _History | None, group: GoroutineGroup, now_ns: int) -> _History:
        count = len(group.goroutines)
        now = {each.goid: each.sequence or 0 for each in group.goroutines}
        if history is None:
            is_first = not self._last_ns
            history = _History(now_ns if is_first else self._last_ns, count if is_first else 0, 0)
            history.growths = 0 if is_first else 1
        elif any(now.get(goid) != wait for goid, (wait, _) in history.members.items()):
            history = _History(now_ns, count, count)
        else:
            history.growths += count > history.count
        history.count = count
        history.members = {
            goid: history.members.get(goid, (wait, now_ns)) for goid, wait in now.items()
        }
        return history


def _suspects(group: GoroutineGroup, history: _History, now_ns: int) -> Suspects:
    only_grows = history.growths >= _MIN_GROWTHS
    length_ns = now_ns - history.first_ns
    grown = history.count - history.first_count
    seen_ns = min(since_ns for _, since_ns in history.members.values())
    return Suspects(
        group,
        only_grows,
        grown * _MINUTE_NS / length_ns if only_grows and length_ns > 0 else 0.0,
        max(group.longest_ns, now_ns - seen_ns),
    )
