"""The programs on which `explain` is judged: tests/targets/faults, one fault each or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.kernel.programs import program
from tests.targets_run import Target

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True)
class FaultProgram:
    """A program, and the kind of the finding that must come first; None if it is healthy.

    `also` are kinds that name the same cause in other words, so that they are right, too.
    """

    name: str
    kind: str | None
    also: tuple[str, ...] = ()

    @property
    def right(self) -> tuple[str, ...]:
        """The kinds of which one must come first; none for a healthy program."""
        return () if self.kind is None else (self.kind, *self.also)

    @property
    def path(self) -> Path:
        """The built program."""
        return program("faults")

    def start(self) -> Target:
        """Run it: it is under load, and its fault shows. Raises TargetError."""
        return Target.start(self.path, self.name)


PROGRAMS: Final = (
    FaultProgram("deadlock", "deadlock"),
    FaultProgram("lostsignal", "lost_wake", also=("hang",)),
    FaultProgram("neverdone", "lost_wake", also=("hang",)),
    FaultProgram("hang", "hang"),
    FaultProgram("leak", "goroutine_leak"),
    FaultProgram("tickerleak", "goroutine_leak"),
    FaultProgram("hotlock", "hot_lock"),
    FaultProgram("slowholder", "hot_lock"),
    FaultProgram("rwlock", "hot_lock"),
    FaultProgram("connpool", "starved_pool"),
    FaultProgram("sqlpool", "starved_pool"),
    FaultProgram("transport", "starved_pool"),
    FaultProgram("slowpeer", "slow_peer"),
    FaultProgram("slowdns", "slow_dns"),
    FaultProgram("slowconnect", "slow_connect"),
    FaultProgram("slowconsumer", "slow_consumer"),
    # Both say that its only decoder is too slow: for those before it, or for those behind it.
    FaultProgram("slowstage", "starved_consumer", also=("slow_consumer",)),
    FaultProgram("convoy", "convoy", also=("hot_lock",)),
    FaultProgram("idleserver", None),
    FaultProgram("busyserver", None),
    FaultProgram("burstyserver", None),
    FaultProgram("workerpool", None),
    FaultProgram("sqlserver", None),
    FaultProgram("background", None),
    FaultProgram("subscribers", None),
    FaultProgram("cron", None),
)
