"""What is wrong with the goroutines of a process, by a dump: what `doctor` tells of it."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.profile.goroutines import GoroutineDump, GoroutineGroup, GrowingSite, groups
from ebpfprof.profile.standing import Senders, standing_senders
from ebpfprof.profile.stuck import Held, Stuck, held, stuck


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a dump tells: what is stuck, waits for locks that did not move, leaks.

    `leaks` can never go on, whatever other goroutines do, or Go's runtime says so. `senders` are
    large groups that stand still.
    """

    dump: GoroutineDump
    stuck: tuple[Stuck, ...]
    held: tuple[Held, ...]
    leaks: tuple[GoroutineGroup, ...]
    senders: tuple[Senders, ...] = ()

    @property
    def has_findings(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.stuck or self.held or self.leaks or self.senders or self.growing)

    @property
    def growing(self) -> tuple[GrowingSite, ...]:
        """The lines that created more and more goroutines, but those of `senders`."""
        known = {each.group.first.created_by for each in self.senders}
        return tuple(each for each in self.dump.growing if each.created_by not in known)


def diagnosis(dump: GoroutineDump) -> Diagnosis:
    """What is wrong, as far as a dump can tell."""
    found = stuck(dump)
    leaks = (
        each
        for each in groups(dump.goroutines)
        if each.first.can_never_go_on or each.first.is_leaked
    )
    return Diagnosis(
        dump,
        tuple(found),
        tuple(held(dump, found)),
        tuple(leaks),
        tuple(standing_senders(dump)),
    )
