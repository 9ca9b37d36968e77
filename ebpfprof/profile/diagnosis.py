"""What is wrong with the goroutines of a process, by a dump: what `doctor` reports."""

from __future__ import annotations

from dataclasses import dataclass

from ebpfprof.profile.goroutines import GoroutineDump, GoroutineGroup, GrowingSite, groups
from ebpfprof.profile.standing import Senders, standing_senders
from ebpfprof.profile.stuck import Held, Stuck, held, stuck


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What a dump shows: what is stuck, waits for locks that did not move, leaks.

    `leaks` can never continue, whatever other goroutines do, or Go's runtime says so. `senders` are
    large groups that stand still.
    """

    dump: GoroutineDump
    stuck: tuple[Stuck, ...]
    held: tuple[Held, ...]
    leaks: tuple[GoroutineGroup, ...]
    senders: tuple[Senders, ...] = ()

    @property
    def has_findings(self) -> bool:
        """Whether there is anything to report."""
        return bool(self.stuck or self.held or self.leaks or self.senders or self.growing)

    @property
    def growing(self) -> tuple[GrowingSite, ...]:
        """The lines that created more and more goroutines, but those of `senders`."""
        known = {sender.group.first.created_by for sender in self.senders}
        return tuple(site for site in self.dump.growing if site.created_by not in known)


def diagnosis(dump: GoroutineDump) -> Diagnosis:
    """What is wrong, as far as a dump shows."""
    findings = stuck(dump)
    leaks = (
        group
        for group in groups(dump.goroutines)
        if group.first.can_never_go_on or group.first.is_leaked
    )
    return Diagnosis(
        dump,
        tuple(findings),
        tuple(held(dump, findings)),
        tuple(leaks),
        tuple(standing_senders(dump)),
    )
