"""What is wrong with the goroutines of a process, by a dump: what `doctor` tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.profile.goroutines import GoroutineDump, GoroutineGroup, groups
from ebpfprof.profile.stuck import Held, Stuck, held, stuck


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a dump tells: what is stuck, waits for locks that did not move, certain leaks.

    The leaks can never go on, whatever other goroutines do, or Go's runtime says so.
    """

    dump: GoroutineDump
    stuck: tuple[Stuck, ...]
    held: tuple[Held, ...]
    leaks: tuple[GoroutineGroup, ...]

    @property
    def has_findings(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.stuck or self.held or self.leaks)


def diagnosis(dump: GoroutineDump) -> Diagnosis:
    """What is wrong, as far as a dump can tell."""
    found = stuck(dump)
    leaks = (
        each
        for each in groups(dump.goroutines)
        if each.first.can_never_go_on or each.first.is_leaked
    )
    return Diagnosis(dump, tuple(found), tuple(held(dump, found)), tuple(leaks))
